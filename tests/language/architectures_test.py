"""Every architecture beside a float64 run of its weights: log-probabilities of all tokens."""

import os
import subprocess
import tempfile
import unittest

import gguf
import make_folder
import make_model
import numpy as np
import reference

from tests import unittest_xml

STAMPMILL = "server/stampmill"
ARCHITECTURES = (
    "gemma gemma2 gemma3 gpt2 granite llama mixtral phi3 qwen2 qwen2moe qwen3 qwen3moe smollm3 "
    "starcoder2"
).split()
BLOCK = 16


def inputs_of(tokens, vocabulary, states):
    """One step that computes all of `tokens`, in blocks of the cache that are in no order."""
    count = len(tokens)
    words = (vocabulary + 31) // 32
    blocks = (count + BLOCK - 1) // BLOCK
    i32 = np.int32
    inputs = {
        "tokens": np.array(tokens, i32),
        "positions": np.arange(count, dtype=i32),
        "sequences": np.zeros(count, i32),
        "tables": np.arange(blocks, dtype=i32)[None, ::-1].copy() + 1,
        "outputs": np.arange(count, dtype=i32),
        "reals": np.tile(np.array([0, 1, 0, 1, 1, 0, 0, 0], np.float32), (count, 1)),
        "integers": np.tile(np.array([0, -1, -1, 1], i32), (count, 1)),
        "seeds": np.zeros((count, 2), np.int64),
        "history_ends": np.zeros(count, i32),
        "history": np.zeros((0, 3), i32),
        "bias_ends": np.zeros(count, i32),
        "bias_tokens": np.zeros(0, i32),
        "bias_values": np.zeros(0, np.float32),
        "masks": np.zeros((0, words), i32),
        "ranks": np.arange(vocabulary, dtype=i32),
    }
    for name, shape in states.items():
        inputs[name] = np.zeros((blocks + 1, *shape), np.float16)
    return inputs


class ArchitecturesTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def ours(self, path, tokens, states, *flags):
        arguments = []
        for name, values in inputs_of(tokens, make_model.VOCABULARY, states).items():
            file = os.path.join(self.folder, name + ".npy")
            np.save(file, values)
            arguments += ["--input", f"{name}={file}"]
        cache = os.path.join(self.folder, "cache")
        command = [STAMPMILL, "run", path, "--cache-dir", cache, "--output-dir", self.folder]
        subprocess.run([*command, *arguments, *flags], check=True, capture_output=True)
        ids = np.load(os.path.join(self.folder, "top_tokens.npy"))
        told = np.load(os.path.join(self.folder, "top_logprobs.npy")).astype(np.float64)
        rows = np.full((len(tokens), make_model.VOCABULARY), np.nan)
        np.put_along_axis(rows, ids, told, 1)
        return rows

    def step(self, architecture, length):
        random = np.random.default_rng(5)
        tokens = random.integers(3, make_model.VOCABULARY, length).tolist()
        kv_heads = make_model.HEADS if architecture == "gpt2" else make_model.KV_HEADS
        states = {}
        for layer in range(make_model.LAYERS):
            states[f"keys.{layer}"] = (kv_heads, make_model.HEAD_SIZE, BLOCK)
            states[f"values.{layer}"] = (kv_heads, BLOCK, make_model.HEAD_SIZE)
        return tokens, states

    def error(self, architecture, *flags, length=40, as_folder=False, **options):
        path = os.path.join(self.folder, "model.gguf")
        if make_model.has_experts(architecture):
            # Of no token are two experts so nearly alike that rounding chooses between them.
            options = {"seed": 2, **options}
        make_model.make(path, architecture, **options)
        served = path
        if as_folder:
            make_folder.make(path, self.folder, architecture)
            served = os.path.join(self.folder, "config.json")
        tokens, states = self.step(architecture, length)
        want = reference.log_probabilities(path, tokens)
        return np.sqrt(np.mean((self.ours(served, tokens, states, *flags) - want) ** 2))

    def test_every_architecture_agrees_with_its_weights_in_float64(self):
        # What is left is the rounding of the cache to f16: llama.cpp's error is twice that.
        for architecture in ARCHITECTURES:
            with self.subTest(architecture):
                self.assertLess(self.error(architecture), 2.5e-3)

    def test_folders_of_hugging_face_are_the_same_models(self):
        for architecture in ARCHITECTURES:
            with self.subTest(architecture):
                self.assertLess(self.error(architecture, as_folder=True), 2.5e-3)

    def test_windows_shorter_than_the_prompt(self):
        for architecture in ("gemma2", "gemma3", "phi3"):
            with self.subTest(architecture):
                facts = {"attention.sliding_window": 7}
                self.assertLess(self.error(architecture, facts=facts), 2.5e-3)

    def test_code_without_wide_registers(self):
        self.assertLess(self.error("llama", "--cpu-isa=x86-64-v3"), 2.5e-3)
        self.assertLess(self.error("llama", "--cpu-isa=x86-64"), 2.5e-3)

    def test_quantised_weights(self):
        # Activations are rounded to bytes.
        make_model.WIDTH, make_model.FEED_FORWARD = 288, 320
        self.addCleanup(setattr, make_model, "WIDTH", 144)
        self.addCleanup(setattr, make_model, "FEED_FORWARD", 160)
        make_model.HEAD_SIZE = 32
        self.addCleanup(setattr, make_model, "HEAD_SIZE", 16)
        for dtype in (gguf.GGMLQuantizationType.Q8_0, gguf.GGMLQuantizationType.Q4_1):
            with self.subTest(dtype):
                self.assertLess(self.error("llama", dtype=dtype), 7e-2)

    def test_experts_give_a_token_the_same_whoever_else_chose_them(self):
        make_model.WIDTH, make_model.FEED_FORWARD, make_model.HEAD_SIZE = 288, 320, 32
        for name, value in (("WIDTH", 144), ("FEED_FORWARD", 160), ("HEAD_SIZE", 16)):
            self.addCleanup(setattr, make_model, name, value)
        path = os.path.join(self.folder, "model.gguf")
        quantised = gguf.GGMLQuantizationType.Q8_0
        for dtype in (gguf.GGMLQuantizationType.F32, quantised):
            with self.subTest(dtype):
                self.assertLess(
                    self.error("qwen2moe", dtype=dtype), 9e-2 if dtype == quantised else 2.5e-3
                )
                tokens, states = self.step("qwen2moe", 40)
                together = self.ours(path, tokens, states)
                for count in (1, 17):
                    alone = self.ours(path, tokens[:count], states)
                    self.assertTrue((together[:count] == alone).all())


if __name__ == "__main__":
    unittest_xml.main()
