// GPT-2 (Radford et al., 2019): learned positions, norms with biases, no gate. And StarCoder 2
// (Lozhkov et al., 2024), the same with rotary positions and heads that share keys and values.
#include "compiler/language/decoder.h"

namespace stampmill {
namespace {

ValueId FeedForward(TransformerBuilder& b, ValueId x) {
  return b.Linear(b.Gelu(b.Linear(b.LayerNorm(x, "ffn_norm"), "ffn_up")), "ffn_down");
}

}  // namespace

ValueId BuildGpt2(TransformerBuilder& b) {
  ValueId x = b.Add(b.EmbedTokens(), b.EmbedPositions());
  for (int64_t layer = 0; layer < b.Int("block_count"); ++layer) {
    b.EnterLayer(layer);
    const AttentionShape shape = AttentionOf(b);
    const ValueId qkv = b.Linear(b.LayerNorm(x, "attn_norm"), "attn_qkv");
    const int64_t width = shape.heads * shape.key_size;
    const ValueId attention = b.Attend(b.Columns(qkv, 0, width), b.Columns(qkv, width, 2 * width),
                                       b.Columns(qkv, 2 * width, 3 * width), shape);
    x = b.Add(KeepWanted(b, x), b.Linear(KeepWanted(b, attention), "attn_output"));
    x = b.Add(x, FeedForward(b, x));
  }
  b.EnterLayer(-1);
  return Logits(b, b.LayerNorm(x, "output_norm"));
}

ValueId BuildStarcoder2(TransformerBuilder& b) {
  ValueId x = b.EmbedTokens();
  for (int64_t layer = 0; layer < b.Int("block_count"); ++layer) {
    b.EnterLayer(layer);
    const RotaryOptions rotary = RotaryOf(b, false);
    const ValueId attention =
        SelfAttention(b, b.LayerNorm(x, "attn_norm"), AttentionOf(b), &rotary);
    x = b.Add(KeepWanted(b, x), attention);
    x = b.Add(x, FeedForward(b, x));
  }
  b.EnterLayer(-1);
  return Logits(b, b.LayerNorm(x, "output_norm"));
}

}  // namespace stampmill
