"""Where an oracle is wrong or says nothing that can be relied on, each with the reason."""

import math

import numpy as np


def reason(oracle, case):
    """Why that oracle is not to be asked about the case; None where it is."""
    for name, applies, why in EXCEPTIONS:
        if oracle == name and applies(case):
            return why
    return None


def is_op(*names):
    return lambda case: case.op in names


def both(*conditions):
    return lambda case: all(condition(case) for condition in conditions)


def has(name, *values):
    return lambda case: case.attributes.get(name) in values


def has_any(*names):
    return lambda case: any(name in case.attributes for name in names)


def _scaled_lengths(case):
    """(length, scale) of the axes that a Resize scales; none where it has sizes."""
    shape = case.inputs[0].shape
    scales = case.inputs[2] if len(case.inputs) > 2 else None
    axes = case.attributes.get("axes", range(len(shape)))
    return [] if scales is None else [(shape[a], float(s)) for a, s in zip(axes, scales)]


def has_broken_length(case):
    """A scale that makes no whole number of elements."""
    return any(abs(n * s - round(n * s)) > 1e-4 for n, s in _scaled_lengths(case))


def rounds_near_a_tie(case):
    """Nearest: a coordinate where rounding in another type finds the other element."""
    shape = case.inputs[0].shape
    axes = list(case.attributes.get("axes", range(len(shape))))
    sizes = case.inputs[3] if len(case.inputs) > 3 else None
    kind = case.attributes["coordinate_transformation_mode"]
    if "keep_aspect_ratio_policy" in case.attributes or kind == "tf_crop_and_resize":
        return True
    for place, axis in enumerate(axes):
        n = shape[axis]
        out = int(sizes[place]) if sizes is not None else math.floor(n * case.inputs[2][place])
        scale = out / n if sizes is not None else float(case.inputs[2][place])
        for x in range(out):
            if kind == "align_corners":
                at = x * (n - 1) / max(out - 1, 1)
            else:
                at = x / scale if kind == "asymmetric" else (x + 0.5) / scale - 0.5
            if scale != 1 and abs(2 * at - round(2 * at)) < 1e-4:
                return True
    return False


def resizes_to_the_same(case):
    """An axis that keeps its length: there the region of tf_crop_and_resize is passed over."""
    shape = case.inputs[0].shape
    axes = case.attributes.get("axes", range(len(shape)))
    if case.inputs[2] is not None:
        return any(scale == 1 for scale in case.inputs[2])
    return any(shape[axis] == size for axis, size in zip(axes, case.inputs[3]))


def has_lone_row(case):
    return 1 in list(case.inputs[1][2:])


def is_wider_apart_than_its_kernel(case):
    """SAME padding where some elements are under no window: what is padded is less than nothing."""
    attributes = case.attributes
    kernel = attributes.get("kernel_shape") or case.inputs[1].shape[2:]
    strides = attributes.get("strides", [1] * len(kernel))
    dilations = attributes.get("dilations", [1] * len(kernel))
    return any(s > (k - 1) * d + 1 for s, k, d in zip(strides, kernel, dilations))


def attends_more_than_it_asks(case):
    """Keys and queries of this call differ in number."""
    flat = case.inputs[0].ndim == 3
    return case.inputs[0].shape[1 if flat else 2] != case.inputs[1].shape[1 if flat else 2]


def left_out(place):
    return lambda case: place >= len(case.inputs) or case.inputs[place] is None


def backward_to_the_largest(case):
    """A Slice backwards that ends at the largest number."""
    steps = case.inputs[4] if len(case.inputs) > 4 else []
    return any(step < 0 and end >= 2**31 - 1 for step, end in zip(steps, case.inputs[2]))


integers = lambda case: case.inputs[0].dtype.kind in "iu"
narrow = lambda case: case.inputs[0].dtype.itemsize == 2
empty = lambda case: case.inputs[0].size == 0
infinite = lambda case: bool(np.isinf(case.inputs[0].astype(float)).any())
rank = lambda *ranks: lambda case: case.inputs[0].ndim in ranks
some = lambda place: lambda case: not left_out(place)(case)
same = has("auto_pad", "SAME_UPPER", "SAME_LOWER")
pools = is_op("MaxPool", "AveragePool", "LpPool")
spread = is_op("ConvTranspose")
resize = is_op("Resize")
recurrent = is_op("RNN", "GRU", "LSTM")
by_length = has(
    "coordinate_transformation_mode",
    "align_corners",
    "tf_crop_and_resize",
    "pytorch_half_pixel",
    "half_pixel_symmetric",
)
cropped = has("coordinate_transformation_mode", "tf_crop_and_resize")

# (oracle, where, why)
EXCEPTIONS = [
    (
        "onnxruntime",
        both(is_op("AffineGrid"), has("align_corners", 1), has_lone_row),
        "puts a lone row at the end and not in the middle",
    ),
    (
        "onnxruntime",
        both(is_op("Attention"), has("is_causal", 1), attends_more_than_it_asks),
        "aligns the triangle with the last key",
    ),
    (
        "onnxruntime",
        both(is_op("Clip"), infinite, lambda c: left_out(1)(c) or left_out(2)(c)),
        "where a bound is left out infinities become the largest number",
    ),
    (
        "onnxruntime",
        both(spread, same, is_wider_apart_than_its_kernel),
        "the output is not input * stride long",
    ),
    ("onnx", both(spread, same), "counts the elements that output_padding adds as padding"),
    ("onnx", both(spread, has_any("group"), some(2)), "all groups have the bias of the first"),
    ("onnxruntime", both(pools, same, is_wider_apart_than_its_kernel), "pads by less than nothing"),
    (
        "onnx",
        pools,
        "takes dilations with VALID for less than they are, and pads by less than nothing",
    ),
    ("onnx", is_op("GlobalMaxPool"), "is right for images only"),
    (
        "onnxruntime",
        both(is_op("GridSample"), has("mode", "cubic"), has("padding_mode", "border")),
        "moves the point and not its neighbours to the border",
    ),
    (
        "onnxruntime",
        both(is_op("QuantizeLinear"), narrow),
        "divides in f32, not in the scale's type",
    ),
    ("onnx", both(lambda case: case.op.startswith("Reduce"), narrow), "adds up in the narrow type"),
    ("onnxruntime", both(is_op("ReduceMean"), empty), "the mean of nothing is 0"),
    ("onnx", is_op("LRN"), "goes through as many channels as there are rows in the batch"),
    ("onnxruntime", is_op("MeanVarianceNormalization"), "a variance that rounds below 0 makes NaN"),
    ("onnx", both(is_op("QLinearConv"), rank(3, 5)), "has two dims of space only"),
    (
        "onnxruntime",
        both(resize, has_broken_length, by_length),
        "takes the rounded length where the specification has the scaled one",
    ),
    (
        "onnxruntime",
        both(resize, cropped, resizes_to_the_same),
        "passes over the region of an axis that keeps its length",
    ),
    (
        "onnxruntime",
        both(resize, has("mode", "nearest"), rounds_near_a_tie),
        "which element is nearest hangs on rounding",
    ),
    (
        "onnx",
        both(resize, has("mode", "nearest"), rounds_near_a_tie),
        "which element is nearest hangs on rounding",
    ),
    (
        "onnx",
        both(
            recurrent,
            has_any("clip", "direction", "input_forget", "activations", "linear_before_reset"),
        ),
        "does not know the attribute",
    ),
    ("onnx", both(recurrent, some(4)), "does not know lengths"),
    (
        "onnxruntime",
        both(is_op("Slice"), backward_to_the_largest),
        "the largest number stands for the end on either side",
    ),
    (
        "onnxruntime",
        both(resize, has_any("keep_aspect_ratio_policy"), by_length),
        "takes the rounded length where the specification has the scaled one",
    ),
    ("onnx", resize, "goes wrong where a point falls on an element, and before the axis"),
    (
        "onnx",
        is_op("MeanVarianceNormalization"),
        "a small variance is lost in the squares that it subtracts",
    ),
    (
        "onnx",
        both(is_op("Hardmax", "Softmax", "LogSoftmax"), lambda case: case.opsets[1] < 13),
        "has them of opset 13 only",
    ),
]
