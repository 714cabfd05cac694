"""Quantised and fp16 conversions of real models, made here.

What rounds to codes on the way is compared with Stampmill's own plain-loop reference, within one
code of the output: onnxruntime rounds elsewhere, and a code that differs early moves all that
follow. Dynamically quantised models and fp16 are compared with onnxruntime.
"""

import os
import subprocess
import tempfile
import unittest

import numpy as np
import onnx

import contenders
import convert
import zoo

from tests import unittest_xml

STAMPMILL = os.path.abspath("server/stampmill")
FOLDER = tempfile.mkdtemp(prefix="conversions_", dir=os.environ.get("TEST_TMPDIR"))
MODELS = "resnet,ocr-cls,minilm3"


def size_of_a_code(path, output):
    """The scale by which the output is dequantised; None where that is not the last thing done."""
    graph = onnx.load(path).graph
    producers = {name: node for node in graph.node for name in node.output}
    constants = {tensor.name: tensor for tensor in graph.initializer}
    while output in producers:
        node = producers[output]
        if node.op_type == "DequantizeLinear":
            return float(onnx.numpy_helper.to_array(constants[node.input[1]]).max())
        if node.op_type not in ("Reshape", "Transpose", "Squeeze", "Flatten", "Identity"):
            return None
        output = node.input[0]
    return None


class ConversionsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cache = contenders.Cache()

    def for_each_case(self, kind, check, batches=(1, 8)):
        for model in zoo.models(MODELS):
            path = convert.converted(model, kind, FOLDER)
            for batch in batches:
                with self.subTest(model=model.name, batch=batch):
                    check(path, model.inputs(batch))

    def check_against_reference(self, path, feed):
        with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
            command = [STAMPMILL, "run", path, self.cache.flag, "--verify"]
            for index, (name, value) in enumerate(feed.items()):
                file = os.path.join(folder, "in%d.npy" % index)
                np.save(file, value)
                command += ["--input", "%s=%s" % (name, file)]
            done = subprocess.run(command, capture_output=True, text=True)
        said = done.stdout + done.stderr
        self.assertIn("max error", said)
        rows = [line.split() for line in done.stdout.split("differing\n")[1].splitlines()]
        for output, agrees, error, *_ in filter(None, rows):
            code = size_of_a_code(path, output)
            if code is None:
                self.assertEqual(agrees, "yes", said)
            else:
                self.assertLessEqual(float(error), code * 1.01, said)

    def check_against_onnxruntime(self, path, feed, tolerance):
        session = contenders.onnx_session(path, optimise=False)
        names = [output.name for output in session.get_outputs()]
        run = contenders.ModelRun(STAMPMILL, path, feed, self.cache)
        run()
        for name, got, want in zip(names, run.outputs(names), session.run(None, feed)):
            self.assertEqual((got.dtype, got.shape), (want.dtype, want.shape), name)
            error = np.abs(got.astype(np.float64) - want).max()
            self.assertLessEqual(error, tolerance * np.abs(want).max(), name)

    # The reference takes its time: one request.
    def test_qdq_models_round_as_the_reference_does(self):
        self.for_each_case("QDQ", self.check_against_reference, (1,))

    def test_qoperator_models_round_as_the_reference_does(self):
        self.for_each_case("QOperator", self.check_against_reference, (1,))

    def test_dynamically_quantised_models_agree_with_onnxruntime(self):
        self.for_each_case("dynamic", lambda *c: self.check_against_onnxruntime(*c, 5e-2))

    def test_fp16_models_agree_with_onnxruntime(self):
        self.for_each_case("fp16", lambda *c: self.check_against_onnxruntime(*c, 1e-2))


if __name__ == "__main__":
    unittest_xml.main()
