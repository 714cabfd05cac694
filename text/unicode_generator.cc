// Writes the tables behind unicode.h, from ICU's properties, to standard output. Runs while
// Stampmill is built, so that the daemon needs neither ICU nor its 30 MB of data.
#include <unicode/uchar.h>
#include <unicode/unorm2.h>
#include <unicode/uscript.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace {

constexpr UChar32 kEnd = 0x110000;

void Require(UErrorCode error) {
  if (U_SUCCESS(error)) return;
  std::fprintf(stderr, "ICU: %s\n", u_errorName(error));
  std::exit(1);
}

bool IsHangulSyllable(UChar32 code_point) { return code_point >= 0xAC00 && code_point <= 0xD7A3; }

// Runs of one value: {first code point, value}.
void PrintRuns(const char* name, const std::function<int(UChar32)>& value_of) {
  std::printf("constexpr CategoryRun %s[] = {\n", name);
  int previous = -1;
  for (UChar32 at = 0; at < kEnd; ++at) {
    const int value = value_of(at);
    if (value != previous) std::printf("{0x%X, %d},\n", at, value);
    previous = value;
  }
  std::printf("};\n");
}

void PrintRanges(const std::string& name, const std::function<bool(UChar32)>& holds) {
  std::printf("constexpr CodePointRange %s[] = {\n", name.c_str());
  UChar32 first = -1;
  for (UChar32 at = 0; at <= kEnd; ++at) {
    const bool in = at < kEnd && holds(at);
    if (in && first < 0) first = at;
    if (!in && first >= 0) {
      std::printf("{0x%X, 0x%X},\n", first, at - 1);
      first = -1;
    }
  }
  std::printf("};\n");
}

void PrintScripts() {
  const std::pair<const char*, UScriptCode> scripts[] = {
      {"Arabic", USCRIPT_ARABIC},
      {"Armenian", USCRIPT_ARMENIAN},
      {"Bengali", USCRIPT_BENGALI},
      {"Cyrillic", USCRIPT_CYRILLIC},
      {"Devanagari", USCRIPT_DEVANAGARI},
      {"Ethiopic", USCRIPT_ETHIOPIC},
      {"Georgian", USCRIPT_GEORGIAN},
      {"Greek", USCRIPT_GREEK},
      {"Han", USCRIPT_HAN},
      {"Hangul", USCRIPT_HANGUL},
      {"Hebrew", USCRIPT_HEBREW},
      {"Hiragana", USCRIPT_HIRAGANA},
      {"Katakana", USCRIPT_KATAKANA},
      {"Khmer", USCRIPT_KHMER},
      {"Lao", USCRIPT_LAO},
      {"Latin", USCRIPT_LATIN},
      {"Myanmar", USCRIPT_MYANMAR},
      {"Tamil", USCRIPT_TAMIL},
      {"Telugu", USCRIPT_TELUGU},
      {"Thai", USCRIPT_THAI},
      {"Tibetan", USCRIPT_TIBETAN},
  };
  for (const auto& [name, code] : scripts) {
    PrintRanges(std::string("kScript") + name, [code = code](UChar32 at) {
      UErrorCode error = U_ZERO_ERROR;
      const UScriptCode script = uscript_getScript(at, &error);
      Require(error);
      return script == code;
    });
  }
  std::printf("struct Script { const char* name; std::span<const CodePointRange> ranges; };\n");
  std::printf("constexpr Script kScripts[] = {\n");
  for (const auto& [name, code] : scripts) std::printf("{\"%s\", kScript%s},\n", name, name);
  std::printf("};\n");
}

void PrintCases() {
  std::printf("constexpr CodePointPair kLower[] = {\n");
  for (UChar32 at = 0; at < kEnd; ++at) {
    if (u_tolower(at) != at) std::printf("{0x%X, 0x%X},\n", at, u_tolower(at));
  }
  std::printf("};\nconstexpr CodePointPair kFold[] = {\n");
  for (UChar32 at = 0; at < kEnd; ++at) {
    const UChar32 folded = u_foldCase(at, U_FOLD_CASE_DEFAULT);
    if (folded != at) std::printf("{0x%X, 0x%X},\n", at, folded);
  }
  std::printf("};\n");
}

std::vector<UChar32> Decomposition(const UNormalizer2* form, UChar32 at, bool raw) {
  UChar buffer[64];
  UErrorCode error = U_ZERO_ERROR;
  const int length = raw ? unorm2_getRawDecomposition(form, at, buffer, 64, &error)
                         : unorm2_getDecomposition(form, at, buffer, 64, &error);
  Require(error);
  std::vector<UChar32> result;
  for (int i = 0; i < length;) {
    UChar32 code_point;
    U16_NEXT(buffer, i, length, code_point);
    result.push_back(code_point);
  }
  return result;
}

// Sorted entries {code point, where in the pool, how many}; Hangul is arithmetic, not a table.
void PrintDecompositions(const char* name, const UNormalizer2* form) {
  std::vector<UChar32> pool;
  std::printf("constexpr Decomposition k%s[] = {\n", name);
  for (UChar32 at = 0; at < kEnd; ++at) {
    if (IsHangulSyllable(at)) continue;
    const std::vector<UChar32> parts = Decomposition(form, at, /*raw=*/false);
    if (parts.empty()) continue;
    std::printf("{0x%X, %zu, %zu},\n", at, pool.size(), parts.size());
    pool.insert(pool.end(), parts.begin(), parts.end());
  }
  std::printf("};\nconstexpr char32_t k%sPool[] = {\n", name);
  for (const UChar32 code_point : pool) std::printf("0x%X,\n", code_point);
  std::printf("};\n");
}

void PrintCompositions(const UNormalizer2* nfc) {
  std::map<std::pair<UChar32, UChar32>, UChar32> pairs;
  for (UChar32 at = 0; at < kEnd; ++at) {
    if (IsHangulSyllable(at)) continue;
    const std::vector<UChar32> parts = Decomposition(nfc, at, /*raw=*/true);
    if (parts.size() != 2) continue;
    if (unorm2_composePair(nfc, parts[0], parts[1]) == at) pairs[{parts[0], parts[1]}] = at;
  }
  std::printf("struct Composition { char32_t first; char32_t second; char32_t whole; };\n");
  std::printf("constexpr Composition kCompositions[] = {\n");
  for (const auto& [pair, whole] : pairs) {
    std::printf("{0x%X, 0x%X, 0x%X},\n", pair.first, pair.second, whole);
  }
  std::printf("};\n");
}

}  // namespace

int main() {
  UErrorCode error = U_ZERO_ERROR;
  const UNormalizer2* nfc = unorm2_getNFCInstance(&error);
  const UNormalizer2* nfd = unorm2_getNFDInstance(&error);
  const UNormalizer2* nfkd = unorm2_getNFKDInstance(&error);
  Require(error);
  PrintRuns("kCategoryRuns", [](UChar32 at) { return u_charType(at); });
  PrintRuns("kCombiningRuns", [](UChar32 at) { return u_getCombiningClass(at); });
  PrintRanges("kWhiteSpace", [](UChar32 at) { return u_isUWhiteSpace(at) != 0; });
  PrintScripts();
  PrintCases();
  std::printf("struct Decomposition { uint32_t from; uint16_t offset; uint16_t size; };\n");
  PrintDecompositions("Canonical", nfd);
  PrintDecompositions("Compatible", nfkd);
  PrintCompositions(nfc);
  return 0;
}
