// Kernels of the device tests, as C so that no compiler of ours is needed. test_kernels.h says what
// each does. Built without libc, as real kernels are; a task counts as run when it has counted
// itself.
#include <stdint.h>

#include "devices/testing/toy_language.h"

struct KernelArgs {
  void* const* buffers;
  const int64_t* dims;
  void* scratch;
};
typedef int32_t (*Kernel)(const struct KernelArgs*, int64_t, int64_t);
struct Entry {
  const char* name;
  Kernel function;
};
struct Library {
  uint32_t abi_version;
  uint32_t entry_count;
  const struct Entry* entries;
  uint8_t source_digest[32];
};

static void Count(const struct KernelArgs* args, int64_t task) {
  __atomic_fetch_add((int32_t*)args->buffers[0] + task, 1, __ATOMIC_RELAXED);
}

static int32_t CountTasks(const struct KernelArgs* args, int64_t begin, int64_t end) {
  for (int64_t task = begin; task < end; ++task) Count(args, task);
  return 0;
}

static int32_t Add(const struct KernelArgs* args, int64_t begin, int64_t end) {
  const int64_t size = args->dims[0], block = args->dims[2];
  const int32_t* in = args->buffers[0];
  int32_t* out = args->buffers[1];
  const int64_t to = end * block < size ? end * block : size;
  for (int64_t i = begin * block; i < to; ++i) out[i] = in[i] + (int32_t)args->dims[1];
  return 0;
}

static int32_t Append(const struct KernelArgs* args, int64_t begin, int64_t end) {
  int64_t* log = args->buffers[0];
  for (int64_t task = begin; task < end; ++task) {
    log[1 + __atomic_fetch_add(&log[0], 1, __ATOMIC_RELAXED)] = args->dims[0];
  }
  return 0;
}

static int32_t Fail(const struct KernelArgs* args, int64_t begin, int64_t end) {
  for (int64_t task = begin; task < end; ++task) {
    Count(args, task);
    if (task == args->dims[0]) return (int32_t)args->dims[1];
  }
  return 0;
}

static int32_t UseScratch(const struct KernelArgs* args, int64_t begin, int64_t end) {
  volatile int64_t* scratch = args->scratch;
  const int64_t size = args->dims[0] / 8;
  if ((uintptr_t)scratch % 64 != 0) return 1;
  for (int64_t task = begin; task < end; ++task) {
    for (int64_t i = 0; i < size; ++i) scratch[i] = task * size + i;
    for (int64_t i = 0; i < size; ++i) {
      if (scratch[i] != task * size + i) return 2;
    }
    Count(args, task);
  }
  return 0;
}

static int32_t Spin(const struct KernelArgs* args, int64_t begin, int64_t end) {
  const int32_t* stop = args->buffers[1];
  for (int64_t task = begin; task < end; ++task) {
    for (int64_t i = 0; i < args->dims[0] && !__atomic_load_n(stop, __ATOMIC_ACQUIRE); ++i) {
      __builtin_ia32_pause();
    }
    Count(args, task);
  }
  return 0;
}

static int32_t Gate(const struct KernelArgs* args, int64_t begin, int64_t end) {
  const int32_t* open = args->buffers[1];
  for (int64_t task = begin; task < end; ++task) {
    while (!__atomic_load_n(open, __ATOMIC_ACQUIRE)) __builtin_ia32_pause();
    Count(args, task);
  }
  return 0;
}

// Inputs, states and outputs of a step of a language model, in the program's order.
enum {
  kTokens,
  kPositions,
  kSequences,
  kTables,
  kOutputs,
  kReals,
  kIntegers,
  kSeeds,
  kHistoryEnds,
  kHistory,
  kBiasEnds,
  kBiasTokens,
  kBiasValues,
  kMasks,
  kRanks,
  kKeys,
  kNextTokens,
  kLogprobs,
  kTokenRanks,
  kTopTokens,
  kTopLogprobs,
};

static const int32_t* Ints(const struct KernelArgs* args, int buffer) {
  return args->buffers[buffer];
}

// The place of rank `rank` among the scores of a state; -1: there are not so many.
static int32_t TokenOfRank(uint64_t state, int64_t vocabulary, int32_t rank) {
  for (int32_t token = 0; token < vocabulary; ++token) {
    int32_t above = 0;
    for (int32_t other = 0; other < vocabulary; ++other) {
      const float a = ToyScore(state, other), b = ToyScore(state, token);
      above += a > b || (a == b && other < token);
    }
    if (above == rank) return token;
  }
  return -1;
}

// Whether the row's mask and biases leave the token.
static int MayBe(const struct KernelArgs* args, int64_t row, int32_t token, int64_t vocabulary) {
  const int32_t mask = Ints(args, kIntegers)[4 * row + 1];
  const int64_t words = (vocabulary + 31) / 32;
  if (mask >= 0 && (Ints(args, kMasks)[mask * words + token / 32] >> (token % 32) & 1) == 0) {
    return 0;
  }
  const int32_t* ends = Ints(args, kBiasEnds);
  for (int32_t i = row == 0 ? 0 : ends[row - 1]; i < ends[row]; ++i) {
    const float* values = args->buffers[kBiasValues];
    if (Ints(args, kBiasTokens)[i] == token && values[i] < 0) return 0;
  }
  return 1;
}

static void ChooseNext(const struct KernelArgs* args, int64_t row, uint64_t key, int32_t last) {
  const int64_t vocabulary = args->dims[3], ranks = args->dims[2];
  const float* reals = (const float*)args->buffers[kReals] + 8 * row;
  const int32_t* integers = Ints(args, kIntegers) + 4 * row;
  const int64_t* seeds = (const int64_t*)args->buffers[kSeeds] + 2 * row;
  const uint64_t plain = ToyState(key, last, reals[0] > 0, (uint64_t)seeds[0], seeds[1]);
  uint64_t state = plain;
  const int32_t* ends = Ints(args, kHistoryEnds);
  for (int32_t i = row == 0 ? 0 : ends[row - 1]; i < ends[row]; ++i) {
    const int32_t* seen = Ints(args, kHistory) + 3 * i;
    state = ToySeen(state, seen[0], seen[1], seen[2]);
  }
  int32_t next = integers[2];
  if (next < 0) {
    for (int32_t token = 0; token < vocabulary; ++token) {
      if (!MayBe(args, row, token, vocabulary)) continue;
      if (next < 0 || ToyScore(state, token) > ToyScore(state, next)) next = token;
    }
  }
  ((int32_t*)args->buffers[kNextTokens])[row] = next;
  const int wanted = integers[3];
  int32_t rank = 0;
  for (int32_t token = 0; token < vocabulary; ++token) {
    rank += ToyScore(plain, token) > ToyScore(plain, next);
  }
  ((float*)args->buffers[kLogprobs])[row] = wanted ? ToyScore(plain, next) : 0;
  ((int32_t*)args->buffers[kTokenRanks])[row] = wanted ? rank : 0;
  for (int64_t i = 0; i < ranks; ++i) {
    const int32_t top = wanted ? TokenOfRank(plain, vocabulary, Ints(args, kRanks)[i]) : -1;
    ((int32_t*)args->buffers[kTopTokens])[row * ranks + i] = top;
    ((float*)args->buffers[kTopLogprobs])[row * ranks + i] = top < 0 ? 0 : ToyScore(plain, top);
  }
}

static int32_t Language(const struct KernelArgs* args, int64_t begin, int64_t end) {
  const int64_t tokens = args->dims[0], columns = args->dims[1];
  const int32_t* outputs = Ints(args, kOutputs);
  uint64_t* keys = args->buffers[kKeys];
  int64_t row = 0;
  (void)begin, (void)end;
  for (int64_t t = 0; t < tokens; ++t) {
    const int32_t token = Ints(args, kTokens)[t], position = Ints(args, kPositions)[t];
    const int32_t* table = Ints(args, kTables) + Ints(args, kSequences)[t] * columns;
    uint64_t context = 0;
    for (int32_t p = 0; p < position; ++p) {
      context = ToyFold(context, keys[table[p / 16] * 16 + p % 16]);
    }
    const uint64_t key = ToyKey(context, token);
    keys[table[position / 16] * 16 + position % 16] = key;
    if (row < args->dims[4] && outputs[row] == t) ChooseNext(args, row++, key, token);
  }
  return 0;
}

static const struct Entry kEntries[] = {
    {"count", CountTasks},   {"add", Add},   {"append", Append}, {"fail", Fail},
    {"scratch", UseScratch}, {"spin", Spin}, {"gate", Gate},     {"language", Language},
};

static const struct Library kLibrary = {
    .abi_version = ABI_VERSION,
    .entry_count = sizeof(kEntries) / sizeof(kEntries[0]),
    .entries = kEntries,
    .source_digest = "test kernels of the device layer",
};

__attribute__((visibility("default"))) const struct Library* stampmill_kernel_library(void) {
  return &kLibrary;
}
