// The node tests of the onnx package as C++ sees them: models with inputs and the outputs that the
// specification asks for, read from the file that export.py writes, and run by an Executor: the
// reference interpreter, the lowerings under the nest interpreter, or compiled code.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "graph/graph.h"
#include "graph/tensor.h"

namespace stampmill {

struct CaseValue {
  enum class Kind : uint8_t { kTensor = 0, kLeftOut = 1, kOther = 2 };
  std::string name;
  Kind kind = Kind::kOther;
  Tensor tensor;  // kTensor
};

struct NodeCase {
  std::string name;
  std::string model;  // bytes of a ModelProto
  std::vector<CaseValue> inputs;
  std::vector<CaseValue> outputs;
};

// All cases of the file, in order of name. INVALID_ARGUMENT for a file that is something else.
absl::StatusOr<std::vector<NodeCase>> ReadNodeCases(const std::string& path);

// Whether the case needs values that no Tensor holds: sequences, optionals without a value,
// strings, complex numbers, elements below 8 bits or of 8-bit float types.
bool HasOtherValues(const NodeCase& node_case);

// Runs a graph as imported on inputs in the order of graph.inputs().
using Executor =
    std::function<absl::StatusOr<std::vector<Tensor>>(Graph graph, std::span<const Tensor> inputs)>;

// Imports the case's model, executes it and compares every output: floats within 1e-3 relative and
// 1e-7 absolute (the least that the type can tell for f16 and bf16), the rest equal.
absl::Status RunNodeCase(const NodeCase& node_case, const Executor& executor);

// Why cases do not pass: lines "NAME REASON" or "op:OPERATOR REASON"; # begins a comment line. A
// case is listed when its name is, or an operator of its model.
class NotPassing {
 public:
  static absl::StatusOr<NotPassing> Parse(absl::string_view text);
  // The reason; empty when the case must pass.
  std::string Reason(const NodeCase& node_case) const;
  // What is listed, without "op:".
  std::vector<std::string> Names() const;
  std::vector<std::string> Operators() const;

 private:
  absl::flat_hash_map<std::string, std::string> names_;
  absl::flat_hash_map<std::string, std::string> operators_;
};

// The whole of a test program: a gtest case for every node case, which passes when `executor` gives
// the right outputs, or is skipped with its reason when one of `lists` (files) says that it does
// not; a case that is listed and passes fails. Prints a summary. Call after InitGoogleTest; returns
// the exit status.
int RunNodeTests(const std::string& cases, std::span<char* const> lists, const Executor& executor);

}  // namespace stampmill
