"""A cache compiled ahead of time serves elsewhere: from another directory, as another user, by a
program that has no compiler beside it, and it is not written to.

As root the daemon runs as nobody, else as the user of the test.
"""

import json
import os
import pwd
import re
import shutil
import subprocess
import tempfile
import unittest

from tests import unittest_xml
from tests.clients import daemon

CLASS = "x86-64-v3"
INPUT = [[1, -2, 0.5, 100], [0, 3, 7, -8]]


def stampmill(*arguments):
    return subprocess.run(
        [daemon.STAMPMILL, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )


def another_user():
    """Popen's arguments for it; None where this process may not become another."""
    nobody = pwd.getpwnam("nobody")
    with open("/proc/self/uid_map", encoding="ascii") as file:
        ranges = [list(map(int, line.split())) for line in file]
    mapped = any(first <= nobody.pw_uid < first + count for first, _, count in ranges)
    if os.geteuid() != 0 or not mapped:
        return None
    return {"user": nobody.pw_uid, "group": nobody.pw_gid, "extra_groups": []}


def make_read_only(folder):
    for path, _, files in os.walk(folder):
        os.chmod(path, 0o555)
        for name in files:
            os.chmod(os.path.join(path, name), 0o444)


def remove(folder):
    for path, _, _ in os.walk(folder):
        os.chmod(path, 0o700)
    shutil.rmtree(folder)


def state_of(folder):
    """What is in it; not when it was used last, which root may write anywhere."""
    state = {}
    for path, folders, files in os.walk(folder):
        for name in folders + files:
            found = os.stat(os.path.join(path, name))
            state[os.path.join(path, name)] = (found.st_mode, found.st_size, found.st_ino)
    return state


class WarmCache(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        # Where any user may look: the folder of a test need not be such a place.
        cls.root = tempfile.mkdtemp(prefix="stampmill_warm_", dir="/tmp")
        cls.addClassCleanup(remove, cls.root)
        os.chmod(cls.root, 0o755)
        cls.model = os.path.join(cls.root, "affine.onnx")
        shutil.copy(daemon.model("affine"), cls.model)
        os.chmod(cls.model, 0o444)
        # Without libstampmill_compiler.so: what serves cannot compile.
        cls.program = os.path.join(cls.root, "stampmill")
        shutil.copy(daemon.STAMPMILL, cls.program)
        cls.cache = os.path.join(cls.root, "cache")
        done = stampmill(
            "compile", daemon.model("affine"), "--target=cpu:" + CLASS, "--cache-dir=" + cls.cache
        )
        assert done.returncode == 0, done.stderr
        devices = json.loads(stampmill("devices", "--json").stdout)["devices"]
        target = next(device["target"] for device in devices if device["kind"] == "cpu")
        level = re.match(r"cpu:x86-64(?:-v(\d))?", target).group(1)
        cls.runs_here = int(level or 1) >= 3

    def setUp(self):
        if not self.runs_here:
            self.skipTest("this machine cannot run %s" % CLASS)

    def serve(self, cache, *arguments, **process):
        folder = tempfile.mkdtemp(dir=self.root)
        os.chmod(folder, 0o755)
        return daemon.Daemon(
            ["affine.onnx", "--require-warm-cache", "--cache-dir=" + cache, *arguments],
            program=self.program,
            folder=folder,
            cwd=self.root,
            **process,
        )

    def expect_answers(self, server):
        body = {"inputs": [{"name": "IN", "shape": [2, 4], "datatype": "FP32", "data": INPUT}]}
        status, _, text = server.request("POST", "/v2/models/affine/infer", json.dumps(body))
        self.assertEqual(200, status, text)
        want = [2 * value + 1 for row in INPUT for value in row]
        self.assertEqual(want, json.loads(text)["outputs"][0]["data"])
        metrics = server.metrics()
        self.assertEqual(1, metrics["stampmill_kernel_cache_hits_total"])
        self.assertEqual(0, metrics["stampmill_kernel_cache_misses_total"])

    def expect_served_unchanged(self, cache, **process):
        before = state_of(cache)
        with self.serve(cache, "--cpu-isa=" + CLASS, **process) as server:
            if "user" in process:
                self.assertEqual(process["user"], os.stat("/proc/%d" % server.process.pid).st_uid)
            self.expect_answers(server)
        self.assertEqual(before, state_of(cache))

    def copy_of_cache(self):
        """A read-only copy, through an archive."""
        folder = tempfile.mkdtemp(dir=self.root)
        os.chmod(folder, 0o755)
        archive, cache = os.path.join(folder, "archive"), os.path.join(folder, "cache")
        exported = stampmill("cache", "export", archive, "--cache-dir=" + self.cache)
        self.assertEqual(0, exported.returncode, exported.stderr)
        imported = stampmill("cache", "import", archive, "--cache-dir=" + cache)
        self.assertEqual("1 models imported\n", imported.stdout, imported.stderr)
        make_read_only(cache)
        return cache

    def test_serves_from_another_directory(self):
        with self.serve(self.cache, "--cpu-isa=" + CLASS) as server:
            self.expect_answers(server)

    def test_serves_a_read_only_copy(self):
        self.expect_served_unchanged(self.copy_of_cache())

    def test_serves_as_another_user(self):
        user = another_user()
        if user is None:
            self.skipTest("only root can become another user")
        self.expect_served_unchanged(self.copy_of_cache(), **user)

    def test_does_not_serve_what_is_not_in_the_cache(self):
        with self.assertRaisesRegex(RuntimeError, "ended with 1"):
            self.serve(self.cache, "--cpu-isa=x86-64")


if __name__ == "__main__":
    unittest_xml.main()
