// Operators of domain stampmill on the cache of keys and values that sequences keep between steps:
// KvWrite, PagedAttention.
//
// A step computes tokens of several sequences at once, one after the other along one dim `tokens`.
// The cache is state (Graph::states), cut into blocks of kKvBlockTokens tokens; a sequence's block
// table says where block i of its positions lies. Keys lie [block, head, size, token], so that one
// vector has the same element of all keys of a block; values lie [block, head, token, size], sizes
// filled up to whole vectors:
//
//   tokens f32 [tokens, heads * size], positions i32 [tokens]: where in its sequence a token is,
//   sequences i32 [tokens]: its row of tables, tables i32 [sequences, blocks]
//
// Paged caches: Kwon et al., "Efficient Memory Management for Large Language Model Serving with
// PagedAttention", 2023.
#include "kernels/paged.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/elementwise.h"
#include "kernels/families.h"
#include "kernels/host_values.h"
#include "kernels/reference.h"
#include "kernels/shape_rules.h"
#include "kernels/stage_builder.h"

namespace stampmill {
namespace {

// Rows of one tile and tokens of one task of the skeleton.
constexpr int64_t kTileRows = 6;
constexpr int64_t kTaskTokens = 8;

absl::Status RequireRank(InferContext& context, size_t input, size_t rank, DType dtype) {
  ASSIGN_OR_RETURN(const Shape shape, context.InputShape(input));
  ASSIGN_OR_RETURN(const DType got, context.InputDType(input));
  if (shape.size() == rank && got == dtype) return absl::OkStatus();
  return context.Error(absl::StrCat("input ", input, ": got ", Name(got), ToString(shape),
                                    ", want rank ", rank, " of ", Name(dtype)));
}

// Positions and sequences of as many tokens as `tokens`, and the tables, from input `first` on.
absl::Status CheckPlaces(InferContext& context, size_t first, const DimExpr& tokens) {
  RETURN_IF_ERROR(RequireRank(context, first, 1, DType::kI32));
  RETURN_IF_ERROR(RequireRank(context, first + 1, 1, DType::kI32));
  RETURN_IF_ERROR(RequireRank(context, first + 2, 2, DType::kI32));
  for (const size_t input : {first, first + 1}) {
    ASSIGN_OR_RETURN(const Shape shape, context.InputShape(input));
    RETURN_IF_ERROR(RequireEqual(context, shape[0], tokens, "positions and sequences: tokens"));
  }
  return absl::OkStatus();
}

// --- KvWrite ---

enum : size_t { kCache, kTokens, kWritePositions, kWriteSequences, kWriteTables };

absl::StatusOr<bool> IsOfKeys(const Node& node) {
  ASSIGN_OR_RETURN(const int64_t keys, node.Int("keys", 0));
  return keys != 0;
}

absl::Status InferKvWrite(InferContext& context) {
  RETURN_IF_ERROR(RequireRank(context, kCache, 4, DType::kF16));
  RETURN_IF_ERROR(RequireRank(context, kTokens, 2, DType::kF32));
  ASSIGN_OR_RETURN(const Shape cache, context.InputShape(kCache));
  ASSIGN_OR_RETURN(const Shape x, context.InputShape(kTokens));
  ASSIGN_OR_RETURN(const bool keys, IsOfKeys(context.node()));
  RETURN_IF_ERROR(RequireEqual(context, cache[keys ? 3 : 2], kKvBlockTokens, "tokens of a block"));
  RETURN_IF_ERROR(RequireEqual(context, Mod(x[1], cache[1]), 0, "elements modulo heads"));
  const DimExpr size = FloorDiv(x[1], cache[1]);
  RETURN_IF_ERROR(RequireEqual(context, cache[keys ? 2 : 3],
                               keys ? size : CeilDiv(size, kKvValueGroup) * kKvValueGroup,
                               "size of a head in the cache"));
  RETURN_IF_ERROR(CheckPlaces(context, kWritePositions, x[0]));
  return context.SetOutput(0, DType::kF16, cache);
}

References KvWriteReference(const ReferenceArguments& arguments) {
  ASSIGN_OR_RETURN(const bool keys, IsOfKeys(arguments.node));
  const Tensor& before = arguments.inputs[kCache];
  const Tensor& x = arguments.inputs[kTokens];
  ASSIGN_OR_RETURN(Tensor cache, Tensor::Allocate(DType::kF16, before.shape()));
  std::memcpy(cache.mutable_bytes().data(), before.bytes().data(), before.bytes().size());
  const Dims& shape = before.shape();
  const int64_t heads = shape[1], size = x.shape()[1] / heads;
  const int64_t blocks = arguments.inputs[kWriteTables].shape()[1];
  for (int64_t t = 0; t < x.shape()[0]; ++t) {
    const int64_t position = arguments.inputs[kWritePositions].ValueAsInt64(t);
    const int64_t row = arguments.inputs[kWriteSequences].ValueAsInt64(t);
    const int64_t block =
        arguments.inputs[kWriteTables].ValueAsInt64(row * blocks + position / kKvBlockTokens);
    const int64_t slot = position % kKvBlockTokens;
    for (int64_t h = 0; h < heads; ++h) {
      for (int64_t d = 0; d < size; ++d) {
        const int64_t first = (block * heads + h) * shape[2] * shape[3];
        const int64_t at = keys ? d * kKvBlockTokens + slot : slot * shape[3] + d;
        cache.SetFromDouble(first + at, x.ValueAsDouble((t * heads + h) * size + d));
      }
    }
  }
  return One(std::move(cache));
}

absl::Status LowerKvWrite(LowerContext& context) {
  const Node& node = context.node();
  ASSIGN_OR_RETURN(const bool keys, IsOfKeys(node));
  const Shape& cache = context.InputShape(kCache);
  const Shape& x = context.InputShape(kTokens);
  const DimExpr heads = cache[1], size = FloorDiv(x[1], heads);
  // The same memory: what is written is seen by those who read the output.
  context.EmitAlias(node.inputs[kCache], node.outputs[0]);
  StageOperands operands;
  const int32_t values = operands.AddInput(context, kTokens);
  const int32_t positions = operands.AddInput(context, kWritePositions);
  const int32_t sequences = operands.AddInput(context, kWriteSequences);
  const int32_t tables = operands.AddInput(context, kWriteTables);
  const std::vector<Expr> c = Coords(0, 3);  // token, head, element
  const Expr position = Expr::Cast(DType::kI64, operands.Load(positions, {c[0]}));
  const Expr row = Expr::Cast(DType::kI64, operands.Load(sequences, {c[0]}));
  const Expr block = Expr::Cast(
      DType::kI64, operands.Load(tables, {row, FloorDivide(position, Int(kKvBlockTokens))}));
  const Expr slot = FloorModulo(position, Int(kKvBlockTokens));
  Nest nest;
  nest.kept = {x[0], heads, size};
  nest.result = Expr::Cast(DType::kF16, operands.Load(values, {c[0], c[1] * Extent(size) + c[2]}));
  nest.output = {.dtype = DType::kF16, .shape = cache};
  nest.output_coordinates = keys ? std::vector<Expr>{block, c[1], c[2], slot}
                                 : std::vector<Expr>{block, c[1], slot, c[2]};
  EmitNest(context, std::move(operands), std::move(nest), node.outputs[0]);
  return absl::OkStatus();
}

// --- PagedAttention ---

enum : size_t { kQueries, kKeys, kValues, kPositions, kSequences, kTables };

struct Attributes {
  int64_t heads = 0;
  int64_t value_size = 0;
  float scale = 0;
  float softcap = 0;   // 0: none
  int64_t window = 0;  // keys that a token sees, itself included; 0: all
};

absl::StatusOr<Attributes> ReadAttributes(const Node& node) {
  Attributes a;
  ASSIGN_OR_RETURN(a.heads, node.Int("q_num_heads", 0));
  ASSIGN_OR_RETURN(a.value_size, node.Int("value_size", 0));
  ASSIGN_OR_RETURN(a.scale, node.Float("scale", 0));
  ASSIGN_OR_RETURN(a.softcap, node.Float("softcap", 0));
  ASSIGN_OR_RETURN(a.window, node.Int("window", 0));
  if (a.heads < 1 || a.value_size < 1 || a.window < 0 || !std::isfinite(a.scale) ||
      !std::isfinite(a.softcap) || a.softcap < 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        node.Describe(), ": q_num_heads ", a.heads, ", value_size ", a.value_size, ", scale ",
        a.scale, ", softcap ", a.softcap, ", window ", a.window, ": out of range"));
  }
  return a;
}

absl::Status InferPagedAttention(InferContext& context) {
  RETURN_IF_ERROR(RequireRank(context, kQueries, 2, DType::kF32));
  RETURN_IF_ERROR(RequireRank(context, kKeys, 4, DType::kF16));
  RETURN_IF_ERROR(RequireRank(context, kValues, 4, DType::kF16));
  ASSIGN_OR_RETURN(const Attributes a, ReadAttributes(context.node()));
  ASSIGN_OR_RETURN(const Shape q, context.InputShape(kQueries));
  ASSIGN_OR_RETURN(const Shape keys, context.InputShape(kKeys));
  ASSIGN_OR_RETURN(const Shape values, context.InputShape(kValues));
  RETURN_IF_ERROR(RequireEqual(context, q[1], a.heads * keys[2], "elements of the queries"));
  RETURN_IF_ERROR(RequireEqual(context, keys[0], values[0], "blocks of keys and values"));
  RETURN_IF_ERROR(RequireEqual(context, keys[1], values[1], "heads of keys and values"));
  RETURN_IF_ERROR(RequireEqual(context, keys[3], kKvBlockTokens, "tokens of a block of keys"));
  RETURN_IF_ERROR(RequireEqual(context, values[2], kKvBlockTokens, "tokens of a block of values"));
  RETURN_IF_ERROR(RequireEqual(context, values[3],
                               CeilDiv(a.value_size, kKvValueGroup) * kKvValueGroup,
                               "size of a value in the cache"));
  for (const DimExpr& dim : {keys[1], keys[2]}) {
    if (!dim.is_constant() || dim.IsConstant(0)) {
      return context.Error("heads and their sizes must be fixed");
    }
  }
  RETURN_IF_ERROR(RequireEqual(context, Mod(a.heads, keys[1]), 0, "q_num_heads modulo heads"));
  RETURN_IF_ERROR(CheckPlaces(context, kPositions, q[0]));
  return context.SetOutput(0, DType::kF32, {q[0], a.heads * a.value_size});
}

// One query row at a time, in f64.
class PagedReference {
 public:
  PagedReference(const ReferenceArguments& arguments, const Attributes& a)
      : arguments_(arguments),
        a_(a),
        kv_heads_(Input(kKeys).shape()[1]),
        size_(Input(kKeys).shape()[2]),
        padded_(Input(kValues).shape()[3]),
        blocks_(Input(kTables).shape()[1]) {}

  References Run() const {
    const int64_t tokens = Input(kQueries).shape()[0];
    ASSIGN_OR_RETURN(Tensor y, Tensor::Allocate(DType::kF32, {tokens, a_.heads * a_.value_size}));
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t h = 0; h < a_.heads; ++h) Row(t, h, y);
    }
    return One(std::move(y));
  }

 private:
  const Tensor& Input(size_t i) const { return arguments_.inputs[i]; }

  void Row(int64_t token, int64_t head, Tensor& y) const {
    const int64_t last = Input(kPositions).ValueAsInt64(token);
    const int64_t first = a_.window > 0 ? std::max<int64_t>(0, last - a_.window + 1) : 0;
    const int64_t kv_head = head / (a_.heads / kv_heads_);
    std::vector<double> weights;
    for (int64_t position = first; position <= last; ++position) {
      double score = 0;
      for (int64_t d = 0; d < size_; ++d) {
        score +=
            Input(kQueries).ValueAsDouble((token * a_.heads + head) * size_ + d) *
            Input(kKeys).ValueAsDouble(Block(token, position, kv_head) * size_ * kKvBlockTokens +
                                       d * kKvBlockTokens + position % kKvBlockTokens);
      }
      score *= static_cast<double>(a_.scale);
      const double cap = static_cast<double>(a_.softcap);
      weights.push_back(cap > 0 ? std::tanh(score / cap) * cap : score);
    }
    const double most = *std::ranges::max_element(weights);
    double sum = 0;
    for (double& weight : weights) sum += weight = std::exp(weight - most);
    for (int64_t d = 0; d < a_.value_size; ++d) {
      double result = 0;
      for (int64_t position = first; position <= last; ++position) {
        const int64_t at =
            (Block(token, position, kv_head) * kKvBlockTokens + position % kKvBlockTokens) *
                padded_ +
            d;
        result += weights[static_cast<size_t>(position - first)] * Input(kValues).ValueAsDouble(at);
      }
      y.SetFromDouble((token * a_.heads + head) * a_.value_size + d, result / sum);
    }
  }

  // Number of the block of a head among all heads' blocks.
  int64_t Block(int64_t token, int64_t position, int64_t kv_head) const {
    const int64_t row = Input(kSequences).ValueAsInt64(token);
    const int64_t block = Input(kTables).ValueAsInt64(row * blocks_ + position / kKvBlockTokens);
    return block * kv_heads_ + kv_head;
  }

  const ReferenceArguments& arguments_;
  const Attributes& a_;
  const int64_t kv_heads_, size_, padded_, blocks_;
};

References PagedAttentionReference(const ReferenceArguments& arguments) {
  ASSIGN_OR_RETURN(const Attributes a, ReadAttributes(arguments.node));
  return PagedReference(arguments, a).Run();
}

int64_t BitsOf(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

absl::Status LowerPagedAttention(LowerContext& context) {
  const Node& node = context.node();
  ASSIGN_OR_RETURN(const Attributes a, ReadAttributes(node));
  const DimExpr tokens = context.InputShape(kQueries)[0];
  const Shape& keys = context.InputShape(kKeys);
  const Shape& values = context.InputShape(kValues);
  const DimExpr blocks = context.InputShape(kTables)[1];
  const std::string& target = context.options().target;
  const bool converts_halves = target != "cpu:x86-64";
  const bool has_wide_registers = absl::StrContains(target, "v4");
  std::vector<Operand> operands;
  for (size_t i = 0; i < node.inputs.size(); ++i) {
    operands.push_back({.dtype = context.input(i).dtype, .shape = context.InputShape(i)});
  }
  const auto bytes = static_cast<int64_t>(sizeof(float));
  context.EmitLibrary(
      {.skeleton = "paged_attention",
       .configuration = {a.heads, *keys[1].constant(), *keys[2].constant(), a.value_size,
                         *values[3].constant(), BitsOf(a.scale), BitsOf(a.softcap), a.window,
                         converts_halves ? 1 : 0, has_wide_registers ? 4 : 1},
       .operands = std::move(operands),
       .outputs = {{.dtype = DType::kF32, .shape = *context.output(0).shape}},
       .dims = {tokens, blocks},
       .tasks = CeilDiv(tokens, kTaskTokens) * keys[1],
       .scratch_bytes = blocks * (kKvBlockTokens * kTileRows * bytes)},
      node.inputs, {node.outputs[0]});
  return absl::OkStatus();
}

}  // namespace

std::span<const OpDefinition> PagedOps() {
  static constexpr OpDefinition kOps[] = {
      {.name = "KvWrite",
       .domain = "stampmill",
       .min_inputs = 5,
       .max_inputs = 5,
       .infer = InferKvWrite,
       .reference = KvWriteReference,
       .variants = kNest<LowerKvWrite>},
      {.name = "PagedAttention",
       .domain = "stampmill",
       .min_inputs = 6,
       .max_inputs = 6,
       .infer = InferPagedAttention,
       .reference = PagedAttentionReference,
       .variants = kNest<LowerPagedAttention>},
  };
  return kOps;
}

}  // namespace stampmill
