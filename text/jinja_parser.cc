#include "text/jinja_parser.h"

#include <algorithm>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "text/jinja_expressions.h"
#include "text/jinja_lexer.h"
#include "text/jinja_scopes.h"

namespace stampmill {
namespace {

using Kind = JinjaTokenKind;

class Parser : private JinjaExpressionParser {
 public:
  explicit Parser(std::vector<JinjaToken> tokens) : JinjaExpressionParser(std::move(tokens)) {}

  absl::StatusOr<std::unique_ptr<const JinjaProgram>> Run() {
    program_->body = ParseBlock({});
    if (!unknown_.empty()) FailAt(unknown_.front().line, unknown_.front().what);
    if (!status_.ok()) return status_;
    FindHiddenVariables(program_.get());
    return std::move(program_);
  }

 private:
  Statement* NewStatement(StatementKind kind, int line) {
    Statement& statement = program_->statements.emplace_back();
    statement.kind = kind;
    statement.line = line;
    return &statement;
  }

  // To be called when a statement has all its parts.
  const Statement* Finish(Statement* statement) {
    statement->makes_macro =
        statement->kind == StatementKind::kMacro || statement->kind == StatementKind::kCallBlock;
    for (const auto* list : {&statement->expressions, &statement->signature.defaults}) {
      for (const JinjaExpr* expr : *list) Raise(&statement->height, expr);
    }
    for (const Block& block : statement->bodies) {
      for (const Statement* child : block) {
        statement->height = std::max(statement->height, child->height + 1);
        statement->makes_macro = statement->makes_macro || child->makes_macro;
      }
    }
    if (statement->height > kJinjaHeightMax) FailDeep();
    return statement;
  }

  // -- statements

  // Up to a tag that begins with one of `ends`, which is current afterwards; to the end of the
  // template if there are none.
  Block ParseBlock(std::initializer_list<absl::string_view> ends) {
    const Level level(this);
    Block block;
    while (!failed()) {
      const JinjaToken& token = current();
      if (token.kind == Kind::kEnd) {
        if (ends.size() > 0) {
          Fail(absl::StrCat("unexpected end of template, expected '", *(ends.end() - 1), "'"));
        }
        break;
      }
      if (token.kind == Kind::kText) {
        Statement* const text = NewStatement(StatementKind::kText, token.line);
        text->text = token.text;
        block.push_back(text);
        Next();
      } else if (token.kind == Kind::kPrintBegin) {
        Next();
        Statement* const print = NewStatement(StatementKind::kPrint, token.line);
        print->expressions.push_back(ParseTuple({}));
        if (current().kind != Kind::kPrintEnd) {
          Fail(absl::StrCat("expected '}}', got ", Described()));
        }
        Next();
        block.push_back(Finish(print));
      } else {
        Next();
        for (const absl::string_view end : ends) {
          if (AtName(end)) return block;
        }
        const Statement* const statement = ParseStatement();
        if (failed()) break;
        if (statement != nullptr) block.push_back(statement);
        ExpectBlockEnd();
      }
    }
    return block;
  }

  // The body of a tag: its end, then the block.
  Block ParseBody(std::initializer_list<absl::string_view> ends) {
    SkipOperator(":");
    ExpectBlockEnd();
    return ParseBlock(ends);
  }

  const Statement* ParseStatement() {
    const std::string name = current().kind == Kind::kName ? current().text : "";
    const int line = current().line;
    if (name == "if") return ParseIf();
    if (name == "for") return ParseFor();
    if (name == "set") return ParseSet();
    if (name == "macro") return ParseMacro();
    if (name == "call") return ParseCallBlock();
    if (name == "filter") return ParseFilterBlock();
    if (name == "with") return ParseWith();
    if (name == "print") return ParsePrint();
    if (name == "generation") {
      Next();
      Statement* const scope = NewStatement(StatementKind::kWith, line);
      const Within within(this, InnerFrame(/*is_function=*/true));
      scope->bodies.push_back(ParseBody({"endgeneration"}));
      Next();
      return Finish(scope);
    }
    if (name == "break" || name == "continue") {
      if (surroundings_.loops == 0) Fail(absl::StrCat("'", name, "' outside a loop"));
      Next();
      return NewStatement(name == "break" ? StatementKind::kBreak : StatementKind::kContinue, line);
    }
    for (const absl::string_view tag :
         {"include", "import", "from", "extends", "block", "autoescape"}) {
      if (name == tag) {
        FailUnsupported(absl::StrCat("tag '", tag, "'"));
        return nullptr;
      }
    }
    Fail(name.empty() ? "expected the name of a tag" : absl::StrCat("unknown tag '", name, "'"));
    return nullptr;
  }

  // Of a statement whose body has variables of its own. One that becomes a function in Jinja cuts
  // break and continue off from loops around it.
  Surroundings InnerFrame(bool is_function) const {
    return {.conditional = false,
            .loops = is_function ? 0 : surroundings_.loops,
            .enclosing_loops = surroundings_.enclosing_loops};
  }

  const Statement* ParseIf() {
    Statement* const statement = NewStatement(StatementKind::kIf, current().line);
    Surroundings inside = surroundings_;
    inside.conditional = true;
    const Within within(this, inside);
    while (!failed()) {
      Next();  // if, elif
      statement->expressions.push_back(ParseTuple({.conditional = false}));
      statement->bodies.push_back(ParseBody({"elif", "else", "endif"}));
      if (AtName("elif")) continue;
      if (SkipName("else")) statement->bodies.push_back(ParseBody({"endif"}));
      Next();
      break;
    }
    return Finish(statement);
  }

  const Statement* ParseFor() {
    Statement* const statement = NewStatement(StatementKind::kFor, current().line);
    Next();
    ++surroundings_.enclosing_loops;
    statement->targets.push_back(ParseTarget(/*with_namespace=*/false));
    --surroundings_.enclosing_loops;
    if (!SkipName("in")) Fail(absl::StrCat("expected 'in', got ", Described()));
    statement->expressions.push_back(ParseTuple({.conditional = false, .end = "recursive"}));
    Surroundings inside = InnerFrame(/*is_function=*/false);
    ++inside.enclosing_loops;
    const Within within(this, inside);
    statement->expressions.push_back(SkipName("if") ? ParseExpression() : nullptr);
    if (AtName("recursive")) {
      FailUnsupported("a recursive loop");
      return nullptr;
    }
    {
      Surroundings body = inside;
      ++body.loops;
      const Within within_body(this, body);
      statement->bodies.push_back(ParseBody({"else", "endfor"}));
    }
    if (SkipName("else")) statement->bodies.push_back(ParseBody({"endfor"}));
    Next();
    return Finish(statement);
  }

  const Statement* ParseSet() {
    const int line = current().line;
    Next();
    const JinjaExpr* const target = ParseTarget(/*with_namespace=*/true);
    if (SkipOperator("=")) {
      Statement* const statement = NewStatement(StatementKind::kSet, line);
      statement->targets.push_back(target);
      statement->expressions.push_back(ParseTuple({}));
      return Finish(statement);
    }
    Statement* const statement = NewStatement(StatementKind::kSetBlock, line);
    statement->targets.push_back(target);
    const Within within(this, InnerFrame(/*is_function=*/false));
    statement->expressions.push_back(ParseFilters(nullptr));
    statement->bodies.push_back(ParseBody({"endset"}));
    Next();
    return Finish(statement);
  }

  std::string ParseTargetName() {
    const int line = current().line;
    const std::string name = ExpectName();
    CheckAssignable(name, line);
    return name;
  }

  void CheckAssignable(const std::string& name, int line) {
    for (const absl::string_view constant : {"true", "false", "none", "True", "False", "None"}) {
      if (name == constant) FailAt(line, absl::StrCat("cannot assign to '", name, "'"));
    }
    if (name == "loop" && surroundings_.enclosing_loops > 0) {
      FailAt(line, "cannot assign to 'loop' in a loop");
    }
  }

  void ParseSignature(Signature* signature) {
    ExpectOperator("(");
    while (!failed() && !AtOperator(")")) {
      if (!signature->parameters.empty()) ExpectOperator(",");
      signature->parameters.push_back(program_->VariableId(ParseTargetName()));
      if (SkipOperator("=")) {
        signature->defaults.push_back(ParseExpression());
      } else if (!signature->defaults.empty()) {
        Fail("a parameter without default follows one with");
      }
    }
    ExpectOperator(")");
  }

  Block ParseMacroBody(Signature* signature, absl::string_view end) {
    const Within within(this, InnerFrame(/*is_function=*/true));
    signatures_.push_back(signature);
    Block body = ParseBody({end});
    signatures_.pop_back();
    Next();
    const auto declares = [&](absl::string_view name) {
      return std::any_of(
          signature->parameters.begin(), signature->parameters.end(),
          [&](uint32_t parameter) { return program_->variables[parameter] == name; });
    };
    if (signature->takes_caller && declares("caller") && !HasDefault(*signature, "caller")) {
      Fail("parameter 'caller' needs a default");
    }
    if (declares("caller")) signature->takes_caller = false;
    if (declares("varargs")) signature->takes_varargs = false;
    if (declares("kwargs")) signature->takes_kwargs = false;
    return body;
  }

  bool HasDefault(const Signature& signature, absl::string_view name) const {
    const size_t without = signature.parameters.size() - signature.defaults.size();
    for (size_t i = without; i < signature.parameters.size(); ++i) {
      if (program_->variables[signature.parameters[i]] == name) return true;
    }
    return false;
  }

  const Statement* ParseMacro() {
    Statement* const statement = NewStatement(StatementKind::kMacro, current().line);
    Next();
    statement->signature.name = ParseTargetName();
    statement->variable = program_->VariableId(statement->signature.name);
    {
      const Within within(this, InnerFrame(/*is_function=*/true));
      ParseSignature(&statement->signature);
    }
    statement->bodies.push_back(ParseMacroBody(&statement->signature, "endmacro"));
    return Finish(statement);
  }

  const Statement* ParseCallBlock() {
    Statement* const statement = NewStatement(StatementKind::kCallBlock, current().line);
    Next();
    if (AtOperator("(")) {
      const Within within(this, InnerFrame(/*is_function=*/true));
      ParseSignature(&statement->signature);
    }
    statement->signature.name = "caller";
    const JinjaExpr* const call = ParseExpression();
    if (failed()) return nullptr;
    if (call->kind != ExprKind::kCall) FailAt(statement->line, "expected a call");
    statement->expressions.push_back(call);
    statement->bodies.push_back(ParseMacroBody(&statement->signature, "endcall"));
    return Finish(statement);
  }

  const Statement* ParseFilterBlock() {
    Statement* const statement = NewStatement(StatementKind::kFilterBlock, current().line);
    Next();
    const Within within(this, InnerFrame(/*is_function=*/false));
    statement->expressions.push_back(ParseFilters(ParseFilter(nullptr)));
    statement->bodies.push_back(ParseBody({"endfilter"}));
    Next();
    return Finish(statement);
  }

  const Statement* ParseWith() {
    Statement* const statement = NewStatement(StatementKind::kWith, current().line);
    Next();
    while (!failed() && current().kind != Kind::kBlockEnd) {
      if (!statement->targets.empty()) ExpectOperator(",");
      statement->targets.push_back(ParseTarget(/*with_namespace=*/false));
      ExpectOperator("=");
      statement->expressions.push_back(ParseExpression());
    }
    const Within within(this, InnerFrame(/*is_function=*/false));
    statement->bodies.push_back(ParseBody({"endwith"}));
    Next();
    return Finish(statement);
  }

  const Statement* ParsePrint() {
    Statement* const statement = NewStatement(StatementKind::kPrint, current().line);
    Next();
    while (!failed() && current().kind != Kind::kBlockEnd) {
      if (!statement->expressions.empty()) ExpectOperator(",");
      statement->expressions.push_back(ParseExpression());
    }
    return Finish(statement);
  }

  // A name, a tuple of targets, or a field of a namespace.
  const JinjaExpr* ParseTarget(bool with_namespace) {
    const JinjaExpr* const target =
        ParseTuple({.end = "in", .is_target = true, .with_namespace = with_namespace});
    if (!failed()) CheckTarget(target);
    return target;
  }

  void CheckTarget(const JinjaExpr* target) {
    switch (target->kind) {
      case ExprKind::kVariable:
        CheckAssignable(target->name, target->line);
        return;
      case ExprKind::kNamespaceField:
        return;
      case ExprKind::kTuple:
        for (const JinjaExpr* element : target->operands) CheckTarget(element);
        return;
      default:
        FailAt(target->line, "cannot assign to an expression");
    }
  }
};

}  // namespace

absl::StatusOr<std::unique_ptr<const JinjaProgram>> ParseJinja(absl::string_view source) {
  if (source.size() > kJinjaSourceBytesMax) {
    return absl::InvalidArgumentError(
        absl::StrCat("template: got ", source.size(), " bytes, limit ", kJinjaSourceBytesMax));
  }
  ASSIGN_OR_RETURN(std::vector<JinjaToken> tokens, JinjaTokens(source));
  return Parser(std::move(tokens)).Run();
}

}  // namespace stampmill
