// A LowerContext that keeps what a lowering emits, and runs it (stage_runner.h): how tests execute
// an operator's stages. Owned by one thread.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "graph/nest.h"
#include "graph/tensor.h"
#include "kernels/op.h"

namespace stampmill {

class StageRecorder : public LowerContext {
 public:
  struct Stage {
    StageBody body;
    std::vector<ValueId> operands;
    std::vector<ValueId> outputs;
  };
  struct Alias {
    ValueId input;
    ValueId output;
  };

  // Records the stages of `node` of `graph`, whose shapes are inferred. Borrows the graph.
  StageRecorder(Graph& graph, NodeId node);

  void AskForBf16Products() { options_.bf16_products = true; }
  void AnnounceByteProducts() { options_.has_byte_products = true; }
  void AskForExactRows() { options_.exact_rows = true; }

  const Node& node() const override { return graph_.node(node_); }
  const Graph& graph() const override { return graph_; }
  const LowerOptions& options() const override { return options_; }
  ValueId NewValue(DType dtype, Shape shape, absl::string_view name) override;
  ValueId NewConstant(Tensor tensor, absl::string_view name) override;
  void EmitNest(Nest nest, std::vector<ValueId> operands, ValueId output) override;
  void EmitContraction(Contraction contraction, std::vector<ValueId> operands,
                       ValueId output) override;
  void EmitLibrary(Library library, std::vector<ValueId> operands,
                   std::vector<ValueId> outputs) override;
  void EmitAlias(ValueId input, ValueId output) override;
  ValueId NewSlice(ValueId base, Shape shape, const DimExpr& offset,
                   absl::string_view name) override;
  DimExpr BeginRepeat(const DimExpr& trips) override;
  void EndRepeat() override;
  void EmitRead(ValueId scalar, absl::string_view symbol, const DimExpr& limit) override;

  const std::vector<Stage>& stages() const { return stages_; }
  const std::vector<Alias>& aliases() const { return aliases_; }

  // Runs the stages: `values[id]` holds the graph's inputs before, and everything made after.
  // `symbol` gives the dims of this request. INTERNAL for a stage that Verify refuses.
  absl::Status Run(std::vector<Tensor>& values, const DimExpr::SymbolValue& symbol) const;

 private:
  // What was emitted, in order.
  struct Step {
    enum class Kind { kStage, kAlias, kBegin, kEnd, kRead } kind;
    size_t index = 0;          // kStage, kAlias
    DimExpr count{};           // kBegin: trips; kRead: the limit
    std::string symbol{};      // kBegin, kRead
    ValueId value = kNoValue;  // kRead
  };
  struct Slice {
    ValueId base;
    DimExpr offset;
  };

  // What reads have set.
  using Read = absl::flat_hash_map<std::string, int64_t>;
  // Runs the steps from `first` to the end of the repeat that it lies in, or of all; gives where.
  // `symbol` knows what is read.
  absl::StatusOr<size_t> RunSteps(size_t first, std::vector<Tensor>& values,
                                  const DimExpr::SymbolValue& symbol, Read& read) const;
  absl::Status CheckShapes(std::span<const Operand> operands, std::span<const ValueId> ids) const;
  absl::Status RunStage(const Stage& stage, std::vector<Tensor>& values,
                        const DimExpr::SymbolValue& symbol) const;
  absl::Status RunAlias(const Alias& alias, std::vector<Tensor>& values,
                        const DimExpr::SymbolValue& symbol) const;
  absl::StatusOr<Tensor> ValueOf(ValueId id, std::vector<Tensor>& values,
                                 const DimExpr::SymbolValue& symbol) const;
  // The tensor that a stage writes, made when it is first written.
  absl::StatusOr<Tensor> TargetOf(ValueId id, std::vector<Tensor>& values,
                                  const DimExpr::SymbolValue& symbol) const;
  absl::StatusOr<std::vector<int64_t>> DimsOf(ValueId id, const DimExpr::SymbolValue& symbol) const;

  Graph& graph_;
  NodeId node_;
  LowerOptions options_;
  std::vector<Stage> stages_;
  std::vector<Alias> aliases_;
  std::vector<Step> steps_;
  absl::flat_hash_map<ValueId, Slice> slices_;
};

}  // namespace stampmill
