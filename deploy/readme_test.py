#!/usr/bin/python3
"""Does what README.md tells a newcomer to do, line by line as it is written there.

    readme_test.py DEMO_ARGUMENTS...

The lines of the fenced blocks run in a shell, in a folder with the real bazelw. Two things stand in
for what a test cannot do: `bazel` hands out what the test was given instead of building it, and the
daemons take free ports and a cache of their own. Only the test command itself is left out.
"""

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from tests import unittest_xml

RUNFILES = os.getcwd()
DEMO_ARGUMENTS = [os.path.abspath(path) for path in sys.argv[1:]]
STAMPMILL = os.path.abspath("server/stampmill")
LANGUAGE_MODEL = "tests/language/byte_model.gguf"
TEST_COMMAND = "./bazelw test //..."
PORTS = {"http": 8000, "grpc": 8001, "metrics": 8002}

# `build` puts a program where bazel would, `run` starts it with the arguments that it has in BUILD.
BAZEL = """#!/bin/bash
set -euo pipefail
program=${{2#//}} program=${{program/://}} folder=${{program%/*}}
[ -x {runfiles}/"$program" ] || {{ echo "bazel: the test has no $2" >&2; exit 1; }}
case $1 in
  build) mkdir -p bazel-bin; ln -sfn {runfiles}/"$folder" "bazel-bin/$folder" ;;
  run) shift 2; cd {runfiles}; exec "./$program" {demo_arguments} "$@" ;;
  *) echo "bazel: the test knows no $1" >&2; exit 1 ;;
esac
echo "bazel-bin/$program"
"""


def readme():
    with open("README.md", encoding="utf-8") as file:
        return file.read()


def commands_of(text):
    """The lines of the fenced blocks, without comments; continued ones are one."""
    text = re.sub(r"\\\n\s*", "", text)
    blocks = re.findall(r"^```\w*\n(.*?)^```", text, re.M | re.S)
    lines = [re.sub(r"\s+#.*", "", line).strip() for block in blocks for line in block.split("\n")]
    return [line for line in lines if line]


class Newcomer:
    """A folder like a fresh clone, and what was started in it; a context manager."""

    def __init__(self):
        self.folder = tempfile.mkdtemp(prefix="clone_", dir=os.environ.get("TEST_TMPDIR"))
        self.running = []
        self.ports = {}
        self.environment = dict(os.environ, PATH=self.path("bin") + ":" + os.environ["PATH"])
        shutil.copy("bazelw", self.folder)
        # What bazelw would install is there already.
        self.write("deploy/debian-packages.txt", "bash\n")
        self.write("deploy/python/made.lock", "")
        self.write(".venv/made/made-from.lock", "")
        arguments = " ".join(map(shlex.quote, DEMO_ARGUMENTS))
        bazel = BAZEL.format(runfiles=shlex.quote(RUNFILES), demo_arguments=arguments)
        os.chmod(self.write("bin/bazel", bazel), 0o755)
        model = next(path for path in DEMO_ARGUMENTS if path.endswith(".onnx"))
        os.symlink(model, self.path("model.onnx"))
        os.symlink(os.path.join(RUNFILES, LANGUAGE_MODEL), self.path("model.gguf"))

    def path(self, name):
        return os.path.join(self.folder, name)

    def write(self, name, text):
        os.makedirs(os.path.dirname(self.path(name)), exist_ok=True)
        with open(self.path(name), "w", encoding="utf-8") as file:
            file.write(text)
        return self.path(name)

    def run(self, line):
        """(exit status, output) of a line that ends by itself."""
        for name, port in PORTS.items():
            line = line.replace("localhost:%d" % port, "127.0.0.1:%d" % self.ports.get(name, port))
        line = re.sub(r"^curl\b", "curl --fail --silent --show-error", line)
        print("$ " + line, flush=True)
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", line],
            cwd=self.folder,
            env=self.environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        print(done.stdout[:200], flush=True)
        return done.returncode, done.stdout

    def start(self, line, flags, is_ready):
        """Starts a line that runs until Ctrl-C; its output once it `is_ready`, a function of it."""
        print("$ " + line, flush=True)
        flags = flags + ["--%s-port=0" % name for name in PORTS]
        flags.append("--cache-dir=" + self.path("cache"))
        with open(self.path("output"), "w", encoding="utf-8") as output:
            process = subprocess.Popen(
                shlex.split(line) + flags,
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self.running.append(process)
        deadline = time.monotonic() + 120
        while True:
            with open(self.path("output"), encoding="utf-8") as output:
                text = output.read()
            if process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError("%s: ended, or is not ready:\n%s" % (line, text))
            if is_ready(text):
                return text
            time.sleep(0.02)

    def start_daemon(self, line):
        port_file = self.path("ports")
        if os.path.exists(port_file):
            os.remove(port_file)

        def is_ready(_):
            if os.path.exists(port_file):
                with open(port_file, encoding="utf-8") as file:
                    ports = json.load(file)
                self.ports = {name: ports[name + "_port"] for name in PORTS}
            url = "http://127.0.0.1:%d/v2/health/ready" % self.ports.get("http", 1)
            return subprocess.run(["curl", "-sf", url], check=False).returncode == 0

        self.start(line, ["--port-file=" + port_file], is_ready)

    def interrupt(self):
        """The exit status of what was started last, after the signal that Ctrl-C sends to all of
        it."""
        process = self.running.pop()
        os.killpg(process.pid, signal.SIGINT)
        return process.wait(timeout=60)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for process in self.running:
            process.kill()
            process.wait()
        shutil.rmtree(self.folder)


class Readme(unittest.TestCase):
    def test_every_line_of_its_blocks_works(self):
        lines = commands_of(readme())
        self.assertIn(TEST_COMMAND, lines)
        lines.remove(TEST_COMMAND)
        self.assertGreater(len(lines), 1)
        with Newcomer() as newcomer:
            for line in lines:
                with self.subTest(line):
                    self.do(newcomer, line)
            self.assertEqual(1, len(newcomer.running), "no line starts the daemon")
            self.assertEqual(0, newcomer.interrupt())

    def do(self, newcomer, line):
        words = shlex.split(line)
        if words[0] == "./bazelw" and words[1] == "run":
            text = newcomer.start(line, [], lambda text: "\nCtrl-C" in text)
            requests = re.findall(r"^  (\S.*)$", text, re.M)
            self.assertGreater(len(requests), 5)
            answers = [self.expect_answer(newcomer, request) for request in requests]
            # One in words, one as the events that they came in.
            self.assertEqual(1, sum("the sky" in answer for answer in answers), answers)
            self.assertEqual(1, sum("data: [DONE]" in answer for answer in answers), answers)
            self.assertEqual(0, newcomer.interrupt())
        elif "serve" in words:
            if newcomer.running:
                self.assertEqual(0, newcomer.interrupt())
            newcomer.start_daemon(line)
        else:
            self.expect_answer(newcomer, line)

    def expect_answer(self, newcomer, line):
        status, output = newcomer.run(line)
        self.assertEqual(0, status, line)
        self.assertTrue(output.strip(), line)
        return output

    def help_of(self, *command):
        return subprocess.check_output([STAMPMILL, *command, "--help"], text=True)

    def test_the_table_has_the_commands_that_there_are(self):
        told = re.findall(r"^\| `(\w+)` \|", readme(), re.M)
        self.assertEqual(sorted(re.findall(r"^  (\w+) ", self.help_of(), re.M)), sorted(told))
        for command in told:
            self.assertNotEqual("", self.help_of(command))

    def test_flags_and_ports_are_those_of_serve(self):
        text, serve = readme(), self.help_of("serve")
        flags = re.findall(r"`(--[\w-]+)(?:=\w+)?`", text)
        self.assertGreater(len(flags), 1)
        for flag in flags:
            self.assertRegex(serve, r"%s\b" % flag)
        said = {"http": "HTTP", "grpc": "gRPC", "metrics": "metrics"}
        for name, port in PORTS.items():
            self.assertRegex(serve, r"--%s-port \S+.*=%d\n" % (name, port))
            self.assertIn("%d (%s)" % (port, said[name]), text)


if __name__ == "__main__":
    unittest_xml.main()
