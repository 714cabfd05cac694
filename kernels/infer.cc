// Shape inference and constant folding in one pass over the nodes, since each feeds the other: a
// folded Shape becomes the constant that a Reshape needs.
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/op.h"

namespace stampmill {
namespace {

absl::Status CheckArity(const Node& node, const OpDefinition& op) {
  const int inputs = static_cast<int>(node.inputs.size());
  const int outputs = static_cast<int>(node.outputs.size());
  if (inputs < op.min_inputs || (op.max_inputs >= 0 && inputs > op.max_inputs)) {
    return absl::InvalidArgumentError(
        absl::StrCat(node.Describe(), ": got ", inputs, " inputs, takes ", op.min_inputs, " to ",
                     op.max_inputs < 0 ? "any number" : absl::StrCat(op.max_inputs)));
  }
  if (outputs < op.min_outputs || (op.max_outputs >= 0 && outputs > op.max_outputs)) {
    return absl::InvalidArgumentError(
        absl::StrCat(node.Describe(), ": got ", outputs, " outputs, gives ", op.min_outputs, " to ",
                     op.max_outputs < 0 ? "any number" : absl::StrCat(op.max_outputs)));
  }
  for (int i = 0; i < op.min_inputs; ++i) {
    if (node.inputs[static_cast<size_t>(i)] == kNoValue) {
      return absl::InvalidArgumentError(
          absl::StrCat(node.Describe(), ": input ", i, " is missing"));
    }
  }
  return absl::OkStatus();
}

// Attributes of ONNX's operators that say yes or no.
constexpr absl::string_view kFlags[] = {"align_corners",
                                        "allowzero",
                                        "antialias",
                                        "ceil_mode",
                                        "count_include_pad",
                                        "exclude_outside",
                                        "exclusive",
                                        "inverse",
                                        "interleaved",
                                        "is_causal",
                                        "keepdims",
                                        "largest",
                                        "noop_with_empty_axes",
                                        "onesided",
                                        "periodic",
                                        "reverse",
                                        "select_last_index",
                                        "sorted",
                                        "transA",
                                        "transB",
                                        "upper"};

// Other numbers mean yes to some and no to others.
absl::Status CheckFlags(const Node& node) {
  if (!node.domain.empty()) return absl::OkStatus();
  for (const absl::string_view flag : kFlags) {
    if (!node.Has(flag)) continue;
    ASSIGN_OR_RETURN(const int64_t value, node.Int(flag, 0));
    if (value == 0 || value == 1) continue;
    return absl::InvalidArgumentError(
        absl::StrCat(node.Describe(), ": ", flag, ": got ", value, ", want 0 or 1"));
  }
  return absl::OkStatus();
}

// Floats up to this size are followed where they are whole numbers: f32 has all of them.
constexpr double kWholeFloatMax = 1 << 24;

// Contents of a short constant as DimExprs, when they are whole numbers.
void FollowConstant(Value& value) {
  const Tensor& tensor = *value.constant;
  const DType dtype = tensor.dtype();
  const int64_t count = tensor.element_count();
  if (count > static_cast<int64_t>(IsFloat(dtype) ? 1 : kSymbolicElementsMax)) return;
  std::vector<DimExpr> contents;
  for (int64_t i = 0; i < count; ++i) {
    // A u64 past the range of i64 is no dim.
    if (dtype == DType::kU64 && tensor.ValueAsInt64(i) < 0) return;
    if (IsFloat(dtype)) {
      const double number = tensor.ValueAsDouble(i);
      if (!(std::abs(number) <= kWholeFloatMax) || number != std::floor(number)) return;
      if (number == 0 && std::signbit(number)) return;
    }
    contents.emplace_back(tensor.ValueAsInt64(i));
  }
  value.symbolic = std::move(contents);
}

// Whether every output can be computed now, and within the limit.
bool IsFoldable(const Graph& graph, const Node& node, const OpDefinition& op, int64_t limit_bytes) {
  if (!op.folds || op.reference == nullptr || node.outputs.empty()) return false;
  for (const ValueId input : node.inputs) {
    if (input != kNoValue && !graph.value(input).constant.has_value()) return false;
  }
  for (const ValueId output : node.outputs) {
    if (output == kNoValue) continue;
    const Value& value = graph.value(output);
    if (!value.shape.has_value() || !IsConstant(*value.shape)) return false;
    int64_t bytes = static_cast<int64_t>(SizeBytes(value.dtype));
    for (const int64_t dim : ConstantShape(*value.shape)) {
      if (__builtin_mul_overflow(bytes, dim, &bytes) || bytes > limit_bytes) return false;
    }
  }
  return true;
}

// Contents that were followed symbolically and came out as numbers are a constant.
absl::StatusOr<bool> ConstantFromSymbolic(Value& value) {
  if (!value.symbolic.has_value() || !value.shape.has_value() || !IsConstant(*value.shape)) {
    return false;
  }
  for (const DimExpr& e : *value.symbolic) {
    if (!e.is_constant()) return false;
  }
  ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(value.dtype, ConstantShape(*value.shape)));
  if (static_cast<size_t>(tensor.element_count()) != value.symbolic->size()) {
    return absl::InternalError(absl::StrCat("value '", value.name, "': ", value.symbolic->size(),
                                            " contents followed for shape ",
                                            ToString(*value.shape)));
  }
  for (size_t i = 0; i < value.symbolic->size(); ++i) {
    tensor.SetFromInt64(static_cast<int64_t>(i), *(*value.symbolic)[i].constant());
  }
  value.constant = std::move(tensor);
  return true;
}

absl::Status SetConstants(Graph& graph, const Node& node, std::vector<Tensor> results) {
  if (results.size() < node.outputs.size()) {
    return absl::InternalError(absl::StrCat(node.Describe(), ": reference gave ", results.size(),
                                            " outputs of ", node.outputs.size()));
  }
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i] == kNoValue) continue;
    Value& value = graph.value(node.outputs[i]);
    if (results[i].dtype() != value.dtype || results[i].shape() != ConstantShape(*value.shape)) {
      return absl::InternalError(
          absl::StrCat(node.Describe(), ": reference and shape rule disagree on output ", i));
    }
    value.constant = std::move(results[i]);
    FollowConstant(value);
  }
  return absl::OkStatus();
}

// Makes the node's outputs constants when they can be; true when all are.
absl::StatusOr<bool> Fold(Graph& graph, const Node& node, const OpDefinition& op,
                          const InferOptions& options) {
  if (IsFoldable(graph, node, op, options.fold_limit_bytes)) {
    std::vector<Tensor> inputs;
    for (const ValueId input : node.inputs) {
      inputs.push_back(input == kNoValue ? Tensor() : *graph.value(input).constant);
    }
    ASSIGN_OR_RETURN(std::vector<Tensor> results, op.reference({node, inputs}));
    RETURN_IF_ERROR(SetConstants(graph, node, std::move(results)));
    return true;
  }
  bool all = true;
  for (const ValueId output : node.outputs) {
    if (output == kNoValue) continue;
    ASSIGN_OR_RETURN(const bool constant, ConstantFromSymbolic(graph.value(output)));
    all = all && constant;
  }
  return all;
}

void DropUnusedConstants(Graph& graph) {
  const std::vector<int32_t> uses = graph.UseCounts();
  for (size_t i = 0; i < uses.size(); ++i) {
    Value& value = graph.value(static_cast<ValueId>(i));
    if (uses[i] == 0 && value.producer == -1) value.constant.reset();
  }
}

}  // namespace

void InferConstant(Value& value) {
  if (!value.constant.has_value()) return;
  value.dtype = value.constant->dtype();
  value.shape = Shape(value.constant->shape().begin(), value.constant->shape().end());
  FollowConstant(value);
}

absl::Status InferNode(Graph& graph, NodeId id, const InferOptions& options) {
  const Node& node = graph.node(id);
  ASSIGN_OR_RETURN(const OpDefinition* op, RequireOp(node));
  RETURN_IF_ERROR(CheckArity(node, *op));
  RETURN_IF_ERROR(CheckFlags(node));
  InferContext context(node, graph);
  RETURN_IF_ERROR(op->infer(context));
  for (const ValueId output : node.outputs) {
    if (output != kNoValue && !graph.value(output).shape.has_value()) {
      return absl::InternalError(
          absl::StrCat(node.Describe(), ": no shape for output '", graph.value(output).name, "'"));
    }
  }
  if (!options.fold_constants) return absl::OkStatus();
  ASSIGN_OR_RETURN(const bool folded, Fold(graph, node, *op, options));
  if (folded) graph.RemoveNode(id);
  return absl::OkStatus();
}

absl::Status InferShapes(Graph& graph, const InferOptions& options) {
  for (size_t i = 0; i < graph.value_count(); ++i) {
    InferConstant(graph.value(static_cast<ValueId>(i)));
  }
  for (const NodeId id : graph.Order()) RETURN_IF_ERROR(InferNode(graph, id, options));
  DropUnusedConstants(graph);
  return absl::OkStatus();
}

}  // namespace stampmill
