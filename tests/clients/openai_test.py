"""The unmodified openai package against the daemon and a language model of bytes."""

import array
import asyncio
import json
import re
import time
import unittest
import urllib.request

import httpx2
import openai
from daemon import Daemon

from tests import unittest_xml

MODEL = "tests/language/byte_model.gguf"
ENCODER = "tests/language/encoder_model.gguf"
MESSAGES = [{"role": "user", "content": "hi"}]


class OpenAiTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        models = ["bytes=" + MODEL, "encoder=" + ENCODER]
        cls.daemon = Daemon([*models, "--max-sequences=8", "--max-queued-requests=8"])
        cls.url = "http://%s/v1" % cls.daemon.http
        cls.client = openai.OpenAI(base_url=cls.url, api_key="none", max_retries=0)

    @classmethod
    def tearDownClass(cls):
        cls.daemon.stop()

    def chat(self, **options):
        options = {"max_tokens": 8, "temperature": 0, **options}
        return self.client.chat.completions.create(model="bytes", messages=MESSAGES, **options)

    def complete(self, prompt="abc", **options):
        options = {"max_tokens": 8, "temperature": 0, **options}
        return self.client.completions.create(model="bytes", prompt=prompt, **options)

    def post(self, path, body):
        url = "http://%s%s" % (self.daemon.http, path)
        request = urllib.request.Request(url, json.dumps(body).encode(), method="POST")
        with urllib.request.urlopen(request) as answer:
            return json.load(answer)

    def test_models_are_listed(self):
        self.assertEqual(["bytes", "encoder"], [model.id for model in self.client.models.list()])
        self.assertEqual("bytes", self.client.models.retrieve("bytes").id)
        with self.assertRaises(openai.NotFoundError):
            self.client.models.retrieve("other")

    def test_a_chat_is_the_same_whole_and_streamed(self):
        whole = self.chat()
        self.assertEqual("length", whole.choices[0].finish_reason)
        self.assertEqual(8, whole.usage.completion_tokens)
        chunks = list(self.chat(stream=True, stream_options={"include_usage": True}))
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        self.assertEqual(whole.choices[0].message.content, text)
        self.assertEqual(whole.usage.total_tokens, chunks[-1].usage.total_tokens)
        self.assertEqual("length", chunks[-2].choices[0].finish_reason)

    def test_a_completion_continues_tokens_as_it_does_text(self):
        tokens = self.post("/tokenize", {"model": "bytes", "prompt": "abc"})["tokens"]
        self.assertEqual(3, len(tokens))
        self.assertEqual(
            self.complete("abc").choices[0].text, self.complete(tokens).choices[0].text
        )
        back = self.post("/detokenize", {"model": "bytes", "tokens": tokens})
        self.assertEqual("abc", back["prompt"])

    def test_texts_are_the_same_alone_and_beside_others(self):
        alone = self.complete("some words", max_tokens=24).choices[0].text

        async def together():
            client = openai.AsyncOpenAI(base_url=self.url, api_key="none", max_retries=0)
            prompts = ["some words", "x" * 50, "other words", "", "some words", "y" * 100]
            calls = [
                client.completions.create(
                    model="bytes", prompt=prompt or "z", max_tokens=24, temperature=0
                )
                for prompt in prompts
            ]
            return [answer.choices[0].text for answer in await asyncio.gather(*calls)]

        texts = asyncio.run(together())
        self.assertEqual(alone, texts[0])
        self.assertEqual(alone, texts[4])

    def test_a_seed_fixes_what_is_drawn(self):
        first = self.complete(temperature=1, seed=5, max_tokens=20).choices[0].text
        self.assertEqual(first, self.complete(temperature=1, seed=5, max_tokens=20).choices[0].text)
        self.assertNotEqual(
            first, self.complete(temperature=1, seed=6, max_tokens=20).choices[0].text
        )
        several = self.complete(temperature=1, seed=5, n=3, max_tokens=20)
        self.assertEqual(3, len({choice.text for choice in several.choices}))
        self.assertEqual(first, several.choices[0].text)

    def test_logprobs_tell_of_the_chosen_and_the_likeliest(self):
        answer = self.chat(logprobs=True, top_logprobs=3)
        entries = answer.choices[0].logprobs.content
        self.assertEqual(8, len(entries))
        for entry in entries:
            self.assertEqual(entry.logprob, entry.top_logprobs[0].logprob)
            self.assertGreaterEqual(entry.top_logprobs[0].logprob, entry.top_logprobs[1].logprob)

    def test_an_echo_has_the_logprobs_of_the_prompt(self):
        first = self.complete(max_tokens=12, logprobs=2, echo=True).choices[0]
        self.assertTrue(first.text.startswith("abc"))
        told = first.logprobs
        self.assertIsNone(told.token_logprobs[0])
        self.assertIsNone(told.top_logprobs[0])
        self.assertEqual(["a", "b", "c"], told.tokens[:3])
        self.assertEqual([0, 1, 2, 3], told.text_offset[:4])
        named = self.complete(
            max_tokens=12, logprobs=0, echo=True, extra_body={"return_tokens_as_token_ids": True}
        )
        ids = [int(token.removeprefix("token_id:")) for token in named.choices[0].logprobs.tokens]
        self.assertGreater(len(ids), 3)
        # The same tokens as a prompt, of which nothing is continued.
        again = self.complete(
            ids, max_tokens=0, logprobs=2, echo=True, extra_body={"prompt_logprobs": 1}
        )
        choice = again.choices[0]
        self.assertEqual(0, again.usage.completion_tokens)
        self.assertEqual("length", choice.finish_reason)
        self.assertEqual(first.text, choice.text)
        self.assertEqual(told.token_logprobs, choice.logprobs.token_logprobs)
        self.assertEqual(told.top_logprobs, choice.logprobs.top_logprobs)
        self.assertIsNone(choice.prompt_logprobs[0])
        for entry, token, logprob in zip(
            choice.prompt_logprobs[1:], ids[1:], told.token_logprobs[1:], strict=True
        ):
            self.assertEqual(logprob, entry[str(token)]["logprob"])
            self.assertIn(1, [likely["rank"] for likely in entry.values()])
            self.assertLessEqual(len(entry), 2)
        chunks = self.complete(max_tokens=12, logprobs=2, echo=True, stream=True)
        columns = [c.choices[0].logprobs for c in chunks if c.choices and c.choices[0].logprobs]
        self.assertEqual(
            told.token_logprobs, [value for column in columns for value in column.token_logprobs]
        )

    def test_stop_texts_end_and_are_left_out(self):
        whole = self.complete(max_tokens=32).choices[0].text
        letters = [c for c in whole if ord(c) < 128 and c.isprintable()]
        self.assertTrue(letters, whole)
        stop = letters[0]
        answer = self.complete(max_tokens=32, stop=[stop])
        self.assertEqual("stop", answer.choices[0].finish_reason)
        self.assertEqual(whole[: whole.index(stop)], answer.choices[0].text)

    def test_a_bias_rules(self):
        tokens = self.post("/tokenize", {"model": "bytes", "prompt": "q"})["tokens"]
        answer = self.complete(logit_bias={str(tokens[0]): 100}, max_tokens=5)
        self.assertEqual("qqqqq", answer.choices[0].text)

    def test_a_prefix_is_found_in_the_cache(self):
        prompt = "a prefix of some length that fills more than one block " * 2
        self.complete(prompt)
        again = self.complete(prompt)
        self.assertGreater(again.usage.prompt_tokens_details.cached_tokens, 64)

    def test_guesses_change_no_text(self):
        prompt = "one two three, one two three, one two three, one"
        letter = self.post("/tokenize", {"model": "bytes", "prompt": "o"})["tokens"][0]
        # A text that is all one letter, so that guesses hold, and others.
        ways = [{"logit_bias": {str(letter): 100}, "logprobs": 2}]
        ways += [{}, {"temperature": 1, "seed": 7}, {"stop": ["o"]}]
        daemon = Daemon(["bytes=" + MODEL, "--speculative-tokens=8"])
        try:
            url = "http://%s/v1" % daemon.http
            guessing = openai.OpenAI(base_url=url, api_key="none", max_retries=0)
            for way in ways:
                options = {"max_tokens": 64, "temperature": 0, **way}
                answer = guessing.completions.create(model="bytes", prompt=prompt, **options)
                self.assertEqual(self.complete(prompt, **options).choices, answer.choices)
            url = "http://127.0.0.1:%d/metrics" % daemon.metrics_port
            metrics = httpx2.get(url).text
            name = "vllm:spec_decode_num_accepted_tokens_total{"
            counts = [line for line in metrics.splitlines() if line.startswith(name)]
            self.assertGreater(float(counts[0].split()[-1]), 0)
        finally:
            daemon.stop()

    def test_models_share_the_memory_that_there_is(self):
        budget = 400 << 20
        daemon = Daemon(["a=" + MODEL, "b=" + MODEL, "--device-memory-budget=%d" % budget])
        try:
            client = openai.OpenAI(
                base_url="http://%s/v1" % daemon.http, api_key="none", max_retries=0
            )
            for model in ("a", "b"):
                answer = client.completions.create(model=model, prompt="abc", max_tokens=4)
                self.assertGreater(answer.usage.completion_tokens, 0)
            metrics = httpx2.get("http://127.0.0.1:%d/metrics" % daemon.metrics_port).text
            blocks = [int(n) for n in re.findall(r'num_gpu_blocks="(\d+)"', metrics)]
            self.assertEqual(2, len(blocks))
            self.assertAlmostEqual(blocks[0], blocks[1], delta=blocks[0] // 10 + 2)
            reserved = re.search(r"^stampmill_memory_reserved_bytes (\S+)", metrics, re.MULTILINE)
            self.assertLessEqual(float(reserved[1]), budget)
            self.assertGreater(float(reserved[1]), 0.9 * budget)
        finally:
            daemon.stop()

    def test_metrics_have_the_names_that_dashboards_know(self):
        self.complete()
        with urllib.request.urlopen(
            "http://127.0.0.1:%d/metrics" % self.daemon.metrics_port
        ) as got:
            text = got.read().decode()
        self.assertIn('vllm:num_requests_running{model_name="bytes",engine="0"} ', text)
        self.assertIn('vllm:cache_config_info{model_name="bytes",engine="0",block_size="16"', text)
        counted = [l for l in text.splitlines() if l.startswith("vllm:generation_tokens_total{")]
        self.assertGreaterEqual(float(counted[0].split()[-1]), 8)

    def test_histograms_count_each_text_once(self):
        names = ("e2e_request_latency_seconds", "request_prompt_tokens", "request_params_n")
        key = 'vllm:%s{model_name="bytes",engine="0"}'
        ended = 'vllm:request_success_total{model_name="bytes",engine="0",finished_reason="%s"}'
        before = self.daemon.metrics()
        self.complete("abc", max_tokens=5, n=2)
        list(self.chat(max_tokens=5, stream=True))
        after = self.daemon.metrics()
        grown = {name: after[name] - before[name] for name in after if name in before}
        self.assertEqual([3, 3, 2], [grown[key % (name + "_count")] for name in names])
        self.assertEqual(3, grown[ended % "length"])
        self.assertEqual(0, grown[ended % "error"])
        self.assertEqual(15, grown[key % "request_generation_tokens_sum"])
        self.assertEqual(3, grown[key % "time_to_first_token_seconds_count"])
        self.assertEqual(12, grown[key % "inter_token_latency_seconds_count"])
        bucket = 'vllm:request_params_max_tokens_bucket{model_name="bytes",engine="0",le="%s"}'
        self.assertEqual([0, 3, 3], [grown[bucket % le] for le in ("2", "5", "+Inf")])

    def test_what_is_wrong_is_told(self):
        for options, part in (
            ({"temperature": -1}, "temperature"),
            ({"max_tokens": 100000}, "limit 512"),
            ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "chat template"),
            ({"response_format": {"type": "xml"}}, "response_format"),
            ({"stop": ["x"] * 99}, "stop"),
        ):
            with self.subTest(part), self.assertRaises(openai.BadRequestError) as raised:
                self.chat(**options)
            self.assertIn(part, str(raised.exception))
        with self.assertRaises(openai.NotFoundError):
            self.client.completions.create(model="none", prompt="x")
        with self.assertRaises(openai.BadRequestError):
            self.complete("x" * 600)
        with self.assertRaises(openai.BadRequestError):
            self.client.embeddings.create(model="bytes", input="x")
        with self.assertRaises(openai.BadRequestError):
            self.client.completions.create(model="encoder", prompt="x")

    def test_embeddings_are_the_same_as_numbers_and_as_base64(self):
        inputs = ["w7 w8", "w9"]
        # The package asks for base64 unless it is told otherwise.
        packed = self.client.embeddings.create(model="encoder", input=inputs)
        plain = self.client.embeddings.create(
            model="encoder", input=inputs, encoding_format="float"
        )
        self.assertEqual(7, packed.usage.prompt_tokens)
        for one, other in zip(packed.data, plain.data, strict=True):
            unpacked = array.array("f", other.embedding).tolist()
            self.assertEqual(one.embedding, unpacked)
        alone = self.client.embeddings.create(model="encoder", input=[2, 9, 3])
        self.assertEqual(packed.data[1].embedding, alone.data[0].embedding)
        width = len(alone.data[0].embedding)
        self.client.embeddings.create(model="encoder", input="w7", dimensions=width)
        with self.assertRaises(openai.BadRequestError):
            self.client.embeddings.create(model="encoder", input="w7", dimensions=width - 1)

    def test_a_client_that_leaves_makes_room(self):
        body = {"model": "bytes", "prompt": "x", "max_tokens": 400, "stream": True}
        for _ in range(24):
            with httpx2.stream("POST", self.url + "/completions", json=body) as answer:
                next(answer.iter_bytes())
        aborted = 'vllm:request_success_total{model_name="bytes",engine="0",%s}'
        deadline = time.monotonic() + 30
        while True:
            try:
                self.complete()
                break
            except openai.RateLimitError:
                self.assertLess(time.monotonic(), deadline)
        # Some may have been written to the end before they could leave.
        self.assertGreater(self.daemon.metrics()[aborted % 'finished_reason="abort"'], 0)
        used = 'vllm:num_requests_running{model_name="bytes",engine="0"}'
        while self.daemon.metrics()[used] > 0:
            self.assertLess(time.monotonic(), deadline)

    def test_too_many_are_refused_at_once(self):
        async def flood():
            client = openai.AsyncOpenAI(base_url=self.url, api_key="none", max_retries=0)
            calls = [
                client.completions.create(model="bytes", prompt="x", max_tokens=300)
                for _ in range(40)
            ]
            return await asyncio.gather(*calls, return_exceptions=True)

        answers = asyncio.run(flood())
        refused = [a for a in answers if isinstance(a, openai.RateLimitError)]
        self.assertEqual(40, len(refused) + sum(not isinstance(a, Exception) for a in answers))
        self.assertGreater(len(refused), 0)
        self.assertLess(len(refused), 40)


class DrainTest(unittest.TestCase):
    def test_streams_end_when_the_daemon_stops(self):
        daemon = Daemon(["bytes=" + MODEL])
        url = "http://%s/v1/completions" % daemon.http
        body = {"model": "bytes", "prompt": "x", "max_tokens": 300, "stream": True}
        with httpx2.stream("POST", url, json=body, timeout=60) as answer:
            pieces = answer.iter_lines()
            next(pieces)
            daemon.process.terminate()
            lines = list(pieces)
        self.assertIn("data: [DONE]", lines)
        self.assertEqual(0, daemon.process.wait(60))
        daemon.stop()


if __name__ == "__main__":
    unittest_xml.main()
