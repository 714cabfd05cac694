// Verification and printing of stages. Each expression of a stage may refer to some axes,
// reductions and accumulators only; a Scope says which.
#include "graph/nest.h"

#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "graph/block_layout.h"

namespace stampmill {
namespace {

struct Scope {
  std::span<const Operand> operands;
  size_t axes = 0;
  std::span<const Reduction> reductions;  // whose results may be used
  std::vector<DType> accumulators;
  bool loads = true;
};

class Verifier {
 public:
  explicit Verifier(absl::string_view what) : what_(what) {}

  template <typename... Args>
  absl::Status Error(const Args&... args) const {
    return absl::InternalError(absl::StrCat(what_, ": ", args...));
  }

  absl::Status CheckOperands(std::span<const Operand> operands, absl::string_view kind) const {
    if (operands.size() > kNestOperandsMax) {
      return Error(operands.size(), " ", kind, "s, limit ", kNestOperandsMax);
    }
    for (size_t i = 0; i < operands.size(); ++i) {
      if (SizeBytes(operands[i].dtype) == 0) return Error(kind, " ", i, ": no dtype");
      if (operands[i].shape.size() > kNestAxesMax) {
        return Error(kind, " ", i, ": rank ", operands[i].shape.size(), ", limit ", kNestAxesMax);
      }
    }
    return absl::OkStatus();
  }

  absl::Status CheckExpr(const Expr& expr, const Scope& scope, absl::string_view field) {
    if (!expr.valid()) return Error(field, ": no expression");
    absl::Status status;
    expr.Visit([&](const Expr& e) {
      seen_.insert(e.id());
      if (status.ok()) status = CheckNode(e, scope, field);
    });
    if (status.ok() && static_cast<int64_t>(seen_.size()) > kNestNodesMax) {
      return Error("more than ", kNestNodesMax, " expression nodes");
    }
    return status;
  }

  absl::Status CheckExprOf(const Expr& expr, DType dtype, const Scope& scope,
                           absl::string_view field) {
    RETURN_IF_ERROR(CheckExpr(expr, scope, field));
    if (expr.dtype() == dtype) return absl::OkStatus();
    return Error(field, ": dtype ", Name(expr.dtype()), ", need ", Name(dtype));
  }

  absl::Status CheckReduction(const Reduction& reduction, const Scope& outer, size_t kept_axes,
                              absl::string_view field) {
    const size_t count = reduction.init.size();
    if (count == 0 || count > kNestOperandsMax || reduction.update.size() != count ||
        reduction.merge.size() != count) {
      return Error(field, ": ", count, " accumulators, ", reduction.update.size(), " updates, ",
                   reduction.merge.size(), " merges");
    }
    Scope kept = outer;
    kept.axes = kept_axes;
    std::vector<DType> dtypes;
    for (const Expr& init : reduction.init) {
      RETURN_IF_ERROR(CheckExpr(init, kept, absl::StrCat(field, " init")));
      dtypes.push_back(init.dtype());
    }
    Scope update = outer;
    update.accumulators = dtypes;
    Scope merge;
    merge.loads = false;
    merge.accumulators = dtypes;
    merge.accumulators.insert(merge.accumulators.end(), dtypes.begin(), dtypes.end());
    for (size_t i = 0; i < count; ++i) {
      RETURN_IF_ERROR(
          CheckExprOf(reduction.update[i], dtypes[i], update, absl::StrCat(field, " update")));
      RETURN_IF_ERROR(
          CheckExprOf(reduction.merge[i], dtypes[i], merge, absl::StrCat(field, " merge")));
    }
    kept.accumulators = dtypes;
    return CheckExpr(reduction.result, kept, absl::StrCat(field, " result"));
  }

  // `loop` is the shape that the output has when no coordinates are given.
  absl::Status CheckOutput(const Expr& result, const Operand& output,
                           std::span<const Expr> coordinates, const Shape& loop,
                           const Scope& scope) {
    RETURN_IF_ERROR(CheckOperands({&output, 1}, "output"));
    RETURN_IF_ERROR(CheckExprOf(result, output.dtype, scope, "result"));
    if (coordinates.empty()) {
      if (output.shape == loop) return absl::OkStatus();
      return Error("output shape ", ToString(output.shape), " without coordinates, loops ",
                   ToString(loop));
    }
    if (coordinates.size() != output.shape.size()) {
      return Error(coordinates.size(), " output coordinates, rank ", output.shape.size());
    }
    Scope position = scope;
    position.accumulators.clear();
    for (const Expr& coordinate : coordinates) {
      RETURN_IF_ERROR(CheckExprOf(coordinate, DType::kI64, position, "output coordinate"));
    }
    return absl::OkStatus();
  }

 private:
  absl::Status CheckLoad(const Expr& e, const Scope& scope, absl::string_view field) const {
    if (!scope.loads) return Error(field, ": may not load");
    if (static_cast<size_t>(e.index()) >= scope.operands.size()) {
      return Error(field, ": loads operand ", e.index(), " of ", scope.operands.size());
    }
    const Operand& operand = scope.operands[static_cast<size_t>(e.index())];
    const size_t coordinates = e.operands().size() - (e.op() == ExprOp::kGuardedLoad ? 2 : 0);
    if (coordinates != operand.shape.size()) {
      return Error(field, ": load of operand ", e.index(), " has ", coordinates,
                   " coordinates, rank ", operand.shape.size());
    }
    if (e.dtype() != operand.dtype) {
      return Error(field, ": load of operand ", e.index(), " as ", Name(e.dtype()), ", it is ",
                   Name(operand.dtype));
    }
    return absl::OkStatus();
  }

  absl::Status CheckNode(const Expr& e, const Scope& scope, absl::string_view field) const {
    const size_t index = static_cast<size_t>(e.index());
    switch (e.op()) {
      case ExprOp::kLoad:
      case ExprOp::kGuardedLoad:
        return CheckLoad(e, scope, field);
      case ExprOp::kCoord:
        if (index < scope.axes) return absl::OkStatus();
        return Error(field, ": axis ", index, ", limit ", scope.axes);
      case ExprOp::kReduced:
        if (index >= scope.reductions.size()) {
          return Error(field, ": reduced ", index, ", limit ", scope.reductions.size());
        }
        if (scope.reductions[index].result.dtype() != e.dtype()) {
          return Error(field, ": reduced ", index, " as ", Name(e.dtype()), ", it is ",
                       Name(scope.reductions[index].result.dtype()));
        }
        return absl::OkStatus();
      case ExprOp::kAccumulator:
        if (index >= scope.accumulators.size()) {
          return Error(field, ": accumulator ", index, ", limit ", scope.accumulators.size());
        }
        if (scope.accumulators[index] != e.dtype()) {
          return Error(field, ": accumulator ", index, " as ", Name(e.dtype()), ", it is ",
                       Name(scope.accumulators[index]));
        }
        return absl::OkStatus();
      default:
        return absl::OkStatus();  // types were checked when the node was made
    }
  }

  absl::string_view what_;
  absl::flat_hash_set<const void*> seen_;
};

Shape Concatenated(const Shape& a, const Shape& b) {
  Shape result = a;
  result.insert(result.end(), b.begin(), b.end());
  return result;
}

}  // namespace

absl::Status Verify(const Nest& nest) {
  Verifier verifier("nest");
  const size_t axes = nest.kept.size() + nest.reduced.size();
  if (axes > kNestAxesMax) return verifier.Error(axes, " axes, limit ", kNestAxesMax);
  if (nest.reductions.size() > kNestOperandsMax) {
    return verifier.Error(nest.reductions.size(), " reductions, limit ", kNestOperandsMax);
  }
  RETURN_IF_ERROR(verifier.CheckOperands(nest.operands, "operand"));
  for (const Reduction& reduction : nest.reductions) {
    if (!reduction.result.valid()) return verifier.Error("reduction without result");
  }
  for (size_t i = 0; i < nest.reductions.size(); ++i) {
    const Scope scope = {.operands = nest.operands,
                         .axes = axes,
                         .reductions = std::span(nest.reductions).first(i),
                         .accumulators = {}};
    RETURN_IF_ERROR(verifier.CheckReduction(nest.reductions[i], scope, nest.kept.size(),
                                            absl::StrCat("reduction ", i)));
  }
  const Scope scope = {.operands = nest.operands,
                       .axes = nest.per_element ? axes : nest.kept.size(),
                       .reductions = nest.reductions,
                       .accumulators = {}};
  return verifier.CheckOutput(nest.result, nest.output, nest.output_coordinates,
                              nest.per_element ? Concatenated(nest.kept, nest.reduced) : nest.kept,
                              scope);
}

namespace {

absl::Status CheckBlocks(const Contraction& c, const Verifier& verifier) {
  const Operand& b = c.operands[static_cast<size_t>(c.b)];
  const size_t batch_rank = c.b_batched ? c.batch.size() : 0;
  const DimExpr k = ElementCount(c.k);
  if (c.accumulator != DType::kF32 || b.dtype != DType::kU8 || b.shape.size() != batch_rank + 2) {
    return verifier.Error("product of blocks in ", Name(c.accumulator), ", b has dtype ",
                          Name(b.dtype), " and shape ", ToString(b.shape));
  }
  if (c.panel > kBlockPanelMax) {
    return verifier.Error("panel ", c.panel, " of blocks, limit ", kBlockPanelMax);
  }
  const BlockLayout layout = LayoutOf(*c.blocks, c.panel);
  const int64_t elements = layout.facts().elements;
  if (!k.is_constant() || *k.constant() % elements != 0) {
    return verifier.Error("k of ", k.ToString(), ", blocks of ", elements);
  }
  const DimExpr needed[] = {CeilDiv(c.n, c.panel), FloorDiv(k, elements) * layout.block_bytes};
  for (size_t i = 0; i < 2; ++i) {
    const DimExpr& actual = b.shape[batch_rank + i];
    if (!(i == 0 && (!actual.is_constant() || !needed[i].is_constant())) && actual != needed[i]) {
      return verifier.Error("b has shape ", ToString(b.shape), ", need [..., ",
                            needed[0].ToString(), ", ", needed[1].ToString(), "]");
    }
  }
  return absl::OkStatus();
}

// `a` of rows that were rounded before.
absl::Status CheckRecords(const Contraction& c, const Verifier& verifier) {
  Shape shape = c.batch;
  shape.insert(shape.end(), c.m.begin(), c.m.end());
  const int64_t bytes = RecordsOf(c).row_bytes(*ElementCount(c.k).constant());
  shape.push_back(bytes / static_cast<int64_t>(SizeBytes(c.a.dtype())));
  bool is_plain = c.a.op() == ExprOp::kLoad && c.k.size() == 1 && !c.exact_rows;
  if (is_plain) {
    // First axes of extent 1 may be left out.
    const std::span<const Expr> at = c.a.operands();
    size_t left_out = 0;
    while (left_out + at.size() < shape.size() && shape[left_out].IsConstant(1)) ++left_out;
    shape.erase(shape.begin(), shape.begin() + static_cast<int64_t>(left_out));
    const Operand& operand = c.operands[static_cast<size_t>(c.a.index())];
    is_plain = operand.dtype == c.a.dtype() && at.size() == shape.size();
    for (size_t i = 0; is_plain && i < shape.size(); ++i) {
      // An open length of a row is checked where it becomes known.
      const bool is_open = i + 1 == shape.size() && !operand.shape[i].is_constant();
      is_plain = is_open || operand.shape[i] == shape[i];
    }
    for (size_t i = 0; is_plain && i < at.size(); ++i) {
      is_plain =
          at[i].op() == ExprOp::kCoord && at[i].index() == static_cast<int32_t>(i + left_out);
    }
  }
  if (is_plain) return absl::OkStatus();
  return verifier.Error("a is no plain load of records of shape ", ToString(shape), ": ",
                        c.a.ToString());
}

// b of numbers, of bytes or of pairs.
absl::Status CheckPanels(const Contraction& c, const Verifier& verifier) {
  const Operand& b = c.operands[static_cast<size_t>(c.b)];
  const size_t batch_rank = c.b_batched ? c.batch.size() : 0;
  const bool of_bytes = c.of_bytes() && c.accumulator == DType::kI32;
  const bool of_pairs = c.of_pairs();
  const int64_t group = of_bytes ? kByteGroup : of_pairs ? kPairGroup : 1;
  const size_t panel_axis = batch_rank + 2;
  if ((b.dtype != c.accumulator && !of_bytes && !of_pairs) ||
      b.shape.size() != panel_axis + (of_bytes ? 2 : 1) ||
      !b.shape[panel_axis].IsConstant(c.panel)) {
    return verifier.Error("b has dtype ", Name(b.dtype), " and shape ", ToString(b.shape),
                          ", panel ", c.panel, ", batch rank ", batch_rank);
  }
  if (of_bytes && !b.shape.back().IsConstant(kByteGroup)) {
    return verifier.Error("b has shape ", ToString(b.shape), ", bytes in groups of ", kByteGroup);
  }
  // Relations between dims that are parameters are lost in canonical bytes: compare what is known.
  const DimExpr needed[] = {CeilDiv(c.n, c.panel), CeilDiv(ElementCount(c.k), group)};
  for (size_t i = 0; i < 2; ++i) {
    const DimExpr& actual = b.shape[batch_rank + i];
    if (actual.is_constant() && needed[i].is_constant() && actual != needed[i]) {
      return verifier.Error("b has shape ", ToString(b.shape), ", need [..., ",
                            needed[0].ToString(), ", ", needed[1].ToString(), ", ", c.panel, "]");
    }
  }
  return absl::OkStatus();
}

}  // namespace

RowRecords RecordsOf(const Contraction& contraction) {
  return RecordsFor(*contraction.blocks, contraction.a.dtype() == DType::kI16);
}

absl::Status Verify(const Contraction& c) {
  Verifier verifier("contraction");
  const size_t axes = c.batch.size() + c.m.size() + c.k.size();
  if (axes > kNestAxesMax) return verifier.Error(axes, " axes, limit ", kNestAxesMax);
  if (c.m.empty() || c.k.empty()) return verifier.Error("no axis for m or k");
  if (c.accumulator != DType::kF32 && c.accumulator != DType::kF64 &&
      c.accumulator != DType::kI32) {
    return verifier.Error("accumulator of ", Name(c.accumulator));
  }
  RETURN_IF_ERROR(verifier.CheckOperands(c.operands, "operand"));
  if (c.b < 0 || static_cast<size_t>(c.b) >= c.operands.size()) {
    return verifier.Error("b is operand ", c.b, " of ", c.operands.size());
  }
  if (c.panel <= 0) return verifier.Error("panel ", c.panel);
  if (c.exact_rows && !c.blocks.has_value()) return verifier.Error("exact rows without blocks");
  RETURN_IF_ERROR(c.blocks.has_value() ? CheckBlocks(c, verifier) : CheckPanels(c, verifier));
  const bool of_bytes = c.of_bytes();
  const Scope scope_a = {
      .operands = c.operands, .axes = axes, .reductions = {}, .accumulators = {}};
  const DType of_pair = c.accumulator == DType::kF32 ? DType::kBF16 : DType::kI16;
  const bool of_records = c.a.valid() && c.of_records();
  const DType dtype_a = of_records     ? c.a.dtype()
                        : of_bytes     ? DType::kU8
                        : c.of_pairs() ? of_pair
                                       : c.accumulator;
  RETURN_IF_ERROR(verifier.CheckExprOf(c.a, dtype_a, scope_a, "a"));
  if (of_records) RETURN_IF_ERROR(CheckRecords(c, verifier));
  if (c.rows.valid()) {
    const Scope of_batch = {
        .operands = c.operands, .axes = c.batch.size(), .reductions = {}, .accumulators = {}};
    RETURN_IF_ERROR(verifier.CheckExprOf(c.rows, DType::kI64, of_batch, "rows"));
    if (of_bytes) return verifier.Error("rows of a product of bytes");
  }
  const Scope scope = {.operands = c.operands,
                       .axes = c.batch.size() + c.m.size() + 1,
                       .reductions = {},
                       .accumulators = std::vector<DType>(of_bytes ? 2 : 1, c.accumulator)};
  return verifier.CheckOutput(c.result, c.output, c.output_coordinates,
                              Concatenated(Concatenated(c.batch, c.m), {c.n}), scope);
}

namespace {

absl::Status VerifyLibrary(const Library& library) {
  Verifier verifier("library stage");
  if (library.skeleton.empty()) return verifier.Error("no skeleton");
  if (library.outputs.empty()) return verifier.Error(library.skeleton, ": no output");
  RETURN_IF_ERROR(verifier.CheckOperands(library.operands, "operand"));
  return verifier.CheckOperands(library.outputs, "output");
}

std::string OperandsText(std::span<const Operand> operands) {
  return absl::StrJoin(operands, ", ", [](std::string* out, const Operand& operand) {
    absl::StrAppend(out, Name(operand.dtype), ToString(operand.shape));
  });
}

std::string ExprsText(std::span<const Expr> exprs) {
  return absl::StrJoin(exprs, ", ",
                       [](std::string* out, const Expr& e) { out->append(e.ToString()); });
}

std::string OutputText(const Expr& result, const Operand& output,
                       std::span<const Expr> coordinates) {
  std::string text = absl::StrCat("  ", OperandsText({&output, 1}));
  if (!coordinates.empty()) absl::StrAppend(&text, " at [", ExprsText(coordinates), "]");
  return absl::StrCat(text, " = ", result.ToString(), "\n");
}

std::string Text(const Nest& nest) {
  std::string text = absl::StrCat("nest ", ToString(nest.kept), " reduced ", ToString(nest.reduced),
                                  nest.per_element ? " per element" : "", "\n  operands ",
                                  OperandsText(nest.operands), "\n");
  for (size_t i = 0; i < nest.reductions.size(); ++i) {
    const Reduction& r = nest.reductions[i];
    absl::StrAppend(&text, "  reduced", i, ": init [", ExprsText(r.init), "] update [",
                    ExprsText(r.update), "] merge [", ExprsText(r.merge), "] result ",
                    r.result.ToString(), "\n");
  }
  return text + OutputText(nest.result, nest.output, nest.output_coordinates);
}

std::string BlocksText(const Contraction& c) {
  if (!c.blocks.has_value()) return "";
  return absl::StrCat(" of ", Name(*c.blocks),
                      c.exact_rows     ? ", exact rows"
                      : c.of_records() ? ", rounded rows"
                                       : "");
}

std::string Text(const Contraction& c) {
  return absl::StrCat(
      "contraction batch ", ToString(c.batch), " m ", ToString(c.m), " n ", c.n.ToString(), " k ",
      ToString(c.k), " in ", Name(c.accumulator), "\n  operands ", OperandsText(c.operands),
      "\n  a = ", c.a.ToString(), "\n  b = operand ", c.b, c.b_batched ? " batched" : "", " panel ",
      c.panel, BlocksText(c), c.rows.valid() ? absl::StrCat("\n  rows ", c.rows.ToString()) : "",
      "\n", OutputText(c.result, c.output, c.output_coordinates));
}

std::string Text(const Library& library) {
  return absl::StrCat("library ", library.skeleton, " [",
                      absl::StrJoin(library.configuration, ", "), "]\n  operands ",
                      OperandsText(library.operands), "\n  outputs ", OperandsText(library.outputs),
                      "\n  dims ", ToString(library.dims), " tasks ", library.tasks.ToString(),
                      " scratch ", library.scratch_bytes.ToString(), "\n");
}

}  // namespace

absl::Status Verify(const StageBody& body) {
  if (const Nest* nest = std::get_if<Nest>(&body)) return Verify(*nest);
  if (const Contraction* contraction = std::get_if<Contraction>(&body)) {
    return Verify(*contraction);
  }
  return VerifyLibrary(std::get<Library>(body));
}

std::string ToString(const StageBody& body) {
  return std::visit([](const auto& one) { return Text(one); }, body);
}

}  // namespace stampmill
