// The node tests of the onnx package through the whole compiler: passes, generated code, the CPU
// device. With a symbol for every extent: one compiled model serves all shapes.
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "base/hash.h"
#include "base/status_macros.h"
#include "compiler/llvm/codegen.h"
#include "compiler/passes/compile_model.h"
#include "devices/artifact.h"
#include "devices/cpu/cpu_device.h"
#include "devices/target.h"
#include "gtest/gtest.h"
#include "runtime/local_runner.h"
#include "tests/onnx_node/attempts.h"
#include "tests/onnx_node/node_cases.h"

namespace stampmill {
namespace {

// What a ModelImage borrows.
struct Storage {
  std::string artifact;
  std::vector<std::byte> weights;
};

absl::StatusOr<ModelImage> ImageOf(CompiledModel model, const Target& target) {
  auto storage = std::make_shared<Storage>();
  std::vector<KernelSource> sources;
  for (const KernelJob& kernel : model.kernels) sources.push_back({kernel.name, kernel.body});
  ModelImage image;
  std::vector<Digest> artifacts;
  if (!sources.empty()) {
    ASSIGN_OR_RETURN(storage->artifact, CompileKernels(sources, target, CodegenOptions{}));
    ASSIGN_OR_RETURN(Artifact artifact, Artifact::Parse(AsBytes(storage->artifact), storage));
    artifacts.push_back(artifact.code_digest());
    image.artifacts.push_back(std::move(artifact));
  }
  storage->weights.resize(model.program.weights_size);
  for (const WeightRange& range : model.weights) {
    std::ranges::copy(range.tensor.bytes(),
                      storage->weights.begin() + static_cast<int64_t>(range.offset));
  }
  const Digest weights = storage->weights.empty() ? Digest{} : Sha256(storage->weights);
  PlaceKernels(model, std::vector<int32_t>(sources.size(), 0), std::move(artifacts), weights);
  RETURN_IF_ERROR(model.program.Verify());
  image.program = std::move(model.program);
  image.weights = storage->weights;
  image.owner = storage;
  return image;
}

absl::StatusOr<std::vector<Tensor>> RunCompiled(Graph graph, std::span<const Tensor> inputs,
                                                const Target& target, Device* device) {
  ASSIGN_OR_RETURN(CompiledModel model, CompileModel(std::move(graph), {.target = target}));
  ASSIGN_OR_RETURN(ModelImage image, ImageOf(std::move(model), target));
  ASSIGN_OR_RETURN(const std::unique_ptr<LocalRunner> runner,
                   LocalRunner::Create(std::move(image), device));
  return runner->Run(inputs);
}

}  // namespace
}  // namespace stampmill

// compiled_test CASES LIST...
int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc < 2) return 2;
  const auto device = stampmill::CreateCpuDevice({.threads = 1});
  if (!device.ok()) {
    std::fprintf(stderr, "%s\n", std::string(device.status().message()).c_str());
    return 1;
  }
  const stampmill::Target target = stampmill::Target::HostCpu();
  return stampmill::RunNodeTests(
      argv[1], std::span(argv + 2, argv + argc),
      [&](const stampmill::Graph& graph, std::span<const stampmill::Tensor> inputs) {
        return stampmill::RunForms(
            graph, inputs, {.is_symbolic = true, .without_folding = false},
            [&](stampmill::Graph form, std::span<const stampmill::Tensor> values,
                const stampmill::Symbols&, bool) {
              return stampmill::RunCompiled(std::move(form), values, target, device->get());
            });
      });
}
