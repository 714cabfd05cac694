#include "server/command_line.h"

#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <cstdio>
#include <exception>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"
#include "base/file.h"
#include "base/log.h"
#include "base/status_macros.h"

namespace stampmill {
namespace {

constexpr uint64_t kConfigBytesMax = uint64_t{1} << 20;

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

// The flags of the YAML file that `--config` names and the command line does not, as arguments.
absl::StatusOr<std::vector<std::string>> ConfiguredArguments(
    const std::vector<std::string>& arguments) {
  std::vector<std::string> configured;
  const std::optional<std::string> path = FindArgument(arguments, "--config");
  if (!path.has_value()) return configured;
  ASSIGN_OR_RETURN(const std::string text, ReadFile(*path, kConfigBytesMax));
  try {
    const YAML::Node root = YAML::Load(text);
    if (root.IsNull()) return configured;
    if (!root.IsMap()) return absl::InvalidArgumentError("--config: got no map of flags");
    for (const auto& entry : root) {
      const std::string flag = absl::StrCat("--", entry.first.Scalar());
      const YAML::Node& value = entry.second;
      if (FindArgument(arguments, flag).has_value()) continue;
      if (!value.IsScalar() && !value.IsSequence()) {
        return absl::InvalidArgumentError(
            absl::StrCat("--config: ", flag, ": got neither a value nor a list"));
      }
      if (value.IsScalar()) configured.push_back(absl::StrCat(flag, "=", value.Scalar()));
      for (const YAML::Node& item : value) {
        configured.push_back(absl::StrCat(flag, "=", item.Scalar()));
      }
    }
  } catch (const std::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat("--config: ", *path, ": ", error.what()));
  }
  return configured;
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
  absl::StatusOr<std::vector<std::string>> configured = ConfiguredArguments(arguments);
  if (!configured.ok()) {
    return FailUsage(absl::StrCat(name_, ": ", configured.status().message()));
  }
  arguments.insert(arguments.begin(), configured->begin(), configured->end());
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

int Fail(const absl::Status& status) {
  PrintLine(absl::string_view(status.message()));
  return kExitFailed;
}

int FailUsage(absl::string_view message) {
  PrintLine(message);
  return kExitUsage;
}

}  // namespace stampmill
