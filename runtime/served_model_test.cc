#include "runtime/served_model.h"

#include <limits>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "runtime/testing/engine_fixture.h"

namespace stampmill {
namespace {

using ::testing::HasSubstr;

TEST(ServedModelTest, RefusesTheRequestWhoseIndicesAnOperatorDoesNotHave) {
  EngineFixture fixture;
  const auto model = fixture.Serve({.index_limit = 7});
  ASSERT_TRUE(model.ok()) << model.status();
  const auto prepare = [&](const std::vector<int32_t>& values) {
    const RequestHandle request = fixture.MakeRequest(**model, values, 1);
    return (*model)->Prepare(*request);
  };
  EXPECT_TRUE(prepare({0, 6, -7, 3}).ok());
  const absl::Status above = prepare({0, 6, 7, 9});
  EXPECT_TRUE(absl::IsInvalidArgument(above));
  EXPECT_THAT(std::string(above.message()),
              HasSubstr("input 'IN': element 2: got 7, limits -7 and 6 (indices of node 'g' "
                        "(Gather))"));
  EXPECT_THAT(std::string(prepare({-8, 0, 0, 0}).message()), HasSubstr("element 0: got -8"));
  for (const int32_t far :
       {std::numeric_limits<int32_t>::min(), std::numeric_limits<int32_t>::max()}) {
    EXPECT_TRUE(absl::IsInvalidArgument(prepare({0, 0, 0, far}))) << far;
  }
}

}  // namespace
}  // namespace stampmill
