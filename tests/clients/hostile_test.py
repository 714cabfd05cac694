"""What broken and hostile clients do: the daemon answers or cuts them off, and serves on."""

import json
import os
import random
import socket
import struct
import threading
import time
import unittest
import uuid

import numpy
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from tests import unittest_xml
from tests.clients import daemon

SERVER = None
INFER = "/v2/models/wide/infer"
VALUES = numpy.ones((1, 4), numpy.float32)


def setUpModule():
    global SERVER
    SERVER = daemon.Daemon(
        [daemon.model("wide"), daemon.model("slow"), "--allow-client-shm=true"]
    )


def tearDownModule():
    SERVER.__exit__(None, None, None)


class SharedMemory:
    """An object in /dev/shm that can be cut short."""

    def __init__(self, size):
        self.key = "/stampmill_" + uuid.uuid4().hex
        self.path = "/dev/shm" + self.key
        with open(self.path, "wb") as file:
            file.truncate(size)

    def truncate(self, size):
        os.truncate(self.path, size)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        os.unlink(self.path)


class Hostile(unittest.TestCase):
    def tearDown(self):
        # Whatever was done, the daemon serves on.
        self.assertIsNone(SERVER.process.poll())
        client = tritonclient.grpc.InferenceServerClient(SERVER.grpc)
        self.assertTrue(client.is_server_ready())
        self.infer(client)
        client.close()
        self.assertTrue(SERVER.ready())

    def infer(self, client):
        tensor = tritonclient.grpc.InferInput("IN", [1, 4], "FP32")
        tensor.set_data_from_numpy(VALUES)
        result = client.infer("wide", [tensor])
        numpy.testing.assert_array_equal(result.as_numpy("OUT"), -VALUES)

    def post(self, body, headers=None):
        return SERVER.request("POST", INFER, body=body, headers=headers)

    def test_deep_json(self):
        deep = "[" * 100000 + "]" * 100000
        for body in (
            deep,
            '{"inputs":' + deep + "}",
            '{"inputs":[{"name":"IN","shape":[1,1],"datatype":"FP32","data":%s}]}' % deep,
            '{"a":' * 50000,
        ):
            self.assertEqual(400, self.post(body)[0])

    def test_huge_dims(self):
        for shape in ([1, 2**62], [2**32, 2**32], [2**63 - 1, 2], [1] * 1000):
            body = {"inputs": [{"name": "IN", "shape": shape, "datatype": "FP32", "data": []}]}
            self.assertEqual(400, self.post(json.dumps(body))[0], shape)
            body["inputs"][0].pop("data")
            body["inputs"][0]["parameters"] = {"binary_data_size": 0}
            text = json.dumps(body)
            headers = {"Inference-Header-Content-Length": str(len(text))}
            self.assertEqual(400, self.post(text, headers)[0], shape)
        client = tritonclient.grpc.InferenceServerClient(SERVER.grpc)
        tensor = tritonclient.grpc.InferInput("IN", [1, 2**62], "FP32")
        tensor.set_shared_memory("none", 0)
        with self.assertRaises(InferenceServerException):
            client.infer("wide", [tensor])
        client.close()

    def test_object_cut_short_after_it_was_registered(self):
        size = 1 << 20
        client = tritonclient.http.InferenceServerClient(SERVER.http)
        with SharedMemory(size) as region:
            client.register_system_shared_memory("cut", region.key, size)
            region.truncate(0)
            tensor = tritonclient.http.InferInput("IN", [1, size // 4], "FP32")
            tensor.set_shared_memory("cut", size)
            with self.assertRaises(InferenceServerException):
                client.infer("wide", [tensor])
            good = tritonclient.http.InferInput("IN", [1, 4], "FP32")
            good.set_data_from_numpy(VALUES)
            output = tritonclient.http.InferRequestedOutput("OUT")
            output.set_shared_memory("cut", 16)
            with self.assertRaises(InferenceServerException):
                client.infer("wide", [good], outputs=[output])
            client.unregister_system_shared_memory("cut")
        client.close()

    def test_unregister_while_in_use(self):
        side = 512
        size = side * side * 4
        with SharedMemory(size) as region:
            client = tritonclient.grpc.InferenceServerClient(SERVER.grpc)
            for _ in range(5):
                client.register_system_shared_memory("used", region.key, size)
                tensor = tritonclient.grpc.InferInput("IN", [side, side], "FP32")
                tensor.set_shared_memory("used", size)
                done = threading.Event()
                client.async_infer("slow", [tensor], lambda result, error: done.set())
                client.unregister_system_shared_memory("used")
                self.assertTrue(done.wait(60))
            client.close()

    def test_clients_that_never_read(self):
        body = json.dumps(
            {
                "inputs": [
                    {"name": "IN", "shape": [1, 50000], "datatype": "FP32", "data": [0] * 50000}
                ]
            }
        ).encode()
        request = b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (
            INFER.encode(),
            len(body),
        )
        sockets = []
        before = SERVER.resident_bytes()
        for _ in range(20):
            connection = socket.create_connection(("127.0.0.1", SERVER.http_port))
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.setblocking(False)
            try:
                for _ in range(200):
                    connection.send(request + body)
            except BlockingIOError:
                pass
            sockets.append(connection)
        self.assertEqual(200, SERVER.request("GET", "/v2/health/live")[0])
        self.assertLess(SERVER.resident_bytes() - before, 512 << 20)
        for connection in sockets:
            connection.close()

    def test_a_thousand_idle_connections(self):
        sockets = []
        for port in (SERVER.http_port, SERVER.grpc_port):
            for _ in range(500):
                sockets.append(socket.create_connection(("127.0.0.1", port)))
        self.assertEqual(200, SERVER.request("GET", "/v2/health/live")[0])
        client = tritonclient.grpc.InferenceServerClient(SERVER.grpc)
        self.infer(client)
        client.close()
        for connection in sockets:
            connection.close()

    def test_garbage_on_every_port(self):
        source = random.Random(1)
        for port in (SERVER.http_port, SERVER.grpc_port, SERVER.metrics_port):
            for _ in range(30):
                with socket.create_connection(("127.0.0.1", port)) as connection:
                    connection.settimeout(1)
                    try:
                        connection.sendall(source.randbytes(source.randrange(1, 5000)))
                        connection.shutdown(socket.SHUT_WR)
                        connection.recv(1000)
                    except OSError:
                        pass

    def test_connections_that_are_reset(self):
        linger = struct.pack("ii", 1, 0)
        body = b'{"inputs":[{"name":"IN","shape":[1,4],"datatype":"FP32","data":[1,2,3,4]}]}'
        request = b"POST %s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % (
            INFER.encode(),
            len(body),
        )
        for length in (10, len(request), len(request) + 5, len(request) + len(body)):
            for _ in range(20):
                connection = socket.create_connection(("127.0.0.1", SERVER.http_port))
                connection.sendall((request + body)[:length])
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
                connection.close()

    def test_cancelled_calls(self):
        side = 512
        values = numpy.zeros((side, side), numpy.float32)
        client = tritonclient.grpc.InferenceServerClient(SERVER.grpc)
        tensor = tritonclient.grpc.InferInput("IN", [side, side], "FP32")
        tensor.set_data_from_numpy(values)
        for _ in range(10):
            call = client.async_infer("slow", [tensor], lambda result, error: None)
            call.cancel()
        with self.assertRaisesRegex(InferenceServerException, "Deadline"):
            client.infer("slow", [tensor], client_timeout=0.001)
        client.close()
        deadline = time.monotonic() + 60
        while SERVER.metrics()["stampmill_requests_held"] > 0:
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)


class Process(unittest.TestCase):
    """The daemon as a process."""

    def test_stops_while_clients_are_there(self):
        with daemon.Daemon([daemon.model("wide")]) as server:
            idle = socket.create_connection(("127.0.0.1", server.http_port))
            client = tritonclient.grpc.InferenceServerClient(server.grpc)
            client.start_stream(lambda result, error: None)
            start = time.monotonic()
            self.assertEqual(0, server.stop())
            self.assertLess(time.monotonic() - start, 10)
            client.stop_stream(cancel_requests=True)
            idle.close()

    def test_ports_in_use(self):
        with daemon.Daemon([daemon.model("wide")]) as server:
            with self.assertRaisesRegex(RuntimeError, "ended with 1"):
                daemon.Daemon([daemon.model("wide"), "--http-port=%d" % server.http_port])

    def test_wrong_command_lines(self):
        for arguments in (
            ["--no-such-flag"],
            ["--http-port=70000"],
            ["--address=nowhere"],
            ["--model-repository=/no/such/folder"],
            ["--device-memory-budget=x"],
            ["--config=/no/such/file"],
            ["--cpu-isa=foo"],
            ["--devices=foo"],
            ["--compile-options=foo"],
            ["--activation-precision=f16"],
            ["--cache-max-size=-1"],
            ["--cache-dir=" + daemon.model("wide")],
        ):
            with self.subTest(arguments=arguments):
                with self.assertRaisesRegex(RuntimeError, "ended with 2"):
                    daemon.Daemon([daemon.model("wide")] + arguments)

    def test_a_model_that_fails_leaves_the_others(self):
        broken = os.path.join(os.environ.get("TEST_TMPDIR", "/tmp"), "broken.onnx")
        with open(broken, "wb") as file:
            file.write(b"no model")
        arguments = [daemon.model("wide"), broken]
        with daemon.Daemon(arguments, wait_ready=False) as server:
            while server.request("GET", "/v2/models/wide/ready")[0] != 200:
                time.sleep(0.01)
            self.assertEqual(400, server.request("GET", "/v2/health/ready")[0])
            self.assertEqual(200, server.request("GET", "/v2/health/live")[0])
        with daemon.Daemon(arguments + ["--strict-readiness=false"]):
            pass
        with self.assertRaisesRegex(RuntimeError, "ended with 1"):
            daemon.Daemon(arguments + ["--exit-on-error=true"])

    def test_started_without_standard_descriptors(self):
        def close_all():
            for descriptor in range(3):
                os.close(descriptor)

        with daemon.Daemon([daemon.model("wide")], preexec_fn=close_all) as server:
            for descriptor in range(3):
                link = "/proc/%d/fd/%d" % (server.process.pid, descriptor)
                self.assertEqual("/dev/null", os.readlink(link))

    def test_configuration_file(self):
        path = os.path.join(os.environ.get("TEST_TMPDIR", "/tmp"), "config.yaml")
        with open(path, "w", encoding="utf-8") as file:
            file.write("allow-client-shm: true\nmax-queued-requests: 7\n")
        with daemon.Daemon([daemon.model("wide"), "--config=" + path]) as server:
            self.assertEqual(7 + 256, server.metrics()["stampmill_requests_held_limit"])
        with open(path, "w", encoding="utf-8") as file:
            file.write("no-such-flag: 1\n")
        with self.assertRaisesRegex(RuntimeError, "ended with 2"):
            daemon.Daemon([daemon.model("wide"), "--config=" + path])


if __name__ == "__main__":
    unittest_xml.main()
