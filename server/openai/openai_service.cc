#include "server/openai/openai_service.h"

#include <algorithm>
#include <atomic>
#include <boost/json.hpp>
#include <ctime>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/status_macros.h"
#include "runtime/block_hash.h"
#include "server/answers.h"
#include "server/http/http_service.h"
#include "server/http/json_infer.h"
#include "server/openai/constraints.h"
#include "server/openai/errors.h"
#include "server/openai/generate_request.h"
#include "server/openai/generation_call.h"
#include "server/openai/requests.h"
#include "server/openai/responses.h"
#include "server/openai/tool_calls.h"

namespace stampmill {
namespace {

// Endpoints of the APIs that are not here yet.
constexpr absl::string_view kNotYet[] = {"/v1/responses",
                                         "/v1/rerank",
                                         "/rerank",
                                         "/v1/score",
                                         "/score",
                                         "/v1/audio/",
                                         "/v1/images",
                                         "/v1/moderations",
                                         "/v1/load_lora_adapter",
                                         "/v1/unload_lora_adapter"};

// Each takes a walk over the vocabulary before it begins.
constexpr size_t kConstrainedTextsMax = kChoicesMax;

HttpAnswer ErrorAnswer(const ApiError& error) {
  HttpAnswer answer;
  answer.status = error.status;
  answer.body = ErrorText(error);
  return answer;
}
HttpAnswer ErrorAnswer(const absl::Status& status) { return ErrorAnswer(ToApiError(status)); }

class Route {
 public:
  Route(LanguageModels& models, const std::shared_ptr<ConstraintPool>& constraints,
        const std::function<bool()>& is_ready, HttpRequest& request, HttpReply& reply)
      : models_(models),
        constraints_(constraints),
        is_ready_(is_ready),
        request_(request),
        reply_(reply) {}

  bool Answer() {
    absl::string_view path = request_.path;
    if (path == "/health" || path == "/ping" || path == "/v1/health") return Health();
    if (path == "/version") {
      return Send("GET", absl::StrCat("{\"version\":\"", kServerVersion, "\"}"));
    }
    if (path == "/v1/models" || path == "/v1/models/") return Send("GET", ListText());
    if (absl::ConsumePrefix(&path, "/v1/models/")) return OneModel(path);
    if (path == "/v1/chat/completions") return Post([&] { return Chat(); });
    if (path == "/v1/completions") return Post([&] { return Completion(); });
    if (path == "/v1/embeddings") return Post([&] { return Embeddings(); });
    if (path == "/tokenize") return Post([&] { return Tokenize(); });
    if (path == "/detokenize") return Post([&] { return Detokenize(); });
    for (const absl::string_view missing : kNotYet) {
      if (!absl::StartsWith(path, missing)) continue;
      reply_.Send(ErrorAnswer(
          absl::UnimplementedError(absl::StrCat("endpoint ", missing, " is not supported"))));
      return true;
    }
    if (absl::StartsWith(path, "/v2/models/")) return MaybeGenerate(path);
    if (!absl::StartsWith(path, "/v1/") && path != "/v1") return false;
    reply_.Send(ErrorAnswer(absl::NotFoundError(absl::StrCat("no endpoint ", path))));
    return true;
  }

 private:
  bool Health() {
    HttpAnswer answer;
    answer.status = is_ready_() ? 200 : 503;
    answer.body = is_ready_() ? "{\"status\":\"ok\"}" : "{\"status\":\"loading\"}";
    reply_.Send(std::move(answer));
    return true;
  }

  bool Send(absl::string_view method, std::string body) {
    if (request_.method != method) return WrongMethod();
    HttpAnswer answer;
    answer.body = std::move(body);
    reply_.Send(std::move(answer));
    return true;
  }

  bool WrongMethod() {
    ApiError error;
    error.status = 405;
    error.message = "Method Not Allowed";
    error.type = "invalid_request_error";
    reply_.Send(ErrorAnswer(error));
    return true;
  }

  template <typename F>
  bool Post(const F& handle) {
    if (request_.method != "POST") return WrongMethod();
    const absl::Status status = handle();
    if (!status.ok()) reply_.Send(ErrorAnswer(status));
    return true;
  }

  static ModelCard CardOf(const LanguageModel& model) {
    return {.id = model.name(),
            .created = model.loaded_unix_seconds(),
            .context_tokens = model.context_tokens()};
  }
  static ModelCard CardOf(const EmbeddingModel& model) {
    return {.id = model.name(),
            .created = model.loaded_unix_seconds(),
            .context_tokens = model.context_tokens()};
  }

  std::string ListText() const {
    std::vector<ModelCard> cards;
    for (const LanguageModel* model : models_.List()) cards.push_back(CardOf(*model));
    for (const EmbeddingModel* model : models_.ListEmbedding()) cards.push_back(CardOf(*model));
    return ModelListText(cards);
  }

  bool OneModel(absl::string_view name) {
    if (const EmbeddingModel* embedding = models_.FindEmbedding(name)) {
      return Send("GET", ModelText(CardOf(*embedding)));
    }
    const absl::StatusOr<LanguageModel*> model = Model(std::string(name));
    if (model.ok()) return Send("GET", ModelText(CardOf(**model)));
    reply_.Send(ErrorAnswer(model.status()));
    return true;
  }

  // Without a name the only model there is.
  absl::StatusOr<LanguageModel*> Model(const std::string& name) const {
    const std::vector<LanguageModel*> all = models_.List();
    const std::vector<EmbeddingModel*> others = models_.ListEmbedding();
    if (name.empty() && all.size() == 1 && others.empty()) return all[0];
    if (LanguageModel* model = models_.Find(name)) return model;
    if (models_.FindEmbedding(name) != nullptr ||
        (name.empty() && all.empty() && !others.empty())) {
      return FieldError("model", "gives embeddings and no text (POST /v1/embeddings)");
    }
    return NoModel(name);
  }

  absl::StatusOr<EmbeddingModel*> ModelOfEmbeddings(const std::string& name) const {
    const std::vector<LanguageModel*> others = models_.List();
    const std::vector<EmbeddingModel*> all = models_.ListEmbedding();
    if (name.empty() && all.size() == 1 && others.empty()) return all[0];
    if (EmbeddingModel* model = models_.FindEmbedding(name)) return model;
    if (models_.Find(name) != nullptr || (name.empty() && all.empty() && !others.empty())) {
      return FieldError("model", "gives text and no embeddings");
    }
    return NoModel(name);
  }

  absl::Status NoModel(const std::string& name) const {
    if (!is_ready_()) return NotReady("the server is not ready: its models are not all loaded");
    if (name.empty()) return FieldError("model", "missing");
    return absl::NotFoundError(absl::StrCat("model '", name, "' does not exist"));
  }

  // Of whichever kind the model is.
  absl::StatusOr<const Tokenizer*> TokenizerOf(const std::string& name, int32_t& context) const {
    if (const absl::StatusOr<EmbeddingModel*> embedding = ModelOfEmbeddings(name); embedding.ok()) {
      context = (*embedding)->context_tokens();
      return &(*embedding)->tokenizer();
    }
    ASSIGN_OR_RETURN(const LanguageModel* const model, Model(name));
    context = model->context_tokens();
    return &model->tokenizer();
  }

  static absl::Status CheckTokens(const Tokenizer& tokenizer, const std::vector<int32_t>& tokens,
                                  absl::string_view param) {
    for (const int32_t token : tokens) {
      if (tokenizer.IsToken(token)) continue;
      return FieldError(
          param, absl::StrCat("token: got ", token, ", limit ", tokenizer.vocabulary_size() - 1));
    }
    return absl::OkStatus();
  }

  static absl::Status CheckOptions(const LanguageModel& model, const GenerationOptions& options) {
    RETURN_IF_ERROR(CheckTokens(model.tokenizer(), options.stop.tokens, "stop_token_ids"));
    for (const auto& [token, bias] : options.sampling.biases) {
      RETURN_IF_ERROR(CheckTokens(model.tokenizer(), {token}, "logit_bias"));
    }
    return absl::OkStatus();
  }

  static absl::Status CheckLength(const LanguageModel& model, size_t size,
                                  const GenerationOptions& options, absl::string_view param) {
    const auto tokens = static_cast<int64_t>(size);
    const int64_t answer = options.stop.tokens_max.value_or(1);
    if (tokens == 0) return FieldError(param, "no tokens");
    if (tokens + answer <= model.context_tokens()) return absl::OkStatus();
    return ContextTooLong(
        param, absl::StrCat("got ", tokens, " tokens and up to ", answer, " of the answer, limit ",
                            model.context_tokens(), " together"));
  }

  // Makes the constraints of all texts of the plan; `compile` makes the grammar that `key` stands
  // for.
  template <typename Compile>
  absl::Status Constrain(const LanguageModel& model, const std::string& param,
                         const std::string& key, const Compile& compile,
                         TextConstraint::FreePart free, GenerationPlan& plan) {
    const size_t count = plan.prompts.size() * static_cast<size_t>(plan.options.choices);
    if (count > kConstrainedTextsMax) {
      return FieldError(param, absl::StrCat("got ", count, " answers that conform to it, limit ",
                                            kConstrainedTextsMax));
    }
    const ConstraintVocabulary& vocabulary = model.constraint_vocabulary();
    ASSIGN_OR_RETURN(plan.constraints, constraints_->Acquire(vocabulary, key, count, compile));
    for (const std::unique_ptr<TextConstraint>& constraint : plan.constraints) {
      const absl::Status status = constraint->Begin(free);
      if (!status.ok()) return FieldError(param, status.message());
      if (constraint->complete()) return FieldError(param, "allows no text but the empty one");
    }
    const std::shared_ptr<ConstraintPool> pool = constraints_;
    plan.take_back = [pool, &vocabulary, key](std::unique_ptr<TextConstraint> constraint) {
      pool->Return(vocabulary, key, std::move(constraint));
    };
    return absl::OkStatus();
  }

  absl::Status Constrain(const LanguageModel& model, TextConstraint::FreePart free,
                         GenerationPlan& plan) {
    const Constraint& constraint = plan.options.constraint;
    if (constraint.kind == Constraint::Kind::kNone) return absl::OkStatus();
    return Constrain(
        model, constraint.param, KeyOf(constraint), [&] { return GrammarOf(constraint); },
        std::move(free), plan);
  }

  // Who asks, for whose texts others do not wait: by what the request says of it, its key, or where
  // it comes from.
  uint64_t ClientOf(const GenerationOptions& options) const {
    if (!options.user.empty()) return RootHash(1, options.user).low;
    const absl::string_view key = request_.Header("authorization");
    return key.empty() ? RootHash(3, request_.peer).low : RootHash(2, key).low;
  }

  absl::Status Start(LanguageModel& model, GenerationPlan plan) {
    plan.client = ClientOf(plan.options);
    plan.arrival_nanos = request_.arrival_nanos;
    // Others are not told of the load, as with vLLM and Triton: proxies ask for what they know.
    const std::string format =
        absl::AsciiStrToLower(request_.Header("endpoint-load-metrics-format"));
    if (format == "text") plan.load_format = LoadFormat::kText;
    if (format == "json") plan.load_format = LoadFormat::kJson;
    OpenAiCall::Start(
        std::make_shared<OpenAiCall>(&models_, &model, std::move(plan), std::move(reply_)));
    return absl::OkStatus();
  }

  absl::StatusOr<std::string> Rendered(const LanguageModel& model,
                                       const Conversation& conversation) const {
    if (conversation.continue_final_message) {
      return UnsupportedField("continue_final_message", "is not supported");
    }
    std::unique_ptr<ChatTemplate> own;
    const ChatTemplate* chat_template = model.chat_template();
    if (!conversation.chat_template.empty()) {
      absl::StatusOr<std::unique_ptr<ChatTemplate>> parsed =
          ChatTemplate::Parse(conversation.chat_template);
      if (!parsed.ok()) return FieldError("chat_template", parsed.status().message());
      own = *std::move(parsed);
      chat_template = own.get();
    }
    if (chat_template == nullptr) {
      return FieldError("messages", "the model has no chat template (--chat-template gives one)");
    }
    boost::json::object context = conversation.template_arguments;
    context["messages"] = conversation.messages;
    if (!conversation.tools.empty()) context["tools"] = conversation.tools;
    if (!conversation.documents.empty()) context["documents"] = conversation.documents;
    context["add_generation_prompt"] = conversation.add_generation_prompt;
    const auto text_of = [&](std::optional<int32_t> token) {
      const absl::string_view text =
          token.has_value() ? model.tokenizer().TokenText(*token) : absl::string_view();
      return boost::json::string(text.data(), text.size());
    };
    context["bos_token"] = text_of(model.tokenizer().bos());
    context["eos_token"] = text_of(model.tokenizer().eos());
    absl::StatusOr<std::string> text =
        chat_template->Render(context, {.now_unix_seconds = time(nullptr)});
    if (!text.ok()) return FieldError("messages", text.status().message());
    return text;
  }

  absl::Status Chat() {
    ASSIGN_OR_RETURN(ChatRequest chat, ParseChatRequest(request_.body));
    ASSIGN_OR_RETURN(LanguageModel* const model, Model(chat.options.model));
    RETURN_IF_ERROR(CheckOptions(*model, chat.options));
    const std::string& own = chat.conversation.chat_template;
    const TemplateFormat format =
        FormatOfTemplate(own.empty() ? model->chat_template_source() : own);
    if (chat.tool_choice.kind != ToolChoice::Kind::kNone && format.tools == ToolFormat::kNone) {
      return UnsupportedField("tools",
                              "the model's chat template has no calls of tools in a format of "
                              "Hermes, Llama 3 or Mistral (--chat-template gives another)");
    }
    ASSIGN_OR_RETURN(const std::string text, Rendered(*model, chat.conversation));
    ASSIGN_OR_RETURN(std::vector<int32_t> tokens,
                     model->tokenizer().Encode(
                         text, {.add_special = chat.options.add_special_tokens.value_or(false),
                                .parse_special = true}));
    RETURN_IF_ERROR(CheckLength(*model, tokens.size(), chat.options, "messages"));
    GenerationPlan plan = {.options = std::move(chat.options), .prompts = {}, .echoes = {}};
    plan.prompts.push_back(std::move(tokens));
    plan.chat = true;
    plan.format = OutputOf(chat, format, text);
    plan.parallel_tool_calls = chat.parallel_tool_calls;
    RETURN_IF_ERROR(ConstrainChat(*model, chat, format, plan));
    return Start(*model, std::move(plan));
  }

  // How the answer to a prompt is taken apart; nothing where it is all content.
  static std::optional<OutputFormat> OutputOf(const ChatRequest& chat, const TemplateFormat& format,
                                              absl::string_view prompt) {
    const bool calls = chat.tool_choice.kind != ToolChoice::Kind::kNone;
    if (!calls && format.reasoning_end.empty()) return std::nullopt;
    OutputFormat output = {.tools = calls ? format.tools : ToolFormat::kNone,
                           .reasoning_begin = format.reasoning_begin,
                           .reasoning_end = format.reasoning_end};
    output.reasoning_open =
        !format.reasoning_begin.empty() &&
        absl::EndsWith(absl::StripTrailingAsciiWhitespace(prompt), format.reasoning_begin);
    for (const Tool& tool : chat.tools) output.tool_names.push_back(tool.name);
    return output;
  }

  absl::Status ConstrainChat(const LanguageModel& model, const ChatRequest& chat,
                             const TemplateFormat& format, GenerationPlan& plan) {
    const Constraint& answer = plan.options.constraint;
    // Where the prompt has begun the reasoning, what conforms comes behind it.
    TextConstraint::FreePart free;
    if (plan.format.has_value() && plan.format->reasoning_open) free.text = format.reasoning_end;
    const bool forced = chat.tool_choice.kind == ToolChoice::Kind::kRequired ||
                        chat.tool_choice.kind == ToolChoice::Kind::kNamed;
    const bool strict = std::ranges::any_of(chat.tools, [](const Tool& t) { return t.strict; });
    const bool any_answer = answer.kind == Constraint::Kind::kNone;
    if (chat.tool_choice.kind == ToolChoice::Kind::kNone || (!forced && any_answer && !strict)) {
      return Constrain(model, std::move(free), plan);
    }
    std::vector<Tool> tools = chat.tools;
    if (chat.tool_choice.kind == ToolChoice::Kind::kNamed) {
      std::erase_if(tools, [&](const Tool& tool) { return tool.name != chat.tool_choice.name; });
    }
    // A tool that is named is called once.
    const bool parallel =
        chat.parallel_tool_calls && chat.tool_choice.kind != ToolChoice::Kind::kNamed;
    ToolGrammar grammar = {.format = format, .tools = tools, .parallel = parallel};
    if (!any_answer) {
      if (answer.kind != Constraint::Kind::kJsonObject &&
          answer.kind != Constraint::Kind::kJsonSchema) {
        return UnsupportedField(answer.param, "not supported together with tools");
      }
      grammar.beside = BesideCalls::kJson;
      grammar.answer = answer;
    } else if (!forced && MarkerOf(format).empty()) {
      grammar.beside = BesideCalls::kText;
    } else if (!forced) {
      // Nothing is asked of the text, reasoning or not, until the model calls.
      grammar.behind_marker = true;
      free = {.text = MarkerOf(format), .may_end = true};
    }
    return Constrain(
        model, "tools", KeyOf(grammar),
        [&] { return GrammarOf(grammar, model.constraint_vocabulary()); }, std::move(free), plan);
  }

  // /v2/models/NAME[/versions/1]/generate[_stream] of a language model; what else is under this
  // path is KServe's.
  bool MaybeGenerate(absl::string_view path) {
    absl::ConsumePrefix(&path, "/v2/models/");
    const bool events = absl::ConsumeSuffix(&path, "/generate_stream");
    if (!events && !absl::ConsumeSuffix(&path, "/generate")) return false;
    absl::ConsumeSuffix(&path, "/versions/1");
    const absl::StatusOr<std::string> name = PercentDecode(path);
    LanguageModel* const model = name.ok() ? models_.Find(*name) : nullptr;
    if (model == nullptr) return false;
    HttpAnswer answer;
    if (request_.method != "POST") {
      answer.status = 405;
      answer.body = ErrorJson("Method Not Allowed");
    } else {
      const absl::Status status = Generate(*model, events);
      if (status.ok()) return true;
      answer.status = HttpStatus(status);
      answer.body = ErrorJson(status.message());
    }
    reply_.Send(std::move(answer));
    return true;
  }

  absl::Status Generate(LanguageModel& model, bool events) {
    ASSIGN_OR_RETURN(GenerateRequest generate, ParseGenerateRequest(request_.body, events));
    ASSIGN_OR_RETURN(GenerationPlan plan, PlanOf(model, generate.completion, "text_input"));
    plan.generate = {.id = std::move(generate.id), .events = events};
    return Start(model, std::move(plan));
  }

  absl::Status Completion() {
    ASSIGN_OR_RETURN(CompletionRequest completion, ParseCompletionRequest(request_.body));
    ASSIGN_OR_RETURN(LanguageModel* const model, Model(completion.options.model));
    ASSIGN_OR_RETURN(GenerationPlan plan, PlanOf(*model, completion, "prompt"));
    return Start(*model, std::move(plan));
  }

  // `param`: the field of the prompt.
  absl::StatusOr<GenerationPlan> PlanOf(LanguageModel& model, CompletionRequest& completion,
                                        absl::string_view param) {
    RETURN_IF_ERROR(CheckOptions(model, completion.options));
    GenerationPlan plan = {.options = completion.options, .prompts = {}, .echoes = {}};
    // A step chooses a token: there is no text of none.
    plan.echo_only = completion.options.stop.tokens_max == 0;
    if (plan.echo_only) plan.options.stop.tokens_max = 1;
    for (Prompt& prompt : completion.prompts) {
      std::vector<int32_t> tokens = std::move(prompt.tokens);
      if (prompt.is_tokens) {
        RETURN_IF_ERROR(CheckTokens(model.tokenizer(), tokens, param));
      } else {
        ASSIGN_OR_RETURN(
            tokens,
            model.tokenizer().Encode(
                prompt.text, {.add_special = completion.options.add_special_tokens.value_or(true),
                              .parse_special = true}));
        if (tokens.empty() && model.tokenizer().bos().has_value()) {
          tokens.push_back(*model.tokenizer().bos());
        }
      }
      RETURN_IF_ERROR(CheckLength(model, tokens.size(), plan.options, param));
      if (completion.echo) plan.echoes.push_back(EchoOf(model, prompt, tokens));
      plan.prompts.push_back(std::move(tokens));
    }
    RETURN_IF_ERROR(Constrain(model, {}, plan));
    return plan;
  }

  static std::string EchoOf(const LanguageModel& model, const Prompt& prompt,
                            const std::vector<int32_t>& tokens) {
    if (!prompt.is_tokens) return prompt.text;
    Detokenizer detokenizer(&model.tokenizer());
    std::string text;
    for (const int32_t token : tokens) text += detokenizer.Add(token);
    return text + detokenizer.Finish();
  }

  absl::StatusOr<std::vector<int32_t>> TokensOf(const EmbeddingModel& model, Prompt& input) const {
    std::vector<int32_t> tokens = std::move(input.tokens);
    if (input.is_tokens) {
      RETURN_IF_ERROR(CheckTokens(model.tokenizer(), tokens, "input"));
    } else {
      ASSIGN_OR_RETURN(tokens, model.tokenizer().Encode(
                                   input.text, {.add_special = true, .parse_special = false}));
    }
    if (tokens.empty()) return FieldError("input", "no tokens");
    if (tokens.size() <= static_cast<size_t>(model.context_tokens())) return tokens;
    return ContextTooLong(
        "input", absl::StrCat("got ", tokens.size(), " tokens, limit ", model.context_tokens()));
  }

  absl::Status Embeddings() {
    ASSIGN_OR_RETURN(EmbeddingRequest embedding, ParseEmbeddingRequest(request_.body));
    ASSIGN_OR_RETURN(EmbeddingModel* const model, ModelOfEmbeddings(embedding.model));
    const int64_t width = model->engine().width();
    if (!model->engine().pools()) {
      return FieldError("model", "gives embeddings of tokens and none of a text (pooling_type 0)");
    }
    if (embedding.dimensions.value_or(width) != width) {
      return FieldError("dimensions", absl::StrCat("got ", *embedding.dimensions,
                                                   ", the model's embeddings have ", width));
    }
    auto job = std::make_unique<EmbeddingJob>();
    int64_t prompt_tokens = 0;
    for (Prompt& input : embedding.inputs) {
      ASSIGN_OR_RETURN(std::vector<int32_t> tokens, TokensOf(*model, input));
      prompt_tokens += static_cast<int64_t>(tokens.size());
      job->texts.push_back(std::move(tokens));
    }
    const auto reply = std::make_shared<HttpReply>(std::move(reply_));
    job->cancelled = std::make_shared<std::atomic<bool>>(false);
    reply->OnAbandon([cancelled = job->cancelled] { cancelled->store(true); });
    job->done = [reply, name = model->name(), base64 = embedding.base64,
                 prompt_tokens](absl::StatusOr<std::vector<std::vector<float>>> embeddings) {
      HttpAnswer answer;
      if (embeddings.ok()) {
        answer.body = EmbeddingsText(name, *embeddings, base64, prompt_tokens);
      } else {
        answer = ErrorAnswer(embeddings.status());
      }
      reply->Send(std::move(answer));
    };
    const absl::Status status = model->engine().Submit(std::move(job));
    if (!status.ok()) reply->Send(ErrorAnswer(status));
    return absl::OkStatus();
  }

  absl::Status Tokenize() {
    ASSIGN_OR_RETURN(const TokenizeRequest tokenize, ParseTokenizeRequest(request_.body));
    int32_t context = 0;
    ASSIGN_OR_RETURN(const Tokenizer* const tokenizer, TokenizerOf(tokenize.model, context));
    std::string text = tokenize.prompt;
    const bool chat = tokenize.conversation.has_value();
    if (chat) {
      ASSIGN_OR_RETURN(const LanguageModel* const model, Model(tokenize.model));
      ASSIGN_OR_RETURN(text, Rendered(*model, *tokenize.conversation));
    }
    ASSIGN_OR_RETURN(
        const std::vector<int32_t> tokens,
        tokenizer->Encode(text, {.add_special = tokenize.add_special_tokens.value_or(!chat),
                                 .parse_special = true}));
    std::vector<std::string> pieces;
    for (const int32_t token : tokens) pieces.emplace_back(tokenizer->TokenBytes(token));
    Send("POST", TokenizeText(tokens, context, tokenize.with_pieces ? &pieces : nullptr));
    return absl::OkStatus();
  }

  absl::Status Detokenize() {
    ASSIGN_OR_RETURN(const DetokenizeRequest detokenize, ParseDetokenizeRequest(request_.body));
    int32_t context = 0;
    ASSIGN_OR_RETURN(const Tokenizer* const tokenizer, TokenizerOf(detokenize.model, context));
    RETURN_IF_ERROR(CheckTokens(*tokenizer, detokenize.tokens, "tokens"));
    Detokenizer detokenizer(tokenizer, {.special = true});
    std::string text;
    for (const int32_t token : detokenize.tokens) text += detokenizer.Add(token);
    text += detokenizer.Finish();
    Send("POST", DetokenizeText(text));
    return absl::OkStatus();
  }

  LanguageModels& models_;
  const std::shared_ptr<ConstraintPool>& constraints_;
  const std::function<bool()>& is_ready_;
  HttpRequest& request_;
  HttpReply& reply_;
};

}  // namespace

bool OpenAiService::Handle(HttpRequest& request, HttpReply& reply) const {
  return Route(models_, constraints_, is_ready_, request, reply).Answer();
}

}  // namespace stampmill
