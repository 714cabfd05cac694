#include "runtime/sequence.h"

#include "base/check.h"

namespace stampmill {

void Sequence::Begin(std::span<const int32_t> prompt, int32_t most, int32_t drafts_max,
                     const BlockHash& share_root) {
  CHECK_GE(prompt.size(), 1u);
  CHECK_LE(prompt.size(), most);
  CHECK(state == SequenceState::kOutside);
  tokens.reserve(static_cast<size_t>(most));
  tokens.assign(prompt.begin(), prompt.end());
  drafts.reserve(static_cast<size_t>(drafts_max));
  drafts.clear();
  hashes.reserve(static_cast<size_t>(most / kBlockTokens));
  hashes.clear();
  root = share_root;
  prompt_size = size();
  tokens_max = most;
  logits_begin = prompt_size - 1;
  level = 0;
  client = 0;
  queue_deadline_nanos = deadline_nanos = kNoDeadline;
  context = nullptr;
  waits_for_host = paused = false;
  computed = scheduled = pending = cached_at_start = preemptions = 0;
  found = yields = 0;
  held_in = 0;
  entries = {-1, -1};
  ExtendHashes();
}

void Sequence::ExtendHashes() {
  const auto full = static_cast<size_t>(size() / kBlockTokens);
  for (size_t i = hashes.size(); i < full; ++i) {
    const auto block = std::span(tokens).subspan(i * kBlockTokens).first<kBlockTokens>();
    hashes.push_back(ChainHash(hashes.empty() ? root : hashes.back(), block));
  }
}

}  // namespace stampmill
