"""Structured output, with the unmodified openai package, of a model that left alone writes noise:
whatever it answers must be valid, since the grammar leaves it nothing else."""

import asyncio
import datetime
import json
import re
import time
import typing
import unittest
import uuid

import openai
import pydantic
from daemon import Daemon

from tests import unittest_xml

MODEL = "tests/language/byte_model.gguf"
MESSAGES = [{"role": "user", "content": "hi"}]
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 8},
        "size": {"enum": ["small", "large", None, 7]},
        "tags": {"type": "array", "items": {"type": "boolean"}, "maxItems": 3},
        "next": {"anyOf": [{"$ref": "#/$defs/leaf"}, {"type": "null"}]},
    },
    "required": ["name", "size", "next"],
    "additionalProperties": False,
    "$defs": {
        "leaf": {
            "type": "object",
            "properties": {"value": {"type": "integer"}},
            "required": ["value"],
            "additionalProperties": False,
        }
    },
}


def check(value):
    """That `value` is what SCHEMA says, written out by hand."""
    assert isinstance(value, dict), value
    assert {"name", "size", "next"} <= set(value) <= {"name", "size", "next", "tags"}, value
    assert isinstance(value["name"], str) and len(value["name"]) <= 8, value
    assert value["size"] in ("small", "large", None, 7), value
    tags = value.get("tags", [])
    assert isinstance(tags, list) and len(tags) <= 3, value
    assert all(isinstance(tag, bool) for tag in tags), value
    if value["next"] is not None:
        assert set(value["next"]) == {"value"} and isinstance(value["next"]["value"], int), value


def token(character):
    """The name of the token of one character, for biases."""
    return str(2 + ord(character))


class Leaf(pydantic.BaseModel):
    value: int
    kind: typing.Literal["a", "b"]


class Tree(pydantic.BaseModel):
    is_root: bool
    leaves: typing.Tuple[Leaf, Leaf]
    other: typing.Optional[Leaf]


class Cat(pydantic.BaseModel, extra="forbid"):
    kind: typing.Literal["cat"]
    lives: typing.Annotated[int, pydantic.Field(ge=-1, le=9)]


class Visit(pydantic.BaseModel, extra="forbid"):
    kind: typing.Literal["visit"]
    day: datetime.date
    code: typing.Annotated[str, pydantic.Field(pattern="^[A-C]{2}-[0-9]$")]
    weight: typing.Annotated[float, pydantic.Field(gt=0, lt=20)]


class Entry(pydantic.BaseModel, extra="forbid"):
    id: uuid.UUID
    what: typing.Annotated[typing.Union[Cat, Visit], pydantic.Field(discriminator="kind")]


class StructuredTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon(["bytes=" + MODEL, "--max-sequences=16"])
        cls.url = "http://%s/v1" % cls.daemon.http
        cls.client = openai.OpenAI(base_url=cls.url, api_key="none", max_retries=0)

    @classmethod
    def tearDownClass(cls):
        cls.daemon.stop()

    def chat(self, extra=None, **options):
        options = {"max_tokens": 400, "temperature": 1, "seed": 1, **options}
        return self.client.chat.completions.create(
            model="bytes", messages=MESSAGES, extra_body=extra, **options
        )

    def text(self, *arguments, **options):
        choice = self.chat(*arguments, **options).choices[0]
        self.assertEqual("stop", choice.finish_reason, choice)
        return choice.message.content

    def schema(self, schema):
        return {"type": "json_schema", "json_schema": {"name": "x", "schema": schema}}

    def test_every_answer_is_what_the_schema_says(self):
        texts = set()
        for seed in range(12):
            text = self.text(response_format=self.schema(SCHEMA), seed=seed)
            check(json.loads(text))
            texts.add(text)
        self.assertGreater(len(texts), 6)
        check(json.loads(self.text(response_format=self.schema(SCHEMA), temperature=0)))

    def test_a_stream_is_the_same_as_the_whole(self):
        options = {"response_format": self.schema(SCHEMA), "seed": 3}
        chunks = list(self.chat(stream=True, **options))
        streamed = "".join(chunk.choices[0].delta.content or "" for chunk in chunks)
        self.assertEqual(self.text(**options), streamed)
        self.assertEqual("stop", chunks[-1].choices[0].finish_reason)

    def test_parse_makes_objects_of_answers(self):
        for seed in range(4):
            answer = self.client.chat.completions.parse(
                model="bytes", messages=MESSAGES, response_format=Tree, max_tokens=400, seed=seed
            )
            tree = answer.choices[0].message.parsed
            self.assertIsInstance(tree, Tree)
            self.assertEqual(2, len(tree.leaves))

    def test_bounds_patterns_formats_and_unions_are_kept(self):
        kinds = set()
        schema = Entry.model_json_schema()
        for seed in range(16):
            entry = Entry.model_validate_json(
                self.text(response_format=self.schema(schema), seed=seed, max_tokens=450)
            )
            kinds.add(entry.what.kind)
        self.assertEqual({"cat", "visit"}, kinds)

    def test_a_json_object_is_one_as_far_as_it_comes(self):
        # Quotes and braces made likely, so that strings and objects end.
        bias = {token(c): 20 for c in '"}'}
        for seed in range(6):
            answer = self.chat(
                response_format={"type": "json_object"}, seed=seed, logit_bias=bias
            ).choices[0]
            if answer.finish_reason == "stop":
                self.assertIsInstance(json.loads(answer.message.content), dict)
            self.assertEqual("{", answer.message.content[0])
        self.assertIsInstance(
            json.loads(self.text(response_format={"type": "json_object"}, logit_bias=bias)), dict
        )

    def test_every_way_to_ask_is_kept(self):
        date = r"\d{4}-(0[1-9]|1[0-2])-\d\d"
        gbnf = 'root ::= item{2}\nitem ::= "<" [a-c]+ ">" | "é"'
        for extra, pattern in (
            ({"guided_regex": date}, date),
            ({"structured_outputs": {"regex": "^" + date + "$"}}, date),
            ({"guided_choice": ["yes", "no", "não"]}, "yes|no|não"),
            ({"structured_outputs": {"choice": ["yes", "no"]}}, "yes|no"),
            ({"guided_grammar": gbnf}, "(<[a-c]+>|é){2}"),
            ({"structured_outputs": {"grammar": gbnf}}, "(<[a-c]+>|é){2}"),
            ({"grammar": gbnf}, "(<[a-c]+>|é){2}"),
            ({"json_schema": {"const": 5}}, "5"),
            ({"guided_json": json.dumps({"type": "boolean"})}, "true|false"),
            ({"structured_outputs": {"json": {"type": "null"}}}, "null"),
            ({"response_format": {"type": "json_object", "schema": {"const": "x"}}}, '"x"'),
        ):
            for seed in range(3):
                with self.subTest(extra=extra, seed=seed):
                    self.assertRegex(self.text(extra, seed=seed), "^(?:%s)$" % pattern)

    def test_completions_conform_too(self):
        answer = self.client.completions.create(
            model="bytes",
            prompt=["a", "b"],
            n=3,
            max_tokens=50,
            temperature=1,
            extra_body={"guided_regex": "[xyz]{5}"},
        )
        texts = [choice.text for choice in answer.choices]
        self.assertEqual(6, len(texts))
        for text in texts:
            self.assertRegex(text, "^[xyz]{5}$")
        self.assertGreater(len(set(texts)), 1)

    def test_an_answer_may_be_cut_and_go_on_to_its_end(self):
        cut = self.chat(response_format=self.schema(SCHEMA), max_tokens=3)
        self.assertEqual("length", cut.choices[0].finish_reason)
        exact = self.chat({"guided_choice": ["abc"]}, max_tokens=3)
        self.assertEqual("abc", exact.choices[0].message.content)
        self.assertEqual("stop", exact.choices[0].finish_reason)
        self.assertEqual(3, exact.usage.completion_tokens)

    def test_the_end_of_text_comes_only_where_the_grammar_may_end(self):
        end = {"1": 100}
        self.assertEqual("ab", self.text({"guided_regex": "ab[c]*"}, logit_bias=end))
        forced = self.chat({"guided_regex": "ab[c]*", "ignore_eos": True}, logit_bias=end)
        self.assertEqual("length", forced.choices[0].finish_reason)
        self.assertRegex(forced.choices[0].message.content, "^abc{398}$")
        long = self.text({"guided_regex": "[c]*", "min_tokens": 9}, logit_bias=end)
        self.assertEqual("c" * 9, long)

    def test_many_with_different_grammars_do_not_disturb_each_other(self):
        async def together():
            client = openai.AsyncOpenAI(base_url=self.url, api_key="none", max_retries=0)
            calls = [
                client.chat.completions.create(
                    model="bytes",
                    messages=MESSAGES,
                    max_tokens=60,
                    temperature=1,
                    seed=i,
                    extra_body={"guided_regex": "%c{20}" % (97 + i % 8)} if i % 4 else None,
                )
                for i in range(32)
            ]
            return [answer.choices[0] for answer in await asyncio.gather(*calls)]

        for i, choice in enumerate(asyncio.run(together())):
            if i % 4:
                self.assertEqual(chr(97 + i % 8) * 20, choice.message.content)

    def test_logprobs_are_of_the_tokens_that_came(self):
        answer = self.chat({"guided_choice": ["abc"]}, logprobs=True, top_logprobs=2).choices[0]
        self.assertEqual(["a", "b", "c"], [entry.token for entry in answer.logprobs.content])

    def refused(self, part, *arguments, **options):
        with self.assertRaises(openai.BadRequestError) as raised:
            self.chat(*arguments, **options)
        self.assertIn(part, str(raised.exception))

    def test_what_cannot_be_kept_is_refused_by_name(self):
        field = "response_format.json_schema.schema"
        loop = {"$defs": {"a": {"$ref": "#/$defs/a"}}, "$ref": "#/$defs/a"}
        for schema, part in (
            ({"type": "strin"}, "strin"),
            ({"type": 5}, field),
            ({"not": {}}, "not"),
            ({"$ref": "#/nowhere"}, "nowhere"),
            ({"$ref": "http://example.com/x"}, "example"),
            (loop, field),
            ({"type": "string", "pattern": "(a)\\1"}, "pattern"),
            ({"type": "string", "format": "regex"}, "format"),
            ({"type": "integer", "minimum": 5, "maximum": 4}, "bounds"),
            ({"oneOf": [{"type": "number"}, {"type": "integer"}]}, "oneOf"),
            ({"type": "array", "uniqueItems": True}, "uniqueItems"),
            ({"enum": []}, "enum"),
            (False, "nothing"),
            ({"type": "array", "minItems": -1}, "minItems"),
            ({"type": "string", "minLength": 10**9}, "minLength"),
        ):
            with self.subTest(schema=schema):
                self.refused(part, response_format=self.schema(schema))
        for extra, part in (
            ({"guided_regex": "("}, "guided_regex"),
            ({"guided_regex": r"(a)\1"}, "back reference"),
            ({"guided_regex": r"a(?=b)"}, "assertion"),
            ({"guided_regex": "((a{1000}){1000}){1000}"}, "guided_regex"),
            ({"guided_regex": "(" * 5000}, "guided_regex"),
            ({"guided_regex": 5}, "guided_regex"),
            ({"guided_regex": ""}, "guided_regex"),
            ({"guided_grammar": "root ::= root 'a'"}, "guided_grammar"),
            ({"guided_grammar": 'x ::= "a"'}, "root"),
            ({"grammar": 'root ::= root "a" | "b"'}, "begins with itself"),
            ({"grammar": 'root ::= ""'}, "grammar"),
            ({"guided_choice": []}, "guided_choice"),
            ({"guided_choice": [1]}, "guided_choice[0]"),
            ({"guided_choice": "yes"}, "guided_choice"),
            ({"guided_json": "{"}, "guided_json"),
            ({"guided_json": []}, "guided_json"),
            ({"guided_json": {}, "guided_regex": "a"}, "second constraint"),
            ({"structured_outputs": {"structural_tag": {}}}, "structural_tag"),
            ({"response_format": {"type": "xml"}}, "response_format.type"),
            ({"response_format": {"type": "json_schema"}}, "json_schema"),
        ):
            with self.subTest(extra=extra):
                self.refused(part, extra)

    def test_huge_and_recursive_schemas_are_bounded(self):
        deep = {"type": "integer"}
        for _ in range(60):
            deep = {"type": "array", "items": deep, "minItems": 1, "maxItems": 1}
        text = self.text(
            response_format=self.schema(deep), logit_bias={token(c): -100 for c in " \n"}
        )
        self.assertRegex(text, r"^\[{60}-?\d+\]{60}$")
        wide = {
            "type": "object",
            "properties": {"p%d" % i: {"type": "boolean"} for i in range(20000)},
        }
        bomb = {"type": "integer"}
        for _ in range(8):
            bomb = {"type": "array", "items": bomb, "minItems": 30, "maxItems": 30}
        for schema in (
            wide,
            bomb,
            {"enum": ["x" * 1000 + str(i) for i in range(1000)]},
            {"type": "string", "minLength": 4096},
        ):
            begin = time.monotonic()
            try:
                answer = self.chat(response_format=self.schema(schema), max_tokens=4)
                self.assertEqual("length", answer.choices[0].finish_reason)
            except openai.BadRequestError as error:
                self.assertIn("schema", str(error))
            self.assertLess(time.monotonic() - begin, 20)
        tree = {
            "$defs": {
                "node": {
                    "type": "object",
                    "properties": {"next": {"anyOf": [{"$ref": "#/$defs/node"}, {"type": "null"}]}},
                    "required": ["next"],
                    "additionalProperties": False,
                }
            },
            "$ref": "#/$defs/node",
        }
        for seed in range(3):
            choice = self.chat(response_format=self.schema(tree), seed=seed).choices[0]
            if choice.finish_reason == "stop":
                value = json.loads(choice.message.content)
                while value is not None:
                    self.assertEqual(["next"], list(value))
                    value = value["next"]

    def test_regexes_that_backtracking_dies_of_are_quick(self):
        begin = time.monotonic()
        for pattern in ("(a+)+b", "(a|a)*b", "(.*)(.*)(.*)b", "(a*)*b", "([a-z]+)*b"):
            answer = self.chat({"guided_regex": pattern}, max_tokens=100).choices[0]
            self.assertRegex(answer.message.content[:3], ".")
        self.assertLess(time.monotonic() - begin, 30)


if __name__ == "__main__":
    unittest_xml.main()
