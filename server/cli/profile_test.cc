#include "server/cli/profile.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace stampmill {
namespace {

using testing::HasSubstr;
using testing::Not;

ModelProfile TwoCommands() {
  ModelProfile profile;
  profile.peak_flops = 100e9;
  profile.peak_bandwidth = 10e9;
  profile.total_nanos = 4000;
  // 200 operations a nanosecond would be twice the peak; 50 are half of it.
  profile.commands = {{.label = "Conv+Relu", .nanos = 3000, .flops = 150'000, .bytes = 300},
                      {.label = "Less<&>", .nanos = 1000, .flops = 0, .bytes = 10'000}};
  return profile;
}

TEST(ProfileTest, TheRooflineIsTheNarrowerOfOperationsAndBytes) {
  const boost::json::array rows = ProfileTable(TwoCommands()).Json();
  EXPECT_DOUBLE_EQ(rows[0].at("roofline_percent").as_double(), 50);
  EXPECT_DOUBLE_EQ(rows[0].at("gflops").as_double(), 50);
  EXPECT_DOUBLE_EQ(rows[0].at("share_percent").as_double(), 75);
  EXPECT_DOUBLE_EQ(rows[1].at("roofline_percent").as_double(), 100);
  EXPECT_DOUBLE_EQ(rows[1].at("gbytes").as_double(), 10);
}

TEST(ProfileTest, AFlameChartShowsEachCommandAsWideAsItsTime) {
  const std::string chart = FlameChart(TwoCommands(), "net");
  // 1180 units for 4 us.
  EXPECT_THAT(chart, HasSubstr("width=\"885.00\""));
  EXPECT_THAT(chart, HasSubstr("width=\"295.00\""));
  EXPECT_THAT(chart, HasSubstr(">Conv+Relu</text>"));
  EXPECT_THAT(chart, HasSubstr("net: 4.0 us"));
  // Half of the roofline for three quarters of the time, all of it for the rest.
  EXPECT_THAT(chart, HasSubstr("62 % of the roofline"));
}

TEST(ProfileTest, AFlameChartIsXmlWhateverTheLabels) {
  const std::string chart = FlameChart(TwoCommands(), "<net>");
  EXPECT_THAT(chart, HasSubstr("Less&lt;&amp;&gt;"));
  EXPECT_THAT(chart, Not(HasSubstr("<net>")));
}

TEST(ProfileTest, AProfileWithoutCommandsIsAnEmptyChart) {
  EXPECT_THAT(FlameChart(ModelProfile{.peak_flops = 1e9, .peak_bandwidth = 1e9}, "none"),
              HasSubstr("</svg>"));
}

}  // namespace
}  // namespace stampmill
