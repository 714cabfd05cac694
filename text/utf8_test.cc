#include "text/utf8.h"

#include <gtest/gtest.h>

#include "base/bytes.h"

namespace stampmill {
namespace {

Utf8Character Decode(absl::string_view text) {
  return DecodeUtf8(text.data(), text.data() + text.size());
}

TEST(Utf8Test, EveryCodePointComesBack) {
  for (char32_t code_point = 0; code_point <= kCodePointMax; ++code_point) {
    if (code_point >= 0xD800 && code_point <= 0xDFFF) continue;
    std::string text;
    AppendUtf8(code_point, &text);
    ASSERT_EQ(Utf8Length(text), text.size());
    const Utf8Character character = Decode(text + "\x80");
    ASSERT_TRUE(character.valid);
    ASSERT_EQ(character.code_point, code_point);
    ASSERT_EQ(character.size_bytes, text.size());
    for (size_t size = 1; size < text.size(); ++size) {
      ASSERT_FALSE(Decode(text.substr(0, size)).valid);
      ASSERT_EQ(UnfinishedUtf8("a" + text.substr(0, size)), size);
    }
    ASSERT_EQ(UnfinishedUtf8("a" + text), 0);
  }
}

TEST(Utf8Test, AgreesWithTheStrictCheckOnAllShortSequences) {
  const unsigned char firsts[] = {0x00, 0x7F, 0x80, 0xBF, 0xC0, 0xC1, 0xC2, 0xDF, 0xE0,
                                  0xE1, 0xED, 0xEF, 0xF0, 0xF1, 0xF4, 0xF5, 0xFF};
  for (const unsigned char first : firsts) {
    for (int second = 0; second < 256; ++second) {
      for (const char third : {'a', '\x80', '\xBF', '\xC0'}) {
        std::string text(1, static_cast<char>(first));
        text += static_cast<char>(second);
        text += third;
        text += "\x80";
        const size_t length = Utf8Length(text);
        const Utf8Character character = Decode(text);
        ASSERT_EQ(character.valid, length > 0);
        ASSERT_EQ(character.size_bytes, length > 0 ? length : 1);
      }
    }
  }
}

TEST(Utf8Test, WhatIsNoCharacterIsReplacedByteByByte) {
  EXPECT_EQ(ReplaceInvalidUtf8("a\xE2\x82 \xED\xA0\x80z"),
            "a\xEF\xBF\xBD\xEF\xBF\xBD \xEF\xBF\xBD\xEF\xBF\xBD\xEF\xBF\xBDz");
  EXPECT_EQ(ReplaceInvalidUtf8("\xC3\xA4"), "\xC3\xA4");
  std::string surrogate;
  AppendUtf8(0xD800, &surrogate);
  EXPECT_EQ(surrogate, "\xEF\xBF\xBD");
}

TEST(Utf8Test, ARestThatNothingCanCompleteIsNotUnfinished) {
  EXPECT_EQ(UnfinishedUtf8(""), 0);
  EXPECT_EQ(UnfinishedUtf8("\x80\x80"), 0);
  EXPECT_EQ(UnfinishedUtf8("\xE0\x80"), 0);
  EXPECT_EQ(UnfinishedUtf8("\xED\xA0"), 0);
  EXPECT_EQ(UnfinishedUtf8("\xF4\x90"), 0);
  EXPECT_EQ(UnfinishedUtf8("\xFF"), 0);
  EXPECT_EQ(UnfinishedUtf8("\xF0\x9F\x98"), 3);
}

}  // namespace
}  // namespace stampmill
