#include "compiler/llvm/contraction_frame.h"

namespace stampmill {

ContractionFrame::ContractionFrame(KernelFunction& function, const Contraction& contraction)
    : function_(function),
      contraction_(contraction),
      output_coordinates_(contraction.output_coordinates),
      batch_extents_(function.Dims(contraction.batch)),
      m_extents_(function.Dims(contraction.m)) {
  for (const Operand& operand : contraction.operands) {
    operands_.push_back(function.Buffer(static_cast<int64_t>(operands_.size()), operand));
  }
  output_ = function.Buffer(static_cast<int64_t>(operands_.size()), contraction.output);
  output_.constant = false;
  if (!output_coordinates_.empty()) return;
  for (size_t n = 0; n < contraction.batch.size() + contraction.m.size() + 1; ++n) {
    output_coordinates_.push_back(Expr::Coord(static_cast<int32_t>(n)));
  }
}

void ContractionFrame::SetBatch(llvm::Value* batch) {
  batch_ = function_.ir().Decompose(batch, batch_extents_);
}

Scope ContractionFrame::RowScope(const Ir::Values& m, size_t axes) const {
  Scope scope;
  scope.kernel = &function_;
  scope.operands = operands_;
  scope.lanes = 1;
  for (llvm::Value* at : batch_) scope.coordinates.push_back({at});
  for (llvm::Value* at : m) scope.coordinates.push_back({at});
  scope.coordinates.resize(scope.coordinates.size() + axes);
  return scope;
}

void ContractionFrame::WriteResult(const Scope& row, llvm::Value* column, llvm::Value* sums,
                                   int64_t lanes) const {
  Scope scope = row;
  scope.lanes = lanes;
  scope.coordinates.back() = {column, lanes == 1 ? nullptr : function_.ir().Int(1)};
  scope.accumulators = {{sums}};
  ExprEmitter emitter(scope);
  const Lane value = emitter.Emit(contraction_.result);
  std::vector<Lane> coordinates;
  for (const Expr& coordinate : output_coordinates_) {
    coordinates.push_back(emitter.Emit(coordinate));
  }
  emitter.Store(output_, coordinates, value);
}

}  // namespace stampmill
