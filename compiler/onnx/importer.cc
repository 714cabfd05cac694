// Scopes are what names mean something in: the main graph, a body, a function call. Within each,
// nodes are put in order, then imported one by one, so that every input is known when its node is.
#include "compiler/onnx/importer.h"

#include <algorithm>
#include <queue>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/file.h"
#include "base/status_macros.h"
#include "compiler/onnx/reader.h"
#include "compiler/onnx/tensor_data.h"
#include "compiler/onnx/upgrade.h"

namespace stampmill {
namespace {

// Nodes once calls are replaced: functions that call functions can ask for any number.
constexpr int64_t kNodesMax = 1 << 18;
constexpr int kCallDepthMax = 32;
constexpr size_t kRankMax = 32;
constexpr size_t kSymbolSizeMax = 256;

using Opsets = absl::flat_hash_map<absl::string_view, int64_t>;

absl::string_view CanonicalDomain(absl::string_view domain) {
  return domain == "ai.onnx" ? "" : domain;
}

template <typename... Args>
absl::Status Invalid(const Args&... args) {
  return absl::InvalidArgumentError(absl::StrCat(args...));
}

absl::StatusOr<Opsets> ReadOpsets(std::span<const OnnxOpset> imports) {
  Opsets opsets;
  for (const OnnxOpset& import : imports) {
    const absl::string_view domain = CanonicalDomain(import.domain);
    if (import.version < 1 || import.version > INT32_MAX) {
      return Invalid("opset ", import.version, " of domain '", domain, "'");
    }
    if (domain.empty() && (import.version < kOnnxOpsetMin || import.version > kOnnxOpsetMax)) {
      return absl::UnimplementedError(absl::StrCat("opset ", import.version, " of ai.onnx: limit ",
                                                   kOnnxOpsetMin, " to ", kOnnxOpsetMax));
    }
    const auto [it, added] = opsets.try_emplace(domain, import.version);
    if (!added && it->second != import.version) {
      return Invalid("domain '", domain, "': opsets ", it->second, " and ", import.version);
    }
  }
  return opsets;
}

// Names that a graph uses but does not make, in order of first use: those of the graph around it.
void CollectFreeNames(const OnnxGraph& graph, std::vector<absl::string_view>* names) {
  absl::flat_hash_set<absl::string_view> known = {""};
  for (const OnnxValueInfo& input : graph.inputs) known.insert(input.name);
  for (const OnnxTensor& tensor : graph.initializers) known.insert(tensor.name);
  for (const OnnxNode& node : graph.nodes) known.insert(node.outputs.begin(), node.outputs.end());
  const auto use = [&](absl::string_view name) {
    if (known.insert(name).second) names->push_back(name);
  };
  for (const OnnxNode& node : graph.nodes) {
    for (const absl::string_view input : node.inputs) use(input);
    for (const OnnxAttribute& attribute : node.attributes) {
      if (attribute.g == nullptr) continue;
      std::vector<absl::string_view> inner;
      CollectFreeNames(*attribute.g, &inner);
      for (const absl::string_view name : inner) use(name);
    }
  }
  for (const OnnxValueInfo& output : graph.outputs) use(output.name);
}

std::vector<absl::string_view> UsedNames(const OnnxNode& node) {
  std::vector<absl::string_view> names = node.inputs;
  for (const OnnxAttribute& attribute : node.attributes) {
    if (attribute.g != nullptr) CollectFreeNames(*attribute.g, &names);
  }
  return names;
}

std::string Describe(const OnnxNode& node, size_t index) {
  return absl::StrCat("node ", index, " '", node.name, "' (", node.op_type, ")");
}

// An order in which every node follows those whose outputs it uses; the file's own where it is one.
absl::StatusOr<std::vector<size_t>> SortNodes(std::span<const OnnxNode> nodes) {
  absl::flat_hash_map<absl::string_view, size_t> producers;
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const absl::string_view output : nodes[i].outputs) {
      if (!output.empty() && !producers.try_emplace(output, i).second) {
        return Invalid(Describe(nodes[i], i), ": output '", output, "' is made a second time");
      }
    }
  }
  std::vector<std::vector<size_t>> users(nodes.size());
  std::vector<size_t> waiting(nodes.size(), 0);
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const absl::string_view name : UsedNames(nodes[i])) {
      const auto producer = producers.find(name);
      if (producer == producers.end()) continue;
      users[producer->second].push_back(i);
      ++waiting[i];
    }
  }
  std::priority_queue<size_t, std::vector<size_t>, std::greater<>> ready;
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (waiting[i] == 0) ready.push(i);
  }
  std::vector<size_t> order;
  while (!ready.empty()) {
    const size_t next = ready.top();
    ready.pop();
    order.push_back(next);
    for (const size_t user : users[next]) {
      if (--waiting[user] == 0) ready.push(user);
    }
  }
  if (order.size() == nodes.size()) return order;
  // Going from a node that waits to one that it waits for never ends: in the end it goes round.
  size_t at = 0;
  while (waiting[at] == 0) ++at;
  for (size_t step = 0; step < nodes.size(); ++step) {
    for (const absl::string_view name : UsedNames(nodes[at])) {
      const auto producer = producers.find(name);
      if (producer != producers.end() && waiting[producer->second] > 0) {
        at = producer->second;
        break;
      }
    }
  }
  return Invalid(Describe(nodes[at], at), ": depends on its own output (a cycle)");
}

struct Scope {
  Graph* graph = nullptr;
  const Opsets* opsets = nullptr;
  absl::flat_hash_map<absl::string_view, ValueId> names;
  // Within a function: what the attributes of the call are.
  const absl::flat_hash_map<absl::string_view, const OnnxAttribute*>* call = nullptr;
  std::string prefix;  // of node names
  int call_depth = 0;
};

class Importer {
 public:
  Importer(std::shared_ptr<const void> owner, std::string folder)
      : owner_(std::move(owner)), files_(std::move(folder)) {}

  absl::StatusOr<ImportedModel> Import(std::span<const std::byte> bytes);

 private:
  using FunctionName =
      std::pair<std::pair<absl::string_view, absl::string_view>, absl::string_view>;

  absl::Status ImportMain(const OnnxModel& model, const Opsets& opsets, Graph& graph);
  absl::Status ImportInputs(const OnnxGraph& graph, Scope& scope);
  absl::StatusOr<Shape> InputShape(const OnnxValueInfo& input);
  absl::Status ImportInitializers(const OnnxGraph& graph, Scope& scope);
  absl::Status ImportNodes(std::span<const OnnxNode> nodes, Scope& scope);
  absl::Status ImportNode(const OnnxNode& node, size_t index, Scope& scope);
  absl::Status ImportOutputs(const OnnxGraph& graph, Scope& scope);
  absl::Status ImportConstant(const OnnxNode& node, const std::string& where, Scope& scope);
  absl::StatusOr<Tensor> ConstantContents(const OnnxNode& node, const std::string& where,
                                          const Scope& scope);
  absl::Status ImportCall(const OnnxNode& node, const OnnxFunction& function,
                          const std::string& where, Scope& scope);
  absl::Status AddNode(const OnnxNode& node, const std::string& where, Scope& scope);
  absl::Status ImportAttributes(const OnnxNode& node, const std::string& where, Scope& scope,
                                Node& result);
  absl::StatusOr<Attribute> ImportAttribute(const OnnxAttribute& attribute);
  absl::StatusOr<std::shared_ptr<const Graph>> ImportBody(const OnnxGraph& graph,
                                                          const Scope& outer,
                                                          std::span<const ValueId> captures);
  absl::StatusOr<std::vector<ValueId>> FindCaptures(const OnnxNode& node, const Scope& scope);

  // The attribute, or that of the call it stands for; null when the call leaves it out.
  static const OnnxAttribute* Resolve(const OnnxAttribute& attribute, const Scope& scope);
  static absl::StatusOr<ValueId> Find(absl::string_view name, const Scope& scope);
  static absl::Status Bind(absl::string_view name, ValueId value, Scope& scope);
  absl::StatusOr<std::vector<ValueId>> FindInputs(const OnnxNode& node, const Scope& scope);

  std::shared_ptr<const void> owner_;
  ExternalFiles files_;
  absl::flat_hash_map<FunctionName, const OnnxFunction*> functions_;
  absl::flat_hash_set<std::string> dim_params_;
  int64_t nodes_ = 0;
};

absl::StatusOr<ValueId> Importer::Find(absl::string_view name, const Scope& scope) {
  const auto it = scope.names.find(name);
  if (it != scope.names.end()) return it->second;
  return Invalid("value '", name, "' is made by no node and is no input or initialiser");
}

absl::Status Importer::Bind(absl::string_view name, ValueId value, Scope& scope) {
  if (name.empty()) return Invalid("a value without a name");
  if (scope.names.try_emplace(name, value).second) return absl::OkStatus();
  return Invalid("value '", name, "' is made a second time");
}

absl::StatusOr<std::vector<ValueId>> Importer::FindInputs(const OnnxNode& node,
                                                          const Scope& scope) {
  std::vector<ValueId> inputs;
  for (const absl::string_view name : node.inputs) {
    inputs.push_back(kNoValue);
    if (name.empty()) continue;
    ASSIGN_OR_RETURN(inputs.back(), Find(name, scope));
  }
  while (!inputs.empty() && inputs.back() == kNoValue) inputs.pop_back();
  return inputs;
}

// "?" and the like are not names: height and width may both be called so.
bool IsDimName(absl::string_view param) {
  static constexpr absl::string_view kNoNames[] = {"?", "*", "-1", "None", "unk", "unknown"};
  return !param.empty() &&
         std::find(std::begin(kNoNames), std::end(kNoNames), param) == std::end(kNoNames);
}

absl::StatusOr<Shape> Importer::InputShape(const OnnxValueInfo& input) {
  if (input.shape->size() > kRankMax) {
    return Invalid("input '", input.name, "': rank ", input.shape->size(), ", limit ", kRankMax);
  }
  Shape shape;
  for (const OnnxDim& dim : *input.shape) {
    const std::string own_name = absl::StrCat(input.name, ".", shape.size());
    if (dim.value.has_value() && *dim.value >= 0) {
      shape.push_back(*dim.value);
    } else if (dim.value.value_or(-1) != -1) {
      return Invalid("input '", input.name, "': dim ", shape.size(), " is ", *dim.value);
    } else if (std::max(dim.param.size(), own_name.size()) > kSymbolSizeMax) {
      return Invalid("input '", own_name.substr(0, 40), "': name of dim ", shape.size(),
                     " is longer than ", kSymbolSizeMax);
    } else if (IsDimName(dim.param)) {
      shape.push_back(DimExpr::Symbol(dim.param));
    } else {
      std::string fresh = own_name;
      while (dim_params_.contains(fresh)) fresh += "'";
      shape.push_back(DimExpr::Symbol(fresh));
    }
  }
  return shape;
}

absl::Status Importer::ImportInitializers(const OnnxGraph& graph, Scope& scope) {
  if (graph.sparse_initializer_count > 0) {
    return absl::UnimplementedError("sparse initialisers are not supported");
  }
  for (const OnnxTensor& initializer : graph.initializers) {
    ASSIGN_OR_RETURN(Tensor tensor, MakeTensor(initializer, owner_, files_));
    const ValueId value = scope.graph->AddConstant(initializer.name, std::move(tensor));
    RETURN_IF_ERROR(Bind(initializer.name, value, scope));
  }
  return absl::OkStatus();
}

absl::Status Importer::ImportInputs(const OnnxGraph& graph, Scope& scope) {
  absl::flat_hash_map<absl::string_view, const OnnxValueInfo*> declared;
  for (const OnnxValueInfo& info : graph.value_infos) declared[info.name] = &info;
  for (const OnnxValueInfo& input : graph.inputs) {
    for (const OnnxDim& dim : input.shape.value_or(std::vector<OnnxDim>())) {
      if (!dim.param.empty()) dim_params_.insert(std::string(dim.param));
    }
  }
  absl::flat_hash_set<absl::string_view> seen;
  for (const OnnxValueInfo& input : graph.inputs) {
    if (!seen.insert(input.name).second) return Invalid("input '", input.name, "' is listed twice");
    if (scope.names.contains(input.name)) continue;  // an initialiser
    OnnxValueInfo info = input;
    const auto other = declared.find(input.name);
    if (!info.shape.has_value() && other != declared.end()) info = *other->second;
    if (info.kind.empty()) return Invalid("input '", input.name, "': no type");
    if (info.kind != "tensor") {
      return absl::UnimplementedError(
          absl::StrCat("input '", input.name, "': a ", info.kind, " is not supported"));
    }
    const absl::StatusOr<DType> dtype = SupportedDType(info.elem_type);
    if (!dtype.ok()) {
      return absl::UnimplementedError(
          absl::StrCat("input '", input.name, "': ", dtype.status().message()));
    }
    if (!info.shape.has_value()) {
      return absl::UnimplementedError(
          absl::StrCat("input '", input.name, "': a tensor of unknown rank is not supported"));
    }
    ASSIGN_OR_RETURN(Shape shape, InputShape(info));
    RETURN_IF_ERROR(
        Bind(input.name, scope.graph->AddInput(input.name, *dtype, std::move(shape)), scope));
  }
  return absl::OkStatus();
}

absl::Status Importer::ImportOutputs(const OnnxGraph& graph, Scope& scope) {
  std::vector<ValueId> outputs;
  std::vector<std::string> names;
  absl::flat_hash_set<absl::string_view> seen;
  for (const OnnxValueInfo& output : graph.outputs) {
    if (!seen.insert(output.name).second) {
      return Invalid("output '", output.name, "' is listed twice");
    }
    if (!output.kind.empty() && output.kind != "tensor") {
      return absl::UnimplementedError(
          absl::StrCat("output '", output.name, "': a ", output.kind, " is not supported"));
    }
    const absl::StatusOr<ValueId> value = Find(output.name, scope);
    if (!value.ok()) return Invalid("output: ", value.status().message());
    outputs.push_back(*value);
    names.push_back(std::string(output.name));
  }
  scope.graph->SetOutputs(std::move(outputs));
  scope.graph->set_output_names(std::move(names));
  return absl::OkStatus();
}

absl::Status Importer::ImportNodes(std::span<const OnnxNode> nodes, Scope& scope) {
  ASSIGN_OR_RETURN(const std::vector<size_t> order, SortNodes(nodes));
  for (const size_t index : order) RETURN_IF_ERROR(ImportNode(nodes[index], index, scope));
  return absl::OkStatus();
}

absl::Status Importer::ImportNode(const OnnxNode& node, size_t index, Scope& scope) {
  if (++nodes_ > kNodesMax) return Invalid("more than ", kNodesMax, " nodes");
  const std::string where = absl::StrCat(scope.prefix, Describe(node, index));
  const absl::string_view domain = CanonicalDomain(node.domain);
  if (node.op_type.empty()) return Invalid(where, ": no operator type");
  const auto function = functions_.find(FunctionName{{domain, node.op_type}, node.overload});
  if (function != functions_.end()) return ImportCall(node, *function->second, where, scope);
  if (domain.empty() && node.op_type == "Constant") return ImportConstant(node, where, scope);
  if (domain.empty() && node.op_type == "Identity") {
    if (node.inputs.size() != 1 || node.outputs.size() != 1 || node.inputs[0].empty()) {
      return Invalid(where, ": ", node.inputs.size(), " inputs and ", node.outputs.size(),
                     " outputs");
    }
    const absl::StatusOr<ValueId> input = Find(node.inputs[0], scope);
    if (!input.ok()) return Invalid(where, ": ", input.status().message());
    return Bind(node.outputs[0], *input, scope);
  }
  return AddNode(node, where, scope);
}

absl::StatusOr<Tensor> Importer::ConstantContents(const OnnxNode& node, const std::string& where,
                                                  const Scope& scope) {
  constexpr std::pair<absl::string_view, OnnxAttribute::Type> kForms[] = {
      {"value", OnnxAttribute::kTensor},
      {"value_int", OnnxAttribute::kInt},
      {"value_ints", OnnxAttribute::kInts},
      {"value_float", OnnxAttribute::kFloat},
      {"value_floats", OnnxAttribute::kFloats}};
  for (const OnnxAttribute& written : node.attributes) {
    const OnnxAttribute* attribute = Resolve(written, scope);
    if (attribute == nullptr) continue;
    if (written.name == "value_string" || written.name == "value_strings" ||
        written.name == "sparse_value") {
      return absl::UnimplementedError(absl::StrCat(where, ": ", written.name, " is not supported"));
    }
    const auto* const form =
        std::ranges::find_if(kForms, [&](const auto& f) { return f.first == written.name; });
    if (form == std::end(kForms)) continue;
    if (attribute->type != form->second) {
      return Invalid(where, ": attribute '", written.name, "': got type ", attribute->type,
                     ", want ", static_cast<int32_t>(form->second));
    }
    switch (form->second) {
      case OnnxAttribute::kInt:
        return Tensor::Scalar(DType::kI64, attribute->i);
      case OnnxAttribute::kFloat:
        return Tensor::Scalar(DType::kF32, attribute->f);
      case OnnxAttribute::kInts:
        return Tensor::FromInt64({static_cast<int64_t>(attribute->ints.size())}, attribute->ints);
      case OnnxAttribute::kFloats: {
        ASSIGN_OR_RETURN(
            Tensor tensor,
            Tensor::Allocate(DType::kF32, {static_cast<int64_t>(attribute->floats.size())}));
        std::copy(attribute->floats.begin(), attribute->floats.end(),
                  tensor.mutable_values<float>().begin());
        return tensor;
      }
      default:
        if (!attribute->t.has_value()) return Invalid(where, ": attribute 'value': no tensor");
        return MakeTensor(*attribute->t, owner_, files_);
    }
  }
  return Invalid(where, ": no value");
}

absl::Status Importer::ImportConstant(const OnnxNode& node, const std::string& where,
                                      Scope& scope) {
  if (node.outputs.size() != 1) return Invalid(where, ": ", node.outputs.size(), " outputs");
  ASSIGN_OR_RETURN(Tensor tensor, ConstantContents(node, where, scope));
  return Bind(node.outputs[0], scope.graph->AddConstant(node.outputs[0], std::move(tensor)), scope);
}

const OnnxAttribute* Importer::Resolve(const OnnxAttribute& attribute, const Scope& scope) {
  if (attribute.ref_name.empty() || scope.call == nullptr) return &attribute;
  const auto it = scope.call->find(attribute.ref_name);
  return it == scope.call->end() ? nullptr : it->second;
}

absl::Status Importer::ImportCall(const OnnxNode& node, const OnnxFunction& function,
                                  const std::string& where, Scope& scope) {
  if (scope.call_depth >= kCallDepthMax) {
    return Invalid(where, ": function calls deeper than ", kCallDepthMax);
  }
  if (node.inputs.size() > function.inputs.size() ||
      node.outputs.size() > function.outputs.size()) {
    return Invalid(where, ": ", node.inputs.size(), " inputs and ", node.outputs.size(),
                   " outputs, its function has ", function.inputs.size(), " and ",
                   function.outputs.size());
  }
  absl::flat_hash_map<absl::string_view, const OnnxAttribute*> call;
  for (const OnnxAttribute& attribute : function.attribute_defaults) {
    call[attribute.name] = &attribute;
  }
  for (const OnnxAttribute& attribute : node.attributes) {
    if (const OnnxAttribute* actual = Resolve(attribute, scope)) call[attribute.name] = actual;
  }
  ASSIGN_OR_RETURN(const Opsets opsets, ReadOpsets(function.opsets));
  Scope inner = {.graph = scope.graph,
                 .opsets = &opsets,
                 .call = &call,
                 .prefix = absl::StrCat(where, ": "),
                 .call_depth = scope.call_depth + 1};
  for (size_t i = 0; i < function.inputs.size(); ++i) {
    ValueId input = kNoValue;
    if (i < node.inputs.size() && !node.inputs[i].empty()) {
      const absl::StatusOr<ValueId> found = Find(node.inputs[i], scope);
      if (!found.ok()) return Invalid(where, ": ", found.status().message());
      input = *found;
    }
    RETURN_IF_ERROR(Bind(function.inputs[i], input, inner));
  }
  RETURN_IF_ERROR(ImportNodes(function.nodes, inner));
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    if (node.outputs[i].empty()) continue;
    const absl::StatusOr<ValueId> output = Find(function.outputs[i], inner);
    if (!output.ok()) return Invalid(where, ": ", output.status().message());
    if (*output == kNoValue) {
      return Invalid(where, ": output '", function.outputs[i], "' is an input that is left out");
    }
    RETURN_IF_ERROR(Bind(node.outputs[i], *output, scope));
  }
  return absl::OkStatus();
}

absl::Status Importer::AddNode(const OnnxNode& node, const std::string& where, Scope& scope) {
  const absl::string_view domain = CanonicalDomain(node.domain);
  const auto opset = scope.opsets->find(domain);
  if (opset == scope.opsets->end() && domain.empty()) {
    return Invalid(where, ": the model names no opset of ai.onnx");
  }
  absl::StatusOr<std::vector<ValueId>> inputs = FindInputs(node, scope);
  if (!inputs.ok()) return Invalid(where, ": ", inputs.status().message());
  NodeDraft draft = {
      .graph = *scope.graph,
      .node = {.op_type = std::string(node.op_type),
               .domain = std::string(domain),
               .name = std::string(node.name.empty() && !node.outputs.empty() ? node.outputs[0]
                                                                              : node.name),
               .opset = opset == scope.opsets->end() ? 1 : static_cast<int32_t>(opset->second),
               .inputs = *std::move(inputs)},
      .output_names = {node.outputs.begin(), node.outputs.end()}};
  RETURN_IF_ERROR(ImportAttributes(node, where, scope, draft.node));
  RETURN_IF_ERROR(UpgradeNode(draft));
  if (!draft.results.has_value()) {
    for (const std::string& name : draft.output_names) {
      draft.node.outputs.push_back(name.empty() ? kNoValue : scope.graph->AddValue({.name = name}));
    }
    draft.results = draft.node.outputs;
    scope.graph->AddNode(std::move(draft.node));
  }
  for (size_t i = 0; i < draft.results->size() && i < draft.output_names.size(); ++i) {
    if (draft.output_names[i].empty()) continue;
    if ((*draft.results)[i] == kNoValue) {
      return absl::UnimplementedError(
          absl::StrCat(where, ": output ", i, " of ", node.op_type, " is not supported"));
    }
    scope.graph->value((*draft.results)[i]).name = draft.output_names[i];
    // The name as the file has it: the draft's copy goes away.
    const absl::Status bound = Bind(node.outputs[i], (*draft.results)[i], scope);
    if (!bound.ok()) return Invalid(where, ": ", bound.message());
  }
  return absl::OkStatus();
}

// The values of the graph around a node's bodies that these use and that are no constants.
absl::StatusOr<std::vector<ValueId>> Importer::FindCaptures(const OnnxNode& node,
                                                            const Scope& scope) {
  std::vector<absl::string_view> names;
  for (const OnnxAttribute& attribute : node.attributes) {
    if (attribute.g != nullptr) CollectFreeNames(*attribute.g, &names);
  }
  std::vector<ValueId> captures;
  absl::flat_hash_set<ValueId> seen;
  for (const absl::string_view name : names) {
    ASSIGN_OR_RETURN(const ValueId value, Find(name, scope));
    if (value == kNoValue) return Invalid("value '", name, "' is an input that is left out");
    if (scope.graph->value(value).constant.has_value()) continue;
    if (seen.insert(value).second) captures.push_back(value);
  }
  return captures;
}

absl::Status Importer::ImportAttributes(const OnnxNode& node, const std::string& where,
                                        Scope& scope, Node& result) {
  absl::StatusOr<std::vector<ValueId>> captures = FindCaptures(node, scope);
  if (!captures.ok()) return Invalid(where, ": ", captures.status().message());
  for (const OnnxAttribute& written : node.attributes) {
    const OnnxAttribute* attribute = Resolve(written, scope);
    if (attribute == nullptr) continue;
    Attribute value;
    if (attribute->type == OnnxAttribute::kGraph && attribute->g != nullptr) {
      if (attribute != &written) {
        return absl::UnimplementedError(
            absl::StrCat(where, ": a graph as attribute of a function is not supported"));
      }
      absl::StatusOr<std::shared_ptr<const Graph>> body =
          ImportBody(*attribute->g, scope, *captures);
      if (!body.ok()) {
        return absl::Status(body.status().code(),
                            absl::StrCat(where, ": ", written.name, ": ", body.status().message()));
      }
      value = *std::move(body);
    } else {
      absl::StatusOr<Attribute> imported = ImportAttribute(*attribute);
      if (!imported.ok()) {
        return absl::Status(
            imported.status().code(),
            absl::StrCat(where, ": attribute '", written.name, "': ", imported.status().message()));
      }
      value = *std::move(imported);
    }
    if (!result.attributes.try_emplace(std::string(written.name), std::move(value)).second) {
      return Invalid(where, ": attribute '", written.name, "' is there twice");
    }
  }
  result.inputs.insert(result.inputs.end(), captures->begin(), captures->end());
  return absl::OkStatus();
}

absl::StatusOr<Attribute> Importer::ImportAttribute(const OnnxAttribute& attribute) {
  switch (attribute.type) {
    case OnnxAttribute::kFloat:
      return attribute.f;
    case OnnxAttribute::kInt:
      return attribute.i;
    case OnnxAttribute::kString:
      return std::string(attribute.s);
    case OnnxAttribute::kTensor: {
      if (!attribute.t.has_value()) return Invalid("no tensor");
      ASSIGN_OR_RETURN(Tensor tensor, MakeTensor(*attribute.t, owner_, files_));
      return tensor;
    }
    case OnnxAttribute::kGraph:
      return Invalid("no graph");
    case OnnxAttribute::kFloats:
      return attribute.floats;
    case OnnxAttribute::kInts:
      return attribute.ints;
    case OnnxAttribute::kStrings:
      return std::vector<std::string>(attribute.strings.begin(), attribute.strings.end());
    default:
      return absl::UnimplementedError(
          absl::StrCat("attributes of type ", attribute.type, " are not supported"));
  }
}

absl::StatusOr<std::shared_ptr<const Graph>> Importer::ImportBody(
    const OnnxGraph& graph, const Scope& outer, std::span<const ValueId> captures) {
  auto body = std::make_shared<Graph>();
  body->name = std::string(graph.name);
  body->opsets = outer.graph->opsets;
  body->captures = static_cast<int32_t>(captures.size());
  Scope scope = {.graph = body.get(),
                 .opsets = outer.opsets,
                 .call = outer.call,
                 .prefix = outer.prefix,
                 .call_depth = outer.call_depth};
  RETURN_IF_ERROR(ImportInitializers(graph, scope));
  for (const OnnxValueInfo& input : graph.inputs) {
    if (scope.names.contains(input.name)) return Invalid("input '", input.name, "' is made twice");
    Value value = {.name = std::string(input.name)};
    if (input.kind == "tensor") {
      value.dtype = DTypeFromOnnx(input.elem_type).value_or(DType::kInvalid);
    } else if (!input.kind.empty()) {
      return absl::UnimplementedError(
          absl::StrCat("input '", input.name, "': a ", input.kind, " is not supported"));
    }
    RETURN_IF_ERROR(Bind(input.name, body->AddInput(std::move(value)), scope));
  }
  absl::flat_hash_map<ValueId, ValueId> captured;  // outer value to body value
  for (const ValueId outer_value : captures) {
    const Value& value = outer.graph->value(outer_value);
    captured[outer_value] =
        body->AddInput({.name = value.name, .dtype = value.dtype, .shape = value.shape});
  }
  std::vector<absl::string_view> free_names;
  CollectFreeNames(graph, &free_names);
  for (const absl::string_view name : free_names) {
    ASSIGN_OR_RETURN(const ValueId outer_value, Find(name, outer));
    auto [it, added] = captured.try_emplace(outer_value, kNoValue);
    if (added) {
      it->second = body->AddConstant(name, *outer.graph->value(outer_value).constant);
    }
    RETURN_IF_ERROR(Bind(name, it->second, scope));
  }
  RETURN_IF_ERROR(ImportNodes(graph.nodes, scope));
  RETURN_IF_ERROR(ImportOutputs(graph, scope));
  return body;
}

absl::Status Importer::ImportMain(const OnnxModel& model, const Opsets& opsets, Graph& graph) {
  graph.name = std::string(model.graph->name);
  graph.producer = absl::StrCat(model.producer_name, model.producer_version.empty() ? "" : " ",
                                model.producer_version);
  graph.ir_version = model.ir_version;
  for (const auto& [domain, version] : opsets) graph.opsets[std::string(domain)] = version;
  for (const auto& [key, value] : model.metadata) {
    graph.metadata.emplace_back(std::string(key), std::string(value));
  }
  Scope scope = {.graph = &graph, .opsets = &opsets};
  RETURN_IF_ERROR(ImportInitializers(*model.graph, scope));
  RETURN_IF_ERROR(ImportInputs(*model.graph, scope));
  RETURN_IF_ERROR(ImportNodes(model.graph->nodes, scope));
  if (model.graph->outputs.empty()) return Invalid("the graph has no outputs");
  return ImportOutputs(*model.graph, scope);
}

absl::StatusOr<ImportedModel> Importer::Import(std::span<const std::byte> bytes) {
  ASSIGN_OR_RETURN(const OnnxModel model, ReadOnnxModel(bytes));
  if (!model.graph.has_value()) return Invalid("not an ONNX model: it has no graph");
  for (const OnnxFunction& function : model.functions) {
    const FunctionName name = {{CanonicalDomain(function.domain), function.name},
                               function.overload};
    if (!functions_.try_emplace(name, &function).second) {
      return Invalid("function '", function.domain, ":", function.name, "' is there twice");
    }
  }
  ASSIGN_OR_RETURN(const Opsets opsets, ReadOpsets(model.opsets));
  ImportedModel imported;
  RETURN_IF_ERROR(ImportMain(model, opsets, imported.graph));
  imported.external_files = files_.names();
  return imported;
}

std::string FolderOf(absl::string_view path) {
  const size_t slash = path.rfind('/');
  if (slash == absl::string_view::npos) return ".";
  return slash == 0 ? "/" : std::string(path.substr(0, slash));
}

}  // namespace

absl::StatusOr<ImportedModel> ImportOnnx(const std::string& path) {
  ASSIGN_OR_RETURN(Mapping mapping, Mapping::File(path));
  auto file = std::make_shared<const Mapping>(std::move(mapping));
  absl::StatusOr<ImportedModel> model = Importer(file, FolderOf(path)).Import(file->bytes());
  if (model.ok()) return model;
  return absl::Status(model.status().code(),
                      absl::StrCat("model ", path, ": ", model.status().message()));
}

absl::StatusOr<ImportedModel> ImportOnnxBytes(std::span<const std::byte> bytes,
                                              std::shared_ptr<const void> owner) {
  return Importer(std::move(owner), "").Import(bytes);
}

absl::StatusOr<Tensor> ReadOnnxTensorFile(const std::string& path) {
  ASSIGN_OR_RETURN(Mapping mapping, Mapping::File(path));
  auto file = std::make_shared<const Mapping>(std::move(mapping));
  ExternalFiles files(FolderOf(path));
  ASSIGN_OR_RETURN(const OnnxTensor tensor, ReadOnnxTensor(file->bytes()));
  return MakeTensor(tensor, file, files);
}

}  // namespace stampmill
