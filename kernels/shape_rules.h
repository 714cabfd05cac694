// What shape rules share: broadcasting of symbolic shapes, truth values of conditions on dims, and
// following integer contents through operators.
//
// A condition on dims is a DimExpr that is 0 or 1, so that it can be an operand of another
// expression, the content of a bool tensor, or a check on requests.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/dim.h"
#include "kernels/op.h"

namespace stampmill {

DimExpr IsEqual(const DimExpr& a, const DimExpr& b);
DimExpr IsLess(const DimExpr& a, const DimExpr& b);
DimExpr IsNot(const DimExpr& condition);  // REQUIRES: condition is 0 or 1
DimExpr EitherOf(const DimExpr& a, const DimExpr& b);
DimExpr Choose(const DimExpr& condition, const DimExpr& yes, const DimExpr& no);

// Whether the dims are equal or unequal for every request; nullopt when it depends or is unknown.
std::optional<bool> KnownEqual(const DimExpr& a, const DimExpr& b);

// Whether two dims of which one broadcasts to the other are equal wherever the checks of
// BroadcastShapes pass: not one that may be 1 beside the other. Some table sliced to min(S, 512)
// rows and added to S rows is the common case.
bool EqualWhenBroadcast(const DimExpr& a, const DimExpr& b);

// The shape that `shapes` broadcast to. Two dims that may differ, neither known to be 1, give their
// maximum and a check: equal, or one of them 1 and the other not 0.
absl::StatusOr<Shape> BroadcastShapes(InferContext& context, std::span<const Shape> shapes);
// Demands equality of two dims of a request, named by `what` in errors.
absl::Status RequireEqual(InferContext& context, const DimExpr& a, const DimExpr& b,
                          absl::string_view what);

// Contents of a value that inference found to be known, for lowerings. INTERNAL when they are not.
absl::StatusOr<std::vector<DimExpr>> KnownContents(const Node& node, const Value& value);

// Operators whose results have as many elements as they find (NonZero): their shapes have a symbol
// that the lowering reads. `what` it counts tells several of one node apart. The text attribute
// kUniqueAttribute tells nodes of one name apart where a graph is put together of several.
inline constexpr char kUniqueAttribute[] = "unique";
bool CountsItsResult(const Node& node);
DimExpr CountOf(const Node& node, absl::string_view what);

using Reference = absl::StatusOr<std::vector<Tensor>> (*)(const ReferenceArguments& arguments);
// Follows contents through an operator that only moves elements of the inputs `data` (and zeros):
// its reference runs over places in a list of DimExprs. Does nothing when contents or the other
// inputs are not known or the output is long. Call after SetOutput.
absl::Status FollowMoves(InferContext& context, std::span<const size_t> data, Reference reference);

// The same for an elementwise operator over all of its inputs, broadcast; `follow` gets one element
// of each and returns nullopt where it cannot say.
using FollowFunction = std::optional<DimExpr> (*)(const Node& node, std::span<const DimExpr>);
absl::Status FollowElements(InferContext& context, FollowFunction follow);

}  // namespace stampmill
