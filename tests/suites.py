#!/usr/bin/env python3
"""Writes the ctest tests of a GoogleTest program: one for each of its suites.

    suites.py PROGRAM FILE PREFIX LABEL [--each-test]     writes FILE, which ctest includes
    suites.py --run PROGRAM FILTER                        runs those tests; exit status 77 if any was skipped

A process for each of thousands of tests cost more time than the tests, most of all under the sanitizers. --each-test is
for programs whose tests look at what their process has inherited or left behind.
"""
import subprocess
import sys

TIMEOUT_S = 600
SKIPPED = 77


def tests_of(program):
    """Pairs of suite and test."""
    listed = subprocess.run([program, "--gtest_list_tests"], check=True, capture_output=True, text=True).stdout
    suite = None
    for line in listed.splitlines():
        name = line.split("#")[0].rstrip()
        if name.endswith("."):
            suite = name[:-1]
        elif line.startswith("  "):
            yield suite, name.strip()


def write(program, path, prefix, label, each_test):
    if each_test:
        filters = {f"{suite}.{test}": f"{suite}.{test}" for suite, test in tests_of(program)}
    else:
        filters = {suite: f"{suite}.*" for suite, _ in tests_of(program)}
    lines = []
    for name, tests in filters.items():
        full = f"[==[{prefix}.{label}.{name}]==]"
        lines.append(f'add_test({full} "{sys.executable}" "{__file__}" --run "{program}" [==[{tests}]==])')
        lines.append(f"set_tests_properties({full} PROPERTIES LABELS {label} TIMEOUT {TIMEOUT_S} "
                     f"SKIP_RETURN_CODE {SKIPPED})")
    with open(path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


def run(program, tests):
    # ctest ends only this process where the time is over.
    process = subprocess.Popen(["setpriv", "--pdeathsig", "KILL", program, f"--gtest_filter={tests}"], stdout=subprocess.PIPE, errors="replace", text=True)
    skipped = False
    for line in process.stdout:
        skipped = skipped or line.startswith("[  SKIPPED ]")
        print(line, end="", flush=True)
    code = process.wait()
    # Killed by a signal: as a shell would say it.
    return SKIPPED if code == 0 and skipped else code if code >= 0 else 128 - code


if __name__ == "__main__":
    if sys.argv[1] == "--run":
        sys.exit(run(*sys.argv[2:4]))
    write(*sys.argv[1:5], each_test="--each-test" in sys.argv[5:])
