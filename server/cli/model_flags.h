// The flags that `run` and `bench model` share, and the model that they name, opened: device,
// cache, program, runner.
#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "runtime/local_runner.h"
#include "runtime/model_image.h"
#include "runtime/placement.h"

namespace stampmill {

struct ModelFlags {
  std::string model;
  DeviceFlags device;
  std::string cache_dir;
  CompileFlags compile;
  bool require_warm_cache = false;
};

void AddModelFlags(CLI::App& app, ModelFlags& flags);

// Where a model is compiled for, kept and run.
struct ModelPlace {
  std::unique_ptr<KernelCache> cache;
  std::unique_ptr<Device> device;
  ModelImageOptions image;  // without progress
};
// Errors that are FromFlags are so marked.
absl::StatusOr<ModelPlace> OpenPlace(const ModelFlags& flags);

// Owns everything that the runner stands on.
struct OpenedModel {
  std::unique_ptr<KernelCache> cache;
  std::unique_ptr<Device> device;
  std::unique_ptr<LocalRunner> runner;  // last: destroyed first
  double open_seconds = 0;              // from the file's path to the first launch possible
};

// Compiles when the cache does not have it, with progress shown. Errors that are FromFlags are so
// marked.
absl::StatusOr<OpenedModel> OpenModel(const ModelFlags& flags);

}  // namespace stampmill
