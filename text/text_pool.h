// Many short texts in one piece of memory: the tokens of a vocabulary without an allocation each.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace stampmill {

// The caller bounds the sum of all texts to 4 GiB: see TextPool::kBytesMax.
class TextPool {
 public:
  static constexpr uint64_t kBytesMax = UINT32_MAX;

  TextPool() : ends_(1, 0) {}

  void Reserve(size_t texts, size_t bytes) {
    ends_.reserve(texts + 1);
    bytes_.reserve(bytes);
  }
  // REQUIRES: the sum of all texts stays within kBytesMax.
  void Add(absl::string_view text) {
    bytes_.append(text.data(), text.size());
    ends_.push_back(static_cast<uint32_t>(bytes_.size()));
  }

  size_t size() const { return ends_.size() - 1; }
  uint64_t size_bytes() const { return bytes_.size(); }
  absl::string_view operator[](size_t index) const {
    return absl::string_view(bytes_.data() + ends_[index], ends_[index + 1] - ends_[index]);
  }

 private:
  std::string bytes_;
  std::vector<uint32_t> ends_;  // where each text ends and the next begins; the first is 0
};

}  // namespace stampmill
