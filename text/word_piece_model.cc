#include "text/word_piece_model.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "text/utf8.h"

namespace stampmill {

WordPieceModel::WordPieceModel(const TokenizerSpec& spec, const Vocabulary& vocabulary)
    : vocabulary_(vocabulary),
      word_prefix_(spec.word_prefix),
      continuation_(spec.continuation),
      characters_max_(spec.word_characters_max),
      unknown_(spec.unknown.value_or(Vocabulary::kNone)) {}

void WordPieceModel::Encode(absl::string_view word, std::vector<int32_t>* ids) const {
  const size_t before = ids->size();
  const auto give_up = [&] {
    ids->resize(before);
    if (unknown_ != Vocabulary::kNone) ids->push_back(unknown_);
  };
  if (characters_max_ > 0) {
    const auto continues = [](char byte) { return (byte & 0xC0) == 0x80; };
    const size_t characters = word.size() - std::count_if(word.begin(), word.end(), continues);
    if (characters > characters_max_) return give_up();
  }
  const std::string whole = absl::StrCat(word_prefix_, word);
  std::string candidate;
  for (size_t at = 0; at < whole.size();) {
    const absl::string_view lead = at > 0 ? absl::string_view(continuation_) : "";
    const size_t longest = vocabulary_.longest_bytes();
    if (longest <= lead.size()) return give_up();
    candidate.assign(lead.data(), lead.size());
    candidate.append(whole, at, longest - lead.size());
    int32_t id = Vocabulary::kNone;
    for (; candidate.size() > lead.size(); candidate.pop_back()) {
      id = vocabulary_.Find(candidate);
      if (id != Vocabulary::kNone) break;
    }
    if (id == Vocabulary::kNone) return give_up();
    ids->push_back(id);
    at += candidate.size() - lead.size();
  }
}

}  // namespace stampmill
