#!/usr/bin/env python3
"""Hangs of unmodified PyTorch programs on gloo: each fault is found, healthy jobs get no verdict, and messages name the lines
of Python.

The program is programs/torch_faults.py, run by the Python of $MUSTER_TORCH_VENV; all limits are a tenth of their
defaults. hang_matrix.py runs the faults with more ranks, and any number of times.
"""
import os
import re

import hang_cells
from hang_cells import LIBRARIES, PYTHON, TORCH, HangJob, healthy, limits, perform
from harness import LONG, LiveTest, long, main, musterctl, pause, say, wait_for

SCALE = 0.1
HEALTHY_S = float(os.environ.get("MUSTER_HEALTHY_S", "60" if LONG else "10"))
PROGRAM_OF_NODES = ("--python", PYTHON, os.path.join(hang_cells.HERE, "programs", "torch_nodes.py"))


class TorchTest(LiveTest):
    def setUp(self):
        super().setUp()
        if not os.access(PYTHON, os.X_OK):
            self.skipTest(f"no PyTorch: {PYTHON} (set MUSTER_TORCH_VENV; ./dev test makes it)")


class Faults(TorchTest):
    def check(self, library, nodes, faults=None):
        for number, fault in enumerate(faults or LIBRARIES[library]):
            ranks = 2 + 2 * (number % 2)
            with self.subTest(fault=fault):
                row = perform(fault, ranks, number // 2 % ranks, SCALE, library, nodes)
                say(f"{library}: {fault}, rank {row['culprit']} of {ranks}: after {row['verdict_s']} s")
                self.assertTrue(row["right"], row)

    @long
    def test_are_found_in_single_calls(self):
        self.check("torch", nodes=1)

    def test_are_found_in_ddp_over_two_nodes(self):
        self.check("torch_ddp", nodes=2, faults=None if LONG else ("gil", "other_size", "early_exit"))


class Watched(TorchTest):
    def test_a_hang_is_judged_while_a_user_reads_its_stacks(self):
        """A slow py-spy for the other ranks stands in for a busy machine."""
        self.write("py-spy", f'#!/bin/sh\ncase " $* " in *" $(cat {self.path("late")}) "*) ;; *) sleep 1.5;; esac\n'
                             f'exec {os.path.join(os.path.dirname(PYTHON), "py-spy")} "$@"\n')
        job = HangJob(self.folder.name, "blocked_read", *limits(0.5), program=TORCH, culprit=1,
                      env={"PATH": f"{self.folder.name}:{os.environ['PATH']}"})
        self.addCleanup(job.__exit__)
        wait_for(lambda: "fault" in job.stdout(), "the fault", 60)
        self.write("late", str(job.pids()[1]))
        for _ in range(20):
            self.assertEqual(musterctl("stacks", job.pid)[0], 0)
            pause(2, "as watch(1) does")
            if job.found("hang"):
                break
        self.assertEqual([e["class"] for e in job.found("hang")], ["never_entered"], job.stderr())


class Healthy(TorchTest):
    def test_jobs_get_no_verdict(self):
        verdicts, notices = healthy(4, HEALTHY_S, SCALE, "torch_ddp")
        say(f"verdicts: {len(verdicts)} (notices: {len(notices)})")
        self.assertEqual(verdicts, [])


class Nodes(TorchTest):
    """Two nodes, one of which has finished its work; see programs/torch_nodes.py."""

    def job(self, program, *flags):
        job = HangJob(self.folder.name, program, *limits(SCALE), *flags, program=PROGRAM_OF_NODES, nodes=2)
        self.addCleanup(job.__exit__)
        for one in (job, *job.others):
            one.wait()
        return job

    def test_ranks_of_an_earlier_attempt_are_forgotten(self):
        job = self.job("restart_after_an_early_end", "--max-restarts", 1)
        self.assertEqual(job.process.returncode, 0, job.stderr())
        self.assertEqual([e for e in job.found("hang", "mismatch") if e["attempt"] == 1], [], job.stderr())

    def test_a_hang_is_the_cause_if_the_judging_nodes_ranks_have_ended(self):
        job = self.job("the_judges_ranks_end")
        for node in (0, 1):
            result = job.result(node)
            self.assertEqual(result["reason"], "hang", job.stderr())
            self.assertIn(result["culprit"]["rank"], (0, 1))
            self.assertIn("exited with 0", result["summary"])

    @long
    def test_a_mismatch_is_the_cause_if_the_judging_nodes_ranks_have_ended(self):
        job = self.job("a_mismatch_after_the_judges_ranks_have_ended")
        for node in (0, 1):
            self.assertEqual(job.result(node)["reason"], "mismatch", job.stderr())


class TimeOut(TorchTest):
    """PyTorch's own time-out, which names no missing rank, comes before a verdict."""

    def check(self, nodes, culprit=1, **env):
        program = ("--python", PYTHON, os.path.join(os.path.dirname(hang_cells.HERE), "gpu", "torch_gpu.py"), "timeout")
        job = HangJob(self.folder.name, "", "--hang-timeout", 2, ranks=2, culprit=culprit, program=program, nodes=nodes,
                      env={"CUDA_VISIBLE_DEVICES": "", **env})
        self.addCleanup(job.__exit__)
        for one in (job, *job.others):
            self.assertNotEqual(one.wait(), 0)
        for node in range(nodes):
            result = job.result(node)
            self.assertEqual((result["reason"], result["culprit"]["rank"]), ("hang", culprit), job.stderr())
            self.assertRegex(result["summary"], rf"^rank {culprit} (of 2 )?has not called all_reduce #2 of group 'world' ")
        self.assertIn(f"muster: the wait for rank {culprit} in all_reduce #2 of group 'world' is over after ", job.stderr())

    @long
    def test_the_late_rank_is_the_culprit(self):
        self.check(nodes=1)

    @long
    def test_the_late_rank_is_the_culprit_though_it_names_the_others(self):
        self.check(nodes=1, TOLD=os.path.join(os.path.dirname(hang_cells.HERE), "fixtures", "last_words", "nccl_dump_signal.stderr"))

    @long
    def test_the_late_rank_is_the_culprit_though_the_others_end_slowly(self):
        self.check(nodes=1, LINGER_S="15")

    def test_the_late_rank_is_the_culprit_on_either_node(self):
        for culprit in (0, 1):
            with self.subTest(culprit=culprit):
                self.check(2, culprit)


class Words(TorchTest):
    def test_name_the_python_lines_of_a_rank_that_reads(self):
        job = HangJob(self.folder.name, "blocked_read", *limits(SCALE), culprit=2, program=TORCH)
        self.addCleanup(job.__exit__)
        job.wait_found("hang")
        said = wait_for(lambda: "they are now" in (s := job.stderr()) and s, "the stacks are printed")
        where = r"read_fifo \(torch_faults.py:\d+\) ← main \(torch_faults.py:\d+\) ← <module> \(torch_faults.py:\d+\)"
        for pattern in (
                r"muster: 3 ranks have waited \S+ s for rank 2 \(pid \d+\) in all_reduce #31 of group 'world' \(max of 1000 "
                r"float32\) at torch_faults.py:\d+ plain_step; rank 2 has not called it and is blocked in read\(\)",
                rf"muster: where it is now:\n  rank 2 \(pid \d+\): \S*{where}",
                r"muster: rank 2 \(pid \d+\) never entered all_reduce #31 ",
                rf"muster: where they are now, the late ones first:\n  rank 2 \(pid \d+\): \S*read ← .*{where}\n"
                r"  3 ranks \(0-1,3\): .*plain_step \(torch_faults.py:\d+\) ← "):
            self.assertTrue(re.search(pattern, said), f"{pattern}\n{said}")


if __name__ == "__main__":
    main(apart=("Faults", "Healthy"))
