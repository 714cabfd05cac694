#include "compiler/language/decoder.h"

#include <cmath>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace stampmill {

AttentionShape AttentionOf(TransformerBuilder& b) {
  AttentionShape shape;
  shape.heads = b.Int("attention.head_count");
  shape.kv_heads = b.Int("attention.head_count_kv", shape.heads);
  const int64_t width = b.Int("embedding_length");
  const int64_t even = shape.heads > 0 ? width / shape.heads : 0;
  shape.key_size = b.Int("attention.key_length", even);
  shape.value_size = b.Int("attention.value_length", even);
  if (shape.heads < 1 || shape.kv_heads < 1 || shape.heads % shape.kv_heads != 0 ||
      shape.key_size < 1 || shape.value_size < 1) {
    b.Fail(absl::InvalidArgumentError(absl::StrCat("attention: ", shape.heads, " heads of ",
                                                   shape.key_size, " and ", shape.value_size,
                                                   " elements over ", shape.kv_heads)));
    return {.heads = 1, .kv_heads = 1, .key_size = 1, .value_size = 1};
  }
  shape.scale = b.Float("attention.scale", 1 / std::sqrt(static_cast<double>(shape.key_size)));
  return shape;
}

RotaryOptions RotaryOf(TransformerBuilder& b, bool interleaved) {
  RotaryOptions rotary;
  rotary.dims = b.Int("rope.dimension_count", AttentionOf(b).key_size);
  rotary.base = b.Float("rope.freq_base", 10000);
  rotary.interleaved = interleaved && !b.source().pairs_halves;
  const std::string kind = b.Text("rope.scaling.type", "none");
  RopeScaling& scaling = rotary.scaling;
  scaling.factor = b.Float("rope.scaling.factor", b.Float("rope.scale_linear", 1));
  if (kind == "linear" || (kind == "none" && scaling.factor != 1)) {
    scaling.kind = RopeScaling::Kind::kLinear;
  } else if (kind == "yarn") {
    scaling.kind = RopeScaling::Kind::kYarn;
    scaling.original_context = b.Float("rope.scaling.original_context_length");
    scaling.beta_fast = b.Float("rope.scaling.yarn_beta_fast", 32);
    scaling.beta_slow = b.Float("rope.scaling.yarn_beta_slow", 1);
  } else if (kind != "none" && kind != "longrope") {
    b.Fail(absl::UnimplementedError(absl::StrCat("rope.scaling.type: got '", kind,
                                                 "', supported are none, linear, yarn, longrope")));
  }
  scaling.attention_factor = b.Float("rope.scaling.attn_factor", 1);
  scaling.divisors = b.Numbers("rope_freqs.weight");
  // Phi 3's two lists: which one holds is decided by how long contexts the model is made for.
  const double original = b.Float("rope.scaling.original_context_length", 0);
  const std::vector<double> longer = b.Numbers("rope_factors_long.weight");
  const std::vector<double> shorter = b.Numbers("rope_factors_short.weight");
  if (!longer.empty() || !shorter.empty()) {
    scaling.divisors = b.Float("context_length") > original ? longer : shorter;
  }
  return rotary;
}

ValueId SelfAttention(TransformerBuilder& b, ValueId x, const AttentionShape& shape,
                      const RotaryOptions* rotary) {
  const auto turned = [&](absl::string_view name, int64_t heads) {
    if (rotary == nullptr) return b.Linear(x, name);
    RotaryOptions halves = *rotary;
    halves.interleaved = false;
    // What scores are sums of may stand in any order, if queries and keys have the same.
    const ValueId rows =
        rotary->interleaved ? b.LinearByHalves(x, name, heads, rotary->dims) : b.Linear(x, name);
    return b.Rotate(rows, heads, halves);
  };
  const ValueId q = turned("attn_q", shape.heads), k = turned("attn_k", shape.kv_heads);
  const ValueId v = b.Linear(x, "attn_v");
  return b.Linear(KeepWanted(b, b.Attend(q, k, v, shape)), "attn_output");
}

ValueId GatedFeedForward(TransformerBuilder& b, ValueId x, GateActivation activation) {
  return b.Linear(b.Gate(b.Linear(x, "ffn_gate"), b.Linear(x, "ffn_up"), activation), "ffn_down");
}

ValueId MixedFeedForward(TransformerBuilder& b, ValueId x, bool sums_to_one) {
  if (!b.HasHere("ffn_gate_inp")) return GatedFeedForward(b, x, GateActivation::kSilu);
  const ExpertShape shape = {.count = b.Int("expert_count"),
                             .used = b.Int("expert_used_count"),
                             .sums_to_one = b.Flag("expert_weights_norm", sums_to_one),
                             .scale = b.Float("expert_weights_scale", 1)};
  if (shape.count < 1 || shape.used < 1 || shape.used > shape.count) {
    b.Fail(absl::InvalidArgumentError(absl::StrCat("expert_used_count: got ", shape.used, " of ",
                                                   shape.count, " experts (expert_count)")));
    return kNoValue;
  }
  const ValueId mixed = b.MixExperts(x, b.Linear(x, "ffn_gate_inp"), shape);
  if (!b.HasHere("ffn_up_shexp")) return mixed;
  const ValueId shared = b.Linear(
      b.Gate(b.Linear(x, "ffn_gate_shexp"), b.Linear(x, "ffn_up_shexp"), GateActivation::kSilu),
      "ffn_down_shexp");
  return b.Add(mixed, b.GateBySigmoid(shared, b.Linear(x, "ffn_gate_inp_shexp")));
}

ValueId KeepWanted(TransformerBuilder& b, ValueId x) {
  return b.layer() + 1 == b.Int("block_count") ? b.SelectOutputs(x) : x;
}

ValueId Logits(TransformerBuilder& b, ValueId x, double scale, double softcap) {
  b.EnterLayer(-1);
  if (b.embeds()) {
    b.Ignore("output.weight");
    return x;
  }
  const ValueId logits = b.Linear(x, b.Has("output.weight") ? "output" : "token_embd");
  return b.Softcap(b.Scale(logits, scale), softcap);
}

}  // namespace stampmill
