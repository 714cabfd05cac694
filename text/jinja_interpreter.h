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
struct JinjaScope {
  struct Binding {
    uint32_t variable;
    JinjaValue value;
  };

  JinjaScope* parent = nullptr;
  Binding* bindings = nullptr;
  uint32_t size = 0;
  uint32_t capacity = 0;
};

struct Macro {
  const Statement* statement;
  JinjaScope* scope;  // where it was defined
};

// A for loop at work: what it has left, and where it stands.
struct LoopState {
  const Statement* statement = nullptr;
  JinjaScope* scope = nullptr;  // around the loop
  std::span<const JinjaValue> items;
  const JinjaRange* range = nullptr;  // what it runs through instead of items
  // A generator that it runs through, whose place moves with the loop's.
  Iterator* source = nullptr;
  size_t at = 0;
  const JinjaExpr* condition = nullptr;  // null once it has been applied to all that is left
  JinjaScope* condition_scope = nullptr;
  int64_t index0 = -1;
  int64_t length = -1;  // -1: not known yet
  bool has_next = false;
  bool has_previous = false;
  JinjaValue next;  // looked at ahead of its turn
  JinjaValue current;
  JinjaValue previous;
  bool has_changed_value = false;
  JinjaValue changed_value;
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
  JinjaValue Fail(absl::string_view what);

  JinjaValue FailMemory();
  // Names the first of both that is undefined, else their types.
  JinjaValue FailOperands(absl::string_view op, const JinjaValue& a, const JinjaValue& b);

  // False, and failed(), when there are not that many steps left.
  bool Charge(int64_t steps);
  // As Charge, for bytes that are copied, compared or searched, or are worked on one by one.
  bool ChargeScan(size_t bytes) { return Charge(static_cast<int64_t>(bytes / 256) + 1); }
  bool ChargeWork(size_t bytes) { return Charge(static_cast<int64_t>(bytes / 16) + 1); }

  JinjaValue NewString(absl::string_view text);                               // copies
  JinjaValue NewSequence(ValueKind kind, std::span<const JinjaValue> items);  // copies
  JinjaValue NewList(std::span<const JinjaValue> items) {
    return NewSequence(ValueKind::kList, items);
  }
  JinjaValue NewTuple(std::span<const JinjaValue> items) {
    return NewSequence(ValueKind::kTuple, items);
  }
  JinjaValue NewPair(const JinjaValue& first, const JinjaValue& second) {
    const JinjaValue pair[] = {first, second};
    return NewTuple(pair);
  }
  JinjaValue NewIterator(std::span<const JinjaValue> items);  // copies
  JinjaValue NewDict();
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
  void Insert(Dict* dict, const JinjaValue& key, const JinjaValue& value);

  // What iterating over `value` gives; a generator is used up. False when failed.
  bool Items(const JinjaValue& value, std::span<const JinjaValue>* items);
  // len(value), or -1 where Python has none.
  int64_t Length(const JinjaValue& value);

  // str(value) and repr(value), appended. False when failed.
  bool AppendString(const JinjaValue& value, std::string* out);
  bool AppendRepr(const JinjaValue& value, std::string* out);
  // str(value), without a copy of what is a string.
  JinjaValue ToString(const JinjaValue& value);

  // Jinja's object.name and object[key].
  JinjaValue GetAttribute(const JinjaValue& object, absl::string_view name);
  JinjaValue GetItem(const JinjaValue& object, const JinjaValue& key);
  // Names that are Python attributes of the object; `found` says whether there is one.
  JinjaValue PythonAttribute(const JinjaValue& object, absl::string_view name, bool* found);
  JinjaValue GetSlice(const JinjaValue& object, const JinjaValue& start, const JinjaValue& stop,
                      const JinjaValue& step);

  JinjaValue Binary(Operator op, const JinjaValue& a, const JinjaValue& b);
  bool Compare(Operator op, const JinjaValue& a, const JinjaValue& b);
  bool Equal(const JinjaValue& a, const JinjaValue& b);
  // a < b, for sorting.
  bool Less(const JinjaValue& a, const JinjaValue& b) { return Compare(Operator::kLess, a, b); }

  JinjaValue Call(const JinjaValue& callee, const Arguments& arguments);

 private:
  enum class Flow : uint8_t { kNext, kBreak, kContinue };

  void FailDepth();
  JinjaValue FromJson(const boost::json::value& json);
  JinjaValue FromJsonObject(const boost::json::object& json);

  JinjaValue Lookup(uint32_t variable);
  void Assign(uint32_t variable, const JinjaValue& value);
  void AssignTarget(const JinjaExpr& target, const JinjaValue& value);
  JinjaScope* NewScope(JinjaScope* parent);
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
  void Print(const JinjaValue& value);
  void CheckOutput();

  // The output since `begin`, taken back.
  JinjaValue TakeOutput(size_t begin);
  // A chain of filters over `value`, which is the head's operand.
  JinjaValue ApplyFilters(const JinjaExpr* chain, const JinjaValue& value);

  bool FetchNext(LoopState* loop, JinjaValue* item);
  bool PeekNext(LoopState* loop);
  int64_t LoopLength(LoopState* loop);
  // A scope for one turn; the last turn's again, emptied, unless a macro may have kept it.
  JinjaScope* TurnScope(const Statement& statement, JinjaScope* parent, JinjaScope* last);
  JinjaValue LoopAttribute(LoopState* loop, absl::string_view name, bool* found);

  JinjaValue Evaluate(const JinjaExpr& expr);
  JinjaValue EvaluateAll(const JinjaExpr& expr);
  JinjaValue EvaluateItem(const JinjaExpr& expr);
  JinjaValue EvaluateDict(const JinjaExpr& expr);
  JinjaValue EvaluateConcatenation(const JinjaExpr& expr);
  JinjaValue EvaluateComparison(const JinjaExpr& expr);
  JinjaValue EvaluateConditional(const JinjaExpr& expr);
  JinjaValue EvaluateUnary(const JinjaExpr& expr);
  JinjaValue EvaluateCall(const JinjaExpr& expr, const JinjaValue* caller);
  JinjaValue EvaluateFilter(const JinjaExpr& expr, const JinjaValue* head);
  JinjaValue EvaluateTest(const JinjaExpr& expr);

  // Arguments as evaluated; the spans of `result` are of this.
  struct ArgumentValues {
    std::vector<JinjaValue> positional;
    std::vector<KeywordArgument> keyword;
    Arguments get() const { return {.positional = positional, .keyword = keyword}; }
  };
  void EvaluateArguments(const JinjaExpr& expr, ArgumentValues* result);

  JinjaValue CallMacro(const Macro& macro, const Arguments& arguments);
  bool BindParameters(const Signature& signature, const Arguments& arguments);
  JinjaValue CallLoopMethod(LoopState* loop, absl::string_view name, const Arguments& arguments);
  JinjaValue CallCyclerMethod(Cycler* cycler, absl::string_view name, const Arguments& arguments);

  // object[key] as Python has it; `found` is false for a TypeError or LookupError.
  JinjaValue PythonItem(const JinjaValue& object, const JinjaValue& key, bool* found);

  JinjaValue Arithmetic(Operator op, const JinjaValue& a, const JinjaValue& b);
  JinjaValue IntegerArithmetic(Operator op, int64_t a, int64_t b);
  JinjaValue IntegerPower(int64_t base, int64_t exponent);
  JinjaValue FloatArithmetic(Operator op, double a, double b);
  JinjaValue Add(const JinjaValue& a, const JinjaValue& b);
  JinjaValue Repeat(const JinjaValue& sequence, int64_t times);
  bool CompareOrder(Operator op, const JinjaValue& a, const JinjaValue& b);
  bool Contains(const JinjaValue& container, const JinjaValue& value);

  bool AppendSequence(const JinjaValue& value, std::string* out);
  bool AppendDict(const Dict& dict, std::string* out);
  bool AppendView(const JinjaValue& value, std::string* out);

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
    JinjaValue value;
    enum : uint8_t { kUnknown, kMissing, kSet } state = kUnknown;
  };
  std::vector<Global> globals_;
  JinjaScope* scope_ = nullptr;
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
bool AppendJson(JinjaInterpreter& in, const JinjaValue& value, const JsonStyle& style,
                std::string* out);

// Python's repr of a text.
void AppendStringRepr(absl::string_view text, std::string* out);

}  // namespace stampmill
