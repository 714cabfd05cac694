// Requests whose tensors lie in client shared memory: bound in place, never trusted.
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/file.h"
#include "devices/cpu/cpu_device.h"
#include "devices/testing/faulty_device.h"
#include "gtest/gtest.h"
#include "runtime/served_model.h"
#include "runtime/testing/engine_fixture.h"

namespace stampmill {
namespace {

using Values = std::vector<int32_t>;

class ClientMemoryTest : public testing::Test {
 protected:
  static constexpr size_t kBytes = 16384;

  ClientMemoryTest() : key_(absl::StrCat("/stampmill_test_", std::random_device()())) {
    object_ = FileDescriptor(shm_open(key_.c_str(), O_RDWR | O_CREAT | O_EXCL, 0600));
    CHECK(object_.valid());
    CHECK_EQ(ftruncate(object_.get(), kBytes), 0);
    auto mapping = Mapping::Map(object_, 0, kBytes, Mapping::Access::kReadWrite);
    CHECK_OK(mapping);
    memory_ = *std::move(mapping);
    for (size_t i = 0; i < kBytes / 4; ++i) At(i * 4) = static_cast<int32_t>(i);
    CHECK_OK(fixture_.pool->RegisterClientRegion("r", key_, 0, kBytes));
  }
  ~ClientMemoryTest() override { shm_unlink(key_.c_str()); }

  int32_t& At(size_t offset) {
    return *reinterpret_cast<int32_t*>(memory_.mutable_bytes().data() + offset);
  }
  Lease Claim(uint64_t offset, uint64_t size) {
    auto lease = fixture_.pool->ClaimClientRegion("r", offset, size);
    CHECK_OK(lease);
    return *std::move(lease);
  }
  // rows x 4 values at `source`; the output goes to `target`.
  RequestHandle Make(ServedModel& model, int64_t rows, uint64_t source, Lease target) {
    static const Values kNone;
    RequestHandle request = fixture_.MakeRequest(model, kNone, 1);
    InputTensor& input = request->inputs[0];
    input.shape = *TensorShape::From(std::vector<int64_t>{rows, 4});
    input.lease = Claim(source, static_cast<uint64_t>(rows) * 16);
    input.bytes = input.lease.bytes();
    OutputTensor& output = request->outputs.emplace_back();
    output.index = 0;
    output.target = std::move(target);
    return request;
  }

  EngineFixture fixture_;
  std::string key_;
  FileDescriptor object_;
  Mapping memory_;
};

TEST_F(ClientMemoryTest, IsReadAndWrittenInPlaceByARequestAlone) {
  const auto model = *fixture_.Serve({});
  RequestHandle request = Make(*model, 2, 4, Claim(8001, 40));  // unaligned, with room to spare
  ASSERT_TRUE(fixture_.engine->Submit(request).ok());
  const RequestHandle ready = fixture_.TurnUntilReady();
  ASSERT_TRUE(ready->status.ok()) << ready->status;
  EXPECT_EQ(ready->outputs[0].bytes.size(), 32u);
  for (size_t i = 0; i < 8; ++i) {
    int32_t value;
    memcpy(&value, memory_.bytes().data() + 8001 + i * 4, 4);
    EXPECT_EQ(value, static_cast<int32_t>(i) + 3);
  }
  EXPECT_EQ(model->statistics().Snapshot().bytes_copied, 0u);
  EXPECT_EQ(fixture_.pool->used_bytes(), 0u);
}

TEST_F(ClientMemoryTest, OfSeveralRequestsIsGatheredAndScattered) {
  const auto model = *fixture_.Serve({});
  for (uint64_t i = 0; i < 3; ++i) {
    RequestHandle request = Make(*model, static_cast<int64_t>(i) + 1, i * 100,
                                 i == 1 ? Lease() : Claim(8000 + i * 100, 100));
    ASSERT_TRUE(fixture_.engine->Submit(request).ok());
  }
  for (size_t i = 0; i < 3; ++i) {
    const RequestHandle ready = fixture_.TurnUntilReady();
    ASSERT_TRUE(ready->status.ok()) << ready->status;
    const Values values = EngineFixture::Values(ready->outputs[0]);
    ASSERT_EQ(values.size(), (i + 1) * 4);
    for (size_t j = 0; j < values.size(); ++j) {
      EXPECT_EQ(values[j], static_cast<int32_t>(i * 25 + j + 2));
      if (i != 1) EXPECT_EQ(At(8000 + i * 100 + j * 4), values[j]);
    }
    EXPECT_EQ(ready->outputs[0].lease.client_owned(), i != 1);
  }
  EXPECT_EQ(model->statistics().Snapshot().execution_count, 1u);
  EXPECT_EQ(model->statistics().Snapshot().bytes_copied, 6u * 16 + 4 * 16);
}

TEST_F(ClientMemoryTest, ATargetThatIsTooSmallFailsItsRequestAlone) {
  const auto model = *fixture_.Serve({});
  for (const bool together : {false, true}) {
    RequestHandle small = Make(*model, 1, 0, Claim(8000, 15));
    ASSERT_TRUE(fixture_.engine->Submit(small).ok());
    if (together) {
      RequestHandle good = Make(*model, 1, 0, Claim(9000, 16));
      ASSERT_TRUE(fixture_.engine->Submit(good).ok());
    }
    const RequestHandle failed = fixture_.TurnUntilReady();
    EXPECT_EQ(failed->status.code(), absl::StatusCode::kInternal);
    EXPECT_EQ(failed->status.message(),
              "shared memory size specified with the request for output 'OUT' (15 bytes) should be "
              "at least 16 bytes to hold the results");
    if (together) EXPECT_TRUE(fixture_.TurnUntilReady()->status.ok());
    EXPECT_EQ(At(8000), 2000);  // untouched
  }
  EXPECT_EQ(At(9000), 2);
}

TEST_F(ClientMemoryTest, AnOutputOverTheInputIsStillRight) {
  const auto model = *fixture_.Serve({});
  RequestHandle request = Make(*model, 4, 0, Claim(8, 64));
  ASSERT_TRUE(fixture_.engine->Submit(request).ok());
  const RequestHandle ready = fixture_.TurnUntilReady();
  ASSERT_TRUE(ready->status.ok()) << ready->status;
  for (size_t i = 0; i < 16; ++i) EXPECT_EQ(At(8 + i * 4), static_cast<int32_t>(i) + 2);
  EXPECT_EQ(model->statistics().Snapshot().bytes_copied, 64u);
}

TEST_F(ClientMemoryTest, TruncationFailsTheRequestAndTheEngineGoesOn) {
  const auto model = *fixture_.Serve({});
  RequestHandle request = Make(*model, 4, 8192, Claim(12288, 64));
  ASSERT_TRUE(fixture_.engine->Submit(request).ok());
  ASSERT_EQ(ftruncate(object_.get(), 4096), 0);
  RequestHandle ready = fixture_.TurnUntilReady();
  EXPECT_TRUE(absl::IsInvalidArgument(ready->status)) << ready->status;
  EXPECT_NE(ready->status.message().find("'r'"), absl::string_view::npos);
  ready.reset();
  const Values in(4, 1);
  RequestHandle next = fixture_.MakeRequest(*model, in, 1);
  ASSERT_TRUE(fixture_.engine->Submit(next).ok());
  EXPECT_TRUE(fixture_.TurnUntilReady()->status.ok());
}

TEST_F(ClientMemoryTest, UnregisteringUnderAStepKeepsItsMemory) {
  FaultPlan plan;
  auto inner = CreateCpuDevice({.threads = 1});
  CHECK_OK(inner);
  FaultyDevice device(*std::move(inner), &plan);
  EngineFixture f({.device = &device});
  ASSERT_TRUE(f.pool->RegisterClientRegion("r", key_, 0, kBytes).ok());
  const auto model = *f.Serve({});
  static const Values kNone;
  RequestHandle request = f.MakeRequest(*model, kNone, 1);
  request->inputs[0].shape = *TensorShape::From(std::vector<int64_t>{1, 4});
  request->inputs[0].lease = *f.pool->ClaimClientRegion("r", 0, 16);
  request->inputs[0].bytes = request->inputs[0].lease.bytes();
  request->outputs.emplace_back() = {.index = 0, .target = *f.pool->ClaimClientRegion("r", 64, 16)};
  plan.HoldCompletions();
  ASSERT_TRUE(f.engine->Submit(request).ok());
  f.engine->Turn();
  EXPECT_TRUE(f.pool->UnregisterClientRegion("r").ok());
  EXPECT_EQ(f.engine->PopReady(), nullptr);
  plan.ReleaseCompletions();
  EXPECT_TRUE(f.TurnUntilReady()->status.ok());
  EXPECT_EQ(At(64), 2);
}

}  // namespace
}  // namespace stampmill
