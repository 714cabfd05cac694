// StopTexts: what of a text that grows may be sent already, and where a stop text ends it.
//
// Text comes in pieces of bytes, as tokens make it. Held back is the end that may be the beginning
// of a stop text, or of a character that is not whole. The first stop text to be complete ends the
// text; of those that are complete with the same byte, the one that begins first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace stampmill {

// Owned by one thread.
class StopTexts {
 public:
  // `include`: the stop text is part of what is sent. None of `texts` is empty.
  explicit StopTexts(std::vector<std::string> texts = {}, bool include = false);

  // What may be sent now that `piece` came; valid until the next call. After the stop it is empty.
  // `may_stop` false: a stop text that this piece completes does not count (min_tokens).
  absl::string_view Add(absl::string_view piece, bool may_stop = true);
  // What is left when no more comes: all that was held back.
  absl::string_view Flush();

  // Which of the texts it stopped at, once it has.
  std::optional<size_t> stopped() const { return stopped_; }

 private:
  // The state of the automaton of each text: how many of its bytes the end of the text is.
  struct Match {
    std::vector<uint32_t> fallback;  // of each count: the longest smaller one that is such an end
    uint32_t count = 0;
  };
  void Step(char byte, bool may_stop);

  const std::vector<std::string> texts_;
  const bool include_;
  std::vector<Match> matches_;
  std::string held_;  // not sent yet
  std::string sent_;  // what the last call returned
  std::optional<size_t> stopped_;
};

}  // namespace stampmill
