// CommandLine: the flags of one subcommand, as every subcommand takes them: `--help`,
// `--config=FILE` (YAML with the flags' names, each once, a list only for flags that may be
// repeated; the command line wins), errors as one line on standard error.
//
//   int RunThing(int argc, char** argv) {
//     CommandLine line("thing", "does the thing");
//     line.app().add_option("MODEL", model, "the model file")->required();
//     if (const std::optional<int> exit = line.Parse(argc, argv)) return *exit;
//     ...
//   }
#pragma once

#include <CLI/App.hpp>
#include <CLI/Config.hpp>
#include <CLI/Formatter.hpp>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace stampmill {

// Exit statuses of the program.
inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;  // the work failed
inline constexpr int kExitUsage = 2;   // the command line or configuration is wrong

// --activation-precision, which means the same on every command.
void AddActivationPrecision(CLI::App& app, std::string& precision);

class CommandLine {
 public:
  CommandLine(absl::string_view name, absl::string_view description);

  // Options are added to it before Parse.
  CLI::App& app() { return app_; }

  // Empty: go on. Else the exit status: help was printed, or the line is wrong and it was said.
  // argv[0] is the subcommand's name.
  std::optional<int> Parse(int argc, char** argv);

 private:
  CLI::App app_;
  const std::string name_;
  std::string config_path_;
  std::string log_format_ = "text";
};

// Marks an INVALID_ARGUMENT as the fault of the command line's words, not of a file that they name;
// others are left as they are.
absl::Status FromFlags(absl::Status status);
template <typename T>
absl::StatusOr<T> FromFlags(absl::StatusOr<T> result) {
  if (result.ok()) return result;
  return FromFlags(result.status());
}

// Prints `stampmill: message` as one line on standard error and returns the exit status.
int Fail(const absl::Status& status);      // kExitFailed; kExitUsage for what FromFlags marked
int FailUsage(absl::string_view message);  // kExitUsage

// A number of bytes above 0 as flags take it: "4096", "64MiB", "4GiB". INVALID_ARGUMENT names
// `flag`.
absl::StatusOr<uint64_t> ParseSize(absl::string_view flag, absl::string_view text);

}  // namespace stampmill
