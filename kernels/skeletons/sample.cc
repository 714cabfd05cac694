// The choice of the next token (kernels/sample.cc): one task a row.
//
// Nothing of a row depends on another, and its random number on its seed and position alone, so
// that a text is the same whatever else is computed beside it. Tokens are drawn by walking their
// weights in the order of their numbers.
#include "kernels/skeletons/skeleton.h"
#include "kernels/skeletons/vectors.h"

namespace stampmill {
namespace {

constexpr float kLowest = -3.4e38f;
// Weights below e^-kNear of the greatest one are looked at only where all others do not do.
constexpr float kNear = 16;

// Columns of the parameters; as in kernels/sample.h.
enum : int64_t { kTemperature, kTopP, kMinP, kTypicalP, kRepetition, kPresence, kFrequency };
constexpr int64_t kReals = 8;
enum : int64_t { kTopK, kMaskRow, kForced, kWantsLogprobs };
constexpr int64_t kIntegers = 4;

struct Candidate {
  float score;
  int32_t token;
};

// The generator Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", 2011):
// a number in [0, 1) for each key and counter.
double Uniform(uint64_t key, uint64_t counter) {
  constexpr uint32_t kMultiplier0 = 0xD2511F53u, kMultiplier1 = 0xCD9E8D57u;
  constexpr uint32_t kWeyl0 = 0x9E3779B9u, kWeyl1 = 0xBB67AE85u;
  uint32_t c[4] = {static_cast<uint32_t>(counter), static_cast<uint32_t>(counter >> 32), 0, 0};
  uint32_t k0 = static_cast<uint32_t>(key), k1 = static_cast<uint32_t>(key >> 32);
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{kMultiplier0} * c[0];
    const uint64_t p1 = uint64_t{kMultiplier1} * c[2];
    const uint32_t n0 = static_cast<uint32_t>(p1 >> 32) ^ c[1] ^ k0;
    const uint32_t n2 = static_cast<uint32_t>(p0 >> 32) ^ c[3] ^ k1;
    c[1] = static_cast<uint32_t>(p1);
    c[3] = static_cast<uint32_t>(p0);
    c[0] = n0;
    c[2] = n2;
    k0 += kWeyl0;
    k1 += kWeyl1;
  }
  const uint64_t bits = (uint64_t{c[0]} << 32 | c[1]) >> 11;
  return static_cast<double>(bits) * 0x1p-53;
}

struct Row {
  const float* logits;
  int64_t vocabulary;
  float* scores;          // [vocabulary], filled up to whole vectors
  Candidate* candidates;  // [vocabulary]
  Candidate* spare;
  const float* reals;
  const int32_t* integers;
};

// Calls f(index of the vector, its lanes); those past the end are `filler`.
template <typename F>
[[gnu::always_inline]] inline void ForEachVector(const float* from, int64_t count, float filler,
                                                 const F& f) {
  int64_t at = 0;
  for (; at + kLanes <= count; at += kLanes) f(at, Load(from + at));
  if (at == count) return;
  float last[kLanes];
  for (int64_t i = 0; i < kLanes; ++i) last[i] = at + i < count ? from[at + i] : filler;
  f(at, Load(last));
}

float Greatest(const float* from, int64_t count) {
  Floats most = Splat(kLowest);
  ForEachVector(from, count, kLowest, [&](int64_t, Floats v) { most = v > most ? v : most; });
  return MaxOf(most);
}

// The sum of e^(x - most), in f64 from vectors of f32.
double SumOfExp(const float* from, int64_t count, float most) {
  double sum = 0;
  constexpr int64_t kVectorsTogether = 32;
  Floats part = {};
  int64_t vectors = 0;
  ForEachVector(from, count, kLowest, [&](int64_t, Floats v) {
    part = part + Exp(v - most);
    if (++vectors % kVectorsTogether != 0) return;
    sum += static_cast<double>(SumOf(part));
    part = Floats{};
  });
  return sum + static_cast<double>(SumOf(part));
}

// The natural logarithm of a positive number: the exponent apart, a series in (m - 1) / (m + 1).
double Log(double x) {
  const uint64_t bits = BitsOf(x);
  auto exponent = static_cast<int64_t>(bits >> 52) - 1023;
  double m = __builtin_bit_cast(double, (bits & 0xfffffffffffffu) | 0x3ff0000000000000u);
  if (m > 1.4142135623730951) {
    m *= 0.5;
    ++exponent;
  }
  const double t = (m - 1) / (m + 1), t2 = t * t;
  double series = 0;
  for (int n = 21; n >= 1; n -= 2) series = series * t2 + 1.0 / n;
  return static_cast<double>(exponent) * 0.6931471805599453 + 2 * t * series;
}

// Scores: logits with bias, penalties and mask.
void Adjust(const Row& row, const int32_t* history, int64_t history_count,
            const int32_t* bias_tokens, const float* bias_values, int64_t bias_count,
            const uint32_t* mask) {
  for (int64_t i = 0; i < row.vocabulary; ++i) row.scores[i] = row.logits[i];
  const auto known = [&](int32_t token) { return token >= 0 && token < row.vocabulary; };
  for (int64_t i = 0; i < bias_count; ++i) {
    if (known(bias_tokens[i])) row.scores[bias_tokens[i]] += bias_values[i];
  }
  for (int64_t i = 0; i < history_count; ++i) {
    const int32_t token = history[3 * i];
    if (!known(token)) continue;
    const auto times = static_cast<float>(history[3 * i + 2]);
    float score = row.scores[token];
    const float repetition = row.reals[kRepetition];
    score = score > 0 ? score / repetition : score * repetition;
    score -= row.reals[kFrequency] * times;
    if (times > 0) score -= row.reals[kPresence];
    row.scores[token] = score;
  }
  if (mask == nullptr) return;
  for (int64_t i = 0; i < row.vocabulary; ++i) {
    if ((mask[i / 32] >> (i % 32) & 1) == 0) row.scores[i] = kLowest;
  }
}

int32_t ArgMax(const Row& row) {
  const float most = Greatest(row.scores, row.vocabulary);
  for (int64_t i = 0; i < row.vocabulary; ++i) {
    if (row.scores[i] >= most) return static_cast<int32_t>(i);
  }
  return 0;  // nothing is a number
}

bool ScoresHigher(const Candidate& a, const Candidate& b) { return a.score > b.score; }

// Candidates whose score is at least `least`, greatest first; equal ones by number.
int64_t Collect(const Row& row, float least) {
  int64_t count = 0;
  for (int64_t i = 0; i < row.vocabulary; ++i) {
    if (row.scores[i] >= least && row.scores[i] > kLowest) {
      row.candidates[count++] = {row.scores[i], static_cast<int32_t>(i)};
    }
  }
  MergeSort(row.candidates, row.spare, count, ScoresHigher);
  return count;
}

inline double WeightOf(float score, float most) {
  return static_cast<double>(Exp(Splat(score - most))[0]);
}

// How many of the `count` candidates, greatest first, are kept; -1: more must be looked at.
int64_t Kept(const Row& row, int64_t count, bool all, float most, double total) {
  int64_t kept = count;
  const int64_t top_k = row.integers[kTopK];
  if (top_k > 0) {
    if (top_k > count && !all) return -1;
    if (top_k < kept) kept = top_k;
  }
  const auto top_p = static_cast<double>(row.reals[kTopP]);
  if (top_p < 1) {
    // Of what top_k has left.
    double limit = total;
    if (top_k > 0) {
      limit = 0;
      for (int64_t i = 0; i < kept; ++i) limit += WeightOf(row.candidates[i].score, most);
    }
    double sum = 0;
    int64_t i = 0;
    while (i < kept && sum < top_p * limit) sum += WeightOf(row.candidates[i++].score, most);
    if (i == count && !all && sum < top_p * limit) return -1;
    kept = i > 0 ? i : 1;
  }
  return kept;
}

// Locally typical sampling (Meister et al., 2023): those whose surprise is nearest to what is
// expected, until they have the weight of `typical`. Leaves them at the front, in any order.
int64_t KeepTypical(const Row& row, int64_t kept, float most) {
  const auto typical = static_cast<double>(row.reals[kTypicalP]);
  if (!(typical < 1) || kept == 0) return kept;
  double total = 0, expected = 0;
  for (int64_t i = 0; i < kept; ++i) total += WeightOf(row.candidates[i].score, most);
  const double log_total = Log(total);
  const auto surprise = [&](const Candidate& c) {
    return log_total - static_cast<double>(c.score - most);
  };
  for (int64_t i = 0; i < kept; ++i) {
    expected += WeightOf(row.candidates[i].score, most) / total * surprise(row.candidates[i]);
  }
  const auto distance = [&](const Candidate& c) {
    const double d = surprise(c) - expected;
    return d < 0 ? -d : d;
  };
  MergeSort(row.candidates, row.spare, kept,
            [&](const Candidate& a, const Candidate& b) { return distance(a) < distance(b); });
  double sum = 0;
  int64_t i = 0;
  while (i < kept && sum < typical * total) sum += WeightOf(row.candidates[i++].score, most);
  return i > 0 ? i : 1;
}

// From all whose score is at least `least`. Scores become weights, which are added up in pieces:
// the piece that the number falls into is walked.
int32_t DrawFromAll(const Row& row, float least, float most, double uniform) {
  constexpr int64_t kPiece = 512;
  const int64_t count = row.vocabulary;
  const auto sum_of_piece = [&](int64_t begin) {
    Floats sum = {};
    ForEachVector(row.scores + begin, count - begin < kPiece ? count - begin : kPiece, 0,
                  [&](int64_t, Floats v) { sum = sum + v; });
    return static_cast<double>(SumOf(sum));
  };
  ForEachVector(row.scores, count, kLowest, [&](int64_t at, Floats v) {
    const Words seen = (v >= Splat(least)) & (v > Splat(kLowest));
    Store(seen ? Exp(v - most) : Floats{}, row.scores + at);
  });
  double total = 0;
  for (int64_t begin = 0; begin < count; begin += kPiece) total += sum_of_piece(begin);
  double left = uniform * total;
  int64_t begin = 0;
  for (; begin + kPiece < count; begin += kPiece) {
    const double sum = sum_of_piece(begin);
    if (left < sum) break;
    left -= sum;
  }
  int64_t last = 0;
  for (int64_t i = begin; i < count; ++i) {
    if (row.scores[i] <= 0) continue;
    last = i;
    left -= static_cast<double>(row.scores[i]);
    if (left < 0) return static_cast<int32_t>(last);
  }
  // Rounding left a little: the last that may be chosen.
  for (int64_t i = 0; i < count; ++i) last = row.scores[i] > 0 ? i : last;
  return static_cast<int32_t>(last);
}

int32_t Draw(const Row& row, double uniform) {
  const float temperature = row.reals[kTemperature];
  ForEachVector(row.scores, row.vocabulary, kLowest, [&](int64_t at, Floats v) {
    const Floats scaled = v / temperature;
    Store(v <= Splat(kLowest) || scaled < Splat(kLowest) ? Splat(kLowest) : scaled,
          row.scores + at);
  });
  const float most = Greatest(row.scores, row.vocabulary);
  if (!(most > kLowest)) return ArgMax(row);
  float least = kLowest;
  const float min_p = row.reals[kMinP];
  if (min_p > 0) least = most + static_cast<float>(Log(static_cast<double>(min_p)));
  const bool chooses = row.integers[kTopK] > 0 || row.reals[kTopP] < 1 || row.reals[kTypicalP] < 1;
  if (!chooses) return DrawFromAll(row, least, most, uniform);
  const float near = most - kNear > least ? most - kNear : least;
  const double total = min_p > 0 ? -1 : SumOfExp(row.scores, row.vocabulary, most);
  const auto sum_from = [&](int64_t count) {
    if (total >= 0) return total;
    double sum = 0;
    for (int64_t i = 0; i < count; ++i) sum += WeightOf(row.candidates[i].score, most);
    return sum;
  };
  // All that min_p leaves are near enough where it is not tiny.
  bool all = near <= least || row.reals[kTypicalP] < 1;
  int64_t count = Collect(row, all ? least : near);
  int64_t kept = Kept(row, count, all, most, sum_from(count));
  if (kept < 0) {
    count = Collect(row, least);
    kept = Kept(row, count, true, most, sum_from(count));
  }
  kept = KeepTypical(row, kept, most);
  MergeSort(row.candidates, row.spare, kept,
            [](const Candidate& a, const Candidate& b) { return a.token < b.token; });
  double kept_total = 0;
  for (int64_t i = 0; i < kept; ++i) kept_total += WeightOf(row.candidates[i].score, most);
  double left = uniform * kept_total;
  int64_t at = 0;
  for (; at + 1 < kept; ++at) {
    left -= WeightOf(row.candidates[at].score, most);
    if (left < 0) break;
  }
  return row.candidates[at].token;
}

// The `ranks[i]`-th likeliest tokens of the logits as they are, and how likely they are.
void Likeliest(const Row& row, const int32_t* ranks, int64_t count, double log_sum, int32_t* tokens,
               float* logprobs) {
  int64_t most_rank = 0;
  for (int64_t i = 0; i < count; ++i) most_rank = ranks[i] > most_rank ? ranks[i] : most_rank;
  for (int64_t i = 0; i < row.vocabulary; ++i) row.scores[i] = row.logits[i];
  // A bound that enough tokens pass, or all.
  const float most = Greatest(row.scores, row.vocabulary);
  int64_t found = Collect(row, most - kNear);
  if (found <= most_rank) found = Collect(row, kLowest);
  for (int64_t i = 0; i < count; ++i) {
    const bool there = ranks[i] >= 0 && ranks[i] < found;
    tokens[i] = there ? row.candidates[ranks[i]].token : -1;
    logprobs[i] =
        there ? static_cast<float>(static_cast<double>(row.candidates[ranks[i]].score) - log_sum)
              : kLowest;
  }
}

}  // namespace

// Dims: vocabulary, ranks. Buffers: the operator's inputs, then its outputs (kernels/sample.cc).
// Scratch: scores, candidates and as many more. A task is a row.
STAMPMILL_SKELETON(sample) {
  const int64_t vocabulary = dims[0], rank_count = dims[1];
  const int64_t padded = (vocabulary + kLanes - 1) / kLanes * kLanes;
  Row row;
  row.logits = static_cast<const float*>(buffers[0]) + task * vocabulary;
  row.vocabulary = vocabulary;
  row.reals = static_cast<const float*>(buffers[1]) + task * kReals;
  row.integers = static_cast<const int32_t*>(buffers[2]) + task * kIntegers;
  row.scores = static_cast<float*>(scratch);
  row.candidates = reinterpret_cast<Candidate*>(row.scores + padded);
  row.spare = row.candidates + vocabulary;
  const auto* seeds = static_cast<const int64_t*>(buffers[3]) + task * 2;
  const auto begin_of = [&](const int32_t* ends) { return task == 0 ? 0 : ends[task - 1]; };
  const auto* history_ends = static_cast<const int32_t*>(buffers[4]);
  const auto* bias_ends = static_cast<const int32_t*>(buffers[6]);
  const int64_t history = begin_of(history_ends), bias = begin_of(bias_ends);
  const int64_t mask_row = row.integers[kMaskRow];
  const int64_t mask_words = (vocabulary + 31) / 32;
  const uint32_t* mask =
      mask_row < 0 ? nullptr : static_cast<const uint32_t*>(buffers[9]) + mask_row * mask_words;
  int32_t token = row.integers[kForced];
  if (token < 0) {
    Adjust(row, static_cast<const int32_t*>(buffers[5]) + 3 * history, history_ends[task] - history,
           static_cast<const int32_t*>(buffers[7]) + bias,
           static_cast<const float*>(buffers[8]) + bias, bias_ends[task] - bias, mask);
    const bool greedy = !(row.reals[kTemperature] >= 1e-5f);
    token =
        greedy
            ? ArgMax(row)
            : Draw(row, Uniform(static_cast<uint64_t>(seeds[0]), static_cast<uint64_t>(seeds[1])));
  }
  static_cast<int32_t*>(buffers[11])[task] = token;
  float& logprob = static_cast<float*>(buffers[12])[task];
  int32_t& rank = static_cast<int32_t*>(buffers[13])[task];
  auto* top_tokens = static_cast<int32_t*>(buffers[14]) + task * rank_count;
  auto* top_logprobs = static_cast<float*>(buffers[15]) + task * rank_count;
  logprob = 0;
  rank = 0;
  for (int64_t i = 0; i < rank_count; ++i) {
    top_tokens[i] = -1;
    top_logprobs[i] = kLowest;
  }
  if (row.integers[kWantsLogprobs] == 0) return;
  const float most = Greatest(row.logits, vocabulary);
  const double log_sum = static_cast<double>(most) + Log(SumOfExp(row.logits, vocabulary, most));
  const float own = token < vocabulary ? row.logits[token] : kLowest;
  logprob = static_cast<float>(static_cast<double>(own) - log_sum);
  for (int64_t i = 0; i < vocabulary; ++i) rank += row.logits[i] > own ? 1 : 0;
  Likeliest(row, static_cast<const int32_t*>(buffers[10]), rank_count, log_sum, top_tokens,
            top_logprobs);
}

}  // namespace stampmill
