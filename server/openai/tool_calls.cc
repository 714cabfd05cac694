#include "server/openai/tool_calls.h"

#include <array>
#include <boost/json.hpp>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/openai/errors.h"
#include "text/grammar_builder.h"
#include "text/json_schema.h"

namespace stampmill {

namespace json = boost::json;

namespace {

using Piece = GrammarBuilder::Piece;

constexpr absl::string_view kHermesBegin = "<tool_call>", kHermesEnd = "</tool_call>";
constexpr absl::string_view kMistralBegin = "[TOOL_CALLS]", kMistralArguments = "[ARGS]";
constexpr std::array<std::pair<absl::string_view, absl::string_view>, 3> kReasoningTags = {
    {{"<think>", "</think>"}, {"[THINK]", "[/THINK]"}, {"<reasoning>", "</reasoning>"}}};

absl::StatusOr<json::value> SchemaOf(absl::string_view text, const std::string& param) {
  if (text.size() > Grammar::kSourceBytesMax) {
    return FieldError(param, absl::StrCat("got a schema of ", text.size(), " bytes, limit ",
                                          Grammar::kSourceBytesMax));
  }
  boost::system::error_code error;
  json::value schema = json::parse({text.data(), text.size()}, error, {}, {.max_depth = 200});
  if (error) return FieldError(param, "no valid JSON");
  return schema;
}

class ToolGrammarWriter {
 public:
  ToolGrammarWriter(const ToolGrammar& grammar, const ConstraintVocabulary& vocabulary)
      : grammar_(grammar), vocabulary_(vocabulary) {}

  absl::StatusOr<std::unique_ptr<const Grammar>> Run() {
    std::vector<Piece> choices;
    ASSIGN_OR_RETURN(const Piece calls, Calls());
    choices.push_back(calls);
    if (grammar_.beside == BesideCalls::kText) choices.push_back(Text());
    if (grammar_.beside == BesideCalls::kJson) {
      const Constraint& answer = grammar_.answer;
      const bool any = answer.kind == Constraint::Kind::kJsonObject;
      ASSIGN_OR_RETURN(const Piece document,
                       Json(any ? R"({"type": "object"})" : answer.text, "answer:", answer.param));
      choices.push_back(document);
    }
    const GrammarBuilder::Rule root = builder_.RuleNamed("root");
    builder_.Define(root, builder_.Choice(std::move(choices)));
    absl::StatusOr<std::unique_ptr<const Grammar>> built = builder_.Build(root);
    if (!built.ok()) return FieldError("tools", built.status().message());
    return built;
  }

 private:
  Piece Marker(absl::string_view text) { return builder_.Literal(vocabulary_.Spelling(text)); }

  absl::StatusOr<Piece> Json(absl::string_view schema, const std::string& name,
                             const std::string& param) {
    ASSIGN_OR_RETURN(const json::value value, SchemaOf(schema, param));
    const absl::StatusOr<GrammarBuilder::Rule> rule = AddJsonSchema(value, name, builder_);
    if (absl::IsUnimplemented(rule.status())) {
      return UnsupportedField(param, rule.status().message());
    }
    if (!rule.ok()) return FieldError(param, rule.status().message());
    return builder_.Call(*rule);
  }

  // Where no text is a call: empty, or not beginning with a brace or with white space before one.
  Piece Text() {
    const Piece first =
        builder_.Characters({{'{', '{'}, {' ', ' '}, {'\n', '\n'}, {'\r', '\r'}, {'\t', '\t'}},
                            /*negated=*/true);
    const Piece rest =
        builder_.Repeat(builder_.Characters({}, /*negated=*/true), 0, GrammarBuilder::kUnbounded);
    return builder_.Repeat(builder_.Sequence({first, rest}), 0, 1);
  }

  absl::StatusOr<Piece> Arguments(size_t tool) {
    const std::string& schema = grammar_.tools[tool].parameters;
    return Json(schema.empty() ? R"({"type": "object"})" : schema, absl::StrCat("tool ", tool, ":"),
                absl::StrCat("tools: '", grammar_.tools[tool].name, "'.parameters"));
  }

  // {"name": .., "arguments": ..} of any of the tools.
  absl::StatusOr<Piece> Object(absl::string_view arguments_name) {
    std::vector<Piece> choices;
    for (size_t i = 0; i < grammar_.tools.size(); ++i) {
      ASSIGN_OR_RETURN(const Piece arguments, Arguments(i));
      choices.push_back(
          builder_.Sequence({builder_.Literal(absl::StrCat("\"", grammar_.tools[i].name, "\", \"",
                                                           arguments_name, "\": ")),
                             arguments}));
    }
    return builder_.Sequence({builder_.Literal("{\"name\": "), builder_.Choice(std::move(choices)),
                              builder_.Literal("}")});
  }

  // `call` once, or again and again with `between`. With the first one's marker or without.
  Piece Several(Piece marker, Piece call, Piece between) {
    const Piece first = grammar_.behind_marker ? call : builder_.Sequence({marker, call});
    if (!grammar_.parallel) return first;
    const Piece again = builder_.Sequence({between, marker, call});
    return builder_.Sequence({first, builder_.Repeat(again, 0, GrammarBuilder::kUnbounded)});
  }

  absl::StatusOr<Piece> Calls() {
    switch (grammar_.format.tools) {
      case ToolFormat::kHermes: {
        ASSIGN_OR_RETURN(const Piece object, Object("arguments"));
        const Piece line = builder_.Literal("\n");
        // Behind a marker that the model wrote itself the line's end is its own affair.
        const Piece begin = grammar_.behind_marker ? builder_.Repeat(line, 0, 1) : line;
        return Several(Marker(kHermesBegin),
                       builder_.Sequence({begin, object, line, Marker(kHermesEnd)}), line);
      }
      case ToolFormat::kLlama3:
        return Object("parameters");
      case ToolFormat::kMistral:
        return grammar_.format.name_before_arguments ? MistralNames() : MistralArray();
      case ToolFormat::kNone:
        break;
    }
    return FieldError("tools", "the model has no format of calls");
  }

  absl::StatusOr<Piece> MistralArray() {
    ASSIGN_OR_RETURN(const Piece object, Object("arguments"));
    Piece list = object;
    if (grammar_.parallel) {
      const Piece again = builder_.Sequence({builder_.Literal(", "), object});
      list = builder_.Sequence({object, builder_.Repeat(again, 0, GrammarBuilder::kUnbounded)});
    }
    const Piece array = builder_.Sequence({builder_.Literal("["), list, builder_.Literal("]")});
    return grammar_.behind_marker ? array : builder_.Sequence({Marker(kMistralBegin), array});
  }

  absl::StatusOr<Piece> MistralNames() {
    std::vector<Piece> choices;
    for (size_t i = 0; i < grammar_.tools.size(); ++i) {
      ASSIGN_OR_RETURN(const Piece arguments, Arguments(i));
      choices.push_back(builder_.Sequence(
          {builder_.Literal(grammar_.tools[i].name), Marker(kMistralArguments), arguments}));
    }
    return Several(Marker(kMistralBegin), builder_.Choice(std::move(choices)), builder_.Empty());
  }

  const ToolGrammar& grammar_;
  const ConstraintVocabulary& vocabulary_;
  GrammarBuilder builder_;
};

}  // namespace

TemplateFormat FormatOfTemplate(absl::string_view source) {
  const auto has = [&](absl::string_view text) { return absl::StrContains(source, text); };
  TemplateFormat format;
  // Others have the marker too, with calls in XML behind it.
  const bool calls_are_json = has("name\"") || has("name\\\"") || has("tojson");
  if (has(kMistralBegin)) {
    format.tools = ToolFormat::kMistral;
    format.name_before_arguments = has(kMistralArguments);
  } else if (has(kHermesBegin) && calls_are_json && !has("<function=") && !has("<arg_key>")) {
    format.tools = ToolFormat::kHermes;
  } else if (has("<|python_tag|>") || (has("ipython") && has("\"parameters\": "))) {
    format.tools = ToolFormat::kLlama3;
  }
  for (const auto& [begin, end] : kReasoningTags) {
    if (!has(end)) continue;
    format.reasoning_begin = std::string(begin);
    format.reasoning_end = std::string(end);
    break;
  }
  return format;
}

std::string MarkerOf(const TemplateFormat& format) {
  if (format.tools == ToolFormat::kHermes) return std::string(kHermesBegin);
  if (format.tools == ToolFormat::kMistral) return std::string(kMistralBegin);
  return "";
}

std::string KeyOf(const ToolGrammar& grammar) {
  std::string key =
      absl::StrCat("tools ", static_cast<int>(grammar.format.tools),
                   grammar.format.name_before_arguments ? 1 : 0, grammar.parallel ? 1 : 0,
                   static_cast<int>(grammar.beside), grammar.behind_marker ? 1 : 0, " ",
                   static_cast<int>(grammar.answer.kind), " ", grammar.answer.text.size(), " ",
                   grammar.answer.text);
  for (const Tool& tool : grammar.tools) {
    absl::StrAppend(&key, " ", tool.name, " ", tool.parameters.size(), " ", tool.parameters);
  }
  return key;
}

absl::StatusOr<std::unique_ptr<const Grammar>> GrammarOf(const ToolGrammar& grammar,
                                                         const ConstraintVocabulary& vocabulary) {
  return ToolGrammarWriter(grammar, vocabulary).Run();
}

}  // namespace stampmill
