#!/usr/bin/env python3
"""The matrix of hang detection: runs every fault with 2, 4 and 8 ranks many times, and counts the right explanations.

    hang_matrix.py [--rows FILE] [--library worker_lib|torch|torch_ddp] [--nodes 1] [--ranks 2,4,8] [--count N]
                   [--scale 0.1] [FAULT...]
    hang_matrix.py --healthy SECONDS [--library worker_lib|torch|torch_ddp] [--nodes 1] [--ranks 4] [--scale 0.1]

$MUSTER names the launcher; hang_cells.py lists the programs that the libraries need. Each fault is run N times, with the
numbers of ranks in turn; rows are appended to FILE, and those that it holds are not run again. Prints a table of what was
found. The exit status is 1 if fewer than 98 % of all runs, or 90 % of one fault's, were explained right, or if a healthy job
got a verdict.
"""
import argparse
import collections
import json
import os
import statistics
import sys

from hang_cells import LIBRARIES, PROMISE_S, healthy, perform
from harness import require_muster

RIGHT_MIN, RIGHT_MIN_OF_FAULT = 0.98, 0.9


def rows_of(path):
    if not os.path.exists(path):
        return []
    with open(path) as f:
        return [json.loads(line) for line in f]


def run_missing(options, rows):
    """Runs every cell that has no row, and appends its row."""
    done = {(r["fault"], r["number"]) for r in rows}
    for number in range(options.count):
        for fault in options.faults:
            if (fault, number) in done:
                continue
            ranks = options.ranks[number % len(options.ranks)]
            row = {"number": number, **perform(fault, ranks, number // len(options.ranks) % ranks, options.scale,
                                                  options.library, options.nodes)}
            row["right"] = row["right"] and row["named_s"] <= PROMISE_S
            rows.append(row)
            with open(options.rows, "a") as f:
                f.write(json.dumps(row) + "\n")
            print(f"{number + 1}/{options.count} {fault}, {ranks} ranks: {'right' if row['right'] else row}", flush=True)


def found_text(row):
    """Returns what the table shows for a wrong row."""
    late = " late" if (row["named_s"] or 0) > PROMISE_S else ""
    return ", ".join(f"{f['class']} of {f['ranks']} by {f['by']} (culprit {row['culprit']} of {row['ranks']})"
                     for f in row["found"]) + late or "nothing"


def times_text(rows, key):
    times = [r[key] for r in rows if r[key] is not None]
    return f"{statistics.median(times):.2f}, {max(times):.2f} s" if times else ""


def table(rows, faults, expectations):
    """The confusion table in Markdown."""
    lines = ["| fault | expected | runs | right | wrong | nothing | named after (median, most) | verdict after | "
             "what was wrong |", "| --- | --- | --- | --- | --- | --- | --- | --- | --- |"]
    for fault in faults:
        own = [r for r in rows if r["fault"] == fault]
        right = sum(r["right"] for r in own)
        nothing = sum(not r["found"] for r in own)
        wrong = collections.Counter(found_text(r) for r in own if not r["right"])
        words = "; ".join(f"{count} × {text}" for text, count in wrong.most_common(3))
        expected = expectations[fault]
        lines.append(f"| {fault} | {expected.what} by {expected.by} | {len(own)} | {right} | {len(own) - right - nothing} | "
                     f"{nothing} | {times_text(own, 'named_s')} | {times_text(own, 'verdict_s')} | {words} |")
    return "\n".join(lines)


def verdicts_of_healthy(options):
    """How many verdicts healthy jobs got."""
    total = 0
    for ranks in options.ranks:
        verdicts, notices = healthy(ranks, options.healthy / len(options.ranks), options.scale, options.library,
                                    options.nodes)
        print(f"healthy, {ranks} ranks: verdicts: {len(verdicts)} (notices: {len(notices)})", flush=True)
        print("".join(f"    {v['text']}\n" for v in verdicts), end="")
        total += len(verdicts)
    return total


def parse():
    parser = argparse.ArgumentParser(usage=__doc__.replace("%", "%%"))
    parser.add_argument("--rows", default="hang_matrix.jsonl")
    parser.add_argument("--ranks", default="2,4,8", type=lambda text: [int(word) for word in text.split(",")])
    parser.add_argument("--count", default=30, type=int)
    parser.add_argument("--scale", default=0.1, type=float)
    parser.add_argument("--healthy", type=float)
    parser.add_argument("--nodes", default=1, type=int)
    parser.add_argument("--library", default="worker_lib", choices=LIBRARIES)
    parser.add_argument("faults", nargs="*")
    options = parser.parse_args()
    known = list(LIBRARIES[options.library])
    options.faults = options.faults or known
    unknown = set(options.faults) - set(known)
    if unknown:
        parser.error(f"no such fault: {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return options


def main():
    options = parse()
    require_muster()
    if options.healthy:
        return verdicts_of_healthy(options) > 0
    rows = [r for r in rows_of(options.rows)
            if (r["scale"], r["library"], r["nodes"]) == (options.scale, options.library, options.nodes) and r["fault"] in options.faults]
    run_missing(options, rows)
    print(table(rows, options.faults, LIBRARIES[options.library]))
    shares = [sum(r["right"] for r in rows if r["fault"] == f) / sum(r["fault"] == f for r in rows) for f in options.faults]
    share = sum(r["right"] for r in rows) / len(rows)
    print(f"\n{share:.2%} of {len(rows)} runs right, {min(shares):.0%} of the worst fault")
    return share < RIGHT_MIN or min(shares) < RIGHT_MIN_OF_FAULT


if __name__ == "__main__":
    sys.exit(main())
