"""Latency of a model in another engine: what `stampmill bench model` runs under --peer-python.

arguments: ENGINE MODEL THREADS WARMUP REPEAT NAME=FILE.npy ...
Prints one line of JSON: {"version", "open_seconds", "nanos": [...]} or {"error"}. Inputs and
outputs are bound before the first run that counts, so that a run is the engine's own time.
"""

import json
import sys
import time

import numpy


def onnxruntime_engine(model, threads, inputs):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    begin = time.perf_counter()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    opened = time.perf_counter() - begin
    binding = session.io_binding()
    known = {tensor.name for tensor in session.get_inputs()}
    for name, value in inputs.items():
        if name in known:
            binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(value))
    for output in session.get_outputs():
        binding.bind_output(output.name)

    def bound():
        session.run_with_iobinding(binding)

    try:
        bound()
        bound()
    except RuntimeError:  # the first left an output that has not the rank which the model declares
        fed = {name: value for name, value in inputs.items() if name in known}
        return onnxruntime.__version__, opened, lambda: session.run(None, fed)
    return onnxruntime.__version__, opened, bound


def openvino_engine(model, threads, inputs):
    import openvino

    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": "f32",
        "PERFORMANCE_HINT": "LATENCY",
    }
    begin = time.perf_counter()
    compiled = openvino.Core().compile_model(model, "CPU", settings)
    opened = time.perf_counter() - begin
    request = compiled.create_infer_request()
    known = {name for tensor in compiled.inputs for name in tensor.names}
    for name, value in inputs.items():
        if name in known:
            request.set_tensor(name, openvino.Tensor(value))
    return openvino.__version__, opened, request.infer


ENGINES = {"onnxruntime": onnxruntime_engine, "openvino": openvino_engine}


def measure(engine, model, threads, warmup, repeat, *files):
    inputs = {}
    for argument in files:
        name, path = argument.rsplit("=", 1)
        inputs[name] = numpy.load(path)
    version, opened, run = ENGINES[engine](model, int(threads), inputs)
    for _ in range(max(1, int(warmup))):
        run()
    nanos = []
    for _ in range(int(repeat)):
        begin = time.perf_counter_ns()
        run()
        nanos.append(time.perf_counter_ns() - begin)
    return {"version": version, "open_seconds": opened, "nanos": nanos}


def main():
    try:
        result = measure(*sys.argv[1:])
    except Exception as error:  # whatever an engine throws is its answer
        text = str(error).strip().splitlines() or [""]
        result = {"error": "%s: %s" % (type(error).__name__, text[0])}
    print(json.dumps(result))


main()
