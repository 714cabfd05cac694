#include "text/json_schema.h"

#include <algorithm>
#include <boost/json/serialize.hpp>
#include <cmath>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/status_macros.h"
#include "text/grammar_builder.h"
#include "text/number_grammar.h"
#include "text/regex_grammar.h"
#include "text/regex_syntax.h"
#include "text/schema_overlap.h"
#include "text/utf8.h"

namespace stampmill {
namespace {

using Piece = GrammarBuilder::Piece;

constexpr absl::string_view kTypes[] = {"null",   "boolean", "integer", "number",
                                        "string", "array",   "object"};

// What says nothing about which documents are accepted.
constexpr absl::string_view kAnnotations[] = {
    "$schema",       "$id",         "$comment", "$defs",           "definitions",
    "title",         "description", "default",  "deprecated",      "readOnly",
    "writeOnly",     "examples",    "$anchor",  "contentEncoding", "contentMediaType",
    "discriminator",
};

constexpr absl::string_view kConstraints[] = {
    "type",
    "enum",
    "const",
    "properties",
    "required",
    "additionalProperties",
    "items",
    "minItems",
    "maxItems",
    "minLength",
    "maxLength",
    "anyOf",
    "allOf",
    "$ref",
    "prefixItems",
    "oneOf",
    "pattern",
    "format",
    "minimum",
    "maximum",
    "exclusiveMinimum",
    "exclusiveMaximum",
};

// What a format is taken for: texts that have it, if not all of them (of February, 28 days). Others
// of the standard are refused, and those that it does not know say nothing.
constexpr std::pair<absl::string_view, absl::string_view> kFormats[] = {
    {"date", "DATE"},
    {"time", "TIME"},
    {"date-time", "DATE[Tt]TIME"},
    {"duration", "P(\\d{1,4}W|\\d{1,4}D(TCLOCK)?|\\d{1,4}Y(\\d{1,3}M(\\d{1,3}D)?)?|TCLOCK)"},
    {"email", "[A-Za-z0-9_+-]{1,32}(\\.[A-Za-z0-9_+-]{1,16}){0,2}@HOST"},
    {"hostname", "HOST"},
    {"ipv4", "(BYTE\\.){3}BYTE"},
    {"ipv6", "([0-9a-f]{1,4}:){7}[0-9a-f]{1,4}"},
    {"uri", "https?://HOST(/[A-Za-z0-9._~-]{1,32}){0,8}/?"},
    {"uuid", "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"},
};
constexpr std::pair<absl::string_view, absl::string_view> kFormatParts[] = {
    {"DATE",
     "[1-9]\\d{3}-((0[13578]|1[02])-(0[1-9]|[12]\\d|3[01])|(0[469]|11)-(0[1-9]|[12]\\d|30)|"
     "02-(0[1-9]|1\\d|2[0-8]))"},
    {"TIME", "([01]\\d|2[0-3]):[0-5]\\d:[0-5]\\d(\\.\\d{1,6})?(Z|[+-]([01]\\d|2[0-3]):[0-5]\\d)"},
    {"CLOCK", "(\\d{1,3}H(\\d{1,3}M(\\d{1,3}S)?)?|\\d{1,3}M(\\d{1,3}S)?|\\d{1,3}S)"},
    {"HOST", "[a-z]([a-z0-9-]{0,30}[a-z0-9])?(\\.[a-z]([a-z0-9-]{0,30}[a-z0-9])?){1,3}"},
    {"BYTE", "(25[0-5]|2[0-4]\\d|1\\d\\d|[1-9]?\\d)"},
};
constexpr absl::string_view kFormatsRefused[] = {
    "idn-email", "idn-hostname", "iri",          "iri-reference",         "uri-reference",
    "regex",     "uri-template", "json-pointer", "relative-json-pointer",
};

absl::string_view View(const boost::json::string& text) {
  return absl::string_view(text.data(), text.size());
}

bool IsOneOf(absl::string_view name, std::span<const absl::string_view> names) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

// The JSON type of a value; integers are numbers too.
bool HasType(const boost::json::value& value, absl::string_view type) {
  if (type == "null") return value.is_null();
  if (type == "boolean") return value.is_bool();
  if (type == "string") return value.is_string();
  if (type == "array") return value.is_array();
  if (type == "object") return value.is_object();
  if (type == "number") return value.is_number();
  return value.is_int64() || value.is_uint64();
}

// Errors stick: once there is one, every function returns any piece.
class SchemaCompiler {
 public:
  SchemaCompiler(const boost::json::value& root, absl::string_view name, GrammarBuilder& builder)
      : root_(root), name_(name), builder_(builder) {}

  absl::StatusOr<GrammarBuilder::Rule> Run() {
    const GrammarBuilder::Rule rule = RuleAt("#", root_);
    while (status_.ok() && !waiting_.empty()) {
      const auto [next, at] = waiting_.back();
      waiting_.pop_back();
      builder_.Define(next, Compile(*at.second, at.first));
    }
    RETURN_IF_ERROR(status_);
    return rule;
  }

 private:
  using Place = std::pair<std::string, const boost::json::value*>;

  Piece Fail(absl::string_view at, absl::string_view what) {
    if (status_.ok()) {
      status_ = absl::InvalidArgumentError(absl::StrCat("schema: ", at, ": ", what));
    }
    return 0;
  }

  Piece FailUnsupported(absl::string_view at, absl::string_view what) {
    if (status_.ok()) {
      status_ =
          absl::UnimplementedError(absl::StrCat("schema: ", at, ": ", what, " is not supported"));
    }
    return 0;
  }

  // The rule of the schema at a place, which is compiled later.
  GrammarBuilder::Rule RuleAt(const std::string& pointer, const boost::json::value& schema) {
    const auto known = rules_.find(pointer);
    if (known != rules_.end()) return known->second;
    const GrammarBuilder::Rule rule = builder_.RuleNamed(absl::StrCat(name_, pointer));
    rules_.emplace(pointer, rule);
    waiting_.push_back({rule, {pointer, &schema}});
    return rule;
  }

  // -- parts of JSON

  // A rule of the compiler's own, defined when it is first used.
  template <typename Make>
  Piece Shared(const std::string& name, Make make) {
    const auto known = rules_.find(name);
    if (known != rules_.end()) return builder_.Call(known->second);
    const GrammarBuilder::Rule rule = builder_.RuleNamed(absl::StrCat(name_, name));
    rules_.emplace(name, rule);
    builder_.Define(rule, make());
    return builder_.Call(rule);
  }

  Piece Space() {
    return Shared("space", [this] {
      const Piece blanks =
          builder_.Repeat(builder_.Characters({{' ', ' '}, {'\t', '\t'}}, false), 0, 20);
      const Piece line = builder_.Sequence({builder_.Literal("\n"), blanks});
      return builder_.Choice({builder_.Empty(), builder_.Literal(" "), line});
    });
  }

  Piece Digits(int64_t least, int64_t most) {
    return builder_.Repeat(builder_.Characters({{'0', '9'}}, false), least, most);
  }

  Piece Integer() {
    return Shared("integer", [this] {
      const Piece sign = builder_.Repeat(builder_.Literal("-"), 0, 1);
      const Piece large =
          builder_.Sequence({builder_.Characters({{'1', '9'}}, false), Digits(0, 16)});
      return builder_.Sequence({sign, builder_.Choice({builder_.Literal("0"), large})});
    });
  }

  Piece Number() {
    return Shared("number", [this] {
      const Piece fraction = builder_.Sequence({builder_.Literal("."), Digits(1, 17)});
      const Piece sign =
          builder_.Repeat(builder_.Characters({{'+', '+'}, {'-', '-'}}, false), 0, 1);
      const Piece exponent = builder_.Sequence(
          {builder_.Characters({{'e', 'e'}, {'E', 'E'}}, false), sign, Digits(1, 2)});
      return builder_.Sequence(
          {Integer(), builder_.Repeat(fraction, 0, 1), builder_.Repeat(exponent, 0, 1)});
    });
  }

  // A character within quotes as it is, none of `others` among them.
  Piece PlainCharacter(GrammarBuilder::CodePoints others) {
    others.insert(others.end(), {{0, 0x1F}, {'"', '"'}, {'\\', '\\'}, {0x7F, 0x7F}});
    return builder_.Characters(std::move(others), /*negated=*/true);
  }

  // One character within quotes, escapes included, but no halves of surrogate pairs.
  Piece StringCharacter() {
    return Shared("character", [this] {
      const GrammarBuilder::CodePoints hex = {{'0', '9'}, {'a', 'f'}, {'A', 'F'}};
      const auto digits = [&](int64_t count) {
        return builder_.Repeat(builder_.Characters(hex, false), count, count);
      };
      const Piece low = builder_.Sequence(
          {builder_.Characters({{'0', '9'}, {'a', 'c'}, {'A', 'C'}, {'e', 'f'}, {'E', 'F'}}, false),
           digits(3)});
      const Piece middle = builder_.Sequence({builder_.Characters({{'d', 'd'}, {'D', 'D'}}, false),
                                              builder_.Characters({{'0', '7'}}, false), digits(2)});
      const Piece code = builder_.Sequence({builder_.Literal("u"), builder_.Choice({low, middle})});
      return builder_.Choice(
          {PlainCharacter({}),
           builder_.Sequence({builder_.Literal("\\"), builder_.Choice({ShortEscape({}), code})})});
    });
  }

  // What may stand behind a backslash as one character, none of `others`.
  Piece ShortEscape(const std::string& others) {
    GrammarBuilder::CodePoints letters;
    for (const char c : absl::string_view("\"\\bfnrt")) {
      if (!absl::StrContains(others, c)) letters.emplace_back(c, c);
    }
    return letters.empty() ? 0 : builder_.Characters(std::move(letters), false);
  }

  Piece String(int64_t least, int64_t most) {
    const Piece quote = builder_.Literal("\"");
    return builder_.Sequence({quote, builder_.Repeat(StringCharacter(), least, most), quote});
  }

  // Any document.
  Piece AnyValue() {
    const auto known = rules_.find("value");
    if (known != rules_.end()) return builder_.Call(known->second);
    const GrammarBuilder::Rule rule = builder_.RuleNamed(absl::StrCat(name_, "value"));
    rules_.emplace("value", rule);
    std::vector<Piece> choices;
    for (const absl::string_view type : kTypes) {
      if (type != "integer") choices.push_back(OfType(type, {}, "value"));
    }
    builder_.Define(rule, builder_.Choice(std::move(choices)));
    return builder_.Call(rule);
  }

  // -- schemas

  Piece Compile(const boost::json::value& schema, const std::string& at) {
    if (!status_.ok()) return 0;
    if (++compiled_ > Grammar::kRulesMax) {
      return Fail(at, absl::StrCat("got more than ", Grammar::kRulesMax, " schemas"));
    }
    if (schema.is_bool()) {
      return schema.get_bool() ? AnyValue() : Fail(at, "the schema accepts nothing");
    }
    if (!schema.is_object()) return Fail(at, "a schema must be an object or a boolean");
    const boost::json::object& object = schema.get_object();
    for (const auto& [key, value] : object) {
      const absl::string_view name(key.data(), key.size());
      if (!IsOneOf(name, kAnnotations) && !IsOneOf(name, kConstraints)) {
        return FailUnsupported(at, absl::StrCat("keyword '", name, "'"));
      }
    }
    for (const absl::string_view only : {"$ref", "anyOf", "oneOf", "allOf", "const", "enum"}) {
      const boost::json::value* const value = object.if_contains({only.data(), only.size()});
      if (value == nullptr) continue;
      for (const auto& [key, other] : object) {
        const absl::string_view name(key.data(), key.size());
        const bool with_type = name == "type" && (only == "const" || only == "enum");
        if (name != only && !with_type && !IsOneOf(name, kAnnotations)) {
          return FailUnsupported(at, absl::StrCat("'", name, "' beside '", only, "'"));
        }
      }
      return Single(only, *value, object, at);
    }
    std::vector<Piece> choices;
    for (const absl::string_view type : TypesOf(object, at)) {
      choices.push_back(OfType(type, object, at));
    }
    return status_.ok() ? builder_.Choice(std::move(choices)) : 0;
  }

  // A schema that is one keyword, `type` aside.
  Piece Single(absl::string_view keyword, const boost::json::value& value,
               const boost::json::object& object, const std::string& at) {
    if (keyword == "$ref") return Reference(value, at);
    if (keyword == "const") return Constants({&value, 1}, object, at);
    if (!value.is_array() || value.get_array().empty()) {
      return Fail(at, absl::StrCat("'", keyword, "' must be an array with elements"));
    }
    const boost::json::array& array = value.get_array();
    if (keyword == "enum") return Constants({array.data(), array.size()}, object, at);
    if (keyword == "allOf" && array.size() > 1) {
      return FailUnsupported(at, "'allOf' of more than one schema");
    }
    std::vector<Piece> choices;
    for (size_t i = 0; i < array.size(); ++i) {
      // What is exactly one of several is any of them if no two can be it at once.
      for (size_t k = 0; k < i && keyword == "oneOf"; ++k) {
        if (SchemasAreApart(root_, array[k], array[i])) continue;
        return FailUnsupported(
            at, absl::StrCat("'oneOf' of schemas that may overlap, as ", k, " and ", i));
      }
      choices.push_back(builder_.Call(RuleAt(absl::StrCat(at, "/", keyword, "/", i), array[i])));
    }
    return builder_.Choice(std::move(choices));
  }

  Piece Reference(const boost::json::value& value, const std::string& at) {
    if (!value.is_string()) return Fail(at, "'$ref' must be a string");
    const std::string pointer(View(value.get_string()));
    if (pointer != "#" && !absl::StartsWith(pointer, "#/")) {
      return FailUnsupported(at, absl::StrCat("'$ref' to '", pointer, "'"));
    }
    boost::system::error_code error;
    const boost::json::value* const target = root_.find_pointer(pointer.substr(1), error);
    if (target == nullptr)
      return Fail(at, absl::StrCat("'$ref' names '", pointer,
                                   "', which is "
                                   "not there"));
    return builder_.Call(RuleAt(pointer, *target));
  }

  Piece Constants(std::span<const boost::json::value> values, const boost::json::object& object,
                  const std::string& at) {
    const std::vector<absl::string_view> types = TypesOf(object, at);
    std::vector<Piece> choices;
    for (const boost::json::value& value : values) {
      const bool fits = std::any_of(types.begin(), types.end(),
                                    [&](absl::string_view type) { return HasType(value, type); });
      if (fits) choices.push_back(builder_.Literal(boost::json::serialize(value)));
    }
    if (!status_.ok()) return 0;
    return choices.empty() ? Fail(at, "no value is of the type") : builder_.Choice(choices);
  }

  std::vector<absl::string_view> TypesOf(const boost::json::object& object, const std::string& at) {
    std::vector<absl::string_view> types;
    const boost::json::value* const type = object.if_contains("type");
    if (type == nullptr) {
      for (const absl::string_view each : kTypes) {
        if (each != "integer") types.push_back(each);
      }
      return types;
    }
    const auto add = [&](const boost::json::value& value) {
      if (value.is_string() && IsOneOf(View(value.get_string()), kTypes)) {
        types.push_back(View(value.get_string()));
      } else {
        Fail(at,
             absl::StrCat("type ", std::string(boost::json::serialize(value)), " is not known"));
      }
    };
    if (type->is_array()) {
      for (const boost::json::value& value : type->get_array()) add(value);
    } else {
      add(*type);
    }
    if (types.empty()) Fail(at, "'type' names no type");
    return types;
  }

  Piece OfType(absl::string_view type, const boost::json::object& object, const std::string& at) {
    if (!status_.ok()) return 0;
    if (type == "null") return builder_.Literal("null");
    if (type == "boolean") {
      return builder_.Choice({builder_.Literal("true"), builder_.Literal("false")});
    }
    if (type == "integer" || type == "number") return Bounded(type == "integer", object, at);
    if (type == "string") {
      if (const boost::json::value* const pattern = object.if_contains("pattern")) {
        if (!pattern->is_string()) return Fail(at, "'pattern' must be a string");
        const absl::Status parsed =
            ParseRegex(View(pattern->get_string()), RegexDialect::kConstraint).status();
        if (!parsed.ok()) return FailRegex(parsed, "pattern", at);
        // It may match anywhere.
        return Matching(absl::StrCat("[\\s\\S]*(?:", View(pattern->get_string()), ")[\\s\\S]*"),
                        "pattern", object, at);
      }
      if (const boost::json::value* const format = object.if_contains("format")) {
        if (!format->is_string()) return Fail(at, "'format' must be a string");
        const std::optional<std::string> pattern = PatternOf(View(format->get_string()), at);
        if (pattern.has_value()) return Matching(*pattern, "format", object, at);
      }
      const auto [least, most] = Bounds(object, "minLength", "maxLength", at);
      return String(least, most);
    }
    return type == "array" ? Array(object, at) : Object(object, at);
  }

  // A number of the type within the schema's bounds.
  Piece Bounded(bool integer, const boost::json::object& object, const std::string& at) {
    NumberRange range;
    bool is_bounded = false;
    for (const absl::string_view name :
         {"minimum", "exclusiveMinimum", "maximum", "exclusiveMaximum"}) {
      const boost::json::value* const value = object.if_contains({name.data(), name.size()});
      if (value == nullptr) continue;
      if (!value->is_number()) return Fail(at, absl::StrCat("'", name, "' must be a number"));
      const double number = value->to_number<double>();
      if (std::trunc(number) != number || std::abs(number) > static_cast<double>(kNumberBoundMax)) {
        return FailUnsupported(at,
                               absl::StrCat("'", name, "' that is no integer of up to 15 digits"));
      }
      is_bounded = true;
      const auto bound = static_cast<int64_t>(number);
      const bool exclusive = absl::StartsWith(name, "exclusive");
      if (absl::EndsWithIgnoreCase(name, "minimum")) {
        if (range.least.has_value() && *range.least > bound) continue;
        range.above_least = exclusive;
        range.least = bound;
      } else {
        if (range.most.has_value() && *range.most < bound) continue;
        range.below_most = exclusive;
        range.most = bound;
      }
    }
    if (!is_bounded) return integer ? Integer() : Number();
    const std::optional<Piece> piece =
        integer ? AddIntegers(range, builder_) : AddNumbers(range, builder_);
    return piece.has_value() ? *piece : Fail(at, "no number is between the bounds");
  }

  // The expression of a format; nothing for one that says nothing.
  std::optional<std::string> PatternOf(absl::string_view format, const std::string& at) {
    for (const auto& [name, pattern] : kFormats) {
      if (name != format) continue;
      return absl::StrReplaceAll(pattern, std::span(kFormatParts));
    }
    if (IsOneOf(format, kFormatsRefused)) {
      FailUnsupported(at, absl::StrCat("'format' of '", format, "'"));
    }
    return std::nullopt;
  }

  Piece FailRegex(const absl::Status& status, absl::string_view keyword, const std::string& at) {
    const std::string what = absl::StrCat("'", keyword, "': ", status.message());
    return absl::IsUnimplemented(status) ? FailUnsupported(at, what) : Fail(at, what);
  }

  // A string whose text matches, whole.
  Piece Matching(const std::string& pattern, absl::string_view keyword,
                 const boost::json::object& object, const std::string& at) {
    for (const char* other : {"minLength", "maxLength", "format"}) {
      if (other != keyword && object.contains(other)) {
        return FailUnsupported(at, absl::StrCat("'", other, "' beside '", keyword, "'"));
      }
    }
    const absl::StatusOr<Piece> piece =
        AddRegex(pattern, [this](const CodePointSet& set) { return CharacterOf(set); }, builder_);
    if (!piece.ok()) return FailRegex(piece.status(), keyword, at);
    const Piece quote = builder_.Literal("\"");
    return builder_.Sequence({quote, *piece, quote});
  }

  // A character of a set as it stands within quotes; of those that need it with its escape.
  Piece CharacterOf(const CodePointSet& set) {
    static constexpr absl::string_view kEscaped = "\"\\\b\f\n\r\t";
    static constexpr absl::string_view kLetters = "\"\\bfnrt";
    std::string letters;
    for (size_t i = 0; i < kEscaped.size(); ++i) {
      if (set.Contains(static_cast<char32_t>(kEscaped[i]))) letters += kLetters[i];
    }
    CodePointSet plain = set;
    CodePointSet quoted = CodePointSet::Of({{{0, 0x1F}, {'"', '"'}, {'\\', '\\'}, {0x7F, 0x7F}}});
    quoted.Complement();
    plain.Intersect(quoted);
    GrammarBuilder::CodePoints ranges, escapes;
    for (const CodePointRange& range : plain.ranges()) ranges.emplace_back(range.first, range.last);
    const Piece character = builder_.Characters(std::move(ranges), /*negated=*/false);
    if (letters.empty()) return character;
    for (const char letter : letters) escapes.emplace_back(letter, letter);
    return builder_.Choice(
        {character,
         builder_.Sequence({builder_.Literal("\\"),
                            builder_.Characters(std::move(escapes), /*negated=*/false)})});
  }

  std::pair<int64_t, int64_t> Bounds(const boost::json::object& object, absl::string_view least,
                                     absl::string_view most, const std::string& at) {
    std::pair<int64_t, int64_t> result = {0, GrammarBuilder::kUnbounded};
    for (const absl::string_view name : {least, most}) {
      const boost::json::value* const value = object.if_contains({name.data(), name.size()});
      if (value == nullptr) continue;
      if (!value->is_int64() || value->get_int64() < 0 ||
          value->get_int64() > Grammar::kRepeatMax) {
        Fail(at, absl::StrCat("'", name, "' must be an integer from 0 to ", Grammar::kRepeatMax));
        return result;
      }
      (name == least ? result.first : result.second) = value->get_int64();
    }
    if (result.second >= 0 && result.second < result.first) {
      Fail(at, absl::StrCat("'", most, "' is below '", least, "'"));
    }
    return result;
  }

  Piece Comma() { return builder_.Sequence({Space(), builder_.Literal(","), Space()}); }

  Piece Array(const boost::json::object& object, const std::string& at) {
    const auto [least, most] = Bounds(object, "minItems", "maxItems", at);
    std::vector<Piece> first;
    if (const boost::json::value* const prefix = object.if_contains("prefixItems")) {
      if (!prefix->is_array()) return Fail(at, "'prefixItems' must be an array");
      for (size_t i = 0; i < prefix->get_array().size(); ++i) {
        first.push_back(
            builder_.Call(RuleAt(absl::StrCat(at, "/prefixItems/", i), prefix->get_array()[i])));
      }
    }
    const boost::json::value* const items = object.if_contains("items");
    const bool is_closed = items != nullptr && items->is_bool() && !items->get_bool();
    const auto count = static_cast<int64_t>(first.size());
    if (is_closed && count < least) return Fail(at, "'minItems' is more than there can be");
    if (!status_.ok()) return 0;
    // From the last item back: what follows when i items are there. Each may be the last.
    Piece rest = builder_.Empty();
    if (!is_closed && (most < 0 || most > count)) {
      const Piece item =
          items == nullptr ? AnyValue() : builder_.Call(RuleAt(absl::StrCat(at, "/items"), *items));
      const int64_t more = std::max<int64_t>(0, least - count);
      const int64_t at_most = most < 0 ? GrammarBuilder::kUnbounded : most - count;
      if (count > 0) {
        rest = builder_.Repeat(builder_.Sequence({Comma(), item}), more, at_most);
      } else {
        const Piece others =
            builder_.Repeat(builder_.Sequence({Comma(), item}), std::max<int64_t>(0, more - 1),
                            at_most < 0 ? at_most : at_most - 1);
        rest = builder_.Repeat(builder_.Sequence({item, others}), more > 0 ? 1 : 0, 1);
      }
    }
    for (int64_t i = count; i-- > 0;) {
      if (most >= 0 && i >= most) continue;
      const Piece item = i > 0 ? builder_.Sequence({Comma(), first[i], rest})
                               : builder_.Sequence({first[i], rest});
      rest = builder_.Repeat(item, i < least ? 1 : 0, 1);
    }
    return builder_.Sequence(
        {builder_.Literal("["), Space(), rest, Space(), builder_.Literal("]")});
  }

  // -- objects

  struct Property {
    std::string name;
    Piece value = 0;
    bool is_required = false;
  };

  Piece Object(const boost::json::object& object, const std::string& at) {
    std::vector<Property> properties;
    if (const boost::json::value* const given = object.if_contains("properties")) {
      if (!given->is_object()) return Fail(at, "'properties' must be an object");
      for (const auto& [key, schema] : given->get_object()) {
        const std::string name(key);
        const std::string step = absl::StrReplaceAll(name, {{"~", "~0"}, {"/", "~1"}});
        properties.push_back(
            {.name = name,
             .value = builder_.Call(RuleAt(absl::StrCat(at, "/properties/", step), schema))});
      }
    }
    const boost::json::value* const others = object.if_contains("additionalProperties");
    const bool is_closed = others != nullptr && others->is_bool() && !others->get_bool();
    const auto other_value = [&] {
      return others == nullptr
                 ? AnyValue()
                 : builder_.Call(RuleAt(absl::StrCat(at, "/additionalProperties"), *others));
    };
    if (const boost::json::value* const required = object.if_contains("required")) {
      if (!required->is_array()) return Fail(at, "'required' must be an array");
      for (const boost::json::value& name : required->get_array()) {
        if (!name.is_string()) return Fail(at, "'required' must hold strings");
        const std::string text(View(name.get_string()));
        auto property = std::find_if(properties.begin(), properties.end(),
                                     [&](const Property& p) { return p.name == text; });
        if (property == properties.end()) {
          if (is_closed) {
            return Fail(at, absl::StrCat("property '", text, "' is required and not allowed"));
          }
          properties.push_back({.name = text, .value = other_value()});
          property = properties.end() - 1;
        }
        property->is_required = true;
      }
    }
    if (!status_.ok()) return 0;
    Piece other = 0;
    if (!is_closed) {
      other = builder_.Sequence({OtherKey(properties), Colon(), other_value()});
    }
    return builder_.Sequence({builder_.Literal("{"), Space(), Members(properties, is_closed, other),
                              Space(), builder_.Literal("}")});
  }

  Piece Colon() { return builder_.Sequence({Space(), builder_.Literal(":"), Space()}); }

  // The members in order. Whether a comma comes first depends on whether one was there, so what
  // follows each is built twice: behind none, and behind some.
  Piece Members(const std::vector<Property>& properties, bool is_closed, Piece other) {
    Piece behind_some = builder_.Empty();
    Piece behind_none = builder_.Empty();
    if (!is_closed) {
      behind_some =
          builder_.Repeat(builder_.Sequence({Comma(), other}), 0, GrammarBuilder::kUnbounded);
      behind_none = builder_.Repeat(builder_.Sequence({other, behind_some}), 0, 1);
    }
    for (size_t i = properties.size(); i-- > 0;) {
      const Property& property = properties[i];
      const Piece member = builder_.Sequence(
          {builder_.Literal(boost::json::serialize(boost::json::value(property.name))), Colon(),
           property.value});
      // Both go on the same way behind a member; a rule of its own keeps the grammar small.
      const GrammarBuilder::Rule rest = builder_.RuleNamed(absl::StrCat("rest ", ++rests_));
      builder_.Define(rest, behind_some);
      const Piece some = builder_.Sequence({Comma(), member, builder_.Call(rest)});
      const Piece none = builder_.Sequence({member, builder_.Call(rest)});
      behind_some = property.is_required ? some : builder_.Choice({some, builder_.Call(rest)});
      behind_none = property.is_required ? none : builder_.Choice({none, behind_none});
    }
    return behind_none;
  }

  // A quoted key that is none of the properties. Keys are spelled in one way only (no \u), so that
  // the spelling tells.
  Piece OtherKey(const std::vector<Property>& properties) {
    std::vector<std::u32string> names;
    for (const Property& property : properties) {
      std::u32string name;
      for (const char *at = property.name.data(), *end = at + property.name.size(); at < end;) {
        const Utf8Character next = DecodeUtf8(at, end);
        name.push_back(next.code_point);
        at += next.size_bytes;
      }
      names.push_back(std::move(name));
    }
    std::sort(names.begin(), names.end());
    const Piece character = Shared("key character", [this] {
      return builder_.Choice(
          {PlainCharacter({}), builder_.Sequence({builder_.Literal("\\"), ShortEscape({})})});
    });
    const Piece free = builder_.Sequence(
        {builder_.Repeat(character, 0, GrammarBuilder::kUnbounded), builder_.Literal("\"")});
    return builder_.Sequence({builder_.Literal("\""), OtherThan(names, 0, free)});
  }

  // What continues a key that has the first `depth` characters of all `names`, and is none of them.
  Piece OtherThan(std::span<const std::u32string> names, size_t depth, Piece free) {
    std::vector<Piece> choices;
    const bool is_name = !names.empty() && names.front().size() == depth;
    if (!is_name) choices.push_back(builder_.Literal("\""));
    GrammarBuilder::CodePoints taken;
    std::string taken_escapes;
    for (size_t begin = 0; begin < names.size();) {
      if (names[begin].size() == depth) {
        ++begin;
        continue;
      }
      const char32_t c = names[begin][depth];
      size_t end = begin;
      while (end < names.size() && names[end].size() > depth && names[end][depth] == c) ++end;
      static constexpr absl::string_view kEscaped = "\"\\\b\f\n\r\t";
      static constexpr absl::string_view kLetters = "\"\\bfnrt";
      const size_t escape =
          c < 0x80 ? kEscaped.find(static_cast<char>(c)) : absl::string_view::npos;
      std::string spelled;
      if (escape != absl::string_view::npos) {
        taken_escapes += kLetters[escape];
        spelled = {'\\', kLetters[escape]};
      } else {
        taken.emplace_back(c, c);
        AppendUtf8(c, &spelled);
      }
      if (c < 0x20 && escape == absl::string_view::npos) {  // stands in no key that is spelled so
        begin = end;
        continue;
      }
      choices.push_back(builder_.Sequence(
          {builder_.Literal(spelled),
           depth > kNameDepthMax ? builder_.Bytes(ByteSet())
                                 : OtherThan(names.subspan(begin, end - begin), depth + 1, free)}));
      begin = end;
    }
    choices.push_back(builder_.Sequence({PlainCharacter(taken), free}));
    if (taken_escapes.size() < 7) {
      choices.push_back(
          builder_.Sequence({builder_.Literal("\\"), ShortEscape(taken_escapes), free}));
    }
    return builder_.Choice(std::move(choices));
  }

  // Other keys that share more than this with a property's name are not generated.
  static constexpr size_t kNameDepthMax = 64;

  const boost::json::value& root_;
  const std::string name_;
  GrammarBuilder& builder_;
  std::map<std::string, GrammarBuilder::Rule> rules_;
  std::vector<std::pair<GrammarBuilder::Rule, Place>> waiting_;
  size_t compiled_ = 0;
  size_t rests_ = 0;
  absl::Status status_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<const Grammar>> GrammarOfJsonSchema(
    const boost::json::value& schema) {
  GrammarBuilder builder;
  ASSIGN_OR_RETURN(const GrammarBuilder::Rule rule, AddJsonSchema(schema, "", builder));
  return builder.Build(rule);
}

absl::StatusOr<GrammarBuilder::Rule> AddJsonSchema(const boost::json::value& schema,
                                                   absl::string_view name,
                                                   GrammarBuilder& builder) {
  return SchemaCompiler(schema, name, builder).Run();
}

}  // namespace stampmill
