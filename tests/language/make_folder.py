"""A GGUF file of f32 weights as a folder of Hugging Face's layout, under the names that its
`transformers` models have. `make(path, folder, architecture)` writes config.json and
model.safetensors."""

import json
import os
import struct

import gguf
import numpy as np

FACTS = {
    "context_length": "max_position_embeddings",
    "embedding_length": "hidden_size",
    "block_count": "num_hidden_layers",
    "feed_forward_length": "intermediate_size",
    "attention.head_count": "num_attention_heads",
    "attention.head_count_kv": "num_key_value_heads",
    "attention.key_length": "head_dim",
    "attention.layer_norm_rms_epsilon": "rms_norm_eps",
    "attention.layer_norm_epsilon": "norm_epsilon",
    "attention.sliding_window": "sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
    "embedding_scale": "embedding_multiplier",
    "residual_scale": "residual_multiplier",
    "attention.scale": "attention_multiplier",
    "logit_scale": "logits_scaling",
    "expert_used_count": "num_experts_per_tok",
}
GPT2_FACTS = {
    "context_length": "n_positions",
    "embedding_length": "n_embd",
    "block_count": "n_layer",
    "attention.head_count": "n_head",
    "attention.layer_norm_epsilon": "layer_norm_epsilon",
}
NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_qkv": "self_attn.qkv_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
SANDWICH_NAMES = NAMES | {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
GPT2_NAMES = {
    "token_embd": "wte",
    "position_embd": "wpe",
    "output_norm": "ln_f",
    "output": "lm_head",
    "attn_norm": "ln_1",
    "attn_qkv": "attn.c_attn",
    "attn_output": "attn.c_proj",
    "ffn_norm": "ln_2",
    "ffn_up": "mlp.c_fc",
    "ffn_down": "mlp.c_proj",
}
OWN_NAMES = {
    "gemma2": SANDWICH_NAMES,
    "gemma3": SANDWICH_NAMES,
    "gpt2": GPT2_NAMES,
    "phi3": NAMES | {"ffn_up": "mlp.gate_up_proj"},
    "starcoder2": NAMES | {"ffn_up": "mlp.c_fc", "ffn_down": "mlp.c_proj"},
}
EXPERT_NAMES = {
    "ffn_gate_inp": "mlp.gate",
    "ffn_gate_exps": "mlp.experts.{}.gate_proj",
    "ffn_up_exps": "mlp.experts.{}.up_proj",
    "ffn_down_exps": "mlp.experts.{}.down_proj",
    "ffn_gate_inp_shexp": "mlp.shared_expert_gate",
    "ffn_gate_shexp": "mlp.shared_expert.gate_proj",
    "ffn_up_shexp": "mlp.shared_expert.up_proj",
    "ffn_down_shexp": "mlp.shared_expert.down_proj",
}
MIXTRAL_NAMES = {
    "ffn_gate_inp": "block_sparse_moe.gate",
    "ffn_gate_exps": "block_sparse_moe.experts.{}.w1",
    "ffn_up_exps": "block_sparse_moe.experts.{}.w3",
    "ffn_down_exps": "block_sparse_moe.experts.{}.w2",
}
OWN_NAMES |= {
    "mixtral": NAMES | MIXTRAL_NAMES,
    "qwen2moe": NAMES | EXPERT_NAMES,
    "qwen3moe": NAMES | EXPERT_NAMES,
}
MODEL_TYPES = {"gemma3": "gemma3_text", "qwen2moe": "qwen2_moe", "qwen3moe": "qwen3_moe"}
# GGUF has the rows of these rotated as neighbours, `transformers` as halves.
ROTATED_AS_NEIGHBOURS = ("granite", "llama", "mixtral", "smollm3")


def name_of(name, architecture):
    names = OWN_NAMES.get(architecture, NAMES)
    stem, part = name.rsplit(".", 1)
    if not stem.startswith("blk."):
        return f"{names[stem]}.{part}"
    _, layer, inner = stem.split(".")
    prefix = "h" if architecture == "gpt2" else "model.layers"
    return f"{prefix}.{layer}.{names[inner]}.{part}"


def halves(values, heads):
    pairs = values.reshape(heads, -1, 2, values.shape[-1])
    return pairs.swapaxes(1, 2).reshape(values.shape)


def weight_of(tensor, architecture, heads):
    values = np.array(tensor.data, np.float32).reshape([int(d) for d in tensor.shape[::-1]])
    for part, count in zip(("attn_q.weight", "attn_k.weight"), heads, strict=True):
        if architecture in ROTATED_AS_NEIGHBOURS and tensor.name.endswith(part):
            return halves(values, count)
    if architecture == "gpt2" and tensor.name.startswith("blk.") and values.ndim == 2:
        return values.T
    if architecture.startswith("gemma") and "norm" in tensor.name:
        return values - 1
    return values


def make(path, folder, architecture):
    reader = gguf.GGUFReader(path)
    facts = GPT2_FACTS if architecture == "gpt2" else FACTS
    config = {"model_type": MODEL_TYPES.get(architecture, architecture)}
    prefix = "llama" if architecture == "mixtral" else architecture
    for key, name in facts.items():
        field = reader.get_field(f"{prefix}.{key}")
        if field is not None:
            config[name] = field.contents()
    if architecture in ("gemma2", "gemma3"):
        config["query_pre_attn_scalar"] = config["head_dim"]
    heads = [
        reader.get_field(f"{prefix}.attention.head_count{suffix}").contents()
        for suffix in ("", "_kv")
    ]
    entries, pieces, offset = {}, [], 0
    experts = reader.get_field(f"{prefix}.expert_count")
    if experts is not None:
        count = "num_local_experts" if architecture == "mixtral" else "num_experts"
        config[count] = experts.contents()
        config["norm_topk_prob"] = architecture == "qwen3moe"
    for tensor in reader.tensors:
        name = name_of(tensor.name, architecture)
        values = weight_of(tensor, architecture, heads)
        if tensor.name.endswith("shexp.weight") and values.ndim == 1:
            values = values[None]
        singles = {name: values}
        if values.ndim == 3:
            singles = {name.format(expert): matrix for expert, matrix in enumerate(values)}
        for single, matrix in singles.items():
            piece = np.ascontiguousarray(matrix).tobytes()
            entries[single] = {
                "dtype": "F32",
                "shape": list(matrix.shape),
                "data_offsets": [offset, offset + len(piece)],
            }
            pieces.append(piece)
            offset += len(piece)
    config["tie_word_embeddings"] = not any(t.name == "output.weight" for t in reader.tensors)
    header = json.dumps(entries).encode()
    header += b" " * (-len(header) % 8)
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "model.safetensors"), "wb") as file:
        file.write(struct.pack("<Q", len(header)) + header + b"".join(pieces))
    with open(os.path.join(folder, "config.json"), "w") as file:
        json.dump(config, file)
