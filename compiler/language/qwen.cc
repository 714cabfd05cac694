// Qwen 2 (Yang et al., 2024), with biases on queries, keys and values, and Qwen 3 (2025), which
// normalises the heads of queries and keys instead. Both have forms with a mixture of experts: that
// of Qwen 2 does not scale the weights of a token's experts, and has one that all tokens share.
#include "compiler/language/decoder.h"

namespace stampmill {
namespace {

ValueId Build(TransformerBuilder& b, bool normalises_heads, bool sums_to_one) {
  ValueId x = b.EmbedTokens();
  for (int64_t layer = 0; layer < b.Int("block_count"); ++layer) {
    b.EnterLayer(layer);
    const AttentionShape shape = AttentionOf(b);
    const RotaryOptions rotary = RotaryOf(b, false);
    const ValueId h = b.RmsNorm(x, "attn_norm");
    ValueId q = b.Linear(h, "attn_q"), k = b.Linear(h, "attn_k");
    if (normalises_heads) {
      q = b.RmsNormHeads(q, "attn_q_norm", shape.heads, shape.key_size);
      k = b.RmsNormHeads(k, "attn_k_norm", shape.kv_heads, shape.key_size);
    }
    const ValueId attention =
        b.Attend(b.Rotate(q, shape.heads, rotary), b.Rotate(k, shape.kv_heads, rotary),
                 b.Linear(h, "attn_v"), shape);
    x = b.Add(KeepWanted(b, x), b.Linear(KeepWanted(b, attention), "attn_output"));
    x = b.Add(x, MixedFeedForward(b, b.RmsNorm(x, "ffn_norm"), sums_to_one));
  }
  b.EnterLayer(-1);
  return Logits(b, b.RmsNorm(x, "output_norm"));
}

}  // namespace

ValueId BuildQwen2(TransformerBuilder& b) { return Build(b, false, false); }
ValueId BuildQwen2Moe(TransformerBuilder& b) { return Build(b, false, false); }
ValueId BuildQwen3(TransformerBuilder& b) { return Build(b, true, true); }
ValueId BuildQwen3Moe(TransformerBuilder& b) { return Build(b, true, true); }

}  // namespace stampmill
