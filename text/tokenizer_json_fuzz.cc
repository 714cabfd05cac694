// A tokenizer.json from anywhere: refused, or a tokenizer whose ids are tokens and whose texts are
// UTF-8, and which reads a special token's text as that token.
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/bytes.h"
#include "base/check.h"
#include "text/tokenizer.h"
#include "text/tokenizer_json.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stampmill;
  const absl::string_view json(reinterpret_cast<const char*>(data), size);
  absl::StatusOr<TokenizerSpec> spec = ParseTokenizerJson(json);
  if (!spec.ok()) return 0;
  const auto tokenizer = Tokenizer::Create(*std::move(spec));
  if (!tokenizer.ok()) return 0;
  // A text with everything, and the file itself, which has its own tokens in it.
  const absl::string_view texts[] = {
      "Hello  w\u00F6rld's \u4F60\u597D\n\t123 \U0001F600 e\u0301 a.b,c \xFF",
      json.substr(0, 4096),
  };
  for (const absl::string_view text : texts) {
    const auto ids = (*tokenizer)->Encode(text, {.add_special = true, .parse_special = true});
    if (!ids.ok()) continue;
    Detokenizer detokenizer(tokenizer->get(), {.special = true});
    for (const int32_t id : *ids) {
      CHECK((*tokenizer)->IsToken(id));
      CHECK(IsUtf8(detokenizer.Add(id)));
    }
    CHECK(IsUtf8(detokenizer.Finish()));
  }
  return 0;
}
