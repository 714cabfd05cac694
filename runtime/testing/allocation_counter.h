// Counts calls of malloc, free and their kin on this thread. Whatever links it gets its own malloc
// and free, which call the C library's; operator new and delete end there too.
#pragma once

#include <cstdint>

namespace stampmill {

// Calls while counting, since the thread began.
int64_t AllocationCalls();

// Counts as long as it lives. Not nested.
class AllocationCounting {
 public:
  AllocationCounting();
  ~AllocationCounting();
  AllocationCounting(const AllocationCounting&) = delete;
  AllocationCounting& operator=(const AllocationCounting&) = delete;
};

}  // namespace stampmill
