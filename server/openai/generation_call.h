// GenerationCall of the OpenAI API: one request for one or more texts, from its options to its
// answer, whole or as a stream.
//
// Everything but construction and Start runs on the thread of LanguageModels. A client that does
// not read holds up its own texts: what it has not taken counts against a bound, and tokens stay in
// their rings until it has. A client that leaves cancels them.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "runtime/generation.h"
#include "runtime/text_constraint.h"
#include "server/http/http_server.h"
#include "server/language_models.h"
#include "server/openai/requests.h"
#include "server/openai/responses.h"
#include "server/openai/text_stream.h"
#include "server/openai/tool_parser.h"
#include "text/tokenizer.h"

namespace stampmill {

// The answer is one of Triton's generate extension, whole or in events.
struct GenerateForm {
  std::string id;  // told in the answer; empty: not
  bool events = false;
};

// How the answer's head tells of the model's load (ORCA, endpoint-load-metrics).
enum class LoadFormat : uint8_t { kNone, kText, kJson };

// Tokens and what is to be done with them, after all checks.
struct GenerationPlan {
  GenerationOptions options;
  std::vector<std::vector<int32_t>> prompts;  // `options.choices` texts of each
  std::vector<std::string> echoes;            // before each prompt's answers; or none
  bool chat = false;
  std::optional<GenerateForm> generate;
  LoadFormat load_format = LoadFormat::kNone;
  bool echo_only = false;  // of the one token that is chosen nothing is told
  // How what the model writes is taken apart; null: it is all content.
  std::optional<OutputFormat> format;
  bool parallel_tool_calls = true;  // false: no call but the first is told
  uint64_t client = 0;              // Generation::client
  int64_t arrival_nanos = 0;        // of the request, RealClock()'s
  // What each text must conform to, begun; or none. And who takes it back.
  std::vector<std::unique_ptr<TextConstraint>> constraints;
  std::function<void(std::unique_ptr<TextConstraint>)> take_back;
};

class OpenAiCall : public GenerationCall {
 public:
  // `models` and `model` are borrowed and outlive it.
  OpenAiCall(LanguageModels* models, LanguageModel* model, GenerationPlan plan, HttpReply reply);

  // Submits all texts, or answers with what is wrong. Called once, on the connection's thread.
  static void Start(const std::shared_ptr<OpenAiCall>& call);

  void Advance(Generation& generation, int32_t index) override;
  void End(GenerationHandle generation, int32_t index) override;

 private:
  struct Choice {
    std::unique_ptr<Detokenizer> detokenizer;
    std::optional<StopTexts> stop;
    Generation* generation = nullptr;  // while it has tokens to take
    GenerationHandle over;             // once it has ended
    std::optional<OutputParser> parser;
    std::string text;  // of a whole answer
    std::string reasoning;
    std::vector<ToolCallDelta> calls;
    std::vector<TokenLogprobs> logprobs, prompt_logprobs;
    std::vector<std::unique_ptr<std::vector<LikelyText>>> likely;  // behind the logprobs
    int64_t tokens = 0;
    bool begun = false, ended = false;
  };

  absl::Status Submit();
  absl::Status FillGeneration(Generation& generation, size_t index) const;
  void Cancel();
  void Fail(const absl::Status& status);
  void FailGenerate(const absl::Status& status);
  // Takes what choice `index` has, as far as the client takes it.
  void Take(size_t index);
  void Add(size_t index, const Generation::News& news);
  void Finish(size_t index);
  // Each prompt is a request.
  void CountRequests();
  void AnswerWhole();
  // Sends what was appended to out_.
  void Flush();
  bool ClientIsSlow();
  void BeginStream();
  void AddLoad(HttpAnswer& answer) const;
  void AppendDelta(size_t index, absl::string_view text, std::span<const TokenLogprobs> logprobs,
                   const stampmill::Finish& finish);
  // The same of what the parser made of a text.
  void AppendParsed(size_t index, OutputDelta& delta, std::span<const TokenLogprobs> logprobs);
  void KeepParsed(Choice& choice, OutputDelta& delta) const;
  // What a token adds to the text that is told or taken apart.
  std::string TextOf(Choice& choice, int32_t token) const;
  TokenLogprobs Logprobs(Choice& choice, const GeneratedToken& token,
                         std::span<const LikelyToken> likely) const;
  // `count`: of how many of the likeliest tokens; -1: nothing.
  std::vector<TokenLogprobs> PromptLogprobs(size_t index, int32_t count);
  // What comes before the first token of a choice.
  void BeginChoice(size_t index);
  stampmill::Finish FinishOf(const Choice& choice) const;
  TokenUsage Usage() const;

  LanguageModels& models_;
  LanguageModel& model_;
  GenerationPlan plan_;  // constant but for the constraints, which go to the texts
  AnswerHead head_;
  std::optional<ChatChunks> chat_chunks_;
  std::optional<CompletionChunks> completion_chunks_;
  std::vector<Choice> choices_;
  std::vector<GenerationTag> tags_;  // constant once submitted
  HttpReply reply_;
  std::string out_;
  size_t open_ = 0;  // choices that have not ended
  int64_t prompt_tokens_ = 0, cached_tokens_ = 0, reasoning_tokens_ = 0;
  bool streaming_ = false, waits_for_client_ = false, done_ = false;
};

}  // namespace stampmill
