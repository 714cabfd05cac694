// ProgramCursor: the order in which the commands of a program run: straight on, but for regions,
// which it leaves out or goes through several times. On the way it sets the late symbols and
// evaluates what depends on them.
//
// Dims that have no value (an overflow, a division by zero) are kBadDim and fail only those who use
// them: they may belong to a branch that is not taken.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/program/program.h"

namespace stampmill {

inline constexpr int64_t kBadDim = std::numeric_limits<int64_t>::min();

// When each dim of a program gets its value. Immutable, thread-safe.
class LateDims {
 public:
  explicit LateDims(const Program& program);

  // The late symbol behind which dim `place` is evaluated; -1: it follows from the request.
  int32_t owner(int32_t place) const { return owners_[static_cast<size_t>(place)]; }
  // Evaluates what follows from the request; its symbols are the first values.
  void EvaluateFixed(const Program& program, std::span<int64_t> values) const;
  // Sets a late symbol and evaluates what it completes. INVALID_ARGUMENT with its message when one
  // of the program's checks fails.
  absl::Status Set(const Program& program, int32_t symbol, int64_t value,
                   std::span<int64_t> values) const;
  // The same for what `region` and those in it set, all 0: it is left out.
  absl::Status SetSkipped(const Program& program, size_t region, std::span<int64_t> values) const;

 private:
  std::vector<int32_t> owners_;               // of every dim
  std::vector<std::vector<int32_t>> dims_;    // by symbol, in order
  std::vector<std::vector<int32_t>> checks_;  // by symbol
  std::vector<std::vector<int32_t>> within_;  // by region: symbols that are set in it, in order
};

// Owned by one thread; borrows the program and its late dims. Allocates only when made.
class ProgramCursor {
 public:
  ProgramCursor(const Program* program, const LateDims* late);

  void Begin();
  static constexpr int32_t kEnd = -1;
  static constexpr int32_t kNoneYet = -2;
  // The next command; kEnd behind the last; kNoneYet after many iterations without any, to be asked
  // again. INVALID_ARGUMENT when how to go on has no value.
  absl::StatusOr<int32_t> Next(std::span<int64_t> values);

 private:
  // Enters the region `next_region_` or goes past it.
  absl::Status Enter(std::span<int64_t> values);
  // At the end of the innermost region: on to its next iteration or out of it.
  absl::Status EndIteration(std::span<int64_t> values);
  absl::StatusOr<int64_t> Value(int32_t place, std::span<const int64_t> values) const;

  struct Frame {
    size_t region = 0;
    int64_t count = 0, iteration = 0;
  };
  const Program& program_;
  const LateDims& late_;
  std::vector<size_t> after_;  // by region: the next one that does not lie in it
  std::vector<Frame> frames_;
  int32_t position_ = 0;
  size_t next_region_ = 0;
};

}  // namespace stampmill
