"""Models of one operator with random attributes, types and shapes, into a file for C++ tests.

    make_random.py OUTPUT [--seed=N] [--count=N] [--operators=A,B,...] [--first=N]

The file has the format of export.py. Case number N of a seed is always the same. Its outputs are
what onnxruntime computes with its optimisations off or, where that has no such operator or type,
onnx's reference evaluator; none where both refuse the model, or where exceptions.py says that they
are wrong. The name says which: "SEED/N OPERATOR opset V by ORACLE".
"""

import argparse
import struct
import warnings

import numpy as np
import onnx
from onnx import helper

import oracle
from export import string, value
from random_ops import draw as draws, elements, exceptions, movement, networks, sums, windows

FAMILIES = [
    (elements, 5),
    (movement, 6),
    (sums, 5),
    (windows, 6),
    (networks, 4),
]


def model_of(case, opset):
    names = ["" if array is None else "x%d" % i for i, array in enumerate(case.inputs)]
    infos = [
        helper.make_tensor_value_info(name, draws.type_of(array.dtype), array.shape)
        for name, array in zip(names, case.inputs)
        if name
    ]
    arguments = names[: len(names) - case.captured]
    while arguments and not arguments[-1]:
        arguments.pop()
    outputs = ["y%d" % i for i in range(case.outputs)]
    node = helper.make_node(case.op, arguments, outputs, **case.attributes)
    graph = helper.make_graph([node], "g", infos, [onnx.ValueInfoProto(name=o) for o in outputs])
    opsets = [helper.make_opsetid("", opset)]
    model = helper.make_model(graph, opset_imports=opsets)
    model.ir_version = helper.find_min_ir_version_for(opsets)
    try:
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True)
    except onnx.shape_inference.InferenceError:
        return model
    types = {info.name: info.type for info in inferred.graph.output}
    for output in model.graph.output:
        kind = types[output.name].tensor_type.elem_type or onnx.TensorProto.FLOAT
        output.CopyFrom(helper.make_tensor_value_info(output.name, kind, None))
    return model


def drawn(seed, number, operators):
    """Case `number` of the seed; None where it is none of those operators."""
    draw = draws.Draw([seed, number])
    family = draw.rng.choice(len(FAMILIES), p=probabilities(FAMILIES))
    generators = FAMILIES[family][0].GENERATORS
    case = generators[draw.rng.choice(len(generators), p=probabilities(generators))][0](draw)
    if operators and case.op not in operators:
        return None
    low, high = case.opsets
    opset = draw.choice([low, min(high, 21), high, draw.integer(low, high)])
    return case, model_of(case, max(low, opset))


def probabilities(weighted):
    weights = np.array([weight for _, weight in weighted], float)
    return weights / weights.sum()


def answers(case, model):
    """(oracle, outputs)."""
    converted = lambda outputs: outputs
    if case.equivalent:
        case, converted = case.equivalent
        model = model_of(case, model.opset_import[0].version)
    for name, answer in (
        ("onnxruntime", oracle.onnxruntime_answer),
        ("onnx", oracle.reference_answer),
    ):
        if exceptions.reason(name, case):
            continue
        outputs = answer(model, inputs_of(case))
        if outputs is not None and has_declared_types(model, outputs):
            return name, converted(outputs)
    return "none", []


def has_declared_types(model, outputs):
    """Not so where an oracle computes in a type of its own."""
    types = [info.type.tensor_type.elem_type for info in model.graph.output]
    return all(draws.type_of(np.asarray(v).dtype) == t for (_, v), t in zip(outputs, types))


def inputs_of(case):
    return {"x%d" % i: array for i, array in enumerate(case.inputs) if array is not None}


def record(name, model, inputs, outputs):
    text = model.SerializeToString()
    parts = [string(name), struct.pack("<Q", len(text)), text, struct.pack("<I", len(inputs))]
    parts += [value(input_name, array, "tensor_type") for input_name, array in inputs.items()]
    parts.append(struct.pack("<I", len(outputs)))
    parts += [value(output_name, array, "tensor_type") for output_name, array in outputs]
    return b"".join(parts)


def some_records(seed, numbers, operators):
    records = []
    for number in numbers:
        made = drawn(seed, number, operators)
        if made is None:
            continue
        case, model = made
        who, outputs = answers(case, model)
        name = "%d/%d %s opset %d by %s" % (
            seed,
            number,
            case.op,
            model.opset_import[0].version,
            who,
        )
        records.append(record(name, model, inputs_of(case), outputs))
    return records


# So many cases in one process: an oracle that crashes takes as many with it, one by one then.
CHUNK = 50


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("output")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=1500)
    parser.add_argument("--operators", default="")
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    operators = set(filter(None, arguments.operators.split(",")))
    records = []
    last = arguments.first + arguments.count
    for first in range(arguments.first, last, CHUNK):
        numbers = range(first, min(first + CHUNK, last))
        made = oracle.apart(some_records, arguments.seed, numbers, operators)
        if made is None:
            parts = [oracle.apart(some_records, arguments.seed, [n], operators) for n in numbers]
            made = sum(filter(None, parts), [])
        records += made
    with open(arguments.output, "wb") as out:
        out.write(b"NODETST1" + struct.pack("<I", len(records)) + b"".join(records))


if __name__ == "__main__":
    main()
