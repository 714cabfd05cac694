#include "server/openai/text_stream.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "text/utf8.h"

namespace stampmill {

StopTexts::StopTexts(std::vector<std::string> texts, bool include)
    : texts_(std::move(texts)), include_(include) {
  for (const std::string& text : texts_) {
    CHECK(!text.empty());
    // fallback[n], of the first n bytes: the longest proper beginning that is also their end.
    Match match;
    match.fallback.assign(text.size() + 1, 0);
    for (uint32_t n = 2, border = 0; n <= text.size(); ++n) {
      while (border > 0 && text[border] != text[n - 1]) border = match.fallback[border];
      if (text[border] == text[n - 1]) ++border;
      match.fallback[n] = border;
    }
    matches_.push_back(std::move(match));
  }
}

void StopTexts::Step(char byte, bool may_stop) {
  size_t longest = 0;
  for (size_t i = 0; i < texts_.size(); ++i) {
    const std::string& text = texts_[i];
    Match& match = matches_[i];
    while (match.count > 0 && text[match.count] != byte) match.count = match.fallback[match.count];
    if (text[match.count] == byte) ++match.count;
    if (match.count < text.size()) continue;
    match.count = match.fallback[match.count];
    if (may_stop && text.size() > longest) {
      longest = text.size();
      stopped_ = i;
    }
  }
}

absl::string_view StopTexts::Add(absl::string_view piece, bool may_stop) {
  sent_.clear();
  if (stopped_.has_value()) return sent_;
  for (const char byte : piece) {
    held_.push_back(byte);
    Step(byte, may_stop);
    if (!stopped_.has_value()) continue;
    // All of the stop text is still held back.
    const size_t cut = include_ ? 0 : texts_[*stopped_].size();
    held_.resize(held_.size() - cut);
    std::swap(sent_, held_);
    held_.clear();
    return sent_;
  }
  size_t keep = UnfinishedUtf8(held_);
  for (const Match& match : matches_) keep = std::max<size_t>(keep, match.count);
  // What may be a beginning may also begin within a character.
  keep += UnfinishedUtf8(absl::string_view(held_).substr(0, held_.size() - keep));
  sent_.assign(held_, 0, held_.size() - keep);
  held_.erase(0, held_.size() - keep);
  return sent_;
}

absl::string_view StopTexts::Flush() {
  sent_ = std::exchange(held_, {});
  return sent_;
}

}  // namespace stampmill
