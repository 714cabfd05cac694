"""`stampmill bench serve` against the daemon: what it reports is what the daemon counted."""

import json
import subprocess
import time
import unittest

from tests import unittest_xml
from tests.clients import daemon

CLIENTS = 3
WARMUP = 4


class BenchServe(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = daemon.Daemon([daemon.model("wide")])

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__(None, None, None)

    def served(self):
        _, _, body = self.server.request("GET", "/v2/models/wide/stats")
        return json.loads(body)["model_stats"][0]["inference_stats"]["success"]["count"]

    def bench(self, protocol, *arguments, model="wide"):
        command = [daemon.STAMPMILL, "bench", "serve", "--json", "--protocol=" + protocol]
        command += ["--url=" + (self.server.grpc if protocol == "grpc" else self.server.http)]
        command += ["--model=" + model, "--concurrency=%d" % CLIENTS, "--warmup=%d" % WARMUP]
        return subprocess.run(
            command + list(arguments), capture_output=True, text=True, timeout=120, check=False
        )

    def row(self, protocol, *arguments):
        done = self.bench(protocol, *arguments)
        self.assertEqual(0, done.returncode, done.stderr)
        return json.loads(done.stdout)["rows"][0]

    def test_closed_loop_sends_exactly_the_requests_asked_for(self):
        for protocol in ("grpc", "http"):
            with self.subTest(protocol):
                before = self.served()
                row = self.row(protocol, "--shape=IN:1,16", "--requests=100")
                self.assertEqual(100, row["requests"])
                self.assertEqual(0, row["errors"])
                self.assertEqual(100 + CLIENTS * WARMUP, self.served() - before)
                # Each of the clients had its request under way nearly all the time.
                busy = row["mean_us"] * row["requests"] / 1e6 / (row["seconds"] * CLIENTS)
                self.assertGreater(busy, 0.3)
                self.assertLess(busy, 1.01)

    def test_open_loop_sends_at_its_rate(self):
        for protocol in ("grpc", "http"):
            with self.subTest(protocol):
                begin = time.monotonic()
                row = self.row(protocol, "--shape=IN:1,16", "--rate=200", "--requests=100")
                self.assertEqual(100, row["requests"])
                self.assertGreaterEqual(row["seconds"], 99 / 200)
                self.assertLessEqual(row["seconds"], time.monotonic() - begin)

    def test_a_model_that_is_not_there_is_an_error(self):
        for protocol in ("grpc", "http"):
            with self.subTest(protocol):
                done = self.bench(protocol, model="none")
                self.assertNotEqual(0, done.returncode)
                self.assertIn("'none' is not found", done.stderr)

    def test_refused_requests_are_counted(self):
        for protocol in ("grpc", "http"):
            with self.subTest(protocol):
                # Three dims where the model has two.
                done = self.bench(protocol, "--shape=IN:1,1,16", "--requests=20", "--warmup=0")
                self.assertNotEqual(0, done.returncode)
                self.assertIn("no request was answered", done.stderr)


if __name__ == "__main__":
    unittest_xml.main()
