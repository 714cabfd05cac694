// Any grammar with any text, separated by the first NUL byte: refused, or a matcher that comes as
// far with the text at once as byte by byte, and whose mask agrees with what it then accepts.
#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "base/check.h"
#include "text/grammar.h"
#include "text/grammar_matcher.h"
#include "text/token_trie.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stampmill;
  static const TokenTrie& trie = *new TokenTrie(std::vector<std::string>{
      "a", "ab", "{", "\"", "\":", "1", "12", " ", "\n", "\xC3", "\xC3\xA9", "true", "]"});
  const absl::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t end = input.find('\0');
  const auto grammar = Grammar::FromGbnf(input.substr(0, end));
  if (!grammar.ok() || end == absl::string_view::npos) return 0;
  const absl::string_view text = input.substr(end + 1);
  GrammarMatcher matcher(**grammar, trie);
  GrammarMatcher by_bytes(**grammar, trie);
  const auto accepted = matcher.Accept(text);
  bool all = true;
  for (size_t i = 0; i < text.size() && all && accepted.ok(); ++i) {
    const auto one = by_bytes.Accept(text.substr(i, 1));
    if (!one.ok()) return 0;
    all = *one;
  }
  if (!accepted.ok()) return 0;
  CHECK_EQ(*accepted, all);
  if (!all) return 0;
  CHECK_EQ(matcher.can_end(), by_bytes.can_end());
  const auto mask = matcher.Mask();
  if (!mask.ok()) return 0;
  const uint64_t allowed = (*mask)[0];
  const auto fits = matcher.Accept("ab");
  if (fits.ok()) CHECK_EQ(*fits, ((allowed >> 1) & 1) != 0);
  return 0;
}
