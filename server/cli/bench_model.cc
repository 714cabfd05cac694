// `stampmill bench model`: latency of one model, without a server, beside other engines when asked.
#include <boost/json.hpp>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "server/cli/bench.h"
#include "server/cli/bench_peers.h"
#include "server/cli/command_line.h"
#include "server/cli/commands.h"
#include "server/cli/model_flags.h"
#include "server/cli/model_inputs.h"
#include "server/cli/npy.h"
#include "server/cli/table.h"
#include "server/cli/timing.h"

namespace stampmill {
namespace {

struct Flags {
  ModelFlags model;
  InputFlags inputs;
  std::string peer_python;
  int warmup = 10;
  int repeat = 100;
  int rounds = 3;
  TableFormat format;
};

// One engine's rounds. Of each figure the smallest counts: other work on the machine only adds.
struct Contender {
  std::string engine;
  std::string version;
  std::string error;  // why there are no more rounds
  double open_seconds = 0;
  Latency best;

  void Add(const Latency& round) {
    if (best.runs == 0) {
      best = round;
      return;
    }
    best.runs += round.runs;
    best.p25_us = std::min(best.p25_us, round.p25_us);
    best.p50_us = std::min(best.p50_us, round.p50_us);
    best.p99_us = std::min(best.p99_us, round.p99_us);
    best.min_us = std::min(best.min_us, round.min_us);
    best.mean_us = std::min(best.mean_us, round.mean_us);
  }
};

class ModelBench {
 public:
  explicit ModelBench(const Flags& flags) : flags_(flags) {}

  absl::StatusOr<Table> Run() {
    ASSIGN_OR_RETURN(opened_, OpenModel(flags_.model));
    ASSIGN_OR_RETURN(inputs_, MakeInputs(flags_.inputs, model()));
    contenders_.push_back({.engine = "stampmill",
                           .version = model().program().target,
                           .error = "",
                           .open_seconds = opened_.open_seconds,
                           .best = {}});
    std::string folder;
    const auto remove_folder = absl::MakeCleanup([&] {
      if (!folder.empty()) std::filesystem::remove_all(folder);
    });
    if (!flags_.peer_python.empty()) {
      ASSIGN_OR_RETURN(folder, WriteInputs());
      for (const char* engine : PeerEngines()) contenders_.push_back({.engine = engine});
    }
    for (int round = 0; round < flags_.rounds; ++round) {
      for (Contender& contender : contenders_) RETURN_IF_ERROR(MeasureRound(contender));
    }
    return Results();
  }

 private:
  const Model& model() const { return opened_.runner->model(); }

  // The inputs as files in a new folder, for the peers.
  absl::StatusOr<std::string> WriteInputs() {
    std::string folder =
        (std::filesystem::temp_directory_path() / "stampmill-bench-XXXXXX").string();
    if (mkdtemp(folder.data()) == nullptr) {
      return absl::ErrnoToStatus(errno, absl::StrCat(folder, ": mkdtemp"));
    }
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const std::string file = absl::StrCat(folder, "/", i, ".npy");
      RETURN_IF_ERROR(WriteNpy(file, inputs_[i]));
      files_.push_back({model().inputs()[i].name, file});
    }
    return folder;
  }

  // A peer that fails is reported and left out of further rounds; our own failure ends all.
  absl::Status MeasureRound(Contender& contender) {
    if (!contender.error.empty()) return absl::OkStatus();
    if (&contender == &contenders_.front()) {
      ASSIGN_OR_RETURN(const Latency latency,
                       MeasureLatency(*opened_.runner, inputs_, flags_.warmup, flags_.repeat));
      contender.Add(latency);
      return absl::OkStatus();
    }
    const absl::StatusOr<PeerMeasurement> measured =
        MeasurePeer({.python = flags_.peer_python,
                     .engine = contender.engine,
                     .model = flags_.model.model,
                     .files = files_,
                     .threads = opened_.device->info().threads,
                     .warmup = flags_.warmup,
                     .repeat = flags_.repeat});
    if (absl::IsNotFound(measured.status())) return measured.status();
    if (!measured.ok()) {
      contender.error = std::string(measured.status().message());
      return absl::OkStatus();
    }
    contender.version = measured->version;
    contender.open_seconds = measured->open_seconds;
    contender.Add(measured->latency);
    return absl::OkStatus();
  }

  Table Results() const {
    std::vector<std::string> shapes;
    for (const Tensor& input : inputs_) shapes.push_back(ShapeText(input.shape()));
    Table table({"engine", "version", "model", "threads", "inputs", "runs", "p25_us", "p50_us",
                 "p99_us", "min_us", "runs_per_second", "open_seconds", "stampmill_over_it",
                 "error"});
    const double ours = contenders_.front().best.p25_us;
    for (const Contender& contender : contenders_) {
      const Latency& best = contender.best;
      table.Add({contender.engine, contender.version, flags_.model.model,
                 opened_.device->info().threads, absl::StrJoin(shapes, " "), best.runs, best.p25_us,
                 best.p50_us, best.p99_us, best.min_us, best.mean_us > 0 ? 1e6 / best.mean_us : 0.0,
                 contender.open_seconds, best.p25_us > 0 ? ours / best.p25_us : 0.0,
                 contender.error});
    }
    return table;
  }

  const Flags& flags_;
  OpenedModel opened_;
  std::vector<Tensor> inputs_;
  std::vector<std::pair<std::string, std::string>> files_;  // input name, .npy file
  std::vector<Contender> contenders_;                       // ours is the first
};

}  // namespace

int RunBenchModel(int argc, char** argv) {
  Flags flags;
  flags.inputs.random = true;
  CommandLine line("bench model", "latency of one model, without a server");
  AddModelFlags(line.app(), flags.model);
  AddInputFlags(line.app(), flags.inputs);
  line.app().add_option("--peer-python", flags.peer_python,
                        "a Python with onnxruntime, openvino or both: measures them beside");
  line.app()
      .add_option("--warmup", flags.warmup, "runs before the first that counts")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  line.app()
      .add_option("--repeat", flags.repeat, "runs of one round")
      ->check(CLI::Range(1, 10'000'000))
      ->capture_default_str();
  line.app()
      .add_option("--rounds", flags.rounds, "rounds of all engines in turn; the best counts")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  AddTableFormat(line.app(), flags.format);
  if (const std::optional<int> exit = line.Parse(argc, argv)) return *exit;
  return PrintTable(ModelBench(flags).Run(), flags.format);
}

}  // namespace stampmill
