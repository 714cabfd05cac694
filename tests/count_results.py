#!/usr/bin/python3
"""count_results.py EVENTS STATUS: counts the test cases of one Bazel run.

EVENTS is the run's build event file (JSON lines), STATUS Bazel's exit status. The cases are those
in test.xml of the targets in this run, cached ones included. A target that was asked for and has no
result, or no readable test.xml, counts as one failure, and so does one that failed without saying
in which case. Prints what failed, then, last, `N passed, N failed`; exits with 1 unless some
passed, none failed and Bazel agrees.
"""

import json
import sys
import urllib.parse
import urllib.request
import xml.etree.ElementTree


def read_events(path):
    """The test targets of a run: label -> None, or {(run, shard): (status, test.xml path)}."""
    targets = {}
    with open(path, encoding="utf-8") as lines:
        for line in lines:
            event = json.loads(line)
            name = event.get("id", {})
            if "targetConfigured" in name:
                kind = event.get("configured", {}).get("targetKind", "")
                if kind.endswith("_test rule"):
                    targets.setdefault(name["targetConfigured"]["label"], None)
            elif "testResult" in name:
                key = name["testResult"]
                results = targets.get(key["label"]) or {}
                result = event["testResult"]
                uris = [
                    output["uri"]
                    for output in result.get("testActionOutput", [])
                    if output["name"] == "test.xml" and "uri" in output
                ]
                # A later attempt replaces an earlier one.
                results[key.get("run", 1), key.get("shard", 1)] = (
                    result.get("status", "NO_STATUS"),
                    urllib.request.url2pathname(urllib.parse.urlparse(uris[0]).path)
                    if uris
                    else None,
                )
                targets[key["label"]] = results
    return targets


def count_cases(path):
    """Passed cases and the names of failed ones in one test.xml. Skipped ones are neither."""
    passed, failed = 0, []
    for case in xml.etree.ElementTree.parse(path).getroot().iter("testcase"):
        name = "%s.%s" % (case.get("classname", ""), case.get("name", "?"))
        if case.find("failure") is not None or case.find("error") is not None:
            failed.append(name)
        elif case.find("skipped") is None and case.get("status") != "notrun":
            passed += 1
    return passed, failed


def count_target(results):
    """Passed cases and names of failures of one target."""
    if not results:
        return 0, ["was not built or not run"]
    passed, failed = 0, []
    for status, path in results.values():
        try:
            if path is None:
                raise FileNotFoundError("no test.xml")
            more_passed, more_failed = count_cases(path)
        except (OSError, xml.etree.ElementTree.ParseError) as error:
            more_passed, more_failed = 0, ["left no readable result: %s" % error]
        if status not in ("PASSED", "FLAKY") and not more_failed:
            more_failed = ["ended with status %s" % status]
        passed += more_passed
        failed += more_failed
    return passed, failed


def main():
    targets = read_events(sys.argv[1])
    bazel_status = int(sys.argv[2])
    passed = failed = 0
    for label in sorted(targets):
        target_passed, target_failed = count_target(targets[label])
        passed += target_passed
        failed += len(target_failed)
        for name in target_failed:
            print("FAILED %s %s" % (label, name))
    if bazel_status != 0 and failed == 0:
        print("FAILED bazel ended with status %d" % bazel_status)
        failed += 1
    print("%d passed, %d failed" % (passed, failed))
    sys.exit(0 if passed > 0 and failed == 0 else 1)


if __name__ == "__main__":
    main()
