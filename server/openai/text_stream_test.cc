#include "server/openai/text_stream.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "text/utf8.h"

namespace stampmill {
namespace {

TEST(StopTextsTest, SendsAllThatCannotBeTheBeginningOfAStop) {
  StopTexts stops({"END"});
  EXPECT_EQ(stops.Add("hello"), "hello");
  EXPECT_EQ(stops.Add(" E"), " ");
  EXPECT_EQ(stops.Add("N"), "");
  EXPECT_EQ(stops.Add("T"), "ENT");
  EXPECT_EQ(stops.Add("EN"), "");
  EXPECT_EQ(stops.Flush(), "EN");
  EXPECT_FALSE(stops.stopped().has_value());
}

TEST(StopTextsTest, CutsAtTheStopWhereverItsPiecesEnd) {
  const std::string text = "one two END three";
  for (size_t a = 0; a <= text.size(); ++a) {
    for (size_t b = a; b <= text.size(); ++b) {
      for (const bool include : {false, true}) {
        StopTexts stops({"x", "END"}, include);
        std::string sent(stops.Add(text.substr(0, a)));
        absl::StrAppend(&sent, stops.Add(text.substr(a, b - a)));
        absl::StrAppend(&sent, stops.Add(text.substr(b)));
        absl::StrAppend(&sent, stops.Flush());
        EXPECT_EQ(sent, include ? "one two END" : "one two ");
        EXPECT_EQ(stops.stopped(), 1u);
        EXPECT_EQ(stops.Add("more"), "");
      }
    }
  }
}

TEST(StopTextsTest, HoldsBackHalfACharacter) {
  StopTexts stops;
  EXPECT_EQ(stops.Add("a\xE2\x82"), "a");
  EXPECT_EQ(stops.Add("\xAC!"), "\xE2\x82\xAC!");
  EXPECT_EQ(stops.Add("\xF0\x9F\x98"), "");
  EXPECT_EQ(stops.Flush(), "\xF0\x9F\x98");
  // What no byte can complete is not held back.
  EXPECT_EQ(stops.Add("\xFF"), "\xFF");
}

TEST(StopTextsTest, DoesNotStopWhereItMayNot) {
  StopTexts stops({"aba"});
  EXPECT_EQ(stops.Add("aba", /*may_stop=*/false), "ab");
  // The end of what did not count may begin another.
  EXPECT_EQ(stops.Add("ba"), "");
  EXPECT_EQ(stops.stopped(), 0u);
}

// Where the first stop text is complete, by trying all; npos when there is none.
size_t FirstEnd(absl::string_view text, const std::vector<std::string>& stops, size_t& begin) {
  for (size_t end = 1; end <= text.size(); ++end) {
    begin = end;
    for (const std::string& stop : stops) {
      if (absl::EndsWith(text.substr(0, end), stop)) begin = std::min(begin, end - stop.size());
    }
    if (begin < end) return end;
  }
  return absl::string_view::npos;
}

// The longest end of `text` that begins a stop text.
size_t Beginning(absl::string_view text, const std::vector<std::string>& stops) {
  size_t longest = 0;
  for (const std::string& stop : stops) {
    for (size_t n = 1; n < stop.size(); ++n) {
      if (absl::EndsWith(text, stop.substr(0, n))) longest = std::max(longest, n);
    }
  }
  return longest;
}

TEST(StopTextsTest, AgreesWithASearchOfTheWholeText) {
  std::mt19937 random(7);
  const auto letters = [&](size_t size) {
    std::string text;
    for (size_t i = 0; i < size; ++i) text.push_back(static_cast<char>('a' + random() % 2));
    return text;
  };
  int stopped = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::vector<std::string> texts;
    for (size_t i = random() % 4; i > 0; --i) texts.push_back(letters(1 + random() % 7));
    StopTexts stops(texts);
    std::string all, sent;
    while (all.size() < 30 && !stops.stopped().has_value()) {
      const std::string piece = letters(random() % 5);
      all += piece;
      absl::StrAppend(&sent, stops.Add(piece));
      // Nothing is held back without need.
      if (!stops.stopped().has_value()) EXPECT_EQ(all.size() - sent.size(), Beginning(all, texts));
    }
    absl::StrAppend(&sent, stops.Flush());
    size_t begin = 0;
    if (FirstEnd(all, texts, begin) == std::string::npos) {
      EXPECT_EQ(sent, all);
      EXPECT_FALSE(stops.stopped().has_value());
    } else {
      ++stopped;
      EXPECT_EQ(sent, all.substr(0, begin));
    }
  }
  EXPECT_GT(stopped, 1000);
}

TEST(StopTextsTest, NeverSplitsCharacters) {
  const std::string text = "naïve €5 😀 日本語 end";
  std::mt19937 random(3);
  for (int round = 0; round < 2000; ++round) {
    StopTexts stops({"語 e", "zz"});
    std::string sent;
    for (size_t at = 0; at < text.size();) {
      const size_t size = std::min<size_t>(1 + random() % 4, text.size() - at);
      const std::string now(stops.Add(text.substr(at, size)));
      EXPECT_EQ(ReplaceInvalidUtf8(now), now);
      sent += now;
      at += size;
    }
    EXPECT_EQ(sent, "naïve €5 😀 日本");
  }
}

}  // namespace
}  // namespace stampmill
