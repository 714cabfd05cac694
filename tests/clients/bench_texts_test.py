"""`stampmill bench serve` of texts: what it reports is what the daemon counted."""

import json
import subprocess
import unittest

from tests import unittest_xml
from tests.clients import daemon

MODEL = "tests/language/byte_model.gguf"


class BenchTexts(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = daemon.Daemon(["bytes=" + MODEL])

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__(None, None, None)

    def bench(self, *arguments, model="bytes", url=None, tokens=20):
        command = [daemon.STAMPMILL, "bench", "serve", "--json", "--model=" + model]
        command += ["--url=" + (url or self.server.http), "--prompt-words=30"]
        command += ["--max-tokens=%d" % tokens]
        return subprocess.run(
            command + list(arguments), capture_output=True, text=True, timeout=120, check=False
        )

    def row(self, *arguments):
        done = self.bench(*arguments)
        self.assertEqual(0, done.returncode, done.stderr)
        return json.loads(done.stdout)["rows"][0]

    def counted(self, name):
        return self.server.metrics()['vllm:%s{model_name="bytes",engine="0"}' % name]

    def test_closed_loop_counts_the_texts_and_tokens_that_the_daemon_does(self):
        for protocol in ("openai", "openai-chat"):
            with self.subTest(protocol):
                names = ("generation_tokens_total", "request_prompt_tokens_sum")
                before = [self.counted(name) for name in names]
                row = self.row(
                    "--protocol=" + protocol, "--concurrency=4", "--requests=24", "--warmup=0"
                )
                after = [self.counted(name) for name in names]
                self.assertEqual((24, 0), (row["requests"], row["errors"]))
                self.assertEqual(24 * 20, row["output_tokens"])
                self.assertEqual(after[0] - before[0], row["output_tokens"])
                self.assertEqual(after[1] - before[1], row["prompt_tokens"])
                self.assertGreater(row["ttft_p50_ms"], 0)
                self.assertLessEqual(row["ttft_p50_ms"], row["ttft_p99_ms"])
                self.assertLessEqual(row["ttft_p99_ms"], row["e2e_p99_ms"])
                self.assertGreater(row["itl_mean_ms"], 0)
                rate = row["output_tokens"] / row["seconds"]
                self.assertAlmostEqual(rate, row["output_tokens_per_second"], delta=rate * 0.01)

    def test_prompts_share_no_beginning(self):
        name = "prefix_cache_hits_total"
        before = self.counted(name)
        self.row("--protocol=openai", "--requests=8", "--seed=5", "--warmup=0")
        self.assertEqual(before, self.counted(name))
        self.row("--protocol=openai", "--requests=8", "--seed=5", "--warmup=0")
        self.assertGreater(self.counted(name), before)

    def test_open_loop_takes_the_time_of_its_arrivals(self):
        row = self.row("--protocol=openai", "--concurrency=16", "--rate=40", "--requests=40")
        self.assertEqual(40, row["requests"])
        # 39 gaps of 25 ms on average; a sum this far off is a chance of one in a million.
        self.assertGreater(row["seconds"], 0.3)

    def test_a_time_limit_ends_it(self):
        row = self.row("--protocol=openai", "--concurrency=2", "--seconds=1")
        self.assertGreaterEqual(row["seconds"], 1)
        self.assertGreater(row["requests"], 0)

    def test_what_fails_is_told(self):
        done = self.bench("--protocol=openai", "--requests=2", model="none")
        self.assertEqual(1, done.returncode)
        self.assertIn("none", done.stderr)
        done = self.bench("--protocol=openai", "--requests=2", url="127.0.0.1:1")
        self.assertEqual(1, done.returncode)
        self.assertIn("connect 127.0.0.1:1", done.stderr)
        done = self.bench("--protocol=openai", "--requests=2", "--warmup=0", tokens=100000)
        self.assertEqual(1, done.returncode)
        self.assertIn("HTTP 400", done.stderr)


if __name__ == "__main__":
    unittest_xml.main()
