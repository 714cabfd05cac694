// Operators of domain stampmill on mixtures of experts, of which each token chooses some.
//
// GroupByExpert(chosen: i32 or i64 [tokens, used]): pairs i32 [experts, tokens], counts i32
// [experts], attribute `experts`. Pair token * used + slot stands in the row of the expert that is
// chosen there; of the row count[expert] entries hold, in order, the others are 0. A token chooses
// an expert once at most; what is chosen beside these is in no row.
//
// ExpertMatMul(x: f32 [tokens, k] or [tokens, used, k], w: f32 [experts, n, k], pairs, counts):
// f32 [tokens, used, n], attribute `used`: the product of each pair's row with its expert's matrix.
// The compiler puts ExpertMatMulPanels in its place where w is quantised
// (compiler/passes/fold_blocks.cc): w is u8 [experts, panels, bytes], with the attributes of
// MatMulPanels (kernels/blocks.cc).
//
// Each is one contraction with the experts as batch, in which an expert has only the rows that
// chose it: a matrix is read once, and only if a token wants it, and what a token gets is the sum
// that it would get alone.
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/contraction.h"
#include "kernels/elementwise.h"
#include "kernels/families.h"
#include "kernels/host_values.h"
#include "kernels/panels.h"
#include "kernels/reference.h"
#include "kernels/shape_rules.h"
#include "kernels/stage_builder.h"

namespace stampmill {
namespace {

constexpr int64_t kExpertsMax = 1 << 16;

// --- GroupByExpert ---

absl::StatusOr<int64_t> ReadExperts(const Node& node) {
  ASSIGN_OR_RETURN(const int64_t experts, node.Int("experts", 0));
  if (experts >= 1 && experts <= kExpertsMax) return experts;
  return absl::InvalidArgumentError(
      absl::StrCat(node.Describe(), ": experts: got ", experts, ", limit ", kExpertsMax));
}

absl::Status InferGroup(InferContext& context) {
  ASSIGN_OR_RETURN(const int64_t experts, ReadExperts(context.node()));
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  ASSIGN_OR_RETURN(const Shape chosen, context.InputShape(0));
  if ((dtype != DType::kI32 && dtype != DType::kI64) || chosen.size() != 2) {
    return context.Error(
        absl::StrCat("choices of i32 or i64 [tokens, used], got ", Name(dtype), ToString(chosen)));
  }
  RETURN_IF_ERROR(context.SetOutput(0, DType::kI32, {experts, chosen[0]}));
  return context.SetOutput(1, DType::kI32, {experts});
}

References GroupReference(const ReferenceArguments& arguments) {
  ASSIGN_OR_RETURN(const int64_t experts, ReadExperts(arguments.node));
  const Tensor& chosen = arguments.inputs[0];
  const int64_t tokens = chosen.shape()[0];
  ASSIGN_OR_RETURN(Tensor pairs, Tensor::Allocate(DType::kI32, {experts, tokens}));
  ASSIGN_OR_RETURN(Tensor counts, Tensor::Allocate(DType::kI32, {experts}));
  std::vector<int64_t> found(static_cast<size_t>(experts));
  for (int64_t i = 0; i < pairs.element_count(); ++i) pairs.SetFromDouble(i, 0);
  for (int64_t pair = 0; pair < chosen.element_count(); ++pair) {
    const int64_t expert = chosen.ValueAsInt64(pair);
    if (expert < 0 || expert >= experts || found[static_cast<size_t>(expert)] == tokens) continue;
    pairs.SetFromDouble(expert * tokens + found[static_cast<size_t>(expert)]++,
                        static_cast<double>(pair));
  }
  for (int64_t i = 0; i < experts; ++i) {
    counts.SetFromDouble(i, static_cast<double>(found[static_cast<size_t>(i)]));
  }
  std::vector<Tensor> outputs;
  outputs.push_back(std::move(pairs));
  outputs.push_back(std::move(counts));
  return outputs;
}

absl::Status LowerGroup(LowerContext& context) {
  ASSIGN_OR_RETURN(const int64_t experts, ReadExperts(context.node()));
  const Shape& chosen = context.InputShape(0);
  const auto output = [&](size_t i) {
    return Operand{.dtype = DType::kI32, .shape = *context.output(i).shape};
  };
  context.EmitLibrary({.skeleton = "group_by_expert",
                       .configuration = {experts, context.input(0).dtype == DType::kI64 ? 1 : 0},
                       .operands = {{.dtype = context.input(0).dtype, .shape = chosen}},
                       .outputs = {output(0), output(1)},
                       .dims = {chosen[0], chosen[1]}},
                      context.node().inputs, context.node().outputs);
  return absl::OkStatus();
}

// --- Products ---

enum : size_t { kRows, kWeights, kPairs, kCounts };

// How many a token chooses.
absl::StatusOr<int64_t> ReadUsed(const Node& node) {
  ASSIGN_OR_RETURN(const int64_t used, node.Int("used", 0));
  if (used >= 1 && used <= kExpertsMax) return used;
  return absl::InvalidArgumentError(
      absl::StrCat(node.Describe(), ": used: got ", used, ", limit ", kExpertsMax));
}

// Sets the output of experts' matrices [n, k].
absl::Status InferProduct(InferContext& context, const DimExpr& experts, const DimExpr& n,
                          const DimExpr& k) {
  ASSIGN_OR_RETURN(const int64_t used, ReadUsed(context.node()));
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(kRows));
  ASSIGN_OR_RETURN(const Shape x, context.InputShape(kRows));
  ASSIGN_OR_RETURN(const Shape pairs, context.InputShape(kPairs));
  ASSIGN_OR_RETURN(const Shape counts, context.InputShape(kCounts));
  if (dtype != DType::kF32 || x.size() < 2 || x.size() > 3 || pairs.size() != 2 ||
      counts.size() != 1) {
    return context.Error(absl::StrCat("rows are f32 [tokens, k] or [tokens, used, k], pairs ",
                                      "[experts, tokens], counts [experts], got ", Name(dtype),
                                      ToString(x), ", ", ToString(pairs), ", ", ToString(counts)));
  }
  for (const size_t input : {kPairs, kCounts}) {
    ASSIGN_OR_RETURN(const DType index, context.InputDType(input));
    if (index != DType::kI32) {
      return context.Error(absl::StrCat("pairs and counts are i32, got ", Name(index)));
    }
  }
  RETURN_IF_ERROR(RequireEqual(context, x.back(), k, "inner dims"));
  if (x.size() == 3) RETURN_IF_ERROR(RequireEqual(context, x[1], used, "used"));
  RETURN_IF_ERROR(RequireEqual(context, pairs[1], x[0], "tokens of rows and of pairs"));
  RETURN_IF_ERROR(RequireEqual(context, pairs[0], experts, "experts of pairs and of weights"));
  RETURN_IF_ERROR(RequireEqual(context, counts[0], experts, "experts of counts and of weights"));
  return context.SetOutput(0, DType::kF32, {x[0], used, n});
}

absl::Status InferExpertMatMul(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(kWeights));
  ASSIGN_OR_RETURN(const Shape w, context.InputShape(kWeights));
  if (dtype != DType::kF32 || w.size() != 3) {
    return context.Error(
        absl::StrCat("weights are f32 [experts, n, k], got ", Name(dtype), ToString(w)));
  }
  return InferProduct(context, w[0], w[1], w[2]);
}

absl::Status InferExpertMatMulPanels(InferContext& context) {
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(kWeights));
  ASSIGN_OR_RETURN(const Shape w, context.InputShape(kWeights));
  if (dtype != DType::kU8 || w.size() != 3) {
    return context.Error(
        absl::StrCat("weights are u8 [experts, panels, bytes], got ", Name(dtype), ToString(w)));
  }
  ASSIGN_OR_RETURN(const Panels panels, ReadPanels(context.node(), {w[1], w[2]}));
  return InferProduct(context, w[0], panels.rows, panels.k);
}

// `w`: f32 [experts, n, k].
References RunProduct(const ReferenceArguments& arguments, std::span<const float> w, int64_t n,
                      int64_t k) {
  ASSIGN_OR_RETURN(const int64_t used, ReadUsed(arguments.node));
  const Tensor& x = arguments.inputs[kRows];
  const Tensor& pairs = arguments.inputs[kPairs];
  const std::vector<float> rows = ReadValues<float>(x);
  const int64_t tokens = x.shape()[0];
  std::vector<float> y(static_cast<size_t>(tokens * used * n));
  for (int64_t expert = 0; expert < pairs.shape()[0]; ++expert) {
    const int64_t count = arguments.inputs[kCounts].ValueAsInt64(expert);
    for (int64_t place = 0; place < count; ++place) {
      const int64_t pair = pairs.ValueAsInt64(expert * tokens + place);
      const int64_t row = x.rank() == 3 ? pair : pair / used;
      for (int64_t column = 0; column < n; ++column) {
        double sum = 0;
        for (int64_t i = 0; i < k; ++i) {
          sum += static_cast<double>(rows[static_cast<size_t>(row * k + i)]) *
                 static_cast<double>(w[static_cast<size_t>((expert * n + column) * k + i)]);
        }
        y[static_cast<size_t>(pair * n + column)] = static_cast<float>(sum);
      }
    }
  }
  ASSIGN_OR_RETURN(Tensor output, MakeTensor(DType::kF32, {tokens, used, n}, y));
  return One(std::move(output));
}

References ExpertMatMulReference(const ReferenceArguments& arguments) {
  const Tensor& w = arguments.inputs[kWeights];
  return RunProduct(arguments, ReadValues<float>(w), w.shape()[1], w.shape()[2]);
}

References ExpertMatMulPanelsReference(const ReferenceArguments& arguments) {
  const Tensor& w = arguments.inputs[kWeights];
  ASSIGN_OR_RETURN(const Panels panels, ReadPanels(arguments.node, {w.shape()[1], w.shape()[2]}));
  std::vector<float> values;
  const int64_t bytes = w.shape()[1] * w.shape()[2];
  for (int64_t expert = 0; expert < w.shape()[0]; ++expert) {
    const std::vector<float> one = UnpackPanels(panels, w.bytes().data() + expert * bytes);
    values.insert(values.end(), one.begin(), one.end());
  }
  return RunProduct(arguments, values, panels.rows, panels.k);
}

// What both products have in common: batch is the expert, a row a pair.
struct PairRows {
  Shape batch, m;
  Expr a, rows;
  std::vector<Expr> output_coordinates;
};

PairRows RowsOfPairs(LowerContext& context, int64_t used, StageOperands& operands) {
  const Shape& x = context.InputShape(kRows);
  const int32_t rows = operands.AddInput(context, kRows);
  const int32_t pairs = operands.AddInput(context, kPairs);
  const int32_t counts = operands.AddInput(context, kCounts);
  const Expr expert = Expr::Coord(0), place = Expr::Coord(1), last = Expr::Coord(2);
  const Expr pair = Expr::Cast(DType::kI64, operands.Load(pairs, {expert, place}));
  const Expr token = FloorDivide(pair, Int(used)), slot = FloorModulo(pair, Int(used));
  std::vector<Expr> from = {token, last};
  if (x.size() == 3) from = {token, slot, last};
  return {.batch = {context.InputShape(kPairs)[0]},
          .m = {x[0]},
          .a = operands.Load(rows, std::move(from)),
          .rows = Expr::Cast(DType::kI64, operands.Load(counts, {expert})),
          .output_coordinates = {token, slot, last}};
}

absl::Status LowerExpertMatMul(LowerContext& context) {
  using Role = ProductAxis::Role;
  ASSIGN_OR_RETURN(const int64_t used, ReadUsed(context.node()));
  const Shape& w = context.InputShape(kWeights);
  Product product{.n = w[1], .k = {w[2]}};
  PairRows rows = RowsOfPairs(context, used, product.operands);
  product.batch = std::move(rows.batch);
  product.m = std::move(rows.m);
  product.a = std::move(rows.a);
  product.rows = std::move(rows.rows);
  product.b = context.node().inputs[kWeights];
  product.b_operand = {.dtype = DType::kF32, .shape = w};
  product.b_axes = {{Role::kBatch, 0}, {Role::kN, 0}, {Role::kK, 0}};
  product.b_constant = context.input(kWeights).constant;
  product.result = Expr::Accumulator(DType::kF32, 0);
  product.output = {.dtype = DType::kF32, .shape = *context.output(0).shape};
  product.output_coordinates = std::move(rows.output_coordinates);
  return EmitProduct(context, std::move(product), context.node().outputs[0]);
}

absl::Status LowerExpertMatMulPanels(LowerContext& context) {
  ASSIGN_OR_RETURN(const int64_t used, ReadUsed(context.node()));
  const Shape& w = context.InputShape(kWeights);
  ASSIGN_OR_RETURN(const Panels panels, ReadPanels(context.node(), {w[1], w[2]}));
  StageOperands operands;
  PairRows rows = RowsOfPairs(context, used, operands);
  Contraction contraction{.batch = std::move(rows.batch),
                          .m = std::move(rows.m),
                          .n = panels.rows,
                          .k = {panels.k},
                          .a = std::move(rows.a),
                          .b_batched = true,
                          .panel = panels.layout.panel,
                          .blocks = panels.layout.format,
                          .exact_rows = context.options().exact_rows,
                          .rows = std::move(rows.rows)};
  contraction.b = operands.AddInput(context, kWeights);
  contraction.result = Expr::Accumulator(DType::kF32, 0);
  contraction.output = {.dtype = DType::kF32, .shape = *context.output(0).shape};
  contraction.output_coordinates = std::move(rows.output_coordinates);
  contraction.operands = operands.TakeOperands();
  context.EmitContraction(std::move(contraction), operands.TakeValues(), context.node().outputs[0]);
  return absl::OkStatus();
}

constexpr Variant kGroupVariants[] = {{"skeleton", AlwaysApplies, LowerGroup}};
constexpr Variant kProductVariants[] = {{"contraction", AlwaysApplies, LowerExpertMatMul}};
constexpr Variant kPanelsVariants[] = {{"contraction", AlwaysApplies, LowerExpertMatMulPanels}};

constexpr OpDefinition kOps[] = {
    {.name = "GroupByExpert",
     .domain = "stampmill",
     .min_inputs = 1,
     .max_inputs = 1,
     .min_outputs = 2,
     .max_outputs = 2,
     .infer = InferGroup,
     .reference = GroupReference,
     .variants = kGroupVariants},
    {.name = "ExpertMatMul",
     .domain = "stampmill",
     .min_inputs = 4,
     .max_inputs = 4,
     .infer = InferExpertMatMul,
     .reference = ExpertMatMulReference,
     .variants = kProductVariants},
    {.name = "ExpertMatMulPanels",
     .domain = "stampmill",
     .min_inputs = 4,
     .max_inputs = 4,
     .infer = InferExpertMatMulPanels,
     .reference = ExpertMatMulPanelsReference,
     .variants = kPanelsVariants},
};

}  // namespace

std::span<const OpDefinition> ExpertOps() { return kOps; }

}  // namespace stampmill
