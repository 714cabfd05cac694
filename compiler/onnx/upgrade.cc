// The table at the end is the whole of it: one row for each operator and the version before which
// its rule applies, in the order in which rules build on each other.
#include "compiler/onnx/upgrade.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "compiler/onnx/microsoft.h"

namespace stampmill {
namespace {

ValueId AddInts(NodeDraft& draft, absl::string_view name, std::vector<int64_t> shape,
                const std::vector<int64_t>& values) {
  return draft.graph.AddConstant(absl::StrCat(draft.node.name, "/", name),
                                 Tensor::FromInt64(std::move(shape), values));
}

ValueId AddScalar(NodeDraft& draft, absl::string_view name, DType dtype, double value) {
  return draft.graph.AddConstant(absl::StrCat(draft.node.name, "/", name),
                                 Tensor::Scalar(dtype, value));
}

void SetInput(NodeDraft& draft, size_t index, ValueId value) {
  std::vector<ValueId>& inputs = draft.node.inputs;
  if (inputs.size() <= index) inputs.resize(index + 1, kNoValue);
  inputs[index] = value;
}

ValueId InputOrNone(const NodeDraft& draft, size_t index) {
  return index < draft.node.inputs.size() ? draft.node.inputs[index] : kNoValue;
}

absl::Status Unsupported(const NodeDraft& draft, absl::string_view what) {
  return absl::UnimplementedError(
      absl::StrCat(draft.node.Describe(), ": ", what, " is not supported"));
}

// The attribute, if it is there, becomes input `index`.
absl::Status MoveInts(NodeDraft& draft, absl::string_view attribute, size_t index) {
  if (!draft.node.Has(attribute)) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<int64_t> values, draft.node.Ints(attribute, {}));
  draft.node.attributes.erase(attribute);
  const int64_t count = static_cast<int64_t>(values.size());
  SetInput(draft, index, AddInts(draft, attribute, {count}, values));
  return absl::OkStatus();
}

// Element type of a value before inference: most operators pass on that of their first input.
// Those who ask tell float types apart only, so a wrong guess needs an f16 or f64 model, and in it
// a chain of operators longer than this.
constexpr int kGuessStepsMax = 1000;

DType GuessDType(const Graph& graph, ValueId value) {
  for (int step = 0; step < kGuessStepsMax && value != kNoValue; ++step) {
    const Value& v = graph.value(value);
    if (v.dtype != DType::kInvalid) return v.dtype;
    if (v.producer < 0) break;
    const Node& node = graph.node(v.producer);
    if (node.op_type == "Cast") {
      const absl::StatusOr<int64_t> to = node.Int("to", 0);
      if (!to.ok()) break;
      return DTypeFromOnnx(static_cast<int32_t>(*to)).value_or(DType::kF32);
    }
    if (node.op_type == "ConstantOfShape") {
      const Tensor* filler = node.FindTensor("value");
      return filler == nullptr ? DType::kF32 : filler->dtype();
    }
    const size_t typed =
        node.op_type == "Where" || node.op_type == "CastLike" || node.op_type == "DequantizeLinear"
            ? 1
            : 0;
    if (typed >= node.inputs.size()) break;
    value = node.inputs[typed];
  }
  return DType::kF32;
}

absl::Status MoveAxes(NodeDraft& draft) { return MoveInts(draft, "axes", 1); }

absl::Status UpgradeClip(NodeDraft& draft) {
  const DType dtype = GuessDType(draft.graph, InputOrNone(draft, 0));
  const char* const names[] = {"min", "max"};
  for (size_t i = 0; i < 2; ++i) {
    if (!draft.node.Has(names[i])) continue;
    ASSIGN_OR_RETURN(const float value, draft.node.Float(names[i], 0));
    draft.node.attributes.erase(names[i]);
    SetInput(draft, i + 1, AddScalar(draft, names[i], dtype, value));
  }
  return absl::OkStatus();
}

absl::Status UpgradePad(NodeDraft& draft) {
  RETURN_IF_ERROR(MoveInts(draft, "pads", 1));
  ASSIGN_OR_RETURN(const float value, draft.node.Float("value", 0));
  draft.node.attributes.erase("value");
  if (value == 0) return absl::OkStatus();
  const DType dtype = GuessDType(draft.graph, InputOrNone(draft, 0));
  SetInput(draft, 2, AddScalar(draft, "value", dtype, value));
  return absl::OkStatus();
}

absl::Status UpgradeSlice(NodeDraft& draft) {
  RETURN_IF_ERROR(MoveInts(draft, "starts", 1));
  RETURN_IF_ERROR(MoveInts(draft, "ends", 2));
  return MoveInts(draft, "axes", 3);
}

absl::Status UpgradeTopK(NodeDraft& draft) {
  ASSIGN_OR_RETURN(const int64_t k, draft.node.Int("k", 0));
  draft.node.attributes.erase("k");
  SetInput(draft, 1, AddInts(draft, "k", {1}, {k}));
  return absl::OkStatus();
}

absl::Status MoveSplit(NodeDraft& draft) { return MoveInts(draft, "split", 1); }

// Without sizes: as many equal parts as there are outputs.
absl::Status CountSplits(NodeDraft& draft) {
  if (InputOrNone(draft, 1) != kNoValue) return absl::OkStatus();
  draft.node.attributes["num_outputs"] = static_cast<int64_t>(draft.output_names.size());
  return absl::OkStatus();
}

absl::Status UpgradeDropout(NodeDraft& draft) {
  draft.node.attributes.erase("ratio");  // of training only
  return absl::OkStatus();
}

absl::Status UpgradeBatchNormalization(NodeDraft& draft) {
  ASSIGN_OR_RETURN(const int64_t spatial, draft.node.Int("spatial", 1));
  if (spatial == 0) return Unsupported(draft, "spatial = 0");
  draft.node.attributes.erase("spatial");
  // Means and variances, of training only; who uses one all the same finds no such value.
  draft.output_names.resize(std::min<size_t>(draft.output_names.size(), 1));
  return absl::OkStatus();
}

// Old softmax views its input as a matrix: rows from the dims before the axis, columns from the
// rest.
absl::Status UpgradeSoftmax(NodeDraft& draft) {
  ASSIGN_OR_RETURN(const int64_t axis, draft.node.Int("axis", 1));
  const ValueId x = InputOrNone(draft, 0);
  if (x == kNoValue) return absl::OkStatus();  // inference says what is missing
  const std::optional<Shape>& shape = draft.graph.value(x).shape;
  draft.node.attributes["axis"] = int64_t{-1};
  const bool last =
      axis == -1 || (shape.has_value() && axis == static_cast<int64_t>(shape->size()) - 1);
  if (last) return absl::OkStatus();
  const ValueId matrix = draft.graph.Op("Flatten", "", {x}, {{"axis", axis}});
  draft.node.inputs[0] = matrix;
  const NodeId softmax = draft.graph.AddNode(draft.node, 1);
  const ValueId dims = draft.graph.Op("Shape", "", {x});
  const ValueId y = draft.graph.node(softmax).outputs[0];
  // A dim of 0 is one, and not that of the matrix.
  draft.results = {draft.graph.Op("Reshape", "", {y, dims}, {{"allowzero", int64_t{1}}})};
  return absl::OkStatus();
}

absl::Status MoveUpsampleScales(NodeDraft& draft) {
  ASSIGN_OR_RETURN(const std::vector<float> scales, draft.node.Floats("scales"));
  draft.node.attributes.erase("scales");
  ASSIGN_OR_RETURN(Tensor tensor,
                   Tensor::Allocate(DType::kF32, {static_cast<int64_t>(scales.size())}));
  std::copy(scales.begin(), scales.end(), tensor.mutable_values<float>().begin());
  SetInput(draft, 1,
           draft.graph.AddConstant(absl::StrCat(draft.node.name, "/scales"), std::move(tensor)));
  return absl::OkStatus();
}

absl::Status UpsampleToResize(NodeDraft& draft) {
  draft.node.op_type = "Resize";
  ASSIGN_OR_RETURN(const std::string mode, draft.node.String("mode", "nearest"));
  if (mode == "bilinear") draft.node.attributes["mode"] = std::string("linear");
  return absl::OkStatus();
}

// Upsample's way, for which Resize had no names yet.
absl::Status UpgradeResize(NodeDraft& draft) {
  const ValueId scales = InputOrNone(draft, 1);
  SetInput(draft, 1, kNoValue);
  SetInput(draft, 2, scales);
  draft.node.attributes["coordinate_transformation_mode"] = std::string("asymmetric");
  draft.node.attributes["nearest_mode"] = std::string("floor");
  return absl::OkStatus();
}

// roi and scales had to be given in places where they say nothing: as empty tensors.
absl::Status DropEmptyResizeInputs(NodeDraft& draft) {
  for (size_t i = 1; i < draft.node.inputs.size(); ++i) {
    if (draft.node.inputs[i] == kNoValue) continue;
    const Value& value = draft.graph.value(draft.node.inputs[i]);
    if (value.constant.has_value() && value.constant->element_count() == 0) {
      draft.node.inputs[i] = kNoValue;
    }
  }
  return absl::OkStatus();
}

absl::Status UpgradeScatter(NodeDraft& draft) {
  draft.node.op_type = "ScatterElements";
  return absl::OkStatus();
}

absl::Status RefuseScan(NodeDraft& draft) { return Unsupported(draft, "Scan of opset 8"); }

absl::Status UpgradeRoiAlign(NodeDraft& draft) {
  draft.node.attributes["coordinate_transformation_mode"] = std::string("output_half_pixel");
  return absl::OkStatus();
}

absl::Status UpgradeDft(NodeDraft& draft) {
  ASSIGN_OR_RETURN(const int64_t axis, draft.node.Int("axis", 1));
  draft.node.attributes.erase("axis");
  SetInput(draft, 2, AddInts(draft, "axis", {}, {axis}));
  return absl::OkStatus();
}

absl::Status UpgradeGridSample(NodeDraft& draft) {
  ASSIGN_OR_RETURN(const std::string mode, draft.node.String("mode", "bilinear"));
  draft.node.attributes["mode"] = std::string(mode == "bilinear"  ? "linear"
                                              : mode == "bicubic" ? "cubic"
                                                                  : mode);
  return absl::OkStatus();
}

// Scale and bias were one number a group and are one a channel: each is repeated over its group.
absl::Status UpgradeGroupNormalization(NodeDraft& draft) {
  ASSIGN_OR_RETURN(const int64_t groups, draft.node.Int("num_groups", 0));
  if (groups <= 0 || draft.node.inputs.size() < 3) return absl::OkStatus();  // inference refuses it
  Graph& graph = draft.graph;
  const ValueId x = draft.node.inputs[0];
  if (x == kNoValue) return absl::OkStatus();
  const ValueId channels = graph.Op("Shape", "", {x}, {{"start", int64_t{1}}, {"end", int64_t{2}}});
  const ValueId width =
      graph.Op("Div", "", {channels, AddInts(draft, "num_groups", {1}, {groups})});
  const ValueId one = AddInts(draft, "one", {1}, {1});
  const ValueId repeated = graph.Op("Concat", "", {one, width}, {{"axis", int64_t{0}}});
  const ValueId column = AddInts(draft, "column", {2}, {groups, 1});
  const ValueId flat = AddInts(draft, "flat", {1}, {-1});
  for (size_t i = 1; i <= 2; ++i) {
    const ValueId input = draft.node.inputs[i];
    if (input == kNoValue) continue;
    const ValueId tall = graph.Op("Reshape", "", {input, column});
    const ValueId wide = graph.Op("Expand", "", {tall, repeated});
    draft.node.inputs[i] = graph.Op("Reshape", "", {wide, flat});
  }
  return absl::OkStatus();
}

struct Rule {
  absl::string_view op_type;
  int64_t before;  // applies to opsets below this
  absl::Status (*apply)(NodeDraft& draft);
};

constexpr int64_t kAlways = kOnnxOpsetMax + 1;

constexpr Rule kRules[] = {
    {"BatchNormalization", 14, UpgradeBatchNormalization},
    {"Clip", 11, UpgradeClip},
    {"DFT", 20, UpgradeDft},
    {"Dropout", 12, UpgradeDropout},
    {"GridSample", 20, UpgradeGridSample},
    {"GroupNormalization", 21, UpgradeGroupNormalization},
    {"Hardmax", 13, UpgradeSoftmax},
    {"LogSoftmax", 13, UpgradeSoftmax},
    {"Pad", 11, UpgradePad},
    {"ReduceL1", 18, MoveAxes},
    {"ReduceL2", 18, MoveAxes},
    {"ReduceLogSum", 18, MoveAxes},
    {"ReduceLogSumExp", 18, MoveAxes},
    {"ReduceMax", 18, MoveAxes},
    {"ReduceMean", 18, MoveAxes},
    {"ReduceMin", 18, MoveAxes},
    {"ReduceProd", 18, MoveAxes},
    {"ReduceSum", 13, MoveAxes},
    {"ReduceSumSquare", 18, MoveAxes},
    {"RoiAlign", 16, UpgradeRoiAlign},
    {"Scan", 9, RefuseScan},
    {"Scatter", 11, UpgradeScatter},
    {"Slice", 10, UpgradeSlice},
    {"Softmax", 13, UpgradeSoftmax},
    {"Split", 13, MoveSplit},
    {"Split", 18, CountSplits},
    {"Squeeze", 13, MoveAxes},
    {"TopK", 10, UpgradeTopK},
    {"Unsqueeze", 13, MoveAxes},
    {"Upsample", 9, MoveUpsampleScales},
    {"Upsample", kAlways, UpsampleToResize},
    {"Resize", 11, UpgradeResize},
    {"Resize", kAlways, DropEmptyResizeInputs},
};

}  // namespace

absl::Status UpgradeNode(NodeDraft& draft) {
  if (draft.node.domain == "com.microsoft") return RewriteMicrosoftNode(draft);
  if (!draft.node.domain.empty()) return absl::OkStatus();
  for (const Rule& rule : kRules) {
    if (rule.op_type != draft.node.op_type || draft.node.opset >= rule.before) continue;
    RETURN_IF_ERROR(rule.apply(draft));
    if (draft.results.has_value()) break;
  }
  return absl::OkStatus();
}

}  // namespace stampmill
