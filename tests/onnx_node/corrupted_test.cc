// Node tests of the onnx package with one thing of their models altered (corrupt.py): each is
// refused with an error that says where, or computed, by the references and by the lowerings, with
// one answer; and with that of the file, where it has one. Nothing else: no crash, no defect of
// ours (INTERNAL), no time or memory without bound.
#include <sys/resource.h>

#include <chrono>
#include <vector>

#include "absl/status/statusor.h"
#include "compiler/onnx/importer.h"
#include "gtest/gtest.h"
#include "kernels/op.h"
#include "tests/onnx_node/attempts.h"
#include "tests/onnx_node/expectations.h"
#include "tests/onnx_node/lowered_run.h"
#include "tests/onnx_node/node_cases.h"

namespace stampmill {
namespace {

constexpr std::chrono::seconds kTimeMax{20};
constexpr rlim_t kMemoryMax = rlim_t{8} << 30;

class CorruptedTest : public testing::Test {
 public:
  explicit CorruptedTest(const NodeCase& node_case) : case_(node_case) {}

  void TestBody() override {
    const auto begin = std::chrono::steady_clock::now();
    Run();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, kTimeMax);
  }

 private:
  void Run() {
    const absl::StatusOr<ImportedModel> model = ImportCase(case_);
    if (!model.ok()) return ExpectClearError(model.status());
    const std::vector<Tensor> inputs = InputsOf(case_, model->graph);
    ASSERT_EQ(inputs.size(), model->graph.inputs().size());
    const Outputs reference = RunForms(
        model->graph, inputs, {.is_symbolic = false},
        [](Graph graph, std::span<const Tensor> tensors, const Symbols&, bool fold) -> Outputs {
          const absl::Status status = InferShapes(graph, {.fold_constants = fold});
          if (!status.ok()) return status;
          return Interpret(graph, tensors);
        });
    if (!reference.ok()) ExpectClearError(reference.status());
    const Outputs lowered = RunForms(model->graph, inputs, {.is_symbolic = false}, RunLowered);
    if (!lowered.ok()) ExpectClearError(lowered.status());
    if (reference.ok() && lowered.ok()) ExpectSame(*lowered, *reference, "lowered");
    if (lowered.ok()) ExpectOracle(case_, model->graph, *lowered);
  }

  const NodeCase& case_;
};

}  // namespace
}  // namespace stampmill

// corrupted_test CASES
int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc != 2) return 2;
  static const auto cases = stampmill::ReadNodeCases(argv[1]);
  if (!cases.ok()) {
    fprintf(stderr, "%s\n", cases.status().ToString().c_str());
    return 1;
  }
  const rlimit limit = {stampmill::kMemoryMax, stampmill::kMemoryMax};
  setrlimit(RLIMIT_AS, &limit);
  for (const stampmill::NodeCase& node_case : *cases) {
    testing::RegisterTest("Corrupted", node_case.name.c_str(), nullptr, nullptr, __FILE__, __LINE__,
                          [&] { return new stampmill::CorruptedTest(node_case); });
  }
  return RUN_ALL_TESTS();
}
