// The reference interpreter: runs every node's plain-loop reference in order and lets go of a
// tensor after its last use.
#include <cmath>
#include <memory>
#include <random>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "kernels/op.h"

namespace stampmill {
namespace {

absl::Status CheckInput(const Value& declared, const Tensor& given) {
  // Inputs of bodies need declare neither type nor shape.
  if (declared.dtype != DType::kInvalid && given.dtype() != declared.dtype) {
    return absl::InvalidArgumentError(absl::StrCat("input '", declared.name, "': got type ",
                                                   Name(given.dtype()), ", model takes ",
                                                   Name(declared.dtype)));
  }
  if (!declared.shape.has_value()) return absl::OkStatus();
  bool fits = declared.shape->size() == given.shape().size();
  for (size_t d = 0; fits && d < given.shape().size(); ++d) {
    const DimExpr& dim = (*declared.shape)[d];
    fits = !dim.is_constant() || *dim.constant() == given.shape()[d];
  }
  if (fits) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("input '", declared.name, "': got shape [",
                                                 absl::StrJoin(given.shape(), ", "),
                                                 "], model takes ", ToString(*declared.shape)));
}

// Runs the shape rule on the very tensors: references rely on what it demands, and symbolic dims
// may turn out not to fit.
absl::Status CheckShapes(const OpDefinition& op, const Node& node, std::span<const Tensor> inputs) {
  Graph graph;
  Node own = node;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].valid()) own.inputs[i] = graph.AddConstant(absl::StrCat("input ", i), inputs[i]);
  }
  for (ValueId& output : own.outputs) {
    if (output != kNoValue) output = graph.AddValue({});
  }
  InferContext context(own, graph);
  return op.infer(context);
}

// Bodies are checked node by node when they run.
bool HasBody(const Node& node) {
  for (const auto& [name, attribute] : node.attributes) {
    if (std::holds_alternative<std::shared_ptr<const Graph>>(attribute)) return true;
  }
  return false;
}

// The relative error that a computation in a type makes: in f32 and f64 that of adding up some
// hundred terms one by one, in the small types, which add up in f32, that of rounding the result.
double RelativeNoise(DType dtype) {
  switch (dtype) {
    case DType::kF64:
      return 0x1p-47;
    case DType::kF32:
      return 0x1p-18;
    case DType::kF16:
      return 0x1p-11;
    case DType::kBF16:
      return 0x1p-8;
    default:
      return 0;
  }
}

absl::StatusOr<Tensor> WithNoise(const Tensor& tensor, std::mt19937_64& random) {
  const double noise = RelativeNoise(tensor.dtype());
  if (noise == 0) return tensor;
  ASSIGN_OR_RETURN(Tensor noisy, Tensor::Allocate(tensor.dtype(), tensor.shape()));
  for (int64_t i = 0, n = tensor.element_count(); i < n; ++i) {
    const double value = tensor.ValueAsDouble(i);
    const double uniform = static_cast<double>(random() >> 11) * 0x1p-52 - 1;
    noisy.SetFromDouble(i, value == std::floor(value) ? value : value * (1 + noise * uniform));
  }
  return noisy;
}

// The tensors of one execution.
class Interpreter {
 public:
  Interpreter(const Graph& graph, const InterpretOptions& options)
      : graph_(graph),
        options_(options),
        random_(options.seed),
        tensors_(graph.value_count()),
        uses_(graph.UseCounts()) {}

  absl::StatusOr<std::vector<Tensor>> Run(std::span<const Tensor> inputs) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const ValueId id = graph_.inputs()[i];
      RETURN_IF_ERROR(CheckInput(graph_.value(id), inputs[i]));
      tensors_[static_cast<size_t>(id)] = inputs[i];
    }
    for (const NodeId id : graph_.Order()) RETURN_IF_ERROR(RunNode(graph_.node(id)));
    std::vector<Tensor> outputs;
    for (const ValueId id : graph_.outputs()) {
      ASSIGN_OR_RETURN(Tensor tensor, Get(id));
      outputs.push_back(std::move(tensor));
    }
    return outputs;
  }

 private:
  absl::StatusOr<Tensor> Get(ValueId id) const {
    const Tensor& tensor = tensors_[static_cast<size_t>(id)];
    if (tensor.valid()) return tensor;
    const Value& value = graph_.value(id);
    if (value.constant.has_value()) return *value.constant;
    return absl::InternalError(absl::StrCat("value '", value.name, "' is used before it is made"));
  }

  absl::Status RunNode(const Node& node) {
    ASSIGN_OR_RETURN(const OpDefinition* op, RequireOp(node));
    std::vector<Tensor> inputs;
    for (const ValueId id : node.inputs) {
      if (id == kNoValue) {
        inputs.emplace_back();
        continue;
      }
      ASSIGN_OR_RETURN(Tensor tensor, Get(id));
      inputs.push_back(std::move(tensor));
    }
    if (!HasBody(node)) RETURN_IF_ERROR(CheckShapes(*op, node, inputs));
    absl::StatusOr<std::vector<Tensor>> results = op->reference({node, inputs});
    // Memory that there is not, which tensors say without knowing whose they are.
    if (absl::IsResourceExhausted(results.status())) {
      return absl::ResourceExhaustedError(
          absl::StrCat(node.Describe(), ": ", results.status().message()));
    }
    ASSIGN_OR_RETURN(std::vector<Tensor> outputs, std::move(results));
    if (outputs.size() < node.outputs.size()) {
      return absl::InternalError(absl::StrCat(node.Describe(), ": reference gave ", outputs.size(),
                                              " outputs of ", node.outputs.size()));
    }
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (node.outputs[i] == kNoValue) continue;
      if (options_.rounding_noise) {
        ASSIGN_OR_RETURN(outputs[i], WithNoise(outputs[i], random_));
      }
      tensors_[static_cast<size_t>(node.outputs[i])] = std::move(outputs[i]);
    }
    for (const ValueId id : node.inputs) {
      if (id != kNoValue && --uses_[static_cast<size_t>(id)] == 0) {
        tensors_[static_cast<size_t>(id)] = Tensor();
      }
    }
    return absl::OkStatus();
  }

  const Graph& graph_;
  const InterpretOptions& options_;
  std::mt19937_64 random_;
  std::vector<Tensor> tensors_;  // by ValueId; invalid: not made yet, or no longer used
  std::vector<int32_t> uses_;    // by ValueId: uses still to come
};

}  // namespace

absl::StatusOr<std::vector<Tensor>> Interpret(const Graph& graph, std::span<const Tensor> inputs,
                                              const InterpretOptions& options) {
  if (inputs.size() != graph.inputs().size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("got ", inputs.size(), " inputs, model takes ", graph.inputs().size()));
  }
  return Interpreter(graph, options).Run(inputs);
}

}  // namespace stampmill
