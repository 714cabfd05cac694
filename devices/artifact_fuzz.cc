// Fuzz target: Artifact::Parse on any bytes, and Target::Parse on any text. The digests would keep
// a fuzzer out, so the input is also tried with the right ones put in.
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "base/bytes.h"
#include "base/check.h"
#include "base/hash.h"
#include "devices/artifact.h"
#include "devices/target.h"

namespace stampmill {
namespace {

constexpr size_t kCodeDigestOffset = 80, kHeadDigestOffset = 160;

void CheckBytes(std::span<const std::byte> bytes) {
  const absl::StatusOr<Artifact> artifact = Artifact::Parse(bytes, nullptr);
  if (!artifact.ok()) {
    CHECK(artifact.status().code() == absl::StatusCode::kDataLoss);
    return;
  }
  // What parses is exactly what would be written.
  const std::string again =
      Artifact::Serialize(artifact->target(), artifact->source_digest(), artifact->code());
  CHECK(AsText(bytes) == again);
}

void CheckTarget(absl::string_view text) {
  const absl::StatusOr<Target> target = Target::Parse(text);
  if (target.ok() && text != "cpu") CHECK(target->ToString() == text);
}

}  // namespace
}  // namespace stampmill

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace stampmill;
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  CheckBytes({bytes, size});
  CheckTarget({reinterpret_cast<const char*>(data), size});
  if (size < kArtifactHeadBytes) return 0;
  std::string fixed(reinterpret_cast<const char*>(data), size);
  const Digest code = Sha256(AsBytes(absl::string_view(fixed).substr(kArtifactHeadBytes)));
  memcpy(&fixed[kCodeDigestOffset], code.bytes.data(), code.bytes.size());
  const Digest head = Sha256(AsBytes(absl::string_view(fixed).substr(0, kHeadDigestOffset)));
  memcpy(&fixed[kHeadDigestOffset], head.bytes.data(), head.bytes.size());
  CheckBytes(AsBytes(fixed));
  return 0;
}
