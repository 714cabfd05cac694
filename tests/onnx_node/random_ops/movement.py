"""Random cases of operators that make, move and select elements."""

import numpy as np

from random_ops.draw import (
    ALL,
    BOOL,
    F32,
    F64,
    FLOATS,
    I32,
    I64,
    INTEGERS,
    NEWEST,
    NUMBERS,
    U8,
    Case,
    ints,
    type_of,
)


def reshape(draw):
    shape = draw.shape()
    total = int(np.prod(shape, dtype=np.int64))
    target, rest = [], total
    for _ in range(draw.integer(0, 3)):
        divisors = [d for d in range(1, rest + 1) if rest % d == 0] if rest else [0, 1, 3]
        target.append(draw.choice(divisors))
        rest = rest // target[-1] if target[-1] else rest
    if rest or 0 not in target:
        target.append(rest)
    attributes = {}
    if total and target and draw.chance(0.5):
        target[draw.integer(0, len(target) - 1)] = -1
    elif 0 in target:
        attributes = {"allowzero": 1}
    places = [i for i in range(min(len(shape), len(target))) if shape[i] == target[i] != 0]
    if places and draw.chance(0.4) and not attributes:
        target[draw.choice(places)] = 0
    data = draw.array(draw.choice(ALL), shape)
    return Case("Reshape", [data, ints(*target)], attributes, opsets=(14, NEWEST))


def flatten(draw):
    shape = draw.shape(1, 5)
    attributes = draw.some({"axis": draw.integer(-len(shape), len(shape))})
    return Case("Flatten", [draw.array(draw.choice(ALL), shape)], attributes)


def squeeze(draw):
    shape = draw.shape()
    ones = [axis for axis, extent in enumerate(shape) if extent == 1]
    chosen = [axis - (len(shape) if draw.chance(0.3) else 0) for axis in ones if draw.chance(0.7)]
    # Without axes dims that requests choose stay, 1 or not: only where there is none.
    axes = ints(*(chosen or ones)) if ones else None
    return Case("Squeeze", [draw.array(draw.choice(ALL), shape), axes])


def unsqueeze(draw):
    shape = draw.shape(0, 3)
    count = draw.integer(0, 3)
    rank = len(shape) + count
    axes = [int(a) - (rank if draw.chance(0.3) else 0) for a in draw.rng.permutation(rank)[:count]]
    return Case("Unsqueeze", [draw.array(draw.choice(ALL), shape), ints(*axes)])


def transpose(draw):
    shape = draw.shape(0, 5)
    perm = [int(axis) for axis in draw.rng.permutation(len(shape))]
    attributes = {} if draw.chance(0.2) or not perm else {"perm": perm}
    return Case("Transpose", [draw.array(draw.choice(ALL), shape)], attributes)


def expand(draw):
    target = draw.shape()
    shape = draw.broadcast(target)
    wanted = [1 if e == s and draw.chance(0.3) else e for e, s in zip(target[::-1], shape[::-1])]
    wanted += target[::-1][len(shape) :]
    wanted = wanted[::-1]
    if draw.chance(0.3) and len(wanted) == len(shape):
        wanted = wanted[draw.integer(0, len(wanted)) :]
    return Case("Expand", [draw.array(draw.choice(ALL), shape), ints(*wanted)])


def tile(draw):
    shape = draw.shape(0, 3)
    repeats = [draw.choice([0, 1, 1, 2, 3]) for _ in shape]
    return Case("Tile", [draw.array(draw.choice(ALL), shape), ints(*repeats)])


def concat(draw):
    shape = draw.shape(1, 4)
    axis = draw.axis(len(shape))
    dtype = draw.choice(ALL)
    inputs = []
    for _ in range(draw.integer(1, 5)):
        shape[axis] = draw.extent()
        inputs.append(draw.array(dtype, shape))
    return Case("Concat", inputs, {"axis": axis})


def split(draw):
    shape = draw.shape(1, 4)
    axis = draw.axis(len(shape))
    dtype = draw.choice(ALL)
    count = draw.integer(1, 4)
    attributes = {"axis": axis} if axis or draw.chance(0.5) else {}
    if draw.chance(0.5):
        parts = [draw.extent() for _ in range(count)]
        shape[axis] = sum(parts)
        sizes = ints(*parts)
    else:
        sizes, attributes["num_outputs"] = None, count
        least = -(-shape[axis] // count) if shape[axis] else 0
        # Each part but the last is full, and the last is not empty.
        if shape[axis] == 0 or least * (count - 1) >= shape[axis]:
            shape[axis] = count * 2
    return Case("Split", [draw.array(dtype, shape), sizes], attributes, count, (18, NEWEST))


def slices(draw):
    shape = draw.shape(1, 4)
    axes = draw.axes(len(shape)) or [0]
    beyond = [-(2**62), -20, 20, 2**62, np.iinfo(np.int64).max, np.iinfo(np.int64).min]
    dtype = draw.choice([I32, I64])
    if dtype == I32:
        beyond = [-(2**31), 2**31 - 1, -20, 20]

    def bound(axis):
        extent = shape[axis]
        return draw.choice(beyond) if draw.chance(0.25) else draw.integer(-extent - 2, extent + 2)

    starts = [bound(axis) for axis in axes]
    ends = [bound(axis) for axis in axes]
    steps = [draw.choice([1, 1, 2, 3, -1, -2, -3, 100, -100]) for _ in axes]
    inputs = [draw.array(draw.choice(ALL), shape)]
    inputs += [ints(*starts, dtype=dtype), ints(*ends, dtype=dtype)]
    if axes == list(range(len(axes))) and draw.chance(0.3):
        return Case("Slice", inputs)
    inputs.append(ints(*axes, dtype=dtype))
    if draw.chance(0.8):
        inputs.append(ints(*steps, dtype=dtype))
    return Case("Slice", inputs)


def gather(draw):
    shape = draw.shape(1, 4, 1)
    axis = draw.axis(len(shape))
    indices = draw.indices(draw.shape(0, 3), shape[axis])
    attributes = {"axis": axis} if axis or draw.chance(0.5) else {}
    return Case("Gather", [draw.array(draw.choice(ALL), shape), indices], attributes)


def gather_elements(draw):
    shape = draw.shape(1, 4, 1)
    axis = draw.axis(len(shape))
    wanted = [draw.integer(0, extent) for extent in shape]
    wanted[axis] = draw.extent()
    indices = draw.indices(wanted, shape[axis])
    attributes = {"axis": axis} if axis or draw.chance(0.5) else {}
    return Case("GatherElements", [draw.array(draw.choice(ALL), shape), indices], attributes)


def index_tuples(draw, lead, shape, depth):
    columns = [draw.indices(lead, extent, I64) for extent in shape[:depth]]
    return np.stack(columns, -1) if columns else np.zeros([*lead, 0], I64)


def gather_nd(draw):
    shape = draw.shape(1, 4, 1)
    batch = draw.integer(0, len(shape) - 1)
    depth = draw.integer(1, len(shape) - batch)
    lead = shape[:batch] + draw.shape(0, 2)
    indices = index_tuples(draw, lead, shape[batch:], depth)
    attributes = {"batch_dims": batch} if batch or draw.chance(0.3) else {}
    return Case("GatherND", [draw.array(draw.choice(ALL), shape), indices], attributes)


REDUCTIONS = ["none", "add", "mul", "max", "min"]


def scatter_elements(draw):
    shape = draw.shape(1, 4, 1)
    axis = draw.axis(len(shape))
    wanted = [draw.integer(0, extent) for extent in shape]
    reduction = draw.choice(REDUCTIONS)
    if reduction == "none":
        # Twice the same place has no answer.
        offset = draw.integer(0, shape[axis])
        indices = (np.indices(wanted)[axis] + offset) % shape[axis]
    else:
        wanted[axis] = draw.extent(1)
        indices = draw.indices(wanted, shape[axis])
    dtype = draw.choice(ALL if reduction == "none" else NUMBERS)
    inputs = [draw.array(dtype, shape, special=0), indices, draw.array(dtype, wanted, special=0)]
    attributes = {"axis": axis} if axis or draw.chance(0.5) else {}
    if reduction != "none" or draw.chance(0.5):
        attributes["reduction"] = reduction
    return Case("ScatterElements", inputs, attributes, opsets=(18, NEWEST))


def scatter_nd(draw):
    shape = draw.shape(1, 4, 1)
    depth = draw.integer(1, len(shape))
    reduction = draw.choice(REDUCTIONS)
    room = int(np.prod(shape[:depth]))
    lead = draw.shape(0, 2)
    if reduction == "none":
        count = draw.integer(0, room)
        chosen = draw.rng.permutation(room)[:count]
        lead = [count]
        indices = np.stack(np.unravel_index(chosen, shape[:depth]), -1).astype(I64)
        if draw.chance(0.3):
            indices = indices - np.array(shape[:depth])
    else:
        indices = index_tuples(draw, lead, shape, depth)
    dtype = draw.choice(ALL if reduction == "none" else NUMBERS)
    updates = draw.array(dtype, lead + shape[depth:], special=0)
    attributes = {"reduction": reduction} if reduction != "none" else {}
    inputs = [draw.array(dtype, shape, special=0), indices, updates]
    return Case("ScatterND", inputs, attributes, opsets=(18, NEWEST))


def pad(draw):
    shape = draw.shape(1, 4, draw.choice([0, 1, 2]))
    mode = draw.choice(["constant", "reflect", "edge", "wrap"])
    axes = draw.axes(len(shape)) if draw.chance(0.3) else list(range(len(shape)))
    before, after = [], []
    for axis in axes:
        extent = shape[axis]
        most = {"constant": 4, "edge": 4, "wrap": 4}.get(mode, max(0, extent - 1))
        if extent == 0 and mode != "constant":
            most = 0
        pads = [draw.integer(0, most), draw.integer(0, most)]
        if draw.chance(0.3) and extent > 2:
            pads[draw.integer(0, 1)] = -draw.integer(0, extent // 2)
        before.append(pads[0])
        after.append(pads[1])
    dtype = draw.dtype(ALL)
    inputs = [draw.array(dtype, shape), ints(*before, *after)]
    inputs.append(draw.array(dtype, []) if draw.chance(0.5) else None)
    if axes != list(range(len(shape))):
        inputs.append(ints(*axes))
    attributes = {"mode": mode} if mode != "constant" or draw.chance(0.5) else {}
    return Case("Pad", inputs, attributes, opsets=(19, NEWEST))


def depth_and_space(draw):
    block = draw.integer(1, 3)
    n, c, h, w = [draw.extent(1) % 5 for _ in range(4)]
    if draw.chance(0.5):
        attributes = {"blocksize": block} | draw.some({"mode": draw.choice(["DCR", "CRD"])})
        data = draw.array(draw.dtype(ALL), [n, c * block * block, h, w])
        return Case("DepthToSpace", [data], attributes)
    data = draw.array(draw.dtype(ALL), [n, c, h * block, w * block])
    return Case("SpaceToDepth", [data], {"blocksize": block})


def reverse_sequence(draw):
    shape = draw.shape(2, 4, 1)
    batch = draw.integer(0, 1)
    lengths = draw.rng.integers(1, shape[1 - batch] + 1, shape[batch])
    attributes = {"batch_axis": batch, "time_axis": 1 - batch}
    inputs = [draw.array(draw.choice(ALL), shape), np.asarray(lengths, I64)]
    return Case("ReverseSequence", inputs, attributes, opsets=(10, NEWEST))


def trilu(draw):
    shape = draw.shape(2, 4)
    inputs = [draw.array(draw.choice(ALL), shape)]
    if draw.chance(0.7):
        inputs.append(np.array(draw.choice([-100, -3, -2, -1, 0, 1, 2, 3, 100]), I64))
    return Case("Trilu", inputs, draw.some({"upper": draw.integer(0, 1)}), opsets=(14, NEWEST))


def eye_like(draw):
    attributes = draw.some({"k": draw.integer(-4, 4), "dtype": type_of(draw.choice(NUMBERS))})
    data = draw.array(draw.dtype(NUMBERS), draw.shape(2, 2))
    return Case("EyeLike", [data], attributes, opsets=(22, NEWEST))


def one_hot(draw):
    depth = draw.integer(1, 9)
    shape = draw.shape(0, 3)
    low = -depth - 1
    indices = draw.rng.integers(low, depth + 2, shape).astype(draw.choice([I32, I64, F32]))
    values = draw.array(draw.choice([F32, I64, I32, BOOL, U8]), [2])
    attributes = draw.some({"axis": draw.integer(-len(shape) - 1, len(shape))})
    size = np.array(depth, draw.choice([I64, I32, F32]))
    size = size.reshape(1) if draw.chance(0.5) else size
    return Case("OneHot", [np.asarray(indices), size, values], attributes, opsets=(11, NEWEST))


def compress(draw):
    shape = draw.shape(1, 4, 1)
    axis = draw.axis(len(shape)) if draw.chance(0.7) else None
    extent = shape[axis] if axis is not None else int(np.prod(shape))
    condition = draw.array(BOOL, [draw.integer(0, extent)])
    attributes = {} if axis is None else {"axis": axis}
    inputs = [draw.array(draw.choice(ALL), shape), condition]
    return Case("Compress", inputs, attributes, opsets=(11, NEWEST))


def center_crop_pad(draw):
    shape = draw.shape(1, 4)
    axes = draw.axes(len(shape)) if draw.chance(0.4) else None
    count = len(shape) if axes is None else len(axes)
    target = [draw.integer(0, 9) for _ in range(count)]
    attributes = {} if axes is None else {"axes": axes}
    if axes is not None and not axes:
        attributes, target = {}, [draw.integer(0, 9) for _ in shape]
    inputs = [draw.array(draw.choice(NUMBERS), shape), ints(*target)]
    return Case("CenterCropPad", inputs, attributes, opsets=(18, NEWEST))


def shape_and_size(draw):
    data = draw.array(draw.choice(ALL), draw.shape())
    if draw.chance(0.3):
        return Case("Size", [data])
    attributes = draw.some({"start": draw.integer(-6, 6), "end": draw.integer(-6, 6)})
    return Case("Shape", [data], attributes, opsets=(15, NEWEST))


def constant_of_shape(draw):
    from onnx import numpy_helper

    attributes = {}
    if draw.chance(0.7):
        value = draw.array(draw.choice(ALL), [1])
        attributes["value"] = numpy_helper.from_array(value)
    return Case("ConstantOfShape", [ints(*draw.shape())], attributes, opsets=(9, NEWEST))


def ranges(draw):
    dtype = draw.choice([I64, I32, F32, F64, np.dtype("int16")])
    step = draw.choice([1, 2, 3, -1, -2, -7])
    values = [draw.integer(-20, 20), draw.integer(-20, 20), step]
    if dtype.kind == "f" and draw.chance(0.7):
        values = [value / 4 for value in values]
    return Case("Range", [np.array(value, dtype) for value in values], opsets=(11, NEWEST))


def top_k(draw):
    shape = draw.shape(1, 4, 1)
    axis = draw.axis(len(shape))
    dtype = draw.dtype([F32, F64, I64, I32] + NUMBERS)
    data = draw.ties(dtype, shape) if draw.chance(0.5) else draw.array(dtype, shape, special=0)
    count = ints(draw.integer(0, shape[axis]))
    attributes = draw.some({"largest": draw.integer(0, 1)}) | {"sorted": 1}
    if axis != -1 or draw.chance(0.5):
        attributes["axis"] = axis
    return Case("TopK", [data, count], attributes, 2, (11, NEWEST))


def arg_reduce(draw):
    shape = draw.shape(1, 4, 1)
    attributes = {"axis": draw.axis(len(shape))} if draw.chance(0.8) else {}
    attributes |= draw.some({"keepdims": draw.integer(0, 1)})
    attributes |= draw.some({"select_last_index": draw.integer(0, 1)})
    dtype = draw.dtype([F32] + NUMBERS)
    data = draw.ties(dtype, shape) if draw.chance(0.5) else draw.array(dtype, shape, special=0)
    return Case(draw.choice(["ArgMax", "ArgMin"]), [data], attributes)


def scatter_tensor(draw):
    """TensorScatter: updates written into a cache, one place for each row of the batch."""
    batch, length, width = draw.integer(1, 3), draw.integer(1, 9), draw.integer(1, 5)
    count = draw.integer(1, length)
    mode = draw.choice(["linear", "circular"])
    most = length - count if mode == "linear" else length - 1
    dtype = draw.dtype([F32, F64, I64])
    inputs = [draw.array(dtype, [batch, length, width]), draw.array(dtype, [batch, count, width])]
    if draw.chance(0.8):
        inputs.append(np.asarray(draw.rng.integers(0, most + 1, batch), I64))
    attributes = {"mode": mode} | draw.some({"axis": draw.choice([1, -2])})
    return Case("TensorScatter", inputs, attributes, opsets=(24, NEWEST))


GENERATORS = [
    (reshape, 2),
    (flatten, 1),
    (squeeze, 1),
    (unsqueeze, 1),
    (transpose, 2),
    (expand, 1),
    (tile, 1),
    (concat, 2),
    (split, 2),
    (slices, 4),
    (gather, 1),
    (gather_elements, 1),
    (gather_nd, 2),
    (scatter_elements, 2),
    (scatter_nd, 3),
    (pad, 4),
    (depth_and_space, 1),
    (reverse_sequence, 1),
    (trilu, 1),
    (eye_like, 1),
    (one_hot, 1),
    (compress, 1),
    (center_crop_pad, 1),
    (shape_and_size, 1),
    (constant_of_shape, 1),
    (ranges, 1),
    (top_k, 3),
    (arg_reduce, 2),
    (scatter_tensor, 1),
]
