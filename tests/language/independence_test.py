"""A text is the same alone and among 31 others, whatever type the weights have."""

import json
import os
import tempfile
import threading
import unittest

import gguf
import make_model
import numpy as np
import quantize

from tests import unittest_xml
from tests.clients.daemon import Daemon

TYPES = (
    "F32 F16 BF16 Q4_0 Q4_1 Q5_0 Q5_1 Q8_0 Q2_K Q3_K Q4_K Q5_K Q6_K IQ4_NL IQ4_XS MXFP4"
).split()
OTHERS = 31


def prompt(seed, length):
    return np.random.default_rng(seed).integers(3, make_model.VOCABULARY, length).tolist()


class IndependenceTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR"))
        cls.addClassCleanup(folder.cleanup)
        # Rows of whole blocks of 256.
        make_model.WIDTH, make_model.FEED_FORWARD, make_model.HEAD_SIZE = 256, 512, 32
        known = gguf.quants.quantize
        gguf.quants.quantize = lambda values, dtype: (
            known if dtype.name in ("F16", "BF16") else quantize.quantize
        )(values, dtype)
        models = []
        for name in TYPES:
            path = os.path.join(folder.name, name.lower() + ".gguf")
            make_model.make(path, "llama", dtype=gguf.GGMLQuantizationType[name])
            models.append(f"{name}={path}")
        cls.daemon = Daemon(models)
        cls.addClassCleanup(cls.daemon.stop)

    def complete(self, model, tokens, seed, temperature, count):
        body = {
            "model": model,
            "prompt": tokens,
            "max_tokens": count,
            "temperature": temperature,
            "seed": seed,
            "logprobs": 3,
            "ignore_eos": True,
        }
        headers = {"Content-Type": "application/json"}
        status, _, answer = self.daemon.request(
            "POST", "/v1/completions", json.dumps(body), headers
        )
        self.assertEqual(status, 200, answer)
        choice = json.loads(answer)["choices"][0]
        return choice["text"], choice["logprobs"]

    def test_a_text_is_the_same_alone_and_among_others(self):
        for model in TYPES:
            for temperature in (0, 0.9):
                with self.subTest(model=model, temperature=temperature):
                    ask = lambda: self.complete(model, prompt(1, 37), 7, temperature, 20)
                    alone = ask()
                    others = [
                        threading.Thread(
                            target=self.complete,
                            args=(model, prompt(100 + i, 5 + 3 * i), i, temperature, 80),
                        )
                        for i in range(OTHERS)
                    ]
                    for other in others:
                        other.start()
                    among = ask()
                    self.assertTrue(any(other.is_alive() for other in others))
                    for other in others:
                        other.join()
                    self.assertEqual(alone, among)


if __name__ == "__main__":
    unittest_xml.main()
