// Runs a JinjaProgram: walks its tree, with Python's rules for values.
//
// One interpreter is one rendering. Errors stick: the first one is kept, everything after it
// returns at once, so functions return plain values and callers look at failed() before they go on.
// What is done is charged against the limits before it is done.
#pragma once

#include <boost/json/object.hpp>
#include <boost/json/value.hpp>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "text/chat_template.h"
#include "text/jinja_ast.h"
#include "text/jinja_builtins.h"
#include "text/jinja_value.h"

namespace stampmill {

// Variables of one loop turn, macro call or with; those of the template itself are in an array.
struct Scope {
  struct Binding {
    uint32_t variable;
    Value value;
  };

  Scope* parent = nullptr;
  Binding* bindings = nullptr;
  uint32_t size = 0;
  uint32_t capacity = 0;
};

struct Macro {
  const Statement* statement;
  Scope* scope;  // where it was defined
};

// A for loop at work: what it has left, and where it stands.
struct LoopState {
  const Statement* statement = nullptr;
  Scope* scope = nullptr;  // around the loop
  std::span<const Value> items;
  const Range* range = nullptr;  // what it runs through instead of items
  // A generator that it runs through, whose place moves with the loop's.
  Iterator* source = nullptr;
  size_t at = 0;
  const Expr* condition = nullptr;  // null once it has been applied to all that is left
  Scope* condition_scope = nullptr;
  int64_t index0 = -1;
  int64_t length = -1;  // -1: not known yet
  bool has_next = false;
  bool has_previous = false;
  Value next;  // looked at ahead of its turn
  Value current;
  Value previous;
  bool has_changed_value = false;
  Value changed_value;
};

class JinjaInterpreter {
 public:
  // All borrowed for the interpreter's life.
  JinjaInterpreter(const JinjaProgram& program, const boost::json::object& context,
                   const RenderOptions& options);
  JinjaInterpreter(const JinjaInterpreter&) = delete;
  JinjaInterpreter& operator=(const JinjaInterpreter&) = delete;

  absl::StatusOr<std::string> Run();

  // -- For what templates call (jinja_builtins.h).

  // A level of recursion, as long as it lives; failed() when there are too many.
  class Level {
   public:
    explicit Level(JinjaInterpreter* in) : in_(in) {
      if (++in->depth_ > in->options_.limits.depth_max) in->FailDepth();
    }
    ~Level() { --in_->depth_; }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    JinjaInterpreter* const in_;
  };

  const RenderOptions& options() const { return options_; }
  bool failed() const { return !status_.ok(); }

  // Keeps the error, with the line that is being worked on. Returns undefined.
  Value Fail(absl::string_view what);

  Value FailMemory();
  // Names the first of both that is undefined, else their types.
  Value FailOperands(absl::string_view op, const Value& a, const Value& b);

  // False, and failed(), when there are not that many steps left.
  bool Charge(int64_t steps);
  // As Charge, for bytes that are copied, compared or searched, or are worked on one by one.
  bool ChargeScan(size_t bytes) { return Charge(static_cast<int64_t>(bytes / 256) + 1); }
  bool ChargeWork(size_t bytes) { return Charge(static_cast<int64_t>(bytes / 16) + 1); }

  Value NewString(absl::string_view text);                          // copies
  Value NewSequence(ValueKind kind, std::span<const Value> items);  // copies
  Value NewList(std::span<const Value> items) { return NewSequence(ValueKind::kList, items); }
  Value NewTuple(std::span<const Value> items) { return NewSequence(ValueKind::kTuple, items); }
  Value NewPair(const Value& first, const Value& second) {
    const Value pair[] = {first, second};
    return NewTuple(pair);
  }
  Value NewIterator(std::span<const Value> items);  // copies
  Value NewDict();
  // Null when failed. For objects without destructor.
  template <typename T>
  T* New(const T& value) {
    void* const place = arena_.Allocate(sizeof(T));
    if (place == nullptr) {
      FailMemory();
      return nullptr;
    }
    return new (place) T(value);
  }
  // Sets an entry of a new dict or of a namespace. Fails for keys that cannot be one.
  void Insert(Dict* dict, const Value& key, const Value& value);

  // What iterating over `value` gives; a generator is used up. False when failed.
  bool Items(const Value& value, std::span<const Value>* items);
  // len(value), or -1 where Python has none.
  int64_t Length(const Value& value);

  // str(value) and repr(value), appended. False when failed.
  bool AppendString(const Value& value, std::string* out);
  bool AppendRepr(const Value& value, std::string* out);
  // str(value), without a copy of what is a string.
  Value ToString(const Value& value);

  // Jinja's object.name and object[key].
  Value GetAttribute(const Value& object, absl::string_view name);
  Value GetItem(const Value& object, const Value& key);
  // Names that are Python attributes of the object; `found` says whether there is one.
  Value PythonAttribute(const Value& object, absl::string_view name, bool* found);
  Value GetSlice(const Value& object, const Value& start, const Value& stop, const Value& step);

  Value Binary(Operator op, const Value& a, const Value& b);
  bool Compare(Operator op, const Value& a, const Value& b);
  bool Equal(const Value& a, const Value& b);
  // a < b, for sorting.
  bool Less(const Value& a, const Value& b) { return Compare(Operator::kLess, a, b); }

  Value Call(const Value& callee, const Arguments& arguments);

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };

  void FailDepth();
  Value FromJson(const boost::json::value& json);
  Value FromJsonObject(const boost::json::object& json);

  Value Lookup(uint32_t variable);
  void Assign(uint32_t variable, const Value& value);
  void AssignTarget(const Expr& target, const Value& value);
  Scope* NewScope(Scope* parent);
  // Hides in scope_ what `statement` says is undefined at the start of its body.
  void EnterBody(const Statement& statement, size_t body);

  Flow Execute(const Block& block);
  Flow Execute(const Statement& statement);
  Flow ExecuteIf(const Statement& statement);
  Flow ExecuteFor(const Statement& statement);
  Flow ExecuteWith(const Statement& statement);
  Flow ExecuteSetBlock(const Statement& statement);
  Flow ExecuteFilterBlock(const Statement& statement);
  void ExecuteCallBlock(const Statement& statement);
  void Print(const Value& value);
  void CheckOutput();

  // The output since `begin`, taken back.
  Value TakeOutput(size_t begin);
  // A chain of filters over `value`, which is the head's operand.
  Value ApplyFilters(const Expr* chain, const Value& value);

  bool FetchNext(LoopState* loop, Value* item);
  bool PeekNext(LoopState* loop);
  int64_t LoopLength(LoopState* loop);
  // A scope for one turn; the last turn's again, emptied, unless a macro may have kept it.
  Scope* TurnScope(const Statement& statement, Scope* parent, Scope* last);
  Value LoopAttribute(LoopState* loop, absl::string_view name, bool* found);

  Value Evaluate(const Expr& expr);
  Value EvaluateAll(const Expr& expr);
  Value EvaluateItem(const Expr& expr);
  Value EvaluateDict(const Expr& expr);
  Value EvaluateConcatenation(const Expr& expr);
  Value EvaluateComparison(const Expr& expr);
  Value EvaluateConditional(const Expr& expr);
  Value EvaluateUnary(const Expr& expr);
  Value EvaluateCall(const Expr& expr, const Value* caller);
  Value EvaluateFilter(const Expr& expr, const Value* head);
  Value EvaluateTest(const Expr& expr);

  // Arguments as evaluated; the spans of `result` are of this.
  struct ArgumentValues {
    std::vector<Value> positional;
    std::vector<KeywordArgument> keyword;
    Arguments get() const { return {.positional = positional, .keyword = keyword}; }
  };
  void EvaluateArguments(const Expr& expr, ArgumentValues* result);

  Value CallMacro(const Macro& macro, const Arguments& arguments);
  bool BindParameters(const Signature& signature, const Arguments& arguments);
  Value CallLoopMethod(LoopState* loop, absl::string_view name, const Arguments& arguments);
  Value CallCyclerMethod(Cycler* cycler, absl::string_view name, const Arguments& arguments);

  // object[key] as Python has it; `found` is false for a TypeError or LookupError.
  Value PythonItem(const Value& object, const Value& key, bool* found);

  Value Arithmetic(Operator op, const Value& a, const Value& b);
  Value IntegerArithmetic(Operator op, int64_t a, int64_t b);
  Value IntegerPower(int64_t base, int64_t exponent);
  Value FloatArithmetic(Operator op, double a, double b);
  Value Add(const Value& a, const Value& b);
  Value Repeat(const Value& sequence, int64_t times);
  bool CompareOrder(Operator op, const Value& a, const Value& b);
  bool Contains(const Value& container, const Value& value);

  bool AppendSequence(const Value& value, std::string* out);
  bool AppendDict(const Dict& dict, std::string* out);
  bool AppendView(const Value& value, std::string* out);

  const JinjaProgram& program_;
  const boost::json::object& context_;
  const RenderOptions& options_;
  ValueArena arena_;
  int64_t steps_left_;
  int depth_ = 0;
  int line_ = 0;
  absl::Status status_;
  std::string out_;
  size_t output_bytes_ = 0;  // all that was ever printed

  struct Global {
    Value value;
    enum : uint8_t { kUnknown, kMissing, kSet } state = kUnknown;
  };
  std::vector<Global> globals_;
  Scope* scope_ = nullptr;
};

// json.dumps as Hugging Face's tojson calls it.
struct JsonStyle {
  bool ensure_ascii = false;
  bool has_indent = false;
  std::string indent;
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};
bool AppendJson(JinjaInterpreter& in, const Value& value, const JsonStyle& style, std::string* out);

// Python's repr of a text.
void AppendStringRepr(absl::string_view text, std::string* out);

}  // namespace stampmill
