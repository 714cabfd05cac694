#include "runtime/huge_pages.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <system_error>

namespace stampmill {
namespace {

constexpr uintptr_t kHugePage = uintptr_t{2} << 20;
// Moved in one step. So much stands in memory twice meanwhile.
constexpr size_t kPieceBytes = size_t{16} << 20;

uintptr_t RoundUp(uintptr_t address) { return (address + kHugePage - 1) & ~(kHugePage - 1); }

// `size` bytes that begin at a huge page; null when there are none.
std::byte* MapHugePages(size_t size) {
  void* const memory = mmap(nullptr, size + kHugePage, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  auto* const begin = static_cast<std::byte*>(memory);
  const size_t lead =
      RoundUp(reinterpret_cast<uintptr_t>(memory)) - reinterpret_cast<uintptr_t>(memory);
  if (lead > 0) munmap(begin, lead);
  if (lead < kHugePage) munmap(begin + lead + size, kHugePage - lead);
  return begin + lead;
}

// False: `from` is as it was.
bool MovePiece(std::byte* from, size_t size) {
  std::byte* const to = MapHugePages(size);
  if (to == nullptr) return false;
  bool moved = madvise(to, size, MADV_HUGEPAGE) == 0;
  if (moved) {
    std::memcpy(to, from, size);
    moved = mprotect(to, size, PROT_READ) == 0 &&
            mremap(to, size, size, MREMAP_MAYMOVE | MREMAP_FIXED, from) == from;
  }
  if (!moved) munmap(to, size);
  return moved;
}

}  // namespace

HugePageMove::HugePageMove(std::span<const std::byte> bytes) {
  try {
    thread_ = std::thread([this, bytes] { Run(bytes); });
  } catch (const std::system_error&) {
    // No threads are left: all stays where it is.
  }
}

HugePageMove::~HugePageMove() {
  stop_.store(true, std::memory_order_relaxed);
  Wait();
}

void HugePageMove::Wait() {
  if (thread_.joinable()) thread_.join();
}

void HugePageMove::Run(std::span<const std::byte> bytes) {
  const auto address = reinterpret_cast<uintptr_t>(bytes.data());
  uintptr_t at = RoundUp(address);
  const uintptr_t end = (address + bytes.size()) & ~(kHugePage - 1);
  while (at < end && !stop_.load(std::memory_order_relaxed)) {
    const size_t size = std::min<size_t>(kPieceBytes, end - at);
    if (!MovePiece(reinterpret_cast<std::byte*>(at), size)) return;
    moved_.fetch_add(size, std::memory_order_release);
    at += size;
  }
}

}  // namespace stampmill
