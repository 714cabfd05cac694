// CumSum, CumProd and TopK: skeletons of their own (kernels/skeletons), since every element depends
// on those before it.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/families.h"
#include "kernels/host_values.h"
#include "kernels/reference.h"
#include "kernels/shape_rules.h"
#include "kernels/stage_builder.h"

namespace stampmill {
namespace {

struct ScanAttributes {
  size_t axis = 0;
  bool exclusive = false;
  bool reverse = false;
};

absl::StatusOr<ScanAttributes> ReadScan(const Node& node, const std::vector<int64_t>& axis,
                                        size_t rank) {
  ScanAttributes scan;
  if (axis.size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(node.Describe(), ": axis: got ", axis.size(), " values, want 1"));
  }
  ASSIGN_OR_RETURN(scan.axis, NormalizeAxis(node, axis[0], rank));
  ASSIGN_OR_RETURN(const int64_t exclusive, node.Int("exclusive", 0));
  ASSIGN_OR_RETURN(const int64_t reverse, node.Int("reverse", 0));
  scan.exclusive = exclusive != 0;
  scan.reverse = reverse != 0;
  return scan;
}

absl::Status InferScan(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(Shape shape, context.InputShape(0));
  if (dtype == DType::kBool) return context.Error("x: bool has no sum");
  ASSIGN_OR_RETURN(const std::vector<int64_t> axis, context.RequireConstant(1));
  RETURN_IF_ERROR(ReadScan(context.node(), axis, shape.size()).status());
  return context.SetOutput(0, dtype, std::move(shape));
}

template <bool product>
absl::StatusOr<std::vector<Tensor>> ScanReference(const ReferenceArguments& arguments) {
  const Tensor& input = arguments.inputs[0];
  const Dims& dims = input.shape();
  ASSIGN_OR_RETURN(const ScanAttributes scan,
                   ReadScan(arguments.node, Int64Values(arguments.inputs[1]), dims.size()));
  const int64_t length = dims[scan.axis];
  const int64_t stride = RowMajor(dims)[scan.axis];
  const int64_t rows = length == 0 ? 0 : ProductOf(dims) / length;
  absl::StatusOr<Tensor> output = WithArithmeticType(input.dtype(), [&]<typename T>(T) {
    std::vector<T> x = ReadValues<T>(input);
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t first = row / stride * stride * length + row % stride;
      T total = product ? T{1} : T{0};
      for (int64_t i = 0; i < length; ++i) {
        T& place = x[static_cast<size_t>(first + (scan.reverse ? length - 1 - i : i) * stride)];
        const T before = total;
        total = product ? WrapMul(total, place) : WrapAdd(total, place);
        place = scan.exclusive ? before : total;
      }
    }
    return MakeTensor(input.dtype(), dims, x);
  });
  if (!output.ok()) return output.status();
  return One(*std::move(output));
}

// Elements before and after the axis.
DimExpr ElementsBefore(const Shape& shape, size_t axis) {
  return ElementCount(std::span(shape).first(axis));
}
DimExpr ElementsAfter(const Shape& shape, size_t axis) {
  return ElementCount(std::span(shape).subspan(axis + 1));
}

template <bool product>
absl::Status LowerScan(LowerContext& context) {
  const Shape& shape = context.InputShape(0);
  ASSIGN_OR_RETURN(const std::vector<int64_t> axis, FixedInts(context.node(), context.input(1)));
  ASSIGN_OR_RETURN(const ScanAttributes scan, ReadScan(context.node(), axis, shape.size()));
  const DType dtype = context.output(0).dtype;
  const DimExpr inner = ElementsAfter(shape, scan.axis);
  // Lines of a task: kernels/skeletons/scan.cc.
  constexpr int64_t kLines = 64;
  Library library{.skeleton = "scan",
                  .by_row = scan.axis != 0,
                  .configuration = {static_cast<int64_t>(dtype), product ? 1 : 0,
                                    scan.exclusive ? 1 : 0, scan.reverse ? 1 : 0},
                  .operands = {{.dtype = dtype, .shape = shape}},
                  .outputs = {{.dtype = dtype, .shape = shape}},
                  .dims = {shape[scan.axis], inner},
                  .tasks = ElementsBefore(shape, scan.axis) * CeilDiv(inner, kLines)};
  const Node& node = context.node();
  context.EmitLibrary(std::move(library), {node.inputs[0]}, {node.outputs[0]});
  return absl::OkStatus();
}

// TopK. Equal elements are taken in order; NaN is the greatest number.

struct TopAttributes {
  size_t axis = 0;
  bool largest = true;
};

absl::StatusOr<TopAttributes> ReadTop(const Node& node, size_t rank) {
  TopAttributes top;
  ASSIGN_OR_RETURN(const int64_t axis, node.Int("axis", -1));
  ASSIGN_OR_RETURN(const int64_t largest, node.Int("largest", 1));
  ASSIGN_OR_RETURN(top.axis, NormalizeAxis(node, axis, rank));
  top.largest = largest != 0;
  return top;
}

absl::Status InferTop(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(Shape shape, context.InputShape(0));
  if (dtype == DType::kBool) return context.Error("X: bool has no order");
  ASSIGN_OR_RETURN(const TopAttributes top, ReadTop(context.node(), shape.size()));
  ASSIGN_OR_RETURN(const std::vector<DimExpr> k, context.RequireSymbolic(1));
  if (k.size() != 1) return context.Error(absl::StrCat("K: got ", k.size(), " values, want 1"));
  RETURN_IF_ERROR(context.Check(
      EitherOf(IsLess(k[0], shape[top.axis]), IsEqual(k[0], shape[top.axis])),
      absl::StrCat("K: got ", k[0].ToString(), ", the axis has ", shape[top.axis].ToString())));
  RETURN_IF_ERROR(context.Check(IsNot(IsLess(k[0], 0)), "K must not be negative"));
  shape[top.axis] = k[0];
  RETURN_IF_ERROR(context.SetOutput(0, dtype, shape));
  return context.SetOutput(1, DType::kI64, std::move(shape));
}

template <typename T>
bool Greater(T a, T b) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(a)) return !std::isnan(b);
  }
  return a > b;
}

absl::StatusOr<std::vector<Tensor>> TopReference(const ReferenceArguments& arguments) {
  const Tensor& input = arguments.inputs[0];
  ASSIGN_OR_RETURN(const TopAttributes top, ReadTop(arguments.node, input.shape().size()));
  const int64_t k = arguments.inputs[1].ValueAsInt64(0);
  const int64_t length = input.shape()[top.axis];
  const int64_t stride = RowMajor(input.shape())[top.axis];
  if (k < 0 || k > length) {
    return ReferenceError(arguments, absl::StrCat("K: got ", k, ", the axis has ", length));
  }
  Dims dims = input.shape();
  dims[top.axis] = k;
  const int64_t rows = length == 0 ? 0 : input.element_count() / length;
  std::vector<int64_t> indices(static_cast<size_t>(ProductOf(dims)));
  std::vector<Tensor> outputs(2);
  outputs[0] = input;
  const absl::Status status = WithArithmeticType(input.dtype(), [&]<typename T>(T) {
    const std::vector<T> x = ReadValues<T>(input);
    std::vector<T> values(indices.size());
    for (int64_t row = 0; row < rows; ++row) {
      const T* first = x.data() + row / stride * stride * length + row % stride;
      std::vector<int64_t> order(static_cast<size_t>(length));
      std::iota(order.begin(), order.end(), 0);
      std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
        const T x_a = first[a * stride], x_b = first[b * stride];
        if (Greater(x_a, x_b)) return top.largest;
        if (Greater(x_b, x_a)) return !top.largest;
        return a < b;
      });
      for (int64_t i = 0; i < k; ++i) {
        const size_t at =
            static_cast<size_t>(row / stride * stride * k + row % stride + i * stride);
        indices[at] = order[static_cast<size_t>(i)];
        values[at] = first[indices[at] * stride];
      }
    }
    ASSIGN_OR_RETURN(outputs[0], MakeTensor(input.dtype(), dims, values));
    return absl::OkStatus();
  });
  RETURN_IF_ERROR(status);
  ASSIGN_OR_RETURN(outputs[1], MakeTensor(DType::kI64, dims, indices));
  return outputs;
}

absl::Status LowerTop(LowerContext& context) {
  const Node& node = context.node();
  const Shape& shape = context.InputShape(0);
  ASSIGN_OR_RETURN(const TopAttributes top, ReadTop(node, shape.size()));
  ASSIGN_OR_RETURN(const std::vector<DimExpr> k, KnownDims(node, context.input(1)));
  const DType dtype = context.input(0).dtype;
  const DimExpr inner = ElementsAfter(shape, top.axis);
  Shape chosen = shape;
  chosen[top.axis] = k[0];
  const ValueId values =
      context.HasOutput(0) ? node.outputs[0] : context.NewValue(dtype, chosen, "values");
  const ValueId indices =
      context.HasOutput(1) ? node.outputs[1] : context.NewValue(DType::kI64, chosen, "indices");
  // A place is its order's number and an index, twice.
  constexpr int64_t kPlaceBytes = 32;
  Library library{
      .skeleton = "top_k",
      .by_row = top.axis != 0,
      .configuration = {static_cast<int64_t>(dtype), top.largest ? 0 : 1},
      .operands = {{.dtype = dtype, .shape = shape}},
      .outputs = {{.dtype = dtype, .shape = chosen}, {.dtype = DType::kI64, .shape = chosen}},
      .dims = {shape[top.axis], inner, k[0]},
      .tasks = ElementsBefore(shape, top.axis) * inner,
      .scratch_bytes = kPlaceBytes * k[0]};
  context.EmitLibrary(std::move(library), {node.inputs[0]}, {values, indices});
  return absl::OkStatus();
}

constexpr Variant kSumVariants[] = {{"scan", AlwaysApplies, LowerScan<false>}};
constexpr Variant kProductVariants[] = {{"scan", AlwaysApplies, LowerScan<true>}};
constexpr Variant kTopVariants[] = {{"top_k", AlwaysApplies, LowerTop}};

}  // namespace

std::span<const OpDefinition> ScanOps() {
  static constexpr OpDefinition kOps[] = {
      {.name = "CumProd",
       .domain = "",
       .min_inputs = 2,
       .max_inputs = 2,
       .infer = InferScan,
       .reference = ScanReference<true>,
       .variants = kProductVariants},
      {.name = "CumSum",
       .domain = "",
       .min_inputs = 2,
       .max_inputs = 2,
       .infer = InferScan,
       .reference = ScanReference<false>,
       .variants = kSumVariants},
      {.name = "TopK",
       .domain = "",
       .min_inputs = 2,
       .max_inputs = 2,
       .min_outputs = 2,
       .max_outputs = 2,
       .infer = InferTop,
       .reference = TopReference,
       .variants = kTopVariants},
  };
  return kOps;
}

}  // namespace stampmill
