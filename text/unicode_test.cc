#include "text/unicode.h"

#include <gtest/gtest.h>
#include <unicode/uchar.h>
#include <unicode/unorm2.h>
#include <unicode/ustring.h>

#include <random>

#include "text/utf8.h"

namespace stampmill {
namespace {

std::string Text(std::u32string_view code_points) {
  std::string text;
  for (const char32_t code_point : code_points) AppendUtf8(code_point, &text);
  return text;
}

std::string IcuNormalize(const UNormalizer2* form, const std::string& text) {
  UErrorCode error = U_ZERO_ERROR;
  std::u16string wide(text.size() + 1, 0), normal(text.size() * 20 + 20, 0);
  int32_t size = 0;
  u_strFromUTF8(wide.data(), wide.size(), &size, text.data(), text.size(), &error);
  const int32_t normal_size =
      unorm2_normalize(form, wide.data(), size, normal.data(), normal.size(), &error);
  std::string result(normal_size * 3 + 1, 0);
  u_strToUTF8(result.data(), result.size(), &size, normal.data(), normal_size, &error);
  EXPECT_TRUE(U_SUCCESS(error)) << u_errorName(error);
  result.resize(size);
  return result;
}

TEST(UnicodeTest, PropertiesOfEveryCodePointAreIcus) {
  for (UChar32 at = 0; at <= static_cast<UChar32>(kCodePointMax); ++at) {
    ASSERT_EQ(static_cast<int>(CategoryOf(at)), u_charType(at)) << at;
    ASSERT_EQ(IsWhiteSpace(at), u_isUWhiteSpace(at) != 0) << at;
    ASSERT_EQ(ToLower(at), static_cast<char32_t>(u_tolower(at))) << at;
  }
}

TEST(UnicodeTest, NormalFormsOfEveryCodePointAndOfRandomTextsAreIcus) {
  UErrorCode error = U_ZERO_ERROR;
  const std::pair<NormalForm, const UNormalizer2*> forms[] = {
      {NormalForm::kNfc, unorm2_getNFCInstance(&error)},
      {NormalForm::kNfd, unorm2_getNFDInstance(&error)},
      {NormalForm::kNfkc, unorm2_getNFKCInstance(&error)},
      {NormalForm::kNfkd, unorm2_getNFKDInstance(&error)}};
  ASSERT_TRUE(U_SUCCESS(error));
  std::mt19937 random(1);
  // Where combining characters are, so that runs of marks in all orders arise.
  const std::pair<char32_t, char32_t> blocks[] = {
      {0x20, 0x7E},     {0xC0, 0x24F},    {0x300, 0x36F},   {0x300, 0x345},     {0x591, 0x5C7},
      {0x1100, 0x11FF}, {0xAC00, 0xAC80}, {0x1E00, 0x1FFF}, {0x1D15E, 0x1D172}, {0x9, 0x2FFFF}};
  for (const auto& [form, icu] : forms) {
    for (char32_t at = 0; at <= kCodePointMax; ++at) {
      if (at >= 0xD800 && at <= 0xDFFF) continue;
      const std::string text = Text(std::u32string(1, at));
      ASSERT_EQ(Normalize(text, form), IcuNormalize(icu, text)) << static_cast<uint32_t>(at);
    }
    for (int i = 0; i < 5000; ++i) {
      std::u32string code_points;
      for (int k = random() % 12; k >= 0; --k) {
        const auto& [first, last] = blocks[random() % std::size(blocks)];
        code_points.push_back(first + random() % (last - first + 1));
      }
      const std::string text = Text(code_points);
      ASSERT_EQ(Normalize(text, form), IcuNormalize(icu, text)) << text;
    }
  }
}

TEST(UnicodeTest, CategoriesHaveTheirNames) {
  EXPECT_TRUE(HasCategory(U'a', CategoriesNamed("L")));
  EXPECT_TRUE(HasCategory(U'a', CategoriesNamed("Ll")));
  EXPECT_FALSE(HasCategory(U'a', CategoriesNamed("Lu")));
  EXPECT_TRUE(HasCategory(U'\u0301', CategoriesNamed("M")));
  EXPECT_EQ(CategoriesNamed("Xx"), 0);
  EXPECT_EQ(CategoriesNamed(""), 0);
  EXPECT_EQ(CategoriesNamed("Lul"), 0);
}

TEST(UnicodeTest, CasesAreFoundFromEachOther) {
  std::u32string cases;
  for (const CodePointPair& pair : CaseFoldings()) {
    if (pair.to == U's') cases.push_back(pair.from);
  }
  EXPECT_EQ(cases, U"S\u017F");
  char32_t second = 1;
  EXPECT_EQ(ToLower(0x130, &second), U'i');
  EXPECT_EQ(second, 0x307u);
}

TEST(UnicodeTest, ScriptsAreKnownByName) {
  EXPECT_FALSE(ScriptRanges("Han").empty());
  EXPECT_TRUE(ScriptRanges("Klingon").empty());
}

TEST(UnicodeTest, BytesThatAreNoCharacterStay) {
  EXPECT_EQ(Normalize("e\xFF\xCC\x81", NormalForm::kNfc), "e\xFF\xCC\x81");
  EXPECT_EQ(Normalize("e\xCC\x81", NormalForm::kNfc), "\xC3\xA9");
}

}  // namespace
}  // namespace stampmill
