"""Runs the unittest cases of a program under Bazel, with true counts.

    from tests import unittest_xml
    if __name__ == "__main__":
        unittest_xml.main()

As unittest.main, but each case is also an entry of the test.xml that Bazel asks for, and a program
without cases fails. `--test_filter` chooses cases by a part of their name.
"""

import os
import sys
import time
import unittest
import xml.etree.ElementTree


class _Result(unittest.TextTestResult):
    """Notes every case and subtest that ends, with its outcome."""

    def __init__(self, *arguments, **keywords):
        super().__init__(*arguments, **keywords)
        self.cases = []
        self._start = 0.0

    def startTest(self, test):
        self._start = time.monotonic()
        super().startTest(test)

    def _note(self, test, tag=None, text=""):
        class_name, _, name = test.id().rpartition(".")
        case = xml.etree.ElementTree.Element(
            "testcase",
            classname=class_name,
            name=name,
            time="%.3f" % (time.monotonic() - self._start),
        )
        if tag:
            # What XML cannot hold is of no use in a report either.
            clean = "".join(c if c in "\n\t" or c.isprintable() else "?" for c in text)
            xml.etree.ElementTree.SubElement(case, tag).text = clean
        self.cases.append(case)

    def addSuccess(self, test):
        super().addSuccess(test)
        self._note(test)

    def addFailure(self, test, err):
        super().addFailure(test, err)
        self._note(test, "failure", self.failures[-1][1])

    def addError(self, test, err):
        super().addError(test, err)
        self._note(test, "error", self.errors[-1][1])

    def addSubTest(self, test, subtest, err):
        super().addSubTest(test, subtest, err)
        if err is None:
            self._note(subtest)
        else:
            self._note(subtest, "failure", str(err[1]))

    def addSkip(self, test, reason):
        super().addSkip(test, reason)
        self._note(test, "skipped", reason)

    def addExpectedFailure(self, test, err):
        super().addExpectedFailure(test, err)
        self._note(test)

    def addUnexpectedSuccess(self, test):
        super().addUnexpectedSuccess(test)
        self._note(test, "failure", "unexpected success")


def main():
    """Runs all cases of the calling program and exits."""
    loader = unittest.TestLoader()
    chosen = os.environ.get("TESTBRIDGE_TEST_ONLY")
    if chosen:
        loader.testNamePatterns = ["*%s*" % chosen]
    suite = loader.loadTestsFromModule(sys.modules["__main__"])
    result = unittest.TextTestRunner(resultclass=_Result, verbosity=2).run(suite)
    path = os.environ.get("XML_OUTPUT_FILE")
    if path:
        root = xml.etree.ElementTree.Element("testsuites")
        group = xml.etree.ElementTree.SubElement(root, "testsuite", name=sys.argv[0])
        group.extend(result.cases)
        xml.etree.ElementTree.ElementTree(root).write(path, encoding="utf-8", xml_declaration=True)
    sys.exit(0 if result.wasSuccessful() and result.testsRun > 0 else 1)
