// `stampmill bench model`: latency of one model, without a server.
#include <boost/json.hpp>
#include <cstdio>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "server/cli_bench.h"
#include "server/command_line.h"
#include "server/commands.h"
#include "server/model_flags.h"
#include "server/model_inputs.h"
#include "server/table.h"
#include "server/timing.h"

namespace stampmill {
namespace {

struct Flags {
  ModelFlags model;
  InputFlags inputs;
  int warmup = 10;
  int repeat = 100;
  int rounds = 3;
  TableFormat format;
};

absl::StatusOr<Table> Measure(const Flags& flags) {
  ASSIGN_OR_RETURN(OpenedModel opened, OpenModel(flags.model));
  const Model& model = opened.runner->model();
  ASSIGN_OR_RETURN(const std::vector<Tensor> inputs, MakeInputs(flags.inputs, model));
  std::vector<std::string> shapes;
  for (const Tensor& input : inputs) shapes.push_back(ShapeText(input.shape()));
  Table table({"model", "target", "threads", "inputs", "round", "runs", "p25_us", "p50_us",
               "p99_us", "min_us", "runs_per_second", "open_seconds"});
  for (int round = 0; round < flags.rounds; ++round) {
    ASSIGN_OR_RETURN(const Latency latency,
                     MeasureLatency(*opened.runner, inputs, flags.warmup, flags.repeat));
    table.Add({flags.model.model, model.program().target, opened.device->info().threads,
               absl::StrJoin(shapes, " "), round, latency.runs, latency.p25_us, latency.p50_us,
               latency.p99_us, latency.min_us, latency.mean_us > 0 ? 1e6 / latency.mean_us : 0.0,
               opened.open_seconds});
  }
  return table;
}

}  // namespace

int RunBenchModel(int argc, char** argv) {
  Flags flags;
  flags.inputs.random = true;
  CommandLine line("bench model", "latency of one model, without a server");
  AddModelFlags(line.app(), flags.model);
  AddInputFlags(line.app(), flags.inputs);
  line.app()
      .add_option("--warmup", flags.warmup, "runs before the first that counts")
      ->check(CLI::Range(0, 1'000'000))
      ->capture_default_str();
  line.app()
      .add_option("--repeat", flags.repeat, "runs of one round")
      ->check(CLI::Range(1, 10'000'000))
      ->capture_default_str();
  line.app()
      .add_option("--rounds", flags.rounds, "rounds, one row each")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  AddTableFormat(line.app(), flags.format);
  if (const std::optional<int> exit = line.Parse(argc, argv)) return *exit;
  return PrintTable(Measure(flags), flags.format);
}

}  // namespace stampmill
