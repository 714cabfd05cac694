// What Unicode says about characters, as far as tokenizers ask: categories, white space, scripts,
// lower case, normal forms. The tables are made from ICU's while Stampmill is built
// (unicode_generator.cc) and are constants of the program: nothing is read or set up at start.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "absl/strings/string_view.h"

namespace stampmill {

// General categories, in the order of the tables.
enum class Category : uint8_t {
  kCn,
  kLu,
  kLl,
  kLt,
  kLm,
  kLo,
  kMn,
  kMe,
  kMc,
  kNd,
  kNl,
  kNo,
  kZs,
  kZl,
  kZp,
  kCc,
  kCf,
  kCo,
  kCs,
  kPd,
  kPs,
  kPe,
  kPc,
  kPo,
  kSm,
  kSc,
  kSk,
  kSo,
  kPi,
  kPf,
};
inline constexpr int kCategories = 30;

// A set of categories, one bit each.
using CategorySet = uint32_t;

// "L", "Lu", ... of `\p{...}`; 0 for what is no category.
CategorySet CategoriesNamed(absl::string_view name);

Category CategoryOf(char32_t code_point);
inline bool HasCategory(char32_t code_point, CategorySet set) {
  return set >> static_cast<int>(CategoryOf(code_point)) & 1;
}

// A run of code points of one category, up to the next run's first.
struct CategoryRun {
  uint32_t begin : 24;
  uint32_t category : 8;
};
// All of them in order, from U+0000 on.
std::span<const CategoryRun> CategoryRuns();

// First and last code points of a set, in order: pairs.
struct CodePointRange {
  char32_t first;
  char32_t last;
};
// The property White_Space.
std::span<const CodePointRange> WhiteSpaceRanges();
bool IsWhiteSpace(char32_t code_point);
// A script by its English name ("Han"); empty for one that the tables lack.
std::span<const CodePointRange> ScriptRanges(absl::string_view name);

// The lower case of one character by itself; U+0130 alone has two, the second is `*second` (or 0).
char32_t ToLower(char32_t code_point, char32_t* second = nullptr);

// Characters and what they fold to (simple case folding): two are the same but for case when they
// fold to the same. What is not in the list folds to itself.
struct CodePointPair {
  char32_t from;
  char32_t to;
};
std::span<const CodePointPair> CaseFoldings();

enum class NormalForm : uint8_t { kNfc, kNfd, kNfkc, kNfkd };
// `text` in that form. Bytes that are no character stay as they are and combine with nothing.
std::string Normalize(absl::string_view text, NormalForm form);

}  // namespace stampmill
