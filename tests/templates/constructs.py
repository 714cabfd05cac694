"""Small templates, at least one for each construct, rendered with CONTEXT.

They lie in constructs.json, by what they are about, since templates do not break at 100 columns.
`refused` are those that Jinja2 renders and Stampmill refuses, with what the error says: addresses
of objects, numbers without bound, bytes, templates beside the template.
"""

import json
import os

with open(os.path.join(os.path.dirname(__file__), "constructs.json"), encoding="utf-8") as _file:
    _DATA = json.load(_file)

CONTEXT = _DATA["context"]
REFUSED = _DATA["refused"]

_VALUES = [
    "1",
    "0",
    "-3",
    "2.0",
    "1.5",
    "true",
    "false",
    "none",
    "''",
    "'a'",
    "'1'",
    "[]",
    "[1]",
    "(1,)",
    "{}",
    "{'a': 1}",
    "missing",
    "range(2)",
    "name.upper",
    "dict",
    "namespace()",
    "words | map('upper')",
    "nested.items()",
    "nested.keys()",
]

_TESTS = [
    "boolean",
    "callable",
    "defined",
    "undefined",
    "even",
    "odd",
    "false",
    "true",
    "float",
    "integer",
    "number",
    "iterable",
    "sequence",
    "mapping",
    "none",
    "string",
    "divisibleby 3",
    "eq 1",
    "equalto 'a'",
    "ne 1",
    "gt 1",
    "ge 1",
    "lt 1",
    "le 1",
    "in [1, 'a']",
    "sameas none",
    "sameas true",
    "escaped",
    "greaterthan 0",
    "lessthan 'b'",
    "filter",
    "test",
]

ALL = [template for templates in _DATA["templates"].values() for template in templates]
ALL += ["{{ %s is %s }}" % (value, test) for value in _VALUES for test in _TESTS]
