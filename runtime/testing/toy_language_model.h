// A language model of the toy language (devices/testing/toy_language.h) for tests of the engine of
// language models, by a hand-written program over one test kernel; and what its texts must be.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "runtime/generation.h"
#include "runtime/model.h"

namespace stampmill {

inline constexpr int32_t kToyVocabulary = 40;

// The cache of a block takes 128 bytes.
// `steps_at_once`: the device is told that steps are so short that it runs them while they are
// submitted; else it takes them to a worker.
absl::StatusOr<ModelImage> MakeToyLanguageModel(bool steps_at_once);

// What one who asks for it must get.
struct ToyText {
  std::vector<int32_t> tokens;  // prompt and answer
  std::vector<float> logprobs;  // of each token but the first
  FinishReason reason = FinishReason::kNone;
};
// `token_bytes` of a token are the one letter 'a' + token.
ToyText ExpectedToyText(std::span<const int32_t> prompt, const SamplingParameters& sampling,
                        const StopConditions& stop);

}  // namespace stampmill
