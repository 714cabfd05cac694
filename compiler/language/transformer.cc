#include "compiler/language/transformer.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status_macros.h"
#include "kernels/paged.h"
#include "kernels/sample.h"

namespace stampmill {
namespace {

// Of the default domain: those of the newest opset.
constexpr int32_t kOpset = 28;

const Shape kTokens = {DimExpr::Symbol("tokens")};

absl::StatusOr<Tensor> RealTensor(DType dtype, std::vector<int64_t> shape,
                                  std::span<const double> values) {
  ASSIGN_OR_RETURN(Tensor tensor, Tensor::Allocate(dtype, std::move(shape)));
  for (size_t i = 0; i < values.size(); ++i) {
    tensor.SetFromDouble(static_cast<int64_t>(i), values[i]);
  }
  return tensor;
}

}  // namespace

TransformerBuilder::TransformerBuilder(const LanguageModelSource& source, const ModelTask& task)
    : source_(source), task_(task) {
  tokens_ = graph_.AddInput("tokens", DType::kI32, kTokens);
  positions_ = graph_.AddInput("positions", DType::kI32, kTokens);
  sequences_ = graph_.AddInput("sequences", DType::kI32, kTokens);
  tables_ = graph_.AddInput("tables", DType::kI32,
                            {DimExpr::Symbol("sequences"), DimExpr::Symbol("blocks")});
  outputs_ = graph_.AddInput("outputs", DType::kI32, {DimExpr::Symbol("outputs")});
  lasts_ = task.sees_all ? graph_.AddInput("lasts", DType::kI32, kTokens) : positions_;
  if (!task.embeds) AddSamplingInputs();
  graph_.name = source.name;
}

void TransformerBuilder::AddSamplingInputs() {
  const DimExpr outputs = DimExpr::Symbol("outputs"), biases = DimExpr::Symbol("biases");
  const std::pair<absl::string_view, std::pair<DType, Shape>> sampling[] = {
      {"reals", {DType::kF32, {outputs, kSampleReals}}},
      {"integers", {DType::kI32, {outputs, kSampleIntegers}}},
      {"seeds", {DType::kI64, {outputs, 2}}},
      {"history_ends", {DType::kI32, {outputs}}},
      {"history", {DType::kI32, {DimExpr::Symbol("history"), 3}}},
      {"bias_ends", {DType::kI32, {outputs}}},
      {"bias_tokens", {DType::kI32, {biases}}},
      {"bias_values", {DType::kF32, {biases}}},
      {"masks", {DType::kI32, {DimExpr::Symbol("masks"), CeilDiv(source_.vocabulary, 32)}}},
      {"ranks", {DType::kI32, {DimExpr::Symbol("ranks")}}},
  };
  for (const auto& [name, type] : sampling) {
    sampling_.push_back(graph_.AddInput(name, type.first, type.second));
  }
}

void TransformerBuilder::Fail(absl::Status status) {
  if (status_.ok()) status_ = std::move(status);
}

// --- Facts ---

const SourceFact* TransformerBuilder::FindFact(absl::string_view fact) {
  const auto found = source_.facts.find(fact);
  return found == source_.facts.end() ? nullptr : &found->second;
}

std::optional<double> TransformerBuilder::Number(absl::string_view fact) {
  const SourceFact* found = FindFact(fact);
  if (found == nullptr) return std::nullopt;
  if (const auto* integer = std::get_if<int64_t>(found)) return static_cast<double>(*integer);
  if (const auto* real = std::get_if<double>(found)) return *real;
  if (const auto* list = std::get_if<std::vector<double>>(found)) {
    const auto place = static_cast<size_t>(std::max<int64_t>(layer_, 0));
    if (place < list->size()) return (*list)[place];
  }
  Fail(absl::InvalidArgumentError(absl::StrCat("fact ", fact, ": not a number")));
  return std::nullopt;
}

double TransformerBuilder::Float(absl::string_view fact) {
  const std::optional<double> number = Number(fact);
  if (!number.has_value())
    Fail(absl::InvalidArgumentError(absl::StrCat("fact ", fact, ": missing")));
  return number.value_or(1);
}

double TransformerBuilder::Float(absl::string_view fact, double otherwise) {
  return Number(fact).value_or(otherwise);
}

int64_t TransformerBuilder::Int(absl::string_view fact) {
  const double number = Float(fact);
  if (!(number >= 0 && number <= 1e9) || number != std::floor(number)) {
    Fail(absl::InvalidArgumentError(
        absl::StrCat("fact ", fact, ": got ", number, ", want a whole number up to 1e9")));
    return 1;
  }
  return static_cast<int64_t>(number);
}

int64_t TransformerBuilder::Int(absl::string_view fact, int64_t otherwise) {
  return FindFact(fact) == nullptr ? otherwise : Int(fact);
}

bool TransformerBuilder::Flag(absl::string_view fact, bool otherwise) {
  const SourceFact* found = FindFact(fact);
  if (found == nullptr) return otherwise;
  if (const auto* flag = std::get_if<bool>(found)) return *flag;
  Fail(absl::InvalidArgumentError(absl::StrCat("fact ", fact, ": not a bool")));
  return otherwise;
}

std::string TransformerBuilder::Text(absl::string_view fact, absl::string_view otherwise) {
  const SourceFact* found = FindFact(fact);
  if (found == nullptr) return std::string(otherwise);
  if (const auto* text = std::get_if<std::string>(found)) return *text;
  Fail(absl::InvalidArgumentError(absl::StrCat("fact ", fact, ": not a text")));
  return std::string(otherwise);
}

// --- Weights ---

std::string TransformerBuilder::NameOf(absl::string_view name, absl::string_view part) const {
  if (layer_ < 0) return absl::StrCat(name, ".", part);
  return absl::StrCat("blk.", layer_, ".", name, ".", part);
}

bool TransformerBuilder::Has(absl::string_view weight) const {
  return source_.weights.contains(weight);
}

bool TransformerBuilder::HasHere(absl::string_view name) const {
  return Has(NameOf(name, "weight"));
}

ValueId TransformerBuilder::Weight(const std::string& name) {
  const auto known = weights_.find(name);
  if (known != weights_.end()) return known->second;
  const auto found = source_.weights.find(name);
  if (found == source_.weights.end()) {
    Fail(absl::InvalidArgumentError(absl::StrCat("weight ", name, ": missing")));
    return kNoValue;
  }
  used_.insert(name);
  SourceWeight weight = found->second;
  if (const auto pairs = by_halves_.find(name); pairs != by_halves_.end()) {
    if (const absl::Status status = ReorderRows(pairs->second, weight); !status.ok()) {
      Fail(status);
      return kNoValue;
    }
  }
  ValueId value = kNoValue;
  if (const auto* format = std::get_if<BlockFormat>(&weight.type)) {
    const BlockFacts& facts = FactsOf(*format);
    std::vector<int64_t> shape = weight.shape;
    shape.back() = shape.back() / facts.elements * facts.bytes;
    absl::StatusOr<Tensor> blocks =
        Tensor::View(DType::kU8, std::move(shape), weight.bytes, weight.owner);
    if (!blocks.ok()) {
      Fail(blocks.status());
      return kNoValue;
    }
    value = graph_.Op("DequantizeBlocks", "stampmill", {Constant(*std::move(blocks), name)},
                      {{"format", std::string(facts.name)}});
  } else {
    const DType dtype = std::get<DType>(weight.type);
    absl::StatusOr<Tensor> tensor = Tensor::View(dtype, weight.shape, weight.bytes, weight.owner);
    if (!tensor.ok()) {
      Fail(tensor.status());
      return kNoValue;
    }
    value = Constant(*std::move(tensor), name);
    if (dtype != DType::kF32) {
      value = Op("Cast", {value}, {{"to", int64_t{OnnxDataType(DType::kF32)}}});
    }
  }
  weights_.emplace(name, value);
  return value;
}

absl::Status TransformerBuilder::ReorderRows(const HeadPairs& pairs, SourceWeight& weight) {
  const int64_t rows = weight.shape.empty() ? 0 : weight.shape[0];
  const int64_t size = rows / std::max<int64_t>(pairs.heads, 1);
  const int64_t dims = pairs.dims;
  if (rows == 0 || size * pairs.heads != rows || dims < 0 || dims > size || dims % 2 != 0) {
    return absl::InvalidArgumentError(absl::StrCat("rope.dimension_count: got ", dims, " of ", rows,
                                                   " rows of ", pairs.heads, " heads"));
  }
  const size_t row_bytes = weight.bytes.size() / static_cast<size_t>(rows);
  auto ordered = std::make_shared<std::vector<std::byte>>(weight.bytes.size());
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t at = row % size;
    const int64_t from = at < dims ? at % (dims / 2) * 2 + at / (dims / 2) : at;
    std::memcpy(ordered->data() + static_cast<size_t>(row) * row_bytes,
                weight.bytes.data() + static_cast<size_t>(row - at + from) * row_bytes, row_bytes);
  }
  weight.bytes = *ordered;
  weight.owner = std::move(ordered);
  return absl::OkStatus();
}

std::vector<double> TransformerBuilder::Numbers(absl::string_view weight) {
  const auto found = source_.weights.find(weight);
  if (found == source_.weights.end()) return {};
  used_.insert(std::string(weight));
  const auto* dtype = std::get_if<DType>(&found->second.type);
  if (dtype == nullptr) {
    Fail(absl::InvalidArgumentError(absl::StrCat("weight ", weight, ": is quantised")));
    return {};
  }
  absl::StatusOr<Tensor> tensor =
      Tensor::View(*dtype, found->second.shape, found->second.bytes, found->second.owner);
  if (!tensor.ok()) {
    Fail(tensor.status());
    return {};
  }
  std::vector<double> numbers;
  for (int64_t i = 0; i < tensor->element_count(); ++i) numbers.push_back(tensor->ValueAsDouble(i));
  return numbers;
}

// --- Values ---

ValueId TransformerBuilder::Op(absl::string_view type, std::vector<ValueId> inputs,
                               absl::flat_hash_map<std::string, Attribute> attributes) {
  if (std::find(inputs.begin(), inputs.end(), kNoValue) != inputs.end()) return kNoValue;
  const ValueId value = graph_.Op(type, "", std::move(inputs), std::move(attributes));
  graph_.node(graph_.value(value).producer).opset = kOpset;
  return value;
}

ValueId TransformerBuilder::Constant(Tensor tensor, absl::string_view name) {
  return graph_.AddConstant(name, std::move(tensor));
}

ValueId TransformerBuilder::Ints(std::vector<int64_t> values) {
  const auto count = static_cast<int64_t>(values.size());
  return Constant(Tensor::FromInt64({count}, values), "ints");
}

ValueId TransformerBuilder::Reshape(ValueId x, std::vector<int64_t> shape) {
  return Op("Reshape", {x, Ints(std::move(shape))});
}

ValueId TransformerBuilder::EmbedTokens() {
  return Op("Gather", {Weight("token_embd.weight"), tokens_});
}

ValueId TransformerBuilder::EmbedPositions() {
  return Op("Gather", {Weight("position_embd.weight"), positions_});
}

ValueId TransformerBuilder::EmbedTokenType() {
  return Op("Gather", {Weight("token_types.weight"), Ints({0})});
}

ValueId TransformerBuilder::RmsNorm(ValueId x, absl::string_view name) {
  const double epsilon = Float("attention.layer_norm_rms_epsilon");
  return Op("RMSNormalization", {x, Weight(NameOf(name, "weight"))},
            {{"axis", int64_t{-1}}, {"epsilon", static_cast<float>(epsilon)}});
}

ValueId TransformerBuilder::LayerNorm(ValueId x, absl::string_view name) {
  const double epsilon = Float("attention.layer_norm_epsilon");
  return Op("LayerNormalization", {x, Weight(NameOf(name, "weight")), Weight(NameOf(name, "bias"))},
            {{"axis", int64_t{-1}}, {"epsilon", static_cast<float>(epsilon)}});
}

ValueId TransformerBuilder::RmsNormHeads(ValueId x, absl::string_view name, int64_t heads,
                                         int64_t size) {
  return Reshape(RmsNorm(Reshape(x, {0, heads, size}), name), {0, heads * size});
}

ValueId TransformerBuilder::Linear(ValueId x, absl::string_view name) {
  ValueId rows = Weight(NameOf(name, "weight"));
  // One output: some files have its row alone.
  const auto found = source_.weights.find(NameOf(name, "weight"));
  if (found != source_.weights.end() && found->second.shape.size() == 1) {
    rows = Reshape(rows, {1, -1});
  }
  const ValueId weight = Op("Transpose", {rows}, {{"perm", std::vector<int64_t>{1, 0}}});
  const ValueId product = Op("MatMul", {x, weight});
  const std::string bias = NameOf(name, "bias");
  return Has(bias) ? Op("Add", {product, Weight(bias)}) : product;
}

ValueId TransformerBuilder::LinearByHalves(ValueId x, absl::string_view name, int64_t heads,
                                           int64_t dims) {
  for (const absl::string_view part : {"weight", "bias"}) {
    by_halves_[NameOf(name, part)] = {.heads = heads, .dims = dims};
  }
  return Linear(x, name);
}

ValueId TransformerBuilder::Add(ValueId a, ValueId b) { return Op("Add", {a, b}); }

ValueId TransformerBuilder::Scale(ValueId x, double factor) {
  if (factor == 1) return x;
  return Op("Mul", {x, Constant(Tensor::Scalar(DType::kF32, factor), "scale")});
}

ValueId TransformerBuilder::Softcap(ValueId x, double cap) {
  if (cap == 0) return x;
  return Scale(Op("Tanh", {Scale(x, 1 / cap)}), cap);
}

ValueId TransformerBuilder::Gelu(ValueId x) {
  return Op("Gelu", {x}, {{"approximate", std::string("tanh")}});
}

ValueId TransformerBuilder::GeluErf(ValueId x) { return Op("Gelu", {x}); }

ValueId TransformerBuilder::Gate(ValueId gate, ValueId up, GateActivation activation) {
  return Op("Mul", {activation == GateActivation::kSilu ? Op("Swish", {gate}) : Gelu(gate), up});
}

ValueId TransformerBuilder::Columns(ValueId x, int64_t begin, int64_t end) {
  return Op("Slice", {x, Ints({begin}), Ints({end}), Ints({1})});
}

TransformerBuilder::Angles TransformerBuilder::AnglesOf(const RotaryOptions& rotary) {
  const absl::StatusOr<RopeFrequencies> frequencies =
      FrequenciesOf(rotary.dims, rotary.base, rotary.scaling);
  if (!frequencies.ok()) {
    Fail(frequencies.status());
    return {kNoValue, kNoValue};
  }
  const std::string key =
      absl::StrCat(frequencies->magnitude, " ", absl::StrJoin(frequencies->radians, " "));
  for (const auto& [known, angles] : angles_) {
    if (known == key) return angles;
  }
  // In f64: a position times a frequency has more digits than f32 holds.
  const absl::StatusOr<Tensor> radians =
      RealTensor(DType::kF64, {1, 1, rotary.dims / 2}, frequencies->radians);
  if (!radians.ok()) {
    Fail(radians.status());
    return {kNoValue, kNoValue};
  }
  const ValueId position =
      Op("Cast", {Reshape(positions_, {1, -1, 1})}, {{"to", int64_t{OnnxDataType(DType::kF64)}}});
  const ValueId angle = Op("Mul", {position, Constant(*radians, "radians")});
  const auto finish = [&](absl::string_view function) {
    return Scale(Op("Cast", {Op(function, {angle})}, {{"to", int64_t{OnnxDataType(DType::kF32)}}}),
                 frequencies->magnitude);
  };
  angles_.emplace_back(key, Angles{finish("Cos"), finish("Sin")});
  return angles_.back().second;
}

ValueId TransformerBuilder::Rotate(ValueId x, int64_t heads, const RotaryOptions& rotary) {
  const Angles angles = AnglesOf(rotary);
  const ValueId batched = Op("Unsqueeze", {x, Ints({0})});
  const ValueId turned = Op("RotaryEmbedding", {batched, angles.cos, angles.sin},
                            {{"interleaved", int64_t{rotary.interleaved ? 1 : 0}},
                             {"num_heads", heads},
                             {"rotary_embedding_dim", rotary.dims}});
  return Op("Squeeze", {turned, Ints({0})});
}

ValueId TransformerBuilder::Attend(ValueId q, ValueId k, ValueId v, const AttentionShape& shape) {
  if (q == kNoValue || k == kNoValue || v == kNoValue) return kNoValue;
  if (task_.sees_all && shape.window > 0) {
    Fail(absl::UnimplementedError("attention.sliding_window: windows to both sides"));
    return kNoValue;
  }
  const int64_t padded = (shape.value_size + kKvValueGroup - 1) / kKvValueGroup * kKvValueGroup;
  const DimExpr blocks = DimExpr::Symbol("kv_blocks");
  const auto write = [&](absl::string_view name, ValueId values, bool keys) {
    const Shape cache = keys ? Shape{blocks, shape.kv_heads, shape.key_size, kKvBlockTokens}
                             : Shape{blocks, shape.kv_heads, kKvBlockTokens, padded};
    const ValueId state = graph_.AddInput(absl::StrCat(name, ".", layer_), DType::kF16, cache);
    ++graph_.states;
    return graph_.Op("KvWrite", "stampmill", {state, values, positions_, sequences_, tables_},
                     {{"keys", int64_t{keys ? 1 : 0}}});
  };
  const ValueId keys = write("keys", k, true);
  const ValueId values = write("values", v, false);
  return graph_.Op("PagedAttention", "stampmill", {q, keys, values, lasts_, sequences_, tables_},
                   {{"q_num_heads", shape.heads},
                    {"value_size", shape.value_size},
                    {"scale", static_cast<float>(shape.scale)},
                    {"softcap", static_cast<float>(shape.softcap)},
                    {"window", shape.window}});
}

ValueId TransformerBuilder::ExpertLinear(ValueId x, absl::string_view name, ValueId pairs,
                                         ValueId counts, const ExpertShape& shape) {
  const std::string weight = NameOf(name, "weight");
  const ValueId w = Weight(weight);
  if (x == kNoValue || w == kNoValue) return kNoValue;
  const std::vector<int64_t>& dims = source_.weights.at(weight).shape;
  if (dims.size() != 3 || dims[0] != shape.count) {
    Fail(absl::InvalidArgumentError(absl::StrCat("weight ", weight, ": shape [",
                                                 absl::StrJoin(dims, ", "), "], want ", shape.count,
                                                 " experts of two dims")));
    return kNoValue;
  }
  return graph_.Op("ExpertMatMul", "stampmill", {x, w, pairs, counts}, {{"used", shape.used}});
}

ValueId TransformerBuilder::MixExperts(ValueId x, ValueId gate, const ExpertShape& shape) {
  if (x == kNoValue || gate == kNoValue) return kNoValue;
  const ValueId likely = Op("Softmax", {gate}, {{"axis", int64_t{-1}}});
  const NodeId top = graph_.AddNode(
      {.op_type = "TopK", .name = "experts", .inputs = {likely, Ints({shape.used})}}, 2);
  graph_.node(top).opset = kOpset;
  ValueId weights = graph_.node(top).outputs[0];
  const NodeId group = graph_.AddNode({.op_type = "GroupByExpert",
                                       .domain = "stampmill",
                                       .name = "by_expert",
                                       .inputs = {graph_.node(top).outputs[1]},
                                       .outputs = {},
                                       .attributes = {{"experts", shape.count}}},
                                      2);
  const ValueId pairs = graph_.node(group).outputs[0], counts = graph_.node(group).outputs[1];
  if (shape.sums_to_one) {
    weights = Op("Div", {weights, Op("ReduceSum", {weights, Ints({1})})});
  }
  const ValueId gated =
      Gate(ExpertLinear(x, "ffn_gate_exps", pairs, counts, shape),
           ExpertLinear(x, "ffn_up_exps", pairs, counts, shape), GateActivation::kSilu);
  const ValueId each = ExpertLinear(gated, "ffn_down_exps", pairs, counts, shape);
  const ValueId weighed = Op("Mul", {each, Op("Unsqueeze", {weights, Ints({2})})});
  return Scale(Op("ReduceSum", {weighed, Ints({1})}, {{"keepdims", int64_t{0}}}), shape.scale);
}

ValueId TransformerBuilder::GateBySigmoid(ValueId x, ValueId gate) {
  return Op("Mul", {x, Op("Sigmoid", {gate})});
}

ValueId TransformerBuilder::SelectOutputs(ValueId x) { return Op("Gather", {x, outputs_}); }

absl::Status TransformerBuilder::CheckAllUsed() const {
  std::vector<std::string> unused;
  for (const auto& [name, weight] : source_.weights) {
    if (!used_.contains(name)) unused.push_back(name);
  }
  if (unused.empty()) return absl::OkStatus();
  std::sort(unused.begin(), unused.end());
  const size_t count = unused.size();
  unused.resize(std::min<size_t>(count, 4));
  return absl::InvalidArgumentError(absl::StrCat(
      "architecture ", source_.architecture, " has no use for ", count, " of the model's weights: ",
      absl::StrJoin(unused, ", "), count > unused.size() ? ", ..." : ""));
}

absl::StatusOr<Graph> TransformerBuilder::Finish(ValueId result) && {
  RETURN_IF_ERROR(status_);
  RETURN_IF_ERROR(CheckAllUsed());
  if (task_.embeds) {
    graph_.SetOutputs({result});
    graph_.set_output_names({std::string(task_.pooling)});
  } else {
    std::vector<ValueId> inputs = {result};
    inputs.insert(inputs.end(), sampling_.begin(), sampling_.end());
    std::vector<std::string> names = {"next_tokens", "logprobs", "token_ranks", "top_tokens",
                                      "top_logprobs"};
    const NodeId sample = graph_.AddNode(
        {.op_type = "Sample", .domain = "stampmill", .name = "sample", .inputs = std::move(inputs)},
        static_cast<int>(names.size()));
    graph_.SetOutputs(graph_.node(sample).outputs);
    graph_.set_output_names(std::move(names));
  }
  RETURN_IF_ERROR(graph_.Verify());
  return std::move(graph_);
}

}  // namespace stampmill
