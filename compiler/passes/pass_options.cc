#include "compiler/passes/pass_options.h"

#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/status_macros.h"

namespace stampmill {

absl::StatusOr<PassOptions> ParsePassOptions(absl::string_view target, absl::string_view options) {
  PassOptions parsed;
  ASSIGN_OR_RETURN(parsed.target, Target::Parse(target));
  if (options.empty()) return parsed;
  std::vector<absl::string_view> words = absl::StrSplit(options, ' ');
  const auto take = [&words](absl::string_view word) {
    if (words.empty() || words.front() != word) return false;
    words.erase(words.begin());
    return true;
  };
  parsed.fuse = !take("fuse=0");
  parsed.channels_last = !take("channels-last=0");
  parsed.bf16_products = take("activation-precision=bf16");
  parsed.exact_rows = parsed.bf16_products || take("activation-precision=f32");
  if (words.empty()) return parsed;
  return absl::InvalidArgumentError(
      absl::StrCat("compile options: got '", options,
                   "', limit 'fuse=0 channels-last=0 activation-precision=bf16' (or f32)"));
}

}  // namespace stampmill
