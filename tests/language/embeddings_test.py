"""Embeddings over HTTP beside a float64 run of the weights, and beside llama.cpp."""

import json
import os
import subprocess
import tempfile
import unittest
import urllib.error
import urllib.request

import gguf
import make_encoder
import make_model
import numpy as np
import xllamacpp

from tests import unittest_xml
from tests.clients.daemon import STAMPMILL, Daemon

CASES = [
    *[(name, pooling) for name in ("bert", "nomic-bert") for pooling in ("mean", "cls", "last")],
    ("qwen3", "last"),
    ("llama", "mean"),
]
# Rounding of keys and values to f16, as of llama.cpp's activations.
ERROR_MAX = 4e-4


def texts():
    random = np.random.default_rng(3)
    lengths = (1, 5, 37, 120, 16, 17)
    return [random.integers(5, make_model.VOCABULARY, count).tolist() for count in lengths]


class EmbeddingsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        cls.addClassCleanup(folder.cleanup)
        cls.paths = {}
        for architecture, pooling in CASES:
            path = os.path.join(folder.name, f"{architecture}-{pooling}.gguf")
            cls.paths[f"{architecture}-{pooling}"] = path
            if "bert" in architecture:
                make_encoder.make(path, architecture, pooling)
            else:
                facts = {"pooling_type": make_encoder.POOLINGS[pooling]}
                make_model.make(path, architecture, facts=facts)
        for name, dtype in (
            ("q4", gguf.GGMLQuantizationType.Q4_0),
            ("f16", gguf.GGMLQuantizationType.F16),
        ):
            cls.paths[name] = os.path.join(folder.name, name + ".gguf")
            make_encoder.make(cls.paths[name], "bert", "mean", dtype=dtype)
        cls.paths["none"] = os.path.join(folder.name, "none.gguf")
        make_encoder.make(cls.paths["none"], "bert", "none")
        cls.rank = os.path.join(folder.name, "rank.gguf")
        make_encoder.make(cls.rank, "bert", "rank")
        cls.daemon = Daemon([f"{name}={path}" for name, path in cls.paths.items()])
        cls.addClassCleanup(cls.daemon.stop)

    def post(self, body, path="/v1/embeddings"):
        url = f"http://{self.daemon.http}{path}"
        request = urllib.request.Request(url, json.dumps(body).encode(), method="POST")
        try:
            with urllib.request.urlopen(request) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            self.assertEqual(400, error.code)
            return json.load(error)

    def ours(self, name, inputs):
        answer = self.post({"model": name, "input": inputs})
        self.assertEqual(list(range(len(inputs))), [row["index"] for row in answer["data"]])
        self.assertEqual(sum(map(len, inputs)), answer["usage"]["total_tokens"])
        return [np.array(row["embedding"]) for row in answer["data"]]

    def test_embeddings_agree_with_the_weights_in_float64(self):
        for name, path in self.paths.items():
            limit = 1e-2 if name == "q4" else ERROR_MAX
            if name == "none":
                continue
            for got, text in zip(self.ours(name, texts()), texts(), strict=True):
                with self.subTest(name, tokens=len(text)):
                    error = np.abs(got - make_encoder.embedding(path, text)).max()
                    self.assertLess(error, limit)
                    self.assertAlmostEqual(1, np.linalg.norm(got), places=5)

    def test_embeddings_agree_with_llama_cpp(self):
        for architecture, pooling in CASES:
            name = f"{architecture}-{pooling}"
            parameters = xllamacpp.CommonParams()
            parameters.model.path = self.paths[name]
            parameters.embedding = True
            parameters.warmup = False
            parameters.n_ctx = parameters.n_batch = parameters.n_ubatch = 512
            server = xllamacpp.Server(parameters)
            theirs = server.handle_embeddings({"input": texts()})
            if not isinstance(theirs, dict):
                theirs = json.loads(theirs)
            for got, row in zip(self.ours(name, texts()), theirs["data"], strict=True):
                with self.subTest(name):
                    self.assertLess(np.abs(got - np.array(row["embedding"])).max(), 1.5e-3)

    def test_a_text_has_the_same_embedding_alone_and_among_others(self):
        many = texts() * 12
        for name in ("bert-mean", "nomic-bert-cls", "qwen3-last", "q4", "f16"):
            together = self.ours(name, many)
            for text, got in zip(many[:6], together[-6:], strict=True):
                self.assertTrue((self.ours(name, [text])[0] == got).all(), name)

    def test_words_are_between_the_tokens_of_the_vocabulary(self):
        named = self.post({"model": "bert-mean", "input": "W7 w8"})
        tokens = self.post({"model": "bert-mean", "input": [2, 7, 8, 3]})
        self.assertEqual(tokens["data"], named["data"])
        told = self.post(
            {"model": "bert-mean", "content": "w7 w8", "add_special": True}, "/tokenize"
        )
        self.assertEqual([2, 7, 8, 3], told["tokens"])

    def test_what_cannot_be_is_refused_by_its_name(self):
        for body, words in (
            ({"input": [5] * 129}, ("129", "128")),
            ({"input": [[5], [make_model.VOCABULARY]]}, ("token", str(make_model.VOCABULARY))),
            ({"input": "w7", "dimensions": 5}, ("dimensions", str(make_model.WIDTH))),
            ({"input": []}, ("input",)),
            ({"input": ["w7", ""]}, ("input",)),
            ({"input": "w7", "encoding_format": "hex"}, ("encoding_format",)),
        ):
            message = self.post({"model": "bert-mean", **body})["error"]["message"]
            for word in words:
                self.assertIn(word, message)
        message = self.post({"model": "none", "input": "w7"})["error"]["message"]
        self.assertIn("pooling_type", message)
        message = self.post({"model": "bert-mean", "prompt": "w7"}, "/v1/completions")
        self.assertIn("embeddings", message["error"]["message"])

    def test_models_that_rank_are_refused_when_they_are_loaded(self):
        command = [STAMPMILL, "compile", self.rank, "--cache-dir", os.environ["TEST_TMPDIR"]]
        run = subprocess.run(command, capture_output=True, text=True)
        self.assertNotEqual(0, run.returncode)
        self.assertIn("pooling_type: got 4 (rank)", run.stderr)


if __name__ == "__main__":
    unittest_xml.main()
