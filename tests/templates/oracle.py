"""Two renderers of chat templates: Jinja2, set up as Hugging Face does, and Stampmill."""

import datetime
import functools
import json
import subprocess

import jinja2
import jinja2.ext
import jinja2.nodes
import jinja2.sandbox

# A moment for strftime_now: 2024-07-05 16:07:09 UTC.
NOW = 1720195629


class Generation(jinja2.ext.Extension):
    """{% generation %}: a block that marks what the model wrote, and prints it."""

    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        call = self.call_method("_print")
        return jinja2.nodes.CallBlock(call, [], [], body).set_lineno(line)

    def _print(self, caller):
        return caller()


def environment():
    result = jinja2.sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, "jinja2.ext.loopcontrols"]
    )

    def raise_exception(message):
        raise jinja2.exceptions.TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(
            value,
            ensure_ascii=ensure_ascii,
            indent=indent,
            separators=separators,
            sort_keys=sort_keys,
        )

    def strftime_now(form):
        now = datetime.datetime.fromtimestamp(NOW, datetime.timezone.utc)
        return now.replace(tzinfo=None).strftime(form)

    result.filters["tojson"] = tojson
    result.globals["raise_exception"] = raise_exception
    result.globals["strftime_now"] = strftime_now
    return result


ENVIRONMENT = environment()


@functools.lru_cache(maxsize=64)
def compiled(template):
    return ENVIRONMENT.from_string(template)


def expected(template, context):
    """(text, None), or (None, error) with what Jinja2 raised."""
    try:
        # Contexts are JSON, as they reach the server.
        text = compiled(template).render(**json.loads(json.dumps(context)))
        text.encode("utf-8")
        return text, None
    except Exception as error:  # a template can raise what it likes
        return None, "%s: %s" % (type(error).__name__, error)


class Renderer:
    """The program chat_template_tool, one request at a time."""

    def __init__(self, program):
        self.process = subprocess.Popen(
            [program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, encoding="utf-8"
        )

    def render(self, template, context):
        request = {"template": template, "context": context, "now": NOW}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        return answer.get("text"), answer.get("error")

    def close(self):
        self.process.stdin.close()
        self.process.wait()
