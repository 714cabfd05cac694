"""llama.cpp's tokenizers, by the C functions that xllamacpp's library exports."""

import ctypes
import os

import xllamacpp


class _Parameters(ctypes.Structure):
    # llama_model_params of the locked version: pointers and numbers, then flags.
    _fields_ = [("before", ctypes.c_ubyte * 72), ("vocab_only", ctypes.c_bool * 8)]


def _open():
    folder = os.path.dirname(xllamacpp.__file__)
    (library,) = [name for name in os.listdir(folder) if name.endswith(".so")]
    return ctypes.CDLL(os.path.join(folder, library))


_LIBRARY = _open()
_LOG = ctypes.CFUNCTYPE(None, ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)(lambda *_: None)
_LIBRARY.llama_log_set(_LOG, None)
_LIBRARY.llama_model_default_params.restype = _Parameters
_LIBRARY.llama_model_load_from_file.argtypes = [ctypes.c_char_p, _Parameters]
_LIBRARY.llama_model_load_from_file.restype = ctypes.c_void_p
_LIBRARY.llama_model_get_vocab.argtypes = [ctypes.c_void_p]
_LIBRARY.llama_model_get_vocab.restype = ctypes.c_void_p
_LIBRARY.llama_model_free.argtypes = [ctypes.c_void_p]
_LIBRARY.llama_tokenize.argtypes = [
    ctypes.c_void_p,
    ctypes.c_char_p,
    ctypes.c_int32,
    ctypes.c_void_p,
    ctypes.c_int32,
    ctypes.c_bool,
    ctypes.c_bool,
]
_LIBRARY.llama_detokenize.argtypes = [
    ctypes.c_void_p,
    ctypes.c_void_p,
    ctypes.c_int32,
    ctypes.c_char_p,
    ctypes.c_int32,
    ctypes.c_bool,
    ctypes.c_bool,
]


class Vocabulary:
    """The tokenizer of a GGUF file."""

    def __init__(self, path):
        parameters = _LIBRARY.llama_model_default_params()
        parameters.vocab_only[0] = True
        self._model = _LIBRARY.llama_model_load_from_file(path.encode(), parameters)
        if not self._model:
            raise ValueError("llama.cpp does not load " + path)
        self._vocabulary = _LIBRARY.llama_model_get_vocab(self._model)

    def close(self):
        _LIBRARY.llama_model_free(self._model)

    def tokenize(self, text, add_special, parse_special):
        room = len(text) * 2 + 16
        ids = (ctypes.c_int32 * room)()
        count = _LIBRARY.llama_tokenize(
            self._vocabulary, text, len(text), ids, room, add_special, parse_special
        )
        assert count >= 0, count
        return ids[:count]

    def detokenize(self, ids):
        room = 64 * len(ids) + 64
        text = ctypes.create_string_buffer(room)
        array = (ctypes.c_int32 * len(ids))(*ids)
        size = _LIBRARY.llama_detokenize(self._vocabulary, array, len(ids), text, room, False, True)
        assert size >= 0, size
        return text.raw[:size]
