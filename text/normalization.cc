#include "text/normalization.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace stampmill {
namespace {

// Calls `visit(code_point, bytes)` for each character, and for each byte that is none with U+FFFD.
template <typename Visit>
void ForEachCharacter(absl::string_view text, const Visit& visit) {
  const char* const end = text.data() + text.size();
  for (const char* at = text.data(); at < end;) {
    const Utf8Character character = DecodeUtf8(at, end);
    visit(character.code_point, absl::string_view(at, character.size_bytes));
    at += character.size_bytes;
  }
}

void Append(absl::string_view bytes, std::string* out) { out->append(bytes.data(), bytes.size()); }

// The blocks of Chinese characters that BERT sets apart; Hangul and kana are words like others.
bool IsChinese(char32_t c) {
  return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) ||
         (c >= 0x20000 && c <= 0x2A6DF) || (c >= 0x2A700 && c <= 0x2B73F) ||
         (c >= 0x2B740 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) ||
         (c >= 0xF900 && c <= 0xFAFF) || (c >= 0x2F800 && c <= 0x2FA1F);
}

std::string LowerCase(absl::string_view text) {
  std::string out;
  ForEachCharacter(text, [&](char32_t code_point, absl::string_view bytes) {
    char32_t second = 0;
    const char32_t lower = ToLower(code_point, &second);
    if (lower == code_point) return Append(bytes, &out);
    AppendUtf8(lower, &out);
    if (second != 0) AppendUtf8(second, &out);
  });
  return out;
}

std::string StripAccents(absl::string_view text) {
  std::string out;
  ForEachCharacter(text, [&](char32_t code_point, absl::string_view bytes) {
    if (code_point >= 0x80 && CategoryOf(code_point) == Category::kMn) return;
    Append(bytes, &out);
  });
  return out;
}

std::string CleanText(absl::string_view text) {
  // Not what is unassigned: it may be a letter that came later.
  const CategorySet other = CategoriesNamed("Cc") | CategoriesNamed("Cf") | CategoriesNamed("Co");
  std::string out;
  ForEachCharacter(text, [&](char32_t code_point, absl::string_view bytes) {
    const bool line_or_tab = code_point == '\t' || code_point == '\n' || code_point == '\r';
    if (line_or_tab) return out.push_back(' ');
    if (code_point == kReplacementCharacter || HasCategory(code_point, other)) return;
    if (IsWhiteSpace(code_point)) return out.push_back(' ');
    Append(bytes, &out);
  });
  return out;
}

std::string SpaceChinese(absl::string_view text) {
  std::string out;
  ForEachCharacter(text, [&](char32_t code_point, absl::string_view bytes) {
    const bool apart = IsChinese(code_point);
    if (apart) out.push_back(' ');
    Append(bytes, &out);
    if (apart) out.push_back(' ');
  });
  return out;
}

std::string SingleSpaces(absl::string_view text) {
  std::string out;
  bool pending = false;
  for (const char byte : text) {
    if (byte == ' ') {
      pending = !out.empty();
      continue;
    }
    if (std::exchange(pending, false)) out.push_back(' ');
    out.push_back(byte);
  }
  return out;
}

absl::string_view Strip(absl::string_view text, bool left) {
  size_t kept = left ? text.size() : 0, at = 0;
  ForEachCharacter(text, [&](char32_t code_point, absl::string_view bytes) {
    if (!IsWhiteSpace(code_point)) {
      if (left) {
        kept = std::min(kept, at);
      } else {
        kept = at + bytes.size();
      }
    }
    at += bytes.size();
  });
  return left ? text.substr(kept) : text.substr(0, kept);
}

}  // namespace

absl::StatusOr<Normalization> Normalization::Create(const std::vector<Normalizer>& steps) {
  if (steps.size() > kStepsMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("normalizers: got ", steps.size(), ", limit ", kStepsMax));
  }
  Normalization result;
  for (size_t i = 0; i < steps.size(); ++i) {
    Step step = {.spec = steps[i], .regex = nullptr, .map = nullptr};
    if (steps[i].kind == Normalizer::Kind::kReplace) {
      auto regex = Regex::Compile(steps[i].pattern, RegexDialect::kOniguruma);
      if (!regex.ok()) {
        return absl::Status(regex.status().code(),
                            absl::StrCat("normalizer ", i, ": ", regex.status().message()));
      }
      step.regex = *std::move(regex);
    }
    if (steps[i].kind == Normalizer::Kind::kCharacterMap) {
      ASSIGN_OR_RETURN(step.map, CharacterMap::Create(steps[i].content));
      step.spec.content.clear();
    }
    result.steps_.push_back(std::move(step));
  }
  return result;
}

absl::StatusOr<std::string> Normalization::Replace(const Step& step, absl::string_view text) {
  std::string out;
  size_t at = 0;
  Regex::Search search(*step.regex, text);
  while (const std::optional<Regex::Match> match = search.Next()) {
    Append(text.substr(at, match->begin - at), &out);
    out += step.spec.content;
    at = match->end;
    if (out.size() > kBytesMax) break;
  }
  if (search.spent()) {
    return absl::ResourceExhaustedError("normalizer: its pattern reads the text over and over");
  }
  Append(text.substr(at), &out);
  return out;
}

absl::StatusOr<std::string> Normalization::ApplyStep(const Step& step, std::string text) {
  switch (step.spec.kind) {
    case Normalizer::Kind::kForm:
      return Normalize(text, step.spec.form);
    case Normalizer::Kind::kLowerCase:
      return LowerCase(text);
    case Normalizer::Kind::kStripAccents:
      return StripAccents(text);
    case Normalizer::Kind::kCleanText:
      return CleanText(text);
    case Normalizer::Kind::kSpaceChinese:
      return SpaceChinese(text);
    case Normalizer::Kind::kReplace:
      return Replace(step, text);
    case Normalizer::Kind::kPrepend:
      return text.empty() ? text : step.spec.content + text;
    case Normalizer::Kind::kStripLeft:
      return std::string(Strip(text, /*left=*/true));
    case Normalizer::Kind::kStripRight:
      return std::string(Strip(text, /*left=*/false));
    case Normalizer::Kind::kCharacterMap:
      return step.map->Apply(text);
    case Normalizer::Kind::kSingleSpaces:
      return SingleSpaces(text);
  }
  return text;
}

absl::StatusOr<std::string> Normalization::Apply(absl::string_view text) const {
  std::string result(text);
  for (const Step& step : steps_) {
    ASSIGN_OR_RETURN(result, ApplyStep(step, std::move(result)));
    if (result.size() > kBytesMax) {
      return absl::ResourceExhaustedError(
          absl::StrCat("normalizers: made more than ", kBytesMax, " bytes"));
    }
  }
  return result;
}

}  // namespace stampmill
