"""Small language models of every architecture that Stampmill knows, with random weights.

Each has three layers, head counts that are odd, and a vocabulary of plain words, so that any engine
that reads GGUF can run it and print what it gives. `make(path, architecture, ...)` writes one file.
"""

import math

import gguf
import numpy as np

LAYERS = 3
WIDTH = 144
FEED_FORWARD = 160
VOCABULARY = 288
HEADS, KV_HEADS, HEAD_SIZE = 9, 3, 16
# Of the models with a mixture of them; the one that all tokens share is of another width.
EXPERTS, EXPERTS_USED, EXPERT_WIDTH, SHARED_WIDTH = 7, 3, 96, 128
CONTEXT = 512


class Writer:
    """Adds tensors of one element type, quantised where their rows allow it."""

    def __init__(self, path, architecture, seed, dtype):
        self.gguf = gguf.GGUFWriter(path, architecture)
        self.random = np.random.default_rng(seed)
        self.dtype = dtype

    def tensor(self, name, values):
        values = values.astype(np.float32)
        block = gguf.GGML_QUANT_SIZES[self.dtype][0]
        if values.ndim < 2 or values.shape[-1] % block != 0 or "norm" in name:
            self.gguf.add_tensor(name, values)
            return
        data = gguf.quants.quantize(values, self.dtype)
        self.gguf.add_tensor(name, data, raw_dtype=self.dtype)

    def matrix(self, name, rows, columns, gain=1.0):
        scale = gain / math.sqrt(columns)
        self.tensor(name + ".weight", self.random.normal(size=(rows, columns)) * scale)

    def experts(self, name, rows, columns, gain=1.0):
        scale = gain / math.sqrt(columns)
        values = self.random.normal(size=(EXPERTS, rows, columns)) * scale
        self.tensor(name + ".weight", values)

    def bias(self, name, size):
        self.tensor(name + ".bias", self.random.normal(size=size) * 0.2)

    def norm(self, name, size, bias=False):
        self.tensor(name + ".weight", 1 + self.random.normal(size=size) * 0.2)
        if bias:
            self.bias(name, size)


def add_vocabulary(writer):
    tokens = [b"<unk>", b"<s>", b"</s>"] + [b"t%d" % i for i in range(3, VOCABULARY)]
    types = [2, 3, 3] + [1] * (VOCABULARY - 3)
    writer.add_tokenizer_model("llama")
    writer.add_token_list(tokens)
    writer.add_token_scores([-float(i) for i in range(VOCABULARY)])
    writer.add_token_types(types)
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_add_bos_token(False)


def has_experts(architecture):
    return architecture in ("mixtral", "qwen2moe", "qwen3moe")


def make(
    path, architecture, dtype=gguf.GGMLQuantizationType.F32, seed=1, facts=None, vocabulary=None
):
    """`facts`: numbers under "ARCHITECTURE.", in place of the usual ones."""
    mixture = architecture
    # Mixtral is GGUF's llama with experts.
    architecture = "llama" if architecture == "mixtral" else architecture
    w = Writer(path, architecture, seed, dtype)
    plain_norms = architecture in ("gpt2", "starcoder2")
    heads, kv_heads, size = HEADS, KV_HEADS, HEAD_SIZE
    if architecture == "gpt2":
        kv_heads = heads
    known = {
        "context_length": CONTEXT,
        "embedding_length": WIDTH,
        "block_count": LAYERS,
        "feed_forward_length": FEED_FORWARD,
        "attention.head_count": heads,
        "attention.head_count_kv": kv_heads,
        "vocab_size": VOCABULARY,
    }
    if plain_norms:
        known["attention.layer_norm_epsilon"] = 1e-5
    else:
        known["attention.layer_norm_rms_epsilon"] = 1e-6
    if architecture != "gpt2":
        known["attention.key_length"] = size
        known["attention.value_length"] = size
        known["rope.dimension_count"] = size
    if architecture in ("gemma2", "gemma3"):
        known["attention.sliding_window"] = 24
    if architecture == "gemma2":
        known["attn_logit_softcapping"] = 50.0
        known["final_logit_softcapping"] = 30.0
    if architecture == "granite":
        known.update({"embedding_scale": 3.0, "residual_scale": 0.4, "logit_scale": 2.0})
        known["attention.scale"] = 0.11
    if has_experts(mixture):
        known.update({"expert_count": EXPERTS, "expert_used_count": EXPERTS_USED})
    if architecture in ("qwen2moe", "qwen3moe"):
        known["expert_feed_forward_length"] = EXPERT_WIDTH
    if architecture == "qwen2moe":
        known["expert_shared_feed_forward_length"] = SHARED_WIDTH
    known.update(facts or {})
    for key, value in known.items():
        key = f"{architecture}.{key}"
        if isinstance(value, float):
            w.gguf.add_float32(key, value)
        elif isinstance(value, str):
            w.gguf.add_string(key, value)
        else:
            w.gguf.add_uint32(key, value)
    (vocabulary or add_vocabulary)(w.gguf)
    add_weights(w, mixture, heads, kv_heads, size)
    w.gguf.write_header_to_file()
    w.gguf.write_kv_data_to_file()
    w.gguf.write_tensors_to_file()
    w.gguf.close()


def add_weights(w, architecture, heads, kv_heads, size):
    biased = architecture in ("gpt2", "starcoder2")
    w.matrix("token_embd", VOCABULARY, WIDTH, gain=2.0)
    if architecture == "gpt2":
        w.matrix("position_embd", CONTEXT, WIDTH)
    w.norm("output_norm", WIDTH, bias=biased)
    if not architecture.startswith("gemma"):
        w.matrix("output", VOCABULARY, WIDTH, gain=2.0)
    for layer in range(LAYERS):
        add_layer(w, f"blk.{layer}.", architecture, heads, kv_heads, size, biased)


def add_layer(w, p, architecture, heads, kv_heads, size, biased):
    sizes = {"attn_q": heads * size, "attn_k": kv_heads * size, "attn_v": kv_heads * size}
    if architecture in ("gpt2", "phi3"):
        sizes = {"attn_qkv": (heads + 2 * kv_heads) * size}
    for name, rows in sizes.items():
        w.matrix(p + name, rows, WIDTH, gain=1.5)
        if biased or architecture in ("qwen2", "qwen2moe"):
            w.bias(p + name, rows)
    w.matrix(p + "attn_output", WIDTH, heads * size)
    if has_experts(architecture):
        add_experts(w, p, architecture)
    elif architecture == "phi3":
        w.matrix(p + "ffn_up", 2 * FEED_FORWARD, WIDTH)
    else:
        w.matrix(p + "ffn_up", FEED_FORWARD, WIDTH)
    if not biased and architecture != "phi3" and not has_experts(architecture):
        w.matrix(p + "ffn_gate", FEED_FORWARD, WIDTH)
    if not has_experts(architecture):
        w.matrix(p + "ffn_down", WIDTH, FEED_FORWARD)
    if biased:
        for name, rows in (("attn_output", WIDTH), ("ffn_up", FEED_FORWARD), ("ffn_down", WIDTH)):
            w.bias(p + name, rows)
    w.norm(p + "attn_norm", WIDTH, bias=biased)
    w.norm(p + "ffn_norm", WIDTH, bias=biased)
    if architecture in ("gemma2", "gemma3"):
        w.norm(p + "post_attention_norm", WIDTH)
        w.norm(p + "post_ffw_norm", WIDTH)
    if architecture in ("gemma3", "qwen3", "qwen3moe"):
        w.norm(p + "attn_q_norm", size)
        w.norm(p + "attn_k_norm", size)


def add_experts(w, p, architecture):
    width = FEED_FORWARD if architecture == "mixtral" else EXPERT_WIDTH
    w.matrix(p + "ffn_gate_inp", EXPERTS, WIDTH, gain=3.0)
    w.experts(p + "ffn_gate_exps", width, WIDTH)
    w.experts(p + "ffn_up_exps", width, WIDTH)
    w.experts(p + "ffn_down_exps", WIDTH, width)
    if architecture == "qwen2moe":
        w.tensor(p + "ffn_gate_inp_shexp.weight", w.random.normal(size=WIDTH) * 0.1)
        w.matrix(p + "ffn_gate_shexp", SHARED_WIDTH, WIDTH)
        w.matrix(p + "ffn_up_shexp", SHARED_WIDTH, WIDTH)
        w.matrix(p + "ffn_down_shexp", WIDTH, SHARED_WIDTH)
