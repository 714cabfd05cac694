// The table of operators: an explicit list of families (kernels/families.h).
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "kernels/families.h"
#include "kernels/op.h"

namespace stampmill {
namespace {

using OpKey = std::pair<std::string, std::string>;  // domain, name

const std::vector<const OpDefinition*>& List() {
  static const auto* const list = [] {
    auto* ops = new std::vector<const OpDefinition*>;
    const std::vector<std::span<const OpDefinition>> families = {
        ActivationOps(),
        ArgReduceOps(),
        AttentionOps(),
        BinaryOps(),
        BlockOps(),
        CastOps(),
        ChannelNormalizationOps(),
        ControlOps(),
        ConvOps(),
        ConvTransposeOps(),
        CountedOps(),
        EinsumOps(),
        ExpertOps(),
        GatherOps(),
        GenerateOps(),
        GridSampleOps(),
        LinearAttentionOps(),
        MatMulOps(),
        MoveOps(),
        NormalizationOps(),
        PagedOps(),
        PoolOps(),
        QuantizeOps(),
        RecurrentOps(),
        ReduceOps(),
        RegionOps(),
        ResizeOps(),
        RotaryOps(),
        SampleOps(),
        ScanOps(),
        ScatterOps(),
        SelectOps(),
        ShapeOps(),
        SignalOps(),
        SliceOps(),
        SoftmaxOps(),
        TfIdfOps(),
        UnaryOps(),
    };
    for (const std::span<const OpDefinition> family : families) {
      for (const OpDefinition& op : family) ops->push_back(&op);
    }
    return ops;
  }();
  return *list;
}

const absl::flat_hash_map<OpKey, const OpDefinition*>& Index() {
  static const auto* const index = [] {
    auto* map = new absl::flat_hash_map<OpKey, const OpDefinition*>;
    for (const OpDefinition* op : List()) {
      map->emplace(OpKey(std::string(op->domain), std::string(op->name)), op);
    }
    return map;
  }();
  return *index;
}

}  // namespace

const OpDefinition* FindOp(absl::string_view domain, absl::string_view name) {
  if (domain == "ai.onnx") domain = "";
  const auto& index = Index();
  const auto found = index.find(OpKey(std::string(domain), std::string(name)));
  return found == index.end() ? nullptr : found->second;
}

std::vector<const OpDefinition*> AllOps() { return List(); }

bool IsElementwise(const OpDefinition& op) {
  // Whole families are; the table's entries lie in their families' arrays.
  for (const std::span<const OpDefinition> family :
       {ActivationOps(), BinaryOps(), CastOps(), SelectOps(), UnaryOps()}) {
    if (&op >= family.data() && &op < family.data() + family.size()) return true;
  }
  return false;
}

absl::StatusOr<const OpDefinition*> RequireOp(const Node& node) {
  if (const OpDefinition* op = FindOp(node.domain, node.op_type); op != nullptr) return op;
  size_t known = 0;
  for (const OpDefinition* op : List()) known += op->domain == node.domain ? 1 : 0;
  return absl::UnimplementedError(
      absl::StrCat(node.Describe(), ": operator ", node.op_type, " of domain '",
                   node.domain.empty() ? "ai.onnx" : node.domain, "' is not supported (", known,
                   " operators of that domain are)"));
}

}  // namespace stampmill
