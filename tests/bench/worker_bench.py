"""Measures the worker library, PyTorch's gloo and Open MPI: time and bus bandwidth of each operation and size.

    MUSTER=build/release/muster MUSTER_TORCH_VENV=~/venv tests/bench/worker_bench.py --table worker_bench.txt

A sample is a tight loop of calls on preallocated buffers, after a warm-up and a barrier; its length is that of the slowest
rank. The ranks of all libraries live through the whole run and idle in a read() while it is another's turn. Each run visits
every cell, and in it each library in turn, so that changes in the machine's load affect all. Results are checked once per
cell. The layouts: 2 and 4 ranks on one node; the same in two network namespaces (TCP between them; needs root and
iproute2), there without Open MPI. "shared" is an all_reduce on memory of allocate_shared().

Sizes, bandwidths and columns are those of nccl-tests (PERFORMANCE.md): the size is that of a rank's larger buffer; bus
bandwidth is size / time times a factor for the operation. A size with less than a float32 for each rank is raised to that
(8 bytes to 16 on 4 ranks). send_recv is half a round trip between the first and the last rank; in isend_recv both send to
each other in messages of 1 KiB, which are all under way before the first is received. --quick is for automatic
checks: few and small runs without Open MPI, which pass by the order of the two alone.
"""

import argparse
import collections
import contextlib
import dataclasses
import math
import os
import re
import signal
import sys
import tempfile
import time

import results
from bench import machine, note, stolen_and_total
from worker_peers import PEERS, UNRECORDED, Failed, Job, build_mpi_bench, netns, versions
from worker_tables import PER_RANK, SHARED, Cell, complaints, print_summary, write_tables

OPERATIONS = ("barrier", "broadcast", "reduce", "all_reduce", "gather", "all_gather", "scatter", "reduce_scatter",
              "all_to_all", "send_recv", "isend_recv")
SIZES = (8, 64, 512, 4 << 10, 32 << 10, 256 << 10, 2 << 20, 16 << 20, 64 << 20)
FLOAT = 4
MESSAGES_MAX = 16 << 20  # The largest size of isend_recv: 16,384 messages, which take gloo 3 s.


def bytes_of(cell, ranks):
    """Returns whole elements, the same number for each rank if the operation works in blocks, and at least one."""
    unit = FLOAT * (ranks if cell.operation in PER_RANK else 1)
    return 0 if cell.operation == "barrier" else max(1, cell.size // unit) * unit


def fewest_calls(size):
    return 2 if size >= 1 << 20 else 10 if size >= 4096 else 50


class Series:
    """One library's column of the measurement in one layout."""

    def __init__(self, name, job, sample_us):
        self.name, self.job, self.sample_us = name, job, sample_us
        self.prefix = "shared_" if name == SHARED else ""
        self.guess_us = {}  # Estimated microseconds of a call, by cell, which set the number of calls in a sample.

    def does(self, cell):
        return self.name != SHARED or cell.operation == "all_reduce"

    def prepare(self, cell):
        """Checks the result, and estimates the time."""
        self.job.check(self.prefix + cell.operation, bytes_of(cell, self.job.ranks))
        calls = fewest_calls(cell.size)
        self.guess_us[cell] = self.time(cell, calls // 2, calls)

    def sample(self, cell):
        guess = self.guess_us[cell]
        calls = max(fewest_calls(cell.size), math.ceil(self.sample_us / guess))
        took = self.time(cell, max(1, calls // 5), calls)
        self.guess_us[cell] = math.sqrt(guess * took)  # Averages with earlier samples, so that a busy moment is damped.
        return took / 2 if cell.operation == "send_recv" else took

    def time(self, cell, warm_up, calls):
        return self.job.time(self.prefix + cell.operation, bytes_of(cell, self.job.ranks), warm_up, calls)


@contextlib.contextmanager
def started(layout, options):
    """Yields the layout's series, with their jobs running."""
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(netns.Cluster(2)) if layout.nodes > 1 else None
        series = []
        for peer in options.peers:
            if peer in ("Open MPI", UNRECORDED) and cluster:
                continue
            job = Job(peer, layout.ranks, max(options.sizes) + FLOAT * layout.ranks, options.mpi_bench, cluster)
            stack.callback(job.end)
            series.append(Series(peer, job, options.sample_us))
            if peer == "muster" and not cluster:
                series.append(Series(SHARED, job, options.sample_us))
        yield series


def measure_layout(layout, options, samples):
    began = time.monotonic()
    cells = [cell for cell in options.cells if cell.layout == layout]
    with started(layout, options) as series:
        for cell in cells:
            for one in series:
                if one.does(cell):
                    one.prepare(cell)
        note(f"{layout}: results are right, prepared in {time.monotonic() - began:.0f} s")
        for run in range(options.runs):
            for cell in cells:
                for place in range(len(series)):
                    one = series[(run + place) % len(series)]
                    if one.does(cell):
                        samples[cell, one.name].append(one.sample(cell))
            note(f"{layout}: run {run + 1} of {options.runs}, {time.monotonic() - began:.0f} s")


@dataclasses.dataclass(frozen=True)
class Layout:
    nodes: int
    ranks: int

    def __str__(self):
        return f"{'one node' if self.nodes == 1 else 'two nodes'}, {self.ranks} ranks"


def numbers(text):
    return [int(word) for word in text.split(",") if word]


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="3 short runs of barrier and all_reduce on one node")
    parser.add_argument("--runs", type=int, help="runs of each (default 9)")
    parser.add_argument("--only", default="", metavar="REGEX", help="operations, of " + ", ".join(OPERATIONS))
    parser.add_argument("--ranks", type=numbers, default=[2, 4], help="comma list (default 2,4)")
    parser.add_argument("--nodes", type=numbers, help="comma list of 1 and 2 (default both)")
    parser.add_argument("--sizes", type=numbers, help="comma list, in bytes")
    parser.add_argument("--peers", default=",".join(PEERS), help=f"comma list (default %(default)s); {UNRECORDED}: muster with "
                        "--no-recorder, for what recording costs")
    parser.add_argument("--table", metavar="FILE", help="where the full tables go (default: after the summary)")
    parser.add_argument("--json", metavar="FILE", help="where medians and spreads go, for plots.py")
    options = parser.parse_args()
    operations = [name for name in OPERATIONS if re.search(options.only, name)]
    if options.quick:
        operations = [name for name in operations if name in ("barrier", "all_reduce")]
        options.peers = "muster,gloo"
    options.peers = [peer for peer in (*PEERS, UNRECORDED) if peer in options.peers.split(",")]
    options.sizes = options.sizes or ([8, 4 << 10, 2 << 20] if options.quick else list(SIZES))
    nodes = options.nodes or ([1] if options.quick else [1, 2])
    options.runs = options.runs or (3 if options.quick else 9)
    options.sample_us = 5e3 if options.quick else 20e3
    options.layouts = [Layout(n, ranks) for n in nodes for ranks in options.ranks]
    options.cells = [Cell(layout, name, size) for layout in options.layouts for name in operations
                     for size in ([0] if name == "barrier" else options.sizes)
                     if name != "isend_recv" or size <= MESSAGES_MAX]
    if not options.cells or "muster" not in options.peers:
        parser.error("this leaves nothing to measure")
    if 2 in nodes and netns.missing():
        parser.error(f"{netns.missing()}: choose --nodes 1")
    return options


def measure(options):
    """Returns {(cell, series' name): microseconds of each run}."""
    samples = collections.defaultdict(list)
    with tempfile.TemporaryDirectory(prefix="worker_bench_") as folder:
        options.mpi_bench = build_mpi_bench(folder) if "Open MPI" in options.peers else None
        for layout in options.layouts:
            measure_layout(layout, options, samples)
    return samples


def points(samples):
    for (cell, name), values in samples.items():
        yield values, {"peer": name, "operation": cell.operation, "nodes": cell.layout.nodes,
                       "ranks": cell.layout.ranks, "bytes": cell.size}


def main():
    options = parse_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # Ends the started jobs too.
    began, stolen = time.monotonic(), stolen_and_total()
    try:
        samples = measure(options)
    except Failed as why:
        print(f"FAIL: {why}")
        return 1
    steal = [now - then for now, then in zip(stolen_and_total(), stolen)]
    print(f"Machine: {machine()}; {100 * steal[0] / max(steal[1], 1):.0f} % of its time stolen by the host; "
          f"load {os.getloadavg()[0]:.1f} at the end.")
    peers = {name for _, name in samples}
    print(f"Beside {versions(peers)}. float32, sums, root 0; {options.runs} runs of "
          f"{options.sample_us / 1e3:.0f} ms, medians. Taken in {time.monotonic() - began:.0f} s.\n")
    print_summary(options.cells, samples)
    if options.table:
        with open(options.table, "w") as file:
            write_tables(options.cells, samples, bytes_of, file)
    elif not options.quick:
        print("\n```")
        write_tables(options.cells, samples, bytes_of, sys.stdout)
        print("```")
    if options.json:
        results.store(options.json, machine(), options.runs, points(samples))
    wrong = list(complaints(options.cells, samples))
    for line in wrong:
        print(f"FAIL: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
