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

}  // namespace stampmill
