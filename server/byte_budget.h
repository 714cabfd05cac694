// ByteBudget: a bound on the bytes that the requests of all connections hold together
// (--max-inflight-bytes). Whoever reads a request claims what it takes in; beyond the bound it
// refuses the request instead.
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

namespace stampmill {

// Thread-safe. Outlives its claims.
class ByteBudget {
 public:
  explicit ByteBudget(uint64_t bytes_max) : bytes_max_(bytes_max) {}

  // Bytes held; returned on destruction. Move-only, used by one thread at a time.
  class Claim {
   public:
    Claim() = default;
    Claim(Claim&& other) noexcept
        : budget_(std::exchange(other.budget_, nullptr)), bytes_(std::exchange(other.bytes_, 0)) {}
    Claim& operator=(Claim&& other) noexcept {
      std::swap(budget_, other.budget_);
      std::swap(bytes_, other.bytes_);
      return *this;
    }
    ~Claim() {
      if (budget_ != nullptr) budget_->used_.fetch_sub(bytes_, std::memory_order_relaxed);
    }
    uint64_t bytes() const { return bytes_; }

   private:
    friend class ByteBudget;
    ByteBudget* budget_ = nullptr;
    uint64_t bytes_ = 0;
  };

  // Makes `claim` one of `bytes` in all. False, and nothing changes, when they would be too many.
  bool Grow(Claim& claim, uint64_t bytes) {
    if (bytes <= claim.bytes_) return true;
    const uint64_t more = bytes - claim.bytes_;
    if (used_.fetch_add(more, std::memory_order_relaxed) + more > bytes_max_) {
      used_.fetch_sub(more, std::memory_order_relaxed);
      return false;
    }
    claim.budget_ = this;
    claim.bytes_ = bytes;
    return true;
  }

  uint64_t used_bytes() const { return used_.load(std::memory_order_relaxed); }
  uint64_t bytes_max() const { return bytes_max_; }

 private:
  const uint64_t bytes_max_;
  std::atomic<uint64_t> used_{0};
};

}  // namespace stampmill
