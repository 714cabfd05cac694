"""The light models of the onnx package, with weights, answer as onnxruntime does."""

import os
import tempfile
import unittest

import answers
import contenders
import light

from tests import unittest_xml

STAMPMILL = os.path.abspath("server/stampmill")


class LightModelsTest(unittest.TestCase):
    def test_there_are_nine(self):
        self.assertEqual(len(light.names()), 9)


def _test_of(name):
    # Some have half a gigabyte of weights: nothing of a model stays when its test ends.
    def test(self):
        with tempfile.TemporaryDirectory(dir=os.environ.get("TEST_TMPDIR")) as folder:
            model = light.write(name, folder)
            for row in answers.rows_of(STAMPMILL, model, contenders.Cache()):
                self.assertTrue(row["must"], row)

    return test


for _name in light.names():
    setattr(LightModelsTest, "test_" + _name, _test_of(_name))

if __name__ == "__main__":
    unittest_xml.main()
