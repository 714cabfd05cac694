// What elementwise operators are made of: the shape rules, reference loops and lowering that they
// share, so that an operator is one line that says what happens to an element, twice: once in C++
// for the reference, once as an Expr.
//
// Internal to the elementwise families.
#pragma once

#include <array>
#include <concepts>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "graph/expr.h"
#include "kernels/host_values.h"
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

// Elements for references, in the arithmetic type (host_values.h) that holds the dtype's: double
// for floats, uint64_t for u64, int64_t for other integers and bool. Stores wrap integers to the
// width.
template <typename T>
T Element(const Tensor& tensor, int64_t i) {
  if constexpr (std::floating_point<T>) return tensor.ValueAsDouble(i);
  return static_cast<T>(tensor.ValueAsInt64(i));
}
inline void SetElement(Tensor& tensor, int64_t i, double value) { tensor.SetFromDouble(i, value); }
template <std::integral T>
void SetElement(Tensor& tensor, int64_t i, T value) {
  tensor.SetFromInt64(i, static_cast<int64_t>(value));
}

// out[i] = f(x[i]) for T, where `output` is the result's dtype.
template <typename T, typename F>
References MapAs(const ReferenceArguments& arguments, DType output, F f) {
  const Tensor& x = arguments.inputs[0];
  ASSIGN_OR_RETURN(Tensor y, Tensor::Allocate(output, x.shape()));
  for (int64_t i = 0; i < x.element_count(); ++i) SetElement(y, i, f(Element<T>(x, i)));
  return One(std::move(y));
}

template <typename F>
References MapFloats(const ReferenceArguments& arguments, F f) {
  return MapAs<double>(arguments, arguments.inputs[0].dtype(), f);
}

template <typename F>
References MapNumbers(const ReferenceArguments& arguments, F f) {
  const DType dtype = arguments.inputs[0].dtype();
  return WithArithmeticType(dtype,
                            [&](auto zero) { return MapAs<decltype(zero)>(arguments, dtype, f); });
}

// INVALID_ARGUMENT unless all inputs have the type of the first.
absl::Status CheckSameTypes(const ReferenceArguments& arguments);

// out[i] = f(a[i], b[i]) over the broadcast shape.
template <typename A, typename B, typename F>
References ZipAs(const ReferenceArguments& arguments, DType output, F f) {
  const Tensor& a = arguments.inputs[0];
  const Tensor& b = arguments.inputs[1];
  ASSIGN_OR_RETURN(const Dims dims, BroadcastDims({a.shape(), b.shape()}));
  ASSIGN_OR_RETURN(Tensor y, Tensor::Allocate(output, dims));
  int64_t next = 0;
  ForEach<2>(dims, {BroadcastStrides(a.shape(), dims), BroadcastStrides(b.shape(), dims)},
             [&](const std::array<int64_t, 2>& at) {
               SetElement(y, next++, f(Element<A>(a, at[0]), Element<B>(b, at[1])));
             });
  return One(std::move(y));
}

// The same for two inputs of one type; output kInvalid: theirs.
template <typename F>
References ZipNumbers(const ReferenceArguments& arguments, F f, DType output = DType::kInvalid) {
  RETURN_IF_ERROR(CheckSameTypes(arguments));
  const DType dtype = arguments.inputs[0].dtype();
  return WithArithmeticType(dtype, [&](auto zero) {
    using T = decltype(zero);
    return ZipAs<T, T>(arguments, output == DType::kInvalid ? dtype : output, f);
  });
}

}  // namespace stampmill
