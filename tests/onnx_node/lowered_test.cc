// The node tests of the onnx package on the lowerings: every node of a model is inferred, lowered
// and run by the nest interpreter, without a compiler. Twice: with the shapes of the case, and with
// a symbol for every extent, as a model with dynamic dims has.
//
// A case is tried with all of its inputs as inputs of the model first; where an operator must know
// contents or dims when it is compiled, with more and more of them fixed.
#include <cstdio>
#include <map>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "gtest/gtest.h"
#include "kernels/op.h"
#include "kernels/testing/stage_recorder.h"
#include "tests/onnx_node/node_cases.h"

namespace stampmill {
namespace {

using Symbols = std::map<std::string, int64_t>;

// Which inputs get symbols for their dims.
enum class Dynamic { kNone, kFirst, kAll };

// Equal extents get one symbol; 1 stays, since models rely on broadcasting it.
Symbols MakeDimsSymbolic(Graph& graph, std::span<const Tensor> inputs, Dynamic dynamic) {
  Symbols symbols;
  if (dynamic == Dynamic::kNone) return symbols;
  for (size_t i = 0; i < inputs.size() && (i == 0 || dynamic == Dynamic::kAll); ++i) {
    Value& value = graph.value(graph.inputs()[i]);
    if (value.constant.has_value()) continue;
    Shape shape;
    for (const int64_t extent : inputs[i].shape()) {
      if (extent == 1) {
        shape.emplace_back(1);
        continue;
      }
      const std::string name = absl::StrCat("E", extent);
      symbols[name] = extent;
      shape.push_back(DimExpr::Symbol(name));
    }
    value.shape = std::move(shape);
  }
  return symbols;
}

absl::StatusOr<std::vector<Tensor>> RunLowered(Graph graph, std::span<const Tensor> inputs,
                                               const Symbols& symbols, bool fold) {
  InferOptions options;
  options.fold_constants = fold;
  RETURN_IF_ERROR(InferShapes(graph, options));
  const DimExpr::SymbolValue symbol = [&](absl::string_view name) -> std::optional<int64_t> {
    const auto found = symbols.find(std::string(name));
    return found == symbols.end() ? std::nullopt : std::optional<int64_t>(found->second);
  };
  for (const DimCheck& check : graph.checks()) {
    ASSIGN_OR_RETURN(const int64_t holds, check.nonzero.Evaluate(symbol));
    if (holds == 0) return absl::InvalidArgumentError(check.message);
  }
  std::vector<Tensor> values(graph.value_count());
  for (size_t i = 0; i < inputs.size(); ++i) {
    values[static_cast<size_t>(graph.inputs()[i])] = inputs[i];
  }
  for (const NodeId id : graph.Order()) {
    ASSIGN_OR_RETURN(const OpDefinition* op, RequireOp(graph.node(id)));
    StageRecorder recorder(graph, id);
    RETURN_IF_ERROR(LowerNode(*op, recorder));
    RETURN_IF_ERROR(recorder.Run(values, symbol));
  }
  std::vector<Tensor> outputs;
  for (const ValueId id : graph.outputs()) {
    const Tensor& tensor = values[static_cast<size_t>(id)];
    const Value& value = graph.value(id);
    if (!tensor.valid() && !value.constant.has_value()) {
      return absl::InternalError(absl::StrCat("output '", value.name, "' is not written"));
    }
    outputs.push_back(tensor.valid() ? tensor : *value.constant);
  }
  return outputs;
}

struct Attempt {
  Dynamic dynamic;
  int fix_level;
  bool fold;  // where all inputs are constants, folding would leave nothing to lower
};

absl::StatusOr<std::vector<Tensor>> Run(const Graph& graph, std::span<const Tensor> inputs,
                                        bool is_symbolic) {
  std::vector<Attempt> attempts;
  for (const Dynamic dynamic : {Dynamic::kAll, Dynamic::kFirst, Dynamic::kNone}) {
    if (is_symbolic != (dynamic != Dynamic::kNone)) continue;
    attempts.push_back({dynamic, 0, true});
    for (const bool fold : {false, true}) {
      for (int level = 1; level <= kFixLevelMax; ++level)
        attempts.push_back({dynamic, level, fold});
    }
  }
  absl::StatusOr<std::vector<Tensor>> outputs;
  for (const Attempt& attempt : attempts) {
    Graph copy = graph;
    FixSmallInputs(copy, inputs, attempt.fix_level);
    const Symbols symbols = MakeDimsSymbolic(copy, inputs, attempt.dynamic);
    outputs = RunLowered(std::move(copy), inputs, symbols, attempt.fold);
    // Wrong answers and errors of ours are not tried again.
    const bool wants_more =
        absl::IsUnimplemented(outputs.status()) || absl::IsInvalidArgument(outputs.status());
    if (!wants_more) break;
  }
  return outputs;
}

}  // namespace
}  // namespace stampmill

// lowered_test fixed|symbolic CASES LIST...
int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc < 3) return 2;
  const bool is_symbolic = std::string(argv[1]) == "symbolic";
  return stampmill::RunNodeTests(
      argv[2], std::span(argv + 3, argv + argc),
      [&](const stampmill::Graph& graph, std::span<const stampmill::Tensor> inputs) {
        return stampmill::Run(graph, inputs, is_symbolic);
      });
}
