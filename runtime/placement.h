// From the words of a command line to what they name: devices, targets, the kernel cache. The
// commands of server/ open all of them here.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "compiler/cache/kernel_cache.h"
#include "devices/device.h"

namespace stampmill {

struct DeviceFlags {
  std::string device = "cpu";  // --device
  std::string cpu_isa;  // --cpu-isa: the part of a cpu target after the colon; empty: the host's
  int32_t threads = 0;  // --threads; 0: what the process may use
};

// INVALID_ARGUMENT for words that name nothing; UNIMPLEMENTED for kinds of device that this build
// has no backend for.
absl::StatusOr<std::unique_ptr<Device>> OpenDevice(const DeviceFlags& flags);

// The text of the target to compile for, on that device.
absl::StatusOr<std::string> TargetText(const DeviceFlags& flags);

// The canonical text; "cpu" is the host's class. INVALID_ARGUMENT lists the known targets,
// UNIMPLEMENTED those that this build compiles for.
absl::StatusOr<std::string> ParseTargetText(absl::string_view text);

struct CompileFlags {
  std::string activation_precision = "auto";  // --activation-precision: auto, f32 or bf16
  std::string options;  // --compile-options: 'fuse=0', 'channels-last=0', both, or nothing
};

// Both as one text, as the compiler and cache keys take it (compiler/passes/pass_options.h): words
// that mean the same, `auto` and `f32`, give the same text. INVALID_ARGUMENT for others.
absl::StatusOr<std::string> CompileOptionsText(const CompileFlags& flags);
// The same for language models, to which `auto` and `f32` are two things: activations that
// block-quantised weights multiply are rounded to bytes, or not.
absl::StatusOr<std::string> LanguageCompileOptionsText(const CompileFlags& flags);

struct DeviceReport {
  std::string kind;  // "cpu", "cuda", "hip", "npu"
  std::vector<DeviceInfo> devices;
  std::string reason;  // why there is none
};
// Every kind, in the order of preference.
std::vector<DeviceReport> ListDevices();

// `directory` as --cache-dir names it; empty: the default directory, or none when the environment
// names no home. A named directory need not exist.
absl::StatusOr<std::unique_ptr<KernelCache>> OpenKernelCache(const std::string& directory,
                                                             uint64_t size_bytes_max,
                                                             bool writable = true);

inline constexpr uint64_t kCacheBytesDefault = uint64_t{16} << 30;  // --cache-max-size

// The rest of the process as the compile worker (`stampmill compile-worker`); its exit status.
int RunCompileWorkerProcess();

// The version of this build's compiler, as cached models are told apart by it.
std::string CompilerVersionText();

}  // namespace stampmill
