// Lowering of one node: the choice of its variant, and the stages of integer tensors that were
// followed symbolically, which need none of the operators that computed them.
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/op.h"
#include "kernels/stage_builder.h"

namespace stampmill {
namespace {

// contents[index], for begin <= index < end, as a tree of comparisons.
Expr Pick(const std::vector<DimExpr>& contents, size_t begin, size_t end, const Expr& index) {
  bool same = true;
  for (size_t i = begin + 1; i < end; ++i) same = same && contents[i] == contents[begin];
  if (same) return Extent(contents[begin]);
  const size_t middle = begin + (end - begin) / 2;
  return Expr::Select(Less(index, Int(static_cast<int64_t>(middle))),
                      Pick(contents, begin, middle, index), Pick(contents, middle, end, index));
}

// A nest that writes the known contents of an output.
void LowerContents(LowerContext& context, size_t output) {
  const Value& value = context.output(output);
  const Shape strides = RowMajorStrides(*value.shape);
  Expr index = Int(0);
  for (size_t d = 0; d < strides.size(); ++d) {
    index = index + Expr::Coord(static_cast<int32_t>(d)) * Extent(strides[d]);
  }
  const std::vector<DimExpr>& contents = *value.symbolic;
  EmitMap(context, StageOperands(),
          contents.empty() ? Int(0) : Pick(contents, 0, contents.size(), index), output);
}

}  // namespace

absl::Status LowerNode(const OpDefinition& op, LowerContext& context) {
  const Node& node = context.node();
  bool known = true;
  for (size_t i = 0; i < node.outputs.size(); ++i) {
    known = known && (!context.HasOutput(i) || context.output(i).symbolic.has_value());
  }
  if (known) {
    for (size_t i = 0; i < node.outputs.size(); ++i) {
      if (context.HasOutput(i)) LowerContents(context, i);
    }
    return absl::OkStatus();
  }
  for (const Variant& variant : op.variants) {
    if (variant.applies(context)) return variant.lower(context);
  }
  return absl::UnimplementedError(
      absl::StrCat(node.Describe(), ": no way to compute it for these types and shapes"));
}

}  // namespace stampmill
