// Load of texts: clients of the OpenAI API that stream completions or chats from a server, ours or
// another, and what they saw: time to the first token, between tokens, tokens a second.
//
// One thread has all clients, and a client does nothing between two events, so that a server on the
// same cores is measured and not they.
#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "server/cli/load_client.h"
#include "server/cli/table.h"

namespace stampmill {

struct TextLoad {
  LoadTarget target;
  bool chat = false;        // chat/completions, else completions
  int32_t concurrency = 1;  // connections: texts at once, also with a rate
  double rate = 0;          // texts a second, arriving at random (Poisson); 0: closed loop
  int64_t requests = 0;     // 0: no limit
  double seconds = 0;       // 0: no limit; REQUIRES: one of the two is one
  int64_t warmup = 1;       // texts of each client before it counts
  // Words of one letter, mostly a token each; no two prompts have a beginning in common.
  int32_t prompt_words = 32;
  int32_t tokens_max = 64;  // of each answer, which does not end before
  uint64_t seed = 0;        // of prompts and arrivals
};

// Times are counted from when a text should have begun. UNAVAILABLE when nothing was answered. Some
// failed: the first of them is told on standard error.
absl::StatusOr<Table> MeasureTexts(const TextLoad& load);

}  // namespace stampmill
