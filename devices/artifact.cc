#include "devices/artifact.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/check.h"
#include "devices/limits.h"

namespace stampmill {
namespace {

constexpr char kMagic[] = "STMPART";  // with its NUL: 8 bytes
constexpr size_t kTargetBytes = 64;
constexpr size_t kHeadDigestOffset = 160;
static_assert(kHeadDigestOffset + sizeof(Digest) == kArtifactHeadBytes);

absl::Status Corrupt(absl::string_view what) {
  return absl::DataLossError(absl::StrCat("artifact: ", what));
}

Digest ReadDigest(ByteReader& in) {
  Digest digest;
  const std::span<const std::byte> bytes = in.Bytes(sizeof(digest.bytes));
  if (in.ok()) memcpy(digest.bytes.data(), bytes.data(), bytes.size());
  return digest;
}

void WriteDigest(const Digest& digest, ByteWriter& out) {
  out.Bytes(std::as_bytes(std::span<const uint8_t>(digest.bytes)));
}

// Text up to the padding, which must be all NUL.
absl::StatusOr<Target> ReadTarget(std::span<const std::byte> field) {
  const absl::string_view text = AsText(field);
  const size_t size = std::min(text.find('\0'), text.size());
  if (text.find_first_not_of('\0', size) != absl::string_view::npos) {
    return Corrupt("target: text after its end");
  }
  absl::StatusOr<Target> target = Target::Parse(text.substr(0, size));
  if (!target.ok()) return Corrupt(target.status().message());
  // "cpu" alone would mean another class on every machine.
  if (target->ToString() != text.substr(0, size)) return Corrupt("target: not in full form");
  return target;
}

}  // namespace

absl::StatusOr<Artifact> Artifact::Parse(std::span<const std::byte> bytes,
                                         std::shared_ptr<const void> owner) {
  if (bytes.size() < kArtifactHeadBytes) {
    return Corrupt(
        absl::StrCat("size: got ", bytes.size(), ", at least ", kArtifactHeadBytes, " needed"));
  }
  ByteReader in(bytes.first(kArtifactHeadBytes), "artifact head");
  if (AsText(in.Bytes(sizeof(kMagic))) != absl::string_view(kMagic, sizeof(kMagic))) {
    return Corrupt("magic: this is not an artifact");
  }
  const uint32_t version = in.U32();
  if (version != kArtifactVersion) {
    return Corrupt(absl::StrCat("format version: got ", version, ", known ", kArtifactVersion));
  }
  Artifact artifact;
  artifact.abi_version_ = in.U32();
  const std::span<const std::byte> target = in.Bytes(kTargetBytes);
  artifact.code_digest_ = ReadDigest(in);
  artifact.source_digest_ = ReadDigest(in);
  const uint64_t code_size = in.U64();
  const uint64_t zero = in.U64();
  const Digest head_digest = ReadDigest(in);
  CHECK_OK(in.status());
  if (Sha256(bytes.first(kHeadDigestOffset)) != head_digest) return Corrupt("head: digest differs");
  if (zero != 0) return Corrupt("reserved field: not zero");
  if (artifact.abi_version_ != kKernelAbiVersion) {
    return Corrupt(absl::StrCat("kernel ABI version: got ", artifact.abi_version_, ", known ",
                                kKernelAbiVersion));
  }
  auto parsed_target = ReadTarget(target);
  if (!parsed_target.ok()) return parsed_target.status();
  artifact.target_ = *std::move(parsed_target);
  artifact.code_ = bytes.subspan(kArtifactHeadBytes);
  if (code_size != artifact.code_.size() || code_size > kArtifactCodeBytesMax) {
    return Corrupt(absl::StrCat("code size: got ", artifact.code_.size(), " bytes, head says ",
                                code_size, ", limit ", kArtifactCodeBytesMax));
  }
  if (Sha256(artifact.code_) != artifact.code_digest_) return Corrupt("code: digest differs");
  artifact.owner_ = std::move(owner);
  return artifact;
}

std::string Artifact::Serialize(const Target& target, const Digest& source_digest,
                                std::span<const std::byte> code) {
  CHECK_LE(code.size(), kArtifactCodeBytesMax);
  std::string text = target.ToString();
  CHECK_LT(text.size(), kTargetBytes);
  text.resize(kTargetBytes);
  std::string bytes;
  bytes.reserve(kArtifactHeadBytes + code.size());
  ByteWriter out(&bytes);
  out.Bytes(AsBytes(absl::string_view(kMagic, sizeof(kMagic))));
  out.U32(kArtifactVersion);
  out.U32(kKernelAbiVersion);
  out.Bytes(AsBytes(text));
  WriteDigest(Sha256(code), out);
  WriteDigest(source_digest, out);
  out.U64(code.size());
  out.U64(0);
  WriteDigest(Sha256(AsBytes(bytes)), out);
  out.Bytes(code);
  return bytes;
}

}  // namespace stampmill
