#include "compiler/cache/object_file.h"

#include <algorithm>
#include <cstring>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"

namespace stampmill {
namespace {

constexpr char kMagic[8] = {'S', 'T', 'M', 'P', 'W', 'G', 'T', '\0'};
constexpr uint32_t kVersion = 1;
constexpr uint64_t kFixedHead = 64;
constexpr uint64_t kPage = 4096;

uint64_t HeadSize(uint64_t chunks) { return (kFixedHead + 8 * chunks + kPage - 1) / kPage * kPage; }

uint64_t ChunkCount(uint64_t payload_size) {
  return payload_size / kWeightsChunkBytes + (payload_size % kWeightsChunkBytes != 0 ? 1 : 0);
}

// Cuts the concatenation of parts into chunks; copies only those that cross parts.
class Chunker {
 public:
  template <typename Function>
  static void Run(ByteParts parts, Function function) {
    std::vector<std::byte> partial;
    for (std::span<const std::byte> part : parts) {
      while (!part.empty()) {
        if (partial.empty() && part.size() >= kWeightsChunkBytes) {
          function(part.first(kWeightsChunkBytes));
          part = part.subspan(kWeightsChunkBytes);
          continue;
        }
        const size_t n = std::min(part.size(), kWeightsChunkBytes - partial.size());
        partial.insert(partial.end(), part.begin(), part.begin() + static_cast<ptrdiff_t>(n));
        part = part.subspan(n);
        if (partial.size() == kWeightsChunkBytes) {
          function(std::span<const std::byte>(partial));
          partial.clear();
        }
      }
    }
    if (!partial.empty()) function(std::span<const std::byte>(partial));
  }
};

absl::StatusOr<ObjectView> CheckWeights(std::span<const std::byte> file, const Digest& digest,
                                        ObjectCheck check) {
  ByteReader in(file, "packed weights");
  in.Skip(sizeof(kMagic));
  const uint32_t version = in.U32();
  const uint32_t chunk_bytes = in.U32();
  const uint64_t payload_offset = in.U64();
  const uint64_t payload_size = in.U64();
  const std::span<const std::byte> payload_digest = in.Bytes(32);
  if (!in.ok()) return absl::DataLossError("packed weights: cut off");
  if (version != kVersion || chunk_bytes != kWeightsChunkBytes) {
    return absl::DataLossError(
        absl::StrCat("packed weights version: got ", version, ", limit ", kVersion));
  }
  if (payload_offset > file.size() || payload_size != file.size() - payload_offset ||
      payload_offset != HeadSize(ChunkCount(payload_size))) {
    return absl::DataLossError(absl::StrCat("packed weights size: got ", file.size(),
                                            " bytes, head says ", payload_offset, " + ",
                                            payload_size));
  }
  if (Sha256(file.first(payload_offset)) != digest) {
    return absl::DataLossError("packed weights: the head does not match the digest");
  }
  const std::span<const std::byte> payload = file.subspan(payload_offset);
  uint64_t chunk = 0;
  for (uint64_t begin = 0; begin < payload_size; begin += kWeightsChunkBytes, ++chunk) {
    const uint64_t size = std::min<uint64_t>(kWeightsChunkBytes, payload_size - begin);
    if (Xxh3(payload.subspan(begin, size)) != in.U64()) {
      return absl::DataLossError(absl::StrCat("packed weights: chunk ", chunk, " is altered"));
    }
  }
  // One payload has one head, so that it has one name.
  const std::span<const std::byte> padding = in.Bytes(payload_offset - in.offset());
  if (std::any_of(padding.begin(), padding.end(), [](std::byte b) { return b != std::byte{0}; })) {
    return absl::DataLossError("packed weights: bytes after the table");
  }
  if (check == ObjectCheck::kWhole) {
    const Digest actual = Sha256(payload);
    if (memcmp(actual.bytes.data(), payload_digest.data(), actual.bytes.size()) != 0) {
      return absl::DataLossError("packed weights: the payload does not match its digest");
    }
  }
  return ObjectView{.is_weights = true, .offset = payload_offset, .bytes = payload};
}

}  // namespace

std::string WeightsHead(ByteParts parts) {
  Sha256Stream sha;
  std::vector<uint64_t> chunks;
  uint64_t size = 0;
  Chunker::Run(parts, [&](std::span<const std::byte> chunk) {
    sha.Update(chunk);
    chunks.push_back(Xxh3(chunk));
    size += chunk.size();
  });
  const uint64_t payload_offset = HeadSize(chunks.size());
  std::string head;
  head.reserve(payload_offset);
  ByteWriter out(&head);
  out.Bytes(std::as_bytes(std::span(kMagic)));
  out.U32(kVersion);
  out.U32(kWeightsChunkBytes);
  out.U64(payload_offset);
  out.U64(size);
  const Digest payload_digest = sha.Finish();
  out.Bytes(std::as_bytes(std::span(payload_digest.bytes)));
  for (const uint64_t chunk : chunks) out.U64(chunk);
  out.AlignTo(kPage);
  return head;
}

bool IsPlainObject(std::span<const std::byte> bytes) {
  return bytes.size() < sizeof(kMagic) || memcmp(bytes.data(), kMagic, sizeof(kMagic)) != 0;
}

absl::StatusOr<ObjectView> CheckObject(std::span<const std::byte> file, const Digest& digest,
                                       ObjectCheck check) {
  if (!IsPlainObject(file)) return CheckWeights(file, digest, check);
  if (Sha256(file) != digest) return absl::DataLossError("object: does not match its digest");
  return ObjectView{.bytes = file};
}

}  // namespace stampmill
