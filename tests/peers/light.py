"""The light models of the onnx package, with weights.

They are nine classical nets for images whose weights the package replaced by constants of a shape,
so that what they answer is flat. Here each such constant is drawn at random from a seed, scaled so
that the values of no layer vanish or overflow.
"""

import glob
import os

import numpy as np
import onnx
from onnx import helper, numpy_helper

import zoo

_FOLDER = os.path.join(os.path.dirname(onnx.__file__), "backend/test/data/light")
_PREFIX = "light_"


def names():
    files = glob.glob(os.path.join(_FOLDER, _PREFIX + "*.onnx"))
    return sorted(os.path.basename(file)[len(_PREFIX) : -len(".onnx")] for file in files)


def _weights(rng, shape, is_variance):
    fan_in = max(1, int(np.prod(shape[1:])))
    scale = np.sqrt(2 / fan_in) if len(shape) > 1 else 0.1
    values = rng.standard_normal(shape, dtype=np.float32) * np.float32(scale)
    return np.abs(values) + np.float32(0.5) if is_variance else values


def write(name, folder):
    """Writes the model with weights into the folder; a zoo.Model."""
    model = onnx.load(os.path.join(_FOLDER, _PREFIX + name + ".onnx"))
    graph, rng = model.graph, np.random.default_rng(1)
    shapes = {tensor.name: numpy_helper.to_array(tensor) for tensor in graph.initializer}
    variances = {node.input[4] for node in graph.node if node.op_type == "BatchNormalization"}
    drawn = [
        node for node in graph.node if node.op_type == "ConstantOfShape" and node.input[0] in shapes
    ]
    assert drawn, name + " has no constants to replace"
    for node in drawn:
        output = node.output[0]
        values = _weights(rng, [int(n) for n in shapes[node.input[0]]], output in variances)
        graph.initializer.append(numpy_helper.from_array(values, output))
        graph.node.remove(node)
    last = graph.node[-1]
    if last.op_type == "Softmax":
        # Of a thousand probabilities each is small beside what is allowed: ask for the scores too.
        scores = helper.make_tensor_value_info(last.input[0], onnx.TensorProto.FLOAT, None)
        graph.output.append(scores)
    path = os.path.join(folder, name + ".onnx")
    onnx.save(model, path)
    given = {tensor.name for tensor in graph.initializer}
    (image,) = [info for info in graph.input if info.name not in given]
    shape = [dim.dim_value for dim in image.type.tensor_type.shape.dim]
    pixels = np.random.default_rng(0).random(shape, dtype=np.float32)
    return zoo.Model("light-" + name, path, lambda batch: {image.name: pixels}, batches=(1,))
