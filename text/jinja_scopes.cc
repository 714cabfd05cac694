#include "text/jinja_scopes.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace stampmill {
namespace {

// A set of variables, cheap to copy.
class VariableSet {
 public:
  explicit VariableSet(size_t variables) : words_(variables / 64 + 1) {}

  bool contains(uint32_t variable) const { return (words_[variable / 64] & Bit(variable)) != 0; }
  // Whether it was not there yet.
  bool insert(uint32_t variable) {
    const bool is_new = !contains(variable);
    words_[variable / 64] |= Bit(variable);
    return is_new;
  }
  void erase(uint32_t variable) { words_[variable / 64] &= ~Bit(variable); }
  void insert_all(const VariableSet& other) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] |= other.words_[i];
  }
  // Takes out what is in `added` but not in `before`.
  void erase_new(const VariableSet& added, const VariableSet& before) {
    for (size_t i = 0; i < words_.size(); ++i) words_[i] &= ~(added.words_[i] & ~before.words_[i]);
  }

  std::vector<uint32_t> sorted() const {
    std::vector<uint32_t> result;
    for (uint32_t variable = 0; variable < 64 * words_.size(); ++variable) {
      if (contains(variable)) result.push_back(variable);
    }
    return result;
  }

 private:
  static uint64_t Bit(uint32_t variable) { return uint64_t{1} << (variable % 64); }

  std::vector<uint64_t> words_;
};

// What one block knows of names, in the order in which Jinja2 looks at it: first all of the block
// itself, branches of conditions one by one, then the blocks within.
struct Names {
  explicit Names(size_t variables, const Names* around = nullptr)
      : parent(around), known(variables), stored(variables), hidden(variables) {}

  const Names* parent;
  VariableSet known;   // read or assigned here
  VariableSet stored;  // assigned here
  VariableSet hidden;  // assigned before it was read, and not known around the block

  bool Knows(uint32_t variable) const {
    return known.contains(variable) || (parent != nullptr && parent->Knows(variable));
  }
  bool KnownAround(uint32_t variable) const { return parent != nullptr && parent->Knows(variable); }

  void Read(uint32_t variable) {
    if (!Knows(variable)) known.insert(variable);
  }
  void Store(uint32_t variable) {
    stored.insert(variable);
    if (known.insert(variable) && !KnownAround(variable)) hidden.insert(variable);
  }
  // A target that is there whenever the block runs.
  void Declare(uint32_t variable) {
    stored.insert(variable);
    known.insert(variable);
    hidden.erase(variable);
  }
};

void ReadAll(const JinjaExpr* expr, Names* names) {
  if (expr == nullptr) return;
  if (expr->kind == ExprKind::kVariable || expr->kind == ExprKind::kNamespaceField) {
    names->Read(expr->variable);
  }
  for (const JinjaExpr* const operand : expr->operands) ReadAll(operand, names);
  for (const JinjaExpr* const argument : expr->arguments) ReadAll(argument, names);
  for (const auto& keyword : expr->keywords) ReadAll(keyword.second, names);
  ReadAll(expr->star, names);
  ReadAll(expr->star_star, names);
}

void StoreTarget(const JinjaExpr* target, Names* names) {
  if (target->kind == ExprKind::kVariable) names->Store(target->variable);
  if (target->kind == ExprKind::kNamespaceField) names->Read(target->variable);
  for (const JinjaExpr* const element : target->operands) StoreTarget(element, names);
}

void DeclareTarget(const JinjaExpr* target, Names* names) {
  if (target->kind == ExprKind::kVariable) names->Declare(target->variable);
  for (const JinjaExpr* const element : target->operands) DeclareTarget(element, names);
}

void LookAt(const Block& block, Names* names);

// Branches start from what is known before them. What only some of them assign is looked up
// outside until then, like what is read.
void LookAtIf(const Statement& statement, Names* names) {
  ReadAll(statement.expressions[0], names);
  const Names before = *names;
  Names first = before;
  LookAt(statement.bodies[0], &first);
  // All of `elif` is one branch, with conditions of its own in it.
  Names elif = before;
  for (size_t i = 1; i < statement.expressions.size(); ++i) {
    ReadAll(statement.expressions[i], &elif);
    const VariableSet stored_before = elif.stored;
    LookAt(statement.bodies[i], &elif);
    elif.hidden.erase_new(elif.stored, stored_before);
  }
  Names otherwise = before;
  if (statement.bodies.size() > statement.expressions.size()) {
    LookAt(statement.bodies.back(), &otherwise);
  }
  for (const Names* const branch : {&first, &elif, &otherwise}) {
    names->known.insert_all(branch->known);
    names->stored.insert_all(branch->stored);
  }
}

void LookAt(const Block& block, Names* names) {
  for (const Statement* const statement : block) {
    switch (statement->kind) {
      case StatementKind::kIf:
        LookAtIf(*statement, names);
        break;
      case StatementKind::kSet:
        ReadAll(statement->expressions[0], names);
        StoreTarget(statement->targets[0], names);
        break;
      case StatementKind::kSetBlock:
        StoreTarget(statement->targets[0], names);
        break;
      case StatementKind::kMacro:
        names->Store(statement->variable);
        break;
      case StatementKind::kFor:
        ReadAll(statement->expressions[0], names);
        break;
      case StatementKind::kPrint:
      case StatementKind::kWith:
      case StatementKind::kCallBlock:
      case StatementKind::kFilterBlock:
        for (const JinjaExpr* const expr : statement->expressions) ReadAll(expr, names);
        break;
      case StatementKind::kText:
      case StatementKind::kBreak:
      case StatementKind::kContinue:
        break;
    }
  }
}

class Finder {
 public:
  explicit Finder(JinjaProgram* program) : program_(*program) {
    for (Statement& statement : program_.statements) places_.emplace(&statement, &statement);
  }

  void Run() {
    Names names(program_.variables.size());
    LookAt(program_.body, &names);
    program_.hidden = names.hidden.sorted();
    Within(program_.body, names);
  }

 private:
  // The blocks with variables of their own within `block`, which has `names`.
  void Within(const Block& block, const Names& names) {
    for (const Statement* const statement : block) {
      if (statement->kind == StatementKind::kIf) {
        for (const Block& body : statement->bodies) Within(body, names);
        continue;
      }
      for (size_t i = 0; i < statement->bodies.size(); ++i) {
        OwnBlock(*places_.at(statement), i, names);
      }
    }
  }

  void OwnBlock(Statement& statement, size_t body, const Names& around) {
    Names names(program_.variables.size(), &around);
    switch (statement.kind) {
      case StatementKind::kFor:
        if (body == 0) DeclareTarget(statement.targets[0], &names);
        if (body == 0) DeclareNamed("loop", &names);
        break;
      case StatementKind::kWith:
        for (const JinjaExpr* const target : statement.targets) DeclareTarget(target, &names);
        break;
      case StatementKind::kMacro:
      case StatementKind::kCallBlock:
        for (const uint32_t parameter : statement.signature.parameters) names.Declare(parameter);
        for (const JinjaExpr* const expr : statement.signature.defaults) ReadAll(expr, &names);
        if (statement.signature.takes_caller) DeclareNamed("caller", &names);
        if (statement.signature.takes_varargs) DeclareNamed("varargs", &names);
        if (statement.signature.takes_kwargs) DeclareNamed("kwargs", &names);
        break;
      default:
        break;
    }
    LookAt(statement.bodies[body], &names);
    statement.hidden.resize(statement.bodies.size());
    statement.hidden[body] = names.hidden.sorted();
    Within(statement.bodies[body], names);
  }

  void DeclareNamed(const char* name, Names* names) {
    const auto at = program_.variable_ids.find(name);
    if (at != program_.variable_ids.end()) names->Declare(at->second);
  }

  JinjaProgram& program_;
  absl::flat_hash_map<const Statement*, Statement*> places_;
};

}  // namespace

void FindHiddenVariables(JinjaProgram* program) { Finder(program).Run(); }

}  // namespace stampmill
