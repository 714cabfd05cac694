// Gemma (Mesnard et al., 2024), Gemma 2 (Riviere et al., 2024) with norms behind each part, soft
// caps and a sliding window in every other layer, and Gemma 3 (2025) with normalised heads, five
// layers with a window to one without, and positions of their own in the former. Files hold the
// norms' weights with 1 added.
#include <cmath>

#include "compiler/language/decoder.h"

namespace stampmill {
namespace {

ValueId Embed(TransformerBuilder& b) {
  return b.Scale(b.EmbedTokens(), std::sqrt(static_cast<double>(b.Int("embedding_length"))));
}

// The largest of each family scales by its width a head, not by the size of a key.
void ScaleByWidth(TransformerBuilder& b, int64_t layers_of_largest, AttentionShape& shape) {
  if (b.Int("block_count") != layers_of_largest) return;
  shape.scale = 1 / std::sqrt(static_cast<double>(b.Int("embedding_length")) /
                              static_cast<double>(shape.heads));
}

ValueId FeedForward(TransformerBuilder& b, ValueId x) {
  return GatedFeedForward(b, x, GateActivation::kGeluTanh);
}

}  // namespace

ValueId BuildGemma(TransformerBuilder& b) {
  ValueId x = Embed(b);
  for (int64_t layer = 0; layer < b.Int("block_count"); ++layer) {
    b.EnterLayer(layer);
    const RotaryOptions rotary = RotaryOf(b, false);
    const ValueId attention = SelfAttention(b, b.RmsNorm(x, "attn_norm"), AttentionOf(b), &rotary);
    x = b.Add(KeepWanted(b, x), attention);
    x = b.Add(x, FeedForward(b, b.RmsNorm(x, "ffn_norm")));
  }
  b.EnterLayer(-1);
  return Logits(b, b.RmsNorm(x, "output_norm"));
}

ValueId BuildGemma2(TransformerBuilder& b) {
  constexpr int64_t kLayersOfLargest = 46;
  ValueId x = Embed(b);
  for (int64_t layer = 0; layer < b.Int("block_count"); ++layer) {
    b.EnterLayer(layer);
    AttentionShape shape = AttentionOf(b);
    ScaleByWidth(b, kLayersOfLargest, shape);
    shape.softcap = b.Float("attn_logit_softcapping", 50);
    if (layer % 2 == 0) shape.window = b.Int("attention.sliding_window", 4096);
    const RotaryOptions rotary = RotaryOf(b, false);
    const ValueId attention = SelfAttention(b, b.RmsNorm(x, "attn_norm"), shape, &rotary);
    x = b.Add(KeepWanted(b, x), b.RmsNorm(attention, "post_attention_norm"));
    x = b.Add(x, b.RmsNorm(FeedForward(b, b.RmsNorm(x, "ffn_norm")), "post_ffw_norm"));
  }
  b.EnterLayer(-1);
  return Logits(b, b.RmsNorm(x, "output_norm"), 1, b.Float("final_logit_softcapping", 30));
}

ValueId BuildGemma3(TransformerBuilder& b) {
  constexpr int64_t kLayersOfLargest = 62;
  ValueId x = Embed(b);
  for (int64_t layer = 0; layer < b.Int("block_count"); ++layer) {
    b.EnterLayer(layer);
    AttentionShape shape = AttentionOf(b);
    ScaleByWidth(b, kLayersOfLargest, shape);
    RotaryOptions rotary = RotaryOf(b, false);
    const int64_t period = b.Int("attention.sliding_window_pattern", 6);
    if (period > 0 && (layer + 1) % period != 0) {
      shape.window = b.Int("attention.sliding_window");
      rotary.base = b.Float("rope.local.freq_base", b.Float("rope.freq_base_swa", 10000));
      rotary.scaling = {};
    }
    const ValueId h = b.RmsNorm(x, "attn_norm");
    const ValueId q =
        b.RmsNormHeads(b.Linear(h, "attn_q"), "attn_q_norm", shape.heads, shape.key_size);
    const ValueId k =
        b.RmsNormHeads(b.Linear(h, "attn_k"), "attn_k_norm", shape.kv_heads, shape.key_size);
    const ValueId attention =
        b.Attend(b.Rotate(q, shape.heads, rotary), b.Rotate(k, shape.kv_heads, rotary),
                 b.Linear(h, "attn_v"), shape);
    x = b.Add(KeepWanted(b, x),
              b.RmsNorm(b.Linear(KeepWanted(b, attention), "attn_output"), "post_attention_norm"));
    x = b.Add(x, b.RmsNorm(FeedForward(b, b.RmsNorm(x, "ffn_norm")), "post_ffw_norm"));
  }
  b.EnterLayer(-1);
  return Logits(b, b.RmsNorm(x, "output_norm"), 1, b.Float("final_logit_softcapping", 0));
}

}  // namespace stampmill
