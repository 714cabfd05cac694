"""Corrupts models of the onnx package's node tests, one thing each, into a file for C++ tests.

    corrupt.py OUTPUT [--seed=N] [--count=N] [--oracle=none|onnxruntime]

The file has the format of export.py. A case is a node test with one attribute, type, dim, name or
constant of its model altered, chosen by the seed; its inputs have what the altered model declares.
With --oracle=onnxruntime its outputs are what onnxruntime computes with its optimisations off,
where it accepts the model at all; otherwise there are none.
"""

import argparse
import random
import struct
import sys

import numpy
import onnx
from onnx import AttributeProto, TensorProto, helper, numpy_helper
from onnx.backend.test.loader import load_model_tests

import oracle
from export import PLAIN, string, value

# Where a number may break something: signs, zero, limits of widths, and what makes sizes overflow.
NUMBERS = [0, 1, -1, 2, 3, 7, -2, 100, -100, 2**15, 2**31 - 1, -2**31, 2**40, 2**63 - 1, -2**63]
FLOATS = [0.0, -1.0, 1.0, 0.5, float("nan"), float("inf"), -float("inf"), 1e30, 1e-30]
TYPES = sorted(PLAIN)
ELEMENTS_MAX = 1 << 16


def alter_attribute(rng, model):
    node = rng.choice([n for n in model.graph.node if n.attribute])
    attribute = rng.choice(node.attribute)
    kind = attribute.type
    if rng.random() < 0.1:
        node.attribute.remove(attribute)
    elif kind == AttributeProto.INT:
        attribute.i = rng.choice(NUMBERS)
    elif kind == AttributeProto.FLOAT:
        attribute.f = rng.choice(FLOATS)
    elif kind == AttributeProto.STRING:
        attribute.s = rng.choice([b"", b"x", b"linear", b"max", attribute.s.upper()])
    elif kind == AttributeProto.INTS:
        ints = list(attribute.ints)
        del attribute.ints[:]
        what = rng.random()
        if what < 0.25:
            ints = ints[:-1]
        elif what < 0.5:
            ints.append(rng.choice(NUMBERS))
        elif ints:
            ints[rng.randrange(len(ints))] = rng.choice(NUMBERS)
        attribute.ints.extend(ints)
    elif kind == AttributeProto.FLOATS and attribute.floats:
        attribute.floats[rng.randrange(len(attribute.floats))] = rng.choice(FLOATS)
    else:
        attribute.CopyFrom(helper.make_attribute(attribute.name, rng.choice(NUMBERS)))
    return "%s.%s" % (node.op_type, attribute.name)


def alter_attribute_type(rng, model):
    node = rng.choice([n for n in model.graph.node if n.attribute])
    attribute = rng.choice(node.attribute)
    new = helper.make_attribute(attribute.name, rng.choice([1, 1.5, "text", [1, 2], [0.5]]))
    attribute.CopyFrom(new)
    return "%s.%s type" % (node.op_type, attribute.name)


def alter_type(rng, model):
    info = rng.choice(model.graph.input)
    info.type.tensor_type.elem_type = rng.choice(TYPES)
    return "type of input " + info.name


def alter_dim(rng, model):
    info = rng.choice(list(model.graph.input))
    dims = info.type.tensor_type.shape.dim
    what = rng.random()
    if what < 0.15 or not dims:
        dims.add().dim_value = rng.choice([0, 1, 2, 5])
    elif what < 0.3:
        del dims[rng.randrange(len(dims))]
    else:
        dims[rng.randrange(len(dims))].dim_value = rng.choice([0, 1, 2, 3, 4, 5, 7, 33])
    return "shape of input " + info.name


def alter_name(rng, model):
    node = rng.choice([n for n in model.graph.node if n.input])
    place = rng.randrange(len(node.input))
    names = [info.name for info in model.graph.input] + ["", "unknown"] + list(node.output)
    node.input[place] = rng.choice(names)
    return "%s input %d is '%s'" % (node.op_type, place, node.input[place])


def alter_inputs(rng, model):
    node = rng.choice([n for n in model.graph.node if n.input])
    if rng.random() < 0.5:
        del node.input[-1]
    else:
        node.input.append(rng.choice([info.name for info in model.graph.input]))
    return "%s has %d inputs" % (node.op_type, len(node.input))


def alter_outputs(rng, model):
    node = rng.choice(model.graph.node)
    what = rng.random()
    if what < 0.3:
        node.output.append("more")
    elif what < 0.6:
        node.output[rng.randrange(len(node.output))] = rng.choice(["", "other"])
    else:
        node.output.append(rng.choice([info.name for info in model.graph.input]))
    return "%s outputs" % node.op_type


def alter_declared(rng, model):
    info = rng.choice(model.graph.output)
    if rng.random() < 0.5:
        info.type.tensor_type.elem_type = rng.choice(TYPES)
    else:
        info.type.tensor_type.shape.dim.add().dim_value = 3
    return "declared output " + info.name


def alter_operator(rng, model):
    node = rng.choice(model.graph.node)
    node.op_type = rng.choice(["Conv", "Reshape", "Unknown", "Concat", "Slice", "Gather", "MatMul"])
    return "operator " + node.op_type


def alter_opset(rng, model):
    model.opset_import[0].version = rng.choice([0, 1, 7, 10, 13, 18, 22, 99])
    return "opset %d" % model.opset_import[0].version


ALTERATIONS = [
    (alter_attribute, 6), (alter_attribute_type, 1), (alter_type, 3), (alter_dim, 5),
    (alter_name, 2), (alter_inputs, 2), (alter_outputs, 1), (alter_declared, 1),
    (alter_operator, 1), (alter_opset, 1),
]


def fresh_input(rng, info, before):
    """What the altered model declares, with the contents from before where they still fit."""
    tensor_type = info.type.tensor_type
    shape = [dim.dim_value for dim in tensor_type.shape.dim]
    dtype = helper.tensor_dtype_to_np_dtype(tensor_type.elem_type)
    if before is not None and list(before.shape) == shape and before.dtype == dtype:
        array = before
    else:
        count = int(numpy.prod(shape, dtype=numpy.int64))
        if count > ELEMENTS_MAX:
            return None
        old = before.reshape(-1) if before is not None and before.size else numpy.zeros(1)
        array = numpy.resize(old, count).astype(dtype).reshape(shape)
    # Contents that say how much: indices, sizes, axes.
    if array.size and array.dtype.kind == "i" and array.size <= 16 and rng.random() < 0.2:
        array = array.copy()
        limits = numpy.iinfo(array.dtype)
        numbers = [n for n in NUMBERS if limits.min <= n <= limits.max]
        array.reshape(-1)[rng.randrange(array.size)] = rng.choice(numbers)
    return array


def altered(rng, case):
    """An altered copy of a case: its name, model and inputs; None where nothing can be altered."""
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    alteration = rng.choices([a for a, _ in ALTERATIONS], [w for _, w in ALTERATIONS])[0]
    try:
        what = alteration(rng, model)
    except IndexError:
        return None
    inputs = {}
    given = case.data_sets[0][0]
    for place, info in enumerate(model.graph.input):
        before = given[place] if place < len(given) else None
        if isinstance(before, TensorProto):
            before = numpy_helper.to_array(before)
        array = fresh_input(rng, info, None if before is None else numpy.asarray(before))
        if array is None:
            return None
        inputs[info.name] = array
    return "%s: %s" % (case.name, what), model, inputs


def is_plain(case):
    infos = list(case.model.graph.input) + list(case.model.graph.output)
    if any(info.type.WhichOneof("value") != "tensor_type" for info in infos):
        return False
    if any(info.type.tensor_type.elem_type not in PLAIN for info in infos):
        return False
    return all(data is not None and not isinstance(data, list) for data in case.data_sets[0][0])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("output")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--count", type=int, default=2000)
    parser.add_argument("--oracle", choices=["none", "onnxruntime"], default="none")
    arguments = parser.parse_args()
    rng = random.Random(arguments.seed)
    cases = [case for case in load_model_tests(kind="node") if is_plain(case)]
    cases.sort(key=lambda case: case.name)
    written = []
    while len(written) < arguments.count:
        made = altered(rng, rng.choice(cases))
        if made is None:
            continue
        name, model, inputs = made
        outputs = None
        if arguments.oracle == "onnxruntime":
            outputs = oracle.apart(oracle.onnxruntime_answer, model, inputs)
        text = model.SerializeToString()
        record = string("%d %s" % (len(written), name)) + struct.pack("<Q", len(text)) + text
        record += struct.pack("<I", len(inputs))
        for input_name, array in inputs.items():
            record += value(input_name, array, "tensor_type")
        record += struct.pack("<I", len(outputs or []))
        for output_name, array in outputs or []:
            contents = array if isinstance(array, numpy.ndarray) else []
            record += value(output_name, contents, "tensor_type")
        written.append(record)
    with open(arguments.output, "wb") as out:
        out.write(b"NODETST1" + struct.pack("<I", len(written)) + b"".join(written))


if __name__ == "__main__":
    main()
