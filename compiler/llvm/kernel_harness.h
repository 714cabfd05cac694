// For tests: compiles a stage, loads the library as the CPU device does and runs it on buffers that
// end (or begin) at a page that must not be touched, so that reading or writing outside an operand
// kills the test.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/llvm/codegen.h"
#include "devices/artifact.h"
#include "devices/target.h"
#include "graph/dim.h"
#include "graph/nest.h"
#include "graph/tensor.h"

namespace stampmill {

// Memory with a forbidden page on one side.
class GuardedBuffer {
 public:
  enum class Side { kAfter, kBefore };
  GuardedBuffer(size_t size, Side side);
  ~GuardedBuffer();
  GuardedBuffer(const GuardedBuffer&) = delete;
  GuardedBuffer& operator=(const GuardedBuffer&) = delete;
  std::byte* data() const { return data_; }

 private:
  std::byte* mapping_ = nullptr;
  size_t mapping_size_ = 0;
  std::byte* data_ = nullptr;
};

class CompiledStage {
 public:
  static absl::StatusOr<CompiledStage> Compile(const StageBody& body, const Target& target);

  // The same code for a body that has the same canonical bytes.
  CompiledStage WithBody(const StageBody& body) const;

  struct Options {
    GuardedBuffer::Side side = GuardedBuffer::Side::kAfter;
    int64_t tasks_per_call = 1;
    bool reverse = false;  // the last tasks first
  };
  // Writes `outputs`, whose contents before are the output buffers'.
  absl::Status Run(std::span<const Tensor> operands, std::span<Tensor> outputs,
                   const DimExpr::SymbolValue& symbols, const Options& options) const;

 private:
  StageBody body_;
  Target target_;
  CpuKernel kernel_ = nullptr;
};

// Loads the code of an artifact for the rest of the process.
absl::StatusOr<const CpuLibrary*> LoadLibrary(const std::string& artifact);

// The classes of CPU code that this machine runs.
std::vector<Target> RunnableTargets();

// Values that fit the dtype: small integers, floats around zero.
Tensor RandomTensor(DType dtype, std::vector<int64_t> shape, uint32_t seed);
// Symbols by name.
DimExpr::SymbolValue SymbolValues(std::map<std::string, int64_t> values);

struct Tolerance {
  double relative = 1e-5;
  double absolute = 1e-6;
};
// OK when every element of `actual` is within tolerance of `expected` (integers: equal; NaN equals
// NaN); else says where not.
absl::Status CompareTensors(const Tensor& actual, const Tensor& expected, Tolerance tolerance);

// Compiles `body`, and `Simplify(body)`, for every runnable target; runs them on operands made from
// `seed` with several splits of the tasks and compares with the reference interpreter. `operands`
// that are valid take the place of random ones.
absl::Status CheckStage(const StageBody& body, const std::map<std::string, int64_t>& symbols,
                        std::vector<Tensor> operands, uint32_t seed, Tolerance tolerance);

}  // namespace stampmill
