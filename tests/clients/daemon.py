"""Starts and stops the daemon for tests: free ports, a port file, readiness by the protocol."""

import http.client
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time

STAMPMILL = os.path.abspath("server/stampmill")
MODELS = os.path.abspath("tests/clients/models")


def model(name):
    """Path of a model that make_models.py wrote."""
    return os.path.join(MODELS, name + ".onnx")


class Daemon:
    """One `stampmill serve`; a context manager. `output` is its log once it has stopped.

    `program` and `folder` (for its files) may lie elsewhere, and `process` takes what Popen does.
    """

    def __init__(
        self,
        arguments,
        environment=None,
        wait_ready=True,
        program=STAMPMILL,
        folder=os.environ.get("TEST_TMPDIR"),
        **process,
    ):
        self.folder = tempfile.mkdtemp(prefix="daemon_", dir=folder)
        if "user" in process:
            shutil.chown(self.folder, process["user"], process["group"])
        port_file = os.path.join(self.folder, "ports")
        self._log = open(os.path.join(self.folder, "log"), "w+", encoding="utf-8")
        cache = os.path.join(os.environ.get("TEST_TMPDIR", self.folder), "cache")
        command = [program, "serve", "--http-port=0", "--grpc-port=0", "--metrics-port=0"]
        command += ["--port-file=" + port_file, "--cache-dir=" + cache]
        self.process = subprocess.Popen(
            command + list(arguments),
            stderr=self._log,
            stdin=subprocess.DEVNULL,
            env=dict(os.environ, **(environment or {})),
            **process,
        )
        self.output = ""
        try:
            self._wait(lambda: os.path.exists(port_file), "the port file")
            with open(port_file, encoding="utf-8") as file:
                ports = json.load(file)
            self.http_port = ports["http_port"]
            self.grpc_port = ports["grpc_port"]
            self.metrics_port = ports["metrics_port"]
            if wait_ready:
                self._wait(self.ready, "readiness")
        except BaseException:
            self.process.kill()
            self._read_log()
            print(self.output)
            raise

    @property
    def http(self):
        return "127.0.0.1:%d" % self.http_port

    @property
    def grpc(self):
        return "127.0.0.1:%d" % self.grpc_port

    def _wait(self, condition, what):
        deadline = time.monotonic() + 120
        while not condition():
            if self.process.poll() is not None:
                raise RuntimeError("the daemon ended with %d" % self.process.returncode)
            if time.monotonic() > deadline:
                raise RuntimeError("no %s after 120 s" % what)
            time.sleep(0.01)

    def _read_log(self):
        self._log.seek(0)
        self.output = self._log.read()

    def request(self, method, path, body=None, headers=None, port=None):
        """(status, headers, body) of one HTTP request on a connection of its own."""
        connection = http.client.HTTPConnection("127.0.0.1", port or self.http_port, timeout=60)
        try:
            connection.request(method, path, body=body, headers=headers or {})
            response = connection.getresponse()
            return response.status, dict(response.getheaders()), response.read()
        finally:
            connection.close()

    def ready(self):
        try:
            return self.request("GET", "/v2/health/ready")[0] == 200
        except OSError:
            return False

    def metrics(self):
        """Samples as {'name{labels}': value}."""
        status, _, body = self.request("GET", "/metrics", port=self.metrics_port)
        assert status == 200, status
        samples = {}
        for line in body.decode().splitlines():
            if not line.startswith("#"):
                name, value = line.rsplit(" ", 1)
                samples[name] = float(value)
        return samples

    def resident_bytes(self):
        with open("/proc/%d/statm" % self.process.pid, encoding="ascii") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGESIZE")

    def stop(self, signal_number=signal.SIGTERM):
        """The exit status."""
        if self.process.poll() is None:
            self.process.send_signal(signal_number)
        status = self.process.wait(timeout=60)
        self._read_log()
        return status

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        status = self.stop()
        if kind is not None or status != 0:
            print(self.output)
        shutil.rmtree(self.folder, ignore_errors=True)
        if kind is None:
            assert status == 0, "the daemon ended with %d" % status
