"""Writes the node tests of the onnx package into one file that C++ tests read.

    export.py OUTPUT

The package builds its 1,884 node tests in memory: a model, inputs and the outputs that the
specification asks for. The file has them all, in order of name. Numbers are little endian; a string
is u32 length and bytes:

    "NODETST1", u32 number of cases, and for each case
      string name, u64 length and bytes of the model (a ModelProto),
      u32 number of inputs, each a value; u32 number of outputs, each a value

A value is: string name; u8 kind: 0 a tensor, 1 left out (an optional without a value), 2 of a kind
that is not written (sequence, string, complex, below 8 bits). Only a tensor goes on: i32
TensorProto.DataType, u32 rank, i64 dims, u64 length and bytes.
"""

import struct
import sys

import numpy
import onnx
from onnx import TensorProto, numpy_helper
from onnx.backend.test.loader import load_model_tests

PLAIN = {
    TensorProto.BOOL, TensorProto.INT8, TensorProto.INT16, TensorProto.INT32, TensorProto.INT64,
    TensorProto.UINT8, TensorProto.UINT16, TensorProto.UINT32, TensorProto.UINT64,
    TensorProto.FLOAT16, TensorProto.BFLOAT16, TensorProto.FLOAT, TensorProto.DOUBLE,
}


def string(text):
    data = text.encode() if isinstance(text, str) else text
    return struct.pack("<I", len(data)) + data


def value(name, contents, kind):
    if contents is None:
        return string(name) + b"\x01"
    if isinstance(contents, TensorProto):
        tensor = contents
    elif kind != "tensor_type" or isinstance(contents, list):
        return string(name) + b"\x02"
    else:
        tensor = numpy_helper.from_array(numpy.asarray(contents))
    if tensor.data_type not in PLAIN:
        return string(name) + b"\x02"
    # Through an array: some tests keep their elements in typed fields instead of raw bytes.
    array = numpy_helper.to_array(tensor)
    data = numpy.ascontiguousarray(array).tobytes()
    dims = list(tensor.dims)
    return (string(name) + b"\x00" + struct.pack("<iI", tensor.data_type, len(dims)) +
            struct.pack("<%dq" % len(dims), *dims) + struct.pack("<Q", len(data)) + data)


def values(contents, infos):
    # A test may feed fewer values than the model declares.
    pairs = list(zip(contents, infos))
    return struct.pack("<I", len(pairs)) + b"".join(
        value(info.name, content, info.type.WhichOneof("value")) for content, info in pairs)


def main(path):
    cases = sorted(load_model_tests(kind="node"), key=lambda case: case.name)
    with open(path, "wb") as out:
        out.write(b"NODETST1" + struct.pack("<I", len(cases)))
        for case in cases:
            model = case.model.SerializeToString()
            inputs, outputs = case.data_sets[0]
            out.write(string(case.name) + struct.pack("<Q", len(model)) + model)
            out.write(values(inputs, case.model.graph.input))
            out.write(values(outputs, case.model.graph.output))


if __name__ == "__main__":
    main(sys.argv[1])
