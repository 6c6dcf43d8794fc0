"""Ends by a real Slurm: scancel, pre-emption, warnings and requeues cost a step, and no worker gets a signal twice."""
import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

import netns
import slurm
from harness import MUSTER, long, main, nothing_happens_for, wait_for

HERE = os.path.dirname(os.path.abspath(__file__))
TOLD = f"{HERE}/programs/told.py"
EXAMPLES = os.environ["MUSTER_EXAMPLES"]
EXAMPLES_OF_ENGINES = os.path.normpath(f"{HERE}/../../examples/engines")
LONG = 90  # Seconds: the longest that Slurm's own schedule takes.


def log_of(path):
    try:
        with open(path, encoding="utf-8") as f:
            return f.read().split("\n")[:-1]
    except FileNotFoundError:
        return []


class Jobs(slurm.OnSlurm):
    """Batch jobs whose workers record the signals that they get."""

    OPTIONS = {"kill_wait": 30, "grace": 6}

    def setUp(self):
        self.name = f"{self.folder}/{self.id().split('.')[-1]}"

    def succeed(self, program, *args):
        code, out, err = self.run_slurm(program, *args)
        self.assertEqual(code, 0, err)
        return out

    def submit(self, script, *flags):
        with open(f"{self.name}.sh", "w", encoding="utf-8") as f:
            f.write(f"#!/bin/sh\n{script}\n")
        words = self.succeed("sbatch", "--parsable", "-o", f"{self.name}.out", "--open-mode=append", *flags, f"{self.name}.sh")
        job = words.strip()
        self.addCleanup(self.slurm.run, "scancel", "--signal=KILL", "--full", job)
        self.addCleanup(self.slurm.run, "scancel", job)
        return job

    def output(self):
        return "\n".join(log_of(f"{self.name}.out"))

    def workers(self, count):
        return [log_of(f"{self.name}.{rank}") for rank in range(count)]

    def wait_for_workers(self, count, start=0):
        wait_for(lambda: all(f"start {start} 0" in log for log in self.workers(count)),
                 lambda: f"{count} workers run: {self.workers(count)}\n{self.output()}", LONG)

    def state(self, job):
        return re.search(r"JobState=(\w+)", self.succeed("scontrol", "show", "job", job)).group(1)

    def wait_for_state(self, job, *states):
        wait_for(lambda: self.state(job) in states, lambda: f"job {job} is {states}: {self.state(job)}\n{self.output()}", LONG)

    def told(self, *args, flags=""):
        return f"{flags} --no-python python3 -u {TOLD} {self.name} {' '.join(map(str, args))}"

    def wait_for_output(self, text):
        queue = lambda: self.run_slurm("squeue", "-h", "-o", "%i %T %r")[1] + self.run_slurm("sinfo", "-h", "-N", "-o", "%N %T %E")[1]
        wait_for(lambda: text in self.output(), lambda: f"{text!r}: {self.output()}\n{queue()}", LONG)


class Stopped(Jobs):
    def check_one_term(self, script, count, *flags):
        job = self.submit(script, *flags)
        self.wait_for_workers(count)
        self.succeed("scancel", job)
        self.wait_for_state(job, "CANCELLED")
        wait_for(lambda: all("saved" in log for log in self.workers(count)), lambda: f"all saved: {self.workers(count)}", LONG)
        for log in self.workers(count):
            self.assertEqual(log, ["start 0 0", "SIGTERM from slurmstepd", "saved"], self.output())
        self.wait_for_output("stopped by SIGTERM")
        self.assertNotIn("failed", self.output())
        self.assertEqual(self.output().count("stopped by SIGTERM"), 1, self.output())
        self.assertLessEqual(self.output().count("leaves (SIGTERM)"), 1, self.output())
        return job

    def test_scancel_signals_each_worker_once(self):
        self.check_one_term(f"srun {MUSTER} {self.told(3, flags='--nproc-per-node 2')}", 8, "-N4")

    @long
    def test_scancel_signals_each_worker_of_a_batch_job_once(self):
        self.check_one_term(f"exec {MUSTER} {self.told(3)}", 4, "-N4")

    @long
    def test_scancel_signals_each_worker_on_one_node_once(self):
        self.check_one_term(f"{MUSTER} {self.told(3, flags='--nproc-per-node 2')}", 2, "-N1")

    @long
    def test_scancel_signals_each_worker_once_if_tasks_are_ranks(self):
        self.check_one_term(f"srun {MUSTER} {self.told(3)}", 6, "-N2", "--ntasks-per-node=3")

    def test_a_worker_that_dies_of_scancel_has_not_failed(self):
        job = self.submit(f"srun {MUSTER} {self.told(flags='--max-restarts 3')}", "-N4")
        self.wait_for_workers(4)
        self.succeed("scancel", job)
        self.wait_for_state(job, "CANCELLED")
        self.wait_for_output("stopped by SIGTERM")
        self.assertNotIn("failed", self.output())
        self.assertEqual(self.workers(4), [["start 0 0"]] * 4)

    # ---- pre-emption

    @long
    def test_a_long_save_outlasts_the_grace_of_a_preemption(self):
        job = self.submit(f"srun {MUSTER} {self.told(26, flags='--shutdown-timeout 33 --requeue')}", "-N4", "--exclusive", "-p", "main", "--requeue")
        self.wait_for_workers(4)
        urgent = self.succeed("sbatch", "--parsable", "-N4", "--exclusive", "-p", "urgent", "-o", "/dev/null", "--wrap", "sleep 1").strip()
        self.addCleanup(self.slurm.run, "scancel", urgent)
        wait_for(lambda: all("saved" in log for log in self.workers(4)), lambda: f"all saved: {self.workers(4)}\n{self.output()}", LONG)
        for log in self.workers(4):
            # The second is Slurm's own, which it sends to every process of the job at the end of GraceTime.
            self.assertLessEqual(sum("SIGTERM" in line for line in log), 2, log)
        self.assertNotIn("had to be killed", self.output())
        self.wait_for_workers(4, start=1)

    def test_a_training_that_was_preempted_ends_with_the_same_loss(self):
        digits = f"--no-python {EXAMPLES}/digits --data {HERE}/../../examples/data/digits.csv --epochs 4 --straggler 0:40"
        one = self.submit(f"srun {MUSTER} {digits} --checkpoint {self.name}.whole", "-N2")
        self.wait_for_state(one, "COMPLETED")
        whole = re.findall(r"final loss .*", self.output())
        os.truncate(f"{self.name}.out", 0)
        job = self.submit(f"srun {MUSTER} --requeue {digits} --checkpoint {self.name}.part", "-N2", "--exclusive", "-p", "main", "--requeue")
        self.wait_for_output("epoch 1")
        urgent = self.succeed("sbatch", "--parsable", "-N4", "--exclusive", "-p", "urgent", "-o", "/dev/null", "--wrap", "sleep 1").strip()
        self.addCleanup(self.slurm.run, "scancel", urgent)
        self.wait_for_output("final loss")
        self.wait_for_state(job, "COMPLETED")
        self.assertEqual(re.findall(r"final loss .*", self.output()), whole)
        self.assertRegex(self.output(), r"starting at epoch [1-9]")


class Warned(Jobs):
    def check_warned(self, script, count, *flags):
        job = self.submit(script, *flags)
        wait_for(lambda: all("SIGUSR1" in " ".join(log) for log in self.workers(count)),
                 lambda: f"all are warned: {self.workers(count)}\n{self.output()}", LONG)
        self.wait_for_output("the job's end is near")

        def once():
            self.assertEqual(self.output().count("the job's end is near"), 1, self.output())
            for log in self.workers(count):
                self.assertEqual(" ".join(log).count("SIGUSR1"), 1, self.workers(count))
        nothing_happens_for(2, once)
        return job

    @long
    def test_a_warning_reaches_each_worker_once(self):
        self.check_warned(f"srun {MUSTER} {self.told(0)}", 4, "-N4", "--time=1", "--signal=USR1@58")

    def test_a_warning_to_the_batch_script_reaches_all_nodes(self):
        self.check_warned(f"exec {MUSTER} {self.told(0)}", 3, "-N3", "--time=1", "--signal=B:USR1@58")

    @long
    def test_a_warning_to_a_batch_script_on_one_node_reaches_its_workers(self):
        self.check_warned(f"exec {MUSTER} {self.told(0, flags='--nproc-per-node 2')}", 2, "-N1", "--time=1", "--signal=B:USR1@58")

    def test_notice_before_warns_each_worker_once(self):
        self.check_warned(f"srun {MUSTER} {self.told(0, flags='--notice-before 52')}", 4, "-N4", "--time=1")

    def test_a_job_requeued_after_a_warning_goes_on_where_it_stopped(self):
        """The training stops at the step at which should_stop() is true on all ranks."""
        walk = f"{MUSTER} --requeue --no-python {EXAMPLES}/checkpoint {self.name}.ckpt --steps 2000"
        job = self.submit(f"srun {walk}", "-N2", "--requeue")
        self.wait_for_output("starting at step 0")
        self.succeed("scancel", "--signal=USR1", job)
        self.wait_for_output("stopped at step")
        self.wait_for_output("arrived at")
        stopped, = re.findall(r"stopped at step (\d+)", self.output())
        self.assertEqual(re.findall(r"starting at step (\d+)", self.output()), ["0", stopped])
        self.wait_for_state(job, "COMPLETED")

    @long
    def test_a_job_that_is_cancelled_after_a_warning_stays_cancelled(self):
        job = self.submit(f"srun {MUSTER} {self.told(1, flags='--requeue')}", "-N2", "--requeue")
        self.wait_for_workers(2)
        self.succeed("scancel", "--signal=USR1", job)
        wait_for(lambda: all("SIGUSR1" in " ".join(log) for log in self.workers(2)), lambda: f"{self.workers(2)}", LONG)
        self.succeed("scancel", job)
        self.wait_for_output("stopped by SIGTERM")
        self.wait_for_state(job, "CANCELLED")
        self.assertNotIn("is requeued", self.output())

    @long
    def test_the_examples_run(self):
        """Runs the examples as they are, except for a nearer time limit and warning."""
        with open(f"{self.folder}/train.py", "w", encoding="utf-8") as f:
            f.write("import os, signal, sys\n"
                    "print('rank', os.environ['RANK'], 'of', os.environ['WORLD_SIZE'], 'start', os.environ['MUSTER_START_COUNT'])\n"
                    "sys.stdout.flush()\n"
                    "if 'WAITS' in os.environ and os.environ['MUSTER_START_COUNT'] == '0':\n"
                    "    signal.signal(signal.SIGUSR1, lambda *_: sys.exit(0))\n"
                    "    signal.pause()\n")
        for script in ("slurm.sbatch", "slurm-srun.sbatch"):
            out = f"{self.folder}/{script}.out"
            self.succeed("sbatch", "--wait", "-o", out, "-D", self.folder, f"{EXAMPLES_OF_ENGINES}/{script}")
            ranks = sorted(line for line in log_of(out) if line.startswith("rank"))
            self.assertEqual(ranks, [f"rank {i} of 4 start 0" for i in range(4)], log_of(out))
        flags = ["--export=ALL,WAITS=1", "--time=1", "--signal=USR1@58", "-D", self.folder, "-o", f"{self.name}.out"]
        job = self.succeed("sbatch", "--parsable", *flags, f"{EXAMPLES_OF_ENGINES}/slurm-requeue.sbatch").strip()
        self.addCleanup(self.slurm.run, "scancel", job)
        self.wait_for_output("of 4 start 1")
        self.wait_for_state(job, "COMPLETED")
        ranks = sorted(line for line in log_of(f"{self.name}.out") if line.startswith("rank"))
        self.assertEqual(ranks, [f"rank {i} of 4 start {start}" for i in range(4) for start in (0, 1)], self.output())


class ANodeDies(unittest.TestCase):
    def test_an_elastic_job_goes_on_without_the_node(self):
        with tempfile.TemporaryDirectory() as folder, netns.Cluster(4) as nodes, slurm.Slurm(nodes, folder) as cluster:
            script, logs = f"{folder}/job.sh", f"{folder}/log"
            with open(script, "w", encoding="utf-8") as f:
                f.write(f"#!/bin/sh\nexec {MUSTER} --nnodes 3:4 --no-python python3 -u {TOLD} {logs} 0\n")
            path = os.path.dirname(cluster.programs["srun"]) + ":" + os.environ["PATH"]
            code, job, err = cluster.run("sbatch", "--parsable", "-N4", "--no-kill", "-o", f"{folder}/out", script, env={"PATH": path})
            self.assertEqual(code, 0, err)

            def starts():
                return [sum(line.startswith("start") for line in log_of(f"{logs}.{rank}")) for rank in range(4)]

            def said():
                return f"{starts()}\n" + "\n".join(log_of(f"{folder}/out"))

            wait_for(lambda: starts() == [1] * 4, said, LONG)
            listed = subprocess.run(["ip", "netns", "pids", nodes.namespace(4)], capture_output=True, text=True, check=True)
            self.assertGreater(len(listed.stdout.split()), 3, "slurmd, slurmstepd, muster and its worker")
            for pid in listed.stdout.split():
                with contextlib.suppress(ProcessLookupError):  # Its parent's end has ended it.
                    os.kill(int(pid), signal.SIGKILL)
            began = time.monotonic()
            wait_for(lambda: sorted(starts())[1:] == [2] * 3, said, LONG)
            print(f"a new round {time.monotonic() - began:.2f} s after the node's death", file=sys.stderr)
            cluster.run("scancel", job.strip())


if __name__ == "__main__":
    netns.require_netns()
    slurm.require_slurm()
    main()
