#include "server/cli/model_flags.h"

#include <chrono>
#include <utility>

#include "base/status_macros.h"
#include "runtime/model_image.h"
#include "server/cli/command_line.h"
#include "server/cli/progress.h"

namespace stampmill {

void AddModelFlags(CLI::App& app, ModelFlags& flags) {
  app.add_option("MODEL", flags.model, "the model file")->required();
  app.add_option("--device", flags.device.device, "where to run")->capture_default_str();
  app.add_option("--cpu-isa", flags.device.cpu_isa,
                 "class of CPU code, e.g. x86-64-v3 (default: the host's)");
  app.add_option("--threads", flags.device.threads,
                 "threads of the CPU device (default: what the process may use)")
      ->check(CLI::Range(0, 1024));
  app.add_option("--cache-dir", flags.cache_dir, "kernel cache (default: the user's own)");
  app.add_flag("--require-warm-cache", flags.require_warm_cache, "fail instead of compiling");
  AddActivationPrecision(app, flags.compile.activation_precision);
  app.add_option("--compile-options", flags.compile.options,
                 "for bisecting: 'fuse=0', 'channels-last=0' or both");
}

absl::StatusOr<ModelPlace> OpenPlace(const ModelFlags& flags) {
  ModelPlace place;
  ASSIGN_OR_RETURN(place.image.options, FromFlags(CompileOptionsText(flags.compile)));
  ASSIGN_OR_RETURN(place.image.target, FromFlags(TargetText(flags.device)));
  place.image.require_warm_cache = flags.require_warm_cache;
  ASSIGN_OR_RETURN(place.device, FromFlags(OpenDevice(flags.device)));
  ASSIGN_OR_RETURN(place.cache, FromFlags(OpenKernelCache(flags.cache_dir, kCacheBytesDefault)));
  return place;
}

absl::StatusOr<OpenedModel> OpenModel(const ModelFlags& flags) {
  const auto start = std::chrono::steady_clock::now();
  ASSIGN_OR_RETURN(ModelPlace place, OpenPlace(flags));
  ProgressLine progress(flags.model);
  place.image.progress = [&progress](absl::string_view line) { progress.Show(line); };
  OpenedModel opened;
  opened.cache = std::move(place.cache);
  opened.device = std::move(place.device);
  ASSIGN_OR_RETURN(ModelImage image, FindOrCompileModel(flags.model, place.image, *opened.cache));
  ASSIGN_OR_RETURN(opened.runner, LocalRunner::Create(std::move(image), opened.device.get()));
  opened.open_seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return opened;
}

}  // namespace stampmill
