#!/usr/bin/env python3
"""What it costs that the workers' store asks the kernel whose each connection is: 1,000 clients that connect and are
answered, beside the same job without the check (--store-allow any), in turns; prints a line for docs/benchmarks.md.

    MUSTER=build/release/muster tests/bench/connect_bench.py [--quick]

Fails if it takes more than 1.2 times as long (with --quick, which has too few turns for that, twice).
"""

import os
import resource
import socket
import statistics
import subprocess
import sys
import time

CLIENTS = 1000
RUNS = 31
RUNS_QUICK = 5
# VALIDATE and a PING of 4 bytes, and its answer: the protocol of PyTorch's TCPStore.
HELLO, ANSWER = b"\0\xce\xf7\x85\x3c\x0decho", b"echo"
LONGEST_ANSWER_S = 20


def start(*flags):
    """A job of one worker that does nothing, and the port of its store."""
    job = subprocess.Popen([os.environ["MUSTER"], *flags, "--no-python", "sh", "-c", "echo $MASTER_PORT; exec sleep 600"],
                           stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
    return job, int(job.stdout.readline())


def connect_all(port):
    """Seconds until all are answered."""
    begun = time.perf_counter()
    clients = []
    for _ in range(CLIENTS):
        clients.append(socket.create_connection(("127.0.0.1", port), LONGEST_ANSWER_S))
        clients[-1].sendall(HELLO)
    for client in clients:
        if client.recv(len(ANSWER)) != ANSWER:
            sys.exit("connect_bench: a client got another answer")
    took = time.perf_counter() - begun
    for client in clients:
        client.close()
    time.sleep(0.1)  # Until the store has seen that.
    return took


def main():
    quick = "--quick" in sys.argv
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    jobs = [start(), start("--store-allow", "any")]
    try:
        ports = [port for _, port in jobs]
        for port in ports:
            connect_all(port)
        pairs = []
        for run in range(RUNS_QUICK if quick else RUNS):
            first = run % 2
            times = {port: connect_all(port) for port in (ports[first], ports[1 - first])}
            pairs.append([times[port] for port in ports])
    finally:
        for job, _ in jobs:
            job.terminate()
            job.wait()
    ratios = sorted(checked / unchecked for checked, unchecked in pairs)
    ratio = statistics.median(ratios)
    checked, unchecked = (1e3 * statistics.median(column) for column in zip(*pairs))
    print(f"{CLIENTS} clients connect and are answered: {checked:.1f} ms, unchecked {unchecked:.1f} ms, "
          f"ratio {ratio:.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f} in {len(pairs)} pairs)")
    return 1 if ratio > (2 if quick else 1.2) else 0


if __name__ == "__main__":
    sys.exit(main())
