#include "kernels/testing/op_test.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <random>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/check.h"
#include "base/status_macros.h"
#include "gtest/gtest.h"
#include "kernels/op.h"
#include "kernels/testing/stage_recorder.h"

namespace stampmill {
namespace {

bool IsListed(const std::vector<size_t>& list, size_t i) {
  return std::find(list.begin(), list.end(), i) != list.end();
}

std::string Describe(const OpCase& test, CaseDims dims) {
  std::string text = test.op_type;
  for (const Tensor& input : test.inputs) {
    absl::StrAppend(&text, input.valid() ? absl::StrCat(" ", Name(input.dtype()), "[",
                                                        absl::StrJoin(input.shape(), ","), "]")
                                         : std::string(" -"));
  }
  constexpr const char* kNames[] = {"fixed dims", "a symbol for every extent",
                                    "a symbol for every dim"};
  return absl::StrCat(text, ", ", kNames[static_cast<int>(dims)]);
}

// Relative and absolute limits where a test gives none: two roundings of the type, and for f32 the
// error of its functions.
CaseTolerance Limits(CaseTolerance given, DType dtype) {
  double limit = 0;
  if (dtype == DType::kF16) limit = 2e-3;
  if (dtype == DType::kBF16) limit = 1.6e-2;
  if (dtype == DType::kF32) limit = 1e-5;
  if (dtype == DType::kF64) limit = 1e-11;
  return {.relative = given.relative < 0 ? limit : given.relative,
          .absolute = given.absolute < 0 ? limit : given.absolute};
}

// Through bf16 and back.
Tensor RoundedToBf16(const Tensor& tensor) {
  Tensor rounded = *Tensor::Allocate(tensor.dtype(), tensor.shape());
  for (int64_t i = 0; i < tensor.element_count(); ++i) {
    const auto value = static_cast<float>(tensor.ValueAsDouble(i));
    rounded.SetFromDouble(i, BFloat16ToFloat(FloatToBFloat16(value)));
  }
  return rounded;
}

StageRecorder RecorderOf(const OpCase& test, Graph& graph, NodeId id) {
  StageRecorder recorder(graph, id);
  if (test.bf16_products) recorder.AskForBf16Products();
  if (test.exact_rows) recorder.AskForExactRows();
  if (test.has_byte_products) recorder.AnnounceByteProducts();
  return recorder;
}

absl::Status RunCase(const OpCase& test, CaseDims dims) {
  ASSIGN_OR_RETURN(CaseGraph built, BuildCase(test, dims));
  Graph& graph = built.graph;
  if (graph.Order().empty()) return absl::OkStatus();  // folded: nothing to lower
  const NodeId id = graph.Order()[0];
  ASSIGN_OR_RETURN(const OpDefinition* op, RequireOp(graph.node(id)));
  std::vector<Tensor> inputs = test.inputs;
  for (const size_t i : test.rounded) inputs[i] = RoundedToBf16(inputs[i]);
  ASSIGN_OR_RETURN(const std::vector<Tensor> want, op->reference({graph.node(id), inputs}));

  const auto symbol = [&](absl::string_view name) -> std::optional<int64_t> {
    const auto found = built.symbols.find(std::string(name));
    return found == built.symbols.end() ? std::nullopt : std::optional<int64_t>(found->second);
  };
  for (const DimCheck& check : graph.checks()) {
    const absl::StatusOr<int64_t> holds = check.nonzero.Evaluate(symbol);
    if (absl::IsNotFound(holds.status())) continue;  // on what the node computes
    RETURN_IF_ERROR(holds.status());
    if (*holds == 0) return absl::InvalidArgumentError(check.message);
  }
  StageRecorder recorder = RecorderOf(test, graph, id);
  RETURN_IF_ERROR(LowerNode(*op, recorder));
  std::vector<Tensor> values(graph.value_count());
  for (size_t i = 0; i < test.inputs.size(); ++i) {
    if (built.inputs[i] == kNoValue || graph.value(built.inputs[i]).constant.has_value()) continue;
    values[static_cast<size_t>(built.inputs[i])] = test.inputs[i];
  }
  RETURN_IF_ERROR(recorder.Run(values, symbol));
  for (size_t i = 0; i < graph.node(id).outputs.size(); ++i) {
    const ValueId output = graph.node(id).outputs[i];
    if (output == kNoValue) continue;
    const Tensor& got = values[static_cast<size_t>(output)];
    if (!got.valid()) return absl::InternalError(absl::StrCat("output ", i, " is not written"));
    const std::string difference = Difference(got, want[i], test.tolerance);
    if (!difference.empty()) {
      return absl::InternalError(absl::StrCat("output ", i, " ", difference));
    }
  }
  return absl::OkStatus();
}

}  // namespace

std::vector<Contraction> LoweredContractions(const OpCase& test) {
  absl::StatusOr<CaseGraph> built = BuildCase(test, CaseDims::kFixed);
  CHECK_OK(built);
  const NodeId id = built->graph.Order()[0];
  StageRecorder recorder = RecorderOf(test, built->graph, id);
  CHECK_OK(LowerNode(**RequireOp(built->graph.node(id)), recorder));
  std::vector<Contraction> contractions;
  for (const StageRecorder::Stage& stage : recorder.stages()) {
    const auto* contraction = std::get_if<Contraction>(&stage.body);
    if (contraction != nullptr) contractions.push_back(*contraction);
  }
  return contractions;
}

absl::StatusOr<CaseGraph> BuildCase(const OpCase& test, CaseDims dims) {
  CaseGraph built;
  std::vector<ValueId> inputs;
  for (size_t i = 0; i < test.inputs.size(); ++i) {
    const Tensor& tensor = test.inputs[i];
    if (!tensor.valid()) {
      built.inputs.push_back(kNoValue);
      continue;
    }
    const std::string name = absl::StrCat("x", i);
    if (IsListed(test.constants, i)) {
      built.inputs.push_back(built.graph.AddConstant(name, tensor));
      continue;
    }
    Shape shape;
    for (size_t d = 0; d < tensor.shape().size(); ++d) {
      const int64_t extent = tensor.shape()[d];
      std::string symbol;
      if (dims == CaseDims::kSharedSymbols && extent != 1) symbol = absl::StrCat("E", extent);
      if (dims == CaseDims::kOwnSymbols) symbol = absl::StrCat("D", i, "_", d);
      if (symbol.empty()) {
        shape.emplace_back(extent);
      } else {
        shape.push_back(DimExpr::Symbol(symbol));
        built.symbols[symbol] = extent;
      }
    }
    built.inputs.push_back(built.graph.AddInput(name, tensor.dtype(), std::move(shape)));
  }
  Node node;
  node.op_type = test.op_type;
  node.domain = test.domain;
  node.name = "test";
  node.inputs = built.inputs;
  node.attributes = test.attributes;
  const NodeId id = built.graph.AddNode(std::move(node), test.output_count);
  built.graph.SetOutputs(built.graph.node(id).outputs);
  InferOptions options;
  options.fold_constants = false;
  RETURN_IF_ERROR(InferShapes(built.graph, options));
  return built;
}

void ExpectLoweringMatchesReference(const OpCase& test) {
  const std::pair<bool, CaseDims> modes[] = {{test.fixed_dims, CaseDims::kFixed},
                                             {test.shared_symbols, CaseDims::kSharedSymbols},
                                             {test.own_symbols, CaseDims::kOwnSymbols}};
  for (const auto& [wanted, dims] : modes) {
    if (!wanted) continue;
    const absl::Status status = RunCase(test, dims);
    EXPECT_TRUE(status.ok()) << Describe(test, dims) << ": " << status;
  }
}

absl::StatusOr<std::vector<Tensor>> RunReference(const OpCase& test) {
  Node node;
  node.op_type = test.op_type;
  node.domain = test.domain;
  node.name = "test";
  node.attributes = test.attributes;
  for (size_t i = 0; i < test.inputs.size(); ++i) node.inputs.push_back(static_cast<ValueId>(i));
  for (int i = 0; i < test.output_count; ++i) node.outputs.push_back(i);
  ASSIGN_OR_RETURN(const OpDefinition* op, RequireOp(node));
  return op->reference({node, test.inputs});
}

void ExpectReference(const OpCase& test, const Tensor& want) {
  const absl::StatusOr<std::vector<Tensor>> got = RunReference(test);
  ASSERT_TRUE(got.ok()) << got.status();
  EXPECT_EQ(Difference((*got)[0], want, test.tolerance), "") << test.op_type;
}

Tensor Random(DType dtype, std::vector<int64_t> shape, uint64_t seed, double range) {
  absl::StatusOr<Tensor> tensor = Tensor::Allocate(dtype, std::move(shape));
  CHECK_OK(tensor);
  std::mt19937_64 generator(seed);
  std::uniform_real_distribution<double> uniform(-range, range);
  for (int64_t i = 0; i < tensor->element_count(); ++i) {
    const double value = uniform(generator);
    if (IsFloat(dtype)) {
      tensor->SetFromDouble(i, value);
    } else if (dtype == DType::kBool) {
      tensor->SetFromInt64(i, value < 0 ? 0 : 1);
    } else {
      const double rounded = std::round(value);
      tensor->SetFromInt64(
          i, static_cast<int64_t>(IsUnsignedInteger(dtype) ? std::fabs(rounded) : rounded));
    }
  }
  return *std::move(tensor);
}

Tensor Values(DType dtype, std::vector<int64_t> shape, const std::vector<double>& values) {
  absl::StatusOr<Tensor> tensor = Tensor::Allocate(dtype, std::move(shape));
  CHECK_OK(tensor);
  CHECK_EQ(tensor->element_count(), values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    tensor->SetFromDouble(static_cast<int64_t>(i), values[i]);
  }
  return *std::move(tensor);
}

Tensor Ints(const std::vector<int64_t>& values) {
  return Tensor::FromInt64({static_cast<int64_t>(values.size())}, values);
}

std::string Difference(const Tensor& got, const Tensor& want, CaseTolerance tolerance) {
  if (got.dtype() != want.dtype()) {
    return absl::StrCat("got type ", Name(got.dtype()), ", want ", Name(want.dtype()));
  }
  if (got.shape() != want.shape()) {
    return absl::StrCat("got shape [", absl::StrJoin(got.shape(), ","), "], want [",
                        absl::StrJoin(want.shape(), ","), "]");
  }
  if (!IsFloat(got.dtype())) {
    const size_t size = SizeBytes(got.dtype());
    for (size_t i = 0; i < got.bytes().size(); i += size) {
      if (std::memcmp(&got.bytes()[i], &want.bytes()[i], size) == 0) continue;
      const int64_t at = static_cast<int64_t>(i / size);
      return absl::StrCat("[", at, "]: got ", got.ValueAsInt64(at), ", want ",
                          want.ValueAsInt64(at));
    }
    return "";
  }
  const CaseTolerance limits = Limits(tolerance, got.dtype());
  for (int64_t i = 0; i < got.element_count(); ++i) {
    const double a = got.ValueAsDouble(i);
    const double b = want.ValueAsDouble(i);
    if (a == b || (std::isnan(a) && std::isnan(b))) continue;
    if (std::fabs(a - b) <= limits.absolute + limits.relative * std::fabs(b)) continue;
    return absl::StrCat("[", i, "]: got ", a, ", want ", b);
  }
  return "";
}

}  // namespace stampmill
