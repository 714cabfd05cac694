"""Small models that embed texts, with random weights, and what they give in float64.

`make(path, architecture, pooling)` writes one of GGUF's encoders with a vocabulary of plain words;
`embedding(path, tokens)` computes it, sharing nothing with the code under test.

Usage: make_encoder.py FILE, for a BERT.
"""

import math
import sys

import gguf
import make_model
import numpy as np
import reference

POOLINGS = {"none": 0, "mean": 1, "cls": 2, "last": 3, "rank": 4}


def add_vocabulary(writer):
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    words = ["\u2581w%d" % i for i in range(5, make_model.VOCABULARY)]
    writer.add_tokenizer_model("bert")
    writer.add_token_list(specials + words)
    writer.add_token_types([3] * 5 + [1] * len(words))
    writer.add_token_type_count(2)
    writer.add_pad_token_id(0)
    writer.add_unk_token_id(1)
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(3)
    writer.add_sep_token_id(3)
    writer.add_mask_token_id(4)


def make(path, architecture, pooling, dtype=gguf.GGMLQuantizationType.F32, context=128):
    w = make_model.Writer(path, architecture, 1, dtype)
    width, forward = make_model.WIDTH, make_model.FEED_FORWARD
    facts = {
        "context_length": context,
        "embedding_length": width,
        "block_count": make_model.LAYERS,
        "feed_forward_length": forward,
        "attention.head_count": make_model.HEADS,
        "pooling_type": POOLINGS[pooling],
        "vocab_size": make_model.VOCABULARY,
    }
    for key, value in facts.items():
        w.gguf.add_uint32(f"{architecture}.{key}", value)
    w.gguf.add_float32(f"{architecture}.attention.layer_norm_epsilon", 1e-12)
    w.gguf.add_bool(f"{architecture}.attention.causal", False)
    if architecture == "nomic-bert":
        w.gguf.add_float32(f"{architecture}.rope.freq_base", 1000.0)
    add_vocabulary(w.gguf)
    w.matrix("token_embd", make_model.VOCABULARY, width, gain=2.0)
    w.matrix("token_types", 2, width, gain=4.0)
    if architecture == "bert":
        w.matrix("position_embd", context, width, gain=4.0)
    w.norm("token_embd_norm", width, bias=True)
    for layer in range(make_model.LAYERS):
        p = f"blk.{layer}."
        matrices = {"attn_output": (width, width), "ffn_up": (forward, width)}
        matrices["ffn_down"] = (width, forward)
        if architecture == "bert":
            matrices |= {name: (width, width) for name in ("attn_q", "attn_k", "attn_v")}
        else:
            matrices |= {"attn_qkv": (3 * width, width), "ffn_gate": (forward, width)}
        for name, (rows, columns) in matrices.items():
            w.matrix(p + name, rows, columns, gain=1.5)
            if architecture == "bert":
                w.bias(p + name, rows)
        w.norm(p + "attn_output_norm", width, bias=True)
        w.norm(p + "layer_output_norm", width, bias=True)
    w.gguf.write_header_to_file()
    w.gguf.write_kv_data_to_file()
    w.gguf.write_tensors_to_file()
    w.gguf.close()


class Encoder(reference.Model):
    def norm(self, x, name):
        x = x - x.mean(-1, keepdims=True)
        epsilon = self.fact("attention.layer_norm_epsilon")
        x = x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon)
        return x * self.weights[name + ".weight"] + self.weights[name + ".bias"]

    def seen(self, tokens, layer):
        return np.ones((tokens, tokens), bool)

    def rotate(self, x, layer):
        return super().rotate(x, layer) if self.architecture == "nomic-bert" else x

    def rows(self, tokens):
        x = self.weights["token_embd.weight"][tokens] + self.weights["token_types.weight"][0]
        if self.architecture == "bert":
            x = x + self.weights["position_embd.weight"][: len(tokens)]
        x = self.norm(x, "token_embd_norm")
        for layer in range(self.fact("block_count")):
            p = f"blk.{layer}."
            x = self.norm(x + self.attention(x, layer), p + "attn_output_norm")
            up = self.linear(x, p + "ffn_up")
            if p + "ffn_gate.weight" in self.weights:
                gate = self.linear(x, p + "ffn_gate")
                h = gate / (1 + np.exp(-gate)) * up
            else:
                h = 0.5 * up * (1 + np.vectorize(math.erf)(up / math.sqrt(2)))
            x = self.norm(x + self.linear(h, p + "ffn_down"), p + "layer_output_norm")
        return x


def embedding(path, tokens):
    """Pooled as the file says, of length 1; of a decoder too."""
    model = reference.Model(path)
    if model.architecture in ("bert", "nomic-bert"):
        model = Encoder(path)
    rows = model.rows(np.asarray(tokens))
    pooling = model.fact("pooling_type")
    pooled = {1: rows.mean(0), 2: rows[0], 3: rows[-1]}[pooling]
    return pooled / np.linalg.norm(pooled)


if __name__ == "__main__":
    make(sys.argv[1], "bert", "mean")
