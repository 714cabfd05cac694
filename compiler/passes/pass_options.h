// PassOptions: what a compile may be told beside the model, and the text in which commands and
// cache keys carry it.
#pragma once

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "devices/target.h"

namespace stampmill {

struct PassOptions {
  Target target;
  // For tests and bisecting: every node is its own kernels, in the model's layout.
  bool fuse = true;
  bool channels_last = true;
  bool bf16_products = false;  // LowerOptions::bf16_products
  bool exact_rows = false;     // LowerOptions::exact_rows
};

// `options` is "fuse=0 channels-last=0 activation-precision=P", each at most once, in this order,
// defaults left out, P bf16 or f32 (block-quantised weights multiply exact rows; so they do for
// bf16); INVALID_ARGUMENT else, or what Target::Parse says.
absl::StatusOr<PassOptions> ParsePassOptions(absl::string_view target, absl::string_view options);

}  // namespace stampmill
