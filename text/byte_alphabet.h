// GPT-2's alphabet of bytes: vocabularies of byte-level models write each byte as one printable
// character, so that their tokens are texts. Printable bytes of Latin-1 stand for themselves, the
// other 68 for U+0100 and on, in order.
#pragma once

#include <string>

#include "absl/strings/string_view.h"

namespace stampmill {

// The bytes that `text` writes, into `*bytes`. False where a character is not of the alphabet;
// `*bytes` is then unspecified.
bool DecodeByteAlphabet(absl::string_view text, std::string* bytes);

// The other way.
std::string EncodeByteAlphabet(absl::string_view bytes);

}  // namespace stampmill
