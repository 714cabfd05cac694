// Vectors of 16 lanes for skeletons: as wide as the widest target's registers; others take them in
// pieces. Lanes are added up and compared in one fixed order.
#pragma once

#include <stdint.h>

// They are passed between functions of one file alone.
#pragma GCC diagnostic ignored "-Wpsabi"

namespace stampmill {

inline constexpr int64_t kLanes = 16;

using Floats = float __attribute__((vector_size(64)));
using Words = int32_t __attribute__((vector_size(64)));
using Halves = _Float16 __attribute__((vector_size(32)));
using Shorts = uint16_t __attribute__((vector_size(32)));
using UnsignedWords = uint32_t __attribute__((vector_size(64)));

inline Floats Load(const float* from) {
  Floats value;
  __builtin_memcpy(&value, from, sizeof(value));
  return value;
}
inline void Store(Floats value, float* to) { __builtin_memcpy(to, &value, sizeof(value)); }
inline Floats Splat(float value) { return Floats{} + value; }

// e^x for x <= 0, within 2 units in the last place; 0 below -87.3: the argument is reduced by
// multiples of ln 2, given in two parts, and a polynomial of degree 6 does the rest (coefficients:
// minimax on [-ln 2 / 2, ln 2 / 2]).
inline Floats Exp(Floats x) {
  const Floats low = Splat(-87.3f);
  const Words small = x < low;
  x = small ? low : x;
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23
  const Floats shifted = x * 1.44269504f + kRound;
  const Floats n = shifted - kRound;
  Floats r = x - n * 0.693145752f;
  r = r - n * 1.42860677e-6f;
  Floats p = Splat(1.38319808e-3f);
  p = p * r + 8.37554457e-3f;
  p = p * r + 4.16684374e-2f;
  p = p * r + 0.166664917f;
  p = p * r + 0.499999940f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  const Words exponent = __builtin_bit_cast(Words, shifted) << 23;
  const Floats result = __builtin_bit_cast(Floats, __builtin_bit_cast(Words, p) + exponent);
  return small ? Floats{} : result;
}

inline float SumOf(Floats v) {
  float lanes[kLanes];
  Store(v, lanes);
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t i = 0; i < width; ++i) lanes[i] += lanes[i + width];
  }
  return lanes[0];
}

inline float MaxOf(Floats v) {
  float lanes[kLanes];
  Store(v, lanes);
  for (int64_t width = kLanes / 2; width > 0; width /= 2) {
    for (int64_t i = 0; i < width; ++i) {
      lanes[i] = lanes[i + width] > lanes[i] ? lanes[i + width] : lanes[i];
    }
  }
  return lanes[0];
}

}  // namespace stampmill
