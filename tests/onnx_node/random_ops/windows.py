"""Random cases of operators with windows and of those that sample images."""

import numpy as np

from random_ops.draw import (
    BF16,
    F16,
    F32,
    F64,
    I8,
    I32,
    I64,
    NEWEST,
    U8,
    Case,
    ints,
)
from random_ops.sums import scale

PADDINGS = ["NOTSET", "NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]


def window(draw, rank, most_pad=None):
    """Attributes of a window in `rank` dims, and the extents of the kernel."""
    kernel = [draw.integer(1, 4) for _ in range(rank)]
    strides = [draw.choice([1, 1, 2, 3]) for _ in range(rank)]
    dilations = [draw.choice([1, 1, 1, 2, 3]) for _ in range(rank)]
    attributes = {}
    if draw.chance(0.6):
        attributes["strides"] = strides
    else:
        strides = [1] * rank
    if draw.chance(0.4):
        attributes["dilations"] = dilations
    else:
        dilations = [1] * rank
    padding = draw.choice(PADDINGS)
    pads = [0] * (2 * rank)
    if padding == "NOTSET":
        if draw.chance(0.6):
            limits = [k if most_pad is None else min(most_pad, k - 1) for k in kernel] * 2
            pads = [draw.integer(0, limit) for limit in limits]
            attributes["pads"] = pads
        if draw.chance(0.3):
            attributes["auto_pad"] = padding
    else:
        attributes["auto_pad"] = padding
        if padding != "VALID":
            attributes.pop("dilations", None)
            dilations = [1] * rank
    return attributes, kernel, dilations


def image(draw, kernel, dilations):
    """Extents at which the window fits at least once."""
    return [
        max(draw.choice([1, 2, 3, 5, 7, 8, 9, 12]), (k - 1) * d + 1)
        for k, d in zip(kernel, dilations)
    ]


def rank_of_image(draw):
    return draw.choice([1, 2, 2, 2, 3])


def conv(draw):
    rank = rank_of_image(draw)
    attributes, kernel, dilations = window(draw, rank)
    group = draw.choice([1, 1, 2, 3, 4])
    per_group, filters = draw.integer(1, 5), draw.integer(1, 5) * group
    if draw.chance(0.3):
        per_group, filters = 1, group * draw.integer(1, 2)
    dtype = draw.dtype([F32, F32, F64, F16, BF16])
    batch = draw.choice([1, 1, 2, 3])
    shape = [batch, per_group * group, *image(draw, kernel, dilations)]
    inputs = [draw.array(dtype, shape, 1, 0)]
    inputs.append(draw.array(dtype, [filters, per_group, *kernel], 1, 0))
    if draw.chance(0.5):
        inputs.append(draw.array(dtype, [filters], 1, 0))
    if group > 1 or draw.chance(0.3):
        attributes["group"] = group
    if draw.chance(0.5):
        attributes["kernel_shape"] = kernel
    return Case("Conv", inputs, attributes, opsets=(11, NEWEST))


def conv_transpose(draw):
    rank = rank_of_image(draw)
    attributes, kernel, dilations = window(draw, rank, 2)
    attributes |= {"dilations": dilations} if draw.chance(0.3) else {}
    strides = attributes.get("strides", [1] * rank)
    group = draw.choice([1, 1, 2, 3])
    per_group, filters = draw.integer(1, 4), draw.integer(1, 4)
    extents = [draw.choice([1, 2, 3, 5, 7]) for _ in range(rank)]
    if draw.chance(0.4):
        most = [max(0, max(s, d) - 1) for s, d in zip(strides, dilations)]
        attributes["output_padding"] = [draw.integer(0, limit) for limit in most]
    if draw.chance(0.15):
        attributes["output_shape"] = [
            max(1, e * s + draw.integer(-1, 1)) for e, s in zip(extents, strides)
        ]
        attributes.pop("pads", None)
        attributes.pop("output_padding", None)
    dtype = draw.dtype([F32, F32, F64, F16])
    shape = [draw.integer(1, 2), per_group * group, *extents]
    inputs = [draw.array(dtype, shape, 1, 0)]
    inputs.append(draw.array(dtype, [per_group * group, filters, *kernel], 1, 0))
    if draw.chance(0.5):
        inputs.append(draw.array(dtype, [filters * group], 1, 0))
    if group > 1:
        attributes["group"] = group
    if draw.chance(0.5):
        attributes["kernel_shape"] = kernel
    return Case("ConvTranspose", inputs, attributes, opsets=(11, NEWEST))


def conv_integer(draw):
    rank = draw.choice([1, 2, 2, 3])
    attributes, kernel, dilations = window(draw, rank)
    group = draw.choice([1, 1, 2])
    per_group, filters = draw.integer(1, 4), draw.integer(1, 3) * group
    types = [U8, draw.choice([U8, I8])]
    shape = [draw.integer(1, 2), per_group * group, *image(draw, kernel, dilations)]
    data = draw.array(types[0], shape, 60, 0.3)
    weights = draw.array(types[1], [filters, per_group, *kernel], 60, 0.3)
    attributes |= {"group": group} if group > 1 else {}
    zero, weight_zero = draw.array(types[0], [], 20, 0), draw.array(types[1], [], 20, 0)
    if draw.chance(0.4):
        inputs = [data, weights]
        if draw.chance(0.7):
            inputs += [zero] + ([weight_zero] if draw.chance(0.7) else [])
        return Case("ConvInteger", inputs, attributes, opsets=(10, NEWEST))
    per_filter = [filters] if draw.chance(0.5) else []
    weight_zero = draw.array(types[1], per_filter, 20, 0)
    inputs = [data, scale(draw), zero, weights, scale(draw, per_filter), weight_zero]
    inputs += [scale(draw) * np.float32(9), draw.array(U8, [], 30, 0)]
    if draw.chance(0.5):
        inputs.append(draw.array(I32, [filters], 300, 0))
    return Case("QLinearConv", inputs, attributes, opsets=(10, NEWEST))


def pool(draw):
    rank = rank_of_image(draw)
    attributes, kernel, dilations = window(draw, rank, 3)
    op = draw.choice(["AveragePool", "MaxPool", "MaxPool", "LpPool"])
    attributes["kernel_shape"] = kernel
    if draw.chance(0.4):
        attributes["ceil_mode"] = 1
    outputs, dtypes = 1, [F32, F32, F64, F16]
    if op == "AveragePool" and draw.chance(0.5):
        attributes["count_include_pad"] = 1
    if op == "LpPool":
        attributes |= draw.some({"p": draw.integer(1, 3)})
    if op == "MaxPool":
        dtypes = dtypes + [I8, U8]
        outputs = draw.integer(1, 2)
        attributes |= draw.some({"storage_order": 0})
    shape = [draw.integer(1, 2), draw.integer(1, 3), *image(draw, kernel, dilations)]
    data = draw.array(draw.dtype(dtypes), shape, 1, 0)
    return Case(op, [data], attributes, outputs, (22 if op != "LpPool" else 22, NEWEST))


def global_pool(draw):
    op = draw.choice(["GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool"])
    attributes = draw.some({"p": draw.integer(1, 3)}) if op == "GlobalLpPool" else {}
    data = draw.array(draw.dtype([F32, F64, F16]), draw.shape(3, 5, 1), 1, 0)
    return Case(op, [data], attributes, opsets=(22, NEWEST))


def max_unpool(draw):
    kernel = [draw.integer(1, 3) for _ in range(2)]
    strides = [draw.integer(1, 3) for _ in range(2)]
    shape = [draw.integer(1, 2), draw.integer(1, 2), draw.integer(1, 4), draw.integer(1, 4)]
    whole = [(e - 1) * s + k for e, s, k in zip(shape[2:], strides, kernel)]
    room = shape[0] * shape[1] * whole[0] * whole[1]
    places = draw.rng.permutation(room)[: int(np.prod(shape))]
    if len(places) < int(np.prod(shape)):
        places = np.resize(np.arange(room), int(np.prod(shape)))
    data = draw.array(F32, shape, 1, 0)
    attributes = {"kernel_shape": kernel, "strides": strides}
    inputs = [data, np.asarray(places, I64).reshape(shape)]
    return Case("MaxUnpool", inputs, attributes, opsets=(11, NEWEST))


TRANSFORMS = ["half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel"]
TRANSFORMS += ["half_pixel_symmetric", "tf_crop_and_resize"]


def resize(draw):
    rank = draw.choice([1, 2, 3, 4, 4, 4])
    shape = [draw.integer(1, 3) for _ in range(min(2, rank - 1))]
    spatial = rank - len(shape)
    shape += [draw.choice([1, 2, 3, 4, 5, 7, 10]) for _ in range(spatial)]
    axes = list(range(rank - spatial, rank)) if draw.chance(0.4) else list(range(rank))
    mode = draw.choice(["nearest", "linear", "linear", "cubic"])
    transform = draw.choice(TRANSFORMS)
    attributes = {"mode": mode, "coordinate_transformation_mode": transform}
    if mode == "nearest":
        modes = ["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"]
        attributes["nearest_mode"] = draw.choice(modes)
    if mode == "cubic":
        attributes |= draw.some({"cubic_coeff_a": -0.5, "exclude_outside": draw.integer(0, 1)})
    if transform != "tf_crop_and_resize" and mode != "nearest" and draw.chance(0.2):
        attributes["antialias"] = 1
    roi = None
    if transform == "tf_crop_and_resize":
        begin, end = draw.rng.uniform(-0.2, 0.5, len(axes)), draw.rng.uniform(0.5, 1.2, len(axes))
        kept = [axis < rank - spatial for axis in axes]
        begin, end = np.where(kept, 0, begin), np.where(kept, 1, end)
        roi = np.concatenate([begin, end]).astype(F32)
        attributes |= draw.some({"extrapolation_value": 2.5})
    fixed = [axis < rank - spatial for axis in axes]
    if draw.chance(0.5):
        factor = [draw.choice([0.5, 0.6, 0.8, 1, 1.5, 2, 2.7, 3]) for _ in axes]
        factor = [1.0 if keep else f for keep, f in zip(fixed, factor)]
        factor = [1.0 if int(shape[a] * f) == 0 else f for a, f in zip(axes, factor)]
        inputs = [roi, np.array(factor, F32)]
    else:
        sizes = [shape[a] if keep else draw.integer(1, 12) for a, keep in zip(axes, fixed)]
        inputs = [roi, None, ints(*sizes)]
        if len(axes) == spatial and draw.chance(0.3):
            attributes["keep_aspect_ratio_policy"] = draw.choice(
                ["stretch", "not_larger", "not_smaller"]
            )
    if axes != list(range(rank)) or draw.chance(0.1):
        attributes["axes"] = axes
    dtypes = [F32, F32, F64, F16] + ([U8, I32, I8] if mode == "nearest" else [])
    data = draw.array(draw.dtype(dtypes), shape, 1, 0)
    return Case("Resize", [data, *inputs], attributes, opsets=(19, NEWEST))


def grid_sample(draw):
    spatial = draw.choice([2, 2, 3])
    shape = [draw.integer(1, 2), draw.integer(1, 3)] + [draw.integer(1, 5) for _ in range(spatial)]
    target = [draw.integer(1, 4) for _ in range(spatial)]
    grid = draw.rng.uniform(-1.4, 1.4, [shape[0], *target, spatial])
    modes = ["nearest", "linear"] + (["cubic"] if spatial == 2 else [])
    attributes = {"mode": draw.choice(modes)} | draw.some(
        {
            "padding_mode": draw.choice(["zeros", "border", "reflection"]),
            "align_corners": draw.integer(0, 1),
        }
    )
    dtype = draw.dtype([F32, F32, F64])
    inputs = [draw.array(dtype, shape, 1, 0), grid.astype(dtype)]
    return Case("GridSample", inputs, attributes, opsets=(20, NEWEST))


def affine_grid(draw):
    spatial = draw.choice([2, 3])
    batch = draw.integer(1, 2)
    size = [batch, draw.integer(1, 3)] + [draw.integer(1, 5) for _ in range(spatial)]
    theta = draw.array(draw.dtype([F32, F64]), [batch, spatial, spatial + 1], 1, 0)
    attributes = draw.some({"align_corners": draw.integer(0, 1)})
    return Case("AffineGrid", [theta, ints(*size)], attributes, opsets=(20, NEWEST))


def roi_align(draw):
    shape = [draw.integer(1, 2), draw.integer(1, 3), draw.integer(2, 8), draw.integer(2, 8)]
    count = draw.integer(1, 4)
    corner = draw.rng.uniform(-1, 6, [count, 2])
    boxes = np.concatenate([corner, corner + draw.rng.uniform(0, 6, [count, 2])], 1)
    rows = np.asarray(draw.rng.integers(0, shape[0], count), I64)
    attributes = draw.some(
        {
            "mode": draw.choice(["avg", "max"]),
            "output_height": draw.integer(1, 4),
            "output_width": draw.integer(1, 4),
            "sampling_ratio": draw.integer(0, 3),
            "spatial_scale": draw.choice([0.5, 1.0, 2.0]),
            "coordinate_transformation_mode": draw.choice(["half_pixel", "output_half_pixel"]),
        }
    )
    inputs = [draw.array(F32, shape, 1, 0), boxes.astype(F32), rows]
    return Case("RoiAlign", inputs, attributes, opsets=(16, NEWEST))


def col2im(draw):
    rank = draw.choice([1, 2, 2, 3])
    extents = [draw.integer(3, 7) for _ in range(rank)]
    block = [draw.integer(1, 3) for _ in range(rank)]
    strides = [draw.integer(1, 2) for _ in range(rank)]
    pads = [draw.integer(0, 1) for _ in range(2 * rank)]
    columns = 1
    for d in range(rank):
        free = extents[d] + pads[d] + pads[d + rank] - block[d]
        columns *= free // strides[d] + 1
    rows = draw.integer(1, 3) * int(np.prod(block))
    data = draw.array(draw.dtype([F32, F64]), [draw.integer(1, 2), rows, columns], 1, 0)
    attributes = {"strides": strides, "pads": pads}
    return Case("Col2Im", [data, ints(*extents), ints(*block)], attributes, opsets=(18, NEWEST))


def deform_conv(draw):
    group, offset_group = draw.choice([1, 1, 2]), draw.choice([1, 1, 2])
    kernel = [draw.integer(1, 3), draw.integer(1, 3)]
    strides, pads = [draw.integer(1, 2) for _ in "hw"], [draw.integer(0, 1) for _ in range(4)]
    n, c, filters = draw.integer(1, 2), 2 * draw.integer(1, 2), group * draw.integer(1, 2)
    extents = [draw.integer(3, 6), draw.integer(3, 6)]
    out = [
        (e + pads[d] + pads[d + 2] - k) // s + 1
        for d, (e, k, s) in enumerate(zip(extents, kernel, strides))
    ]
    taps = offset_group * kernel[0] * kernel[1]
    dtype = draw.dtype([F32, F64])
    inputs = [
        draw.array(dtype, [n, c, *extents], 1, 0),
        draw.array(dtype, [filters, c // group, *kernel], 1, 0),
        draw.array(dtype, [n, 2 * taps, *out], 1, 0),
    ]
    bias = draw.array(dtype, [filters], 1, 0) if draw.chance(0.5) else None
    mask = draw.array(dtype, [n, taps, *out], 1, 0) if draw.chance(0.5) else None
    attributes = {"strides": strides, "pads": pads, "group": group, "offset_group": offset_group}
    return Case("DeformConv", inputs + [bias, mask], attributes, opsets=(22, NEWEST))


GENERATORS = [
    (conv, 6),
    (conv_transpose, 6),
    (conv_integer, 3),
    (pool, 6),
    (global_pool, 1),
    (max_unpool, 1),
    (resize, 8),
    (grid_sample, 2),
    (affine_grid, 1),
    (roi_align, 1),
    (col2im, 1),
    (deform_conv, 1),
]
