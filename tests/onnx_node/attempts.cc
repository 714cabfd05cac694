#include "tests/onnx_node/attempts.h"

#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace stampmill {
namespace {

// Which inputs get symbols for their dims.
enum class Dynamic { kNone, kFirst, kAll };

struct Attempt {
  Dynamic dynamic;
  int fix_level;
  bool fold;
};
constexpr int kFixLevelMax = 2;

// Makes constants of inputs, which stay in graph.inputs(): at level 1 those of rank 0 and integers
// and bools of rank 1; at level 2 all of rank 1 with at most 8 elements as well.
void FixSmallInputs(Graph& graph, std::span<const Tensor> inputs, int level) {
  for (size_t i = 0; i < inputs.size(); ++i) {
    const Tensor& tensor = inputs[i];
    const bool is_scalar = tensor.rank() == 0;
    const bool is_list = tensor.rank() == 1 && !IsFloat(tensor.dtype());
    const bool is_short = tensor.rank() == 1 && tensor.element_count() <= 8;
    if ((level >= 1 && (is_scalar || is_list)) || (level >= 2 && is_short)) {
      graph.value(graph.inputs()[i]).constant = tensor;
    }
  }
}

// Equal extents get one symbol, and 1 stays, since models rely on broadcasting it: unless each is
// to have its own.
Symbols MakeDimsSymbolic(Graph& graph, std::span<const Tensor> inputs, Dynamic dynamic,
                         bool own_symbols) {
  Symbols symbols;
  if (dynamic == Dynamic::kNone) return symbols;
  for (size_t i = 0; i < inputs.size() && (i == 0 || dynamic == Dynamic::kAll); ++i) {
    Value& value = graph.value(graph.inputs()[i]);
    if (value.constant.has_value()) continue;
    Shape shape;
    for (const int64_t extent : inputs[i].shape()) {
      if (extent == 1 && !own_symbols) {
        shape.emplace_back(1);
        continue;
      }
      const std::string name =
          own_symbols ? absl::StrCat("D", i, "_", shape.size()) : absl::StrCat("E", extent);
      symbols[name] = extent;
      shape.push_back(DimExpr::Symbol(name));
    }
    value.shape = std::move(shape);
  }
  return symbols;
}

std::vector<Attempt> Attempts(const AttemptOptions& options) {
  std::vector<Attempt> attempts;
  for (const Dynamic dynamic : {Dynamic::kAll, Dynamic::kFirst, Dynamic::kNone}) {
    if (options.is_symbolic != (dynamic != Dynamic::kNone)) continue;
    attempts.push_back({dynamic, 0, true});
    for (const bool fold : {false, true}) {
      if (!fold && !options.without_folding) continue;
      for (int level = 1; level <= kFixLevelMax; ++level) {
        attempts.push_back({dynamic, level, fold});
      }
    }
  }
  return attempts;
}

}  // namespace

DimExpr::SymbolValue ValuesOf(const Symbols& symbols) {
  return [symbols](absl::string_view name) -> std::optional<int64_t> {
    const auto found = symbols.find(std::string(name));
    return found == symbols.end() ? std::nullopt : std::optional<int64_t>(found->second);
  };
}

absl::StatusOr<std::vector<Tensor>> RunForms(const Graph& graph, std::span<const Tensor> inputs,
                                             const AttemptOptions& options,
                                             const FormExecutor& executor) {
  absl::StatusOr<std::vector<Tensor>> outputs;
  for (const Attempt& attempt : Attempts(options)) {
    Graph form = graph;
    FixSmallInputs(form, inputs, attempt.fix_level);
    const Symbols symbols = MakeDimsSymbolic(form, inputs, attempt.dynamic, options.own_symbols);
    outputs = executor(std::move(form), inputs, symbols, attempt.fold);
    const bool wants_more =
        absl::IsUnimplemented(outputs.status()) || absl::IsInvalidArgument(outputs.status());
    if (!wants_more) break;
  }
  return outputs;
}

}  // namespace stampmill
