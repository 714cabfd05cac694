// The half of Jinja's grammar that is expressions; JinjaParser's statements stand on it.
//
// Errors are kept, the first one wins; every function returns null or nothing once there is one,
// and callers look before they use what they got.
#pragma once

#include <algorithm>
#include <initializer_list>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "text/jinja_ast.h"
#include "text/jinja_lexer.h"
#include "text/jinja_parser.h"

namespace stampmill {

class JinjaExpressionParser {
 protected:
  explicit JinjaExpressionParser(std::vector<JinjaToken> tokens)
      : tokens_(std::move(tokens)), program_(std::make_unique<JinjaProgram>()) {}

  // What the enclosing statements say about the ones within.
  struct Surroundings {
    // Inside `if`: names of filters are looked up when they are reached.
    bool conditional = false;
    // Loops that break and continue end, within the innermost macro.
    int loops = 0;
    // Loops at all: none may assign to `loop`.
    int enclosing_loops = 0;
  };

  // Sets the surroundings for as long as it lives.
  class Within {
   public:
    Within(JinjaExpressionParser* parser, Surroundings surroundings)
        : parser_(parser), before_(parser->surroundings_) {
      parser->surroundings_ = surroundings;
    }
    ~Within() { parser_->surroundings_ = before_; }
    Within(const Within&) = delete;
    Within& operator=(const Within&) = delete;

   private:
    JinjaExpressionParser* const parser_;
    const Surroundings before_;
  };

  // Counts a level of recursion.
  class Level {
   public:
    explicit Level(JinjaExpressionParser* parser) : parser_(parser) {
      if (++parser->level_ > kJinjaHeightMax) parser->FailDeep();
    }
    ~Level() { --parser_->level_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    JinjaExpressionParser* const parser_;
  };

  bool failed() const { return !status_.ok(); }

  void FailAt(int line, absl::string_view what) {
    if (status_.ok()) status_ = absl::InvalidArgumentError(absl::StrCat("line ", line, ": ", what));
  }
  void Fail(absl::string_view what) { FailAt(current().line, what); }
  void FailDeep() { Fail(absl::StrCat("nested more than ", kJinjaHeightMax, " levels deep")); }
  void FailUnsupported(absl::string_view what) {
    if (status_.ok()) {
      status_ = absl::UnimplementedError(
          absl::StrCat("line ", current().line, ": ", what, " is not supported"));
    }
  }

  const JinjaToken& current() const { return tokens_[at_]; }
  const JinjaToken& look() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  void Next() {
    if (at_ + 1 < tokens_.size()) ++at_;
  }

  bool AtOperator(absl::string_view text) const {
    return current().kind == JinjaTokenKind::kOperator && current().text == text;
  }
  bool AtName(absl::string_view text) const {
    return current().kind == JinjaTokenKind::kName && current().text == text;
  }
  bool SkipOperator(absl::string_view text) {
    if (!AtOperator(text)) return false;
    Next();
    return true;
  }
  bool SkipName(absl::string_view text) {
    if (!AtName(text)) return false;
    Next();
    return true;
  }
  void ExpectOperator(absl::string_view text) {
    if (!SkipOperator(text)) Fail(absl::StrCat("expected '", text, "', got ", Described()));
  }
  std::string ExpectName() {
    if (current().kind != JinjaTokenKind::kName) {
      Fail(absl::StrCat("expected a name, got ", Described()));
      return "";
    }
    const std::string name = current().text;
    Next();
    return name;
  }
  void ExpectBlockEnd() {
    if (current().kind != JinjaTokenKind::kBlockEnd) {
      Fail(absl::StrCat("expected the end of the tag, got ", Described()));
      return;
    }
    Next();
  }

  std::string Described() const {
    switch (current().kind) {
      case JinjaTokenKind::kEnd:
        return "the end of the template";
      case JinjaTokenKind::kBlockEnd:
      case JinjaTokenKind::kPrintEnd:
        return "the end of the tag";
      case JinjaTokenKind::kString:
        return "a string";
      default:
        return absl::StrCat("'", current().text, "'");
    }
  }

  // -- nodes

  JinjaExpr* NewExpr(ExprKind kind, int line, std::vector<const JinjaExpr*> operands = {}) {
    JinjaExpr& expr = program_->exprs.emplace_back();
    expr.kind = kind;
    expr.line = line;
    expr.operands = std::move(operands);
    for (const JinjaExpr* operand : expr.operands) Raise(&expr.height, operand);
    if (expr.height > kJinjaHeightMax) FailDeep();
    return &expr;
  }

  static void Raise(int* height, const JinjaExpr* child) {
    if (child != nullptr) *height = std::max(*height, child->height + 1);
  }

  JinjaExpr* NewConstant(JinjaValue value, int line) {
    JinjaExpr* const expr = NewExpr(ExprKind::kConstant, line);
    expr->constant = value;
    return expr;
  }

  JinjaExpr* NewString(std::string text, int line) {
    JinjaExpr* const expr = NewExpr(ExprKind::kConstant, line);
    expr->name = std::move(text);
    expr->constant = JinjaValue::String(expr->name);
    return expr;
  }

  JinjaExpr* NewVariable(const std::string& name, int line) {
    JinjaExpr* const expr = NewExpr(ExprKind::kVariable, line);
    expr->name = name;
    expr->variable = program_->VariableId(name);
    return expr;
  }

  // -- expressions

  struct TupleOptions {
    bool conditional = true;  // whether `a if b else c` is taken as one expression
    absl::string_view end = {};
    bool is_target = false;
    bool with_namespace = false;
    bool in_parentheses = false;
  };

  bool AtTupleEnd(absl::string_view end) const;

  const JinjaExpr* ParseTuple(TupleOptions options);

  const JinjaExpr* ParseExpression();

  const JinjaExpr* ParseOr();

  const JinjaExpr* ParseAnd();

  const JinjaExpr* ParseNot();

  bool TakeComparison(Operator* op);

  const JinjaExpr* ParseCompare();

  using Operators = std::initializer_list<std::pair<absl::string_view, Operator>>;

  // Operands of one precedence, applied from the left.
  const JinjaExpr* ParseLeft(Operators operators,
                             const JinjaExpr* (JinjaExpressionParser::*operand)());

  const JinjaExpr* ParseSum();

  const JinjaExpr* ParseConcatenation();

  const JinjaExpr* ParseProduct();

  const JinjaExpr* ParsePower();

  const JinjaExpr* ParseUnaryWithFilters();

  const JinjaExpr* ParseUnary(bool with_filters);

  const JinjaExpr* ParseName(bool with_namespace);

  const JinjaExpr* ParsePrimary(bool with_namespace);

  const JinjaExpr* ParseList();

  const JinjaExpr* ParseDict();

  const JinjaExpr* ParsePostfix(const JinjaExpr* expr);

  const JinjaExpr* ParseFiltersAndTests(const JinjaExpr* expr);

  const JinjaExpr* ParseSubscript(const JinjaExpr* object);

  const JinjaExpr* ParseIndex();

  void ParseArguments(JinjaExpr* call);

  const JinjaExpr* ParseCall(const JinjaExpr* callee);

  std::string ParseDottedName();

  void NoteUnknown(const JinjaExpr& expr, absl::string_view what);

  // One filter, current at its name.
  const JinjaExpr* ParseFilter(const JinjaExpr* operand);

  const JinjaExpr* ParseFilters(const JinjaExpr* operand);

  bool AtTestOperand() const;

  const JinjaExpr* ParseTest(const JinjaExpr* operand);

  struct Unknown {
    int line;
    std::string what;
  };

  const std::vector<JinjaToken> tokens_;
  std::unique_ptr<JinjaProgram> program_;
  size_t at_ = 0;
  int level_ = 0;
  absl::Status status_;
  Surroundings surroundings_;
  std::vector<Signature*> signatures_;
  // Filters and tests that do not exist, where that is wrong whether they are reached or not.
  std::vector<Unknown> unknown_;
};

}  // namespace stampmill
