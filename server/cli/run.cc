// `stampmill run`: inference without a server: outputs to files, comparison with the reference
// interpreter, latency, profile.
#include <algorithm>
#include <boost/json.hpp>
#include <cstdio>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "runtime/reference_model.h"
#include "server/cli/command_line.h"
#include "server/cli/commands.h"
#include "server/cli/compare.h"
#include "server/cli/model_flags.h"
#include "server/cli/model_inputs.h"
#include "server/cli/npy.h"
#include "server/cli/profile.h"
#include "server/cli/table.h"
#include "server/cli/timing.h"

namespace stampmill {
namespace {

struct Flags {
  ModelFlags model;
  InputFlags inputs;
  std::string output_dir, trace, chart;
  int repeat = 0;
  bool verify = false, profile = false, json = false;
};

void AddFlags(CLI::App& app, Flags& flags) {
  AddModelFlags(app, flags.model);
  AddInputFlags(app, flags.inputs);
  app.add_option("--output-dir", flags.output_dir, "write each output there as NAME.npy");
  app.add_flag("--verify", flags.verify, "compare with the reference interpreter");
  app.add_option("--repeat", flags.repeat, "run so many times more and print the latency")
      ->check(CLI::Range(0, 10'000'000));
  app.add_flag("--profile", flags.profile, "time of each operator against the roofline");
  app.add_option("--trace", flags.trace, "write a Chrome trace of one run to this file");
  app.add_option("--profile-chart", flags.chart, "write the profile as a flame chart (SVG)");
  app.add_flag("--json", flags.json, "print JSON");
}

// What no file name can hold becomes '_'.
std::string FileName(const std::string& output) {
  std::string name = output;
  for (char& c : name) {
    if (c == '/' || c == '\0') c = '_';
  }
  return (name == "." || name == ".." || name.empty() ? "_" : name) + ".npy";
}

// Everything that one invocation does, gathered for printing.
class RunCommand {
 public:
  explicit RunCommand(const Flags& flags) : flags_(flags) {}

  absl::Status Run() {
    ASSIGN_OR_RETURN(opened_, OpenModel(flags_.model));
    ASSIGN_OR_RETURN(inputs_, MakeInputs(flags_.inputs, model()));
    ASSIGN_OR_RETURN(outputs_, opened_.runner->Run(inputs_));
    RETURN_IF_ERROR(DescribeOutputs());
    if (flags_.verify) RETURN_IF_ERROR(Verify());
    if (flags_.repeat > 0) RETURN_IF_ERROR(Measure());
    if (flags_.profile || !flags_.trace.empty() || !flags_.chart.empty()) {
      RETURN_IF_ERROR(Profile());
    }
    Print();
    return disagreement_;
  }

 private:
  const Model& model() const { return opened_.runner->model(); }

  absl::Status DescribeOutputs() {
    if (!flags_.output_dir.empty()) RETURN_IF_ERROR(MakeDirectories(flags_.output_dir));
    std::set<std::string> files;
    boost::json::array outputs;
    for (size_t i = 0; i < outputs_.size(); ++i) {
      const std::string& name = model().outputs()[i].name;
      boost::json::object output{
          {"name", name},
          {"dtype", std::string(Name(outputs_[i].dtype()))},
          {"shape", boost::json::array(outputs_[i].shape().begin(), outputs_[i].shape().end())}};
      if (!flags_.output_dir.empty()) {
        const std::string file = absl::StrCat(flags_.output_dir, "/", FileName(name));
        if (!files.insert(file).second) {
          return absl::InvalidArgumentError(
              absl::StrCat("output '", name, "': another output has the file name ", file));
        }
        RETURN_IF_ERROR(WriteNpy(file, outputs_[i]));
        output["file"] = file;
      }
      text_ += absl::StrCat("output ", name, ": ", Name(outputs_[i].dtype()), " ",
                            ShapeText(outputs_[i].shape()), "\n");
      outputs.push_back(std::move(output));
    }
    json_["model"] = flags_.model.model;
    json_["target"] = model().program().target;
    json_["open_seconds"] = opened_.open_seconds;
    json_["outputs"] = std::move(outputs);
    return absl::OkStatus();
  }

  absl::Status Verify() {
    ASSIGN_OR_RETURN(const ReferenceModel reference, ReferenceModel::Open(flags_.model.model));
    std::map<std::string, Tensor> inputs;
    for (size_t i = 0; i < inputs_.size(); ++i) inputs[model().inputs()[i].name] = inputs_[i];
    ASSIGN_OR_RETURN(const std::vector<Tensor> expected, reference.Run(inputs));
    std::vector<OutputComparison> results;
    for (size_t i = 0; i < expected.size(); ++i) {
      const std::string& name = reference.output_names()[i];
      const int32_t index = model().FindOutput(name);
      if (index < 0) return absl::InternalError(absl::StrCat("output '", name, "': not there"));
      const bool rounds = flags_.model.compile.activation_precision == "bf16";
      results.push_back(CompareOutput(name, outputs_[static_cast<size_t>(index)], expected[i],
                                      rounds ? kBf16Tolerance : kF32Tolerance));
    }
    if (!std::ranges::all_of(results, &OutputComparison::agrees)) {
      CompareUnderNoise(reference, inputs, expected, results);
    }
    AddVerdicts(results);
    return absl::OkStatus();
  }

  // The reference under rounding errors, in case they explain the differences.
  void CompareUnderNoise(const ReferenceModel& reference,
                         const std::map<std::string, Tensor>& inputs,
                         const std::vector<Tensor>& expected,
                         std::vector<OutputComparison>& results) const {
    constexpr uint64_t kRuns = 2;
    std::vector<std::vector<Tensor>> noisy(results.size());
    for (uint64_t seed = 1; seed <= kRuns; ++seed) {
      absl::StatusOr<std::vector<Tensor>> run =
          reference.Run(inputs, {.rounding_noise = true, .seed = seed});
      // Noise may take a model where its operators fail: then it explains nothing.
      if (!run.ok()) continue;
      for (size_t i = 0; i < results.size(); ++i) noisy[i].push_back((*run)[i]);
    }
    for (size_t i = 0; i < results.size(); ++i) {
      const auto index = static_cast<size_t>(model().FindOutput(results[i].name));
      AllowForRounding(outputs_[index], expected[i], noisy[i], results[i]);
    }
  }

  void AddVerdicts(const std::vector<OutputComparison>& results) {
    Table table(
        {"output", "agrees", "max error", "tolerance", "sensitivity", "magnitude", "differing"});
    boost::json::array rows;
    for (const OutputComparison& result : results) {
      table.Add({result.name, result.agrees ? "yes" : "no", result.error_max, result.tolerance,
                 result.sensitivity, result.magnitude, result.differing});
      rows.push_back({{"name", result.name},
                      {"agrees", result.agrees},
                      {"max_error", result.error_max},
                      {"tolerance", result.tolerance},
                      {"sensitivity", result.sensitivity},
                      {"differing", result.differing},
                      {"problem", result.problem}});
      if (result.agrees || !disagreement_.ok()) continue;
      disagreement_ = absl::InternalError(
          result.problem.empty()
              ? absl::StrCat("verify: output '", result.name, "': max error: got ",
                             result.error_max, ", limit ", result.tolerance)
              : absl::StrCat("verify: output '", result.name, "': ", result.problem));
    }
    text_ += table.Text();
    json_["verify"] = std::move(rows);
  }

  absl::Status Measure() {
    const int warmups = std::min(flags_.repeat, 10);
    ASSIGN_OR_RETURN(const Latency latency,
                     MeasureLatency(*opened_.runner, inputs_, warmups, flags_.repeat));
    json_["runs"] = latency.runs;
    json_["p25_us"] = latency.p25_us;
    json_["p50_us"] = latency.p50_us;
    json_["p99_us"] = latency.p99_us;
    json_["min_us"] = latency.min_us;
    Table table({"runs", "p25_us", "p50_us", "p99_us", "min_us", "mean_us"});
    table.Add({latency.runs, latency.p25_us, latency.p50_us, latency.p99_us, latency.min_us,
               latency.mean_us});
    text_ += table.Text();
    return absl::OkStatus();
  }

  absl::Status Profile() {
    constexpr int kRepeats = 20;
    ASSIGN_OR_RETURN(const ModelProfile profile, ProfileModel(*opened_.runner, inputs_, kRepeats));
    if (!flags_.trace.empty()) {
      RETURN_IF_ERROR(AtomicReplaceFile(flags_.trace, AsBytes(ChromeTrace(profile))));
    }
    if (!flags_.chart.empty()) {
      const std::string chart =
          FlameChart(profile, std::filesystem::path(flags_.model.model).stem().string());
      RETURN_IF_ERROR(AtomicReplaceFile(flags_.chart, AsBytes(chart)));
    }
    if (!flags_.profile) return absl::OkStatus();
    const Table table = ProfileTable(profile);
    json_["profile"] =
        boost::json::object{{"rows", table.Json()},
                            {"total_us", static_cast<double>(profile.total_nanos) / 1e3},
                            {"peak_gflops", profile.peak_flops / 1e9},
                            {"peak_gbytes", profile.peak_bandwidth / 1e9}};
    absl::StrAppend(&text_, table.Text(), "total ", static_cast<double>(profile.total_nanos) / 1e3,
                    " us; this machine: ", profile.peak_flops / 1e9, " GFLOP/s, ",
                    profile.peak_bandwidth / 1e9, " GB/s of one thread\n");
    return absl::OkStatus();
  }

  void Print() const {
    if (flags_.json) {
      PrintJson(json_);
    } else {
      fputs(text_.c_str(), stdout);
    }
  }

  const Flags& flags_;
  OpenedModel opened_;
  std::vector<Tensor> inputs_, outputs_;
  std::string text_;
  boost::json::object json_;
  absl::Status disagreement_;
};

}  // namespace

int RunRun(int argc, char** argv) {
  Flags flags;
  CommandLine line("run", "runs one inference without a server");
  AddFlags(line.app(), flags);
  if (const std::optional<int> exit = line.Parse(argc, argv)) return *exit;
  RunCommand command(flags);
  const absl::Status done = command.Run();
  return done.ok() ? kExitDone : Fail(done);
}

}  // namespace stampmill
