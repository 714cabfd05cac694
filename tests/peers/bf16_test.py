"""--activation-precision=bf16: real models answer as in f32 but for the rounding, from half the
weights, on processors with BF16 instructions and as well without."""

import json
import os
import subprocess
import tempfile
import unittest

import numpy as np

import answers
import contenders
import convert
import zoo

from tests import unittest_xml

STAMPMILL = os.path.abspath("server/stampmill")
BF16 = "--activation-precision=bf16"
MODELS = "minilm3,resnet,ocr-cls"
TOLERANCE = 3e-2  # of the largest magnitude of an output


class Bf16Test(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cache = contenders.Cache()

    def outputs(self, path, feed, names, *flags):
        run = contenders.ModelRun(STAMPMILL, path, feed, self.cache, *flags)
        run()
        return run.outputs(names)

    def check(self, path, feed, *flags):
        session = contenders.onnx_session(path, optimise=False)
        names = [output.name for output in session.get_outputs()]
        want = session.run(None, feed)
        for name, got, expected in zip(names, self.outputs(path, feed, names, *flags), want):
            error, top1 = answers.compare(got, expected, TOLERANCE)
            self.assertLessEqual(error, 1, (name, flags))
            self.assertTrue(top1, (name, flags))

    def test_models_answer_within_the_rounding(self):
        for model in zoo.models(MODELS):
            for batch in (1, 8):
                feeds = [model.inputs(batch), answers.real_inputs(model.name, batch)]
                for feed in filter(None, feeds):
                    for isa in ([], ["--cpu-isa=x86-64-v3"]):
                        with self.subTest(model=model.name, batch=batch, isa=isa):
                            self.check(model.path, feed, BF16, *isa)

    def test_rows_of_a_batch_answer_as_alone(self):
        for model in zoo.models(MODELS):
            with self.subTest(model=model.name):
                names = [o.name for o in contenders.onnx_session(model.path, False).get_outputs()]
                feed = model.inputs(8)
                together = self.outputs(model.path, feed, names, BF16)
                for row in (0, 5):
                    alone = {name: value[row : row + 1] for name, value in feed.items()}
                    for got, rows in zip(self.outputs(model.path, alone, names, BF16), together):
                        np.testing.assert_array_equal(got[0], rows[row])

    def test_weights_take_two_bytes(self):
        def weight_bytes(path, *flags):
            command = [STAMPMILL, "inspect", path, "--json", *flags]
            return json.loads(subprocess.check_output(command))["weight_bytes"]

        # What only products read is halved; minilm3's tables of words, which are two thirds of it,
        # are f32 as long as the model has them so.
        shares = {"minilm3": 0.86, "resnet": 0.52, "ocr-cls": 0.6}
        with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as folder:
            for model in zoo.models(MODELS):
                whole = weight_bytes(model.path)
                half = convert.converted(model, "fp16", folder)
                with self.subTest(model=model.name):
                    self.assertLess(weight_bytes(model.path, BF16), shares[model.name] * whole)
                    self.assertLess(weight_bytes(half, BF16), min(shares[model.name], 0.6) * whole)
                    self.check(half, model.inputs(1), BF16)

    def test_the_cache_keeps_them_apart(self):
        (model,) = zoo.models("ocr-cls")
        names = [o.name for o in contenders.onnx_session(model.path, False).get_outputs()]
        feed = model.inputs(1)

        def run(*flags):
            return self.outputs(model.path, feed, names, *flags)[0].tobytes()

        plain, rounded = run(), run(BF16)
        self.assertNotEqual(plain, rounded)
        self.assertEqual(run("--activation-precision=f32", "--require-warm-cache"), plain)
        self.assertEqual(run(BF16, "--require-warm-cache"), rounded)
        listing = json.loads(
            subprocess.check_output([STAMPMILL, "cache", "list", "--json", self.cache.flag])
        )
        stem = os.path.splitext(os.path.basename(model.path))[0]
        options = {m["options"] for m in listing["models"] if m["name"] == stem}
        self.assertEqual(options, {"", "activation-precision=bf16"})

    def test_verify_knows_of_the_rounding(self):
        (model,) = zoo.models("ocr-cls")
        command = [STAMPMILL, "run", model.path, "--random-inputs", "--shape=x=1x3x48x192"]
        command += ["--verify", self.cache.flag, BF16]
        done = subprocess.run(command, capture_output=True, text=True)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest_xml.main()
