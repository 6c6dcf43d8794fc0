"""Measures how fast N agents meet, with muster and with torch's c10d rendezvous, and prints a Markdown table.

    MUSTER_RENDEZVOUS_AGENTS=build/release/tests/rendezvous_agents MUSTER_TORCH_VENV=~/venv \\
        tests/bench/rendezvous_bench.py

Real processes and sockets on loopback; no workers are started. All agents run before they are released together; a sample
lasts from the release until the last one knows its rank. torch's agents are forked from one process that has imported
torch, which is not counted; once released each makes its rendezvous handler and calls next_rendezvous, as torchrun does.
torch's store looks up the name of each client while it serves no other; that time depends on the name server, so a second
column leaves it out (store_no_names.cc). Runs are interleaved, so that changes in the machine's load affect all; a cell is
the median and, in brackets, the smallest and the largest sample.

--quick is for automatic checks: one small size, few runs, and wide margins, without the second column.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import results
from bench import machine, note, stolen_and_total
from store_bench import program

HERE = pathlib.Path(__file__).resolve().parent
SIZES = (2, 16, 64, 128)
ALONE = 1000  # torch needs minutes for that many.
PATIENCE_S = 600
PEERS = ("torch", "torch, no look-ups")
WANTED = {128: 50}  # times faster
LEAST = {2: 5, 16: 10, 64: 20, 128: 50}  # The same on any machine, however busy.
ALONE_MS = 3000


class TorchAgents:
    """The process that has imported torch; see rendezvous_torch.py."""

    def __init__(self, preload):
        command = [program("MUSTER_TORCH_VENV", "/bin/python"), str(HERE / "rendezvous_torch.py")]
        environment = os.environ | {"LD_PRELOAD": preload, "TORCH_CPP_LOG_LEVEL": "ERROR", "OMP_NUM_THREADS": "1"}
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )
        if self.process.stdout.readline() != "ready\n":
            sys.exit("torch's agents did not start")

    def milliseconds(self, agents):
        print(agents, file=self.process.stdin, flush=True)
        line = self.process.stdout.readline()
        if not line:
            sys.exit(f"{agents} agents of torch did not meet")
        return float(line)

    def end(self):
        self.process.stdin.close()
        self.process.wait()


def build_no_names(folder):
    library = folder / "no_names.so"
    source = str(HERE / "store_no_names.cc")
    subprocess.run(["g++", "-std=c++20", "-O2", "-shared", "-fPIC", source, "-o", str(library)], check=True)
    return str(library)


def muster_milliseconds(agents):
    command = [program("MUSTER_RENDEZVOUS_AGENTS"), "--processes", "--agents", str(agents), "--rounds", "1"]
    done = subprocess.run(command, stdout=subprocess.PIPE, timeout=PATIENCE_S, check=True)
    return json.loads(done.stdout)["median_ms"]


def measure(calls, sizes, runs):
    """`calls`: a function for each name."""
    samples, names = {}, [*calls]
    for agents in sizes:
        for turn in range(runs):
            first = turn % len(names)
            for name in names[first:] + names[:first]:
                samples.setdefault((agents, name), []).append(calls[name](agents))
        note(f"measured {agents} agents")
    return samples


def cell(values):
    digits = 1 if max(values) < 1000 else 0
    return "{:,.{d}f} ({:,.{d}f}–{:,.{d}f})".format(statistics.median(values), min(values), max(values), d=digits)


def times(samples, agents, name):
    return statistics.median(samples[agents, name]) / statistics.median(samples[agents, "muster"])


def print_table(samples, sizes, alone, runs):
    peers = [name for name in PEERS if (sizes[0], name) in samples]
    titles = (f"agents, ms, median of {runs} (min–max)", *peers, "muster", *("times faster", "times, no look-ups")[:len(peers)],
              "wanted")
    print(f"| {' | '.join(titles)} |")
    print(f"| {' | '.join('---' for _ in titles)} |")
    for agents in sizes:
        cells = [cell(samples[agents, name]) for name in (*peers, "muster")]
        ratios = [f"{times(samples, agents, name):,.0f}" for name in peers]
        wanted = f"{WANTED[agents]} ×" if agents in WANTED else ""
        print(f"| {' | '.join([str(agents), *cells, *ratios, wanted])} |")
    if alone:
        print(f"| {ALONE:,} | – | – | {cell(alone)} | – | – | under {ALONE_MS:,} ms |")


def points(samples, alone):
    found = [(values, {"peer": name, "agents": agents}) for (agents, name), values in samples.items()]
    return [*found, (alone, {"peer": "muster", "agents": ALONE})]


def complaints(samples, sizes, alone):
    for agents in sizes:
        ratio, least = times(samples, agents, "torch"), LEAST.get(agents, 1)
        if ratio < least:
            yield f"{agents} agents: {ratio:.1f} times as fast as torch, at least {least} was expected"
    if alone and statistics.median(alone) > ALONE_MS:
        yield f"{ALONE} agents need {statistics.median(alone):.0f} ms"


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="3 runs of 16 agents")
    parser.add_argument("--runs", type=int, help="runs of each (default 9)")
    parser.add_argument("--sizes", default="", help="comma list of numbers of agents")
    parser.add_argument("--json", metavar="FILE", help="where medians and spreads go, for plots.py")
    options = parser.parse_args()
    options.runs = options.runs or (3 if options.quick else 9)
    options.sizes = [int(size) for size in options.sizes.split(",") if size] or ([16] if options.quick else SIZES)
    return options


def main():
    options = parse_options()
    began, stolen = time.monotonic(), stolen_and_total()
    with tempfile.TemporaryDirectory(prefix="rendezvous_bench_") as folder:
        torch = {PEERS[0]: TorchAgents("")}
        if not options.quick:
            torch[PEERS[1]] = TorchAgents(build_no_names(pathlib.Path(folder)))
        try:
            calls = {name: agents.milliseconds for name, agents in torch.items()} | {"muster": muster_milliseconds}
            samples = measure(calls, options.sizes, options.runs)
        finally:
            for agents in torch.values():
                agents.end()
    alone = [] if options.quick else [muster_milliseconds(ALONE) for _ in range(options.runs)]
    steal = [now - then for now, then in zip(stolen_and_total(), stolen)]
    print(f"Machine: {machine()}; {100 * steal[0] / max(steal[1], 1):.0f} % of its time stolen by the host.")
    print(f"One process for each agent, loopback. Taken in {time.monotonic() - began:.0f} s.\n")
    print_table(samples, options.sizes, alone, options.runs)
    if options.json:
        results.store(options.json, machine(), options.runs, points(samples, alone))
    wrong = list(complaints(samples, options.sizes, alone))
    for line in wrong:
        print(f"FAIL: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
