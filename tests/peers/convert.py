"""Models as users convert them: quantised by onnxruntime.quantization, cut to fp16 by
onnxruntime.transformers."""

import contextlib
import io
import logging
import os

import onnx
from onnx import version_converter
from onnxruntime import quantization
from onnxruntime.quantization.shape_inference import quant_pre_process
from onnxruntime.transformers.float16 import convert_float_to_float16

# QDQ with a scale for each channel of older models is not valid.
OPSET = 13
KINDS = ("QDQ", "QOperator", "dynamic", "fp16")


class _Calibration(quantization.CalibrationDataReader):
    def __init__(self, inputs):
        self._feeds = iter([inputs(2), inputs(3)])

    def get_next(self):
        return next(self._feeds, None)


def _prepared(model, folder):
    """The model in an opset that can be quantised, with shapes, optimised."""
    path = os.path.join(folder, model.name + ".onnx")
    if not os.path.exists(path):
        proto = onnx.load(model.path)
        version = next(o.version for o in proto.opset_import if o.domain in ("", "ai.onnx"))
        if version < OPSET:
            proto = version_converter.convert_version(proto, OPSET)
        onnx.save(proto, path + ".raw")
        quant_pre_process(path + ".raw", path, skip_symbolic_shape=True)
    return path


def converted(model, kind, folder):
    """Path of the model (zoo.Model) in a form of KINDS, made in `folder`.

    QDQ has scales for each channel, QOperator for each tensor.
    """
    path = os.path.join(folder, "%s-%s.onnx" % (model.name, kind))
    logging.disable(logging.WARNING)
    # The quantiser prints the types that it skips.
    with contextlib.redirect_stdout(io.StringIO()):
        source = _prepared(model, folder)
        if kind == "dynamic":
            quantization.quantize_dynamic(source, path)
        elif kind == "fp16":
            onnx.save(convert_float_to_float16(onnx.load(source), keep_io_types=True), path)
        else:
            quantization.quantize_static(
                source,
                path,
                _Calibration(model.inputs),
                quant_format=quantization.QuantFormat[kind],
                per_channel=kind == "QDQ",
            )
    logging.disable(logging.NOTSET)
    return path
