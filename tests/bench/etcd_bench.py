#!/usr/bin/env python3
"""Measures how long N agents need to meet through a real etcd of three members, from a common release until the last one
has its rank, and how many revisions that costs etcd. Prints a Markdown table.

    MUSTER_ETCD=~/.cache/muster/etcd MUSTER_RENDEZVOUS_AGENTS=build/release/tests/rendezvous_agents tests/bench/etcd_bench.py

--quick: ten agents, one turn. As root all of it runs in a network namespace that keeps no TIME-WAIT: the connections of
eight turns take all ports of a machine, while each of a thousand real nodes has its own."""
import json
import os
import statistics
import subprocess
import sys
import tempfile

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "live"))
import etcd  # noqa: E402
import netns  # noqa: E402

SIZES, TURNS = (10, 100, 1000), 9
INSIDE = "--inside"
NAMESPACE = 'ip link set lo up && echo 0 >/proc/sys/net/ipv4/tcp_max_tw_buckets && exec "$@"'


def main():
    etcd.require_etcd()
    if INSIDE not in sys.argv:
        why = netns.missing()
        if not why:
            os.execvp("unshare", ["unshare", "--net", "sh", "-c", NAMESPACE, "sh", sys.executable, *sys.argv, INSIDE])
        print(f"In the machine's own network, where ports may run out: {why}", file=sys.stderr)
    quick = "--quick" in sys.argv
    print("| agents | until the last one has its rank, ms | revisions a job of one round |\n| ---: | ---: | ---: |")
    with tempfile.TemporaryDirectory() as folder, etcd.Etcd(folder, members=3) as cluster:
        for agents in SIZES[:1] if quick else SIZES:
            times, revisions = [], []
            for _ in range(1 if quick else TURNS):
                before = cluster.revision()
                ran = subprocess.run([os.environ["MUSTER_RENDEZVOUS_AGENTS"], "--agents", str(agents), "--rounds", "1", "--etcd",
                                      cluster.endpoint], stdout=subprocess.PIPE, text=True, check=True)
                times.append(json.loads(ran.stdout)["median_ms"])
                revisions.append(cluster.revision() - before)
            print(f"| {agents} | {statistics.median(times):.0f} ({min(times):.0f}–{max(times):.0f}) | "
                  f"{statistics.median(revisions):.0f} ({min(revisions)}–{max(revisions)}) |", flush=True)
            if max(revisions) > 10:
                sys.exit("a round costs etcd more than ten revisions")


if __name__ == "__main__":
    main()
