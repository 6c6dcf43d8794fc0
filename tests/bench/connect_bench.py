#!/usr/bin/env python3
"""Measures the cost of the store's check of each connection's user: 1,000 clients that connect and are answered, compared
with the same job without the check (--store-allow any), in turns. First from the store's machine, whose kernel is asked,
then from another node, whose agent is asked. Prints a line of each for docs/benchmarks.md.

    MUSTER=build/release/muster tests/bench/connect_bench.py [--quick]

Fails if the check takes more than 1.2 times as long (with --quick, which has too few turns for that, twice). The other node
is a network namespace, which needs root.
"""

import json
import os
import resource
import socket
import statistics
import subprocess
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "live"))
import netns  # noqa: E402
from waiting import pause  # noqa: E402

CLIENTS = 1000
RUNS, LIMIT = 31, 1.2
RUNS_QUICK, LIMIT_QUICK = 5, 2
CHECKED, UNCHECKED = (), ("--store-allow", "any")
# A worker that only prints its store's port.
WORKER = ("--no-python", "sh", "-c", "echo $MASTER_PORT; exec sleep 600")
CLIENT = "--client"  # Starts the other node's part.
# VALIDATE and a PING of 4 bytes, and its answer: the protocol of PyTorch's TCPStore.
HELLO, ANSWER = b"\0\xce\xf7\x85\x3c\x0decho", b"echo"
LONGEST_ANSWER_S = 20


def connect_all(address, port):
    """Returns the seconds until all are answered."""
    begun = time.perf_counter()
    clients = []
    for _ in range(CLIENTS):
        clients.append(socket.create_connection((address, port), LONGEST_ANSWER_S))
        clients[-1].sendall(HELLO)
    for client in clients:
        if client.recv(len(ANSWER)) != ANSWER:
            sys.exit("connect_bench: a client got another answer")
    took = time.perf_counter() - begun
    for client in clients:
        client.close()
    pause(0.1, "for the store, which does not show what it has seen")
    return took


def measure(address, ports, runs):
    """Returns a row of seconds, one for each port, for each of the runs."""
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    for port in ports:
        connect_all(address, port)
    rows = []
    for run in range(runs):
        first = run % 2
        times = {port: connect_all(address, port) for port in (ports[first], ports[1 - first])}
        rows.append([times[port] for port in ports])
    return rows


def of_own_machine(runs):
    jobs = [subprocess.Popen([os.environ["MUSTER"], *flags, *WORKER], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
            for flags in (CHECKED, UNCHECKED)]
    try:
        return measure("127.0.0.1", [int(job.stdout.readline()) for job in jobs], runs)
    finally:
        for job in jobs:
            job.terminate()
            job.wait()


def of_another_node(runs):
    with netns.Cluster(2) as cluster:
        # Reuses the ports of earlier runs, as loopback does.
        cluster.output(2, ["sh", "-c", "echo 1 >/proc/sys/net/ipv4/tcp_tw_reuse"])
        hosts = []
        for port, flags in ((29400, CHECKED), (29401, UNCHECKED)):
            job = [os.environ["MUSTER"], "--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"node1:{port}", *flags, *WORKER]
            hosts.append(cluster.run(1, job, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True))
            cluster.run(2, job, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
        ports = [host.stdout.readline().strip() for host in hosts]
        return json.loads(cluster.output(2, [sys.executable, __file__, CLIENT, "node1", *ports, str(runs)], limit_s=240))


def report(where, rows, limit):
    """Returns True if the ratio is within the limit."""
    ratios = sorted(checked / unchecked for checked, unchecked in rows)
    ratio = statistics.median(ratios)
    checked, unchecked = (1e3 * statistics.median(column) for column in zip(*rows))
    print(f"{CLIENTS} clients of {where} connect and are answered: {checked:.1f} ms, unchecked {unchecked:.1f} ms, "
          f"ratio {ratio:.3f} ({ratios[0]:.3f} to {ratios[-1]:.3f} in {len(rows)} pairs)", flush=True)
    return ratio <= limit


def main():
    if sys.argv[1:2] == [CLIENT]:
        address, *numbers = sys.argv[2:]
        *ports, runs = map(int, numbers)
        print(json.dumps(measure(address, ports, runs)))
        return 0
    runs, limit = (RUNS_QUICK, LIMIT_QUICK) if "--quick" in sys.argv else (RUNS, LIMIT)
    fine = report("its own machine", of_own_machine(runs), limit)
    why = netns.missing()
    if why:
        print(f"SKIPPED: clients of another node: {why}")
    else:
        fine = report("another node", of_another_node(runs), limit) and fine
    return 0 if fine else 1


if __name__ == "__main__":
    sys.exit(main())
