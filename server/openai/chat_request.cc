// Messages and tools.
#include <algorithm>
#include <array>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "server/openai/errors.h"
#include "server/openai/parse_parts.h"

namespace stampmill {

namespace json = boost::json;

namespace {

constexpr std::array<absl::string_view, 6> kRoles = {"system",    "developer", "user",
                                                     "assistant", "tool",      "function"};
constexpr size_t kToolNameBytesMax = 64;

// The text of parts, one a line.
absl::StatusOr<std::string> JoinParts(const json::array& parts, absl::string_view path) {
  std::string text;
  for (size_t i = 0; i < parts.size(); ++i) {
    const std::string at = absl::StrCat(path, "[", i, "]");
    if (!parts[i].is_object()) {
      return FieldError(at, absl::StrCat("got ", JsonKind(parts[i]), ", expected an object"));
    }
    JsonFields part(parts[i].get_object(), at + ".");
    std::string type, piece;
    part.String("type", type);
    if (type == "text" || type == "refusal") {
      if (part.Find(type) == nullptr) part.Fail(type, "missing");
      part.String(type, piece);
    } else if (part.Find("type") == nullptr) {
      part.Fail("type", "missing");
    } else {
      part.Fail(
          UnsupportedField(at + ".type", absl::StrCat("got '", type, "', only text is supported")));
    }
    RETURN_IF_ERROR(part.status());
    absl::StrAppend(&text, i == 0 ? "" : "\n", piece);
  }
  return text;
}

bool IsToolName(absl::string_view name) {
  const auto fine = [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.';
  };
  return !name.empty() && name.size() <= kToolNameBytesMax &&
         std::all_of(name.begin(), name.end(), fine);
}

// A call that the model made earlier. Its arguments become an object where they are one.
absl::Status CheckToolCall(json::value& call, const std::string& path) {
  if (!call.is_object()) {
    return FieldError(path, absl::StrCat("got ", JsonKind(call), ", expected an object"));
  }
  JsonFields fields(call.get_object(), path + ".");
  std::string type = "function", id;
  fields.String("type", type);
  fields.String("id", id);
  if (type != "function") {
    fields.Fail(UnsupportedField(path + ".type", absl::StrCat("got '", type, "', limit function")));
  }
  const json::object* function = fields.Object("function");
  if (function == nullptr) fields.Fail("function", "missing");
  RETURN_IF_ERROR(fields.status());
  JsonFields in(*function, path + ".function.");
  std::string name;
  in.String("name", name);
  if (name.empty()) in.Fail("name", "missing");
  RETURN_IF_ERROR(in.status());
  const json::value* arguments = in.Find("arguments");
  if (arguments == nullptr || arguments->is_object()) return absl::OkStatus();
  if (!arguments->is_string()) {
    return FieldError(path + ".function.arguments",
                      absl::StrCat("got ", JsonKind(*arguments), ", expected a string"));
  }
  boost::system::error_code error;
  json::value parsed = json::parse(arguments->get_string(), error, {}, {.max_depth = 100});
  if (!error && parsed.is_object()) {
    call.get_object()["function"].get_object()["arguments"] = std::move(parsed);
  }
  return absl::OkStatus();
}

absl::Status CheckMessage(json::value& message, const std::string& path) {
  if (!message.is_object()) {
    return FieldError(path, absl::StrCat("got ", JsonKind(message), ", expected an object"));
  }
  json::object& object = message.get_object();
  JsonFields fields(object, path + ".");
  std::string role, text;
  fields.String("role", role);
  if (fields.Find("role") == nullptr) fields.Fail("role", "missing");
  if (std::find(kRoles.begin(), kRoles.end(), role) == kRoles.end()) {
    fields.Fail(
        "role",
        absl::StrCat("got '", role, "', limit system, developer, user, assistant, tool, function"));
  }
  for (const char* name : {"name", "tool_call_id", "reasoning_content", "refusal"}) {
    fields.String(name, text);
  }
  for (const char* name : {"audio", "function_call"}) {
    if (fields.Find(name) != nullptr)
      fields.Fail(UnsupportedField(fields.Path(name), "not supported"));
  }
  RETURN_IF_ERROR(fields.status());

  if (const json::value* content = fields.Find("content"); content != nullptr) {
    if (content->is_array()) {
      ASSIGN_OR_RETURN(const std::string joined,
                       JoinParts(content->get_array(), path + ".content"));
      object["content"] = joined;
    } else if (!content->is_string()) {
      return FieldError(
          path + ".content",
          absl::StrCat("got ", JsonKind(*content), ", expected a string or an array of parts"));
    }
  } else if (role != "assistant") {
    return FieldError(path + ".content", "missing");
  }
  if (fields.Find("tool_calls") == nullptr) return absl::OkStatus();
  if (role != "assistant") {
    return FieldError(path + ".tool_calls",
                      absl::StrCat("got them with role '", role, "', limit assistant"));
  }
  if (fields.Array("tool_calls") == nullptr) return fields.status();
  json::array& calls = object["tool_calls"].get_array();
  for (size_t i = 0; i < calls.size(); ++i) {
    RETURN_IF_ERROR(CheckToolCall(calls[i], absl::StrCat(path, ".tool_calls[", i, "]")));
  }
  return absl::OkStatus();
}

absl::StatusOr<Tool> ToolOf(const json::value& value, const std::string& path) {
  if (!value.is_object()) {
    return FieldError(path, absl::StrCat("got ", JsonKind(value), ", expected an object"));
  }
  JsonFields fields(value.get_object(), path + ".");
  std::string type;
  fields.String("type", type);
  if (type != "function") {
    fields.Fail(UnsupportedField(path + ".type", absl::StrCat("got '", type, "', limit function")));
  }
  const json::object* function = fields.Object("function");
  if (function == nullptr) fields.Fail("function", "missing");
  RETURN_IF_ERROR(fields.status());
  JsonFields in(*function, path + ".function.");
  Tool tool;
  in.String("name", tool.name);
  if (!IsToolName(tool.name)) {
    in.Fail("name", absl::StrCat("got '", tool.name, "', limit 1 to ", kToolNameBytesMax,
                                 " letters, digits, '_', '-' and '.'"));
  }
  in.String("description", tool.description);
  in.Bool("strict", tool.strict);
  if (const json::object* parameters = in.Object("parameters"); parameters != nullptr) {
    tool.parameters = json::serialize(*parameters);
  }
  RETURN_IF_ERROR(in.status());
  return tool;
}

void ReadToolChoice(JsonFields& fields, ChatRequest& request) {
  ToolChoice& choice = request.tool_choice;
  choice.kind = request.tools.empty() ? ToolChoice::Kind::kNone : ToolChoice::Kind::kAuto;
  const json::value* value = fields.Find("tool_choice");
  if (value == nullptr) return;
  if (value->is_string()) {
    const absl::string_view word = JsonText(*value);
    if (word == "none") {
      choice.kind = ToolChoice::Kind::kNone;
    } else if (word == "required") {
      choice.kind = ToolChoice::Kind::kRequired;
    } else if (word != "auto") {
      fields.Fail("tool_choice", absl::StrCat("got '", word, "', limit none, auto, required"));
    }
  } else if (const json::object* object = fields.Object("tool_choice"); object != nullptr) {
    JsonFields in(*object, "tool_choice.");
    std::string type;
    in.String("type", type);
    if (type != "function") {
      in.Fail(
          UnsupportedField("tool_choice.type", absl::StrCat("got '", type, "', limit function")));
    }
    choice.kind = ToolChoice::Kind::kNamed;
    if (const json::object* function = in.Object("function"); function != nullptr) {
      JsonFields(*function, "tool_choice.function.").String("name", choice.name);
    }
    const auto is_it = [&](const Tool& tool) { return tool.name == choice.name; };
    if (std::none_of(request.tools.begin(), request.tools.end(), is_it)) {
      in.Fail("function.name", absl::StrCat("got '", choice.name, "', which is not among tools"));
    }
    fields.Fail(in.status());
  }
  const bool forced =
      choice.kind == ToolChoice::Kind::kRequired || choice.kind == ToolChoice::Kind::kNamed;
  if (forced && request.tools.empty()) fields.Fail("tool_choice", "there are no tools");
  if (forced && request.options.constraint.kind != Constraint::Kind::kNone) {
    fields.Fail("tool_choice", absl::StrCat("a call is wanted, and an answer that conforms to ",
                                            request.options.constraint.param));
  }
}

void ReadTools(JsonFields& fields, ChatRequest& request) {
  const json::array* tools = fields.Array("tools");
  if (tools != nullptr && tools->size() > kToolsMax) {
    return fields.Fail("tools", absl::StrCat("got ", tools->size(), " entries, limit ", kToolsMax));
  }
  for (size_t i = 0; tools != nullptr && i < tools->size(); ++i) {
    absl::StatusOr<Tool> tool = ToolOf((*tools)[i], absl::StrCat("tools[", i, "]"));
    if (!tool.ok()) return fields.Fail(tool.status());
    for (const Tool& other : request.tools) {
      if (other.name == tool->name) {
        fields.Fail(absl::StrCat("tools[", i, "].function.name"),
                    absl::StrCat("got '", tool->name, "' twice"));
      }
    }
    request.tools.push_back(*std::move(tool));
  }
  ReadToolChoice(fields, request);
  fields.Bool("parallel_tool_calls", request.parallel_tool_calls);
}

void ReadLogprobs(JsonFields& fields, SamplingOptions& sampling) {
  bool logprobs = false;
  fields.Bool("logprobs", logprobs);
  std::optional<int32_t> top;
  fields.Int("top_logprobs", 0, kRequestLogprobsMax, top);
  if (logprobs) {
    sampling.logprobs = top.value_or(0);
  } else if (top.value_or(0) > 0) {
    fields.Fail("top_logprobs", absl::StrCat("got ", *top, ", only together with logprobs: true"));
  }
}

}  // namespace

void ReadConversation(JsonFields& fields, Conversation& conversation) {
  const json::array* messages = fields.Array("messages");
  if (messages == nullptr || messages->empty()) {
    return fields.Fail("messages", messages == nullptr ? "missing" : "got none, limit 1 or more");
  }
  conversation.messages = *messages;
  for (size_t i = 0; i < conversation.messages.size(); ++i) {
    absl::Status status = CheckMessage(conversation.messages[i], absl::StrCat("messages[", i, "]"));
    if (!status.ok()) return fields.Fail(std::move(status));
  }
  if (const json::array* tools = fields.Array("tools")) conversation.tools = *tools;
  if (const json::array* documents = fields.Array("documents")) conversation.documents = *documents;
  std::string effort;
  fields.String("reasoning_effort", effort);
  if (!effort.empty()) conversation.template_arguments["reasoning_effort"] = effort;
  if (const json::object* arguments = fields.Object("chat_template_kwargs")) {
    for (const auto& pair : *arguments) {
      conversation.template_arguments.insert_or_assign(pair.key(), pair.value());
    }
  }
  fields.String("chat_template", conversation.chat_template);
  fields.Bool("continue_final_message", conversation.continue_final_message);
  // Who continues a message wants no other to begin.
  conversation.add_generation_prompt = !conversation.continue_final_message;
  fields.Bool("add_generation_prompt", conversation.add_generation_prompt);
  if (conversation.continue_final_message && conversation.add_generation_prompt) {
    fields.Fail("continue_final_message", "not together with add_generation_prompt: true");
  }
}

absl::StatusOr<ChatRequest> ParseChatRequest(absl::string_view body) {
  ASSIGN_OR_RETURN(const json::object object, ParseJsonObject(body));
  JsonFields fields(object);
  ChatRequest request;
  ReadGenerationOptions(fields, request.options);
  ReadLogprobs(fields, request.options.sampling);
  ReadConversation(fields, request.conversation);
  ReadTools(fields, request);
  bool echo = false;
  fields.Bool("echo", echo);
  if (echo) fields.Fail(UnsupportedField("echo", "not supported for chat completions"));
  const std::optional<int32_t>& tokens_max = request.options.stop.tokens_max;
  if (tokens_max.has_value() && *tokens_max < 1) {
    fields.Fail("max_tokens", absl::StrCat("got ", *tokens_max, ", limit 1 or more"));
  }
  RETURN_IF_ERROR(fields.status());
  return request;
}

}  // namespace stampmill
