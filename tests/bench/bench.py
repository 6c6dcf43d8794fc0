"""Measures muster, torchrun and mpirun, and prints a Markdown table.

    MUSTER=build/release/muster MUSTER_TORCH_VENV=~/venv tests/bench/bench.py

Runs are interleaved, so that changes in the machine's load affect all launchers; a cell is the median and, in brackets,
the smallest and the largest sample. --quick is for automatic checks: few and small runs, which pass by the order of the
launchers and the completeness of output alone.
"""

import argparse
import math
import os
import pathlib
import platform
import statistics
import subprocess
import sys
import tempfile
import time

import launching
import measures
import results

# (name, title, unit, muster's goal)
ROWS = {
    "start_to_end": ("start to the end of two no-op workers", "ms", "100 × faster than torchrun, faster than mpirun"),
    "start_to_main": ("start to the first worker's main", "ms", "fastest"),
    "death_to_replacement": ("death of a worker to its replacement's main", "ms", "under 30"),
    "stop": ("TERM to the end", "ms", ""),
    "two_hundred": ("200 workers of /bin/true", "ms", "under 1000"),
    "rss": ("resident memory of the launcher's processes (Rss)", "MB", "under 15"),
    "pss": ("the same, shared pages shared out (Pss)", "MB", ""),
    "wakeups": ("wake-ups when idle", "1/s", "under 1"),
    "cpu": ("CPU when idle", "ms/s", ""),
}
OUTPUT = {
    "output_file": ("8 workers' lines to a file", "file", False),
    "output_pipe": ("8 workers' lines to a pipe", "pipe", False),
    "output_file_tee": ("8 workers' lines to a file, with tee", "file", True),
    "output_pipe_tee": ("8 workers' lines to a pipe, with tee", "pipe", True),
}
IDLE = ("rss", "pss", "wakeups", "cpu")
IDLE_SCALE = {"rss": 1 / 1024, "pss": 1 / 1024, "wakeups": 1, "cpu": 1000}


def machine():
    cpu = next(line.split(":")[1].strip() for line in open("/proc/cpuinfo") if line.startswith("model name"))
    gigabytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return f"{len(os.sched_getaffinity(0))} cores of {cpu}, {gigabytes:.0f} GiB, Linux {platform.release()}"


def version_of(launcher):
    done = subprocess.run([*launcher.command, "--version"], capture_output=True, text=True)
    first = (done.stdout.strip() or launcher.name).splitlines()[0]
    return first if done.returncode == 0 else launcher.name


def stolen_and_total():
    fields = list(map(int, open("/proc/stat").readline().split()[1:9]))
    return fields[7], sum(fields)


class Samples:
    """samples[row][launcher name]: a list; rows in the order in which they were added."""

    def __init__(self):
        self.table = {}

    def add(self, row, launcher, value):
        if value is not None:
            self.table.setdefault(row, {}).setdefault(launcher.name, []).append(value)

    def of(self, row, name):
        return self.table.get(row, {}).get(name, [])

    def median(self, row, name):
        values = self.of(row, name)
        return statistics.median(values) if values else None

    def points(self):
        for row, by_name in self.table.items():
            for name, values in by_name.items():
                yield values, {"peer": name, "row": row}


def note(text):
    print(text, file=sys.stderr, flush=True)


def rotated(launchers, turn):
    return launchers[turn % len(launchers) :] + launchers[: turn % len(launchers)]


def measure_rows(bench, launchers, rows, runs, samples):
    for row in (row for row in rows if row in ROWS and row not in IDLE):
        for turn in range(runs):
            for launcher in rotated(launchers, turn):
                if math.inf not in samples.of(row, launcher.name):  # Once is enough.
                    samples.add(row, launcher, getattr(bench, row)(launcher))
        note(f"measured {row}")


def measure_idle(bench, launchers, rows, runs, samples):
    if not set(rows) & set(IDLE):
        return
    for _ in range(runs):
        for launcher, values in zip(launchers, bench.idle(launchers)):
            for row in IDLE:
                samples.add(row, launcher, values[row] * IDLE_SCALE[row])
    note("measured idling")


def measure_output(bench, launchers, rows, runs, samples):
    for row in (row for row in rows if row in OUTPUT):
        _, sink, tee = OUTPUT[row]
        for turn in range(runs):
            for launcher in rotated(launchers, turn):
                result = bench.throughput(launcher, sink, tee) or {}
                for name, value in result.items():
                    samples.add(f"{row} {name}", launcher, value)
        note(f"measured {row}")


def cell(values):
    if not values:
        return "–"
    if math.inf in values:
        return "does not end"
    digits = 2 if max(values) < 10 else 1 if max(values) < 100 else 0
    texts = [f"{value:.{digits}f}" for value in (statistics.median(values), min(values), max(values))]
    return f"{texts[0]} ({texts[1]}–{texts[2]})"


def print_table(samples, launchers, rows, runs):
    names = [launcher.name for launcher in launchers]
    print(f"| median of {runs} (min–max) | unit | {' | '.join(names)} | wanted |")
    print(f"| --- | --- | {' | '.join('---' for _ in names)} | --- |")
    for row in rows:
        if row in ROWS:
            title, unit, wanted = ROWS[row]
            print_row(title, unit, [cell(samples.of(row, name)) for name in names], wanted)
        else:
            title = OUTPUT[row][0]
            print_row(title, "MB/s", [cell(samples.of(f"{row} rate", name)) for name in names], "at least 300")
            broken = [cell_of_broken(samples, row, name) for name in names]
            print_row("lines torn + lost, worst run", "", broken, "none")


def cell_of_broken(samples, row, name):
    torn, lost = samples.of(f"{row} torn", name), samples.of(f"{row} lost", name)
    return f"{max(torn)} + {max(lost)}" if torn else "–"


def print_row(title, unit, cells, wanted):
    print(f"| {title} | {unit} | {' | '.join(cells)} | {wanted} |")


def complaints(samples, launchers, rows):
    """Returns what is wrong on any machine: muster not first, or lines torn or lost."""
    names = [launcher.name for launcher in launchers]
    if "muster" not in names:
        return
    for row in ("start_to_end", "start_to_main", "death_to_replacement", "two_hundred"):
        mine = samples.median(row, "muster")
        for other in names:
            theirs = samples.median(row, other)
            if None not in (mine, theirs) and mine > theirs:
                yield f"{row}: muster's {mine:.1f} ms is not before {other}'s {theirs:.1f} ms"
    for row in (row for row in rows if row in OUTPUT):
        for fault in ("torn", "lost", "disordered"):
            if any(samples.of(f"{row} {fault}", "muster")):
                yield f"{row}: muster has {max(samples.of(f'{row} {fault}', 'muster'))} lines {fault}"


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="3 small runs")
    parser.add_argument("--runs", type=int, help="runs of each (default 9)")
    parser.add_argument("--only", default="", help="comma list of rows: " + ", ".join([*ROWS, *OUTPUT]))
    parser.add_argument("--launchers", default="muster,torchrun,mpirun")
    parser.add_argument("--json", metavar="FILE", help="where medians and spreads go, for plots.py")
    options = parser.parse_args()
    options.runs = options.runs or (3 if options.quick else 9)
    options.rows = [row for row in options.only.split(",") if row] or [*ROWS, *OUTPUT]
    unknown = set(options.rows) - set(ROWS) - set(OUTPUT)
    if unknown:
        parser.error(f"--only has unknown rows: {', '.join(sorted(unknown))}")
    return options


def main():
    options = parse_options()
    launchers = launching.find(options.launchers.split(","))
    samples, began, stolen = Samples(), time.monotonic(), stolen_and_total()
    with tempfile.TemporaryDirectory(prefix="bench_") as folder:
        bench = measures.Bench(launching.build_worker(pathlib.Path(folder)), options.quick)
        measure_rows(bench, launchers, options.rows, options.runs, samples)
        measure_idle(bench, launchers, options.rows, options.runs, samples)
        measure_output(bench, launchers, options.rows, options.runs, samples)
    steal = [now - then for now, then in zip(stolen_and_total(), stolen)]
    print(f"Machine: {machine()}; {100 * steal[0] / max(steal[1], 1):.0f} % of its time stolen by the host.")
    print(f"Launchers: {'; '.join(map(version_of, launchers))}.")
    print(f"Output: {bench.megabytes} MB a worker. Idle: windows of {bench.idle_seconds} s. ", end="")
    print(f"Taken in {time.monotonic() - began:.0f} s.\n")
    print_table(samples, launchers, options.rows, options.runs)
    if options.json:
        results.store(options.json, machine(), options.runs, samples.points())
    wrong = list(complaints(samples, launchers, options.rows))
    for line in wrong:
        print(f"FAIL: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
