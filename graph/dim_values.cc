// What is done with finished DimExprs: printing, substitution, evaluation, and DimTable.
#include <algorithm>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "graph/dim.h"

namespace stampmill {
namespace {

using Kind = DimExpr::Kind;

absl::string_view FunctionName(Kind kind) {
  switch (kind) {
    case Kind::kFloorDiv:
      return "floordiv";
    case Kind::kMod:
      return "mod";
    case Kind::kMin:
      return "min";
    case Kind::kMax:
      return "max";
    default:
      return "";
  }
}

DimExpr Apply(Kind kind, const DimExpr& a, const DimExpr& b) {
  switch (kind) {
    case Kind::kAdd:
      return a + b;
    case Kind::kMul:
      return a * b;
    case Kind::kFloorDiv:
      return FloorDiv(a, b);
    case Kind::kMod:
      return Mod(a, b);
    case Kind::kMin:
      return Min(a, b);
    case Kind::kMax:
      return Max(a, b);
    case Kind::kConstant:
    case Kind::kSymbol:
      break;
  }
  CHECK(false) << "kind " << static_cast<int>(kind);
  return a;
}

std::string ProductText(const DimExpr& e) {
  std::string text;
  for (const DimExpr& factor : e.operands()) {
    // Only a product that overflowed has sums or products for factors.
    const bool compound = factor.kind() == Kind::kAdd || factor.kind() == Kind::kMul;
    if (factor.IsConstant(-1) && text.empty()) {
      text = "-";
      continue;
    }
    const bool separated = !text.empty() && text != "-";
    absl::StrAppend(&text, separated ? "*" : "", compound ? "(" : "", factor.ToString(),
                    compound ? ")" : "");
  }
  return text;
}

void CollectSymbols(const DimExpr& e, std::set<std::string>* names) {
  if (e.kind() == Kind::kSymbol) names->insert(std::string(e.symbol_name()));
  for (const DimExpr& operand : e.operands()) CollectSymbols(operand, names);
}

}  // namespace

bool EvaluateDimOperation(Kind kind, int64_t a, int64_t b, int64_t* result) {
  switch (kind) {
    case Kind::kAdd:
      return !__builtin_add_overflow(a, b, result);
    case Kind::kMul:
      return !__builtin_mul_overflow(a, b, result);
    case Kind::kFloorDiv:
      if (b == 0) return false;
      if (b == -1) return !__builtin_sub_overflow(int64_t{0}, a, result);
      *result = a / b - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0);
      return true;
    case Kind::kMod:
      if (b == 0) return false;
      *result = b == -1 ? 0 : a % b;
      if (*result != 0 && (*result < 0) != (b < 0)) *result += b;
      return true;
    case Kind::kMin:
      *result = std::min(a, b);
      return true;
    case Kind::kMax:
      *result = std::max(a, b);
      return true;
    case Kind::kConstant:
    case Kind::kSymbol:
      break;
  }
  return false;
}

std::string DimExpr::ToString() const {
  switch (kind()) {
    case Kind::kConstant:
      return absl::StrCat(*constant());
    case Kind::kSymbol:
      return std::string(symbol_name());
    case Kind::kMul:
      return ProductText(*this);
    case Kind::kAdd: {
      std::string text;
      for (const DimExpr& term : operands()) {
        const std::string one = term.ToString();
        if (text.empty()) {
          text = one;
        } else if (one[0] == '-') {
          absl::StrAppend(&text, " - ", one.substr(1));
        } else {
          absl::StrAppend(&text, " + ", one);
        }
      }
      return text;
    }
    default:
      return absl::StrCat(FunctionName(kind()), "(",
                          absl::StrJoin(operands(), ", ",
                                        [](std::string* out, const DimExpr& operand) {
                                          out->append(operand.ToString());
                                        }),
                          ")");
  }
}

std::vector<std::string> DimExpr::Symbols() const {
  std::set<std::string> names;
  CollectSymbols(*this, &names);
  return {names.begin(), names.end()};
}

DimExpr DimExpr::Substitute(const absl::flat_hash_map<std::string, DimExpr>& values) const {
  if (is_constant()) return *this;
  if (kind() == Kind::kSymbol) {
    const auto it = values.find(symbol_name());
    return it == values.end() ? *this : it->second;
  }
  DimExpr result = operands()[0].Substitute(values);
  for (const DimExpr& operand : operands().subspan(1)) {
    result = Apply(kind(), result, operand.Substitute(values));
  }
  return result;
}

absl::StatusOr<int64_t> DimExpr::Evaluate(const SymbolValue& value) const {
  if (is_constant()) return *constant();
  if (kind() == Kind::kSymbol) {
    const std::optional<int64_t> known = value(symbol_name());
    if (known.has_value()) return *known;
    return absl::NotFoundError(absl::StrCat("dim '", symbol_name(), "': no value"));
  }
  ASSIGN_OR_RETURN(int64_t result, operands()[0].Evaluate(value));
  for (const DimExpr& operand : operands().subspan(1)) {
    ASSIGN_OR_RETURN(const int64_t next, operand.Evaluate(value));
    const int64_t before = result;
    if (!EvaluateDimOperation(kind(), before, next, &result)) {
      return absl::OutOfRangeError(absl::StrCat("dim ", ToString(), ": overflow or division by 0 (",
                                                before, " and ", next, ")"));
    }
  }
  return result;
}

DimExpr ElementCount(std::span<const DimExpr> shape) {
  DimExpr count = 1;
  for (const DimExpr& dim : shape) count = count * dim;
  return count;
}

Shape RowMajorStrides(std::span<const DimExpr> shape) {
  Shape strides(shape.size());
  DimExpr stride = 1;
  for (size_t i = shape.size(); i-- > 0;) {
    strides[i] = stride;
    stride = stride * shape[i];
  }
  return strides;
}

std::string ToString(std::span<const DimExpr> shape) {
  return absl::StrCat(
      "[",
      absl::StrJoin(shape, ", ",
                    [](std::string* out, const DimExpr& dim) { out->append(dim.ToString()); }),
      "]");
}

bool IsConstant(std::span<const DimExpr> shape) {
  return std::all_of(shape.begin(), shape.end(),
                     [](const DimExpr& dim) { return dim.is_constant(); });
}

std::vector<int64_t> ConstantShape(std::span<const DimExpr> shape) {
  std::vector<int64_t> values;
  for (const DimExpr& dim : shape) {
    CHECK(dim.is_constant());
    values.push_back(*dim.constant());
  }
  return values;
}

DimTable::DimTable(std::vector<std::string> symbols) : symbols_(std::move(symbols)) {
  for (size_t i = 0; i < symbols_.size(); ++i) {
    const DimExpr symbol = DimExpr::Symbol(symbols_[i]);
    instructions_.push_back({.kind = Kind::kSymbol, .value = static_cast<int64_t>(i)});
    exprs_.push_back(symbol);
    index_.try_emplace(symbol, static_cast<int32_t>(i));
  }
}

int32_t DimTable::Add(const DimExpr& expr) {
  if (const std::optional<int32_t> known = Find(expr); known.has_value()) return *known;
  if (expr.kind() == Kind::kSymbol) return -1;
  const auto append = [this](const DimExpr& e, const Instruction& instruction) {
    const int32_t place = static_cast<int32_t>(instructions_.size());
    instructions_.push_back(instruction);
    exprs_.push_back(e);
    index_.try_emplace(e, place);
    return place;
  };
  if (expr.is_constant()) {
    return append(expr, {.kind = Kind::kConstant, .value = *expr.constant()});
  }
  std::vector<int32_t> places;
  for (const DimExpr& operand : expr.operands()) {
    places.push_back(Add(operand));
    if (places.back() < 0) return -1;
  }
  // Operations of more than two operands are chains; a prefix may be known already.
  int32_t place = places[0];
  DimExpr prefix = expr.operands()[0];
  for (size_t i = 1; i < places.size(); ++i) {
    const bool last = i + 1 == places.size();
    prefix = last ? expr : Apply(expr.kind(), prefix, expr.operands()[i]);
    const std::optional<int32_t> known = Find(prefix);
    place = known.has_value()
                ? *known
                : append(prefix, {.kind = expr.kind(), .a = place, .b = places[i], .value = 0});
  }
  return place;
}

std::optional<int32_t> DimTable::Find(const DimExpr& expr) const {
  const auto it = index_.find(expr);
  if (it == index_.end()) return std::nullopt;
  return it->second;
}

size_t DimTable::size() const { return instructions_.size(); }
const DimExpr& DimTable::expr(int32_t index) const { return exprs_[static_cast<size_t>(index)]; }

int32_t EvaluateDims(std::span<const DimTable::Instruction> instructions, size_t symbol_count,
                     std::span<int64_t> values) {
  for (size_t i = symbol_count; i < instructions.size(); ++i) {
    const DimTable::Instruction& instruction = instructions[i];
    if (instruction.kind == Kind::kConstant) {
      values[i] = instruction.value;
    } else if (instruction.kind == Kind::kSymbol) {
      values[i] = values[static_cast<size_t>(instruction.value)];
    } else if (!EvaluateDimOperation(instruction.kind, values[static_cast<size_t>(instruction.a)],
                                     values[static_cast<size_t>(instruction.b)], &values[i])) {
      return static_cast<int32_t>(i);
    }
  }
  return -1;
}

}  // namespace stampmill
