"""--requeue without a Slurm: what muster asks `scontrol` at a job's end, and what it does with each answer."""
import os
import signal
import subprocess
import sys

from harness import Job, LiveTest, children_of, main, run, wait_for

PREEMPTED = "2026-11-29T15:04:51"
# Prints the line of Slurm 22.05, from which muster reads two fields.
SCONTROL = """#!/bin/sh
echo "$*" >> $ASKED
{first}
if [ $1 = show ]; then echo "JobId=7 JobName=train JobState={state} Reason=None PreemptTime={time} SuspendTime=None"; fi
"""
# Stands for Slurm's daemon, which muster knows by its name: signals processes, and goes on.
DAEMON = """import os, sys, time
with open("/proc/self/comm", "w") as f: f.write("slurmstepd")
for pid, number in zip(sys.argv[1::2], sys.argv[2::2]): os.kill(int(pid), int(number))
time.sleep(600)
"""
FAILS = ["--no-python", "sh", "-c", "exit 3"]


class Requeue(LiveTest):
    def slurm(self, state="RUNNING", time=PREEMPTED, first="", starts=0):
        """Returns the environment of a batch job of one node, whose scontrol runs `first` before it answers."""
        self.write("scontrol", SCONTROL.format(state=state, time=time, first=first))
        return {"PATH": f"{self.folder.name}:{os.environ['PATH']}", "ASKED": self.path("asked"), "SLURM_JOB_ID": "7",
                "SLURM_JOB_NUM_NODES": "1", "SLURMD_NODENAME": "node1", "SLURM_RESTART_COUNT": str(starts)}

    def asked(self):
        return self.read("asked").splitlines() if self.exists("asked") else []

    def check(self, slurm, said, *flags, program=FAILS):
        """`said`: the expected line about the queue without the job's name; empty: no line."""
        _, _, err = run(*(flags or ["--requeue"]), *program, env=slurm)
        lines = [line for line in err.splitlines() if line.startswith("muster: job 7 ")]
        self.assertEqual(lines, [f"muster: job 7 {said}"] if said else [], err)
        asks = ["show job -o 7", "requeue 7"] if said == "is requeued" else ["show job -o 7"]
        self.assertEqual(self.asked(), asks, err)

    def test_a_preempted_job_is_requeued_whatever_its_end(self):
        """Sends no signal: a peer's failure may show the pre-emption first."""
        for program in (FAILS, ["--no-python", "true"]):
            for state in ("RUNNING", "SIGNALING"):
                with self.subTest(f"{program[-1]}, {state}"):
                    self.check(self.slurm(state), "is requeued", program=program)
                    os.remove(self.path("asked"))

    def test_a_job_that_was_not_preempted_is_not_requeued(self):
        self.check(self.slurm(time="None"), "")

    def test_a_cancelled_job_is_not_requeued(self):
        self.check(self.slurm("COMPLETING"), "is not requeued: Slurm has ended it already; `scontrol requeue 7` does it")

    def test_nothing_is_asked_without_the_flag(self):
        run(*FAILS, env=self.slurm())
        self.assertEqual(self.asked(), [])

    def test_the_limit_counts_for_preempted_jobs_alone(self):
        said = "is not requeued: it has been requeued 2 times (--requeue=2); `scontrol requeue 7` does it"
        self.check(self.slurm(starts=2), said, "--requeue=2")
        os.remove(self.path("asked"))
        self.check(self.slurm(time="None", starts=2), "", "--requeue=2")

    def test_a_scontrol_that_fails_is_quoted(self):
        self.check(self.slurm(first="echo no controller >&2; exit 1"),
                   "is not requeued: whether it was pre-empted is unknown: no controller; `scontrol requeue 7` does it")

    def test_a_late_signal_does_not_end_the_question(self):
        """Slurm signals every process of the job, by then also those of the question."""
        self.check(self.slurm(first="kill -TERM $PPID $$"), "is requeued")

    def test_a_job_whose_end_overtakes_the_signal_is_requeued(self):
        """The front has had the signal; whether the workers had it is unknown when the worker dies."""
        with Job("--requeue", "--no-python", "sleep", "600", env=self.slurm(first="sleep 1")) as job:
            worker, = wait_for(lambda: children_of(job.agent()), "the worker runs")
            daemon = subprocess.Popen([sys.executable, "-c", DAEMON, str(job.pid), str(int(signal.SIGTERM)),
                                       str(worker), str(int(signal.SIGKILL))])
            self.addCleanup(daemon.wait)
            self.addCleanup(daemon.kill)
            job.wait()
            self.assertIn("muster: job 7 is requeued", job.stderr())


if __name__ == "__main__":
    main()
