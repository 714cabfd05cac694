#include "text/character_map.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "text/utf8.h"

namespace stampmill {

absl::StatusOr<std::unique_ptr<const CharacterMap>> CharacterMap::Create(absl::string_view bytes) {
  uint32_t size = 0;
  if (bytes.size() >= sizeof(size)) std::memcpy(&size, bytes.data(), sizeof(size));
  if (bytes.size() < sizeof(size) || size > bytes.size() - sizeof(size) || size % 4 != 0) {
    return absl::InvalidArgumentError(absl::StrCat("precompiled_charsmap: a trie of ", size,
                                                   " bytes in ", bytes.size(), " bytes"));
  }
  auto map = std::make_unique<CharacterMap>();
  map->units_.resize(size / 4);
  std::memcpy(map->units_.data(), bytes.data() + sizeof(size), size);
  const absl::string_view texts = bytes.substr(sizeof(size) + size);
  map->texts_.assign(texts.data(), texts.size());
  return map;
}

CharacterMap::Found CharacterMap::LongestAt(absl::string_view text) const {
  constexpr uint32_t kValueBit = uint32_t{1} << 31;
  const auto offset = [](uint32_t unit) { return unit >> 10 << ((unit & 1 << 9) >> 6); };
  Found found;
  if (units_.empty()) return found;
  uint32_t node = offset(units_[0]);
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    node ^= byte;
    if (byte == 0 || node >= units_.size()) break;
    const uint32_t unit = units_[node];
    if ((unit & (kValueBit | 0xFF)) != byte) break;
    node ^= offset(unit);
    if (node >= units_.size()) break;
    if (unit >> 8 & 1) found = {.size_bytes = i + 1, .value = units_[node] & ~kValueBit};
  }
  return found;
}

std::string CharacterMap::Apply(absl::string_view text) const {
  std::string out;
  out.reserve(text.size());
  while (!text.empty()) {
    const Found found = LongestAt(text);
    if (found.size_bytes > 0 && found.value < texts_.size()) {
      const size_t end = texts_.find('\0', found.value);
      out.append(texts_, found.value, end == std::string::npos ? end : end - found.value);
      text.remove_prefix(found.size_bytes);
      continue;
    }
    const Utf8Character character = DecodeUtf8(text.data(), text.data() + text.size());
    AppendUtf8(character.code_point, &out);
    text.remove_prefix(character.size_bytes);
  }
  return out;
}

}  // namespace stampmill
