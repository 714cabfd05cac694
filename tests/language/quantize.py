"""Quantises weights to any type of GGUF, with llama.cpp's own function."""

import ctypes
import glob
import os

import gguf
import numpy as np
import xllamacpp


def _function():
    folder = os.path.dirname(xllamacpp.__file__)
    function = ctypes.CDLL(glob.glob(os.path.join(folder, "*.so"))[0]).ggml_quantize_chunk
    function.restype = ctypes.c_size_t
    function.argtypes = [
        ctypes.c_int,
        ctypes.c_void_p,
        ctypes.c_void_p,
        ctypes.c_int64,
        ctypes.c_int64,
        ctypes.c_int64,
        ctypes.c_void_p,
    ]
    return function


def quantize(values, dtype):
    """Rows of whole blocks of f32 as bytes."""
    rows = np.ascontiguousarray(values, np.float32)
    block, size = gguf.GGML_QUANT_SIZES[dtype]
    blocks = np.zeros((*rows.shape[:-1], rows.shape[-1] // block * size), np.uint8)
    count = rows.size // rows.shape[-1]
    written = _function()(
        int(dtype), rows.ctypes.data, blocks.ctypes.data, 0, count, rows.shape[-1], None
    )
    assert written == blocks.size, (written, blocks.size)
    return blocks
