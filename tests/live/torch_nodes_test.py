"""Real PyTorch over two agents with two workers each: training, barriers, subgroups, and restarts in one job; and
torchrun at the other end of either connection.

COUNT sets the number of restarts of each job (default 20), SEED the moments at which workers are killed.
"""

import collections
import json
import os
import pathlib
import random
import re
import subprocess
import sys
import time
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[1:1] = [str(HERE / "store")]
from harness import LONG, Job, long, main, wait_for, within  # noqa: E402
from nodes_harness import NodesTest  # noqa: E402
from ports import free_port, listeners  # noqa: E402
import serving  # noqa: E402
import torch_nursery  # noqa: E402

COUNT = int(os.environ.get("COUNT", 8))
SEED = os.environ.get("SEED") or str(random.randrange(10**6))
DIGITS = HERE.parents[1] / "examples" / "digits_ddp.py"
PYTHON = sys.executable
WORLD = 4
WAYS = ("static", "c10d") if LONG else ("c10d",)
PATIENCE_S = 180.0
# gloo's messages when it is given the address of a process that has ended.
DEAD_ADDRESS = re.compile(r"connectFullMesh|Connection refused|a stale sum")


class TorchTest(NodesTest):
    def setUp(self):
        super().setUp()
        self.environment = {
            "GLOO_SOCKET_IFNAME": "lo",
            "OMP_NUM_THREADS": "1",
            "PATH": f"{os.path.dirname(PYTHON)}:{os.environ['PATH']}",
            "TMPDIR": self.folder.name,
        }

    def pair(self, way, *rest, flags=()):
        """Starts two agents with two workers each."""
        port = free_port()
        ways = {
            "static": ("--master-addr", "127.0.0.1", "--master-port", port),
            "c10d": ("--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "job"),
        }
        common = ("--nnodes", 2, *ways[way], "--nproc-per-node", 2, *flags)
        return [self.launch(f"{way}{rank}", *common, "--node-rank", rank, *rest) for rank in range(2)]

    def launch(self, name, *arguments):
        job = Job(*arguments, env=self.environment)
        job.name = name
        self.jobs.append(job)
        return job

    def output(self, jobs):
        return "".join(job.stdout() for job in jobs)


def setUpModule():
    """Imports PyTorch once; see torch_nursery.py."""
    WithNursery.workers = staticmethod(unittest.enterModuleContext(torch_nursery.running(PYTHON)))


class WithNursery(TorchTest):
    def call(self, *program):
        return self.workers(*program, self.marker)


class Training(WithNursery):
    def losses(self, name, jobs):
        for job in jobs:
            self.assert_exit(job, 0, PATIENCE_S)
        losses = re.findall(r"final loss (\S+)", self.output(jobs))
        self.assertEqual(len(losses), 1, f"{name}: {self.all_errors()}")
        return losses[0]

    def test_an_unmodified_ddp_program_gets_the_losses_of_one_machine(self):
        plain = (DIGITS, "--epochs", 3)
        program = self.workers("script", *plain)
        killed = ("--kill-rank", 3, "--kill-epoch", 1, "--checkpoint")
        began = time.monotonic()
        alone = self.losses("one agent", [self.launch("alone", "--nproc-per-node", WORLD, *plain)])
        found = {}
        for way in WAYS:
            found[way] = self.losses(way, self.pair(way, *program))
            name = f"{way}, a worker killed"
            jobs = self.pair(way, *program, *killed, self.path(way + ".pt"), flags=("--max-restarts", 1))
            found[name] = self.losses(name, jobs)
            self.assertIn("killing myself in epoch 1", self.output(jobs))
        seconds = time.monotonic() - began
        print(f"{1 + len(found)} jobs of {WORLD} ranks in {seconds:.0f} s, loss {alone}", flush=True)
        self.assertEqual(found, dict.fromkeys(found, alone))


class Groups(WithNursery):
    def results(self, program, way):
        jobs = self.pair(way, *self.call(program))
        for job in jobs:
            self.assert_exit(job, 0, PATIENCE_S)
        return sorted((json.loads(line) for line in self.output(jobs).splitlines()), key=lambda one: one["rank"])

    def test_collectives_subgroups_and_barriers_work_over_two_agents(self):
        everybody = [f"rank {rank}" for rank in range(WORLD)]
        for way in WAYS:
            with self.subTest(way):
                ranks = self.results("together", way)
                weights = ranks[0]["weights"]
                self.assertIsInstance(weights, float)
                self.assertEqual(
                    ranks,
                    [
                        {"rank": rank, "sum": 10, "part": (2, 4)[rank % 2], "objects": everybody, "weights": weights}
                        for rank in range(WORLD)
                    ],
                )

    @long
    def test_a_monitored_barrier_names_the_missing_rank_of_the_other_agent(self):
        for way in WAYS:
            with self.subTest(way):
                missing = self.results("without_last", way)[0]["missing"]
                self.assertIn(f"Ranks {WORLD - 1} failed to pass monitoredBarrier", missing)


class Restarts(WithNursery):
    """Workers are killed at random moments; no worker may ever meet one of an attempt that is over."""

    def events(self, log):
        attempts = collections.defaultdict(list)
        for line in self.read(log).splitlines():
            event = json.loads(line)
            attempts[event["attempt"]].append(event)
        return attempts

    def judge(self, attempts):
        """Counts the phases of the kills. Collects all errors before the first kill of an attempt."""
        phases, unplanned = collections.Counter(), []
        for attempt, events in sorted(attempts.items()):
            kills = [event for event in events if event["what"] == "kill"]
            phases.update(kill["phase"] for kill in kills)
            first = min((kill["at"] for kill in kills), default=float("inf"))
            unplanned += [event for event in events if event["what"] == "error" and event["at"] < first]
            if not kills and attempt < COUNT:
                unplanned.append({"attempt": attempt, "what": "ended without a kill"})
        return phases, unplanned

    def start(self, way):
        worker = self.call("restarts", COUNT, SEED, self.path(f"{way}.log"))
        return self.pair(way, *worker, flags=("--max-restarts", COUNT + 10))

    def check(self, way, seconds):
        attempts = self.events(f"{way}.log")
        phases, unplanned = self.judge(attempts)
        errors = [event["text"] for events in attempts.values() for event in events if event["what"] == "error"]
        dead = [event for event in unplanned if DEAD_ADDRESS.search(event.get("text", ""))]
        print(f"{way}: {len(attempts) - 1} restarts in {seconds:.1f} s; {sum(phases.values())} kills: {dict(phases)}; "
              f"{len(errors)} ranks failed after a kill; not planned: {len(unplanned)}, of these for the address of "
              f"a dead generation: {len(dead)}", flush=True)
        self.assertEqual(unplanned, [], f"SEED={SEED}")
        self.assertEqual(sorted(attempts), list(range(COUNT + 1)), "each death costs one restart")
        last = collections.Counter(event["what"] for event in attempts[COUNT])
        self.assertEqual(last, dict.fromkeys(("init", "ready", "working", "done"), WORLD))
        self.assertGreater(phases["init"], COUNT / 10, "enough kills during init_process_group")

    def test_no_restart_meets_a_dead_generation(self):
        began = time.monotonic()
        print(f"COUNT={COUNT} SEED={SEED}", flush=True)
        jobs = {way: self.start(way) for way in ("static", "c10d")}
        for pair in jobs.values():
            for job in pair:
                self.assert_exit(job, 0, PATIENCE_S + 10 * COUNT)
        for way in jobs:
            with self.subTest(way):
                self.check(way, time.monotonic() - began)


class Torchrun(TorchTest):
    """torchrun at the other end is named at once, on both sides of the mistake."""

    def torchrun(self, *flags):
        command = [PYTHON, "-m", "torch.distributed.run", "--nnodes", "2", "--nproc-per-node", "1", *map(str, flags)]
        self.err = open(self.path("torchrun"), "w+")
        self.addCleanup(self.err.close)
        process = subprocess.Popen([*command, "--no-python", "sleep", "1"], stdin=subprocess.DEVNULL,
                                   stdout=self.err, stderr=self.err, env=os.environ | self.environment)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def c10d(self):
        return ("--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{self.port}", "--rdzv-id", "job")

    def static(self, rank):
        return ("--node-rank", rank, "--master-addr", "127.0.0.1", "--master-port", self.port)

    def meets_torchrun(self, ours, theirs):
        """Our first node hosts and torchrun's agent calls; our second node is still served."""
        first = self.launch("first", "--nnodes", 2, *ours(0), "--no-python", self.worker)
        wait_for(lambda: listeners(self.port), "the first node listens")
        self.torchrun(*theirs)
        wait_for(lambda: "torchrun" in first.stderr(), "the first node names torchrun", PATIENCE_S)
        second = self.launch("second", "--nnodes", 2, *ours(1), "--no-python", self.worker)
        self.wait_starts(2, PATIENCE_S)
        self.end_well(first, second)
        named = [line for line in first.stderr().splitlines() if "torchrun" in line]
        self.assertEqual(len(named), 1, "said once")
        self.assertRegex(named[0], rf"TCPStore client from 127\.0\.0\.1 connected to the rendezvous port {self.port}: "
                                   r"is a torchrun agent started with the same endpoint\? All nodes must run muster$")

    def test_a_torchrun_agent_that_calls_a_c10d_host_is_named(self):
        self.meets_torchrun(lambda _: self.c10d(), self.c10d())

    @long
    def test_a_torchrun_agent_that_calls_a_static_host_is_named(self):
        self.meets_torchrun(self.static, self.static(1))

    def is_turned_away(self, flags, theirs):
        """torchrun's agent hosts and ours calls: ours ends at once, and says why."""
        torchrun = self.torchrun(*theirs)
        wait_for(lambda: listeners(self.port), "torchrun's agent listens", PATIENCE_S)
        began = time.monotonic()
        job = self.launch("ours", "--nnodes", 2, *flags, "--no-python", "true")
        self.assert_exit(job, 122)
        seconds = time.monotonic() - began
        print(f"torchrun's store recognised in {seconds:.2f} s", flush=True)
        self.assertLess(seconds, within(1))
        self.assertIn(f"127.0.0.1:{self.port} answers a PyTorch TCPStore server (of torchrun or of a training script), "
                      "not a muster host: start all nodes with muster, or use another port", job.stderr())
        self.assertIsNone(torchrun.poll(), "torchrun goes on waiting for its own kind")

    def test_an_agent_that_calls_torchruns_c10d_store_says_what_it_met(self):
        self.is_turned_away(self.c10d(), self.c10d())

    @long
    def test_an_agent_that_calls_torchruns_static_store_says_what_it_met(self):
        self.is_turned_away(self.static(1), self.static(0))


class StoreLimit(WithNursery):
    """A worker of the second node fills the store that the first node hosts."""

    def test_a_worker_that_exceeds_the_store_limit_gets_the_remedy(self):
        program = self.write("fill.py", """if True:
            import torch.distributed as dist
            dist.init_process_group("gloo")
            store = dist.distributed_c10d._get_default_store()
            dist.barrier()
            if dist.get_rank() == 3:
                for number in range(40):
                    store.set(f"key {number}", "x" * 100_000)
                store.get("key 39")
            dist.barrier()
            """)
        jobs = self.pair("static", *self.call("script", program), flags=("--store-limit", "1M"))
        for job in jobs:
            self.assertEqual(job.wait(PATIENCE_S), 1, job.stderr())
        line = r"the job's store is full: a worker at 127\.0\.0\.1 wants more than the 1 MiB of keys and values"
        self.assertEqual([len(re.findall(f"^muster: {line}", job.stderr(), re.M)) for job in jobs], [1, 0])
        for job in jobs:
            self.assertRegex(job.stderr(), rf"FAILED: rank 3 of 4 exited with 1: .*; {line}")
            self.assertIn("What to do: give a larger --store-limit", job.stderr())


if __name__ == "__main__":
    serving.need_torch()
    main()
