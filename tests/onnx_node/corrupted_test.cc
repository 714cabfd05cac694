// Node tests of the onnx package with one thing of their models altered (corrupt.py): each is
// refused with an error that says where, or computed, by the references and by the lowerings, with
// one answer; and with that of the file, where it has one. Nothing else: no crash, no defect of
// ours (INTERNAL), no time or memory without bound.
#include <sys/resource.h>

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "compiler/onnx/importer.h"
#include "gtest/gtest.h"
#include "kernels/op.h"
#include "kernels/testing/op_test.h"
#include "tests/onnx_node/attempts.h"
#include "tests/onnx_node/lowered_run.h"
#include "tests/onnx_node/node_cases.h"

namespace stampmill {
namespace {

using Outputs = absl::StatusOr<std::vector<Tensor>>;

constexpr std::chrono::seconds kTimeMax{20};
constexpr rlim_t kMemoryMax = rlim_t{8} << 30;

// Says what is wrong and with what: a node, or what the file itself has.
void ExpectClearError(const absl::Status& status) {
  EXPECT_TRUE(status.code() == absl::StatusCode::kInvalidArgument ||
              status.code() == absl::StatusCode::kUnimplemented ||
              status.code() == absl::StatusCode::kResourceExhausted)
      << status;
  bool says_where = false;
  for (const char* const place :
       {"node ", "input '", "output '", "value '", "opset", "name '", "tensor '", "graph"}) {
    says_where = says_where || absl::StrContains(status.message(), place);
  }
  EXPECT_TRUE(says_where) << status;
}

void ExpectSame(const std::vector<Tensor>& got, const std::vector<Tensor>& want,
                const std::string& whose) {
  ASSERT_EQ(got.size(), want.size()) << whose;
  for (size_t i = 0; i < got.size(); ++i) {
    const bool is_narrow = want[i].dtype() == DType::kF16 || want[i].dtype() == DType::kBF16;
    const CaseTolerance tolerance = {.relative = is_narrow ? 2e-2 : 1e-3,
                                     .absolute = is_narrow ? 1e-2 : 1e-5};
    EXPECT_EQ(Difference(got[i], want[i], tolerance), "") << whose << ", output " << i;
  }
}

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
    auto bytes = std::make_shared<std::string>(case_.model);
    absl::StatusOr<ImportedModel> model = ImportOnnxBytes(AsBytes(*bytes), bytes);
    if (!model.ok()) return ExpectClearError(model.status());
    std::vector<Tensor> inputs;
    for (const ValueId id : model->graph.inputs()) {
      for (const CaseValue& given : case_.inputs) {
        if (given.name == model->graph.value(id).name) inputs.push_back(given.tensor);
      }
    }
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
    if (lowered.ok()) ExpectOracle(*model, *lowered);
  }

  void ExpectOracle(const ImportedModel& model, const std::vector<Tensor>& outputs) {
    for (const CaseValue& want : case_.outputs) {
      const std::vector<std::string>& names = model.graph.output_names();
      for (size_t i = 0; i < names.size() && i < outputs.size(); ++i) {
        if (names[i] != want.name || !want.tensor.valid()) continue;
        ExpectSame({outputs[i]}, {want.tensor}, "oracle's");
      }
    }
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
