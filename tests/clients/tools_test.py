"""Calls of tools and reasoning, with the unmodified openai package, of a model that left alone
writes noise: what is required comes, in the format that each chat template has."""

import asyncio
import json
import unittest

import openai
import pydantic
from daemon import Daemon

from tests import unittest_xml

MODEL = "tests/language/byte_model.gguf"
MESSAGES = [{"role": "user", "content": "hi"}]

TURNS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content or '' }}"
    "{% for c in m.tool_calls or [] %}CALL{% endfor %}<|im_end|>\n{% endfor %}"
    "{% for t in tools or [] %}{{ t.function.name }}\n{% endfor %}<|im_start|>assistant\n"
)
HERMES = TURNS.replace(
    "CALL",
    "<tool_call>\n{{ {'name': c.function.name, 'arguments': c.function.arguments} | tojson }}"
    "\n</tool_call>",
)
ARGUMENTS = "{{ c.function.arguments | tojson }}}"
LLAMA = TURNS.replace(
    "CALL", '<|python_tag|>{"name": "{{ c.function.name }}", "parameters": ' + ARGUMENTS
)
MISTRAL = TURNS.replace(
    "CALL", '[TOOL_CALLS][{"name": "{{ c.function.name }}", "arguments": ' + ARGUMENTS + "]"
)
MISTRAL_NAMES = TURNS.replace(
    "CALL", "[TOOL_CALLS]{{ c.function.name }}[ARGS]{{ c.function.arguments | tojson }}"
)
FORMATS = {
    "hermes": HERMES,
    "llama": LLAMA,
    "mistral": MISTRAL,
    "mistral_names": MISTRAL_NAMES,
}
THINKS = TURNS.replace("CALL", "{{ c.function.arguments | tojson }}</think>")


def tool(name, properties, **function):
    """A tool of these parameters, all required."""
    parameters = {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }
    return {"type": "function", "function": {"name": name, "parameters": parameters, **function}}


WEATHER = tool("get_weather", {"unit": {"enum": ["C", "F"]}, "days": {"enum": [1, 2, 3]}})
CLOCK = tool("clock.now", {"utc": {"type": "boolean"}})


def token(character):
    """The name of the token of one character, for biases."""
    return str(2 + ord(character))


class ToolsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.daemon = Daemon(["bytes=" + MODEL, "--max-sequences=16", "--chat-template=" + HERMES])
        cls.url = "http://%s/v1" % cls.daemon.http
        cls.client = openai.OpenAI(base_url=cls.url, api_key="none", max_retries=0)

    @classmethod
    def tearDownClass(cls):
        cls.daemon.stop()

    def chat(self, template=HERMES, messages=None, extra=None, **options):
        options = {"max_tokens": 150, "temperature": 1, "seed": 1, **options}
        return self.client.chat.completions.create(
            model="bytes",
            messages=messages or MESSAGES,
            extra_body={"chat_template": template, **(extra or {})},
            **options,
        )

    def check_call(self, call):
        arguments = json.loads(call.function.arguments)
        if call.function.name == "get_weather":
            self.assertEqual({"unit", "days"}, set(arguments))
            self.assertIn(arguments["unit"], ("C", "F"))
            self.assertIn(arguments["days"], (1, 2, 3))
        else:
            self.assertEqual("clock.now", call.function.name)
            self.assertIsInstance(arguments["utc"], bool)

    def test_required_calls_come_in_every_format(self):
        called = set()
        for name, template in FORMATS.items():
            for seed in range(6):
                with self.subTest(name, seed=seed):
                    choice = self.chat(
                        template,
                        tools=[WEATHER, CLOCK],
                        tool_choice="required",
                        parallel_tool_calls=False,
                        seed=seed,
                    ).choices[0]
                    self.assertEqual("tool_calls", choice.finish_reason, choice)
                    self.assertIsNone(choice.message.content)
                    self.assertEqual(1, len(choice.message.tool_calls))
                    call = choice.message.tool_calls[0]
                    self.check_call(call)
                    called.add(call.function.name)
                    if name.startswith("mistral"):
                        self.assertRegex(call.id, "^[a-zA-Z0-9]{9}$")
                    else:
                        self.assertRegex(call.id, "^call_[0-9a-f]{24}$")
        self.assertEqual({"get_weather", "clock.now"}, called)

    def test_a_named_tool_is_called(self):
        for name, template in FORMATS.items():
            with self.subTest(name):
                choice = self.chat(
                    template,
                    tools=[WEATHER, CLOCK],
                    tool_choice={"type": "function", "function": {"name": "clock.now"}},
                ).choices[0]
                self.assertEqual("tool_calls", choice.finish_reason)
                self.assertEqual(1, len(choice.message.tool_calls))
                self.assertEqual("clock.now", choice.message.tool_calls[0].function.name)
                self.check_call(choice.message.tool_calls[0])

    def test_streamed_calls_are_the_same_as_whole_ones(self):
        for name, template in FORMATS.items():
            options = {
                "tools": [WEATHER, CLOCK],
                "tool_choice": "required",
                "parallel_tool_calls": False,
                "seed": 4,
            }
            with self.subTest(name):
                whole = self.chat(template, **options).choices[0].message.tool_calls[0]
                chunks = list(self.chat(template, stream=True, **options))
                deltas = [chunk.choices[0].delta for chunk in chunks]
                parts = [call for delta in deltas for call in delta.tool_calls or []]
                self.assertTrue(all(not delta.content for delta in deltas))
                self.assertEqual(whole.function.name, parts[0].function.name)
                self.assertTrue(parts[0].id)
                self.assertTrue(all(part.id is None for part in parts[1:]))
                self.assertTrue(all(part.index == 0 for part in parts))
                arguments = "".join(part.function.arguments or "" for part in parts)
                self.assertEqual(whole.function.arguments, arguments)
                self.assertGreater(len(parts), 5)
                self.assertEqual("tool_calls", chunks[-1].choices[0].finish_reason)

    def test_several_calls_may_come(self):
        for name, template in FORMATS.items():
            counts = set()
            for seed in range(12):
                choice = self.chat(
                    template, tools=[CLOCK], tool_choice="required", seed=seed
                ).choices[0]
                calls = choice.message.tool_calls
                whole = calls if choice.finish_reason == "tool_calls" else calls[:-1]
                for call in whole:
                    self.check_call(call)
                self.assertEqual(len(calls), len({call.id for call in calls}))
                counts.add(len(calls))
            if name == "llama":
                self.assertEqual({1}, counts)
            else:
                self.assertGreater(len(counts), 1, name)

    def test_tools_without_parameters_take_any_object(self):
        bare = {"type": "function", "function": {"name": "f"}}
        bias = {token(c): 30 for c in '"}'}
        choice = self.chat(
            tools=[bare], tool_choice="required", logit_bias=bias, parallel_tool_calls=False
        ).choices[0]
        self.assertIsInstance(json.loads(choice.message.tool_calls[0].function.arguments), dict)

    def test_noise_is_content_where_a_call_may_come(self):
        for template in FORMATS.values():
            for strict in (False, True):
                weather = {**WEATHER, "function": {**WEATHER["function"], "strict": strict}}
                choice = self.chat(template, tools=[weather], tool_choice="auto").choices[0]
                self.assertFalse(choice.message.tool_calls)
                self.assertTrue(choice.message.content)

    def test_strict_tools_are_called_as_their_schema_says(self):
        strict = {**WEATHER, "function": {**WEATHER["function"], "strict": True}}
        # A brace begins a call in Llama's format, and nothing but a right one can follow.
        choice = self.chat(
            LLAMA, tools=[strict], logit_bias={token("{"): 100}, parallel_tool_calls=False
        ).choices[0]
        self.assertEqual("tool_calls", choice.finish_reason)
        self.check_call(choice.message.tool_calls[0])

    def test_an_answer_conforms_or_calls(self):
        schema = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"const": [7]}}}
        for first, called in (("<", True), ("[", False)):
            choice = self.chat(
                tools=[CLOCK],
                response_format=schema,
                logit_bias={token(first): 20},
                parallel_tool_calls=False,
            ).choices[0]
            if called:
                self.check_call(choice.message.tool_calls[0])
            else:
                self.assertEqual([7], json.loads(choice.message.content))
                self.assertEqual("stop", choice.finish_reason)

    def test_tools_that_are_not_to_be_called_are_not(self):
        choice = self.chat(
            tools=[CLOCK], tool_choice="none", extra={"guided_choice": ["<tool_call>"]}
        ).choices[0]
        self.assertEqual("<tool_call>", choice.message.content)
        self.assertIsNone(choice.message.tool_calls)

    def test_parse_makes_objects_of_arguments(self):
        class Clock(pydantic.BaseModel):
            utc: bool

        answer = self.client.chat.completions.parse(
            model="bytes",
            messages=MESSAGES,
            tools=[openai.pydantic_function_tool(Clock, name="clock")],
            tool_choice="required",
            parallel_tool_calls=False,
            max_tokens=150,
        )
        call = answer.choices[0].message.tool_calls[0]
        self.assertIsInstance(call.function.parsed_arguments, Clock)

    def test_the_package_puts_streams_together(self):
        with self.client.chat.completions.stream(
            model="bytes",
            messages=MESSAGES,
            tools=[WEATHER],
            tool_choice="required",
            parallel_tool_calls=False,
            max_tokens=150,
        ) as stream:
            kinds = {event.type for event in stream}
            self.assertIn("tool_calls.function.arguments.done", kinds)
            message = stream.get_final_completion().choices[0].message
        self.check_call(message.tool_calls[0])

    def test_calls_and_results_are_part_of_the_next_prompt(self):
        call = (
            self.chat(tools=[CLOCK], tool_choice="required", parallel_tool_calls=False)
            .choices[0]
            .message
        )
        messages = [
            *MESSAGES,
            call.model_dump(exclude_none=True),
            {"role": "tool", "tool_call_id": call.tool_calls[0].id, "content": "noon"},
        ]
        for name, template in FORMATS.items():
            answer = self.chat(template, messages=messages, tools=[CLOCK], max_tokens=1)
            with_call = answer.usage.prompt_tokens
            less = self.chat(template, messages=MESSAGES, tools=[CLOCK], max_tokens=1)
            self.assertGreater(with_call, less.usage.prompt_tokens + 40, name)

    def test_async_calls_beside_each_other(self):
        async def together():
            client = openai.AsyncOpenAI(base_url=self.url, api_key="none", max_retries=0)
            calls = [
                client.chat.completions.create(
                    model="bytes",
                    messages=MESSAGES,
                    tools=[WEATHER, CLOCK],
                    tool_choice="required",
                    parallel_tool_calls=False,
                    max_tokens=150,
                    seed=i,
                )
                for i in range(16)
            ]
            return await asyncio.gather(*calls)

        for answer in asyncio.run(together()):
            self.check_call(answer.choices[0].message.tool_calls[0])

    def test_reasoning_stands_apart(self):
        grammar = 'root ::= "<think>\\n" [a-z]{5} "\\n</think>\\n\\n" "ok" [0-9]'
        options = {"template": THINKS, "extra": {"guided_grammar": grammar}}
        whole = self.chat(**options)
        message = whole.choices[0].message
        self.assertRegex(message.reasoning_content, "^[a-z]{5}$")
        self.assertRegex(message.content, "^ok[0-9]$")
        self.assertGreater(whole.usage.completion_tokens_details.reasoning_tokens, 4)
        deltas = [chunk.choices[0].delta for chunk in self.chat(stream=True, **options)]
        reasoning = "".join(getattr(delta, "reasoning_content", None) or "" for delta in deltas)
        self.assertEqual(message.reasoning_content, reasoning)
        self.assertEqual(message.content, "".join(delta.content or "" for delta in deltas))

    def test_reasoning_that_the_prompt_begins_is_free(self):
        template = THINKS + "<think>\n"
        for extra in ({}, {"guided_choice": ["a", "b"]}):
            choice = self.chat(template, extra=extra, max_tokens=40).choices[0]
            self.assertEqual("length", choice.finish_reason)
            self.assertEqual("", choice.message.content)
            self.assertGreater(len(choice.message.reasoning_content), 10)

    def test_reasoning_stands_apart_beside_tools(self):
        grammar = 'root ::= "<think>" [a-z]{3} "</think>" "rest"'
        choice = self.chat(
            HERMES + "{# </think> #}",
            tools=[CLOCK],
            tool_choice="none",
            extra={"guided_grammar": grammar},
        ).choices[0]
        self.assertRegex(choice.message.reasoning_content, "^[a-z]{3}$")
        self.assertEqual("rest", choice.message.content)

    def test_what_is_wrong_is_told(self):
        unsupported = tool("f", {"x": {"not": {}}})
        for options, part in (
            ({"template": TURNS, "tools": [CLOCK]}, "chat template"),
            ({"tool_choice": "required"}, "tool_choice"),
            ({"tools": [CLOCK], "tool_choice": "some"}, "tool_choice"),
            (
                {
                    "tools": [CLOCK],
                    "tool_choice": {"type": "function", "function": {"name": "other"}},
                },
                "other",
            ),
            ({"tools": [CLOCK, CLOCK]}, "twice"),
            ({"tools": [unsupported], "tool_choice": "required"}, "'not'"),
            ({"tools": [tool("", {})]}, "name"),
            ({"tools": [tool("a b", {})]}, "name"),
            ({"tools": [tool("f", {})] * 200}, "200"),
            ({"tools": [{"type": "retrieval"}]}, "retrieval"),
            ({"tools": [{"type": "function"}]}, "function"),
            ({"tools": ["f"]}, "tools[0]"),
            ({"tools": {}}, "tools"),
            ({"tools": [CLOCK], "extra": {"parallel_tool_calls": 5}}, "parallel_tool_calls"),
            ({"tools": [CLOCK], "extra": {"guided_regex": "a"}}, "together with tools"),
            (
                {"tools": [CLOCK], "tool_choice": "required", "extra": {"guided_regex": "a"}},
                "tool_choice",
            ),
            ({"tools": [CLOCK], "extra": {"functions": [{"name": "f"}]}}, "functions"),
        ):
            with self.subTest(part), self.assertRaises(openai.BadRequestError) as raised:
                self.chat(**options)
            self.assertIn(part, str(raised.exception))


if __name__ == "__main__":
    unittest_xml.main()
