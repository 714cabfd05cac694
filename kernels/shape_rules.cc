// Conditions are written with minima and maxima: for integers, |a - b| is max(a - b, b - a) and
// min(1, x) says whether x >= 0 is nonzero.
#include "kernels/shape_rules.h"

#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/reference.h"

namespace stampmill {

std::optional<bool> KnownEqual(const DimExpr& a, const DimExpr& b) {
  if (a == b) return true;
  const DimExpr difference = a - b;
  if (difference.is_constant()) return difference.IsConstant(0);
  if (difference.LowerBound().value_or(0) > 0 || difference.UpperBound().value_or(0) < 0) {
    return false;
  }
  return std::nullopt;
}

DimExpr IsNot(const DimExpr& condition) { return DimExpr(1) - condition; }

DimExpr IsEqual(const DimExpr& a, const DimExpr& b) {
  if (const std::optional<bool> known = KnownEqual(a, b); known.has_value()) return *known ? 1 : 0;
  return IsNot(Min(1, Max(a - b, b - a)));
}

DimExpr IsLess(const DimExpr& a, const DimExpr& b) {
  if (a.is_constant() && b.is_constant()) return *a.constant() < *b.constant() ? 1 : 0;
  const DimExpr difference = b - a;
  if (difference.LowerBound().value_or(0) > 0) return 1;
  if (difference.UpperBound().value_or(1) <= 0) return 0;
  return Min(1, Max(0, difference));
}

DimExpr EitherOf(const DimExpr& a, const DimExpr& b) { return Max(a, b); }

DimExpr Choose(const DimExpr& condition, const DimExpr& yes, const DimExpr& no) {
  if (condition.is_constant()) return condition.IsConstant(0) ? no : yes;
  if (yes == no) return yes;
  return condition * yes + IsNot(condition) * no;
}

namespace {

// min(b, constants above 1)
bool IsCutOf(const DimExpr& a, const DimExpr& b) {
  if (a.kind() != DimExpr::Kind::kMin) return false;
  bool found = false;
  for (const DimExpr& operand : a.operands()) {
    if (operand == b) {
      found = true;
    } else if (!operand.is_constant() || *operand.constant() < 2) {
      return false;
    }
  }
  return found;
}

}  // namespace

bool EqualWhenBroadcast(const DimExpr& a, const DimExpr& b) {
  return KnownEqual(a, b).value_or(false) || IsCutOf(a, b) || IsCutOf(b, a);
}

namespace {

absl::StatusOr<DimExpr> BroadcastDim(InferContext& context, const DimExpr& a, const DimExpr& b) {
  const std::optional<bool> equal = KnownEqual(a, b);
  if (equal.value_or(false) || b.IsConstant(1)) return a;
  if (a.IsConstant(1)) return b;
  const std::string what = absl::StrCat("dims ", a.ToString(), " and ", b.ToString(),
                                        " must be equal or 1 to broadcast");
  if (a.is_constant() && b.is_constant()) return context.Error(what);
  // A dim beside a cut of it: if the cut were 1, so would be the dim.
  if (IsCutOf(a, b) || IsCutOf(b, a)) {
    RETURN_IF_ERROR(context.Check(IsEqual(a, b), what));
    return IsCutOf(a, b) ? b : a;
  }
  // A fixed dim other than 1 is the result: the other one is equal to it or 1.
  const DimExpr one_of = EitherOf(IsEqual(a, 1), IsEqual(b, 1));
  if (a.is_constant() || b.is_constant()) {
    RETURN_IF_ERROR(context.Check(EitherOf(IsEqual(a, b), one_of), what));
    return a.is_constant() ? a : b;
  }
  // With an empty dim against 1 the maximum would be 1, not 0: not served.
  const DimExpr not_empty = Min(1, Min(a, b));
  RETURN_IF_ERROR(context.Check(EitherOf(IsEqual(a, b), one_of * not_empty), what));
  return Max(a, b);
}

}  // namespace

absl::StatusOr<Shape> BroadcastShapes(InferContext& context, std::span<const Shape> shapes) {
  size_t rank = 0;
  for (const Shape& shape : shapes) rank = std::max(rank, shape.size());
  Shape result(rank, DimExpr(1));
  for (const Shape& shape : shapes) {
    for (size_t d = 0; d < shape.size(); ++d) {
      DimExpr& dim = result[rank - shape.size() + d];
      ASSIGN_OR_RETURN(dim, BroadcastDim(context, dim, shape[d]));
    }
  }
  return result;
}

absl::Status RequireEqual(InferContext& context, const DimExpr& a, const DimExpr& b,
                          absl::string_view what) {
  const std::optional<bool> equal = KnownEqual(a, b);
  if (equal.value_or(false)) return absl::OkStatus();
  return context.Check(IsEqual(a, b), absl::StrCat(what, ": got ", a.ToString(), " and ",
                                                   b.ToString(), ", must be equal"));
}

absl::StatusOr<std::vector<DimExpr>> KnownContents(const Node& node, const Value& value) {
  if (value.symbolic.has_value()) return *value.symbolic;
  if (!value.constant.has_value()) {
    return absl::InternalError(
        absl::StrCat(node.Describe(), ": contents of '", value.name, "' are not known"));
  }
  std::vector<DimExpr> contents;
  for (const int64_t element : Int64Values(*value.constant)) contents.emplace_back(element);
  return contents;
}

namespace {

// Input `i` as a tensor: a constant, or contents that were followed to numbers. Not valid() when it
// is neither.
absl::StatusOr<Tensor> KnownTensor(const InferContext& context, size_t i) {
  if (const Tensor* constant = context.InputConstant(i); constant != nullptr) return *constant;
  const std::vector<DimExpr>* contents = context.InputSymbolic(i);
  ASSIGN_OR_RETURN(const Shape shape, context.InputShape(i));
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(i));
  if (contents == nullptr || !IsConstant(*contents) || !IsConstant(shape)) return Tensor();
  ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(dtype, ConstantShape(shape)));
  for (size_t k = 0; k < contents->size(); ++k) {
    tensor.SetFromInt64(static_cast<int64_t>(k), *(*contents)[k].constant());
  }
  return tensor;
}

}  // namespace

absl::Status FollowMoves(InferContext& context, std::span<const size_t> data, Reference reference) {
  for (size_t i = 0; i < context.output_count(); ++i) {
    const Shape* shape = context.OutputShape(i);
    if (shape == nullptr) continue;
    if (!IsConstant(*shape)) return absl::OkStatus();
    int64_t count = 1;
    for (const int64_t dim : ConstantShape(*shape)) {
      if (__builtin_mul_overflow(count, dim, &count)) return absl::OkStatus();
    }
    if (count > static_cast<int64_t>(kSymbolicElementsMax)) return absl::OkStatus();
  }
  std::vector<DimExpr> list = {DimExpr(0)};  // place 0: elements that the operator sets to zero
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < context.input_count(); ++i) {
    inputs.emplace_back();
    if (!context.HasInput(i)) continue;
    if (std::find(data.begin(), data.end(), i) == data.end()) {
      ASSIGN_OR_RETURN(inputs.back(), KnownTensor(context, i));
      if (!inputs.back().valid()) return absl::OkStatus();
      continue;
    }
    const std::vector<DimExpr>* contents = context.InputSymbolic(i);
    if (contents == nullptr) return absl::OkStatus();
    ASSIGN_OR_RETURN(const Shape shape, context.InputShape(i));
    if (!IsConstant(shape)) return absl::OkStatus();
    std::vector<int64_t> places;
    for (const DimExpr& e : *contents) {
      places.push_back(static_cast<int64_t>(list.size()));
      list.push_back(e);
    }
    inputs.back() = Tensor::FromInt64(ConstantShape(shape), places);
  }
  ASSIGN_OR_RETURN(const std::vector<Tensor> outputs, reference({context.node(), inputs}));
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (!outputs[i].valid()) continue;
    std::vector<DimExpr> contents;
    for (const int64_t place : Int64Values(outputs[i])) {
      contents.push_back(list[static_cast<size_t>(place)]);
    }
    context.SetOutputSymbolic(i, std::move(contents));
  }
  return absl::OkStatus();
}

namespace {

// Whether floats that are whole numbers, as dims and counters of loops that were cast, stay whole
// and compute as integers do: up to 2^24 in f32, which no tensor's dims come near.
bool KeepsWholeNumbers(const Node& node) {
  constexpr absl::string_view kOps[] = {"Add", "Max", "Min", "Mul", "Sub", "Sum", "Where"};
  return std::ranges::find(kOps, node.op_type) != std::end(kOps);
}

}  // namespace

absl::Status FollowElements(InferContext& context, FollowFunction follow) {
  const Shape* shape = context.OutputShape(0);
  if (follow == nullptr || shape == nullptr || !IsConstant(*shape)) return absl::OkStatus();
  if (IsFloat(context.OutputDType(0)) && !KeepsWholeNumbers(context.node())) {
    return absl::OkStatus();
  }
  const Dims dims = ConstantShape(*shape);
  int64_t count = 1;
  for (const int64_t dim : dims) {
    if (__builtin_mul_overflow(count, dim, &count)) return absl::OkStatus();
  }
  if (count > static_cast<int64_t>(kSymbolicElementsMax)) return absl::OkStatus();
  std::vector<const std::vector<DimExpr>*> inputs;
  std::vector<Dims> strides;
  for (size_t i = 0; i < context.input_count(); ++i) {
    if (!context.HasInput(i) || context.InputSymbolic(i) == nullptr) return absl::OkStatus();
    ASSIGN_OR_RETURN(const Shape input_shape, context.InputShape(i));
    if (!IsConstant(input_shape)) return absl::OkStatus();
    inputs.push_back(context.InputSymbolic(i));
    strides.push_back(BroadcastStrides(ConstantShape(input_shape), dims));
  }
  std::vector<DimExpr> contents;
  bool known = true;
  ForEachIndex(dims, [&](const Dims& index) {
    std::vector<DimExpr> elements;
    for (size_t i = 0; i < inputs.size(); ++i) {
      elements.push_back((*inputs[i])[static_cast<size_t>(OffsetOf(index, strides[i]))]);
    }
    std::optional<DimExpr> result = follow(context.node(), elements);
    known = known && result.has_value();
    if (result.has_value()) contents.push_back(*std::move(result));
  });
  if (known) context.SetOutputSymbolic(0, std::move(contents));
  return absl::OkStatus();
}

bool CountsItsResult(const Node& node) {
  constexpr absl::string_view kNames[] = {"Compress", "NonMaxSuppression", "NonZero", "Unique"};
  return node.domain.empty() && std::ranges::find(kNames, node.op_type) != std::end(kNames);
}

DimExpr CountOf(const Node& node, absl::string_view what) {
  const auto unique = node.attributes.find(kUniqueAttribute);
  const std::string* const text =
      unique == node.attributes.end() ? nullptr : std::get_if<std::string>(&unique->second);
  if (text != nullptr) return DimExpr::Symbol(absl::StrCat(what, " of ", *text));
  ValueId id = kNoValue;
  for (const ValueId output : node.outputs) id = std::max(id, output);
  return DimExpr::Symbol(absl::StrCat(what, " of '", node.name, "' ", id));
}

}  // namespace stampmill
