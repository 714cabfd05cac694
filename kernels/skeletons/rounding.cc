// Rows of floats rounded to bytes for products with block-quantised weights.
#include "kernels/skeletons/skeleton.h"
#include "kernels/skeletons/vectors.h"

namespace stampmill {
namespace {

constexpr int64_t kGroup = 2 * kLanes;

using Bytes = int8_t __attribute__((vector_size(kLanes)));
using WideBytes = int16_t __attribute__((vector_size(2 * kLanes)));

// To nearest, ties to even; 0 for what is no finite number. REQUIRES: less than 2^22.
inline Words Rounded(Floats x) {
  const Words magnitude = __builtin_bit_cast(Words, x) & 0x7fffffff;
  // Alone in its statement: a product before it keeps its own rounding.
  const Floats shifted = x + 12582912.0f;  // 1.5 * 2^23
  const Words whole = __builtin_bit_cast(Words, shifted) - 0x4b400000;
  return magnitude < 0x4b400000 ? whole : Words{};
}

inline void StoreBytes(Words bytes, bool wide, uint8_t* to) {
  if (wide) {
    const WideBytes value = __builtin_convertvector(bytes, WideBytes);
    const WideBytes ordered =
        __builtin_shufflevector(value, value, 0, 2, 1, 3, 4, 6, 5, 7, 8, 10, 9, 11, 12, 14, 13, 15);
    __builtin_memcpy(to, &ordered, sizeof(ordered));
  } else {
    const Bytes value = __builtin_convertvector(bytes, Bytes);
    __builtin_memcpy(to, &value, sizeof(value));
  }
}

// What a record says beside its bytes.
struct RecordForm {
  int64_t run = 0;
  int64_t zero = 0;
  bool has_minimum = false;
  bool wide = false;
};

inline void RoundGroup(const RecordForm& form, const float* x, uint8_t* record) {
  const Floats first = Load(x), second = Load(x + kLanes);
  // As integers the bits of magnitudes are in order, what is no number last.
  const UnsignedWords a = __builtin_bit_cast(UnsignedWords, first) & 0x7fffffffu;
  const UnsignedWords b = __builtin_bit_cast(UnsignedWords, second) & 0x7fffffffu;
  const float most = FloatOfBits(__builtin_reduce_max(a > b ? a : b));
  const float scale = most / 127.0f;
  const float factor = 127.0f / most;
  const Floats scaled_first = first * factor;
  const Floats scaled_second = second * factor;
  const Words low = Rounded(scaled_first), high = Rounded(scaled_second);
  const int64_t part = form.wide ? kGroup : kLanes;
  StoreBytes(low, form.wide, record);
  StoreBytes(high, form.wide, record + part);
  uint8_t* rest = record + 2 * part;
  __builtin_memcpy(rest, &scale, sizeof(scale));
  const auto add_extra = [&](int32_t sum) {
    rest += 4;
    const float weighted = scale * static_cast<float>(sum);
    const int32_t moved = static_cast<int32_t>(-form.zero) * sum;
    if (form.has_minimum) {
      __builtin_memcpy(rest, &weighted, sizeof(weighted));
    } else {
      __builtin_memcpy(rest, &moved, sizeof(moved));
    }
  };
  if (form.run == kGroup) {
    const Words sums = low + high;
    add_extra(__builtin_reduce_add(sums));
  } else {
    add_extra(__builtin_reduce_add(low));
    add_extra(__builtin_reduce_add(high));
  }
}

}  // namespace

// Configuration: k, elements of a run (16 or 32), zero, 1 for minimums, 1 for wide records, bytes
// of a record, bytes of a row of records (graph/row_records.h), rows of a task. Dims: rows.
// Buffers: x f32 [rows, k], records.
STAMPMILL_SKELETON(round_rows) {
  const int64_t k = configuration[0], record_bytes = configuration[5];
  const int64_t row_bytes = configuration[6], task_rows = configuration[7];
  const RecordForm form = {.run = configuration[1],
                           .zero = configuration[2],
                           .has_minimum = configuration[3] != 0,
                           .wide = configuration[4] != 0};
  const int64_t begin = task * task_rows;
  const int64_t end = begin + task_rows < dims[0] ? begin + task_rows : dims[0];
  for (int64_t row = begin; row < end; ++row) {
    const float* x = static_cast<const float*>(buffers[0]) + row * k;
    uint8_t* const first = static_cast<uint8_t*>(buffers[1]) + row * row_bytes;
    uint8_t* record = first;
    for (int64_t at = 0; at < k; at += kGroup, record += record_bytes) {
      RoundGroup(form, x + at, record);
    }
    for (; record < first + row_bytes; ++record) *record = 0;
  }
}

}  // namespace stampmill
