"""Requests to the OpenAI API that are wrong in every way: each is told what is wrong with it, by
name, with 400, and the daemon goes on as if nothing had been."""

import http.client
import json
import time
import unittest
import urllib.request

from daemon import Daemon

from tests import unittest_xml

MODEL = "tests/language/byte_model.gguf"
USER = {"role": "user", "content": "hi"}
CALL = {"id": "1", "type": "function", "function": {"name": "f", "arguments": "{}"}}
# One of each kind; the names are the kinds that a field may take.
KINDS = {
    "bool": True,
    "int": 3,
    "float": 1.5,
    "string": "text",
    "list": [[]],
    "object": {"a": {}},
}
# Of chats; what numbers may be is tested by requests_test.
FIELDS = {
    "model": "string",
    "messages": "",
    "temperature": "int float",
    "top_p": "int float",
    "min_p": "int float",
    "typical_p": "int float",
    "top_k": "int",
    "presence_penalty": "int float",
    "frequency_penalty": "int float",
    "repetition_penalty": "int float",
    "repeat_penalty": "int float",
    "seed": "int",
    "logit_bias": "",
    "max_tokens": "int",
    "max_completion_tokens": "int",
    "min_tokens": "int",
    "stop": "string",
    "stop_token_ids": "",
    "ignore_eos": "bool",
    "include_stop_str_in_output": "bool",
    "logprobs": "bool",
    "top_logprobs": "int",
    "prompt_logprobs": "int",
    "n": "int",
    "best_of": "int",
    "priority": "int",
    "timeout": "int float",
    "stream": "bool",
    "stream_options": "object",
    "skip_special_tokens": "bool",
    "spaces_between_special_tokens": "bool",
    "return_tokens_as_token_ids": "bool",
    "add_special_tokens": "bool",
    "cache_salt": "string",
    "user": "string",
    "response_format": "",
    "structured_outputs": "object",
    "guided_json": "bool object",
    "guided_regex": "string",
    "guided_choice": "",
    "guided_grammar": "",
    "grammar": "",
    "json_schema": "bool",
    "tools": "",
    "tool_choice": "",
    "parallel_tool_calls": "bool",
    "chat_template": "string",
    "chat_template_kwargs": "object",
    "reasoning_effort": "string",
    "documents": "list",
    "continue_final_message": "",
    "add_generation_prompt": "bool",
    "echo": "",
}


class HostileTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon(["bytes=" + MODEL, "--max-sequences=8"])

    @classmethod
    def tearDownClass(cls):
        cls.daemon.stop()

    def post(self, body, path="/v1/chat/completions"):
        """Status and parsed answer of a body of bytes, or of what becomes JSON."""
        if not isinstance(body, bytes):
            body = json.dumps(body).encode()
        connection = http.client.HTTPConnection(self.daemon.http, timeout=60)
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
        connection.close()
        return answer.status, text

    def chat(self, **fields):
        return self.post({"model": "bytes", "messages": [USER], "max_tokens": 2, **fields})

    def refused(self, answer, part):
        status, text = answer
        self.assertEqual(400, status, text)
        error = json.loads(text)["error"]
        self.assertEqual("invalid_request_error", error["type"])
        self.assertIn(part, error["message"] + str(error["param"]))

    def tearDown(self):
        self.assertEqual(200, self.chat()[0])

    def test_every_field_of_a_wrong_type_is_named(self):
        for field, fits in FIELDS.items():
            for kind, value in KINDS.items():
                if kind in fits.split():
                    continue
                with self.subTest(field=field, kind=kind):
                    self.refused(self.chat(**{field: value}), field)
            status, text = self.chat(**{field: None})
            self.assertIn(status, (200, 400) if field == "messages" else (200,), (field, text))

    def test_messages_are_checked(self):
        for messages, part in (
            ([], "messages"),
            ({}, "messages"),
            ([1], "messages[0]"),
            ([USER, None], "messages[1]"),
            ([{}], "role"),
            ([{"role": "king", "content": "x"}], "role"),
            ([{"role": 5, "content": "x"}], "role"),
            ([{"role": "user"}], "content"),
            ([{"role": "user", "content": 5}], "content"),
            ([{"role": "user", "content": {"text": "x"}}], "content"),
            ([{"role": "user", "content": ["x"]}], "content[0]"),
            ([{"role": "user", "content": [{"type": "text"}]}], "text"),
            ([{"role": "user", "content": [{"text": "x"}]}], "type"),
            ([{"role": "user", "content": [{"type": "image_url", "image_url": {}}]}], "image_url"),
            ([{"role": "user", "content": "x", "tool_calls": [CALL]}], "tool_calls"),
            ([{"role": "assistant", "tool_calls": {}}], "tool_calls"),
            ([{"role": "assistant", "tool_calls": [5]}], "tool_calls[0]"),
            ([{"role": "assistant", "tool_calls": [{"type": "function"}]}], "function"),
            (
                [{"role": "assistant", "tool_calls": [{**CALL, "function": {"name": ""}}]}],
                "name",
            ),
            (
                [
                    {
                        "role": "assistant",
                        "tool_calls": [{**CALL, "function": {"name": "f", "arguments": 5}}],
                    }
                ],
                "arguments",
            ),
            ([{"role": "assistant", "content": "x", "audio": {"id": "x"}}], "audio"),
            ([{"role": "user", "content": "x" * 100_000}], "limit 512"),
        ):
            with self.subTest(messages=str(messages)[:80]):
                self.refused(self.chat(messages=messages), part)
        # Empty texts are texts.
        self.assertEqual(200, self.chat(messages=[{"role": "user", "content": ""}])[0])

    def test_bytes_that_are_no_json_are_told(self):
        for body in (
            b"",
            b"{",
            b"[]",
            b"null",
            b'"text"',
            b'{"messages": [}',
            b"\xff\xfe{}",
            b'{"a":' * 100_000,
            b"[" * 1_000_000,
            b'{"messages": [{"role": "user", "content": "x"}]} trailing',
            b'{"temperature": NaN}',
            b'{"temperature": 1e999}',
        ):
            with self.subTest(body=body[:40]):
                for path in ("/v1/chat/completions", "/v1/completions", "/tokenize"):
                    self.refused(self.post(body, path), "")

    def test_texts_that_are_no_utf8_are_refused_or_mended(self):
        for text in (b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf8\x88\x80\x80\x80", b"a\x80b"):
            body = b'{"model":"bytes","max_tokens":2,"messages":[{"role":"user","content":"%s"}]}'
            status, answer = self.post(body % text)
            self.assertIn(status, (200, 400), answer)
            json.loads(answer)
            for field in (b"guided_regex", b"grammar", b"chat_template", b"stop", b"user"):
                body = (
                    b'{"model":"bytes","max_tokens":2,"messages":[{"role":"user",'
                    b'"content":"x"}],"%s":"%s"}'
                )
                status, answer = self.post(body % (field, text))
                self.assertIn(status, (200, 400), answer)
                json.loads(answer)
        # Halves of surrogate pairs, by their escape.
        status, answer = self.post(
            b'{"model":"bytes","max_tokens":2,"messages":[{"role":"user","content":"\\ud800"}]}'
        )
        self.assertIn(status, (200, 400), answer)
        json.loads(answer)

    def test_numbers_beyond_their_limits_are_told(self):
        for field, values in (
            ("max_tokens", (-1, 0, 2**31, 2**63, 2**64, 1e300)),
            ("n", (0, -1, 1000, 2**40)),
            ("seed", (1.5,)),
            ("top_k", (-2, 2**40)),
            ("temperature", (-0.1, 101, -1e300)),
            ("top_p", (-0.1, 1.1)),
            ("top_logprobs", (-1, 21)),
            ("min_tokens", (-1, 3)),
            ("timeout", (0, -1, 1e300)),
            ("stop_token_ids", ([-1], [2**31], [258])),
            ("logit_bias", ({"-1": 1}, {"258": 1}, {"x": 1}, {"5": 1000}, {"5": "a"})),
            ("stop", ([""], ["x" * 600], ["x"] * 17)),
        ):
            for value in values:
                with self.subTest(field=field, value=str(value)):
                    extra = {"logprobs": True} if field == "top_logprobs" else {}
                    self.refused(self.chat(**{field: value}, **extra), field)

    def test_templates_that_raise_or_loop_are_told(self):
        for template, part in (
            ("{{ raise_exception('no such thing') }}", "no such thing"),
            ("{% for i in range(1000000000) %}x{% endfor %}", "chat_template"),
            ("{% for i in range(99999) %}{% for j in range(99999) %}x{% endfor %}{% endfor %}", ""),
            ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", ""),
            ("{{ 'x' * 1000000000 }}", ""),
            ("{% include 'x' %}", "chat_template"),
            ("{{", "chat_template"),
            ("{{ messages[99].content.x }}", ""),
        ):
            with self.subTest(template=template):
                begin = time.monotonic()
                status, text = self.chat(chat_template=template)
                self.assertEqual(400, status, text)
                if part != "chat_template":
                    self.assertIn(part, json.loads(text)["error"]["message"])
                self.assertLess(time.monotonic() - begin, 10)

    def used(self, name="vllm:kv_cache_usage_perc"):
        url = "http://127.0.0.1:%d/metrics" % self.daemon.metrics_port
        with urllib.request.urlopen(url) as answer:
            lines = answer.read().decode().splitlines()
        return [float(line.split()[-1]) for line in lines if line.startswith(name + "{")][0]

    def test_a_client_that_leaves_a_constrained_answer_frees_its_blocks(self):
        body = {"model": "bytes", "messages": [USER], "max_tokens": 400, "stream": True}
        for extra in (
            {"guided_regex": "[a-z]{1000,}"},
            {"response_format": {"type": "json_object"}},
        ):
            connections = []
            for seed in range(4):
                connection = http.client.HTTPConnection(self.daemon.http, timeout=60)
                text = json.dumps({**body, **extra, "seed": seed})
                connection.request("POST", "/v1/chat/completions", text)
                answer = connection.getresponse()
                self.assertEqual(200, answer.status)
                answer.read(10)
                connections.append((connection, answer))
            for connection, answer in connections:
                answer.close()
                connection.close()
            deadline = time.monotonic() + 20
            while self.used() > 0 or self.used("vllm:num_requests_running") > 0:
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.01)


if __name__ == "__main__":
    unittest_xml.main()
