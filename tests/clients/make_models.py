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
