#include "text/unicode.h"

#include <algorithm>
#include <cstddef>
#include <utility>
#include <vector>

#include "text/utf8.h"

namespace stampmill {
namespace {

#include "text/unicode_tables.inc"

// The order of the enumeration is the order of the generator's numbers.
constexpr absl::string_view kCategoryNames[kCategories] = {
    "Cn", "Lu", "Ll", "Lt", "Lm", "Lo", "Mn", "Me", "Mc", "Nd", "Nl", "No", "Zs", "Zl", "Zp",
    "Cc", "Cf", "Co", "Cs", "Pd", "Ps", "Pe", "Pc", "Po", "Sm", "Sc", "Sk", "So", "Pi", "Pf",
};

int ValueIn(std::span<const CategoryRun> runs, char32_t code_point) {
  const auto after =
      std::upper_bound(runs.begin(), runs.end(), code_point,
                       [](char32_t value, const CategoryRun& run) { return value < run.begin; });
  return (after - 1)->category;
}

bool IsIn(std::span<const CodePointRange> ranges, char32_t code_point) {
  const auto range = std::lower_bound(
      ranges.begin(), ranges.end(), code_point,
      [](const CodePointRange& range, char32_t value) { return range.last < value; });
  return range != ranges.end() && range->first <= code_point;
}

char32_t Mapped(std::span<const CodePointPair> pairs, char32_t code_point) {
  const auto found =
      std::lower_bound(pairs.begin(), pairs.end(), code_point,
                       [](const CodePointPair& pair, char32_t value) { return pair.from < value; });
  return found != pairs.end() && found->from == code_point ? found->to : code_point;
}

// Hangul syllables are arithmetic (Unicode, chapter 3.12): a leading consonant, a vowel and a
// trailing consonant or none.
constexpr char32_t kSyllable = 0xAC00, kLeading = 0x1100, kVowel = 0x1161, kTrailing = 0x11A7;
constexpr char32_t kLeadings = 19, kVowels = 21, kTrailings = 28;
constexpr char32_t kSyllables = kLeadings * kVowels * kTrailings;

struct Mark {
  char32_t code_point;
  int combining_class;  // 0: a starter
  uint32_t place = 0;   // so that sorting keeps the order of equals
};

void AppendDecomposed(char32_t code_point, bool compatible, std::vector<Mark>* out) {
  const auto push = [&](char32_t part) { out->push_back({part, ValueIn(kCombiningRuns, part)}); };
  if (code_point < 0x80) {
    out->push_back({code_point, 0});
    return;
  }
  if (code_point - kSyllable < kSyllables) {
    const char32_t index = code_point - kSyllable;
    push(kLeading + index / (kVowels * kTrailings));
    push(kVowel + index / kTrailings % kVowels);
    if (index % kTrailings > 0) push(kTrailing + index % kTrailings);
    return;
  }
  const std::span<const Decomposition> table =
      compatible ? std::span<const Decomposition>(kCompatible) : kCanonical;
  const std::span<const char32_t> pool =
      compatible ? std::span<const char32_t>(kCompatiblePool) : kCanonicalPool;
  const auto found = std::lower_bound(
      table.begin(), table.end(), code_point,
      [](const Decomposition& entry, char32_t value) { return entry.from < value; });
  if (found == table.end() || found->from != code_point) return push(code_point);
  for (const char32_t part : pool.subspan(found->offset, found->size)) push(part);
}

// What the two compose to, 0 for nothing.
char32_t Composed(char32_t first, char32_t second) {
  if (first - kLeading < kLeadings && second - kVowel < kVowels) {
    return kSyllable + ((first - kLeading) * kVowels + (second - kVowel)) * kTrailings;
  }
  if (first - kSyllable < kSyllables && (first - kSyllable) % kTrailings == 0 &&
      second > kTrailing && second - kTrailing < kTrailings) {
    return first + (second - kTrailing);
  }
  const auto found =
      std::lower_bound(std::begin(kCompositions), std::end(kCompositions), std::pair(first, second),
                       [](const Composition& entry, const std::pair<char32_t, char32_t>& pair) {
                         return std::pair(entry.first, entry.second) < pair;
                       });
  if (found == std::end(kCompositions) || found->first != first || found->second != second) {
    return 0;
  }
  return found->whole;
}

// A mark joins the last starter unless something between them has its class or a higher one.
void Compose(std::vector<Mark>* marks) {
  size_t starter = marks->size();  // none yet
  size_t kept = 0;
  int previous_class = 0;
  for (size_t i = 0; i < marks->size(); ++i) {
    const Mark mark = (*marks)[i];
    const bool adjacent = starter < kept && kept == starter + 1;
    if (starter < kept && (adjacent || previous_class < mark.combining_class)) {
      const char32_t whole = Composed((*marks)[starter].code_point, mark.code_point);
      if (whole != 0) {
        (*marks)[starter].code_point = whole;
        continue;
      }
    }
    if (mark.combining_class == 0) starter = kept;
    previous_class = mark.combining_class;
    (*marks)[kept++] = mark;
  }
  marks->resize(kept);
}

void SortMarks(std::vector<Mark>* marks) {
  for (auto at = marks->begin(); at != marks->end();) {
    if (at->combining_class == 0) {
      ++at;
      continue;
    }
    const auto end =
        std::find_if(at, marks->end(), [](const Mark& mark) { return mark.combining_class == 0; });
    for (auto mark = at; mark != end; ++mark) mark->place = static_cast<uint32_t>(mark - at);
    std::sort(at, end, [](const Mark& a, const Mark& b) {
      return std::pair(a.combining_class, a.place) < std::pair(b.combining_class, b.place);
    });
    at = end;
  }
}

}  // namespace

CategorySet CategoriesNamed(absl::string_view name) {
  CategorySet set = 0;
  if (name.empty() || name.size() > 2) return 0;
  for (int i = 0; i < kCategories; ++i) {
    if (kCategoryNames[i].substr(0, name.size()) == name) set |= CategorySet{1} << i;
  }
  return set;
}

Category CategoryOf(char32_t code_point) {
  return static_cast<Category>(ValueIn(kCategoryRuns, code_point));
}

std::span<const CategoryRun> CategoryRuns() { return kCategoryRuns; }

std::span<const CodePointRange> WhiteSpaceRanges() { return kWhiteSpace; }

bool IsWhiteSpace(char32_t code_point) { return IsIn(kWhiteSpace, code_point); }

std::span<const CodePointRange> ScriptRanges(absl::string_view name) {
  for (const Script& script : kScripts) {
    if (name == script.name) return script.ranges;
  }
  return {};
}

char32_t ToLower(char32_t code_point, char32_t* second) {
  constexpr char32_t kCapitalIWithDot = 0x130, kDotAbove = 0x307;
  if (second != nullptr) *second = code_point == kCapitalIWithDot ? kDotAbove : 0;
  return Mapped(kLower, code_point);
}

std::span<const CodePointPair> CaseFoldings() { return kFold; }

std::string Normalize(absl::string_view text, NormalForm form) {
  const bool compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  const bool composes = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  std::string out;
  out.reserve(text.size());
  std::vector<Mark> marks;
  const auto flush = [&] {
    SortMarks(&marks);
    if (composes) Compose(&marks);
    for (const Mark& mark : marks) AppendUtf8(mark.code_point, &out);
    marks.clear();
  };
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at < end;) {
    // ASCII stands for itself, but what follows may join its last character.
    const char* plain = at;
    while (plain < end && static_cast<unsigned char>(*plain) < 0x80) ++plain;
    if (plain - at > 1) {
      flush();
      out.append(at, plain - at - 1);
      at = plain - 1;
    }
    const Utf8Character character = DecodeUtf8(at, end);
    if (character.valid) {
      AppendDecomposed(character.code_point, compatible, &marks);
    } else {
      flush();
      out.push_back(*at);
    }
    at += character.size_bytes;
  }
  flush();
  return out;
}

}  // namespace stampmill
