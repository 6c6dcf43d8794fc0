#!/usr/bin/env python3
"""Measures how long after the SIGKILL of a rank the last of the other ranks of its node knows, if the rank holds memory, which
the kernel frees first: ranks of the worker library and PyTorch's on gloo, in turns. Prints a row of docs/benchmarks.md for each.

    MUSTER_WORKER_FAILURE_RANKS=build/release/tests/worker_failure_ranks MUSTER_TORCH_VENV=~/.cache/muster/torch \\
      tests/bench/death_bench.py [--runs N] [--gib GIB...]

Four ranks call all_reduce without a pause, and rank 1 is killed. No launcher is involved.
"""
import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "live"))
from ports import free_port  # noqa: E402
from waiting import pause, wait_for  # noqa: E402

RANKS, VICTIM = 4, 1
# Writes the lines of tests/live/programs/worker_failure_ranks.cc.
GLOO = """
import os, sys, time
import torch, torch.distributed as dist
rank = int(os.environ["RANK"])
held = bytearray(int(os.environ["HELD_MIB"]) << 20)
held[::4096] = b"1" * len(held[::4096])
def note(what):
    with open(sys.argv[1] + "/log", "a") as log:
        log.write(f"{what} {rank} 0 {time.monotonic_ns()} -\\n")
dist.init_process_group("gloo")
values = torch.ones(1000)
try:
    for step in range(1 << 40):
        dist.all_reduce(values, dist.ReduceOp.MAX)
        if step == 5:
            note("runs")
except RuntimeError:
    note("error")
os._exit(3)
"""


def events(folder, what):
    """Returns {rank: nanoseconds} of the lines of one kind."""
    path = f"{folder}/log"
    lines = open(path, encoding="utf-8").read().split("\n")[:-1] if os.path.exists(path) else []
    return {int(words[1]): int(words[3]) for words in map(str.split, lines) if words[0] == what}


def kill_one(command, gib):
    """Returns the milliseconds until the last rank knew, and until the killed one was over."""
    with tempfile.TemporaryDirectory() as folder:
        env = dict(os.environ, WORLD_SIZE=str(RANKS), LOCAL_WORLD_SIZE=str(RANKS), MASTER_ADDR="127.0.0.1", MASTER_PORT=str(free_port()))
        ranks = []
        for rank in range(RANKS):
            held = str(int(gib * 1024) if rank == VICTIM else 0)
            ranks.append(subprocess.Popen([*command, folder, "reduce", "1000"], stderr=subprocess.DEVNULL,
                                          env=dict(env, RANK=str(rank), LOCAL_RANK=str(rank), HELD_MIB=held)))
        try:
            wait_for(lambda: len(events(folder, "runs")) == RANKS, "all ranks run", 120)
            pause(0.2, "the ranks are in the midst of their calls")
            since = time.monotonic_ns()
            ranks[VICTIM].kill()
            ranks[VICTIM].wait()
            over = time.monotonic_ns()
            wait_for(lambda: len(events(folder, "error")) == RANKS - 1, "the other ranks know", 120)
            return (max(events(folder, "error").values()) - since) / 1e6, (over - since) / 1e6
        finally:
            for rank in ranks:
                rank.kill()
                rank.wait()


def cell(samples):
    return f"{statistics.median(samples):.1f} ({min(samples):.1f} to {max(samples):.1f})"


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--runs", type=int, default=9)
    options.add_argument("--gib", type=float, nargs="+", default=[0, 1, 4])
    options = options.parse_args()
    with tempfile.NamedTemporaryFile("w", suffix=".py") as gloo:
        gloo.write(GLOO)
        gloo.flush()
        commands = [[os.environ["MUSTER_WORKER_FAILURE_RANKS"]], [f"{os.environ['MUSTER_TORCH_VENV']}/bin/python", gloo.name]]
        print("| memory of the killed rank | the last rank knows, worker library, ms | PyTorch on gloo, ms | it is over, ms |")
        print("| --- | --- | --- | --- |")
        for gib in options.gib:
            rows = [[kill_one(command, gib) for command in commands] for _ in range(options.runs)]
            known = [[row[i][0] for row in rows] for i in range(len(commands))]
            over = [ended for row in rows for _, ended in row]
            print(f"| {gib:g} GiB | {cell(known[0])} | {cell(known[1])} | {cell(over)} |", flush=True)


if __name__ == "__main__":
    main()
