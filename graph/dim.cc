// Canonical form: a sum of terms, each a coefficient times a product of atoms. Every operation
// takes its operands apart into such terms, works on them and puts the result together again, so no
// other form exists. Atoms are symbols and the operations that are not polynomial; what overflows,
// or would have too many terms, is an atom too (`opaque`).
#include "graph/dim.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <set>
#include <utility>

#include "absl/hash/hash.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/check.h"
#include "base/status_macros.h"

namespace stampmill {
namespace {

using Kind = DimExpr::Kind;

constexpr int64_t kInt64Min = std::numeric_limits<int64_t>::min();
constexpr int64_t kInt64Max = std::numeric_limits<int64_t>::max();
// A product of sums that would have more terms than this stays a product.
constexpr size_t kTermsMax = 256;
// How often a bound is looked for by replacing an atom by its own bound, in sums and extremes of at
// most this many operands: the search branches over them.
constexpr int kBoundDepth = 2;
constexpr size_t kBoundOperandsMax = 16;

__extension__ using Wide = __int128;
// Stands for infinity in Interval; far from what sums of 64-bit numbers reach.
constexpr Wide kInfinity = static_cast<Wide>(1) << 100;

// lo is a 64-bit number or -kInfinity, hi a 64-bit number or kInfinity.
struct Interval {
  Wide lo = -kInfinity;
  Wide hi = kInfinity;
};

bool IsInfinite(Wide value) { return value >= kInfinity || value <= -kInfinity; }

Interval Normalised(Wide lo, Wide hi) {
  Interval result;
  if (lo >= kInt64Min) result.lo = std::min<Wide>(lo, kInt64Max);
  if (hi <= kInt64Max) result.hi = std::max<Wide>(hi, kInt64Min);
  return result;
}

Interval operator+(const Interval& a, const Interval& b) {
  return Normalised(IsInfinite(a.lo) || IsInfinite(b.lo) ? -kInfinity : a.lo + b.lo,
                    IsInfinite(a.hi) || IsInfinite(b.hi) ? kInfinity : a.hi + b.hi);
}

Wide MultiplyBounds(Wide a, Wide b) {
  if (a == 0 || b == 0) return 0;
  if (IsInfinite(a) || IsInfinite(b)) return (a < 0) == (b < 0) ? kInfinity : -kInfinity;
  return a * b;
}

Interval operator*(const Interval& a, const Interval& b) {
  const Wide corners[] = {MultiplyBounds(a.lo, b.lo), MultiplyBounds(a.lo, b.hi),
                          MultiplyBounds(a.hi, b.lo), MultiplyBounds(a.hi, b.hi)};
  return Normalised(*std::min_element(std::begin(corners), std::end(corners)),
                    *std::max_element(std::begin(corners), std::end(corners)));
}

Wide FloorDivide(Wide a, Wide b) {
  const Wide quotient = a / b;
  return quotient - ((a % b != 0 && (a < 0) != (b < 0)) ? 1 : 0);
}

// Division that succeeds has a divisor other than 0; one that is known not to be negative is >= 1.
Interval DivideIntervals(const Interval& a, const Interval& b) {
  if (b.lo < 0) return {};
  const Wide smallest = std::max<Wide>(b.lo, 1);
  const Wide largest = std::max<Wide>(b.hi, 1);
  Interval result;
  if (!IsInfinite(a.lo)) {
    result.lo = a.lo < 0 ? FloorDivide(a.lo, smallest)
                         : (IsInfinite(largest) ? 0 : FloorDivide(a.lo, largest));
  }
  if (!IsInfinite(a.hi)) {
    result.hi = a.hi >= 0 ? FloorDivide(a.hi, smallest)
                          : (IsInfinite(largest) ? -1 : FloorDivide(a.hi, largest));
  }
  return result;
}

std::optional<int64_t> FiniteBound(Wide bound) {
  if (IsInfinite(bound)) return std::nullopt;
  return static_cast<int64_t>(bound);
}

}  // namespace

struct DimExpr::Node {
  Kind kind = Kind::kConstant;
  bool opaque = false;  // a sum or product that is an atom
  int32_t depth = 1;
  int64_t nodes = 1;
  int64_t value = 0;
  std::string name;
  std::vector<DimExpr> operands;
  size_t hash = 0;
  Interval bounds;  // term by term; the public bounds look further
};

// What works on nodes: a class, so that it is one friend.
class DimBuilder {
 public:
  using Node = DimExpr::Node;

  // coefficient * product of atoms; atoms in order, repeated for powers.
  struct Term {
    int64_t coefficient = 0;
    std::vector<DimExpr> atoms;
  };
  // Sorted by CompareAtoms, no coefficient 0, no two with the same atoms.
  using Terms = std::vector<Term>;

  static DimExpr Constant(int64_t value);
  static DimExpr Symbol(absl::string_view name, bool is_signed);
  static DimExpr Make(Kind kind, std::vector<DimExpr> operands, bool opaque = false);
  static int Compare(const DimExpr& a, const DimExpr& b);

  static Terms ToTerms(const DimExpr& e);
  static DimExpr FromTerms(const Terms& terms);
  // False on overflow.
  static bool Combine(Terms& terms);
  static std::optional<Terms> Scaled(const Terms& terms, int64_t factor);
  static std::optional<Terms> Sum(const Terms& a, const Terms& b);
  static std::optional<Terms> Product(const Terms& a, const Terms& b);

  static DimExpr Divide(const DimExpr& a, const DimExpr& b);
  static DimExpr Modulo(const DimExpr& a, const DimExpr& b);
  static DimExpr Extreme(Kind kind, const DimExpr& a, const DimExpr& b);

  static Interval BoundsOf(const DimExpr& e) { return e.node_->bounds; }
  static Wide LowerBound(const Terms& terms, int depth);

 private:
  static int CompareAtoms(const std::vector<DimExpr>& a, const std::vector<DimExpr>& b);
  static Term ToTerm(const DimExpr& e);
  static Interval TermBounds(const Term& term);
  static Interval NodeBounds(const Node& node);
  static Wide LowerBoundBySubstitution(const Terms& terms, size_t at, int depth);
  // Divides numerator and divisor by all that divides every term of both; returns that factor.
  static Term CancelCommonFactor(Terms& a, Terms& b);
  static bool AtomsDivide(const std::vector<DimExpr>& divisor, const std::vector<DimExpr>& atoms,
                          std::vector<DimExpr>* quotient);
  // `terms` = divisor * quotient + rest, as far as terms divide one by one.
  static void SplitByConstant(const Terms& terms, int64_t divisor, Terms* quotient, Terms* rest);
  static void SplitByTerm(const Terms& terms, const Term& divisor, Terms* quotient, Terms* rest);
  static std::optional<Terms> ExactQuotient(const Terms& a, const Terms& b);
  static DimExpr DivideByConstant(const Terms& a, int64_t divisor);
  static DimExpr DivideByTerms(const Terms& a, const Terms& b);
  static DimExpr ModuloConstant(const Terms& a, int64_t divisor);
  static bool LiesInRange(const DimExpr& e, const DimExpr& end);  // 0 <= e < end, provably
};

DimExpr DimBuilder::Constant(int64_t value) {
  auto node = std::make_shared<Node>();
  node->value = value;
  node->bounds = {value, value};
  node->hash = absl::HashOf(Kind::kConstant, value);
  return DimExpr(std::shared_ptr<const Node>(std::move(node)));
}

DimExpr DimBuilder::Symbol(absl::string_view name, bool is_signed) {
  auto node = std::make_shared<Node>();
  node->kind = Kind::kSymbol;
  node->name = std::string(name);
  node->bounds = {is_signed ? -kInfinity : 0, kInfinity};
  node->hash = absl::HashOf(Kind::kSymbol, name);
  return DimExpr(std::shared_ptr<const Node>(std::move(node)));
}

DimExpr DimBuilder::Make(Kind kind, std::vector<DimExpr> operands, bool opaque) {
  auto node = std::make_shared<Node>();
  node->kind = kind;
  node->opaque = opaque;
  node->hash = absl::HashOf(kind, operands.size());
  for (const DimExpr& operand : operands) {
    node->depth = std::max(node->depth, operand.node_->depth + 1);
    node->nodes += operand.node_->nodes;
    node->hash = absl::HashOf(node->hash, operand.hash());
  }
  if (node->depth > DimExpr::kDepthMax || node->nodes > DimExpr::kNodesMax) {
    return Make(Kind::kFloorDiv, {Constant(0), Constant(0)});
  }
  node->operands = std::move(operands);
  node->bounds = NodeBounds(*node);
  return DimExpr(std::shared_ptr<const Node>(std::move(node)));
}

Interval DimBuilder::NodeBounds(const Node& node) {
  Interval bounds = BoundsOf(node.operands[0]);
  for (size_t i = 1; i < node.operands.size(); ++i) {
    const Interval next = BoundsOf(node.operands[i]);
    switch (node.kind) {
      case Kind::kAdd:
        bounds = bounds + next;
        break;
      case Kind::kMul:
        bounds = bounds * next;
        break;
      case Kind::kFloorDiv:
        bounds = DivideIntervals(bounds, next);
        break;
      case Kind::kMod:
        if (next.lo < 0) {
          bounds = {};
        } else {
          bounds = {0, IsInfinite(next.hi) ? kInfinity : std::max<Wide>(next.hi - 1, 0)};
        }
        break;
      case Kind::kMin:
        bounds = {std::min(bounds.lo, next.lo), std::min(bounds.hi, next.hi)};
        break;
      case Kind::kMax:
        bounds = {std::max(bounds.lo, next.lo), std::max(bounds.hi, next.hi)};
        break;
      case Kind::kConstant:
      case Kind::kSymbol:
        break;
    }
  }
  return bounds;
}

int DimBuilder::Compare(const DimExpr& a, const DimExpr& b) {
  if (a.node_ == b.node_) return 0;
  const Node& x = *a.node_;
  const Node& y = *b.node_;
  if (x.kind != y.kind) {
    // Symbols first, constants last: the order in which people write a sum.
    const auto rank = [](Kind kind) {
      return kind == Kind::kConstant ? 100 : static_cast<int>(kind);
    };
    return rank(x.kind) < rank(y.kind) ? -1 : 1;
  }
  if (x.kind == Kind::kConstant) return x.value == y.value ? 0 : (x.value < y.value ? -1 : 1);
  if (x.kind == Kind::kSymbol) {
    const int order = x.name.compare(y.name);
    return order == 0 ? 0 : (order < 0 ? -1 : 1);
  }
  if (x.operands.size() != y.operands.size()) {
    return x.operands.size() < y.operands.size() ? -1 : 1;
  }
  for (size_t i = 0; i < x.operands.size(); ++i) {
    if (const int order = Compare(x.operands[i], y.operands[i]); order != 0) return order;
  }
  return 0;
}

// Graded lexicographic, the larger monomial first: an order that multiplication keeps, which
// ExactQuotient needs.
int DimBuilder::CompareAtoms(const std::vector<DimExpr>& a, const std::vector<DimExpr>& b) {
  if (a.size() != b.size()) return a.size() > b.size() ? -1 : 1;
  for (size_t i = 0; i < a.size(); ++i) {
    if (const int order = Compare(a[i], b[i]); order != 0) return order;
  }
  return 0;
}

DimBuilder::Term DimBuilder::ToTerm(const DimExpr& e) {
  if (e.kind() == Kind::kConstant) return {e.node_->value, {}};
  if (e.kind() != Kind::kMul || e.node_->opaque) return {1, {e}};
  Term term = {1, e.node_->operands};
  if (term.atoms[0].is_constant()) {
    term.coefficient = term.atoms[0].node_->value;
    term.atoms.erase(term.atoms.begin());
  }
  return term;
}

DimBuilder::Terms DimBuilder::ToTerms(const DimExpr& e) {
  if (e.IsConstant(0)) return {};
  if (e.kind() != Kind::kAdd || e.node_->opaque) return {ToTerm(e)};
  Terms terms;
  for (const DimExpr& operand : e.node_->operands) terms.push_back(ToTerm(operand));
  return terms;
}

DimExpr DimBuilder::FromTerms(const Terms& terms) {
  if (terms.empty()) return DimExpr();
  std::vector<DimExpr> sum;
  for (const Term& term : terms) {
    if (term.atoms.empty()) {
      sum.push_back(Constant(term.coefficient));
    } else if (term.coefficient == 1 && term.atoms.size() == 1) {
      sum.push_back(term.atoms[0]);
    } else {
      std::vector<DimExpr> factors;
      if (term.coefficient != 1) factors.push_back(Constant(term.coefficient));
      factors.insert(factors.end(), term.atoms.begin(), term.atoms.end());
      sum.push_back(Make(Kind::kMul, std::move(factors)));
    }
  }
  return sum.size() == 1 ? sum[0] : Make(Kind::kAdd, std::move(sum));
}

bool DimBuilder::Combine(Terms& terms) {
  std::sort(terms.begin(), terms.end(),
            [](const Term& a, const Term& b) { return CompareAtoms(a.atoms, b.atoms) < 0; });
  Terms result;
  for (Term& term : terms) {
    if (result.empty() || CompareAtoms(result.back().atoms, term.atoms) != 0) {
      result.push_back(std::move(term));
    } else if (__builtin_add_overflow(result.back().coefficient, term.coefficient,
                                      &result.back().coefficient)) {
      return false;
    }
  }
  std::erase_if(result, [](const Term& term) { return term.coefficient == 0; });
  terms = std::move(result);
  return true;
}

std::optional<DimBuilder::Terms> DimBuilder::Scaled(const Terms& terms, int64_t factor) {
  if (factor == 0) return Terms();
  Terms result = terms;
  for (Term& term : result) {
    if (__builtin_mul_overflow(term.coefficient, factor, &term.coefficient)) return std::nullopt;
  }
  return result;
}

std::optional<DimBuilder::Terms> DimBuilder::Sum(const Terms& a, const Terms& b) {
  Terms result = a;
  result.insert(result.end(), b.begin(), b.end());
  if (!Combine(result)) return std::nullopt;
  return result;
}

std::optional<DimBuilder::Terms> DimBuilder::Product(const Terms& a, const Terms& b) {
  if (a.size() * b.size() > kTermsMax) return std::nullopt;
  Terms result;
  for (const Term& x : a) {
    for (const Term& y : b) {
      Term term;
      if (__builtin_mul_overflow(x.coefficient, y.coefficient, &term.coefficient)) {
        return std::nullopt;
      }
      term.atoms.resize(x.atoms.size() + y.atoms.size());
      std::merge(x.atoms.begin(), x.atoms.end(), y.atoms.begin(), y.atoms.end(),
                 term.atoms.begin());
      result.push_back(std::move(term));
    }
  }
  if (!Combine(result)) return std::nullopt;
  return result;
}

Interval DimBuilder::TermBounds(const Term& term) {
  Interval bounds = {term.coefficient, term.coefficient};
  for (const DimExpr& atom : term.atoms) bounds = bounds * BoundsOf(atom);
  return bounds;
}

Wide DimBuilder::LowerBound(const Terms& terms, int depth) {
  Interval sum = {0, 0};
  for (const Term& term : terms) sum = sum + TermBounds(term);
  if (!IsInfinite(sum.lo) || depth == 0 || terms.size() > kBoundOperandsMax) return sum.lo;
  Wide best = -kInfinity;
  for (size_t i = 0; i < terms.size(); ++i) {
    if (terms[i].atoms.size() != 1) continue;
    best = std::max(best, LowerBoundBySubstitution(terms, i, depth - 1));
  }
  return best;
}

// Puts a bound in place of the atom of term `at`, which then may cancel against other terms:
// N - floordiv(N, 2) >= 0 follows from 2 * floordiv(N, 2) <= N.
Wide DimBuilder::LowerBoundBySubstitution(const Terms& terms, size_t at, int depth) {
  const int64_t factor = terms[at].coefficient;
  const DimExpr& atom = terms[at].atoms[0];
  Terms rest = terms;
  rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(at));
  const auto bound_with = [&](const Terms& others, const DimExpr& replacement) -> Wide {
    const std::optional<Terms> scaled = Scaled(ToTerms(replacement), factor);
    if (!scaled.has_value()) return -kInfinity;
    const std::optional<Terms> sum = Sum(others, *scaled);
    return sum.has_value() ? LowerBound(*sum, depth) : -kInfinity;
  };
  if (atom.kind() == Kind::kFloorDiv) {
    const std::optional<int64_t> divisor = atom.operands()[1].constant();
    if (!divisor.has_value() || *divisor <= 0) return -kInfinity;
    const std::optional<Terms> scaled_rest = Scaled(rest, *divisor);
    if (!scaled_rest.has_value()) return -kInfinity;
    // divisor * atom lies in [numerator - (divisor - 1), numerator].
    Wide bound = bound_with(*scaled_rest, atom.operands()[0]);
    if (IsInfinite(bound)) return bound;
    if (factor > 0) bound -= static_cast<Wide>(factor) * (*divisor - 1);
    return Normalised(-FloorDivide(-bound, *divisor), kInfinity).lo;
  }
  if (atom.kind() != Kind::kMin && atom.kind() != Kind::kMax) return -kInfinity;
  if (atom.operands().size() > kBoundOperandsMax) return -kInfinity;
  // With a sign that works against us, one operand is the value: the worst counts. Else each
  // operand alone is a bound: the best counts.
  const bool any_holds = (atom.kind() == Kind::kMax) == (factor > 0);
  Wide bound = any_holds ? -kInfinity : kInfinity;
  for (const DimExpr& operand : atom.operands()) {
    const Wide one = bound_with(rest, operand);
    bound = any_holds ? std::max(bound, one) : std::min(bound, one);
  }
  return bound;
}

bool DimBuilder::LiesInRange(const DimExpr& e, const DimExpr& end) {
  const std::optional<int64_t> low = e.LowerBound();
  if (!low.has_value() || *low < 0) return false;
  const std::optional<int64_t> room = (end - e).LowerBound();
  return room.has_value() && *room >= 1;
}

bool DimBuilder::AtomsDivide(const std::vector<DimExpr>& divisor, const std::vector<DimExpr>& atoms,
                             std::vector<DimExpr>* quotient) {
  if (!std::includes(atoms.begin(), atoms.end(), divisor.begin(), divisor.end())) return false;
  quotient->clear();
  std::set_difference(atoms.begin(), atoms.end(), divisor.begin(), divisor.end(),
                      std::back_inserter(*quotient));
  return true;
}

DimBuilder::Term DimBuilder::CancelCommonFactor(Terms& a, Terms& b) {
  Term factor = {0, b[0].atoms};
  for (const Terms* terms : {&a, &b}) {
    for (const Term& term : *terms) {
      if (term.coefficient == kInt64Min) return {1, {}};  // its magnitude is no int64
      factor.coefficient = std::gcd(factor.coefficient, term.coefficient);
      std::vector<DimExpr> common;
      std::set_intersection(factor.atoms.begin(), factor.atoms.end(), term.atoms.begin(),
                            term.atoms.end(), std::back_inserter(common));
      factor.atoms = std::move(common);
    }
  }
  if (b[0].coefficient < 0) factor.coefficient = -factor.coefficient;
  for (Terms* terms : {&a, &b}) {
    for (Term& term : *terms) {
      term.coefficient /= factor.coefficient;
      std::vector<DimExpr> quotient;
      CHECK(AtomsDivide(factor.atoms, term.atoms, &quotient));
      term.atoms = std::move(quotient);
    }
    CHECK(Combine(*terms));
  }
  return factor;
}

void DimBuilder::SplitByConstant(const Terms& terms, int64_t divisor, Terms* quotient,
                                 Terms* rest) {
  for (const Term& term : terms) {
    const int64_t whole = static_cast<int64_t>(FloorDivide(term.coefficient, divisor));
    const int64_t part = term.coefficient - whole * divisor;
    if (whole != 0) quotient->push_back({whole, term.atoms});
    if (part != 0) rest->push_back({part, term.atoms});
  }
}

void DimBuilder::SplitByTerm(const Terms& terms, const Term& divisor, Terms* quotient,
                             Terms* rest) {
  for (const Term& term : terms) {
    std::vector<DimExpr> atoms;
    if (term.coefficient % divisor.coefficient == 0 &&
        AtomsDivide(divisor.atoms, term.atoms, &atoms)) {
      quotient->push_back({term.coefficient / divisor.coefficient, std::move(atoms)});
    } else {
      rest->push_back(term);
    }
  }
}

// Polynomial long division; nullopt unless nothing remains.
std::optional<DimBuilder::Terms> DimBuilder::ExactQuotient(const Terms& a, const Terms& b) {
  Terms left = a;
  Terms quotient;
  while (!left.empty()) {
    Term step;
    if (quotient.size() >= kTermsMax || left[0].coefficient == kInt64Min ||
        left[0].coefficient % b[0].coefficient != 0 ||
        !AtomsDivide(b[0].atoms, left[0].atoms, &step.atoms)) {
      return std::nullopt;
    }
    step.coefficient = left[0].coefficient / b[0].coefficient;
    quotient.push_back(step);
    step.coefficient = -step.coefficient;
    const std::optional<Terms> product = Product(b, {step});
    if (!product.has_value()) return std::nullopt;
    std::optional<Terms> sum = Sum(left, *product);
    if (!sum.has_value()) return std::nullopt;
    left = *std::move(sum);
  }
  if (!Combine(quotient)) return std::nullopt;
  return quotient;
}

// REQUIRES: divisor > 0.
DimExpr DimBuilder::DivideByConstant(const Terms& a, int64_t divisor) {
  Terms quotient_terms, rest;
  SplitByConstant(a, divisor, &quotient_terms, &rest);
  const DimExpr quotient = FromTerms(quotient_terms);
  if (rest.empty()) return quotient;
  // A factor of the divisor and of all but the constant: floor((g*x + k) / (g*d)) is
  // floor((x + floor(k / g)) / d).
  int64_t factor = divisor;
  for (const Term& term : rest) {
    if (!term.atoms.empty()) factor = std::gcd(factor, term.coefficient);
  }
  if (factor != 1 && !rest[0].atoms.empty()) {
    for (Term& term : rest) term.coefficient /= factor;  // all > 0: this is floor
    std::erase_if(rest, [](const Term& term) { return term.coefficient == 0; });
    divisor /= factor;
  }
  if (divisor == 1) return quotient + FromTerms(rest);
  const DimExpr numerator = FromTerms(rest);
  const std::optional<int64_t> low = numerator.LowerBound();
  const std::optional<int64_t> high = numerator.UpperBound();
  if (low.has_value() && high.has_value() &&
      FloorDivide(*low, divisor) == FloorDivide(*high, divisor)) {
    return quotient + DimExpr(static_cast<int64_t>(FloorDivide(*low, divisor)));
  }
  // floor((floor(x / d) + y) / c) is floor((x + d*y) / (c*d)).
  for (size_t i = 0; i < rest.size(); ++i) {
    if (rest[i].coefficient != 1 || rest[i].atoms.size() != 1) continue;
    const DimExpr inner = rest[i].atoms[0];
    if (inner.kind() != Kind::kFloorDiv) continue;
    const DimExpr inner_divisor = inner.operands()[1];
    const DimExpr product = inner_divisor * DimExpr(divisor);
    if (inner_divisor.IsConstant(0) || product.node_->opaque) continue;
    if (!inner_divisor.is_constant() && rest.size() > 1) continue;
    Terms others = rest;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(i));
    return quotient + FloorDiv(inner.operands()[0] + inner_divisor * FromTerms(others), product);
  }
  return quotient + Make(Kind::kFloorDiv, {numerator, Constant(divisor)});
}

// REQUIRES: b is not a constant and nothing divides all of a and b.
DimExpr DimBuilder::DivideByTerms(const Terms& a, const Terms& b) {
  const DimExpr divisor = FromTerms(b);
  Terms quotient_terms, rest;
  if (b.size() == 1) {
    SplitByTerm(a, b[0], &quotient_terms, &rest);
  } else if (std::optional<Terms> exact = ExactQuotient(a, b); exact.has_value()) {
    quotient_terms = *std::move(exact);
  } else {
    rest = a;
  }
  const DimExpr quotient = FromTerms(quotient_terms);
  if (rest.empty()) return quotient;
  const DimExpr numerator = FromTerms(rest);
  if (LiesInRange(numerator, divisor)) return quotient;
  const bool divisor_positive = BoundsOf(divisor).lo >= 0;
  if (numerator.kind() == Kind::kMod && divisor_positive && numerator.operands()[1] == divisor) {
    return quotient;
  }
  if (numerator.kind() == Kind::kFloorDiv && divisor_positive) {
    const DimExpr product = numerator.operands()[1] * divisor;
    if (!numerator.operands()[1].IsConstant(0) && !product.node_->opaque) {
      return quotient + FloorDiv(numerator.operands()[0], product);
    }
  }
  return quotient + Make(Kind::kFloorDiv, {numerator, divisor});
}

DimExpr DimBuilder::Divide(const DimExpr& a, const DimExpr& b) {
  if (b.IsConstant(0) || b.IsConstant(kInt64Min)) return Make(Kind::kFloorDiv, {a, b});
  if (b.IsConstant(1) || a.IsConstant(0)) return a;
  if (a == b) return DimExpr(1);
  if (a.is_constant() && b.is_constant()) {
    int64_t value = 0;
    return EvaluateDimOperation(Kind::kFloorDiv, a.node_->value, b.node_->value, &value)
               ? Constant(value)
               : Make(Kind::kFloorDiv, {a, b});
  }
  Terms numerator = ToTerms(a);
  Terms divisor = ToTerms(b);
  CancelCommonFactor(numerator, divisor);
  if (divisor.size() > 1 || !divisor[0].atoms.empty()) return DivideByTerms(numerator, divisor);
  if (divisor[0].coefficient < 0) return Make(Kind::kFloorDiv, {a, b});  // INT64_MIN inside
  return DivideByConstant(numerator, divisor[0].coefficient);
}

// REQUIRES: divisor > 0.
DimExpr DimBuilder::ModuloConstant(const Terms& a, int64_t divisor) {
  Terms quotient, rest;
  SplitByConstant(a, divisor, &quotient, &rest);
  // mod(q * mod(x, m) + y, d) is mod(q * x + y, d) where d divides m.
  for (size_t i = 0; i < rest.size(); ++i) {
    if (rest[i].atoms.size() != 1 || rest[i].atoms[0].kind() != Kind::kMod) continue;
    const DimExpr inner = rest[i].atoms[0];
    const std::optional<int64_t> inner_divisor = inner.operands()[1].constant();
    if (!inner_divisor.has_value() || *inner_divisor == 0 || *inner_divisor % divisor != 0)
      continue;
    const DimExpr scaled = DimExpr(rest[i].coefficient) * inner.operands()[0];
    rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(i));
    return Mod(scaled + FromTerms(rest), DimExpr(divisor));
  }
  const DimExpr value = FromTerms(rest);
  const std::optional<int64_t> low = value.LowerBound();
  const std::optional<int64_t> high = value.UpperBound();
  if (low.has_value() && high.has_value()) {
    const Wide turns = FloorDivide(*low, divisor);
    if (turns == FloorDivide(*high, divisor)) {
      return value - DimExpr(static_cast<int64_t>(turns)) * DimExpr(divisor);
    }
  }
  return Make(Kind::kMod, {value, Constant(divisor)});
}

DimExpr DimBuilder::Modulo(const DimExpr& a, const DimExpr& b) {
  if (b.IsConstant(0) || b.IsConstant(kInt64Min)) return Make(Kind::kMod, {a, b});
  if (b.IsConstant(1) || a.IsConstant(0) || a == b) return DimExpr(0);
  if (a.is_constant() && b.is_constant()) {
    int64_t value = 0;
    CHECK(EvaluateDimOperation(Kind::kMod, a.node_->value, b.node_->value, &value));
    return Constant(value);
  }
  Terms value = ToTerms(a);
  Terms divisor = ToTerms(b);
  const Term factor = CancelCommonFactor(value, divisor);
  const DimExpr outside = FromTerms({factor});
  if (divisor.size() == 1 && divisor[0].atoms.empty()) {
    if (divisor[0].coefficient < 0) return Make(Kind::kMod, {a, b});  // INT64_MIN inside
    return outside * ModuloConstant(value, divisor[0].coefficient);
  }
  Terms quotient, rest;
  if (divisor.size() == 1) {
    SplitByTerm(value, divisor[0], &quotient, &rest);
  } else if (!ExactQuotient(value, divisor).has_value()) {
    rest = value;
  }
  const DimExpr remainder = FromTerms(rest);
  const DimExpr end = FromTerms(divisor);
  if (LiesInRange(remainder, end)) return outside * remainder;
  if (remainder.kind() == Kind::kMod && remainder.operands()[1] == end) return outside * remainder;
  if (remainder.IsConstant(0)) return DimExpr(0);
  return outside * Make(Kind::kMod, {remainder, end});
}

DimExpr DimBuilder::Extreme(Kind kind, const DimExpr& a, const DimExpr& b) {
  std::vector<DimExpr> candidates;
  for (const DimExpr* e : {&a, &b}) {
    if (e->kind() == kind) {
      candidates.insert(candidates.end(), e->operands().begin(), e->operands().end());
    } else {
      candidates.push_back(*e);
    }
  }
  const auto wins = [kind](const DimExpr& x, const DimExpr& y) {  // y is never needed beside x
    const DimExpr lead = kind == Kind::kMax ? x - y : y - x;
    const std::optional<int64_t> bound = lead.LowerBound();
    return bound.has_value() && *bound >= 0;
  };
  std::vector<DimExpr> kept;
  for (const DimExpr& candidate : candidates) {
    if (std::any_of(kept.begin(), kept.end(),
                    [&](const DimExpr& other) { return wins(other, candidate); })) {
      continue;
    }
    std::erase_if(kept, [&](const DimExpr& other) { return wins(candidate, other); });
    kept.push_back(candidate);
  }
  if (kept.size() == 1) return kept[0];
  std::sort(kept.begin(), kept.end());
  return Make(kind, std::move(kept));
}

DimExpr::DimExpr() {
  static const DimExpr& zero = *new DimExpr(DimBuilder::Constant(0));
  node_ = zero.node_;
}
DimExpr::DimExpr(int64_t constant) : DimExpr(DimBuilder::Constant(constant)) {}
DimExpr::DimExpr(std::shared_ptr<const Node> node) : node_(std::move(node)) {}

DimExpr DimExpr::Symbol(absl::string_view name) {
  CHECK(!name.empty());
  return DimBuilder::Symbol(name, /*is_signed=*/false);
}

DimExpr DimExpr::SignedSymbol(absl::string_view name) {
  CHECK(!name.empty());
  return DimBuilder::Symbol(name, /*is_signed=*/true);
}

Kind DimExpr::kind() const { return node_->kind; }
bool DimExpr::IsConstant(int64_t value) const { return is_constant() && node_->value == value; }
std::optional<int64_t> DimExpr::constant() const {
  if (!is_constant()) return std::nullopt;
  return node_->value;
}
absl::string_view DimExpr::symbol_name() const {
  CHECK(kind() == Kind::kSymbol);
  return node_->name;
}
std::span<const DimExpr> DimExpr::operands() const { return node_->operands; }
size_t DimExpr::hash() const { return node_->hash; }

DimExpr operator+(const DimExpr& a, const DimExpr& b) {
  const auto sum = DimBuilder::Sum(DimBuilder::ToTerms(a), DimBuilder::ToTerms(b));
  return sum.has_value() ? DimBuilder::FromTerms(*sum)
                         : DimBuilder::Make(Kind::kAdd, {a, b}, /*opaque=*/true);
}

DimExpr operator-(const DimExpr& a, const DimExpr& b) { return a + DimExpr(-1) * b; }

DimExpr operator*(const DimExpr& a, const DimExpr& b) {
  const auto product = DimBuilder::Product(DimBuilder::ToTerms(a), DimBuilder::ToTerms(b));
  return product.has_value() ? DimBuilder::FromTerms(*product)
                             : DimBuilder::Make(Kind::kMul, {a, b}, /*opaque=*/true);
}

DimExpr FloorDiv(const DimExpr& a, const DimExpr& b) { return DimBuilder::Divide(a, b); }
DimExpr CeilDiv(const DimExpr& a, const DimExpr& b) { return FloorDiv(a + b - DimExpr(1), b); }
DimExpr Mod(const DimExpr& a, const DimExpr& b) { return DimBuilder::Modulo(a, b); }
DimExpr Min(const DimExpr& a, const DimExpr& b) { return DimBuilder::Extreme(Kind::kMin, a, b); }
DimExpr Max(const DimExpr& a, const DimExpr& b) { return DimBuilder::Extreme(Kind::kMax, a, b); }

bool operator==(const DimExpr& a, const DimExpr& b) {
  return a.hash() == b.hash() && DimBuilder::Compare(a, b) == 0;
}

bool operator<(const DimExpr& a, const DimExpr& b) { return DimBuilder::Compare(a, b) < 0; }

std::optional<int64_t> DimExpr::LowerBound() const {
  return FiniteBound(DimBuilder::LowerBound(DimBuilder::ToTerms(*this), kBoundDepth));
}

std::optional<int64_t> DimExpr::UpperBound() const {
  const auto negated = DimBuilder::Scaled(DimBuilder::ToTerms(*this), -1);
  if (!negated.has_value()) return std::nullopt;
  const std::optional<int64_t> bound = FiniteBound(DimBuilder::LowerBound(*negated, kBoundDepth));
  if (!bound.has_value() || *bound == kInt64Min) return std::nullopt;
  return -*bound;
}

}  // namespace stampmill
