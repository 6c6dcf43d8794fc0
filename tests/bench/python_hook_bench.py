#!/usr/bin/env python3
"""Measures the cost of Python's hook: a start of Python without PyTorch, and an 8-byte all_reduce of gloo on one rank.

    MUSTER=... MUSTER_TORCH_VENV=... python_hook_bench.py [rounds]

With and without the hook in turns, on an idle machine; medians. An all_reduce stays on one core: it costs three times as
much as the hook if the kernel moves the calling thread and gloo's apart.
"""
import os
import resource
import statistics
import subprocess
import sys

MUSTER, PYTHON = os.environ["MUSTER"], os.path.join(os.environ["MUSTER_TORCH_VENV"], "bin", "python")
CALLS = """import os, statistics, time, torch, torch.distributed as dist
os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})
dist.init_process_group("gloo")
pair = torch.ones(2)
took = []
for _ in range(10000):
    began = time.perf_counter_ns()
    dist.all_reduce(pair)
    took.append(time.perf_counter_ns() - began)
print(statistics.median(took[1000:]) / 1e3)
dist.destroy_process_group()
"""
FLAGS = {"with": (), "without": ("--no-python-hook",)}


def call_us(flags):
    done = subprocess.run([MUSTER, *flags, "--python", PYTHON, "/dev/stdin"], input=CALLS, capture_output=True, text=True,
                          check=True)
    return float(done.stdout)


def start_ms(flags):
    """Returns the CPU time of a Python that a shell starts, so that it has the hook."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run([MUSTER, *flags, "--no-python", "sh", "-c", f"for i in $(seq 20); do {sys.executable} -c ''; done"], check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime) * 1e3 / 20


def main():
    rounds = int(sys.argv[1]) if len(sys.argv) > 1 else 5
    for what, unit, measure in ("a start of Python", "ms", start_ms), ("an all_reduce", "us", call_us):
        took = {name: [] for name in FLAGS}
        for _ in range(rounds):
            for name, flags in FLAGS.items():
                took[name].append(measure(flags))
        medians = {name: statistics.median(values) for name, values in took.items()}
        print(f"{what}: {medians['with']:.2f} {unit} with the hook, {medians['without']:.2f} without: "
              f"{medians['with'] - medians['without']:.2f} more", flush=True)


if __name__ == "__main__":
    main()
