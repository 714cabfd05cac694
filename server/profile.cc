#include "server/profile.h"

#include <algorithm>
#include <boost/json.hpp>

#include "base/status_macros.h"
#include "runtime/peak.h"

namespace stampmill {
namespace {

constexpr int64_t kMeasureNanos = 200'000'000;

int64_t DimValue(std::span<const int64_t> values, int32_t place) {
  return place < 0 || static_cast<size_t>(place) >= values.size()
             ? 0
             : values[static_cast<size_t>(place)];
}

std::string Label(const ProgramCommand& command) {
  if (!command.label.empty()) return command.label;
  return command.kind == ProgramCommand::Kind::kCopy   ? "copy"
         : command.kind == ProgramCommand::Kind::kFill ? "fill"
                                                       : command.entry;
}

double PerNano(int64_t amount, int64_t nanos) {
  return nanos <= 0 ? 0 : static_cast<double>(amount) / static_cast<double>(nanos);
}

}  // namespace

absl::StatusOr<ModelProfile> ProfileModel(LocalRunner& runner, std::span<const Tensor> inputs,
                                          int repeats) {
  ASSIGN_OR_RETURN(const std::vector<int64_t> nanos, runner.Profile(inputs, repeats));
  const std::span<const int64_t> dims = runner.dim_values();
  const std::vector<ProgramCommand>& commands = runner.model().program().commands;
  ModelProfile profile;
  for (size_t i = 0; i < commands.size(); ++i) {
    profile.commands.push_back({.label = Label(commands[i]),
                                .nanos = nanos[i],
                                .flops = DimValue(dims, commands[i].flops_place),
                                .bytes = DimValue(dims, commands[i].bytes_place)});
    profile.total_nanos += nanos[i];
  }
  const DeviceInfo& info = runner.model().device()->info();
  profile.peak_flops =
      MeasurePeakFlops(info.target.class_name(), kMeasureNanos) * std::max(info.threads, 1);
  profile.peak_bandwidth = MeasureReadBandwidth(kMeasureNanos);
  return profile;
}

Table ProfileTable(const ModelProfile& profile) {
  Table table({"operator", "us", "share_percent", "gflops", "gbytes", "roofline_percent"});
  for (const ProfiledCommand& command : profile.commands) {
    const double gflops = PerNano(command.flops, command.nanos);
    const double gbytes = PerNano(command.bytes, command.nanos);
    // The least time that operations and bytes allow, as part of the time taken. Data in cache
    // makes it more than all.
    const double least_nanos =
        std::max(static_cast<double>(command.flops) / profile.peak_flops,
                 static_cast<double>(command.bytes) / profile.peak_bandwidth) *
        1e9;
    table.Add({command.label, static_cast<double>(command.nanos) / 1e3,
               100 * PerNano(command.nanos, profile.total_nanos), gflops, gbytes,
               command.nanos > 0 ? 100 * least_nanos / static_cast<double>(command.nanos) : 0.0});
  }
  return table;
}

std::string ChromeTrace(const ModelProfile& profile) {
  boost::json::array events;
  int64_t start = 0;
  for (const ProfiledCommand& command : profile.commands) {
    events.push_back({{"name", command.label},
                      {"ph", "X"},
                      {"pid", 1},
                      {"tid", 1},
                      {"ts", static_cast<double>(start) / 1e3},
                      {"dur", static_cast<double>(command.nanos) / 1e3},
                      {"args", {{"flops", command.flops}, {"bytes", command.bytes}}}});
    start += command.nanos;
  }
  return boost::json::serialize(boost::json::value{{"traceEvents", events}});
}

}  // namespace stampmill
