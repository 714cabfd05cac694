"""Writes the small models that the client tests serve: make_models.py FOLDER."""

import os
import sys

import numpy
import onnx
from onnx import TensorProto, helper, numpy_helper


def save(folder, name, nodes, inputs, outputs, constants=()):
    def value(entry):
        return helper.make_tensor_value_info(*entry)

    graph = helper.make_graph(
        nodes,
        name,
        [value(entry) for entry in inputs],
        [value(entry) for entry in outputs],
        [numpy_helper.from_array(array, label) for label, array in constants],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, os.path.join(folder, name + ".onnx"))


def save_detector(folder):
    """The tail of a detector: of columns with 4 corners and the scores of 2 classes, those that are
    left when boxes that overlap are suppressed. How many that is depends on the data."""
    float_type = TensorProto.FLOAT
    save(
        folder,
        "detector",
        [
            helper.make_node("Transpose", ["IN"], ["columns"], perm=[0, 2, 1]),
            helper.make_node("Slice", ["columns", "zero", "four", "two"], ["boxes"]),
            helper.make_node("Slice", ["IN", "four", "six", "one"], ["scores"]),
            helper.make_node(
                "NonMaxSuppression", ["boxes", "scores", "most", "overlap", "least"], ["FOUND"]
            ),
            helper.make_node("Gather", ["FOUND", "two_of_two"], ["places"], axis=1),
            helper.make_node("Squeeze", ["boxes", "zero"], ["list"]),
            helper.make_node("Gather", ["list", "places"], ["BOXES"]),
        ],
        [("IN", float_type, [1, 6, "K"])],
        [("FOUND", TensorProto.INT64, ["F", 3]), ("BOXES", float_type, ["F", 4])],
        [
            ("zero", numpy.array([0])),
            ("one", numpy.array([1])),
            ("two", numpy.array([2])),
            ("four", numpy.array([4])),
            ("six", numpy.array([6])),
            ("two_of_two", numpy.array(2)),
            ("most", numpy.array([100])),
            ("overlap", numpy.array([0.5], numpy.float32)),
            ("least", numpy.array([0.25], numpy.float32)),
        ],
    )


def main(folder):
    float_type, int_type = TensorProto.FLOAT, TensorProto.INT32
    # OUT = 2 * IN + 1
    save(
        folder,
        "affine",
        [
            helper.make_node("Mul", ["IN", "two"], ["m"]),
            helper.make_node("Add", ["m", "one"], ["OUT"]),
        ],
        [("IN", float_type, ["N", 4])],
        [("OUT", float_type, ["N", 4])],
        [("two", numpy.array(2, numpy.float32)), ("one", numpy.array(1, numpy.float32))],
    )
    # SUM = A + B, DIFF = A - B
    save(
        folder,
        "pair",
        [
            helper.make_node("Add", ["A", "B"], ["SUM"]),
            helper.make_node("Sub", ["A", "B"], ["DIFF"]),
        ],
        [("A", int_type, ["N", 4]), ("B", int_type, ["N", 4])],
        [("SUM", int_type, ["N", 4]), ("DIFF", int_type, ["N", 4])],
    )
    # OUT = -IN, any width
    save(
        folder,
        "wide",
        [helper.make_node("Neg", ["IN"], ["OUT"])],
        [("IN", float_type, ["N", "S"])],
        [("OUT", float_type, ["N", "S"])],
    )
    save_detector(folder)
    # Long enough to be caught at work: a chain of products of one matrix.
    nodes, last = [], "IN"
    for i in range(12):
        nodes.append(helper.make_node("MatMul", [last, "IN"], ["m%d" % i]))
        nodes.append(helper.make_node("Mul", ["m%d" % i, "scale"], ["s%d" % i]))
        last = "s%d" % i
    nodes.append(helper.make_node("Identity", [last], ["OUT"]))
    save(
        folder,
        "slow",
        nodes,
        [("IN", float_type, ["S", "S"])],
        [("OUT", float_type, ["S", "S"])],
        [("scale", numpy.array(1e-3, numpy.float32))],
    )


if __name__ == "__main__":
    main(sys.argv[1])
