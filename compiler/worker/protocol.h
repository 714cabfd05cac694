// What compile worker and client say to each other: frames over a SOCK_SEQPACKET socket pair, each
// one packet of at most kFrameBytesMax. What may be larger (objects and records of a cache that
// cannot be written) goes as a sealed memfd beside its frame.
//
//   client -> worker   kRequest, once
//   worker -> client   kProgress, kRefused, kUnwritten ..., kObject ..., kModel ..., kResult, once
//
// Byte table of a frame (little endian): u8 kind, then by kind (string = u32 length and bytes)
//   kRequest   u32 protocol version; string model_path, target, options; i32 threads; string
//              cache_directory; u8 cache_is_default, cache_writable; i64 memory_limit_bytes
//   kProgress  string line
//   kRefused   string line: what of the cache was found damaged (KernelCacheOptions::refused)
//   kUnwritten string line: why the cache could not be written (KernelCacheOptions::unwritten)
//   kObject    32 bytes digest; the object as file
//   kModel     nothing; the record's text (model_record.h) as file
//   kResult    i32 status code, string message, i64 kernels_compiled, kernels_reused,
//              milliseconds
// Both sides are one build; the version only catches a program replaced while it runs.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/file.h"
#include "base/hash.h"

namespace stampmill {

inline constexpr uint32_t kWorkerProtocolVersion = 3;
inline constexpr size_t kFrameBytesMax = size_t{64} << 10;
// The descriptor that a worker finds its socket at.
inline constexpr int kWorkerSocket = 3;

struct WorkerRequest {
  std::string model_path;
  std::string target;
  std::string options;
  int32_t threads = 0;
  std::string cache_directory;
  bool cache_is_default = false;
  bool cache_writable = true;
  int64_t memory_limit_bytes = 0;

  std::string Serialize() const;
  static absl::StatusOr<WorkerRequest> Parse(std::span<const std::byte> payload);
};

struct WorkerResult {
  absl::Status status;
  int64_t kernels_compiled = 0;
  int64_t kernels_reused = 0;
  int64_t milliseconds = 0;

  // A message too long for a frame is cut.
  std::string Serialize() const;
  static absl::StatusOr<WorkerResult> Parse(std::span<const std::byte> payload);
};

enum class FrameKind : uint8_t {
  kRequest = 1,
  kProgress = 2,
  kObject = 3,
  kModel = 4,
  kResult = 5,
  kRefused = 6,
  kUnwritten = 7,
};

struct Frame {
  FrameKind kind = FrameKind::kProgress;
  std::string payload;
  FileDescriptor file;

  // The line of kProgress, kRefused and kUnwritten, the digest of kObject; INVALID_ARGUMENT.
  absl::StatusOr<std::string> Line() const;
  absl::StatusOr<Digest> ObjectDigest() const;
};
std::string LinePayload(absl::string_view line);
std::string ObjectPayload(const Digest& digest);

// Splits what came in one packet. INVALID_ARGUMENT for an empty one or an unknown kind.
absl::StatusOr<Frame> ParseFrame(std::span<const std::byte> packet);

// UNAVAILABLE when the other side is gone. `file` may be -1. Blocks while the other side is slow.
absl::Status SendFrame(const FileDescriptor& socket, FrameKind kind, absl::string_view payload,
                       int file);
// The next frame; nullopt when none is there yet and `wait` is false. UNAVAILABLE when the other
// side is gone.
absl::StatusOr<std::optional<Frame>> ReceiveFrame(const FileDescriptor& socket, bool wait);

}  // namespace stampmill
