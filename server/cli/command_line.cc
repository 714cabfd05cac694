#include "server/cli/command_line.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "base/file.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "runtime/memory_budget.h"

namespace stampmill {
namespace {

constexpr uint64_t kConfigBytesMax = uint64_t{1} << 20;

constexpr char kFromFlags[] = "stampmill/from-flags";

// The value of `--flag=VALUE` or `--flag VALUE`, the last if there are several.
std::optional<std::string> FindArgument(const std::vector<std::string>& arguments,
                                        absl::string_view flag) {
  std::optional<std::string> value;
  for (size_t i = 0; i < arguments.size(); ++i) {
    absl::string_view argument = arguments[i];
    if (argument == "--") break;
    if (!absl::ConsumePrefix(&argument, flag)) continue;
    if (argument.empty() && i + 1 < arguments.size()) value = arguments[i + 1];
    if (absl::ConsumePrefix(&argument, "=")) value = std::string(argument);
  }
  return value;
}

// Whether the command line has the option, under any of its names.
bool IsGiven(const std::vector<std::string>& arguments, const CLI::Option& option) {
  for (const std::string& name : option.get_lnames()) {
    const std::string flag = absl::StrCat("--", name);
    if (FindArgument(arguments, flag).has_value()) return true;
    if (std::find(arguments.begin(), arguments.end(), flag) != arguments.end()) return true;
  }
  return false;
}

// One entry of the YAML file as arguments.
absl::Status AppendConfigured(const std::string& key, const YAML::Node& value,
                              const CLI::Option& option, std::vector<std::string>& configured) {
  if (value.IsScalar()) {
    configured.push_back(absl::StrCat("--", key, "=", value.Scalar()));
    return absl::OkStatus();
  }
  const bool repeatable = option.get_multi_option_policy() == CLI::MultiOptionPolicy::TakeAll;
  if (!value.IsSequence() || !repeatable) {
    return absl::InvalidArgumentError(
        absl::StrCat(key, ": got ",
                     value.IsSequence() ? "a list"
                     : value.IsMap()    ? "a map"
                                        : "nothing",
                     ", want ", repeatable ? "a value or a list of values" : "one value"));
  }
  for (const YAML::Node& item : value) {
    if (!item.IsScalar()) {
      return absl::InvalidArgumentError(absl::StrCat(key, ": its list has what is no value"));
    }
    configured.push_back(absl::StrCat("--", key, "=", item.Scalar()));
  }
  return absl::OkStatus();
}

absl::Status AppendAllConfigured(const YAML::Node& root, const CLI::App& app,
                                 const std::vector<std::string>& arguments,
                                 std::vector<std::string>& configured) {
  if (root.IsNull()) return absl::OkStatus();
  if (!root.IsMap()) return absl::InvalidArgumentError("got no map of flags");
  std::set<const CLI::Option*> seen;
  for (const auto& entry : root) {
    const std::string key = entry.first.IsScalar() ? entry.first.Scalar() : "";
    const CLI::Option* option = app.get_option_no_throw(absl::StrCat("--", key));
    if (key.empty() || option == nullptr || key == "config" || key == "help") {
      return absl::InvalidArgumentError(absl::StrCat("got '", key, "', which is no flag for it"));
    }
    if (!seen.insert(option).second) {
      return absl::InvalidArgumentError(absl::StrCat(key, ": got it twice, limit once"));
    }
    if (IsGiven(arguments, *option)) continue;
    const absl::Status status = AppendConfigured(key, entry.second, *option, configured);
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

// The flags of the YAML file that `--config` names and the command line does not, as arguments.
absl::StatusOr<std::vector<std::string>> ConfiguredArguments(
    const CLI::App& app, const std::vector<std::string>& arguments) {
  std::vector<std::string> configured;
  const std::optional<std::string> path = FindArgument(arguments, "--config");
  if (!path.has_value()) return configured;
  ASSIGN_OR_RETURN(const std::string text, ReadFile(*path, kConfigBytesMax));
  absl::Status status;
  try {
    status = AppendAllConfigured(YAML::Load(text), app, arguments, configured);
  } catch (const std::exception& error) {
    status = absl::InvalidArgumentError(error.what());
  }
  if (status.ok()) return configured;
  return absl::InvalidArgumentError(absl::StrCat("--config: ", *path, ": ", status.message()));
}

void PrintLine(absl::string_view message) {
  const std::string line =
      absl::StrReplaceAll(absl::StrCat("stampmill: ", message), {{"\n", " | "}, {"\r", ""}});
  fprintf(stderr, "%s\n", line.c_str());
}

}  // namespace

CommandLine::CommandLine(absl::string_view name, absl::string_view description)
    : app_(std::string(description), absl::StrCat("stampmill ", name)), name_(name) {
  app_.option_defaults()->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
  app_.add_option("--config", config_path_, "YAML file with flags under their own names");
  app_.add_option("--log-format", log_format_, "form of the log on standard error")
      ->check(CLI::IsMember({"text", "json"}))
      ->capture_default_str();
}

std::optional<int> CommandLine::Parse(int argc, char** argv) {
  std::vector<std::string> arguments(argv + std::min(argc, 1), argv + argc);
  absl::StatusOr<std::vector<std::string>> configured = ConfiguredArguments(app_, arguments);
  if (!configured.ok()) {
    return FailUsage(absl::StrCat(name_, ": ", configured.status().message()));
  }
  arguments.insert(arguments.begin(), configured->begin(), configured->end());
  // CLI11 would take the argument after it for the value.
  for (const std::string& argument : arguments) {
    if (argument == "--") break;
    if (absl::StartsWith(argument, "--") && argument.find('=') == argument.size() - 1) {
      return FailUsage(absl::StrCat(name_, ": ", argument.substr(0, argument.size() - 1),
                                    ": got no value after its '='"));
    }
  }
  // A flag that may be repeated takes one value each time: `--input x=x.npy model.onnx`.
  for (CLI::Option* option : app_.get_options()) {
    if (!option->get_positional()) option->allow_extra_args(false);
  }
  std::reverse(arguments.begin(), arguments.end());  // as CLI11 takes them
  try {
    app_.parse(std::move(arguments));
  } catch (const CLI::CallForHelp&) {
    fputs(app_.help().c_str(), stdout);
    return kExitDone;
  } catch (const CLI::ParseError& error) {
    return FailUsage(absl::StrCat(name_, ": ", error.what()));
  }
  if (log_format_ == "json") SetLogFormat(LogFormat::kJson);
  return std::nullopt;
}

void AddActivationPrecision(CLI::App& app, std::string& precision) {
  app.add_option(
         "--activation-precision", precision,
         "auto (as f32), f32, or bf16: matrix products and convolutions round what they "
         "multiply to bf16 and add up in f32. It changes results by about 1 per cent, halves "
         "the weights and doubles the speed of products on x86-64-v4+vnni+bf16; other "
         "classes compute the same results no faster")
      ->capture_default_str();
}

absl::Status FromFlags(absl::Status status) {
  if (absl::IsInvalidArgument(status)) status.SetPayload(kFromFlags, absl::Cord());
  return status;
}

int Fail(const absl::Status& status) {
  PrintLine(absl::string_view(status.message()));
  return status.GetPayload(kFromFlags).has_value() ? kExitUsage : kExitFailed;
}

int FailUsage(absl::string_view message) {
  PrintLine(message);
  return kExitUsage;
}

absl::StatusOr<uint64_t> ParseSize(absl::string_view flag, absl::string_view text) {
  absl::StatusOr<uint64_t> size = MemoryBudget::ParseFlag(text, 0);
  if (size.ok() && !absl::StrContains(text, '%')) return size;
  return absl::InvalidArgumentError(
      absl::StrCat(flag, ": got '", text, "', limit a number of bytes, e.g. 4096, 64MiB or 4GiB"));
}

}  // namespace stampmill
