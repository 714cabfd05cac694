#include "text/tokenizer_json.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "text/json_fields.h"
#include "text/tokenizer_json_steps.h"
#include "text/vocabulary.h"

namespace stampmill {
namespace {

// Texts by id while they are collected; the document owns them.
class Texts {
 public:
  absl::Status Set(const JsonField& where, int64_t id, absl::string_view text) {
    // Holes in the numbering are known, a file of nothing but a hole is an attack.
    const size_t limit = std::min<size_t>(size_t{1} << 24, count_ * 2 + 65536);
    if (id < 0 || static_cast<uint64_t>(id) >= limit) {
      return absl::InvalidArgumentError(
          absl::StrCat(where.path(), ": got id ", id, ", limit ", limit));
    }
    if (static_cast<size_t>(id) >= texts_.size()) {
      texts_.resize(id + 1);
      set_.resize(id + 1, false);
    }
    if (set_[id] && texts_[id] != text) {
      return absl::InvalidArgumentError(absl::StrCat(where.path(), ": id ", id, " has two texts"));
    }
    bytes_ += set_[id] ? 0 : text.size();
    count_ += set_[id] ? 0 : 1;
    texts_[id] = text;
    set_[id] = true;
    return absl::OkStatus();
  }
  void Expect(size_t count) { count_ = std::max(count_, count); }

  size_t size() const { return texts_.size(); }
  void MoveTo(TextPool* pool) const {
    pool->Reserve(texts_.size(), bytes_);
    for (const absl::string_view text : texts_) pool->Add(text);
  }
  std::optional<int32_t> Find(absl::string_view text) const {
    for (size_t id = 0; id < texts_.size(); ++id) {
      if (set_[id] && texts_[id] == text) return static_cast<int32_t>(id);
    }
    return std::nullopt;
  }

 private:
  std::vector<absl::string_view> texts_;
  std::vector<bool> set_;
  size_t count_ = 0, bytes_ = 0;
};

absl::Status ReadVocabularyObject(const JsonField& field, Texts* texts) {
  ASSIGN_OR_RETURN(const boost::json::object* object, field.Object());
  texts->Expect(object->size());
  for (const auto& [key, value] : *object) {
    if (!value.is_int64()) return field[View(key)].Wrong("an integer");
    RETURN_IF_ERROR(texts->Set(field, value.get_int64(), View(key)));
  }
  return absl::OkStatus();
}

// [[text, score], ...]
absl::Status ReadScoredVocabulary(const JsonField& field, TokenizerSpec* spec, Texts* texts) {
  ASSIGN_OR_RETURN(const boost::json::array* entries, field.Array());
  texts->Expect(entries->size());
  for (size_t id = 0; id < entries->size(); ++id) {
    const JsonField entry = field.At(id);
    if (entry.size() != 2) return entry.Wrong("a text and a score");
    ASSIGN_OR_RETURN(const absl::string_view text, entry.At(0).String());
    ASSIGN_OR_RETURN(const double score, entry.At(1).Number());
    RETURN_IF_ERROR(texts->Set(field, static_cast<int64_t>(id), text));
    spec->scores.push_back(score);
  }
  return absl::OkStatus();
}

absl::Status ReadMerges(const JsonField& field, TextPool* merges) {
  ASSIGN_OR_RETURN(const boost::json::array* entries, field.Array());
  for (size_t i = 0; i < entries->size(); ++i) {
    const JsonField entry = field.At(i);
    if (entry.is_array()) {
      if (entry.size() != 2) return entry.Wrong("two texts");
      for (const size_t side : {0, 1}) {
        ASSIGN_OR_RETURN(const absl::string_view text, entry.At(side).String());
        merges->Add(text);
      }
      continue;
    }
    ASSIGN_OR_RETURN(const absl::string_view text, entry.String());
    const size_t space = text.find(' ');
    if (space == absl::string_view::npos || text.find(' ', space + 1) != absl::string_view::npos) {
      return entry.Wrong("two texts with a space between them");
    }
    merges->Add(text.substr(0, space));
    merges->Add(text.substr(space + 1));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> TextOrNothing(const JsonField& field) {
  if (field.is_null()) return std::string();
  ASSIGN_OR_RETURN(const absl::string_view text, field.String());
  return std::string(text);
}

absl::Status ReadUnknown(const JsonField& field, const Texts& texts, TokenizerSpec* spec) {
  if (field.is_null()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const absl::string_view text, field.String());
  spec->unknown = texts.Find(text);
  if (!spec->unknown) return field.Wrong("a text of the vocabulary");
  return absl::OkStatus();
}

absl::Status ReadBytePairs(const JsonField& model, TokenizerSpec* spec, Texts* texts) {
  spec->model = TokenizerModel::kBytePairs;
  RETURN_IF_ERROR(ReadVocabularyObject(model["vocab"], texts));
  RETURN_IF_ERROR(ReadMerges(model["merges"], &spec->merges));
  if (!model["dropout"].is_null()) {
    ASSIGN_OR_RETURN(const double dropout, model["dropout"].Number());
    if (dropout != 0) return model["dropout"].Unsupported("dropout");
  }
  ASSIGN_OR_RETURN(spec->continuation, TextOrNothing(model["continuing_subword_prefix"]));
  ASSIGN_OR_RETURN(spec->word_suffix, TextOrNothing(model["end_of_word_suffix"]));
  ASSIGN_OR_RETURN(spec->fuse_unknown, model["fuse_unk"].Bool(false));
  ASSIGN_OR_RETURN(spec->byte_fallback, model["byte_fallback"].Bool(false));
  ASSIGN_OR_RETURN(spec->whole_words, model["ignore_merges"].Bool(false));
  return ReadUnknown(model["unk_token"], *texts, spec);
}

absl::Status ReadUnigram(const JsonField& model, TokenizerSpec* spec, Texts* texts) {
  spec->model = TokenizerModel::kUnigram;
  spec->fuse_unknown = true;
  RETURN_IF_ERROR(ReadScoredVocabulary(model["vocab"], spec, texts));
  ASSIGN_OR_RETURN(spec->byte_fallback, model["byte_fallback"].Bool(false));
  if (model["unk_id"].is_null()) return absl::OkStatus();
  ASSIGN_OR_RETURN(const int64_t unknown, model["unk_id"].Integer());
  if (unknown < 0 || static_cast<uint64_t>(unknown) >= texts->size()) {
    return model["unk_id"].Wrong("a token's id");
  }
  spec->unknown = static_cast<int32_t>(unknown);
  return absl::OkStatus();
}

absl::Status ReadWordPieces(const JsonField& model, TokenizerSpec* spec, Texts* texts) {
  spec->model = TokenizerModel::kWordPiece;
  RETURN_IF_ERROR(ReadVocabularyObject(model["vocab"], texts));
  ASSIGN_OR_RETURN(spec->continuation, TextOrNothing(model["continuing_subword_prefix"]));
  spec->word_characters_max = 100;
  if (const JsonField limit = model["max_input_chars_per_word"]; !limit.is_null()) {
    ASSIGN_OR_RETURN(const int64_t value, limit.Integer());
    if (value < 1 || value > 1'000'000) return limit.Wrong("1 to 1000000");
    spec->word_characters_max = static_cast<uint32_t>(value);
  }
  return ReadUnknown(model["unk_token"], *texts, spec);
}

absl::Status ReadModel(const JsonField& model, TokenizerSpec* spec, Texts* texts) {
  if (model["type"].is_null() && !model["merges"].is_null()) {
    return ReadBytePairs(model, spec, texts);  // files of before 2020 do not say
  }
  ASSIGN_OR_RETURN(const absl::string_view type, model["type"].String());
  if (type == "BPE") return ReadBytePairs(model, spec, texts);
  if (type == "Unigram") return ReadUnigram(model, spec, texts);
  if (type == "WordPiece") return ReadWordPieces(model, spec, texts);
  return model["type"].Unsupported(type);
}

absl::Status ReadAddedTokens(const JsonField& field, TokenizerSpec* spec, Texts* texts) {
  if (field.is_null()) return absl::OkStatus();
  RETURN_IF_ERROR(field.Array().status());
  texts->Expect(texts->size() + field.size());
  for (size_t i = 0; i < field.size(); ++i) {
    const JsonField entry = field.At(i);
    ASSIGN_OR_RETURN(const int64_t id, entry["id"].Integer());
    ASSIGN_OR_RETURN(const absl::string_view content, entry["content"].String());
    RETURN_IF_ERROR(texts->Set(entry, id, content));
    AddedToken token = {.id = static_cast<int32_t>(id)};
    ASSIGN_OR_RETURN(token.special, entry["special"].Bool(false));
    ASSIGN_OR_RETURN(token.single_word, entry["single_word"].Bool(false));
    ASSIGN_OR_RETURN(token.left_strip, entry["lstrip"].Bool(false));
    ASSIGN_OR_RETURN(token.right_strip, entry["rstrip"].Bool(false));
    ASSIGN_OR_RETURN(token.normalized, entry["normalized"].Bool(!token.special));
    spec->added.push_back(token);
  }
  return absl::OkStatus();
}

// Merges lead from tokens to tokens: a file in which they do not was damaged.
absl::Status CheckMerges(const TokenizerSpec& spec) {
  if (spec.merges.size() == 0) return absl::OkStatus();
  const Vocabulary vocabulary(spec.tokens);
  std::string both;
  for (size_t i = 0; i + 1 < spec.merges.size(); i += 2) {
    const absl::string_view left = spec.merges[i], right = spec.merges[i + 1];
    const bool continues = right.substr(0, spec.continuation.size()) == spec.continuation;
    both = absl::StrCat(left, continues ? right.substr(spec.continuation.size()) : right);
    for (const absl::string_view text : {left, right, absl::string_view(both)}) {
      if (vocabulary.Find(text) != Vocabulary::kNone) continue;
      return absl::InvalidArgumentError(absl::StrCat("model.merges[", i / 2, "]: '",
                                                     absl::Utf8SafeCHexEscape(text.substr(0, 80)),
                                                     "' is no token"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<TokenizerSpec> ParseTokenizerJson(absl::string_view json) {
  if (json.size() > kTokenizerJsonBytesMax) {
    return absl::InvalidArgumentError(absl::StrCat("tokenizer.json: got ", json.size(),
                                                   " bytes, limit ", kTokenizerJsonBytesMax));
  }
  ASSIGN_OR_RETURN(const boost::json::value document, ParseJson(json));
  const JsonField root(&document, "");
  if (!root.is_object()) return absl::InvalidArgumentError("tokenizer.json: is no object");
  TokenizerSpec spec;
  Texts texts;
  RETURN_IF_ERROR(ReadModel(root["model"], &spec, &texts));
  const size_t model_tokens = texts.size();
  RETURN_IF_ERROR(ReadAddedTokens(root["added_tokens"], &spec, &texts));
  spec.scores.resize(spec.scores.empty() ? 0 : texts.size(), std::numeric_limits<float>::lowest());
  texts.MoveTo(&spec.tokens);
  RETURN_IF_ERROR(CheckMerges(spec));
  spec.kinds.assign(spec.tokens.size(), TokenKind::kNormal);
  for (const AddedToken& token : spec.added) {
    // A word of the model's that is looked for first is a word still.
    if (!token.special && static_cast<size_t>(token.id) < model_tokens) continue;
    spec.kinds[token.id] = token.special ? TokenKind::kControl : TokenKind::kUserDefined;
  }
  if (spec.unknown) spec.kinds[*spec.unknown] = TokenKind::kUnknown;
  RETURN_IF_ERROR(ReadNormalizer(root["normalizer"], &spec));
  RETURN_IF_ERROR(ReadPreTokenizer(root["pre_tokenizer"], &spec));
  RETURN_IF_ERROR(ReadPostProcessor(root["post_processor"], &spec));
  RETURN_IF_ERROR(ReadDecoder(root["decoder"], &spec));
  return spec;
}

absl::Status ParseTokenizerConfigJson(absl::string_view json, TokenizerSpec* spec) {
  ASSIGN_OR_RETURN(const boost::json::value document, ParseJson(json));
  const JsonField root(&document, "");
  if (!root.is_object()) return absl::InvalidArgumentError("tokenizer_config.json: is no object");
  const std::pair<absl::string_view, std::optional<int32_t>*> fields[] = {
      {"bos_token", &spec->bos}, {"eos_token", &spec->eos}, {"pad_token", &spec->padding}};
  for (const auto& [name, id] : fields) {
    const JsonField field = root[name];
    if (field.is_null()) continue;
    ASSIGN_OR_RETURN(const absl::string_view text,
                     (field.is_object() ? field["content"] : field).String());
    bool found = false;
    for (size_t token = 0; token < spec->tokens.size() && !found; ++token) {
      found = spec->tokens[token] == text;
      if (found) *id = static_cast<int32_t>(token);
    }
    if (!found) return field.Wrong("a token's text");
  }
  return absl::OkStatus();
}

}  // namespace stampmill
