// What elementwise operators are made of: the shape rules, reference loops and lowering that they
// share, so that an operator is one line that says what happens to an element, twice: once in C++
// for the reference, once as an Expr.
//
// Internal to the elementwise families.
#pragma once

#include <array>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/expr.h"
#include "kernels/op.h"
#include "kernels/reference.h"
#include "kernels/shape_rules.h"
#include "kernels/stage_builder.h"

namespace stampmill {

enum class Types : uint8_t { kFloat, kInteger, kNumeric, kSigned, kBool, kIntegerOrBool, kAll };
bool Includes(Types types, DType dtype);

using References = absl::StatusOr<std::vector<Tensor>>;

// Output 0 has the dtype (kInvalid: that of input 0) and the broadcast shape of all inputs, whose
// dtypes are equal and among `types`.
absl::Status InferElementwise(InferContext& context, Types types, DType output,
                              FollowFunction follow);

template <Types types, FollowFunction follow = nullptr>
absl::Status InferSame(InferContext& context) {
  return InferElementwise(context, types, DType::kInvalid, follow);
}

template <Types types, FollowFunction follow = nullptr>
absl::Status InferTest(InferContext& context) {
  return InferElementwise(context, types, DType::kBool, follow);
}

// A load of the operand at the nest's coordinates, where `to` is the shape of the loop that the
// operand broadcasts to. A dim that may be 1 for some requests is a coordinate times min(dim - 1,
// 1): still linear in the coordinate.
Expr LoadElement(const StageOperands& operands, int32_t operand, const Shape& to);
// The same converted to the type that arithmetic is done in.
Expr LoadForCompute(const StageOperands& operands, int32_t operand, const Shape& to);

// One nest over output 0 whose element is element(node, inputs), in compute types, cast to the
// output's dtype. A left-out input is an invalid Expr.
using ElementFunction = absl::StatusOr<Expr> (*)(const Node& node, std::span<const Expr> inputs);
absl::Status LowerElementwise(LowerContext& context, ElementFunction element);

// Variants of an operator of one or of two inputs from a lambda over Exprs.
template <auto element>
absl::Status LowerUnary(LowerContext& context) {
  return LowerElementwise(context,
                          [](const Node& node, std::span<const Expr> x) -> absl::StatusOr<Expr> {
                            if constexpr (requires { element(node, x[0]); }) {
                              return element(node, x[0]);
                            } else {
                              return element(x[0]);
                            }
                          });
}

template <auto element>
absl::Status LowerBinary(LowerContext& context) {
  return LowerElementwise(context,
                          [](const Node& node, std::span<const Expr> x) -> absl::StatusOr<Expr> {
                            if constexpr (requires { element(node, x[0], x[1]); }) {
                              return element(node, x[0], x[1]);
                            } else {
                              return element(x[0], x[1]);
                            }
                          });
}

template <auto element>
absl::Status LowerFold(LowerContext& context) {
  return LowerElementwise(context,
                          [](const Node&, std::span<const Expr> x) -> absl::StatusOr<Expr> {
                            Expr result = x[0];
                            for (size_t i = 1; i < x.size(); ++i) result = element(result, x[i]);
                            return result;
                          });
}

template <absl::Status (*lower)(LowerContext&)>
inline constexpr Variant kNest[] = {{"nest", AlwaysApplies, lower}};
template <auto element>
inline constexpr Variant kUnaryNest[] = {{"nest", AlwaysApplies, LowerUnary<element>}};
template <auto element>
inline constexpr Variant kBinaryNest[] = {{"nest", AlwaysApplies, LowerBinary<element>}};

// Reference loops: out[i] = f(x[i]) with f in the compute type.
template <typename T, typename Out = T, typename F>
References MapElements(const ReferenceArguments& arguments, F f) {
  const Tensor& input = arguments.inputs[0];
  ASSIGN_OR_RETURN(Tensor output, Tensor::Allocate(DTypeOf<Out>(), input.shape()));
  const In<T> x(input);
  const std::span<Out> y = output.mutable_values<Out>();
  for (int64_t i = 0; i < x.size(); ++i) {
    y[static_cast<size_t>(i)] = static_cast<Out>(f(static_cast<Compute<T>>(x[i])));
  }
  return One(std::move(output));
}

template <typename F>
References MapFloats(const ReferenceArguments& arguments, F f) {
  return DispatchFloat(arguments.inputs[0].dtype(),
                       [&]<typename T>() { return MapElements<T>(arguments, f); });
}

template <typename F>
References MapNumbers(const ReferenceArguments& arguments, F f) {
  return DispatchNumeric(arguments.inputs[0].dtype(),
                         [&]<typename T>() { return MapElements<T>(arguments, f); });
}

// out[i] = f(a[i], b[i]) over the broadcast shape.
template <typename A, typename B, typename Out, typename F>
References ZipElements(const ReferenceArguments& arguments, F f) {
  const Tensor& left = arguments.inputs[0];
  const Tensor& right = arguments.inputs[1];
  ASSIGN_OR_RETURN(const Dims dims, BroadcastDims({left.shape(), right.shape()}));
  ASSIGN_OR_RETURN(Tensor output, Tensor::Allocate(DTypeOf<Out>(), dims));
  const In<A> a(left);
  const In<B> b(right);
  const std::span<Out> y = output.mutable_values<Out>();
  size_t next = 0;
  ForEach<2>(dims, {BroadcastStrides(left.shape(), dims), BroadcastStrides(right.shape(), dims)},
             [&](const std::array<int64_t, 2>& at) {
               y[next++] = static_cast<Out>(
                   f(static_cast<Compute<A>>(a[at[0]]), static_cast<Compute<B>>(b[at[1]])));
             });
  return One(std::move(output));
}

// INVALID_ARGUMENT unless all inputs have the type of the first.
absl::Status CheckSameTypes(const ReferenceArguments& arguments);

template <typename F>
References ZipNumbers(const ReferenceArguments& arguments, F f) {
  RETURN_IF_ERROR(CheckSameTypes(arguments));
  return DispatchNumeric(arguments.inputs[0].dtype(),
                         [&]<typename T>() { return ZipElements<T, T, T>(arguments, f); });
}

}  // namespace stampmill
