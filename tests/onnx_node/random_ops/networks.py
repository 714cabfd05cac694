"""Random cases of recurrent operators, attention, signals and control flow."""

import numpy as np
import onnx
from onnx import helper

from random_ops.draw import (
    BOOL,
    F16,
    F32,
    F64,
    I32,
    I64,
    NEWEST,
    Case,
    ints,
    type_of,
)

PLAIN = ["Relu", "Tanh", "Sigmoid", "Softsign", "Softplus"]
WITH_NUMBERS = {"Affine": 2, "LeakyRelu": 1, "ThresholdedRelu": 1, "ScaledTanh": 2}
WITH_NUMBERS |= {"HardSigmoid": 2, "Elu": 1}


def recurrent(draw):
    op, gates = draw.choice([("RNN", 1), ("GRU", 3), ("LSTM", 4)])
    steps, batch = draw.integer(1, 6), draw.integer(1, 3)
    width, hidden = draw.integer(1, 5), draw.choice([1, 2, 3, 5, 8, 9])
    direction = draw.choice(["forward", "reverse", "bidirectional"])
    count = 2 if direction == "bidirectional" else 1
    layout = 1 if draw.chance(0.2) else 0
    dtype = draw.dtype([F32, F32, F64])

    def state():
        shape = [batch, count, hidden] if layout else [count, batch, hidden]
        return draw.array(dtype, shape, 1, 0) if draw.chance(0.5) else None

    shape = [batch, steps, width] if layout else [steps, batch, width]
    inputs = [draw.array(dtype, shape, 1, 0)]
    inputs += [draw.array(dtype, [count, gates * hidden, n], 1, 0) for n in (width, hidden)]
    bias = [count, 2 * gates * hidden]
    inputs.append(draw.array(dtype, bias, 1, 0) if draw.chance(0.6) else None)
    lengths = draw.rng.integers(1, steps + 1, batch)
    inputs.append(np.asarray(lengths, I32) if draw.chance(0.4) else None)
    inputs.append(state())
    if op == "LSTM":
        inputs.append(state())
        peepholes = draw.array(dtype, [count, 3 * hidden], 1, 0)
        inputs.append(peepholes if draw.chance(0.3) else None)
    attributes = {"hidden_size": hidden}
    if direction != "forward" or draw.chance(0.3):
        attributes["direction"] = direction
    if layout:
        attributes["layout"] = 1
    attributes |= draw.some({"clip": 0.7}) if draw.chance(0.3) else {}
    if op == "GRU":
        attributes |= draw.some({"linear_before_reset": draw.integer(0, 1)})
    if op == "LSTM" and draw.chance(0.2):
        attributes["input_forget"] = 1
    if draw.chance(0.4):
        kinds = {"RNN": 1, "GRU": 2, "LSTM": 3}[op] * count
        names = [draw.choice(PLAIN) for _ in range(kinds)]
        attributes["activations"] = names
        # Some have no bound: nothing may grow on its way round.
        for place in (1, 2):
            inputs[place] = (inputs[place] * 0.2).astype(dtype)
        if draw.chance(0.5):
            # Numbers belong to the activations in order; with some alone it is open to which.
            names = [draw.choice(sorted(WITH_NUMBERS))] * kinds
            attributes["activations"] = names
            attributes["activation_alpha"] = [0.4] * kinds
            if WITH_NUMBERS[names[0]] == 2:
                attributes["activation_beta"] = [0.6] * kinds
    outputs = {"RNN": 2, "GRU": 2, "LSTM": 3}[op]
    case = Case(op, inputs, attributes, outputs, (14, NEWEST))
    if layout:
        case.equivalent = batch_second(case)
    return case


def batch_second(case):
    """The same in the layout that onnxruntime has: a case, and its outputs in the other layout."""
    inputs = list(case.inputs)
    for place in (0, 5, 6):
        if place < len(inputs) and inputs[place] is not None:
            inputs[place] = np.ascontiguousarray(np.swapaxes(inputs[place], 0, 1))
    attributes = {name: value for name, value in case.attributes.items() if name != "layout"}

    def batch_first(outputs):
        orders = [(2, 0, 1, 3)] + [(1, 0, 2)] * (len(outputs) - 1)
        return [
            (name, np.ascontiguousarray(np.transpose(value, order)))
            for (name, value), order in zip(outputs, orders)
        ]

    return Case(case.op, inputs, attributes, case.outputs, case.opsets), batch_first


def attention(draw):
    batch, heads = draw.integer(1, 2), draw.choice([1, 2, 4])
    shared = draw.choice([d for d in (1, 2, 4) if heads % d == 0])
    queries, keys = draw.integer(1, 6), draw.integer(1, 6)
    width, value_width = draw.choice([2, 4, 8]), draw.choice([2, 4, 5])
    dtype = draw.dtype([F32, F32, F64, F16])
    is_flat = draw.chance(0.4)

    def heads_of(count, length, size):
        shape = [batch, length, count * size] if is_flat else [batch, count, length, size]
        return draw.array(dtype, shape, 1, 0)

    inputs = [heads_of(heads, queries, width), heads_of(shared, keys, width)]
    inputs.append(heads_of(shared, keys, value_width))
    past = draw.integer(1, 4) if draw.chance(0.3) else 0
    whole = keys + past
    mask = None
    if draw.chance(0.5):
        shape = draw.choice([[queries, whole], [1, 1, queries, whole], [batch, 1, queries, whole]])
        mask = draw.array(BOOL if draw.chance(0.5) else dtype, shape, 1, 0)
        if mask.dtype == BOOL:
            # A row with nothing to look at has no answer.
            mask[..., 0] = True
    inputs.append(mask)
    if past:
        inputs.append(draw.array(dtype, [batch, shared, past, width], 1, 0))
        inputs.append(draw.array(dtype, [batch, shared, past, value_width], 1, 0))
    attributes = {"q_num_heads": heads, "kv_num_heads": shared} if is_flat else {}
    attributes |= draw.some({"scale": 0.3, "softcap": 2.0}) if draw.chance(0.4) else {}
    attributes |= {"is_causal": 1} if draw.chance(0.3) else {}
    outputs = 3 if past else 1
    if draw.chance(0.2):
        outputs = 4 if past else 1
        attributes |= {"qk_matmul_output_mode": draw.integer(0, 3)} if outputs == 4 else {}
    return Case("Attention", inputs, attributes, outputs, (23, NEWEST))


def rotary(draw):
    batch, heads, length = draw.integer(1, 2), draw.integer(1, 3), draw.integer(1, 5)
    width = draw.choice([2, 4, 6, 8])
    turned = draw.choice([d for d in range(2, width + 1, 2)]) if draw.chance(0.4) else 0
    dtype = draw.dtype([F32, F32, F16])
    is_flat = draw.chance(0.4)
    shape = [batch, length, heads * width] if is_flat else [batch, heads, length, width]
    attributes = draw.some({"interleaved": draw.integer(0, 1)})
    if is_flat:
        attributes["num_heads"] = heads
    if turned:
        attributes["rotary_embedding_dim"] = turned
    half = (turned or width) // 2
    inputs = [draw.array(dtype, shape, 1, 0)]
    if draw.chance(0.5):
        most = length + 3
        inputs += [draw.array(dtype, [most, half], 1, 0) for _ in range(2)]
        inputs.append(np.asarray(draw.rng.integers(0, most, [batch, length]), I64))
    else:
        inputs += [draw.array(dtype, [batch, length, half], 1, 0) for _ in range(2)]
    return Case("RotaryEmbedding", inputs, attributes, opsets=(23, NEWEST))


def fourier(draw):
    shape = draw.shape(1, 3, 1)
    rank = len(shape) + 1
    axis = draw.integer(0, rank - 2)
    inverse, onesided = draw.integer(0, 1), 0
    parts = draw.choice([1, 2]) if not inverse else 2
    if parts == 1 and draw.chance(0.5):
        onesided = 1
    data = draw.array(draw.dtype([F32, F64]), shape + [parts], 1, 0)
    length = np.array(draw.integer(1, 9), I64) if draw.chance(0.4) else None
    attributes = {"onesided": onesided, "inverse": inverse}
    inputs = [data, length, np.array(axis - (rank if draw.chance(0.3) else 0), I64)]
    return Case("DFT", inputs, attributes, opsets=(20, NEWEST))


def stft(draw):
    frame, step = draw.integer(2, 8), draw.integer(1, 4)
    batch, length = draw.integer(1, 2), frame + draw.integer(0, 12)
    dtype = draw.dtype([F32, F64])
    inputs = [draw.array(dtype, [batch, length, 1], 1, 0), np.array(step, I64)]
    if draw.chance(0.7):
        inputs += [draw.array(dtype, [frame], 1, 0), np.array(frame, I64)]
    else:
        inputs += [None, np.array(frame, I64)]
    return Case("STFT", inputs, {"onesided": draw.integer(0, 1)}, opsets=(17, NEWEST))


def windows(draw):
    op = draw.choice(["HannWindow", "HammingWindow", "BlackmanWindow"])
    attributes = draw.some({"periodic": draw.integer(0, 1)})
    size = np.array(draw.integer(2, 20), draw.choice([I32, I64]))
    return Case(op, [size], attributes, opsets=(17, NEWEST))


def mel_weights(draw):
    bins, length = draw.integer(1, 6), draw.choice([8, 16, 33])
    rate = draw.choice([100, 8000, 16000])
    inputs = [np.array(bins, I64), np.array(length, I64), np.array(rate, I64)]
    inputs += [np.array(rate / 100, F32), np.array(rate / 2.5, F32)]
    return Case("MelWeightMatrix", inputs, opsets=(17, NEWEST))


class Body:
    """A graph of elementwise nodes over values of one type and shape."""

    def __init__(self, draw, prefix, values):
        self.draw, self.prefix = draw, prefix
        self.values, self.nodes = list(values), []

    def add(self, op, inputs):
        name = "%s_%d" % (self.prefix, len(self.nodes))
        self.nodes.append(helper.make_node(op, inputs, [name]))
        return name

    def grow(self, count):
        for _ in range(count):
            op = self.draw.choice(["Add", "Sub", "Mul", "Max", "Neg", "Abs", "Identity"])
            arity = 1 if op in ("Neg", "Abs", "Identity") else 2
            self.values.append(self.add(op, [self.draw.choice(self.values) for _ in range(arity)]))
        return self.values[-1]


def info(name, dtype, shape):
    return helper.make_tensor_value_info(name, type_of(dtype), shape)


def branches(draw):
    """If: bodies that read values from outside, one in another now and then."""
    dtype, shape = draw.choice([F32, I32]), draw.shape(0, 3)
    condition = np.array(draw.chance(0.5)).reshape([1] if draw.chance(0.3) else [])
    count = draw.integer(1, 2)

    def graph(name, depth):
        body = Body(draw, name, ["x1", "x2"])
        body.grow(draw.integer(0, 3))
        if depth and draw.chance(0.5):
            inner = name + "_inner"
            node = helper.make_node(
                "If",
                ["x0"],
                [inner],
                then_branch=graph(name + "t", 0)[0],
                else_branch=graph(name + "e", 0)[0],
            )
            body.nodes.append(node)
            body.values.append(inner)
        results = [body.add("Identity", [draw.choice(body.values)])]
        if depth:
            results += [body.add("Neg", [results[0]]) for _ in range(count - 1)]
        outputs = [info(result, dtype, shape) for result in results]
        return helper.make_graph(body.nodes, name, [], outputs), results

    attributes = {"then_branch": graph("then", 1)[0], "else_branch": graph("else", 1)[0]}
    inputs = [condition, draw.array(dtype, shape, 1, 0), draw.array(dtype, shape, 1, 0)]
    return Case("If", inputs, attributes, count, (16, NEWEST), captured=2)


def loop(draw):
    """Loop: carried values and scanned outputs; ends by number or by a condition."""
    dtype, shape = draw.choice([F32, I32]), draw.shape(0, 2)
    trips, carried = draw.integer(0, 5), draw.integer(1, 2)
    scans = draw.integer(0, 1)
    names = ["c%d" % i for i in range(carried)]
    body = Body(draw, "b", names + ["x%d" % (2 + carried)])
    body.grow(draw.integer(1, 3))
    if draw.chance(0.4):
        limit = helper.make_node("Constant", [], ["limit"], value_int=draw.integer(0, 4))
        body.nodes += [limit, helper.make_node("Less", ["i", "limit"], ["keep"])]
    else:
        body.nodes.append(helper.make_node("Identity", ["cond"], ["keep"]))
    results = [body.add("Identity", [draw.choice(body.values)]) for _ in range(carried + scans)]
    if draw.chance(0.3):
        # Something of the iteration itself.
        body.nodes.append(helper.make_node("Cast", ["i"], ["step"], to=type_of(dtype)))
        results[-1] = body.add("Add", [results[-1], "step"])
    inputs = [info("i", I64, []), info("cond", BOOL, [])]
    inputs += [info(name, dtype, shape) for name in names]
    outputs = [info("keep", BOOL, [])] + [info(name, dtype, shape) for name in results]
    attributes = {"body": helper.make_graph(body.nodes, "body", inputs, outputs)}
    given = [np.array(trips, I64), np.array(True) if draw.chance(0.5) else None]
    given += [draw.array(dtype, shape, 1, 0) for _ in range(carried + 1)]
    return Case("Loop", given, attributes, carried + scans, (16, NEWEST), captured=1)


def scan(draw):
    dtype, shape = draw.choice([F32, I32]), draw.shape(0, 2)
    states, scanned, made = draw.integer(1, 2), draw.integer(1, 2), draw.integer(1, 2)
    length = draw.integer(1, 5)
    names = ["s%d" % i for i in range(states)] + ["e%d" % i for i in range(scanned)]
    body = Body(draw, "b", names + ["x%d" % (states + scanned)])
    body.grow(draw.integer(1, 3))
    results = [body.add("Identity", [draw.choice(body.values)]) for _ in range(states + made)]
    inputs = [info(name, dtype, shape) for name in names]
    outputs = [info(name, dtype, shape) for name in results]
    attributes = {
        "body": helper.make_graph(body.nodes, "body", inputs, outputs),
        "num_scan_inputs": scanned,
    }
    axes = [draw.axis(len(shape) + 1) for _ in range(scanned)]
    if draw.chance(0.5):
        attributes["scan_input_axes"] = axes
    else:
        axes = [0] * scanned
    rank = len(shape) + 1
    attributes |= draw.some(
        {
            "scan_input_directions": [draw.integer(0, 1) for _ in range(scanned)],
            "scan_output_directions": [draw.integer(0, 1) for _ in range(made)],
            "scan_output_axes": [draw.axis(rank) for _ in range(made)],
        }
    )
    given = [draw.array(dtype, shape, 1, 0) for _ in range(states)]
    for axis in axes:
        whole = list(shape)
        whole.insert(axis % rank, length)
        given.append(draw.array(dtype, whole, 1, 0))
    given.append(draw.array(dtype, shape, 1, 0))
    return Case("Scan", given, attributes, states + made, (16, NEWEST), captured=1)


GENERATORS = [
    (recurrent, 6),
    (attention, 5),
    (rotary, 2),
    (fourier, 2),
    (stft, 1),
    (windows, 1),
    (mel_weights, 1),
    (branches, 2),
    (loop, 3),
    (scan, 3),
]
