"""Random cases of operators that work element by element."""

import numpy as np

from random_ops.draw import (
    ALL,
    BOOL,
    FLOATS,
    I64,
    INTEGERS,
    NEWEST,
    NUMBERS,
    SIGNED,
    UNSIGNED,
    Case,
    F16,
    F32,
    F64,
    BF16,
    type_of,
)

UNARY = {
    **dict.fromkeys(["Abs", "Neg", "Sign"], (FLOATS + SIGNED, 13)),
    **dict.fromkeys(["Ceil", "Floor", "Exp", "Log", "Sqrt", "Reciprocal"], (FLOATS, 13)),
    **dict.fromkeys(["Erf", "Sigmoid", "Tanh", "IsNaN"], (FLOATS, 13)),
    **dict.fromkeys(["Sin", "Cos", "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh"], (FLOATS, 22)),
    **dict.fromkeys(["Asinh", "Acosh", "Atanh", "Round"], (FLOATS, 22)),
    **dict.fromkeys(["Softplus", "Softsign", "Mish", "HardSwish"], (FLOATS, 22)),
    "Relu": (FLOATS + SIGNED, 14),
    "Not": ([BOOL], 7),
    "BitwiseNot": (INTEGERS, 18),
    "Identity": (ALL, 16),
}


def unary(draw):
    op = draw.choice(sorted(UNARY))
    dtypes, opset = UNARY[op]
    scale = draw.choice([0.3, 3, 30])
    inputs = [draw.array(draw.dtype(dtypes), draw.shape(), scale, 0.3)]
    return Case(op, inputs, opsets=(opset, NEWEST))


ACTIVATIONS = {
    "Elu": ("alpha",),
    "Selu": ("alpha", "gamma"),
    "Celu": ("alpha",),
    "LeakyRelu": ("alpha",),
    "ThresholdedRelu": ("alpha",),
    "HardSigmoid": ("alpha", "beta"),
    "Shrink": ("bias", "lambd"),
    "Swish": ("alpha",),
}


def activation(draw):
    op = draw.choice(sorted(ACTIVATIONS))
    dtypes, opset = FLOATS, {"LeakyRelu": 16, "Swish": 24, "Shrink": 9, "Celu": 12}.get(op, 22)
    if op == "Celu":
        dtypes = [F32]
    if op == "Shrink":
        dtypes = FLOATS[:3] + INTEGERS
    attributes = {name: round(float(draw.rng.normal()), 3) or 1.0 for name in ACTIVATIONS[op]}
    if op == "Celu":
        attributes = {name: abs(value) + 0.1 for name, value in attributes.items()}
    data = draw.array(draw.dtype(dtypes), draw.shape())
    return Case(op, [data], draw.some(attributes), opsets=(opset, NEWEST))


def gelu(draw):
    attributes = draw.some({"approximate": draw.choice(["none", "tanh"])})
    data = draw.array(draw.dtype(FLOATS), draw.shape())
    return Case("Gelu", [data], attributes, opsets=(20, NEWEST))


def is_inf(draw):
    attributes = draw.some({"detect_negative": draw.integer(0, 1)})
    attributes |= draw.some({"detect_positive": draw.integer(0, 1)})
    dtype = draw.dtype(FLOATS)
    return Case(
        "IsInf", [draw.array(dtype, draw.shape(), special=0.8)], attributes, opsets=(20, 28)
    )


def prelu(draw):
    shape = draw.shape()
    dtype = draw.dtype(FLOATS + [np.dtype("int32"), I64])
    slope = draw.broadcast(shape)
    return Case("PRelu", [draw.array(dtype, shape), draw.array(dtype, slope)], opsets=(16, NEWEST))


def clip(draw):
    dtype = draw.dtype(NUMBERS)
    inputs = [draw.array(dtype, draw.shape(), special=0.3)]
    inputs += [draw.array(dtype, [], 2, 0.05) if draw.chance(0.7) else None for _ in range(2)]
    return Case("Clip", inputs)


BINARY = {
    **dict.fromkeys(["Add", "Sub", "Mul", "Div"], (NUMBERS, 14)),
    **dict.fromkeys(["Less", "Greater"], (NUMBERS, 13)),
    **dict.fromkeys(["LessOrEqual", "GreaterOrEqual"], (NUMBERS, 16)),
    "Equal": (ALL, 19),
    **dict.fromkeys(["And", "Or", "Xor"], ([BOOL], 7)),
    **dict.fromkeys(["BitwiseAnd", "BitwiseOr", "BitwiseXor"], (INTEGERS, 18)),
}


def two_shapes(draw):
    shape = draw.shape()
    shapes = [shape, draw.broadcast(shape)]
    # Either may be the smaller one, dim by dim.
    first = [1 if extent != 1 and draw.chance(0.1) else extent for extent in shape]
    shapes[0] = first
    return shapes if draw.chance(0.5) else shapes[::-1]


def divisor(values):
    """No integer division by zero, nor of the least number by -1: neither has an answer."""
    if values.dtype.kind in "iu":
        values = np.where((values == 0) | (values == np.array(-1).astype(values.dtype)), 3, values)
        return np.asarray(values).astype(values.dtype)
    return values


def binary(draw):
    op = draw.choice(sorted(BINARY))
    dtypes, opset = BINARY[op]
    dtype = draw.dtype(dtypes)
    left, right = two_shapes(draw)
    draw_values = draw.ties if op == "Equal" or draw.chance(0.2) else draw.array
    inputs = [draw_values(dtype, left), draw_values(dtype, right)]
    if op == "Div" and dtype.kind in "iu":
        inputs[1] = divisor(inputs[1]).astype(dtype)
    return Case(op, inputs, opsets=(opset, NEWEST))


def mod(draw):
    dtype = draw.dtype([I64] + NUMBERS)
    left, right = two_shapes(draw)
    fmod = 1 if dtype.kind not in "iu" else draw.integer(0, 1)
    inputs = [draw.array(dtype, left), divisor(draw.array(dtype, right)).astype(dtype)]
    return Case("Mod", inputs, {"fmod": fmod} if fmod else draw.some({"fmod": 0}))


def power(draw):
    left, right = two_shapes(draw)
    base = draw.dtype([F32, F64, F16, np.dtype("int32"), I64])
    exponent = draw.dtype([F32, F64, np.dtype("int32"), I64])
    inputs = [draw.array(base, left), draw.array(exponent, right, 1)]
    if base.kind == "i":
        # Of a root of a negative number there is no integer.
        whole = np.abs(draw.array(np.dtype("int8"), right, 1, 0)).astype(exponent)
        inputs = [draw.array(base, left, 2, 0), np.asarray(whole)]
    return Case("Pow", inputs, opsets=(15, NEWEST))


def bit_shift(draw):
    dtype = draw.choice(UNSIGNED)
    left, right = two_shapes(draw)
    bits = dtype.itemsize * 8
    amount = draw.rng.integers(0, bits, right).astype(dtype)
    attributes = {"direction": draw.choice(["LEFT", "RIGHT"])}
    values = draw.array(dtype, left, special=0.8)
    return Case("BitShift", [values, np.asarray(amount, dtype)], attributes)


def variadic(draw):
    op = draw.choice(["Max", "Min", "Mean", "Sum"])
    dtype = draw.dtype(NUMBERS if op in ("Max", "Min") else FLOATS)
    shape = draw.shape()
    shapes = [draw.broadcast(shape) for _ in range(draw.integer(1, 4))]
    # Of a Max with NaN nothing is said.
    special = 0 if op in ("Max", "Min") and dtype.kind not in "iu" else 0.1
    return Case(op, [draw.array(dtype, s, special=special) for s in shapes])


def where(draw):
    shape = draw.shape()
    dtype = draw.dtype(ALL)
    shapes = [draw.broadcast(shape) for _ in range(3)]
    inputs = [draw.array(BOOL, shapes[0])] + [draw.array(dtype, s) for s in shapes[1:]]
    return Case("Where", inputs, opsets=(16, NEWEST))


def cast(draw):
    source, target = draw.choice(ALL), draw.choice(ALL)
    data = draw.array(source, draw.shape(), draw.choice([1, 100, 1e5]), 0.3)
    if source in FLOATS and target in INTEGERS:
        # What does not fit has no answer.
        limits = np.iinfo(target)
        wide = np.nan_to_num(data.astype(F64))
        data = np.clip(wide, limits.min / 2, limits.max / 2).astype(source)
        data = np.where(np.isinf(data.astype(F64)), np.array(1, source), data).astype(source)
    if draw.chance(0.3):
        like = draw.array(target, draw.shape(0, 2))
        return Case("CastLike", [data, like], opsets=(19, NEWEST))
    attributes = {"to": type_of(target)} | draw.some({"saturate": draw.integer(0, 1)})
    return Case("Cast", [data], attributes, opsets=(19, NEWEST))


def bit_cast(draw):
    groups = [[F32, np.dtype("int32"), np.dtype("uint32")], [F64, I64, np.dtype("uint64")]]
    groups += [[F16, BF16, np.dtype("int16"), np.dtype("uint16")]]
    group = draw.choice(groups)
    data = draw.array(draw.choice(group), draw.shape())
    return Case("BitCast", [data], {"to": type_of(draw.choice(group))}, opsets=(26, NEWEST))


def dropout(draw):
    data = draw.array(draw.dtype(FLOATS), draw.shape())
    ratio = np.array(0.4, np.float32) if draw.chance(0.5) else None
    outputs = draw.integer(1, 2)
    attributes = draw.some({"seed": 3})
    return Case("Dropout", [data, ratio], attributes, outputs, opsets=(13, NEWEST))


GENERATORS = [
    (unary, 4),
    (activation, 2),
    (gelu, 1),
    (is_inf, 1),
    (prelu, 1),
    (clip, 1),
    (binary, 4),
    (mod, 2),
    (power, 1),
    (bit_shift, 1),
    (variadic, 2),
    (where, 1),
    (cast, 3),
    (bit_cast, 1),
    (dropout, 1),
]
