// BERT (Devlin et al., 2018), whose tokens see the whole text, with norms behind each part; and
// Nomic BERT (Nussbaum et al., 2024): rotary positions, queries, keys and values in one matrix, and
// a gate.
#include "compiler/language/decoder.h"

namespace stampmill {
namespace {

ValueId Attention(TransformerBuilder& b, ValueId x, const RotaryOptions* rotary) {
  const AttentionShape shape = AttentionOf(b);
  if (!b.HasHere("attn_qkv")) return SelfAttention(b, x, shape, rotary);
  const int64_t keys = shape.heads * shape.key_size;
  const int64_t values = keys + shape.kv_heads * shape.key_size;
  const ValueId qkv = b.Linear(x, "attn_qkv");
  ValueId q = b.Columns(qkv, 0, keys), k = b.Columns(qkv, keys, values);
  const ValueId v = b.Columns(qkv, values, values + shape.kv_heads * shape.value_size);
  if (rotary != nullptr) {
    q = b.Rotate(q, shape.heads, *rotary);
    k = b.Rotate(k, shape.kv_heads, *rotary);
  }
  return b.Linear(KeepWanted(b, b.Attend(q, k, v, shape)), "attn_output");
}

ValueId FeedForward(TransformerBuilder& b, ValueId x) {
  if (b.HasHere("ffn_gate")) return GatedFeedForward(b, x, GateActivation::kSilu);
  return b.Linear(b.GeluErf(b.Linear(x, "ffn_up")), "ffn_down");
}

ValueId Build(TransformerBuilder& b, bool turns) {
  ValueId x = b.EmbedTokens();
  if (b.Has("token_types.weight")) x = b.Add(x, b.EmbedTokenType());
  if (!turns) x = b.Add(x, b.EmbedPositions());
  x = b.LayerNorm(x, "token_embd_norm");
  for (int64_t layer = 0; layer < b.Int("block_count"); ++layer) {
    b.EnterLayer(layer);
    RotaryOptions rotary;
    if (turns) rotary = RotaryOf(b, false);
    const ValueId attention = Attention(b, x, turns ? &rotary : nullptr);
    x = b.LayerNorm(b.Add(KeepWanted(b, x), attention), "attn_output_norm");
    x = b.LayerNorm(b.Add(x, FeedForward(b, x)), "layer_output_norm");
  }
  return x;
}

}  // namespace

ValueId BuildBert(TransformerBuilder& b) { return Build(b, false); }
ValueId BuildNomicBert(TransformerBuilder& b) { return Build(b, true); }

}  // namespace stampmill
