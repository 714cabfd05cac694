"""The daemon under load."""

import csv
import glob
import json
import multiprocessing
import os
import shutil
import signal
import socket
import statistics
import subprocess
import tempfile
import time
import uuid

import numpy as np

import zoo
from contenders import Cache, Daemon, ModelRun, cpu_seconds, quantile, report, write_identity

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


# ---- echo: perf_analyzer drives the daemon and a bare gRPC echo ----


def perf_analyzer(protocol, port, concurrency, model="echo", seconds=1.5):
    packages = glob.glob(ROOT + "/.venv/perf/lib/python3*/site-packages")[0]
    program = shutil.which("perf_analyzer", path=ROOT + "/.venv/perf/bin")
    environment = dict(os.environ, LD_LIBRARY_PATH=packages + "/nvidia/cuda_runtime/lib")
    with tempfile.NamedTemporaryFile(suffix=".csv") as out:
        command = [program, "-m", model, "-i", protocol, "-u", "127.0.0.1:%d" % port]
        command += ["--concurrency-range", str(concurrency), "-p", str(int(seconds * 1000))]
        command += ["-r", "3", "-s", "999", "-f", out.name, "--verbose-csv"]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        rows = list(csv.DictReader(open(out.name)))
    if not rows:
        raise RuntimeError(done.stdout[-500:] + done.stderr[-500:])
    return float(rows[0]["Inferences/Second"]), float(rows[0]["p50 latency"])


def request_count(port, model="echo"):
    import tritonclient.grpc as client

    with client.InferenceServerClient("127.0.0.1:%d" % port) as connection:
        stats = connection.get_inference_statistics(model, as_json=True)["model_stats"][0]
    return int(stats.get("inference_stats", {}).get("success", {}).get("count", 0))


def measure_echo(protocol, port, grpc_port, pid, concurrency):
    before, cpu = request_count(grpc_port), cpu_seconds(pid)
    rate, p50 = perf_analyzer(protocol, port, concurrency)
    requests = max(1, request_count(grpc_port) - before)
    return {"cpu_us": (cpu_seconds(pid) - cpu) / requests * 1e6, "p50_us": p50, "rate": rate}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def echo(options):
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        path = write_identity(folder, [16])
        bare_port = free_port()
        bare = subprocess.Popen([options.grpc_echo, str(bare_port)], stdout=subprocess.PIPE)
        bare.stdout.readline()  # "listening"
        try:
            with Daemon(options.stampmill, [path], Cache()) as daemon:
                contenders = {
                    "bare": ("grpc", bare_port, bare_port, bare.pid),
                    "grpc": ("grpc", daemon.grpc, daemon.grpc, daemon.process.pid),
                    "http": ("http", daemon.http, daemon.grpc, daemon.process.pid),
                }
                for concurrency in (1, 8, 32):
                    results = {name: [] for name in contenders}
                    for _ in range(options.rounds):
                        for name, target in contenders.items():
                            results[name].append(measure_echo(*target, concurrency))
                    best = {
                        name: {key: min(r[key] for r in runs) for key in ("cpu_us", "p50_us")}
                        for name, runs in results.items()
                    }
                    rows += echo_rows(concurrency, best)
        finally:
            bare.kill()
            bare.wait()
    return rows


def echo_rows(concurrency, best):
    bare = best["bare"]
    for name, cpu_limit, p50_limit in (("grpc", 1.5, 30), ("http", 1.0, 10)):
        row = {"protocol": name, "concurrency": concurrency}
        row["cpu_us"], row["bare_cpu_us"] = best[name]["cpu_us"], bare["cpu_us"]
        row["cpu_ratio"] = best[name]["cpu_us"] / bare["cpu_us"]
        row["p50_over_bare_us"] = best[name]["p50_us"] - bare["p50_us"]
        if concurrency == 1:
            row["must"] = row["p50_over_bare_us"] <= p50_limit
        else:
            row["must"] = row["cpu_ratio"] <= cpu_limit
        yield report(row)


# ---- shared memory against HTTP ----


def shm(options):
    import tritonclient.http as client
    import tritonclient.utils.shared_memory as regions

    elements = 4 << 20  # 16 MiB
    with tempfile.TemporaryDirectory() as folder:
        path = write_identity(folder, [elements])
        arguments = [path, "--allow-client-shm=true"]
        with Daemon(options.stampmill, arguments, Cache()) as daemon:
            connection = client.InferenceServerClient("127.0.0.1:%d" % daemon.http)
            data = np.random.default_rng(0).standard_normal(elements, dtype=np.float32)
            name = uuid.uuid4().hex
            memory = {}
            for kind in ("in", "out"):
                memory[kind] = regions.create_shared_memory_region(
                    kind, "/%s%s" % (name, kind), data.nbytes
                )
                connection.register_system_shared_memory(kind, "/%s%s" % (name, kind), data.nbytes)
            regions.set_shared_memory_region(memory["in"], [data])

            def through_memory():
                tensor = client.InferInput("IN", [elements], "FP32")
                tensor.set_shared_memory("in", data.nbytes)
                output = client.InferRequestedOutput("OUT")
                output.set_shared_memory("out", data.nbytes)
                connection.infer("echo", [tensor], outputs=[output])

            def through_http():
                tensor = client.InferInput("IN", [elements], "FP32")
                tensor.set_data_from_numpy(data)
                connection.infer("echo", [tensor]).as_numpy("OUT")

            copied = daemon.metric("stampmill_bytes_copied_total")
            times = {through_memory: [], through_http: []}
            for _ in range(max(5, options.rounds) * 3):
                for run, taken in times.items():
                    start = time.perf_counter()
                    run()
                    taken.append(time.perf_counter() - start)
            copied = daemon.metric("stampmill_bytes_copied_total") - copied
            result = regions.get_contents_as_numpy(memory["out"], np.float32, [elements])
            equal = bool(np.array_equal(result, data))
            for region in memory.values():
                regions.destroy_shared_memory_region(region)
    fast, slow = (statistics.median(times[run]) for run in (through_memory, through_http))
    return [
        report(
            {
                "shm_ms": fast * 1e3,
                "http_ms": slow * 1e3,
                "ratio": slow / fast,
                "bytes_copied": copied,
                "equal": equal,
                "must": slow / fast >= 4 and copied == 0 and equal,
            }
        )
    ]


# ---- batching ----


def rows_per_second(stampmill, port, clients, batch, seconds=3):
    command = [stampmill, "bench", "serve", "--url=127.0.0.1:%d" % port, "--model=minilm3"]
    command += ["--concurrency=%d" % clients, "--batch=%d" % batch, "--seconds=%d" % seconds]
    command += ["--shape=%s:%d,16" % (name, batch) for name in ("input_ids", "attention_mask")]
    result = subprocess.run(command + ["--json"], check=True, capture_output=True, text=True)
    return json.loads(result.stdout)["rows"][0]["requests_per_second"] * batch


def repository(folder, path, batch_size):
    os.makedirs(folder + "/minilm3/1")
    os.symlink(path, folder + "/minilm3/1/model.onnx")
    with open(folder + "/minilm3/config.pbtxt", "w") as file:
        file.write("max_batch_size: %d\n" % batch_size)
        if batch_size > 1:
            file.write("dynamic_batching { }\n")


def batching(options):
    path = zoo.models("minilm3")[0].path
    cache = Cache()
    with tempfile.TemporaryDirectory() as many, tempfile.TemporaryDirectory() as single:
        repository(many, path, 32)
        repository(single, path, 1)
        with Daemon(options.stampmill, ["--model-repository=" + many], cache) as batched:
            with Daemon(options.stampmill, ["--model-repository=" + single], cache) as alone:
                results = {"16x1": [], "1x16": [], "16x1 unbatched": []}
                for _ in range(options.rounds):
                    results["16x1"].append(rows_per_second(options.stampmill, batched.grpc, 16, 1))
                    results["1x16"].append(rows_per_second(options.stampmill, batched.grpc, 1, 16))
                    results["16x1 unbatched"].append(
                        rows_per_second(options.stampmill, alone.grpc, 16, 1)
                    )
                sizes = batched.get("/v2/models/minilm3/stats").count('"batch_size"')
    best = {name: max(values) for name, values in results.items()}
    row = {
        "rows_per_second": best["16x1"],
        "of_one_client": best["16x1"] / best["1x16"],
        "of_unbatched": best["16x1"] / best["16x1 unbatched"],
        "batch_sizes_seen": sizes,
    }
    row["must"] = row["of_one_client"] >= 0.9 and row["of_unbatched"] >= 0.97 and sizes > 1
    return [report(row)]


# ---- beside busy loops ----


def busy():
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        pass


def shared_cores(options):
    """`run --repeat` with two threads, quiet and beside two busy loops, in turns."""
    model, cache, quiet, shared = zoo.models("minilm3")[0], Cache(), [], []
    run = ModelRun(options.stampmill, model.path, model.inputs(1), cache, "--threads=2")

    def throughput(repeats=2000):
        begin = time.perf_counter()
        run("--repeat=%d" % repeats)
        return repeats / (time.perf_counter() - begin)

    throughput()
    for _ in range(max(5, options.rounds)):
        quiet.append(throughput())
        loops = [multiprocessing.Process(target=busy, daemon=True) for _ in range(2)]
        for loop in loops:
            loop.start()
        shared.append(throughput())
        for loop in loops:
            loop.kill()
            loop.join()
    ratio = statistics.median(s / q for s, q in zip(shared, quiet))
    return [
        report(
            {
                "quiet_per_second": statistics.median(quiet),
                "shared_per_second": statistics.median(shared),
                "ratio": ratio,
                "must": ratio >= 0.4,
            }
        )
    ]


# ---- a million requests ----


def steady(options, warm=100_000, requests=1_000_000):
    """Requests by `bench serve`; what engine threads allocate is in the runtime's tests."""
    with tempfile.TemporaryDirectory() as folder:
        path = write_identity(folder, [16])
        with Daemon(options.stampmill, [path], Cache()) as daemon:
            drive = lambda count: subprocess.run(
                [
                    options.stampmill,
                    "bench",
                    "serve",
                    "--url=127.0.0.1:%d" % daemon.grpc,
                    "--protocol=grpc",
                    "--model=echo",
                    "--concurrency=8",
                    "--requests=%d" % count,
                    "--json",
                ],
                check=True,
                stdout=subprocess.DEVNULL,
            )
            drive(warm)
            before = daemon.resident_mib()
            drive(requests)
            growth = daemon.resident_mib() - before
    return [report({"requests": requests, "growth_mib": growth, "must": growth < 4})]


# ---- connections ----


def p99_ms(port, seconds=3.0):
    import tritonclient.http as client

    connection = client.InferenceServerClient("127.0.0.1:%d" % port)
    tensor = client.InferInput("IN", [16], "FP32")
    tensor.set_data_from_numpy(np.zeros(16, np.float32))
    times, end = [], time.perf_counter() + seconds
    while time.perf_counter() < end:
        start = time.perf_counter()
        connection.infer("echo", [tensor])
        times.append(time.perf_counter() - start)
    return quantile(times, 0.99) * 1e3


def idle_connections(port, count):
    return [socket.create_connection(("127.0.0.1", port)) for _ in range(count)]


def unreading_client(port):
    client = socket.create_connection(("127.0.0.1", port))
    client.setblocking(False)
    request = b"GET /v2/models/echo HTTP/1.1\r\nHost: x\r\n\r\n" * 1000
    end = time.perf_counter() + 2
    while time.perf_counter() < end:
        try:
            client.send(request)
        except BlockingIOError:
            time.sleep(0.01)
    return client


def connections(options):
    with tempfile.TemporaryDirectory() as folder:
        path = write_identity(folder, [16])
        with Daemon(options.stampmill, [path], Cache()) as daemon:
            p99_ms(daemon.http, 1)
            alone = min(p99_ms(daemon.http) for _ in range(options.rounds))
            idle = idle_connections(daemon.http, 1000)
            crowded = min(p99_ms(daemon.http) for _ in range(options.rounds))
            before = daemon.resident_mib()
            silent = unreading_client(daemon.http)
            held = daemon.resident_mib() - before
            beside = min(p99_ms(daemon.http) for _ in range(options.rounds))
            for connection in idle + [silent]:
                connection.close()
    return [
        report(
            {
                "p99_ms": alone,
                "with_1000_idle": crowded / alone,
                "with_unreading": beside / alone,
                "held_mib": held,
                "must": crowded <= 2 * alone and beside <= 2 * alone and held <= 1,
            }
        )
    ]
