// Attention over a paged cache (kernels/paged.cc says how keys and values lie in it).
//
// A tile is up to kRows query rows (a row is a head of a token) that share a sequence and a head of
// keys and values. Three passes: scores of 16 keys at a time, whose places are the lanes; the
// softmax of each row; the sum of the values. Blocks of keys are taken in the order of their
// positions and lanes are summed in one fixed order, so that a row's result depends on nothing but
// its own query and its own keys, whatever else is in the tile. Keys that a row does not see count
// as zeros that change no sum.
#include "kernels/skeletons/skeleton.h"
#include "kernels/skeletons/vectors.h"

namespace stampmill {
namespace {

constexpr int64_t kKeys = 16;       // of one block of the cache
constexpr int64_t kRows = 6;        // of one tile: as many sums as registers hold beside the keys
constexpr int64_t kTaskTokens = 8;  // of one task at most
constexpr float kMasked = -3.0e38f;

struct Layout {
  int64_t heads, kv_heads, size, value_size, padded_value_size;
  float scale, softcap;
  int64_t window;       // keys that a token sees, itself included; 0: all
  bool converts;        // the target converts halves
  int64_t values_once;  // vectors of a value that are summed at once: 4 or 1
};

// 16 halves as floats.
[[gnu::always_inline]] inline Floats Widen(const uint16_t* from, bool converts) {
  if (converts) {
    Halves halves;
    __builtin_memcpy(&halves, from, sizeof(halves));
    return __builtin_convertvector(halves, Floats);
  }
  // As SkeletonHalf; there are no infinities in a cache.
  Shorts bits;
  __builtin_memcpy(&bits, from, sizeof(bits));
  const UnsignedWords wide = __builtin_convertvector(bits, UnsignedWords);
  const UnsignedWords rest = (wide & 0x7fffu) << 13;
  const Floats magnitude = __builtin_bit_cast(Floats, rest) * 0x1p112f;
  return __builtin_bit_cast(
      Floats, __builtin_bit_cast(UnsignedWords, magnitude) | ((wide & 0x8000u) << 16));
}

// tanh of any x: its argument doubled under e^-|x|.
inline Floats Tanh(Floats x) {
  const Floats magnitude = x < 0 ? -x : x;
  const Floats e = Exp(magnitude * -2.0f);
  const Floats t = (1.0f - e) / (1.0f + e);
  return x < 0 ? -t : t;
}

struct Tile {
  const float* queries[kRows];
  float* results[kRows];
  int64_t last[kRows];  // the key at the row's own position
  const int32_t* table;
  const uint16_t* keys;              // of the tile's head, in block 0
  const uint16_t* values;            // likewise
  int64_t key_stride, value_stride;  // from block to block
  float* scores;                     // [rows][length]
  int64_t length;
};

// What one row sees: blocks [first, end) in common, of which it masks its own.
struct Span {
  int64_t first, end;
};

template <int64_t rows>
Span SpanOf(const Tile& tile, const Layout& layout) {
  int64_t least = tile.last[0], most = tile.last[0];
#pragma unroll
  for (int64_t r = 1; r < rows; ++r) {
    least = tile.last[r] < least ? tile.last[r] : least;
    most = tile.last[r] > most ? tile.last[r] : most;
  }
  const int64_t begin = layout.window > 0 && least >= layout.window ? least - layout.window + 1 : 0;
  return {begin / kKeys, most / kKeys + 1};
}

template <int64_t rows>
[[gnu::always_inline]] inline void Scores(const Tile& tile, const Layout& layout, Span span,
                                          Floats* maxima) {
  const Words lane = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
#pragma unroll
  for (int64_t r = 0; r < rows; ++r) maxima[r] = Splat(kMasked);
  for (int64_t block = span.first; block < span.end; ++block) {
    const uint16_t* keys = tile.keys + tile.table[block] * tile.key_stride;
    Floats sums[rows] = {};
    for (int64_t d = 0; d < layout.size; ++d) {
      const Floats key = Widen(keys + d * kKeys, layout.converts);
#pragma unroll
      for (int64_t r = 0; r < rows; ++r) sums[r] = key * tile.queries[r][d] + sums[r];
    }
#pragma unroll
    for (int64_t r = 0; r < rows; ++r) {
      Floats score = sums[r] * layout.scale;
      if (layout.softcap > 0) score = Tanh(score / layout.softcap) * layout.softcap;
      const Words place = lane + static_cast<int32_t>(block * kKeys);
      Words seen = place <= static_cast<int32_t>(tile.last[r]);
      if (layout.window > 0) {
        seen = seen & (place > static_cast<int32_t>(tile.last[r] - layout.window));
      }
      score = seen ? score : Splat(kMasked);
      maxima[r] = score > maxima[r] ? score : maxima[r];
      Store(score, tile.scores + r * tile.length + block * kKeys);
    }
  }
}

// Scores become weights; returns the reciprocal of their sum.
[[gnu::always_inline]] inline float Softmax(float* scores, Span span, Floats maxima) {
  const Floats most = Splat(MaxOf(maxima));
  Floats sum = {};
  for (int64_t block = span.first; block < span.end; ++block) {
    const Floats score = Load(scores + block * kKeys);
    const Floats weight = score <= Splat(kMasked) ? Floats{} : Exp(score - most);
    sum = sum + weight;
    Store(weight, scores + block * kKeys);
  }
  return 1.0f / SumOf(sum);
}

// Elements [at, at + 16 * vectors) of the results.
template <int64_t rows, int64_t vectors>
[[gnu::always_inline]] inline void Values(const Tile& tile, const Layout& layout, Span span,
                                          const float* factors, int64_t at) {
  Floats sums[rows][vectors] = {};
  int64_t most = tile.last[0];
#pragma unroll
  for (int64_t r = 1; r < rows; ++r) most = tile.last[r] > most ? tile.last[r] : most;
  for (int64_t block = span.first; block < span.end; ++block) {
    const uint16_t* values = tile.values + tile.table[block] * tile.value_stride + at;
    const int64_t left = most + 1 - block * kKeys;
    const int64_t keys = left < kKeys ? left : kKeys;
    for (int64_t key = 0; key < keys; ++key) {
      Floats value[vectors];
#pragma unroll
      for (int64_t v = 0; v < vectors; ++v) {
        value[v] = Widen(values + key * layout.padded_value_size + v * 16, layout.converts);
      }
#pragma unroll
      for (int64_t r = 0; r < rows; ++r) {
        const float weight = tile.scores[r * tile.length + block * kKeys + key];
#pragma unroll
        for (int64_t v = 0; v < vectors; ++v) sums[r][v] = value[v] * weight + sums[r][v];
      }
    }
  }
#pragma unroll
  for (int64_t r = 0; r < rows; ++r) {
#pragma unroll
    for (int64_t v = 0; v < vectors; ++v) {
      const Floats result = sums[r][v] * factors[r];
      const int64_t first = at + v * 16;
      if (first + 16 <= layout.value_size) {
        Store(result, tile.results[r] + first);
        continue;
      }
      float lanes[16];
      Store(result, lanes);
      for (int64_t i = 0; first + i < layout.value_size; ++i) {
        tile.results[r][first + i] = lanes[i];
      }
    }
  }
}

template <int64_t rows>
[[gnu::always_inline]] inline void Attend(const Tile& tile, const Layout& layout) {
  const Span span = SpanOf<rows>(tile, layout);
  Floats maxima[rows];
  Scores<rows>(tile, layout, span, maxima);
  float factors[rows];
#pragma unroll
  for (int64_t r = 0; r < rows; ++r) {
    factors[r] = Softmax(tile.scores + r * tile.length, span, maxima[r]);
  }
  int64_t at = 0;
  if (layout.values_once == 4) {
    for (; at + 64 <= layout.padded_value_size; at += 64) {
      Values<rows, 4>(tile, layout, span, factors, at);
    }
  }
  for (; at < layout.padded_value_size; at += 16) {
    Values<rows, 1>(tile, layout, span, factors, at);
  }
}

[[gnu::always_inline]] inline void AttendRows(int64_t rows, const Tile& tile,
                                              const Layout& layout) {
  switch (rows) {
    case 1:
      return Attend<1>(tile, layout);
    case 2:
      return Attend<2>(tile, layout);
    case 3:
      return Attend<3>(tile, layout);
    case 4:
      return Attend<4>(tile, layout);
    case 5:
      return Attend<5>(tile, layout);
    default:
      return Attend<kRows>(tile, layout);
  }
}

}  // namespace

// Configuration: heads of queries, of keys and values; sizes of a key's head, a value's, a value's
// padded; scale, soft cap (bits of floats; 0: none), window (0: none), 1 where the target converts
// halves, vectors of values at once. Dims: tokens, blocks of a row of the tables. Buffers: queries
// f32 [tokens, heads * size], keys, values (kernels/paged.cc), positions and sequences i32
// [tokens], tables i32 [sequences, blocks], results f32 [tokens, heads * value size]. Scratch: the
// scores of a tile. A task is up to kTaskTokens tokens and one head of keys and values.
STAMPMILL_SKELETON(paged_attention) {
  const Layout layout = {.heads = configuration[0],
                         .kv_heads = configuration[1],
                         .size = configuration[2],
                         .value_size = configuration[3],
                         .padded_value_size = configuration[4],
                         .scale = FloatOfBits(static_cast<uint32_t>(configuration[5])),
                         .softcap = FloatOfBits(static_cast<uint32_t>(configuration[6])),
                         .window = configuration[7],
                         .converts = configuration[8] != 0,
                         .values_once = configuration[9]};
  const int64_t tokens = dims[0], blocks = dims[1];
  const int64_t head = task % layout.kv_heads;
  const int64_t group = layout.heads / layout.kv_heads;
  const auto* queries = static_cast<const float*>(buffers[0]);
  const auto* positions = static_cast<const int32_t*>(buffers[3]);
  const auto* sequences = static_cast<const int32_t*>(buffers[4]);
  auto* results = static_cast<float*>(buffers[6]);
  const int64_t key_size = layout.size * kKeys;
  const int64_t value_size = layout.padded_value_size * kKeys;
  Tile tile;
  tile.keys = static_cast<const uint16_t*>(buffers[1]) + head * key_size;
  tile.values = static_cast<const uint16_t*>(buffers[2]) + head * value_size;
  tile.key_stride = layout.kv_heads * key_size;
  tile.value_stride = layout.kv_heads * value_size;
  tile.scores = static_cast<float*>(scratch);
  tile.length = blocks * kKeys;
  int64_t token = task / layout.kv_heads * kTaskTokens;
  const int64_t end = token + kTaskTokens < tokens ? token + kTaskTokens : tokens;
  while (token < end) {
    int64_t next = token + 1;
    while (next < end && sequences[next] == sequences[token]) ++next;
    tile.table = static_cast<const int32_t*>(buffers[5]) + sequences[token] * blocks;
    const int64_t rows = (next - token) * group;
    for (int64_t first = 0; first < rows; first += kRows) {
      const int64_t count = rows - first < kRows ? rows - first : kRows;
      for (int64_t r = 0; r < count; ++r) {
        const int64_t at = token + (first + r) / group;
        const int64_t of = head * group + (first + r) % group;
        tile.queries[r] = queries + (at * layout.heads + of) * layout.size;
        tile.results[r] = results + (at * layout.heads + of) * layout.value_size;
        tile.last[r] = positions[at];
      }
      AttendRows(count, tile, layout);
    }
    token = next;
  }
}

}  // namespace stampmill
