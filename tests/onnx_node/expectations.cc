#include "tests/onnx_node/expectations.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/bytes.h"
#include "gtest/gtest.h"
#include "kernels/testing/op_test.h"

namespace stampmill {
namespace {

// Of the largest finite element, at least 1: sums of such elements are off by so much.
double Magnitude(const Tensor& tensor) {
  double largest = 1;
  if (!IsFloat(tensor.dtype())) return largest;
  for (int64_t i = 0; i < tensor.element_count(); ++i) {
    const double value = std::fabs(tensor.ValueAsDouble(i));
    if (std::isfinite(value)) largest = std::max(largest, value);
  }
  return largest;
}

}  // namespace

absl::StatusOr<ImportedModel> ImportCase(const NodeCase& node_case) {
  auto bytes = std::make_shared<std::string>(node_case.model);
  return ImportOnnxBytes(AsBytes(*bytes), bytes);
}

std::vector<Tensor> InputsOf(const NodeCase& node_case, const Graph& graph) {
  std::vector<Tensor> inputs;
  for (const ValueId id : graph.inputs()) {
    for (const CaseValue& given : node_case.inputs) {
      if (given.name == graph.value(id).name) inputs.push_back(given.tensor);
    }
  }
  return inputs;
}

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
                                     .absolute = (is_narrow ? 1e-2 : 1e-5) * Magnitude(want[i])};
    EXPECT_EQ(Difference(got[i], want[i], tolerance), "") << whose << ", output " << i;
  }
}

void ExpectOracle(const NodeCase& node_case, const Graph& graph,
                  const std::vector<Tensor>& outputs) {
  for (const CaseValue& want : node_case.outputs) {
    const std::vector<std::string>& names = graph.output_names();
    for (size_t i = 0; i < names.size() && i < outputs.size(); ++i) {
      if (names[i] != want.name || !want.tensor.valid()) continue;
      ExpectSame({outputs[i]}, {want.tensor}, "oracle's");
    }
  }
}

}  // namespace stampmill
