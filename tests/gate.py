#!/usr/bin/env python3
"""Runs ctest and says what is red: the end of each failed test's output, what is unstable, then ctest's own summary.

    gate.py BUILD [CTEST ARGUMENTS...]      BUILD: the folder that ctest runs in, as build/all

Where CI is set, each live test that failed runs once more, alone. If all that failed passed then, the exit status is 0;
they are listed as unstable, and the output of their first runs is kept in BUILD/../unstable. Elsewhere nothing runs twice:
what is unstable on a developer's machine is a fault of the test or of the product.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys
import xml.etree.ElementTree

LINES_OF_OUTPUT = 40
REPEATED_MAX = 10  # More than these are not unstable: something is broken.
SUMMARY = re.compile(r"\d+% tests passed, ")


def run_ctest(build, report, arguments):
    """Shows ctest's progress. Returns its exit status and the lines of its summary."""
    command = ["ctest", "--test-dir", build, "--no-tests=error", "--output-junit", report, "--test-output-truncation", "head"]
    summary = []
    with subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, text=True, errors="replace") as ctest:
        for line in ctest.stdout:
            if summary or SUMMARY.match(line):
                summary.append(line)
            else:
                print(line, end="", flush=True)
    return ctest.returncode, summary


def failed_tests(report):
    """{name: output} of the tests that failed, timed out or could not run; those that skipped themselves are none."""
    failed = {}
    for case in xml.etree.ElementTree.parse(report).getroot().iter("testcase"):
        skipped = case.find("skipped")
        if case.find("failure") is not None or (skipped is not None and not skipped.get("message", "").startswith("SKIP_")):
            failed[case.get("name")] = case.findtext("system-out") or ""
    return failed


def is_live(name):
    return name.split(".")[1] == "live"


def unstable_folder(build):
    return pathlib.Path(build).parent / "unstable"


def passes_alone(build, name):
    exactly = re.sub(r"([][.*+?()^$|\\])", r"\\\1", name)
    return subprocess.run(["ctest", "--test-dir", build, "--no-tests=error", "-R", f"^{exactly}$"], check=False).returncode == 0


def unstable_tests(build, failed):
    """Those that pass when they are repeated, if all are live tests. Their first output is written to a file each."""
    if not os.environ.get("CI") or len(failed) > REPEATED_MAX or not all(map(is_live, failed)):
        return []
    folder = unstable_folder(build)
    folder.mkdir(exist_ok=True)
    for name, output in failed.items():
        (folder / f"{name.replace('/', '_')}.log").write_text(output, encoding="utf-8")
    return [name for name in failed if passes_alone(build, name)]


def main():
    build, *arguments = sys.argv[1:]
    report = os.path.abspath(os.path.join(build, "tests.xml"))
    pathlib.Path(report).unlink(missing_ok=True)
    shutil.rmtree(unstable_folder(build), ignore_errors=True)
    status, summary = run_ctest(build, report, arguments)
    failed = failed_tests(report) if status and os.path.exists(report) else {}
    for name, output in failed.items():
        print(f"\n---- {name} failed; its output ends with:")
        print("\n".join(output.rstrip().splitlines()[-LINES_OF_OUTPUT:]))
    unstable = unstable_tests(build, failed)
    if unstable:
        print("\nunstable: passed when run again, alone (first output in build/unstable):")
        print("\n".join(f"  {name}" for name in unstable))
    print()
    print("".join(summary), end="", flush=True)
    sys.exit(0 if failed and len(unstable) == len(failed) else status)


if __name__ == "__main__":
    main()
