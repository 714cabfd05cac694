#include "base/hash.h"

#include <openssl/evp.h>
#include <xxhash.h>

#include "absl/strings/escaping.h"
#include "base/check.h"

namespace stampmill {
namespace {

EVP_MD_CTX* Context(void* context) { return static_cast<EVP_MD_CTX*>(context); }

std::optional<uint8_t> HexValue(char c) {
  if (c >= '0' && c <= '9') return static_cast<uint8_t>(c - '0');
  if (c >= 'a' && c <= 'f') return static_cast<uint8_t>(c - 'a' + 10);
  return std::nullopt;
}

}  // namespace

std::string Digest::ToHex() const {
  return absl::BytesToHexString({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

std::optional<Digest> Digest::FromHex(absl::string_view hex) {
  Digest digest;
  if (hex.size() != 2 * digest.bytes.size()) return std::nullopt;
  for (size_t i = 0; i < digest.bytes.size(); ++i) {
    const std::optional<uint8_t> high = HexValue(hex[2 * i]), low = HexValue(hex[2 * i + 1]);
    if (!high || !low) return std::nullopt;
    digest.bytes[i] = static_cast<uint8_t>(*high << 4 | *low);
  }
  return digest;
}

Digest Sha256(std::span<const std::byte> bytes) {
  Sha256Stream stream;
  stream.Update(bytes);
  return stream.Finish();
}

void Sha256Stream::Free::operator()(void* context) const { EVP_MD_CTX_free(Context(context)); }

// OpenSSL's digest calls fail only for want of memory or of the algorithm itself.
Sha256Stream::Sha256Stream() : context_(EVP_MD_CTX_new()) {
  CHECK(context_ != nullptr);
  CHECK_EQ(EVP_DigestInit_ex(Context(context_.get()), EVP_sha256(), nullptr), 1);
}

Sha256Stream::~Sha256Stream() = default;

void Sha256Stream::Update(std::span<const std::byte> bytes) {
  CHECK_EQ(EVP_DigestUpdate(Context(context_.get()), bytes.data(), bytes.size()), 1);
}

void Sha256Stream::Update(absl::string_view text) {
  Update(std::span(reinterpret_cast<const std::byte*>(text.data()), text.size()));
}

Digest Sha256Stream::Finish() {
  Digest digest;
  EVP_MD_CTX* const context = Context(context_.get());
  CHECK_EQ(EVP_DigestFinal_ex(context, digest.bytes.data(), nullptr), 1);
  CHECK_EQ(EVP_DigestInit_ex(context, EVP_sha256(), nullptr), 1);
  return digest;
}

uint64_t Xxh3(std::span<const std::byte> bytes) { return XXH3_64bits(bytes.data(), bytes.size()); }

}  // namespace stampmill
