#include "tests/onnx_node/node_cases.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/bytes.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "compiler/onnx/importer.h"
#include "gtest/gtest.h"
#include "kernels/op.h"
#include "kernels/testing/op_test.h"

namespace stampmill {
namespace {

constexpr absl::string_view kMagic = "NODETST1";

absl::StatusOr<CaseValue> ReadValue(ByteReader& in) {
  CaseValue value;
  value.name = std::string(in.String());
  value.kind = static_cast<CaseValue::Kind>(in.U8());
  if (value.kind != CaseValue::Kind::kTensor) return value;
  const std::optional<DType> dtype = DTypeFromOnnx(in.I32());
  const uint32_t rank = in.Count(sizeof(int64_t));
  std::vector<int64_t> dims;
  for (uint32_t d = 0; d < rank; ++d) dims.push_back(in.I64());
  const std::span<const std::byte> bytes = in.Bytes(in.U64());
  RETURN_IF_ERROR(in.status());
  if (!dtype.has_value()) return absl::InvalidArgumentError("unknown element type");
  // A copy: aligned, and the file's bytes may go.
  ASSIGN_OR_RETURN(value.tensor, Tensor::Allocate(*dtype, std::move(dims)));
  if (value.tensor.bytes().size() != bytes.size()) {
    return absl::InvalidArgumentError(absl::StrCat("value ", value.name, ": wrong byte count"));
  }
  std::memcpy(value.tensor.mutable_bytes().data(), bytes.data(), bytes.size());
  return value;
}

absl::StatusOr<std::vector<CaseValue>> ReadValues(ByteReader& in) {
  std::vector<CaseValue> values;
  const uint32_t count = in.Count(5);
  for (uint32_t i = 0; i < count; ++i) {
    ASSIGN_OR_RETURN(CaseValue value, ReadValue(in));
    values.push_back(std::move(value));
  }
  return values;
}

absl::StatusOr<ImportedModel> Import(const NodeCase& node_case) {
  auto bytes = std::make_shared<std::string>(node_case.model);
  return ImportOnnxBytes(AsBytes(*bytes), bytes);
}

// Steps of the small floats are above the package's tolerance.
CaseTolerance ToleranceOf(DType dtype) {
  if (dtype == DType::kBF16) return {.relative = 1.6e-2, .absolute = 1e-7};
  if (dtype == DType::kF16) return {.relative = 2e-3, .absolute = 1e-7};
  return {.relative = 1e-3, .absolute = 1e-7};
}

std::string OperatorName(const Node& node) {
  return node.domain.empty() ? node.op_type : absl::StrCat(node.domain, ":", node.op_type);
}

}  // namespace

absl::StatusOr<std::vector<NodeCase>> ReadNodeCases(const std::string& path) {
  ASSIGN_OR_RETURN(const std::string contents, ReadFile(path));
  ByteReader in(AsBytes(contents), path);
  if (AsText(in.Bytes(kMagic.size())) != kMagic) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": no file of node tests"));
  }
  std::vector<NodeCase> cases(in.Count(12));
  for (NodeCase& node_case : cases) {
    node_case.name = std::string(in.String());
    node_case.model = std::string(AsText(in.Bytes(in.U64())));
    ASSIGN_OR_RETURN(node_case.inputs, ReadValues(in));
    ASSIGN_OR_RETURN(node_case.outputs, ReadValues(in));
  }
  in.ExpectEnd();
  RETURN_IF_ERROR(in.status());
  return cases;
}

bool HasOtherValues(const NodeCase& node_case) {
  const auto is_other = [](const CaseValue& value) {
    return value.kind != CaseValue::Kind::kTensor;
  };
  return std::ranges::any_of(node_case.inputs, is_other) ||
         std::ranges::any_of(node_case.outputs, is_other);
}

absl::Status RunNodeCase(const NodeCase& node_case, const Executor& executor) {
  if (HasOtherValues(node_case)) {
    return absl::UnimplementedError("inputs or outputs are no plain tensors");
  }
  ASSIGN_OR_RETURN(ImportedModel model, Import(node_case));
  std::vector<Tensor> inputs;
  for (const ValueId id : model.graph.inputs()) {
    const std::string& name = model.graph.value(id).name;
    const auto given = std::ranges::find(node_case.inputs, name, &CaseValue::name);
    if (given == node_case.inputs.end()) {
      return absl::InternalError(absl::StrCat("the case has no input '", name, "'"));
    }
    inputs.push_back(given->tensor);
  }
  const std::vector<std::string> names = model.graph.output_names();
  ASSIGN_OR_RETURN(const std::vector<Tensor> outputs, executor(std::move(model.graph), inputs));
  for (const CaseValue& want : node_case.outputs) {
    const auto found = std::ranges::find(names, want.name);
    const size_t place = static_cast<size_t>(found - names.begin());
    if (found == names.end() || place >= outputs.size()) {
      return absl::InternalError(absl::StrCat("no output '", want.name, "'"));
    }
    const std::string difference =
        Difference(outputs[place], want.tensor, ToleranceOf(want.tensor.dtype()));
    if (!difference.empty()) {
      return absl::InternalError(absl::StrCat("output '", want.name, "' ", difference));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<NotPassing> NotPassing::Parse(absl::string_view text) {
  NotPassing list;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (line.empty() || line[0] == '#') continue;
    const std::pair<absl::string_view, absl::string_view> parts =
        absl::StrSplit(line, absl::MaxSplits(' ', 1));
    absl::string_view name = parts.first;
    if (parts.second.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("no reason: ", line));
    }
    auto& entries = absl::ConsumePrefix(&name, "op:") ? list.operators_ : list.names_;
    if (!entries.emplace(std::string(name), std::string(parts.second)).second) {
      return absl::InvalidArgumentError(absl::StrCat("listed twice: ", name));
    }
  }
  return list;
}

std::string NotPassing::Reason(const NodeCase& node_case) const {
  if (const auto found = names_.find(node_case.name); found != names_.end()) return found->second;
  const absl::StatusOr<ImportedModel> model = Import(node_case);
  if (!model.ok()) return "";
  for (const NodeId id : model->graph.Order()) {
    const auto found = operators_.find(OperatorName(model->graph.node(id)));
    if (found != operators_.end()) return found->second;
  }
  return "";
}

std::vector<std::string> NotPassing::Names() const {
  std::vector<std::string> names;
  for (const auto& [name, reason] : names_) names.push_back(name);
  return names;
}

std::vector<std::string> NotPassing::Operators() const {
  std::vector<std::string> names;
  for (const auto& [name, reason] : operators_) names.push_back(name);
  return names;
}

namespace {

struct Summary {
  int passed = 0, failed = 0, listed = 0, other_values = 0;
};

// One gtest case. Borrows all from RunNodeTests.
class NodeTest : public testing::Test {
 public:
  NodeTest(const NodeCase& node_case, const NotPassing& list, const Executor& executor,
           Summary& summary)
      : case_(node_case), list_(list), executor_(executor), summary_(summary) {}

  void TestBody() override {
    if (HasOtherValues(case_)) {
      ++summary_.other_values;
      GTEST_SKIP() << "inputs or outputs are no plain tensors";
    }
    const absl::Status status = RunNodeCase(case_, executor_);
    const std::string reason = list_.Reason(case_);
    if (!reason.empty() && !status.ok()) {
      ++summary_.listed;
      GTEST_SKIP() << reason << " (" << status << ")";
    }
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_TRUE(reason.empty()) << "passes, but is listed as not passing: " << reason;
    ++(HasFailure() ? summary_.failed : summary_.passed);
  }

 private:
  const NodeCase& case_;
  const NotPassing& list_;
  const Executor& executor_;
  Summary& summary_;
};

// Lines of the list that name no case or an operator that is known by now.
class ListTest : public testing::Test {
 public:
  ListTest(const std::vector<NodeCase>& cases, const NotPassing& list)
      : cases_(cases), list_(list) {}

  void TestBody() override {
    std::set<std::string> names;
    for (const NodeCase& node_case : cases_) names.insert(node_case.name);
    for (const std::string& name : list_.Names()) {
      EXPECT_TRUE(names.contains(name)) << name << " is listed, but is no node test";
    }
    for (const std::string& name : list_.Operators()) {
      const std::pair<std::string, std::string> parts =
          absl::StrSplit(absl::StrContains(name, ':') ? name : absl::StrCat(":", name), ':');
      EXPECT_EQ(FindOp(parts.first, parts.second), nullptr)
          << "op:" << name << " is listed, but is known";
    }
  }

 private:
  const std::vector<NodeCase>& cases_;
  const NotPassing& list_;
};

absl::StatusOr<NotPassing> ReadLists(std::span<char* const> paths) {
  std::string text;
  for (const char* path : paths) {
    ASSIGN_OR_RETURN(const std::string part, ReadFile(path));
    absl::StrAppend(&text, part, "\n");
  }
  return NotPassing::Parse(text);
}

}  // namespace

int RunNodeTests(const std::string& cases_path, std::span<char* const> lists,
                 const Executor& executor) {
  const absl::StatusOr<std::vector<NodeCase>> cases = ReadNodeCases(cases_path);
  const absl::StatusOr<NotPassing> list = ReadLists(lists);
  for (const absl::Status& status : {cases.status(), list.status()}) {
    if (status.ok()) continue;
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    return 1;
  }
  Summary summary;
  testing::RegisterTest("NodeList", "NamesCasesAndOperatorsThatThereAre", nullptr, nullptr,
                        __FILE__, __LINE__,
                        [&]() -> testing::Test* { return new ListTest(*cases, *list); });
  for (const NodeCase& node_case : *cases) {
    testing::RegisterTest(
        "Node", node_case.name.c_str(), nullptr, nullptr, __FILE__, __LINE__,
        [&]() -> testing::Test* { return new NodeTest(node_case, *list, executor, summary); });
  }
  const int status = RUN_ALL_TESTS();
  std::printf(
      "node tests: %d passed, %d failed, %d listed as not passing, %d not of plain tensors\n",
      summary.passed, summary.failed, summary.listed, summary.other_values);
  return status;
}

}  // namespace stampmill
