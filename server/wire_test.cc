#include "server/wire.h"

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "base/check.h"
#include "gtest/gtest.h"
#include "runtime/testing/engine_fixture.h"

namespace stampmill {
namespace {

class WireTest : public testing::Test {
 protected:
  WireTest() {
    auto made = fixture_.Serve({.second_output = true});
    CHECK_OK(made);
    model_ = *std::move(made);
  }

  absl::Status Fill(const WireInference& wire) {
    auto acquired = fixture_.requests.Acquire();
    CHECK_OK(acquired);
    request_ = *std::move(acquired);
    request_->model = model_->Pin();
    return FillRequest(wire, *fixture_.pool, *request_);
  }
  static WireInput Input() {
    static const std::string bytes(16, '\0');
    return {.name = "IN",
            .datatype = "INT32",
            .shape = {1, 4},
            .bytes = std::as_bytes(std::span(bytes)),
            .shared_memory = std::nullopt};
  }

  EngineFixture fixture_;
  std::unique_ptr<ServedModel> model_;
  RequestHandle request_;
};

TEST_F(WireTest, FillsARequest) {
  ASSERT_TRUE(Fill({.id = "7", .inputs = {Input()}, .outputs = {}, .priority = 2}).ok());
  EXPECT_EQ(request_->id, "7");
  EXPECT_EQ(request_->priority, 2u);
  EXPECT_EQ(request_->inputs[0].index, 0);
  EXPECT_EQ(request_->inputs[0].bytes.size(), 16u);
}

TEST_F(WireTest, MergesDuplicateOutputs) {
  ASSERT_TRUE(
      Fill({.id = "",
            .inputs = {Input()},
            .outputs = {{"COPY", std::nullopt}, {"OUT", std::nullopt}, {"COPY", std::nullopt}}})
          .ok());
  ASSERT_EQ(request_->outputs.size(), 2u);
  EXPECT_EQ(request_->outputs[0].index, model_->model().FindOutput("COPY"));
}

TEST_F(WireTest, RefusesWhatTheModelDoesNotHave) {
  const auto expect = [&](const WireInference& wire, absl::string_view text) {
    const absl::Status status = Fill(wire);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_TRUE(absl::StrContains(status.message(), text)) << status;
  };
  WireInput input = Input();
  input.name = "X";
  expect({.id = "3", .inputs = {input}, .outputs = {}},
         "[request id: 3] unexpected inference input 'X' for model 'add'");
  input = Input();
  input.datatype = "BYTES";
  expect({.id = "", .inputs = {input}, .outputs = {}}, "data-type is 'BYTES'");
  input = Input();
  input.shape.assign(100, 1);
  expect({.id = "", .inputs = {input}, .outputs = {}}, "'IN'");
  expect({.id = "", .inputs = {Input(), Input()}, .outputs = {}}, "already exists in request");
  expect({.id = "", .inputs = {Input()}, .outputs = {{"Y", std::nullopt}}},
         "unexpected inference output 'Y'");
  expect({.id = "", .inputs = std::vector<WireInput>(2000, Input()), .outputs = {}}, "limit 1024");
}

TEST_F(WireTest, ClaimsSharedMemory) {
  WireInput input = Input();
  input.shared_memory = WireSharedMemory{.region = "none", .offset = 0, .byte_size = 16};
  EXPECT_TRUE(absl::IsNotFound(Fill({.id = "", .inputs = {input}, .outputs = {}})));
  EXPECT_TRUE(absl::IsNotFound(
      Fill({.id = "",
            .inputs = {Input()},
            .outputs = {{"OUT", WireSharedMemory{.region = "none", .byte_size = 16}}}})));
}

TEST(ParseVersionTest, TakesPositiveNumbersOnly) {
  EXPECT_EQ(ParseVersion("").value(), 0);
  EXPECT_EQ(ParseVersion("12").value(), 12);
  for (const char* text : {"0", "-1", "x", "1x", " ", "99999999999999999999"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseVersion(text).status())) << text;
  }
}

}  // namespace
}  // namespace stampmill
