// TensorPool: the daemon's shared-memory arena and the client regions registered with it; a Lease
// is a counted claim on a range of either.
//
// The arena is one memfd of fixed size, reserved at start and touched when used; a good-fit
// allocator over preallocated block records serves it, so that allocating calls no malloc. Client
// regions are POSIX shared memory that a client named; every handle from a client is untrusted:
// offsets and sizes are checked without overflow against the object, a region with leases outlives
// its unregistering, and a client that truncates the object under the daemon costs it the pages'
// contents and the request, never the daemon (a SIGBUS handler, see region_fault.h).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "base/file.h"
#include "base/waker.h"
#include "runtime/limits.h"

namespace stampmill {

class TensorPool;

// A counted claim on bytes of a TensorPool, which outlives it. Copies share the claim; the last one
// to go returns the range. Copying and dropping allocate nothing and take the pool's lock only for
// the last. Distinct copies may be used by distinct threads.
class Lease {
 public:
  Lease() = default;
  Lease(const Lease& other);
  Lease(Lease&& other) noexcept;
  Lease& operator=(Lease other) noexcept;
  ~Lease();

  bool valid() const { return pool_ != nullptr; }
  std::span<std::byte> bytes() const { return bytes_; }
  // Part of the same claim. REQUIRES: offset + size <= bytes().size().
  Lease Slice(size_t offset, size_t size) const;
  // The claim is on a client's region.
  bool client_owned() const;
  // OK, or INVALID_ARGUMENT naming the client region whose object was truncated since it was
  // registered. To be asked after the bytes were read or written: what was read is zeros in part.
  absl::Status CheckIntact() const;

 private:
  friend class TensorPool;
  Lease(TensorPool* pool, int32_t claim, std::span<std::byte> bytes)
      : pool_(pool), claim_(claim), bytes_(bytes) {}
  TensorPool* pool_ = nullptr;
  int32_t claim_ = -1;  // block index, or kPoolBlocksMax + region index
  std::span<std::byte> bytes_;
};

struct ClientRegionStatus {
  std::string name, key;
  uint64_t offset = 0;
  uint64_t byte_size = 0;
};

struct TensorPoolOptions {
  uint64_t size_bytes = uint64_t{256} << 20;  // --pinned-memory-pool-byte-size
  bool allow_client_shm = false;              // --allow-client-shm
};

// Thread-safe. Must outlive its leases.
class TensorPool {
 public:
  static absl::StatusOr<std::unique_ptr<TensorPool>> Create(const TensorPoolOptions& options);
  // REQUIRES: no lease lives.
  ~TensorPool();

  // A range of `size_bytes` (0 is allowed) aligned to 64. Contents unspecified.
  // RESOURCE_EXHAUSTED: "tensor pool: got N bytes, limit M free of T".
  absl::StatusOr<Lease> Allocate(uint64_t size_bytes);

  // Wakes `waker` once when the next lease on the arena ends. Then, or by ForgetWaker, it is
  // forgotten. To miss nothing: read releases(), ask, read again.
  void WakeOnRelease(Waker* waker);
  void ForgetWaker(Waker* waker);
  uint64_t releases() const { return releases_.load(std::memory_order_seq_cst); }

  // Gives the pages of free blocks back to the system; they read as zeros when used again. Cheap
  // when nothing was allocated since the last call. For idle times.
  void ReturnFreePages();

  uint64_t size_bytes() const { return arena_.size(); }
  uint64_t used_bytes() const { return used_bytes_.load(std::memory_order_relaxed); }
  std::span<std::byte> arena() const { return arena_; }

  // Client regions, with Triton's codes and texts (reference: system shared memory extension).
  // UNIMPLEMENTED when client shared memory is off; ALREADY_EXISTS, INVALID_ARGUMENT, INTERNAL for
  // an object that cannot be opened, RESOURCE_EXHAUSTED beyond kClientRegionsMax.
  absl::Status RegisterClientRegion(absl::string_view name, absl::string_view key, uint64_t offset,
                                    uint64_t byte_size);
  // Unknown names are OK. A region with leases is unmapped when the last one is dropped; its name
  // is free at once.
  absl::Status UnregisterClientRegion(absl::string_view name);
  absl::Status UnregisterAllClientRegions();
  // All regions in order of name, or the named one: NOT_FOUND "Unable to find system shared memory
  // region: 'N'". Answers also when client shared memory is off.
  absl::StatusOr<std::vector<ClientRegionStatus>> ClientRegions(absl::string_view name) const;
  // A lease on a part of a region. NOT_FOUND "Unable to find shared memory region: 'N'";
  // INVALID_ARGUMENT with Triton's texts for a range outside of it.
  absl::StatusOr<Lease> ClaimClientRegion(absl::string_view name, uint64_t offset,
                                          uint64_t byte_size);

  // Free and used blocks tile the arena, counts agree. CHECK-fails else.
  void CheckInvariants() const;

 private:
  friend class Lease;
  struct Block;
  struct Region;

  explicit TensorPool(const TensorPoolOptions& options);
  absl::Status MapArena();
  std::atomic<int32_t>& claim_count(int32_t claim) const;
  void ReleaseClaim(int32_t claim);
  // Allocator over block records.
  int32_t TakeFreeBlock(uint64_t size) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void InsertFree(int32_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RemoveFree(int32_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void FreeBlock(int32_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AbsorbNext(int32_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int32_t NewRecord() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  uint64_t LargestFreeBytes() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  int32_t FindRegion(absl::string_view name) const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void UnmapRegion(int32_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Unregister(int32_t index) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::Status CheckClientShmAllowed() const;
  static absl::StatusOr<std::span<std::byte>> MapClientObject(absl::string_view name,
                                                              absl::string_view bare_key,
                                                              uint64_t offset, uint64_t byte_size);

  static constexpr int kSizeClasses = 48 * 4;  // four a power of two

  const TensorPoolOptions options_;
  FileDescriptor arena_file_;
  std::span<std::byte> arena_;
  std::atomic<uint64_t> used_bytes_{0};
  std::atomic<uint64_t> releases_{0};

  mutable absl::Mutex mutex_;
  std::unique_ptr<Block[]> blocks_;  // counts are atomic, the rest is guarded by mutex_
  std::array<Waker*, kReleaseWakersMax> release_wakers_ ABSL_GUARDED_BY(mutex_) = {};
  bool touched_ ABSL_GUARDED_BY(mutex_) = false;  // allocated since ReturnFreePages
  int32_t unused_records_ ABSL_GUARDED_BY(mutex_) = -1;
  int32_t free_heads_[kSizeClasses] ABSL_GUARDED_BY(mutex_);
  std::unique_ptr<Region[]> regions_;                // likewise
  int32_t regions_end_ ABSL_GUARDED_BY(mutex_) = 0;  // records from here on were never used
};

}  // namespace stampmill
