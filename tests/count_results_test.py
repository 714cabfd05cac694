#!/usr/bin/python3
"""Tests count_results.py on made-up runs."""

import json
import os
import subprocess
import sys
import tempfile
import unittest

from tests import unittest_xml

PASSING = '<testsuites><testsuite><testcase name="a"/><testcase name="b"/></testsuite></testsuites>'
MIXED = (
    '<testsuites><testsuite><testcase classname="C" name="a"/>'
    '<testcase classname="C" name="b"><failure message="x"/></testcase>'
    '<testcase classname="C" name="c"><error/></testcase>'
    '<testcase classname="C" name="d"><skipped/></testcase>'
    '<testcase classname="C" name="e" status="notrun"/></testsuite></testsuites>'
)


class CountResults(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.events = []

    def tearDown(self):
        self.folder.cleanup()

    def add_target(self, label, kind="cc_test rule"):
        self.events.append(
            {"id": {"targetConfigured": {"label": label}}, "configured": {"targetKind": kind}}
        )

    def add_result(self, label, text, status="PASSED", **key):
        outputs = []
        if text is not None:
            path = os.path.join(self.folder.name, "test %d.xml" % len(self.events))
            with open(path, "w", encoding="utf-8") as file:
                file.write(text)
            outputs = [{"name": "test.xml", "uri": "file://" + path.replace(" ", "%20")}]
        self.events.append(
            {
                "id": {"testResult": {"label": label, "run": 1, "shard": 1, **key}},
                "testResult": {"status": status, "testActionOutput": outputs},
            }
        )

    def count(self, bazel_status=0):
        path = os.path.join(self.folder.name, "events")
        with open(path, "w", encoding="utf-8") as file:
            file.writelines(json.dumps(event) + "\n" for event in self.events)
        done = subprocess.run(
            [sys.executable, "tests/count_results.py", path, str(bazel_status)],
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        return done.stdout.splitlines()[-1], done.returncode

    def test_counts_cases_of_all_targets_and_shards(self):
        self.add_target("//a:a")
        self.add_target("//b:b", "_sanitized_test rule")
        self.add_target("//b:library", "cc_library rule")
        self.add_result("//a:a", PASSING)
        self.add_result("//b:b", PASSING, shard=1)
        self.add_result("//b:b", PASSING, shard=2)
        self.assertEqual(self.count(), ("6 passed, 0 failed", 0))

    def test_counts_failures_and_leaves_out_what_was_skipped(self):
        self.add_target("//a:a")
        self.add_result("//a:a", MIXED, "FAILED")
        self.assertEqual(self.count(3), ("1 passed, 2 failed", 1))

    def test_a_later_attempt_replaces_an_earlier_one(self):
        self.add_target("//a:a")
        self.add_result("//a:a", MIXED, "FAILED", attempt=1)
        self.add_result("//a:a", PASSING, "PASSED", attempt=2)
        self.assertEqual(self.count(), ("2 passed, 0 failed", 0))

    def test_a_target_without_result_is_a_failure(self):
        self.add_target("//a:a")
        self.add_target("//b:b")
        self.add_result("//a:a", PASSING)
        self.assertEqual(self.count(1), ("2 passed, 1 failed", 1))

    def test_a_missing_or_broken_xml_is_a_failure(self):
        self.add_target("//a:a")
        self.add_target("//b:b")
        self.add_result("//a:a", None)
        self.add_result("//b:b", "<testsuites>")
        self.assertEqual(self.count(), ("0 passed, 2 failed", 1))

    def test_a_target_that_fails_without_a_failing_case_is_a_failure(self):
        self.add_target("//a:a")
        self.add_result("//a:a", PASSING, "TIMEOUT")
        self.assertEqual(self.count(3), ("2 passed, 1 failed", 1))

    def test_a_run_without_tests_fails(self):
        self.assertEqual(self.count(), ("0 passed, 0 failed", 1))

    def test_bazel_must_agree(self):
        self.add_target("//a:a")
        self.add_result("//a:a", PASSING)
        self.assertEqual(self.count(1), ("2 passed, 1 failed", 1))


if __name__ == "__main__":
    unittest_xml.main()
