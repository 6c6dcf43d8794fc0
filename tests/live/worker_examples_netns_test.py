"""The training helpers and the digits example on two nodes in network namespaces, with 2 ranks each.

Needs root and iproute2, as every test over namespaces.
"""
import os
import re
import sys

from harness import LIMIT_S
from netns_nodes import NetnsTest, main

DIGITS = os.path.join(os.environ.get("MUSTER_EXAMPLES", ""), "digits")
TRAINING = os.environ.get("MUSTER_WORKER_TRAINING", "")


class TwoNodes(NetnsTest):
    def setUp(self):
        super().setUp()
        self.make(2)

    def lines(self, *program, code=0, options=(), limit_s=2 * LIMIT_S):
        """Returns the lines that all four ranks printed."""
        jobs = [self.static(i, 2, "--nproc-per-node", 2, *options, program=["--no-python", *map(str, program)])
                for i in (1, 2)]
        out = []
        for job in jobs:
            self.assertEqual(job.wait(limit_s), code, job.stdout() + job.stderr())
            out += job.stdout().splitlines()
            self.jobs.remove(job)
            job.__exit__()
        return out

    def said(self, *arguments):
        said = {rank: [] for rank in range(4)}
        for line in self.lines(TRAINING, *arguments):
            rank, words = line.split(": ", 1)
            said[int(rank)].append(words)
        return said

    def test_one_rank_of_each_node_goes_first(self):
        well = ["ran", "well", "after"]
        self.assertEqual(self.said("local_zero_first", "-"), dict.fromkeys(range(4), well))

    def test_all_nodes_learn_that_a_first_rank_failed(self):
        told = "peer_failed local_zero_first: the block failed on rank 2, so it was not run here: no network"
        # Rank 0 goes first on its own node, so it has run.
        self.assertEqual(self.said("local_zero_first", "2"), {0: ["ran", told, "after"], 1: [told, "after"],
                                                              2: ["ran", "own no network", "after"], 3: [told, "after"]})

    def test_several_failed_ranks_are_counted(self):
        told = ("peer_failed local_zero_first: the block failed on rank 0, so it was not run here: no network "
                "(and 1 other)")
        own = ["ran", "own no network", "after"]
        self.assertEqual(self.said("local_zero_first", "0,2"), {0: own, 1: [told, "after"], 2: own, 3: [told, "after"]})

    def test_zero_first_runs_rank_zero_of_the_job_first(self):
        told = "peer_failed zero_first: the block failed on rank 0, so it was not run here: no network"
        self.assertEqual(self.said("zero_first", "0"), {0: ["ran", "own no network", "after"], 1: [told, "after"],
                                                        2: [told, "after"], 3: [told, "after"]})

    def test_all_ranks_stop_after_the_same_step_if_a_remote_rank_is_to_stop(self):
        stops = {said[0] for said in self.said("stop", 3).values()}
        self.assertEqual(len(stops), 1, stops)

    def test_buckets_hold_the_average_of_both_nodes(self):
        self.assertEqual(sorted(self.lines(TRAINING, "buckets", limit_s=240)),
                         [f"{rank}: 18 steps, 0 wrong elements" for rank in range(4)])

    def test_digits_survive_a_crash_on_the_other_node(self):
        undisturbed = self.lines(DIGITS, "--checkpoint", self.path("a.ckpt"), limit_s=240)
        crashed = self.lines(DIGITS, "--checkpoint", self.path("b.ckpt"), "--crash-at", "3:5",
                             options=("--max-restarts", 2), limit_s=240)
        self.assertIn("starting at epoch 5 of 10", crashed)
        hashes = [re.findall(r"[0-9a-f]{16}$", "\n".join(lines), re.MULTILINE) for lines in (undisturbed, crashed)]
        self.assertEqual([len(found) for found in hashes], [4, 4])
        self.assertEqual(len({*hashes[0], *hashes[1]}), 1)
        final = [line for line in undisturbed if line.startswith("final")]
        self.assertEqual([line for line in crashed if line.startswith("final")], final)
        print(final[0], file=sys.stderr)


if __name__ == "__main__":
    main()
