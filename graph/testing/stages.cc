#include "graph/testing/stages.h"

#include <limits>

#include "graph/block_layout.h"
#include "graph/row_records.h"

namespace stampmill {
namespace {

Expr I64(int64_t value) { return Expr::ConstantInt(DType::kI64, value); }
Expr F32(double value) { return Expr::Constant(DType::kF32, value); }

Reduction OneAccumulator(ExprOp op, double start, const Expr& value) {
  const Expr accumulator = Expr::Accumulator(DType::kF32, 0);
  return {.init = {F32(start)},
          .update = {Expr::Binary(op, accumulator, value)},
          .merge = {Expr::Binary(op, accumulator, Expr::Accumulator(DType::kF32, 1))},
          .result = accumulator};
}

// Largest element and where it first stands, over f32[n]: two accumulators, an i64 result.
Nest ArgMaxNest(const DimExpr& n) {
  const Expr x = Expr::Load(DType::kF32, 0, {Expr::Coord(0)});
  const auto pick = [](const Expr& better, const Expr& a, const Expr& b) {
    return Expr::Select(better, a, b);
  };
  const Expr best = Expr::Accumulator(DType::kF32, 0);
  const Expr place = Expr::Accumulator(DType::kI64, 1);
  const Expr other = Expr::Accumulator(DType::kF32, 2);
  const Expr other_place = Expr::Accumulator(DType::kI64, 3);
  const Expr better = Expr::Binary(ExprOp::kGt, x, best);
  const Expr other_better =
      Expr::Binary(ExprOp::kBitOr, Expr::Binary(ExprOp::kGt, other, best),
                   Expr::Binary(ExprOp::kBitAnd, Expr::Binary(ExprOp::kEq, other, best),
                                Expr::Binary(ExprOp::kLt, other_place, place)));
  Nest nest;
  nest.reduced = {n};
  nest.operands = {{DType::kF32, {n}}};
  nest.reductions = {
      {.init = {F32(-std::numeric_limits<double>::infinity()), I64(0)},
       .update = {pick(better, x, best), pick(better, Expr::Coord(0), place)},
       .merge = {pick(other_better, other, best), pick(other_better, other_place, place)},
       .result = place}};
  nest.result = Expr::Reduced(DType::kI64, 0);
  nest.output = {DType::kI64, {}};
  return nest;
}

}  // namespace

Nest MapNest(const DimExpr& n, const Expr& value) {
  Nest nest;
  nest.kept = {n};
  nest.operands = {{DType::kF32, {n}}};
  nest.result = value;
  nest.output = {value.dtype(), {n}};
  return nest;
}

Nest SoftmaxNest(const DimExpr& rows, const DimExpr& columns) {
  const Expr x = Expr::Load(DType::kF32, 0, {Expr::Coord(0), Expr::Coord(1)});
  const Expr shifted = Expr::Unary(ExprOp::kExp, x - Expr::Reduced(DType::kF32, 0));
  Nest nest;
  nest.kept = {rows};
  nest.reduced = {columns};
  nest.operands = {{DType::kF32, {rows, columns}}};
  nest.reductions = {OneAccumulator(ExprOp::kMax, -std::numeric_limits<double>::infinity(), x),
                     OneAccumulator(ExprOp::kAdd, 0, shifted)};
  nest.result = shifted / Expr::Reduced(DType::kF32, 1);
  nest.per_element = true;
  nest.output = {DType::kF32, {rows, columns}};
  return nest;
}

Contraction MatMulContraction(const DimExpr& m, const DimExpr& n, const DimExpr& k, int64_t panel) {
  Contraction c;
  c.m = {m};
  c.n = n;
  c.k = {k};
  c.operands = {{DType::kF32, {m, k}}, {DType::kF32, {CeilDiv(n, panel), k, panel}}};
  c.a = Expr::Load(DType::kF32, 0, {Expr::Coord(0), Expr::Coord(1)});
  c.b = 1;
  c.panel = panel;
  c.result = Expr::Binary(ExprOp::kMax, Expr::Accumulator(DType::kF32, 0), F32(0));
  c.output = {DType::kF32, {m, n}};
  return c;
}

Contraction PairMatMulContraction(const DimExpr& m, const DimExpr& n, const DimExpr& k,
                                  int64_t panel) {
  Contraction c = MatMulContraction(m, n, k, panel);
  c.operands[1] = {DType::kU32, {CeilDiv(n, panel), CeilDiv(k, kPairGroup), panel}};
  c.a = Expr::Cast(DType::kBF16, c.a);
  return c;
}

Contraction WordMatMulContraction(const DimExpr& m, const DimExpr& n, const DimExpr& k,
                                  int64_t panel) {
  Contraction c = PairMatMulContraction(m, n, k, panel);
  c.accumulator = DType::kI32;
  c.operands[0].dtype = DType::kI16;
  c.a = Expr::Load(DType::kI16, 0, {Expr::Coord(0), Expr::Coord(1)});
  c.result = Expr::Accumulator(DType::kI32, 0);
  c.output.dtype = DType::kI32;
  return c;
}

Contraction BlockMatMulContraction(const DimExpr& m, int64_t n, int64_t k, BlockFormat format,
                                   int64_t panel) {
  const BlockLayout layout = LayoutOf(format, panel);
  Contraction c = MatMulContraction(m, n, k, panel);
  c.blocks = format;
  c.operands[1] = {DType::kU8,
                   {CeilDiv(n, panel), k / layout.facts().elements * layout.block_bytes}};
  return c;
}

Contraction WithRecords(Contraction c, bool wide) {
  const DType dtype = wide ? DType::kI16 : DType::kU8;
  const int64_t bytes = RecordsFor(*c.blocks, wide).row_bytes(*c.k[0].constant());
  Operand& a = c.operands[static_cast<size_t>(c.a.index())];
  a.dtype = dtype;
  a.shape.back() = bytes / static_cast<int64_t>(SizeBytes(dtype));
  c.a = Expr::Load(dtype, c.a.index(), {c.a.operands().begin(), c.a.operands().end()});
  return c;
}

Nest PadNest(const DimExpr& channels, const DimExpr& height, const DimExpr& width) {
  const Expr y = Expr::Coord(1) - I64(1);
  const Expr x = Expr::Coord(2) - I64(1);
  const auto inside = [](const Expr& at, const DimExpr& extent) {
    return Expr::Binary(ExprOp::kBitAnd, Expr::Binary(ExprOp::kGe, at, I64(0)),
                        Expr::Binary(ExprOp::kLt, at, Expr::Dim(extent)));
  };
  Nest nest;
  nest.kept = {channels, height + 2, width + 2};
  nest.operands = {{DType::kI8, {channels, height, width}}};
  nest.result = Expr::Cast(
      DType::kI32,
      Expr::GuardedLoad(DType::kI8, 0, {Expr::Coord(0), y, x},
                        Expr::Binary(ExprOp::kBitAnd, inside(y, height), inside(x, width)),
                        Expr::ConstantInt(DType::kI8, -7)));
  nest.output = {DType::kI32, nest.kept};
  return nest;
}

std::vector<StageBody> ExampleStages() {
  const DimExpr n = DimExpr::Symbol("N");
  const DimExpr m = DimExpr::Symbol("M");
  const Expr x = Expr::Load(DType::kF32, 0, {Expr::Coord(0)});
  std::vector<StageBody> stages;
  stages.push_back(MapNest(n, Expr::BitCast(DType::kU32, Expr::Unary(ExprOp::kTanh, x * x))));
  // Every second element of a longer output, behind an offset that only the request knows.
  Nest strided = MapNest(n, x + F32(1));
  strided.output.shape = {2 * n + m};
  strided.output_coordinates = {Expr::Coord(0) * I64(2) + Expr::Dim(m)};
  stages.push_back(strided);
  stages.push_back(SoftmaxNest(n, 8));
  stages.push_back(SoftmaxNest(n * m, FloorDiv(m, 2)));
  stages.push_back(ArgMaxNest(n));
  stages.push_back(PadNest(3, n, m));
  stages.push_back(MatMulContraction(n, 20, 7, 16));
  stages.push_back(MatMulContraction(4, n, m, 8));
  stages.push_back(PairMatMulContraction(n, 20, 7, 16));
  stages.push_back(BlockMatMulContraction(n, 20, 256, BlockFormat::kQ4_K, 16));
  Contraction exact = BlockMatMulContraction(n, 5, 64, BlockFormat::kQ8_0, 8);
  exact.exact_rows = true;
  stages.push_back(exact);
  stages.push_back(WithRecords(BlockMatMulContraction(n, 5, 64, BlockFormat::kQ8_0, 8), true));
  Library library;
  library.skeleton = "topk";
  library.configuration = {1, -3};
  library.operands = {{DType::kF32, {n, m}}};
  library.outputs = {{DType::kF32, {n, 5}}, {DType::kI64, {n, 5}}};
  library.dims = {m};
  library.tasks = n;
  library.scratch_bytes = 12 * m;
  stages.push_back(library);
  return stages;
}

}  // namespace stampmill
