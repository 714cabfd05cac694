// Guesses how a text goes on from what it has said before: code, tables and quotations repeat
// themselves. A guess costs a row of a step and is checked by it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace stampmill {

// Makes `drafts` the tokens that followed where the last tokens of the text, as many of them as
// possible and three at least, were before, the last time if there are several; where the text ends
// it goes round in the guess itself. `most` tokens at most, and no more than matched; or none.
// Takes time in proportion to the text.
void LookUpDrafts(std::span<const int32_t> text, size_t most, std::vector<int32_t>& drafts);

}  // namespace stampmill
