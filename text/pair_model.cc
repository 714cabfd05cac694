#include "text/pair_model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "text/byte_alphabet.h"

namespace stampmill {
namespace {

constexpr absl::string_view kMark = "\xE2\x96\x81";  // U+2581, SentencePiece's space
constexpr int32_t kUnresolved = -2;                  // a symbol that was not looked up yet

uint64_t Key(int32_t left, int32_t right) {
  return static_cast<uint64_t>(static_cast<uint32_t>(left)) << 32 | static_cast<uint32_t>(right);
}

uint64_t SlotOf(uint64_t key) {
  key *= 0x9E3779B97F4A7C15;  // 2^64 / golden ratio: spreads neighbouring ids
  return key ^ key >> 32;
}

// The greatest score first.
uint32_t PriorityOf(float score) {
  const uint32_t bits = std::bit_cast<uint32_t>(score + 0.0f);
  const uint32_t ascending = bits >> 31 ? ~bits : bits | 0x80000000;
  return ~ascending;
}

// As the first byte says, whether or not the rest keeps the promise.
uint32_t PromisedSize(char first) {
  constexpr uint8_t kSizes[16] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 3, 4};
  return kSizes[static_cast<unsigned char>(first) >> 4];
}

}  // namespace

absl::StatusOr<std::unique_ptr<const PairModel>> PairModel::Create(const TokenizerSpec& spec,
                                                                   const Vocabulary& vocabulary) {
  std::unique_ptr<PairModel> model(new PairModel(vocabulary));
  model->scored_ = spec.model == TokenizerModel::kScoredPairs;
  model->byte_level_ = spec.byte_level;
  model->byte_fallback_ = spec.byte_fallback;
  model->fuse_unknown_ = spec.fuse_unknown;
  model->whole_words_ = spec.whole_words;
  model->continuation_ = spec.continuation;
  model->word_suffix_ = spec.word_suffix;
  if (spec.emits_unknown) model->unknown_ = spec.unknown.value_or(Vocabulary::kNone);
  if (model->scored_) {
    model->priorities_.reserve(spec.scores.size());
    for (const double wide : spec.scores) {
      const float score = static_cast<float>(wide);
      if (!std::isfinite(score)) return absl::InvalidArgumentError("scores: one is not finite");
      model->priorities_.push_back(PriorityOf(score));
    }
  } else {
    RETURN_IF_ERROR(model->ReadMerges(spec));
  }
  model->FindBytes();
  if (!model->byte_level_) model->FindBorders();
  model->reach_ = std::make_unique<std::atomic<uint8_t>[]>(vocabulary.size());
  return std::unique_ptr<const PairModel>(std::move(model));
}

absl::Status PairModel::ReadMerges(const TokenizerSpec& spec) {
  const size_t count = spec.merges.size() / 2;
  merges_.resize(std::bit_ceil(count * 2 + 2));
  merges_mask_ = merges_.size() - 1;
  TextPool between;
  absl::flat_hash_map<std::string, int32_t> between_ids;
  const auto id_of = [&](absl::string_view text) {
    const int32_t id = vocabulary_.Find(text);
    if (id != Vocabulary::kNone) return id;
    const auto [entry, is_new] = between_ids.try_emplace(
        std::string(text), vocabulary_.size() + static_cast<int32_t>(between.size()));
    if (is_new) between.Add(text);
    return entry->second;
  };
  std::string left, right;
  for (size_t rank = 0; rank < count; ++rank) {
    const absl::string_view texts[2] = {spec.merges[2 * rank], spec.merges[2 * rank + 1]};
    left.assign(texts[0].data(), texts[0].size());
    right.assign(texts[1].data(), texts[1].size());
    if (byte_level_) {
      // What is not of the alphabet is never a symbol.
      if (!DecodeByteAlphabet(texts[0], &left) || !DecodeByteAlphabet(texts[1], &right)) continue;
    }
    const uint64_t key = Key(id_of(left), id_of(right));
    if (right.compare(0, continuation_.size(), continuation_) == 0) {
      right.erase(0, continuation_.size());
    }
    left += right;
    const int32_t id = id_of(left);
    for (uint64_t slot = SlotOf(key) & merges_mask_;; slot = (slot + 1) & merges_mask_) {
      MergeEntry& entry = merges_[slot];
      if (entry.key == key) break;  // the better rank stays
      if (entry.key != kNoPair) continue;
      entry = {.key = key, .rank = static_cast<uint32_t>(rank), .id = id};
      break;
    }
  }
  if (between.size() > 0) between_ = std::make_unique<Vocabulary>(std::move(between));
  return absl::OkStatus();
}

void PairModel::FindBytes() {
  for (int byte = 0; byte < 256; ++byte) {
    const char text = static_cast<char>(byte);
    const absl::string_view single(&text, 1);
    int32_t& id = byte_ids_[byte];
    id = Vocabulary::kNone;
    if (!byte_level_) id = vocabulary_.Find(absl::StrFormat("<0x%02X>", byte));
    if (id == Vocabulary::kNone && (byte_level_ || scored_)) id = vocabulary_.Find(single);
    // A byte that is no token may still be a part of merges.
    if (id == Vocabulary::kNone && byte_level_ && between_ != nullptr) {
      const int32_t index = between_->Find(single);
      if (index != Vocabulary::kNone) id = vocabulary_.size() + index;
    }
  }
}

void PairModel::FindBorders() {
  const auto add = [&](absl::string_view text) {
    for (size_t at = text.find(kMark, 1); at != absl::string_view::npos;
         at = text.find(kMark, at + 1)) {
      joins_mark_.set(static_cast<unsigned char>(text[at - 1]));
    }
  };
  for (int32_t id = 0; id < vocabulary_.size(); ++id) add(vocabulary_[id]);
  for (int32_t i = 0; between_ != nullptr && i < between_->size(); ++i) add((*between_)[i]);
}

PairMerge PairModel::MergeOf(int32_t left, int32_t right) const {
  if (left < 0 || right < 0) return {};  // bytes that are nothing
  const uint64_t key = Key(left, right);
  for (uint64_t slot = SlotOf(key) & merges_mask_;; slot = (slot + 1) & merges_mask_) {
    const MergeEntry& entry = merges_[slot];
    if (entry.key == key) return {.priority = entry.rank, .id = entry.id};
    if (entry.key == kNoPair) return {};
  }
}

PairMerge PairModel::ScoredMergeOf(absl::string_view piece, const Symbol& left,
                                   const Symbol& right) const {
  const int32_t id = vocabulary_.Find(piece.substr(left.begin, left.size + right.size));
  if (id == Vocabulary::kNone) return {};
  return {.priority = priorities_[id], .id = id};
}

void PairModel::AddCharacter(absl::string_view word, uint32_t begin, uint32_t size,
                             std::vector<Symbol>* symbols) const {
  int32_t id;
  if (continuation_.empty() && word_suffix_.empty()) {
    id = vocabulary_.Find(word.substr(begin, size));
  } else {
    std::string text(word.substr(begin, size));
    if (begin > 0) text.insert(0, continuation_);
    if (begin + size == word.size()) text += word_suffix_;
    id = vocabulary_.Find(text);
  }
  if (id == Vocabulary::kNone && byte_fallback_) {
    const auto byte_id = [&](uint32_t i) {
      return byte_ids_[static_cast<unsigned char>(word[begin + i])];
    };
    bool all = true;
    for (uint32_t i = 0; i < size; ++i) all = all && byte_id(i) != Vocabulary::kNone;
    if (all) {
      for (uint32_t i = 0; i < size; ++i) symbols->push_back({byte_id(i), begin + i, 1});
      return;
    }
  }
  if (id == Vocabulary::kNone) {
    if (unknown_ == Vocabulary::kNone) return;
    id = unknown_;
    if (fuse_unknown_ && !symbols->empty() && symbols->back().id == unknown_) {
      symbols->back().size += size;
      return;
    }
  }
  symbols->push_back({id, begin, size});
}

void PairModel::Symbols(absl::string_view word, std::vector<Symbol>* symbols) const {
  symbols->clear();
  const uint32_t end = static_cast<uint32_t>(word.size());
  for (uint32_t at = 0; at < end;) {
    uint32_t size = 1;
    if (byte_level_) {
      const int32_t id = byte_ids_[static_cast<unsigned char>(word[at])];
      symbols->push_back({id, at, 1});
    } else {
      size = std::min(PromisedSize(word[at]), end - at);
      if (scored_) {
        symbols->push_back({kUnresolved, at, size});
      } else {
        AddCharacter(word, at, size, symbols);
      }
    }
    at += size;
  }
}

void PairModel::Merge(absl::string_view word, std::vector<Symbol>* symbols) const {
  if (scored_) {
    MergePairs(symbols, [&](const Symbol& left, const Symbol& right) {
      return ScoredMergeOf(word, left, right);
    });
  } else {
    MergePairs(symbols,
               [&](const Symbol& left, const Symbol& right) { return MergeOf(left.id, right.id); });
  }
}

void PairModel::EmitUnknown(std::vector<int32_t>* ids, bool* after_unknown) const {
  if (unknown_ == Vocabulary::kNone) return;
  if (!(fuse_unknown_ && *after_unknown)) ids->push_back(unknown_);
  *after_unknown = true;
}

void PairModel::Emit(absl::string_view word, const Symbol& symbol, std::vector<int32_t>* ids,
                     bool* after_unknown) const {
  int32_t id = symbol.id;
  const absl::string_view text = word.substr(symbol.begin, symbol.size);
  if (id == kUnresolved) id = vocabulary_.Find(text);
  if (id == unknown_ && id != Vocabulary::kNone && !scored_) {
    return EmitUnknown(ids, after_unknown);
  }
  if (id >= 0 && id < vocabulary_.size()) {
    ids->push_back(id);
    *after_unknown = false;
    return;
  }
  // No token: byte by byte, as far as there are tokens for bytes.
  if (scored_ && !byte_fallback_) return EmitUnknown(ids, after_unknown);
  for (const char byte : text) {
    const int32_t byte_id = byte_ids_[static_cast<unsigned char>(byte)];
    if (byte_id >= 0 && byte_id < vocabulary_.size()) {
      ids->push_back(byte_id);
      *after_unknown = false;
    } else {
      EmitUnknown(ids, after_unknown);
    }
  }
}

void PairModel::EncodeWord(absl::string_view word, std::vector<int32_t>* ids,
                           bool* after_unknown) const {
  const bool plain = continuation_.empty() && word_suffix_.empty();
  const int32_t whole = plain ? vocabulary_.Find(word) : Vocabulary::kNone;
  if (whole != Vocabulary::kNone) {
    const uint8_t reach = reach_[whole].load(std::memory_order_relaxed);
    if (whole_words_ || reach == kReached) {
      ids->push_back(whole);
      *after_unknown = false;
      return;
    }
  }
  std::vector<Symbol> symbols;
  symbols.reserve(std::min<size_t>(word.size(), 64));
  Symbols(word, &symbols);
  Merge(word, &symbols);
  if (whole != Vocabulary::kNone) {
    const bool reached = symbols.size() == 1 && symbols[0].id == whole;
    reach_[whole].store(reached ? kReached : kNotReached, std::memory_order_relaxed);
  }
  for (const Symbol& symbol : symbols) Emit(word, symbol, ids, after_unknown);
}

void PairModel::Encode(absl::string_view piece, std::vector<int32_t>* ids) const {
  bool after_unknown = false;
  // In what is no UTF-8 a symbol may reach over U+2581.
  if (!byte_level_ && continuation_.empty() && word_suffix_.empty() && IsUtf8(piece)) {
    size_t begin = 0;
    for (size_t at = piece.find(kMark, 1); at < piece.size(); at = piece.find(kMark, at + 1)) {
      if (joins_mark_.test(static_cast<unsigned char>(piece[at - 1]))) continue;
      EncodeWord(piece.substr(begin, at - begin), ids, &after_unknown);
      begin = at;
    }
    piece.remove_prefix(begin);
  }
  EncodeWord(piece, ids, &after_unknown);
}

}  // namespace stampmill
