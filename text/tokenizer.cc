#include "text/tokenizer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "text/byte_alphabet.h"
#include "text/utf8.h"

namespace stampmill {
namespace {

constexpr absl::string_view kMark = "\u2581";

bool IsHexadecimal(char c) { return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F'); }

// The byte of "<0x0A>".
std::optional<char> ByteNamed(absl::string_view text) {
  if (text.size() != 6 || text.substr(0, 3) != "<0x" || text[5] != '>') return std::nullopt;
  if (!IsHexadecimal(text[3]) || !IsHexadecimal(text[4])) return std::nullopt;
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'A' + 10; };
  return static_cast<char>(digit(text[3]) * 16 + digit(text[4]));
}

// English marks and contractions that are written without a space before them.
bool JoinsWhatIsBefore(absl::string_view word) {
  for (const absl::string_view known : {".", "?", "!", ",", "n't", "'m", "'s", "'ve", "'re"}) {
    if (absl::StartsWith(word, known)) return true;
  }
  return false;
}

absl::Status NotAToken(absl::string_view field, int32_t id, size_t count) {
  return absl::InvalidArgumentError(
      absl::StrCat(field, ": got token ", id, ", of ", count, " tokens"));
}

}  // namespace

absl::Status Tokenizer::Check(const TokenizerSpec& spec) {
  const size_t count = spec.tokens.size();
  if (count == 0 || count > kVocabularyTokensMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("tokens: got ", count, ", limit 1 to ", kVocabularyTokensMax));
  }
  if (!spec.kinds.empty() && spec.kinds.size() != count) {
    return absl::InvalidArgumentError(
        absl::StrCat("token kinds: got ", spec.kinds.size(), " of ", count, " tokens"));
  }
  const bool scored =
      spec.model == TokenizerModel::kScoredPairs || spec.model == TokenizerModel::kUnigram;
  if (scored && spec.scores.size() != count) {
    return absl::InvalidArgumentError(
        absl::StrCat("scores: got ", spec.scores.size(), " of ", count, " tokens"));
  }
  const auto bad = [&](int32_t id) { return id < 0 || static_cast<size_t>(id) >= count; };
  for (const AddedToken& added : spec.added) {
    if (bad(added.id)) return NotAToken("added tokens", added.id, count);
  }
  const std::pair<absl::string_view, std::vector<int32_t>> lists[] = {
      {"prefix", spec.prefix},
      {"suffix", spec.suffix},
      {"end of generation", spec.ends_generation}};
  for (const auto& [name, ids] : lists) {
    for (const int32_t id : ids) {
      if (bad(id)) return NotAToken(name, id, count);
    }
  }
  const std::pair<absl::string_view, std::optional<int32_t>> singles[] = {
      {"bos", spec.bos},
      {"eos", spec.eos},
      {"unknown", spec.unknown},
      {"padding", spec.padding},
      {"separator", spec.separator},
      {"mask", spec.mask}};
  for (const auto& [name, id] : singles) {
    if (id && bad(*id)) return NotAToken(name, *id, count);
  }
  return absl::OkStatus();
}

// Byte-level vocabularies become bytes; tokens that are no words of the model's keep their text and
// are not found among them.
struct DecodedTokens {
  TextPool texts;
  std::vector<bool> hidden;
};

static DecodedTokens DecodeByteLevel(const TokenizerSpec& spec) {
  DecodedTokens decoded;
  const size_t count = spec.tokens.size();
  decoded.texts.Reserve(count, spec.tokens.size_bytes());
  decoded.hidden.assign(count, false);
  std::string bytes;
  for (size_t id = 0; id < count; ++id) {
    const bool word = spec.kinds.empty() || spec.kinds[id] == TokenKind::kNormal ||
                      spec.kinds[id] == TokenKind::kUnused;
    if (word && DecodeByteAlphabet(spec.tokens[id], &bytes)) {
      decoded.texts.Add(bytes);
    } else {
      decoded.texts.Add(spec.tokens[id]);
      decoded.hidden[id] = true;
    }
  }
  return decoded;
}

absl::StatusOr<std::unique_ptr<const Tokenizer>> Tokenizer::Create(TokenizerSpec spec) {
  RETURN_IF_ERROR(Check(spec));
  std::optional<DecodedTokens> decoded;
  if (spec.byte_level) decoded = DecodeByteLevel(spec);
  std::unique_ptr<Tokenizer> tokenizer(
      decoded ? new Tokenizer(Vocabulary(std::move(decoded->texts), decoded->hidden))
              : new Tokenizer(Vocabulary(spec.tokens)));
  const size_t count = spec.tokens.size();
  tokenizer->special_.assign(count, false);
  tokenizer->ends_generation_.assign(count, false);
  for (size_t id = 0; id < spec.kinds.size(); ++id) {
    tokenizer->special_[id] =
        spec.kinds[id] == TokenKind::kControl || spec.kinds[id] == TokenKind::kUnknown;
  }
  for (const int32_t id : spec.ends_generation) tokenizer->ends_generation_[id] = true;
  if (spec.eos) tokenizer->ends_generation_[*spec.eos] = true;
  if (!spec.normalizers.empty()) {
    ASSIGN_OR_RETURN(tokenizer->normalization_, Normalization::Create(spec.normalizers));
  }
  ASSIGN_OR_RETURN(tokenizer->pre_tokenization_, PreTokenization::Create(spec.pre_tokenizers));
  switch (spec.model) {
    case TokenizerModel::kBytePairs:
    case TokenizerModel::kScoredPairs: {
      ASSIGN_OR_RETURN(tokenizer->pairs_, PairModel::Create(spec, tokenizer->vocabulary_));
      break;
    }
    case TokenizerModel::kUnigram: {
      ASSIGN_OR_RETURN(tokenizer->unigram_, UnigramModel::Create(spec, tokenizer->vocabulary_));
      break;
    }
    case TokenizerModel::kWordPiece:
      tokenizer->word_pieces_ =
          std::make_unique<const WordPieceModel>(spec, tokenizer->vocabulary_);
  }
  tokenizer->keeps_invalid_ = spec.model == TokenizerModel::kScoredPairs;
  tokenizer->kinds_ = spec.kinds;
  tokenizer->decoding_ = spec.decoding;
  tokenizer->continuation_ = spec.continuation;
  tokenizer->prefix_ = spec.prefix;
  tokenizer->suffix_ = spec.suffix;
  tokenizer->bos_ = spec.bos;
  tokenizer->eos_ = spec.eos;
  tokenizer->unknown_ = spec.unknown;
  tokenizer->padding_ = spec.padding;
  tokenizer->WriteOutputs(spec);
  if (spec.byte_level) tokenizer->raw_texts_ = std::move(spec.tokens);
  RETURN_IF_ERROR(tokenizer->TakeAddedTokens(spec.added));
  return std::unique_ptr<const Tokenizer>(std::move(tokenizer));
}

absl::Status Tokenizer::TakeAddedTokens(const std::vector<AddedToken>& added) {
  std::vector<AddedTokens::Entry> entries, normalized;
  for (const AddedToken& token : added) {
    if (token.special) special_[token.id] = true;
    if (!token.normalized || !normalization_) {
      entries.push_back({TokenText(token.id), token});
      continue;
    }
    ASSIGN_OR_RETURN(const std::string text, normalization_->Apply(TokenText(token.id)));
    normalized_texts_.Add(text);
    normalized.push_back({{}, token});
  }
  for (size_t i = 0; i < normalized.size(); ++i) normalized[i].text = normalized_texts_[i];
  added_ = AddedTokens(std::move(entries));
  normalized_added_ = AddedTokens(std::move(normalized));
  return absl::OkStatus();
}

void Tokenizer::WriteOutputs(const TokenizerSpec& spec) {
  if (!spec.decoding.marks_are_spaces && !spec.byte_fallback) return;
  outputs_.emplace();
  outputs_->Reserve(spec.tokens.size(), spec.tokens.size_bytes());
  std::string text;
  for (int32_t id = 0; id < vocabulary_.size(); ++id) {
    const absl::string_view written = vocabulary_[id];
    const TokenKind kind = KindOf(id);
    const bool may_be_byte = spec.byte_fallback && (kinds_.empty() || kind == TokenKind::kByte ||
                                                    kind == TokenKind::kNormal);
    if (const std::optional<char> byte = ByteNamed(written); byte && may_be_byte) {
      outputs_->Add(absl::string_view(&*byte, 1));
      continue;
    }
    const bool marks = spec.decoding.marks_are_spaces && kind == TokenKind::kNormal;
    if (!marks || written.find(kMark) == absl::string_view::npos) {
      outputs_->Add(written);
      continue;
    }
    text = absl::StrReplaceAll(written, {{kMark, " "}});
    outputs_->Add(text);
  }
}

absl::StatusOr<std::vector<int32_t>> Tokenizer::Encode(absl::string_view text,
                                                       EncodeOptions options) const {
  if (text.size() > kEncodedBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("text: got ", text.size(), " bytes, limit ", kEncodedBytesMax));
  }
  std::string replaced;
  if (!keeps_invalid_ && !IsUtf8(text)) {
    replaced = ReplaceInvalidUtf8(text);
    text = replaced;
  }
  std::vector<int32_t> ids;
  ids.reserve(text.size() / 4 + prefix_.size() + suffix_.size());
  if (options.add_special) ids.insert(ids.end(), prefix_.begin(), prefix_.end());
  size_t at = 0;
  while (at < text.size()) {
    const auto match = added_.Find(text, at, options.parse_special);
    const size_t end = match ? match->begin : text.size();
    if (end > at) RETURN_IF_ERROR(EncodePart(text.substr(at, end - at), at == 0, options, &ids));
    if (!match) break;
    ids.push_back(match->id);
    at = match->end;
  }
  if (options.add_special) ids.insert(ids.end(), suffix_.begin(), suffix_.end());
  return ids;
}

absl::Status Tokenizer::EncodePart(absl::string_view text, bool first, EncodeOptions options,
                                   std::vector<int32_t>* ids) const {
  if (!normalization_) return EncodePlain(text, first, ids);
  ASSIGN_OR_RETURN(const std::string normalized, normalization_->Apply(text));
  if (normalized_added_.empty()) return EncodePlain(normalized, first, ids);
  text = normalized;
  for (size_t at = 0; at < text.size();) {
    const auto match = normalized_added_.Find(text, at, options.parse_special);
    const size_t end = match ? match->begin : text.size();
    if (end > at) {
      RETURN_IF_ERROR(EncodePlain(text.substr(at, end - at), first && at == 0, ids));
    }
    if (!match) break;
    ids->push_back(match->id);
    at = match->end;
  }
  return absl::OkStatus();
}

absl::Status Tokenizer::EncodePlain(absl::string_view text, bool first,
                                    std::vector<int32_t>* ids) const {
  return pre_tokenization_->Split(text, first, [&](absl::string_view piece) {
    if (pairs_ != nullptr) {
      pairs_->Encode(piece, ids);
    } else if (unigram_ != nullptr) {
      unigram_->Encode(piece, ids);
    } else {
      word_pieces_->Encode(piece, ids);
    }
  });
}

absl::string_view Tokenizer::TokenBytes(int32_t id) const {
  if (!IsToken(id)) return {};
  return outputs_ ? (*outputs_)[id] : vocabulary_[id];
}

absl::string_view Tokenizer::TokenText(int32_t id) const {
  if (!IsToken(id)) return {};
  return raw_texts_ ? (*raw_texts_)[id] : vocabulary_[id];
}

std::optional<int32_t> Tokenizer::Find(absl::string_view token_text) const {
  if (!raw_texts_) {
    const int32_t id = vocabulary_.Find(token_text);
    return id == Vocabulary::kNone ? std::nullopt : std::optional(id);
  }
  std::string bytes;
  if (DecodeByteAlphabet(token_text, &bytes)) {
    const int32_t id = vocabulary_.Find(bytes);
    if (id != Vocabulary::kNone && TokenText(id) == token_text) return id;
  }
  for (int32_t id = 0; id < vocabulary_size(); ++id) {
    if (TokenText(id) == token_text) return id;
  }
  return std::nullopt;
}

std::string Detokenizer::Add(int32_t id) {
  if (!options_.special && tokenizer_->IsSpecial(id)) return "";
  absl::string_view bytes = tokenizer_->TokenBytes(id);
  if (bytes.empty()) return "";
  const TokenDecoding& decoding = tokenizer_->decoding();
  if (decoding.joins_words) {
    const absl::string_view continuation = tokenizer_->continuation();
    const bool continues = !continuation.empty() && absl::StartsWith(bytes, continuation);
    if (continues) bytes.remove_prefix(begun_ ? continuation.size() : 0);
    const bool apart = begun_ && !continues && !(decoding.cleans_up && JoinsWhatIsBefore(bytes));
    if (apart) waiting_ += ' ';
  }
  if (!begun_ && decoding.strips_first_space && bytes[0] == ' ') bytes.remove_prefix(1);
  begun_ = true;
  waiting_.append(bytes.data(), bytes.size());
  const size_t certain = waiting_.size() - UnfinishedUtf8(waiting_);
  std::string out = ReplaceInvalidUtf8(absl::string_view(waiting_).substr(0, certain));
  waiting_.erase(0, certain);
  return out;
}

std::string Detokenizer::Finish() { return ReplaceInvalidUtf8(std::exchange(waiting_, "")); }

}  // namespace stampmill
