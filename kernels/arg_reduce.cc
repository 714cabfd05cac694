// ArgMax, ArgMin and Hardmax: a reduction that carries a value and where it was found. NaN counts
// as the extreme value, as in numpy.
#include <cmath>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "kernels/families.h"
#include "kernels/host_values.h"
#include "kernels/reference.h"
#include "kernels/shape_rules.h"
#include "kernels/stage_builder.h"

namespace stampmill {
namespace {

struct ArgAttributes {
  size_t axis = 0;
  bool keepdims = true;
  ArgChoice choice;
};

absl::StatusOr<ArgAttributes> ReadArg(const Node& node, size_t rank) {
  ArgAttributes result;
  const bool hardmax = node.op_type == "Hardmax";
  ASSIGN_OR_RETURN(const int64_t axis, node.Int("axis", hardmax ? -1 : 0));
  ASSIGN_OR_RETURN(const int64_t keepdims, node.Int("keepdims", 1));
  ASSIGN_OR_RETURN(const int64_t last, node.Int("select_last_index", 0));
  ASSIGN_OR_RETURN(result.axis, NormalizeAxis(node, axis, rank));
  result.keepdims = keepdims != 0;
  result.choice = {.least = node.op_type == "ArgMin", .last = last != 0 && !hardmax};
  return result;
}

absl::Status InferArg(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(Shape shape, context.InputShape(0));
  if (dtype == DType::kBool) return context.Error("data: bool has no order");
  ASSIGN_OR_RETURN(const ArgAttributes attributes, ReadArg(context.node(), shape.size()));
  if (context.node().op_type == "Hardmax") {
    if (!IsFloat(dtype)) return context.Error("input: Hardmax takes floating-point tensors");
    return context.SetOutput(0, dtype, std::move(shape));
  }
  // There is no index into nothing.
  RETURN_IF_ERROR(context.Check(IsLess(0, shape[attributes.axis]), "the axis must not be empty"));
  if (attributes.keepdims) {
    shape[attributes.axis] = 1;
  } else {
    shape.erase(shape.begin() + static_cast<int64_t>(attributes.axis));
  }
  return context.SetOutput(0, DType::kI64, std::move(shape));
}

template <typename T>
bool Better(T candidate, T best, ArgChoice choice) {
  if constexpr (std::is_floating_point_v<T>) {
    if (std::isnan(best)) return choice.last && std::isnan(candidate);
    if (std::isnan(candidate)) return true;
  }
  if (candidate == best) return choice.last;
  return choice.least ? candidate < best : candidate > best;
}

// The chosen index of each row along the axis, rows in row-major order.
std::vector<int64_t> ChosenIndices(const Tensor& input, const ArgAttributes& attributes) {
  const Dims& dims = input.shape();
  const int64_t length = dims[attributes.axis];
  const int64_t stride = RowMajor(dims)[attributes.axis];
  const int64_t rows = length == 0 ? 0 : ProductOf(dims) / length;
  return WithArithmeticType(input.dtype(), [&]<typename T>(T) {
    const std::vector<T> x = ReadValues<T>(input);
    std::vector<int64_t> chosen;
    for (int64_t row = 0; row < rows; ++row) {
      const int64_t first = row / stride * stride * length + row % stride;
      int64_t best = 0;
      for (int64_t i = 1; i < length; ++i) {
        const T candidate = x[static_cast<size_t>(first + i * stride)];
        if (Better(candidate, x[static_cast<size_t>(first + best * stride)], attributes.choice)) {
          best = i;
        }
      }
      chosen.push_back(best);
    }
    return chosen;
  });
}

absl::StatusOr<std::vector<Tensor>> ArgReference(const ReferenceArguments& arguments) {
  const Tensor& input = arguments.inputs[0];
  ASSIGN_OR_RETURN(const ArgAttributes attributes, ReadArg(arguments.node, input.shape().size()));
  const std::vector<int64_t> chosen = ChosenIndices(input, attributes);
  Dims dims = input.shape();
  if (arguments.node.op_type == "Hardmax") {
    const int64_t length = dims[attributes.axis];
    const int64_t stride = RowMajor(dims)[attributes.axis];
    std::vector<int64_t> y(static_cast<size_t>(input.element_count()), 0);
    for (size_t row = 0; row < chosen.size(); ++row) {
      const int64_t r = static_cast<int64_t>(row);
      const int64_t first = r / stride * stride * length + r % stride;
      y[static_cast<size_t>(first + chosen[row] * stride)] = 1;
    }
    ASSIGN_OR_RETURN(Tensor output, MakeTensor(input.dtype(), dims, y));
    return One(std::move(output));
  }
  if (attributes.keepdims) {
    dims[attributes.axis] = 1;
  } else {
    dims.erase(dims.begin() + static_cast<int64_t>(attributes.axis));
  }
  ASSIGN_OR_RETURN(Tensor output, MakeTensor(DType::kI64, dims, chosen));
  return One(std::move(output));
}

absl::Status LowerArg(LowerContext& context) {
  const Shape shape = context.InputShape(0);
  ASSIGN_OR_RETURN(const ArgAttributes attributes, ReadArg(context.node(), shape.size()));
  const std::vector<size_t> reduced = {attributes.axis};
  const std::vector<size_t> kept = OtherAxes(reduced, shape.size());
  const std::vector<Expr> coords = SplitCoords(kept, reduced);
  StageOperands operands;
  const int32_t input = operands.AddInput(context, 0);
  const Expr loaded = operands.Load(input, coords);
  const Expr x = Expr::Cast(ComputeType(loaded.dtype()), loaded);
  const Expr index = coords[attributes.axis];
  Nest nest{.kept = SelectDims(shape, kept), .reduced = SelectDims(shape, reduced)};
  nest.reductions = {ArgReduction(x, index, Expr(), attributes.choice)};
  const Expr chosen = Expr::Reduced(DType::kI64, 0);
  nest.output = {.dtype = context.output(0).dtype, .shape = *context.output(0).shape};
  if (context.node().op_type == "Hardmax") {
    nest.per_element = true;
    nest.output_coordinates = coords;
    nest.result = Expr::Cast(nest.output.dtype, Equal(index, chosen));
  } else {
    nest.result = chosen;
    if (attributes.keepdims) {
      nest.output_coordinates = coords;
      nest.output_coordinates[attributes.axis] = Int(0);
    }
  }
  EmitNest(context, std::move(operands), std::move(nest), context.node().outputs[0]);
  return absl::OkStatus();
}

constexpr Variant kArgVariants[] = {{"nest", AlwaysApplies, LowerArg}};

constexpr OpDefinition ArgOp(absl::string_view name) {
  return {.name = name,
          .domain = "",
          .min_inputs = 1,
          .max_inputs = 1,
          .infer = InferArg,
          .reference = ArgReference,
          .variants = kArgVariants};
}

}  // namespace

std::span<const OpDefinition> ArgReduceOps() {
  static constexpr OpDefinition kOps[] = {ArgOp("ArgMax"), ArgOp("ArgMin"), ArgOp("Hardmax")};
  return kOps;
}

}  // namespace stampmill
