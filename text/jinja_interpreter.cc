#include "text/jinja_interpreter.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "text/utf8.h"

namespace stampmill {
namespace {

bool IsUtf8(absl::string_view text) {
  for (size_t at = 0; at < text.size();) {
    const Utf8Character next = DecodeUtf8(text.data() + at, text.data() + text.size());
    if (!next.valid) return false;
    at += next.size_bytes;
  }
  return true;
}

}  // namespace

JinjaInterpreter::JinjaInterpreter(const JinjaProgram& program, const boost::json::object& context,
                                   const RenderOptions& options)
    : program_(program),
      context_(context),
      options_(options),
      arena_(options.limits.value_bytes_max),
      steps_left_(options.limits.steps_max),
      globals_(program.variables.size()) {}

absl::StatusOr<std::string> JinjaInterpreter::Run() {
  for (const uint32_t variable : program_.hidden) globals_[variable].state = Global::kMissing;
  Execute(program_.body);
  if (failed()) return status_;
  return std::move(out_);
}

JinjaValue JinjaInterpreter::Fail(absl::string_view what) {
  if (status_.ok()) {
    status_ = absl::InvalidArgumentError(absl::StrCat("line ", line_, ": ", what));
  }
  return JinjaValue();
}

void JinjaInterpreter::FailDepth() {
  Fail(absl::StrCat("nested more than ", options_.limits.depth_max, " levels deep"));
}

JinjaValue JinjaInterpreter::FailMemory() {
  return Fail(absl::StrCat("values take more than ", options_.limits.value_bytes_max, " bytes"));
}

bool JinjaInterpreter::Charge(int64_t steps) {
  if (failed()) return false;
  if (steps > steps_left_) {
    Fail(absl::StrCat("takes more than ", options_.limits.steps_max, " steps"));
    return false;
  }
  steps_left_ -= steps;
  return true;
}

// -- values

JinjaValue JinjaInterpreter::NewString(absl::string_view text) {
  if (text.empty()) return JinjaValue::String("");
  if (!ChargeScan(text.size())) return JinjaValue();
  char* const copy = arena_.AllocateArray<char>(text.size());
  if (copy == nullptr) return FailMemory();
  std::copy(text.begin(), text.end(), copy);
  return JinjaValue::String(absl::string_view(copy, text.size()));
}

JinjaValue JinjaInterpreter::NewSequence(ValueKind kind, std::span<const JinjaValue> items) {
  if (!Charge(static_cast<int64_t>(items.size() / 16) + 1)) return JinjaValue();
  JinjaValue* const copy = arena_.AllocateArray<JinjaValue>(items.size());
  if (copy == nullptr) return FailMemory();
  std::copy(items.begin(), items.end(), copy);
  JinjaValue result = JinjaValue::Of(kind);
  result.size = static_cast<uint32_t>(items.size());
  result.items = copy;
  return result;
}

JinjaValue JinjaInterpreter::NewIterator(std::span<const JinjaValue> items) {
  const JinjaValue list = NewList(items);
  if (failed()) return JinjaValue();
  JinjaValue result = JinjaValue::Of(ValueKind::kIterator);
  result.iterator = New(Iterator{.items = list.items, .size = list.size});
  return result;
}

JinjaValue JinjaInterpreter::NewDict() {
  JinjaValue result = JinjaValue::Of(ValueKind::kDict);
  result.dict = New(Dict());
  return result;
}

void JinjaInterpreter::Insert(Dict* dict, const JinjaValue& key, const JinjaValue& value) {
  if (!Charge(1)) return;
  if (!IsHashable(key)) {
    Fail(absl::StrCat("a ", TypeName(key), " cannot be a key"));
    return;
  }
  if (DictEntry* const entry = dict->Find(key); entry != nullptr) {
    entry->value = value;
    return;
  }
  if (dict->size == dict->capacity) {
    const uint32_t capacity = dict->capacity == 0 ? 4 : 2 * dict->capacity;
    DictEntry* const entries = arena_.AllocateArray<DictEntry>(capacity);
    const bool has_table = capacity > Dict::kLinearMax;
    uint32_t* const table =
        has_table ? arena_.AllocateArray<uint32_t>(2 * size_t{capacity}) : nullptr;
    if (entries == nullptr || (has_table && table == nullptr)) {
      FailMemory();
      return;
    }
    std::copy(dict->entries, dict->entries + dict->size, entries);
    dict->entries = entries;
    dict->capacity = capacity;
    dict->table = table;
    if (has_table) {
      const uint32_t mask = 2 * capacity - 1;
      std::fill(table, table + mask + 1, 0);
      for (uint32_t i = 0; i < dict->size; ++i) {
        uint32_t at = static_cast<uint32_t>(entries[i].hash) & mask;
        while (table[at] != 0) at = (at + 1) & mask;
        table[at] = i + 1;
      }
    }
  }
  const uint64_t hash = HashOf(key);
  dict->entries[dict->size++] = {.key = key, .value = value, .hash = hash};
  if (dict->table != nullptr) {
    const uint32_t mask = 2 * dict->capacity - 1;
    uint32_t at = static_cast<uint32_t>(hash) & mask;
    while (dict->table[at] != 0) at = (at + 1) & mask;
    dict->table[at] = dict->size;
  }
}

JinjaValue JinjaInterpreter::FromJson(const boost::json::value& json) {
  const Level level(this);
  if (!Charge(1)) return JinjaValue();
  switch (json.kind()) {
    case boost::json::kind::null:
      return JinjaValue::None();
    case boost::json::kind::bool_:
      return JinjaValue::Bool(json.get_bool());
    case boost::json::kind::int64:
      return JinjaValue::Int(json.get_int64());
    case boost::json::kind::uint64: {
      const uint64_t number = json.get_uint64();
      if (number <= uint64_t{INT64_MAX}) return JinjaValue::Int(static_cast<int64_t>(number));
      JinjaValue result = JinjaValue::Of(ValueKind::kUnsigned);
      result.unsigned_integer = number;
      return result;
    }
    case boost::json::kind::double_:
      return JinjaValue::Float(json.get_double());
    case boost::json::kind::string: {
      const boost::json::string& text = json.get_string();
      const absl::string_view view(text.data(), text.size());
      if (!ChargeScan(view.size())) return JinjaValue();
      if (view.size() > options_.limits.value_bytes_max) return FailMemory();
      if (!IsUtf8(view)) return Fail("a text of the context is not UTF-8");
      return JinjaValue::String(view);
    }
    case boost::json::kind::array: {
      const boost::json::array& array = json.get_array();
      JinjaValue* const items = arena_.AllocateArray<JinjaValue>(array.size());
      if (items == nullptr) return FailMemory();
      for (size_t i = 0; i < array.size(); ++i) items[i] = FromJson(array[i]);
      JinjaValue result = JinjaValue::Of(ValueKind::kList);
      result.size = static_cast<uint32_t>(array.size());
      result.items = items;
      return result;
    }
    case boost::json::kind::object:
      return FromJsonObject(json.get_object());
  }
  return JinjaValue();
}

JinjaValue JinjaInterpreter::FromJsonObject(const boost::json::object& json) {
  const JinjaValue result = NewDict();
  for (const auto& [key, value] : json) {
    if (failed()) return JinjaValue();
    const absl::string_view name(key.data(), key.size());
    if (!IsUtf8(name)) return Fail("a key of the context is not UTF-8");
    Insert(result.dict, JinjaValue::String(name), FromJson(value));
  }
  return result;
}

// -- variables

JinjaScope* JinjaInterpreter::NewScope(JinjaScope* parent) {
  return New(JinjaScope{.parent = parent});
}

void JinjaInterpreter::EnterBody(const Statement& statement, size_t body) {
  if (failed() || statement.hidden.empty()) return;
  for (const uint32_t variable : statement.hidden[body]) {
    Assign(variable, JinjaValue::Undefined(program_.variables[variable]));
  }
}

JinjaValue JinjaInterpreter::Lookup(uint32_t variable) {
  for (const JinjaScope* scope = scope_; scope != nullptr; scope = scope->parent) {
    for (uint32_t i = 0; i < scope->size; ++i) {
      if (scope->bindings[i].variable == variable) return scope->bindings[i].value;
    }
  }
  Global& global = globals_[variable];
  const std::string& name = program_.variables[variable];
  if (global.state == Global::kUnknown) {
    global.state = Global::kSet;
    Builtin builtin;
    if (const boost::json::value* const json = context_.if_contains(name); json != nullptr) {
      global.value = FromJson(*json);
    } else if (FindBuiltin(name, &builtin)) {
      global.value = JinjaValue::Of(ValueKind::kFunction);
      global.value.function = builtin;
    } else {
      global.state = Global::kMissing;
    }
  }
  return global.state == Global::kSet ? global.value : JinjaValue::Undefined(name);
}

void JinjaInterpreter::Assign(uint32_t variable, const JinjaValue& value) {
  if (failed()) return;
  if (scope_ == nullptr) {
    globals_[variable] = {.value = value, .state = Global::kSet};
    return;
  }
  for (uint32_t i = 0; i < scope_->size; ++i) {
    if (scope_->bindings[i].variable == variable) {
      scope_->bindings[i].value = value;
      return;
    }
  }
  if (scope_->size == scope_->capacity) {
    const uint32_t capacity = scope_->capacity == 0 ? 4 : 2 * scope_->capacity;
    JinjaScope::Binding* const bindings = arena_.AllocateArray<JinjaScope::Binding>(capacity);
    if (bindings == nullptr) {
      FailMemory();
      return;
    }
    std::copy(scope_->bindings, scope_->bindings + scope_->size, bindings);
    scope_->bindings = bindings;
    scope_->capacity = capacity;
  }
  scope_->bindings[scope_->size++] = {.variable = variable, .value = value};
}

void JinjaInterpreter::AssignTarget(const JinjaExpr& target, const JinjaValue& value) {
  if (failed()) return;
  if (target.kind == ExprKind::kVariable) return Assign(target.variable, value);
  if (target.kind == ExprKind::kNamespaceField) {
    const JinjaValue object = Lookup(target.variable);
    if (!object.is(ValueKind::kNamespace)) {
      Fail(absl::StrCat("cannot set '", target.name, "' of what is no namespace"));
      return;
    }
    return Insert(object.dict, JinjaValue::String(target.name), value);
  }
  std::span<const JinjaValue> items;
  if (!Items(value, &items)) return;
  if (items.size() != target.operands.size()) {
    Fail(absl::StrCat("cannot unpack ", items.size(), " values into ", target.operands.size()));
    return;
  }
  for (size_t i = 0; i < items.size(); ++i) AssignTarget(*target.operands[i], items[i]);
}

// -- statements

JinjaInterpreter::Flow JinjaInterpreter::Execute(const Block& block) {
  const Level level(this);
  for (const Statement* const statement : block) {
    if (!Charge(1)) return Flow::kNext;
    line_ = statement->line;
    const Flow flow = Execute(*statement);
    if (flow != Flow::kNext) return flow;
  }
  return Flow::kNext;
}

JinjaInterpreter::Flow JinjaInterpreter::Execute(const Statement& statement) {
  switch (statement.kind) {
    case StatementKind::kText:
      out_ += statement.text;
      output_bytes_ += statement.text.size();
      CheckOutput();
      break;
    case StatementKind::kPrint:
      for (const JinjaExpr* const expr : statement.expressions) Print(Evaluate(*expr));
      break;
    case StatementKind::kIf:
      return ExecuteIf(statement);
    case StatementKind::kFor:
      return ExecuteFor(statement);
    case StatementKind::kSet:
      AssignTarget(*statement.targets[0], Evaluate(*statement.expressions[0]));
      break;
    case StatementKind::kSetBlock:
      return ExecuteSetBlock(statement);
    case StatementKind::kMacro: {
      JinjaValue macro = JinjaValue::Of(ValueKind::kMacro);
      macro.macro = New(Macro{.statement = &statement, .scope = scope_});
      Assign(statement.variable, macro);
      break;
    }
    case StatementKind::kCallBlock:
      ExecuteCallBlock(statement);
      break;
    case StatementKind::kFilterBlock:
      return ExecuteFilterBlock(statement);
    case StatementKind::kWith:
      return ExecuteWith(statement);
    case StatementKind::kBreak:
      return Flow::kBreak;
    case StatementKind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

void JinjaInterpreter::CheckOutput() {
  if (output_bytes_ > options_.limits.output_bytes_max) {
    Fail(absl::StrCat("prints more than ", options_.limits.output_bytes_max, " bytes"));
  }
}

void JinjaInterpreter::Print(const JinjaValue& value) {
  if (failed()) return;
  const size_t before = out_.size();
  if (value.is_string()) {
    if (value.size > options_.limits.output_bytes_max - output_bytes_) {
      output_bytes_ += value.size;
      return CheckOutput();
    }
    out_.append(value.text, value.size);
  } else if (!AppendString(value, &out_)) {
    return;
  }
  output_bytes_ += out_.size() - before;
  CheckOutput();
}

JinjaValue JinjaInterpreter::TakeOutput(size_t begin) {
  const JinjaValue result = NewString(absl::string_view(out_).substr(begin));
  out_.resize(begin);
  return result;
}

JinjaInterpreter::Flow JinjaInterpreter::ExecuteIf(const Statement& statement) {
  size_t chosen = 0;
  while (chosen < statement.expressions.size() && !failed() &&
         !IsTrue(Evaluate(*statement.expressions[chosen]))) {
    ++chosen;
  }
  if (failed() || chosen == statement.bodies.size()) return Flow::kNext;
  return Execute(statement.bodies[chosen]);
}

JinjaInterpreter::Flow JinjaInterpreter::ExecuteFor(const Statement& statement) {
  JinjaScope* const outer = scope_;
  LoopState loop = {.statement = &statement, .scope = outer, .condition = statement.expressions[1]};
  const JinjaValue iterable = Evaluate(*statement.expressions[0]);
  if (failed()) return Flow::kNext;
  if (iterable.is(ValueKind::kIterator)) {
    loop.source = iterable.iterator;
    loop.items = {loop.source->items + loop.source->at, loop.source->items + loop.source->size};
  } else if (iterable.is(ValueKind::kRange)) {
    loop.range = iterable.range;
  } else if (!Items(iterable, &loop.items)) {
    return Flow::kNext;
  }
  // What keeps `loop` keeps it beyond this call.
  LoopState* const state = New(loop);
  const auto loop_variable = program_.variable_ids.find("loop");
  bool any_completed = false;
  Flow flow = Flow::kNext;
  JinjaValue item;
  JinjaScope* turn = nullptr;
  while (flow != Flow::kBreak && !failed() && FetchNext(state, &item)) {
    scope_ = turn = TurnScope(statement, outer, turn);
    if (failed()) break;
    EnterBody(statement, 0);
    if (loop_variable != program_.variable_ids.end()) {
      JinjaValue value = JinjaValue::Of(ValueKind::kLoop);
      value.loop = state;
      Assign(loop_variable->second, value);
    }
    AssignTarget(*statement.targets[0], item);
    if (failed()) break;
    flow = Execute(statement.bodies[0]);
    if (flow == Flow::kNext) any_completed = true;
  }
  scope_ = outer;
  if (failed() || any_completed || statement.bodies.size() < 2) return Flow::kNext;
  scope_ = NewScope(outer);
  EnterBody(statement, 1);
  flow = Execute(statement.bodies[1]);
  scope_ = outer;
  return flow;
}

JinjaScope* JinjaInterpreter::TurnScope(const Statement& statement, JinjaScope* parent,
                                        JinjaScope* last) {
  if (last == nullptr || statement.makes_macro) return NewScope(parent);
  last->size = 0;
  return last;
}

bool JinjaInterpreter::FetchNext(LoopState* loop, JinjaValue* item) {
  if (!PeekNext(loop)) return false;
  loop->has_next = false;
  *item = loop->next;
  ++loop->index0;
  loop->has_previous = loop->index0 > 0;
  loop->previous = loop->current;
  loop->current = *item;
  return true;
}

bool JinjaInterpreter::PeekNext(LoopState* loop) {
  if (loop->has_next) return true;
  const size_t size =
      loop->range != nullptr ? static_cast<size_t>(loop->range->size) : loop->items.size();
  while (loop->at < size && Charge(1)) {
    loop->next = loop->range == nullptr
                     ? loop->items[loop->at]
                     : JinjaValue::Int(loop->range->start +
                                       static_cast<int64_t>(loop->at) * loop->range->step);
    ++loop->at;
    if (loop->source != nullptr) ++loop->source->at;
    loop->has_next = true;
    if (loop->condition != nullptr) {
      JinjaScope* const before = scope_;
      loop->condition_scope = TurnScope(*loop->statement, loop->scope, loop->condition_scope);
      scope_ = loop->condition_scope;
      if (!failed()) AssignTarget(*loop->statement->targets[0], loop->next);
      if (!failed()) loop->has_next = IsTrue(Evaluate(*loop->condition));
      scope_ = before;
    }
    if (failed()) loop->has_next = false;
    if (loop->has_next) return true;
  }
  return false;
}

int64_t JinjaInterpreter::LoopLength(LoopState* loop) {
  if (loop->length >= 0) return loop->length;
  if (loop->condition == nullptr && loop->source == nullptr) {
    return loop->length = loop->range != nullptr ? loop->range->size
                                                 : static_cast<int64_t>(loop->items.size());
  }
  // Only running through what is left tells; it is kept for the loop's own turns.
  const bool had_next = loop->has_next;
  const JinjaValue next = loop->next;
  loop->has_next = false;
  std::vector<JinjaValue> rest;
  while (!failed() && PeekNext(loop)) {
    rest.push_back(loop->next);
    loop->has_next = false;
  }
  const JinjaValue list = NewList(rest);
  if (failed()) return 0;
  loop->has_next = had_next;
  loop->next = next;
  loop->items = {list.items, list.size};
  loop->at = 0;
  loop->range = nullptr;
  loop->source = nullptr;
  loop->condition = nullptr;
  return loop->length = static_cast<int64_t>(rest.size()) + loop->index0 + 1 + (had_next ? 1 : 0);
}

JinjaInterpreter::Flow JinjaInterpreter::ExecuteWith(const Statement& statement) {
  JinjaScope* const outer = scope_;
  JinjaScope* const inner = NewScope(outer);
  for (size_t i = 0; i < statement.targets.size() && !failed(); ++i) {
    const JinjaValue value = Evaluate(*statement.expressions[i]);
    scope_ = inner;
    AssignTarget(*statement.targets[i], value);
    scope_ = outer;
  }
  if (failed()) return Flow::kNext;
  scope_ = inner;
  EnterBody(statement, 0);
  const Flow flow = Execute(statement.bodies[0]);
  scope_ = outer;
  return flow;
}

JinjaInterpreter::Flow JinjaInterpreter::ExecuteSetBlock(const Statement& statement) {
  JinjaScope* const outer = scope_;
  const size_t begin = out_.size();
  scope_ = NewScope(outer);
  EnterBody(statement, 0);
  const Flow flow = failed() ? Flow::kNext : Execute(statement.bodies[0]);
  JinjaValue value = TakeOutput(begin);
  if (flow == Flow::kNext && statement.expressions[0] != nullptr) {
    value = ApplyFilters(statement.expressions[0], value);
  }
  scope_ = outer;
  if (flow == Flow::kNext) AssignTarget(*statement.targets[0], value);
  return flow;
}

JinjaInterpreter::Flow JinjaInterpreter::ExecuteFilterBlock(const Statement& statement) {
  JinjaScope* const outer = scope_;
  const size_t begin = out_.size();
  scope_ = NewScope(outer);
  EnterBody(statement, 0);
  const Flow flow = failed() ? Flow::kNext : Execute(statement.bodies[0]);
  const JinjaValue value = TakeOutput(begin);
  if (flow == Flow::kNext) Print(ApplyFilters(statement.expressions[0], value));
  scope_ = outer;
  return flow;
}

JinjaValue JinjaInterpreter::ApplyFilters(const JinjaExpr* chain, const JinjaValue& value) {
  const Level level(this);
  if (failed()) return JinjaValue();
  if (chain->operands[0] == nullptr) return EvaluateFilter(*chain, &value);
  const JinjaValue operand = ApplyFilters(chain->operands[0], value);
  return EvaluateFilter(*chain, &operand);
}

void JinjaInterpreter::ExecuteCallBlock(const Statement& statement) {
  JinjaValue caller = JinjaValue::Of(ValueKind::kMacro);
  caller.macro = New(Macro{.statement = &statement, .scope = scope_});
  if (failed()) return;
  Print(EvaluateCall(*statement.expressions[0], &caller));
}

// -- macros

JinjaValue JinjaInterpreter::CallMacro(const Macro& macro, const Arguments& arguments) {
  const Level level(this);
  JinjaScope* const before = scope_;
  scope_ = NewScope(macro.scope);
  EnterBody(*macro.statement, 0);
  JinjaValue result;
  if (!failed() && BindParameters(macro.statement->signature, arguments)) {
    const size_t begin = out_.size();
    Execute(macro.statement->bodies[0]);
    result = TakeOutput(begin);
  }
  scope_ = before;
  return result;
}

bool JinjaInterpreter::BindParameters(const Signature& signature, const Arguments& arguments) {
  const size_t count = signature.parameters.size();
  const size_t given = std::min(count, arguments.positional.size());
  std::vector<KeywordArgument> rest(arguments.keyword.begin(), arguments.keyword.end());
  const auto take = [&rest](absl::string_view name, JinjaValue* value) {
    const auto at = std::find_if(rest.begin(), rest.end(), [name](const KeywordArgument& keyword) {
      return keyword.name == name;
    });
    if (at == rest.end()) return false;
    *value = at->value;
    rest.erase(at);
    return true;
  };
  std::vector<size_t> missing;
  for (size_t i = 0; i < count; ++i) {
    const std::string& name = program_.variables[signature.parameters[i]];
    JinjaValue value = JinjaValue::Undefined(name);
    if (i < given) {
      value = arguments.positional[i];
    } else if (!take(name, &value)) {
      missing.push_back(i);
    }
    Assign(signature.parameters[i], value);
  }
  const auto bind = [this](absl::string_view name, const JinjaValue& value) {
    const auto id = program_.variable_ids.find(std::string(name));
    if (id != program_.variable_ids.end()) Assign(id->second, value);
  };
  if (signature.takes_caller) {
    JinjaValue caller;
    if (!take("caller", &caller) || caller.is_none()) {
      caller = JinjaValue::UndefinedBecause("no caller defined");
    }
    bind("caller", caller);
  }
  if (signature.takes_kwargs) {
    const JinjaValue kwargs = NewDict();
    for (const KeywordArgument& keyword : rest) {
      if (failed()) return false;
      Insert(kwargs.dict, JinjaValue::String(keyword.name), keyword.value);
    }
    bind("kwargs", kwargs);
  } else if (!rest.empty()) {
    Fail(absl::StrCat("macro '", signature.name, "' takes no argument '", rest.front().name, "'"));
  }
  if (signature.takes_varargs) {
    bind("varargs", NewTuple(arguments.positional.subspan(given)));
  } else if (arguments.positional.size() > count) {
    Fail(absl::StrCat("macro '", signature.name, "' takes at most ", count, " arguments, got ",
                      arguments.positional.size()));
  }
  const size_t first_default = count - signature.defaults.size();
  for (const size_t i : missing) {
    if (failed()) return false;
    if (i >= first_default) {
      Assign(signature.parameters[i], Evaluate(*signature.defaults[i - first_default]));
    }
  }
  return !failed();
}

}  // namespace stampmill
