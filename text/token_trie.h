// TokenTrie: a vocabulary as a tree of bytes, walked to find the tokens that an automaton allows.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace stampmill {

// Immutable, thread-safe.
class TokenTrie {
 public:
  // `tokens` by id, as the bytes that they stand for; one without bytes (a control token) is no
  // part of any text.
  explicit TokenTrie(std::span<const std::string> tokens);

  // A node: one byte on the way to tokens. In preorder, so that the nodes below one follow it.
  struct Node {
    uint8_t byte;
    uint32_t depth;        // of this byte in its tokens, from 0
    uint32_t end;          // where the nodes below end
    uint32_t first_token;  // tokens() from here to the next node's first_token end here
  };
  // One more node than there are bytes: the last is an end.
  std::span<const Node> nodes() const { return nodes_; }
  std::span<const uint32_t> tokens() const { return tokens_; }

  size_t vocabulary_size() const { return vocabulary_size_; }
  size_t depth_max() const { return depth_max_; }

 private:
  std::vector<Node> nodes_;
  std::vector<uint32_t> tokens_;
  size_t vocabulary_size_;
  size_t depth_max_ = 0;
};

}  // namespace stampmill
