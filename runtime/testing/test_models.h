// Small models for tests of the runtime: hand-written programs over the kernels of the device
// tests, so that no compiler is needed.
#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/program/program.h"
#include "runtime/model.h"

namespace stampmill {

struct AddModelOptions {
  int64_t columns = 4;  // -1: a symbol, "S"
  int32_t addend = 1;
  bool batchable = true;
  int64_t index_limit = 0;  // > 0, of the image: elements of IN are in [-it, it - 1]
  int64_t rows_max = -1;    // >= 0: a check of the program fails requests with more rows
  bool second_output = false;
  bool fail = false;          // the second launch fails
  int64_t nanos_per_row = 0;  // > 0: tells the device that a row takes so long
};

// IN i32 [N, columns] -> OUT = IN + 2 * addend, by two launches through a temporary; with
// `second_output` also COPY = IN + addend, by a copy of that temporary.
Program MakeAddProgram(const AddModelOptions& options);
absl::StatusOr<ModelImage> MakeAddModel(const AddModelOptions& options);

struct RepeatModelOptions {
  enum class Trips { kFixed, kInput, kRead, kWhile };
  Trips trips = Trips::kFixed;
  int64_t count = 3;  // kFixed: iterations; else the most there are
  bool guarded = false;
};

// IN i32 [N, 4], COUNT i64 [1] -> OUT = IN + as many as there are iterations: count (kFixed),
// COUNT, as a value symbol (kInput), the first element of IN, which the host reads (kRead), or as
// many until it reads that the first element has reached 0 (kWhile). What is carried takes turns in
// two places. `guarded`: the repeat is left out where N > 2.
Program MakeRepeatProgram(const RepeatModelOptions& options);
absl::StatusOr<ModelImage> MakeRepeatModel(const RepeatModelOptions& options);

// IN i32 [N, 4] -> OUT i32 [found, 4], the first rows of IN: as many as its first element says,
// which the host reads.
absl::StatusOr<ModelImage> MakePrefixModel();

}  // namespace stampmill
