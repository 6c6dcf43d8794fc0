"""What tests of jobs over network namespaces share: launchers on machines of their own."""
import os
import signal
import subprocess
import sys
import tempfile

import netns
from harness import MUSTER, Job, is_gone, require_muster, run_tests, say, wait_for
from nodes_harness import NodesTest, Start

PORT = 29400
# Like the workers of nodes_harness.py. A worker asks the store at MASTER_ADDR for an echo (TCPStore's VALIDATE and PING),
# as every real worker would, before it reports that it started.
WORKER = """#!/bin/bash
    reached=no
    if exec 3<>"/dev/tcp/$MASTER_ADDR/$MASTER_PORT"; then
      printf '\\x00\\xce\\xf7\\x85\\x3c\\x0decho' >&3
      read -t 10 -r -N 4 answer <&3 && [ "$answer" = echo ] && reached=yes
    fi
    echo "$RANK $LOCAL_RANK $WORLD_SIZE $LOCAL_WORLD_SIZE $GROUP_RANK $GROUP_WORLD_SIZE $TORCHELASTIC_RESTART_COUNT" \\
         "$MASTER_ADDR $MASTER_PORT $(hostname) $EPOCHREALTIME $$ $reached" \\
         "${{GLOO_SOCKET_IFNAME:-unset}} ${{NCCL_SOCKET_IFNAME:-unset}}" >>{log}
    while true; do
      for order in {folder}/do.$(hostname).$LOCAL_RANK {folder}/do; do
        if [ -e $order ]; then
          case $(cat $order) in
            done) exit 0 ;;
          esac
        fi
      done
      read -t 0.05 <>{fifo}
    done
    # {marker}
"""


class NodeStart(Start):
    """One line of a worker: its environment, its start time, its process, and whether the store answered it."""

    def __init__(self, line):
        super().__init__(line)
        words = line.split(" ")
        self.at, self.pid, self.reached = float(words[10]), int(words[11]), words[12] == "yes"
        self.gloo, self.nccl = words[13:15]


class NodeJob(Job):
    """A launcher on node i of a cluster."""

    def __init__(self, cluster, i, args, launcher=(MUSTER,)):
        self.out = tempfile.TemporaryFile()
        self.err = tempfile.TemporaryFile()
        self.name, self.node = cluster.name(i), i
        self.process = cluster.run(i, [*launcher, *args], stdin=subprocess.DEVNULL, stdout=self.out, stderr=self.err)
        self.pid = self.process.pid


class NetnsTest(NodesTest):
    """Sets self.cluster in make()."""

    def setUp(self):
        super().setUp()
        self.port = PORT
        self.worker = self.write(f"w-{self.marker}.sh", WORKER.format(
            log=self.path("log"), folder=self.folder.name, fifo=self.path("fifo"), marker=self.marker))

    def make(self, n, **options):
        cluster = netns.Cluster(n, **options)
        cluster.__enter__()
        self.addCleanup(cluster.down)
        self.cluster = cluster
        return cluster

    def start(self, i, *flags, program=None):
        job = NodeJob(self.cluster, i, [*map(str, flags), *(program or ["--no-python", self.worker])])
        self.jobs.append(job)
        return job

    def c10d(self, i, nodes, *flags, endpoint="node1", program=None):
        return self.start(i, "--nnodes", nodes, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"{endpoint}:{PORT}",
                          "--rdzv-id", "job", *flags, program=program)

    def static(self, i, nodes, *flags, master="node1", program=None):
        return self.start(i, "--nnodes", nodes, "--node-rank", i - 1, "--master-addr", master, "--master-port", PORT,
                          *flags, program=program)

    def starts(self):
        return [NodeStart(line) for line in self.read("log").splitlines()]

    def world(self, at, nodes, world, limit_s=60.0):
        """Returns the workers that started after the first `at`: one whole world, each with a store that answers."""
        starts = self.wait_starts(at + world, limit_s)[at:]
        self.assert_world(starts, nodes, world)
        self.assertTrue(all(s.reached for s in starts), self.read("log"))
        return starts

    def whole_world(self, nodes, limit_s=60.0):
        """Returns the workers once all nodes are in one round; nodes may join one by one."""
        def last():
            starts = self.starts()[-nodes:]
            whole = {s.world for s in starts} == {nodes} and {s.rank for s in starts} == set(range(nodes))
            return starts if whole and all(s.reached for s in starts) else None
        try:
            return wait_for(last, f"a round of all {nodes}", limit_s)
        except AssertionError as e:
            raise AssertionError(f"{e}\n{self.read('log')}\n{self.all_errors()}") from None

    def finish(self, jobs=None):
        self.end_well(*(jobs or self.jobs))
        if jobs is None:
            self.assert_nothing_left()

    def power_off(self, job):
        """Kills every process on the node. Its kernel stays and resets its connections, unless the node is cut."""
        listed = subprocess.run(["ip", "netns", "pids", self.cluster.namespace(job.node)], capture_output=True,
                                text=True, check=True).stdout
        for pid in listed.split():
            try:
                os.kill(int(pid), signal.SIGKILL)
            except ProcessLookupError:
                pass
        job.process.wait()
        self.jobs.remove(job)
        job.__exit__()

    def say_seconds(self, what, seconds):
        say(f"{what}: {seconds:.2f} s")

    def said(self, job, words, limit_s=60.0):
        """Waits until a launcher has printed `words`. Returns the whole line."""
        def line():
            return next((line for line in job.stderr().splitlines() if words in line), None)
        try:
            return wait_for(line, f"{job.name} says {words!r}", limit_s)
        except AssertionError as e:
            raise AssertionError(f"{e}\n{self.all_errors()}") from None

    def ask_store(self, i, address):
        """Returns what the job's store on the rendezvous port answers to node i: "echo" or "refused"."""
        return self.cluster.output(i, [sys.executable, "-c", ASK, address, PORT]).strip()

    def workers_gone(self, starts, limit_s=60.0):
        wait_for(lambda: all(is_gone(s.pid) for s in starts), "the workers are gone", limit_s)


# Asks a store for an echo: prints "echo", or "refused" if the store hangs up.
ASK = """
import socket, sys
with socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=20) as s:
    try:
        s.sendall(bytes.fromhex("00cef7853c0d") + b"echo")
        print(s.recv(4).decode() or "refused")
    except ConnectionError:
        print("refused")
"""


def main():
    require_muster()
    netns.require_netns()
    run_tests()
