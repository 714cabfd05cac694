// LinearAttention, a recurrence over a matrix a head, and Det: skeletons of their own
// (kernels/skeletons/algebra.cc).
#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/elementwise.h"
#include "kernels/families.h"
#include "kernels/host_values.h"
#include "kernels/library.h"
#include "kernels/reference.h"
#include "kernels/shape_rules.h"
#include "kernels/stage_builder.h"

namespace stampmill {
namespace {

enum : size_t { kQuery, kKey, kValue, kPast, kDecay, kBeta };

struct LinearRule {
  int64_t q_heads = 0, kv_heads = 0;
  bool has_decay = false, has_delta = false;
  float scale = 0;  // 0: by the size of a head
};

absl::StatusOr<LinearRule> ReadLinear(const Node& node) {
  LinearRule rule;
  ASSIGN_OR_RETURN(rule.q_heads, node.Int("q_num_heads", 0));
  ASSIGN_OR_RETURN(rule.kv_heads, node.Int("kv_num_heads", 0));
  ASSIGN_OR_RETURN(rule.scale, node.Float("scale", 0));
  ASSIGN_OR_RETURN(const std::string update, node.String("update_rule", "gated_delta"));
  if (rule.q_heads < 1 || rule.kv_heads < 1 || rule.q_heads % rule.kv_heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat(node.Describe(), ": q_num_heads ", rule.q_heads,
                                                   " must be a multiple of kv_num_heads ",
                                                   rule.kv_heads));
  }
  if (update != "linear" && update != "gated" && update != "delta" && update != "gated_delta") {
    return absl::InvalidArgumentError(absl::StrCat(node.Describe(), ": update_rule: got '", update,
                                                   "', want linear, gated, delta or gated_delta"));
  }
  rule.has_decay = update.starts_with("gated");
  rule.has_delta = update.ends_with("delta");
  return rule;
}

// Extents of a head of keys and of values.
struct LinearSizes {
  DimExpr keys, values;
};

absl::StatusOr<LinearSizes> SizesOf(InferContext& context, const LinearRule& rule) {
  Shape shapes[3];
  const int64_t heads[] = {rule.q_heads, rule.kv_heads, rule.kv_heads};
  for (size_t i = 0; i < 3; ++i) {
    ASSIGN_OR_RETURN(shapes[i], context.InputShape(i));
    if (shapes[i].size() != 3) {
      return context.Error(absl::StrCat("input ", i, ": got rank ", shapes[i].size(), ", want 3"));
    }
    RETURN_IF_ERROR(
        RequireEqual(context, shapes[i][0], shapes[0][0], absl::StrCat("input ", i, ": batch")));
    RETURN_IF_ERROR(
        RequireEqual(context, shapes[i][1], shapes[0][1], absl::StrCat("input ", i, ": steps")));
    RETURN_IF_ERROR(RequireEqual(context, Mod(shapes[i][2], heads[i]), 0,
                                 absl::StrCat("input ", i, ": last dim modulo ", heads[i])));
  }
  const LinearSizes sizes = {FloorDiv(shapes[kQuery][2], rule.q_heads),
                             FloorDiv(shapes[kValue][2], rule.kv_heads)};
  RETURN_IF_ERROR(RequireEqual(context, FloorDiv(shapes[kKey][2], rule.kv_heads), sizes.keys,
                               "head size of query and key"));
  return sizes;
}

// Whether decay (beta) is one number a head instead of one a key (shared by the heads).
absl::StatusOr<bool> IsFirstWidth(InferContext& context, size_t input, const DimExpr& first,
                                  const DimExpr& second) {
  ASSIGN_OR_RETURN(const Shape shape, context.InputShape(input));
  ASSIGN_OR_RETURN(const Shape query, context.InputShape(kQuery));
  if (shape.size() != 3) {
    return context.Error(absl::StrCat("input ", input, ": got rank ", shape.size(), ", want 3"));
  }
  for (size_t d = 0; d < 2; ++d) {
    RETURN_IF_ERROR(
        RequireEqual(context, shape[d], query[d], absl::StrCat("input ", input, ": dim ", d)));
  }
  if (KnownEqual(shape[2], first).value_or(false)) return true;
  RETURN_IF_ERROR(
      RequireEqual(context, shape[2], second,
                   absl::StrCat("input ", input, ": last dim, if it is not ", first.ToString())));
  return false;
}

absl::Status CheckGates(InferContext& context, const LinearRule& rule, const LinearSizes& sizes) {
  for (const auto& [input, wanted, name] : {std::tuple(size_t{kDecay}, rule.has_decay, "decay"),
                                            std::tuple(size_t{kBeta}, rule.has_delta, "beta")}) {
    if (context.HasInput(input) == wanted) continue;
    return context.Error(absl::StrCat("update_rule ", wanted ? "needs " : "takes no ", name));
  }
  if (rule.has_decay) {
    RETURN_IF_ERROR(
        IsFirstWidth(context, kDecay, rule.kv_heads, rule.kv_heads * sizes.keys).status());
  }
  if (rule.has_delta) RETURN_IF_ERROR(IsFirstWidth(context, kBeta, rule.kv_heads, 1).status());
  return absl::OkStatus();
}

absl::Status InferLinear(InferContext& context) {
  ASSIGN_OR_RETURN(const LinearRule rule, ReadLinear(context.node()));
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(kQuery));
  if (!IsFloat(dtype)) return context.Error("query must be floating-point");
  for (const size_t i : {kKey, kValue, kDecay, kBeta}) {
    if (!context.HasInput(i)) continue;
    ASSIGN_OR_RETURN(const DType own, context.InputDType(i));
    if (own != dtype) {
      return context.Error(absl::StrCat("input ", i, " is ", Name(own), ", query ", Name(dtype)));
    }
  }
  ASSIGN_OR_RETURN(const LinearSizes sizes, SizesOf(context, rule));
  RETURN_IF_ERROR(CheckGates(context, rule, sizes));
  ASSIGN_OR_RETURN(const Shape query, context.InputShape(kQuery));
  const Shape state = {query[0], rule.kv_heads, sizes.keys, sizes.values};
  DType state_type = dtype;
  if (context.HasInput(kPast)) {
    ASSIGN_OR_RETURN(state_type, context.InputDType(kPast));
    ASSIGN_OR_RETURN(const Shape past, context.InputShape(kPast));
    if (!IsFloat(state_type) || past.size() != 4) {
      return context.Error("past_state must be floating-point and have 4 dims");
    }
    for (size_t d = 0; d < 4; ++d) {
      RETURN_IF_ERROR(
          RequireEqual(context, past[d], state[d], absl::StrCat("past_state: dim ", d)));
    }
  }
  RETURN_IF_ERROR(context.SetOutput(0, dtype, {query[0], query[1], rule.q_heads * sizes.values}));
  return context.SetOutput(1, state_type, state);
}

// The recurrence of one head of keys, in f64: S decays, is corrected and grows by k v^T.
class LinearReference {
 public:
  LinearReference(const ReferenceArguments& arguments, const LinearRule& rule)
      : rule_(rule), dims_(arguments.inputs[kQuery].shape()) {
    keys_ = dims_[2] / rule.q_heads;
    values_ = arguments.inputs[kValue].shape()[2] / rule.kv_heads;
    in_.resize(6);
    for (size_t i = 0; i < arguments.inputs.size(); ++i) {
      if (arguments.inputs[i].valid()) in_[i] = ReadValues<double>(arguments.inputs[i]);
    }
    y_.resize(static_cast<size_t>(dims_[0] * dims_[1] * rule.q_heads * values_));
    state_ = in_[kPast];
    state_.resize(static_cast<size_t>(dims_[0] * rule.kv_heads * keys_ * values_));
  }

  References Run(DType dtype, DType state_type) {
    for (int64_t b = 0; b < dims_[0]; ++b) {
      for (int64_t h = 0; h < rule_.kv_heads; ++h) {
        for (int64_t t = 0; t < dims_[1]; ++t) Step(b, h, t);
      }
    }
    std::vector<Tensor> outputs(2);
    ASSIGN_OR_RETURN(outputs[0],
                     MakeTensor(dtype, {dims_[0], dims_[1], rule_.q_heads * values_}, y_));
    ASSIGN_OR_RETURN(outputs[1],
                     MakeTensor(state_type, {dims_[0], rule_.kv_heads, keys_, values_}, state_));
    return outputs;
  }

 private:
  // Element i of the part of `head` of `heads` in an input at a step.
  double At(size_t input, int64_t b, int64_t t, int64_t heads, int64_t head, int64_t i) const {
    const int64_t width = static_cast<int64_t>(in_[input].size()) / (dims_[0] * dims_[1]);
    return in_[input][static_cast<size_t>((b * dims_[1] + t) * width + head * (width / heads) + i)];
  }

  void Step(int64_t b, int64_t h, int64_t t) {
    double* const state = state_.data() + (b * rule_.kv_heads + h) * keys_ * values_;
    const auto s = [&](int64_t d, int64_t m) -> double& { return state[d * values_ + m]; };
    const int64_t heads = rule_.kv_heads;
    const bool by_key =
        rule_.has_decay && static_cast<int64_t>(in_[kDecay].size()) != dims_[0] * dims_[1] * heads;
    for (int64_t d = 0; rule_.has_decay && d < keys_; ++d) {
      const double factor = std::exp(At(kDecay, b, t, heads, h, by_key ? d : 0));
      for (int64_t m = 0; m < values_; ++m) s(d, m) *= factor;
    }
    const bool shared = static_cast<int64_t>(in_[kBeta].size()) == dims_[0] * dims_[1];
    for (int64_t m = 0; m < values_; ++m) {
      double value = At(kValue, b, t, heads, h, m);
      if (rule_.has_delta) {
        double known = 0;
        for (int64_t d = 0; d < keys_; ++d) known += s(d, m) * At(kKey, b, t, heads, h, d);
        value =
            (shared ? At(kBeta, b, t, 1, 0, 0) : At(kBeta, b, t, heads, h, 0)) * (value - known);
      }
      for (int64_t d = 0; d < keys_; ++d) s(d, m) += At(kKey, b, t, heads, h, d) * value;
    }
    const int64_t group = rule_.q_heads / heads;
    const double scale = rule_.scale != 0 ? rule_.scale : 1 / std::sqrt(static_cast<double>(keys_));
    for (int64_t q = h * group; q < (h + 1) * group; ++q) {
      for (int64_t m = 0; m < values_; ++m) {
        double sum = 0;
        for (int64_t d = 0; d < keys_; ++d) {
          sum += At(kQuery, b, t, rule_.q_heads, q, d) * s(d, m);
        }
        y_[static_cast<size_t>(((b * dims_[1] + t) * rule_.q_heads + q) * values_ + m)] =
            scale * sum;
      }
    }
  }

  const LinearRule& rule_;
  Dims dims_;  // of the query
  int64_t keys_ = 0, values_ = 0;
  std::vector<std::vector<double>> in_;
  std::vector<double> y_, state_;
};

References RunLinearReference(const ReferenceArguments& arguments) {
  ASSIGN_OR_RETURN(const LinearRule rule, ReadLinear(arguments.node));
  const bool has_past = arguments.inputs.size() > kPast && arguments.inputs[kPast].valid();
  const DType dtype = arguments.inputs[kQuery].dtype();
  const DType state = has_past ? arguments.inputs[kPast].dtype() : dtype;
  return LinearReference(arguments, rule).Run(dtype, state);
}

// A map over input `i` in f32, under a function.
template <typename F>
ValueId EmitMapped(LowerContext& context, size_t i, const F& f) {
  const Shape shape = context.InputShape(i);
  StageOperands operands;
  const int32_t operand = operands.AddInput(context, i);
  const Expr x = Expr::Cast(DType::kF32, operands.Load(operand, Coords(0, shape.size())));
  Nest nest{.kept = shape};
  nest.result = f(x);
  nest.output = {.dtype = DType::kF32, .shape = shape};
  const ValueId value = context.NewValue(DType::kF32, shape, "mapped");
  EmitNest(context, std::move(operands), std::move(nest), value);
  return value;
}

ValueId EmitZeros(LowerContext& context, const Shape& shape) {
  Nest nest{.kept = shape};
  nest.result = Expr::Constant(DType::kF32, 0);
  nest.output = {.dtype = DType::kF32, .shape = shape};
  const ValueId value = context.NewValue(DType::kF32, shape, "zeros");
  EmitNest(context, StageOperands(), std::move(nest), value);
  return value;
}

absl::Status LowerLinear(LowerContext& context) {
  ASSIGN_OR_RETURN(const LinearRule rule, ReadLinear(context.node()));
  const Node& node = context.node();
  const Shape query = context.InputShape(kQuery), key = context.InputShape(kKey);
  const Shape value = context.InputShape(kValue);
  const DimExpr keys = FloorDiv(key[2], rule.kv_heads);
  const DimExpr values = FloorDiv(value[2], rule.kv_heads);
  // Equal shapes may be spelled by other inputs' dims: each value keeps its own.
  const bool has_state = context.HasOutput(1);
  const Shape state =
      has_state ? *context.output(1).shape : Shape{query[0], rule.kv_heads, keys, values};
  const auto f32 = [](Shape shape) { return Operand{.dtype = DType::kF32, .shape = shape}; };
  Library library{.skeleton = "linear_attention"};
  std::vector<ValueId> operands;
  const auto add = [&](ValueId id, const Shape& shape) {
    operands.push_back(id);
    library.operands.push_back(f32(shape));
  };
  const Expr scale = rule.scale != 0
                         ? Expr::Constant(DType::kF32, rule.scale)
                         : Expr::Constant(DType::kF32, 1) /
                               Expr::Unary(ExprOp::kSqrt, Expr::Cast(DType::kF32, Extent(keys)));
  add(EmitMapped(context, kQuery, [&](const Expr& x) { return x * scale; }), query);
  add(InputAs(context, kKey, DType::kF32), key);
  add(InputAs(context, kValue, DType::kF32), value);
  int64_t decay_kind = 0;
  if (rule.has_decay) {
    const Shape decay = context.InputShape(kDecay);
    decay_kind = KnownEqual(decay[2], rule.kv_heads).value_or(false) ? 1 : 2;
    add(EmitMapped(context, kDecay, [](const Expr& x) { return Expr::Unary(ExprOp::kExp, x); }),
        decay);
  } else {
    add(EmitZeros(context, {1}), {1});
  }
  bool shared = false;
  if (rule.has_delta) {
    const Shape beta = context.InputShape(kBeta);
    shared = !KnownEqual(beta[2], rule.kv_heads).value_or(false);
    add(InputAs(context, kBeta, DType::kF32), beta);
  } else {
    add(EmitZeros(context, {1}), {1});
  }
  if (context.HasInput(kPast)) {
    add(InputAs(context, kPast, DType::kF32), context.InputShape(kPast));
  } else {
    add(EmitZeros(context, state), state);
  }
  library.by_row = true;
  library.configuration = {rule.q_heads, rule.kv_heads, decay_kind, rule.has_delta ? 1 : 0,
                           shared ? 1 : 0};
  library.dims = {query[1], keys, values};
  library.tasks = query[0] * rule.kv_heads;
  library.scratch_bytes = 4 * values;
  const Shape y = *context.output(0).shape;
  library.outputs = {f32(y), f32(state)};
  const DType dtype = context.output(0).dtype;
  const DType state_type = has_state ? context.output(1).dtype : DType::kF32;
  const bool y_direct = dtype == DType::kF32, state_direct = has_state && state_type == DType::kF32;
  const ValueId results = y_direct ? node.outputs[0] : context.NewValue(DType::kF32, y, "results");
  const ValueId after =
      state_direct ? node.outputs[1] : context.NewValue(DType::kF32, state, "state");
  context.EmitLibrary(std::move(library), std::move(operands), {results, after});
  if (!y_direct) EmitConversion(context, results, DType::kF32, y, node.outputs[0], dtype);
  if (has_state && !state_direct) {
    EmitConversion(context, after, DType::kF32, state, node.outputs[1], state_type);
  }
  return absl::OkStatus();
}

// Det.

absl::Status InferDet(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(const Shape x, context.InputShape(0));
  if (!IsFloat(dtype)) return context.Error("X must be floating-point");
  if (x.size() < 2) return context.Error(absl::StrCat("X: got rank ", x.size(), ", least 2"));
  RETURN_IF_ERROR(RequireEqual(context, x[x.size() - 1], x[x.size() - 2], "rows and columns of X"));
  return context.SetOutput(0, dtype, Shape(x.begin(), x.end() - 2));
}

// Elimination row by row, with the greatest pivot of the column.
References DetReference(const ReferenceArguments& arguments) {
  const Tensor& input = arguments.inputs[0];
  const int64_t rows = input.shape().back();
  const Dims dims(input.shape().begin(), input.shape().end() - 2);
  std::vector<double> y;
  const std::vector<double> x = ReadValues<double>(input);
  for (int64_t matrix = 0; matrix < ProductOf(dims); ++matrix) {
    std::vector<std::vector<double>> a;
    for (int64_t row = 0; row < rows; ++row) {
      const auto first = x.begin() + (matrix * rows + row) * rows;
      a.emplace_back(first, first + rows);
    }
    double det = 1;
    for (size_t i = 0; i < a.size(); ++i) {
      size_t pivot = i;
      for (size_t row = i; row < a.size(); ++row) {
        if (std::fabs(a[row][i]) > std::fabs(a[pivot][i])) pivot = row;
      }
      if (pivot != i) det = -det;
      std::swap(a[i], a[pivot]);
      det *= a[i][i];
      if (a[i][i] == 0) break;
      for (size_t row = i + 1; row < a.size(); ++row) {
        const double factor = a[row][i] / a[i][i];
        for (size_t column = i; column < a.size(); ++column) {
          a[row][column] -= factor * a[i][column];
        }
      }
    }
    y.push_back(det);
  }
  ASSIGN_OR_RETURN(Tensor output, MakeTensor(input.dtype(), dims, y));
  return One(std::move(output));
}

absl::Status LowerDet(LowerContext& context) {
  const Shape x = context.InputShape(0);
  const DType dtype = context.input(0).dtype;
  context.EmitLibrary({.skeleton = "determinant",
                       .by_row = x.size() > 2,
                       .configuration = {static_cast<int64_t>(dtype)},
                       .operands = {{.dtype = dtype, .shape = x}},
                       .outputs = {{.dtype = dtype, .shape = *context.output(0).shape}},
                       .dims = {x.back()},
                       .tasks = ElementCount(*context.output(0).shape),
                       .scratch_bytes = 8 * x.back() * x.back()},
                      {context.node().inputs[0]}, {context.node().outputs[0]});
  return absl::OkStatus();
}

}  // namespace

std::span<const OpDefinition> LinearAttentionOps() {
  static constexpr OpDefinition kOps[] = {
      {.name = "Det",
       .domain = "",
       .min_inputs = 1,
       .max_inputs = 1,
       .infer = InferDet,
       .reference = DetReference,
       .variants = kNest<LowerDet>},
      {.name = "LinearAttention",
       .domain = "",
       .min_inputs = 3,
       .max_inputs = 6,
       .max_outputs = 2,
       .infer = InferLinear,
       .reference = RunLinearReference,
       .variants = kNest<LowerLinear>},
  };
  return kOps;
}

}  // namespace stampmill
