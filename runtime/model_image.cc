// Objects keep their mappings; the image's owner is the list of them.
#include "runtime/model_image.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status_macros.h"
#include "devices/host.h"
#include "runtime/region_fault.h"

namespace stampmill {
namespace {

// What is named by a record but gone is as good as damaged.
absl::StatusOr<CacheObjectPtr> GetObject(const Digest& digest, KernelCache& cache) {
  absl::StatusOr<CacheObjectPtr> object = cache.Get(digest);
  if (absl::IsNotFound(object.status())) {
    return absl::DataLossError(absl::StrCat("cache: object ", digest.ToHex(), " is missing"));
  }
  return object;
}

absl::StatusOr<ModelImage> FindModelImage(const ModelSource& source, KernelCache& cache) {
  ASSIGN_OR_RETURN(const ModelRecord record, cache.FindModel(source));
  return OpenModelImage(record, cache);
}

CompileRequest RequestFor(const std::string& path, const ModelImageOptions& options) {
  return {.model_path = path,
          .target = options.target,
          .options = options.options,
          .threads = options.compile_threads > 0 ? options.compile_threads : UsableCpuCount(),
          .worker_program = options.worker_program,
          .progress = options.progress};
}

}  // namespace

absl::StatusOr<ModelImage> OpenModelImage(const ModelRecord& record, KernelCache& cache) {
  HandleBusErrors();
  auto objects = std::make_shared<std::vector<CacheObjectPtr>>();
  ASSIGN_OR_RETURN(const CacheObjectPtr program, GetObject(record.program, cache));
  ModelImage image;
  ASSIGN_OR_RETURN(image.program, Program::Parse(program->bytes()));
  for (const Digest& digest : image.program.artifacts) {
    ASSIGN_OR_RETURN(CacheObjectPtr object, GetObject(digest, cache));
    ASSIGN_OR_RETURN(Artifact artifact, Artifact::Parse(object->bytes(), object));
    image.artifacts.push_back(std::move(artifact));
  }
  if (image.program.weights != Digest{}) {
    ASSIGN_OR_RETURN(CacheObjectPtr weights, GetObject(image.program.weights, cache));
    image.weights = weights->bytes();
    objects->push_back(std::move(weights));
  }
  image.owner = std::move(objects);
  return image;
}

absl::StatusOr<ModelImage> FindOrCompileModel(const std::string& path,
                                              const ModelImageOptions& options,
                                              KernelCache& cache) {
  const CompileRequest request = RequestFor(path, options);
  const ModelSource source = SourceOf(request);
  absl::StatusOr<ModelImage> image = FindModelImage(source, cache);
  if (image.ok() || (!absl::IsNotFound(image.status()) && !absl::IsDataLoss(image.status()))) {
    return image;
  }
  if (options.require_warm_cache) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": must be compiled for ", options.target,
                     ", and --require-warm-cache is set: ", image.status().message()));
  }
  if (absl::IsDataLoss(image.status())) {
    LOG(WARNING) << path << ": " << std::string(image.status().message()) << ": compiling again";
  }
  const auto open = [&image, &cache](const ModelRecord& record) {
    image = OpenModelImage(record, cache);
    return image.status();
  };
  RETURN_IF_ERROR(Compile(request, cache, open).status());
  return image;
}

absl::StatusOr<CompileStatistics> EnsureCompiled(const std::string& path,
                                                 const ModelImageOptions& options,
                                                 KernelCache& cache) {
  return Compile(RequestFor(path, options), cache);
}

}  // namespace stampmill
