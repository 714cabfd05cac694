// Sampling, stopping, constraints: what completions and chat completions have in common.
#include <algorithm>
#include <array>
#include <boost/json/parse.hpp>
#include <boost/json/serialize.hpp>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "server/openai/errors.h"
#include "server/openai/parse_parts.h"

namespace stampmill {

namespace json = boost::json;

namespace {

constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();
constexpr double kTimeoutSecondsMax = 86'400;

void ReadSeed(JsonFields& fields, SamplingOptions& sampling) {
  const json::value* value = fields.Find("seed");
  if (value == nullptr) return;
  if (value->is_uint64()) {
    sampling.seed = value->get_uint64();
    return;
  }
  const absl::StatusOr<int64_t> seed =
      IntegerOf(*value, std::numeric_limits<int64_t>::min(), std::numeric_limits<int64_t>::max(),
                fields.Path("seed"));
  if (!seed.ok()) return fields.Fail(seed.status());
  sampling.seed = static_cast<uint64_t>(*seed);
}

// A map from tokens, as texts, to numbers.
void ReadBiases(JsonFields& fields, SamplingOptions& sampling) {
  const json::object* map = fields.Object("logit_bias");
  if (map == nullptr) return;
  if (map->size() > kLogitBiasesMax) {
    return fields.Fail("logit_bias",
                       absl::StrCat("got ", map->size(), " entries, limit ", kLogitBiasesMax));
  }
  JsonFields entries(*map, "logit_bias.");
  for (const auto& pair : *map) {
    const absl::string_view key(pair.key().data(), pair.key().size());
    int32_t token = 0;
    if (!absl::SimpleAtoi(key, &token) || token < 0) {
      entries.Fail(key, absl::StrCat("the key is no token, limit 0 to ", kInt32Max));
      break;
    }
    if (pair.value().is_null()) {
      entries.Fail(key, "got null, expected a number");
      break;
    }
    float bias = 0;
    entries.Float(key, -100, 100, bias);
    sampling.biases.emplace_back(token, bias);
  }
  fields.Fail(entries.status());
  std::sort(sampling.biases.begin(), sampling.biases.end());
  // "7" and "07" are one token.
  const auto same = [](const auto& a, const auto& b) { return a.first == b.first; };
  if (std::adjacent_find(sampling.biases.begin(), sampling.biases.end(), same) !=
      sampling.biases.end()) {
    fields.Fail("logit_bias", "a token is named twice");
  }
}

void ReadSampling(JsonFields& fields, SamplingOptions& sampling) {
  fields.Float("temperature", 0, 100, sampling.temperature);
  fields.Float("top_p", 0, 1, sampling.top_p);
  fields.Float("min_p", 0, 1, sampling.min_p);
  fields.Float("typical_p", 0, 1, sampling.typical_p);
  fields.Int("top_k", -1, kInt32Max, sampling.top_k);
  sampling.top_k = std::max(sampling.top_k, 0);
  fields.Float("presence_penalty", -2, 2, sampling.presence_penalty);
  fields.Float("frequency_penalty", -2, 2, sampling.frequency_penalty);
  // llama.cpp's name, then vLLM's.
  for (const char* name : {"repeat_penalty", "repetition_penalty"}) {
    fields.Float(name, 0.01, 100, sampling.repetition_penalty);
  }
  ReadSeed(fields, sampling);
  ReadBiases(fields, sampling);
  fields.Int("prompt_logprobs", 0, kRequestLogprobsMax, sampling.prompt_logprobs);
}

void ReadStopTexts(JsonFields& fields, StopOptions& stop) {
  const json::value* value = fields.Find("stop");
  if (value == nullptr) return;
  const auto add = [&](const json::value& text, absl::string_view name) {
    if (!text.is_string()) {
      return fields.Fail(name, absl::StrCat("got ", JsonKind(text), ", expected a string"));
    }
    const size_t size = JsonText(text).size();
    if (size == 0 || size > kRequestStopTextBytesMax) {
      return fields.Fail(
          name, absl::StrCat("got ", size, " bytes, limit 1 to ", kRequestStopTextBytesMax));
    }
    stop.texts.emplace_back(JsonText(text));
  };
  if (value->is_string()) return add(*value, "stop");
  const json::array* texts = value->if_array();
  if (texts == nullptr) {
    return fields.Fail(
        "stop", absl::StrCat("got ", JsonKind(*value), ", expected a string or an array of them"));
  }
  if (texts->size() > kRequestStopTextsMax) {
    return fields.Fail(
        "stop", absl::StrCat("got ", texts->size(), " entries, limit ", kRequestStopTextsMax));
  }
  for (size_t i = 0; i < texts->size(); ++i) add((*texts)[i], absl::StrCat("stop[", i, "]"));
}

void ReadStop(JsonFields& fields, StopOptions& stop) {
  // The newer name wins, as everywhere.
  fields.Int("max_tokens", 0, kInt32Max, stop.tokens_max);
  fields.Int("max_completion_tokens", 0, kInt32Max, stop.tokens_max);
  fields.Int("min_tokens", 0, kInt32Max, stop.tokens_min);
  if (stop.tokens_max.has_value() && stop.tokens_min > *stop.tokens_max) {
    fields.Fail("min_tokens", absl::StrCat("got ", stop.tokens_min, ", limit ", *stop.tokens_max,
                                           ", the most tokens that are wanted"));
  }
  fields.Tokens("stop_token_ids", kStopTokensMax, stop.tokens);
  ReadStopTexts(fields, stop);
  fields.Bool("ignore_eos", stop.ignore_eos);
  fields.Bool("include_stop_str_in_output", stop.include_text);
}

// Collects what asks for a constraint: more than one is an error.
class ConstraintReader {
 public:
  ConstraintReader(JsonFields& fields, Constraint& constraint)
      : fields_(fields), constraint_(constraint) {}

  void Set(Constraint::Kind kind, std::string text, absl::string_view param) {
    if (constraint_.kind != Constraint::Kind::kNone) {
      return fields_.Fail(FieldError(
          param,
          absl::StrCat("got a second constraint on the answer, beside ", constraint_.param)));
    }
    constraint_.kind = kind;
    constraint_.text = std::move(text);
    constraint_.param = std::string(param);
  }

  // A schema: an object or a boolean, or either as JSON in a string.
  void Schema(JsonFields& from, absl::string_view name) {
    const json::value* value = from.Find(name);
    if (value == nullptr) return;
    json::value parsed;
    if (value->is_string()) {
      boost::system::error_code error;
      parsed = json::parse(value->get_string(), error, {}, {.max_depth = 100});
      if (error) return from.Fail(name, absl::StrCat("no valid JSON: ", error.message()));
      value = &parsed;
    }
    if (!value->is_object() && !value->is_bool()) {
      return from.Fail(name, absl::StrCat("got ", JsonKind(*value), ", expected a JSON schema"));
    }
    Set(Constraint::Kind::kJsonSchema, json::serialize(*value), from.Path(name));
  }

  void Text(JsonFields& from, absl::string_view name, Constraint::Kind kind) {
    if (from.Find(name) == nullptr) return;
    std::string text;
    from.String(name, text);
    if (text.empty() && from.status().ok()) return from.Fail(name, "got an empty text");
    Set(kind, std::move(text), from.Path(name));
  }

  void Choices(JsonFields& from, absl::string_view name) {
    const json::array* array = from.Array(name);
    if (array == nullptr) return;
    if (array->empty()) return from.Fail(name, "got no choices, limit 1 or more");
    for (size_t i = 0; i < array->size(); ++i) {
      const json::value& choice = (*array)[i];
      if (!choice.is_string() || JsonText(choice).empty()) {
        return from.Fail(absl::StrCat(name, "[", i, "]"),
                         choice.is_string()
                             ? "got an empty text"
                             : absl::StrCat("got ", JsonKind(choice), ", expected a string"));
      }
      constraint_.choices.emplace_back(JsonText(choice));
    }
    Set(Constraint::Kind::kChoice, "", from.Path(name));
  }

 private:
  JsonFields& fields_;
  Constraint& constraint_;
};

void ReadResponseFormat(JsonFields& fields, ConstraintReader& constraint) {
  const json::object* format = fields.Object("response_format");
  if (format == nullptr) return;
  JsonFields in(*format, "response_format.");
  std::string type;
  in.String("type", type);
  if (type == "json_schema") {
    if (const json::object* outer = in.Object("json_schema"); outer != nullptr) {
      JsonFields schema(*outer, "response_format.json_schema.");
      std::string text;
      bool strict = false;
      schema.String("name", text);
      schema.String("description", text);
      schema.Bool("strict", strict);
      if (schema.Find("schema") == nullptr) schema.Fail("schema", "missing");
      constraint.Schema(schema, "schema");
      in.Fail(schema.status());
    } else {
      in.Fail("json_schema", "missing");
    }
  } else if (type == "json_object" && in.Find("schema") != nullptr) {
    // As llama.cpp and others take it.
    constraint.Schema(in, "schema");
  } else if (type == "json_object") {
    constraint.Set(Constraint::Kind::kJsonObject, "", "response_format");
  } else if (type != "text") {
    in.Fail("type", absl::StrCat("got '", type, "', limit text, json_object, json_schema"));
  }
  fields.Fail(in.status());
}

void ReadStructuredOutputs(JsonFields& fields, ConstraintReader& constraint) {
  const json::object* outputs = fields.Object("structured_outputs");
  if (outputs == nullptr) return;
  JsonFields in(*outputs, "structured_outputs.");
  constraint.Schema(in, "json");
  constraint.Text(in, "regex", Constraint::Kind::kRegex);
  constraint.Text(in, "grammar", Constraint::Kind::kGrammar);
  constraint.Choices(in, "choice");
  bool json_object = false;
  in.Bool("json_object", json_object);
  if (json_object) {
    constraint.Set(Constraint::Kind::kJsonObject, "", "structured_outputs.json_object");
  }
  for (const char* name : {"structural_tag", "whitespace_pattern"}) {
    if (in.Find(name) != nullptr) in.Fail(UnsupportedField(in.Path(name), "not supported"));
  }
  fields.Fail(in.status());
}

void ReadConstraint(JsonFields& fields, Constraint& constraint) {
  ConstraintReader reader(fields, constraint);
  ReadResponseFormat(fields, reader);
  ReadStructuredOutputs(fields, reader);
  reader.Schema(fields, "guided_json");
  reader.Text(fields, "guided_regex", Constraint::Kind::kRegex);
  reader.Choices(fields, "guided_choice");
  reader.Text(fields, "guided_grammar", Constraint::Kind::kGrammar);
  // llama.cpp's names. An empty grammar is none there.
  if (const json::value* grammar = fields.Find("grammar");
      grammar != nullptr && !(grammar->is_string() && JsonText(*grammar).empty())) {
    reader.Text(fields, "grammar", Constraint::Kind::kGrammar);
  }
  reader.Schema(fields, "json_schema");
}

void ReadStream(JsonFields& fields, GenerationOptions& options) {
  fields.Bool("stream", options.stream);
  const json::object* object = fields.Object("stream_options");
  if (object == nullptr) return;
  if (!options.stream) return fields.Fail("stream_options", "only together with stream: true");
  JsonFields in(*object, "stream_options.");
  in.Bool("include_usage", options.include_usage);
  in.Bool("continuous_usage_stats", options.continuous_usage);
  fields.Fail(in.status());
}

}  // namespace

void ReadGenerationOptions(JsonFields& fields, GenerationOptions& options) {
  fields.String("model", options.model);
  ReadSampling(fields, options.sampling);
  ReadStop(fields, options.stop);
  ReadConstraint(fields, options.constraint);
  ReadStream(fields, options);
  fields.Int("n", 1, kChoicesMax, options.choices);
  std::optional<int32_t> best_of;
  fields.Int("best_of", 1, kChoicesMax, best_of);
  if (best_of.has_value() && *best_of != options.choices) {
    fields.Fail(UnsupportedField(
        fields.Path("best_of"),
        absl::StrCat("got ", *best_of, ", only n is supported, which is ", options.choices)));
  }
  if (options.sampling.prompt_logprobs >= 0 && options.stream) {
    fields.Fail(UnsupportedField(fields.Path("prompt_logprobs"), "not supported in a stream"));
  }
  fields.Int("priority", -kRequestPriorityMax, kRequestPriorityMax, options.priority);
  if (fields.Find("timeout") != nullptr) {
    float seconds = 0;
    fields.Float("timeout", 0.001, kTimeoutSecondsMax, seconds);
    options.timeout_seconds = seconds;
  }
  fields.Bool("skip_special_tokens", options.skip_special_tokens);
  fields.Bool("spaces_between_special_tokens", options.spaces_between_special_tokens);
  fields.Bool("return_tokens_as_token_ids", options.tokens_as_token_ids);
  if (fields.Find("add_special_tokens") != nullptr) {
    bool add = false;
    fields.Bool("add_special_tokens", add);
    options.add_special_tokens = add;
  }
  fields.String("cache_salt", options.cache_salt);
  fields.String("user", options.user);
  RefuseUnsupported(fields);
}

void RefuseUnsupported(JsonFields& fields) {
  // By name, with the values that change nothing.
  struct Unsupported {
    const char* name;
    const char* neutral;  // JSON: an array of values
  };
  static constexpr std::array kUnsupported = std::to_array<Unsupported>({
      {"suffix", R"([""])"},
      {"use_beam_search", "[false]"},
      {"length_penalty", "[1]"},
      {"early_stopping", "[false]"},
      {"logits_processors", "[[]]"},
      {"allowed_token_ids", "[]"},
      {"bad_words", "[[]]"},
      {"truncate_prompt_tokens", "[]"},
      {"prompt_embeds", "[]"},
      {"return_token_ids", "[false]"},
      {"kv_transfer_params", "[{}]"},
      {"mm_processor_kwargs", "[{}]"},
      {"lora", "[[]]"},
      {"lora_request", "[]"},
      {"modalities", R"([[], ["text"]])"},
      {"audio", "[]"},
      {"web_search_options", "[]"},
      {"functions", "[[]]"},
      {"function_call", "[]"},
      {"guided_whitespace_pattern", "[]"},
      {"structural_tag", "[]"},
      {"mirostat", "[0]"},
      {"dynatemp_range", "[0]"},
      {"xtc_probability", "[0]"},
      {"dry_multiplier", "[0]"},
      {"top_n_sigma", "[0, -1]"},
      {"tfs_z", "[1]"},
      {"top_a", "[0]"},
      {"samplers", "[]"},
      {"n_predict", "[-1]"},
      {"n_probs", "[0]"},
  });
  for (const auto& [name, neutral] : kUnsupported) {
    const json::value* value = fields.Find(name);
    if (value == nullptr) continue;
    const json::value allowed = json::parse(neutral);
    const auto is_it = [&](const json::value& candidate) {
      if (!candidate.is_number()) return candidate == *value;
      return value->is_number() && value->to_number<double>() == candidate.to_number<double>();
    };
    const json::array& values = allowed.get_array();
    if (!std::any_of(values.begin(), values.end(), is_it)) {
      fields.Fail(UnsupportedField(fields.Path(name), "not supported"));
    }
  }
}

}  // namespace stampmill
