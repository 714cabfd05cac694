"""Compiling, loading and starting."""

import os
import statistics
import subprocess
import sys
import time

import zoo
from contenders import Cache, Daemon, ModelRun, RunFailed, geometric_mean, onnx_session, report


def compiled(options, path):
    cache = Cache()
    start = time.perf_counter()
    command = [options.stampmill, "compile", path, "--target=cpu"]
    done = subprocess.run(
        command + ["--output=" + cache.folder.name], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise RunFailed((done.stderr.strip().splitlines() or ["?"])[-1])
    return cache, time.perf_counter() - start


def load(options):
    """`run --json` tells how long it took to open the compiled model, up to a possible launch."""
    rows = []
    for model in zoo.models(options.models):
        try:
            cache, _ = compiled(options, model.path)
            run = ModelRun(options.stampmill, model.path, model.inputs(1), cache, "--repeat=1")
            ours, theirs = [], []
            for _ in range(max(5, options.rounds)):
                begin = time.perf_counter()
                onnx_session(model.path)
                theirs.append(time.perf_counter() - begin)
                ours.append(run()["open_seconds"])
        except RunFailed as error:
            rows.append(report({"model": model.name, "error": str(error), "must": False}))
            continue
        row = {"model": model.name, "stampmill_ms": statistics.median(ours) * 1e3}
        row["onnxruntime_ms"] = statistics.median(theirs) * 1e3
        row["ratio"] = row["stampmill_ms"] / row["onnxruntime_ms"]
        # The bound of single models was set for these; all together have one of their own.
        if model.name in ("magika", "minilm3", "ocr-cls"):
            row["must"] = row["ratio"] <= 0.4
        rows.append(report(row))
    ratio = geometric_mean([row["ratio"] for row in rows if "ratio" in row])
    return rows + [report({"model": "geometric mean", "ratio": ratio, "must": ratio <= 0.3})]


def start(options):
    path = zoo.models("ocr-cls")[0].path
    cache, _ = compiled(options, path)
    seconds, resident = [], []
    for _ in range(max(5, options.rounds)):
        with Daemon(options.stampmill, [path, "--require-warm-cache"], cache) as daemon:
            seconds.append(daemon.ready_seconds)
            time.sleep(1)
            resident.append(daemon.resident_mib())
    ready, memory = statistics.median(seconds), statistics.median(resident)
    return [
        report(
            {
                "ready_seconds": ready,
                "resident_mib": memory,
                "must": ready <= 0.15 and memory <= 60,
            }
        )
    ]


def compile(options):  # the row's name
    rows = []
    for model in zoo.models(options.models):
        try:
            _, seconds = compiled(options, model.path)
        except RunFailed as error:
            rows.append(report({"model": model.name, "error": str(error), "must": False}))
            continue
        bound = 20 if model.name == "minilm3" else 30
        row = {"model": model.name, "seconds": seconds, "cores": os.cpu_count()}
        rows.append(report(row | {"must": seconds <= bound}))
    return rows


# Peak of a process that has loaded onnxruntime and run the model, less what it had before the
# session was made: Python and the libraries.
_PEER_MEMORY = """
import resource, sys, numpy, onnxruntime
peak = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
options = onnxruntime.SessionOptions()
options.intra_op_num_threads, options.log_severity_level = 1, 3
feed = {n: numpy.load(f) for n, f in (a.rsplit("=", 1) for a in sys.argv[2:])}
before = peak()
session = onnxruntime.InferenceSession(sys.argv[1], options, providers=["CPUExecutionProvider"])
for _ in range(5):
    session.run(None, feed)
print(peak() - before)
"""


def memory(options):
    """All of our process against what the peer's grew by."""
    rows = []
    for model in zoo.models(options.models, default=("resnet", "ocr-rec")):
        cache, _ = compiled(options, model.path)
        run = ModelRun(options.stampmill, model.path, model.inputs(1), cache, "--threads=1")
        ours = min(run("--repeat=5")["peak_mib"] for _ in range(options.rounds))
        arguments = [run.command[i + 1] for i, a in enumerate(run.command) if a == "--input"]
        peer = [sys.executable, "-c", _PEER_MEMORY, model.path, *arguments]
        theirs = min(
            float(subprocess.run(peer, check=True, capture_output=True, text=True).stdout)
            for _ in range(options.rounds)
        )
        row = {"model": model.name, "stampmill_mib": ours, "onnxruntime_mib": theirs}
        rows.append(report(row | {"ratio": ours / theirs, "must": ours <= theirs}))
    return rows
