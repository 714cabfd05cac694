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
// more entries (kernels), found by index in the artifact's table. Thread-safe.
class Executable {
 public:
  virtual ~Executable() = default;
  virtual int32_t entry_count() const = 0;
  // Index of the entry named `name`, NOT_FOUND else.
  virtual absl::StatusOr<int32_t> FindEntry(absl::string_view name) const = 0;
};

struct CopyCommand {
  BufferRef source, target;  // same size; either side may be host memory imported by the device
};
struct FillCommand {
  BufferRef target;
  uint8_t value = 0;
};
struct LaunchCommand {
  const Executable* executable = nullptr;
  int32_t entry = 0;
  // Parameters in the order of the kernel's descriptor. Borrowed until the queue passes this point.
  std::span<const BufferRef> buffers;
  std::span<const int64_t> dims;
  int64_t tasks = 0;             // independent tasks; on a GPU the grid follows from dims
  int64_t scratch_bytes = 0;     // for each task that runs at the same time
  int64_t nanos_estimate = 0;    // 0: unknown; lets the CPU run short work on the caller
};
struct SignalCommand {
  uint64_t value = 0;            // the queue's timeline reaches it; values only go up
};
struct WaitCommand {
  class Queue* queue = nullptr;  // another queue of any device
  uint64_t value = 0;
};
using Command = std::variant<CopyCommand, FillCommand, LaunchCommand, SignalCommand, WaitCommand>;

// An ordered timeline. Submit returns at once (short work may run inside it, decision 31). The
// first failure sticks: later work is dropped, and `completed` still passes each signal, so that
// nobody waits for ever; status() says what failed. Submit is called by one thread at a time, the
// rest by any.
class Queue {
 public:
  virtual ~Queue() = default;  // waits for submitted work
  // What the commands borrow must stay until a signal after it is reached. INVALID_ARGUMENT when a
  // command is malformed (nothing of the list runs), the sticky failure when there is one.
  virtual absl::Status Submit(std::span<const Command> commands) = 0;
  // The highest signal value passed.
  virtual uint64_t completed() const = 0;
  virtual absl::Status status() const = 0;
  // Blocks until `value` has passed; returns status(). For tools and tests; the engine sleeps on
  // its waker.
  virtual absl::Status Synchronize(uint64_t value) = 0;
};

struct DeviceInfo {
  std::string id;           // "cpu", "cuda:0", "npu:0"
  std::string name;         // of the hardware, for people
  Target target;            // the best class of code it runs
  int64_t memory_bytes = 0;
  int32_t threads = 0;      // workers (CPU), multiprocessors (GPU), columns (NPU)
  bool emulated = false;
  bool host_memory = false; // device addresses are host pointers; imports cost nothing
};

// Thread-safe; outlives all it hands out.
class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  // RESOURCE_EXHAUSTED when there is no room. Aligned to 64 bytes at least. Contents unspecified.
  virtual absl::StatusOr<Buffer> Allocate(size_t size_bytes) = 0;
  // Makes host memory usable by this device's queues. The caller keeps the memory alive and mapped
  // as long as the Buffer. UNIMPLEMENTED where the hardware cannot: the caller then copies.
  virtual absl::StatusOr<Buffer> Import(std::span<std::byte> host, bool writable) = 0;
  // Code must match the device: INVALID_ARGUMENT for another kind or a higher class of target, a
  // wrong ABI version or digest. `artifact` was verified by its owner and is borrowed for the call.
  virtual absl::StatusOr<std::shared_ptr<const Executable>> Load(const Artifact& artifact) = 0;
  // `waker` is bumped whenever a signal passes or the queue fails; it outlives the queue.
  virtual absl::StatusOr<std::unique_ptr<Queue>> CreateQueue(Waker* waker) = 0;

 private:
  friend class Buffer;
  virtual void Release(Buffer& buffer) = 0;
};

}  // namespace stampmill
