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
# GGUF has the rows of these rotated as neighbours, `transformers` as halves.
ROTATED_AS_NEIGHBOURS = ("granite", "llama", "smollm3")


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
    config = {"model_type": "gemma3_text" if architecture == "gemma3" else architecture}
    for key, name in facts.items():
        field = reader.get_field(f"{architecture}.{key}")
        if field is not None:
            config[name] = field.contents()
    if architecture in ("gemma2", "gemma3"):
        config["query_pre_attn_scalar"] = config["head_dim"]
    heads = [
        reader.get_field(f"{architecture}.attention.head_count{suffix}").contents()
        for suffix in ("", "_kv")
    ]
    entries, pieces, offset = {}, [], 0
    for tensor in reader.tensors:
        values = weight_of(tensor, architecture, heads)
        piece = np.ascontiguousarray(values).tobytes()
        entries[name_of(tensor.name, architecture)] = {
            "dtype": "F32",
            "shape": list(values.shape),
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
