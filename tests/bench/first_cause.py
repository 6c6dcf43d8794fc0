#!/usr/bin/env python3
"""Measures how often the verdict names the rank that failed first, and prints a Markdown table.

    tests/bench/first_cause.py --runs 50 --out first_cause.jsonl

Every cell (first_cause/cells.py) is a job whose first failure does not look like the first. The ranks themselves stamp the
truth, by the clock that all share, at the moment of each failure; the earliest stamp is compared with the culprit in
result.json, on every node. The verdict "simultaneous" is right if the stamps are less than a millisecond apart. Runs of all
cells take turns. Each run is appended to --out at once, and runs that are already there are not repeated; --table shows
such a file.

Fails if a verdict is missing, if less than 99 % are right, or less than 94 % in one cell; with --smoke each cell runs
once and only a missing verdict counts.
"""

import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(1, str(HERE / "first_cause"))
from bench import machine, note  # noqa: E402
from cells import CELLS, holes  # noqa: E402
from running import one_run, why_no_cgroup  # noqa: E402

ALL_LEAST, CELL_LEAST = 0.99, 0.94


def build_rank(folder):
    program = f"{folder}/rank"
    source = str(HERE / "first_cause" / "rank.cc")
    subprocess.run(["g++", "-std=c++20", "-O2", "-static", source, "-o", program], check=True)
    return program


def left_out(cells):
    """Prints and returns the cells that cannot run on this machine."""
    why = why_no_cgroup() if any(cell.memory_mb for cell in cells) else ""
    names = {cell.name for cell in cells if cell.memory_mb} if why else set()
    if names:
        note(f"LEFT OUT: {', '.join(sorted(names))}: no memory cgroup can be made here ({why})")
    return names


def read_records(path):
    if not path or not os.path.exists(path):
        return []
    with open(path) as file:
        return [json.loads(line) for line in file]


def measure(cells, options, programs):
    """Returns all records, earlier ones included."""
    records = read_records(options.out)
    done = {cell.name: sum(record["cell"] == cell.name for record in records) for cell in cells}
    for turn in range(options.runs):
        for cell in (cell for cell in cells if done[cell.name] <= turn):
            chance = random.Random(f"{options.seed} {cell.name} {turn}")
            record, evidence = one_run(cell, options.muster, programs, chance)
            record["run"] = turn
            records.append(record)
            if options.out:
                with open(options.out, "a") as file:
                    file.write(json.dumps(record) + "\n")
            if options.evidence and evidence:
                path = pathlib.Path(options.evidence) / f"{cell.name}.{turn}.json"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(json.dumps({"truth": record["truth"], "nodes": evidence}, indent=1) + "\n")
            note(f"{cell.name} {turn}: {record['outcome']} {record['why']} ({record['seconds']} s)")
    return records


def wrong_ones(records):
    counts = {}
    for record in records:
        if record["outcome"] != "right":
            why = record["why"].splitlines()[0] if record["outcome"] == "wrong" else "no verdict"
            counts[why] = counts.get(why, 0) + 1
    return "; ".join(f"{count} × {why}" for why, count in sorted(counts.items(), key=lambda item: -item[1]))


def print_table(cells, records):
    """Returns True if all results are good enough."""
    fine, right_in_all, all_runs = True, 0, 0
    print("| cell | what happens | nodes | ranks | cores | right | of | what was named instead |")
    print("| --- | --- | --- | --- | --- | --- | --- | --- |")
    for cell in cells:
        mine = [record for record in records if record["cell"] == cell.name]
        right = sum(record["outcome"] == "right" for record in mine)
        cores = "busy" if cell.busy else "idle"
        row = [cell.name, cell.what, cell.nodes, cell.ranks, cores, right, len(mine), wrong_ones(mine)]
        print(f"| {' | '.join(map(str, row))} |")
        right_in_all, all_runs = right_in_all + right, all_runs + len(mine)
        if mine and right < CELL_LEAST * len(mine):
            fine = False
            print(f"{cell.name}: {right} of {len(mine)} are right", file=sys.stderr)
    share = right_in_all / max(1, all_runs)
    print(f"\nRight: {right_in_all} of {all_runs}, {100 * share:.2f} %.")
    return fine and share >= ALL_LEAST


def parse_options():
    build = os.environ.get("MUSTER_BUILD") or str(HERE.parents[1] / "build" / "release")
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--muster", default=os.environ.get("MUSTER") or f"{build}/muster", help="the launcher")
    parser.add_argument("--runs", type=int, default=50, help="of each cell (default 50)")
    parser.add_argument("--cells", default="", help="comma list: " + ", ".join(cell.name for cell in CELLS))
    parser.add_argument("--out", help="the file to which each run is appended as a line of JSON")
    parser.add_argument("--evidence", help="a folder for what the judge of each run had before it")
    parser.add_argument("--table", metavar="OUT", help="run nothing, print the table of this file")
    parser.add_argument("--seed", default=str(time.time_ns()), help="of the choice of ranks")
    parser.add_argument("--smoke", action="store_true", help="each cell once; only a missing verdict counts")
    options = parser.parse_args()
    options.programs = {"library_rank": f"{build}/tests/first_cause_library"}
    names = {name for name in options.cells.split(",") if name} or {cell.name for cell in CELLS}
    unknown = names - {cell.name for cell in CELLS}
    if unknown:
        parser.error(f"--cells has unknown cells: {', '.join(sorted(unknown))}")
    options.cells = [cell for cell in CELLS if cell.name in names]
    if options.smoke:
        options.runs = 1
    return options


def check_programs(options):
    needed = {"the launcher (--muster, MUSTER)": options.muster}
    if any(cell.library for cell in options.cells):
        needed["a rank of the worker library (MUSTER_BUILD)"] = options.programs["library_rank"]
    if any(cell.torch for cell in options.cells):
        needed["Python with torch (MUSTER_TORCH_VENV)"] = os.environ.get("MUSTER_TORCH_VENV", "") + "/bin/python"
    for what, path in needed.items():
        if not os.access(path, os.X_OK):
            sys.exit(f"{what} is not at {path!r}")


def main():
    options = parse_options()
    if uncovered := list(holes(CELLS)):
        sys.exit(f"the cells do not have: {', '.join(uncovered)}")
    if options.table:
        return 0 if print_table(options.cells, read_records(options.table)) else 1
    check_programs(options)
    without = left_out(options.cells)
    cells, began = [cell for cell in options.cells if cell.name not in without], time.monotonic()
    with tempfile.TemporaryDirectory(prefix="first_cause_") as folder:
        records = measure(cells, options, options.programs | {"rank": build_rank(folder)})
    missing = sum(record["outcome"] == "missing" for record in records)
    for record in (record for record in records if record["outcome"] == "missing"):
        note(f"{record['cell']}: no verdict: {record['why']}")
    print(f"Machine: {machine()}. Taken in {time.monotonic() - began:.0f} s.\n")
    fine = print_table(cells, records)
    return 0 if not missing and (fine or options.smoke) else 1


if __name__ == "__main__":
    sys.exit(main())
