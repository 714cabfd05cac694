// Models of one operator with random attributes, types and shapes (make_random.py): the answer is
// the oracle's, by the references, by the lowerings under the nest interpreter or by compiled code;
// with the shapes of the case, with symbols for extents, and with a symbol for every dim. What no
// oracle has an answer for is refused with a clear error, or computed by references and lowerings
// alike.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iterator>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "base/status_macros.h"
#include "devices/cpu/cpu_device.h"
#include "devices/target.h"
#include "gtest/gtest.h"
#include "kernels/op.h"
#include "runtime/local_runner.h"
#include "tests/compiled/graph_compiler.h"
#include "tests/onnx_node/attempts.h"
#include "tests/onnx_node/expectations.h"
#include "tests/onnx_node/lowered_run.h"
#include "tests/onnx_node/node_cases.h"

namespace stampmill {
namespace {

constexpr std::chrono::seconds kTimeMax{20};

// Words of the errors with which we refuse what an oracle answers: an error with none of them is a
// failure.
constexpr absl::string_view kRefused[] = {
    // The references run no bodies.
    "control flow is resolved before shapes are inferred",
};

// The same with a symbol for every dim, 1 too.
constexpr absl::string_view kRefusedWithSymbols[] = {
    // Einsum does not broadcast dims that it does not know.
    "axes of one label",
};

struct Form {
  std::string name;
  AttemptOptions options;
  FormExecutor executor;
};

FormExecutor ByReference() {
  return [](Graph graph, std::span<const Tensor> inputs, const Symbols&, bool fold) -> Outputs {
    RETURN_IF_ERROR(InferShapes(graph, {.fold_constants = fold}));
    return Interpret(graph, inputs);
  };
}

class RandomTest : public testing::Test {
 public:
  RandomTest(const NodeCase& node_case, const std::vector<Form>& forms)
      : case_(node_case), forms_(forms) {}

  void TestBody() override {
    const auto begin = std::chrono::steady_clock::now();
    Run();
    EXPECT_LT(std::chrono::steady_clock::now() - begin, kTimeMax);
  }

 private:
  void Run() {
    const absl::StatusOr<ImportedModel> model = ImportCase(case_);
    if (!model.ok()) return ExpectRefusal(model.status(), "import", false);
    const std::vector<Tensor> inputs = InputsOf(case_, model->graph);
    ASSERT_EQ(inputs.size(), model->graph.inputs().size());
    Outputs first = absl::UnknownError("");
    for (const Form& form : forms_) {
      SCOPED_TRACE(form.name);
      Outputs outputs = RunForms(model->graph, inputs, form.options, form.executor);
      if (!outputs.ok()) {
        ExpectRefusal(outputs.status(), form.name, form.options.is_symbolic);
        continue;
      }
      ExpectOracle(case_, model->graph, *outputs);
      if (!first.ok()) {
        first = *std::move(outputs);
      } else if (case_.outputs.empty()) {
        ExpectSame(*outputs, *first, "the first form's");
      }
    }
  }

  // Symbols for dims are refused where the sizes that a kernel needs are not known.
  void ExpectRefusal(const absl::Status& status, const std::string& form, bool is_symbolic) {
    ExpectClearError(status);
    if (case_.outputs.empty() || (is_symbolic && absl::IsUnimplemented(status))) return;
    const auto has = [&](absl::string_view words) {
      return absl::StrContains(status.message(), words);
    };
    if (std::any_of(std::begin(kRefused), std::end(kRefused), has)) return;
    if (is_symbolic &&
        std::any_of(std::begin(kRefusedWithSymbols), std::end(kRefusedWithSymbols), has))
      return;
    ADD_FAILURE() << form << ": " << status;
  }

  const NodeCase& case_;
  const std::vector<Form>& forms_;
};

int RunAll(const std::vector<NodeCase>& cases, const std::vector<Form>& forms) {
  for (const NodeCase& node_case : cases) {
    testing::RegisterTest("Random", node_case.name.c_str(), nullptr, nullptr, __FILE__, __LINE__,
                          [&] { return new RandomTest(node_case, forms); });
  }
  return RUN_ALL_TESTS();
}

int RunInterpreted(const std::vector<NodeCase>& cases) {
  return RunAll(cases, {{"reference", {}, ByReference()},
                        {"fixed", {}, RunLowered},
                        {"symbols", {.is_symbolic = true}, RunLowered},
                        {"own symbols", {.is_symbolic = true, .own_symbols = true}, RunLowered}});
}

int RunCompiled(const std::vector<NodeCase>& cases, const Target& target) {
  const auto device = CreateCpuDevice({.threads = 1, .target = target});
  if (!device.ok()) return 1;
  GraphCompiler compiler({.target = target});
  const FormExecutor run = [&](Graph graph, std::span<const Tensor> inputs, const Symbols&,
                               bool) -> Outputs {
    ASSIGN_OR_RETURN(const std::unique_ptr<LocalRunner> runner,
                     compiler.Compile(std::move(graph), device->get()));
    return runner->Run(inputs);
  };
  return RunAll(
      cases,
      {{"fixed", {.without_folding = false}, run},
       {"own symbols", {.is_symbolic = true, .own_symbols = true, .without_folding = false}, run}});
}

}  // namespace
}  // namespace stampmill

// random_test CASES interpreted|TARGET
int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  if (argc != 3) return 2;
  const auto cases = stampmill::ReadNodeCases(argv[1]);
  if (!cases.ok()) {
    std::fprintf(stderr, "%s\n", cases.status().ToString().c_str());
    return 1;
  }
  if (std::string(argv[2]) == "interpreted") return stampmill::RunInterpreted(*cases);
  const auto target = stampmill::Target::Parse(argv[2]);
  if (!target.ok()) return 2;
  return stampmill::RunCompiled(*cases, *target);
}
