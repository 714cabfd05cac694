"""What the benchmarks share: the daemon, runs of a model, small statistics."""

import json
import math
import os
import signal
import subprocess
import tempfile
import time
import urllib.request

import numpy as np

TICK = os.sysconf("SC_CLK_TCK")


class Cache:
    """A kernel cache directory of its own, for one benchmark."""

    def __init__(self):
        self.folder = tempfile.TemporaryDirectory(prefix="stampmill-bench-")
        os.chmod(self.folder.name, 0o700)
        self.flag = "--cache-dir=" + self.folder.name


class Daemon:
    """A daemon on free ports, stopped at the end of a `with`."""

    def __init__(self, stampmill, arguments, cache, wait=True):
        self.ports_file = tempfile.mktemp(prefix="stampmill-ports-")
        self.started = time.perf_counter()
        self.process = subprocess.Popen(
            [stampmill, "serve", cache.flag, "--port-file=" + self.ports_file]
            + ["--http-port=0", "--grpc-port=0", "--metrics-port=0"]
            + arguments
        )
        self.ready_seconds = None
        if wait:
            self.wait_ready()

    def wait_ready(self, timeout=120):
        deadline = time.perf_counter() + timeout
        while not os.path.exists(self.ports_file) or not os.path.getsize(self.ports_file):
            self._check(deadline)
            time.sleep(0.001)
        with open(self.ports_file) as file:
            ports = json.load(file)
        self.http, self.grpc = ports["http_port"], ports["grpc_port"]
        url = "http://127.0.0.1:%d/v2/health/ready" % self.http
        while True:
            try:
                with urllib.request.urlopen(url, timeout=5) as answer:
                    if answer.status == 200:
                        break
            except OSError:
                pass
            self._check(deadline)
            time.sleep(0.001)
        self.ready_seconds = time.perf_counter() - self.started

    def _check(self, deadline):
        if self.process.poll() is not None:
            raise RuntimeError("the daemon ended with status %d" % self.process.returncode)
        if time.perf_counter() > deadline:
            raise RuntimeError("the daemon is not ready")

    def get(self, path):
        with urllib.request.urlopen("http://127.0.0.1:%d%s" % (self.http, path)) as answer:
            return answer.read().decode()

    def metric(self, name):
        """Sum over the samples of a metric; 0 when there is none."""
        total = 0.0
        for line in self.get("/metrics").splitlines():
            if line.startswith(name + "{") or line.startswith(name + " "):
                total += float(line.rsplit(" ", 1)[1])
        return total

    def cpu_seconds(self):
        return cpu_seconds(self.process.pid)

    def resident_mib(self):
        with open("/proc/%d/status" % self.process.pid) as file:
            for line in file:
                if line.startswith("VmRSS"):
                    return int(line.split()[1]) / 1024
        return 0.0

    def stop(self):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            self.process.wait(timeout=60)
        if os.path.exists(self.ports_file):
            os.remove(self.ports_file)

    def __enter__(self):
        return self

    def __exit__(self, *unused):
        self.stop()


class RunFailed(Exception):
    """What `stampmill run` said last."""


def input_flags(feed, folder):
    """The flags that give a command these inputs, from files written to `folder`."""
    flags = []
    for index, (name, value) in enumerate(feed.items()):
        file = "%s/in%d.npy" % (folder, index)
        np.save(file, value)
        flags += ["--input", "%s=%s" % (name, file)]
    return flags


class ModelRun:
    """`stampmill run` of a model on its inputs, as often as asked, in a folder of its own."""

    def __init__(self, stampmill, path, feed, cache, *flags):
        self.folder = tempfile.TemporaryDirectory(prefix="stampmill-run-")
        self.command = [stampmill, "run", path, cache.flag, "--json", *flags]
        self.command.append("--output-dir=" + self.folder.name)
        self.command += input_flags(feed, self.folder.name)

    def __call__(self, *flags):
        """Its report; the peak of the process's resident MiB beside."""
        with tempfile.TemporaryFile("w+") as output, tempfile.TemporaryFile("w+") as errors:
            command = self.command + list(flags)
            process = subprocess.Popen(command, stdout=output, stderr=errors)
            _, status, usage = os.wait4(process.pid, 0)
            process.returncode = os.waitstatus_to_exitcode(status)
            if process.returncode != 0:
                errors.seek(0)
                raise RunFailed((errors.read().strip().splitlines() or ["?"])[-1])
            output.seek(0)
            return json.load(output) | {"peak_mib": usage.ru_maxrss / 1024}

    def outputs(self, names):
        return [np.load("%s/%s.npy" % (self.folder.name, n.replace("/", "_"))) for n in names]


def cpu_seconds(pid):
    with open("/proc/%d/stat" % pid) as file:
        fields = file.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def quantile(values, q):
    values = sorted(values)
    return values[min(len(values) - 1, int(q * len(values)))]


def geometric_mean(values):
    return math.exp(sum(math.log(v) for v in values) / len(values))


def onnx_session(path, threads=1, optimise=True):
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    options.inter_op_num_threads = 1
    options.log_severity_level = 3
    if not optimise:
        options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    return onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])


def write_identity(folder, shape, name="echo"):
    """An ONNX model of one Identity, IN to OUT, FP32."""
    import onnx
    from onnx import TensorProto, helper

    tensor = lambda n: helper.make_tensor_value_info(n, TensorProto.FLOAT, shape)
    graph = helper.make_graph(
        [helper.make_node("Identity", ["IN"], ["OUT"])], name, [tensor("IN")], [tensor("OUT")]
    )
    path = os.path.join(folder, name + ".onnx")
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)]), path)
    return path


def report(row):
    """Prints one result; `must` says whether the required figure is reached."""
    parts = ["%s=%s" % (k, ("%.4g" % v) if isinstance(v, float) else v) for k, v in row.items()]
    print("  ".join(parts), flush=True)
    return row
