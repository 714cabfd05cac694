// What tests of altered and of random models expect of every one.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "compiler/onnx/importer.h"
#include "graph/tensor.h"
#include "tests/onnx_node/node_cases.h"

namespace stampmill {

using Outputs = absl::StatusOr<std::vector<Tensor>>;

// A model of a case, imported. The importer's tensors look into `bytes`.
absl::StatusOr<ImportedModel> ImportCase(const NodeCase& node_case);
// The case's inputs in the order of the graph's; fewer where it has none of a name.
std::vector<Tensor> InputsOf(const NodeCase& node_case, const Graph& graph);

// Expects an error that says what is wrong and with what: a node, or what the file itself has.
void ExpectClearError(const absl::Status& status);
// Expects equal results, up to rounding. `whose`: where `want` comes from, for the message.
void ExpectSame(const std::vector<Tensor>& got, const std::vector<Tensor>& want,
                const std::string& whose);
// The same of the outputs that the case has results for.
void ExpectOracle(const NodeCase& node_case, const Graph& graph,
                  const std::vector<Tensor>& outputs);

}  // namespace stampmill
