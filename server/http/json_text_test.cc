#include "server/http/json_text.h"

#include <cmath>
#include <limits>
#include <string>

#include "absl/strings/numbers.h"
#include "gtest/gtest.h"

namespace stampmill {
namespace {

std::string Quoted(absl::string_view text) {
  std::string out;
  AppendJsonString(text, out);
  return out;
}

template <typename T>
std::string Number(T value) {
  std::string out;
  AppendJsonNumber(value, out);
  return out;
}

TEST(JsonTextTest, EscapesWhatJsonForbids) {
  EXPECT_EQ(Quoted("a\"b\\c"), R"("a\"b\\c")");
  EXPECT_EQ(Quoted(absl::string_view("\n\t\x01\0", 4)), R"("\u000a\u0009\u0001\u0000")");
  EXPECT_EQ(Quoted("caf\xc3\xa9 \xf0\x9f\x98\x80"), "\"caf\xc3\xa9 \xf0\x9f\x98\x80\"");
}

TEST(JsonTextTest, ReplacesWhatIsNotUtf8) {
  // A lone byte, an overlong form, a surrogate, and a sequence that ends early.
  for (const char* text : {"\xff", "\xc0\xaf", "\xed\xa0\x80", "\xe2\x82"}) {
    EXPECT_NE(Quoted(text).find("\\ufffd"), std::string::npos);
  }
}

TEST(JsonTextTest, NumbersReadBackAsTheSame) {
  for (const float value : {0.1f, 1e-45f, 3.4028235e38f, 1.0f, -7.25f, 16777216.0f}) {
    float again = 0;
    ASSERT_TRUE(absl::SimpleAtof(Number(value), &again));
    EXPECT_EQ(again, value);
  }
  EXPECT_EQ(Number(1.0f), "1.0");
  EXPECT_EQ(Number(std::nan("")), "NaN");
  EXPECT_EQ(Number(-std::numeric_limits<double>::infinity()), "-Infinity");
}

}  // namespace
}  // namespace stampmill
