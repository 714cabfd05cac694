// Walks over the DAG keep their own stack: fused chains may be longer than a thread's stack is
// deep.
#include "graph/expr.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/hash/hash.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "graph/tensor.h"

namespace stampmill {

struct Expr::Node {
  ExprOp op = ExprOp::kConstant;
  DType dtype = DType::kInvalid;
  int32_t index = 0;
  uint64_t bits = 0;
  DimExpr dim;
  std::vector<Expr> operands;
  size_t hash = 0;

  // Frees what only this node holds without a call per level.
  ~Node() {
    std::vector<std::shared_ptr<const Node>> pending;
    for (Expr& operand : operands) pending.push_back(std::move(operand.node_));
    while (!pending.empty()) {
      const std::shared_ptr<const Node> node = std::move(pending.back());
      pending.pop_back();
      if (node == nullptr || node.use_count() != 1) continue;
      // Nobody else sees it any more.
      for (Expr& operand : const_cast<Node&>(*node).operands) {
        pending.push_back(std::move(operand.node_));
      }
    }
  }
};

namespace {

bool IsInt(const Expr& e, int64_t value) {
  return e.IsConstant() && IsInteger(e.dtype()) && e.constant_int() == value;
}

// Adding it changes no float, not even -0.
bool IsNegativeZero(const Expr& e) {
  if (!e.IsConstant() || !IsFloat(e.dtype())) return false;
  return e.constant_bits() == uint64_t{1} << (SizeBytes(e.dtype()) * 8 - 1);
}

bool IsOne(const Expr& e) {
  return e.IsConstant() && e.dtype() != DType::kBool && e.constant_value() == 1;
}

// A dim or a constant that stands in a sum or product of dims.
std::optional<DimExpr> AsDim(const Expr& e) {
  if (e.op() == ExprOp::kDim) return e.dim();
  if (e.IsConstant() && e.dtype() == DType::kI64) return DimExpr(e.constant_int());
  return std::nullopt;
}

std::optional<Expr> FoldDims(ExprOp op, const Expr& a, const Expr& b) {
  if (a.op() != ExprOp::kDim && b.op() != ExprOp::kDim) return std::nullopt;
  const std::optional<DimExpr> x = AsDim(a);
  const std::optional<DimExpr> y = AsDim(b);
  if (!x.has_value() || !y.has_value()) return std::nullopt;
  if (op == ExprOp::kAdd) return Expr::Dim(*x + *y);
  if (op == ExprOp::kSub) return Expr::Dim(*x - *y);
  if (op == ExprOp::kMul) return Expr::Dim(*x * *y);
  return std::nullopt;
}

// (x + c) + d, where `b` is d.
std::optional<Expr> FoldChainedConstant(ExprOp op, const Expr& a, const Expr& b) {
  if (op != ExprOp::kAdd && op != ExprOp::kMul) return std::nullopt;
  if (a.op() != op || !b.IsConstant() || !a.operands()[1].IsConstant()) return std::nullopt;
  return Expr::Binary(op, a.operands()[0], Expr::Binary(op, a.operands()[1], b));
}

std::optional<Expr> SimplifyInteger(ExprOp op, const Expr& a, const Expr& b) {
  const DType dtype = a.dtype();
  if (const std::optional<Expr> folded = FoldDims(op, a, b)) return folded;
  if (const std::optional<Expr> folded = FoldChainedConstant(op, a, b)) return folded;
  switch (op) {
    case ExprOp::kAdd:
    case ExprOp::kBitOr:
    case ExprOp::kBitXor:
    case ExprOp::kShiftLeft:
    case ExprOp::kShiftRight:
      if (IsInt(b, 0)) return a;
      break;
    case ExprOp::kSub:
      if (IsInt(b, 0)) return a;
      if (a == b) return Expr::ConstantInt(dtype, 0);
      if (b.IsConstant()) return a + (-b);
      break;
    case ExprOp::kMul:
      if (IsInt(b, 1)) return a;
      if (IsInt(b, 0)) return b;
      break;
    case ExprOp::kDiv:
    case ExprOp::kFloorDiv:
      if (IsInt(b, 1)) return a;
      if (IsInt(a, 0)) return a;
      break;
    case ExprOp::kRemainder:
    case ExprOp::kFloorMod:
      if (IsInt(b, 1)) return Expr::ConstantInt(dtype, 0);
      if (IsInt(a, 0)) return a;
      break;
    case ExprOp::kEq:
    case ExprOp::kLe:
    case ExprOp::kGe:
      if (a == b) return Expr::ConstantInt(DType::kBool, 1);
      // Coordinates are never negative.
      if (op == ExprOp::kGe && a.op() == ExprOp::kCoord && b.IsConstant() &&
          b.constant_int() <= 0) {
        return Expr::ConstantInt(DType::kBool, 1);
      }
      break;
    case ExprOp::kNe:
    case ExprOp::kLt:
    case ExprOp::kGt:
      if (a == b) return Expr::ConstantInt(DType::kBool, 0);
      if (op == ExprOp::kLt && a.op() == ExprOp::kCoord && b.IsConstant() &&
          b.constant_int() <= 0) {
        return Expr::ConstantInt(DType::kBool, 0);
      }
      break;
    case ExprOp::kMin:
    case ExprOp::kMax:
    case ExprOp::kBitAnd:
      if (a == b) return a;
      break;
    default:
      break;
  }
  return std::nullopt;
}

std::optional<Expr> SimplifyBool(ExprOp op, const Expr& a, const Expr& b) {
  if (!b.IsConstant()) return std::nullopt;
  const bool truth = b.constant_bits() != 0;
  switch (op) {
    case ExprOp::kBitAnd:
      return truth ? a : b;
    case ExprOp::kBitOr:
      return truth ? b : a;
    case ExprOp::kBitXor:
    case ExprOp::kNe:
      return truth ? Expr::Unary(ExprOp::kNot, a) : a;
    case ExprOp::kEq:
      return truth ? a : Expr::Unary(ExprOp::kNot, a);
    default:
      return std::nullopt;
  }
}

std::optional<Expr> SimplifyFloat(ExprOp op, const Expr& a, const Expr& b) {
  if (op == ExprOp::kAdd && IsNegativeZero(b)) return a;
  if (op == ExprOp::kSub && b.IsConstant() && b.constant_bits() == 0) return a;
  if ((op == ExprOp::kMul || op == ExprOp::kDiv) && IsOne(b)) return a;
  return std::nullopt;
}

void CheckCoordinates(const std::vector<Expr>& coordinates) {
  for (const Expr& coordinate : coordinates) CHECK_EQ(coordinate.dtype(), DType::kI64);
}

}  // namespace

Expr Expr::Finish(std::shared_ptr<Node> node) {
  size_t hash = absl::HashOf(static_cast<int>(node->op), static_cast<int>(node->dtype), node->index,
                             node->bits, node->operands.size());
  if (node->op == ExprOp::kDim) hash = absl::HashOf(hash, node->dim.hash());
  for (const Expr& operand : node->operands) {
    hash = absl::HashOf(hash, operand.hash());
  }
  node->hash = hash;
  return Expr(std::shared_ptr<const Node>(std::move(node)));
}

Expr Expr::FromBits(DType dtype, uint64_t bits) {
  auto node = std::make_shared<Node>();
  node->dtype = dtype;
  node->bits = bits;
  return Finish(std::move(node));
}

Expr Expr::Leaf(ExprOp op, DType dtype, int32_t index) {
  auto node = std::make_shared<Node>();
  node->op = op;
  node->dtype = dtype;
  node->index = index;
  return Finish(std::move(node));
}

Expr Expr::Raw(ExprOp op, DType dtype, std::vector<Expr> operands) {
  auto node = std::make_shared<Node>();
  node->op = op;
  node->dtype = dtype;
  node->operands = std::move(operands);
  return Finish(std::move(node));
}

Expr Expr::Constant(DType dtype, double value) {
  uint64_t bits = 0;
  StoreFromDouble(dtype, value, reinterpret_cast<std::byte*>(&bits));
  return FromBits(dtype, bits);
}

Expr Expr::ConstantInt(DType dtype, int64_t value) {
  uint64_t bits = 0;
  StoreFromInt64(dtype, value, reinterpret_cast<std::byte*>(&bits));
  return FromBits(dtype, bits);
}

Expr Expr::ConstantBits(DType dtype, uint64_t bits) {
  const size_t size = SizeBytes(dtype);
  CHECK_GT(size, 0u);
  if (size < 8) bits &= (uint64_t{1} << (size * 8)) - 1;
  return FromBits(dtype, dtype == DType::kBool ? bits != 0 : bits);
}

Expr Expr::Coord(int32_t axis) {
  CHECK_GE(axis, 0);
  return Leaf(ExprOp::kCoord, DType::kI64, axis);
}

Expr Expr::Dim(const DimExpr& dim) {
  if (const std::optional<int64_t> value = dim.constant()) return ConstantInt(DType::kI64, *value);
  auto node = std::make_shared<Node>();
  node->op = ExprOp::kDim;
  node->dtype = DType::kI64;
  node->dim = dim;
  return Finish(std::move(node));
}

Expr Expr::Load(DType dtype, int32_t operand, std::vector<Expr> coordinates) {
  CHECK_GE(operand, 0);
  CheckCoordinates(coordinates);
  auto node = std::make_shared<Node>();
  node->op = ExprOp::kLoad;
  node->dtype = dtype;
  node->index = operand;
  node->operands = std::move(coordinates);
  return Finish(std::move(node));
}

Expr Expr::GuardedLoad(DType dtype, int32_t operand, std::vector<Expr> coordinates, Expr condition,
                       Expr otherwise) {
  CHECK_GE(operand, 0);
  CheckCoordinates(coordinates);
  CHECK_EQ(condition.dtype(), DType::kBool);
  CHECK_EQ(otherwise.dtype(), dtype);
  if (condition.IsConstant()) {
    return condition.constant_bits() != 0 ? Load(dtype, operand, std::move(coordinates))
                                          : otherwise;
  }
  auto node = std::make_shared<Node>();
  node->op = ExprOp::kGuardedLoad;
  node->dtype = dtype;
  node->index = operand;
  node->operands = {std::move(condition), std::move(otherwise)};
  node->operands.insert(node->operands.end(), coordinates.begin(), coordinates.end());
  return Finish(std::move(node));
}

Expr Expr::Reduced(DType dtype, int32_t index) {
  CHECK_GE(index, 0);
  return Leaf(ExprOp::kReduced, dtype, index);
}

Expr Expr::Accumulator(DType dtype, int32_t index) {
  CHECK_GE(index, 0);
  return Leaf(ExprOp::kAccumulator, dtype, index);
}

Expr Expr::Unary(ExprOp op, Expr a) {
  CHECK_EQ(Arity(op), 1);
  CHECK(op != ExprOp::kCast && op != ExprOp::kBitCast) << "use Cast, BitCast";
  const DType dtype = IsPredicate(op) ? DType::kBool : a.dtype();
  const ScalarFunction function = FindScalarFunction(op, a.dtype(), dtype);
  CHECK(function != nullptr) << Name(op) << " of " << Name(a.dtype());
  if (a.IsConstant()) return FromBits(dtype, function(a.constant_bits(), 0));
  const bool undoes = op == ExprOp::kNot || op == ExprOp::kNeg;
  if (undoes && a.op() == op) return a.operands()[0];
  return Raw(op, dtype, {std::move(a)});
}

Expr Expr::Binary(ExprOp op, Expr a, Expr b) {
  CHECK_EQ(Arity(op), 2);
  CHECK_EQ(a.dtype(), b.dtype()) << Name(op);
  const DType dtype = IsPredicate(op) ? DType::kBool : a.dtype();
  const ScalarFunction function = FindScalarFunction(op, a.dtype(), dtype);
  CHECK(function != nullptr) << Name(op) << " of " << Name(a.dtype());
  if (a.IsConstant() && b.IsConstant()) {
    return FromBits(dtype, function(a.constant_bits(), b.constant_bits()));
  }
  if (IsCommutative(op) && a.IsConstant()) std::swap(a, b);
  const std::optional<Expr> simpler = IsInteger(a.dtype()) ? SimplifyInteger(op, a, b)
                                      : IsFloat(a.dtype()) ? SimplifyFloat(op, a, b)
                                                           : SimplifyBool(op, a, b);
  if (simpler.has_value()) return *simpler;
  return Raw(op, dtype, {std::move(a), std::move(b)});
}

Expr Expr::Select(Expr condition, Expr a, Expr b) {
  CHECK_EQ(condition.dtype(), DType::kBool);
  CHECK_EQ(a.dtype(), b.dtype());
  if (condition.IsConstant()) return condition.constant_bits() != 0 ? a : b;
  if (a == b) return a;
  const DType dtype = a.dtype();
  return Raw(ExprOp::kSelect, dtype, {std::move(condition), std::move(a), std::move(b)});
}

Expr Expr::Cast(DType dtype, Expr a) {
  const ScalarFunction function = FindScalarFunction(ExprOp::kCast, a.dtype(), dtype);
  CHECK(function != nullptr) << "cast of " << Name(a.dtype()) << " to " << Name(dtype);
  if (a.dtype() == dtype) return a;
  if (a.IsConstant()) return FromBits(dtype, function(a.constant_bits(), 0));
  return Raw(ExprOp::kCast, dtype, {std::move(a)});
}

Expr Expr::BitCast(DType dtype, Expr a) {
  CHECK(FindScalarFunction(ExprOp::kBitCast, a.dtype(), dtype) != nullptr)
      << "bit cast of " << Name(a.dtype()) << " to " << Name(dtype);
  if (a.dtype() == dtype) return a;
  if (a.IsConstant()) return FromBits(dtype, a.constant_bits());
  return Raw(ExprOp::kBitCast, dtype, {std::move(a)});
}

ExprOp Expr::op() const { return node_->op; }
DType Expr::dtype() const { return node_->dtype; }
std::span<const Expr> Expr::operands() const { return node_->operands; }
int32_t Expr::index() const { return node_->index; }
const DimExpr& Expr::dim() const { return node_->dim; }
uint64_t Expr::constant_bits() const { return node_->bits; }
size_t Expr::hash() const { return node_->hash; }

double Expr::constant_value() const {
  return LoadAsDouble(dtype(), reinterpret_cast<const std::byte*>(&node_->bits));
}

int64_t Expr::constant_int() const {
  return LoadAsInt64(dtype(), reinterpret_cast<const std::byte*>(&node_->bits));
}

bool operator==(const Expr& a, const Expr& b) {
  if (a.node_ == b.node_) return true;
  if (a.node_ == nullptr || b.node_ == nullptr || a.hash() != b.hash()) return false;
  absl::flat_hash_set<std::pair<const void*, const void*>> seen;
  std::vector<std::pair<const Expr*, const Expr*>> pending = {{&a, &b}};
  while (!pending.empty()) {
    const auto [x, y] = pending.back();
    pending.pop_back();
    if (x->id() == y->id() || !seen.emplace(x->id(), y->id()).second) continue;
    if (x->hash() != y->hash() || x->op() != y->op() || x->dtype() != y->dtype() ||
        x->index() != y->index() || x->constant_bits() != y->constant_bits() ||
        x->operands().size() != y->operands().size() || x->dim() != y->dim()) {
      return false;
    }
    for (size_t i = 0; i < x->operands().size(); ++i) {
      pending.emplace_back(&x->operands()[i], &y->operands()[i]);
    }
  }
  return true;
}

void Expr::Visit(const std::function<void(const Expr&)>& visit) const {
  absl::flat_hash_set<const void*> seen;
  std::vector<std::pair<const Expr*, size_t>> stack = {{this, 0}};  // node, next operand
  seen.insert(id());
  while (!stack.empty()) {
    auto& [expr, next] = stack.back();
    if (next == expr->operands().size()) {
      const Expr* done = expr;
      stack.pop_back();
      visit(*done);
      continue;
    }
    const Expr* operand = &expr->operands()[next++];
    if (seen.insert(operand->id()).second) stack.emplace_back(operand, 0);
  }
}

int64_t Expr::NodeCount() const {
  int64_t count = 0;
  Visit([&count](const Expr&) { ++count; });
  return count;
}

Expr Expr::WithOperands(std::vector<Expr> operands) const {
  switch (op()) {
    case ExprOp::kLoad:
      return Load(dtype(), index(), std::move(operands));
    case ExprOp::kGuardedLoad: {
      const Expr condition = operands[0];
      const Expr otherwise = operands[1];
      operands.erase(operands.begin(), operands.begin() + 2);
      return GuardedLoad(dtype(), index(), std::move(operands), condition, otherwise);
    }
    case ExprOp::kCast:
      return Cast(dtype(), operands[0]);
    case ExprOp::kBitCast:
      return BitCast(dtype(), operands[0]);
    case ExprOp::kSelect:
      return Select(operands[0], operands[1], operands[2]);
    default:
      break;
  }
  switch (Arity(op())) {
    case 1:
      return Unary(op(), operands[0]);
    case 2:
      return Binary(op(), operands[0], operands[1]);
    default:
      return *this;
  }
}

namespace {

// Whether `e` is one of `operands` or an operand of one: no simplification digs deeper.
bool IsPartOf(const Expr& e, std::span<const Expr> operands) {
  for (const Expr& operand : operands) {
    if (e.id() == operand.id()) return true;
    for (const Expr& inner : operand.operands()) {
      if (e.id() == inner.id()) return true;
    }
  }
  return false;
}

}  // namespace

Expr Expr::Rewrite(const std::function<Expr(const Expr&)>& replace) const {
  absl::flat_hash_map<const void*, Expr> rebuilt;
  Visit([&](const Expr& expr) {
    bool changed = false;
    std::vector<Expr> operands;
    for (const Expr& operand : expr.operands()) {
      operands.push_back(rebuilt.at(operand.id()));
      changed |= operands.back().id() != operand.id();
    }
    if (!changed) {
      rebuilt.emplace(expr.id(), replace(expr));
      return;
    }
    const Expr simplified = expr.WithOperands(operands);
    // What simplification leaves of a node may be part of an operand, which was replaced already.
    rebuilt.emplace(expr.id(), IsPartOf(simplified, operands) ? simplified : replace(simplified));
  });
  return rebuilt.at(id());
}

namespace {

std::string LeafText(const Expr& e) {
  switch (e.op()) {
    case ExprOp::kConstant:
      if (e.dtype() == DType::kBool) return e.constant_bits() != 0 ? "true" : "false";
      return IsFloat(e.dtype()) ? absl::StrCat(e.constant_value(), Name(e.dtype()))
                                : absl::StrCat(e.constant_int());
    case ExprOp::kCoord:
      return absl::StrCat("c", e.index());
    case ExprOp::kDim:
      return absl::StrCat("{", e.dim().ToString(), "}");
    case ExprOp::kReduced:
      return absl::StrCat("reduced", e.index());
    case ExprOp::kAccumulator:
      return absl::StrCat("acc", e.index());
    default:
      return "";
  }
}

std::string NodeText(const Expr& e, const std::vector<std::string>& operands) {
  const auto list = [&operands](size_t from) {
    std::string text;
    for (size_t i = from; i < operands.size(); ++i) {
      absl::StrAppend(&text, i == from ? "" : ", ", operands[i]);
    }
    return text;
  };
  switch (e.op()) {
    case ExprOp::kLoad:
      return absl::StrCat("load", e.index(), "[", list(0), "]");
    case ExprOp::kGuardedLoad:
      return absl::StrCat("(", operands[0], " ? load", e.index(), "[", list(2), "] : ", operands[1],
                          ")");
    case ExprOp::kCast:
    case ExprOp::kBitCast:
      return absl::StrCat(Name(e.op()), "<", Name(e.dtype()), ">(", list(0), ")");
    default:
      return Arity(e.op()) == 0 ? LeafText(e) : absl::StrCat(Name(e.op()), "(", list(0), ")");
  }
}

}  // namespace

std::string Expr::ToString() const {
  if (!valid()) return "(none)";
  absl::flat_hash_map<const void*, int> uses;
  Visit([&uses](const Expr& e) {
    for (const Expr& operand : e.operands()) ++uses[operand.id()];
  });
  // A text longer than this gets a name too, which keeps the whole linear in the number of nodes.
  constexpr size_t kInlineMax = 200;
  std::string text;
  absl::flat_hash_map<const void*, std::string> names;
  int named = 0;
  Visit([&](const Expr& e) {
    std::vector<std::string> operands;
    for (const Expr& operand : e.operands()) operands.push_back(names.at(operand.id()));
    std::string own = NodeText(e, operands);
    const bool leaf = e.operands().empty();
    if (e.id() != id() && !leaf && (uses[e.id()] > 1 || own.size() > kInlineMax)) {
      const std::string name = absl::StrCat("%", named++);
      absl::StrAppend(&text, name, " = ", own, "; ");
      own = name;
    }
    names[e.id()] = std::move(own);
  });
  return text + names.at(id());
}

absl::StatusOr<uint64_t> EvaluateScalar(const Expr& expr, const DimExpr::SymbolValue& symbols) {
  absl::flat_hash_map<const void*, uint64_t> values;
  absl::Status status;
  expr.Visit([&](const Expr& e) {
    if (!status.ok()) return;
    uint64_t value = 0;
    std::vector<uint64_t> operands;
    for (const Expr& operand : e.operands()) operands.push_back(values.at(operand.id()));
    if (e.IsConstant()) {
      value = e.constant_bits();
    } else if (e.op() == ExprOp::kDim) {
      const absl::StatusOr<int64_t> dim = e.dim().Evaluate(symbols);
      status = dim.status();
      if (dim.ok()) value = static_cast<uint64_t>(*dim);
    } else if (e.op() == ExprOp::kSelect) {
      value = operands[0] != 0 ? operands[1] : operands[2];
    } else if (Arity(e.op()) == 0) {
      status = absl::FailedPreconditionError(
          absl::StrCat("expression is no scalar: it has ", Name(e.op())));
    } else {
      const ScalarFunction function =
          FindScalarFunction(e.op(), e.operands()[0].dtype(), e.dtype());
      value = function(operands[0], operands.size() > 1 ? operands[1] : 0);
    }
    values[e.id()] = value;
  });
  RETURN_IF_ERROR(status);
  return values.at(expr.id());
}

}  // namespace stampmill
