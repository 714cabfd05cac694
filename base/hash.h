// SHA-256 for names of content (cache keys, digests) and XXH3 for finding corruption fast.
//
// SHA-256 runs at 1 to 2 GB/s here, XXH3 at memory speed; neither is used against an attacker who
// may choose both content and digest.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"

namespace stampmill {

// A SHA-256 value. Zero by default, which no content is expected to have.
struct Digest {
  std::array<uint8_t, 32> bytes = {};

  // 64 lower-case hexadecimal digits; FromHex takes no others.
  std::string ToHex() const;
  static std::optional<Digest> FromHex(absl::string_view hex);

  friend bool operator==(const Digest&, const Digest&) = default;
  friend std::strong_ordering operator<=>(const Digest&, const Digest&) = default;
  template <typename H>
  friend H AbslHashValue(H state, const Digest& digest) {
    return H::combine(std::move(state), digest.bytes);
  }
};

Digest Sha256(std::span<const std::byte> bytes);

// The same over parts. Owned by one thread.
class Sha256Stream {
 public:
  Sha256Stream();
  ~Sha256Stream();
  Sha256Stream(const Sha256Stream&) = delete;
  Sha256Stream& operator=(const Sha256Stream&) = delete;

  void Update(std::span<const std::byte> bytes);
  void Update(absl::string_view text);
  // The digest of all updates; the stream then starts again from nothing.
  Digest Finish();

 private:
  struct Free {
    void operator()(void* context) const;
  };
  std::unique_ptr<void, Free> context_;  // OpenSSL's EVP_MD_CTX
};

// XXH3, 64 bits, seed 0: the same value in every version and on every machine.
uint64_t Xxh3(std::span<const std::byte> bytes);

}  // namespace stampmill
