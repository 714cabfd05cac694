// An engine of a toy language model over a CPU device, for tests of the engine.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/waker.h"
#include "devices/cpu/cpu_device.h"
#include "devices/device.h"
#include "runtime/generation.h"
#include "runtime/language_engine.h"
#include "runtime/model.h"
#include "runtime/testing/toy_language_model.h"

namespace stampmill {

struct LanguageFixtureOptions {
  int32_t context_tokens = 160;
  int32_t sequences_max = 8;
  int32_t waiting_max = 32;
  int32_t step_tokens_max = 64;
  int32_t kv_blocks = 40;
  int32_t drafts_max = 0;
  bool steps_at_once = false;  // as MakeToyLanguageModel's
  Clock* clock = nullptr;      // null: RealClock()
  Device* device = nullptr;    // null: a CPU device of its own
};

class LanguageFixture {
 public:
  explicit LanguageFixture(const LanguageFixtureOptions& options = {})
      : generations(options.sequences_max + options.waiting_max) {
    Device* device = options.device;
    if (device == nullptr) {
      auto made = CreateCpuDevice({.threads = 1});
      CHECK_OK(made);
      own_device = *std::move(made);
      device = own_device.get();
    }
    auto image = MakeToyLanguageModel(options.steps_at_once);
    CHECK_OK(image);
    auto model = Model::Load(*std::move(image), device);
    CHECK_OK(model);
    for (int32_t token = 0; token < kToyVocabulary; ++token) {
      letters += static_cast<char>('a' + token);
    }
    auto made = LanguageEngine::Create(
        {.model = *std::move(model),
         .generations = &generations,
         .news_waker = &news_waker,
         .clock = options.clock == nullptr ? &RealClock() : options.clock,
         .token_bytes =
             [this](int32_t token) {
               return absl::string_view(letters).substr(static_cast<size_t>(token), 1);
             },
         .vocabulary = kToyVocabulary,
         .context_tokens = options.context_tokens,
         .sequences_max = options.sequences_max,
         .waiting_max = options.waiting_max,
         .step_tokens_max = options.step_tokens_max,
         .kv_blocks = options.kv_blocks,
         .drafts_max = options.drafts_max});
    CHECK_OK(made);
    engine = *std::move(made);
  }

  // Greedy unless `sampling` says so.
  GenerationHandle MakeGeneration(std::span<const int32_t> prompt, const StopConditions& stop,
                                  SamplingParameters sampling = {.temperature = 0},
                                  uint64_t client = 0, int32_t priority = 0) {
    auto acquired = generations.Acquire();
    CHECK_OK(acquired);
    GenerationHandle generation = *std::move(acquired);
    generation->sampling = std::move(sampling);
    generation->stop = stop;
    generation->client = client;
    generation->priority = priority;
    generation->Begin(prompt, engine->options().context_tokens, RootHash(1, ""));
    return generation;
  }

  // Members in this order: what is below uses what is above.
  std::unique_ptr<Device> own_device;
  std::string letters;
  Waker news_waker;
  GenerationPool generations;
  std::unique_ptr<LanguageEngine> engine;
};

}  // namespace stampmill
