"""Latency against onnxruntime with its default optimisations."""

import json
import math
import subprocess
import tempfile
import time

import numpy as np

from contenders import Cache, models, onnx_session, quantile, report

SLICE_SECONDS = 0.4


def time_onnxruntime(path, feed):
    session = onnx_session(path)
    binding = session.io_binding()
    import onnxruntime

    for name, value in feed.items():
        binding.bind_ortvalue_input(name, onnxruntime.OrtValue.ortvalue_from_numpy(value))
    for output in session.get_outputs():
        binding.bind_output(output.name)

    def run():
        session.run_with_iobinding(binding)

    run()

    def slice_():
        times, end = [], time.perf_counter() + SLICE_SECONDS
        while not times or time.perf_counter() < end:
            start = time.perf_counter()
            run()
            times.append(time.perf_counter() - start)
        return quantile(times, 0.25), len(times)

    return slice_


def latency(options):
    cache, rows = Cache(), []
    for name, (path, inputs) in models(options.models).items():
        feed = inputs(1)
        peer = time_onnxruntime(path, feed)
        with tempfile.TemporaryDirectory() as folder:
            command = [
                options.stampmill,
                "run",
                path,
                cache.flag,
                "--threads=1",
                "--json",
                "--output-dir=" + folder,
            ]
            for index, (key, value) in enumerate(feed.items()):
                np.save("%s/in%d.npy" % (folder, index), value)
                command += ["--input", "%s=%s/in%d.npy" % (key, folder, index)]
            subprocess.run(
                command, check=True, stdout=subprocess.DEVNULL
            )  # compiled before timing
            ours, theirs = [], []
            for _ in range(options.rounds):
                p25, count = peer()
                theirs.append(p25)
                result = subprocess.run(
                    command + ["--repeat=%d" % max(20, count)],
                    check=True,
                    capture_output=True,
                    text=True,
                )
                ours.append(json.loads(result.stdout)["p25_us"] / 1e6)
        ratio = min(ours) / min(theirs)
        rows.append(
            report(
                {
                    "model": name,
                    "stampmill_ms": min(ours) * 1e3,
                    "onnxruntime_ms": min(theirs) * 1e3,
                    "ratio": ratio,
                    "must": ratio <= 1.2,
                }
            )
        )
    if len(rows) > 1:
        print(
            "geometric mean %.3f" % math.exp(sum(math.log(r["ratio"]) for r in rows) / len(rows))
        )
    return rows
