// `stampmill compile`: ahead of time, into a kernel cache that `serve --cache-dir` then uses.
#include <boost/json.hpp>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "runtime/model_image.h"
#include "runtime/placement.h"
#include "server/cli/command_line.h"
#include "server/cli/commands.h"
#include "server/cli/progress.h"
#include "server/cli/table.h"

namespace stampmill {
namespace {

struct Flags {
  std::vector<std::string> models;
  std::vector<std::string> targets = {"cpu"};
  std::string output;
  CompileFlags compile;
  int32_t threads = 0;
  bool json = false;
};

void AddFlags(CLI::App& app, Flags& flags) {
  app.add_option("MODEL", flags.models, "the model files")
      ->required()
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll);
  app.add_option("--target", flags.targets, "what to compile for, e.g. cpu:x86-64-v3,cpu:x86-64")
      ->delimiter(',')
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->capture_default_str();
  app.add_option("--output,--cache-dir", flags.output,
                 "the cache directory to fill (default: the user's own)");
  app.add_option("--threads", flags.threads, "code generation threads (default: all)")
      ->check(CLI::Range(0, 1024));
  AddActivationPrecision(app, flags.compile.activation_precision);
  app.add_option("--compile-options", flags.compile.options,
                 "for bisecting: 'fuse=0', 'channels-last=0' or both");
  app.add_flag("--json", flags.json, "print JSON");
}

// Compiles one model for one target; a row about it.
absl::StatusOr<boost::json::object> CompileOne(const Flags& flags, const std::string& options,
                                               const std::string& model, const std::string& target,
                                               KernelCache& cache) {
  ProgressLine progress(absl::StrCat(model, " for ", target));
  const absl::StatusOr<CompileStatistics> done =
      EnsureCompiled(model,
                     {.target = target,
                      .options = options,
                      .compile_threads = flags.threads,
                      .progress = [&progress](absl::string_view line) { progress.Show(line); }},
                     cache);
  if (!done.ok()) return done.status();
  return boost::json::object{{"model", model},
                             {"target", target},
                             {"options", options},
                             {"kernels_compiled", done->kernels_compiled},
                             {"kernels_reused", done->kernels_reused},
                             {"seconds", done->seconds}};
}

}  // namespace

int RunCompile(int argc, char** argv) {
  Flags flags;
  CommandLine line("compile", "compiles models ahead of time into a kernel cache");
  AddFlags(line.app(), flags);
  if (const std::optional<int> exit = line.Parse(argc, argv)) return *exit;
  std::vector<std::string> targets;
  for (const std::string& text : flags.targets) {
    const absl::StatusOr<std::string> target = ParseTargetText(text);
    if (!target.ok()) return Fail(FromFlags(target.status()));
    targets.push_back(*target);
  }
  const absl::StatusOr<std::string> options = CompileOptionsText(flags.compile);
  if (!options.ok()) return Fail(FromFlags(options.status()));
  auto cache = OpenKernelCache(flags.output, kCacheBytesDefault);
  if (!cache.ok()) return Fail(FromFlags(cache.status()));
  // Results that stay in this process are no use to anybody.
  if ((*cache)->read_only()) {
    return Fail(absl::FailedPreconditionError(absl::StrCat(
        "cache directory ", (*cache)->directory(), ": ", (*cache)->read_only_reason())));
  }
  boost::json::array rows;
  for (const std::string& model : flags.models) {
    for (const std::string& target : targets) {
      const absl::StatusOr<boost::json::object> row =
          CompileOne(flags, *options, model, target, **cache);
      if (!row.ok()) return Fail(row.status());
      rows.push_back(*row);
      if (flags.json) continue;
      printf("%s for %s: %ld kernels compiled, %ld reused, %.1f s\n", model.c_str(), target.c_str(),
             row->at("kernels_compiled").as_int64(), row->at("kernels_reused").as_int64(),
             row->at("seconds").as_double());
    }
  }
  if ((*cache)->counters().write_failures > 0) {
    return Fail(absl::ResourceExhaustedError(
        absl::StrCat("cache directory ", (*cache)->directory(),
                     ": could not be written to the end: ", (*cache)->unwritten_reason())));
  }
  if (flags.json) PrintJson({{"rows", rows}});
  return kExitDone;
}

}  // namespace stampmill
