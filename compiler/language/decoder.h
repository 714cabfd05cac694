// What architectures of decoders share, as far as they are alike: how facts say the shape of
// attention and positions, and the layers that most of them have. Internal to this folder.
#pragma once

#include "compiler/language/transformer.h"
#include "graph/graph.h"

namespace stampmill {

// Of the current layer: heads, sizes, and the scale 1 / sqrt(size of a key), unless the fact
// "attention.scale" says otherwise.
AttentionShape AttentionOf(TransformerBuilder& b);

// Positions as "rope." facts say, factors of frequencies included. `interleaved` is the
// architecture's order in GGUF files; sources that pair halves overrule it.
RotaryOptions RotaryOf(TransformerBuilder& b, bool interleaved);

// attn_output(attention of attn_q, attn_k, attn_v), turned by `rotary` where that is given.
ValueId SelfAttention(TransformerBuilder& b, ValueId x, const AttentionShape& shape,
                      const RotaryOptions* rotary);

// ffn_down(activation(ffn_gate) * ffn_up)
ValueId GatedFeedForward(TransformerBuilder& b, ValueId x, GateActivation activation);

// The current layer's: of experts where it has some ("ffn_gate_inp"), with one that all rows go
// through, behind a gate of its own, beside them ("ffn_up_shexp"); else of one matrix each.
// `sums_to_one`: the architecture's, unless the fact "expert_weights_norm" says otherwise.
ValueId MixedFeedForward(TransformerBuilder& b, ValueId x, bool sums_to_one);

// Behind the attention of the last layer only the rows that are wanted go on.
ValueId KeepWanted(TransformerBuilder& b, ValueId x);

// The output matrix, or the embedding's where there is none; then times `scale` and capped. A model
// that embeds ends before it: x itself.
ValueId Logits(TransformerBuilder& b, ValueId x, double scale = 1, double softcap = 0);

// One function an architecture; gives the logits, or embeddings.
ValueId BuildBert(TransformerBuilder& b);
ValueId BuildNomicBert(TransformerBuilder& b);
ValueId BuildGemma(TransformerBuilder& b);
ValueId BuildGemma2(TransformerBuilder& b);
ValueId BuildGemma3(TransformerBuilder& b);
ValueId BuildGpt2(TransformerBuilder& b);
ValueId BuildLlama(TransformerBuilder& b);
ValueId BuildPhi3(TransformerBuilder& b);
ValueId BuildQwen2(TransformerBuilder& b);
ValueId BuildQwen2Moe(TransformerBuilder& b);
ValueId BuildQwen3(TransformerBuilder& b);
ValueId BuildQwen3Moe(TransformerBuilder& b);
ValueId BuildSmolLm3(TransformerBuilder& b);
ValueId BuildStarcoder2(TransformerBuilder& b);

}  // namespace stampmill
