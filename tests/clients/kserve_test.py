"""The unmodified kserve client against the daemon: REST and gRPC."""

import unittest

import kserve
import numpy
from kserve.inference_client import InferenceGRPCClient, InferenceRESTClient, RESTConfig

from tests import unittest_xml
from tests.clients import daemon

VALUES = numpy.arange(8, dtype=numpy.float32).reshape(2, 4)


def request(binary):
    tensor = kserve.InferInput("IN", [2, 4], "FP32")
    tensor.set_data_from_numpy(VALUES, binary_data=binary)
    return kserve.InferRequest(model_name="affine", infer_inputs=[tensor])


class KServe(unittest.IsolatedAsyncioTestCase):
    @classmethod
    def setUpClass(cls):
        cls.server = daemon.Daemon([daemon.model("affine")])

    @classmethod
    def tearDownClass(cls):
        cls.server.__exit__(None, None, None)

    async def test_rest(self):
        client = InferenceRESTClient(config=RESTConfig(protocol="v2"))
        url = "http://" + self.server.http
        self.assertTrue(await client.is_server_live(url))
        self.assertTrue(await client.is_server_ready(url))
        self.assertTrue(await client.is_model_ready(url, "affine"))
        for binary in (False, True):
            with self.subTest(binary=binary):
                response = await client.infer(url, request(binary), model_name="affine")
                numpy.testing.assert_array_equal(
                    response.outputs[0].as_numpy().reshape(2, 4), 2 * VALUES + 1
                )
        await client.close()

    async def test_grpc(self):
        client = InferenceGRPCClient(url=self.server.grpc)
        self.assertTrue(await client.is_server_live())
        self.assertTrue(await client.is_server_ready())
        self.assertTrue(await client.is_model_ready("affine"))
        response = await client.infer(request(True))
        numpy.testing.assert_array_equal(
            response.outputs[0].as_numpy().reshape(2, 4), 2 * VALUES + 1
        )
        await client.close()


if __name__ == "__main__":
    unittest_xml.main()
