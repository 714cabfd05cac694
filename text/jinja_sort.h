// A stable sort for orders that a template makes: whatever `less` answers, it stays within bounds.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace stampmill {

template <typename T, typename Less>
void SortStably(std::vector<T>* items, Less less) {
  std::vector<T> merged(items->size());
  const size_t size = items->size();
  for (size_t run = 1; run < size; run *= 2) {
    for (size_t begin = 0; begin < size; begin += 2 * run) {
      const auto first = items->begin() + static_cast<ptrdiff_t>(begin);
      const auto middle = items->begin() + static_cast<ptrdiff_t>(std::min(begin + run, size));
      const auto last = items->begin() + static_cast<ptrdiff_t>(std::min(begin + 2 * run, size));
      std::merge(first, middle, middle, last, merged.begin() + static_cast<ptrdiff_t>(begin), less);
    }
    items->swap(merged);
  }
}

}  // namespace stampmill
