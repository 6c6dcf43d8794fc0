"""Hostile peers, wrong command lines and random kills, with jobs on several nodes.

    MUSTER=build/release/muster nodes_hostile_test.py     all from one seed: SEED=N repeats a run

Traffic to the port of a running job changes nothing for it, one line names each mistake of a user, and killed
processes leave nothing behind.
"""
import os
import random
import signal
import socket
import struct
import sys
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "store"))
import serving
from harness import children_of, long, main, pause, polling, wait_for, within
from nodes_harness import NodesTest
from ports import free_port, listeners
from relay import Relay

SEED = int(os.environ.get("SEED", "20240229"))
HOSTILE = 2000
STORM_S = 8
MIB = 1 << 20
# Ten times the measured figure, on a machine that is busy with other tests too.
LATENCY_S = 0.3
MEMORY_MAX = 1024 * MIB

# A worker that counts in the job's store again and again, and records the store's latency.
STORE_WORKER = """#!/usr/bin/env python3
import os, struct, sys, time
sys.path.insert(0, {store!r})
import serving
env = os.environ
with open({log!r}, "a") as log:
    print(*(env[name] for name in (
        "RANK", "LOCAL_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GROUP_WORLD_SIZE",
        "TORCHELASTIC_RESTART_COUNT", "MASTER_ADDR", "MASTER_PORT", "NODE")), file=log)
client = serving.RawClient(int(env["MASTER_PORT"]))
latencies, turns = open({folder!r} + "/latency." + env["RANK"], "a", buffering=1), 0
while not os.path.exists({folder!r} + "/do"):
    began, turns = time.monotonic(), turns + 1
    count = client.ask(serving.request(serving.ADD, b"/n" + env["RANK"].encode(), number=1), 8)
    assert struct.unpack("<q", count) == (turns,), count
    print(began, time.monotonic() - began, file=latencies)
    time.sleep(0.002)
# {marker}
"""


# What a hostile connection sends to the agent: its kind, and its bytes from a random generator and a recorded handshake.
SEAL_BYTES = 32


def wrong_seal(rng, hello, join):
    at = len(join) - 1 - rng.randrange(SEAL_BYTES)
    return hello + join[:at] + bytes([join[at] ^ 0x55]) + join[at + 1:]


def half_handshake(rng, hello, join):
    both = hello + join
    return both[:rng.randrange(1, len(both))]


def torn_handshake(rng, hello, join):
    both = bytearray(hello + join)
    for _ in range(rng.randrange(1, 20)):
        both[rng.randrange(4, len(both))] = rng.randrange(256)
    return bytes(both)


def huge_agent_frame(rng, hello, _):
    length = rng.choice((0, 8193, 1 << 20, (1 << 31) - 1, (1 << 32) - 1))
    return rng.choice((b"MSTR", hello)) + struct.pack("<I", length) + rng.randbytes(5000)


KINDS = {
    "huge agent frames": huge_agent_frame,
    "half handshakes": half_handshake,
    "torn handshakes": torn_handshake,
    "a Hello, then silence": lambda rng, hello, join: hello,
    "a wrong seal": wrong_seal,
    "replays": lambda rng, hello, join: hello + join,
    "probes": lambda rng, *_: b"MSPROBE1" + rng.randbytes(16),
    "half probes": lambda rng, *_: b"MSPROBE1"[:rng.randrange(1, 9)],
    "TLS": lambda rng, *_: bytes.fromhex("16030102000100") + rng.randbytes(500),
}


def rss_bytes(pid):
    with open(f"/proc/{pid}/status") as status:
        return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))


class HostileConnections(NodesTest):
    def setUp(self):
        super().setUp()
        self.worker = self.write(f"s-{self.marker}.py", STORE_WORKER.format(
            store=os.path.dirname(serving.__file__), log=self.path("log"), folder=self.folder.name, marker=self.marker))
        self.token = self.write("token", "opensesame\n", 0o600)

    def guarded(self, name, port, is_host):
        return self.node(name, "--nnodes", "2:3", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}",
                         "--rdzv-id", "job", "--rdzv-conf", f"last_call_timeout=1,is_host={is_host}",
                         "--rdzv-token-file", self.token)

    def latencies(self, began, ended):
        found = []
        for rank in (0, 1):
            for line in self.read(f"latency.{rank}").splitlines(keepends=True):
                if line.endswith("\n"):
                    at, took = map(float, line.split())
                    if began <= at + took and at <= ended:
                        found.append(took)
        return sorted(found)

    def watch(self, agent, seconds):
        """Returns (latencies, largest memory of the host's agent) of the next `seconds`."""
        began, memory = time.monotonic(), 0
        for _ in polling(seconds, 0.02):
            memory = max(memory, rss_bytes(agent))
        return self.latencies(began, time.monotonic()), memory

    def test_two_thousand_hostile_connections_change_nothing_for_the_job(self):
        host = self.guarded("n0", self.port, True)
        recorder = Relay(self.port)
        self.addCleanup(recorder.close)
        second = self.guarded("n1", recorder.port, False)
        self.wait_starts(2)
        agent, recorded = host.agent(), wait_for(recorder.handshake, "the node's handshake was recorded")
        with serving.RawClient(self.port) as client:
            client.say(serving.request(serving.SET, b"/large", bytes(MIB)) + serving.ping())
            self.assertEqual(client.hear(4), serving.PONG)
        calm = self.watch(agent, 1)
        kinds = serving.KINDS | {kind: lambda rng, say=say: say(rng, *recorded) for kind, say in KINDS.items()}
        with serving.crowd(self.port, SEED, HOSTILE, kinds) as made:
            storm = self.watch(agent, STORM_S)
        after = self.watch(agent, 2)
        print(f"\nseed {SEED}: {made.total()} hostile connections, {HOSTILE} at a time, in {STORM_S} s: {dict(made)}")
        for name, (took, memory) in {"before": calm, "during": storm, "after": after}.items():
            print(f"{name}: {len(took)} turns of 2 workers; {took[len(took) // 2] * 1e3:.2f} ms median, "
                  f"{took[int(len(took) * 0.99)] * 1e3:.2f} ms 99 %, {took[-1] * 1e3:.1f} ms longest; "
                  f"host's agent at most {memory / MIB:.1f} MiB")
        print(f"host's agent at last: {rss_bytes(agent) / MIB:.1f} MiB")
        self.assertEqual(len(self.starts()), 2, "no new round:\n" + self.all_errors())
        self.assertGreaterEqual(made.total(), HOSTILE)
        self.assertLess(storm[0][-1], within(LATENCY_S, below=STORM_S))
        self.assertLess(storm[1], MEMORY_MAX)
        self.assertLess(len(host.stderr().splitlines()), 200, host.stderr())
        third = self.guarded("n2", self.port, False)
        self.assert_world(self.wait_starts(5)[2:], 3, 3, restart=0)
        self.end_well(host, second, third)


class WrongCommands(NodesTest):
    """A mistake on one of several nodes is named there, and does not harm the others."""

    def test_a_second_node_of_one_rank_learns_which_node_has_it(self):
        first = self.elastic("first", 2, "--node-rank", 0, "--lease", 0.5)
        wait_for(lambda: listeners(self.port), "the first node is up")
        second = self.elastic("second", 2, "--node-rank", 0, "--lease", 0.5, "--rdzv-conf", "is_host=false")
        self.assert_exit(second, 122)
        self.assertIn("node rank 0 belongs to", second.stderr())
        self.assertIn("--node-rank", second.stderr())
        self.meet_and_end(first, self.elastic("right", 2, "--node-rank", 1, "--rdzv-conf", "is_host=false"))

    def test_a_token_on_one_node_only_is_named_by_the_joining_node(self):
        token = self.write("token", "opensesame\n", 0o600)
        for host_has_it in (True, False):
            with self.subTest(host_has_it=host_has_it):
                self.port = free_port()
                with_it = ("--rdzv-token-file", token)
                host = self.elastic("host", 2, *with_it[:2 * host_has_it])
                wait_for(lambda: listeners(self.port), "the host is up")
                other = self.elastic("other", 2, "--rdzv-conf", "is_host=false", *with_it[2 * host_has_it:])
                self.assert_exit(other, 122)
                self.assertIn("--rdzv-token-file", other.stderr())
                self.assertNotIn("opensesame", other.stderr() + host.stderr())
                host.signal(signal.SIGTERM)
                self.assert_exit(host, 143)

    def test_a_node_with_another_nnodes_is_refused_and_the_others_meet(self):
        first = self.elastic("first", 2)
        wait_for(lambda: listeners(self.port), "the first node is up")
        wrong = self.elastic("wrong", 3, "--rdzv-conf", "is_host=false")
        self.assert_exit(wrong, 122)
        for words in ("3 nodes", "2 nodes", "start all nodes with the same --nnodes"):
            self.assertIn(words, wrong.stderr())
        self.meet_and_end(first, self.elastic("right", 2, "--rdzv-conf", "is_host=false"))
        self.assertIn("refused a node at 127.0.0.1", first.stderr())

    def test_a_port_that_another_process_holds_is_named_with_its_pid(self):
        with socket.create_server(("127.0.0.1", self.port)):
            job = self.elastic("n0", 2, "--rdzv-conf", "is_host=true")
            self.assert_exit(job, 121)
        self.assertRegex(job.stderr(), rf"port {self.port}\b|:{self.port}\b")
        self.assertIn(f"pid {os.getpid()} ", job.stderr())

    def test_a_name_that_does_not_exist_is_waited_for_and_named(self):
        job = self.node("n0", "--nnodes", 2, "--rdzv-backend", "c10d", "--rdzv-endpoint",
                        f"no-such-host.invalid:{self.port}", "--rdzv-conf", "join_timeout=4")
        self.assert_exit(job, 122)
        self.assertEqual(job.stderr().count("no-such-host.invalid' has no address"), 2, "while waiting, and at the end")

    def meet_and_end(self, *jobs):
        self.assert_world(self.wait_starts(len(jobs)), len(jobs), len(jobs), restart=0)
        self.end_well(*jobs)


class Leaving(NodesTest):
    """A user's signal ends a node at once, with a line, whatever the node waits for."""

    AT_ONCE_S = 1.0  # Measured: 0.03 s, and 1 s if no host ever answered.

    def leave(self, job, number):
        began = time.monotonic()
        job.signal(number)
        self.assert_exit(job, 128 + number)
        self.assertLess(time.monotonic() - began, within(self.AT_ONCE_S))
        self.assertIn(signal.Signals(number).name, job.stderr())
        for words in ("terminate", "killed by"):
            self.assertNotIn(words, job.stderr())

    def test_a_host_that_waits_for_nodes_leaves_at_once(self):
        for turn in range(20):
            self.port = free_port()
            job = self.elastic("n0", 2)
            wait_for(lambda: listeners(self.port), "it waits")
            self.leave(job, (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)[turn % 4])
            self.assertIn("before any worker was started", job.stderr())

    @long
    def test_a_node_whose_host_is_down_leaves_at_once(self):
        job = self.elastic("n0", 2, "--rdzv-conf", "is_host=false")
        wait_for(lambda: "waiting for the host" in job.stderr(), "it says what it waits for")
        self.leave(job, signal.SIGINT)

    @long
    def test_a_waiting_node_and_then_its_host_leave_at_once(self):
        host = self.elastic("host", 3, "--rdzv-conf", "is_host=true")
        other = self.elastic("other", 3, "--rdzv-conf", "is_host=false")
        wait_for(lambda: "2 of 3 nodes" in host.stderr(), "both wait")
        self.leave(other, signal.SIGINT)
        self.leave(host, signal.SIGINT)

    def test_a_second_signal_frees_a_host_that_others_still_need(self):
        host = self.elastic("host", 3, "--rdzv-conf", "is_host=true")
        other = self.elastic("other", 3, "--rdzv-conf", "is_host=false")
        wait_for(lambda: "2 of 3 nodes" in host.stderr(), "both wait")
        host.signal(signal.SIGINT)
        wait_for(lambda: "it stays until" in host.stderr(), "it says why it stays")
        self.leave(host, signal.SIGINT)
        self.leave(other, signal.SIGINT)

    def test_all_nodes_one_after_the_other(self):
        for nodes in (3, "1:3"):
            for number in (signal.SIGTERM, signal.SIGINT):
                with self.subTest(nodes=nodes, signal=number):
                    self.port, before = free_port(), len(self.starts())
                    jobs = [self.elastic(f"n{i}", nodes) for i in range(3)]
                    self.wait_starts(before + 3)
                    for job in jobs:
                        job.signal(number)
                        pause(0.03, "a scheduler signals one node after the other")
                    for job in jobs:
                        self.assert_exit(job, 128 + number)
                    self.assertEqual(len(self.starts()), before + 3, "nobody started anew:\n" + self.all_errors())

    @long
    def test_signals_while_the_nodes_form_end_all_nodes(self):
        rng = random.Random(SEED)
        for _ in range(6):
            self.port = free_port()
            jobs = [self.elastic(f"n{i}", "2:3") for i in range(3)]
            pause(rng.random() * 0.1, "any moment")
            for job in jobs:
                job.signal(signal.SIGTERM)
            for job in jobs:
                # Death by SIGTERM: the signal came before the handler was installed.
                self.assertIn(job.wait(), (143, -signal.SIGTERM), self.all_errors())


class Storms(NodesTest):
    def test_workers_that_fail_at_once_everywhere_end_in_one_verdict(self):
        script = self.write(f"f-{self.marker}.sh",
                            "#!/bin/bash\necho last words of rank $RANK >&2\nexit $((RANK + 3))\n")
        for restarts in (0, 3):
            with self.subTest(restarts=restarts):
                self.port, self.worker = free_port(), script
                jobs = [self.elastic(f"n{i}", 3, "--node-rank", i, "--max-restarts", restarts) for i in range(3)]
                codes = {job.wait() for job in jobs}
                self.assertEqual(len({self.verdict(job) for job in jobs}), 1, self.all_errors())
                self.assertEqual(len(codes), 1, self.all_errors())
                self.assertIn(codes.pop(), (3, 4, 5))

    def test_a_stopped_front_costs_nothing(self):
        jobs = [self.elastic(f"n{i}", 2, "--lease", 1) for i in range(2)]
        self.wait_starts(2)
        jobs[1].signal(signal.SIGSTOP)
        self.no_new_round(3)  # Several leases.
        jobs[1].signal(signal.SIGCONT)
        self.end_well(*jobs)
        self.assertEqual(len(self.starts()), 2)


class Kills(NodesTest):
    """A process is killed at a random moment of a job on three nodes; then the rest is stopped. Nothing is left."""

    TRIALS = int(os.environ.get("TRIALS", "30"))

    def test_killed_fronts_and_agents_leave_nothing(self):
        rng = random.Random(SEED)
        print(f"\nseed {SEED}")
        for trial in range(self.TRIALS):
            self.port = free_port()
            jobs = [self.elastic(f"n{i}", "1:3", "--max-restarts", 1, "--lease", 1, "--shutdown-timeout", 2,
                                 "--rdzv-conf", "last_call_timeout=1") for i in range(3)]
            pause(rng.choice((0.0, 0.02, 0.05, 0.1, 0.3, 1.2)) * rng.random(), "any moment of the job")
            story = [self.kill_somebody(rng, job) for job in rng.sample(jobs, rng.randrange(1, 4))]
            pause(rng.choice((0.0, 0.05, 0.4)) * rng.random(), "any moment of the loss")
            for job in jobs:
                job.signal(signal.SIGTERM)
            codes = [self.end_of(job, trial, story) for job in jobs]
            try:
                self.assert_nothing_left()
            except AssertionError as e:
                raise AssertionError(f"trial {trial}: {story} {codes}: {e}\n{self.all_errors()}") from None
            for job in jobs:
                for words in ("terminate called", "SIGABRT", "SIGSEGV", "CHECK"):
                    self.assertNotIn(words, job.stderr(), f"trial {trial}: {story}")
                job.__exit__()
            self.jobs.clear()

    @staticmethod
    def kill_somebody(rng, job):
        whom = rng.choice(("front", "agent", "both"))
        pids = ([job.pid] if whom != "agent" else []) + (children_of(job.pid) if whom != "front" else [])
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                pass
        return f"{whom} of {job.name}"

    def end_of(self, job, trial, story):
        try:
            return job.wait()
        except Exception as e:
            raise AssertionError(f"trial {trial}: {story}: {job.name} {e}\n{self.all_errors()}") from None


if __name__ == "__main__":
    main()
