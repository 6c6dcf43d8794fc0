"""Measures muster's store and PyTorch's own server and prints a Markdown table.

    MUSTER_STORE_HOST=build/release/tests/store_host MUSTER_TORCH_VENV=~/venv tests/bench/store_bench.py

One load generator (store_load.cc, built here) loads both in turn, so that changes in the machine's load affect both; a
cell is the median and, in brackets, the smallest and the largest sample. "times" says how much better muster is.
--quick is for automatic checks: few and small runs, which pass by the order of the two alone, with wide margins.

PyTorch's server looks up the name of each client while it serves no other. All rows leave that out (see
store_no_names.cc): with a slow name server its figures for arriving clients are worse without bound.
"""

import argparse
import dataclasses
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

from bench import machine, note, stolen_and_total

HERE = pathlib.Path(__file__).resolve().parent
FLAGS = ("-std=c++20", "-O2", "-pthread", f"-I{HERE.parents[1]}")
NAMES = ("PyTorch", "muster")
PATIENCE = 300  # seconds for one sample

TORCH_SERVER = """
import sys
from torch.distributed import TCPStore
store = TCPStore("127.0.0.1", 0, None, is_master=True, wait_for_workers=False)
print(store.port, flush=True)
sys.stdin.read()
"""


@dataclasses.dataclass(frozen=True)
class Row:
    title: str
    unit: str
    load: str  # Arguments of store_load.
    field: str  # The figure of its answer.
    wanted: str = ""
    least: float = 0  # How many times better muster must be on any machine, however busy.
    higher_is_better: bool = False
    quick: str = ""  # Arguments that --quick uses instead.
    fresh: bool = False  # Needs servers that have served no client yet.


def single(op, least=0.6, wanted="no more"):
    return Row(f"CPU of one `{op}`, 64 connections", "µs", f"closed --op {op} -c 64 -s 1", "cpu_us", wanted, least)


def pipelined(op, depth):
    load = f"pipelined --op {op} -c 1 --depth {depth} -s 1"
    return Row(f"`{op}`, {depth} in one write", "1/s", load, "rate", "10 ×", 2, higher_is_better=True)


def sized(op, size, title):
    load = f"closed --op {op} -c 1 -s 1 --bytes {size}"
    return Row(f"CPU of `{op}` of {title}", "µs", load, "cpu_us", "", 0.5)


ROWS = {
    "ping": single("ping"),
    "set": single("set"),
    "get": single("get"),
    "add": single("add"),
    "check": single("check"),
    "wait": single("wait"),
    "cas": single("cas"),
    "torch_get": single("torch_get"),
    "setget": single("setget"),
    "latency": Row("`add`, 1 connection, median", "µs", "closed --op add -c 1 -s 1", "p50_us"),
    "rate": Row("`add`, 64 connections", "1/s", "closed --op add -c 64 -s 1", "rate", "", 0.5, higher_is_better=True),
    "ping_16": pipelined("ping", 16),
    "add_16": pipelined("add", 16),
    "ping_256": pipelined("ping", 256),
    "add_256": pipelined("add", 256),
    "get_256": pipelined("get", 256),
    "multi_set": Row("MULTI_SET of 20,000 pairs", "ms", "multi_set --count 20000", "ms", "50 ×", 10),
    "check_many": Row("CHECK of 131,072 keys", "ms", "check --count 131072", "ms", "50 ×", 5,
                      quick="check --count 50000"),
    "check_short": Row("CHECK of 131,072 short keys", "ms", "check --count 131072 --key /bench/k/", "ms", "50 ×", 5),
    "waiters": Row("SET to the last of 4,000 waiters", "ms", "waiters --count 4000 --rounds 3", "ms", "2 ×", 0.7),
    "idle": Row("memory of an idle connection, of 10,000", "bytes", "idle --count 10000", "bytes_each",
                "under 1,126", 1, fresh=True),
    "storm": Row("longest ping while 1,000 arrive", "ms", "storm --count 1000 --rounds 3", "ping_max_ms", "under 10"),
    "storm_worst": Row("the worst of all rounds", "ms", "storm --count 1000 --rounds 3", "ping_worst_ms"),
    "storm_calm": Row("longest ping while none arrives", "ms", "storm --count 1000 --rounds 3", "calm_max_ms"),
    "arrivals": Row("1,000 arrivals served", "ms", "storm --count 1000 --rounds 3", "served_ms"),
    "set_64k": sized("set", 65536, "64 KiB"),
    "get_64k": sized("get", 65536, "64 KiB"),
    "set_8m": sized("set", 8388608, "8 MiB"),
    "get_8m": sized("get", 8388608, "8 MiB"),
}
SMOKE = ("ping", "add", "add_256", "multi_set", "check_many", "waiters", "idle", "storm")


def build(folder):
    """Compiles the generator and the library that keeps name servers out. Returns their paths."""
    load, no_names = folder / "store_load", folder / "no_names.so"
    sources = [str(HERE / name) for name in ("store_load.cc", "store_wire.cc", "store_crowds.cc")]
    subprocess.run(["g++", *FLAGS, *sources, "-o", str(load)], check=True)
    shim = str(HERE / "store_no_names.cc")
    subprocess.run(["g++", *FLAGS, "-shared", "-fPIC", shim, "-o", str(no_names)], check=True)
    return str(load), str(no_names)


def program(variable, path=""):
    value = os.environ.get(variable, "")
    full = os.path.abspath(value + path) if value else ""
    if not os.access(full, os.X_OK):
        sys.exit(f"{variable} is {value!r}: set it as this program's first lines say")
    return full


class Server:
    """One server process. It ends at the end of its standard input or when terminated."""

    def __init__(self, name, no_names):
        if name == "muster":
            command, environment = [program("MUSTER_STORE_HOST")], {}
        else:
            # Not the link's target: an interpreter finds its virtual environment by the name that it is called by.
            command = [program("MUSTER_TORCH_VENV", "/bin/python"), "-c", TORCH_SERVER]
            environment = {"LD_PRELOAD": no_names, "TORCH_CPP_LOG_LEVEL": "ERROR"}
        self.name = name
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=os.environ | environment
        )
        line = self.process.stdout.readline().strip()
        if not line.isdigit():
            sys.exit(f"the server {name} did not print its port: {line!r}")
        self.port = int(line)

    def end(self):
        self.process.terminate()
        self.process.wait()


class Bench:
    def __init__(self, folder, quick):
        self.load, self.no_names = build(folder)
        self.quick = quick
        self.servers = {name: Server(name, self.no_names) for name in NAMES}
        self.runs = 0
        self.answers = {}  # Answers of the last calls: several rows may use figures of the same call.

    def call(self, load, server, turn):
        key = (load, server.name, turn)
        if key not in self.answers:
            self.runs += 1
            command = [self.load, *load.split(), "--port", str(server.port), "--server", str(server.process.pid)]
            done = subprocess.run(
                [*command, "--suffix", f"-{self.runs}-"], stdout=subprocess.PIPE, timeout=PATIENCE, check=True
            )
            self.answers[key] = json.loads(done.stdout)
        return self.answers[key]

    def sample(self, row, name, turn):
        load = (self.quick and row.quick) or row.load
        if self.quick:
            load = load.replace("-s 1", "-s 0.3")
        if not row.fresh:
            return self.call(load, self.servers[name], turn)[row.field]
        server = Server(name, self.no_names)
        try:
            return self.call(load, server, turn)[row.field]
        finally:
            server.end()

    def end(self):
        for server in self.servers.values():
            server.end()


def measure(bench, rows, runs):
    samples = {}
    for key in rows:
        for turn in range(runs):
            for name in NAMES if turn % 2 == 0 else reversed(NAMES):
                samples.setdefault((key, name), []).append(bench.sample(ROWS[key], name, turn))
        note(f"measured {key}")
    return samples


def times_better(row, samples, key):
    theirs, mine = (max(statistics.median(samples[key, name]), 1e-9) for name in NAMES)
    return mine / theirs if row.higher_is_better else theirs / mine


def cell(values):
    texts = []
    for value in (statistics.median(values), min(values), max(values)):
        texts.append(f"{value:,.2f}" if max(values) < 10 else f"{value:,.1f}" if max(values) < 100 else f"{value:,.0f}")
    return f"{texts[0]} ({texts[1]}–{texts[2]})"


def print_table(samples, rows, runs, quick):
    print(f"| median of {runs} (min–max) | unit | {' | '.join(NAMES)} | times | wanted |")
    print("| --- | --- | --- | --- | --- | --- |")
    for key in rows:
        row, cells = ROWS[key], [cell(samples[key, name]) for name in NAMES]
        title = f"{row.title} (here: {row.quick})" if quick and row.quick else row.title
        times = f"{times_better(row, samples, key):.1f}"
        print(f"| {' | '.join([title, row.unit, *cells, times, row.wanted])} |")


def complaints(samples, rows):
    for key in rows:
        row, times = ROWS[key], times_better(ROWS[key], samples, key)
        if times < row.least:
            yield f"{row.title}: muster is {times:.2f} times as good as PyTorch, at least {row.least:g} was expected"


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"3 small runs of {', '.join(SMOKE)}")
    parser.add_argument("--runs", type=int, help="runs of each (default 9)")
    parser.add_argument("--only", default="", help="comma list of rows: " + ", ".join(ROWS))
    options = parser.parse_args()
    options.runs = options.runs or (3 if options.quick else 9)
    options.rows = [row for row in options.only.split(",") if row] or list(SMOKE if options.quick else ROWS)
    if unknown := set(options.rows) - set(ROWS):
        parser.error(f"--only has unknown rows: {', '.join(sorted(unknown))}")
    return options


def main():
    options = parse_options()
    began, stolen = time.monotonic(), stolen_and_total()
    with tempfile.TemporaryDirectory(prefix="store_bench_") as folder:
        bench = Bench(pathlib.Path(folder), options.quick)
        try:
            samples = measure(bench, options.rows, options.runs)
        finally:
            bench.end()
    steal = [now - then for now, then in zip(stolen_and_total(), stolen)]
    print(f"Machine: {machine()}; {100 * steal[0] / max(steal[1], 1):.0f} % of its time stolen by the host.")
    print(f"Load: one thread, loopback. Taken in {time.monotonic() - began:.0f} s.\n")
    print_table(samples, options.rows, options.runs, options.quick)
    wrong = list(complaints(samples, options.rows))
    for line in wrong:
        print(f"FAIL: {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
