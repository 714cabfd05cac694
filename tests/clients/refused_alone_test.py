"""A request that a model cannot answer fails alone, and says why; those beside it are answered.

Two models are real ones: a text detector whose skip connections meet only where height and width
are multiples of 32, and a sentence encoder with a vocabulary. A third needs memory for the square
of what it is given.
"""

import os
import shutil
import tempfile
import threading
import unittest

import numpy
import onnx
import tritonclient.grpc
import tritonclient.http
from onnx import TensorProto, helper, numpy_helper
from tritonclient.utils import InferenceServerException

from tests import unittest_xml
from tests.clients import daemon
from tests.peers import zoo

SERVER = None
REQUESTS = 8
VOCABULARY = 30522


def square_model():
    """y: sums of rows of softmax(x - x transposed)."""
    nodes = [
        helper.make_node("Unsqueeze", ["x", "axis"], ["column"]),
        helper.make_node("Sub", ["x", "column"], ["d"]),
        helper.make_node("Softmax", ["d"], ["e"], axis=0),
        helper.make_node("ReduceSum", ["e", "axis"], ["y"], keepdims=0),
    ]
    info = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n"]) for name in "xy"]
    axis = numpy_helper.from_array(numpy.array([1]), "axis")
    graph = helper.make_graph(nodes, "square", info[:1], info[1:], [axis])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def setUpModule():
    global SERVER
    folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
    os.makedirs(os.path.join(folder, "square", "1"))
    onnx.save(square_model(), os.path.join(folder, "square", "1", "model.onnx"))
    for model in zoo.models("ocr-det,minilm3"):
        os.makedirs(os.path.join(folder, model.name, "1"))
        shutil.copyfile(model.path, os.path.join(folder, model.name, "1", "model.onnx"))
        with open(os.path.join(folder, model.name, "config.pbtxt"), "w") as file:
            # Longer than it takes to send all requests: they become one batch.
            file.write(
                "max_batch_size: %d dynamic_batching { preferred_batch_size: [ %d ] "
                "max_queue_delay_microseconds: 2000000 }" % (2 * REQUESTS, REQUESTS)
            )
    SERVER = daemon.Daemon(["--model-repository=" + folder, "--device-memory-budget=1GiB"])


def tearDownModule():
    SERVER.__exit__(None, None, None)


def executions(model):
    return SERVER.metrics()['nv_inference_exec_count{model="%s",version="1"}' % model]


def image(height):
    return {"x": numpy.linspace(-1, 1, 3 * height * 64, dtype=numpy.float32).reshape(1, 3, -1, 64)}


def sentence(identity):
    ids = numpy.array([[101, 1037, identity, 102]])
    return {"input_ids": ids, "attention_mask": numpy.ones_like(ids)}


class Client:
    def __init__(self, module):
        address = SERVER.grpc if module is tritonclient.grpc else SERVER.http
        self.module, self.client = module, module.InferenceServerClient(address)

    def infer(self, model, feed, output):
        """The output, or the error."""
        inputs = []
        for name, array in feed.items():
            datatype = {"f": "FP32", "i": "INT64"}[array.dtype.kind]
            inputs.append(self.module.InferInput(name, list(array.shape), datatype))
            inputs[-1].set_data_from_numpy(array)
        try:
            return self.client.infer(model, inputs).as_numpy(output)
        except InferenceServerException as error:
            return error


def at_once(module, model, feeds, output):
    """Answers to requests that are under way together."""
    results = [None] * len(feeds)

    def ask(place):
        client = Client(module)
        results[place] = client.infer(model, feeds[place], output)
        client.client.close()

    threads = [threading.Thread(target=ask, args=[place]) for place in range(len(feeds))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return results


class RefusedAloneTest(unittest.TestCase):
    def for_both_protocols(self, check):
        for module, status in (
            (tritonclient.grpc, "StatusCode.INVALID_ARGUMENT"),
            (tritonclient.http, "400"),
        ):
            with self.subTest(module.__name__):
                check(module, status)

    def expect_refused(self, result, status, *said):
        self.assertIsInstance(result, InferenceServerException)
        self.assertEqual(result.status(), status)
        for text in said:
            self.assertIn(text, result.message())

    def test_a_height_that_a_model_cannot_have(self):
        def check(module, status):
            client = Client(module)
            want = client.infer("ocr-det", image(32), "fetch_name_0")
            self.assertEqual(want.shape, (1, 1, 32, 64))
            for height in (33, 47):
                refused = client.infer("ocr-det", image(height), "fetch_name_0")
                self.expect_refused(refused, status, "Add", "= %d)" % height)
                again = client.infer("ocr-det", image(32), "fetch_name_0")
                numpy.testing.assert_array_equal(again, want)
            client.client.close()

        self.for_both_protocols(check)

    def test_memory_beyond_the_budget_is_refused_before_it_is_taken(self):
        def check(module, status):
            client = Client(module)
            line = lambda n: {"x": numpy.linspace(0, 1, n, dtype=numpy.float32)}
            want = client.infer("square", line(100), "y")
            numpy.testing.assert_allclose(want.sum(), 100, rtol=1e-4)
            before = SERVER.resident_bytes()
            refused = client.infer("square", line(30000), "y")
            exhausted = {"400": "503"}.get(status, "StatusCode.RESOURCE_EXHAUSTED")
            self.expect_refused(refused, exhausted, "square", "--device-memory-budget")
            self.assertLess(SERVER.resident_bytes() - before, 64 << 20)
            numpy.testing.assert_array_equal(client.infer("square", line(100), "y"), want)
            client.client.close()

        self.for_both_protocols(check)

    def check_one_among_many(self, module, status, model, output, good, bad, *said):
        client = Client(module)
        want = client.infer(model, good, output)
        feeds = [good] * REQUESTS + [bad] + [good] * (REQUESTS - 1)
        before = executions(model)
        results = at_once(module, model, feeds, output)
        self.expect_refused(results.pop(REQUESTS), status, *said)
        # Rows do not depend on their batch, and batches there were.
        for result in results:
            numpy.testing.assert_array_equal(result, want)
        self.assertLess(executions(model) - before, len(feeds) // 2)
        client.client.close()

    def test_an_impossible_image_among_many(self):
        self.for_both_protocols(
            lambda module, status: self.check_one_among_many(
                module, status, "ocr-det", "fetch_name_0", image(64), image(33), "Add", "= 33)"
            )
        )

    def test_an_unknown_word_among_many(self):
        def check(module, status):
            good, bad = sentence(2158), sentence(VOCABULARY)
            said = ["input_ids", str(VOCABULARY)]
            self.check_one_among_many(module, status, "minilm3", "461", good, bad, *said)

        self.for_both_protocols(check)


if __name__ == "__main__":
    unittest_xml.main()
