"""Random templates render as Jinja2 renders them, or fail in both."""

import sys
import unittest

from tests import unittest_xml
from tests.templates import constructs
from tests.templates import oracle
from tests.templates import random_templates

PROGRAM = sys.argv.pop(1)
SEEDS = 2000

# What Stampmill refuses where Jinja2 does not: numbers beyond 64 bits, texts with escapes taken
# apart, functions printed with their addresses.
REFUSALS = ["64 bits", "not supported", "cannot be printed"]


class RandomTemplates(unittest.TestCase):
    def test_random_templates_render_as_jinja_renders_them(self):
        renderer = oracle.Renderer(PROGRAM)
        rendered = refused = 0
        for seed in range(SEEDS):
            template = random_templates.Generator(seed).template()
            expected, raised = oracle.expected(template, constructs.CONTEXT)
            text, error = renderer.render(template, constructs.CONTEXT)
            if text is None and any(words in error for words in REFUSALS):
                refused += 1
                continue
            # An object's address, which a filter may have changed the case of.
            if expected is not None and " at 0x" in expected.lower():
                refused += 1
                continue
            message = "seed %d, %r: Jinja2 raised %s, Stampmill said %s"
            self.assertEqual(expected, text, message % (seed, template, raised, error))
            rendered += text is not None
        renderer.close()
        # Most say something, and few are let off.
        self.assertGreater(rendered, 0.7 * SEEDS)
        self.assertLess(refused, 0.02 * SEEDS)


if __name__ == "__main__":
    unittest_xml.main()
