// Attention: two products with a softmax between them.
//
// Heads of a group share keys and values, so a group is a second row axis of the products and the
// packed keys serve all of it. Keys and values are read through one map that appends them to the
// past and splits heads; fusion makes it part of the packing. Bias (masks, the causal frontier,
// windows, padding) is an expression over the score's coordinates and costs no tensor.
#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "base/status_macros.h"
#include "kernels/contraction.h"
#include "kernels/elementwise.h"
#include "kernels/families.h"
#include "kernels/host_values.h"
#include "kernels/reference.h"
#include "kernels/shape_rules.h"
#include "kernels/stage_builder.h"

namespace stampmill {
namespace {

// Positions of inputs and outputs.
enum : size_t { kQ, kK, kV, kMask, kPastKey, kPastValue, kValidKeys };
enum : size_t { kY, kPresentKey, kPresentValue, kScores };

// What qk_matmul_output holds.
enum class ScoresMode : int64_t { kRaw, kCapped, kBiased, kProbabilities };

struct AttentionAttributes {
  bool causal = false;
  int64_t left = -1, right = -1;  // of the window; -1: unbounded
  float softcap = 0;
  std::optional<float> scale;         // absent: by the size of a head
  int64_t q_heads = 0, kv_heads = 0;  // 0: not given
  ScoresMode mode = ScoresMode::kRaw;
  DType precision = DType::kInvalid;  // of the softmax, where it is given
};

absl::Status AttributeError(const Node& node, absl::string_view name, int64_t got,
                            absl::string_view want) {
  return absl::InvalidArgumentError(
      absl::StrCat(node.Describe(), ": ", name, ": got ", got, ", want ", want));
}

absl::StatusOr<AttentionAttributes> ReadAttention(const Node& node) {
  AttentionAttributes a;
  ASSIGN_OR_RETURN(const int64_t causal, node.Int("is_causal", 0));
  a.causal = causal != 0;
  ASSIGN_OR_RETURN(a.left, node.Int("left_window_size", -1));
  ASSIGN_OR_RETURN(a.right, node.Int("right_window_size", -1));
  if (a.left < -1) return AttributeError(node, "left_window_size", a.left, "-1 or more");
  if (a.right < -1) return AttributeError(node, "right_window_size", a.right, "-1 or more");
  ASSIGN_OR_RETURN(a.softcap, node.Float("softcap", 0));
  if (node.Has("scale")) {
    ASSIGN_OR_RETURN(a.scale, node.Float("scale", 0));
  }
  const float scale = a.scale.value_or(1);
  if (a.softcap < 0 || !std::isfinite(a.softcap) || scale < 0 || !std::isfinite(scale)) {
    return absl::InvalidArgumentError(absl::StrCat(node.Describe(), ": softcap ", a.softcap,
                                                   " and scale ", scale,
                                                   " must be finite and not negative"));
  }
  for (const auto& [name, count] :
       {std::pair("q_num_heads", &a.q_heads), std::pair("kv_num_heads", &a.kv_heads)}) {
    ASSIGN_OR_RETURN(*count, node.Int(name, 0));
    if (*count < 0) return AttributeError(node, name, *count, "1 or more");
  }
  ASSIGN_OR_RETURN(const int64_t mode, node.Int("qk_matmul_output_mode", 0));
  if (mode < 0 || mode > 3) return AttributeError(node, "qk_matmul_output_mode", mode, "0 to 3");
  a.mode = static_cast<ScoresMode>(mode);
  ASSIGN_OR_RETURN(const int64_t precision, node.Int("softmax_precision", 0));
  if (precision != 0) {
    a.precision = DTypeFromOnnx(static_cast<int32_t>(std::clamp<int64_t>(precision, 0, 1000)))
                      .value_or(DType::kInvalid);
    if (!IsFloat(a.precision)) {
      return AttributeError(node, "softmax_precision", precision, "a floating-point type");
    }
  }
  return a;
}

// The extents of one attention.
template <typename Extent>
struct AttentionSizes {
  bool packed = false;  // heads lie side by side in the last of three dims
  Extent batch{}, q_heads{}, kv_heads{}, q_length{}, kv_length{}, past{}, head{}, value_head{};

  Extent total() const { return past + kv_length; }
};

// Extents of a head and number of heads of an input, packed or not.
struct Heads {
  DimExpr batch, heads, length, size;
};

absl::StatusOr<Heads> HeadsOf(InferContext& context, size_t input, int64_t heads,
                              absl::string_view attribute) {
  ASSIGN_OR_RETURN(const Shape shape, context.InputShape(input));
  if (shape.size() == 4) {
    if (heads != 0) RETURN_IF_ERROR(RequireEqual(context, shape[1], heads, attribute));
    return Heads{shape[0], shape[1], shape[2], shape[3]};
  }
  if (shape.size() != 3) {
    return context.Error(
        absl::StrCat("input ", input, ": got rank ", shape.size(), ", want 3 or 4"));
  }
  if (heads == 0)
    return context.Error(absl::StrCat(attribute, " is required with inputs of rank 3"));
  RETURN_IF_ERROR(RequireEqual(context, Mod(shape[2], heads), 0,
                               absl::StrCat("input ", input, ": hidden size ", shape[2].ToString(),
                                            " modulo ", attribute, " ", heads)));
  return Heads{shape[0], heads, shape[1], FloorDiv(shape[2], heads)};
}

absl::Status CheckPast(InferContext& context, size_t input, const Heads& heads, DimExpr* past) {
  ASSIGN_OR_RETURN(const Shape shape, context.InputShape(input));
  if (shape.size() != 4) {
    return context.Error(absl::StrCat("input ", input, ": got rank ", shape.size(), ", want 4"));
  }
  const std::string what = absl::StrCat("input ", input, ": dims of the past and of what is added");
  RETURN_IF_ERROR(RequireEqual(context, shape[0], heads.batch, what));
  RETURN_IF_ERROR(RequireEqual(context, shape[1], heads.heads, what));
  RETURN_IF_ERROR(RequireEqual(context, shape[3], heads.size, what));
  *past = shape[2];
  return absl::OkStatus();
}

// Dims of the mask but the last broadcast; the last may be shorter than the keys.
absl::Status CheckMask(InferContext& context, const AttentionSizes<DimExpr>& sizes) {
  ASSIGN_OR_RETURN(const Shape mask, context.InputShape(kMask));
  ASSIGN_OR_RETURN(const DType dtype, context.InputDType(kMask));
  ASSIGN_OR_RETURN(const DType scores, context.InputDType(kQ));
  if (dtype != DType::kBool && dtype != scores) {
    return context.Error(
        absl::StrCat("attn_mask is ", Name(dtype), ", must be bool or ", Name(scores)));
  }
  if (mask.empty() || mask.size() > 4) {
    return context.Error(absl::StrCat("attn_mask: got rank ", mask.size(), ", want 1 to 4"));
  }
  const DimExpr to[] = {sizes.batch, sizes.q_heads, sizes.q_length};
  for (size_t d = 0; d + 1 < mask.size(); ++d) {
    const DimExpr& target = to[4 - mask.size() + d];
    RETURN_IF_ERROR(context.Check(EitherOf(IsEqual(mask[d], 1), IsEqual(mask[d], target)),
                                  absl::StrCat("attn_mask: dim ", d, ": got ", mask[d].ToString(),
                                               ", want 1 or ", target.ToString())));
  }
  return context.Check(IsNot(IsLess(sizes.total(), mask.back())),
                       absl::StrCat("attn_mask: got ", mask.back().ToString(), " keys, limit ",
                                    sizes.total().ToString()));
}

absl::StatusOr<AttentionSizes<DimExpr>> SizesOf(InferContext& context,
                                                const AttentionAttributes& a) {
  ASSIGN_OR_RETURN(const Heads q, HeadsOf(context, kQ, a.q_heads, "q_num_heads"));
  ASSIGN_OR_RETURN(const Heads k, HeadsOf(context, kK, a.kv_heads, "kv_num_heads"));
  ASSIGN_OR_RETURN(const Heads v, HeadsOf(context, kV, a.kv_heads, "kv_num_heads"));
  ASSIGN_OR_RETURN(const Shape q_shape, context.InputShape(kQ));
  ASSIGN_OR_RETURN(const Shape k_shape, context.InputShape(kK));
  ASSIGN_OR_RETURN(const Shape v_shape, context.InputShape(kV));
  if (k_shape.size() != q_shape.size() || v_shape.size() != q_shape.size()) {
    return context.Error("Q, K and V must have one rank");
  }
  RETURN_IF_ERROR(RequireEqual(context, q.batch, k.batch, "batch of Q and K"));
  RETURN_IF_ERROR(RequireEqual(context, q.batch, v.batch, "batch of Q and V"));
  RETURN_IF_ERROR(RequireEqual(context, q.size, k.size, "head size of Q and K"));
  RETURN_IF_ERROR(RequireEqual(context, k.heads, v.heads, "heads of K and V"));
  RETURN_IF_ERROR(RequireEqual(context, k.length, v.length, "sequence length of K and V"));
  RETURN_IF_ERROR(context.Check(IsLess(0, k.heads), "there must be a head of K"));
  RETURN_IF_ERROR(RequireEqual(context, Mod(q.heads, k.heads), 0,
                               absl::StrCat("heads of Q, ", q.heads.ToString(),
                                            ", modulo those of K, ", k.heads.ToString())));
  AttentionSizes<DimExpr> sizes{.packed = q_shape.size() == 3,
                                .batch = q.batch,
                                .q_heads = q.heads,
                                .kv_heads = k.heads,
                                .q_length = q.length,
                                .kv_length = k.length,
                                .head = q.size,
                                .value_head = v.size};
  if (context.HasInput(kPastKey) != context.HasInput(kPastValue)) {
    return context.Error("past_key and past_value must be given together");
  }
  if (context.HasInput(kPastKey)) {
    DimExpr values;
    RETURN_IF_ERROR(CheckPast(context, kPastKey, k, &sizes.past));
    RETURN_IF_ERROR(CheckPast(context, kPastValue, v, &values));
    RETURN_IF_ERROR(RequireEqual(context, sizes.past, values, "length of past_key and past_value"));
  }
  return sizes;
}

absl::Status CheckTypes(InferContext& context) {
  ASSIGN_OR_RETURN(const DType q, context.InputDType(kQ));
  ASSIGN_OR_RETURN(const DType v, context.InputDType(kV));
  if (!IsFloat(q) || !IsFloat(v)) return context.Error("Q, K and V must be floating-point");
  for (const auto& [input, want] :
       {std::pair(size_t{kK}, q), std::pair(size_t{kPastKey}, q), std::pair(size_t{kPastValue}, v),
        std::pair(size_t{kValidKeys}, DType::kI64)}) {
    if (!context.HasInput(input)) continue;
    ASSIGN_OR_RETURN(const DType got, context.InputDType(input));
    if (got != want) {
      return context.Error(
          absl::StrCat("input ", input, " is ", Name(got), ", must be ", Name(want)));
    }
  }
  return absl::OkStatus();
}

absl::Status InferAttention(InferContext& context) {
  RETURN_IF_ERROR(CheckTypes(context));
  ASSIGN_OR_RETURN(const AttentionAttributes a, ReadAttention(context.node()));
  ASSIGN_OR_RETURN(const AttentionSizes<DimExpr> sizes, SizesOf(context, a));
  if (context.HasInput(kMask)) RETURN_IF_ERROR(CheckMask(context, sizes));
  if (context.HasInput(kValidKeys)) {
    if (context.HasInput(kPastKey)) {
      return context.Error("nonpad_kv_seqlen must not be given together with past_key");
    }
    ASSIGN_OR_RETURN(const Shape valid, context.InputShape(kValidKeys));
    if (valid.size() != 1) return context.Error("nonpad_kv_seqlen must have one dim");
    RETURN_IF_ERROR(RequireEqual(context, valid[0], sizes.batch, "elements of nonpad_kv_seqlen"));
  }
  ASSIGN_OR_RETURN(const DType q, context.InputDType(kQ));
  ASSIGN_OR_RETURN(const DType k, context.InputDType(kK));
  ASSIGN_OR_RETURN(const DType v, context.InputDType(kV));
  Shape y = {sizes.batch, sizes.q_heads, sizes.q_length, sizes.value_head};
  if (sizes.packed) y = {sizes.batch, sizes.q_length, sizes.q_heads * sizes.value_head};
  RETURN_IF_ERROR(context.SetOutput(kY, q, std::move(y)));
  RETURN_IF_ERROR(
      context.SetOutput(kPresentKey, k, {sizes.batch, sizes.kv_heads, sizes.total(), sizes.head}));
  RETURN_IF_ERROR(context.SetOutput(
      kPresentValue, v, {sizes.batch, sizes.kv_heads, sizes.total(), sizes.value_head}));
  return context.SetOutput(kScores, q, {sizes.batch, sizes.q_heads, sizes.q_length, sizes.total()});
}

// The reference: one query row at a time, in f64.

class AttentionReference {
 public:
  AttentionReference(const ReferenceArguments& arguments, const AttentionAttributes& a)
      : arguments_(arguments), a_(a) {
    const Dims& q = Input(kQ).shape();
    const Dims& k = Input(kK).shape();
    const Dims& v = Input(kV).shape();
    s_.packed = q.size() == 3;
    s_.batch = q[0];
    s_.q_heads = s_.packed ? a.q_heads : q[1];
    s_.kv_heads = s_.packed ? a.kv_heads : k[1];
    s_.q_length = s_.packed ? q[1] : q[2];
    s_.kv_length = s_.packed ? k[1] : k[2];
    s_.head = s_.packed ? q[2] / s_.q_heads : q[3];
    s_.value_head = s_.packed ? v[2] / s_.kv_heads : v[3];
    if (Has(kPastKey)) s_.past = Input(kPastKey).shape()[2];
    if (Has(kMask)) mask_ = ReadValues<double>(Input(kMask));
    keys_ = Present(kK, kPastKey, s_.head);
    values_ = Present(kV, kPastValue, s_.value_head);
  }

  References Run() {
    const int64_t total = s_.total();
    const std::vector<double> q = ByHead(Input(kQ), s_.q_heads, s_.q_length, s_.head);
    const int64_t rows = s_.batch * s_.q_heads * s_.q_length;
    std::vector<double> scores(static_cast<size_t>(rows * total));
    std::vector<double> y(static_cast<size_t>(rows * s_.value_head));
    for (int64_t row = 0; row < rows; ++row) {
      Row(row, q.data() + row * s_.head, scores.data() + row * total, y.data());
    }
    std::vector<Tensor> outputs(4);
    ASSIGN_OR_RETURN(outputs[kY], MakeTensor(Input(kQ).dtype(), YShape(), y));
    ASSIGN_OR_RETURN(outputs[kPresentKey],
                     MakeTensor(Input(kK).dtype(), {s_.batch, s_.kv_heads, total, s_.head}, keys_));
    ASSIGN_OR_RETURN(
        outputs[kPresentValue],
        MakeTensor(Input(kV).dtype(), {s_.batch, s_.kv_heads, total, s_.value_head}, values_));
    ASSIGN_OR_RETURN(
        outputs[kScores],
        MakeTensor(Input(kQ).dtype(), {s_.batch, s_.q_heads, s_.q_length, total}, scores));
    return outputs;
  }

 private:
  const Tensor& Input(size_t i) const { return arguments_.inputs[i]; }
  bool Has(size_t i) const { return i < arguments_.inputs.size() && arguments_.inputs[i].valid(); }
  Dims YShape() const {
    if (s_.packed) return {s_.batch, s_.q_length, s_.q_heads * s_.value_head};
    return {s_.batch, s_.q_heads, s_.q_length, s_.value_head};
  }

  // [batch, heads, length, size] in order, however the tensor has it.
  std::vector<double> ByHead(const Tensor& tensor, int64_t heads, int64_t length,
                             int64_t size) const {
    const std::vector<double> from = ReadValues<double>(tensor);
    if (!s_.packed) return from;
    std::vector<double> to(from.size());
    ForEachIndex({s_.batch, heads, length, size}, [&](const Dims& at) {
      to[static_cast<size_t>(((at[0] * heads + at[1]) * length + at[2]) * size + at[3])] =
          from[static_cast<size_t>(((at[0] * length + at[2]) * heads + at[1]) * size + at[3])];
    });
    return to;
  }

  std::vector<double> Present(size_t input, size_t past, int64_t size) const {
    const std::vector<double> added = ByHead(Input(input), s_.kv_heads, s_.kv_length, size);
    if (!Has(past)) return added;
    const std::vector<double> before = ReadValues<double>(Input(past));
    std::vector<double> all;
    for (int64_t head = 0; head < s_.batch * s_.kv_heads; ++head) {
      const auto old_row = before.begin() + head * s_.past * size;
      const auto new_row = added.begin() + head * s_.kv_length * size;
      all.insert(all.end(), old_row, old_row + s_.past * size);
      all.insert(all.end(), new_row, new_row + s_.kv_length * size);
    }
    return all;
  }

  // What is added to the score of a key: minus infinity where it is not to be seen.
  double Bias(int64_t b, int64_t h, int64_t i, int64_t j) const {
    constexpr double kNever = -std::numeric_limits<double>::infinity();
    int64_t offset = s_.past;
    if (Has(kValidKeys)) {
      const int64_t valid = Input(kValidKeys).ValueAsInt64(b);
      if (j >= valid) return kNever;
      offset = valid - s_.q_length;
    }
    const int64_t position = i + offset;
    if (a_.causal && j > position) return kNever;
    if (a_.left >= 0 && j < position - a_.left) return kNever;
    if (a_.right >= 0 && j > position + a_.right) return kNever;
    if (!Has(kMask)) return 0;
    const Dims& dims = Input(kMask).shape();
    if (j >= dims.back()) return kNever;
    const int64_t at[] = {b, h, i};
    int64_t place = 0;
    for (size_t d = 0; d + 1 < dims.size(); ++d) {
      place = place * dims[d] + (dims[d] == 1 ? 0 : at[4 - dims.size() + d]);
    }
    const double mask = mask_[static_cast<size_t>(place * dims.back() + j)];
    if (Input(kMask).dtype() == DType::kBool) return mask != 0 ? 0 : kNever;
    return mask;
  }

  // One query: fills its row of scores and of y.
  void Row(int64_t row, const double* q, double* scores, double* y) const {
    const int64_t i = row % s_.q_length;
    const int64_t h = row / s_.q_length % s_.q_heads;
    const int64_t b = row / s_.q_length / s_.q_heads;
    const int64_t total = s_.total();
    const int64_t kv = b * s_.kv_heads + h / (s_.q_heads / s_.kv_heads);
    const double* keys = keys_.data() + kv * total * s_.head;
    const double scale =
        a_.scale.has_value() ? *a_.scale : 1 / std::sqrt(static_cast<double>(s_.head));
    std::vector<double> weights(static_cast<size_t>(total));
    double highest = -std::numeric_limits<double>::infinity();
    for (int64_t j = 0; j < total; ++j) {
      double raw = 0;
      for (int64_t d = 0; d < s_.head; ++d) raw += q[d] * keys[j * s_.head + d];
      raw *= scale;
      const double capped = a_.softcap > 0 ? a_.softcap * std::tanh(raw / a_.softcap) : raw;
      const double bias = Bias(b, h, i, j);
      const double biased = std::isinf(bias) && bias < 0 ? bias : capped + bias;
      scores[j] = a_.mode == ScoresMode::kRaw      ? raw
                  : a_.mode == ScoresMode::kCapped ? capped
                                                   : biased;
      weights[static_cast<size_t>(j)] = biased;
      highest = NanMax(highest, biased);
    }
    double sum = 0;
    for (double& weight : weights) {
      weight = std::isinf(weight) && weight < 0 ? 0 : std::exp(weight - highest);
      sum += weight;
    }
    for (double& weight : weights) weight = sum == 0 ? 0 : weight / sum;
    if (a_.mode == ScoresMode::kProbabilities) std::ranges::copy(weights, scores);
    const double* values = values_.data() + kv * total * s_.value_head;
    double* out = y + (s_.packed ? (b * s_.q_length + i) * s_.q_heads + h : row) * s_.value_head;
    for (int64_t d = 0; d < s_.value_head; ++d) {
      double sum_of_values = 0;
      for (int64_t j = 0; j < total; ++j) {
        sum_of_values += weights[static_cast<size_t>(j)] * values[j * s_.value_head + d];
      }
      out[d] = sum_of_values;
    }
  }

  const ReferenceArguments& arguments_;
  const AttentionAttributes& a_;
  AttentionSizes<int64_t> s_;
  std::vector<double> mask_;
  std::vector<double> keys_;    // [batch, kv_heads, total, head]
  std::vector<double> values_;  // [batch, kv_heads, total, value_head]
};

References RunAttentionReference(const ReferenceArguments& arguments) {
  ASSIGN_OR_RETURN(const AttentionAttributes a, ReadAttention(arguments.node));
  return AttentionReference(arguments, a).Run();
}

class AttentionLowering {
 public:
  AttentionLowering(LowerContext& context, const AttentionAttributes& a)
      : context_(context), a_(a), dtype_(context.input(kQ).dtype), compute_(ComputeType(dtype_)) {
    const Shape& q = context.InputShape(kQ);
    const Shape& k = context.InputShape(kK);
    const Shape& v = context.InputShape(kV);
    s_.packed = q.size() == 3;
    s_.batch = q[0];
    s_.q_heads = s_.packed ? DimExpr(a.q_heads) : q[1];
    s_.kv_heads = s_.packed ? DimExpr(a.kv_heads) : k[1];
    s_.q_length = s_.packed ? q[1] : q[2];
    s_.kv_length = s_.packed ? k[1] : k[2];
    s_.head = s_.packed ? FloorDiv(q[2], s_.q_heads) : q[3];
    s_.value_head = s_.packed ? FloorDiv(v[2], s_.kv_heads) : v[3];
    if (context.HasInput(kPastKey)) s_.past = context.InputShape(kPastKey)[2];
    group_ = FloorDiv(s_.q_heads, s_.kv_heads);
    score_shape_ = {s_.batch, s_.q_heads, s_.q_length, s_.total()};
  }

  absl::Status Emit() {
    const ValueId keys = Present(kK, kPastKey, kPresentKey, s_.head);
    const ValueId values = Present(kV, kPastValue, kPresentValue, s_.value_head);
    const ValueId scores = context_.NewValue(compute_, score_shape_, "scores");
    RETURN_IF_ERROR(EmitScores(keys, scores));
    const ValueId weights = EmitSoftmax(scores);
    if (context_.HasOutput(kScores)) {
      EmitCopy(a_.mode == ScoresMode::kProbabilities ? weights : scores,
               a_.mode == ScoresMode::kProbabilities ? dtype_ : compute_);
    }
    return EmitValues(weights, values);
  }

 private:
  // Coordinates batch, head, query, key of a score in a contraction over batch and kv head with
  // group and query as rows, and in a nest over scores.
  struct ScoreAt {
    Expr batch, head, query, key;
  };
  std::vector<Expr> List(const ScoreAt& at) const { return {at.batch, at.head, at.query, at.key}; }
  ScoreAt RowAt(const Expr& key) const {
    const std::vector<Expr> c = Coords(0, 4);
    return {c[0], c[1] * Extent(group_) + c[2], c[3], key};
  }

  // Whether the contraction that makes scores goes on to the biased ones: unless the model asks for
  // an earlier form.
  ScoresMode Stored() const {
    const bool asked = context_.HasOutput(kScores) && a_.mode < ScoresMode::kBiased;
    return asked ? a_.mode : ScoresMode::kBiased;
  }

  // [batch, kv_heads, total, size] of keys or values.
  ValueId Present(size_t input, size_t past, size_t output, const DimExpr& size) {
    const bool has_past = context_.HasInput(past);
    const Shape shape = {s_.batch, s_.kv_heads, s_.total(), size};
    const DType dtype = context_.input(input).dtype;
    if (!s_.packed && !has_past && !context_.HasOutput(output)) {
      return context_.node().inputs[input];
    }
    const ValueId present = context_.HasOutput(output) ? context_.node().outputs[output]
                                                       : context_.NewValue(dtype, shape, "present");
    StageOperands operands;
    std::vector<Expr> c = Coords(0, 4);
    const Expr in_past = has_past ? Less(c[2], Extent(s_.past)) : Expr();
    const int32_t added = operands.AddInput(context_, input);
    const Expr place = c[2] - Extent(s_.past);
    std::vector<Expr> from = {c[0], c[1], place, c[3]};
    if (s_.packed) from = {c[0], place, c[1] * Extent(size) + c[3]};
    Nest nest{.kept = shape};
    nest.result = operands.LoadIf(has_past ? Not(in_past) : Expr(), added, std::move(from),
                                  Expr::ConstantInt(dtype, 0));
    if (has_past) {
      const int32_t before = operands.AddInput(context_, past);
      nest.result = Expr::Select(
          in_past, operands.LoadIf(in_past, before, c, Expr::ConstantInt(dtype, 0)), nest.result);
    }
    nest.output = {.dtype = dtype, .shape = shape};
    EmitNest(context_, std::move(operands), std::move(nest), present);
    return present;
  }

  Expr Capped(const Expr& raw) const {
    if (a_.softcap == 0) return raw;
    const Expr cap = Expr::Constant(compute_, a_.softcap);
    return cap * Expr::Unary(ExprOp::kTanh, raw / cap);
  }

  // Which keys are seen but for the mask; invalid: all.
  Expr Visible(StageOperands& operands, const ScoreAt& at) const {
    Expr visible;
    Expr offset = Extent(s_.past);
    if (context_.HasInput(kValidKeys)) {
      const Expr valid = operands.Load(operands.AddInput(context_, kValidKeys), {at.batch});
      visible = Less(at.key, valid);
      offset = valid - Extent(s_.q_length);
    }
    const Expr position = at.query + offset;
    if (a_.causal) visible = And(LessEqual(at.key, position), visible);
    if (a_.left >= 0) visible = And(LessEqual(position - Int(a_.left), at.key), visible);
    if (a_.right >= 0) visible = And(LessEqual(at.key, position + Int(a_.right)), visible);
    return visible;
  }

  Expr Biased(StageOperands& operands, const Expr& score, const ScoreAt& at) const {
    const Expr never = LowestValue(compute_);
    Expr visible = Visible(operands, at);
    Expr biased = score;
    if (context_.HasInput(kMask)) {
      const Shape& shape = context_.InputShape(kMask);
      const std::vector<Expr> place = List(at);
      std::vector<Expr> coords;
      for (size_t d = 0; d + 1 < shape.size(); ++d) {
        const size_t axis = 4 - shape.size() + d;
        coords.push_back(BroadcastCoord(shape[d], score_shape_[axis], place[axis]));
      }
      coords.push_back(at.key);
      const bool shorter = !(shape.back() == s_.total());
      const Expr within = shorter ? Less(at.key, Extent(shape.back())) : Expr();
      const int32_t operand = operands.AddInput(context_, kMask);
      const DType dtype = operands.operand(operand).dtype;
      const Expr otherwise =
          dtype == DType::kBool ? Expr::ConstantInt(dtype, 0) : LowestValue(dtype);
      const Expr mask = operands.LoadIf(within, operand, std::move(coords), otherwise);
      if (dtype == DType::kBool) {
        visible = And(mask, visible);
      } else {
        const Expr bias = Expr::Cast(compute_, mask);
        biased = Expr::Select(Equal(bias, never), never, score + bias);
      }
    }
    return visible.valid() ? Expr::Select(visible, biased, never) : biased;
  }

  // A stored score as the softmax wants it.
  Expr Finished(StageOperands& operands, const Expr& stored, const ScoreAt& at) const {
    if (Stored() == ScoresMode::kBiased) return stored;
    const Expr capped = Stored() == ScoresMode::kRaw ? Capped(stored) : stored;
    return Biased(operands, capped, at);
  }

  Expr Scale() const {
    if (a_.scale.has_value()) return Expr::Constant(compute_, *a_.scale);
    const Expr size = Expr::Cast(compute_, Extent(s_.head));
    return Expr::Constant(compute_, 1) / Expr::Unary(ExprOp::kSqrt, size);
  }

  absl::Status EmitScores(ValueId keys, ValueId scores) {
    using Role = ProductAxis::Role;
    Product product{.batch = {s_.batch, s_.kv_heads},
                    .m = {group_, s_.q_length},
                    .n = s_.total(),
                    .k = {s_.head},
                    .accumulator = compute_};
    const int32_t q = product.operands.AddInput(context_, kQ);
    const ScoreAt at = RowAt(Expr::Coord(4));
    std::vector<Expr> from = {at.batch, at.head, at.query, Expr::Coord(4)};
    if (s_.packed) from = {at.batch, at.query, at.head * Extent(s_.head) + Expr::Coord(4)};
    product.a = Expr::Cast(compute_, product.operands.Load(q, std::move(from)));
    product.b = keys;
    product.b_operand = {.dtype = context_.input(kK).dtype, .shape = ShapeOf(keys, kK, s_.head)};
    product.b_axes = {{Role::kBatch, 0}, {Role::kBatch, 1}, {Role::kN, 0}, {Role::kK, 0}};
    const Expr raw = Expr::Accumulator(compute_, 0) * Scale();
    product.result = raw;
    if (Stored() != ScoresMode::kRaw) product.result = Capped(raw);
    if (Stored() == ScoresMode::kBiased) {
      product.result = Biased(product.operands, product.result, at);
    }
    product.output = {.dtype = compute_, .shape = score_shape_};
    product.output_coordinates = List(at);
    return EmitProduct(context_, std::move(product), scores);
  }

  // Of keys or values: an input has its own symbols, which the requests' are checked to equal.
  Shape ShapeOf(ValueId value, size_t input, const DimExpr& width) const {
    if (value == context_.node().inputs[input]) return context_.InputShape(input);
    return {s_.batch, s_.kv_heads, s_.total(), width};
  }

  // Weights in the type of Q; a row of which nothing is seen is 0.
  ValueId EmitSoftmax(ValueId scores) {
    const ValueId weights = context_.NewValue(dtype_, score_shape_, "weights");
    StageOperands operands;
    const std::vector<Expr> c = Coords(0, 4);
    const int32_t operand = operands.Add(scores, compute_, score_shape_);
    Expr x = Finished(operands, operands.Load(operand, c), {c[0], c[1], c[2], c[3]});
    const DType precision = a_.precision == DType::kInvalid ? dtype_ : a_.precision;
    const DType compute = a_.precision == DType::kInvalid ? compute_ : ComputeType(precision);
    if (a_.precision != DType::kInvalid) x = Expr::Cast(compute, Expr::Cast(precision, x));
    const Expr highest = Expr::Reduced(compute, 0);
    const Expr seen = NotEqual(x, LowestValue(compute));
    const Expr zero = Expr::Constant(compute, 0);
    const Expr power = Expr::Select(seen, Expr::Unary(ExprOp::kExp, x - highest), zero);
    const Expr sum = Expr::Accumulator(compute, 0);
    const Expr inverse = Expr::Select(Equal(sum, zero), zero, Expr::Constant(compute, 1) / sum);
    Nest nest{.kept = {s_.batch, s_.q_heads, s_.q_length}, .reduced = {s_.total()}};
    nest.reductions = {MaxReduction(x), SumReduction(power, inverse)};
    nest.result = Expr::Cast(dtype_, Expr::Cast(precision, power * Expr::Reduced(compute, 1)));
    nest.per_element = true;
    nest.output = {.dtype = dtype_, .shape = score_shape_};
    EmitNest(context_, std::move(operands), std::move(nest), weights);
    return weights;
  }

  void EmitCopy(ValueId from, DType dtype) {
    StageOperands operands;
    const int32_t operand = operands.Add(from, dtype, score_shape_);
    const Expr value = operands.Load(operand, Coords(0, 4));
    EmitMap(context_, std::move(operands), value, kScores);
  }

  absl::Status EmitValues(ValueId weights, ValueId values) {
    using Role = ProductAxis::Role;
    const DType dtype = context_.input(kV).dtype;
    Product product{.batch = {s_.batch, s_.kv_heads},
                    .m = {group_, s_.q_length},
                    .n = s_.value_head,
                    .k = {s_.total()},
                    .accumulator = compute_};
    const int32_t operand = product.operands.Add(weights, dtype_, score_shape_);
    const ScoreAt at = RowAt(Expr::Coord(4));
    product.a = Expr::Cast(compute_, product.operands.Load(operand, List(at)));
    product.b = values;
    product.b_operand = {.dtype = dtype, .shape = ShapeOf(values, kV, s_.value_head)};
    product.b_axes = {{Role::kBatch, 0}, {Role::kBatch, 1}, {Role::kK, 0}, {Role::kN, 0}};
    product.result = Expr::Cast(dtype_, Expr::Accumulator(compute_, 0));
    product.output = {.dtype = dtype_, .shape = *context_.output(kY).shape};
    product.output_coordinates = List(at);
    if (s_.packed) {
      product.output_coordinates = {at.batch, at.query, at.head * Extent(s_.value_head) + at.key};
    }
    return EmitProduct(context_, std::move(product), context_.node().outputs[kY]);
  }

  LowerContext& context_;
  const AttentionAttributes& a_;
  AttentionSizes<DimExpr> s_;
  DType dtype_, compute_;
  DimExpr group_;
  Shape score_shape_;
};

absl::Status LowerAttention(LowerContext& context) {
  ASSIGN_OR_RETURN(const AttentionAttributes a, ReadAttention(context.node()));
  return AttentionLowering(context, a).Emit();
}

constexpr Variant kAttentionVariants[] = {{"products", AlwaysApplies, LowerAttention}};

}  // namespace

std::span<const OpDefinition> AttentionOps() {
  static constexpr OpDefinition kOps[] = {
      {.name = "Attention",
       .domain = "",
       .min_inputs = 3,
       .max_inputs = 7,
       .max_outputs = 4,
       .infer = InferAttention,
       .reference = RunAttentionReference,
       .variants = kAttentionVariants},
  };
  return kOps;
}

}  // namespace stampmill
