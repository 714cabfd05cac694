#include "text/gguf_vocabulary.h"

#include <algorithm>
#include <span>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace stampmill {
namespace {

// Texts of tokens that end a turn, whatever the keys say: files often name one of several.
constexpr absl::string_view kEnds[] = {
    "<|eot_id|>",
    "<|im_end|>",
    "<|end|>",
    "<|return|>",
    "<|call|>",
    "<|flush|>",
    "<|calls|>",
    "<end_of_turn>",
    "<|endoftext|>",
    "<|eom_id|>",
    "< EOT >",
    "<EOT>",
    "_<EOT>",
    "[EOT]",
    "[EOS]",
    "<|end_of_text|>",
    "</s>",
    "<turn|>",
    "<end_of_utterance>",
    "<eos>",
    "<\uFF5Cend\u2581of\u2581sentence\uFF5C>",
};

// Texts of tokens for filling in the middle.
constexpr absl::string_view kFillsIn[] = {
    "<|fim_prefix|>", "<fim-prefix>",  "<fim_prefix>", "<PRE>",  "<|code_prefix|>",
    "<|fim_suffix|>", "<fim-suffix>",  "<fim_suffix>", "<SUF>",  "<|code_suffix|>",
    "<|fim_middle|>", "<fim-middle>",  "<fim_middle>", "<MID>",  "<|code_middle|>",
    "<|fim_pad|>",    "<fim-pad>",     "<fim_pad>",    "<PAD>",  "[PAD]",
    "<|fim_repo|>",   "<|repo_name|>", "<fim-repo>",   "<REPO>", "<reponame>",
    "<|file_sep|>",
};

bool IsAmong(std::span<const absl::string_view> texts, absl::string_view text) {
  return std::find(texts.begin(), texts.end(), text) != texts.end();
}

absl::Status ReadKinds(const GgufVocabulary& vocabulary, TokenizerSpec* spec) {
  constexpr TokenKind kKinds[] = {TokenKind::kNormal,  TokenKind::kNormal,      TokenKind::kUnknown,
                                  TokenKind::kControl, TokenKind::kUserDefined, TokenKind::kUnused,
                                  TokenKind::kByte};
  const size_t types = vocabulary.token_type.size();
  if (types > 0 && types != vocabulary.tokens.size()) {
    return absl::InvalidArgumentError(absl::StrCat("tokenizer.ggml.token_type: got ", types, " of ",
                                                   vocabulary.tokens.size(), " tokens"));
  }
  for (size_t id = 0; id < types; ++id) {
    const int32_t type = vocabulary.token_type[id];
    if (type < 0 || type > 6) {
      return absl::InvalidArgumentError(
          absl::StrCat("tokenizer.ggml.token_type: token ", id, " has type ", type, ", limit 6"));
    }
    TokenKind kind = kKinds[type];
    const absl::string_view text = vocabulary.tokens[id];
    // Files that were converted carelessly call these words like others.
    constexpr size_t kLongestBytes = 32;
    if (text.size() <= kLongestBytes && !text.empty() && absl::StrContains("<[_", text[0])) {
      const bool ends = IsAmong(kEnds, text);
      if (ends) spec->ends_generation.push_back(static_cast<int32_t>(id));
      if (ends || IsAmong(kFillsIn, text)) kind = TokenKind::kControl;
    }
    spec->kinds.push_back(kind);
    const bool special = kind == TokenKind::kControl || kind == TokenKind::kUnknown;
    if ((special || kind == TokenKind::kUserDefined) && !text.empty()) {
      spec->added.push_back({.id = static_cast<int32_t>(id), .special = special});
    }
  }
  for (const std::optional<int32_t>& id : {vocabulary.eot_token_id, vocabulary.eom_token_id}) {
    if (id) spec->ends_generation.push_back(*id);
  }
  return absl::OkStatus();
}

// "left right" to left, right. The left one may begin with the space that it stands for.
absl::Status ReadMerges(const TextPool& merges, TextPool* pairs) {
  pairs->Reserve(merges.size() * 2, merges.size_bytes());
  for (size_t i = 0; i < merges.size(); ++i) {
    const absl::string_view text = merges[i];
    const size_t space = text.find(' ', 1);
    if (space == absl::string_view::npos) {
      return absl::InvalidArgumentError(
          absl::StrCat("tokenizer.ggml.merges: merge ", i, " has no space between two texts"));
    }
    pairs->Add(text.substr(0, space));
    pairs->Add(text.substr(space + 1));
  }
  return absl::OkStatus();
}

struct Ends {
  bool bos, eos, separator;  // whether the file's defaults have them
};

absl::StatusOr<Ends> ReadBytePairs(const GgufVocabulary& vocabulary, TokenizerSpec* spec) {
  spec->model = TokenizerModel::kBytePairs;
  spec->byte_level = true;
  spec->emits_unknown = false;
  RETURN_IF_ERROR(ReadMerges(vocabulary.merges, &spec->merges));
  ASSIGN_OR_RETURN(const GgufPreTokenizer pre,
                   GgufPreTokenizerNamed(vocabulary.pre.empty() ? "default" : vocabulary.pre));
  for (const absl::string_view pattern : pre.patterns) {
    spec->pre_tokenizers.push_back({.kind = PreTokenizer::Kind::kSplit,
                                    .pattern = std::string(pattern),
                                    .dialect = RegexDialect::kEcmaScript});
  }
  spec->whole_words = pre.whole_words;
  return Ends{.bos = pre.adds_bos, .eos = false, .separator = pre.adds_separator};
}

Ends ReadSentencePieces(const GgufVocabulary& vocabulary, TokenizerSpec* spec) {
  spec->byte_fallback = true;
  spec->decoding.marks_are_spaces = true;
  const bool unigram = spec->model == TokenizerModel::kUnigram;
  const bool single_spaces = unigram && vocabulary.remove_extra_whitespaces.value_or(false);
  // Where spaces are made single, each word has its own.
  const bool prepends = vocabulary.add_space_prefix.value_or(!unigram) || single_spaces;
  spec->decoding.strips_first_space = prepends;
  if (unigram) {
    spec->byte_fallback = false;
    spec->fuse_unknown = true;
    if (!vocabulary.precompiled_charsmap.empty()) {
      spec->normalizers.push_back(
          {.kind = Normalizer::Kind::kCharacterMap, .content = vocabulary.precompiled_charsmap});
    }
    if (single_spaces) {
      spec->normalizers.push_back({.kind = Normalizer::Kind::kSingleSpaces});
    }
  }
  spec->pre_tokenizers.push_back(
      {.kind = PreTokenizer::Kind::kMarkSpaces,
       .content = "\u2581",
       .prepend = prepends ? PreTokenizer::Prepend::kAnyway : PreTokenizer::Prepend::kNever});
  return Ends{.bos = !unigram, .eos = unigram, .separator = false};
}

Ends ReadWordPieces(TokenizerSpec* spec) {
  spec->model = TokenizerModel::kWordPiece;
  spec->word_prefix = "\u2581";
  spec->decoding.marks_are_spaces = true;
  spec->decoding.strips_first_space = true;
  using Kind = Normalizer::Kind;
  spec->normalizers = {{.kind = Kind::kReplace, .pattern = "\\s", .content = " "},
                       {.kind = Kind::kCleanText},
                       {.kind = Kind::kSpaceChinese},
                       {.kind = Kind::kForm, .form = NormalForm::kNfd},
                       {.kind = Kind::kStripAccents},
                       {.kind = Kind::kLowerCase}};
  spec->pre_tokenizers = {{.kind = PreTokenizer::Kind::kSplit,
                           .pattern = "\\s+",
                           .behavior = PreTokenizer::Behavior::kRemoved},
                          {.kind = PreTokenizer::Kind::kSplit, .pattern = "[\\p{P}$+<=>^`|~]"}};
  return Ends{.bos = true, .eos = false, .separator = true};
}

}  // namespace

absl::StatusOr<TokenizerSpec> SpecOfGguf(GgufVocabulary vocabulary) {
  TokenizerSpec spec;
  RETURN_IF_ERROR(ReadKinds(vocabulary, &spec));
  spec.bos = vocabulary.bos_token_id;
  spec.eos = vocabulary.eos_token_id;
  spec.unknown = vocabulary.unknown_token_id;
  spec.padding = vocabulary.padding_token_id;
  spec.separator = vocabulary.seperator_token_id;
  spec.mask = vocabulary.mask_token_id;
  const auto or_else = [&](std::optional<int32_t>* id, int32_t usual) {
    if (!*id && static_cast<size_t>(usual) < vocabulary.tokens.size()) *id = usual;
  };
  Ends ends;
  if (vocabulary.model == "gpt2") {
    or_else(&spec.bos, 11);
    or_else(&spec.eos, 11);
    ASSIGN_OR_RETURN(ends, ReadBytePairs(vocabulary, &spec));
  } else if (vocabulary.model == "llama") {
    spec.model = TokenizerModel::kScoredPairs;
    or_else(&spec.bos, 1);
    or_else(&spec.eos, 2);
    or_else(&spec.unknown, 0);
    ends = ReadSentencePieces(vocabulary, &spec);
  } else if (vocabulary.model == "t5") {
    spec.model = TokenizerModel::kUnigram;
    or_else(&spec.eos, 1);
    or_else(&spec.unknown, 2);
    ends = ReadSentencePieces(vocabulary, &spec);
  } else if (vocabulary.model == "bert") {
    ends = ReadWordPieces(&spec);
    spec.bos = vocabulary.cls_token_id ? vocabulary.cls_token_id : spec.bos;
    or_else(&spec.bos, 101);
    or_else(&spec.unknown, 100);
    or_else(&spec.separator, 102);
  } else {
    return absl::UnimplementedError(absl::StrCat("tokenizer.ggml.model: '",
                                                 vocabulary.model.substr(0, 100),
                                                 "' is not known (gpt2, llama, t5 and bert are)"));
  }
  const auto add = [](bool wanted, const std::optional<int32_t>& id, std::vector<int32_t>* ids) {
    if (wanted && id) ids->push_back(*id);
  };
  add(vocabulary.add_bos_token.value_or(ends.bos), spec.bos, &spec.prefix);
  add(vocabulary.add_sep_token.value_or(ends.separator), spec.separator, &spec.suffix);
  add(vocabulary.add_eos_token.value_or(ends.eos), spec.eos, &spec.suffix);
  spec.tokens = std::move(vocabulary.tokens);
  spec.scores.assign(vocabulary.scores.begin(), vocabulary.scores.end());
  return spec;
}

}  // namespace stampmill
