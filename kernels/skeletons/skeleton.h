// What skeletons are written with: kernels whole in restricted C++, for what loop nests cannot say
// (sorting, recurrences, lists whose length the data decides). They are compiled twice: to LLVM
// bitcode, which the code generator specialises for a stage's configuration and target, and to
// machine code of this machine for tests under the interpreter (skeletons.h).
//
// Restricted: no library, no state, no recursion without a bound, nothing thrown, no `_Float16`
// (its conversions are library calls). A skeleton gets one task of a Library stage (graph/nest.h):
//   configuration  compile-time constants
//   dims           the stage's run-time parameters
//   buffers        operands, then outputs
//   scratch        the stage's bytes, aligned to 64, for this task alone
// What it does must depend on these alone; contents of operands, which a request brings, must not
// make it read or write outside its buffers or run without end.
#pragma once

#include <stdint.h>

#define STAMPMILL_SKELETON(name)                                                           \
  extern "C" void stampmill_skeleton_##name(                                               \
      [[maybe_unused]] const int64_t* configuration, [[maybe_unused]] const int64_t* dims, \
      [[maybe_unused]] void* const* buffers, [[maybe_unused]] void* scratch,               \
      [[maybe_unused]] int64_t task)

namespace stampmill {

inline float FloatOfBits(uint32_t bits) { return __builtin_bit_cast(float, bits); }
inline uint32_t BitsOf(float value) { return __builtin_bit_cast(uint32_t, value); }
inline uint64_t BitsOf(double value) { return __builtin_bit_cast(uint64_t, value); }

// f16 and bf16 in memory; arithmetic is done in float.
struct SkeletonHalf {
  uint16_t bits;

  operator float() const {  // NOLINT: as the built-in types convert
    const uint32_t sign = (bits & 0x8000u) << 16;
    const uint32_t rest = bits & 0x7fffu;
    if (rest >= 0x7c00) return FloatOfBits(sign | 0x7f800000u | (rest & 0x3ffu) << 13);
    // Scaling by 2^112 moves the exponent, for subnormal numbers too.
    return FloatOfBits(sign | BitsOf(FloatOfBits(rest << 13) * 0x1p112f));
  }
  static SkeletonHalf Of(float value) {
    const uint32_t sign = BitsOf(value) >> 16 & 0x8000u;
    const uint32_t rest = BitsOf(value) & 0x7fffffffu;
    if (rest > 0x7f800000u) return {static_cast<uint16_t>(sign | 0x7e00u)};
    if (rest >= 0x477ff000u) return {static_cast<uint16_t>(sign | 0x7c00u)};
    if (rest < 0x38800000u) {
      // Below the least normal number: its steps are those of floats around 0.5.
      const float shifted = FloatOfBits(rest) + 0.5f;
      return {static_cast<uint16_t>(sign | (BitsOf(shifted) - BitsOf(0.5f)))};
    }
    return {static_cast<uint16_t>(sign | (rest - 0x38000000u + 0xfffu + (rest >> 13 & 1)) >> 13)};
  }
};
struct SkeletonBFloat16 {
  uint16_t bits;

  operator float() const { return FloatOfBits(uint32_t{bits} << 16); }  // NOLINT
  static SkeletonBFloat16 Of(float value) {
    const uint32_t all = BitsOf(value);
    if ((all & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>(all >> 16 | 0x40u)};
    return {static_cast<uint16_t>((all + 0x7fffu + (all >> 16 & 1)) >> 16)};
  }
};

// Numbers of graph/dtype.h.
enum SkeletonType : int64_t {
  kTypeBool = 1,
  kTypeI8,
  kTypeI16,
  kTypeI32,
  kTypeI64,
  kTypeU8,
  kTypeU16,
  kTypeU32,
  kTypeU64,
  kTypeF16,
  kTypeBF16,
  kTypeF32,
  kTypeF64,
};

// Calls f(T{}) with the element type; a bool is a uint8_t.
template <typename F>
[[gnu::always_inline]] inline void WithType(int64_t dtype, const F& f) {
  switch (dtype) {
    case kTypeBool:
    case kTypeU8:
      return f(uint8_t{});
    case kTypeI8:
      return f(int8_t{});
    case kTypeI16:
      return f(int16_t{});
    case kTypeI32:
      return f(int32_t{});
    case kTypeI64:
      return f(int64_t{});
    case kTypeU16:
      return f(uint16_t{});
    case kTypeU32:
      return f(uint32_t{});
    case kTypeU64:
      return f(uint64_t{});
    case kTypeF16:
      return f(SkeletonHalf{});
    case kTypeBF16:
      return f(SkeletonBFloat16{});
    case kTypeF32:
      return f(float{});
    case kTypeF64:
      return f(double{});
    default:
      return;
  }
}

// The same for floating-point types only.
template <typename F>
[[gnu::always_inline]] inline void WithFloatType(int64_t dtype, const F& f) {
  switch (dtype) {
    case kTypeF16:
      return f(SkeletonHalf{});
    case kTypeBF16:
      return f(SkeletonBFloat16{});
    case kTypeF32:
      return f(float{});
    case kTypeF64:
      return f(double{});
    default:
      return;
  }
}

// The type that arithmetic on T is done in: integers as unsigned 64 bits, which wrap.
template <typename T>
struct ArithmeticOf {
  using Type = uint64_t;
};
template <>
struct ArithmeticOf<SkeletonHalf> {
  using Type = float;
};
template <>
struct ArithmeticOf<SkeletonBFloat16> {
  using Type = float;
};
template <>
struct ArithmeticOf<float> {
  using Type = float;
};
template <>
struct ArithmeticOf<double> {
  using Type = double;
};

template <typename T, typename Arithmetic>
T Narrow(Arithmetic value) {
  if constexpr (requires { T::Of(value); }) {
    return T::Of(value);
  } else {
    return static_cast<T>(value);
  }
}

// A number whose unsigned order is the order of T: -0 is 0, NaN is above all.
template <typename T>
uint64_t OrderKey(T value) {
  constexpr uint64_t kSign = uint64_t{1} << 63;
  if constexpr (requires { T::Of(1.0f); }) {
    return OrderKey(static_cast<float>(value));
  } else if constexpr (static_cast<T>(0.5) != 0) {  // floating-point
    if (value != value) return ~uint64_t{0};
    if (value == 0) return kSign;
    const uint64_t bits = BitsOf(static_cast<double>(value));
    return (bits & kSign) != 0 ? ~bits : bits | kSign;
  } else if constexpr (static_cast<T>(-1) < static_cast<T>(0)) {
    return static_cast<uint64_t>(static_cast<int64_t>(value)) ^ kSign;
  } else {
    return value;
  }
}

// Sorts `list` of `count`, equal ones in their order; `spare` has as many places. before(a, b):
// whether a goes before b.
template <typename Entry, typename Before>
void MergeSort(Entry* list, Entry* spare, int64_t count, const Before& before) {
  constexpr int64_t kRun = 8;
  for (int64_t begin = 0; begin < count; begin += kRun) {
    const int64_t end = begin + kRun < count ? begin + kRun : count;
    for (int64_t i = begin + 1; i < end; ++i) {
      const Entry moved = list[i];
      int64_t at = i;
      for (; at > begin && before(moved, list[at - 1]); --at) list[at] = list[at - 1];
      list[at] = moved;
    }
  }
  Entry* from = list;
  Entry* to = spare;
  for (int64_t width = kRun; width < count; width *= 2) {
    for (int64_t begin = 0; begin < count; begin += 2 * width) {
      const int64_t middle = begin + width < count ? begin + width : count;
      const int64_t end = middle + width < count ? middle + width : count;
      int64_t left = begin, right = middle;
      for (int64_t at = begin; at < end; ++at) {
        const bool take_right = left == middle || (right < end && before(from[right], from[left]));
        to[at] = take_right ? from[right++] : from[left++];
      }
    }
    Entry* const done = to;
    to = from;
    from = done;
  }
  if (from == list) return;
  for (int64_t i = 0; i < count; ++i) list[i] = from[i];
}

}  // namespace stampmill
