"""Latency against onnxruntime with its default optimisations."""

import json
import subprocess
import tempfile
import time

import onnxruntime

import zoo
from contenders import (
    Cache,
    ModelRun,
    RunFailed,
    geometric_mean,
    input_flags,
    onnx_session,
    quantile,
    report,
)

SLICE_SECONDS = 0.4
# A model that fails counts as so many times onnxruntime's time.
FAILED_RATIO = 10.0


def time_onnxruntime(path, feed, threads):
    session = onnx_session(path, threads)
    binding = session.io_binding()
    for name, value in feed.items():
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(value))
    for output in session.get_outputs():
        binding.bind_output(output.name)
    run = lambda: session.run_with_iobinding(binding)
    try:
        run()
        run()
    except RuntimeError:  # the first left an output that has not the rank which the model declares
        run = lambda: session.run(None, feed)

    def slice_():
        times, end = [], time.perf_counter() + SLICE_SECONDS
        while len(times) < 3 or time.perf_counter() < end:
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)
        return quantile(times, 0.25), len(times)

    slice_()
    return slice_


def compared(options, model, batch, threads, bound):
    """One row: milliseconds of both, the smallest quartile of rounds in turns."""
    feed = model.inputs(batch)
    row = {"model": model.name, "batch": batch, "threads": threads}
    peer = time_onnxruntime(model.path, feed, threads)
    run = ModelRun(options.stampmill, model.path, feed, options.cache, "--threads=%d" % threads)
    ours, theirs = [], []
    try:
        run()  # compiled before timing
        for _ in range(options.rounds):
            p25, count = peer()
            theirs.append(p25)
            ours.append(run("--repeat=%d" % max(20, count))["p25_us"] / 1e6)
    except RunFailed as error:
        return report(row | {"ratio": FAILED_RATIO, "error": str(error), "must": False})
    row["stampmill_ms"], row["onnxruntime_ms"] = min(ours) * 1e3, min(theirs) * 1e3
    row["ratio"] = min(ours) / min(theirs)
    return report(row | ({"must": row["ratio"] <= bound} if bound else {}))


def mean(rows, bound):
    ratio = geometric_mean([row["ratio"] for row in rows])
    return report({"model": "geometric mean", "ratio": ratio, "must": ratio <= bound})


def latency(options):
    options.cache, rows = Cache(), []
    for model in zoo.models(options.models):
        for threads in (1, 2):
            rows.append(compared(options, model, 1, threads, 1.2))
    return rows + [mean(rows, 0.85)]


def openvino(options):
    """Against OpenVINO in f32, by `stampmill bench model`; the models that it loads and computes
    in f32. --peer-python names the Python that has it."""
    names = "magika ocr-det ocr-rec ocr-cls minilm3 crnn yolox resnet pitch".split()
    cache, rows = Cache(), []
    for model in zoo.models(options.models, names):
        for threads in (1, 2):
            with tempfile.TemporaryDirectory() as folder:
                command = [options.stampmill, "bench", "model", model.path, cache.flag, "--json"]
                command += ["--threads=%d" % threads, "--rounds=%d" % options.rounds]
                command += ["--peer-python=" + options.peer_python, "--repeat=30"]
                command += input_flags(model.inputs(1), folder)
                measured = json.loads(subprocess.check_output(command))["rows"]
            engines = {row["engine"]: row for row in measured}
            ours, peer = engines["stampmill"], engines["openvino"]
            row = {"model": model.name, "threads": threads}
            if peer["error"]:
                rows.append(report(row | {"error": peer["error"], "must": False}))
                continue
            row |= {"stampmill_ms": ours["p25_us"] / 1e3, "openvino_ms": peer["p25_us"] / 1e3}
            rows.append(report(row | {"ratio": ours["p25_us"] / peer["p25_us"]}))
    ratios = [row["ratio"] for row in rows if "ratio" in row]
    return rows + ([report({"model": "geometric mean", "ratio": geometric_mean(ratios)})])


def batch8(options):
    options.cache, rows = Cache(), []
    for model in zoo.models(options.models):
        if 8 in model.batches:
            rows.append(compared(options, model, 8, 1, None))
    return rows + [mean(rows, 0.95)]


def against_f32(options, model, runs, unit, bound):
    """How many times as fast as runs["f32"] the others are: interleaved rounds, a row for each."""
    best = {kind: [] for kind in runs}
    for run in runs.values():
        run()
    for _ in range(options.rounds):
        for kind, run in runs.items():
            best[kind].append(run("--repeat=50")["p25_us"])
    rows, base = [], min(best.pop("f32"))
    for kind, times in best.items():
        row = {"model": model.name, "form": kind, "f32_ms": base / 1e3}
        row |= {unit + "_ms": min(times) / 1e3, "speedup": base / min(times)}
        rows.append(report(row | ({"must": row["speedup"] >= bound} if bound else {})))
    return rows


def int8(options):
    """Conversions to int8 against the same model in f32, both ours, one thread."""
    import convert

    cache, rows = Cache(), []
    flags = ["--threads=1"] + (["--cpu-isa=" + options.cpu_isa] if options.cpu_isa else [])
    bound = 1.2 if options.cpu_isa and "vnni" not in options.cpu_isa else 2.0
    with tempfile.TemporaryDirectory() as folder:
        for model in zoo.models(options.models, ("resnet", "minilm3")):
            paths = {"f32": model.path}
            paths |= {k: convert.converted(model, k, folder) for k in convert.KINDS if k != "fp16"}
            runs = {
                kind: ModelRun(options.stampmill, path, model.inputs(1), cache, *flags)
                for kind, path in paths.items()
            }
            rows += against_f32(options, model, runs, "int8", bound)
    return rows


def bf16(options):
    """--activation-precision=bf16 against f32, both ours, one and two threads."""
    cache, rows = Cache(), []
    isa = ["--cpu-isa=" + options.cpu_isa] if options.cpu_isa else []
    for model in zoo.models(options.models, ("resnet", "minilm3")):
        for threads in (1, 2):
            runs = {
                "f32" if precision == "f32" else "threads=%d" % threads: ModelRun(
                    options.stampmill,
                    model.path,
                    model.inputs(1),
                    cache,
                    "--threads=%d" % threads,
                    "--activation-precision=" + precision,
                    *isa
                )
                for precision in ("f32", "bf16")
            }
            rows += against_f32(options, model, runs, "bf16", None)
    return rows


def scaling(options):
    """Two threads against one, of ours, for models that take above 2 ms."""
    cache, rows = Cache(), []
    for model in zoo.models(options.models):
        runs = {
            threads: ModelRun(
                options.stampmill, model.path, model.inputs(1), cache, "--threads=%d" % threads
            )
            for threads in (1, 2)
        }
        try:
            count = max(10, int(SLICE_SECONDS * 1e6 / runs[1]("--repeat=3")["p25_us"]))
        except RunFailed as error:
            rows.append(report({"model": model.name, "error": str(error), "must": False}))
            continue
        best = {1: [], 2: []}
        for _ in range(options.rounds):
            for threads, run in runs.items():
                best[threads].append(run("--repeat=%d" % count)["p25_us"])
        if min(best[1]) < 2000:
            continue
        speedup = min(best[1]) / min(best[2])
        rows.append(report({"model": model.name, "speedup": speedup, "must": speedup >= 1.6}))
    speedup = geometric_mean([row["speedup"] for row in rows if "speedup" in row])
    return rows + [report({"model": "geometric mean", "speedup": speedup, "must": speedup >= 1.8})]
