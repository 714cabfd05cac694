// What the rules of fusion share (fuse.h): the stages with an index of who reads and writes what,
// and the moving of expressions from one stage to another. Internal to the passes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "compiler/passes/stage_graph.h"
#include "graph/expr.h"
#include "graph/nest.h"

namespace stampmill {

// Operands of one stage: a kernel keeps a base address for each.
inline constexpr size_t kOperandsMax = 16;

std::vector<Operand>& OperandsOf(StageBody& body);
const std::vector<Operand>& OperandsOf(const StageBody& body);

// A nest without reductions: one value for each coordinate.
bool IsMap(const Stage& stage);

// The index space that a nest or contraction writes: its extents, and where they go.
struct WrittenDomain {
  Shape extents;
  Operand output;
  std::vector<Expr> output_coordinates;  // never empty: the identity is spelled out
};
std::optional<WrittenDomain> WrittenDomainOf(const StageBody& body);

// Sets what a nest or contraction writes; identity coordinates become none.
void SetWritten(StageBody& body, Expr result, Operand output, std::vector<Expr> coordinates);
Expr ResultOf(const StageBody& body);

// Operand index of `value` in `stage`, added when it is new there.
int32_t AddOperand(Stage& stage, const Operand& operand, ValueId value);
// `expr` of `from` as an expression of `to`: its operands become operands of `to`.
Expr ImportOperands(const Expr& expr, const Stage& from, Stage& to);
// Drops operands that no expression reads.
void CompactOperands(Stage& stage);

// A load of another operand, or at other coordinates, with the same guard.
Expr ReplaceLoad(const Expr& load, int32_t operand, std::vector<Expr> coordinates);

// Joins the names of the operators; long ones are cut.
std::string JoinLabels(const std::string& first, const std::string& second);

// A leaf that stands for an expression while coordinates around it are substituted.
Expr Placeholder(DType dtype, size_t index);
Expr FillPlaceholders(const Expr& expr, const std::vector<Expr>& values);

class Fusion {
 public:
  explicit Fusion(StageGraph& stages) : stages_(stages) { Index(); }

  StageGraph& stages() { return stages_; }
  Stage& stage(int32_t s) { return stages_.stages[static_cast<size_t>(s)]; }
  int32_t size() const { return static_cast<int32_t>(stages_.stages.size()); }
  // To be called after every change.
  void Index();

  // Readers of the one value that stage `s` alone writes and that is not a graph output; empty when
  // it is not so, or when one of them may run more often than `s`. What is moved to them is still
  // computed at most once for each time.
  std::vector<int32_t> FusibleReaders(int32_t s);
  // Calls `visit` with every load of `root`, under whatever shape, in `reader`.
  void ForEachLoad(const Stage& reader, ValueId root,
                   const std::function<void(const Expr&)>& visit) const;
  bool Reads(const Expr& expr, const Stage& reader, ValueId root) const;
  // `root` is read otherwise than by loads: as a contraction's b, or by a library kernel.
  bool ReadsOpaquely(const Stage& reader, ValueId root) const;
  // Whether `reader` runs its loops once for each of `elements` elements of `root` and reads it in
  // one pass over them.
  bool ReadsEachOnce(const Stage& reader, ValueId root, const DimExpr& elements) const;
  // The bytes of `value` under `shape`.
  ValueId View(ValueId value, const Shape& shape);

 private:
  StageGraph& stages_;
  absl::flat_hash_map<ValueId, std::vector<int32_t>> readers_, writers_;
  absl::flat_hash_set<ValueId> sliced_;  // values that slices are parts of
  absl::flat_hash_map<std::pair<ValueId, Shape>, ValueId> views_;
};

// Loads of constants of one element become constants, and divisions by them products with the
// reciprocal (within one unit in the last place).
void InlineScalars(StageGraph& stages);

// A real that is rounded to a byte and read again, in one expression, stays a real: it is rounded
// and clamped.
void SimplifyRoundings(StageGraph& stages);

// What lies between two roundings to a byte becomes a product and a sum with constants.
void FoldCodes(StageGraph& stages);

// The rules. Each tries to fuse stage `s`, which is not removed, and says whether it did.
bool InlineConstants(Fusion& fusion, int32_t s);
bool InlineMovement(Fusion& fusion, int32_t s);
bool JoinMaps(Fusion& fusion, int32_t s);
bool InlineIntoLoops(Fusion& fusion, int32_t s);
bool FoldEpilogue(Fusion& fusion, int32_t s);
bool JoinRows(Fusion& fusion, int32_t s);

}  // namespace stampmill
