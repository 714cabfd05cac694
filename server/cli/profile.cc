#include "server/cli/profile.h"

#include <algorithm>
#include <boost/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
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

// The least time that operations and bytes allow, as part of the time taken. Data in cache makes it
// more than all.
double RooflineShare(const ModelProfile& profile, const ProfiledCommand& command) {
  if (command.nanos <= 0) return 0;
  const double least_nanos = std::max(static_cast<double>(command.flops) / profile.peak_flops,
                                      static_cast<double>(command.bytes) / profile.peak_bandwidth) *
                             1e9;
  return least_nanos / static_cast<double>(command.nanos);
}

std::string XmlText(absl::string_view text) {
  return absl::StrReplaceAll(text, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}});
}

std::string Percent(double share) { return absl::StrFormat("%.0f %%", 100 * share); }

// Measures of the chart in user units.
constexpr double kChartWidth = 1200;
constexpr double kMargin = 10;
constexpr double kBoxHeight = 24;
constexpr double kBarsHeight = 60;
constexpr double kLetterWidth = 6.5;
constexpr double kModelTop = 34;
constexpr double kCommandsTop = kModelTop + kBoxHeight + 2;
constexpr double kBarsTop = kCommandsTop + kBoxHeight + 2;
constexpr double kLegendTop = kBarsTop + kBarsHeight + 20;

// From red, far from the roofline, to green.
std::string ColourOf(double roofline_share) {
  return absl::StrFormat("hsl(%.0f,65%%,72%%)", 120 * std::clamp(roofline_share, 0.0, 1.0));
}

std::string Box(double left, double top, double width, absl::string_view colour,
                absl::string_view label, absl::string_view tooltip) {
  const auto letters = static_cast<size_t>(std::max(0.0, (width - 6) / kLetterWidth));
  std::string box = absl::StrFormat(
      "<g><title>%s</title><rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" "
      "fill=\"%s\" stroke=\"#fff\" stroke-width=\"0.5\"/>",
      XmlText(tooltip), left, top, width, kBoxHeight, colour);
  if (letters >= 3) {
    absl::StrAppendFormat(&box, "<text x=\"%.2f\" y=\"%.1f\">%s</text>", left + 3, top + 16,
                          XmlText(label.substr(0, letters)));
  }
  return box + "</g>\n";
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
    table.Add({command.label, static_cast<double>(command.nanos) / 1e3,
               100 * PerNano(command.nanos, profile.total_nanos), gflops, gbytes,
               100 * RooflineShare(profile, command)});
  }
  return table;
}

std::string FlameChart(const ModelProfile& profile, absl::string_view title) {
  const double scale =
      (kChartWidth - 2 * kMargin) / static_cast<double>(std::max<int64_t>(profile.total_nanos, 1));
  std::string boxes;
  std::string bars;
  double start = kMargin;
  double at_roofline_nanos = 0;
  for (const ProfiledCommand& command : profile.commands) {
    const double width = static_cast<double>(command.nanos) * scale;
    const double share = RooflineShare(profile, command);
    at_roofline_nanos += std::min(share, 1.0) * static_cast<double>(command.nanos);
    const std::string tooltip = absl::StrFormat(
        "%s\n%.1f us, %s of the time\n%.1f GFLOP/s, %.1f GB/s, %s of the roofline", command.label,
        static_cast<double>(command.nanos) / 1e3,
        Percent(PerNano(command.nanos, profile.total_nanos)), PerNano(command.flops, command.nanos),
        PerNano(command.bytes, command.nanos), Percent(share));
    absl::StrAppend(&boxes,
                    Box(start, kCommandsTop, width, ColourOf(share), command.label, tooltip));
    absl::StrAppendFormat(&bars, "<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.2f\"/>\n",
                          start, kBarsTop, width, kBarsHeight * std::min(share, 1.0));
    start += width;
  }
  const std::string total =
      absl::StrFormat("%s: %.1f us", title, static_cast<double>(profile.total_nanos) / 1e3);
  const double whole =
      at_roofline_nanos / static_cast<double>(std::max<int64_t>(profile.total_nanos, 1));
  return absl::StrCat(
      absl::StrFormat("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %.0f %.0f\" "
                      "font-family=\"sans-serif\" font-size=\"11\">\n"
                      "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n"
                      "<text x=\"%.0f\" y=\"20\" font-size=\"14\">%s, %s of the roofline</text>\n",
                      kChartWidth, kLegendTop + 10, kMargin, XmlText(total), Percent(whole)),
      Box(kMargin, kModelTop, kChartWidth - 2 * kMargin, ColourOf(whole), title, total), boxes,
      "<g fill=\"#7a8fb5\">\n", bars, "</g>\n",
      absl::StrFormat("<line x1=\"%.0f\" x2=\"%.0f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#888\" "
                      "stroke-dasharray=\"4 3\"/>\n",
                      kMargin, kChartWidth - kMargin, kBarsTop + kBarsHeight,
                      kBarsTop + kBarsHeight),
      absl::StrFormat("<text x=\"%.0f\" y=\"%.1f\">time to the right; bars and colours: part of "
                      "the roofline (%.0f GFLOP/s, %.1f GB/s) that is reached, dashed: all of it"
                      "</text>\n</svg>\n",
                      kMargin, kLegendTop, profile.peak_flops / 1e9, profile.peak_bandwidth / 1e9));
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
