#include "server/openai/fields.h"

#include <boost/json/parse.hpp>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/openai/errors.h"

namespace stampmill {

namespace json = boost::json;

namespace {

// Nesting of a request, as on the KServe side.
constexpr size_t kJsonDepthMax = 100;

absl::Status WrongType(absl::string_view path, const json::value& value,
                       absl::string_view expected) {
  return FieldError(path, absl::StrCat("got ", JsonKind(value), ", expected ", expected));
}

}  // namespace

absl::StatusOr<json::object> ParseJsonObject(absl::string_view body) {
  boost::system::error_code error;
  json::parse_options options;
  options.max_depth = kJsonDepthMax;
  json::value value = json::parse({body.data(), body.size()}, error, {}, options);
  if (error) {
    return absl::InvalidArgumentError(
        absl::StrCat("request body: no valid JSON: ", error.message()));
  }
  if (!value.is_object()) {
    return absl::InvalidArgumentError(
        absl::StrCat("request body: got ", JsonKind(value), ", expected an object"));
  }
  return std::move(value.get_object());
}

absl::string_view JsonKind(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return "null";
    case json::kind::bool_:
      return "a boolean";
    case json::kind::int64:
    case json::kind::uint64:
    case json::kind::double_:
      return "a number";
    case json::kind::string:
      return "a string";
    case json::kind::array:
      return "an array";
    case json::kind::object:
      return "an object";
  }
  return "nothing";
}

absl::string_view JsonText(const json::value& string) {
  const json::string& text = string.get_string();
  return {text.data(), text.size()};
}

absl::StatusOr<int64_t> IntegerOf(const json::value& value, int64_t min, int64_t max,
                                  absl::string_view path) {
  int64_t integer = 0;
  const auto outside = [&](const auto& got) {
    return FieldError(path, absl::StrCat("got ", got, ", limit ", min, " to ", max));
  };
  if (value.is_int64()) {
    integer = value.get_int64();
  } else if (value.is_uint64()) {  // more than int64 holds
    return outside(value.get_uint64());
  } else if (value.is_double()) {
    const double number = value.get_double();
    if (number != std::floor(number)) {
      return FieldError(path, absl::StrCat("got ", number, ", expected an integer"));
    }
    // 2^53 and beyond, doubles do not tell integers apart.
    if (std::abs(number) > 9007199254740992.0) return outside(number);
    integer = static_cast<int64_t>(number);
  } else {
    return WrongType(path, value, "an integer");
  }
  if (integer < min || integer > max) return outside(integer);
  return integer;
}

void JsonFields::Fail(absl::Status status) {
  if (status_.ok()) status_ = std::move(status);
}

void JsonFields::Fail(absl::string_view name, absl::string_view message) {
  Fail(FieldError(Path(name), message));
}

const json::value* JsonFields::Find(absl::string_view name) const {
  const json::value* value = object_.if_contains({name.data(), name.size()});
  return value == nullptr || value->is_null() ? nullptr : value;
}

std::string JsonFields::Path(absl::string_view name) const { return absl::StrCat(path_, name); }

void JsonFields::Bool(absl::string_view name, bool& out) {
  const json::value* value = Find(name);
  if (value == nullptr) return;
  if (!value->is_bool()) return Fail(WrongType(Path(name), *value, "a boolean"));
  out = value->get_bool();
}

void JsonFields::String(absl::string_view name, std::string& out) {
  const json::value* value = Find(name);
  if (value == nullptr) return;
  if (!value->is_string()) return Fail(WrongType(Path(name), *value, "a string"));
  out = std::string(JsonText(*value));
}

void JsonFields::Int(absl::string_view name, int64_t min, int64_t max, int32_t& out) {
  std::optional<int32_t> value;
  Int(name, min, max, value);
  out = value.value_or(out);
}

void JsonFields::Int(absl::string_view name, int64_t min, int64_t max,
                     std::optional<int32_t>& out) {
  const json::value* value = Find(name);
  if (value == nullptr) return;
  const absl::StatusOr<int64_t> integer = IntegerOf(*value, min, max, Path(name));
  if (!integer.ok()) return Fail(integer.status());
  out = static_cast<int32_t>(*integer);
}

void JsonFields::Float(absl::string_view name, double min, double max, float& out) {
  const json::value* value = Find(name);
  if (value == nullptr) return;
  if (!value->is_number()) return Fail(WrongType(Path(name), *value, "a number"));
  const double number = value->to_number<double>();
  // Not a number fails as well.
  if (!(number >= min && number <= max)) {
    return Fail(name, absl::StrCat("got ", number, ", limit ", min, " to ", max));
  }
  out = static_cast<float>(number);
}

const json::object* JsonFields::Object(absl::string_view name) {
  const json::value* value = Find(name);
  if (value == nullptr) return nullptr;
  if (!value->is_object()) Fail(WrongType(Path(name), *value, "an object"));
  return value->if_object();
}

const json::array* JsonFields::Array(absl::string_view name) {
  const json::value* value = Find(name);
  if (value == nullptr) return nullptr;
  if (!value->is_array()) Fail(WrongType(Path(name), *value, "an array"));
  return value->if_array();
}

void JsonFields::Tokens(absl::string_view name, size_t count_max, std::vector<int32_t>& out) {
  const json::array* array = Array(name);
  if (array == nullptr) return;
  if (array->size() > count_max) {
    return Fail(name, absl::StrCat("got ", array->size(), " entries, limit ", count_max));
  }
  out.clear();
  out.reserve(array->size());
  for (size_t i = 0; i < array->size(); ++i) {
    const absl::StatusOr<int64_t> token = IntegerOf(
        (*array)[i], 0, std::numeric_limits<int32_t>::max(), absl::StrCat(Path(name), "[", i, "]"));
    if (!token.ok()) return Fail(token.status());
    out.push_back(static_cast<int32_t>(*token));
  }
}

}  // namespace stampmill
