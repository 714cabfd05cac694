// Sets of code points as sorted ranges: what the classes of regular expressions are.
#pragma once

#include <span>
#include <vector>

#include "text/unicode.h"

namespace stampmill {

class CodePointSet {
 public:
  CodePointSet() = default;
  static CodePointSet Of(std::span<const CodePointRange> ranges);
  static CodePointSet OfCategories(CategorySet categories);
  static CodePointSet All() { return Of({{{0, 0x10FFFF}}}); }

  void Add(char32_t first, char32_t last);
  void Add(const CodePointSet& other);
  void Intersect(const CodePointSet& other);
  void Complement();
  // Adds what differs from a member in case only.
  void AddOtherCases();

  // Sorted, apart from each other by at least one code point.
  const std::vector<CodePointRange>& ranges() const { return ranges_; }
  bool Contains(char32_t code_point) const;
  bool operator==(const CodePointSet& other) const;

 private:
  void Canonicalise();
  std::vector<CodePointRange> ranges_;
};

}  // namespace stampmill
