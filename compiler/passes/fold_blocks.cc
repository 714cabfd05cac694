// Products of dequantised weights become products of the weights' blocks (kernels/blocks.cc).
//
// x * transpose(DequantizeBlocks(w)), as MatMul with a Transpose between or as Gemm with transB,
// is MatMulPanels(x, panels of w), plus what Gemm adds; a Gather of its rows is GatherPanels.
// ExpertMatMul with dequantised weights is ExpertMatMulPanels (kernels/experts.cc).
// The rows of a product are rounded by RoundRows, unless they stay exact.
// Whatever else reads DequantizeBlocks(w) reads the same panels: a weight is stored once.
#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/status_macros.h"
#include "compiler/passes/graph_passes.h"
#include "graph/block_layout.h"
#include "graph/row_records.h"

namespace stampmill {
namespace {

constexpr absl::string_view kDomain = "stampmill";

class BlockFolder {
 public:
  BlockFolder(Graph& graph, const BlockOptions& options)
      : graph_(graph), options_(options), panel_(options.panel) {}

  absl::Status Run() {
    for (const NodeId id : graph_.Order()) {
      const Node& node = graph_.node(id);
      if (node.domain == kDomain && node.op_type == "DequantizeBlocks") {
        RETURN_IF_ERROR(UsePanels(id));
      }
    }
    for (const NodeId id : graph_.Order()) {
      const Node node = graph_.node(id);
      if (node.removed) continue;
      if (node.domain == kDomain && node.op_type == "ExpertMatMul") {
        RETURN_IF_ERROR(FoldExperts(id, node));
      }
      if (!node.domain.empty()) continue;
      if (node.op_type == "MatMul") RETURN_IF_ERROR(FoldMatMul(id, node));
      if (node.op_type == "Gemm") RETURN_IF_ERROR(FoldGemm(id, node));
      if (node.op_type == "Gather") RETURN_IF_ERROR(FoldGather(id, node));
    }
    graph_.RemoveDeadNodes();
    return graph_.SortTopologically();
  }

 private:
  const Node* Producer(ValueId id, absl::string_view domain, absl::string_view op_type) const {
    if (id == kNoValue || graph_.value(id).producer < 0) return nullptr;
    const Node& node = graph_.node(graph_.value(id).producer);
    return node.domain == domain && node.op_type == op_type ? &node : nullptr;
  }

  // DequantizeBlocks of a constant matrix becomes DequantizePanels.
  absl::Status UsePanels(NodeId id) {
    const Node node = graph_.node(id);
    const std::optional<Tensor> rows = graph_.value(node.inputs[0]).constant;
    ASSIGN_OR_RETURN(const std::string name, node.String("format", ""));
    const std::optional<BlockFormat> format = BlockFormatFromName(name);
    // What is wrong with it its shape rule says.
    if (!rows.has_value() || rows->rank() != 2 || !format.has_value()) return absl::OkStatus();
    const int64_t elements = rows->shape()[1] / FactsOf(*format).bytes * FactsOf(*format).elements;
    const auto key = std::make_tuple(rows->bytes().data(), rows->bytes().size(), *format, elements);
    auto found = panels_.find(key);
    if (found == panels_.end()) {
      ASSIGN_OR_RETURN(Tensor packed, PackBlocks(*rows, *format, panel_));
      const std::string& constant = graph_.value(node.inputs[0]).name;
      found = panels_.emplace(key, graph_.AddConstant(constant, std::move(packed))).first;
    }
    const ValueId dequantized =
        graph_.Op("DequantizePanels", kDomain, {found->second},
                  {{"format", name}, {"panel", panel_}, {"rows", rows->shape()[0]}});
    graph_.value(dequantized).name = graph_.value(node.outputs[0]).name;
    graph_.ReplaceUses(node.outputs[0], dequantized);
    graph_.RemoveNode(id);
    return absl::OkStatus();
  }

  void Replace(NodeId id, ValueId result) {
    const ValueId old = graph_.node(id).outputs[0];
    graph_.value(result).name = graph_.value(old).name;
    graph_.ReplaceUses(old, result);
    graph_.RemoveNode(id);
  }

  absl::StatusOr<ValueId> Product(const Node& node, ValueId x, const Node& weights) {
    if (!options_.exact_rows) {
      ASSIGN_OR_RETURN(x, Rounded(x, weights));
    }
    const NodeId id = graph_.AddNode({.op_type = "MatMulPanels",
                                      .domain = std::string(kDomain),
                                      .name = node.name,
                                      .inputs = {x, weights.inputs[0]},
                                      .outputs = {},
                                      .attributes = weights.attributes},
                                     1);
    return graph_.node(id).outputs[0];
  }

  // x as records. Formats that need the same name one of them, so that their rows are one value.
  absl::StatusOr<ValueId> Rounded(ValueId x, const Node& weights) {
    ASSIGN_OR_RETURN(const std::string name, weights.String("format", ""));
    const BlockFormat format = *BlockFormatFromName(name);
    const bool wide = options_.has_wide_rows(format);
    const BlockLayout layout = LayoutOf(format, panel_);
    const int64_t panel_bytes = graph_.value(weights.inputs[0]).constant->shape()[1];
    const int64_t k = panel_bytes / layout.block_bytes * layout.facts().elements;
    BlockFormat first = format;
    for (int i = kBlockFormatCount - 1; i >= 0; --i) {
      const auto other = static_cast<BlockFormat>(i);
      if (RecordsFor(other, wide) == RecordsFor(format, wide)) first = other;
    }
    return graph_.Op(
        "RoundRows", kDomain, {x},
        {{"k", k}, {"format", std::string(Name(first))}, {"wide", int64_t{wide ? 1 : 0}}});
  }

  absl::Status FoldMatMul(NodeId id, const Node& node) {
    const Node* transpose = Producer(node.inputs[1], "", "Transpose");
    if (transpose == nullptr) return absl::OkStatus();
    const Node* weights = Producer(transpose->inputs[0], kDomain, "DequantizePanels");
    if (weights == nullptr) return absl::OkStatus();
    ASSIGN_OR_RETURN(const std::vector<int64_t> perm, transpose->Ints("perm", {1, 0}));
    if (perm != std::vector<int64_t>{1, 0}) return absl::OkStatus();
    ASSIGN_OR_RETURN(const ValueId product, Product(node, node.inputs[0], Node(*weights)));
    Replace(id, product);
    return absl::OkStatus();
  }

  absl::Status FoldGemm(NodeId id, const Node& node) {
    const Node* found = Producer(node.inputs[1], kDomain, "DequantizePanels");
    ASSIGN_OR_RETURN(const int64_t transposed, node.Int("transB", 0));
    if (found == nullptr || transposed == 0) return absl::OkStatus();
    const Node weights = *found;
    ASSIGN_OR_RETURN(const int64_t transpose_a, node.Int("transA", 0));
    ASSIGN_OR_RETURN(const float alpha, node.Float("alpha", 1));
    ASSIGN_OR_RETURN(const float beta, node.Float("beta", 1));
    ValueId x = node.inputs[0];
    if (transpose_a != 0) {
      x = graph_.Op("Transpose", "", {x}, {{"perm", std::vector<int64_t>{1, 0}}});
    }
    ASSIGN_OR_RETURN(const ValueId product, Product(node, x, weights));
    ValueId y = Scaled(product, alpha);
    if (node.inputs.size() > 2 && node.inputs[2] != kNoValue && beta != 0) {
      y = graph_.Op("Add", "", {y, Scaled(node.inputs[2], beta)});
    }
    Replace(id, y);
    return absl::OkStatus();
  }

  // The matrices of each expert become panels, one expert's after the other's.
  absl::Status FoldExperts(NodeId id, const Node& node) {
    const Node* weights = Producer(node.inputs[1], kDomain, "DequantizeBlocks");
    if (weights == nullptr) return absl::OkStatus();
    const Value& value = graph_.value(weights->inputs[0]);
    ASSIGN_OR_RETURN(const std::string name, weights->String("format", ""));
    const std::optional<BlockFormat> format = BlockFormatFromName(name);
    if (!value.constant.has_value() || value.constant->rank() != 3 || !format.has_value()) {
      return absl::OkStatus();
    }
    const Tensor rows = *value.constant;
    const int64_t experts = rows.shape()[0], n = rows.shape()[1], bytes = rows.shape()[2];
    const int64_t panels = (n + panel_ - 1) / panel_;
    std::optional<Tensor> packed;
    for (int64_t expert = 0; expert < experts; ++expert) {
      const auto size = static_cast<size_t>(n * bytes);
      ASSIGN_OR_RETURN(const Tensor matrix,
                       Tensor::View(DType::kU8, {n, bytes},
                                    rows.bytes().subspan(static_cast<size_t>(expert) * size, size),
                                    std::make_shared<Tensor>(rows)));
      ASSIGN_OR_RETURN(const Tensor one, PackBlocks(matrix, *format, panel_));
      if (!packed.has_value()) {
        ASSIGN_OR_RETURN(packed, Tensor::Allocate(DType::kU8, {experts, panels, one.shape()[1]}));
      }
      std::ranges::copy(one.bytes(), packed->mutable_bytes().begin() +
                                         static_cast<int64_t>(one.bytes().size()) * expert);
    }
    if (!packed.has_value()) return absl::OkStatus();
    absl::flat_hash_map<std::string, Attribute> attributes = node.attributes;
    attributes["format"] = name;
    attributes["panel"] = panel_;
    attributes["rows"] = n;
    std::vector<ValueId> inputs = node.inputs;
    inputs[1] = graph_.AddConstant(value.name, *std::move(packed));
    const NodeId product = graph_.AddNode({.op_type = "ExpertMatMulPanels",
                                           .domain = std::string(kDomain),
                                           .name = node.name,
                                           .inputs = std::move(inputs),
                                           .outputs = {},
                                           .attributes = std::move(attributes)},
                                          1);
    Replace(id, graph_.node(product).outputs[0]);
    return absl::OkStatus();
  }

  // Rows of dequantised weights.
  absl::Status FoldGather(NodeId id, const Node& node) {
    const Node* weights = Producer(node.inputs[0], kDomain, "DequantizePanels");
    ASSIGN_OR_RETURN(const int64_t axis, node.Int("axis", 0));
    if (weights == nullptr || (axis != 0 && axis != -2)) return absl::OkStatus();
    const NodeId rows = graph_.AddNode({.op_type = "GatherPanels",
                                        .domain = std::string(kDomain),
                                        .name = node.name,
                                        .inputs = {weights->inputs[0], node.inputs[1]},
                                        .outputs = {},
                                        .attributes = weights->attributes},
                                       1);
    Replace(id, graph_.node(rows).outputs[0]);
    return absl::OkStatus();
  }

  ValueId Scaled(ValueId value, float factor) {
    if (factor == 1) return value;
    const ValueId constant = graph_.AddConstant("factor", Tensor::Scalar(DType::kF32, factor));
    return graph_.Op("Mul", "", {value, constant});
  }

  Graph& graph_;
  const BlockOptions& options_;
  const int64_t panel_;
  // By the bytes of a matrix, its format and the elements of a row.
  std::map<std::tuple<const std::byte*, size_t, BlockFormat, int64_t>, ValueId> panels_;
};

}  // namespace

absl::Status FoldBlocks(Graph& graph, const BlockOptions& options) {
  return BlockFolder(graph, options).Run();
}

}  // namespace stampmill
