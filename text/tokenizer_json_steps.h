// The parts of tokenizer.json that are lists of steps: normalizers, pre-tokenizers, post-processors
// and decoders, each added to a spec. Internal to tokenizer_json.h; its errors.
#pragma once

#include "absl/status/status.h"
#include "text/json_fields.h"
#include "text/tokenizer_spec.h"

namespace stampmill {

absl::Status ReadNormalizer(const JsonField& field, TokenizerSpec* spec);
absl::Status ReadPreTokenizer(const JsonField& field, TokenizerSpec* spec);
absl::Status ReadPostProcessor(const JsonField& field, TokenizerSpec* spec);
absl::Status ReadDecoder(const JsonField& field, TokenizerSpec* spec);

}  // namespace stampmill
