"""Random cases of reductions, products, normalisations and quantisation."""

import numpy as np

from random_ops.draw import (
    BF16,
    F16,
    F32,
    F64,
    FLOATS,
    I8,
    I16,
    I32,
    I64,
    NEWEST,
    NUMBERS,
    U8,
    U16,
    U32,
    U64,
    Case,
    ints,
    type_of,
)

SUMS = [F32, F64, F16, BF16, I32, I64]
REDUCTIONS = {
    **dict.fromkeys(["ReduceSum", "ReduceProd", "ReduceL1", "ReduceSumSquare"], SUMS),
    **dict.fromkeys(["ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceMean"], FLOATS),
    **dict.fromkeys(["ReduceMax", "ReduceMin"], [F32, F64, F16, I32, I64, I8, U8]),
}


def reduce(draw):
    op = draw.choice(sorted(REDUCTIONS))
    dtype = draw.dtype(REDUCTIONS[op])
    shape = draw.shape(0, 5)
    # Of a sum of integers that overflows nothing is said.
    special = 0 if op in ("ReduceMax", "ReduceMin") or dtype.kind in "iu" else 0.05
    data = draw.array(dtype, shape, 1, special)
    if op == "ReduceLogSum":
        data = np.abs(data)
    attributes = draw.some({"keepdims": draw.integer(0, 1)})
    attributes |= draw.some({"noop_with_empty_axes": draw.integer(0, 1)})
    axes = ints(*draw.axes(len(shape))) if draw.chance(0.75) else None
    opset = 13 if op == "ReduceSum" else 20 if op in ("ReduceMax", "ReduceMin") else 18
    return Case(op, [data, axes], attributes, opsets=(opset, NEWEST))


def softmax(draw):
    shape = draw.shape(1, 4)
    op = draw.choice(["Softmax", "LogSoftmax", "Hardmax"])
    attributes = {"axis": draw.axis(len(shape))} if draw.chance(0.8) else {}
    data = draw.array(draw.dtype(FLOATS), shape, draw.choice([1, 30]), 0)
    # Before opset 13 all axes from that one on are one row.
    opsets = (11, 12) if draw.chance(0.25) else (13, NEWEST)
    if opsets[0] == 11 and data.dtype == BF16:
        data = data.astype(F32)
    return Case(op, [data], attributes, opsets=opsets)


def cumulate(draw):
    shape = draw.shape(1, 4)
    dtype = draw.dtype([F32, F64, I32, I64, U32, U64, F16])
    op = "CumSum" if draw.chance(0.7) else "CumProd"
    attributes = draw.some({"exclusive": draw.integer(0, 1), "reverse": draw.integer(0, 1)})
    axis = np.array(draw.axis(len(shape)), draw.choice([I32, I64]))
    inputs = [draw.array(dtype, shape, 1, 0), axis]
    return Case(op, inputs, attributes, opsets=(14 if op == "CumSum" else 26, NEWEST))


def matmul_shapes(draw):
    batch = draw.shape(0, 2)
    m, k, n = draw.extent(), draw.extent(), draw.extent()
    left = draw.broadcast(batch) + [m, k]
    right = draw.broadcast(batch) + [k, n]
    what = draw.rng.random()
    if what < 0.1:
        left = [k]
    elif what < 0.2:
        right = [k]
    return left, right


def matmul(draw):
    left, right = matmul_shapes(draw)
    dtype = draw.dtype([F32, F64, F16, BF16, I32, I64, U32, U64])
    inputs = [draw.array(dtype, left, 1, 0), draw.array(dtype, right, 1, 0)]
    return Case("MatMul", inputs)


def gemm(draw):
    m, k, n = draw.extent(), draw.extent(1), draw.extent()
    attributes = draw.some({"transA": draw.integer(0, 1), "transB": draw.integer(0, 1)})
    attributes |= draw.some(
        {"alpha": draw.choice([0.0, 0.5, -2.0]), "beta": draw.choice([0.0, 2.0])}
    )
    dtype = draw.dtype([F32, F64, F16, I32, I64])
    if dtype in (I32, I64):
        # Of a fraction of an integer nothing is said.
        attributes = {name: v for name, v in attributes.items() if v != 0.5}
    left = [k, m] if attributes.get("transA") else [m, k]
    right = [n, k] if attributes.get("transB") else [k, n]
    inputs = [draw.array(dtype, left, 1, 0), draw.array(dtype, right, 1, 0)]
    if draw.chance(0.7):
        inputs.append(draw.array(dtype, draw.broadcast([m, n]), 1, 0))
    return Case("Gemm", inputs, attributes)


def einsum(draw):
    letters = list("ijklm")
    sizes = {letter: draw.extent() % 6 for letter in letters}
    ellipsis = draw.chance(0.25)
    batch = draw.shape(0, 2) if ellipsis else []
    terms, inputs = [], []
    dtype = draw.dtype([F32, F64, I32, I64])
    for _ in range(draw.integer(1, 3)):
        chosen = [draw.choice(letters) for _ in range(draw.integer(0 if ellipsis else 1, 3))]
        if draw.chance(0.9):
            chosen = list(dict.fromkeys(chosen))
        lead = draw.broadcast(batch) if ellipsis else []
        terms.append(("..." if ellipsis else "") + "".join(chosen))
        inputs.append(draw.array(dtype, lead + [sizes[letter] for letter in chosen], 1, 0))
    equation = ",".join(terms)
    used = list(dict.fromkeys(letter for letter in equation if letter in letters))
    if draw.chance(0.8):
        out = [used[i] for i in draw.rng.permutation(len(used))[: draw.integer(0, len(used))]]
        equation += "->" + ("..." if ellipsis else "") + "".join(out)
    if draw.chance(0.2):
        equation = equation.replace(",", " , ").replace("->", " -> ")
    return Case("Einsum", inputs, {"equation": equation}, opsets=(12, NEWEST))


def matmul_integer(draw):
    m, k, n = draw.extent(1), draw.extent(1), draw.extent(1)
    batch = draw.shape(0, 1, 1)
    left_type, right_type = draw.choice([U8, I8]), draw.choice([U8, I8])
    left, right = draw.broadcast(batch) + [m, k], draw.broadcast(batch) + [k, n]
    inputs = [draw.array(left_type, left, 60, 0.5), draw.array(right_type, right, 60, 0.5)]
    if draw.chance(0.7):
        inputs.append(draw.array(left_type, [], 20, 0.3))
        if draw.chance(0.7):
            per_column = draw.chance(0.4)
            inputs.append(draw.array(right_type, [n] if per_column else [], 20, 0.3))
    return Case("MatMulInteger", inputs, opsets=(10, NEWEST))


def scale(draw, shape=(), dtype=F32):
    return np.asarray(np.exp(draw.rng.normal(-2, 1, shape))).astype(dtype)


def qlinear_matmul(draw):
    m, k, n = draw.extent(1), draw.extent(1), draw.extent(1)
    types = [draw.choice([U8, I8]) for _ in range(2)]
    types.append(types[0])
    columns = [n] if draw.chance(0.3) else []
    a, b = draw.array(types[0], [m, k], 40, 0.3), draw.array(types[1], [k, n], 40, 0.3)
    inputs = [a, scale(draw), draw.array(types[0], [], 9, 0)]
    inputs += [b, scale(draw, columns), draw.array(types[1], columns, 9, 0)]
    inputs += [scale(draw) * 20, draw.array(types[2], [], 9, 0)]
    inputs[6] = inputs[6].astype(F32)
    return Case("QLinearMatMul", inputs, opsets=(10, NEWEST))


def quantized_shapes(draw):
    """(shape, shape of the scale, attributes): one scale, one for each row of an axis or block."""
    shape = draw.shape(1, 4, 1)
    kind = draw.choice(["tensor", "axis", "block"])
    if kind == "tensor":
        return shape, [] if draw.chance(0.7) else [1], {}
    axis = draw.axis(len(shape))
    if kind == "axis":
        return shape, [shape[axis]], {"axis": axis}
    block = draw.integer(1, shape[axis])
    scales = list(shape)
    scales[axis] = -(-shape[axis] // block)
    return shape, scales, {"axis": axis, "block_size": block}


def opset_of_blocks(attributes, dtype):
    if "block_size" in attributes or dtype in (I16, U16, BF16):
        return 21
    return 13 if attributes else 10


def quantize(draw):
    shape, scales, attributes = quantized_shapes(draw)
    dtype = draw.dtype([F32, F32, F16, BF16])
    target = draw.choice([U8, I8, I16, U16])
    # Divided by the scale it is to stay within f16.
    data = draw.array(dtype, shape, draw.choice([1, 30, 3000 if dtype != F16 else 100]), 0)
    inputs = [data, scale(draw, scales, dtype)]
    if draw.chance(0.8):
        inputs.append(draw.array(target, scales, 30, 0.3))
    elif draw.chance(0.5):
        attributes["output_dtype"] = type_of(target)
    least = 21 if dtype in (F16, BF16) or "output_dtype" in attributes else 10
    opset = max(least, opset_of_blocks(attributes, target), 19)
    return Case("QuantizeLinear", inputs, attributes, opsets=(opset, NEWEST))


def dequantize(draw):
    shape, scales, attributes = quantized_shapes(draw)
    source = draw.choice([U8, I8, I16, U16, I32])
    dtype = draw.dtype([F32, F32, F16, BF16])
    inputs = [draw.array(source, shape, 60, 0.3), scale(draw, scales, dtype)]
    if draw.chance(0.8):
        zero = np.zeros(scales, I32) if source == I32 else draw.array(source, scales, 30, 0.3)
        inputs.append(zero)
    opset = max(19, opset_of_blocks(attributes, source))
    return Case("DequantizeLinear", inputs, attributes, opsets=(opset, NEWEST))


def dynamic_quantize(draw):
    data = draw.array(F32, draw.shape(0, 4, 1), draw.choice([0.01, 3, 300]), 0)
    if draw.chance(0.2):
        data = np.abs(data)
    return Case("DynamicQuantizeLinear", [data], {}, 3, (11, NEWEST))


def channels(draw, high=5):
    shape = draw.shape(2, high, 1)
    return shape, shape[1]


def batch_norm(draw):
    shape, count = channels(draw)
    if draw.chance(0.1):
        shape, count = shape[:2], shape[1]
    dtype = draw.dtype([F32, F64, F16])
    inputs = [draw.array(dtype, shape, 1, 0)]
    inputs += [draw.array(dtype, [count], 1, 0) for _ in range(3)]
    inputs.append(np.abs(draw.array(dtype, [count], 1, 0)) + np.array(0.1, dtype))
    attributes = draw.some({"epsilon": 1e-3, "momentum": 0.5})
    return Case("BatchNormalization", inputs, attributes, opsets=(15, NEWEST))


def channel_norm(draw):
    shape, count = channels(draw)
    if len(shape) < 3:
        shape = shape + [draw.extent(1)]
    dtype = draw.dtype(FLOATS)
    attributes = draw.some({"epsilon": 1e-3})
    data = draw.array(dtype, shape, 1, 0)
    if draw.chance(0.5):
        inputs = [data] + [draw.array(dtype, [count], 1, 0) for _ in range(2)]
        return Case("InstanceNormalization", inputs, attributes, opsets=(22, NEWEST))
    attributes["num_groups"] = draw.choice([d for d in range(1, count + 1) if count % d == 0])
    inputs = [data] + [draw.array(dtype, [count], 1, 0) for _ in range(2)]
    return Case("GroupNormalization", inputs, attributes, opsets=(21, NEWEST))


def layer_norm(draw):
    shape = draw.shape(1, 4, 1)
    axis = draw.axis(len(shape))
    dtype = draw.dtype(FLOATS)
    attributes = ({"axis": axis} if axis != -1 or draw.chance(0.5) else {}) | draw.some(
        {"epsilon": 1e-3}
    )
    normalised = shape[axis % len(shape) :] if axis != -1 else shape[-1:]
    scales = draw.broadcast(normalised) if draw.chance(0.2) else normalised
    inputs = [draw.array(dtype, shape, 1, 0), draw.array(dtype, scales, 1, 0)]
    if draw.chance(0.4):
        return Case("RMSNormalization", inputs, attributes, opsets=(23, NEWEST))
    if draw.chance(0.7):
        inputs.append(draw.array(dtype, scales, 1, 0))
    outputs = draw.choice([1, 1, 3])
    return Case("LayerNormalization", inputs, attributes, outputs, (17, NEWEST))


def other_norm(draw):
    shape = draw.shape(1, 4, 1)
    what = draw.choice(["LpNormalization", "MeanVarianceNormalization", "LRN"])
    dtype = draw.dtype([F32, F64])
    if what == "LpNormalization":
        attributes = draw.some({"axis": draw.axis(len(shape)), "p": draw.integer(1, 2)})
        return Case(what, [draw.array(dtype, shape, 1, 0)], attributes, opsets=(13, NEWEST))
    shape = draw.shape(4, 4, 1)
    if what == "LRN":
        attributes = {"size": draw.integer(1, 7)} | draw.some(
            {"alpha": 0.1, "beta": 0.5, "bias": 2.0}
        )
        return Case(what, [draw.array(F32, shape, 1, 0)], attributes)
    axes = sorted({axis % 4 for axis in draw.axes(4)}) or [0, 2, 3]
    attributes = draw.some({"axes": axes})
    return Case(what, [draw.array(F32, shape, 1, 0)], attributes)


def det(draw):
    side = draw.integer(1, 5)
    data = draw.array(draw.dtype([F32, F64]), draw.shape(0, 2, 1) + [side, side], 1, 0)
    if draw.chance(0.2) and side > 1:
        data[..., 0, :] = 0
    return Case("Det", [data], opsets=(22, NEWEST))


GENERATORS = [
    (reduce, 6),
    (softmax, 2),
    (cumulate, 2),
    (matmul, 3),
    (gemm, 2),
    (einsum, 4),
    (matmul_integer, 2),
    (qlinear_matmul, 1),
    (quantize, 3),
    (dequantize, 2),
    (dynamic_quantize, 1),
    (batch_norm, 1),
    (channel_norm, 2),
    (layer_norm, 2),
    (other_norm, 2),
    (det, 1),
]
