#include "compiler/worker/compile_job.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/bytes.h"
#include "base/status_macros.h"
#include "compiler/compiler_abi.h"
#include "compiler/import.h"
#include "compiler/passes/pass_options.h"
#include "compiler/worker/kernel_builder.h"

namespace stampmill {
namespace {

// What people know the model by: the folder's name for NAME/VERSION/model.onnx, as repositories of
// models have it, or else the file's without its ending.
std::string ModelNameOf(absl::string_view path) {
  const std::vector<absl::string_view> parts = absl::StrSplit(path, '/', absl::SkipEmpty());
  if (parts.empty()) return "";
  const size_t n = parts.size();
  if (n >= 3 && parts[n - 1] == "model.onnx" &&
      std::ranges::all_of(parts[n - 2], absl::ascii_isdigit)) {
    return std::string(parts[n - 3]);
  }
  const absl::string_view file = parts.back();
  const size_t dot = file.rfind('.');
  return std::string(dot == absl::string_view::npos || dot == 0 ? file : file.substr(0, dot));
}

// The packed weights as parts, the gaps between ranges as zeros.
absl::StatusOr<Digest> StoreWeights(const CompiledModel& model, KernelCache& cache) {
  if (model.program.weights_size == 0) return Digest{};
  static constexpr std::byte kZeros[4096] = {};
  std::vector<std::span<const std::byte>> parts;
  uint64_t end = 0;
  const auto fill = [&parts, &end](uint64_t to) {
    while (end < to) {
      const uint64_t n = std::min<uint64_t>(to - end, sizeof(kZeros));
      parts.push_back(std::span(kZeros).first(n));
      end += n;
    }
  };
  for (const WeightRange& range : model.weights) {
    if (range.offset < end) return absl::InternalError("packed weights: ranges overlap");
    fill(range.offset);
    parts.push_back(range.tensor.bytes());
    end += range.tensor.bytes().size();
  }
  if (end > model.program.weights_size) {
    return absl::InternalError("packed weights: larger than the program says");
  }
  fill(model.program.weights_size);
  return cache.PutWeights(parts);
}

// Programs name kernels by what they are, not by the model they were first met in.
void NameEntries(const Target& target, CompiledModel& model) {
  std::vector<std::string> names;
  for (const KernelJob& kernel : model.kernels) {
    names.push_back(KernelEntryName(KernelKey(kernel.canonical_bytes, target)));
  }
  for (ProgramCommand& command : model.program.commands) {
    if (command.kind != ProgramCommand::Kind::kLaunch) continue;
    command.entry = names[static_cast<size_t>(command.artifact)];
  }
}

absl::StatusOr<ModelRecord> RecordFor(const CompileJob& job, const ImportedModel& imported,
                                      KernelCache& cache) {
  ModelRecord record = {.name = ModelNameOf(job.model_path),
                        .target = job.target,
                        .options = job.options,
                        .compiler_abi = CompilerAbi()};
  ASSIGN_OR_RETURN(const Digest digest, cache.FileDigest(job.model_path));
  const size_t slash = job.model_path.rfind('/');
  const size_t name = slash == std::string::npos ? 0 : slash + 1;
  record.sources.push_back({.path = job.model_path.substr(name), .digest = digest});
  for (const std::string& file : imported.external_files) {
    ASSIGN_OR_RETURN(const Digest external,
                     cache.FileDigest(absl::StrCat(job.model_path.substr(0, name), file)));
    record.sources.push_back({.path = file, .digest = external});
  }
  return record;
}

}  // namespace

absl::StatusOr<BuiltModel> BuildModel(Graph graph, const BuildOptions& options,
                                      KernelCache& cache) {
  const auto progress = [&options](absl::string_view line) {
    if (options.progress) options.progress(line);
  };
  const Target& target = options.passes.target;
  progress("optimising the graph");
  ASSIGN_OR_RETURN(CompiledModel model, CompileModel(std::move(graph), options.passes));
  progress(absl::StrCat("compiling ", model.kernels.size(), " kernels"));
  ASSIGN_OR_RETURN(
      BuiltKernels kernels,
      BuildKernels(model.kernels,
                   {.target = target, .threads = options.threads, .progress = progress}, cache));
  progress("packing weights");
  ASSIGN_OR_RETURN(const Digest weights, StoreWeights(model, cache));
  NameEntries(target, model);
  BuiltModel built = {.objects = kernels.artifacts,
                      .kernels_compiled = kernels.compiled,
                      .kernels_reused = kernels.reused};
  if (weights != Digest{}) built.objects.push_back(weights);
  PlaceKernels(model, kernels.placement, std::move(kernels.artifacts), weights);
  if (absl::Status sound = model.program.Verify(); !sound.ok()) {
    return absl::InternalError(absl::StrCat("compiler: ", sound.message()));
  }
  ASSIGN_OR_RETURN(built.program, cache.Put(AsBytes(model.program.Serialize())));
  return built;
}

absl::StatusOr<CompileJobStatistics> RunCompileJob(const CompileJob& job, KernelCache& cache) {
  const auto start = std::chrono::steady_clock::now();
  ASSIGN_OR_RETURN(const PassOptions options, ParsePassOptions(job.target, job.options));
  if (job.progress) job.progress("reading the model");
  ASSIGN_OR_RETURN(ImportedModel imported, ImportModel(job.model_path));
  // Before the work: a file that changes meanwhile is found by comparing at the end.
  ASSIGN_OR_RETURN(ModelRecord record, RecordFor(job, imported, cache));
  absl::StatusOr<BuiltModel> built =
      BuildModel(std::move(imported.graph),
                 {.passes = options, .threads = job.threads, .progress = job.progress}, cache);
  if (!built.ok()) {
    return absl::Status(built.status().code(),
                        absl::StrCat("model ", job.model_path, ": ", built.status().message()));
  }
  ASSIGN_OR_RETURN(const ModelRecord after, RecordFor(job, imported, cache));
  if (after.Key() != record.Key()) {
    return absl::AbortedError(
        absl::StrCat("model file ", job.model_path, ": changed while it was compiled"));
  }
  record.program = built->program;
  record.objects = std::move(built->objects);
  const auto elapsed = std::chrono::steady_clock::now() - start;
  record.compile_milliseconds =
      std::chrono::duration_cast<std::chrono::milliseconds>(elapsed).count();
  RETURN_IF_ERROR(cache.PutModel(record));
  return CompileJobStatistics{.kernels_compiled = built->kernels_compiled,
                              .kernels_reused = built->kernels_reused,
                              .milliseconds = record.compile_milliseconds};
}

}  // namespace stampmill
