#include "text/token_trie.h"

#include <algorithm>
#include <numeric>

namespace stampmill {

TokenTrie::TokenTrie(std::span<const std::string> tokens) : vocabulary_size_(tokens.size()) {
  for (uint32_t id = 0; id < tokens.size(); ++id) {
    if (!tokens[id].empty()) tokens_.push_back(id);
  }
  std::sort(tokens_.begin(), tokens_.end(), [&](uint32_t a, uint32_t b) {
    return tokens[a] != tokens[b] ? tokens[a] < tokens[b] : a < b;
  });
  std::vector<uint32_t> open;  // the nodes from the root to the last token's end
  const std::string* last = nullptr;
  for (uint32_t i = 0; i < tokens_.size(); ++i) {
    const std::string& token = tokens[tokens_[i]];
    depth_max_ = std::max(depth_max_, token.size());
    size_t shared = 0;
    if (last != nullptr) {
      while (shared < std::min(last->size(), token.size()) && (*last)[shared] == token[shared]) {
        ++shared;
      }
    }
    while (open.size() > shared) {
      nodes_[open.back()].end = static_cast<uint32_t>(nodes_.size());
      open.pop_back();
    }
    for (size_t depth = shared; depth < token.size(); ++depth) {
      open.push_back(static_cast<uint32_t>(nodes_.size()));
      nodes_.push_back({.byte = static_cast<uint8_t>(token[depth]),
                        .depth = static_cast<uint32_t>(depth),
                        .end = 0,
                        .first_token = i});
    }
    last = &token;
  }
  const auto size = static_cast<uint32_t>(nodes_.size());
  for (const uint32_t node : open) nodes_[node].end = size;
  nodes_.push_back({.byte = 0,
                    .depth = 0,
                    .end = size + 1,
                    .first_token = static_cast<uint32_t>(tokens_.size())});
}

}  // namespace stampmill
