#include "compiler/llvm/row_packer.h"

#include <algorithm>
#include <bit>
#include <optional>

#include "compiler/codegen/access.h"

namespace stampmill {

RowPacker::RowPacker(KernelFunction& kernel, const Contraction& contraction, const Expr& value,
                     int64_t lanes)
    : kernel_(kernel),
      ir_(kernel.ir()),
      contraction_(contraction),
      value_(value),
      lanes_(lanes),
      first_axis_(contraction.batch.size() + contraction.m.size()) {
  value.Visit(
      [&](const Expr& node) { has_guards_ = has_guards_ || node.op() == ExprOp::kGuardedLoad; });
  if (!has_guards_ || !HasConstantK()) return;
  window_ = {first_axis_, ConstantShape(contraction.k)};
  guards_ = FindGuards({&value, 1}, window_,
                       static_cast<int32_t>(first_axis_ + contraction.k.size()) - 1);
}

bool RowPacker::HasConstantK() const { return IsConstant(contraction_.k); }

Scope RowPacker::WithAxesOfK(const Scope& row) const {
  Scope scope = row;
  scope.coordinates.resize(first_axis_ + contraction_.k.size());
  return scope;
}

void RowPacker::Pack(const Scope& row, const Store& store) {
  const Scope scope = WithAxesOfK(row);
  if (!HasConstantK() && contraction_.k.size() > 1) {
    PackScattered(scope, ir_.Int(0), kernel_.Dim(ElementCount(contraction_.k)), store);
    return;
  }
  auto pack = [&](bool guards_hold) {
    Scope whole = scope;
    whole.guards_hold = guards_hold;
    const bool unguarded = guards_hold || !has_guards_;
    PackAxes(whole, 0, ir_.Int(0), unguarded && HasConstantK() ? RunAxesOfK(contraction_) : 1,
             store);
  };
  if (guards_.empty()) {
    pack(false);
    return;
  }
  ir_.If(EmitGuardsHold(guards_, window_, scope), [&] { pack(true); }, [&] { pack(false); });
}

void RowPacker::PackPart(const Scope& row, llvm::Value* begin, llvm::Value* end,
                         const Store& store) {
  const Scope scope = WithAxesOfK(row);
  if (contraction_.k.size() > 1) {
    PackScattered(scope, begin, end, store);
    return;
  }
  const auto run = [&](int64_t lanes) { PackRun(scope, begin, end, ir_.Int(0), lanes, store); };
  ir_.If(
      ir_.b().CreateICmpSGE(ir_.Sub(end, begin), ir_.Int(lanes_)), [&] { run(lanes_); },
      [&] { run(1); });
}

// Lanes along the innermost axes, of which `run_axes` are one run of memory. `flat` counts the
// elements before it.
void RowPacker::PackAxes(Scope& scope, size_t axis, llvm::Value* flat, size_t run_axes,
                         const Store& store) {
  const Shape& k = contraction_.k;
  if (axis + run_axes == k.size()) {
    DimExpr extent = 1;
    for (size_t n = axis; n < k.size(); ++n) {
      extent = extent * k[n];
      scope.coordinates[first_axis_ + n] = {ir_.Int(0)};
    }
    if (const std::optional<int64_t> count = extent.constant()) {
      if (*count == 0) return;
      const auto floor = static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(*count)));
      PackRun(scope, ir_.Int(0), ir_.Int(*count), flat, std::min(lanes_, floor), store);
      return;
    }
    llvm::Value* count = kernel_.Dim(extent);
    ir_.If(
        ir_.b().CreateICmpSGE(count, ir_.Int(lanes_)),
        [&] { PackRun(scope, ir_.Int(0), count, flat, lanes_, store); },
        [&] { PackRun(scope, ir_.Int(0), count, flat, 1, store); });
    return;
  }
  DimExpr inner = 1;
  for (size_t n = axis + 1; n < k.size(); ++n) inner = inner * k[n];
  ir_.For(ir_.Int(0), kernel_.Dim(k[axis]), 1, [&](llvm::Value* i) {
    scope.coordinates[first_axis_ + axis] = {i};
    PackAxes(scope, axis + 1, ir_.Add(flat, ir_.Mul(i, kernel_.Dim(inner))), run_axes, store);
  });
}

void RowPacker::PackRun(Scope scope, llvm::Value* begin, llvm::Value* end, llvm::Value* flat,
                        int64_t lanes, const Store& store) {
  scope.lanes = lanes;
  ir_.For(
      begin, end, lanes,
      [&](llvm::Value* i) {
        // The last lanes are packed again rather than masked.
        llvm::Value* at = lanes == 1 ? i : ir_.Min(i, ir_.Sub(end, ir_.Int(lanes)));
        scope.coordinates.back() = {at, lanes == 1 ? nullptr : ir_.Int(1)};
        store(ir_.Add(flat, at), ExprEmitter(scope).EmitLanes(value_), lanes);
      },
      4);
}

// Several axes of k whose extents are not known: element by element.
void RowPacker::PackScattered(const Scope& row, llvm::Value* begin, llvm::Value* end,
                              const Store& store) {
  const std::vector<llvm::Value*> extents = kernel_.Dims(contraction_.k);
  ir_.Walk(begin, end, extents, [&](llvm::Value* flat, const std::vector<llvm::Value*>& k) {
    Scope scope = row;
    scope.lanes = 1;
    for (size_t n = 0; n < k.size(); ++n) scope.coordinates[first_axis_ + n] = {k[n]};
    store(flat, ExprEmitter(scope).EmitLanes(value_), 1);
  });
}

}  // namespace stampmill
