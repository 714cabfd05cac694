// Filters of lists and dicts.
#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "text/jinja_arguments.h"
#include "text/jinja_filter_table.h"
#include "text/jinja_interpreter.h"
#include "text/jinja_sort.h"
#include "text/jinja_text.h"
#include "text/unicode_case.h"

namespace stampmill {
namespace {

// The way to an attribute: `a.b.0` by parts, none for the value itself.
using Path = std::vector<Value>;

Path PathOf(JinjaInterpreter& in, const Value& attribute) {
  Path path;
  if (attribute.is_none()) return path;
  if (!attribute.is_string()) {
    path.push_back(attribute);
    return path;
  }
  for (const absl::string_view part : Split(attribute.str(), ".", -1)) {
    bool overflows = false;
    const bool is_number = !part.empty() && std::all_of(part.begin(), part.end(), [](char c) {
      return c >= '0' && c <= '9';
    });
    if (!is_number) {
      path.push_back(Value::String(part));
      continue;
    }
    const std::optional<int64_t> index = ParseInt(part, 10, &overflows);
    if (!index.has_value()) in.Fail("an integer is beyond 64 bits");
    path.push_back(Value::Int(index.value_or(0)));
  }
  return path;
}

Value Follow(JinjaInterpreter& in, Value item, const Path& path, const Value& otherwise) {
  for (const Value& part : path) {
    if (in.failed()) return Value();
    item = in.GetItem(item, part);
    if (item.is_undefined() && !otherwise.is_none()) item = otherwise;
  }
  return item;
}

Value Follow(JinjaInterpreter& in, const Value& item, const Path& path) {
  return Follow(in, item, path, Value::None());
}

Value IgnoreCase(JinjaInterpreter& in, const Value& value) {
  if (!value.is_string() || !in.ChargeWork(value.size)) return value;
  return in.NewString(LowerCase(value.str()));
}

// Values beside what they are compared by.
struct Keyed {
  Value key;
  Value value;
};

std::vector<Keyed> WithKeys(JinjaInterpreter& in, std::span<const Value> items, const Path& path,
                            bool case_sensitive, const Value& otherwise = Value::None()) {
  std::vector<Keyed> result;
  result.reserve(items.size());
  for (const Value& item : items) {
    if (in.failed()) break;
    Value key = Follow(in, item, path, otherwise);
    if (!case_sensitive) key = IgnoreCase(in, key);
    result.push_back({.key = key, .value = item});
  }
  return result;
}

void SortByKey(JinjaInterpreter& in, bool reverse, std::vector<Keyed>* items) {
  SortStably(items, [&](const Keyed& a, const Keyed& b) {
    if (in.failed()) return false;
    return reverse ? in.Less(b.key, a.key) : in.Less(a.key, b.key);
  });
}

Value ListOfValues(JinjaInterpreter& in, const std::vector<Keyed>& items) {
  std::vector<Value> values;
  values.reserve(items.size());
  for (const Keyed& item : items) values.push_back(item.value);
  return in.NewList(values);
}

Value Sort(JinjaInterpreter& in, const Value& value, const Arguments& arguments) {
  const BoundArguments bound(&in, "sort", arguments, 0, {"reverse", "case_sensitive", "attribute"});
  std::span<const Value> items;
  if (in.failed() || !in.Items(value, &items)) return Value();
  std::vector<Path> paths;
  if (bound[2].is_string()) {
    for (const absl::string_view attribute : Split(bound[2].str(), ",", -1)) {
      paths.push_back(PathOf(in, Value::String(attribute)));
    }
  } else {
    paths.push_back(bound.given(2) ? PathOf(in, bound[2]) : Path());
  }
  std::vector<Keyed> keyed;
  keyed.reserve(items.size());
  std::vector<Value> key(paths.size());
  for (const Value& item : items) {
    for (size_t i = 0; i < paths.size() && !in.failed(); ++i) {
      key[i] = Follow(in, item, paths[i]);
      if (!bound.Bool(1, false)) key[i] = IgnoreCase(in, key[i]);
    }
    if (in.failed()) return Value();
    keyed.push_back({.key = in.NewList(key), .value = item});
  }
  SortByKey(in, bound.Bool(0, false), &keyed);
  return ListOfValues(in, keyed);
}

Value DictSort(JinjaInterpreter& in, const Value& value, const Arguments& arguments) {
  const BoundArguments bound(&in, "dictsort", arguments, 0, {"case_sensitive", "by", "reverse"});
  const absl::string_view by = bound.Text(1, "key");
  if (in.failed()) return Value();
  if (by != "key" && by != "value") return in.Fail("dictsort: by must be key or value");
  if (!value.is(ValueKind::kDict)) {
    return value.is_undefined() ? in.FailOperands("", value, value)
                                : in.Fail("dictsort needs a dict");
  }
  Value view = value;
  view.kind = ValueKind::kItemsView;
  std::span<const Value> items;
  if (!in.Items(view, &items)) return Value();
  std::vector<Keyed> keyed =
      WithKeys(in, items, {Value::Int(by == "key" ? 0 : 1)}, bound.Bool(0, false));
  SortByKey(in, bound.Bool(2, false), &keyed);
  return ListOfValues(in, keyed);
}

Value Unique(JinjaInterpreter& in, const Value& value, const Arguments& arguments) {
  const BoundArguments bound(&in, "unique", arguments, 0, {"case_sensitive", "attribute"});
  std::span<const Value> items;
  if (in.failed() || !in.Items(value, &items)) return Value();
  const Value seen = in.NewDict();
  std::vector<Value> result;
  const Path path = bound.given(1) ? PathOf(in, bound[1]) : Path();
  for (const Keyed& item : WithKeys(in, items, path, bound.Bool(0, false))) {
    if (in.failed()) return Value();
    const uint32_t before = seen.dict->size;
    in.Insert(seen.dict, item.key, Value::None());
    if (seen.dict->size != before) result.push_back(item.value);
  }
  return in.NewIterator(result);
}

Value Extreme(JinjaInterpreter& in, const Value& value, const Arguments& arguments, bool is_max) {
  const BoundArguments bound(&in, is_max ? "max" : "min", arguments, 0,
                             {"case_sensitive", "attribute"});
  std::span<const Value> items;
  if (in.failed() || !in.Items(value, &items)) return Value();
  if (items.empty()) return Value::UndefinedBecause("the sequence is empty");
  const Path path = bound.given(1) ? PathOf(in, bound[1]) : Path();
  const std::vector<Keyed> keyed = WithKeys(in, items, path, bound.Bool(0, false));
  if (in.failed()) return Value();
  const Keyed* best = &keyed.front();
  for (const Keyed& item : std::span(keyed).subspan(1)) {
    if (is_max ? in.Compare(Operator::kGreater, item.key, best->key)
               : in.Less(item.key, best->key)) {
      best = &item;
    }
  }
  return best->value;
}

Value Min(JinjaInterpreter& in, const Value& value, const Arguments& arguments) {
  return Extreme(in, value, arguments, /*is_max=*/false);
}

Value Max(JinjaInterpreter& in, const Value& value, const Arguments& arguments) {
  return Extreme(in, value, arguments, /*is_max=*/true);
}

Value Sum(JinjaInterpreter& in, const Value& value, const Arguments& arguments) {
  const BoundArguments bound(&in, "sum", arguments, 0, {"attribute", "start"});
  std::span<const Value> items;
  if (in.failed() || !in.Items(value, &items)) return Value();
  Value sum = bound.given(1) ? bound[1] : Value::Int(0);
  if (sum.is_string()) return in.Fail("sum does not add strings");
  const Path path = bound.given(0) ? PathOf(in, bound[0]) : Path();
  for (const Value& item : items) {
    if (in.failed()) break;
    const Value next = Follow(in, item, path);
    if (!in.failed()) sum = in.Binary(Operator::kAdd, sum, next);
  }
  return sum;
}

Value GroupBy(JinjaInterpreter& in, const Value& value, const Arguments& arguments) {
  const BoundArguments bound(&in, "groupby", arguments, 1,
                             {"attribute", "default", "case_sensitive"});
  std::span<const Value> items;
  if (in.failed() || !in.Items(value, &items)) return Value();
  const Path path = PathOf(in, bound[0]);
  const Value otherwise = bound.given(1) ? bound[1] : Value::None();
  std::vector<Keyed> keyed = WithKeys(in, items, path, bound.Bool(2, false), otherwise);
  SortByKey(in, /*reverse=*/false, &keyed);
  std::vector<Value> groups;
  for (size_t begin = 0; begin < keyed.size() && !in.failed();) {
    std::vector<Value> members;
    size_t end = begin;
    while (end < keyed.size() && (end == begin || in.Equal(keyed[begin].key, keyed[end].key))) {
      members.push_back(keyed[end++].value);
    }
    // Named by the first member, whose case the key may have lost.
    const Value name = Follow(in, members.front(), path, otherwise);
    Value group = in.NewPair(name, in.NewList(members));
    group.is_group = true;
    groups.push_back(group);
    begin = end;
  }
  return in.NewList(groups);
}

Value Join(JinjaInterpreter& in, const Value& value, const Arguments& arguments) {
  const BoundArguments bound(&in, "join", arguments, 0, {"d", "attribute"});
  std::span<const Value> items;
  if (in.failed() || !in.Items(value, &items)) return Value();
  const Path path = bound.given(1) ? PathOf(in, bound[1]) : Path();
  const Value separator = bound.given(0) ? in.ToString(bound[0]) : Value::String("");
  std::string text;
  bool is_first = true;
  for (const Value& item : items) {
    if (!in.failed() && !is_first) in.AppendString(separator, &text);
    is_first = false;
    const Value part = Follow(in, item, path);
    if (in.failed() || !in.AppendString(part, &text)) return Value();
  }
  return in.NewString(text);
}

Value First(JinjaInterpreter& in, const Value& value, const Arguments& arguments) {
  const BoundArguments bound(&in, "first", arguments, 0, {});
  if (value.is(ValueKind::kIterator)) {
    Iterator& iterator = *value.iterator;
    return iterator.at < iterator.size ? iterator.items[iterator.at++]
                                       : Value::UndefinedBecause("the sequence is empty");
  }
  std::span<const Value> items;
  if (in.failed() || !in.Items(value, &items)) return Value();
  return items.empty() ? Value::UndefinedBecause("the sequence is empty") : items.front();
}

Value Last(JinjaInterpreter& in, const Value& value, const Arguments& arguments) {
  const BoundArguments bound(&in, "last", arguments, 0, {});
  if (value.is(ValueKind::kIterator)) return in.Fail("a generator has no last element");
  std::span<const Value> items;
  if (in.failed() || !in.Items(value, &items)) return Value();
  return items.empty() ? Value::UndefinedBecause("the sequence is empty") : items.back();
}

Value List(JinjaInterpreter& in, const Value& value, const Arguments& arguments) {
  const BoundArguments bound(&in, "list", arguments, 0, {});
  std::span<const Value> items;
  if (in.failed() || !in.Items(value, &items)) return Value();
  return in.NewList(items);
}

Value ItemsFilter(JinjaInterpreter& in, const Value& value, const Arguments& arguments) {
  const BoundArguments bound(&in, "items", arguments, 0, {});
  if (value.is_undefined()) return in.NewIterator({});
  if (!value.is(ValueKind::kDict)) return in.Fail("items needs a dict");
  Value view = value;
  view.kind = ValueKind::kItemsView;
  std::span<const Value> items;
  if (!in.Items(view, &items)) return Value();
  return in.NewIterator(items);
}

Value Reverse(JinjaInterpreter& in, const Value& value, const Arguments& arguments) {
  const BoundArguments bound(&in, "reverse", arguments, 0, {});
  if (in.failed()) return Value();
  if (value.is_string()) {
    if (!in.ChargeWork(value.size)) return Value();
    return in.NewString(ReversedCharacters(value.str()));
  }
  std::span<const Value> items;
  if (!in.Items(value, &items)) return Value();
  const std::vector<Value> reversed(items.rbegin(), items.rend());
  return value.is(ValueKind::kIterator) ? in.NewList(reversed) : in.NewIterator(reversed);
}

Value Batch(JinjaInterpreter& in, const Value& value, const Arguments& arguments) {
  const BoundArguments bound(&in, "batch", arguments, 1, {"linecount", "fill_with"});
  const int64_t size = bound.Int(0, 0);
  std::span<const Value> items;
  if (in.failed() || !in.Items(value, &items)) return Value();
  std::vector<Value> batches;
  std::vector<Value> batch;
  for (const Value& item : items) {
    if (static_cast<int64_t>(batch.size()) == size) {
      batches.push_back(in.NewList(batch));
      batch.clear();
    }
    batch.push_back(item);
  }
  if (!batch.empty()) {
    const int64_t missing = size - static_cast<int64_t>(batch.size());
    if (bound.given(1) && !bound[1].is_none() && missing > 0) {
      if (!in.Charge(missing)) return Value();
      batch.insert(batch.end(), static_cast<size_t>(missing), bound[1]);
    }
    batches.push_back(in.NewList(batch));
  }
  return in.NewIterator(batches);
}

Value Slice(JinjaInterpreter& in, const Value& value, const Arguments& arguments) {
  const BoundArguments bound(&in, "slice", arguments, 1, {"slices", "fill_with"});
  const int64_t slices = bound.Int(0, 0);
  std::span<const Value> items;
  if (in.failed() || !in.Items(value, &items)) return Value();
  if (slices == 0) return in.Fail("division by zero");
  if (slices < 0) return in.NewIterator({});
  if (!in.Charge(slices)) return Value();
  const auto count = static_cast<int64_t>(items.size());
  const int64_t per_slice = count / slices, extra = count % slices;
  std::vector<Value> result;
  size_t begin = 0;
  for (int64_t i = 0; i < slices && !in.failed(); ++i) {
    const auto size = static_cast<size_t>(per_slice + (i < extra ? 1 : 0));
    std::vector<Value> slice(items.begin() + begin, items.begin() + begin + size);
    begin += size;
    if (bound.given(1) && !bound[1].is_none() && i >= extra) slice.push_back(bound[1]);
    result.push_back(in.NewList(slice));
  }
  return in.NewIterator(result);
}

// The filter or test that an argument names.
int Named(JinjaInterpreter& in, const Value& name, bool is_filter) {
  const int index = !name.is_string() ? -1
                    : is_filter       ? FindFilter(name.str())
                                      : FindTest(name.str());
  if (index < 0) {
    std::string text;
    if (in.AppendString(name, &text)) {
      in.Fail(absl::StrCat("no ", is_filter ? "filter" : "test", " named '", text, "'"));
    }
  }
  return index;
}

Value Map(JinjaInterpreter& in, const Value& value, const Arguments& arguments) {
  if (!IsTrue(value)) return in.NewIterator({});
  std::span<const Value> items;
  if (!in.Items(value, &items)) return Value();
  std::vector<Value> result;
  result.reserve(items.size());
  const bool by_attribute =
      arguments.positional.empty() &&
      std::any_of(arguments.keyword.begin(), arguments.keyword.end(),
                  [](const KeywordArgument& keyword) { return keyword.name == "attribute"; });
  if (by_attribute) {
    const BoundArguments bound(&in, "map", arguments, 0, {"attribute", "default"});
    const Path path = in.failed() ? Path() : PathOf(in, bound[0]);
    const Value otherwise = bound.given(1) ? bound[1] : Value::None();
    for (const Value& item : items) {
      if (in.failed()) return Value();
      result.push_back(Follow(in, item, path, otherwise));
    }
    return in.NewIterator(result);
  }
  if (arguments.positional.empty()) return in.Fail("map needs the name of a filter");
  const int filter = Named(in, arguments.positional[0], /*is_filter=*/true);
  const Arguments rest = {.positional = arguments.positional.subspan(1),
                          .keyword = arguments.keyword};
  const JinjaInterpreter::Level level(&in);
  for (const Value& item : items) {
    if (in.failed()) return Value();
    result.push_back(CallFilter(in, filter, item, rest));
  }
  return in.NewIterator(result);
}

// select and reject by a test of the value or, if `by_attribute`, of an attribute of it.
Value Choose(JinjaInterpreter& in, const Value& value, const Arguments& arguments, bool keeps,
             bool by_attribute) {
  if (!IsTrue(value)) return in.NewIterator({});
  std::span<const Value> items;
  if (!in.Items(value, &items)) return Value();
  const size_t place = by_attribute ? 1 : 0;
  if (arguments.positional.size() < place) return in.Fail("the name of an attribute is missing");
  const Path path = by_attribute ? PathOf(in, arguments.positional[0]) : Path();
  const bool has_test = arguments.positional.size() > place;
  const int test = has_test ? Named(in, arguments.positional[place], /*is_filter=*/false) : -1;
  const Arguments rest = {.positional = arguments.positional.subspan(has_test ? place + 1 : place),
                          .keyword = arguments.keyword};
  std::vector<Value> result;
  for (const Value& item : items) {
    if (!in.Charge(1)) return Value();
    const Value tested = Follow(in, item, path);
    if (in.failed()) return Value();
    const bool holds = has_test ? CallTest(in, test, tested, rest) : IsTrue(tested);
    if (holds == keeps) result.push_back(item);
  }
  return in.failed() ? Value() : in.NewIterator(result);
}

Value Select(JinjaInterpreter& in, const Value& value, const Arguments& arguments) {
  return Choose(in, value, arguments, /*keeps=*/true, /*by_attribute=*/false);
}

Value Reject(JinjaInterpreter& in, const Value& value, const Arguments& arguments) {
  return Choose(in, value, arguments, /*keeps=*/false, /*by_attribute=*/false);
}

Value SelectAttr(JinjaInterpreter& in, const Value& value, const Arguments& arguments) {
  return Choose(in, value, arguments, /*keeps=*/true, /*by_attribute=*/true);
}

Value RejectAttr(JinjaInterpreter& in, const Value& value, const Arguments& arguments) {
  return Choose(in, value, arguments, /*keeps=*/false, /*by_attribute=*/true);
}

constexpr NamedFilter kSequenceFilters[] = {
    {"batch", Batch},
    {"dictsort", DictSort},
    {"first", First},
    {"groupby", GroupBy},
    {"items", ItemsFilter},
    {"join", Join, true},
    {"last", Last},
    {"list", List},
    {"map", Map},
    {"max", Max},
    {"min", Min},
    {"reject", Reject},
    {"rejectattr", RejectAttr},
    {"reverse", Reverse},
    {"select", Select},
    {"selectattr", SelectAttr},
    {"slice", Slice},
    {"sort", Sort},
    {"sum", Sum},
    {"unique", Unique},
};

}  // namespace

std::span<const NamedFilter> SequenceFilters() { return kSequenceFilters; }

}  // namespace stampmill
