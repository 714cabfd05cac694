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
using Path = std::vector<JinjaValue>;

Path PathOf(JinjaInterpreter& in, const JinjaValue& attribute) {
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
      path.push_back(JinjaValue::String(part));
      continue;
    }
    const std::optional<int64_t> index = ParseInt(part, 10, &overflows);
    if (!index.has_value()) in.Fail("an integer is beyond 64 bits");
    path.push_back(JinjaValue::Int(index.value_or(0)));
  }
  return path;
}

JinjaValue Follow(JinjaInterpreter& in, JinjaValue item, const Path& path,
                  const JinjaValue& otherwise) {
  for (const JinjaValue& part : path) {
    if (in.failed()) return JinjaValue();
    item = in.GetItem(item, part);
    if (item.is_undefined() && !otherwise.is_none()) item = otherwise;
  }
  return item;
}

JinjaValue Follow(JinjaInterpreter& in, const JinjaValue& item, const Path& path) {
  return Follow(in, item, path, JinjaValue::None());
}

JinjaValue IgnoreCase(JinjaInterpreter& in, const JinjaValue& value) {
  if (!value.is_string() || !in.ChargeWork(value.size)) return value;
  return in.NewString(LowerCase(value.str()));
}

// Values beside what they are compared by.
struct Keyed {
  JinjaValue key;
  JinjaValue value;
};

std::vector<Keyed> WithKeys(JinjaInterpreter& in, std::span<const JinjaValue> items,
                            const Path& path, bool case_sensitive,
                            const JinjaValue& otherwise = JinjaValue::None()) {
  std::vector<Keyed> result;
  result.reserve(items.size());
  for (const JinjaValue& item : items) {
    if (in.failed()) break;
    JinjaValue key = Follow(in, item, path, otherwise);
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

JinjaValue ListOfValues(JinjaInterpreter& in, const std::vector<Keyed>& items) {
  std::vector<JinjaValue> values;
  values.reserve(items.size());
  for (const Keyed& item : items) values.push_back(item.value);
  return in.NewList(values);
}

JinjaValue Sort(JinjaInterpreter& in, const JinjaValue& value, const Arguments& arguments) {
  const BoundArguments bound(&in, "sort", arguments, 0, {"reverse", "case_sensitive", "attribute"});
  std::span<const JinjaValue> items;
  if (in.failed() || !in.Items(value, &items)) return JinjaValue();
  std::vector<Path> paths;
  if (bound[2].is_string()) {
    for (const absl::string_view attribute : Split(bound[2].str(), ",", -1)) {
      paths.push_back(PathOf(in, JinjaValue::String(attribute)));
    }
  } else {
    paths.push_back(bound.given(2) ? PathOf(in, bound[2]) : Path());
  }
  std::vector<Keyed> keyed;
  keyed.reserve(items.size());
  std::vector<JinjaValue> key(paths.size());
  for (const JinjaValue& item : items) {
    for (size_t i = 0; i < paths.size() && !in.failed(); ++i) {
      key[i] = Follow(in, item, paths[i]);
      if (!bound.Bool(1, false)) key[i] = IgnoreCase(in, key[i]);
    }
    if (in.failed()) return JinjaValue();
    keyed.push_back({.key = in.NewList(key), .value = item});
  }
  SortByKey(in, bound.Bool(0, false), &keyed);
  return ListOfValues(in, keyed);
}

JinjaValue DictSort(JinjaInterpreter& in, const JinjaValue& value, const Arguments& arguments) {
  const BoundArguments bound(&in, "dictsort", arguments, 0, {"case_sensitive", "by", "reverse"});
  const absl::string_view by = bound.Text(1, "key");
  if (in.failed()) return JinjaValue();
  if (by != "key" && by != "value") return in.Fail("dictsort: by must be key or value");
  if (!value.is(ValueKind::kDict)) {
    return value.is_undefined() ? in.FailOperands("", value, value)
                                : in.Fail("dictsort needs a dict");
  }
  JinjaValue view = value;
  view.kind = ValueKind::kItemsView;
  std::span<const JinjaValue> items;
  if (!in.Items(view, &items)) return JinjaValue();
  std::vector<Keyed> keyed =
      WithKeys(in, items, {JinjaValue::Int(by == "key" ? 0 : 1)}, bound.Bool(0, false));
  SortByKey(in, bound.Bool(2, false), &keyed);
  return ListOfValues(in, keyed);
}

JinjaValue Unique(JinjaInterpreter& in, const JinjaValue& value, const Arguments& arguments) {
  const BoundArguments bound(&in, "unique", arguments, 0, {"case_sensitive", "attribute"});
  std::span<const JinjaValue> items;
  if (in.failed() || !in.Items(value, &items)) return JinjaValue();
  const JinjaValue seen = in.NewDict();
  std::vector<JinjaValue> result;
  const Path path = bound.given(1) ? PathOf(in, bound[1]) : Path();
  for (const Keyed& item : WithKeys(in, items, path, bound.Bool(0, false))) {
    if (in.failed()) return JinjaValue();
    const uint32_t before = seen.dict->size;
    in.Insert(seen.dict, item.key, JinjaValue::None());
    if (seen.dict->size != before) result.push_back(item.value);
  }
  return in.NewIterator(result);
}

JinjaValue Extreme(JinjaInterpreter& in, const JinjaValue& value, const Arguments& arguments,
                   bool is_max) {
  const BoundArguments bound(&in, is_max ? "max" : "min", arguments, 0,
                             {"case_sensitive", "attribute"});
  std::span<const JinjaValue> items;
  if (in.failed() || !in.Items(value, &items)) return JinjaValue();
  if (items.empty()) return JinjaValue::UndefinedBecause("the sequence is empty");
  const Path path = bound.given(1) ? PathOf(in, bound[1]) : Path();
  const std::vector<Keyed> keyed = WithKeys(in, items, path, bound.Bool(0, false));
  if (in.failed()) return JinjaValue();
  const Keyed* best = &keyed.front();
  for (const Keyed& item : std::span(keyed).subspan(1)) {
    if (is_max ? in.Compare(Operator::kGreater, item.key, best->key)
               : in.Less(item.key, best->key)) {
      best = &item;
    }
  }
  return best->value;
}

JinjaValue Min(JinjaInterpreter& in, const JinjaValue& value, const Arguments& arguments) {
  return Extreme(in, value, arguments, /*is_max=*/false);
}

JinjaValue Max(JinjaInterpreter& in, const JinjaValue& value, const Arguments& arguments) {
  return Extreme(in, value, arguments, /*is_max=*/true);
}

JinjaValue Sum(JinjaInterpreter& in, const JinjaValue& value, const Arguments& arguments) {
  const BoundArguments bound(&in, "sum", arguments, 0, {"attribute", "start"});
  std::span<const JinjaValue> items;
  if (in.failed() || !in.Items(value, &items)) return JinjaValue();
  JinjaValue sum = bound.given(1) ? bound[1] : JinjaValue::Int(0);
  if (sum.is_string()) return in.Fail("sum does not add strings");
  const Path path = bound.given(0) ? PathOf(in, bound[0]) : Path();
  for (const JinjaValue& item : items) {
    if (in.failed()) break;
    const JinjaValue next = Follow(in, item, path);
    if (!in.failed()) sum = in.Binary(Operator::kAdd, sum, next);
  }
  return sum;
}

JinjaValue GroupBy(JinjaInterpreter& in, const JinjaValue& value, const Arguments& arguments) {
  const BoundArguments bound(&in, "groupby", arguments, 1,
                             {"attribute", "default", "case_sensitive"});
  std::span<const JinjaValue> items;
  if (in.failed() || !in.Items(value, &items)) return JinjaValue();
  const Path path = PathOf(in, bound[0]);
  const JinjaValue otherwise = bound.given(1) ? bound[1] : JinjaValue::None();
  std::vector<Keyed> keyed = WithKeys(in, items, path, bound.Bool(2, false), otherwise);
  SortByKey(in, /*reverse=*/false, &keyed);
  std::vector<JinjaValue> groups;
  for (size_t begin = 0; begin < keyed.size() && !in.failed();) {
    std::vector<JinjaValue> members;
    size_t end = begin;
    while (end < keyed.size() && (end == begin || in.Equal(keyed[begin].key, keyed[end].key))) {
      members.push_back(keyed[end++].value);
    }
    // Named by the first member, whose case the key may have lost.
    const JinjaValue name = Follow(in, members.front(), path, otherwise);
    JinjaValue group = in.NewPair(name, in.NewList(members));
    group.is_group = true;
    groups.push_back(group);
    begin = end;
  }
  return in.NewList(groups);
}

JinjaValue Join(JinjaInterpreter& in, const JinjaValue& value, const Arguments& arguments) {
  const BoundArguments bound(&in, "join", arguments, 0, {"d", "attribute"});
  std::span<const JinjaValue> items;
  if (in.failed() || !in.Items(value, &items)) return JinjaValue();
  const Path path = bound.given(1) ? PathOf(in, bound[1]) : Path();
  const JinjaValue separator = bound.given(0) ? in.ToString(bound[0]) : JinjaValue::String("");
  std::string text;
  bool is_first = true;
  for (const JinjaValue& item : items) {
    if (!in.failed() && !is_first) in.AppendString(separator, &text);
    is_first = false;
    const JinjaValue part = Follow(in, item, path);
    if (in.failed() || !in.AppendString(part, &text)) return JinjaValue();
  }
  return in.NewString(text);
}

JinjaValue First(JinjaInterpreter& in, const JinjaValue& value, const Arguments& arguments) {
  const BoundArguments bound(&in, "first", arguments, 0, {});
  if (value.is(ValueKind::kIterator)) {
    Iterator& iterator = *value.iterator;
    return iterator.at < iterator.size ? iterator.items[iterator.at++]
                                       : JinjaValue::UndefinedBecause("the sequence is empty");
  }
  std::span<const JinjaValue> items;
  if (in.failed() || !in.Items(value, &items)) return JinjaValue();
  return items.empty() ? JinjaValue::UndefinedBecause("the sequence is empty") : items.front();
}

JinjaValue Last(JinjaInterpreter& in, const JinjaValue& value, const Arguments& arguments) {
  const BoundArguments bound(&in, "last", arguments, 0, {});
  if (value.is(ValueKind::kIterator)) return in.Fail("a generator has no last element");
  std::span<const JinjaValue> items;
  if (in.failed() || !in.Items(value, &items)) return JinjaValue();
  return items.empty() ? JinjaValue::UndefinedBecause("the sequence is empty") : items.back();
}

JinjaValue List(JinjaInterpreter& in, const JinjaValue& value, const Arguments& arguments) {
  const BoundArguments bound(&in, "list", arguments, 0, {});
  std::span<const JinjaValue> items;
  if (in.failed() || !in.Items(value, &items)) return JinjaValue();
  return in.NewList(items);
}

JinjaValue ItemsFilter(JinjaInterpreter& in, const JinjaValue& value, const Arguments& arguments) {
  const BoundArguments bound(&in, "items", arguments, 0, {});
  if (value.is_undefined()) return in.NewIterator({});
  if (!value.is(ValueKind::kDict)) return in.Fail("items needs a dict");
  JinjaValue view = value;
  view.kind = ValueKind::kItemsView;
  std::span<const JinjaValue> items;
  if (!in.Items(view, &items)) return JinjaValue();
  return in.NewIterator(items);
}

JinjaValue Reverse(JinjaInterpreter& in, const JinjaValue& value, const Arguments& arguments) {
  const BoundArguments bound(&in, "reverse", arguments, 0, {});
  if (in.failed()) return JinjaValue();
  if (value.is_string()) {
    if (!in.ChargeWork(value.size)) return JinjaValue();
    return in.NewString(ReversedCharacters(value.str()));
  }
  std::span<const JinjaValue> items;
  if (!in.Items(value, &items)) return JinjaValue();
  const std::vector<JinjaValue> reversed(items.rbegin(), items.rend());
  return value.is(ValueKind::kIterator) ? in.NewList(reversed) : in.NewIterator(reversed);
}

JinjaValue Batch(JinjaInterpreter& in, const JinjaValue& value, const Arguments& arguments) {
  const BoundArguments bound(&in, "batch", arguments, 1, {"linecount", "fill_with"});
  const int64_t size = bound.Int(0, 0);
  std::span<const JinjaValue> items;
  if (in.failed() || !in.Items(value, &items)) return JinjaValue();
  std::vector<JinjaValue> batches;
  std::vector<JinjaValue> batch;
  for (const JinjaValue& item : items) {
    if (static_cast<int64_t>(batch.size()) == size) {
      batches.push_back(in.NewList(batch));
      batch.clear();
    }
    batch.push_back(item);
  }
  if (!batch.empty()) {
    const int64_t missing = size - static_cast<int64_t>(batch.size());
    if (bound.given(1) && !bound[1].is_none() && missing > 0) {
      if (!in.Charge(missing)) return JinjaValue();
      batch.insert(batch.end(), static_cast<size_t>(missing), bound[1]);
    }
    batches.push_back(in.NewList(batch));
  }
  return in.NewIterator(batches);
}

JinjaValue Slice(JinjaInterpreter& in, const JinjaValue& value, const Arguments& arguments) {
  const BoundArguments bound(&in, "slice", arguments, 1, {"slices", "fill_with"});
  const int64_t slices = bound.Int(0, 0);
  std::span<const JinjaValue> items;
  if (in.failed() || !in.Items(value, &items)) return JinjaValue();
  if (slices == 0) return in.Fail("division by zero");
  if (slices < 0) return in.NewIterator({});
  if (!in.Charge(slices)) return JinjaValue();
  const auto count = static_cast<int64_t>(items.size());
  const int64_t per_slice = count / slices, extra = count % slices;
  std::vector<JinjaValue> result;
  size_t begin = 0;
  for (int64_t i = 0; i < slices && !in.failed(); ++i) {
    const auto size = static_cast<size_t>(per_slice + (i < extra ? 1 : 0));
    std::vector<JinjaValue> slice(items.begin() + begin, items.begin() + begin + size);
    begin += size;
    if (bound.given(1) && !bound[1].is_none() && i >= extra) slice.push_back(bound[1]);
    result.push_back(in.NewList(slice));
  }
  return in.NewIterator(result);
}

// The filter or test that an argument names.
int Named(JinjaInterpreter& in, const JinjaValue& name, bool is_filter) {
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

JinjaValue Map(JinjaInterpreter& in, const JinjaValue& value, const Arguments& arguments) {
  if (!IsTrue(value)) return in.NewIterator({});
  std::span<const JinjaValue> items;
  if (!in.Items(value, &items)) return JinjaValue();
  std::vector<JinjaValue> result;
  result.reserve(items.size());
  const bool by_attribute =
      arguments.positional.empty() &&
      std::any_of(arguments.keyword.begin(), arguments.keyword.end(),
                  [](const KeywordArgument& keyword) { return keyword.name == "attribute"; });
  if (by_attribute) {
    const BoundArguments bound(&in, "map", arguments, 0, {"attribute", "default"});
    const Path path = in.failed() ? Path() : PathOf(in, bound[0]);
    const JinjaValue otherwise = bound.given(1) ? bound[1] : JinjaValue::None();
    for (const JinjaValue& item : items) {
      if (in.failed()) return JinjaValue();
      result.push_back(Follow(in, item, path, otherwise));
    }
    return in.NewIterator(result);
  }
  if (arguments.positional.empty()) return in.Fail("map needs the name of a filter");
  const int filter = Named(in, arguments.positional[0], /*is_filter=*/true);
  const Arguments rest = {.positional = arguments.positional.subspan(1),
                          .keyword = arguments.keyword};
  const JinjaInterpreter::Level level(&in);
  for (const JinjaValue& item : items) {
    if (in.failed()) return JinjaValue();
    result.push_back(CallFilter(in, filter, item, rest));
  }
  return in.NewIterator(result);
}

// select and reject by a test of the value or, if `by_attribute`, of an attribute of it.
JinjaValue Choose(JinjaInterpreter& in, const JinjaValue& value, const Arguments& arguments,
                  bool keeps, bool by_attribute) {
  if (!IsTrue(value)) return in.NewIterator({});
  std::span<const JinjaValue> items;
  if (!in.Items(value, &items)) return JinjaValue();
  const size_t place = by_attribute ? 1 : 0;
  if (arguments.positional.size() < place) return in.Fail("the name of an attribute is missing");
  const Path path = by_attribute ? PathOf(in, arguments.positional[0]) : Path();
  const bool has_test = arguments.positional.size() > place;
  const int test = has_test ? Named(in, arguments.positional[place], /*is_filter=*/false) : -1;
  const Arguments rest = {.positional = arguments.positional.subspan(has_test ? place + 1 : place),
                          .keyword = arguments.keyword};
  std::vector<JinjaValue> result;
  for (const JinjaValue& item : items) {
    if (!in.Charge(1)) return JinjaValue();
    const JinjaValue tested = Follow(in, item, path);
    if (in.failed()) return JinjaValue();
    const bool holds = has_test ? CallTest(in, test, tested, rest) : IsTrue(tested);
    if (holds == keeps) result.push_back(item);
  }
  return in.failed() ? JinjaValue() : in.NewIterator(result);
}

JinjaValue Select(JinjaInterpreter& in, const JinjaValue& value, const Arguments& arguments) {
  return Choose(in, value, arguments, /*keeps=*/true, /*by_attribute=*/false);
}

JinjaValue Reject(JinjaInterpreter& in, const JinjaValue& value, const Arguments& arguments) {
  return Choose(in, value, arguments, /*keeps=*/false, /*by_attribute=*/false);
}

JinjaValue SelectAttr(JinjaInterpreter& in, const JinjaValue& value, const Arguments& arguments) {
  return Choose(in, value, arguments, /*keeps=*/true, /*by_attribute=*/true);
}

JinjaValue RejectAttr(JinjaInterpreter& in, const JinjaValue& value, const Arguments& arguments) {
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
