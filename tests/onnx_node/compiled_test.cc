// The node tests of the onnx package through the whole compiler: passes, generated code for one CPU
// class, the CPU device. Either with the shapes of the case, or with a symbol for every extent: one
// compiled model serves all shapes.
#include <cstdio>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/status_macros.h"
#include "devices/cpu/cpu_device.h"
#include "devices/target.h"
#include "gtest/gtest.h"
#include "runtime/local_runner.h"
#include "tests/compiled/graph_compiler.h"
#include "tests/onnx_node/attempts.h"
#include "tests/onnx_node/node_cases.h"

namespace stampmill {
namespace {

// On a machine that cannot run the target.
class SkippedTest : public testing::Test {
 public:
  void TestBody() override { GTEST_SKIP() << "this machine is " << Target::HostCpu().ToString(); }
};

int RunCompiledTests(const Target& target, bool is_symbolic, const std::string& cases,
                     std::span<char* const> lists) {
  if (!Target::HostCpu().Runs(target)) {
    testing::RegisterTest("Node", "RunsOnThisMachine", nullptr, nullptr, __FILE__, __LINE__,
                          []() -> testing::Test* { return new SkippedTest; });
    return RUN_ALL_TESTS();
  }
  const auto device = CreateCpuDevice({.threads = 1, .target = target});
  if (!device.ok()) {
    std::fprintf(stderr, "%s\n", std::string(device.status().message()).c_str());
    return 1;
  }
  GraphCompiler compiler({.target = target});
  const auto run = [&](Graph form, std::span<const Tensor> inputs, const Symbols&,
                       bool) -> absl::StatusOr<std::vector<Tensor>> {
    ASSIGN_OR_RETURN(const std::unique_ptr<LocalRunner> runner,
                     compiler.Compile(std::move(form), device->get()));
    return runner->Run(inputs);
  };
  const int status =
      RunNodeTests(cases, lists, [&](const Graph& graph, std::span<const Tensor> inputs) {
        return RunForms(graph, inputs, {.is_symbolic = is_symbolic, .without_folding = false}, run);
      });
  std::printf("%s: %lld kernels compiled, %lld shared\n", target.ToString().c_str(),
              static_cast<long long>(compiler.kernels_compiled()),
              static_cast<long long>(compiler.kernels_reused()));
  return status;
}

}  // namespace
}  // namespace stampmill

// compiled_test TARGET fixed|symbolic CASES LIST...
int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc < 4) return 2;
  const auto target = stampmill::Target::Parse(argv[1]);
  if (!target.ok()) {
    std::fprintf(stderr, "%s\n", std::string(target.status().message()).c_str());
    return 2;
  }
  return stampmill::RunCompiledTests(*target, std::string(argv[2]) == "symbolic", argv[3],
                                     std::span(argv + 4, argv + argc));
}
