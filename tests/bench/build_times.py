#!/usr/bin/env python3
"""Shows where the time of builds and tests went, by their own logs: each preset's last build, the last ctest run.

    build_times.py [BUILD] [--rows N]      BUILD: the folder of the presets' folders, default build

Sums up clang's traces if there are any (-ftime-trace, set by the preset `phases`): parsing, templates, optimising,
generating code; the time of linking is ninja's.
"""
import argparse
import json
import os
import pathlib
import xml.etree.ElementTree

MS = 1000
US = 1_000_000


def build_steps(log):
    """Returns the seconds of each product that still exists, from the last entry in ninja's log."""
    steps = {}
    with open(log, encoding="utf-8") as file:
        for line in file:
            fields = line.rstrip("\n").split("\t")
            # Start and end in ms, modification time, product, hash of the command.
            if len(fields) == 5 and os.path.exists(os.path.join(os.path.dirname(log), fields[3])):
                steps[fields[3]] = (int(fields[1]) - int(fields[0])) / MS
    return steps


def is_link(product):
    return not product.endswith(".o")


def covered(intervals):
    """Returns the length of the union of pairs of begin and end."""
    total, reached = 0, 0
    for begin, end in sorted(intervals):
        total += max(0, end - max(begin, reached))
        reached = max(reached, end)
    return total


def phases(trace):
    """Returns the seconds of each phase of one compilation, from clang's trace."""
    with open(trace, encoding="utf-8") as file:
        events = json.load(file)["traceEvents"]
    spans = {name: [] for name in ("Frontend", "InstantiateClass", "InstantiateFunction", "Optimizer", "Backend")}
    for event in events:
        if event["name"] in spans:
            spans[event["name"]].append((event["ts"], event["ts"] + event["dur"]))
    frontend, optimiser, backend = (covered(spans[name]) for name in ("Frontend", "Optimizer", "Backend"))
    templates = covered(spans["InstantiateClass"] + spans["InstantiateFunction"])
    return {"parsing": (frontend - templates) / US, "templates": templates / US, "optimising": optimiser / US,
            "generating code": (backend - optimiser) / US}


def show_phases(build):
    traces = [path for path in pathlib.Path(build).rglob("*.json") if ".dir" in str(path)]
    sums = {}
    for trace in traces:
        for name, seconds in phases(trace).items():
            sums[name] = sums.get(name, 0) + seconds
    if traces:
        sums["linking"] = sum(spent for step, spent in build_steps(os.path.join(build, ".ninja_log")).items() if is_link(step))
        print("  phases: " + ", ".join(f"{name} {seconds:.0f} s" for name, seconds in sums.items()))


def test_times(report):
    """Returns the seconds of each test, from a report in JUnit's format."""
    cases = xml.etree.ElementTree.parse(report).getroot().iter("testcase")
    return {case.get("name"): float(case.get("time", 0)) for case in cases}


def show(title, seconds, rows):
    print(f"{title}: {len(seconds)} steps, {sum(seconds.values()):.0f} s in all")
    for name, spent in sorted(seconds.items(), key=lambda item: -item[1])[:rows]:
        print(f"  {spent:7.1f} s  {name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("build", nargs="?", default="build")
    parser.add_argument("--rows", type=int, default=12)
    args = parser.parse_args()
    for preset in sorted(os.listdir(args.build)):
        log = os.path.join(args.build, preset, ".ninja_log")
        if os.path.exists(log):
            show(f"build {preset}", build_steps(log), args.rows)
            show_phases(os.path.join(args.build, preset))
    report = os.path.join(args.build, "all", "tests.xml")
    if os.path.exists(report):
        show("tests", test_times(report), args.rows)


if __name__ == "__main__":
    main()
