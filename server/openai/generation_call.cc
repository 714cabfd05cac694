#include "server/openai/generation_call.h"

#include <algorithm>
#include <ctime>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "server/http/json_infer.h"
#include "server/openai/errors.h"

namespace stampmill {
namespace {

// A stream's tokens wait while so much of it is not read yet, and go on below the lower mark.
constexpr size_t kSlowClientBytes = 64 << 10;
constexpr size_t kReadAgainBytes = 16 << 10;
static_assert(kRequestPriorityMax == kPriorityMax);

uint64_t RandomNumber();

// Of a call of a tool. Templates of Mistral's insist on nine letters and digits.
std::string NewCallId(ToolFormat format) {
  if (format != ToolFormat::kMistral) {
    return absl::StrFormat("call_%016x%08x", RandomNumber(), RandomNumber() & 0xFFFFFFFF);
  }
  static constexpr absl::string_view kLetters =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";
  std::string id;
  for (int i = 0; i < 9; ++i) id += kLetters[RandomNumber() % kLetters.size()];
  return id;
}

uint64_t RandomNumber() {
  static thread_local std::mt19937_64 random{std::random_device{}()};
  return random();
}

}  // namespace

OpenAiCall::OpenAiCall(LanguageModels* models, LanguageModel* model, GenerationPlan plan,
                       HttpReply reply)
    : models_(*models), model_(*model), plan_(std::move(plan)), reply_(std::move(reply)) {
  head_.id = absl::StrFormat("%s-%016x%016x", plan_.chat ? "chatcmpl" : "cmpl", RandomNumber(),
                             RandomNumber());
  head_.model = model->name();
  head_.created = time(nullptr);
  head_.system_fingerprint = "stampmill";
  const StreamStyle style = {.include_usage = plan_.options.include_usage,
                             .continuous_usage = plan_.options.continuous_usage,
                             .tokens_as_token_ids = plan_.options.tokens_as_token_ids};
  if (plan_.chat) {
    chat_chunks_.emplace(head_, style);
  } else {
    completion_chunks_.emplace(head_, style);
  }
}

void OpenAiCall::Start(const std::shared_ptr<OpenAiCall>& call) {
  // Texts may end before all of them are submitted: the other thread begins when all is set.
  call->models_.Run([call] {
    if (const absl::Status status = call->Submit(); !status.ok()) {
      call->Cancel();
      call->Fail(status);
    }
  });
}

absl::Status OpenAiCall::Submit() {
  const size_t count = plan_.prompts.size() * static_cast<size_t>(plan_.options.choices);
  choices_.resize(count);
  open_ = 0;
  for (const std::vector<int32_t>& prompt : plan_.prompts) {
    prompt_tokens_ += static_cast<int64_t>(prompt.size());
  }
  for (size_t i = 0; i < count; ++i) {
    Choice& choice = choices_[i];
    // Markers may be special tokens: TextOf leaves the others out.
    const bool special = !plan_.options.skip_special_tokens || plan_.format.has_value();
    choice.detokenizer = std::make_unique<Detokenizer>(&model_.tokenizer(),
                                                       Detokenizer::Options{.special = special});
    if (plan_.format.has_value()) {
      choice.parser.emplace(*plan_.format,
                            [format = plan_.format->tools] { return NewCallId(format); });
    }
    choice.stop.emplace(plan_.options.stop.texts, plan_.options.stop.include_text);
    ASSIGN_OR_RETURN(GenerationHandle generation, model_.generations().Acquire());
    if (!plan_.constraints.empty()) generation->constraint = std::move(plan_.constraints[i]);
    RETURN_IF_ERROR(FillGeneration(*generation, i));
    Generation* const submitted = generation.get();
    const GenerationTag tag = generation->tag();
    RETURN_IF_ERROR(
        models_.Submit(model_, generation, shared_from_this(), static_cast<int32_t>(i)));
    choice.generation = submitted;
    tags_.push_back(tag);
    ++open_;
  }
  LanguageEngine* const engine = &model_.engine();
  reply_.OnAbandon([engine, tags = tags_] {
    for (const GenerationTag tag : tags) engine->Cancel(tag);
  });
  return absl::OkStatus();
}

absl::Status OpenAiCall::FillGeneration(Generation& generation, size_t index) const {
  const GenerationOptions& o = plan_.options;
  const size_t choices = static_cast<size_t>(o.choices);
  const std::vector<int32_t>& prompt = plan_.prompts[index / choices];
  generation.sampling = {.temperature = o.sampling.temperature,
                         .top_p = o.sampling.top_p,
                         .min_p = o.sampling.min_p,
                         .typical_p = o.sampling.typical_p,
                         .repetition_penalty = o.sampling.repetition_penalty,
                         .presence_penalty = o.sampling.presence_penalty,
                         .frequency_penalty = o.sampling.frequency_penalty,
                         .top_k = o.sampling.top_k,
                         .seed = o.sampling.seed.value_or(RandomNumber()) + index % choices,
                         .biases = o.sampling.biases,
                         .logprobs = o.sampling.logprobs,
                         .prompt_logprobs = o.sampling.prompt_logprobs};
  if (!plan_.echoes.empty()) {
    generation.sampling.prompt_logprobs = std::max(o.sampling.prompt_logprobs, o.sampling.logprobs);
  }
  const auto size = static_cast<int32_t>(prompt.size());
  const int32_t room = model_.context_tokens() - size;
  generation.stop.tokens_max = o.stop.tokens_max.value_or(room);
  generation.stop.tokens_min = o.stop.tokens_min;
  generation.stop.tokens = o.stop.tokens;
  generation.stop.texts = o.stop.texts;
  if (!o.stop.ignore_eos) {
    const std::vector<int32_t>& ends = model_.end_tokens();
    generation.stop.tokens.insert(generation.stop.tokens.end(), ends.begin(), ends.end());
  }
  const BlockHash root =
      o.cache_salt.empty() ? model_.root() : RootHash(model_.root().low, o.cache_salt);
  generation.priority = o.priority;
  generation.client = plan_.client;
  generation.times.arrival = plan_.arrival_nanos;
  generation.Begin(prompt, model_.context_tokens(), root);
  if (o.timeout_seconds.has_value()) {
    generation.sequence().deadline_nanos =
        RealClock().NowNanos() + static_cast<int64_t>(*o.timeout_seconds * 1e9);
  }
  return absl::OkStatus();
}

void OpenAiCall::Cancel() {
  for (const GenerationTag tag : tags_) model_.engine().Cancel(tag);
}

void OpenAiCall::Fail(const absl::Status& status) {
  if (done_) return;
  done_ = true;
  if (plan_.generate.has_value()) return FailGenerate(status);
  const ApiError error = ToApiError(status);
  if (streaming_) {
    AppendErrorEvent(error, out_);
    out_ += kSseDone;
    Flush();
    reply_.EndStream();
    return;
  }
  HttpAnswer answer;
  answer.status = error.status;
  answer.body = ErrorText(error);
  if (error.status == 429 || error.status == 503) answer.headers.emplace_back("Retry-After", "1");
  reply_.Send(std::move(answer));
}

void OpenAiCall::FailGenerate(const absl::Status& status) {
  const std::string error = ErrorJson(status.message());
  if (streaming_) {
    absl::StrAppend(&out_, "data: ", error, "\n\n");
    Flush();
    reply_.EndStream();
    return;
  }
  HttpAnswer answer;
  answer.status = HttpStatus(status);
  answer.body = error;
  if (answer.status == 503) answer.headers.emplace_back("Retry-After", "1");
  reply_.Send(std::move(answer));
}

void OpenAiCall::Advance(Generation& /*generation*/, int32_t index) {
  Take(static_cast<size_t>(index));
}

void OpenAiCall::End(GenerationHandle generation, int32_t index) {
  Choice& choice = choices_[static_cast<size_t>(index)];
  choice.over = std::move(generation);
  if (choice.over->constraint != nullptr) plan_.take_back(std::move(choice.over->constraint));
  // The client is gone, and what it has not read never will be.
  if (absl::IsCancelled(choice.over->status)) done_ = true;
  Take(static_cast<size_t>(index));
}

void OpenAiCall::Take(size_t index) {
  Choice& choice = choices_[index];
  if (choice.generation == nullptr) return;
  while (!ClientIsSlow()) {
    const std::optional<Generation::News> news = choice.generation->Take();
    if (!news.has_value()) {
      if (choice.over != nullptr) Finish(index);
      break;
    }
    if (!done_) Add(index, *news);
  }
  Flush();
}

bool OpenAiCall::ClientIsSlow() {
  if (!streaming_ || done_ || reply_.queued_bytes() + out_.size() < kSlowClientBytes) return false;
  if (std::exchange(waits_for_client_, true)) return true;
  Flush();
  // Everything that was left is taken up again when the client has read.
  const std::shared_ptr<OpenAiCall> self = std::static_pointer_cast<OpenAiCall>(shared_from_this());
  LanguageModels* const models = &models_;
  reply_.OnDrained(
      [self, models] {
        models->Run([self] {
          self->waits_for_client_ = false;
          for (size_t i = 0; i < self->choices_.size(); ++i) {
            Generation* const generation = self->choices_[i].generation;
            self->Take(i);
            const bool runs = generation != nullptr && self->choices_[i].over == nullptr;
            if (runs) self->model_.engine().CaughtUp(*generation);
          }
        });
      },
      kReadAgainBytes);
  return true;
}

TokenLogprobs OpenAiCall::Logprobs(Choice& choice, const GeneratedToken& token,
                                   std::span<const LikelyToken> likely) const {
  const Tokenizer& tokenizer = model_.tokenizer();
  auto top = std::make_unique<std::vector<LikelyText>>();
  for (size_t i = 0; i < likely.size(); ++i) {
    if (likely[i].token < 0) break;
    top->push_back({.text = tokenizer.TokenBytes(likely[i].token),
                    .token = likely[i].token,
                    .logprob = likely[i].logprob,
                    .rank = static_cast<int32_t>(i)});
  }
  choice.likely.push_back(std::move(top));
  return {.chosen = {.text = tokenizer.TokenBytes(token.token),
                     .token = token.token,
                     .logprob = token.logprob,
                     .rank = token.rank},
          .top = *choice.likely.back()};
}

std::vector<TokenLogprobs> OpenAiCall::PromptLogprobs(size_t index, int32_t count) {
  Choice& choice = choices_[index];
  std::vector<TokenLogprobs> logprobs;
  if (count < 0) return logprobs;
  const std::vector<int32_t>& prompt =
      plan_.prompts[index / static_cast<size_t>(plan_.options.choices)];
  // Of the first token nothing is known.
  logprobs.push_back(
      {.chosen = {.text = model_.tokenizer().TokenBytes(prompt[0]), .token = prompt[0]},
       .top = {}});
  const std::span<const GeneratedToken> tokens = choice.generation->prompt_tokens();
  for (size_t i = 0; i < tokens.size(); ++i) {
    logprobs.push_back(Logprobs(
        choice, tokens[i], choice.generation->prompt_likely(i).first(static_cast<size_t>(count))));
  }
  return logprobs;
}

void OpenAiCall::BeginChoice(size_t index) {
  Choice& choice = choices_[index];
  const SamplingOptions& sampling = plan_.options.sampling;
  choice.prompt_logprobs = PromptLogprobs(index, sampling.prompt_logprobs);
  // An echo is part of the answer, and its log-probabilities are of the answer's.
  const std::vector<TokenLogprobs> echoed = plan_.echoes.empty()
                                                ? std::vector<TokenLogprobs>()
                                                : PromptLogprobs(index, sampling.logprobs);
  if (!plan_.options.stream) {
    choice.logprobs = echoed;
    return;
  }
  BeginStream();
  if (plan_.chat) chat_chunks_->Role(static_cast<int32_t>(index), Usage(), out_);
  if (!plan_.echoes.empty()) {
    AppendDelta(index, plan_.echoes[index / static_cast<size_t>(plan_.options.choices)], echoed,
                {});
  }
}

std::string OpenAiCall::TextOf(Choice& choice, int32_t token) const {
  const Tokenizer& tokenizer = model_.tokenizer();
  const bool hidden = plan_.format.has_value() && plan_.options.skip_special_tokens &&
                      tokenizer.IsSpecial(token) &&
                      !IsMarker(*plan_.format, tokenizer.TokenText(token));
  return hidden ? std::string() : choice.detokenizer->Add(token);
}

void OpenAiCall::AppendParsed(size_t index, OutputDelta& delta,
                              std::span<const TokenLogprobs> logprobs) {
  const auto choice = static_cast<int32_t>(index);
  if (!delta.reasoning.empty()) {
    chat_chunks_->Reasoning(choice, delta.reasoning, logprobs, Usage(), out_);
    logprobs = {};
  }
  if (!delta.content.empty() || !logprobs.empty()) {
    chat_chunks_->Content(choice, delta.content, logprobs, Usage(), out_);
  }
  for (const ToolCallDelta& call : delta.calls) {
    if (call.index > 0 && !plan_.parallel_tool_calls) continue;
    chat_chunks_->ToolCall(choice, call, Usage(), out_);
  }
}

void OpenAiCall::KeepParsed(Choice& choice, OutputDelta& delta) const {
  choice.text += delta.content;
  choice.reasoning += delta.reasoning;
  for (ToolCallDelta& call : delta.calls) {
    if (call.index > 0 && !plan_.parallel_tool_calls) continue;
    if (static_cast<size_t>(call.index) == choice.calls.size()) {
      choice.calls.push_back(std::move(call));
    } else {
      choice.calls[static_cast<size_t>(call.index)].arguments += call.arguments;
    }
  }
}

void OpenAiCall::Add(size_t index, const Generation::News& news) {
  Choice& choice = choices_[index];
  if (!std::exchange(choice.begun, true)) BeginChoice(index);
  if (plan_.echo_only) return;
  ++choice.tokens;
  std::vector<TokenLogprobs> logprobs;
  if (plan_.options.sampling.logprobs >= 0) {
    logprobs.push_back(Logprobs(choice, news.token, news.likely));
  }
  const bool may_stop = choice.tokens > plan_.options.stop.tokens_min;
  const absl::string_view text = choice.stop->Add(TextOf(choice, news.token.token), may_stop);
  if (choice.parser.has_value()) {
    OutputDelta delta;
    const bool was_reasoning = choice.parser->is_reasoning();
    choice.parser->Add(text, delta);
    if (was_reasoning || choice.parser->is_reasoning()) ++reasoning_tokens_;
    if (plan_.options.stream) {
      AppendParsed(index, delta, logprobs);
      choice.likely.clear();
    } else {
      KeepParsed(choice, delta);
      choice.logprobs.insert(choice.logprobs.end(), logprobs.begin(), logprobs.end());
    }
    return;
  }
  if (plan_.options.stream) {
    if (!text.empty() || !logprobs.empty()) AppendDelta(index, text, logprobs, {});
    choice.likely.clear();
    return;
  }
  choice.text.append(text.data(), text.size());
  choice.logprobs.insert(choice.logprobs.end(), logprobs.begin(), logprobs.end());
}

void OpenAiCall::AppendDelta(size_t index, absl::string_view text,
                             std::span<const TokenLogprobs> logprobs,
                             const stampmill::Finish& finish) {
  const auto choice = static_cast<int32_t>(index);
  if (plan_.generate.has_value()) {
    absl::StrAppend(&out_, "data: ", GenerateText(head_.model, plan_.generate->id, text), "\n\n");
  } else if (!plan_.chat) {
    completion_chunks_->Text(choice, text, logprobs, finish, Usage(), out_);
  } else if (finish.reason.empty()) {
    chat_chunks_->Content(choice, text, logprobs, Usage(), out_);
  } else {
    if (!text.empty()) chat_chunks_->Content(choice, text, logprobs, Usage(), out_);
    chat_chunks_->End(choice, finish, Usage(), out_);
  }
}

stampmill::Finish OpenAiCall::FinishOf(const Choice& choice) const {
  const bool called = choice.parser.has_value() && choice.parser->calls() > 0;
  if (called && choice.over->reason != FinishReason::kLength) {
    return {.reason = "tool_calls", .stop_token = -1, .stop_text = ""};
  }
  if (plan_.echo_only) return {.reason = "length", .stop_token = -1, .stop_text = ""};
  switch (choice.over->reason) {
    case FinishReason::kLength:
      return {.reason = "length", .stop_token = -1, .stop_text = ""};
    case FinishReason::kStopToken: {
      const int32_t token = choice.over->sequence().tokens.back();
      const bool is_end =
          std::ranges::find(model_.end_tokens(), token) != model_.end_tokens().end();
      return {.reason = "stop", .stop_token = is_end ? -1 : token, .stop_text = ""};
    }
    case FinishReason::kComplete:
      return {.reason = "stop", .stop_token = -1, .stop_text = ""};
    default:
      return {.reason = "stop",
              .stop_token = -1,
              .stop_text = plan_.options.stop.texts[choice.over->stop_text]};
  }
}

void OpenAiCall::Finish(size_t index) {
  Choice& choice = choices_[index];
  const absl::Status status = choice.over->status;
  cached_tokens_ += choice.over->sequence().cached_at_start;
  --open_;
  choice.generation = nullptr;
  choice.ended = true;
  if (!status.ok()) {
    Cancel();
    Fail(status);
  }
  if (!done_) {
    std::string rest(choice.stop->Add(choice.detokenizer->Finish()));
    const absl::string_view held = choice.stop->Flush();
    rest.append(held.data(), held.size());
    OutputDelta delta;
    if (choice.parser.has_value()) {
      choice.parser->Add(rest, delta);
      choice.parser->Finish(delta);
      rest.clear();
    }
    if (plan_.options.stream) {
      BeginStream();
      if (choice.parser.has_value()) AppendParsed(index, delta, {});
      AppendDelta(index, rest, {}, FinishOf(choice));
    } else {
      choice.text += rest;
      KeepParsed(choice, delta);
    }
    if (open_ == 0) CountRequests();
    if (open_ == 0 && plan_.options.stream) {
      if (plan_.options.include_usage) {
        if (plan_.chat) chat_chunks_->Usage(Usage(), out_);
        if (!plan_.chat) completion_chunks_->Usage(Usage(), out_);
      }
      if (!plan_.generate.has_value()) out_ += kSseDone;
      done_ = true;
      Flush();
      reply_.EndStream();
    } else if (open_ == 0) {
      done_ = true;
      AnswerWhole();
    }
  }
}

void OpenAiCall::CountRequests() {
  const auto per_prompt = static_cast<size_t>(plan_.options.choices);
  for (size_t first = 0; first < choices_.size(); first += per_prompt) {
    int64_t longest = 0;
    for (size_t i = 0; i < per_prompt; ++i) {
      longest = std::max(longest, choices_[first + i].tokens);
    }
    model_.engine().statistics().AddRequest(plan_.options.choices, longest);
  }
}

void OpenAiCall::AnswerWhole() {
  HttpAnswer answer;
  answer.compressible = true;
  const bool wants_logprobs = plan_.options.sampling.logprobs >= 0;
  const auto per_prompt = static_cast<size_t>(plan_.options.choices);
  if (plan_.generate.has_value()) {
    const std::string echo = plan_.echoes.empty() ? "" : plan_.echoes[0];
    answer.body =
        GenerateText(head_.model, plan_.generate->id, absl::StrCat(echo, choices_[0].text));
    if (plan_.generate->events) {
      BeginStream();
      absl::StrAppend(&out_, "data: ", answer.body, "\n\n");
      Flush();
      return reply_.EndStream();
    }
  } else if (plan_.chat) {
    std::vector<ChatChoice> choices;
    for (Choice& c : choices_) {
      choices.push_back({.content = std::move(c.text),
                         .reasoning = std::move(c.reasoning),
                         .tool_calls = std::move(c.calls),
                         .logprobs = std::move(c.logprobs),
                         .wants_logprobs = wants_logprobs,
                         .finish = FinishOf(c)});
    }
    answer.body = ChatCompletionText(head_, choices, choices_[0].prompt_logprobs, Usage(),
                                     plan_.options.tokens_as_token_ids);
  } else {
    std::vector<CompletionChoice> choices;
    for (size_t i = 0; i < choices_.size(); ++i) {
      Choice& c = choices_[i];
      const std::string echo = plan_.echoes.empty() ? "" : plan_.echoes[i / per_prompt];
      choices.push_back({.text = absl::StrCat(echo, c.text),
                         .logprobs = std::move(c.logprobs),
                         .wants_logprobs = wants_logprobs,
                         .prompt_logprobs = std::move(c.prompt_logprobs),
                         .finish = FinishOf(c)});
    }
    answer.body = CompletionText(head_, choices, Usage(), plan_.options.tokens_as_token_ids);
  }
  AddLoad(answer);
  reply_.Send(std::move(answer));
}

void OpenAiCall::BeginStream() {
  if (std::exchange(streaming_, true)) return;
  HttpAnswer head;
  head.content_type = kSseContentType;
  head.headers.emplace_back("Cache-Control", "no-cache");
  head.headers.emplace_back("X-Accel-Buffering", "no");
  AddLoad(head);
  reply_.BeginStream(std::move(head));
}

void OpenAiCall::AddLoad(HttpAnswer& answer) const {
  if (plan_.load_format == LoadFormat::kNone) return;
  const LanguageEngineCounters counters = model_.engine().counters();
  const double usage =
      static_cast<double>(counters.blocks_used) / std::max(counters.blocks_total, 1);
  // Triton's names, then vLLM's.
  const std::pair<const char*, std::string> metrics[] = {
      {"kv_cache_utilization", absl::StrCat(usage)},
      {"max_token_capacity", absl::StrCat(int64_t{counters.blocks_total} * kBlockTokens)},
      {"kv_cache_usage_perc", absl::StrCat(usage)},
      {"num_requests_waiting", absl::StrCat(counters.waiting)},
  };
  const bool json = plan_.load_format == LoadFormat::kJson;
  std::string text = json ? "JSON {\"named_metrics\": {" : "TEXT ";
  const char* separator = "";
  for (const auto& [name, value] : metrics) {
    text += std::exchange(separator, ", ");
    text += json ? absl::StrCat("\"", name, "\": ", value)
                 : absl::StrCat("named_metrics.", name, "=", value);
  }
  if (json) text += "}}";
  answer.headers.emplace_back("endpoint-load-metrics", std::move(text));
}

void OpenAiCall::Flush() {
  if (out_.empty()) return;
  // A client that is gone has been heard of: its texts are being cancelled.
  if (streaming_ && reply_.valid()) reply_.Write(out_);
  out_.clear();
}

TokenUsage OpenAiCall::Usage() const {
  TokenUsage usage = {.prompt_tokens = prompt_tokens_,
                      .cached_tokens = cached_tokens_,
                      .reasoning_tokens = reasoning_tokens_};
  for (const Choice& choice : choices_) usage.completion_tokens += choice.tokens;
  return usage;
}

}  // namespace stampmill
