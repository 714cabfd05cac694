#include "text/unigram_model.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "absl/strings/str_format.h"
#include "text/utf8.h"

namespace stampmill {
namespace {

// How much worse than the worst token an unknown character is, as SentencePiece has it.
constexpr double kUnknownPenalty = 10.0;

constexpr int32_t kNoUnknown = -2;  // neither a token nor Vocabulary::kNone

}  // namespace

absl::StatusOr<std::unique_ptr<const UnigramModel>> UnigramModel::Create(
    const TokenizerSpec& spec, const Vocabulary& vocabulary) {
  auto model = std::make_unique<UnigramModel>();
  const auto kind = [&](int32_t id) {
    return spec.kinds.empty() ? TokenKind::kNormal : spec.kinds[id];
  };
  double least = std::numeric_limits<double>::infinity();
  uint64_t bytes = 1;
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    double score = spec.scores[id];
    if (!std::isfinite(score)) return absl::InvalidArgumentError("scores: one is not finite");
    if (kind(id) == TokenKind::kNormal) least = std::min(least, score);
    if (kind(id) == TokenKind::kUserDefined) score = 0;
    model->scores_.push_back(score);
    bytes += vocabulary[id].size();
  }
  model->unknown_score_ = (std::isfinite(least) ? least : 0) - kUnknownPenalty;
  model->unknown_ = spec.unknown.value_or(kNoUnknown);
  model->fuse_unknown_ = spec.fuse_unknown;
  model->table_.resize(std::bit_ceil(bytes));
  model->mask_ = model->table_.size() - 1;
  model->nodes_.emplace_back();
  for (int32_t id = 0; id < vocabulary.size(); ++id) {
    const bool found = kind(id) == TokenKind::kNormal || kind(id) == TokenKind::kUserDefined ||
                       kind(id) == TokenKind::kUnused;
    if (found) model->Insert(vocabulary[id], id);
  }
  if (spec.byte_fallback) {
    for (int byte = 0; byte < 256; ++byte) {
      model->byte_ids_.push_back(vocabulary.Find(absl::StrFormat("<0x%02X>", byte)));
    }
  }
  return std::unique_ptr<const UnigramModel>(std::move(model));
}

void UnigramModel::Insert(absl::string_view text, int32_t id) {
  // Half full at most: nodes are fewer than bytes, and common beginnings are many.
  uint32_t node = kRoot;
  for (const char letter : text) {
    const auto byte = static_cast<unsigned char>(letter);
    uint32_t child = Child(node, byte);
    if (child == kRoot) {
      if (nodes_.size() * 2 > table_.size()) {
        table_.assign(table_.size() * 2, kRoot);
        mask_ = table_.size() - 1;
        for (uint32_t i = 1; i < nodes_.size(); ++i) {
          uint64_t slot = Slot(nodes_[i].parent, nodes_[i].byte);
          while (table_[slot] != kRoot) slot = (slot + 1) & mask_;
          table_[slot] = i;
        }
      }
      child = static_cast<uint32_t>(nodes_.size());
      nodes_.push_back({.parent = node, .byte = byte});
      uint64_t slot = Slot(node, byte);
      while (table_[slot] != kRoot) slot = (slot + 1) & mask_;
      table_[slot] = child;
    }
    node = child;
  }
  if (node != kRoot) nodes_[node].token = id;
}

void UnigramModel::EmitUnknown(absl::string_view text, bool after_unknown,
                               std::vector<int32_t>* ids) const {
  if (!byte_ids_.empty()) {
    const auto id_of = [&](char byte) { return byte_ids_[static_cast<unsigned char>(byte)]; };
    const bool all = std::all_of(text.begin(), text.end(),
                                 [&](char byte) { return id_of(byte) != Vocabulary::kNone; });
    if (all) {
      for (const char byte : text) ids->push_back(id_of(byte));
      return;
    }
  }
  if (unknown_ == kNoUnknown || (after_unknown && fuse_unknown_)) return;
  ids->push_back(unknown_);
}

void UnigramModel::Encode(absl::string_view piece, std::vector<int32_t>* ids) const {
  // The best way to each place, by its last token.
  struct Best {
    double score = -std::numeric_limits<double>::infinity();
    uint32_t begin = 0;
    int32_t token = 0;
  };
  const size_t size = piece.size();
  std::vector<Best> best(size + 1);
  best[0].score = 0;
  for (size_t at = 0; at < size;) {
    const size_t character = DecodeUtf8(piece.data() + at, piece.data() + size).size_bytes;
    const double score = best[at].score;
    const auto offer = [&](size_t end, double with, int32_t token) {
      if (score + with > best[end].score) {
        best[end] = {.score = score + with, .begin = static_cast<uint32_t>(at), .token = token};
      }
    };
    bool single = false;
    uint32_t node = kRoot;
    for (size_t end = at; end < size;) {
      node = Child(node, static_cast<unsigned char>(piece[end++]));
      if (node == kRoot) break;
      const int32_t token = nodes_[node].token;
      if (token == Vocabulary::kNone) continue;
      single = single || end - at == character;
      offer(end, scores_[token], token);
    }
    if (!single) offer(at + character, unknown_score_, Vocabulary::kNone);
    at += character;
  }
  std::vector<uint32_t> ends;
  for (size_t end = size; end > 0; end = best[end].begin) {
    ends.push_back(static_cast<uint32_t>(end));
  }
  bool after_unknown = false;
  for (size_t i = ends.size(); i-- > 0;) {
    const Best& step = best[ends[i]];
    const bool unknown = step.token == Vocabulary::kNone || step.token == unknown_;
    if (unknown) {
      const absl::string_view text = piece.substr(step.begin, ends[i] - step.begin);
      EmitUnknown(text, after_unknown, ids);
    } else {
      ids->push_back(step.token);
    }
    after_unknown = unknown;
  }
}

}  // namespace stampmill
