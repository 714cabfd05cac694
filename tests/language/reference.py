"""A language model in a GGUF file, computed in float64 from its dequantised weights.

Written from the papers and the files' own facts, position by position and head by head; it shares
nothing with the code under test. `log_probabilities(path, tokens)` gives one row for each token.
"""

import math

import gguf
import numpy as np


class Model:
    def __init__(self, path):
        reader = gguf.GGUFReader(path)
        self.facts = {k: f.contents() for k, f in reader.fields.items() if "tokenizer" not in k}
        self.architecture = self.facts["general.architecture"]
        self.weights = {
            t.name: gguf.quants.dequantize(t.data, t.tensor_type).astype(np.float64)
            for t in reader.tensors
        }
        self.heads = self.fact("attention.head_count")
        self.kv_heads = self.fact("attention.head_count_kv", self.heads)
        width = self.fact("embedding_length")
        self.size = self.fact("attention.key_length", width // self.heads)

    def fact(self, name, otherwise=None):
        return self.facts.get(f"{self.architecture}.{name}", otherwise)

    def linear(self, x, name):
        y = x @ self.weights[name + ".weight"].T
        return y + self.weights[name + ".bias"] if name + ".bias" in self.weights else y

    def norm(self, x, name):
        weight = self.weights[name + ".weight"]
        if self.architecture in ("gpt2", "starcoder2"):
            x = x - x.mean(-1, keepdims=True)
            epsilon = self.fact("attention.layer_norm_epsilon")
            x = x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon)
            return x * weight + self.weights[name + ".bias"]
        epsilon = self.fact("attention.layer_norm_rms_epsilon")
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + epsilon) * weight

    def rotate(self, x, layer):
        """x [tokens, heads, size]."""
        if self.architecture == "gpt2":
            return x
        if self.architecture == "smollm3" and (layer + 1) % 4 == 0:
            return x
        dims = self.fact("rope.dimension_count", self.size)
        base = self.fact("rope.freq_base", 10000.0)
        factor = self.fact("rope.scaling.factor", 1.0)
        if self.window(layer) and self.architecture == "gemma3":
            base, factor = 10000.0, 1.0
        pairs = np.arange(dims // 2)
        radians = base ** (-2.0 * pairs / dims) / factor
        if "rope_freqs.weight" in self.weights:
            radians = radians / self.weights["rope_freqs.weight"]
        angle = np.arange(len(x))[:, None] * radians[None, :]
        cos, sin = np.cos(angle)[:, None, :], np.sin(angle)[:, None, :]
        y = x.copy()
        if self.architecture in ("llama", "mistral", "granite", "smollm3"):
            first, second = slice(0, dims, 2), slice(1, dims, 2)
        else:
            first, second = slice(0, dims // 2), slice(dims // 2, dims)
        a, b = x[..., first], x[..., second]
        y[..., first], y[..., second] = a * cos - b * sin, a * sin + b * cos
        return y

    def window(self, layer):
        """Tokens that a token sees, itself included; 0: all."""
        if self.architecture == "gemma2":
            return self.fact("attention.sliding_window", 4096) if layer % 2 == 0 else 0
        if self.architecture == "gemma3":
            return self.fact("attention.sliding_window") if (layer + 1) % 6 != 0 else 0
        if self.architecture == "phi3":
            return self.fact("attention.sliding_window", 0)
        return 0

    def seen(self, tokens, layer):
        """[tokens, tokens]: which ones each sees."""
        place = np.arange(tokens)
        seen = place[None, :] <= place[:, None]
        window = self.window(layer)
        if window:
            seen &= place[None, :] > place[:, None] - window
        return seen

    def attention(self, h, layer):
        p = f"blk.{layer}."
        tokens = len(h)
        if p + "attn_qkv.weight" in self.weights:
            q, k, v = np.split(
                self.linear(h, p + "attn_qkv"),
                [self.heads * self.size, (self.heads + self.kv_heads) * self.size],
                axis=-1,
            )
        else:
            q, k, v = (self.linear(h, p + n) for n in ("attn_q", "attn_k", "attn_v"))
        q = q.reshape(tokens, self.heads, self.size)
        k = k.reshape(tokens, self.kv_heads, self.size)
        v = v.reshape(tokens, self.kv_heads, -1)
        if p + "attn_q_norm.weight" in self.weights:
            q, k = self.norm(q, p + "attn_q_norm"), self.norm(k, p + "attn_k_norm")
        q, k = self.rotate(q, layer), self.rotate(k, layer)
        scale = self.fact("attention.scale", 1 / math.sqrt(self.size))
        seen = self.seen(tokens, layer)
        rows = []
        for head in range(self.heads):
            kv_head = head // (self.heads // self.kv_heads)
            scores = q[:, head] @ k[:, kv_head].T * scale
            cap = self.fact("attn_logit_softcapping", 0)
            if cap:
                scores = np.tanh(scores / cap) * cap
            scores = np.where(seen, scores, -np.inf)
            weights = np.exp(scores - scores.max(-1, keepdims=True))
            weights /= weights.sum(-1, keepdims=True)
            rows.append(weights @ v[:, kv_head])
        return self.linear(np.concatenate(rows, -1), p + "attn_output")

    def mixture(self, h, p):
        """Each token goes through its likeliest experts."""
        logits = h @ self.weights[p + "ffn_gate_inp.weight"].T
        likely = np.exp(logits - logits.max(-1, keepdims=True))
        likely /= likely.sum(-1, keepdims=True)
        gate, up, down = (
            self.weights[f"{p}ffn_{part}_exps.weight"] for part in ("gate", "up", "down")
        )
        y = np.zeros_like(h)
        for token, row in enumerate(h):
            chosen = np.argsort(-likely[token])[: self.fact("expert_used_count")]
            weights = likely[token][chosen]
            if self.architecture != "qwen2moe":
                weights = weights / weights.sum()
            for expert, weight in zip(chosen, weights, strict=True):
                y[token] += weight * (
                    down[expert] @ (silu(gate[expert] @ row) * (up[expert] @ row))
                )
        if p + "ffn_up_shexp.weight" in self.weights:
            gated = silu(self.linear(h, p + "ffn_gate_shexp")) * self.linear(h, p + "ffn_up_shexp")
            share = h @ self.weights[p + "ffn_gate_inp_shexp.weight"].reshape(-1)
            y += self.linear(gated, p + "ffn_down_shexp") / (1 + np.exp(-share))[:, None]
        return y

    def feed_forward(self, h, layer):
        p = f"blk.{layer}."
        if p + "ffn_gate_inp.weight" in self.weights:
            return self.mixture(h, p)
        up = self.linear(h, p + "ffn_up")
        if self.architecture in ("gpt2", "starcoder2"):
            return self.linear(gelu(up), p + "ffn_down")
        if self.architecture == "phi3":
            gate, up = np.split(up, 2, axis=-1)
        else:
            gate = self.linear(h, p + "ffn_gate")
        gate = gelu(gate) if self.architecture.startswith("gemma") else silu(gate)
        return self.linear(gate * up, p + "ffn_down")

    def rows(self, tokens):
        """What the output matrix multiplies."""
        x = self.weights["token_embd.weight"][tokens]
        if self.architecture == "gpt2":
            x = x + self.weights["position_embd.weight"][: len(tokens)]
        if self.architecture.startswith("gemma"):
            x = x * math.sqrt(self.fact("embedding_length"))
        x = x * self.fact("embedding_scale", 1.0)
        residual = self.fact("residual_scale", 1.0)
        for layer in range(self.fact("block_count")):
            p = f"blk.{layer}."
            y = self.attention(self.norm(x, p + "attn_norm"), layer)
            if p + "post_attention_norm.weight" in self.weights:
                y = self.norm(y, p + "post_attention_norm")
            x = x + y * residual
            y = self.feed_forward(self.norm(x, p + "ffn_norm"), layer)
            if p + "post_ffw_norm.weight" in self.weights:
                y = self.norm(y, p + "post_ffw_norm")
            x = x + y * residual
        return self.norm(x, "output_norm")

    def logits(self, tokens):
        x = self.rows(tokens)
        output = "output" if "output.weight" in self.weights else "token_embd"
        logits = self.linear(x, output) / self.fact("logit_scale", 1.0)
        cap = self.fact("final_logit_softcapping", 0)
        return np.tanh(logits / cap) * cap if cap else logits


def silu(x):
    return x / (1 + np.exp(-x))


def gelu(x):
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


def log_probabilities(path, tokens):
    logits = Model(path).logits(np.asarray(tokens))
    most = logits.max(-1, keepdims=True)
    return logits - most - np.log(np.exp(logits - most).sum(-1, keepdims=True))
