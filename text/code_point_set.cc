#include "text/code_point_set.h"

#include <algorithm>

#include "text/utf8.h"

namespace stampmill {

CodePointSet CodePointSet::Of(std::span<const CodePointRange> ranges) {
  CodePointSet set;
  set.ranges_.assign(ranges.begin(), ranges.end());
  set.Canonicalise();
  return set;
}

CodePointSet CodePointSet::OfCategories(CategorySet categories) {
  CodePointSet set;
  const std::span<const CategoryRun> runs = CategoryRuns();
  for (size_t i = 0; i < runs.size(); ++i) {
    if ((categories >> runs[i].category & 1) == 0) continue;
    const char32_t end = i + 1 < runs.size() ? char32_t{runs[i + 1].begin} : kCodePointMax + 1;
    set.ranges_.push_back({runs[i].begin, end - 1});
  }
  set.Canonicalise();
  return set;
}

void CodePointSet::Add(char32_t first, char32_t last) {
  ranges_.push_back({first, last});
  Canonicalise();
}

void CodePointSet::Add(const CodePointSet& other) {
  ranges_.insert(ranges_.end(), other.ranges_.begin(), other.ranges_.end());
  Canonicalise();
}

void CodePointSet::Intersect(const CodePointSet& other) {
  std::vector<CodePointRange> both;
  for (auto a = ranges_.cbegin(), b = other.ranges_.cbegin();
       a != ranges_.cend() && b != other.ranges_.end();) {
    const char32_t first = std::max(a->first, b->first), last = std::min(a->last, b->last);
    if (first <= last) both.push_back({first, last});
    if (a->last < b->last) {
      ++a;
    } else {
      ++b;
    }
  }
  ranges_ = std::move(both);
}

void CodePointSet::Complement() {
  std::vector<CodePointRange> gaps;
  char32_t next = 0;
  for (const CodePointRange& range : ranges_) {
    if (range.first > next) gaps.push_back({next, range.first - 1});
    next = range.last + 1;
  }
  if (next <= kCodePointMax) gaps.push_back({next, kCodePointMax});
  ranges_ = std::move(gaps);
}

void CodePointSet::AddOtherCases() {
  // The first pass reaches what members fold to, the second what folds to the same.
  for (int pass = 0; pass < 2; ++pass) {
    std::vector<CodePointRange> added;
    for (const CodePointPair& pair : CaseFoldings()) {
      const bool from = Contains(pair.from), to = Contains(pair.to);
      if (from && !to) added.push_back({pair.to, pair.to});
      if (to && !from) added.push_back({pair.from, pair.from});
    }
    ranges_.insert(ranges_.end(), added.begin(), added.end());
    Canonicalise();
  }
}

bool CodePointSet::Contains(char32_t code_point) const {
  const auto range = std::lower_bound(
      ranges_.begin(), ranges_.end(), code_point,
      [](const CodePointRange& range, char32_t value) { return range.last < value; });
  return range != ranges_.end() && range->first <= code_point;
}

bool CodePointSet::operator==(const CodePointSet& other) const {
  return std::equal(ranges_.begin(), ranges_.end(), other.ranges_.begin(), other.ranges_.end(),
                    [](const CodePointRange& a, const CodePointRange& b) {
                      return a.first == b.first && a.last == b.last;
                    });
}

void CodePointSet::Canonicalise() {
  std::sort(ranges_.begin(), ranges_.end(),
            [](const CodePointRange& a, const CodePointRange& b) { return a.first < b.first; });
  size_t kept = 0;
  for (const CodePointRange& range : ranges_) {
    if (kept > 0 && range.first <= ranges_[kept - 1].last + 1) {
      ranges_[kept - 1].last = std::max(ranges_[kept - 1].last, range.last);
    } else {
      ranges_[kept++] = range;
    }
  }
  ranges_.resize(kept);
}

}  // namespace stampmill
