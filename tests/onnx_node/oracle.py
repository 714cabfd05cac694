"""What onnxruntime, or onnx's reference evaluator, computes for a model of a test."""

import os
import pickle
import resource
import signal

# What an oracle may take.
ADDRESS_BYTES_MAX = 8 << 30
SECONDS_MAX = 10


def onnxruntime_answer(model, inputs):
    """Names and values of the outputs, without optimisations; None when it refuses."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        session = onnxruntime.InferenceSession(model.SerializeToString(), options)
        names = [output.name for output in session.get_outputs()]
        results = session.run(None, inputs)
    except Exception:  # whatever it says: it gave no answer
        return None
    return list(zip(names, results))


def reference_answer(model, inputs):
    """The same by onnx's reference evaluator."""
    import onnx.reference

    try:
        results = onnx.reference.ReferenceEvaluator(model).run(None, inputs)
    except Exception:
        return None
    return [(output.name, result) for output, result in zip(model.graph.output, results)]


def apart(function, *arguments):
    """The function's result from a process of its own, which may crash or never end: then None."""
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.close(read)
        resource.setrlimit(resource.RLIMIT_AS, (ADDRESS_BYTES_MAX, ADDRESS_BYTES_MAX))
        signal.alarm(SECONDS_MAX)
        status = 1
        try:
            with os.fdopen(write, "wb") as out:
                pickle.dump(function(*arguments), out)
            status = 0
        finally:
            os._exit(status)
    os.close(write)
    with os.fdopen(read, "rb") as result:
        data = result.read()
    return pickle.loads(data) if os.waitpid(child, 0)[1] == 0 else None
