// DimExpr: an integer expression over named symbols, the form in which every size, stride, offset
// and count that depends on a request's shapes is known at compile time.
//
// Values are immutable and canonical: two expressions that are equal as polynomials over atoms
// (symbols, floor divisions, moduli, minima, maxima) compare equal and print alike, so passes can
// prove shapes equal without a solver. A symbol stands for an integer >= 0, a signed one for any.
// Cheap to copy (a shared pointer). Thread-safe as an immutable value.
//
// Building an expression never fails: constants that overflow 64 bits stay unevaluated, and an
// expression past kNodesMax nodes or kDepthMax levels (only a hostile file makes one) becomes
// floordiv(0, 0). Both fail in Evaluate, with OUT_OF_RANGE.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace stampmill {

class DimExpr {
 public:
  // The numbers are part of the program format: append only.
  enum class Kind : uint8_t { kConstant, kSymbol, kAdd, kMul, kFloorDiv, kMod, kMin, kMax };

  static constexpr int64_t kNodesMax = 4096;  // of the expression written out as a tree
  static constexpr int32_t kDepthMax = 256;

  DimExpr();                                      // the constant 0
  DimExpr(int64_t constant);                      // NOLINT: a constant is a dim
  static DimExpr Symbol(absl::string_view name);  // name is not empty
  // For the contents of a tensor. A name is signed or it is not, the same everywhere.
  static DimExpr SignedSymbol(absl::string_view name);

  Kind kind() const;
  bool is_constant() const { return kind() == Kind::kConstant; }
  bool IsConstant(int64_t value) const;
  std::optional<int64_t> constant() const;
  absl::string_view symbol_name() const;  // REQUIRES: kind() == kSymbol
  // Operands of an inner node, in canonical order. kFloorDiv and kMod have two, the others two or
  // more.
  std::span<const DimExpr> operands() const;

  friend DimExpr operator+(const DimExpr& a, const DimExpr& b);
  friend DimExpr operator-(const DimExpr& a, const DimExpr& b);
  friend DimExpr operator*(const DimExpr& a, const DimExpr& b);
  // Rounds toward minus infinity. A divisor that is the constant 0 stays unevaluated and fails in
  // Evaluate. Exact divisions of polynomials simplify: (6*N*S) / (3*N) is 2*S when N >= 1 is known
  // or N divides out as a common factor (a request with N = 0 never reaches a division: its result
  // is empty).
  friend DimExpr FloorDiv(const DimExpr& a, const DimExpr& b);
  friend DimExpr CeilDiv(const DimExpr& a, const DimExpr& b);  // FloorDiv(a + b - 1, b)
  friend DimExpr Mod(const DimExpr& a, const DimExpr& b);
  friend DimExpr Min(const DimExpr& a, const DimExpr& b);
  friend DimExpr Max(const DimExpr& a, const DimExpr& b);

  friend bool operator==(const DimExpr& a, const DimExpr& b);
  // A total order of the canonical forms; says nothing of values.
  friend bool operator<(const DimExpr& a, const DimExpr& b);
  template <typename H>
  friend H AbslHashValue(H h, const DimExpr& e) {
    return H::combine(std::move(h), e.hash());
  }
  size_t hash() const;

  // Bounds that hold for all values of the symbols; nullopt where none is known.
  std::optional<int64_t> LowerBound() const;
  std::optional<int64_t> UpperBound() const;

  // "2*N*S + 4", "floordiv(W + 1, 2)"
  std::string ToString() const;

  // Symbols in it, sorted, each once.
  std::vector<std::string> Symbols() const;
  DimExpr Substitute(const absl::flat_hash_map<std::string, DimExpr>& values) const;

  using SymbolValue = std::function<std::optional<int64_t>(absl::string_view name)>;
  // OUT_OF_RANGE on 64-bit overflow or division by zero, NOT_FOUND for an unknown symbol.
  absl::StatusOr<int64_t> Evaluate(const SymbolValue& value) const;

  struct Node;  // private to dim.cc
 private:
  friend class DimBuilder;  // private to dim.cc
  explicit DimExpr(std::shared_ptr<const Node> node);
  std::shared_ptr<const Node> node_;
};

DimExpr operator+(const DimExpr& a, const DimExpr& b);
DimExpr operator-(const DimExpr& a, const DimExpr& b);
DimExpr operator*(const DimExpr& a, const DimExpr& b);
DimExpr FloorDiv(const DimExpr& a, const DimExpr& b);
DimExpr CeilDiv(const DimExpr& a, const DimExpr& b);
DimExpr Mod(const DimExpr& a, const DimExpr& b);
DimExpr Min(const DimExpr& a, const DimExpr& b);
DimExpr Max(const DimExpr& a, const DimExpr& b);

using Shape = std::vector<DimExpr>;

// Product of the dims; 1 for a scalar.
DimExpr ElementCount(std::span<const DimExpr> shape);
// Row-major strides in elements.
Shape RowMajorStrides(std::span<const DimExpr> shape);
std::string ToString(std::span<const DimExpr> shape);  // "[N, 128]"
bool IsConstant(std::span<const DimExpr> shape);
// REQUIRES: IsConstant(shape).
std::vector<int64_t> ConstantShape(std::span<const DimExpr> shape);

// One operation as Evaluate does it (kConstant and kSymbol excluded). False on 64-bit overflow or
// division by zero.
bool EvaluateDimOperation(DimExpr::Kind kind, int64_t a, int64_t b, int64_t* result);

// The DimExprs of one program, each once, as one evaluation list: the host evaluates all of them
// into one int64 array a step, with overflow checks and without allocation.
class DimTable {
 public:
  // Symbols take the first places, in the order given.
  explicit DimTable(std::vector<std::string> symbols);

  // Index of `expr` in the values array, adding it (and what it needs) when new. Every symbol of
  // it must be one of the table's: else -1.
  int32_t Add(const DimExpr& expr);
  std::optional<int32_t> Find(const DimExpr& expr) const;
  size_t size() const;
  size_t symbol_count() const { return symbols_.size(); }
  const std::vector<std::string>& symbols() const { return symbols_; }
  const DimExpr& expr(int32_t index) const;

  // One instruction a place, operands are earlier places; serialised with the program.
  struct Instruction {
    DimExpr::Kind kind;    // kConstant: value; kSymbol: value = index of the symbol
    int32_t a = 0, b = 0;  // places, for the binary kinds
    int64_t value = 0;
  };
  std::span<const Instruction> instructions() const { return instructions_; }

 private:
  std::vector<std::string> symbols_;
  std::vector<Instruction> instructions_;
  std::vector<DimExpr> exprs_;
  absl::flat_hash_map<DimExpr, int32_t> index_;
};

// Evaluates instructions into `values` (same length). `values[0..symbol_count)` hold the symbols.
// Returns the place of the first failure (overflow or division by zero), or -1. Allocates nothing.
int32_t EvaluateDims(std::span<const DimTable::Instruction> instructions, size_t symbol_count,
                     std::span<int64_t> values);

}  // namespace stampmill
