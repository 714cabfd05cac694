"""Unmodified tritonclient against the daemon: gRPC, HTTP, asyncio, shared memory, health,
reflection, model control."""

import asyncio
import os
import queue
import shutil
import tempfile
import unittest
import uuid

import grpc
import numpy
import tritonclient.grpc
import tritonclient.grpc.aio
import tritonclient.http
import tritonclient.http.aio
import tritonclient.utils.shared_memory
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import proto_reflection_descriptor_database
from tritonclient.utils import InferenceServerException

from tests import unittest_xml
from tests.clients import daemon

SERVER = None


def setUpModule():
    global SERVER
    SERVER = daemon.Daemon(
        [daemon.model(name) for name in ("affine", "detector", "pair", "wide")]
        + ["--allow-client-shm=true"]
    )


def tearDownModule():
    SERVER.__exit__(None, None, None)


def affine_input(module, values):
    tensor = module.InferInput("IN", list(values.shape), "FP32")
    tensor.set_data_from_numpy(values)
    return tensor


def detector_input(module, columns):
    tensor = module.InferInput("IN", list(columns.shape), "FP32")
    tensor.set_data_from_numpy(columns)
    return tensor


def share(a, b):
    """Of the union of two boxes, what is common to both."""
    height = min(a[2], b[2]) - max(a[0], b[0])
    width = min(a[3], b[3]) - max(a[1], b[1])
    if height <= 0 or width <= 0:
        return 0
    areas = [(box[2] - box[0]) * (box[3] - box[1]) for box in (a, b)]
    return height * width / (sum(areas) - height * width)


def detect(columns):
    """What the detector finds: rows of batch, class and column."""
    boxes, scores = columns[0, :4].T, columns[0, 4:]
    found = []
    for kind, score in enumerate(scores):
        kept = []
        for column in numpy.argsort(-score, kind="stable"):
            overlaps = any(share(boxes[column], boxes[other]) > 0.5 for other in kept)
            if score[column] > 0.25 and not overlaps and len(kept) < 100:
                kept.append(column)
        found += [[0, kind, column] for column in kept]
    return numpy.array(found, numpy.int64).reshape(-1, 3)


def scene(columns, seed, most=1.0):
    """Boxes in a square, with scores up to `most`."""
    random = numpy.random.default_rng(seed)
    corner = random.uniform(0, 4, (columns, 2))
    size = random.uniform(0.5, 1.5, (columns, 2))
    score = random.uniform(0, most, (columns, 2))
    rows = numpy.concatenate([corner, corner + size, score], axis=1)
    return numpy.ascontiguousarray(rows.T[None].astype(numpy.float32))


VALUES = numpy.arange(8, dtype=numpy.float32).reshape(2, 4)


class Sync(unittest.TestCase):
    """What is the same for both transports."""

    def clients(self):
        yield tritonclient.grpc, tritonclient.grpc.InferenceServerClient(SERVER.grpc)
        yield tritonclient.http, tritonclient.http.InferenceServerClient(SERVER.http)

    def each(self):
        for module, client in self.clients():
            with self.subTest(module.__name__):
                yield module, client
            client.close()

    def test_health_and_metadata(self):
        for module, client in self.each():
            self.assertTrue(client.is_server_live())
            self.assertTrue(client.is_server_ready())
            self.assertTrue(client.is_model_ready("affine"))
            self.assertTrue(client.is_model_ready("affine", "1"))
            self.assertFalse(client.is_model_ready("none"))
            keywords = {"as_json": True} if module is tritonclient.grpc else {}
            server = client.get_server_metadata(**keywords)
            self.assertEqual("stampmill", server["name"])
            self.assertIn("statistics", server["extensions"])
            metadata = client.get_model_metadata("pair", **keywords)
            self.assertEqual({"A", "B"}, {tensor["name"] for tensor in metadata["inputs"]})
            self.assertEqual("INT32", metadata["outputs"][0]["datatype"])
            config = client.get_model_config("affine", **keywords)
            config = config.get("config", config)
            self.assertEqual(32, config["max_batch_size"])
            self.assertEqual("TYPE_FP32", config["input"][0]["data_type"])
            index = client.get_model_repository_index(**keywords)
            index = index["models"] if isinstance(index, dict) else index
            self.assertEqual(
                {"affine", "detector", "pair", "wide"}, {entry["name"] for entry in index}
            )

    def test_infers(self):
        for module, client in self.each():
            result = client.infer("affine", [affine_input(module, VALUES)], request_id="abc")
            numpy.testing.assert_array_equal(result.as_numpy("OUT"), 2 * VALUES + 1)
            response = result.get_response()
            self.assertEqual("abc", response["id"] if isinstance(response, dict) else response.id)

    def test_infers_two_inputs_and_chosen_outputs(self):
        a = numpy.array([[1, 2, 3, 4]], numpy.int32)
        b = numpy.array([[10, 20, 30, 2**31 - 1]], numpy.int32)
        for module, client in self.each():
            inputs = []
            for name, values in (("B", b), ("A", a)):
                inputs.append(module.InferInput(name, [1, 4], "INT32"))
                inputs[-1].set_data_from_numpy(values)
            outputs = [module.InferRequestedOutput(name) for name in ("DIFF", "SUM")]
            result = client.infer("pair", inputs, outputs=outputs)
            with numpy.errstate(over="ignore"):
                numpy.testing.assert_array_equal(result.as_numpy("SUM"), a + b)
            numpy.testing.assert_array_equal(result.as_numpy("DIFF"), a - b)
            result = client.infer("pair", inputs, outputs=outputs[:1])
            self.assertIsNone(result.as_numpy("SUM"))

    def test_infers_open_shapes_and_empty_tensors(self):
        for module, client in self.each():
            for shape in ((1, 1), (3, 1000), (1, 0), (7, 33)):
                values = numpy.random.default_rng(0).random(shape, numpy.float32)
                result = client.infer("wide", [affine_input(module, values)])
                numpy.testing.assert_array_equal(result.as_numpy("OUT"), -values)

    def test_errors(self):
        for module, client in self.each():
            with self.assertRaisesRegex(InferenceServerException, "unknown model: 'none'"):
                client.infer("none", [affine_input(module, VALUES)])
            with self.assertRaisesRegex(InferenceServerException, "unexpected shape for input"):
                client.infer("affine", [affine_input(module, VALUES[:, :3].copy())])
            wrong = module.InferInput("IN", [2, 4], "INT32")
            wrong.set_data_from_numpy(VALUES.astype(numpy.int32))
            with self.assertRaisesRegex(
                InferenceServerException, "data-type is 'INT32', but model 'affine' expects 'FP32'"
            ):
                client.infer("affine", [wrong])
            with self.assertRaisesRegex(InferenceServerException, "missing required input"):
                a = module.InferInput("A", [1, 4], "INT32")
                a.set_data_from_numpy(numpy.zeros((1, 4), numpy.int32))
                client.infer("pair", [a])
            with self.assertRaisesRegex(InferenceServerException, "unexpected inference output"):
                client.infer(
                    "affine",
                    [affine_input(module, VALUES)],
                    outputs=[module.InferRequestedOutput("NO")],
                )
            with self.assertRaisesRegex(InferenceServerException, "batch-size must be <= 32"):
                client.infer("affine", [affine_input(module, numpy.zeros((33, 4), numpy.float32))])
            # And it still works.
            client.infer("affine", [affine_input(module, VALUES)])

    def test_async_requests(self):
        client = tritonclient.grpc.InferenceServerClient(SERVER.grpc)
        answers = queue.Queue()
        for _ in range(100):
            client.async_infer(
                "affine",
                [affine_input(tritonclient.grpc, VALUES)],
                lambda result, error: answers.put((result, error)),
            )
        for _ in range(100):
            result, error = answers.get(timeout=60)
            self.assertIsNone(error)
            numpy.testing.assert_array_equal(result.as_numpy("OUT"), 2 * VALUES + 1)
        client.close()
        client = tritonclient.http.InferenceServerClient(SERVER.http, concurrency=8)
        pending = [
            client.async_infer("affine", [affine_input(tritonclient.http, VALUES)])
            for _ in range(100)
        ]
        for request in pending:
            numpy.testing.assert_array_equal(request.get_result().as_numpy("OUT"), 2 * VALUES + 1)
        client.close()

    def test_statistics(self):
        for module, client in self.each():
            keywords = {"as_json": True} if module is tritonclient.grpc else {}
            before = client.get_inference_statistics("wide", **keywords)["model_stats"][0]
            client.infer("wide", [affine_input(module, VALUES)])
            after = client.get_inference_statistics("wide", **keywords)["model_stats"][0]
            self.assertEqual(
                int(before.get("inference_count", 0)) + 2, int(after["inference_count"])
            )
            self.assertGreater(int(after["inference_stats"]["compute_infer"]["ns"]), 0)

    def test_shared_memory(self):
        shm = tritonclient.utils.shared_memory
        for module, client in self.each():
            key = "/stampmill_" + uuid.uuid4().hex
            region = shm.create_shared_memory_region("region", key, 256)
            try:
                shm.set_shared_memory_region(region, [VALUES])
                client.register_system_shared_memory("region", key, 256)
                with self.assertRaisesRegex(InferenceServerException, "already in manager"):
                    client.register_system_shared_memory("region", key, 256)
                tensor = module.InferInput("IN", [2, 4], "FP32")
                tensor.set_shared_memory("region", VALUES.nbytes)
                output = module.InferRequestedOutput("OUT")
                output.set_shared_memory("region", VALUES.nbytes, offset=128)
                client.infer("affine", [tensor], outputs=[output])
                result = shm.get_contents_as_numpy(region, numpy.float32, [2, 4], offset=128)
                numpy.testing.assert_array_equal(result, 2 * VALUES + 1)
                tensor.set_shared_memory("region", VALUES.nbytes, offset=250)
                with self.assertRaisesRegex(InferenceServerException, "Invalid offset"):
                    client.infer("affine", [tensor], outputs=[output])
                tensor = module.InferInput("IN", [2, 4], "FP32")
                tensor.set_shared_memory("region", VALUES.nbytes)
                output = module.InferRequestedOutput("OUT")
                output.set_shared_memory("region", 4)
                with self.assertRaisesRegex(InferenceServerException, "at least 32 bytes"):
                    client.infer("affine", [tensor], outputs=[output])
                client.unregister_system_shared_memory("region")
                client.unregister_system_shared_memory("region")
                with self.assertRaisesRegex(InferenceServerException, "Unable to find"):
                    client.infer("affine", [tensor])
                with self.assertRaisesRegex(InferenceServerException, "Unable to open"):
                    client.register_system_shared_memory("other", "/no_such_" + key[1:], 16)
            finally:
                shm.destroy_shared_memory_region(region)

    def test_as_many_answers_as_are_found(self):
        counts = set()
        for module, client in self.each():
            for columns, seed, most in [
                (20, 1, 1),
                (7, 2, 1),
                (0, 3, 1),
                (20, 4, 0.2),
                (300, 5, 1),
            ]:
                rows = scene(columns, seed, most)
                want = detect(rows)
                counts.add(len(want))
                result = client.infer("detector", [detector_input(module, rows)])
                numpy.testing.assert_array_equal(result.as_numpy("FOUND"), want)
                numpy.testing.assert_array_equal(
                    result.as_numpy("BOXES"), rows[0, :4].T[want[:, 2]].reshape(-1, 4)
                )
        self.assertGreaterEqual(len(counts), 4)
        http = tritonclient.http.InferenceServerClient(SERVER.http)
        for description in (
            http.get_model_metadata("detector")["outputs"],
            http.get_model_config("detector")["output"],
        ):
            dims = {entry["name"]: entry.get("shape", entry.get("dims")) for entry in description}
            dims = {name: [int(dim) for dim in values] for name, values in dims.items()}
            self.assertEqual(dims, {"FOUND": [-1, 3], "BOXES": [-1, 4]})
        http.close()

    def test_shared_memory_for_as_many_answers_as_are_found(self):
        shm = tritonclient.utils.shared_memory
        rows = scene(20, 1)
        want = detect(rows)
        exact, room = want.nbytes, 40 * 3 * 8
        self.assertLess(exact, room)
        for module, client in self.each():
            key = "/stampmill_" + uuid.uuid4().hex
            region = shm.create_shared_memory_region("found", key, 2 * room)
            try:
                client.register_system_shared_memory("found", key, 2 * room)
                # Room for the most that there could be, for what there is, and for less.
                for size in (room + 8, room, exact + 8, exact):
                    shm.set_shared_memory_region(region, [numpy.full(2 * room, 7, numpy.uint8)])
                    output = module.InferRequestedOutput("FOUND")
                    output.set_shared_memory("found", size)
                    result = client.infer(
                        "detector", [detector_input(module, rows)], outputs=[output]
                    )
                    answer = result.get_output("FOUND")
                    shape = answer["shape"] if isinstance(answer, dict) else answer.shape
                    self.assertEqual([int(dim) for dim in shape], list(want.shape))
                    numpy.testing.assert_array_equal(
                        shm.get_contents_as_numpy(region, numpy.int64, list(want.shape)), want
                    )
                    behind = shm.get_contents_as_numpy(region, numpy.uint8, [2 * room])[size:]
                    self.assertTrue((behind == 7).all())
                output.set_shared_memory("found", exact - 8)
                with self.assertRaisesRegex(InferenceServerException, "at least %d bytes" % exact):
                    client.infer("detector", [detector_input(module, rows)], outputs=[output])
                client.unregister_system_shared_memory("found")
            finally:
                shm.destroy_shared_memory_region(region)

    def test_compression(self):
        client = tritonclient.http.InferenceServerClient(SERVER.http)
        values = numpy.zeros((4, 5000), numpy.float32)
        for coding in ("gzip", "deflate"):
            result = client.infer(
                "wide",
                [affine_input(tritonclient.http, values)],
                request_compression_algorithm=coding,
                response_compression_algorithm=coding,
            )
            numpy.testing.assert_array_equal(result.as_numpy("OUT"), values)
        client.close()
        client = tritonclient.grpc.InferenceServerClient(SERVER.grpc)
        for coding in ("gzip", "deflate"):
            result = client.infer(
                "wide", [affine_input(tritonclient.grpc, values)], compression_algorithm=coding
            )
            numpy.testing.assert_array_equal(result.as_numpy("OUT"), values)
        client.close()


class Stream(unittest.TestCase):
    def test_answers_in_order_and_goes_on_after_errors(self):
        client = tritonclient.grpc.InferenceServerClient(SERVER.grpc)
        answers = queue.Queue()
        client.start_stream(lambda result, error: answers.put((result, error)))
        for i in range(20):
            client.async_stream_infer(
                "none" if i == 7 else "affine",
                [affine_input(tritonclient.grpc, VALUES + i)],
                request_id=str(i),
                enable_empty_final_response=i % 2 == 0,
            )
        for i in range(20):
            result, error = answers.get(timeout=60)
            if i == 7:
                self.assertIn("none", str(error))
                continue
            self.assertIsNone(error)
            response = result.get_response()
            self.assertEqual(str(i), response.id)
            self.assertTrue(response.parameters["triton_final_response"].bool_param)
            numpy.testing.assert_array_equal(result.as_numpy("OUT"), 2 * (VALUES + i) + 1)
        client.stop_stream()
        client.close()


class Aio(unittest.IsolatedAsyncioTestCase):
    async def test_grpc(self):
        async with tritonclient.grpc.aio.InferenceServerClient(SERVER.grpc) as client:
            self.assertTrue(await client.is_server_ready())
            results = await asyncio.gather(
                *[
                    client.infer("affine", [affine_input(tritonclient.grpc, VALUES)])
                    for _ in range(50)
                ]
            )
            for result in results:
                numpy.testing.assert_array_equal(result.as_numpy("OUT"), 2 * VALUES + 1)

    async def test_http(self):
        async with tritonclient.http.aio.InferenceServerClient(SERVER.http) as client:
            self.assertTrue(await client.is_server_ready())
            results = await asyncio.gather(
                *[
                    client.infer("affine", [affine_input(tritonclient.http, VALUES)])
                    for _ in range(50)
                ]
            )
            for result in results:
                numpy.testing.assert_array_equal(result.as_numpy("OUT"), 2 * VALUES + 1)


class Standard(unittest.TestCase):
    def test_health_and_reflection(self):
        with grpc.insecure_channel(SERVER.grpc) as channel:
            health = health_pb2_grpc.HealthStub(channel)
            response = health.Check(health_pb2.HealthCheckRequest(service="any"))
            self.assertEqual(health_pb2.HealthCheckResponse.SERVING, response.status)
            watch = health.Watch(health_pb2.HealthCheckRequest())
            self.assertEqual(health_pb2.HealthCheckResponse.SERVING, next(watch).status)
            watch.cancel()
            database = proto_reflection_descriptor_database.ProtoReflectionDescriptorDatabase(
                channel
            )
            self.assertIn("inference.GRPCInferenceService", database.get_services())
            file = database.FindFileContainingSymbol("inference.ModelInferRequest")
            self.assertIn("ModelInferRequest", [message.name for message in file.message_type])

    def test_metrics(self):
        client = tritonclient.http.InferenceServerClient(SERVER.http)
        client.infer("wide", [affine_input(tritonclient.http, VALUES)])
        client.close()
        samples = SERVER.metrics()
        self.assertGreaterEqual(
            samples['nv_inference_request_success{model="wide",version="1"}'], 1
        )
        self.assertGreater(samples["nv_cpu_memory_total_bytes"], 0)
        self.assertEqual(1, samples["stampmill_ready"])


class ModelControl(unittest.TestCase):
    def test_explicit_loading(self):
        with open(daemon.model("affine"), "rb") as file:
            affine = file.read()
        folder = tempfile.mkdtemp(dir=os.environ.get("TEST_TMPDIR"))
        for name in ("wide", "pair"):
            os.makedirs(os.path.join(folder, name, "1"))
            shutil.copyfile(daemon.model(name), os.path.join(folder, name, "1", "model.onnx"))
        with daemon.Daemon(
            [
                "--model-control-mode=explicit",
                "--load-model=wide",
                "--model-repository=" + folder,
            ]
        ) as server:
            for module, address in (
                (tritonclient.grpc, server.grpc),
                (tritonclient.http, server.http),
            ):
                with self.subTest(module.__name__):
                    client = module.InferenceServerClient(address)
                    self.assertFalse(client.is_model_ready("pair"))
                    client.load_model("pair")
                    self.assertTrue(client.is_model_ready("pair"))
                    client.unload_model("pair")
                    self.assertFalse(client.is_model_ready("pair"))
                    with self.assertRaises(InferenceServerException):
                        client.load_model("none")
                    with self.assertRaisesRegex(InferenceServerException, "shared memory is disab"):
                        client.register_system_shared_memory("r", "/r", 1)
                    client.load_model(
                        "sent",
                        config='{"name":"sent","max_batch_size":8}',
                        files={"file:1/model.onnx": affine},
                    )
                    result = client.infer("sent", [affine_input(module, VALUES)])
                    numpy.testing.assert_array_equal(result.as_numpy("OUT"), 2 * VALUES + 1)
                    client.unload_model("sent")
                    client.close()


if __name__ == "__main__":
    unittest_xml.main()
