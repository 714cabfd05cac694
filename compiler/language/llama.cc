// Llama (Touvron et al., 2023) and what follows it: Mistral, SmolLM2, Granite, whose factors on
// embeddings, residuals, attention and logits are 1 elsewhere; Mixtral
// (Jiang et al., 2024), of whose experts each token goes through two; and SmolLM3, in which every
// fourth layer knows no positions.
#include "compiler/language/decoder.h"

namespace stampmill {
namespace {

ValueId Build(TransformerBuilder& b, int64_t layers_to_one_without_positions) {
  ValueId x = b.Scale(b.EmbedTokens(), b.Float("embedding_scale", 1));
  const double residual = b.Float("residual_scale", 1);
  for (int64_t layer = 0; layer < b.Int("block_count"); ++layer) {
    b.EnterLayer(layer);
    const int64_t step = layers_to_one_without_positions;
    const bool turns = step == 0 || (layer + 1) % step != 0;
    const RotaryOptions rotary = RotaryOf(b, true);
    const ValueId attention =
        SelfAttention(b, b.RmsNorm(x, "attn_norm"), AttentionOf(b), turns ? &rotary : nullptr);
    x = b.Add(KeepWanted(b, x), b.Scale(attention, residual));
    const ValueId h = b.RmsNorm(x, "ffn_norm");
    x = b.Add(x, b.Scale(MixedFeedForward(b, h, true), residual));
  }
  b.EnterLayer(-1);
  return Logits(b, b.RmsNorm(x, "output_norm"), 1 / b.Float("logit_scale", 1));
}

}  // namespace

ValueId BuildLlama(TransformerBuilder& b) { return Build(b, 0); }
ValueId BuildSmolLm3(TransformerBuilder& b) { return Build(b, 4); }

}  // namespace stampmill
