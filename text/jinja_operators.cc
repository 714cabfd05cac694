// Operators, subscripts and iteration of JinjaInterpreter: Python's rules for its types.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "text/jinja_interpreter.h"
#include "text/utf8.h"

namespace stampmill {
namespace {

constexpr absl::string_view kBeyond64Bits = "an integer is beyond 64 bits";

absl::string_view OperatorName(Operator op) {
  switch (op) {
    case Operator::kAdd:
      return "+";
    case Operator::kSubtract:
      return "-";
    case Operator::kMultiply:
      return "*";
    case Operator::kDivide:
      return "/";
    case Operator::kFloorDivide:
      return "//";
    case Operator::kModulo:
      return "%";
    case Operator::kPower:
      return "**";
    case Operator::kEqual:
      return "==";
    case Operator::kNotEqual:
      return "!=";
    case Operator::kLess:
      return "<";
    case Operator::kLessEqual:
      return "<=";
    case Operator::kGreater:
      return ">";
    case Operator::kGreaterEqual:
      return ">=";
    case Operator::kIn:
      return "in";
    case Operator::kNotIn:
      return "not in";
  }
  return "";
}

// Of an order that is known: -1, 0, 1, or 2 for numbers without one.
bool Holds(Operator op, int order) {
  if (order == 2) return false;
  switch (op) {
    case Operator::kLess:
      return order < 0;
    case Operator::kLessEqual:
      return order <= 0;
    case Operator::kGreater:
      return order > 0;
    default:
      return order >= 0;
  }
}

int OrderOfNumbers(const JinjaValue& a, const JinjaValue& b) {
  if (a.is_integral() && b.is_integral()) {
    return a.integral() < b.integral() ? -1 : a.integral() > b.integral() ? 1 : 0;
  }
  // Holds every int64 and every double exactly.
  const auto wide = [](const JinjaValue& v) {
    return v.is(ValueKind::kFloat) ? static_cast<long double>(v.real)
                                   : static_cast<long double>(v.integral());
  };
  const long double x = wide(a), y = wide(b);
  if (std::isnan(x) || std::isnan(y)) return 2;
  return x < y ? -1 : x > y ? 1 : 0;
}

double PythonModulo(double a, double b) {
  double result = std::fmod(a, b);
  if (result != 0) {
    if ((b < 0) != (result < 0)) result += b;
  } else {
    result = std::copysign(0.0, b);
  }
  return result;
}

double PythonFloorDivide(double a, double b) {
  const double modulo = std::fmod(a, b);
  double quotient = (a - modulo) / b;
  if (modulo != 0 && (b < 0) != (modulo < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0, a / b);
  double floored = std::floor(quotient);
  if (quotient - floored > 0.5) floored += 1;
  return floored;
}

}  // namespace

JinjaValue JinjaInterpreter::FailOperands(absl::string_view op, const JinjaValue& a,
                                          const JinjaValue& b) {
  for (const JinjaValue* const value : {&a, &b}) {
    if (!value->is_undefined()) continue;
    return value->is_message ? Fail(value->str())
                             : Fail(absl::StrCat("'", value->str(), "' is undefined"));
  }
  return Fail(absl::StrCat("cannot apply ", op, " to a ", TypeName(a), " and a ", TypeName(b)));
}

// -- arithmetic

JinjaValue JinjaInterpreter::Binary(Operator op, const JinjaValue& a, const JinjaValue& b) {
  if (a.is_integral() && b.is_integral()) return IntegerArithmetic(op, a.integral(), b.integral());
  if (a.is_number() && b.is_number()) return FloatArithmetic(op, a.number(), b.number());
  if (op == Operator::kAdd) return Add(a, b);
  if (op == Operator::kMultiply && b.is_integral() && (a.is_string() || a.is_sequence())) {
    return Repeat(a, b.integral());
  }
  if (op == Operator::kMultiply && a.is_integral() && (b.is_string() || b.is_sequence())) {
    return Repeat(b, a.integral());
  }
  if (op == Operator::kModulo && a.is_string() && !b.is_undefined()) {
    if (a.is_markup) return Fail("formatting escaped text is not supported");
    return FormatPercent(*this, a.str(), b);
  }
  return FailOperands(OperatorName(op), a, b);
}

JinjaValue JinjaInterpreter::IntegerArithmetic(Operator op, int64_t a, int64_t b) {
  int64_t result = 0;
  bool overflows = false;
  switch (op) {
    case Operator::kAdd:
      overflows = __builtin_add_overflow(a, b, &result);
      break;
    case Operator::kSubtract:
      overflows = __builtin_sub_overflow(a, b, &result);
      break;
    case Operator::kMultiply:
      overflows = __builtin_mul_overflow(a, b, &result);
      break;
    case Operator::kPower:
      return IntegerPower(a, b);
    default:
      if (b == 0) return Fail("division by zero");
      if (op == Operator::kDivide) {
        return JinjaValue::Float(
            static_cast<double>(static_cast<long double>(a) / static_cast<long double>(b)));
      }
      if (b == -1) {
        if (op == Operator::kModulo) return JinjaValue::Int(0);
        overflows = __builtin_sub_overflow(int64_t{0}, a, &result);
        break;
      }
      result = op == Operator::kModulo ? a % b : a / b;
      if (a % b != 0 && (a % b < 0) != (b < 0)) result += op == Operator::kModulo ? b : -1;
  }
  return overflows ? Fail(kBeyond64Bits) : JinjaValue::Int(result);
}

JinjaValue JinjaInterpreter::IntegerPower(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return Fail("zero to a negative power");
    return JinjaValue::Float(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  // Beyond 63 doublings only 0, 1 and -1 stay within range, and they repeat.
  if (exponent > 64) exponent = 64 + exponent % 2;
  for (; exponent > 0; --exponent) {
    if (__builtin_mul_overflow(result, base, &result)) return Fail(kBeyond64Bits);
  }
  return JinjaValue::Int(result);
}

JinjaValue JinjaInterpreter::FloatArithmetic(Operator op, double a, double b) {
  switch (op) {
    case Operator::kAdd:
      return JinjaValue::Float(a + b);
    case Operator::kSubtract:
      return JinjaValue::Float(a - b);
    case Operator::kMultiply:
      return JinjaValue::Float(a * b);
    case Operator::kPower: {
      if (a == 0 && b < 0) return Fail("zero to a negative power");
      if (a < 0 && std::isfinite(a) && std::isfinite(b) && b != std::trunc(b)) {
        return Fail("a negative number to a fraction is not supported");
      }
      const double result = std::pow(a, b);
      if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) {
        return Fail("a number is out of range");
      }
      return JinjaValue::Float(result);
    }
    default:
      if (b == 0) return Fail("division by zero");
      if (op == Operator::kDivide) return JinjaValue::Float(a / b);
      return JinjaValue::Float(op == Operator::kModulo ? PythonModulo(a, b)
                                                       : PythonFloorDivide(a, b));
  }
}

JinjaValue JinjaInterpreter::Add(const JinjaValue& a, const JinjaValue& b) {
  if (a.is_string() && b.is_string()) {
    if (a.is_markup != b.is_markup) return Fail("adding to escaped text is not supported");
    if (!ChargeScan(b.size)) return JinjaValue();
    absl::string_view joined;
    if (!arena_.Concatenate(a.str(), b.str(), &joined)) return FailMemory();
    JinjaValue result = JinjaValue::String(joined);
    result.is_markup = a.is_markup;
    return result;
  }
  if (!a.is_sequence() || a.kind != b.kind) return FailOperands("+", a, b);
  const size_t size = size_t{a.size} + b.size;
  if (!Charge(static_cast<int64_t>(size / 16) + 1)) return JinjaValue();
  JinjaValue* const items = arena_.AllocateArray<JinjaValue>(size);
  if (items == nullptr) return FailMemory();
  std::copy(a.items, a.items + a.size, items);
  std::copy(b.items, b.items + b.size, items + a.size);
  JinjaValue result = JinjaValue::Of(a.kind);
  result.size = static_cast<uint32_t>(size);
  result.items = items;
  return result;
}

JinjaValue JinjaInterpreter::Repeat(const JinjaValue& sequence, int64_t times) {
  times = std::max<int64_t>(0, times);
  JinjaValue result = JinjaValue::Of(sequence.kind);
  result.is_markup = sequence.is_markup;
  if (sequence.size == 0 || times == 0) return result;
  const int64_t unit = sequence.is_string() ? 1 : sizeof(JinjaValue);
  int64_t bytes = 0;
  if (__builtin_mul_overflow(times, sequence.size * unit, &bytes) ||
      static_cast<size_t>(bytes) > options_.limits.value_bytes_max) {
    return FailMemory();
  }
  if (!ChargeScan(static_cast<size_t>(bytes))) return JinjaValue();
  char* const copy = arena_.AllocateArray<char>(static_cast<size_t>(bytes));
  if (copy == nullptr) return FailMemory();
  const void* const from = sequence.is_string() ? static_cast<const void*>(sequence.text)
                                                : static_cast<const void*>(sequence.items);
  const size_t step = static_cast<size_t>(sequence.size * unit);
  for (size_t at = 0; at < static_cast<size_t>(bytes); at += step) {
    std::memcpy(copy + at, from, step);
  }
  result.size = static_cast<uint32_t>(sequence.size * times);
  if (sequence.is_string()) {
    result.text = copy;
  } else {
    result.items = reinterpret_cast<const JinjaValue*>(copy);
  }
  return result;
}

// -- comparisons

bool JinjaInterpreter::Equal(const JinjaValue& a, const JinjaValue& b) {
  if (failed()) return false;
  Budget budget = {.steps = steps_left_, .depth = options_.limits.depth_max};
  const bool equal = Equals(a, b, &budget);
  if (budget.too_deep) FailDepth();
  if (!Charge(steps_left_ - budget.steps)) return false;
  return equal;
}

bool JinjaInterpreter::Compare(Operator op, const JinjaValue& a, const JinjaValue& b) {
  switch (op) {
    case Operator::kEqual:
      return Equal(a, b);
    case Operator::kNotEqual:
      return !Equal(a, b);
    case Operator::kIn:
      return Contains(b, a);
    case Operator::kNotIn:
      return !Contains(b, a);
    default:
      return CompareOrder(op, a, b);
  }
}

bool JinjaInterpreter::CompareOrder(Operator op, const JinjaValue& a, const JinjaValue& b) {
  const Level level(this);
  if (!Charge(1)) return false;
  if (a.is_number() && b.is_number()) return Holds(op, OrderOfNumbers(a, b));
  if (a.is_string() && b.is_string()) {
    if (!ChargeScan(std::min(a.size, b.size))) return false;
    const int order = a.str().compare(b.str());
    return Holds(op, order < 0 ? -1 : order > 0 ? 1 : 0);
  }
  if (!a.is_sequence() || a.kind != b.kind) {
    FailOperands(OperatorName(op), a, b);
    return false;
  }
  for (uint32_t i = 0; i < std::min(a.size, b.size); ++i) {
    const bool equal = Equal(a.items[i], b.items[i]);
    if (failed()) return false;
    if (!equal) return CompareOrder(op, a.items[i], b.items[i]);
  }
  return Holds(op, a.size < b.size ? -1 : a.size > b.size ? 1 : 0);
}

bool JinjaInterpreter::Contains(const JinjaValue& container, const JinjaValue& value) {
  switch (container.kind) {
    case ValueKind::kString:
      if (!value.is_string()) {
        FailOperands("in", value, container);
        return false;
      }
      if (!ChargeScan(container.size)) return false;
      return absl::StrContains(container.str(), value.str());
    case ValueKind::kDict:
    case ValueKind::kKeysView:
      if (!IsHashable(value)) {
        Fail(absl::StrCat("a ", TypeName(value), " cannot be a key"));
        return false;
      }
      return container.dict->Find(value) != nullptr;
    case ValueKind::kRange: {
      if (!value.is_number()) return false;
      const JinjaRange& range = *container.range;
      const double number = value.number();
      if (number != std::trunc(number) || std::abs(number) >= 0x1p63) return false;
      const auto offset =
          static_cast<__int128>(value.is_integral() ? value.integral()
                                                    : static_cast<int64_t>(number)) -
          range.start;
      return offset % range.step == 0 && offset / range.step >= 0 &&
             offset / range.step < range.size;
    }
    default: {
      std::span<const JinjaValue> items;
      if (!Items(container, &items)) return false;
      return std::any_of(items.begin(), items.end(),
                         [&](const JinjaValue& item) { return !failed() && Equal(item, value); });
    }
  }
}

// -- iteration

int64_t JinjaInterpreter::Length(const JinjaValue& value) {
  switch (value.kind) {
    case ValueKind::kUndefined:
      return 0;
    case ValueKind::kString:
      ChargeScan(value.size);
      return CountCharacters(value.str());
    case ValueKind::kList:
    case ValueKind::kTuple:
      return value.size;
    case ValueKind::kDict:
    case ValueKind::kKeysView:
    case ValueKind::kValuesView:
    case ValueKind::kItemsView:
      return value.dict->size;
    case ValueKind::kRange:
      return value.range->size;
    case ValueKind::kLoop:
      return LoopLength(value.loop);
    default:
      return -1;
  }
}

bool JinjaInterpreter::Items(const JinjaValue& value, std::span<const JinjaValue>* items) {
  *items = {};
  if (!Charge(1)) return false;
  std::vector<JinjaValue> made;
  switch (value.kind) {
    case ValueKind::kUndefined:
      return true;
    case ValueKind::kList:
    case ValueKind::kTuple:
      *items = {value.items, value.size};
      return true;
    case ValueKind::kIterator:
      *items = {value.iterator->items + value.iterator->at,
                value.iterator->items + value.iterator->size};
      value.iterator->at = value.iterator->size;
      return true;
    case ValueKind::kString:
      if (!ChargeWork(value.size)) return false;
      made.reserve(value.size);
      for (const char *at = value.text, *end = at + value.size; at < end;) {
        const Utf8Character next = DecodeUtf8(at, end);
        made.push_back(JinjaValue::String(absl::string_view(at, next.size_bytes)));
        at += next.size_bytes;
      }
      break;
    case ValueKind::kRange:
      if (!Charge(value.range->size / 16)) return false;
      for (int64_t i = 0; i < value.range->size; ++i) {
        made.push_back(JinjaValue::Int(value.range->start + i * value.range->step));
      }
      break;
    case ValueKind::kDict:
    case ValueKind::kKeysView:
    case ValueKind::kValuesView:
    case ValueKind::kItemsView:
      for (uint32_t i = 0; i < value.dict->size && !failed(); ++i) {
        const DictEntry& entry = value.dict->entries[i];
        made.push_back(value.is(ValueKind::kValuesView)  ? entry.value
                       : value.is(ValueKind::kItemsView) ? NewPair(entry.key, entry.value)
                                                         : entry.key);
      }
      break;
    default:
      Fail(absl::StrCat("a ", TypeName(value), " cannot be iterated"));
      return false;
  }
  const JinjaValue list = NewList(made);
  if (failed()) return false;
  *items = {list.items, list.size};
  return true;
}

// -- subscripts

JinjaValue JinjaInterpreter::PythonItem(const JinjaValue& object, const JinjaValue& key,
                                        bool* found) {
  *found = false;
  switch (object.kind) {
    case ValueKind::kUndefined:
      return FailOperands("", object, object);
    case ValueKind::kDict: {
      if (!IsHashable(key)) return JinjaValue();
      const DictEntry* const entry = object.dict->Find(key);
      *found = entry != nullptr;
      return *found ? entry->value : JinjaValue();
    }
    case ValueKind::kString:
    case ValueKind::kList:
    case ValueKind::kTuple:
    case ValueKind::kRange: {
      if (!key.is_integral()) return JinjaValue();
      const int64_t size = Length(object);
      int64_t index = key.integral();
      if (index < 0) index += size;
      if (index < 0 || index >= size) return JinjaValue();
      *found = true;
      if (object.is_sequence()) return object.items[index];
      if (object.is(ValueKind::kRange)) {
        return JinjaValue::Int(object.range->start + index * object.range->step);
      }
      const absl::string_view rest = object.str().substr(CharacterOffset(object.str(), index));
      return JinjaValue::String(
          rest.substr(0, DecodeUtf8(rest.data(), rest.data() + rest.size()).size_bytes));
    }
    default:
      return JinjaValue();
  }
}

JinjaValue JinjaInterpreter::GetSlice(const JinjaValue& object, const JinjaValue& start,
                                      const JinjaValue& stop, const JinjaValue& step) {
  if (!object.is_string() && !object.is_sequence() && !object.is(ValueKind::kRange)) {
    return object.is_undefined() ? FailOperands("", object, object)
                                 : Fail(absl::StrCat("a ", TypeName(object), " has no slices"));
  }
  for (const JinjaValue* const part : {&start, &stop, &step}) {
    if (!part->is_none() && !part->is_integral()) {
      return part->is_undefined() ? FailOperands("", *part, *part) : Fail("a slice needs integers");
    }
  }
  const int64_t by = step.is_none() ? 1 : step.integral();
  if (by == 0) return Fail("a slice has step 0");
  const int64_t size = Length(object);
  const auto bound = [&](const JinjaValue& part, int64_t otherwise) {
    if (part.is_none()) return otherwise;
    int64_t at = part.integral();
    if (at < 0) at = at < -size ? -1 : at + size;
    return by > 0 ? std::clamp<int64_t>(at, 0, size) : std::clamp<int64_t>(at, -1, size - 1);
  };
  const int64_t first = bound(start, by > 0 ? 0 : size - 1);
  const int64_t last = bound(stop, by > 0 ? size : -1);
  const int64_t distance = by > 0 ? last - first : first - last;
  const auto magnitude = by > 0 ? static_cast<uint64_t>(by) : 0 - static_cast<uint64_t>(by);
  const auto count = static_cast<int64_t>(
      distance <= 0 ? 0 : (static_cast<uint64_t>(distance) - 1) / magnitude + 1);
  if (object.is(ValueKind::kRange)) {
    const JinjaRange& range = *object.range;
    JinjaValue result = JinjaValue::Of(ValueKind::kRange);
    result.range = New(JinjaRange{.start = range.start + first * range.step,
                                  .stop = range.start + last * range.step,
                                  .step = range.step * by,
                                  .size = count});
    return result;
  }
  if (object.is_string() && by == 1) {
    const absl::string_view text = object.str();
    const size_t begin = CharacterOffset(text, first);
    return JinjaValue::String(text.substr(begin, CharacterOffset(text.substr(begin), count)));
  }
  std::span<const JinjaValue> items;
  if (!Items(object, &items) || !Charge(count / 16)) return JinjaValue();
  std::vector<JinjaValue> chosen;
  chosen.reserve(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) chosen.push_back(items[first + i * by]);
  if (!object.is_string()) {
    return NewSequence(object.is(ValueKind::kTuple) ? ValueKind::kTuple : ValueKind::kList, chosen);
  }
  std::string text;
  for (const JinjaValue& character : chosen) text.append(character.text, character.size);
  return NewString(text);
}

}  // namespace stampmill
