// Artifact: compiled code at rest, and the C ABI of CPU kernels, shared by the device that loads
// them and the compiler that makes them.
//
// Byte table of an artifact file (little endian, version 1):
//   0   8   magic "STMPART\0"
//   8   4   format version (1)
//   12  4   kernel ABI version (kKernelAbiVersion)
//   16  64  target text, NUL padded
//   80  32  SHA-256 of the code
//   112 32  source digest: of the descriptors that the code was made from (CpuLibrary)
//   144 8   size of the code
//   152 8   zero
//   160 32  SHA-256 of bytes 0 to 159
//   192 -   the code, to the end of the file: an ELF shared object (cpu), PTX, HSACO, ...
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "base/hash.h"
#include "devices/target.h"

namespace stampmill {

inline constexpr uint32_t kArtifactVersion = 1;
inline constexpr uint32_t kKernelAbiVersion = 1;
inline constexpr size_t kArtifactHeadBytes = 192;

// A CPU kernel runs tasks [task_begin, task_end) of one launch; returns 0, or a code that fails the
// queue. `scratch` is the running thread's own, at least the launch's scratch_bytes, 64-byte
// aligned. Buffers may be unaligned. Kernels have no other state and no undefined symbols.
struct KernelArgs {
  void* const* buffers;
  const int64_t* dims;
  void* scratch;
};
using CpuKernel = int32_t (*)(const KernelArgs* args, int64_t task_begin, int64_t task_end);

struct CpuKernelEntry {
  const char* name;
  CpuKernel function;
};
// What the one exported symbol of a CPU artifact's shared object, kCpuLibraryQuerySymbol, returns.
struct CpuLibrary {
  uint32_t abi_version;  // kKernelAbiVersion
  uint32_t entry_count;
  const CpuKernelEntry* entries;
  uint8_t source_digest[32];  // the artifact's; tells a library from another loaded in its place
};
using CpuLibraryQuery = const CpuLibrary* (*)();
inline constexpr char kCpuLibraryQuerySymbol[] = "stampmill_kernel_library";

// An artifact over bytes in memory (a mapped file, mostly). Immutable value; copies share the
// owner.
class Artifact {
 public:
  // Checks everything in the table: versions, target, sizes and both digests. DATA_LOSS says what
  // is wrong. `owner` keeps the bytes alive (null: the caller does).
  static absl::StatusOr<Artifact> Parse(std::span<const std::byte> bytes,
                                        std::shared_ptr<const void> owner);
  // The file's bytes. REQUIRES: code is not larger than kArtifactCodeBytesMax (limits.h).
  static std::string Serialize(const Target& target, const Digest& source_digest,
                               std::span<const std::byte> code);

  const Target& target() const { return target_; }
  uint32_t abi_version() const { return abi_version_; }
  const Digest& code_digest() const { return code_digest_; }
  const Digest& source_digest() const { return source_digest_; }
  std::span<const std::byte> code() const { return code_; }

 private:
  Artifact() = default;

  Target target_;
  uint32_t abi_version_ = 0;
  Digest code_digest_;
  Digest source_digest_;
  std::span<const std::byte> code_;
  std::shared_ptr<const void> owner_;
};

}  // namespace stampmill
