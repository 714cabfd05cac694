// The device seam: memory, queues, loading and launching, for a CPU, a discrete GPU and an NPU that
// runs whole programs alike. devices/README.md says how each backend fills it.
//
// A Device owns one piece of hardware. Work is given as data: a list of Commands submitted to a
// Queue, an ordered timeline. Completion wakes a Waker; nobody blocks.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/waker.h"
#include "devices/artifact.h"
#include "devices/target.h"
#include "devices/timeline.h"

namespace stampmill {

class Device;

// Move-only ownership of memory on one device; destruction returns it. Work queued against it must
// have finished. `address` is a host pointer on devices that share the host's memory.
class Buffer {
 public:
  Buffer() = default;
  Buffer(Device* device, uint64_t address, size_t size_bytes, uint64_t token)
      : device_(device), address_(address), size_bytes_(size_bytes), token_(token) {}
  Buffer(Buffer&& other) noexcept;
  Buffer& operator=(Buffer&& other) noexcept;
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  ~Buffer();

  bool valid() const { return device_ != nullptr; }
  Device* device() const { return device_; }
  uint64_t address() const { return address_; }
  size_t size_bytes() const { return size_bytes_; }
  uint64_t token() const { return token_; }  // the backend's own handle

 private:
  Device* device_ = nullptr;
  uint64_t address_ = 0;
  size_t size_bytes_ = 0;
  uint64_t token_ = 0;
};

// A range of device memory that somebody else keeps alive until the work that names it is done.
struct BufferRef {
  uint64_t address = 0;
  uint64_t size_bytes = 0;
};

// Immutable loaded code on one Device; launchable from any of its queues. An executable has one or
// more entries (kernels), found by index in the artifact's table. Thread-safe. It must outlive the
// work that launches it.
class Executable {
 public:
  // `device` is the one whose queues may launch it.
  explicit Executable(const Device* device) : device_(device) {}
  virtual ~Executable() = default;
  Executable(const Executable&) = delete;
  Executable& operator=(const Executable&) = delete;

  const Device* device() const { return device_; }
  virtual int32_t entry_count() const = 0;
  // Index of the entry named `name`, NOT_FOUND else.
  virtual absl::StatusOr<int32_t> FindEntry(absl::string_view name) const = 0;

 private:
  const Device* const device_;
};

// Either side may be host memory that the device imported. The ranges have one size and are the
// same or do not overlap.
struct CopyCommand {
  BufferRef source, target;
};
struct FillCommand {
  BufferRef target;
  uint8_t value = 0;
};
struct LaunchCommand {
  const Executable* executable = nullptr;
  int32_t entry = 0;
  // Parameters in the order of the kernel's descriptor; at most kLaunchBuffersMax.
  std::span<const BufferRef> buffers;
  std::span<const int64_t> dims;
  int64_t tasks = 0;  // independent tasks, 0: nothing runs; on a GPU the grid follows from dims
  int64_t scratch_bytes = 0;  // for each task that runs at the same time
  // Predicted time of all tasks on one thread. 0: unknown, which counts as long. The CPU runs short
  // work on the caller and cuts launches into pieces by it.
  int64_t nanos_estimate = 0;
};
// The queue's timeline reaches `value`; in one queue each is greater than the one before.
struct SignalCommand {
  uint64_t value = 0;
};
// What follows starts only when `queue`, of any device, has passed `value`. It must come to pass it
// or be destroyed, and must outlive this command. If it failed before that value, so does this one.
struct WaitCommand {
  class Queue* queue = nullptr;
  uint64_t value = 0;
};
using Command = std::variant<CopyCommand, FillCommand, LaunchCommand, SignalCommand, WaitCommand>;

// An ordered timeline. Submit returns at once; short work may run inside it, so look at completed()
// after it: a signal that passed in there bumps no waker. The first failure sticks: later work is
// dropped, and `completed` still passes each signal, so that nobody waits for ever; status() says
// what failed. Submit is called by one thread at a time, the rest by any.
class Queue {
 public:
  // `waker` may be null; it outlives the queue.
  explicit Queue(Waker* waker) : timeline_(waker) {}
  // Waits for submitted work, waits for other queues included.
  virtual ~Queue() = default;
  Queue(const Queue&) = delete;
  Queue& operator=(const Queue&) = delete;

  // The list itself and everything in it is borrowed: it must stay as it is until the queue passes
  // a signal at or behind its end, or is destroyed. An error means that nothing of the list was
  // taken: INVALID_ARGUMENT when a command is malformed, RESOURCE_EXHAUSTED when kQueueListsMax
  // lists are under way, the sticky failure when there is one.
  virtual absl::Status Submit(std::span<const Command> commands) = 0;

  // The highest signal value passed.
  uint64_t completed() const { return timeline_.completed(); }
  absl::Status status() const { return timeline_.status(); }
  // Blocks until `value` has passed; returns status(). For tools and tests; the engine sleeps on
  // its waker.
  absl::Status Synchronize(uint64_t value) { return timeline_.Wait(value); }
  // For other backends' queues, which park on it.
  Timeline& timeline() { return timeline_; }

 protected:
  Timeline timeline_;
};

struct DeviceInfo {
  std::string id;    // "cpu", "cuda:0", "npu:0"
  std::string name;  // of the hardware, for people
  Target target;     // the best class of code it runs
  int64_t memory_bytes = 0;
  int32_t threads = 0;  // workers (CPU), multiprocessors (GPU), columns (NPU)
  bool emulated = false;
  bool host_memory = false;  // device addresses are host pointers; imports cost nothing
};

// Thread-safe; outlives all it hands out.
class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  // RESOURCE_EXHAUSTED when there is no room. Aligned to 64 bytes at least. Contents unspecified.
  // Size 0 gives a valid buffer without room.
  virtual absl::StatusOr<Buffer> Allocate(size_t size_bytes) = 0;
  // Makes host memory usable by this device's queues. The caller keeps the memory alive and mapped
  // as long as the Buffer. UNIMPLEMENTED where the hardware cannot: the caller then copies. Without
  // `writable` the device only reads it.
  virtual absl::StatusOr<Buffer> Import(std::span<std::byte> host, bool writable) = 0;
  // Code must match the device: INVALID_ARGUMENT for another kind or a higher class of target, a
  // wrong ABI version or digest. `artifact` was verified by its owner and is borrowed for the call.
  virtual absl::StatusOr<std::shared_ptr<const Executable>> Load(const Artifact& artifact) = 0;
  // `waker` (may be null) is bumped whenever a signal passes outside Submit or the queue fails; it
  // outlives the queue.
  virtual absl::StatusOr<std::unique_ptr<Queue>> CreateQueue(Waker* waker) = 0;

 private:
  friend class Buffer;
  virtual void Release(Buffer& buffer) = 0;
};

}  // namespace stampmill
