#include "text/jinja_expressions.h"

#include "text/jinja_builtins.h"

namespace stampmill {
namespace {

using Kind = JinjaTokenKind;

}  // namespace

bool JinjaExpressionParser::AtTupleEnd(absl::string_view end) const {
  return current().kind == Kind::kPrintEnd || current().kind == Kind::kBlockEnd ||
         AtOperator(")") || (!end.empty() && AtName(end));
}

const JinjaExpr* JinjaExpressionParser::ParseTuple(TupleOptions options) {
  const Level level(this);
  const int line = current().line;
  std::vector<const JinjaExpr*> elements;
  bool is_tuple = false;
  while (!failed()) {
    if (!elements.empty()) ExpectOperator(",");
    if (AtTupleEnd(options.end)) break;
    elements.push_back(options.is_target     ? ParsePrimary(options.with_namespace)
                       : options.conditional ? ParseExpression()
                                             : ParseOr());
    if (!AtOperator(",")) break;
    is_tuple = true;
  }
  if (failed()) return nullptr;
  if (!is_tuple) {
    if (!elements.empty()) return elements.front();
    if (!options.in_parentheses) {
      Fail(absl::StrCat("expected an expression, got ", Described()));
      return nullptr;
    }
  }
  return NewExpr(ExprKind::kTuple, line, std::move(elements));
}

const JinjaExpr* JinjaExpressionParser::ParseExpression() {
  const Level level(this);
  const int line = current().line;
  // Whether a filter stands under a condition shows only behind it.
  const size_t first = unknown_.size();
  const JinjaExpr* expr = ParseOr();
  bool is_conditional = false;
  while (!failed() && SkipName("if")) {
    is_conditional = true;
    const JinjaExpr* const condition = ParseOr();
    const JinjaExpr* const otherwise = SkipName("else") ? ParseExpression() : nullptr;
    if (failed()) return nullptr;
    expr = NewExpr(ExprKind::kConditional, line, {expr, condition, otherwise});
  }
  if (is_conditional)
    unknown_.erase(unknown_.begin() + static_cast<ptrdiff_t>(first), unknown_.end());
  return expr;
}

const JinjaExpr* JinjaExpressionParser::ParseOr() {
  const JinjaExpr* left = ParseAnd();
  while (!failed() && AtName("or")) {
    const int line = current().line;
    Next();
    const JinjaExpr* const right = ParseAnd();
    if (failed()) return nullptr;
    left = NewExpr(ExprKind::kOr, line, {left, right});
  }
  return left;
}

const JinjaExpr* JinjaExpressionParser::ParseAnd() {
  const JinjaExpr* left = ParseNot();
  while (!failed() && AtName("and")) {
    const int line = current().line;
    Next();
    const JinjaExpr* const right = ParseNot();
    if (failed()) return nullptr;
    left = NewExpr(ExprKind::kAnd, line, {left, right});
  }
  return left;
}

const JinjaExpr* JinjaExpressionParser::ParseNot() {
  const Level level(this);
  if (failed() || !AtName("not")) return ParseCompare();
  const int line = current().line;
  Next();
  const JinjaExpr* const operand = ParseNot();
  return failed() ? nullptr : NewExpr(ExprKind::kNot, line, {operand});
}

bool JinjaExpressionParser::TakeComparison(Operator* op) {
  static constexpr std::pair<absl::string_view, Operator> kOperators[] = {
      {"==", Operator::kEqual},     {"!=", Operator::kNotEqual}, {"<", Operator::kLess},
      {"<=", Operator::kLessEqual}, {">", Operator::kGreater},   {">=", Operator::kGreaterEqual},
  };
  for (const auto& [text, found] : kOperators) {
    if (SkipOperator(text)) {
      *op = found;
      return true;
    }
  }
  if (SkipName("in")) {
    *op = Operator::kIn;
    return true;
  }
  if (AtName("not") && look().kind == Kind::kName && look().text == "in") {
    Next();
    Next();
    *op = Operator::kNotIn;
    return true;
  }
  return false;
}

const JinjaExpr* JinjaExpressionParser::ParseCompare() {
  const int line = current().line;
  std::vector<const JinjaExpr*> operands = {ParseSum()};
  std::vector<Operator> operators;
  Operator op;
  while (!failed() && TakeComparison(&op)) {
    operators.push_back(op);
    operands.push_back(ParseSum());
  }
  if (failed()) return nullptr;
  if (operators.empty()) return operands.front();
  JinjaExpr* const expr = NewExpr(ExprKind::kCompare, line, std::move(operands));
  expr->operators = std::move(operators);
  return expr;
}

const JinjaExpr* JinjaExpressionParser::ParseLeft(
    Operators operators, const JinjaExpr* (JinjaExpressionParser::*operand)()) {
  const JinjaExpr* left = (this->*operand)();
  for (bool found = true; found && !failed();) {
    found = false;
    for (const auto& [text, op] : operators) {
      const int line = current().line;
      if (!SkipOperator(text)) continue;
      const JinjaExpr* const right = (this->*operand)();
      if (failed()) return nullptr;
      JinjaExpr* const expr = NewExpr(ExprKind::kBinary, line, {left, right});
      expr->op = op;
      left = expr;
      found = true;
      break;
    }
  }
  return left;
}

const JinjaExpr* JinjaExpressionParser::ParseSum() {
  return ParseLeft({{"+", Operator::kAdd}, {"-", Operator::kSubtract}},
                   &JinjaExpressionParser::ParseConcatenation);
}

const JinjaExpr* JinjaExpressionParser::ParseConcatenation() {
  const int line = current().line;
  std::vector<const JinjaExpr*> operands = {ParseProduct()};
  while (!failed() && SkipOperator("~")) operands.push_back(ParseProduct());
  if (failed()) return nullptr;
  if (operands.size() == 1) return operands.front();
  return NewExpr(ExprKind::kConcatenate, line, std::move(operands));
}

const JinjaExpr* JinjaExpressionParser::ParseProduct() {
  return ParseLeft({{"*", Operator::kMultiply},
                    {"/", Operator::kDivide},
                    {"//", Operator::kFloorDivide},
                    {"%", Operator::kModulo}},
                   &JinjaExpressionParser::ParsePower);
}

const JinjaExpr* JinjaExpressionParser::ParsePower() {
  return ParseLeft({{"**", Operator::kPower}}, &JinjaExpressionParser::ParseUnaryWithFilters);
}

const JinjaExpr* JinjaExpressionParser::ParseUnaryWithFilters() {
  return ParseUnary(/*with_filters=*/true);
}

const JinjaExpr* JinjaExpressionParser::ParseUnary(bool with_filters) {
  const Level level(this);
  if (failed()) return nullptr;
  const int line = current().line;
  const JinjaExpr* expr = nullptr;
  if (SkipOperator("-")) {
    expr = ParseUnary(false);
    if (failed()) return nullptr;
    expr = NewExpr(ExprKind::kNegate, line, {expr});
  } else if (SkipOperator("+")) {
    expr = ParseUnary(false);
    if (failed()) return nullptr;
    expr = NewExpr(ExprKind::kPlus, line, {expr});
  } else {
    expr = ParsePrimary(/*with_namespace=*/false);
  }
  expr = ParsePostfix(expr);
  return with_filters ? ParseFiltersAndTests(expr) : expr;
}

const JinjaExpr* JinjaExpressionParser::ParseName(bool with_namespace) {
  const JinjaToken token = current();
  Next();
  if (token.text == "true" || token.text == "True") {
    return NewConstant(JinjaValue::Bool(true), token.line);
  }
  if (token.text == "false" || token.text == "False") {
    return NewConstant(JinjaValue::Bool(false), token.line);
  }
  if (token.text == "none" || token.text == "None") {
    return NewConstant(JinjaValue::None(), token.line);
  }
  if (with_namespace && SkipOperator(".")) {
    JinjaExpr* const expr = NewExpr(ExprKind::kNamespaceField, token.line);
    expr->variable = program_->VariableId(token.text);
    expr->name = ExpectName();
    return expr;
  }
  for (Signature* signature : signatures_) {
    if (token.text == "caller") signature->takes_caller = true;
    if (token.text == "varargs") signature->takes_varargs = true;
    if (token.text == "kwargs") signature->takes_kwargs = true;
  }
  return NewVariable(token.text, token.line);
}

const JinjaExpr* JinjaExpressionParser::ParsePrimary(bool with_namespace) {
  if (failed()) return nullptr;
  const JinjaToken& token = current();
  switch (token.kind) {
    case Kind::kName:
      return ParseName(with_namespace);
    case Kind::kString: {
      const int line = token.line;
      std::string text;
      for (; current().kind == Kind::kString; Next()) text += current().text;
      return NewString(std::move(text), line);
    }
    case Kind::kInteger:
      Next();
      return NewConstant(JinjaValue::Int(token.integer), token.line);
    case Kind::kFloat:
      Next();
      return NewConstant(JinjaValue::Float(token.real), token.line);
    default:
      break;
  }
  if (SkipOperator("(")) {
    const JinjaExpr* const expr = ParseTuple({.in_parentheses = true});
    ExpectOperator(")");
    return expr;
  }
  if (AtOperator("[")) return ParseList();
  if (AtOperator("{")) return ParseDict();
  Fail(absl::StrCat("expected an expression, got ", Described()));
  return nullptr;
}

const JinjaExpr* JinjaExpressionParser::ParseList() {
  const int line = current().line;
  Next();
  std::vector<const JinjaExpr*> elements;
  while (!failed() && !AtOperator("]")) {
    if (!elements.empty()) ExpectOperator(",");
    if (AtOperator("]")) break;
    elements.push_back(ParseExpression());
  }
  ExpectOperator("]");
  return failed() ? nullptr : NewExpr(ExprKind::kList, line, std::move(elements));
}

const JinjaExpr* JinjaExpressionParser::ParseDict() {
  const int line = current().line;
  Next();
  std::vector<const JinjaExpr*> elements;
  while (!failed() && !AtOperator("}")) {
    if (!elements.empty()) ExpectOperator(",");
    if (AtOperator("}")) break;
    elements.push_back(ParseExpression());
    ExpectOperator(":");
    elements.push_back(ParseExpression());
  }
  ExpectOperator("}");
  return failed() ? nullptr : NewExpr(ExprKind::kDict, line, std::move(elements));
}

const JinjaExpr* JinjaExpressionParser::ParsePostfix(const JinjaExpr* expr) {
  while (!failed()) {
    if (AtOperator(".") || AtOperator("[")) {
      expr = ParseSubscript(expr);
    } else if (AtOperator("(")) {
      expr = ParseCall(expr);
    } else {
      break;
    }
  }
  return expr;
}

const JinjaExpr* JinjaExpressionParser::ParseFiltersAndTests(const JinjaExpr* expr) {
  while (!failed()) {
    if (AtOperator("|")) {
      expr = ParseFilters(expr);
    } else if (AtName("is")) {
      expr = ParseTest(expr);
    } else if (AtOperator("(")) {
      expr = ParseCall(expr);
    } else {
      break;
    }
  }
  return expr;
}

const JinjaExpr* JinjaExpressionParser::ParseSubscript(const JinjaExpr* object) {
  const int line = current().line;
  if (SkipOperator(".")) {
    const JinjaToken token = current();
    Next();
    if (token.kind == Kind::kName) {
      JinjaExpr* const expr = NewExpr(ExprKind::kAttribute, line, {object});
      expr->name = token.text;
      return expr;
    }
    if (token.kind != Kind::kInteger) {
      FailAt(token.line, "expected a name or number behind '.'");
      return nullptr;
    }
    return NewExpr(ExprKind::kItem, line,
                   {object, NewConstant(JinjaValue::Int(token.integer), token.line)});
  }
  Next();  // [
  std::vector<const JinjaExpr*> indices;
  while (!failed() && !AtOperator("]")) {
    if (!indices.empty()) ExpectOperator(",");
    indices.push_back(ParseIndex());
  }
  ExpectOperator("]");
  if (failed()) return nullptr;
  if (indices.size() == 1) return NewExpr(ExprKind::kItem, line, {object, indices.front()});
  for (const JinjaExpr* index : indices) {
    if (index->kind == ExprKind::kSlice) {
      FailUnsupported("a slice in a tuple");
      return nullptr;
    }
  }
  return NewExpr(ExprKind::kItem, line,
                 {object, NewExpr(ExprKind::kTuple, line, std::move(indices))});
}

const JinjaExpr* JinjaExpressionParser::ParseIndex() {
  const int line = current().line;
  std::vector<const JinjaExpr*> parts;
  if (!AtOperator(":")) {
    const JinjaExpr* const index = ParseExpression();
    if (failed() || !AtOperator(":")) return index;
    parts.push_back(index);
  } else {
    parts.push_back(nullptr);
  }
  for (int part = 0; part < 2; ++part) {
    if (part == 0 || AtOperator(":")) {
      Next();
      const bool is_left_out = AtOperator(":") || AtOperator("]") || AtOperator(",");
      if (part == 1 && AtOperator(":")) Fail("expected an expression, got ':'");
      parts.push_back(is_left_out ? nullptr : ParseExpression());
    } else {
      parts.push_back(nullptr);
    }
  }
  return failed() ? nullptr : NewExpr(ExprKind::kSlice, line, std::move(parts));
}

void JinjaExpressionParser::ParseArguments(JinjaExpr* call) {
  ExpectOperator("(");
  bool first = true;
  while (!failed() && !AtOperator(")")) {
    if (!first) {
      ExpectOperator(",");
      if (AtOperator(")")) break;
    }
    first = false;
    const bool ordered = call->star == nullptr && call->star_star == nullptr;
    if (SkipOperator("*")) {
      if (!ordered) Fail("invalid arguments of a call");
      call->star = ParseExpression();
      Raise(&call->height, call->star);
    } else if (SkipOperator("**")) {
      if (call->star_star != nullptr) Fail("invalid arguments of a call");
      call->star_star = ParseExpression();
      Raise(&call->height, call->star_star);
    } else if (current().kind == Kind::kName && look().kind == Kind::kOperator &&
               look().text == "=") {
      if (call->star_star != nullptr) Fail("invalid arguments of a call");
      const std::string name = current().text;
      Next();
      Next();
      for (const auto& keyword : call->keywords) {
        if (keyword.first == name) Fail(absl::StrCat("argument '", name, "' is given twice"));
      }
      const JinjaExpr* const value = ParseExpression();
      Raise(&call->height, value);
      call->keywords.emplace_back(name, value);
    } else {
      if (!ordered || !call->keywords.empty()) Fail("invalid arguments of a call");
      call->arguments.push_back(ParseExpression());
      Raise(&call->height, call->arguments.back());
    }
  }
  ExpectOperator(")");
  if (call->height > kJinjaHeightMax) FailDeep();
}

const JinjaExpr* JinjaExpressionParser::ParseCall(const JinjaExpr* callee) {
  JinjaExpr* const call = NewExpr(ExprKind::kCall, current().line, {callee});
  ParseArguments(call);
  return call;
}

std::string JinjaExpressionParser::ParseDottedName() {
  std::string name = ExpectName();
  while (!failed() && SkipOperator(".")) absl::StrAppend(&name, ".", ExpectName());
  return name;
}

void JinjaExpressionParser::NoteUnknown(const JinjaExpr& expr, absl::string_view what) {
  if (expr.callee >= 0 || surroundings_.conditional) return;
  unknown_.push_back({expr.line, absl::StrCat("no ", what, " named '", expr.name, "'")});
}

const JinjaExpr* JinjaExpressionParser::ParseFilter(const JinjaExpr* operand) {
  JinjaExpr* const filter = NewExpr(ExprKind::kFilter, current().line, {operand});
  filter->name = ParseDottedName();
  filter->callee = FindFilter(filter->name);
  if (AtOperator("(")) ParseArguments(filter);
  NoteUnknown(*filter, "filter");
  return filter;
}

const JinjaExpr* JinjaExpressionParser::ParseFilters(const JinjaExpr* operand) {
  while (!failed() && SkipOperator("|")) operand = ParseFilter(operand);
  return operand;
}

bool JinjaExpressionParser::AtTestOperand() const {
  switch (current().kind) {
    case Kind::kName:
      return !AtName("else") && !AtName("or") && !AtName("and");
    case Kind::kString:
    case Kind::kInteger:
    case Kind::kFloat:
      return true;
    default:
      return AtOperator("[") || AtOperator("{");
  }
}

const JinjaExpr* JinjaExpressionParser::ParseTest(const JinjaExpr* operand) {
  const int line = current().line;
  Next();
  const bool negated = SkipName("not");
  JinjaExpr* const test = NewExpr(ExprKind::kTest, line, {operand});
  test->name = ParseDottedName();
  test->callee = FindTest(test->name);
  if (AtOperator("(")) {
    ParseArguments(test);
  } else if (AtTestOperand()) {
    if (AtName("is")) Fail("tests with 'is' cannot follow each other");
    test->arguments.push_back(ParsePostfix(ParsePrimary(/*with_namespace=*/false)));
    if (failed()) return nullptr;
    Raise(&test->height, test->arguments.back());
  }
  NoteUnknown(*test, "test");
  return negated ? NewExpr(ExprKind::kNot, line, {test}) : test;
}

}  // namespace stampmill
