"""Language models over KServe: generate, generate_stream, and what tritonclient asks of a model."""

import json
import threading
import unittest

import numpy
import tritonclient.grpc
import tritonclient.http
from daemon import Daemon
from tritonclient.utils import InferenceServerException

from tests import unittest_xml

MODEL = "tests/language/byte_model.gguf"
PARAMETERS = {"max_tokens": 8, "temperature": 0}


class GenerateTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon(["bytes=" + MODEL, "--allowed-origins=https://a.example"])

    @classmethod
    def tearDownClass(cls):
        cls.daemon.stop()

    def post(self, action, body, headers=None):
        body = body if isinstance(body, str) else json.dumps(body)
        path = "/v2/models/bytes/" + action
        return self.daemon.request("POST", path, body=body, headers=headers)

    def generate(self, body, action="generate"):
        status, _, answer = self.post(action, body)
        self.assertEqual(200, status, answer)
        return json.loads(answer)

    def events(self, body):
        status, headers, answer = self.post("generate_stream", body)
        self.assertEqual(200, status, answer)
        self.assertTrue(headers["Content-Type"].startswith("text/event-stream"))
        lines = answer.decode().split("\n\n")
        self.assertEqual("", lines.pop())
        return [json.loads(line.removeprefix("data: ")) for line in lines]

    def test_an_answer_holds_the_input_unless_that_is_excluded(self):
        answer = self.generate({"text_input": "abc", "parameters": PARAMETERS, "id": "7"})
        self.assertEqual(
            {"id": "7", "model_name": "bytes", "model_version": "1"},
            {key: answer[key] for key in answer if key != "text_output"},
        )
        bare = self.generate({"text_input": "abc", "exclude_input_in_output": True, **PARAMETERS})
        self.assertEqual(answer["text_output"], "abc" + bare["text_output"])
        # What the other API says of the same.
        body = json.dumps({"model": "bytes", "prompt": "abc", **PARAMETERS})
        _, _, completion = self.daemon.request("POST", "/v1/completions", body=body)
        self.assertEqual(json.loads(completion)["choices"][0]["text"], bare["text_output"])

    def test_events_hold_the_same_text(self):
        whole = self.generate({"text_input": "abc", "exclude_input_in_output": True, **PARAMETERS})
        events = self.events({"text_input": "abc", "stream": True, "parameters": PARAMETERS})
        self.assertGreater(len(events), 2)
        self.assertEqual(whole["text_output"], "".join(event["text_output"] for event in events))
        one = self.events({"text_input": "abc", "stream": False, "parameters": PARAMETERS})
        self.assertEqual(["abc" + whole["text_output"]], [event["text_output"] for event in one])

    def test_sampling_parameters_may_be_the_text_of_an_object(self):
        texts = {key: str(value) for key, value in PARAMETERS.items()}
        self.assertEqual(
            self.generate({"text_input": "abc", "parameters": PARAMETERS}),
            self.generate({"text_input": "abc", "sampling_parameters": json.dumps(texts)}),
        )

    def test_a_version_may_be_named(self):
        answer = self.generate({"text_input": "a", **PARAMETERS}, "versions/1/generate")
        self.assertEqual("1", answer["model_version"])
        self.assertNotEqual(200, self.post("versions/2/generate", "{}")[0])

    def test_what_is_wrong_is_told(self):
        for body, part in (
            ("{", "JSON"),
            ({}, "text_input"),
            ({"text_input": "a", "parameters": {"n": 2}}, "parameters.n"),
            ({"text_input": "a", "stream": True}, "generate_stream"),
            ({"text_input": "a", "max_tokens": 100000}, "limit 512"),
            ({"text_input": "x" * 600}, "text_input"),
        ):
            with self.subTest(part):
                status, _, answer = self.post("generate", body)
                self.assertEqual(400, status)
                self.assertIn(part, json.loads(answer)["error"])
        status, _, _ = self.daemon.request("GET", "/v2/models/bytes/generate")
        self.assertEqual(405, status)
        status, _, _ = self.daemon.request("POST", "/v2/models/none/generate", body="{}")
        self.assertNotEqual(200, status)

    def test_many_at_once_are_all_answered(self):
        body = {"text_input": "abc", "parameters": PARAMETERS}
        answers = []
        threads = [
            threading.Thread(target=lambda: answers.append(self.generate(body))) for _ in range(12)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        self.assertEqual(12, len(answers))
        self.assertEqual(1, len({answer["text_output"] for answer in answers}))

    def test_tritonclient_sees_the_model(self):
        for module, address in (
            (tritonclient.http, self.daemon.http),
            (tritonclient.grpc, self.daemon.grpc),
        ):
            with self.subTest(module.__name__):
                client = module.InferenceServerClient(address)
                self.assertTrue(client.is_model_ready("bytes"))
                self.assertFalse(client.is_model_ready("bytes", "2"))
                keywords = {} if module is tritonclient.http else {"as_json": True}
                metadata = client.get_model_metadata("bytes", **keywords)
                self.assertEqual("text_input", metadata["inputs"][0]["name"])
                self.assertEqual("BYTES", metadata["outputs"][0]["datatype"])
                config = client.get_model_config("bytes", **keywords)
                config = config.get("config", config)
                self.assertTrue(config["model_transaction_policy"]["decoupled"])
                index = client.get_model_repository_index(**keywords)
                index = index["models"] if isinstance(index, dict) else index
                self.assertEqual("READY", index[0]["state"])
                text = module.InferInput("text_input", [1], "BYTES")
                text.set_data_from_numpy(numpy.array([b"abc"], object))
                with self.assertRaisesRegex(InferenceServerException, "generate"):
                    client.infer("bytes", [text])
                client.close()

    def test_the_load_is_told_to_who_asks(self):
        body = {"text_input": "abc", **PARAMETERS}
        for action in ("generate", "generate_stream"):
            _, headers, _ = self.post(action, body, {"endpoint-load-metrics-format": "json"})
            kind, _, text = headers["endpoint-load-metrics"].partition(" ")
            self.assertEqual("JSON", kind)
            metrics = json.loads(text)["named_metrics"]
            self.assertGreaterEqual(metrics["kv_cache_utilization"], 0)
            self.assertGreater(metrics["max_token_capacity"], 0)
        _, headers, _ = self.post("generate", body, {"endpoint-load-metrics-format": "TEXT"})
        self.assertIn("named_metrics.max_token_capacity=", headers["endpoint-load-metrics"])
        _, headers, _ = self.post("generate", body)
        self.assertNotIn("endpoint-load-metrics", headers)

    def test_web_pages_of_listed_origins_may_ask(self):
        body = {"text_input": "abc", **PARAMETERS}
        for action in ("generate", "generate_stream"):
            _, headers, _ = self.post(action, body, {"Origin": "https://a.example"})
            self.assertEqual("https://a.example", headers["Access-Control-Allow-Origin"])
            _, headers, _ = self.post(action, body, {"Origin": "https://b.example"})
            self.assertNotIn("Access-Control-Allow-Origin", headers)
        asks = {"Origin": "https://a.example", "Access-Control-Request-Method": "POST"}
        status, headers, _ = self.daemon.request("OPTIONS", "/v1/completions", headers=asks)
        self.assertEqual(200, status)
        self.assertIn("POST", headers["Access-Control-Allow-Methods"])


if __name__ == "__main__":
    unittest_xml.main()
