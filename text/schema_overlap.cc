#include "text/schema_overlap.h"

#include <algorithm>
#include <boost/json/array.hpp>
#include <boost/json/object.hpp>
#include <optional>
#include <string>
#include <vector>

namespace stampmill {

namespace json = boost::json;

namespace {

// References within each other that are followed; beyond, nothing is claimed.
constexpr int kDepthMax = 12;
// Pairs that one question may compare.
constexpr int kPairsMax = 10'000;

bool AreEqual(const json::value& a, const json::value& b) {
  if (a.is_number() && b.is_number()) return a.to_number<double>() == b.to_number<double>();
  return a == b;
}

std::string TypeOf(const json::value& value) {
  switch (value.kind()) {
    case json::kind::null:
      return "null";
    case json::kind::bool_:
      return "boolean";
    case json::kind::string:
      return "string";
    case json::kind::array:
      return "array";
    case json::kind::object:
      return "object";
    default:
      return "number";
  }
}

class Comparison {
 public:
  explicit Comparison(const json::value& root) : root_(root) {}

  bool AreApart(const json::value& a, const json::value& b, int depth) {
    if (depth > kDepthMax || ++pairs_ > kPairsMax) return false;
    const json::object* const left = Resolved(a);
    const json::object* const right = Resolved(b);
    if (left == nullptr || right == nullptr) return false;
    for (const auto& [one, other] : {std::pair(left, right), std::pair(right, left)}) {
      for (const char* name : {"anyOf", "oneOf"}) {
        const json::value* const choices = one->if_contains(name);
        if (choices == nullptr || !choices->is_array()) continue;
        return std::ranges::all_of(choices->get_array(), [&](const json::value& choice) {
          return AreApart(choice, json::value(*other), depth + 1);
        });
      }
    }
    return HaveNoTypeInCommon(*left, *right) || HaveNoConstantInCommon(*left, *right) ||
           HaveAPropertyApart(*left, *right, depth);
  }

 private:
  const json::object* Resolved(const json::value& schema) const {
    const json::value* at = &schema;
    for (int i = 0; i < kDepthMax && at != nullptr && at->is_object(); ++i) {
      const json::value* const reference = at->get_object().if_contains("$ref");
      if (reference == nullptr) return &at->get_object();
      if (!reference->is_string() || reference->get_string().empty()) return nullptr;
      boost::system::error_code error;
      at = root_.find_pointer(json::string_view(reference->get_string()).substr(1), error);
    }
    return nullptr;
  }

  static std::optional<std::vector<json::value>> ConstantsOf(const json::object& schema) {
    if (const json::value* const value = schema.if_contains("const")) {
      return std::vector<json::value>{*value};
    }
    const json::value* const values = schema.if_contains("enum");
    if (values == nullptr || !values->is_array()) return std::nullopt;
    return std::vector<json::value>(values->get_array().begin(), values->get_array().end());
  }

  // Nothing: any. Integers are numbers.
  static std::vector<std::string> TypesOf(const json::object& schema) {
    std::vector<std::string> types;
    const auto add = [&](const json::value& type) {
      if (!type.is_string()) return;
      const std::string name(type.get_string().c_str());
      types.push_back(name == "integer" ? "number" : name);
    };
    if (const json::value* const type = schema.if_contains("type")) {
      if (type->is_array()) std::ranges::for_each(type->get_array(), add);
      if (type->is_string()) add(*type);
    } else if (const auto constants = ConstantsOf(schema)) {
      for (const json::value& constant : *constants) types.push_back(TypeOf(constant));
    }
    return types;
  }

  static bool HaveNoTypeInCommon(const json::object& a, const json::object& b) {
    const std::vector<std::string> left = TypesOf(a), right = TypesOf(b);
    if (left.empty() || right.empty()) return false;
    return std::ranges::none_of(left, [&](const std::string& type) {
      return std::ranges::find(right, type) != right.end();
    });
  }

  static bool HaveNoConstantInCommon(const json::object& a, const json::object& b) {
    const auto left = ConstantsOf(a), right = ConstantsOf(b);
    if (!left.has_value() || !right.has_value()) return false;
    return std::ranges::none_of(*left, [&](const json::value& value) {
      return std::ranges::any_of(*right,
                                 [&](const json::value& other) { return AreEqual(value, other); });
    });
  }

  static bool IsObject(const json::object& schema) {
    return TypesOf(schema) == std::vector<std::string>{"object"};
  }

  static bool Requires(const json::object& schema, json::string_view name) {
    const json::value* const required = schema.if_contains("required");
    return required != nullptr && required->is_array() &&
           std::ranges::any_of(required->get_array(), [&](const json::value& each) {
             return each.is_string() && each.get_string() == name;
           });
  }

  bool HaveAPropertyApart(const json::object& a, const json::object& b, int depth) {
    if (!IsObject(a) || !IsObject(b)) return false;
    const json::value* const left = a.if_contains("properties");
    const json::value* const right = b.if_contains("properties");
    if (left == nullptr || right == nullptr || !left->is_object() || !right->is_object()) {
      return false;
    }
    return std::ranges::any_of(left->get_object(), [&](const json::key_value_pair& property) {
      const json::value* const other = right->get_object().if_contains(property.key());
      return other != nullptr && Requires(a, property.key()) && Requires(b, property.key()) &&
             AreApart(property.value(), *other, depth + 1);
    });
  }

  const json::value& root_;
  int pairs_ = 0;
};

}  // namespace

bool SchemasAreApart(const json::value& root, const json::value& a, const json::value& b) {
  return Comparison(root).AreApart(a, b, 0);
}

}  // namespace stampmill
