// Artifact: compiled code at rest, and the C ABI of CPU kernels, shared by the device that loads
// them and the compiler that makes them.
//
// Byte table of an artifact file (little endian, version 1):
//   0   8   magic "STMPART\0"
//   8   4   format version (1)
//   12  4   kernel ABI version (kKernelAbiVersion)
//   16  64  target text, NUL padded
//   80  32  SHA-256 of the bytes from `code_offset` to the end
//   112 8   code_offset (multiple of 64)
//   120 8   code_size
//   128 -   zero up to code_offset, then the code: an ELF shared object (cpu), PTX, HSACO, ...
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/file.h"
#include "base/hash.h"
#include "devices/target.h"

namespace stampmill {

inline constexpr uint32_t kArtifactVersion = 1;
inline constexpr uint32_t kKernelAbiVersion = 1;

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
// The one exported symbol of a CPU artifact's shared object: kCpuLibraryQuerySymbol.
struct CpuLibrary {
  uint32_t abi_version;
  uint32_t entry_count;
  const CpuKernelEntry* entries;
  uint8_t source_digest[32];  // of the descriptors it was made from; tells libraries apart
};
using CpuLibraryQuery = const CpuLibrary* (*)();
inline constexpr char kCpuLibraryQuerySymbol[] = "stampmill_kernel_library";

// A parsed artifact over bytes in memory or in an open file. When `file` is valid, the code is
// loaded from that descriptor (decision 25) at `file_offset + code_offset`.
class Artifact {
 public:
  // Checks the head and the digest of the code; DATA_LOSS says what is wrong. `owner` keeps bytes.
  static absl::StatusOr<Artifact> Parse(std::span<const std::byte> bytes,
                                        std::shared_ptr<const void> owner);
  static std::string Serialize(const Target& target, std::span<const std::byte> code);

  const Target& target() const { return target_; }
  uint32_t abi_version() const { return abi_version_; }
  const Digest& code_digest() const { return code_digest_; }
  std::span<const std::byte> code() const { return code_; }

 private:
  Target target_;
  uint32_t abi_version_ = 0;
  Digest code_digest_;
  std::span<const std::byte> code_;
  std::shared_ptr<const void> owner_;
};

}  // namespace stampmill
