"""The public models answer as onnxruntime does without its optimisations."""

import os
import unittest

import answers
import contenders
import zoo

from tests import unittest_xml

STAMPMILL = os.path.abspath("server/stampmill")


class Answers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cache = contenders.Cache()

    def check(self, model):
        for row in answers.rows_of(STAMPMILL, model, self.cache):
            with self.subTest(batch=row["batch"], inputs=row["inputs"]):
                self.assertTrue(row["must"], row)


def _test_of(model):
    return lambda self: self.check(model)


for _model in zoo.models() + zoo.variants():
    setattr(Answers, "test_" + _model.name.replace("-", "_"), _test_of(_model))

if __name__ == "__main__":
    unittest_xml.main()
