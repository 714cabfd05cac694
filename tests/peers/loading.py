"""Compiling, loading and starting."""

import json
import os
import statistics
import subprocess
import tempfile
import time

import numpy as np

from contenders import Cache, Daemon, models, onnx_session, report


def compiled(options, path):
    cache = Cache()
    start = time.perf_counter()
    subprocess.run(
        [options.stampmill, "compile", path, "--target=cpu", "--output=" + cache.folder.name],
        check=True,
    )
    return cache, time.perf_counter() - start


def load(options):
    """`run --json` tells how long it took to open the compiled model, up to a possible launch."""
    rows = []
    for name, (path, inputs) in models(options.models).items():
        cache, _ = compiled(options, path)
        ours, theirs = [], []
        with tempfile.TemporaryDirectory() as folder:
            command = [options.stampmill, "run", path, cache.flag, "--json", "--repeat=1"]
            command.append("--output-dir=" + folder)
            for index, (key, value) in enumerate(inputs(1).items()):
                np.save("%s/in%d.npy" % (folder, index), value)
                command += ["--input", "%s=%s/in%d.npy" % (key, folder, index)]
            for _ in range(max(5, options.rounds)):
                begin = time.perf_counter()
                onnx_session(path)
                theirs.append(time.perf_counter() - begin)
                result = subprocess.run(command, check=True, capture_output=True, text=True)
                ours.append(json.loads(result.stdout)["open_seconds"])
        row = {"model": name, "stampmill_ms": statistics.median(ours) * 1e3}
        row["onnxruntime_ms"] = statistics.median(theirs) * 1e3
        row["ratio"] = row["stampmill_ms"] / row["onnxruntime_ms"]
        row["must"] = row["ratio"] <= 0.4
        rows.append(report(row))
    return rows


def start(options):
    path = models("ocr-cls")["ocr-cls"][0]
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
    for name, (path, _) in models(options.models or "minilm3").items():
        _, seconds = compiled(options, path)
        rows.append(
            report(
                {"model": name, "seconds": seconds, "cores": os.cpu_count(), "must": seconds <= 20}
            )
        )
    return rows
