#!/usr/bin/env python3
"""Writes the ctest tests of a GoogleTest program: one for each of its suites.

    suites.py PROGRAM FILE PREFIX LABEL COST [--each-test] [--waiting=SUITE,...]     writes FILE, which ctest includes

A process for each of thousands of tests cost more time than the tests, most of all under the sanitizers. --each-test is
for programs whose tests look at what their process has inherited or left behind. See CMakeLists.txt for COST and suites
that wait.
"""
import argparse
import subprocess
import sys

TIMEOUT_S = 600
COST_OF_WAITING = 10
SKIPPED = 77  # As suite_main.cc says it.


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


def write(args):
    names = (f"{suite}.{test}" if args.each_test else suite for suite, test in tests_of(args.program))
    lines = []
    for name in dict.fromkeys(names):
        full = f"[==[{args.prefix}.{args.label}.{name}]==]"
        tests = name if args.each_test else f"{name}.*"
        kind, cost = ("waiting", COST_OF_WAITING) if name in args.waiting else ("computing", args.cost)
        lines.append(f'add_test({full} "{args.program}" [==[--gtest_filter={tests}]==])')
        lines.append(f"set_tests_properties({full} PROPERTIES LABELS {args.label} TIMEOUT {TIMEOUT_S} "
                     f"SKIP_RETURN_CODE {SKIPPED} RESOURCE_GROUPS {kind}:1 COST {cost})")
    with open(args.path, "w", encoding="utf-8") as file:
        file.write("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name in ("program", "path", "prefix", "label", "cost"):
        parser.add_argument(name)
    parser.add_argument("--each-test", action="store_true")
    parser.add_argument("--waiting", type=lambda text: text.split(","), default=[])
    write(parser.parse_args())


if __name__ == "__main__":
    main()
