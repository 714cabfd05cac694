// CommandLine: the flags of one subcommand, as every subcommand takes them: `--help`,
// `--config=FILE` (YAML with the flags' names; the command line wins), errors as one line on
// standard error.
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
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace stampmill {

// Exit statuses of the program.
inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;  // the work failed
inline constexpr int kExitUsage = 2;   // the command line or configuration is wrong

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

// Prints `stampmill: message` as one line on standard error and returns the exit status.
int Fail(const absl::Status& status);      // kExitFailed
int FailUsage(absl::string_view message);  // kExitUsage

}  // namespace stampmill
