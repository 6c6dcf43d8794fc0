#!/usr/bin/env python3
"""Where the time of the builds and of the tests went, by their own logs: the last build of each preset, the last ctest run.

    build_times.py [BUILD] [--rows N]      BUILD: the folder of the presets' folders, default build
"""
import argparse
import os
import re

MS = 1000


def build_steps(log):
    """Seconds by product that is still there, as ninja's log has them; of several the last."""
    steps = {}
    with open(log, encoding="utf-8") as file:
        for line in file:
            fields = line.rstrip("\n").split("\t")
            # Start and end in ms, modification time, product, hash of the command.
            if len(fields) == 5 and os.path.exists(os.path.join(os.path.dirname(log), fields[3])):
                steps[fields[3]] = (int(fields[1]) - int(fields[0])) / MS
    return steps


def test_times(log):
    """Seconds by test, as ctest's log has them: "1/9 Testing: name", and further on "Test time = 0.01 sec"."""
    times, name = {}, None
    with open(log, encoding="utf-8", errors="replace") as file:
        for line in file:
            if begin := re.match(r"\d+/\d+ Testing: (\S+)", line):
                name = begin[1]
            elif end := re.match(r"Test time = *([\d.]+) sec", line):
                times[name] = float(end[1])
    return times


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
    log = os.path.join(args.build, "all", "Testing", "Temporary", "LastTest.log")
    if os.path.exists(log):
        show("tests", test_times(log), args.rows)


if __name__ == "__main__":
    main()
