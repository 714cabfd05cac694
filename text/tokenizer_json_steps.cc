#include "text/tokenizer_json_steps.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace stampmill {
namespace {

constexpr absl::string_view kMark = "\u2581";
constexpr absl::string_view kPunctuation = "[\\p{P}!-/:-@\\[-`{-~]";

// A text as an expression that matches nothing else.
std::string Literal(absl::string_view text) {
  std::string pattern;
  for (const char c : text) {
    if (absl::ascii_ispunct(static_cast<unsigned char>(c))) pattern += '\\';
    pattern += c;
  }
  return pattern;
}

// {"String": text} or {"Regex": expression}
absl::StatusOr<std::string> ReadPattern(const JsonField& field) {
  if (field["String"].is_string()) {
    ASSIGN_OR_RETURN(const absl::string_view text, field["String"].String());
    return Literal(text);
  }
  ASSIGN_OR_RETURN(const absl::string_view pattern, field["Regex"].String());
  return std::string(pattern);
}

// Calls `read` with each part of a sequence.
template <typename Read>
absl::Status ForEachPart(const JsonField& parts, const Read& read) {
  RETURN_IF_ERROR(parts.Array().status());
  for (size_t i = 0; i < parts.size(); ++i) RETURN_IF_ERROR(read(parts.At(i)));
  return absl::OkStatus();
}

absl::Status ReadBertNormalizer(const JsonField& field, TokenizerSpec* spec) {
  using Kind = Normalizer::Kind;
  ASSIGN_OR_RETURN(const bool cleans, field["clean_text"].Bool(true));
  ASSIGN_OR_RETURN(const bool chinese, field["handle_chinese_chars"].Bool(true));
  ASSIGN_OR_RETURN(const bool lower_case, field["lowercase"].Bool(true));
  ASSIGN_OR_RETURN(const bool strips, field["strip_accents"].Bool(lower_case));
  if (cleans) spec->normalizers.push_back({.kind = Kind::kCleanText});
  if (chinese) spec->normalizers.push_back({.kind = Kind::kSpaceChinese});
  if (strips) {
    spec->normalizers.push_back({.kind = Kind::kForm, .form = NormalForm::kNfd});
    spec->normalizers.push_back({.kind = Kind::kStripAccents});
  }
  if (lower_case) spec->normalizers.push_back({.kind = Kind::kLowerCase});
  return absl::OkStatus();
}

void AddReplacement(std::string pattern, absl::string_view content, TokenizerSpec* spec) {
  spec->normalizers.push_back({.kind = Normalizer::Kind::kReplace,
                               .pattern = std::move(pattern),
                               .content = std::string(content)});
}

// Normalizers without fields; false for another name.
bool AddPlainNormalizer(absl::string_view type, TokenizerSpec* spec) {
  using Kind = Normalizer::Kind;
  const std::pair<absl::string_view, NormalForm> forms[] = {{"NFC", NormalForm::kNfc},
                                                            {"NFD", NormalForm::kNfd},
                                                            {"NFKC", NormalForm::kNfkc},
                                                            {"NFKD", NormalForm::kNfkd}};
  for (const auto& [name, form] : forms) {
    if (type != name) continue;
    spec->normalizers.push_back({.kind = Kind::kForm, .form = form});
    return true;
  }
  if (type == "Lowercase") {
    spec->normalizers.push_back({.kind = Kind::kLowerCase});
  } else if (type == "StripAccents") {
    AddReplacement("\\p{M}", "", spec);
  } else if (type == "Nmt") {
    AddReplacement("[\\x{1}-\\x{8}\\x{B}\\x{E}-\\x{1F}\\x{7F}\\x{8F}\\x{9F}]", "", spec);
    AddReplacement(
        "[\\x{9}\\x{A}\\x{C}\\x{D}\\x{1680}\\x{200B}-\\x{200F}\\x{2028}\\x{2029}\\x{2581}"
        "\\x{FEFF}\\x{FFFD}]",
        " ", spec);
  } else {
    return false;
  }
  return true;
}

void AddSplit(std::string pattern, PreTokenizer::Behavior behavior, TokenizerSpec* spec,
              bool inverted = false) {
  spec->pre_tokenizers.push_back({.kind = PreTokenizer::Kind::kSplit,
                                  .pattern = std::move(pattern),
                                  .behavior = behavior,
                                  .inverted = inverted});
}

absl::StatusOr<PreTokenizer::Behavior> ReadBehavior(const JsonField& field) {
  using Behavior = PreTokenizer::Behavior;
  if (field.is_null()) return Behavior::kIsolated;
  ASSIGN_OR_RETURN(const absl::string_view name, field.String());
  if (name == "Isolated") return Behavior::kIsolated;
  if (name == "Removed") return Behavior::kRemoved;
  if (name == "MergedWithPrevious") return Behavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return Behavior::kMergedWithNext;
  if (name == "Contiguous") return Behavior::kContiguous;
  return field.Unsupported(name);
}

absl::Status ReadByteLevel(const JsonField& field, TokenizerSpec* spec) {
  using Behavior = PreTokenizer::Behavior;
  if (spec->model != TokenizerModel::kBytePairs) {
    return field.Unsupported("ByteLevel with a model that is not BPE");
  }
  spec->byte_level = true;
  ASSIGN_OR_RETURN(const bool prefix, field["add_prefix_space"].Bool(true));
  ASSIGN_OR_RETURN(const bool splits, field["use_regex"].Bool(true));
  if (prefix) spec->pre_tokenizers.push_back({.kind = PreTokenizer::Kind::kPrependSpace});
  if (splits) {
    AddSplit("'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+",
             Behavior::kIsolated, spec);
  }
  return absl::OkStatus();
}

absl::Status ReadMetaspace(const JsonField& field, TokenizerSpec* spec) {
  using Prepend = PreTokenizer::Prepend;
  PreTokenizer step = {.kind = PreTokenizer::Kind::kMarkSpaces};
  step.content = std::string(kMark);
  if (!field["replacement"].is_null()) {
    ASSIGN_OR_RETURN(const absl::string_view replacement, field["replacement"].String());
    if (replacement != kMark) return field["replacement"].Unsupported(replacement);
  }
  ASSIGN_OR_RETURN(const bool prefix, field["add_prefix_space"].Bool(true));
  step.prepend = prefix ? Prepend::kAlways : Prepend::kNever;
  if (const JsonField scheme = field["prepend_scheme"]; !scheme.is_null()) {
    ASSIGN_OR_RETURN(const absl::string_view name, scheme.String());
    if (name == "never") {
      step.prepend = Prepend::kNever;
    } else if (name == "first") {
      step.prepend = Prepend::kFirst;
    } else if (name == "always") {
      step.prepend = Prepend::kAlways;
    } else {
      return scheme.Unsupported(name);
    }
  }
  ASSIGN_OR_RETURN(step.split, field["split"].Bool(true));
  spec->pre_tokenizers.push_back(std::move(step));
  return absl::OkStatus();
}

absl::Status ReadSplit(const JsonField& field, TokenizerSpec* spec) {
  ASSIGN_OR_RETURN(std::string pattern, ReadPattern(field["pattern"]));
  ASSIGN_OR_RETURN(const PreTokenizer::Behavior behavior, ReadBehavior(field["behavior"]));
  ASSIGN_OR_RETURN(const bool inverted, field["invert"].Bool(false));
  AddSplit(std::move(pattern), behavior, spec, inverted);
  return absl::OkStatus();
}

absl::Status ReadTemplate(const JsonField& field, TokenizerSpec* spec) {
  const JsonField single = field["single"];
  RETURN_IF_ERROR(single.Array().status());
  std::vector<int32_t> prefix, suffix;
  bool after = false;
  for (size_t i = 0; i < single.size(); ++i) {
    const JsonField part = single.At(i);
    if (part["Sequence"].is_object()) {
      ASSIGN_OR_RETURN(const absl::string_view id, part["Sequence"]["id"].String());
      if (after || id != "A") return part.Unsupported("a second sequence");
      after = true;
      continue;
    }
    ASSIGN_OR_RETURN(const absl::string_view name, part["SpecialToken"]["id"].String());
    const JsonField ids = field["special_tokens"][name]["ids"];
    RETURN_IF_ERROR(ids.Array().status());
    for (size_t k = 0; k < ids.size(); ++k) {
      ASSIGN_OR_RETURN(const int64_t id, ids.At(k).Integer());
      if (id < 0 || static_cast<uint64_t>(id) >= spec->tokens.size()) {
        return ids.At(k).Wrong("a token's id");
      }
      (after ? suffix : prefix).push_back(static_cast<int32_t>(id));
    }
  }
  if (!after) return single.Unsupported("a template without a sequence");
  spec->prefix.insert(spec->prefix.begin(), prefix.begin(), prefix.end());
  spec->suffix.insert(spec->suffix.end(), suffix.begin(), suffix.end());
  return absl::OkStatus();
}

// ["[SEP]", 102]
absl::StatusOr<int32_t> ReadTokenPair(const JsonField& field, const TokenizerSpec& spec) {
  ASSIGN_OR_RETURN(const int64_t id, field.At(1).Integer());
  if (id < 0 || static_cast<uint64_t>(id) >= spec.tokens.size()) {
    return field.Wrong("a token and its id");
  }
  return static_cast<int32_t>(id);
}

absl::Status ReadStripDecoder(const JsonField& field, TokenizerSpec* spec) {
  ASSIGN_OR_RETURN(const absl::string_view content, field["content"].String());
  ASSIGN_OR_RETURN(const int64_t start, field["start"].Integer());
  ASSIGN_OR_RETURN(const int64_t stop, field["stop"].Integer());
  if (content != " " || start != 1 || stop != 0) {
    return field.Unsupported("stripping other than one space at the front");
  }
  spec->decoding.strips_first_space = true;
  return absl::OkStatus();
}

absl::Status ReadReplaceDecoder(const JsonField& field, TokenizerSpec* spec) {
  ASSIGN_OR_RETURN(const std::string pattern, ReadPattern(field["pattern"]));
  ASSIGN_OR_RETURN(const absl::string_view content, field["content"].String());
  if (pattern != kMark || content != " ") {
    return field.Unsupported("replacing other than U+2581 by a space");
  }
  spec->decoding.marks_are_spaces = true;
  return absl::OkStatus();
}

absl::Status ReadMetaspaceDecoder(const JsonField& field, TokenizerSpec* spec) {
  spec->decoding.marks_are_spaces = true;
  spec->decoding.strips_first_space = true;
  if (!field["prepend_scheme"].is_null()) {
    ASSIGN_OR_RETURN(const absl::string_view scheme, field["prepend_scheme"].String());
    spec->decoding.strips_first_space = scheme != "never";
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadNormalizer(const JsonField& field, TokenizerSpec* spec) {
  using Kind = Normalizer::Kind;
  if (field.is_null()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const absl::string_view type, field["type"].String());
  if (type == "Sequence") {
    return ForEachPart(field["normalizers"],
                       [&](const JsonField& part) { return ReadNormalizer(part, spec); });
  }
  if (AddPlainNormalizer(type, spec)) return absl::OkStatus();
  if (type == "BertNormalizer") return ReadBertNormalizer(field, spec);
  if (type == "Replace") {
    ASSIGN_OR_RETURN(std::string pattern, ReadPattern(field["pattern"]));
    ASSIGN_OR_RETURN(const absl::string_view content, field["content"].String());
    AddReplacement(std::move(pattern), content, spec);
  } else if (type == "Prepend") {
    ASSIGN_OR_RETURN(const absl::string_view content, field["prepend"].String());
    spec->normalizers.push_back({.kind = Kind::kPrepend, .content = std::string(content)});
  } else if (type == "Strip") {
    ASSIGN_OR_RETURN(const bool left, field["strip_left"].Bool(true));
    ASSIGN_OR_RETURN(const bool right, field["strip_right"].Bool(true));
    if (left) spec->normalizers.push_back({.kind = Kind::kStripLeft});
    if (right) spec->normalizers.push_back({.kind = Kind::kStripRight});
  } else if (type == "Precompiled") {
    ASSIGN_OR_RETURN(const absl::string_view base64, field["precompiled_charsmap"].String());
    Normalizer step = {.kind = Kind::kCharacterMap};
    if (!absl::Base64Unescape(base64, &step.content)) {
      return field["precompiled_charsmap"].Wrong("base64");
    }
    spec->normalizers.push_back(std::move(step));
  } else {
    return field["type"].Unsupported(type);
  }
  return absl::OkStatus();
}

absl::Status ReadPreTokenizer(const JsonField& field, TokenizerSpec* spec) {
  using Behavior = PreTokenizer::Behavior;
  if (field.is_null()) return absl::OkStatus();
  if (spec->byte_level) return field.Unsupported("a pre-tokenizer after ByteLevel");
  ASSIGN_OR_RETURN(const absl::string_view type, field["type"].String());
  if (type == "Sequence") {
    return ForEachPart(field["pretokenizers"],
                       [&](const JsonField& part) { return ReadPreTokenizer(part, spec); });
  }
  if (type == "ByteLevel") return ReadByteLevel(field, spec);
  if (type == "Metaspace") return ReadMetaspace(field, spec);
  if (type == "Split") return ReadSplit(field, spec);
  if (type == "BertPreTokenizer") {
    AddSplit("\\s", Behavior::kRemoved, spec);
    AddSplit(std::string(kPunctuation), Behavior::kIsolated, spec);
  } else if (type == "Whitespace") {
    // Words as Unicode's regular expressions have them, which those of Oniguruma are not.
    const absl::string_view word =
        "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{200C}\\x{200D}\\x{24B6}-\\x{24E9}\\x{1F130}-\\x{"
        "1F149}"
        "\\x{1F150}-\\x{1F169}\\x{1F170}-\\x{1F189}";
    AddSplit(absl::StrCat("[", word, "]+|[^", word, "\\s]+"), Behavior::kRemoved, spec,
             /*inverted=*/true);
  } else if (type == "WhitespaceSplit") {
    AddSplit("\\s", Behavior::kRemoved, spec);
  } else if (type == "Digits") {
    ASSIGN_OR_RETURN(const bool individual, field["individual_digits"].Bool(false));
    AddSplit("\\p{N}", individual ? Behavior::kIsolated : Behavior::kContiguous, spec);
  } else if (type == "Punctuation") {
    ASSIGN_OR_RETURN(const Behavior behavior, ReadBehavior(field["behavior"]));
    AddSplit(std::string(kPunctuation), behavior, spec);
  } else if (type == "CharDelimiterSplit") {
    ASSIGN_OR_RETURN(const absl::string_view delimiter, field["delimiter"].String());
    AddSplit(Literal(delimiter), Behavior::kRemoved, spec);
  } else {
    return field["type"].Unsupported(type);
  }
  return absl::OkStatus();
}

absl::Status ReadPostProcessor(const JsonField& field, TokenizerSpec* spec) {
  if (field.is_null()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const absl::string_view type, field["type"].String());
  if (type == "Sequence") {
    return ForEachPart(field["processors"],
                       [&](const JsonField& part) { return ReadPostProcessor(part, spec); });
  }
  if (type == "ByteLevel") return absl::OkStatus();  // moves offsets only
  if (type == "TemplateProcessing") return ReadTemplate(field, spec);
  if (type == "BertProcessing" || type == "RobertaProcessing") {
    ASSIGN_OR_RETURN(const int32_t first, ReadTokenPair(field["cls"], *spec));
    ASSIGN_OR_RETURN(const int32_t last, ReadTokenPair(field["sep"], *spec));
    spec->prefix.insert(spec->prefix.begin(), first);
    spec->suffix.push_back(last);
    return absl::OkStatus();
  }
  return field["type"].Unsupported(type);
}

absl::Status ReadDecoder(const JsonField& field, TokenizerSpec* spec) {
  if (field.is_null()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const absl::string_view type, field["type"].String());
  if (type == "Sequence") {
    return ForEachPart(field["decoders"],
                       [&](const JsonField& part) { return ReadDecoder(part, spec); });
  }
  // What bytes become and that tokens follow each other is the Detokenizer's in any case.
  if (type == "ByteLevel" || type == "ByteFallback" || type == "Fuse") return absl::OkStatus();
  if (type == "Metaspace") return ReadMetaspaceDecoder(field, spec);
  if (type == "Replace") return ReadReplaceDecoder(field, spec);
  if (type == "Strip") return ReadStripDecoder(field, spec);
  if (type == "WordPiece") {
    spec->decoding.joins_words = true;
    ASSIGN_OR_RETURN(spec->decoding.cleans_up, field["cleanup"].Bool(true));
    return absl::OkStatus();
  }
  return field["type"].Unsupported(type);
}

}  // namespace stampmill
