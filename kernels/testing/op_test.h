// The harness of operator tests: one node, its plain-loop reference and the stages of its lowering,
// run on the same tensors, must agree.
//
//   OpCase test{.op_type = "Add", .inputs = {Random(DType::kF32, {2, 3}, 1), ...}};
//   ExpectLoweringMatchesReference(test);
//
// The node is inferred and lowered three times: with the shapes fixed, with a symbol for every
// extent (equal extents share one, 1 stays 1), and, if asked for, with a symbol of its own for
// every dim, so that what broadcasts is known only when the request comes.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "graph/graph.h"
#include "graph/nest.h"
#include "graph/tensor.h"

namespace stampmill {

struct CaseTolerance {
  double relative = -1;  // < 0: by the output's dtype
  double absolute = -1;
};

struct OpCase {
  std::string op_type;
  std::string domain;
  std::vector<Tensor> inputs;  // not valid(): left out
  absl::flat_hash_map<std::string, Attribute> attributes;
  int output_count = 1;
  // Positions of inputs whose contents the model fixes (shapes, axes, weights). Integer inputs of a
  // shape operator that are not listed are inputs of the model.
  std::vector<size_t> constants;
  bool fixed_dims = true;      // lower with fixed shapes
  bool shared_symbols = true;  // lower with a symbol for every extent
  bool own_symbols = false;    // lower with a symbol for every dim
  CaseTolerance tolerance;
  bool bf16_products = false;      // LowerOptions::bf16_products
  bool has_byte_products = false;  // LowerOptions::has_byte_products
  bool exact_rows = false;         // LowerOptions::exact_rows
  // Positions of inputs that the reference gets rounded to bf16, and the lowering as they are.
  std::vector<size_t> rounded;
};

// Each failure names the case and the element.
void ExpectLoweringMatchesReference(const OpCase& test);

// The contractions that the case is lowered to, with fixed shapes.
std::vector<Contraction> LoweredContractions(const OpCase& test);

// What the operator's reference makes of the case: for results worked out by hand.
absl::StatusOr<std::vector<Tensor>> RunReference(const OpCase& test);
// Expects output 0 of the reference to be `want`, within the tolerance of the case.
void ExpectReference(const OpCase& test, const Tensor& want);

// Random contents: floats in [-range, range], integers in the same cut to their type, bools either.
Tensor Random(DType dtype, std::vector<int64_t> shape, uint64_t seed, double range = 3);
// The given values, converted.
Tensor Values(DType dtype, std::vector<int64_t> shape, const std::vector<double>& values);
Tensor Ints(const std::vector<int64_t>& values);  // i64, rank 1

// The dtypes of each group, to test in a loop.
inline constexpr DType kFloatTypes[] = {DType::kF16, DType::kBF16, DType::kF32, DType::kF64};
inline constexpr DType kIntegerTypes[] = {DType::kI8, DType::kI16, DType::kI32, DType::kI64,
                                          DType::kU8, DType::kU16, DType::kU32, DType::kU64};
inline constexpr DType kAllTypes[] = {
    DType::kBool, DType::kI8,  DType::kI16, DType::kI32,  DType::kI64, DType::kU8, DType::kU16,
    DType::kU32,  DType::kU64, DType::kF16, DType::kBF16, DType::kF32, DType::kF64};

// A graph of the case alone, inferred, with symbols as above; `symbols` receives their values.
enum class CaseDims : uint8_t { kFixed, kSharedSymbols, kOwnSymbols };
struct CaseGraph {
  Graph graph;
  std::vector<ValueId> inputs;  // per input of the case; kNoValue where left out
  absl::flat_hash_map<std::string, int64_t> symbols;
};
absl::StatusOr<CaseGraph> BuildCase(const OpCase& test, CaseDims dims);

// "output 0 [3]: got 1.5, want 2" for the first element out of tolerance; empty when all agree.
std::string Difference(const Tensor& got, const Tensor& want, CaseTolerance tolerance);

}  // namespace stampmill
