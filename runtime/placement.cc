#include "runtime/placement.h"

#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "compiler/compiler_abi.h"
#include "compiler/passes/pass_options.h"
#include "compiler/worker/worker_main.h"
#include "devices/cpu/cpu_device.h"
#include "devices/target.h"

namespace stampmill {
namespace {

constexpr absl::string_view kOtherKinds[] = {"cuda", "hip", "npu"};

absl::StatusOr<Target> CpuTarget(const std::string& cpu_isa) {
  if (cpu_isa.empty()) return Target::HostCpu();
  return Target::Parse(absl::StrCat("cpu:", cpu_isa));
}

absl::Status CheckDeviceName(absl::string_view device) {
  if (device == "cpu") return absl::OkStatus();
  for (const absl::string_view kind : kOtherKinds) {
    if (device == kind || absl::StartsWith(device, absl::StrCat(kind, ":"))) {
      return absl::UnimplementedError(
          absl::StrCat("device ", device, ": this build has no ", kind, " backend"));
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("device: got '", device, "', limit cpu, cuda:N, hip:N, npu:N"));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> OpenDevice(const DeviceFlags& flags) {
  RETURN_IF_ERROR(CheckDeviceName(flags.device));
  ASSIGN_OR_RETURN(const Target target, CpuTarget(flags.cpu_isa));
  return CreateCpuDevice({.threads = flags.threads, .target = target});
}

absl::StatusOr<std::string> TargetText(const DeviceFlags& flags) {
  RETURN_IF_ERROR(CheckDeviceName(flags.device));
  ASSIGN_OR_RETURN(const Target target, CpuTarget(flags.cpu_isa));
  return target.ToString();
}

absl::StatusOr<std::string> ParseTargetText(absl::string_view text) {
  ASSIGN_OR_RETURN(const Target target, Target::Parse(text));
  if (target.kind() == "cpu") return target.ToString();
  std::vector<std::string> compiled;
  for (const Target& cpu : Target::CpuClasses()) compiled.push_back(cpu.ToString());
  return absl::UnimplementedError(absl::StrCat("target: got ", target.ToString(),
                                               ", this build compiles for ",
                                               absl::StrJoin(compiled, ", ")));
}

absl::StatusOr<std::string> CompileOptionsText(const CompileFlags& flags) {
  const std::string& precision = flags.activation_precision;
  if (precision != "auto" && precision != "f32" && precision != "bf16") {
    return absl::InvalidArgumentError(
        absl::StrCat("--activation-precision: got '", precision, "', limit auto, f32, bf16"));
  }
  ASSIGN_OR_RETURN(const PassOptions options, ParsePassOptions(Target().ToString(), flags.options));
  if (precision != "bf16" || options.bf16_products) return flags.options;
  return absl::StrCat(flags.options, flags.options.empty() ? "" : " ", "activation-precision=bf16");
}

absl::StatusOr<std::string> LanguageCompileOptionsText(const CompileFlags& flags) {
  ASSIGN_OR_RETURN(const std::string text, CompileOptionsText(flags));
  ASSIGN_OR_RETURN(const PassOptions options, ParsePassOptions(Target().ToString(), text));
  if (flags.activation_precision != "f32" || options.exact_rows) return text;
  return absl::StrCat(text, text.empty() ? "" : " ", "activation-precision=f32");
}

std::vector<DeviceReport> ListDevices() {
  std::vector<DeviceReport> reports;
  DeviceReport cpu{.kind = "cpu"};
  const absl::StatusOr<std::unique_ptr<Device>> device = OpenDevice({});
  if (device.ok()) {
    cpu.devices.push_back((*device)->info());
  } else {
    cpu.reason = std::string(device.status().message());
  }
  reports.push_back(std::move(cpu));
  for (const absl::string_view kind : kOtherKinds) {
    reports.push_back({.kind = std::string(kind),
                       .devices = {},
                       .reason = absl::StrCat("this build has no ", kind, " backend")});
  }
  return reports;
}

absl::StatusOr<std::unique_ptr<KernelCache>> OpenKernelCache(const std::string& directory,
                                                             uint64_t size_bytes_max,
                                                             bool writable) {
  return KernelCache::Open({.directory = directory.empty() ? DefaultCacheDirectory() : directory,
                            .is_default = directory.empty(),
                            .writable = writable,
                            .size_bytes_max = size_bytes_max});
}

int RunCompileWorkerProcess() { return RunCompileWorker(); }

std::string CompilerVersionText() { return CompilerAbi().ToHex().substr(0, 16); }

}  // namespace stampmill
