#include "tests/compiled/graph_compiler.h"

#include <utility>

#include "base/status_macros.h"
#include "compiler/cache/model_record.h"
#include "compiler/worker/compile_job.h"
#include "runtime/model_image.h"

namespace stampmill {
namespace {

// Each object of a cache without a directory is an open file.
constexpr int64_t kObjectsMax = 2000;

}  // namespace

absl::StatusOr<std::unique_ptr<LocalRunner>> GraphCompiler::Compile(Graph graph, Device* device) {
  if (cache_ == nullptr || cache_->counters().objects_in_memory > kObjectsMax) {
    ASSIGN_OR_RETURN(cache_, KernelCache::Open({}));
  }
  ASSIGN_OR_RETURN(
      const BuiltModel built,
      BuildModel(std::move(graph), {.passes = options_, .progress = nullptr}, *cache_));
  kernels_compiled_ += built.kernels_compiled;
  kernels_reused_ += built.kernels_reused;
  ModelRecord record;
  record.program = built.program;
  ASSIGN_OR_RETURN(ModelImage image, OpenModelImage(record, *cache_));
  return LocalRunner::Create(std::move(image), device);
}

}  // namespace stampmill
