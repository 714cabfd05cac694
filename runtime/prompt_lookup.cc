#include "runtime/prompt_lookup.h"

#include <algorithm>

namespace stampmill {
namespace {

constexpr size_t kMatchMin = 3;
constexpr size_t kMatchMax = 8;

}  // namespace

void LookUpDrafts(std::span<const int32_t> text, size_t most, std::vector<int32_t>& drafts) {
  drafts.clear();
  const size_t size = text.size();
  if (size <= kMatchMin || most == 0) return;
  size_t best = kMatchMin - 1, next = 0;
  for (size_t at = size - 1; at-- > 0 && best < kMatchMax;) {
    if (text[at] != text[size - 1]) continue;
    size_t length = 1;
    while (length < kMatchMax && length <= at && text[at - length] == text[size - 1 - length]) {
      ++length;
    }
    if (length <= best) continue;
    best = length;
    next = at + 1;
  }
  if (best < kMatchMin) return;
  // A longer match is likelier to go on.
  for (size_t i = next; drafts.size() < std::min(most, best); ++i) {
    drafts.push_back(i < size ? text[i] : drafts[i - size]);
  }
}

}  // namespace stampmill
