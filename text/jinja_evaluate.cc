// Expressions, attributes and calls of JinjaInterpreter.
#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "text/jinja_interpreter.h"

namespace stampmill {

JinjaValue JinjaInterpreter::Evaluate(const JinjaExpr& expr) {
  if (!Charge(1)) return JinjaValue();
  switch (expr.kind) {
    case ExprKind::kConstant:
      return expr.constant;
    case ExprKind::kVariable:
      return Lookup(expr.variable);
    case ExprKind::kAttribute: {
      const Level level(this);
      if (failed()) return JinjaValue();
      const JinjaValue object = Evaluate(*expr.operands[0]);
      return failed() ? JinjaValue() : GetAttribute(object, expr.name);
    }
    default: {
      const Level level(this);
      if (failed()) return JinjaValue();
      return EvaluateAll(expr);
    }
  }
}

JinjaValue JinjaInterpreter::EvaluateAll(const JinjaExpr& expr) {
  switch (expr.kind) {
    case ExprKind::kTuple:
    case ExprKind::kList: {
      std::vector<JinjaValue> items;
      items.reserve(expr.operands.size());
      for (const JinjaExpr* const operand : expr.operands) items.push_back(Evaluate(*operand));
      if (failed()) return JinjaValue();
      return NewSequence(expr.kind == ExprKind::kList ? ValueKind::kList : ValueKind::kTuple,
                         items);
    }
    case ExprKind::kDict:
      return EvaluateDict(expr);
    case ExprKind::kItem:
      return EvaluateItem(expr);
    case ExprKind::kCall:
      return EvaluateCall(expr, nullptr);
    case ExprKind::kFilter:
      return EvaluateFilter(expr, nullptr);
    case ExprKind::kTest:
      return EvaluateTest(expr);
    case ExprKind::kNot:
    case ExprKind::kNegate:
    case ExprKind::kPlus:
      return EvaluateUnary(expr);
    case ExprKind::kBinary: {
      const JinjaValue a = Evaluate(*expr.operands[0]);
      const JinjaValue b = Evaluate(*expr.operands[1]);
      return failed() ? JinjaValue() : Binary(expr.op, a, b);
    }
    case ExprKind::kAnd:
    case ExprKind::kOr: {
      const JinjaValue a = Evaluate(*expr.operands[0]);
      if (failed() || IsTrue(a) == (expr.kind == ExprKind::kOr)) return a;
      return Evaluate(*expr.operands[1]);
    }
    case ExprKind::kConcatenate:
      return EvaluateConcatenation(expr);
    case ExprKind::kCompare:
      return EvaluateComparison(expr);
    case ExprKind::kConditional:
      return EvaluateConditional(expr);
    default:
      return Fail("an expression stands where it cannot");
  }
}

JinjaValue JinjaInterpreter::EvaluateDict(const JinjaExpr& expr) {
  const JinjaValue result = NewDict();
  for (size_t i = 0; i + 1 < expr.operands.size() && !failed(); i += 2) {
    const JinjaValue key = Evaluate(*expr.operands[i]);
    const JinjaValue value = Evaluate(*expr.operands[i + 1]);
    if (!failed()) Insert(result.dict, key, value);
  }
  return failed() ? JinjaValue() : result;
}

JinjaValue JinjaInterpreter::EvaluateItem(const JinjaExpr& expr) {
  const JinjaValue object = Evaluate(*expr.operands[0]);
  const JinjaExpr& index = *expr.operands[1];
  if (failed()) return JinjaValue();
  if (index.kind != ExprKind::kSlice) {
    const JinjaValue key = Evaluate(index);
    return failed() ? JinjaValue() : GetItem(object, key);
  }
  JinjaValue parts[3];
  for (int i = 0; i < 3; ++i) {
    parts[i] = index.operands[i] == nullptr ? JinjaValue::None() : Evaluate(*index.operands[i]);
  }
  return failed() ? JinjaValue() : GetSlice(object, parts[0], parts[1], parts[2]);
}

JinjaValue JinjaInterpreter::EvaluateConcatenation(const JinjaExpr& expr) {
  JinjaValue result = ToString(Evaluate(*expr.operands[0]));
  result.is_markup = false;
  for (size_t i = 1; i < expr.operands.size() && !failed(); ++i) {
    const JinjaValue next = ToString(Evaluate(*expr.operands[i]));
    if (failed() || !ChargeScan(next.size)) return JinjaValue();
    absl::string_view joined;
    if (!arena_.Concatenate(result.str(), next.str(), &joined)) return FailMemory();
    result = JinjaValue::String(joined);
  }
  return result;
}

JinjaValue JinjaInterpreter::EvaluateComparison(const JinjaExpr& expr) {
  JinjaValue left = Evaluate(*expr.operands[0]);
  for (size_t i = 0; i < expr.operators.size() && !failed(); ++i) {
    const JinjaValue right = Evaluate(*expr.operands[i + 1]);
    if (failed()) break;
    if (!Compare(expr.operators[i], left, right)) return JinjaValue::Bool(false);
    left = right;
  }
  return JinjaValue::Bool(true);
}

JinjaValue JinjaInterpreter::EvaluateConditional(const JinjaExpr& expr) {
  const JinjaValue condition = Evaluate(*expr.operands[1]);
  if (failed()) return JinjaValue();
  if (IsTrue(condition)) return Evaluate(*expr.operands[0]);
  if (expr.operands[2] != nullptr) return Evaluate(*expr.operands[2]);
  return JinjaValue::UndefinedBecause("a condition without else is false");
}

JinjaValue JinjaInterpreter::EvaluateUnary(const JinjaExpr& expr) {
  const JinjaValue operand = Evaluate(*expr.operands[0]);
  if (failed()) return JinjaValue();
  if (expr.kind == ExprKind::kNot) return JinjaValue::Bool(!IsTrue(operand));
  const bool negates = expr.kind == ExprKind::kNegate;
  if (operand.is(ValueKind::kFloat)) {
    return JinjaValue::Float(negates ? -operand.real : operand.real);
  }
  if (!operand.is_integral()) {
    return operand.is_undefined() ? FailOperands("", operand, operand)
                                  : Fail(absl::StrCat("a ", TypeName(operand), " has no sign"));
  }
  if (!negates) return JinjaValue::Int(operand.integral());
  return Binary(Operator::kSubtract, JinjaValue::Int(0), operand);
}

void JinjaInterpreter::EvaluateArguments(const JinjaExpr& expr, ArgumentValues* result) {
  result->positional.reserve(expr.arguments.size());
  for (const JinjaExpr* const argument : expr.arguments) {
    result->positional.push_back(Evaluate(*argument));
  }
  if (expr.star != nullptr) {
    const JinjaValue star = Evaluate(*expr.star);
    std::span<const JinjaValue> items;
    if (failed() || !Items(star, &items)) return;
    if (!Charge(static_cast<int64_t>(items.size()))) return;
    result->positional.insert(result->positional.end(), items.begin(), items.end());
  }
  for (const auto& [name, value] : expr.keywords) {
    result->keyword.push_back({.name = name, .value = Evaluate(*value)});
  }
  if (expr.star_star == nullptr) return;
  const JinjaValue star_star = Evaluate(*expr.star_star);
  if (failed()) return;
  if (!star_star.is(ValueKind::kDict)) {
    Fail(absl::StrCat("the argument behind ** is a ", TypeName(star_star), ", not a dict"));
    return;
  }
  for (uint32_t i = 0; i < star_star.dict->size && Charge(1); ++i) {
    const DictEntry& entry = star_star.dict->entries[i];
    if (!entry.key.is_string()) {
      Fail("the names of keyword arguments must be strings");
      return;
    }
    for (const KeywordArgument& keyword : result->keyword) {
      if (keyword.name == entry.key.str()) {
        Fail(absl::StrCat("argument '", keyword.name, "' is given twice"));
        return;
      }
    }
    result->keyword.push_back({.name = entry.key.str(), .value = entry.value});
  }
}

JinjaValue JinjaInterpreter::EvaluateCall(const JinjaExpr& expr, const JinjaValue* caller) {
  const JinjaValue callee = Evaluate(*expr.operands[0]);
  ArgumentValues arguments;
  if (!failed()) EvaluateArguments(expr, &arguments);
  if (failed()) return JinjaValue();
  if (caller != nullptr) {
    for (const KeywordArgument& keyword : arguments.keyword) {
      if (keyword.name == "caller") return Fail("argument 'caller' is given twice");
    }
    arguments.keyword.push_back({.name = "caller", .value = *caller});
  }
  line_ = expr.line;
  return Call(callee, arguments.get());
}

JinjaValue JinjaInterpreter::EvaluateFilter(const JinjaExpr& expr, const JinjaValue* head) {
  const JinjaValue operand = head != nullptr ? *head : Evaluate(*expr.operands[0]);
  ArgumentValues arguments;
  if (!failed()) EvaluateArguments(expr, &arguments);
  if (failed()) return JinjaValue();
  line_ = expr.line;
  if (expr.callee < 0) return Fail(absl::StrCat("no filter named '", expr.name, "'"));
  return CallFilter(*this, expr.callee, operand, arguments.get());
}

JinjaValue JinjaInterpreter::EvaluateTest(const JinjaExpr& expr) {
  const JinjaValue operand = Evaluate(*expr.operands[0]);
  ArgumentValues arguments;
  if (!failed()) EvaluateArguments(expr, &arguments);
  if (failed()) return JinjaValue();
  line_ = expr.line;
  if (expr.callee < 0) return Fail(absl::StrCat("no test named '", expr.name, "'"));
  return JinjaValue::Bool(CallTest(*this, expr.callee, operand, arguments.get()));
}

// -- attributes and items

JinjaValue JinjaInterpreter::PythonAttribute(const JinjaValue& object, absl::string_view name,
                                             bool* found) {
  *found = true;
  if (object.is_undefined()) return FailOperands("", object, object);
  if (absl::StartsWith(name, "__") && absl::EndsWith(name, "__") && name.size() > 4) {
    return JinjaValue::UndefinedBecause("access to names that begin with an underscore is unsafe");
  }
  switch (object.kind) {
    case ValueKind::kNamespace: {
      const DictEntry* const entry = object.dict->Find(name);
      if (entry != nullptr) return entry->value;
      break;
    }
    case ValueKind::kLoop:
      return LoopAttribute(object.loop, name, found);
    case ValueKind::kCycler:
      if (name == "current") return object.cycler->items[object.cycler->at];
      if (name == "pos") return JinjaValue::Int(object.cycler->at);
      break;
    case ValueKind::kMacro:
      if (name == "name") return JinjaValue::String(object.macro->statement->signature.name);
      break;
    case ValueKind::kTuple:
      if (object.is_group && name == "grouper") return object.items[0];
      if (object.is_group && name == "list") return object.items[1];
      break;
    case ValueKind::kRange:
      if (name == "start") return JinjaValue::Int(object.range->start);
      if (name == "stop") return JinjaValue::Int(object.range->stop);
      if (name == "step") return JinjaValue::Int(object.range->step);
      break;
    default:
      break;
  }
  bool changes = false;
  *found = HasMethod(object, name, &changes);
  if (!*found) return JinjaValue();
  if (changes) return JinjaValue::UndefinedBecause("templates may not change lists and dicts");
  JinjaValue method = JinjaValue::Of(ValueKind::kMethod);
  method.method = New(Method{.self = object, .name = name});
  return method;
}

JinjaValue JinjaInterpreter::LoopAttribute(LoopState* loop, absl::string_view name, bool* found) {
  if (name == "index") return JinjaValue::Int(loop->index0 + 1);
  if (name == "index0") return JinjaValue::Int(loop->index0);
  if (name == "first") return JinjaValue::Bool(loop->index0 == 0);
  if (name == "last") return JinjaValue::Bool(!PeekNext(loop));
  if (name == "length") return JinjaValue::Int(LoopLength(loop));
  if (name == "revindex") return JinjaValue::Int(LoopLength(loop) - loop->index0);
  if (name == "revindex0") return JinjaValue::Int(LoopLength(loop) - loop->index0 - 1);
  if (name == "depth") return JinjaValue::Int(1);
  if (name == "depth0") return JinjaValue::Int(0);
  if (name == "previtem") {
    return loop->has_previous ? loop->previous
                              : JinjaValue::UndefinedBecause("there is no previous item");
  }
  if (name == "nextitem") {
    return PeekNext(loop) ? loop->next : JinjaValue::UndefinedBecause("there is no next item");
  }
  if (name == "cycle" || name == "changed") {
    JinjaValue self = JinjaValue::Of(ValueKind::kLoop);
    self.loop = loop;
    JinjaValue method = JinjaValue::Of(ValueKind::kMethod);
    method.method = New(Method{.self = self, .name = name});
    return method;
  }
  *found = false;
  return JinjaValue();
}

JinjaValue JinjaInterpreter::GetAttribute(const JinjaValue& object, absl::string_view name) {
  bool found = false;
  const JinjaValue attribute = PythonAttribute(object, name, &found);
  if (found || failed()) return attribute;
  const JinjaValue item = PythonItem(object, JinjaValue::String(name), &found);
  if (found || failed()) return item;
  return JinjaValue::Undefined(name);
}

JinjaValue JinjaInterpreter::GetItem(const JinjaValue& object, const JinjaValue& key) {
  bool found = false;
  const JinjaValue item = PythonItem(object, key, &found);
  if (found || failed()) return item;
  if (!key.is_string()) return JinjaValue::UndefinedBecause("there is no such element");
  const JinjaValue attribute = PythonAttribute(object, key.str(), &found);
  if (found || failed()) return attribute;
  return JinjaValue::Undefined(key.str());
}

// -- calls

JinjaValue JinjaInterpreter::Call(const JinjaValue& callee, const Arguments& arguments) {
  if (!Charge(1)) return JinjaValue();
  switch (callee.kind) {
    case ValueKind::kMacro:
      return CallMacro(*callee.macro, arguments);
    case ValueKind::kFunction:
      return CallBuiltin(*this, callee.function, arguments);
    case ValueKind::kMethod: {
      const Method& method = *callee.method;
      if (method.self.is(ValueKind::kLoop)) {
        return CallLoopMethod(method.self.loop, method.name, arguments);
      }
      if (method.self.is(ValueKind::kCycler)) {
        return CallCyclerMethod(method.self.cycler, method.name, arguments);
      }
      return CallMethod(*this, method.self, method.name, arguments);
    }
    case ValueKind::kJoiner: {
      if (!arguments.positional.empty() || !arguments.keyword.empty()) {
        return Fail("a joiner takes no arguments");
      }
      const bool used = callee.joiner->used;
      callee.joiner->used = true;
      return used ? callee.joiner->separator : JinjaValue::String("");
    }
    case ValueKind::kUndefined:
      return FailOperands("", callee, callee);
    default:
      return Fail(absl::StrCat("a ", TypeName(callee), " cannot be called"));
  }
}

JinjaValue JinjaInterpreter::CallLoopMethod(LoopState* loop, absl::string_view name,
                                            const Arguments& arguments) {
  if (!arguments.keyword.empty()) return Fail(absl::StrCat("loop.", name, " takes no keywords"));
  if (name == "cycle") {
    if (arguments.positional.empty()) return Fail("loop.cycle has nothing to choose from");
    const auto index = static_cast<size_t>(std::max<int64_t>(0, loop->index0));
    return arguments.positional[index % arguments.positional.size()];
  }
  const JinjaValue value = NewTuple(arguments.positional);
  if (failed()) return JinjaValue();
  const bool changed = !loop->has_changed_value || !Equal(loop->changed_value, value);
  loop->has_changed_value = true;
  if (changed) loop->changed_value = value;
  return JinjaValue::Bool(changed);
}

JinjaValue JinjaInterpreter::CallCyclerMethod(Cycler* cycler, absl::string_view name,
                                              const Arguments& arguments) {
  if (!arguments.positional.empty() || !arguments.keyword.empty()) {
    return Fail(absl::StrCat("cycler.", name, " takes no arguments"));
  }
  if (name == "reset") {
    cycler->at = 0;
    return JinjaValue::None();
  }
  const JinjaValue item = cycler->items[cycler->at];
  cycler->at = (cycler->at + 1) % cycler->size;
  return item;
}

}  // namespace stampmill
