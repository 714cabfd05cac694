"""Compiling, loading and starting."""

import os
import statistics
import subprocess
import time

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
    """`bench model --load` opens the compiled model and stops where a launch is possible."""
    rows = []
    for name, (path, _) in models(options.models).items():
        cache, _ = compiled(options, path)
        ours, theirs = [], []
        for _ in range(max(5, options.rounds)):
            start = time.perf_counter()
            onnx_session(path)
            theirs.append(time.perf_counter() - start)
            result = subprocess.run(
                [options.stampmill, "bench", "model", path, cache.flag, "--load", "--json"],
                check=True,
                capture_output=True,
                text=True,
            )
            import json

            ours.append(json.loads(result.stdout)["rows"][0]["load_us"] / 1e6)
        ratio = statistics.median(ours) / statistics.median(theirs)
        rows.append(
            report(
                {
                    "model": name,
                    "stampmill_ms": statistics.median(ours) * 1e3,
                    "onnxruntime_ms": statistics.median(theirs) * 1e3,
                    "ratio": ratio,
                    "must": ratio <= 0.4,
                }
            )
        )
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
