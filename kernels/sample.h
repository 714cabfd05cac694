// What the operator Sample (sample.cc) is told of each row, for those who fill its inputs.
#pragma once

#include <cstdint>

namespace stampmill {

// Columns of `reals`. Neutral values: top_p, typical_p and repetition 1, the others 0.
enum class SampleReal : uint8_t {
  kTemperature,  // below 1e-5: the likeliest token
  kTopP,
  kMinP,
  kTypicalP,
  kRepetition,  // > 0: scores of tokens that were there are divided by it, negative ones multiplied
  kPresence,    // subtracted from scores of tokens that were generated
  kFrequency,   // the same, times how often
};
inline constexpr int64_t kSampleReals = 8;

// Columns of `integers`.
enum class SampleInteger : uint8_t {
  kTopK,           // 0: all
  kMaskRow,        // row of `masks`; -1: none
  kForced,         // the token that is chosen whatever the scores; -1: none
  kWantsLogprobs,  // 1: logprobs, ranks and the likeliest tokens are computed
};
inline constexpr int64_t kSampleIntegers = 4;

}  // namespace stampmill
