// HugePageMove: memory that is only read is moved into huge pages while others read it. A mapped
// file lies in pages of 4 KiB, wherever the system had some; what streams through all of it at
// every step, as a language model does through its weights, then waits for translations of
// addresses.
#pragma once

#include <atomic>
#include <cstddef>
#include <span>
#include <thread>

namespace stampmill {

class HugePageMove {
 public:
  // Begins at once, on a thread of its own. `bytes` is read-only memory of a private mapping, which
  // stays mapped as long as this lives, and whose contents nobody changes. Its addresses stay as
  // they are and can be read at any time meanwhile: pieces are copied, and each copy takes the
  // place of what it was copied from in one step. What is no whole huge page stays where it is; all
  // does when the system has no memory for it or no huge pages.
  explicit HugePageMove(std::span<const std::byte> bytes);
  // Does not wait for pieces that are not begun.
  ~HugePageMove();
  HugePageMove(const HugePageMove&) = delete;
  HugePageMove& operator=(const HugePageMove&) = delete;

  // Until all is moved, or no more can be.
  void Wait();
  size_t moved_bytes() const { return moved_.load(std::memory_order_acquire); }

 private:
  void Run(std::span<const std::byte> bytes);

  std::atomic<bool> stop_{false};
  std::atomic<size_t> moved_{0};
  std::thread thread_;
};

}  // namespace stampmill
