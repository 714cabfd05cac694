"""The unmodified perf_analyzer against the daemon, server-side statistics included."""

import csv
import os
import subprocess
import sys
import tempfile
import unittest

from tests import unittest_xml
from tests.clients import daemon

# What args of the test name: @python_perf//:perf_analyzer.
PERF_ANALYZER = os.path.abspath(sys.argv.pop(1)) if len(sys.argv) > 1 else ""


class PerfAnalyzer(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = daemon.Daemon([daemon.model("wide"), "--allow-client-shm=true"])

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__(None, None, None)

    def run_analyzer(self, *arguments):
        """The rows of its report."""
        folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        report = os.path.join(folder, "report.csv")
        command = [PERF_ANALYZER, "-m", "wide", "--shape", "IN:16", "-b", "1", "-f", report]
        command += ["--request-count", "200", *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        self.assertEqual(0, done.returncode, done.stdout + done.stderr)
        with open(report, encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    def check(self, rows):
        self.assertEqual(1, len(rows))
        row = rows[0]
        self.assertGreater(float(row["Inferences/Second"]), 0)
        self.assertGreater(float(row["p50 latency"]), 0)
        for column in ("Server Queue", "Server Compute Infer"):
            self.assertGreaterEqual(float(row[column]), 0)

    def test_http(self):
        self.check(self.run_analyzer("-u", self.server.http, "-i", "http"))

    def test_grpc(self):
        self.check(self.run_analyzer("-u", self.server.grpc, "-i", "grpc"))

    def test_grpc_streams(self):
        self.check(self.run_analyzer("-u", self.server.grpc, "-i", "grpc", "--streaming", "-a"))

    def test_shared_memory(self):
        self.check(
            self.run_analyzer(
                "-u",
                self.server.grpc,
                "-i",
                "grpc",
                "--shared-memory",
                "system",
                "--output-shared-memory-size",
                "1024",
            )
        )

    def test_names_an_unknown_model(self):
        done = subprocess.run(
            [PERF_ANALYZER, "-m", "none", "-u", self.server.grpc, "-i", "grpc"],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        self.assertNotEqual(0, done.returncode)
        self.assertIn("Request for unknown model: 'none' is not found", done.stdout + done.stderr)


if __name__ == "__main__":
    unittest_xml.main()
