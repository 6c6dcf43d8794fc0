#!/usr/bin/env python3
"""Compares two builds of muster, figure by figure, in pairs of runs that follow each other.

    tests/bench/paired.py OLD NEW     two build folders, each with the targets of ./dev bench; prints a Markdown table

A row is the median over all pairs of new / old, with an interval that holds the true median with 95 % (order statistics
of the binomial distribution: no assumption about the noise). Below 1 the new build is better in every row: rates are
inverted. The order within a pair changes from pair to pair. A row says "worse" if its whole interval is above
1 + --margin; then the exit status is 1. --smoke only tries the rows.
"""
import argparse
import contextlib
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

import store_bench
import worker_bench
from bench import machine, note
from launching import TORCH_FLAGS, Launcher, build_worker
from measures import Bench
from worker_peers import Job
from worker_tables import Cell

SAMPLE_US = 5e3
PAIRS_MIN = 6
STARTS = ("start_to_end", "start_to_main", "death_to_replacement", "stop", "two_hundred")
OUTPUTS = {"8 workers' lines to a file": ("file", False), "8 workers' lines to a pipe, with tee": ("pipe", True)}
STORES = ("ping", "set", "get", "add", "wait", "latency", "add_256", "get_256", "multi_set", "check_many", "waiters", "idle")
AGENTS = (16, 128)
CELLS = [(operation, size) for operation in ("all_reduce", "broadcast", "all_gather", "reduce_scatter", "send_recv")
         for size in (8, 4 << 10, 256 << 10, 16 << 20)] + [("barrier", 0)]


def interval(values, confidence=0.95):
    """Returns (low, high): the order statistics that hold the median of the distribution of `values`."""
    ordered, n = sorted(values), len(values)
    tail, k = 0.0, 0
    while k < n // 2 and tail + math.comb(n, k) / 2**n <= (1 - confidence) / 2:
        tail += math.comb(n, k) / 2**n
        k += 1
    return ordered[max(k - 1, 0)], ordered[n - max(k, 1)]


class Build:
    def __init__(self, folder):
        self.folder = os.path.abspath(folder)
        self.launcher = Launcher(self.path("muster"), (self.path("muster"),), **TORCH_FLAGS)

    def path(self, name):
        path = os.path.join(self.folder, name)
        if not os.access(path, os.X_OK):
            sys.exit(f"{path} is not there: build the targets of ./dev bench in both folders")
        return path

    @contextlib.contextmanager
    def variables(self, **paths):
        """Sets the variables with which the benchmark would have been called."""
        before = dict(os.environ)
        os.environ.update({name: self.path(path) for name, path in paths.items()})
        try:
            yield
        finally:
            os.environ.clear()
            os.environ.update(before)


def start_figures(stack, builds):
    folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="paired_")))
    bench = Bench(build_worker(folder), quick=False)
    for row in STARTS:
        yield f"{row.replace('_', ' ')}, ms", [lambda b=b, row=row: getattr(bench, row)(b.launcher) for b in builds]
    for title, (sink, tee) in OUTPUTS.items():
        yield title, [lambda b=b, sink=sink, tee=tee: 1 / bench.throughput(b.launcher, sink, tee)["rate"] for b in builds]


def store_figures(stack, builds):
    folder = pathlib.Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="paired_")))
    load, no_names = store_bench.build(folder)
    calls = 0

    def started(build):
        with build.variables(MUSTER_STORE_HOST="tests/store_host"):
            return store_bench.Server("muster", no_names)

    def sample(build, server, row):
        nonlocal calls
        calls += 1
        own = started(build) if row.fresh else server
        words = [load, *row.load.replace("-s 1", "-s 0.3").split(), "--port", str(own.port)]
        words += ["--server", str(own.process.pid), "--suffix", f"-{calls}-"]
        value = json.loads(subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout)[row.field]
        if row.fresh:
            own.end()
        return 1 / value if row.higher_is_better else value

    servers = [started(build) for build in builds]
    for server in servers:
        stack.callback(server.end)
    for key in STORES:
        row = store_bench.ROWS[key]
        yield f"store: {row.title}", [lambda b=b, s=s, row=row: sample(b, s, row) for b, s in zip(builds, servers)]


def rendezvous_figures(_, builds):
    def sample(build, agents):
        words = [build.path("tests/rendezvous_agents"), "--processes", "--agents", str(agents), "--rounds", "1"]
        return json.loads(subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout)["median_ms"]

    for agents in AGENTS:
        yield f"rendezvous of {agents} agents, ms", [lambda b=b, n=agents: sample(b, n) for b in builds]


def collective_figures(stack, builds):
    for ranks in (2, 4):
        layout = worker_bench.Layout(1, ranks)
        series = []
        for build in builds:
            with build.variables(MUSTER="muster", MUSTER_WORKER_BENCH="tests/worker_bench"):
                job = Job("muster", ranks, max(size for _, size in CELLS) + worker_bench.FLOAT * ranks)
            stack.callback(job.end)
            series.append(worker_bench.Series("muster", job, SAMPLE_US))
        for operation, size in CELLS:
            cell = Cell(layout, operation, size)
            for one in series:
                one.prepare(cell)
            yield f"{operation} of {size} B, {ranks} ranks", [lambda s=s, c=cell: s.sample(c) for s in series]


def ratios_of(old, new, pairs):
    """Returns new / old of each pair. A first pair warms up."""
    ratios = []
    for pair in range(-1, pairs):
        values = {}
        for which in ((old, new), (new, old))[pair % 2]:
            values[which] = which()
        if pair >= 0:
            ratios.append(values[new] / values[old])
    return ratios


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--pairs", type=int, default=30)
    parser.add_argument("--margin", type=float, default=0.05, help="how much worse is as before (default 0.05)")
    parser.add_argument("--smoke", action="store_true", help="one pair of each row; nothing is judged")
    parser.add_argument("--only", default="", metavar="REGEX", help="rows whose title has it")
    options = parser.parse_args()
    if options.smoke:
        options.pairs, options.margin = 1, math.inf
    elif options.pairs < PAIRS_MIN:
        parser.error(f"--pairs {options.pairs}: an interval of 95 % needs {PAIRS_MIN}")
    return options


def main():
    options = parse_options()
    builds = [Build(options.old), Build(options.new)]
    print(f"{options.pairs} pairs; {machine()}\n")
    print("| figure | new / old | 95 % interval | |\n| --- | --- | --- | --- |")
    worse = 0
    for figures in (start_figures, store_figures, rendezvous_figures, collective_figures):
        with contextlib.ExitStack() as stack:
            for title, (old, new) in figures(stack, builds):
                if not re.search(options.only, title):
                    continue
                ratios = ratios_of(old, new, options.pairs)
                low, high = interval(ratios)
                verdict = "worse" if low > 1 + options.margin else "better" if high < 1 / (1 + options.margin) else ""
                worse += verdict == "worse"
                print(f"| {title} | {statistics.median(ratios):.3f} | {low:.3f}–{high:.3f} | {verdict} |", flush=True)
                note(title)
    print(f"\n{worse} figures are worse")
    return 1 if worse else 0


if __name__ == "__main__":
    sys.exit(main())
