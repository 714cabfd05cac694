// What a shape rule sees: access to the node's values with errors that name the node and the input.
#include "kernels/op.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"

namespace stampmill {
namespace {

// "input 1 ('shape')"
std::string InputName(const Graph& graph, const Node& node, size_t i) {
  if (i >= node.inputs.size() || node.inputs[i] == kNoValue) return absl::StrCat("input ", i);
  return absl::StrCat("input ", i, " ('", graph.value(node.inputs[i]).name, "')");
}

// Whether a node's one output has the elements of its first input, none altered.
bool KeepsIntegers(const Graph& graph, const Node& node) {
  if (!node.domain.empty() || node.inputs.empty() || node.inputs[0] == kNoValue) return false;
  if (node.op_type == "Cast") {
    const DType from = graph.value(node.inputs[0]).dtype;
    const DType to = graph.value(node.outputs[0]).dtype;
    return from == to || (from == DType::kI32 && to == DType::kI64);
  }
  for (const char* const mover : {"Identity", "Reshape", "Squeeze", "Unsqueeze", "Flatten"}) {
    if (node.op_type == mover) return true;
  }
  return false;
}

}  // namespace

bool InferContext::HasInput(size_t i) const {
  return i < node_.inputs.size() && node_.inputs[i] != kNoValue;
}

bool InferContext::HasOutput(size_t i) const {
  return i < node_.outputs.size() && node_.outputs[i] != kNoValue;
}

absl::StatusOr<DType> InferContext::InputDType(size_t i) const {
  if (!HasInput(i)) return Error(absl::StrCat("input ", i, " is missing"));
  const Value& value = graph_.value(node_.inputs[i]);
  if (value.dtype == DType::kInvalid) {
    return Error(absl::StrCat(InputName(graph_, node_, i), " has no known type"));
  }
  return value.dtype;
}

absl::StatusOr<Shape> InferContext::InputShape(size_t i) const {
  if (!HasInput(i)) return Error(absl::StrCat("input ", i, " is missing"));
  const Value& value = graph_.value(node_.inputs[i]);
  if (!value.shape.has_value()) {
    return Error(absl::StrCat(InputName(graph_, node_, i), " has no known shape"));
  }
  return *value.shape;
}

const Tensor* InferContext::InputConstant(size_t i) const {
  if (!HasInput(i)) return nullptr;
  const Value& value = graph_.value(node_.inputs[i]);
  return value.constant.has_value() ? &*value.constant : nullptr;
}

const std::vector<DimExpr>* InferContext::InputSymbolic(size_t i) const {
  if (!HasInput(i)) return nullptr;
  const Value& value = graph_.value(node_.inputs[i]);
  return value.symbolic.has_value() ? &*value.symbolic : nullptr;
}

absl::StatusOr<std::vector<DimExpr>> InferContext::RequireSymbolic(size_t i) const {
  if (!HasInput(i)) return Error(absl::StrCat("input ", i, " is missing"));
  if (const std::vector<DimExpr>* known = InputSymbolic(i); known != nullptr) return *known;
  if (const Tensor* tensor = InputConstant(i); tensor != nullptr) {
    std::vector<DimExpr> contents;
    for (int64_t k = 0; k < tensor->element_count(); ++k) {
      contents.emplace_back(tensor->ValueAsInt64(k));
    }
    return contents;
  }
  return Unsupported(absl::StrCat(InputName(graph_, node_, i),
                                  " must be known when the model is compiled: a constant, or "
                                  "computed from the shapes of the model's inputs"));
}

absl::StatusOr<std::vector<int64_t>> InferContext::RequireConstant(size_t i) const {
  ASSIGN_OR_RETURN(const std::vector<DimExpr> contents, RequireSymbolic(i));
  std::vector<int64_t> values;
  for (const DimExpr& e : contents) {
    if (!e.is_constant()) {
      return Unsupported(
          absl::StrCat(InputName(graph_, node_, i), " must be constant, got ", e.ToString()));
    }
    values.push_back(*e.constant());
  }
  return values;
}

absl::Status InferContext::SetOutput(size_t i, DType dtype, Shape shape) {
  if (!HasOutput(i)) return absl::OkStatus();
  Value& value = graph_.value(node_.outputs[i]);
  for (const DimExpr& dim : shape) {
    if (dim.is_constant() && *dim.constant() < 0) {
      return Error(absl::StrCat("output ", i, " ('", value.name,
                                "') would have a negative dim: ", ToString(shape)));
    }
    if (!dim.is_constant() && dim.Symbols().empty()) {
      return Error(absl::StrCat("output ", i, " ('", value.name, "') would have the dim ",
                                dim.ToString(), ", which is no number of 64 bits"));
    }
  }
  if (value.dtype != DType::kInvalid && value.dtype != dtype) {
    return Error(absl::StrCat("output ", i, " ('", value.name, "') is ", Name(dtype),
                              ", but was declared ", Name(value.dtype)));
  }
  if (value.shape.has_value()) {
    bool same = value.shape->size() == shape.size();
    for (size_t d = 0; same && d < shape.size(); ++d) {
      const DimExpr& before = (*value.shape)[d];
      same = !before.is_constant() || !shape[d].is_constant() || before == shape[d];
    }
    if (!same) {
      return Error(absl::StrCat("output ", i, " ('", value.name, "') has shape ", ToString(shape),
                                ", but was declared ", ToString(*value.shape)));
    }
  }
  // A dim that a request's contents give may be anything.
  for (const DimExpr& dim : shape) {
    if (dim.LowerBound().has_value()) continue;
    RETURN_IF_ERROR(Check(Min(1, Max(0, dim + 1)), absl::StrCat("output ", i, " ('", value.name,
                                                                "') would have a dim below 0")));
  }
  value.dtype = dtype;
  value.shape = std::move(shape);
  return absl::OkStatus();
}

void InferContext::SetOutputSymbolic(size_t i, std::vector<DimExpr> contents) {
  if (!HasOutput(i) || contents.size() > kSymbolicElementsMax) return;
  // Integers wrap where dims have no value: such contents are not followed.
  for (const DimExpr& element : contents) {
    if (!element.is_constant() && element.Symbols().empty()) return;
  }
  graph_.value(node_.outputs[i]).symbolic = std::move(contents);
}

const Shape* InferContext::OutputShape(size_t i) const {
  if (!HasOutput(i)) return nullptr;
  const Value& value = graph_.value(node_.outputs[i]);
  return value.shape.has_value() ? &*value.shape : nullptr;
}

DType InferContext::OutputDType(size_t i) const {
  return HasOutput(i) ? graph_.value(node_.outputs[i]).dtype : DType::kInvalid;
}

absl::Status InferContext::Check(const DimExpr& nonzero, absl::string_view what) {
  if (nonzero.is_constant()) {
    return *nonzero.constant() != 0 ? absl::OkStatus() : Error(what);
  }
  if (nonzero.LowerBound().value_or(0) > 0) return absl::OkStatus();
  if (nonzero.Symbols().empty()) {
    return Error(absl::StrCat(what, ": ", nonzero.ToString(), " is no number of 64 bits"));
  }
  graph_.AddCheck({nonzero, absl::StrCat(node_.Describe(), ": ", what)});
  return absl::OkStatus();
}

bool InferContext::IsChecked(const DimExpr& nonzero) const {
  const std::span<const DimCheck> checks = graph_.checks();
  return std::any_of(checks.begin(), checks.end(),
                     [&](const DimCheck& check) { return check.nonzero == nonzero; });
}

void InferContext::CheckIndices(size_t i, const DimExpr& extent) {
  if (!extent.is_constant() || *extent.constant() < 1) return;
  ValueId id = node_.inputs[i];
  while (graph_.value(id).producer >= 0) {
    const Node& node = graph_.node(graph_.value(id).producer);
    if (!KeepsIntegers(graph_, node)) return;
    id = node.inputs[0];
  }
  const std::span<const ValueId> inputs = graph_.inputs();
  if (std::find(inputs.begin(), inputs.end(), id) == inputs.end()) return;
  graph_.AddIndexBound({.input = id, .limit = *extent.constant(), .reader = node_.Describe()});
}

absl::Status InferContext::Error(absl::string_view message) const {
  return absl::InvalidArgumentError(absl::StrCat(node_.Describe(), ": ", message));
}

absl::Status InferContext::Unsupported(absl::string_view message) const {
  return absl::UnimplementedError(absl::StrCat(node_.Describe(), ": ", message));
}

}  // namespace stampmill
