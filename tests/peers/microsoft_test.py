"""Operators of com.microsoft, one model each, beside onnxruntime: codes within one, reals within
rounding."""

import os
import subprocess
import tempfile
import unittest

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

from tests import unittest_xml

STAMPMILL = os.path.abspath("server/stampmill")
FOLDER = tempfile.mkdtemp(prefix="microsoft_", dir=os.environ.get("TEST_TMPDIR"))
RANDOM = np.random.default_rng(7)


def codes(dtype, *shape):
    limits = np.iinfo(dtype)
    return RANDOM.integers(limits.min, limits.max + 1, shape).astype(dtype)


def reals(*shape):
    return RANDOM.uniform(-2, 2, shape).astype(np.float32)


def scale(value):
    return np.float32(value)


def case(op_type, inputs, outputs=1, tolerance=1e-4, **attributes):
    return op_type, inputs, outputs, tolerance, attributes


def quantised_cases(dtype):
    zero = dtype(101 if dtype == np.uint8 else -7)
    x, y = codes(dtype, 2, 3, 8, 6), codes(dtype, 2, 3, 8, 6)
    to = [scale(0.0331), zero]
    pair = [x, scale(0.0217), zero, y, scale(0.0173), dtype(5)]
    unary = [x, scale(0.0217), zero]
    yield case("QLinearAdd", pair + to)
    yield case("QLinearMul", pair + to)
    yield case("QLinearAdd", pair[:3] + [codes(dtype, 3, 1, 1), scale(0.011), zero] + to)
    yield case("QLinearSigmoid", unary + [scale(1 / 256), dtype(0)])
    yield case("QLinearLeakyRelu", unary + to, alpha=0.1)
    yield case("QLinearGlobalAveragePool", unary + to)
    yield case(
        "QLinearAveragePool", unary + to, kernel_shape=[3, 2], strides=[2, 1], pads=[1, 0, 1, 1]
    )
    yield case("QLinearConcat", to + pair, axis=1)
    yield case(
        "QLinearWhere", [RANDOM.integers(0, 2, (2, 3, 8, 6)).astype(bool)] + pair + to
    )
    rows = codes(dtype, 5, 12)
    for opset in (11, 13):
        yield case("QLinearSoftmax", [rows, scale(0.05), zero, scale(1 / 256), dtype(0)],
                   axis=1, opset=opset)
    b_scales = RANDOM.uniform(0.01, 0.02, 9).astype(np.float32)
    bias = RANDOM.integers(-900, 900, 9).astype(np.int32)
    yield case(
        "QGemm",
        [rows, scale(0.02), zero, codes(np.int8, 9, 12), b_scales, np.zeros(9, np.int8), bias,
         scale(0.21), zero],
        transB=1,
    )
    yield case("QGemm", [rows, scale(0.02), zero, codes(np.int8, 12, 9), scale(0.01), np.int8(0)])


def float_cases():
    x, weights = reals(2, 5, 12), codes(np.int8, 12, 9)
    scales = RANDOM.uniform(0.01, 0.02, 9).astype(np.float32)
    yield case("DynamicQuantizeMatMul", [x, weights, scales, None, reals(9)], tolerance=1e-3)
    yield case(
        "DynamicQuantizeMatMul", [x, codes(np.uint8, 12, 9), scale(0.01), np.uint8(120)],
        tolerance=1e-3,
    )
    yield case(
        "MatMulIntegerToFloat",
        [codes(np.uint8, 5, 12), weights, scale(0.02), scales, np.uint8(99), None, reals(9)],
    )
    for a, b in ((0, 0), (1, 0), (0, 1), (1, 1)):
        yield case(
            "FusedMatMul",
            [reals(2, *((12, 5) if a else (5, 12))), reals(2, *((9, 12) if b else (12, 9)))],
            transA=a, transB=b, alpha=0.125,
        )
    yield case(
        "FusedConv", [reals(1, 3, 8, 8), reals(4, 3, 3, 3), reals(4)],
        activation="LeakyRelu", activation_params=[0.2], pads=[1, 1, 1, 1],
    )
    yield case("Gelu", [x])
    yield case("BiasGelu", [x, reals(12)])
    yield case("FastGelu", [x, reals(12)])
    yield case("QuickGelu", [x], alpha=1.5)
    yield case("SkipLayerNormalization", [x, reals(2, 5, 12), reals(12), reals(12), reals(12)],
               epsilon=1e-5)


def make_model(op_type, inputs, outputs, attributes):
    """The first input comes with requests, the others are constants."""
    names = ["" if value is None else "i%d" % n for n, value in enumerate(inputs)]
    results = ["out%d" % n for n in range(outputs)]
    node = helper.make_node(op_type, names, results, domain="com.microsoft", **attributes)
    fed = next(n for n, value in enumerate(inputs) if value is not None and np.ndim(value) > 0)
    graph = helper.make_graph(
        [node],
        op_type,
        [helper.make_tensor_value_info(
            names[fed], helper.np_dtype_to_tensor_dtype(inputs[fed].dtype), inputs[fed].shape)],
        [helper.make_tensor_value_info(name, TensorProto.UNDEFINED, None) for name in results],
        [numpy_helper.from_array(np.asarray(value), names[n])
         for n, value in enumerate(inputs) if value is not None and n != fed],
    )
    for output in graph.output:
        output.ClearField("type")
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=9), names[fed], inputs[fed]


class MicrosoftTest(unittest.TestCase):
    def check(self, op_type, inputs, outputs, tolerance, attributes):
        model, name, fed = make_model(op_type, inputs, outputs, attributes)
        with tempfile.TemporaryDirectory(dir=FOLDER) as folder:
            path, file = os.path.join(folder, "model.onnx"), os.path.join(folder, "fed.npy")
            onnx.save(model, path)
            np.save(file, fed)
            done = subprocess.run(
                [STAMPMILL, "run", path, "--cache-dir=" + os.path.join(FOLDER, "cache"),
                 "--output-dir=" + folder, "--input", "%s=%s" % (name, file)],
                capture_output=True, text=True,
            )
            self.assertEqual(done.returncode, 0, done.stderr)
            got = [np.load(os.path.join(folder, "out%d.npy" % n)) for n in range(outputs)]
        session = onnxruntime.InferenceSession(
            model.SerializeToString(), providers=["CPUExecutionProvider"])
        for actual, want in zip(got, session.run(None, {name: fed})):
            self.assertEqual((actual.dtype, actual.shape), (want.dtype, want.shape))
            error = np.abs(actual.astype(np.float64) - want.astype(np.float64)).max()
            self.assertLessEqual(error, 1 if want.dtype.kind in "iu" else tolerance)

    def check_all(self, cases):
        for number, one in enumerate(cases):
            with self.subTest("%d %s" % (number, one[0])):
                self.check(*one)

    def test_codes_without_sign_are_those_of_onnxruntime(self):
        self.check_all(quantised_cases(np.uint8))

    def test_codes_with_sign_are_those_of_onnxruntime(self):
        self.check_all(quantised_cases(np.int8))

    def test_reals_are_those_of_onnxruntime(self):
        self.check_all(float_cases())


if __name__ == "__main__":
    unittest_xml.main()
