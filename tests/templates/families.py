"""Prompt formats and conversations to render with them.

The templates in families/ are in the manner of the documented formats, each written for this test
from what its format looks like; none is a model's own.
"""

import os

FOLDER = os.path.join(os.path.dirname(__file__), "families")


def templates():
    """Name of the format and its template."""
    for name in sorted(os.listdir(FOLDER)):
        with open(os.path.join(FOLDER, name), encoding="utf-8", newline="") as file:
            yield name.removesuffix(".jinja"), file.read()


WEATHER = {
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": 'Weather of a place, "now" or later.',
        "parameters": {
            "type": "object",
            "properties": {
                "city": {"type": "string", "description": "Name, e.g. Zürich "},
                "days": {"type": "integer", "default": 1, "minimum": 0},
                "units": {"type": "string", "enum": ["C", "F"]},
                "tags": {"type": "array", "items": {"type": "string"}, "nullable": True},
                "where": {
                    "type": "object",
                    "properties": {"lat": {"type": "number"}, "lon": {"type": ["number", "null"]}},
                    "required": ["lat"],
                },
                "extra": {"oneOf": [{"type": "string"}, {"type": "boolean"}]},
            },
            "required": ["city"],
        },
        "return": {"type": "object", "additionalProperties": {"type": "number"}},
    },
}

NOTHING = {
    "type": "function",
    "function": {
        "name": "nothing",
        "description": "Does 没有.",
        "parameters": {"type": "object", "properties": {}},
    },
}

SYSTEM = {"role": "system", "content": " You are kind.\n/no_think "}
USER = {"role": "user", "content": "  What is the weather in Zürich? 🌤 "}
ANSWER = {"role": "assistant", "content": "<think>\nLet me see.\n</think>\n\nIt is sunny."}
THANKS = {"role": "user", "content": 'Thanks & <goodbye> "you"\'re'}
PARTS = {
    "role": "user",
    "content": [
        {"type": "text", "text": " Look: "},
        {"type": "image", "image": "data"},
        {"type": "text", "text": "what is it?"},
    ],
}


def call(arguments, identifier="abc123def"):
    return {
        "id": identifier,
        "type": "function",
        "function": {"name": "get_weather", "arguments": arguments},
    }


CALL = {
    "role": "assistant",
    "content": None,
    "tool_calls": [call({"city": "Zürich", "days": 2, "where": {"lat": 47.4, "lon": None}})],
}
CALLS = {
    "role": "assistant",
    "content": "I will look.",
    "tool_calls": [call({"city": "Bern"}), call('{"city": "Basel"}', "123456789")],
}
RESULT = {
    "role": "tool",
    "tool_call_id": "abc123def",
    "name": "get_weather",
    "content": '{"C": 21.5}',
}
DICT_RESULT = {
    "role": "tool",
    "tool_call_id": "abc123def",
    "content": {"content": 21.5, "ok": True},
}

CONVERSATIONS = [
    [],
    [USER],
    [SYSTEM],
    [SYSTEM, USER],
    [USER, ANSWER, THANKS],
    [SYSTEM, USER, ANSWER, THANKS, ANSWER],
    [USER, USER],
    [ANSWER],
    [PARTS],
    [SYSTEM, PARTS, ANSWER, THANKS],
    [USER, CALL, RESULT],
    [SYSTEM, USER, CALL, RESULT, ANSWER, THANKS],
    [USER, CALLS, RESULT, RESULT, ANSWER],
    [USER, CALLS, RESULT, DICT_RESULT],
    [USER, CALL, RESULT, CALL, RESULT, ANSWER, THANKS, CALL, RESULT],
    [USER, dict(ANSWER, reasoning_content="I think.", content="So."), THANKS],
    [{"role": "wizard", "content": "Abracadabra"}],
    [{"role": "user"}],
    [{"role": "user", "content": None}],
    [{"content": "no role"}],
]

EXTRAS = [
    {},
    {"add_generation_prompt": True},
    {"add_generation_prompt": True, "tools": [WEATHER, NOTHING]},
    {"tools": [WEATHER], "enable_thinking": False, "add_generation_prompt": True},
    {"tools": [], "enable_thinking": True},
    {"tools": None, "documents": [{"title": "T", "text": "Body"}, {"title": "U", "text": "ü"}]},
    {
        "tools": [WEATHER],
        "tools_in_user_message": False,
        "documents": [{"text": "x"}],
        "controls": {"citations": True, "length": "short"},
        "reasoning_effort": "high",
        "thinking": True,
    },
]


def contexts():
    for messages in CONVERSATIONS:
        for extra in EXTRAS:
            yield dict(extra, messages=messages, bos_token="<s>", eos_token="</s>")
