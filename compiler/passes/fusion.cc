#include "compiler/passes/fusion.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "compiler/passes/coordinates.h"

namespace stampmill {
namespace {

constexpr size_t kLabelMax = 120;
constexpr int32_t kPlaceholder = 1 << 20;  // beyond any reduction's number

}  // namespace

std::vector<Operand>& OperandsOf(StageBody& body) {
  return std::visit([](auto& b) -> std::vector<Operand>& { return b.operands; }, body);
}
const std::vector<Operand>& OperandsOf(const StageBody& body) {
  return std::visit([](const auto& b) -> const std::vector<Operand>& { return b.operands; }, body);
}

bool IsMap(const Stage& stage) {
  const auto* nest = std::get_if<Nest>(&stage.body);
  return nest != nullptr && nest->reductions.empty() && nest->reduced.empty();
}

std::optional<WrittenDomain> WrittenDomainOf(const StageBody& body) {
  WrittenDomain domain;
  if (const auto* nest = std::get_if<Nest>(&body)) {
    domain = {DomainOf(*nest), nest->output, nest->output_coordinates};
  } else if (const auto* contraction = std::get_if<Contraction>(&body)) {
    domain = {DomainOf(*contraction), contraction->output, contraction->output_coordinates};
  } else {
    return std::nullopt;
  }
  if (domain.output_coordinates.empty()) {
    domain.output_coordinates = IdentityCoordinates(domain.extents.size());
  }
  return domain;
}

void SetWritten(StageBody& body, Expr result, Operand output, std::vector<Expr> coordinates) {
  const Shape extents = WrittenDomainOf(body)->extents;
  if (IsIdentity(coordinates) && output.shape == extents) coordinates.clear();
  const auto set = [&](auto& stage) {
    stage.result = std::move(result);
    stage.output = std::move(output);
    stage.output_coordinates = std::move(coordinates);
  };
  if (auto* nest = std::get_if<Nest>(&body)) {
    set(*nest);
  } else {
    set(std::get<Contraction>(body));
  }
}

Expr ResultOf(const StageBody& body) {
  if (const auto* nest = std::get_if<Nest>(&body)) return nest->result;
  return std::get<Contraction>(body).result;
}

int32_t AddOperand(Stage& stage, const Operand& operand, ValueId value) {
  for (size_t i = 0; i < stage.operands.size(); ++i) {
    if (stage.operands[i] == value) return static_cast<int32_t>(i);
  }
  OperandsOf(stage.body).push_back(operand);
  stage.operands.push_back(value);
  return static_cast<int32_t>(stage.operands.size()) - 1;
}

Expr ReplaceLoad(const Expr& load, int32_t operand, std::vector<Expr> coordinates) {
  if (load.op() == ExprOp::kLoad) return Expr::Load(load.dtype(), operand, std::move(coordinates));
  return Expr::GuardedLoad(load.dtype(), operand, std::move(coordinates), load.operands()[0],
                           load.operands()[1]);
}

namespace {

Expr WithOperand(const Expr& load, int32_t operand) {
  if (operand == load.index()) return load;
  const std::span<const Expr> at = LoadCoordinates(load);
  return ReplaceLoad(load, operand, std::vector<Expr>(at.begin(), at.end()));
}

}  // namespace

Expr ImportOperands(const Expr& expr, const Stage& from, Stage& to) {
  return expr.Rewrite([&](const Expr& e) {
    if (!IsLoad(e)) return e;
    const auto operand = static_cast<size_t>(e.index());
    return WithOperand(e, AddOperand(to, OperandsOf(from.body)[operand], from.operands[operand]));
  });
}

void CompactOperands(Stage& stage) {
  if (std::holds_alternative<Library>(stage.body)) return;
  std::vector<Operand>& operands = OperandsOf(stage.body);
  std::vector<bool> used(operands.size(), false);
  auto* contraction = std::get_if<Contraction>(&stage.body);
  if (contraction != nullptr) used[static_cast<size_t>(contraction->b)] = true;
  ForEachExpr(std::as_const(stage.body), [&](const Expr& expr) {
    expr.Visit([&](const Expr& e) {
      if (IsLoad(e)) used[static_cast<size_t>(e.index())] = true;
    });
  });
  if (std::all_of(used.begin(), used.end(), [](bool u) { return u; })) return;
  std::vector<int32_t> renumbered(operands.size(), -1);
  size_t count = 0;
  for (size_t i = 0; i < operands.size(); ++i) {
    if (!used[i]) continue;
    renumbered[i] = static_cast<int32_t>(count);
    operands[count] = operands[i];
    stage.operands[count] = stage.operands[i];
    ++count;
  }
  operands.resize(count);
  stage.operands.resize(count);
  if (contraction != nullptr) contraction->b = renumbered[static_cast<size_t>(contraction->b)];
  ForEachExpr(stage.body, [&](Expr& expr) {
    expr = expr.Rewrite([&](const Expr& e) {
      return IsLoad(e) ? WithOperand(e, renumbered[static_cast<size_t>(e.index())]) : e;
    });
  });
}

std::string JoinLabels(const std::string& first, const std::string& second) {
  std::string label = absl::StrCat(first, "+", second);
  if (label.size() > kLabelMax) label.resize(kLabelMax);
  return label;
}

Expr Placeholder(DType dtype, size_t index) {
  return Expr::Reduced(dtype, kPlaceholder + static_cast<int32_t>(index));
}

Expr FillPlaceholders(const Expr& expr, const std::vector<Expr>& values) {
  return expr.Rewrite([&](const Expr& e) {
    if (e.op() != ExprOp::kReduced || e.index() < kPlaceholder) return e;
    return values[static_cast<size_t>(e.index() - kPlaceholder)];
  });
}

void Fusion::Index() {
  readers_.clear();
  writers_.clear();
  sliced_.clear();
  for (const StageValue& value : stages_.values) {
    if (value.slice_of != kNoValue) sliced_.insert(value.slice_of);
  }
  for (size_t i = 0; i < stages_.stages.size(); ++i) {
    const Stage& s = stages_.stages[i];
    if (s.removed) continue;
    for (ValueId id : s.operands) readers_[stages_.Root(id)].push_back(static_cast<int32_t>(i));
    for (ValueId id : s.outputs) writers_[stages_.Root(id)].push_back(static_cast<int32_t>(i));
  }
  for (auto& [root, list] : readers_) {
    list.erase(std::unique(list.begin(), list.end()), list.end());
  }
}

std::vector<int32_t> Fusion::FusibleReaders(int32_t s) {
  const Stage& producer = stage(s);
  if (producer.outputs.size() != 1) return {};
  const ValueId root = stages_.Root(producer.outputs[0]);
  // What a slice is a part of has readers of its own.
  if (stages_.IsSlice(root) || stages_.IsGraphOutput(root) || stages_.IsState(root) ||
      writers_[root].size() != 1) {
    return {};
  }
  const std::vector<int32_t>& readers = readers_[root];
  const bool same_times = std::all_of(readers.begin(), readers.end(), [&](int32_t r) {
    return stages_.RunsOnceWithin(stage(r).region, producer.region);
  });
  return same_times && sliced_.count(root) == 0 ? readers : std::vector<int32_t>();
}

void Fusion::ForEachLoad(const Stage& reader, ValueId root,
                         const std::function<void(const Expr&)>& visit) const {
  ForEachExpr(reader.body, [&](const Expr& expr) {
    expr.Visit([&](const Expr& e) {
      if (IsLoad(e) && stages_.Root(reader.operands[static_cast<size_t>(e.index())]) == root) {
        visit(e);
      }
    });
  });
}

bool Fusion::Reads(const Expr& expr, const Stage& reader, ValueId root) const {
  bool reads = false;
  expr.Visit([&](const Expr& e) {
    reads |= IsLoad(e) && stages_.Root(reader.operands[static_cast<size_t>(e.index())]) == root;
  });
  return reads;
}

bool Fusion::ReadsOpaquely(const Stage& reader, ValueId root) const {
  const auto* contraction = std::get_if<Contraction>(&reader.body);
  if (contraction == nullptr) return std::holds_alternative<Library>(reader.body);
  return stages_.Root(reader.operands[static_cast<size_t>(contraction->b)]) == root;
}

bool Fusion::ReadsEachOnce(const Stage& reader, ValueId root, const DimExpr& elements) const {
  if (const auto* nest = std::get_if<Nest>(&reader.body)) {
    int passes = Reads(nest->result, reader, root) ? 1 : 0;
    for (const Reduction& reduction : nest->reductions) {
      passes += std::any_of(reduction.update.begin(), reduction.update.end(),
                            [&](const Expr& e) { return Reads(e, reader, root); })
                    ? 1
                    : 0;
    }
    return passes <= 1 && ElementCount(nest->kept) * ElementCount(nest->reduced) == elements;
  }
  const auto* contraction = std::get_if<Contraction>(&reader.body);
  if (contraction == nullptr) return false;
  const DimExpr rows = ElementCount(contraction->batch) * ElementCount(contraction->m);
  const bool in_a = Reads(contraction->a, reader, root);
  if (in_a && Reads(contraction->result, reader, root)) return false;
  return rows * (in_a ? ElementCount(contraction->k) : contraction->n) == elements;
}

ValueId Fusion::View(ValueId value, const Shape& shape) {
  const ValueId root = stages_.Root(value);
  if (stages_.value(value).shape == shape) return value;
  if (stages_.value(root).shape == shape) return root;
  const auto key = std::make_pair(root, shape);
  const auto found = views_.find(key);
  if (found != views_.end()) return found->second;
  StageValue view{.name = stages_.value(root).name,
                  .dtype = stages_.value(root).dtype,
                  .shape = shape,
                  .constant = std::nullopt,
                  .alias_of = root};
  stages_.values.push_back(std::move(view));
  const auto id = static_cast<ValueId>(stages_.values.size()) - 1;
  views_.emplace(key, id);
  return id;
}

}  // namespace stampmill
