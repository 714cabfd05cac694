// `stampmill generate`: one text by a language model, without a server.
#include <boost/json.hpp>
#include <chrono>
#include <cstdio>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/clock.h"
#include "base/status_macros.h"
#include "base/waker.h"
#include "runtime/language_model.h"
#include "server/cli/command_line.h"
#include "server/cli/commands.h"
#include "server/cli/model_flags.h"
#include "server/cli/progress.h"

namespace stampmill {
namespace {

struct Flags {
  ModelFlags model;
  std::string prompt, prompt_tokens;
  bool chat = false, tokens = false, json = false, ignore_eos = false;
  int64_t seed = -1;
  int max_model_len = 0;
  SamplingParameters sampling = {.temperature = 0};
  StopConditions stop = {.tokens_max = 128};
};

void AddFlags(CLI::App& app, Flags& flags) {
  AddModelFlags(app, flags.model);
  auto* prompt = app.add_option("--prompt", flags.prompt, "the text to continue");
  app.add_option("--prompt-tokens", flags.prompt_tokens,
                 "the same as ids of tokens, separated by commas")
      ->excludes(prompt);
  app.add_flag("--chat", flags.chat, "the prompt is a user's message, under the chat template");
  app.add_option("--max-tokens", flags.stop.tokens_max, "length of the answer")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str();
  app.add_option("--min-tokens", flags.stop.tokens_min, "no end before so many")
      ->check(CLI::Range(0, 1 << 24));
  app.add_option("--max-model-len", flags.max_model_len, "context in tokens (default: the model's)")
      ->check(CLI::Range(0, 1 << 24));
  app.add_option("--temperature", flags.sampling.temperature, "0: the likeliest token")
      ->check(CLI::Range(0.0, 100.0))
      ->capture_default_str();
  app.add_option("--top-k", flags.sampling.top_k, "choose among so many; 0: all")
      ->check(CLI::Range(0, 1 << 24));
  app.add_option("--top-p", flags.sampling.top_p)->check(CLI::Range(0.0, 1.0));
  app.add_option("--min-p", flags.sampling.min_p)->check(CLI::Range(0.0, 1.0));
  app.add_option("--typical-p", flags.sampling.typical_p)->check(CLI::Range(0.0, 1.0));
  app.add_option("--repetition-penalty", flags.sampling.repetition_penalty)
      ->check(CLI::Range(0.01, 100.0));
  app.add_option("--presence-penalty", flags.sampling.presence_penalty)
      ->check(CLI::Range(-2.0, 2.0));
  app.add_option("--frequency-penalty", flags.sampling.frequency_penalty)
      ->check(CLI::Range(-2.0, 2.0));
  app.add_option("--seed", flags.seed, "of the random numbers (default: another each time)");
  app.add_option("--stop", flags.stop.texts, "a text that ends the answer; may be repeated");
  app.add_flag("--ignore-eos", flags.ignore_eos, "go on past the model's end of text");
  app.add_option("--logprobs", flags.sampling.logprobs,
                 "print each token's log-probability and so many of the likeliest")
      ->check(CLI::Range(0, kLogprobsMax));
  app.add_flag("--tokens", flags.tokens, "print the ids of the tokens");
  app.add_flag("--json", flags.json, "print JSON");
}

class GenerateCommand {
 public:
  explicit GenerateCommand(const Flags& flags) : flags_(flags) {}

  absl::Status Run() {
    ASSIGN_OR_RETURN(place_, OpenPlace(flags_.model));
    ASSIGN_OR_RETURN(place_.image.options, LanguageCompileOptionsText(flags_.model.compile));
    {
      ProgressLine progress(flags_.model.model);
      place_.image.progress = [&progress](absl::string_view line) { progress.Show(line); };
      ASSIGN_OR_RETURN(model_, LanguageModel::Load({.path = flags_.model.model,
                                                    .image = place_.image,
                                                    .device = place_.device.get(),
                                                    .news_waker = &waker_,
                                                    .cache = place_.cache.get(),
                                                    .context_tokens = flags_.max_model_len,
                                                    .sequences_max = 1,
                                                    .waiting_max = 1}));
    }
    const absl::Status done = Generate();
    model_->engine().Stop();
    model_.reset();
    return done;
  }

 private:
  absl::StatusOr<std::vector<int32_t>> Prompt() {
    const Tokenizer& tokenizer = model_->tokenizer();
    if (!flags_.prompt_tokens.empty()) {
      std::vector<int32_t> ids;
      for (const absl::string_view text : absl::StrSplit(flags_.prompt_tokens, ',')) {
        int32_t id = -1;
        if (!absl::SimpleAtoi(text, &id) || !tokenizer.IsToken(id)) {
          return FromFlags(absl::InvalidArgumentError(absl::StrCat(
              "--prompt-tokens: got '", text, "', limit ", tokenizer.vocabulary_size() - 1)));
        }
        ids.push_back(id);
      }
      return ids;
    }
    std::string prompt = flags_.prompt;
    if (flags_.chat) {
      if (model_->chat_template() == nullptr) {
        return FromFlags(absl::InvalidArgumentError("--chat: the model has no chat template"));
      }
      boost::json::object context{
          {"messages", boost::json::array{{{"role", "user"}, {"content", flags_.prompt}}}},
          {"add_generation_prompt", true}};
      ASSIGN_OR_RETURN(prompt, model_->chat_template()->Render(context));
    }
    ASSIGN_OR_RETURN(
        std::vector<int32_t> ids,
        tokenizer.Encode(prompt, {.add_special = !flags_.chat, .parse_special = flags_.chat}));
    // A text without anything begins with what the model knows as the beginning.
    if (ids.empty() && tokenizer.bos().has_value()) ids.push_back(*tokenizer.bos());
    if (ids.empty()) return FromFlags(absl::InvalidArgumentError("--prompt: no tokens"));
    return ids;
  }

  absl::Status Generate() {
    ASSIGN_OR_RETURN(const std::vector<int32_t> prompt, Prompt());
    const auto size = static_cast<int32_t>(prompt.size());
    if (size >= model_->context_tokens()) {
      return absl::InvalidArgumentError(
          absl::StrCat("prompt: got ", size, " tokens, limit ", model_->context_tokens() - 1));
    }
    ASSIGN_OR_RETURN(GenerationHandle generation, model_->generations().Acquire());
    generation->sampling = flags_.sampling;
    generation->sampling.seed =
        flags_.seed >= 0 ? static_cast<uint64_t>(flags_.seed) : std::random_device()();
    generation->stop = flags_.stop;
    generation->stop.tokens_max = std::min(flags_.stop.tokens_max, model_->context_tokens() - size);
    if (!flags_.ignore_eos) {
      generation->stop.tokens = model_->end_tokens();
    }
    generation->Begin(prompt, model_->context_tokens(), model_->root());
    prompt_size_ = size;
    model_->engine().Start();  // first: no text is lost if there are no threads
    RETURN_IF_ERROR(model_->engine().Submit(generation));
    return Follow();
  }

  absl::Status Follow() {
    Detokenizer detokenizer(&model_->tokenizer());
    for (;;) {
      const uint32_t seen = waker_.epoch();
      LanguageEngine::News news = model_->engine().PopNews();
      if (news.generation == nullptr) {
        waker_.WaitUntil(seen, kNoDeadline);
        continue;
      }
      while (const std::optional<Generation::News> next = news.generation->Take()) {
        AddToken(*next, detokenizer);
      }
      model_->engine().CaughtUp(*news.generation);
      if (news.over == nullptr) continue;
      RETURN_IF_ERROR(news.over->status);
      Emit(detokenizer.Finish());
      return Print(*news.over);
    }
  }

  void AddToken(const Generation::News& news, Detokenizer& detokenizer) {
    const int32_t id = news.token.token;
    ids_.push_back(id);
    if (flags_.sampling.logprobs >= 0) {
      boost::json::array top;
      for (const LikelyToken& likely : news.likely) {
        if (likely.token >= 0) top.push_back({{"id", likely.token}, {"logprob", likely.logprob}});
      }
      logprobs_.push_back(
          {{"id", id}, {"logprob", news.token.logprob}, {"top_logprobs", std::move(top)}});
    }
    Emit(detokenizer.Add(id));
  }

  void Emit(const std::string& text) {
    text_ += text;
    if (flags_.json || text.empty()) return;
    fwrite(text.data(), 1, text.size(), stdout);
    fflush(stdout);
  }

  absl::Status Print(const Generation& generation) {
    const GenerationTimes& times = generation.times;
    const auto generated = static_cast<double>(ids_.size());
    const double first = static_cast<double>(times.first_token - times.scheduled) / 1e9;
    const double rest = static_cast<double>(times.last_token - times.first_token) / 1e9;
    if (flags_.json) {
      static constexpr absl::string_view kReasons[] = {"", "length", "stop", "stop"};
      boost::json::object json{
          {"text", text_},
          {"tokens", boost::json::array(ids_.begin(), ids_.end())},
          {"prompt_tokens", prompt_size_},
          {"finish_reason", std::string(kReasons[static_cast<size_t>(generation.reason)])},
          {"prompt_tokens_per_second", prompt_size_ / std::max(first, 1e-9)},
          {"tokens_per_second", (generated - 1) / std::max(rest, 1e-9)}};
      if (flags_.sampling.logprobs >= 0) json["logprobs"] = std::move(logprobs_);
      printf("%s\n", boost::json::serialize(json).c_str());
      return absl::OkStatus();
    }
    printf("\n");
    if (flags_.tokens) {
      for (const int32_t id : ids_) printf("%d ", id);
      printf("\n");
    }
    if (flags_.sampling.logprobs >= 0) {
      printf("%s\n", boost::json::serialize(logprobs_).c_str());
    }
    fprintf(stderr, "%d prompt tokens, %.1f a second; %zu tokens, %.1f a second\n", prompt_size_,
            prompt_size_ / std::max(first, 1e-9), ids_.size(),
            (generated - 1) / std::max(rest, 1e-9));
    return absl::OkStatus();
  }

  const Flags& flags_;
  Waker waker_;
  ModelPlace place_;  // outlives the model, whatever is thrown
  std::unique_ptr<LanguageModel> model_;
  int32_t prompt_size_ = 0;
  std::string text_;
  std::vector<int32_t> ids_;
  boost::json::array logprobs_;
};

}  // namespace

int RunGenerate(int argc, char** argv) {
  Flags flags;
  CommandLine line("generate", "continues one text by a language model");
  AddFlags(line.app(), flags);
  if (const std::optional<int> exit = line.Parse(argc, argv)) return *exit;
  GenerateCommand command(flags);
  const absl::Status done = command.Run();
  return done.ok() ? kExitDone : Fail(done);
}

}  // namespace stampmill
