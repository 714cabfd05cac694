"""The repository's rules about itself, as functions from sources to problems.

Each check takes a list of Source and returns messages `path:line: what`. tidy_test.py applies all
of them to the working tree, and each to a small example that breaks it.
"""

import ast
import dataclasses
import functools
import os
import re

COLUMNS = 100
FUNCTION_LINES = 70
FILE_LINES = 800

# The layers. A file belongs to the longest prefix that matches; it may include what its entry names
# (a folder, or one header) besides its own folder.
LAYERS = {
    "base/": [],
    "devices/": ["base/"],
    "graph/": ["base/"],
    "text/": ["base/"],
    "kernels/": ["base/", "graph/"],
    "compiler/": [
        "base/",
        "graph/",
        "kernels/",
        "devices/target.h",
        "devices/artifact.h",
        "devices/host.h",  # how many threads and how much memory a process may use
    ],
    "proto/": ["base/"],
    "runtime/": ["base/", "graph/", "text/", "kernels/", "devices/", "compiler/", "proto/"],
    "server/": ["base/", "graph/", "text/", "runtime/", "proto/"],
}
# Folders of one device each: they see the seam in devices/ and never each other.
BACKENDS = ["devices/cpu/", "devices/gpu/", "devices/npu/"]

# Outside headers that only some folders may include.
CONFINED = {
    "llvm/": ["compiler/llvm/", "compiler/worker/"],
    "llvm-c/": ["compiler/llvm/", "compiler/worker/"],
    "lld/": ["compiler/llvm/", "compiler/worker/"],
    "grpc/": ["server/"],
    "grpcpp/": ["server/"],
    "boost/beast": ["server/"],
    "boost/asio": ["server/"],
    "prometheus/": ["server/"],
}

BASE_FILES = ["bytes", "check", "clock", "file", "hash", "log", "status_macros", "waker"]

BANNED_NAME_WORDS = {"manager", "helper", "helpers", "util", "utils", "common", "base", "impl"}
ALLOWED_NAMES = {"DeviceManager", "device_manager"}

# Spelled so that this file does not contain them.
BANNED_TEXT = ["TO" + "DO", "FIX" + "ME", "/wo" + "rk/", "../sha" + "red"]

CPP = (".cc", ".h", ".c")


@dataclasses.dataclass(frozen=True)
class Source:
    """One text file of the repository; `path` is relative to its root."""

    path: str
    text: str

    @functools.cached_property
    def lines(self):
        return self.text.split("\n")

    @property
    def name(self):
        return os.path.basename(self.path)

    def is_cpp(self):
        return self.path.endswith(CPP)

    def is_code(self):
        """Written by hand, in a language with lines that are meant to be read."""
        return (
            self.is_cpp()
            or self.path.endswith((".py", ".sh", ".bzl", ".proto", ".BUILD"))
            or self.name in ("BUILD", "WORKSPACE", "bazelw", ".bazelrc", "run")
        )


def includes(source):
    """(line number, path) of every #include, quoted or in angle brackets."""
    for number, line in enumerate(source.lines, 1):
        match = re.match(r'\s*#\s*include\s*[<"]([^>"]+)[>"]', line)
        if match:
            yield number, match.group(1)


def _layer(path):
    found = [prefix for prefix in LAYERS if path.startswith(prefix)]
    return max(found, key=len) if found else None


def _backend(path):
    return next((prefix for prefix in BACKENDS if path.startswith(prefix)), None)


def check_layers(sources):
    problems = []
    for source in sources:
        layer = _layer(source.path)
        if not source.is_cpp() or layer is None:
            continue
        allowed = [layer] + LAYERS[layer]
        for number, path in includes(source):
            if _layer(path) is None:
                continue
            if not any(path.startswith(entry) for entry in allowed):
                # An instruction set lives with its device; its compiler encodes with it.
                isa = re.fullmatch(r"devices/(\w+)/isa\.h", path)
                if not (isa and source.path.startswith("compiler/%s/" % isa.group(1))):
                    problems.append(
                        "%s:%d: %s may not include %s" % (source.path, number, layer, path)
                    )
            mine, other = _backend(source.path), _backend(path)
            if mine and other and mine != other:
                problems.append(
                    "%s:%d: a device may not include another's %s" % (source.path, number, path)
                )
    return problems


def check_confined_headers(sources):
    problems = []
    for source in sources:
        # third_party and tests stand outside the layers.
        if not source.is_cpp() or _layer(source.path) is None:
            continue
        for number, path in includes(source):
            for prefix, folders in CONFINED.items():
                if path.startswith(prefix) and not source.path.startswith(tuple(folders)):
                    problems.append(
                        "%s:%d: only %s may include %s"
                        % (source.path, number, " and ".join(folders), path)
                    )
    return problems


def check_base_is_closed(sources):
    ends = (".h", ".cc", "_test.cc", "_bench.cc", "_fuzz.cc")
    allowed = {"base/BUILD"} | {"base/" + stem + end for stem in BASE_FILES for end in ends}
    return [
        "%s: base/ is a closed list; a helper lives with its only user" % source.path
        for source in sources
        if source.path.startswith("base/")
        and source.path not in allowed
        and not source.path.startswith("base/testdata/")
    ]


def check_columns(sources):
    return [
        "%s:%d: %d columns, limit %d" % (source.path, number, len(line), COLUMNS)
        for source in sources
        if source.is_code()
        for number, line in enumerate(source.lines, 1)
        if len(line) > COLUMNS and "http" not in line
    ]


def check_white_space(sources):
    problems = []
    for source in sources:
        if not source.is_code() and not source.path.endswith(".md"):
            continue
        for number, line in enumerate(source.lines, 1):
            if line != line.rstrip() or ("\t" in line and source.is_code()):
                problems.append("%s:%d: tab or space at the end" % (source.path, number))
        if source.text and not source.text.endswith("\n"):
            problems.append("%s: no newline at the end" % source.path)
    return problems


def _words(name):
    return {word.lower() for word in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z0-9]+", name)}


def check_names(sources):
    """No type and no file is called by a word that says nothing."""
    problems = []
    for source in sources:
        if not source.is_code() or source.path.endswith(".proto"):
            continue
        stem = source.name.split(".")[0]
        if _words(stem) & BANNED_NAME_WORDS and stem not in ALLOWED_NAMES:
            problems.append("%s: file name says nothing" % source.path)
        if not source.is_cpp() and not source.path.endswith(".py"):
            continue
        for number, line in enumerate(source.lines, 1):
            match = re.match(r"\s*(?:enum\s+)?(?:class|struct|union|concept|using)\s+(\w+)", line)
            if match and _words(match.group(1)) & BANNED_NAME_WORDS:
                if match.group(1) not in ALLOWED_NAMES:
                    problems.append(
                        "%s:%d: type name %s says nothing" % (source.path, number, match.group(1))
                    )
    return problems


def check_type_names(sources):
    """One namespace, so one type of a name: two would share their inline functions, unseen."""
    problems, seen = [], {}
    for source in sources:
        if not source.path.endswith(".h") or _layer(source.path) is None:
            continue
        for number, line in enumerate(source.lines, 1):
            found = re.match(r"(?:struct|class|enum class) (?:\[\[.*?\]\] )?(\w+)(?!\w*::)", line)
            if not found or line.rstrip().endswith(";"):
                continue
            first = seen.setdefault(found.group(1), source.path)
            if first != source.path:
                problems.append(
                    "%s:%d: %s is a type of %s too" % (source.path, number, found.group(1), first)
                )
    return problems


def check_text(sources):
    """No notes to oneself, no paths of one machine, no references to pages that are not here."""
    banned = re.compile("|".join(map(re.escape, BANNED_TEXT)) + r"|\b[Dd]ecisions? \d+")
    return [
        "%s:%d: contains %s" % (source.path, number, match.group())
        for source in sources
        for number, line in enumerate(source.lines, 1)
        for match in banned.finditer(line)
    ]


def check_headers(sources):
    """A header says first what it is, is read once, and passes absl::string_view."""
    problems = []
    for source in sources:
        if not source.path.endswith(".h") or _layer(source.path) is None:
            continue
        if not source.text.startswith("//"):
            problems.append("%s: does not begin by saying what it is" % source.path)
        if "\n#pragma once\n" not in source.text:
            problems.append("%s: has no #pragma once" % source.path)
        for number, line in enumerate(source.lines, 1):
            if "std::string_view" in line.split("//")[0]:
                problems.append("%s:%d: interfaces take absl::string_view" % (source.path, number))
    return problems


_NOT_A_FUNCTION = re.compile(
    r"(namespace|class|struct|union|enum|extern|if|else|for|while|do|switch|case|default|try|catch|"
    r"return|using|typedef|#|//|\}|\{|\[)"
)
_FUNCTION = re.compile(r"([~\w:]+|operator\S+)\s*\(.*\)[^()=]*(:.*)?\{$|^\w+::\w+.*\{$")


def _cpp_functions(source):
    """(name, first line number, number of lines) of functions laid out by clang-format."""
    lines = source.lines
    for index, line in enumerate(lines):
        if not line.endswith("{"):
            continue
        first = index
        while first > 0 and lines[first - 1].strip() and not re.search(
            r"([;{}]|(public|private|protected):|>)$|^\s*(//|#)", lines[first - 1]
        ):
            first -= 1
        statement = " ".join(part.strip() for part in lines[first : index + 1])
        if _NOT_A_FUNCTION.match(statement) or not _FUNCTION.search(statement):
            continue
        if re.search(r"\[[^\]]*\]\s*(\(|\{)|=\s*\{$", statement):
            continue  # A lambda, or data.
        indent = re.match(r" *", lines[first]).group()
        end = next(
            (
                later
                for later in range(index + 1, len(lines))
                if lines[later].startswith(indent + "}")
            ),
            index,
        )
        called = re.search(r"([~\w:]+|operator\S+)\s*\(", statement)
        name = called.group(1) if called else "?"
        if name.startswith("TEST"):
            arguments = re.search(r"\((\w+),\s*(\w+)", statement)
            name = ".".join(arguments.groups()) if arguments else name
        yield name, first + 1, end - first + 1


def _python_functions(source):
    for node in ast.walk(ast.parse(source.text)):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            yield node.name, node.lineno, node.end_lineno - node.lineno + 1


def long_pieces(sources):
    """`path name` -> (line, lines) of functions and files over the limits."""
    found = {}
    for source in sources:
        if source.is_cpp():
            functions = _cpp_functions(source)
        elif source.path.endswith(".py"):
            functions = _python_functions(source)
        else:
            continue
        for name, line, count in functions:
            key = "%s %s" % (source.path, name)
            if count > max(FUNCTION_LINES, found.get(key, (0, 0))[1]):
                found[key] = (line, count)
        if len(source.lines) - 1 > FILE_LINES:
            found["%s (file)" % source.path] = (1, len(source.lines) - 1)
    return found


def check_lengths(sources, ratchet):
    """Long functions and files are those of the ratchet, and those do not grow.

    `ratchet` has lines `path name lines`; comments begin with #.
    """
    allowed = {}
    for line in ratchet.split("\n"):
        if line.strip() and not line.startswith("#"):
            key, _, count = line.rpartition(" ")
            allowed[key] = int(count)
    problems = []
    found = long_pieces(sources)
    for key, (line, count) in sorted(found.items()):
        if count > allowed.get(key, 0):
            path, _, name = key.partition(" ")
            limit = allowed.get(key, FILE_LINES if name == "(file)" else FUNCTION_LINES)
            problems.append("%s:%d: %s has %d lines, limit %d" % (path, line, name, count, limit))
    for key in sorted(set(allowed) - set(found)):
        problems.append("long_pieces.txt: %s is short now or gone; remove the line" % key)
    return problems


def check_documents(sources):
    """Every top-level folder has its place in ARCHITECTURE.md; documents stay readable."""
    by_path = {source.path: source for source in sources}
    problems = []
    for path, limit in (("ARCHITECTURE.md", 300), ("README.md", 120)):
        if path not in by_path:
            problems.append("%s: missing" % path)
        elif len(by_path[path].lines) - 1 > limit:
            problems.append("%s: %d lines, limit %d" % (path, len(by_path[path].lines) - 1, limit))
    text = by_path["ARCHITECTURE.md"].text if "ARCHITECTURE.md" in by_path else ""
    folders = {source.path.split("/")[0] for source in sources if "/" in source.path}
    for folder in sorted(folders):
        if not folder.startswith(".") and "`%s/`" % folder not in text:
            problems.append("ARCHITECTURE.md: does not name `%s/`" % folder)
    return problems


def check_labels(sources):
    """Targets that documents name are in BUILD files."""
    builds = {
        os.path.dirname(source.path): source.text for source in sources if source.name == "BUILD"
    }
    problems = []
    for source in sources:
        if not source.path.endswith(".md"):
            continue
        for number, line in enumerate(source.lines, 1):
            for package, name in re.findall(r"(?<![\w:/.])//([\w/]*):([\w*]+)", line):
                # Those of sanitized_twins and fuzz_test have the name of what they are made from.
                stem = re.sub(r"_(asan|tsan|libfuzzer)$", "", name).replace("*", r"[\w%]+")
                if not re.search('"%s"' % stem, builds.get(package, "")):
                    problems.append(
                        "%s:%d: there is no //%s:%s" % (source.path, number, package, name)
                    )
    return problems


def check_sanitized_suite(sources):
    """Every package with sanitized twins is in //tests:sanitized."""
    suite = next((source.text for source in sources if source.path == "tests/BUILD"), "")
    return [
        'tests/BUILD: //tests:sanitized lacks "//%s:sanitized"' % os.path.dirname(source.path)
        for source in sources
        if source.name == "BUILD"
        and re.search(r"^sanitized_twins\(", source.text, re.M)
        and '"//%s:sanitized"' % os.path.dirname(source.path) not in suite
    ]


def read_sources(root):
    """All text files below `root` but for what is built, installed or test data."""
    skipped = {".git", ".venv", ".cache", "__pycache__", "testdata", "node_modules"}
    sources = []
    for folder, folders, files in os.walk(root):
        folders[:] = [
            name
            for name in folders
            if name not in skipped and not (folder == root and name.startswith("bazel-"))
        ]
        for name in files:
            path = os.path.join(folder, name)
            if name in skipped or os.path.islink(path):  # .git is a file in a git worktree.
                continue
            try:
                with open(path, encoding="utf-8", newline="") as file:
                    sources.append(Source(os.path.relpath(path, root), file.read()))
            except UnicodeDecodeError:
                continue
    return sorted(sources, key=lambda source: source.path)
