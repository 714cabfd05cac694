// BoundedRing: a bounded queue of small values between any number of producers and consumers
// without a lock: Dmitry Vyukov's array with a sequence number a cell. Allocates only when made.
// Push and Pop never block: a full ring refuses, an empty one gives nothing. A ring may look full
// or empty while another thread is in the middle of its Pop or Push. Thread-safe.
#pragma once

#include <atomic>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <type_traits>

namespace stampmill {

template <typename T>
class BoundedRing {
  static_assert(std::is_trivially_copyable_v<T>);

 public:
  // Holds at least `capacity` values.
  explicit BoundedRing(size_t capacity)
      : mask_(std::bit_ceil(capacity < 2 ? size_t{2} : capacity) - 1),
        cells_(std::make_unique<Cell[]>(mask_ + 1)) {
    for (size_t i = 0; i <= mask_; ++i) cells_[i].sequence.store(i, std::memory_order_relaxed);
  }

  // False when full.
  bool Push(T value) {
    size_t at = tail_.load(std::memory_order_relaxed);
    for (;;) {
      Cell& cell = cells_[at & mask_];
      const size_t sequence = cell.sequence.load(std::memory_order_acquire);
      const auto distance = static_cast<intptr_t>(sequence - at);
      if (distance == 0) {
        if (tail_.compare_exchange_weak(at, at + 1, std::memory_order_relaxed)) {
          cell.value = value;
          cell.sequence.store(at + 1, std::memory_order_release);
          return true;
        }
      } else if (distance < 0) {
        return false;
      } else {
        at = tail_.load(std::memory_order_relaxed);
      }
    }
  }

  // For rings that have a place for every value there is: looks full only while another thread is
  // in the middle of a Pop, which this waits for.
  void PushCertainly(T value) {
    while (!Push(value)) std::this_thread::yield();
  }

  std::optional<T> Pop() {
    size_t at = head_.load(std::memory_order_relaxed);
    for (;;) {
      Cell& cell = cells_[at & mask_];
      const size_t sequence = cell.sequence.load(std::memory_order_acquire);
      const auto distance = static_cast<intptr_t>(sequence - (at + 1));
      if (distance == 0) {
        if (head_.compare_exchange_weak(at, at + 1, std::memory_order_relaxed)) {
          const T value = cell.value;
          cell.sequence.store(at + mask_ + 1, std::memory_order_release);
          return value;
        }
      } else if (distance < 0) {
        return std::nullopt;
      } else {
        at = head_.load(std::memory_order_relaxed);
      }
    }
  }

 private:
  struct Cell {
    std::atomic<size_t> sequence;
    T value;
  };
  const size_t mask_;
  const std::unique_ptr<Cell[]> cells_;
  alignas(64) std::atomic<size_t> tail_{0};
  alignas(64) std::atomic<size_t> head_{0};
};

}  // namespace stampmill
