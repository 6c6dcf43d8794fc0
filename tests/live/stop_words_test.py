#!/usr/bin/env python3
"""What muster prints of ranks that outlast or fail a stop: where they were when SIGKILL ended them, and why they failed."""
import glob
import json
import os
import re
import signal
import time

from harness import MUSTER, Job, require_programs, run_tests, wait_for, within
from nodes_harness import NodesTest

NATIVE = os.environ.get("MUSTER_HANG_FAULTS", "")
GRACE_S = 2

# Handles the signals but never stops, except as its argument says.
TRAINER = """import os, signal, sys, time
rank = int(os.environ["RANK"])
def told(number, frame):
    if sys.argv[1] == "full":
        if rank == 0: raise OSError(28, "No space left on device")
        sys.exit(0)
    if sys.argv[1] == "stopped" and rank == 0: os.kill(os.getpid(), signal.SIGSTOP)
def evaluate():
    open(f"up.{rank}", "w").close()
    while True: time.sleep(0.1)
for number in (signal.SIGTERM, signal.SIGINT): signal.signal(number, told)
if sys.argv[1] == "fail" and rank == 1:
    while not os.path.exists("up.0"): time.sleep(0.01)
    sys.exit(3)
evaluate()
"""


def line_of(text):
    return next(i for i, line in enumerate(TRAINER.split("\n"), 1) if text in line)


PLACE = f"evaluate (train.py:{line_of('while True')}) ← <module> (train.py:{TRAINER.count(chr(10))})"


class StopWords(NodesTest):
    def setUp(self):
        super().setUp()
        self.write("train.py", TRAINER)

    def start(self, what, *flags, ranks=1, up=None, **options):
        job = Job("--log-dir", self.path("logs"), "--shutdown-timeout", GRACE_S, "--nproc-per-node", ranks, *flags,
                  self.path("train.py"), what, cwd=self.folder.name, **options)
        self.addCleanup(job.__exit__)
        self.wait_for_files(*(f"up.{rank}" for rank in (range(ranks) if up is None else up)))
        return job

    def result(self):
        [path] = glob.glob(self.path("logs/*/result.json"))
        with open(path) as f:
            return json.load(f)

    def test_a_trainer_that_never_stops_is_named_with_its_line(self):
        """Runs without py-spy and PyTorch."""
        job = self.start("", env={"PATH": "/usr/bin:/bin"})
        job.signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 143)
        self.assertRegex(job.stderr(), rf"(?m)^muster: rank 0 had [\d.]+ s and was in {re.escape(PLACE)}$")
        result = self.result()
        self.assertEqual([(one["rank"], one["where"]) for one in result["left"]], [(0, PLACE)])
        self.assertEqual(result["stop"]["killed_ranks"], [0])

    def test_eight_ranks_are_named_and_sigkill_is_not_late(self):
        job = self.start("", ranks=8)
        began = time.monotonic()
        job.signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 143)
        self.assertLess(time.monotonic() - began, within(GRACE_S, 2))
        result = self.result()
        self.assertEqual([one["rank"] for one in result["left"]], list(range(8)))
        for one in result["left"]:
            self.assertIn(one["where"], (PLACE, None), one)
            self.assertLess(one["seconds"], GRACE_S + within(0.2))

    def test_a_rank_in_state_t_is_named(self):
        job = self.start("stopped", ranks=2)
        job.signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 143)
        left = self.result()["left"]
        self.assertEqual([one["rank"] for one in left], [0, 1])
        self.assertEqual(left[1]["where"], PLACE)
        self.assertTrue(left[0]["where"] or "T (stopped)" in left[0]["missing"], left)

    def test_a_rank_killed_because_another_failed_is_named(self):
        job = self.start("fail", ranks=2, up=[0])
        self.assertEqual(job.wait(), 3)
        self.assertRegex(job.stderr(), rf"(?m)^muster: rank 0 had [\d.]+ s and was in {re.escape(PLACE)}$")
        result = self.result()
        self.assertEqual((result["stop"], [one["where"] for one in result["left"]]), (None, [PLACE]))

    def test_ranks_that_wait_for_the_killed_one_are_named(self):
        job = Job("--nproc-per-node", 3, "--shutdown-timeout", GRACE_S, "--no-python", "sh", "-c", 'trap "" TERM; exec "$0"', NATIVE,
                  env={"FAULT": "blocked_read", "CULPRIT": "1", "FIFO": self.path("fifo")})
        self.addCleanup(job.__exit__)
        wait_for(lambda: "fault " in job.stdout(), "rank 1 reads", 60)
        job.signal(signal.SIGTERM)
        job.wait()
        self.assertRegex(job.stderr(), r"(?m)^muster: rank 1 had [\d.]+ s and was in \S*read .*; ranks 0,2 waited for it in "
                         r"all_reduce #\d+$")

    def test_a_second_signal_kills_now_and_takes_no_stacks(self):
        job = self.start("", "--shutdown-timeout", 600)
        job.signal(signal.SIGINT)
        wait_for(lambda: "stopping rank 0" in job.stderr(), "it has heard the first")
        wait_for(lambda: job.signal(signal.SIGINT) or "got SIGKILL" in job.stderr(), "it has heard another")
        self.assertEqual(job.wait(), 130)
        self.assertNotIn(" and was in ", job.stderr())
        self.assertRegex(job.stderr(), r"(?m)^muster: stopped by SIGINT after [^;]+; rank 0 had not ended when a second signal "
                         r"killed it$")
        result = self.result()
        self.assertEqual((result["left"], result["stop"]["kill_requested"]), ([], True))

    def test_a_rank_that_fails_during_the_stop_is_named(self):
        job = self.start("full", ranks=2)
        job.signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 143)
        words = "exited with 1: OSError: [Errno 28] No space left on device"
        self.assertRegex(job.stderr(), rf"(?m)^muster: stopped by SIGTERM after [^;]+; 1 failed while muster stopped it: rank 0 "
                         rf"{re.escape(words)}$")
        self.assertNotIn("all workers ended", job.stderr())
        [failed] = self.result()["stop"]["failed"]
        self.assertEqual((failed["rank"], failed["exit_code"], failed["signal"], failed["text"]), (0, 1, None, words))

    def test_each_of_two_nodes_names_its_own_ranks(self):
        nodes = [self.start("", "--nnodes", 2, "--node-rank", rank, "--master-addr", "127.0.0.1", "--master-port", self.port,
                            up=[]) for rank in range(2)]
        self.wait_for_files("up.0", "up.1")
        nodes[1].signal(signal.SIGTERM)
        for rank, job in enumerate(nodes):
            job.wait()
            self.assertRegex(job.stderr(), rf"(?m)^muster: rank {rank} had [\d.]+ s and was in {re.escape(PLACE)}$")
            self.assertRegex(job.stderr(), r"(?m)^muster: stopped by SIGTERM.* after [1-9]")


if __name__ == "__main__":
    require_programs(MUSTER=MUSTER, MUSTER_HANG_FAULTS=NATIVE)
    run_tests()
