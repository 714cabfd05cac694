// Phi 3 (Abdin et al., 2024): Llama with queries, keys and values in one matrix, gate and up in
// another.
#include "compiler/language/decoder.h"

namespace stampmill {

ValueId BuildPhi3(TransformerBuilder& b) {
  ValueId x = b.EmbedTokens();
  for (int64_t layer = 0; layer < b.Int("block_count"); ++layer) {
    b.EnterLayer(layer);
    AttentionShape shape = AttentionOf(b);
    shape.window = b.Int("attention.sliding_window", 0);
    const RotaryOptions rotary = RotaryOf(b, false);
    const ValueId qkv = b.Linear(b.RmsNorm(x, "attn_norm"), "attn_qkv");
    const int64_t keys = shape.heads * shape.key_size;
    const int64_t values = keys + shape.kv_heads * shape.key_size;
    const int64_t end = values + shape.kv_heads * shape.value_size;
    const ValueId attention =
        b.Attend(b.Rotate(b.Columns(qkv, 0, keys), shape.heads, rotary),
                 b.Rotate(b.Columns(qkv, keys, values), shape.kv_heads, rotary),
                 b.Columns(qkv, values, end), shape);
    x = b.Add(KeepWanted(b, x), b.Linear(KeepWanted(b, attention), "attn_output"));
    const ValueId both = b.Linear(b.RmsNorm(x, "ffn_norm"), "ffn_up");
    const int64_t half = b.Int("feed_forward_length");
    const ValueId gated =
        b.Gate(b.Columns(both, 0, half), b.Columns(both, half, 2 * half), GateActivation::kSilu);
    x = b.Add(x, b.Linear(gated, "ffn_down"));
  }
  b.EnterLayer(-1);
  return Logits(b, b.RmsNorm(x, "output_norm"));
}

}  // namespace stampmill
