"""Every operation of a process group against a reference, and groups beside each other.

    worker_matrix_test.py [--all] [CLASS...]

The program worker_matrix makes the choice (all pairs of operation, dtype, reduction, members, size, root, kind of call,
place, memory, group and values) from a seed, and the same choice in every world, so that the worlds together perform all
of it: on one node with 1 to 5 ranks, on three nodes in network namespaces, on Gloo, and on NCCL if there is a GPU.
--all performs every combination that the operations support, which takes minutes.
"""
import os
import re
import sys
import unittest

import netns
from harness import MUSTER, LiveTest, long, require_programs, run, run_tests, say, within
from netns_nodes import NetnsTest

MATRIX = os.environ.get("MUSTER_WORKER_MATRIX", "")
SCENES = os.environ.get("MUSTER_WORKER_SCENES", "")
EVERYTHING = "--all" in sys.argv
LIMIT_S = 3000 if EVERYTHING else 240
SUMMARY = re.compile(r"matrix: backend (\w+), world (\d+), seed (\d+): (\d+) of (\d+) cases, which cover (\d+) pairs; "
                     r"(\d+) performances, (\d+) memberships in drawn groups, (\d+) faults")


class Summary:
    """The line that rank 0 of a run writes."""

    def __init__(self, text):
        found = SUMMARY.search(text)
        if not found:
            raise AssertionError(f"no summary in {text!r}")
        self.line = found[0]
        (self.world, self.seed, self.cases, self.of, self.pairs, self.performed, self.drawn,
         self.faults) = map(int, found.groups()[1:])


class MatrixTest(LiveTest):
    def matrix(self, ranks, worlds, *flags):
        """Runs the matrix once on this machine. Returns its Summary."""
        more = ["--all"] if EVERYTHING else []
        code, out, err = run("--nproc-per-node", ranks, "--no-python", MATRIX, "--worlds", ",".join(map(str, worlds)),
                             *flags, *more, limit_s=LIMIT_S)
        if "SKIPPED:" in err:
            self.skipTest(re.search(r"SKIPPED: (.*)", err)[1])
        self.assertEqual(code, 0, err)
        summary = Summary(out)
        say(summary.line)
        self.assertEqual((summary.world, summary.faults), (ranks, 0), err)
        return summary

    def all_worlds(self, *flags, worlds=(1, 2, 3, 4, 5)):
        """Runs every world: together they perform all cases and cover the pairs."""
        runs = [self.matrix(ranks, worlds, *flags) for ranks in worlds]
        self.assertEqual(sum(r.cases for r in runs), runs[0].of)
        self.assertEqual(len({(r.of, r.pairs, r.seed) for r in runs}), 1)
        for each in runs:
            self.assertGreater(each.performed, 0)
        self.assertGreater(runs[-1].drawn, 0)
        return runs


class OneNode(MatrixTest):
    def test_all_operations_equal_the_reference_in_worlds_of_1_to_5(self):
        runs = self.all_worlds()
        self.assertTrue(EVERYTHING or runs[0].pairs > 1000)

    @unittest.skipIf(EVERYTHING, "the other seeds are in it")
    @long
    def test_other_seeds_choose_other_rows(self):
        for seed in (1, 2):
            self.all_worlds("--seed", seed, worlds=(2, 3, 5))

    @unittest.skipIf(EVERYTHING, "nothing to do with it")
    def test_a_wrong_result_would_be_found(self):
        """Plants a fault: one rank brings other data than all expect, and each must see it."""
        code, _, err = run("--nproc-per-node", 3, "--no-python", MATRIX, "--worlds", 3, "--plant", 1, limit_s=LIMIT_S)
        self.assertNotEqual(code, 0)
        for rank in range(3):
            self.assertIn(f"FAULT: rank {rank}", err)


class Gloo(MatrixTest):
    def test_all_operations_equal_the_reference(self):
        self.all_worlds("--backend", "gloo", worlds=(1, 2, 3, 5))


class Nccl(MatrixTest):
    """All ranks share one GPU if there is only one."""

    def test_all_operations_equal_the_reference(self):
        self.all_worlds("--backend", "nccl", worlds=(1, 2, 3, 4))


class ThreeNodes(NetnsTest):
    """Nodes are network namespaces: only TCP between them, shared memory within them."""

    def setUp(self):
        why = netns.missing()
        if why:
            self.skipTest(why)
        super().setUp()

    def matrix_on(self, *ranks_of_nodes):
        world = sum(ranks_of_nodes)
        self.make(len(ranks_of_nodes))
        program = ["--no-python", MATRIX, "--worlds", world, *(["--all"] if EVERYTHING else [])]
        jobs = [self.static(i + 1, len(ranks_of_nodes), "--nproc-per-node", ranks, program=list(map(str, program)))
                for i, ranks in enumerate(ranks_of_nodes)]
        for job in jobs:
            self.assert_exit(job, 0, LIMIT_S)
        summary = Summary(jobs[0].stdout())
        say(summary.line)
        self.assertEqual((summary.world, summary.faults, summary.cases), (world, 0, summary.of))

    @long
    def test_operations_work_on_nodes_of_equal_size(self):
        self.matrix_on(2, 2, 2)

    def test_operations_work_on_nodes_of_unequal_size(self):
        self.matrix_on(2, 2, 1)

    @long
    def test_operations_work_on_nodes_with_one_rank_each(self):
        self.matrix_on(1, 1, 1)


@unittest.skipIf(EVERYTHING, "the scenes are the same")
class Groups(LiveTest):
    def scene(self, ranks, *words, limit_s=120):
        code, out, err = run("--nproc-per-node", ranks, "--no-python", SCENES, *words, limit_s=limit_s)
        self.assertEqual(code, 0, err)
        return out

    def test_ranks_outside_take_no_part_and_are_not_waited_for(self):
        out = self.scene(4, "outsiders")
        self.assertEqual(len(re.findall(r"outsiders: rank \d done", out)), 4)
        self.assertRegex(out, r"refused: barrier of .*rank 0")

    def test_overlapping_groups_used_concurrently_do_not_deadlock_or_mix(self):
        rounds = int(os.environ.get("OVERLAPPING_ROUNDS", "150"))
        out = self.scene(4, "overlapping", rounds)
        self.assertEqual(len(re.findall(rf"overlapping: rank \d did {rounds} rounds in each of \d groups", out)), 4)

    def test_operations_of_two_groups_begun_in_crossed_order_do_not_deadlock(self):
        out = self.scene(4, "crossed")
        self.assertEqual(len(re.findall(r"crossed: rank \d done", out)), 4)

    def test_collectives_and_messages_of_one_group_do_not_wait_for_each_other(self):
        for ranks in (2, 4):
            out = self.scene(ranks, "together")
            self.assertEqual(len(re.findall(r"together: rank \d done", out)), ranks)

    def test_all_leave_a_barrier_when_the_last_rank_comes(self):
        out = self.scene(4, "late", 5)
        left = [float(s) for s in re.findall(r"left after ([\d.]+) s", out)]
        say(f"left after {left} s")
        self.assertEqual(len(left), 4)
        self.assertGreaterEqual(min(left), 5.0)
        self.assertLessEqual(max(left), 5.0 + within(0.1))  # The sleeper itself may wake late on a busy machine.

    def test_a_monitored_barrier_names_all_missing_ranks(self):
        out = self.scene(4, "monitored")
        self.assertEqual(len(re.findall(r"monitored: rank \d done", out)), 4)
        said = re.findall(r"monitored: rank [02]: (.*)", out)
        self.assertEqual(len(said), 2, out)
        for line in said:
            self.assertRegex(line, r"^monitored_barrier .*of group world: .*rank 1 .*rank 3 ")

    def test_forgotten_receives_hold_up_no_rank(self):
        out = self.scene(3, "forgotten")
        left = [float(s) for s in re.findall(r"left after ([\d.]+) s", out)]
        say(f"left after {left} s")
        self.assertEqual(len(left), 3)
        self.assertLessEqual(max(left), within(0.6, below=60), "not the time-out")


def main():
    require_programs(MUSTER=MUSTER, MUSTER_WORKER_MATRIX=MATRIX, MUSTER_WORKER_SCENES=SCENES)
    run_tests([arg for arg in sys.argv if arg != "--all"])


if __name__ == "__main__":
    main()
