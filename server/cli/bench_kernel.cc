// `stampmill bench kernel`: speed of the product's own compiled kernels against what the machine
// can do, measured in turn with them.
#include <unistd.h>

#include <boost/json.hpp>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "runtime/peak.h"
#include "server/cli/bench.h"
#include "server/cli/command_line.h"
#include "server/cli/commands.h"
#include "server/cli/kernel_models.h"
#include "server/cli/model_flags.h"
#include "server/cli/model_inputs.h"
#include "server/cli/table.h"
#include "server/cli/timing.h"

namespace stampmill {
namespace {

constexpr uint64_t kSeed = 1;

struct Flags {
  ModelFlags model;
  std::string filter;
  int rounds = 5;
  TableFormat format;
};

// How many times as many products of bytes as of f32 the instructions make: four to one in fours,
// two to one in twos, which then take another to be added.
double ByteProducts(const Target& target) { return target.has_vnni() ? 4 : 2; }

struct Measured {
  double nanos = 0;       // the least of all rounds
  double peak_flops = 0;  // the most of all rounds, all threads
  double bandwidth = 0;
};

// Rounds of: the peak loop, then the kernel for some 50 ms. Interleaved, so that other load takes
// from both.
absl::StatusOr<Measured> Measure(const KernelModel& kernel, const OpenedModel& opened,
                                 std::span<const Tensor> inputs, int rounds, double bandwidth) {
  constexpr int64_t kPeakNanos = 20'000'000;
  const DeviceInfo& info = opened.device->info();
  const double products = kernel.blocks.has_value() ? ByteProducts(info.target) : 1;
  ASSIGN_OR_RETURN(const Latency first, MeasureLatency(*opened.runner, inputs, 1, 3));
  const int repeats = std::clamp(static_cast<int>(50'000 / std::max(first.min_us, 1.0)), 3, 20'000);
  Measured measured = {.nanos = first.min_us * 1e3, .bandwidth = bandwidth};
  for (int round = 0; round < rounds; ++round) {
    measured.peak_flops =
        std::max(measured.peak_flops, MeasurePeakFlops(info.target.class_name(), kPeakNanos) *
                                          std::max(info.threads, 1) * products);
    ASSIGN_OR_RETURN(const Latency latency, MeasureLatency(*opened.runner, inputs, 0, repeats));
    measured.nanos = std::min(measured.nanos, latency.min_us * 1e3);
  }
  return measured;
}

absl::StatusOr<Measured> MeasureModel(const KernelModel& kernel, const Flags& flags,
                                      const std::string& folder, double bandwidth) {
  ModelFlags model = flags.model;
  model.model = absl::StrCat(folder, "/kernel.onnx");
  RETURN_IF_ERROR(AtomicReplaceFile(model.model, AsBytes(SerializeKernelModel(kernel, kSeed))));
  ASSIGN_OR_RETURN(const OpenedModel opened, OpenModel(model));
  std::vector<Tensor> inputs;
  for (const KernelModelTensor& input : kernel.inputs) {
    ASSIGN_OR_RETURN(Tensor tensor, RandomTensor(input.dtype, input.shape, kSeed, 1));
    inputs.push_back(std::move(tensor));
  }
  return Measure(kernel, opened, inputs, flags.rounds, bandwidth);
}

absl::Status AddRow(const KernelModel& kernel, const Measured& measured, Table& table) {
  const double gflops = kernel.flops / measured.nanos;
  const double gbytes = kernel.bytes / measured.nanos;
  const bool computes = kernel.flops > 0;
  const std::string type(kernel.blocks.has_value() ? Name(*kernel.blocks) : Name(kernel.dtype));
  table.Add({kernel.name, type, measured.nanos / 1e3, gflops, gbytes, computes ? "flops" : "memory",
             computes ? gflops * 1e9 / measured.peak_flops : gbytes * 1e9 / measured.bandwidth});
  return absl::OkStatus();
}

absl::StatusOr<Table> MeasureAll(const Flags& flags) {
  std::string folder = absl::StrCat(getenv("TMPDIR") != nullptr ? getenv("TMPDIR") : "/tmp",
                                    "/stampmill-bench-XXXXXX");
  if (mkdtemp(folder.data()) == nullptr) return absl::ErrnoToStatus(errno, "mkdtemp " + folder);
  const absl::Cleanup remove = [&folder] {
    unlink((folder + "/kernel.onnx").c_str());
    rmdir(folder.c_str());
  };
  constexpr int64_t kBandwidthNanos = 500'000'000;
  const double bandwidth = MeasureReadBandwidth(kBandwidthNanos);
  Table table({"kernel", "dtype", "us", "gflops", "gbytes", "bound", "utilisation"});
  for (const KernelModel& kernel : AllKernelModels()) {
    if (!absl::StrContains(kernel.name, flags.filter)) continue;
    const absl::StatusOr<Measured> measured = MeasureModel(kernel, flags, folder, bandwidth);
    if (!measured.ok()) {
      absl::Status named(measured.status().code(),
                         absl::StrCat(kernel.name, ": ", measured.status().message()));
      measured.status().ForEachPayload(
          [&named](absl::string_view url, const auto& payload) { named.SetPayload(url, payload); });
      return named;
    }
    RETURN_IF_ERROR(AddRow(kernel, *measured, table));
  }
  if (table.empty()) {
    return absl::NotFoundError(absl::StrCat("bench kernel: no kernel has '", flags.filter, "'"));
  }
  return table;
}

}  // namespace

int RunBenchKernel(int argc, char** argv) {
  Flags flags;
  flags.model.device.threads = 1;
  CommandLine line("bench kernel", "speed of compiled kernels against what the machine can do");
  line.app().add_option("--filter", flags.filter, "only kernels whose name contains this");
  line.app().add_option("--cpu-isa", flags.model.device.cpu_isa, "class of CPU code");
  AddActivationPrecision(line.app(), flags.model.compile.activation_precision);
  line.app().add_option("--device", flags.model.device.device, "where to run");
  line.app().add_option("--cache-dir", flags.model.cache_dir, "kernel cache");
  line.app()
      .add_option("--threads", flags.model.device.threads, "threads of the CPU device")
      ->check(CLI::Range(0, 1024))
      ->capture_default_str();
  line.app()
      .add_option("--rounds", flags.rounds, "rounds of peak loop and kernel")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  AddTableFormat(line.app(), flags.format);
  if (const std::optional<int> exit = line.Parse(argc, argv)) return *exit;
  return PrintTable(MeasureAll(flags), flags.format);
}

}  // namespace stampmill
