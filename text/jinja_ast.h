// A parsed template: statements and expressions as data, immutable once parsed.
//
// Nodes own nothing but their own text and lists: JinjaProgram keeps them all alive. Variables are
// numbered, so that a rendering looks the global ones up by index.
#pragma once

#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "text/jinja_value.h"

namespace stampmill {

enum class ExprKind : uint8_t {
  kConstant,
  kVariable,
  kTuple,
  kList,
  kDict,       // operands: key, value, key, value...
  kAttribute,  // operands[0].name
  kItem,       // operands[0][operands[1]]
  kSlice,      // only as operands[1] of kItem; operands: start, stop, step, each may be null
  kCall,       // operands[0](arguments)
  kFilter,     // operands[0] | name(arguments); operands[0] is null at the head of a filter block
  kTest,       // operands[0] is name(arguments)
  kNot,
  kNegate,
  kPlus,
  kBinary,
  kAnd,
  kOr,
  kConcatenate,
  kCompare,         // operands[0] operators[0] operands[1] operators[1] ...
  kConditional,     // operands: then, condition, else (may be null)
  kNamespaceField,  // only as a target: variable.name
};

enum class Operator : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower,
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn,
};

struct JinjaExpr {
  ExprKind kind = ExprKind::kConstant;
  Operator op = Operator::kAdd;
  int line = 0;
  int height = 1;         // nodes on the longest way down
  uint32_t variable = 0;  // kVariable, kNamespaceField
  // Index in the tables of filters or tests; -1 where there is none of this name.
  int callee = -1;
  JinjaValue constant;
  std::string name;  // of an attribute, filter, test or variable; bytes of a string constant
  std::vector<const JinjaExpr*> operands;
  std::vector<Operator> operators;
  // Arguments of calls, filters and tests.
  std::vector<const JinjaExpr*> arguments;
  std::vector<std::pair<std::string, const JinjaExpr*>> keywords;
  const JinjaExpr* star = nullptr;
  const JinjaExpr* star_star = nullptr;
};

enum class StatementKind : uint8_t {
  kText,
  kPrint,
  kIf,   // expressions[i] chooses bodies[i]; one more body is the else
  kFor,  // bodies[0], else bodies[1]; expressions: iterable, condition (may be null)
  kSet,
  kSetBlock,
  kMacro,
  kCallBlock,
  kFilterBlock,
  kWith,  // targets[i] = expressions[i]
  kBreak,
  kContinue,
};

struct Statement;
using Block = std::vector<const Statement*>;

// What a macro or call block takes.
struct Signature {
  std::string name;
  std::vector<uint32_t> parameters;
  // Of the last ones.
  std::vector<const JinjaExpr*> defaults;
  // What its body mentions without declaring it.
  bool takes_varargs = false;
  bool takes_kwargs = false;
  bool takes_caller = false;
};

struct Statement {
  StatementKind kind = StatementKind::kText;
  int line = 0;
  int height = 1;
  // Whether it or a statement within makes a macro, which keeps the variables around it.
  bool makes_macro = false;
  std::string text;
  std::vector<const JinjaExpr*> targets;
  // kSetBlock, kFilterBlock: the chain of filters, or null.
  std::vector<const JinjaExpr*> expressions;
  std::vector<Block> bodies;
  // For each body with variables of its own those that are undefined in it until it assigns them,
  // whatever the context has (jinja_scopes.h).
  std::vector<std::vector<uint32_t>> hidden;
  Signature signature;    // kMacro, kCallBlock
  uint32_t variable = 0;  // kMacro: what it is called
};

struct JinjaProgram {
  Block body;
  std::vector<uint32_t> hidden;
  std::vector<std::string> variables;
  absl::flat_hash_map<std::string, uint32_t> variable_ids;
  // Deques, since nodes are pointed to while more are made.
  std::deque<JinjaExpr> exprs;
  std::deque<Statement> statements;

  uint32_t VariableId(const std::string& name) {
    const auto [at, is_new] =
        variable_ids.try_emplace(name, static_cast<uint32_t>(variables.size()));
    if (is_new) variables.push_back(name);
    return at->second;
  }
};

}  // namespace stampmill
