"""The openai package reads every answer that server/openai builds, as if it came from a server."""

import subprocess
import sys
import unittest

import httpx2
import openai

from tests import unittest_xml

SAMPLES = sys.argv.pop(1)


def sample(name):
    return subprocess.run([SAMPLES, name], stdout=subprocess.PIPE, check=True).stdout


def client(name, status=200, strict=True):
    """A client whose server answers each request with one sample, in pieces of a few bytes.

    Not strict where the API itself sends what the package's types do not know: no finish_reason in
    chunks of completions, no logprob of a first token, embeddings in base64.
    """
    body = sample(name)
    kind = "text/event-stream" if name.find("stream") >= 0 else "application/json"

    def pieces():
        for at in range(0, len(body), 7):
            yield body[at : at + 7]

    def answer(_):
        return httpx2.Response(status, headers={"Content-Type": kind}, content=pieces())

    return openai.OpenAI(
        base_url="http://test/v1",
        api_key="none",
        max_retries=0,
        http_client=httpx2.Client(transport=httpx2.MockTransport(answer)),
        _strict_response_validation=strict,
    )


MESSAGES = [{"role": "user", "content": "hi"}]


class Types(unittest.TestCase):
    """Whole answers and streams, with strict validation."""

    def test_chat(self):
        answer = client("chat").chat.completions.create(model="m", messages=MESSAGES)
        first, second = answer.choices
        self.assertEqual(first.message.content, "hi")
        self.assertEqual(first.message.reasoning_content, "why")
        self.assertEqual(first.finish_reason, "stop")
        entry = first.logprobs.content[0]
        self.assertEqual((entry.token, entry.logprob, entry.bytes), ("a", -0.5, [97]))
        self.assertEqual(entry.top_logprobs[1].logprob, -9999.0)
        self.assertIsNone(second.message.content)
        call = second.message.tool_calls[0]
        self.assertEqual((call.id, call.type, call.function.name), ("call_1", "function", "f"))
        self.assertEqual(call.function.arguments, '{"x": 1}')
        self.assertEqual(answer.usage.total_tokens, 7)
        self.assertEqual(answer.usage.prompt_tokens_details.cached_tokens, 1)
        self.assertEqual(answer.usage.completion_tokens_details.reasoning_tokens, 2)

    def test_chat_stream(self):
        chunks = list(
            client("chat_stream").chat.completions.create(model="m", messages=MESSAGES, stream=True)
        )
        deltas = [chunk.choices[0].delta for chunk in chunks if chunk.choices]
        self.assertEqual(deltas[0].role, "assistant")
        self.assertEqual("".join(delta.content or "" for delta in deltas), '"h\u00e9llo"\na')
        calls = [call for delta in deltas for call in delta.tool_calls or []]
        self.assertEqual(calls[0].function.name, "f")
        self.assertEqual("".join(call.function.arguments for call in calls), '{"x": 1}')
        finishes = [chunk.choices[0].finish_reason for chunk in chunks if chunk.choices]
        self.assertEqual(finishes, [None] * (len(finishes) - 1) + ["tool_calls"])
        self.assertEqual(chunks[-1].choices, [])
        self.assertEqual(chunks[-1].usage.completion_tokens, 4)
        self.assertTrue(all(chunk.usage is None for chunk in chunks[:-1]))

    def test_chat_stream_that_fails(self):
        stream = client("chat_stream_fails").chat.completions.create(
            model="m", messages=MESSAGES, stream=True
        )
        with self.assertRaisesRegex(openai.APIError, "it broke"):
            list(stream)

    def test_completion(self):
        answer = client("completion").completions.create(model="m", prompt="p")
        self.assertEqual([choice.text for choice in answer.choices], ["pa", "b"])
        logprobs = answer.choices[0].logprobs
        self.assertEqual(logprobs.tokens, ["token_id:5", "token_id:5"])
        self.assertEqual(logprobs.text_offset, [0, 1])

    def test_completion_stream(self):
        chunks = list(
            client("completion_stream", strict=False).completions.create(
                model="m", prompt="p", stream=True
            )
        )
        texts = {}
        for chunk in chunks:
            for choice in chunk.choices:
                texts[choice.index] = texts.get(choice.index, "") + choice.text
        self.assertEqual(texts, {0: "pa", 1: "b"})
        self.assertTrue(all(chunk.usage.total_tokens == 7 for chunk in chunks))

    def test_embeddings(self):
        want = [[1.0, -0.5, 1e-9], [0.0, 3e8, -1.0]]
        for name, encoding in (("embeddings", "float"), ("embeddings_base64", openai.omit)):
            answer = client(name, strict=encoding == "float").embeddings.create(
                model="m", input=["a", "b"], encoding_format=encoding
            )
            for data, vector in zip(answer.data, want):
                self.assertEqual(len(data.embedding), len(vector))
                for got, expected in zip(data.embedding, vector):
                    self.assertAlmostEqual(got, expected, delta=1e-6 * abs(expected))

    def test_models(self):
        self.assertEqual([model.id for model in client("models").models.list()], ["a", "b"])
        self.assertEqual(client("model").models.retrieve("a").owned_by, "stampmill")

    def test_errors(self):
        with self.assertRaises(openai.BadRequestError) as raised:
            client("error", 400).chat.completions.create(model="m", messages=MESSAGES)
        self.assertEqual(raised.exception.param, "n")
        self.assertEqual(raised.exception.type, "invalid_request_error")
        self.assertEqual(raised.exception.code, "invalid_value")
        self.assertIn("limit 1 to 128", str(raised.exception))


if __name__ == "__main__":
    unittest_xml.main()
