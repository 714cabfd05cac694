#include "runtime/testing/allocation_counter.h"

#include <cstddef>

namespace {

thread_local bool counting = false;
thread_local int64_t calls = 0;

void Count() {
  if (counting) ++calls;
}

}  // namespace

// The C library's own functions under their other names.
extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* old, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
void __libc_free(void* memory);

void* malloc(size_t size) {
  Count();
  return __libc_malloc(size);
}
void* calloc(size_t count, size_t size) {
  Count();
  return __libc_calloc(count, size);
}
void* realloc(void* old, size_t size) {
  Count();
  return __libc_realloc(old, size);
}
void* aligned_alloc(size_t alignment, size_t size) {
  Count();
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** memory, size_t alignment, size_t size) {
  Count();
  *memory = __libc_memalign(alignment, size);
  return *memory == nullptr ? 12 : 0;
}
void free(void* memory) {
  Count();
  __libc_free(memory);
}
}

namespace stampmill {

int64_t AllocationCalls() { return calls; }

AllocationCounting::AllocationCounting() { counting = true; }
AllocationCounting::~AllocationCounting() { counting = false; }

}  // namespace stampmill
