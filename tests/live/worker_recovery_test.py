#!/usr/bin/env python3
"""Ranks that train on without those that die.

The ranks (programs/worker_recovery_ranks.cc, named by $MUSTER_WORKER_RECOVERY_RANKS) log every step with the members' sum. The rule:
whatever dies, the living end with the sum of the steps as they were done last. No launcher is there: it would stop the others.
"""
import functools
import os
import random
import signal
import subprocess
import sys
import time

import netns
from harness import LIMIT_S, LiveTest, long, pause, run_tests, say, wait_for
from netns_nodes import NetnsTest
from ports import free_port

RANKS = os.environ.get("MUSTER_WORKER_RECOVERY_RANKS", "")
SEED = int(os.environ.get("MUSTER_FAILURE_SEED", "0")) or random.SystemRandom().randrange(1, 1 << 30)
STEPS = 200
PAUSE_US = 1000
KILLED_WITHIN_S = 0.05


class Trained:
    """Ranks, started without a launcher, and their log; mixed into the classes below."""

    def log(self, *what):
        lines = self.read("log").split("\n")[:-1] if self.exists("log") else []
        return [words for words in map(str.split, lines) if not what or words[0] in what]

    def begin(self, start, rank, world, host, port):
        env = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(world), "MASTER_ADDR": host, "MASTER_PORT": str(port)}
        with open(self.path(f"errors{rank}"), "wb") as errors:
            process = start([RANKS, self.folder.name, str(STEPS), str(PAUSE_US), self.marker], env=env, stderr=errors)
        self.addCleanup(process.wait)
        self.addCleanup(process.kill)
        return process

    def errors(self):
        return "\n".join(self.read(name) for name in sorted(os.listdir(self.folder.name)) if name.startswith("errors"))

    def wait_until_they_run(self, world):
        try:
            wait_for(lambda: len(self.log("runs")) == world, "all ranks train")
        except AssertionError as e:
            raise AssertionError(f"{e}\n{self.errors()}") from None
        return {int(rank): int(pid) for _, rank, pid in self.log("pid")}

    def assert_they_end(self, ranks, killed):
        """Waits for the ranks, and checks the living ones' weight against the log."""
        for rank, process in enumerate(ranks):
            try:
                code = process.wait(LIMIT_S)
            except subprocess.TimeoutExpired:
                self.fail(f"rank {rank} waits for ever\n{self.errors()}\n{self.read('log')[-2000:]}")
            self.assertEqual(code, -signal.SIGKILL if rank in killed else 0, f"rank {rank}\n{self.errors()}")
        sums = {int(step): int(total) for _, step, _, total in self.log("step")}
        self.assertEqual(sorted(sums), list(range(STEPS)))
        done = {int(rank): int(weight) for _, rank, weight in self.log("done")}
        self.assertEqual(set(done) | set(killed), set(range(len(ranks))))
        living = {rank: weight for rank, weight in done.items() if rank not in killed}
        self.assertEqual(set(living.values()), {sum(sums.values())}, self.read("log")[-2000:])

    def torment(self, dice, start, world):
        """Kills up to three ranks within 50 ms, rank 0 and recoveries not excepted."""
        if self.exists("log"):
            os.unlink(self.path("log"))
        ranks = start()
        pids = self.wait_until_they_run(world)
        pause(dice.uniform(0, 0.1), "the moment of the first death is random")
        killed = dice.sample(range(world), dice.randrange(1, min(4, world)))
        for rank in killed:
            os.kill(pids[rank], signal.SIGKILL)
            pause(dice.uniform(0, KILLED_WITHIN_S / 3), "so is the time to the next")
        self.assert_they_end(ranks, killed)
        return killed


class OneNode(Trained, LiveTest):
    def start(self, world):
        port = free_port()
        return [self.begin(subprocess.Popen, rank, world, "127.0.0.1", port) for rank in range(world)]

    def test_the_living_train_on_without_a_killed_rank(self):
        for victim in (0, 2):
            with self.subTest(victim=victim):
                if self.exists("log"):
                    os.unlink(self.path("log"))
                ranks = self.start(4)
                pids = self.wait_until_they_run(4)
                since = time.monotonic_ns()
                os.kill(pids[victim], signal.SIGKILL)
                self.assert_they_end(ranks, [victim])
                shrunk = self.log("shrunk")
                self.assertEqual({(int(rank), int(size)) for _, rank, _, size in shrunk},
                                 {(rank, 3) for rank in range(4) if rank != victim})
                last = max(int(at) for _, _, at, _ in shrunk)
                say(f"rank {victim} killed: the others' next step is done after {(last - since) / 1e6:.1f} ms")

    def test_deaths_at_any_moment_end_in_the_same_weight(self):
        self.kill_often(10)

    @long
    def test_many_deaths_at_any_moment_end_in_the_same_weight(self):
        self.kill_often(500)

    def kill_often(self, times):
        dice = random.Random(SEED)
        say(f"seed {SEED}")
        for _ in range(times):
            world = dice.randrange(2, 7)
            killed = self.torment(dice, lambda: self.start(world), world)
            say(f"{world} ranks, killed {killed}")
        self.assert_nothing_left()


class Nodes(Trained, NetnsTest):
    def start(self, world):
        """Half of the ranks on each of two nodes."""
        return [self.begin(functools.partial(self.cluster.run, 1 + rank * 2 // world), rank, world, self.cluster.address(1),
                           29500) for rank in range(world)]

    def test_deaths_at_any_moment_end_in_the_same_weight(self):
        self.kill_often(10)

    @long
    def test_many_deaths_at_any_moment_end_in_the_same_weight(self):
        self.kill_often(500)

    def kill_often(self, times):
        dice = random.Random(SEED)
        say(f"seed {SEED}")
        self.make(2)
        for _ in range(times):
            say(f"killed {self.torment(dice, lambda: self.start(4), 4)}")
        self.assert_nothing_left()


def main():
    if not RANKS:
        sys.exit("set MUSTER_WORKER_RECOVERY_RANKS to the program worker_recovery_ranks")
    if "--nodes" in sys.argv:
        sys.argv.remove("--nodes")
        netns.require_netns()
        sys.argv += [] if len(sys.argv) > 1 else ["Nodes"]
    elif len(sys.argv) == 1:
        sys.argv += ["OneNode"]
    run_tests()


if __name__ == "__main__":
    main()
