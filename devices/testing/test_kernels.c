// Kernels of the device tests, as C so that no compiler of ours is needed. test_kernels.h says what
// each does. Built without libc, as real kernels are; a task counts as run when it has counted
// itself.
#include <stdint.h>

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

static const struct Entry kEntries[] = {
    {"count", CountTasks},   {"add", Add},   {"append", Append}, {"fail", Fail},
    {"scratch", UseScratch}, {"spin", Spin}, {"gate", Gate},
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
