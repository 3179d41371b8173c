#!/usr/bin/env python3
"""Prints what a CTest report (JUnit form) says: why tests were skipped, which failed, and the totals as the last line.
Standard library of python3-minimal only.
Usage: test_totals.py REPORT NAME. Exit status 1 if a test failed, or if the report is missing or counts no test."""
import re
import sys

REASON = re.compile(r"^(?:.*?\bskip(?:ped)?: *)(.+)$", re.I | re.M)
GTEST_REASON = re.compile(r"Skipped\n(.+?)\n", re.S)


ENTITIES = {"&lt;": "<", "&gt;": ">", "&quot;": '"', "&apos;": "'", "&#10;": "\n", "&#9;": "\t", "&#13;": "", "&amp;": "&"}


def plain(text):
    """Undoes XML's entities; the module that does it is not in python3-minimal."""
    return re.sub(r"&(?:#\d+|\w+);", lambda match: ENTITIES.get(match.group(), match.group()), text)


def cases_of(report):
    """(name, status, output) of each test; status is CTest's: run, fail, notrun, disabled."""
    for case in re.findall(r"<testcase .*?</testcase>", report, flags=re.S):
        name, status = (plain(re.search(rf'\b{key}="([^"]*)"', case).group(1)) for key in ("name", "status"))
        output = re.search(r"<system-out>(.*?)</system-out>", case, flags=re.S)
        yield name, status, plain(output.group(1)) if output else ""


def reason_in(output):
    for pattern in (REASON, GTEST_REASON):
        if match := pattern.search(output):
            return " ".join(match.group(1).split())
    return "no reason was printed"


TAIL_LINES = 25


def tell_failed(test, output):
    """What the test said last: enough to know what broke from the end of a log alone."""
    print(f"  failed: {test}")
    for line in output.rstrip().splitlines()[-TAIL_LINES:]:
        print(f"    | {line}")


def main():
    report_file, name = sys.argv[1:3]
    try:
        with open(report_file, encoding="utf-8", errors="replace") as file:
            cases = list(cases_of(file.read()))
    except OSError:
        cases = []
    failed = [(test, output) for test, status, output in cases if status == "fail"]
    skipped = [(test, output) for test, status, output in cases if status in ("notrun", "disabled")]
    print(f"\ntests of '{name}'")
    for test, output in skipped:
        print(f"  skipped: {test}: {reason_in(output)}")
    for test, output in failed:
        tell_failed(test, output)
    print(f"{len(cases) - len(failed) - len(skipped)} passed, {len(failed)} failed, {len(skipped)} skipped")
    sys.exit(1 if failed or not cases else 0)


main()
