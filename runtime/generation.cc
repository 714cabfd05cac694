#include "runtime/generation.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "base/check.h"

namespace stampmill {
namespace {

// What a text begins to try.
constexpr int32_t kDraftsFirst = 4;

}  // namespace

void Generation::Begin(std::span<const int32_t> prompt, int32_t context_tokens,
                       const BlockHash& root) {
  const auto size = static_cast<int32_t>(prompt.size());
  CHECK(size >= 1 && stop.tokens_max >= 1 && size + stop.tokens_max <= context_tokens);
  sequence_.Begin(prompt, size + stop.tokens_max, 0, root);
  sequence_.context = this;
  CHECK(priority >= -kPriorityMax && priority <= kPriorityMax);
  sequence_.level = priority + kPriorityMax;
  sequence_.client = client;
  // What may come next is known only once the last token is.
  sequence_.waits_for_host = constraint != nullptr;
  if (sampling.prompt_logprobs >= 0) sequence_.logits_begin = 0;
  ready_likely_.resize(kTokensReadyMax * static_cast<size_t>(std::max(sampling.logprobs, 0)));
  put_.store(0, std::memory_order_relaxed);
  taken_.store(0, std::memory_order_relaxed);
  state_.store(0, std::memory_order_relaxed);
  held_up_.store(false, std::memory_order_relaxed);
  prompt_tokens_.clear();
  prompt_likely_.clear();
  if (sampling.prompt_logprobs >= 0) {
    prompt_tokens_.reserve(prompt.size());
    prompt_likely_.reserve(prompt.size() * static_cast<size_t>(sampling.prompt_logprobs));
  }
  size_t longest = 0;
  for (const std::string& text : stop.texts) longest = std::max(longest, text.size());
  tail_.clear();
  tail_.reserve(2 * longest + kStopTextBytesMax);
  drafts_next_ = kDraftsFirst;
  draft_rest_ = draft_misses_ = 0;
  seen_.clear();
  if (sampling.HasPenalties()) {
    seen_.reserve(prompt.size() + static_cast<size_t>(stop.tokens_max));
    for (const int32_t token : prompt) seen_.push_back({token, 1, 0});
    std::ranges::sort(seen_, {}, &Seen::token);
    const auto same = std::ranges::unique(seen_, {}, &Seen::token);
    seen_.erase(same.begin(), same.end());
  }
  reason = FinishReason::kNone;
  status = absl::OkStatus();
}

uint32_t Generation::Room() const {
  // One less than there are places: what was taken last is still being read.
  return kTokensReadyMax - 1 -
         (put_.load(std::memory_order_relaxed) - taken_.load(std::memory_order_acquire));
}

void Generation::Put(const GeneratedToken& token, std::span<const int32_t> tokens,
                     std::span<const float> logprobs) {
  const uint32_t at = put_.load(std::memory_order_relaxed);
  const size_t place = at % kTokensReadyMax;
  ready_[place] = token;
  const auto count = static_cast<size_t>(std::max(sampling.logprobs, 0));
  for (size_t i = 0; i < count; ++i) ready_likely_[place * count + i] = {tokens[i], logprobs[i]};
  put_.store(at + 1, std::memory_order_release);
}

std::optional<Generation::News> Generation::Take() {
  const uint32_t at = taken_.load(std::memory_order_relaxed);
  if (at == put_.load(std::memory_order_acquire)) return std::nullopt;
  const size_t place = at % kTokensReadyMax;
  const auto count = static_cast<size_t>(std::max(sampling.logprobs, 0));
  const News news = {ready_[place],
                     std::span<const LikelyToken>(ready_likely_).subspan(place * count, count)};
  taken_.store(at + 1, std::memory_order_release);
  return news;
}

std::span<const LikelyToken> Generation::prompt_likely(size_t i) const {
  const auto count = static_cast<size_t>(std::max(sampling.prompt_logprobs, 0));
  return std::span<const LikelyToken>(prompt_likely_).subspan(i * count, count);
}

GenerationPool::GenerationPool(int32_t slots)
    : capacity_(slots),
      slots_(std::make_unique<Generation[]>(static_cast<size_t>(slots))),
      free_(static_cast<size_t>(slots)) {
  for (int32_t i = 0; i < slots; ++i) {
    slots_[static_cast<size_t>(i)].slot_ = static_cast<uint32_t>(i);
    free_.PushCertainly(static_cast<uint32_t>(i));
  }
}

GenerationPool::~GenerationPool() { CHECK_EQ(in_use(), 0); }

absl::StatusOr<GenerationHandle> GenerationPool::Acquire() {
  const std::optional<uint32_t> index = free_.Pop();
  if (!index.has_value()) {
    return absl::UnavailableError(
        absl::StrCat("requests: got more than the limit of ", capacity_, " at once"));
  }
  in_use_.fetch_add(1, std::memory_order_relaxed);
  Generation& generation = slots_[*index];
  ++generation.use_;
  generation.sampling = {};
  generation.stop = {};
  generation.constraint = nullptr;
  generation.times = {};
  generation.priority = 0;
  generation.client = 0;
  generation.context = nullptr;
  return Adopt(&generation);
}

void GenerationPool::Release(Generation* generation) {
  in_use_.fetch_sub(1, std::memory_order_relaxed);
  free_.PushCertainly(generation->slot_);
}

Generation* GenerationPool::slot(uint32_t index) {
  return index < static_cast<uint32_t>(capacity_) ? &slots_[index] : nullptr;
}

void GenerationRelease::operator()(Generation* generation) const {
  if (generation != nullptr) pool->Release(generation);
}

}  // namespace stampmill
