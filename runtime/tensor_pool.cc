// The arena's allocator keeps its blocks in two lists: all of them in order of address, and the
// free ones by size class (four a power of two), last freed first, so that warm pages are used
// again. Client regions keep one count for being registered, so that the last lease, or the
// unregistering, unmaps them, whichever comes later.
#include "runtime/tensor_pool.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "runtime/limits.h"
#include "runtime/region_fault.h"

namespace stampmill {
namespace {

// Every block is a multiple of this and so aligned to it: a cache line, and what Device::Allocate
// promises too.
constexpr uint64_t kBlockAlignment = 64;

constexpr absl::string_view kReservedKeyPrefix = "triton_python_backend_shm_region_";

// Class of sizes: 4 * log2 + the two bits below the leading one.
int SizeClass(uint64_t size) {
  const uint64_t units = size / kBlockAlignment;
  const int log = std::bit_width(units) - 1;
  const uint64_t fraction = log >= 2 ? (units >> (log - 2)) & 3 : (units << (2 - log)) & 3;
  return log * 4 + static_cast<int>(fraction);
}

std::string ShmErrorText(absl::string_view name) {
  return absl::StrCat("failed to register shared memory region '", name, "': invalid args");
}

}  // namespace

struct TensorPool::Block {
  std::atomic<int32_t> count{0};  // leases; 0: free or unused record
  uint64_t offset = 0;
  uint64_t size = 0;
  int32_t before = -1;  // neighbours by address
  int32_t after = -1;
  int32_t free_next = -1;  // of the size class; of unused records
  int32_t free_previous = -1;
  bool is_free = false;
};

struct TensorPool::Region {
  std::atomic<int32_t> count{0};  // leases, and one while registered; 0: empty record
  bool registered = false;
  std::string name, key;
  uint64_t offset = 0;
  uint64_t byte_size = 0;
  std::span<std::byte> mapping;  // from the page that `offset` lies in
  std::span<std::byte> bytes;
  int32_t watched = -1;
};

// Lease.

Lease::Lease(const Lease& other) : pool_(other.pool_), claim_(other.claim_), bytes_(other.bytes_) {
  if (pool_ != nullptr) pool_->claim_count(claim_).fetch_add(1, std::memory_order_relaxed);
}

Lease::Lease(Lease&& other) noexcept
    : pool_(std::exchange(other.pool_, nullptr)), claim_(other.claim_), bytes_(other.bytes_) {
  other.bytes_ = {};
}

Lease& Lease::operator=(Lease other) noexcept {
  std::swap(pool_, other.pool_);
  std::swap(claim_, other.claim_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Lease::~Lease() {
  if (pool_ == nullptr) return;
  if (pool_->claim_count(claim_).fetch_sub(1, std::memory_order_acq_rel) == 1) {
    pool_->ReleaseClaim(claim_);
  }
}

Lease Lease::Slice(size_t offset, size_t size) const {
  CHECK(valid());
  CHECK_LE(offset, bytes_.size());
  CHECK_LE(size, bytes_.size() - offset);
  Lease part(*this);
  part.bytes_ = bytes_.subspan(offset, size);
  return part;
}

bool Lease::client_owned() const { return pool_ != nullptr && claim_ >= kPoolBlocksMax; }

absl::Status Lease::CheckIntact() const {
  if (!client_owned()) return absl::OkStatus();
  const TensorPool::Region& region = pool_->regions_[claim_ - kPoolBlocksMax];
  if (!RegionFaulted(region.watched)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("shared memory region '", region.name,
                   "': its object was truncated below the registered size"));
}

// The arena.

TensorPool::TensorPool(const TensorPoolOptions& options)
    : options_(options),
      blocks_(std::make_unique<Block[]>(kPoolBlocksMax)),
      regions_(std::make_unique<Region[]>(kClientRegionsMax)) {}

absl::StatusOr<std::unique_ptr<TensorPool>> TensorPool::Create(const TensorPoolOptions& options) {
  auto pool = std::unique_ptr<TensorPool>(new TensorPool(options));
  RETURN_IF_ERROR(pool->MapArena());
  return pool;
}

absl::Status TensorPool::MapArena() {
  constexpr uint64_t kSizeMax = uint64_t{1} << 46;  // half of the address space of x86-64
  if (options_.size_bytes > kSizeMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("tensor pool size: got ", options_.size_bytes, " bytes, limit ", kSizeMax));
  }
  const uint64_t size =
      std::max(kBlockAlignment, options_.size_bytes / kBlockAlignment * kBlockAlignment);
  ASSIGN_OR_RETURN(arena_file_, CreateMemfd("stampmill_tensor_pool", size));
  void* const address =
      mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, arena_file_.get(), 0);
  if (address == MAP_FAILED) {
    return absl::ErrnoToStatus(errno, absl::StrCat("mmap tensor pool of ", size, " bytes"));
  }
  arena_ = {static_cast<std::byte*>(address), size};

  absl::MutexLock lock(&mutex_);
  std::fill(std::begin(free_heads_), std::end(free_heads_), -1);
  for (int32_t i = kPoolBlocksMax - 1; i >= 0; --i) {
    blocks_[i].free_next = unused_records_;
    unused_records_ = i;
  }
  const int32_t all = NewRecord();
  blocks_[all].size = size;
  InsertFree(all);
  return absl::OkStatus();
}

TensorPool::~TensorPool() {
  CHECK_OK(UnregisterAllClientRegions());
  for (int32_t i = 0; i < kClientRegionsMax; ++i) CHECK_EQ(regions_[i].count.load(), 0);
  CHECK_EQ(used_bytes(), 0u) << "leases outlive the tensor pool";
  if (!arena_.empty()) munmap(arena_.data(), arena_.size());
}

int32_t TensorPool::NewRecord() {
  const int32_t index = unused_records_;
  if (index < 0) return -1;
  unused_records_ = blocks_[index].free_next;
  Block& block = blocks_[index];
  block.offset = block.size = 0;
  block.before = block.after = block.free_next = block.free_previous = -1;
  return index;
}

void TensorPool::InsertFree(int32_t index) {
  Block& block = blocks_[index];
  int32_t& head = free_heads_[SizeClass(block.size)];
  block.is_free = true;
  block.free_previous = -1;
  block.free_next = head;
  if (head >= 0) blocks_[head].free_previous = index;
  head = index;
}

void TensorPool::RemoveFree(int32_t index) {
  Block& block = blocks_[index];
  if (block.free_next >= 0) blocks_[block.free_next].free_previous = block.free_previous;
  if (block.free_previous >= 0) {
    blocks_[block.free_previous].free_next = block.free_next;
  } else {
    free_heads_[SizeClass(block.size)] = block.free_next;
  }
  block.is_free = false;
}

int32_t TensorPool::TakeFreeBlock(uint64_t size) {
  const int size_class = SizeClass(size);
  int32_t found = -1;
  // Blocks of the next classes all fit; of its own only some do, so those are tried last, when
  // their number no longer matters.
  for (int i = size_class + 1; i < kSizeClasses && found < 0; ++i) found = free_heads_[i];
  for (int32_t at = free_heads_[size_class], tried = 0; at >= 0; at = blocks_[at].free_next) {
    if (blocks_[at].size >= size) {
      found = at;
      break;
    }
    if (found >= 0 && ++tried == 16) break;
  }
  if (found < 0) return -1;
  Block& block = blocks_[found];
  RemoveFree(found);
  if (block.size > size) {
    // Without a record for the rest the block is handed out whole.
    if (const int32_t rest_index = NewRecord(); rest_index >= 0) {
      Block& rest = blocks_[rest_index];
      rest.offset = block.offset + size;
      rest.size = block.size - size;
      rest.before = found;
      rest.after = block.after;
      if (block.after >= 0) blocks_[block.after].before = rest_index;
      block.after = rest_index;
      block.size = size;
      InsertFree(rest_index);
    }
  }
  return found;
}

void TensorPool::AbsorbNext(int32_t index) {
  Block& block = blocks_[index];
  const int32_t gone = block.after;
  block.size += blocks_[gone].size;
  block.after = blocks_[gone].after;
  if (block.after >= 0) blocks_[block.after].before = index;
  blocks_[gone].free_next = unused_records_;
  unused_records_ = gone;
}

void TensorPool::FreeBlock(int32_t index) {
  if (const int32_t after = blocks_[index].after; after >= 0 && blocks_[after].is_free) {
    RemoveFree(after);
    AbsorbNext(index);
  }
  if (const int32_t before = blocks_[index].before; before >= 0 && blocks_[before].is_free) {
    RemoveFree(before);
    AbsorbNext(before);
    index = before;
  }
  InsertFree(index);
}

uint64_t TensorPool::LargestFreeBytes() const {
  for (int i = kSizeClasses - 1; i >= 0; --i) {
    uint64_t largest = 0;
    for (int32_t at = free_heads_[i]; at >= 0; at = blocks_[at].free_next) {
      largest = std::max(largest, blocks_[at].size);
    }
    if (largest > 0) return largest;
  }
  return 0;
}

absl::StatusOr<Lease> TensorPool::Allocate(uint64_t size_bytes) {
  if (size_bytes > arena_.size()) {
    return absl::ResourceExhaustedError(absl::StrCat("tensor pool: got ", size_bytes,
                                                     " bytes, limit ", arena_.size(),
                                                     " (--pinned-memory-pool-byte-size)"));
  }
  int32_t index = -1;
  uint64_t largest = 0;
  {
    const uint64_t size =
        std::max(kBlockAlignment, (size_bytes + kBlockAlignment - 1) & ~(kBlockAlignment - 1));
    absl::MutexLock lock(&mutex_);
    index = TakeFreeBlock(size);
    if (index >= 0) {
      touched_ = true;
      used_bytes_.fetch_add(blocks_[index].size, std::memory_order_relaxed);
      blocks_[index].count.store(1, std::memory_order_relaxed);
      return Lease(this, index, arena_.subspan(blocks_[index].offset, size_bytes));
    }
    largest = LargestFreeBytes();
  }
  return absl::ResourceExhaustedError(absl::StrCat(
      "tensor pool: got ", size_bytes, " bytes, limit ", arena_.size() - used_bytes(), " free of ",
      arena_.size(), ", ", largest, " in one piece (--pinned-memory-pool-byte-size)"));
}

void TensorPool::ReturnFreePages() {
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  absl::MutexLock lock(&mutex_);
  if (!std::exchange(touched_, false)) return;
  for (const int32_t head : free_heads_) {
    for (int32_t at = head; at >= 0; at = blocks_[at].free_next) {
      const uint64_t begin = (blocks_[at].offset + page - 1) & ~(page - 1);
      const uint64_t end = (blocks_[at].offset + blocks_[at].size) & ~(page - 1);
      // Failing costs memory and nothing else.
      if (begin < end) madvise(arena_.data() + begin, end - begin, MADV_REMOVE);
    }
  }
}

std::atomic<int32_t>& TensorPool::claim_count(int32_t claim) const {
  return claim < kPoolBlocksMax ? blocks_[claim].count : regions_[claim - kPoolBlocksMax].count;
}

void TensorPool::ReleaseClaim(int32_t claim) {
  absl::MutexLock lock(&mutex_);
  if (claim < kPoolBlocksMax) {
    used_bytes_.fetch_sub(blocks_[claim].size, std::memory_order_relaxed);
    FreeBlock(claim);
    releases_.fetch_add(1, std::memory_order_seq_cst);
    for (Waker*& waker : release_wakers_) {
      if (waker == nullptr) break;
      std::exchange(waker, nullptr)->Wake();
    }
  } else {
    UnmapRegion(claim - kPoolBlocksMax);
  }
}

void TensorPool::WakeOnRelease(Waker* waker) {
  absl::MutexLock lock(&mutex_);
  for (Waker*& place : release_wakers_) {
    if (place == waker) return;
    if (place == nullptr) {
      place = waker;
      return;
    }
  }
  CHECK(false) << "more engines than " << kReleaseWakersMax;
}

void TensorPool::ForgetWaker(Waker* waker) {
  absl::MutexLock lock(&mutex_);
  const auto kept = std::remove(release_wakers_.begin(), release_wakers_.end(), waker);
  std::fill(kept, release_wakers_.end(), nullptr);
}

void TensorPool::CheckInvariants() const {
  absl::MutexLock lock(&mutex_);
  // The block at offset 0 is never absorbed into another, but its record may be any.
  int32_t at = -1;
  for (int32_t i = 0; i < kPoolBlocksMax; ++i) {
    if (blocks_[i].size > 0 && blocks_[i].offset == 0 && blocks_[i].before < 0 &&
        (blocks_[i].is_free || blocks_[i].count.load() > 0)) {
      at = i;
    }
  }
  uint64_t offset = 0, used = 0;
  int32_t free_blocks = 0;
  bool previous_free = false;
  for (int32_t before = -1; at >= 0; before = at, at = blocks_[at].after) {
    const Block& block = blocks_[at];
    CHECK_EQ(block.offset, offset);
    CHECK_EQ(block.before, before);
    CHECK(block.is_free == (block.count.load() == 0));
    CHECK(!(block.is_free && previous_free)) << "neighbours were not joined";
    previous_free = block.is_free;
    if (block.is_free)
      ++free_blocks;
    else
      used += block.size;
    offset += block.size;
  }
  CHECK_EQ(offset, arena_.size());
  CHECK_EQ(used, used_bytes());
  int32_t listed = 0;
  for (int i = 0; i < kSizeClasses; ++i) {
    for (int32_t free = free_heads_[i]; free >= 0; free = blocks_[free].free_next) {
      CHECK(blocks_[free].is_free);
      CHECK_EQ(SizeClass(blocks_[free].size), i);
      ++listed;
    }
  }
  CHECK_EQ(listed, free_blocks);
}

// Client regions.

int32_t TensorPool::FindRegion(absl::string_view name) const {
  for (int32_t i = 0; i < regions_end_; ++i) {
    if (regions_[i].registered && name == regions_[i].name) return i;
  }
  return -1;
}

absl::Status TensorPool::RegisterClientRegion(absl::string_view name, absl::string_view key,
                                              uint64_t offset, uint64_t byte_size) {
  RETURN_IF_ERROR(CheckClientShmAllowed());
  if (name.empty()) {
    return absl::InvalidArgumentError("shared memory region: its name is empty");
  }
  absl::string_view bare_key = key;
  if (absl::StartsWith(bare_key, "/")) bare_key.remove_prefix(1);
  if (absl::StartsWith(bare_key, kReservedKeyPrefix)) {
    return absl::InvalidArgumentError(
        absl::StrCat("cannot register shared memory region '", name, "' with key '", key,
                     "' as the key contains the reserved prefix '", kReservedKeyPrefix, "'"));
  }
  absl::MutexLock lock(&mutex_);
  if (FindRegion(name) >= 0) {
    return absl::AlreadyExistsError(
        absl::StrCat("shared memory region '", name, "' already in manager"));
  }
  int32_t index = 0;
  while (index < kClientRegionsMax && regions_[index].count.load() != 0) ++index;
  if (index == kClientRegionsMax) {
    return absl::ResourceExhaustedError(
        absl::StrCat("shared memory regions: got one more, limit ", kClientRegionsMax));
  }
  ASSIGN_OR_RETURN(const std::span<std::byte> mapping,
                   MapClientObject(name, bare_key, offset, byte_size));
  Region& region = regions_[index];
  region.watched = WatchRegion(mapping);
  if (region.watched < 0) {
    munmap(mapping.data(), mapping.size());
    return absl::ResourceExhaustedError(
        absl::StrCat("shared memory regions: got one more, limit ", kClientRegionsMax));
  }
  region.name = std::string(name);
  region.key = std::string(key);
  region.offset = offset;
  region.byte_size = byte_size;
  region.mapping = mapping;
  region.bytes = mapping.subspan(mapping.size() - byte_size);
  region.registered = true;
  regions_end_ = std::max(regions_end_, index + 1);
  region.count.store(1, std::memory_order_release);
  return absl::OkStatus();
}

absl::Status TensorPool::CheckClientShmAllowed() const {
  if (options_.allow_client_shm) return absl::OkStatus();
  return absl::UnimplementedError(
      "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to "
      "enable.");
}

absl::StatusOr<std::span<std::byte>> TensorPool::MapClientObject(absl::string_view name,
                                                                 absl::string_view bare_key,
                                                                 uint64_t offset,
                                                                 uint64_t byte_size) {
  const absl::Status cannot_open =
      absl::InternalError(absl::StrCat("Unable to open shared memory region: '", bare_key, "'"));
  // A key is one name below /dev/shm: no separator may lead elsewhere, no NUL may cut it short.
  if (bare_key.empty() || absl::StrContains(bare_key, '/') ||
      bare_key.find('\0') != absl::string_view::npos) {
    return cannot_open;
  }
  const FileDescriptor fd(shm_open(absl::StrCat("/", bare_key).c_str(), O_RDWR, 0));
  if (!fd.valid()) return cannot_open;
  struct stat status;
  if (fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) return cannot_open;
  const auto object_size = static_cast<uint64_t>(status.st_size);
  if (byte_size == 0 || offset > object_size || byte_size > object_size - offset) {
    return absl::InvalidArgumentError(ShmErrorText(name));
  }
  const uint64_t page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  const uint64_t page_offset = offset & ~(page - 1);
  const uint64_t size = byte_size + (offset - page_offset);
  void* const address = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(),
                             static_cast<off_t>(page_offset));
  if (address == MAP_FAILED) {
    return absl::ErrnoToStatus(errno, absl::StrCat("mmap shared memory region '", name, "'"));
  }
  return std::span<std::byte>(static_cast<std::byte*>(address), size);
}

void TensorPool::UnmapRegion(int32_t index) {
  Region& region = regions_[index];
  UnwatchRegion(region.watched);
  munmap(region.mapping.data(), region.mapping.size());
  region.name.clear();
  region.key.clear();
  region.mapping = region.bytes = {};
  region.watched = -1;
}

void TensorPool::Unregister(int32_t index) {
  regions_[index].registered = false;
  // Registration's own count; a lease in flight keeps the mapping.
  if (regions_[index].count.fetch_sub(1, std::memory_order_acq_rel) == 1) UnmapRegion(index);
}

absl::Status TensorPool::UnregisterClientRegion(absl::string_view name) {
  RETURN_IF_ERROR(CheckClientShmAllowed());
  absl::MutexLock lock(&mutex_);
  if (const int32_t index = FindRegion(name); index >= 0) Unregister(index);
  return absl::OkStatus();
}

absl::Status TensorPool::UnregisterAllClientRegions() {
  absl::MutexLock lock(&mutex_);
  for (int32_t i = 0; i < regions_end_; ++i) {
    if (regions_[i].registered) Unregister(i);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<ClientRegionStatus>> TensorPool::ClientRegions(
    absl::string_view name) const {
  std::vector<ClientRegionStatus> result;
  {
    absl::MutexLock lock(&mutex_);
    for (int32_t i = 0; i < regions_end_; ++i) {
      const Region& region = regions_[i];
      if (!region.registered || (!name.empty() && name != region.name)) continue;
      result.push_back({region.name, region.key, region.offset, region.byte_size});
    }
  }
  if (!name.empty() && result.empty()) {
    return absl::NotFoundError(
        absl::StrCat("Unable to find system shared memory region: '", name, "'"));
  }
  std::sort(result.begin(), result.end(),
            [](const auto& a, const auto& b) { return a.name < b.name; });
  return result;
}

absl::StatusOr<Lease> TensorPool::ClaimClientRegion(absl::string_view name, uint64_t offset,
                                                    uint64_t byte_size) {
  absl::MutexLock lock(&mutex_);
  const int32_t index = FindRegion(name);
  if (index < 0) {
    return absl::NotFoundError(absl::StrCat("Unable to find shared memory region: '", name, "'"));
  }
  Region& region = regions_[index];
  if (offset > std::numeric_limits<uint64_t>::max() - byte_size) {
    return absl::InvalidArgumentError(absl::StrCat("Integer overflow detected: offset ", offset,
                                                   " + byte size ", byte_size,
                                                   " for shared memory region: '", name, "'"));
  }
  if (offset >= region.byte_size && !(offset == region.byte_size && byte_size == 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("Invalid offset for shared memory region: '", name, "'"));
  }
  if (byte_size > region.byte_size - offset) {
    return absl::InvalidArgumentError(
        absl::StrCat("Invalid offset + byte size for shared memory region: '", name, "'"));
  }
  if (RegionFaulted(region.watched)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "shared memory region '", name, "': its object was truncated below the registered size"));
  }
  region.count.fetch_add(1, std::memory_order_relaxed);
  return Lease(this, kPoolBlocksMax + index, region.bytes.subspan(offset, byte_size));
}

}  // namespace stampmill
