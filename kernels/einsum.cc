// Einsum: sums of products over named axes. Two operands that share summed axes and have some of
// their own are a contraction; whatever else there is (diagonals, outer products, plain sums) is a
// nest. More than two operands are multiplied from left to right, each time summing what no later
// operand and no output names.
#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"
#include "kernels/contraction.h"
#include "kernels/families.h"
#include "kernels/host_values.h"
#include "kernels/reference.h"
#include "kernels/shape_rules.h"
#include "kernels/stage_builder.h"

namespace stampmill {
namespace {

// A letter, or an axis that an ellipsis stands for: kEllipsis + its distance from the last one.
using Label = int;
using Labels = std::vector<Label>;
constexpr Label kEllipsis = 256;

struct Equation {
  std::vector<Labels> terms;  // one an input
  Labels output;
};

bool Contains(const Labels& labels, Label label) {
  return std::find(labels.begin(), labels.end(), label) != labels.end();
}

absl::Status EquationError(const Node& node, absl::string_view message) {
  return absl::InvalidArgumentError(absl::StrCat(node.Describe(), ": equation: ", message));
}

// Labels of one term; `ellipsis_rank` axes stand where its ellipsis is.
absl::StatusOr<Labels> ParseTerm(const Node& node, absl::string_view text, size_t ellipsis_rank) {
  Labels labels;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
      labels.push_back(c);
    } else if (text.substr(i, 3) == "...") {
      for (size_t j = ellipsis_rank; j-- > 0;) labels.push_back(kEllipsis + static_cast<Label>(j));
      i += 2;
    } else {
      return EquationError(node, absl::StrCat("'", std::string(1, c), "' is no label"));
    }
  }
  return labels;
}

// Without "->": the ellipsis axes, then the letters that appear once, in order.
Labels ImplicitOutput(const std::vector<Labels>& terms) {
  std::map<Label, int> counts;
  for (const Labels& term : terms) {
    for (const Label label : term) ++counts[label];
  }
  Labels ellipsis, letters;
  for (const auto& [label, count] : counts) {
    if (label >= kEllipsis) {
      ellipsis.insert(ellipsis.begin(), label);
    } else if (count == 1) {
      letters.push_back(label);
    }
  }
  ellipsis.insert(ellipsis.end(), letters.begin(), letters.end());
  return ellipsis;
}

absl::StatusOr<Equation> ParseEquation(const Node& node, const std::vector<size_t>& ranks) {
  ASSIGN_OR_RETURN(std::string text, node.String("equation", ""));
  text.erase(std::remove(text.begin(), text.end(), ' '), text.end());
  const std::vector<std::string> sides = absl::StrSplit(text, absl::string_view("->"));
  const std::vector<std::string> inputs = absl::StrSplit(sides[0], ',');
  if (sides.size() > 2 || inputs.size() != ranks.size()) {
    return EquationError(node, absl::StrCat("got '", text, "' for ", ranks.size(), " inputs"));
  }
  Equation equation;
  size_t widest = 0;
  for (size_t i = 0; i < inputs.size(); ++i) {
    const bool has_ellipsis = inputs[i].find("...") != std::string::npos;
    const size_t letters = inputs[i].size() - (has_ellipsis ? 3 : 0);
    const size_t hidden = has_ellipsis && ranks[i] > letters ? ranks[i] - letters : 0;
    widest = std::max(widest, hidden);
    ASSIGN_OR_RETURN(Labels labels, ParseTerm(node, inputs[i], hidden));
    if (labels.size() != ranks[i]) {
      return EquationError(node, absl::StrCat("input ", i, " has rank ", ranks[i], ", '", inputs[i],
                                              "' has another"));
    }
    equation.terms.push_back(std::move(labels));
  }
  if (sides.size() == 1) {
    equation.output = ImplicitOutput(equation.terms);
    return equation;
  }
  ASSIGN_OR_RETURN(equation.output, ParseTerm(node, sides[1], widest));
  for (size_t i = 0; i < equation.output.size(); ++i) {
    const Label label = equation.output[i];
    bool known = false;
    for (const Labels& term : equation.terms) known = known || Contains(term, label);
    for (size_t j = 0; j < i; ++j) known = known && equation.output[j] != label;
    if (!known) return EquationError(node, "an output label must be an input's, once");
  }
  return equation;
}

// Extents of labels. One that is 1 in some input is broadcast there.
using Extents = std::map<Label, DimExpr>;

Extents ExtentsOf(const Equation& equation, const std::vector<Shape>& shapes) {
  Extents extents;
  for (size_t i = 0; i < shapes.size(); ++i) {
    for (size_t j = 0; j < shapes[i].size(); ++j) {
      const auto [place, added] = extents.emplace(equation.terms[i][j], shapes[i][j]);
      if (!added && place->second.IsConstant(1)) place->second = shapes[i][j];
    }
  }
  return extents;
}

Shape ExtentsOf(const Labels& labels, const Extents& extents) {
  Shape shape;
  for (const Label label : labels) shape.push_back(extents.at(label));
  return shape;
}

absl::Status InferEinsum(InferContext& context) {
  std::vector<Shape> shapes;
  std::vector<size_t> ranks;
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(0));
  for (size_t i = 0; i < context.input_count(); ++i) {
    ASSIGN_OR_RETURN(const DType own, context.InputDType(i));
    ASSIGN_OR_RETURN(Shape shape, context.InputShape(i));
    if (own != dtype || dtype == DType::kBool) {
      return context.Error(absl::StrCat("input ", i, ": got type ", Name(own)));
    }
    ranks.push_back(shape.size());
    shapes.push_back(std::move(shape));
  }
  ASSIGN_OR_RETURN(const Equation equation, ParseEquation(context.node(), ranks));
  const Extents extents = ExtentsOf(equation, shapes);
  for (size_t i = 0; i < shapes.size(); ++i) {
    for (size_t j = 0; j < shapes[i].size(); ++j) {
      if (shapes[i][j].IsConstant(1)) continue;
      RETURN_IF_ERROR(RequireEqual(context, shapes[i][j], extents.at(equation.terms[i][j]),
                                   "axes of one label"));
    }
  }
  return context.SetOutput(0, dtype, ExtentsOf(equation.output, extents));
}

// Every label that is summed, each once.
Labels SummedLabels(const std::vector<Labels>& terms, const Labels& output) {
  Labels summed;
  for (const Labels& term : terms) {
    for (const Label label : term) {
      if (!Contains(output, label) && !Contains(summed, label)) summed.push_back(label);
    }
  }
  return summed;
}

absl::StatusOr<std::vector<Tensor>> EinsumReference(const ReferenceArguments& arguments) {
  std::vector<Shape> shapes;
  std::vector<size_t> ranks;
  for (const Tensor& input : arguments.inputs) {
    shapes.emplace_back(input.shape().begin(), input.shape().end());
    ranks.push_back(input.shape().size());
  }
  ASSIGN_OR_RETURN(const Equation equation, ParseEquation(arguments.node, ranks));
  const Extents extents = ExtentsOf(equation, shapes);
  const Labels summed = SummedLabels(equation.terms, equation.output);
  Labels loops = equation.output;
  loops.insert(loops.end(), summed.begin(), summed.end());
  // How far each input moves for a step of each loop: diagonals move along several axes at once.
  std::vector<Dims> strides;
  for (size_t i = 0; i < shapes.size(); ++i) {
    const Dims own = RowMajor(arguments.inputs[i].shape());
    Dims by_loop(loops.size(), 0);
    for (size_t axis = 0; axis < own.size(); ++axis) {
      for (size_t j = 0; j < loops.size(); ++j) {
        const bool moves = loops[j] == equation.terms[i][axis] && !shapes[i][axis].IsConstant(1);
        if (moves) by_loop[j] += own[axis];
      }
    }
    strides.push_back(std::move(by_loop));
  }
  const Dims dims = ConstantShape(ExtentsOf(equation.output, extents));
  const Dims all = ConstantShape(ExtentsOf(loops, extents));
  const int64_t sums = ProductOf(ConstantShape(ExtentsOf(summed, extents)));
  absl::StatusOr<Tensor> output =
      WithArithmeticType(arguments.inputs[0].dtype(), [&]<typename T>(T) {
        std::vector<std::vector<T>> values;
        for (const Tensor& input : arguments.inputs) values.push_back(ReadValues<T>(input));
        std::vector<T> y(static_cast<size_t>(ProductOf(dims)), T{0});
        int64_t step = 0;
        ForEachIndex(all, [&](const Dims& index) {
          T product{1};
          for (size_t i = 0; i < values.size(); ++i) {
            product = WrapMul(product, values[i][static_cast<size_t>(OffsetOf(index, strides[i]))]);
          }
          T& sum = y[static_cast<size_t>(step++ / sums)];
          sum = WrapAdd(sum, product);
        });
        return MakeTensor(arguments.inputs[0].dtype(), dims, y);
      });
  if (!output.ok()) return output.status();
  return One(*std::move(output));
}

// Lowering.

// A tensor with its labels: an input of the node or a product of some of them.
struct Term {
  ValueId value = kNoValue;
  DType dtype = DType::kInvalid;
  Shape shape;
  Labels labels;
  std::optional<Tensor> constant;
};

// Where each label's coordinate is in a loop nest.
using LabelCoords = std::map<Label, Expr>;

std::vector<Expr> TermCoords(const Term& term, const Extents& extents, const LabelCoords& coords) {
  std::vector<Expr> own;
  for (size_t i = 0; i < term.labels.size(); ++i) {
    own.push_back(
        BroadcastCoord(term.shape[i], extents.at(term.labels[i]), coords.at(term.labels[i])));
  }
  return own;
}

void EmitEinsumNest(LowerContext& context, const std::vector<Term>& terms, const Extents& extents,
                    const Term& result) {
  std::vector<Labels> labels;
  for (const Term& term : terms) labels.push_back(term.labels);
  const Labels summed = SummedLabels(labels, result.labels);
  LabelCoords coords;
  for (const Labels& group : {result.labels, summed}) {
    for (const Label label : group) {
      coords[label] = Expr::Coord(static_cast<int32_t>(coords.size()));
    }
  }
  StageOperands operands;
  const DType compute = ComputeType(result.dtype);
  Expr product;
  for (const Term& term : terms) {
    const int32_t operand = operands.Add(term.value, term.dtype, term.shape);
    const Expr factor =
        Expr::Cast(compute, operands.Load(operand, TermCoords(term, extents, coords)));
    product = product.valid() ? product * factor : factor;
  }
  Nest nest{.kept = result.shape, .reduced = ExtentsOf(summed, extents)};
  if (!summed.empty()) {
    nest.reductions = {SumReduction(product)};
    product = Expr::Reduced(compute, 0);
  }
  nest.result = Expr::Cast(result.dtype, product);
  nest.output = {.dtype = result.dtype, .shape = result.shape};
  EmitNest(context, std::move(operands), std::move(nest), result.value);
}

// The labels of a product of two, by what they are to a contraction.
struct Roles {
  Labels batch, m, n, k;
};

bool HasDiagonal(const Labels& labels) {
  for (size_t i = 0; i < labels.size(); ++i) {
    if (std::count(labels.begin(), labels.end(), labels[i]) > 1) return true;
  }
  return false;
}

// False when the product is no contraction with these sides.
bool FindRoles(const Term& a, const Term& b, const Extents& extents, const Term& result,
               Roles* roles) {
  if (HasDiagonal(a.labels) || HasDiagonal(b.labels)) return false;
  // The right-hand side may be broadcast only along batch axes.
  for (size_t i = 0; i < b.labels.size(); ++i) {
    if (b.shape[i] != extents.at(b.labels[i])) return false;
  }
  for (const Label label : result.labels) {
    const bool in_a = Contains(a.labels, label), in_b = Contains(b.labels, label);
    (in_a && in_b ? roles->batch : in_a ? roles->m : roles->n).push_back(label);
  }
  for (const Label label : SummedLabels({a.labels, b.labels}, result.labels)) {
    if (!Contains(a.labels, label) || !Contains(b.labels, label)) return false;
    roles->k.push_back(label);
  }
  return !roles->k.empty() && !roles->n.empty() &&
         !ElementCount(ExtentsOf(roles->n, extents)).IsConstant(1);
}

absl::Status EmitEinsumProduct(LowerContext& context, const Term& a, const Term& b,
                               const Extents& extents, const Term& result, const Roles& roles) {
  Product product;
  product.accumulator = *ContractionAccumulator(result.dtype);
  product.batch = ExtentsOf(roles.batch, extents);
  product.m = ExtentsOf(roles.m, extents);
  if (product.m.empty()) product.m = {1};
  product.n = ElementCount(ExtentsOf(roles.n, extents));
  product.k = ExtentsOf(roles.k, extents);
  const size_t row_end = product.batch.size() + product.m.size();
  const auto number = [&](const Labels& labels, size_t first, LabelCoords* coords) {
    for (size_t i = 0; i < labels.size(); ++i) {
      (*coords)[labels[i]] = Expr::Coord(static_cast<int32_t>(first + i));
    }
  };
  LabelCoords a_coords;
  number(roles.batch, 0, &a_coords);
  number(roles.m, roles.batch.size(), &a_coords);
  LabelCoords result_coords = a_coords;
  number(roles.k, row_end, &a_coords);
  const int32_t left = product.operands.Add(a.value, a.dtype, a.shape);
  product.a = Expr::Cast(product.accumulator,
                         product.operands.Load(left, TermCoords(a, extents, a_coords)));

  product.b = b.value;
  product.b_operand = {.dtype = b.dtype, .shape = b.shape};
  product.b_constant = b.constant;
  const auto place = [](const Labels& labels, Label label) {
    return static_cast<size_t>(std::find(labels.begin(), labels.end(), label) - labels.begin());
  };
  for (const Label label : b.labels) {
    using Role = ProductAxis::Role;
    product.b_axes.push_back(
        Contains(roles.batch, label) ? ProductAxis{Role::kBatch, place(roles.batch, label)}
        : Contains(roles.n, label)   ? ProductAxis{Role::kN, place(roles.n, label)}
                                     : ProductAxis{Role::kK, place(roles.k, label)});
  }
  Expr column = Expr::Coord(static_cast<int32_t>(row_end));
  for (size_t i = roles.n.size(); i-- > 0;) {
    const Expr extent = Extent(extents.at(roles.n[i]));
    result_coords[roles.n[i]] = i == 0 ? column : FloorModulo(column, extent);
    if (i > 0) column = FloorDivide(column, extent);
  }
  for (const Label label : result.labels) {
    product.output_coordinates.push_back(result_coords.at(label));
  }
  product.result = Expr::Cast(result.dtype, Expr::Accumulator(product.accumulator, 0));
  product.output = {.dtype = result.dtype, .shape = result.shape};
  return EmitProduct(context, std::move(product), result.value);
}

absl::Status EmitPair(LowerContext& context, const Term& a, const Term& b, const Extents& extents,
                      const Term& result) {
  if (ContractionAccumulator(result.dtype).has_value()) {
    Roles roles;
    if (FindRoles(a, b, extents, result, &roles)) {
      return EmitEinsumProduct(context, a, b, extents, result, roles);
    }
    roles = Roles();
    if (FindRoles(b, a, extents, result, &roles)) {
      return EmitEinsumProduct(context, b, a, extents, result, roles);
    }
  }
  EmitEinsumNest(context, {a, b}, extents, result);
  return absl::OkStatus();
}

// The product of the first two of `terms`, with the labels that anything after them names.
Term NextProduct(LowerContext& context, const std::vector<Term>& terms, const Extents& extents,
                 const Labels& output) {
  Term product{.dtype = terms[0].dtype};
  const auto needed = [&](Label label) {
    for (size_t i = 2; i < terms.size(); ++i) {
      if (Contains(terms[i].labels, label)) return true;
    }
    return Contains(output, label);
  };
  for (const Term* term : {&terms[0], &terms[1]}) {
    for (const Label label : term->labels) {
      if (needed(label) && !Contains(product.labels, label)) product.labels.push_back(label);
    }
  }
  product.shape = ExtentsOf(product.labels, extents);
  product.value = context.NewValue(product.dtype, product.shape, "product");
  return product;
}

absl::Status LowerEinsum(LowerContext& context) {
  std::vector<Shape> shapes;
  std::vector<size_t> ranks;
  for (size_t i = 0; i < context.node().inputs.size(); ++i) {
    shapes.push_back(context.InputShape(i));
    ranks.push_back(shapes.back().size());
  }
  ASSIGN_OR_RETURN(const Equation equation, ParseEquation(context.node(), ranks));
  const Extents extents = ExtentsOf(equation, shapes);
  std::vector<Term> terms;
  for (size_t i = 0; i < shapes.size(); ++i) {
    terms.push_back({.value = context.node().inputs[i],
                     .dtype = context.input(i).dtype,
                     .shape = shapes[i],
                     .labels = equation.terms[i],
                     .constant = context.input(i).constant});
  }
  while (terms.size() > 2) {
    Term product = NextProduct(context, terms, extents, equation.output);
    RETURN_IF_ERROR(EmitPair(context, terms[0], terms[1], extents, product));
    terms.erase(terms.begin());
    terms[0] = std::move(product);
  }
  const Term result{.value = context.node().outputs[0],
                    .dtype = context.output(0).dtype,
                    .shape = *context.output(0).shape,
                    .labels = equation.output};
  if (terms.size() == 2) return EmitPair(context, terms[0], terms[1], extents, result);
  EmitEinsumNest(context, terms, extents, result);
  return absl::OkStatus();
}

constexpr Variant kEinsumVariants[] = {{"products", AlwaysApplies, LowerEinsum}};

}  // namespace

std::span<const OpDefinition> EinsumOps() {
  static constexpr OpDefinition kOps[] = {
      {.name = "Einsum",
       .domain = "",
       .min_inputs = 1,
       .max_inputs = -1,
       .infer = InferEinsum,
       .reference = EinsumReference,
       .variants = kEinsumVariants},
  };
  return kOps;
}

}  // namespace stampmill
