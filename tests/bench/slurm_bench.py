#!/usr/bin/env python3
"""Measures what muster adds to a step of Slurm: `srun -N16 muster true` and `srun -N16 true`, in turns, on a real Slurm of
16 nodes, each in a network namespace of this machine. Prints a line for docs/benchmarks.md. Needs root.

    MUSTER=build/release/muster tests/bench/slurm_bench.py [--quick]

Fails if it adds more than 0.2 s (with --quick, on 4 nodes and in too few turns for that, 2 s).
"""

import os
import statistics
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../live"))
import netns
import slurm

LIMIT_S = 0.2
LIMIT_QUICK_S = 2
TURNS = 15
TURNS_QUICK = 3


def seconds(cluster, nodes, *command):
    begun = time.perf_counter()
    code, _, err = cluster.run("srun", f"-N{nodes}", *command)
    took = time.perf_counter() - begun
    if code != 0:
        sys.exit(f"slurm_bench: {' '.join(command)}: {code}\n{err}")
    return took


def main():
    netns.require_netns()
    slurm.require_slurm()
    quick = "--quick" in sys.argv
    count = 4 if quick else 16
    commands = {"srun": ["true"], "muster": [os.path.abspath(os.environ["MUSTER"]), "--no-python", "true"]}
    times = {name: [] for name in commands}
    with tempfile.TemporaryDirectory() as folder, netns.Cluster(count) as nodes, slurm.Slurm(nodes, folder) as cluster:
        for turn in range(-1, TURNS_QUICK if quick else TURNS):
            for name in sorted(commands, reverse=turn % 2 == 1):
                took = seconds(cluster, count, *commands[name])
                if turn >= 0:  # The first turn has cold caches.
                    times[name].append(took)
    added = statistics.median(times["muster"]) - statistics.median(times["srun"])
    texts = [f"{statistics.median(t):.3f} s ({min(t):.3f} to {max(t):.3f})" for t in (times["srun"], times["muster"])]
    print(f"srun -N{count} true: {texts[0]}; with muster: {texts[1]}; it adds {added:.3f} s, medians of {len(times['srun'])} turns")
    return 1 if added > (LIMIT_QUICK_S if quick else LIMIT_S) else 0


if __name__ == "__main__":
    sys.exit(main())
