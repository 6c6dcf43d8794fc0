"""One function for each measurement: launcher → one sample, or several by name.

All times are CLOCK_MONOTONIC, which Python's time.monotonic() and the workers share.
"""

import os
import pathlib
import signal
import subprocess
import sys
import time

from launching import Job, pause, processes_of

TRUE = ("/bin/true",)
PATIENCE = 20  # seconds for 200 workers, which some versions of Open MPI never finish


class Bench:
    """The worker program, and sizes that --quick reduces."""

    def __init__(self, worker, quick):
        self.worker = worker
        self.megabytes = 4 if quick else 50
        self.idle_seconds = 2 if quick else 10

    def stamping(self, then):
        return (self.worker, "stamp", "{folder}", then)

    def start_to_end(self, launcher):
        with Job(launcher.call(2, TRUE)) as job:
            return (job.end() - job.began) * 1e3

    def two_hundred(self, launcher):
        with Job(launcher.call(200, TRUE)) as job:
            return (job.end(patience=PATIENCE) - job.began) * 1e3

    def start_to_main(self, launcher):
        with Job(launcher.call(2, self.stamping("exit"))) as job:
            job.end()
            return (min(began for began, _ in job.stamps(2)) - job.began) * 1e3

    def death_to_replacement(self, launcher):
        """Kills worker 1 once it is older than the second within which deaths count as too quick."""
        if not launcher.restarts:
            return None
        with Job(launcher.call(2, self.stamping("wait"), *launcher.restarts)) as job:
            (_, _), (_, victim) = job.stamps(2)
            pause(1.2, "until it is old enough")
            killed = time.monotonic()
            os.kill(victim, signal.SIGKILL)
            return (job.stamp(1, attempt=1)[0] - killed) * 1e3

    def stop(self, launcher):
        with Job(launcher.call(2, self.stamping("wait"))) as job:
            job.stamps(2)
            pause(0.2, "the launcher may still be busy with its own start")
            return job.stop() * 1e3

    def idle(self, launchers):
        """Memory, CPU and wake-ups of idle jobs; all launchers in the same window."""
        jobs = [Job(launcher.call(2, self.stamping("wait"))).__enter__() for launcher in launchers]
        try:
            for job in jobs:
                job.stamps(2)
            pause(1, "as above")
            before = [usage(job) for job in jobs]
            pause(self.idle_seconds, "the time that is measured")
            return [
                memory(job) | {name: (now - then[name]) / self.idle_seconds for name, now in usage(job).items()}
                for job, then in zip(jobs, before)
            ]
        finally:
            for job in jobs:
                job.__exit__()

    def throughput(self, launcher, sink, tee):
        """Returns MB/s from the first worker's main to the end, and the state of the lines."""
        if tee and not launcher.tee:
            return None
        total = 8 * self.megabytes * 1_000_000
        program = (self.worker, "lines", "{folder}", str(self.megabytes * 1_000_000))
        command = launcher.call(8, program, *(launcher.tee if tee else ()))
        checking = [self.worker, "check", "8", str(self.megabytes * 1_000_000)]
        with Job(command, "file" if sink == "file" else subprocess.PIPE) as job:
            if sink == "pipe":
                checked = subprocess.run(checking, stdin=job.process.stdout, capture_output=True, check=True)
                ended = job.end()
            else:
                ended = job.end()
                with open(job.folder / "output", "rb") as output:
                    checked = subprocess.run(checking, stdin=output, capture_output=True, check=True)
            seconds = ended - min(began for began, _ in job.stamps(8))
        words = checked.stdout.decode().split()
        return {"rate": total / 1e6 / seconds} | {words[i]: int(words[i + 1]) for i in range(0, len(words), 2)}


def memory(job):
    """Returns KiB resident and proportional, of the launcher's own processes."""
    sums = {"rss": 0, "pss": 0}
    for pid in processes_of(job.process.pid):
        for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            name = line.split(":")[0].lower()
            if name in sums:
                sums[name] += int(line.split()[1])
    return sums


def usage(job):
    """Returns the seconds of CPU, and how often a thread of the launcher woke up."""
    pids = processes_of(job.process.pid)
    if not pids:
        sys.exit(f"{job.command} is gone while it should be idle")
    cpu = wakeups = 0
    for pid in pids:
        fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        cpu += (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
        for task in os.listdir(f"/proc/{pid}/task"):
            status = pathlib.Path(f"/proc/{pid}/task/{task}/status").read_text()
            wakeups += next(
                int(line.split()[1]) for line in status.splitlines() if line.startswith("voluntary_ctxt_switches")
            )
    return {"cpu": cpu, "wakeups": wakeups}
