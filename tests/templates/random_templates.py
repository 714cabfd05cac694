"""Random templates from a seed: statements, and expressions over the variables of CONTEXT.

Half of what is drawn has the right types, so that it renders; the rest fails somewhere, and must
fail in both renderers.
"""

import random

NAMES = [
    "name",
    "empty",
    "none_value",
    "yes",
    "no",
    "n",
    "f",
    "words",
    "numbers",
    "mixed",
    "pairs",
    "nested",
    "users",
    "unicode",
    "space",
    "quotes",
    "html",
    "messages",
    "missing",
]
STRINGS = [
    "''",
    "'a'",
    "'Hello World'",
    "'a,b,,c'",
    "' x '",
    "'é日🎉'",
    '"it\'s"',
    "'12'",
    "'1.5'",
    "'<&>'",
]
LISTS = [
    "words",
    "numbers",
    "mixed",
    "[1, 2, 3]",
    "['b', 'a', 'C']",
    "[]",
    "pairs",
    "range(5)",
    "(1, 'x')",
    "users",
]
DICTS = ["nested", "{'a': 1, 'b': 'x'}", "{}", "users[0]", "messages[1]", "{1: 2, 'z': none}"]
NUMBERS = ["0", "1", "-1", "2", "3", "7", "10", "n", "f", "2.5", "-0.5", "1e3", "true", "100"]
BINARY = [
    "+",
    "-",
    "*",
    "/",
    "//",
    "%",
    "~",
    "==",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    "in",
    "not in",
    "and",
    "or",
]


class Generator:
    def __init__(self, seed):
        self.random = random.Random(seed)

    def pick(self, *choices):
        choice = self.random.choice(choices)
        return choice() if callable(choice) else choice

    def expression(self, depth):
        if depth <= 0:
            return self.pick(
                lambda: self.random.choice(NAMES),
                lambda: self.random.choice(STRINGS),
                lambda: self.random.choice(NUMBERS),
                lambda: self.random.choice(LISTS),
                lambda: self.random.choice(DICTS),
                "none",
                "true",
                "false",
            )
        return self.pick(
            lambda: self.text(depth),
            lambda: self.text(depth),
            lambda: self.number(depth),
            lambda: self.sequence(depth),
            lambda: self.mapping(depth),
            lambda: self.condition(depth),
            lambda: self.anything(depth),
        )

    def anything(self, depth):
        a, b = (lambda: self.expression(depth - 1)), (lambda: self.expression(depth - 2))
        return self.pick(
            lambda: "(%s %s %s)" % (a(), self.random.choice(BINARY), b()),
            lambda: "%s %s %s" % (a(), self.random.choice(BINARY), b()),
            lambda: "(%s if %s else %s)" % (a(), b(), b()),
            lambda: "(%s if %s)" % (a(), b()),
            lambda: "%s[%s]" % (self.operand(depth), b()),
            lambda: "%s.%s"
            % (self.operand(depth), self.pick("a", "name", "role", "items", "x", "upper")),
            lambda: "%s | %s" % (a(), self.any_filter(depth)),
            lambda: "(%s is %s)" % (a(), self.any_test(depth)),
            lambda: "%s%s" % (self.pick("-", "not ", "+"), a()),
            lambda: "[%s, %s]" % (a(), b()),
            lambda: "(%s, %s)" % (a(), b()),
            lambda: "{'k': %s, %s: 1}" % (a(), self.text(depth - 2)),
            lambda: "%s | default(%s)" % (a(), b()),
        )

    def operand(self, depth):
        return "(%s)" % self.expression(depth - 1)

    def text(self, depth):
        if depth <= 0:
            return self.pick(
                lambda: self.random.choice(STRINGS), "name", "unicode", "space", "quotes"
            )
        s, n = (lambda: self.text(depth - 1)), (lambda: self.number(depth - 2))
        # Of constants that are no integers Jinja2 takes slices as undefined when it compiles, while
        # of variables they are errors.
        i = lambda: self.random.choice(["0", "1", "-1", "2", "-3", "7", "true", "99", "(n | int)"])
        return self.pick(
            lambda: "(%s + %s)" % (s(), s()),
            lambda: "(%s ~ %s)" % (s(), self.expression(depth - 1)),
            lambda: "(%s)[%s:%s]" % (s(), self.pick("", i), self.pick("", i)),
            lambda: "(%s)[%s:%s:%s]"
            % (s(), self.pick("", i), self.pick("", i), self.pick("2", "-1", "-2")),
            lambda: "(%s)[%s]" % (s(), n()),
            lambda: "(%s).%s()"
            % (
                s(),
                self.pick(
                    "upper",
                    "lower",
                    "title",
                    "capitalize",
                    "swapcase",
                    "strip",
                    "lstrip",
                    "rstrip",
                    "casefold",
                ),
            ),
            lambda: "(%s).%s(%s)"
            % (s(), self.pick("strip", "lstrip", "rstrip", "removeprefix", "removesuffix"), s()),
            lambda: "(%s).replace(%s, %s)" % (s(), s(), s()),
            lambda: "(%s).%s(%s)"
            % (s(), self.pick("center", "ljust", "rjust", "zfill"), self.pick("5", "12", "20")),
            lambda: "(%s) | %s"
            % (
                s(),
                self.pick(
                    "upper",
                    "lower",
                    "title",
                    "capitalize",
                    "trim",
                    "e",
                    "reverse",
                    "string",
                    "indent",
                    "urlencode",
                    "center(15)",
                    "truncate(8)",
                    "truncate(8, true, '…', 1)",
                    "replace('a', 'b')",
                    "forceescape",
                ),
            ),
            lambda: "(%s) | join(%s)" % (self.sequence(depth - 1), s()),
            lambda: "(%s) | tojson" % self.expression(depth - 1),
            lambda: "(%s) | tojson(indent=%s)" % (self.expression(depth - 1), self.pick("1", "4")),
            lambda: "(%s) | string" % self.expression(depth - 1),
            lambda: "(%s) * %s" % (s(), self.pick("2", "0", "3")),
            lambda: "'%%s|%%5s|%%-4s' %% (%s, %s, %s)" % (s(), n(), self.expression(depth - 2)),
            lambda: "'%%d %%.2f %%05d %%x' %% (%s, %s, %s, %s)"
            % (n(), n(), n(), self.pick("255", "n")),
            lambda: "'{} {a}'.format(%s, a=%s)" % (s(), n()),
            lambda: "(%s if %s else %s)" % (s(), self.condition(depth - 1), s()),
        )

    def number(self, depth):
        if depth <= 0:
            return self.random.choice(NUMBERS)
        n = lambda: self.number(depth - 1)
        return self.pick(
            lambda: "(%s %s %s)" % (n(), self.pick("+", "-", "*", "/", "//", "%"), n()),
            lambda: "%s %s %s" % (n(), self.pick("+", "-", "*", "/", "//", "%"), n()),
            lambda: "(%s) ** %s" % (self.pick("2", "f", "n", "-1"), self.pick("0", "2", "3", "-1")),
            lambda: "(-%s)" % n(),
            lambda: "(%s) | abs" % n(),
            lambda: "(%s) | round" % n(),
            lambda: "(%s) | round(%s, '%s')"
            % (n(), self.pick("0", "1", "2", "-1"), self.pick("common", "ceil", "floor")),
            lambda: "(%s) | %s"
            % (self.expression(depth - 1), self.pick("int", "float", "int(5)", "float(1.5)")),
            lambda: "(%s) | length" % self.sequence(depth - 1),
            lambda: "(%s) | length" % self.text(depth - 1),
            lambda: "(%s) | wordcount" % self.text(depth - 1),
            lambda: "(%s).%s(%s)"
            % (self.text(depth - 1), self.pick("find", "rfind", "count"), self.text(depth - 1)),
            lambda: "(%s) | %s"
            % (
                self.pick("numbers", "[1.5, 2, true]", "range(4)"),
                self.pick("sum", "max", "min", "first", "last"),
            ),
            lambda: "(%s).count(%s)"
            % (self.pick("[1, 1.0, 'a']", "(1, 2)"), self.expression(depth - 1)),
        )

    def sequence(self, depth):
        if depth <= 0:
            return self.random.choice(LISTS)
        s = lambda: self.sequence(depth - 1)
        return self.pick(
            lambda: "[%s, %s]" % (self.expression(depth - 1), self.expression(depth - 1)),
            lambda: "(%s)[%s:%s]" % (s(), self.pick("", "1", "-2"), self.pick("", "3", "-1")),
            lambda: "(%s)[::%s]" % (s(), self.pick("2", "-1")),
            lambda: "(%s) + (%s)" % (s(), s()),
            lambda: "(%s) | list" % self.expression(depth - 1),
            lambda: "(%s) | %s | list"
            % (
                s(),
                self.pick(
                    "reverse",
                    "unique",
                    "map('string')",
                    "map('upper')",
                    "map('length')",
                    "select",
                    "reject",
                    "select('string')",
                    "reject('none')",
                    "select('number')",
                    "batch(2)",
                    "slice(2)",
                    "batch(2, 0)",
                    "map(attribute='name')",
                    "map(attribute='name', default='?')",
                    "selectattr('name')",
                    "rejectattr('admin')",
                    "selectattr('age', 'gt', 26)",
                ),
            ),
            lambda: "(%s) | sort" % s(),
            lambda: "(%s) | map('string') | sort(%s)"
            % (s(), self.pick("", "true", "case_sensitive=true")),
            lambda: "(%s).%s()"
            % (self.text(depth - 1), self.pick("split", "rsplit", "splitlines")),
            lambda: "(%s).%s(%s%s)"
            % (
                self.text(depth - 1),
                self.pick("split", "rsplit"),
                self.pick("','", "' '", "none", "'l'"),
                self.pick("", ", 1", ", 2"),
            ),
            lambda: "(%s).%s(%s)"
            % (
                self.text(depth - 1),
                self.pick("partition", "rpartition"),
                self.pick("','", "' '", "'l'"),
            ),
            lambda: "(%s) | dictsort" % self.mapping(depth - 1),
            lambda: "(%s).%s() | list"
            % (self.mapping(depth - 1), self.pick("items", "keys", "values")),
            lambda: "(%s) | items | list" % self.mapping(depth - 1),
            lambda: "users | %s"
            % self.pick(
                "groupby('age')",
                "groupby('admin', default=false)",
                "sort(attribute='name')",
                "sort(attribute='age,name', reverse=true)",
            ),
            lambda: "range(%s, %s, %s) | list"
            % (self.pick("0", "5", "-3"), self.pick("4", "0", "n"), self.pick("1", "2", "-1")),
        )

    def mapping(self, depth):
        if depth <= 0:
            return self.random.choice(DICTS)
        return self.pick(
            lambda: self.random.choice(DICTS),
            lambda: "{'a': %s, 'b': %s}" % (self.expression(depth - 1), self.expression(depth - 1)),
            lambda: "{%s: %s}" % (self.text(depth - 1), self.expression(depth - 1)),
            lambda: "dict(%s, x=%s)" % (self.mapping(depth - 1), self.expression(depth - 1)),
        )

    def condition(self, depth):
        if depth <= 0:
            return self.pick("true", "false", "yes", "no", "missing", "n > 3")
        e = lambda: self.expression(depth - 1)
        return self.pick(
            lambda: "(%s is %s)" % (e(), self.any_test(depth)),
            lambda: "(%s %s %s)" % (e(), self.pick("==", "!="), e()),
            lambda: "(%s %s %s)"
            % (self.number(depth - 1), self.pick("<", "<=", ">", ">="), self.number(depth - 1)),
            lambda: "(%s < %s < %s)"
            % (self.number(depth - 1), self.number(depth - 1), self.number(depth - 1)),
            lambda: "(%s in %s)" % (e(), self.sequence(depth - 1)),
            lambda: "(%s in %s)" % (self.text(depth - 1), self.text(depth - 1)),
            lambda: "(%s not in %s)" % (self.text(depth - 1), self.mapping(depth - 1)),
            lambda: "(not %s)" % e(),
            lambda: "(%s %s %s)"
            % (self.condition(depth - 1), self.pick("and", "or"), self.condition(depth - 1)),
            lambda: "(%s).%s(%s)"
            % (self.text(depth - 1), self.pick("startswith", "endswith"), self.text(depth - 1)),
            lambda: "(%s).%s()"
            % (
                self.text(depth - 1),
                self.pick(
                    "isalpha",
                    "isdigit",
                    "isalnum",
                    "isspace",
                    "islower",
                    "isupper",
                    "isascii",
                    "isnumeric",
                    "isdecimal",
                    "isprintable",
                ),
            ),
        )

    def any_test(self, depth):
        return self.pick(
            "defined",
            "undefined",
            "none",
            "string",
            "number",
            "mapping",
            "sequence",
            "iterable",
            "boolean",
            "integer",
            "float",
            "true",
            "false",
            "not none",
            "not string",
            "callable",
            "odd",
            "even",
            "divisibleby 2",
            "lower",
            "upper",
            lambda: "%s(%s)"
            % (
                self.pick("eq", "ne", "lt", "gt", "le", "ge", "in", "equalto"),
                self.expression(depth - 2),
            ),
        )

    def any_filter(self, depth):
        return self.pick(
            "abs",
            "capitalize",
            "count",
            "dictsort",
            "e",
            "first",
            "float",
            "int",
            "items",
            "join",
            "last",
            "length",
            "list",
            "lower",
            "max",
            "min",
            "reverse",
            "round",
            "safe",
            "sort",
            "string",
            "sum",
            "title",
            "tojson",
            "trim",
            "truncate",
            "unique",
            "upper",
            "urlencode",
            "wordcount",
            "indent",
            "center",
            "map('upper')",
            "select",
            "batch(2)",
            "groupby('a')",
            lambda: "replace(%s, 'x')" % self.text(depth - 2),
            lambda: "join(%s)" % self.expression(depth - 2),
            lambda: "default(%s, true)" % self.expression(depth - 2),
        )

    def space(self):
        return self.pick("", "", " ", "\n", "  \n  ", "x", "\n\t")

    def tag(self, text):
        return "{%%%s %s %s%%}" % (self.pick("", "", "-", "+"), text, self.pick("", "", "-"))

    def printed(self, depth):
        return "{{%s %s %s}}" % (self.pick("", "-"), self.expression(depth), self.pick("", "-"))

    def block(self, depth, in_loop=False):
        parts = [self.space()]
        for _ in range(self.random.randint(1, 3)):
            parts.append(self.statement(depth, in_loop))
            parts.append(self.space())
        return "".join(parts)

    def statement(self, depth, in_loop):
        if depth <= 0:
            return self.printed(1)
        choices = self.flow_statements(depth, in_loop) + self.scope_statements(depth, in_loop)
        if in_loop:
            choices += self.loop_statements()
        return self.random.choice(choices)()

    def flow_statements(self, depth, in_loop):
        t, body = self.tag, (lambda: self.block(depth - 1, in_loop))
        loop_body = lambda: self.block(depth - 1, True)
        return [
            lambda: self.printed(2),
            lambda: t("if " + self.condition(2)) + body() + t("endif"),
            lambda: t("if " + self.condition(1))
            + body()
            + t("elif " + self.condition(1))
            + body()
            + t("else")
            + body()
            + t("endif"),
            lambda: t("for x in " + self.sequence(1)) + loop_body() + "{{ x }}" + t("endfor"),
            lambda: t(
                "for x in %s if %s"
                % (self.sequence(1), self.pick("x", "x is string", "x != 1", "loop is defined"))
            )
            + loop_body()
            + t("else")
            + body()
            + t("endfor"),
            lambda: t(
                "for k, v in %s%s"
                % (self.mapping(1), self.pick(".items()", " | items", " | dictsort"))
            )
            + "{{ k }}={{ v }}"
            + loop_body()
            + t("endfor"),
        ]

    def scope_statements(self, depth, in_loop):
        t, body = self.tag, (lambda: self.block(depth - 1, in_loop))
        loop_body = lambda: self.block(depth - 1, True)
        return [
            lambda: t("set x = " + self.expression(2)) + "{{ x }}",
            lambda: t("set n = " + self.number(1)),
            lambda: t("set x") + body() + t("endset") + "[{{ x }}]",
            lambda: t("set ns = namespace(a=%s)" % self.expression(1))
            + t("for x in " + self.sequence(0))
            + t("set ns.a = " + self.pick("x", "ns.a ~ x", "loop.index"))
            + loop_body()
            + t("endfor")
            + "{{ ns.a }}",
            lambda: t("with x = %s, n = %s" % (self.expression(1), self.number(1)))
            + body()
            + t("endwith"),
            lambda: t("filter " + self.pick("upper", "trim", "title | replace('A', 'o')"))
            + body()
            + t("endfilter"),
            lambda: t("macro m(a, b=%s)" % self.expression(1))
            + "{{ a }}{{ b }}"
            + self.block(depth - 1)
            + t("endmacro")
            + "{{ m(%s) }}{{ m(b=%s, a=2) }}" % (self.expression(1), self.expression(1)),
            lambda: t("macro w(a)")
            + "<{{ caller(a) }}>"
            + t("endmacro")
            + t("call(y) w(%s)" % self.expression(1))
            + "{{ y }}"
            + self.block(depth - 1)
            + t("endcall"),
            lambda: "{# %s #}" % self.space(),
            lambda: t("raw") + "{{ x }}" + self.space() + t("endraw"),
        ]

    def loop_statements(self):
        t = self.tag
        return [
            lambda: "{{ loop.%s }}"
            % self.pick(
                "index",
                "index0",
                "first",
                "last",
                "length",
                "revindex",
                "previtem",
                "nextitem",
                "cycle(1, 'b')",
                "changed(x)",
                "depth",
            ),
            lambda: t("if " + self.condition(1)) + t(self.pick("break", "continue")) + t("endif"),
        ]

    def template(self):
        if self.random.random() < 0.5:
            return "{{ %s }}" % self.expression(self.random.randint(1, 4))
        return self.block(self.random.randint(1, 3))
