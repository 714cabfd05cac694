"""The public models answer as onnxruntime does without its optimisations."""

import os
import unittest

import answers
import contenders
import zoo

from tests import unittest_xml

STAMPMILL = os.path.abspath("server/stampmill")


# Not served yet, and why.
REFUSED = {
    "silero": "operator If",
    "silero-ifless": "operator If",
    "silero-16k": "operator If",
    "silero-half": "operator If",
    "silero-sequence": "sequence length",
    "crnn": "sequence length",
    "crnn-i8": "sequence length",
    "chars2vec": "operator Loop",
}


class Answers(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cache = contenders.Cache()

    def check(self, model):
        for row in answers.rows_of(STAMPMILL, model, self.cache):
            with self.subTest(batch=row["batch"], inputs=row["inputs"]):
                if model.name in REFUSED:
                    self.assertIn(REFUSED[model.name], row.get("error", ""))
                else:
                    self.assertTrue(row["must"], row)


def _test_of(model):
    return lambda self: self.check(model)


for _model in zoo.models() + zoo.variants():
    setattr(Answers, "test_" + _model.name.replace("-", "_"), _test_of(_model))

if __name__ == "__main__":
    unittest_xml.main()
