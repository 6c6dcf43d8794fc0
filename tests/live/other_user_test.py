"""Workers that take on another user's identity, under a muster of an ordinary user: reported at once, never waited for.
And folders that other users own or use, under a muster that runs as root.

Needs root, to make a program set-user-ID and to start muster as another user.
"""
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time

import harness
from harness import Job, LiveTest, is_gone, main, run, wait_for, within

BUILD = os.environ["MUSTER_BUILD"]
USER = 65534


class Folders(LiveTest):
    """Existing folders keep their mode and owner, though muster runs as root and may change everything."""

    def test_existing_folders_keep_their_mode_and_owner(self):
        for mode in 0o700, 0o755, 0o777, 0o1777, 0o2775:
            for owner in 0, USER:
                folder = self.path(f"folder-{mode:o}-{owner}")
                os.mkdir(folder)
                os.chown(folder, owner, owner)
                os.chmod(folder, mode)
                before = os.stat(folder)
                for use in {"MUSTER_RUN_DIR": folder}, {"TMPDIR": folder}, {}:
                    flags = () if use else ("--log-dir", folder)
                    code, _, err = run("--nproc-per-node", 2, *flags, "--no-python", "true", env=use)
                    self.assertEqual(code, 0, err)
                after = os.stat(folder)
                self.assertEqual((after.st_mode, after.st_uid, after.st_gid), (before.st_mode, before.st_uid, before.st_gid))


class FewProcesses(LiveTest):
    """One sentence names the limit, whichever of our processes or threads is the one too many."""

    UID = 61_234  # No other process runs as this user, so the limit counts ours alone.

    def test_each_refusal_names_the_limit(self):
        os.chmod(self.folder.name, 0o777)
        shutil.copy(harness.MUSTER, self.path("muster"))
        user = ["setpriv", f"--reuid={self.UID}", f"--regid={self.UID}", "--clear-groups"]
        codes = []
        for limit in range(1, 18):
            wait_for(lambda: not self.processes(), "nothing of the attempt before is left")
            ended = subprocess.run([*user, "bash", "-c", f"ulimit -u {limit}; exec ./muster --nproc-per-node 4 --no-python true"],
                                   cwd=self.folder.name, env={**os.environ, "TMPDIR": self.folder.name}, stdin=subprocess.DEVNULL,
                                   capture_output=True, text=True, timeout=harness.LIMIT_S, check=False)
            codes.append(ended.returncode)
            self.assertNotIn("SIGABRT", ended.stderr)
            self.assertNotIn("terminate", ended.stderr)
            if ended.returncode != 0:
                self.assertEqual(ended.returncode, 121, ended.stderr)
                self.assertIn(f"Resource temporarily unavailable (ulimit -u (RLIMIT_NPROC) is {limit} for", ended.stderr)
        self.assertEqual(sorted(codes, reverse=True), codes, "more room is never worse")
        self.assertEqual({codes[0], codes[-1]}, {121, 0})

    def processes(self):
        return [pid for pid in os.listdir("/proc") if pid.isdigit() and self.uid_of(pid) == self.UID]

    @staticmethod
    def uid_of(pid):
        try:
            return os.stat(f"/proc/{pid}").st_uid
        except OSError:
            return -1


class OtherUser(LiveTest):
    def setUp(self):
        super().setUp()
        if os.statvfs(self.folder.name).f_flag & os.ST_NOSUID:
            self.skipTest(f"set-user-ID programs have no effect in {self.folder.name}")
        os.chmod(self.folder.name, 0o777)
        self.root = self.path("other_user")
        shutil.copy(os.path.join(BUILD, "tests", "other_user"), self.root)
        os.chown(self.root, 0, 0)
        os.chmod(self.root, 0o4755)
        shutil.copy(harness.MUSTER, self.path("muster"))  # Readable for the user.
        self.addCleanup(self.write, "end", "")  # Ends what is left before the folder is removed.

    def job(self, *args):
        """Starts muster as the user; the caller passes `--no-python`."""
        job = object.__new__(Job)
        job.out, job.err = tempfile.TemporaryFile(), tempfile.TemporaryFile()
        job.process = subprocess.Popen(
            ["setpriv", f"--reuid={USER}", f"--regid={USER}", "--clear-groups", self.path("muster"), *map(str, args)],
            stdin=subprocess.DEVNULL, stdout=job.out, stderr=job.err, cwd=self.folder.name,
            env={**os.environ, "TMPDIR": self.folder.name, "OMP_NUM_THREADS": "1"})
        job.pid = job.process.pid
        self.addCleanup(job.__exit__)
        return job

    def stranger(self, job):
        return int(wait_for(lambda: job.stdout().endswith("\n") and job.stdout(), "the worker runs"))

    def refused(self, pid):
        return f"muster: not permitted: pid {pid} (other_user) runs as uid 0, and uid {USER} cannot stop it"

    def check_end(self, job, pid, code):
        self.assertEqual(job.wait(), code, job.stderr())
        lines = job.stderr().splitlines()
        self.assertEqual(lines.count(self.refused(pid)), 1, job.stderr())
        self.assertIn("muster: 1 process runs as another user and could not be stopped; end it as that user or as root:", lines)
        self.assertIn(f"  pid {pid} (other_user) runs as uid 0", lines)
        for wrong in ("disk", "kernel"):
            self.assertNotIn(wrong, job.stderr())
        self.assertFalse(is_gone(pid))

    def test_a_stop_names_the_process_at_once_and_ends_after_the_grace(self):
        job = self.job("--shutdown-timeout", 1, "--no-python", self.root, self.path("end"))
        pid = self.stranger(job)
        began = time.monotonic()
        job.signal(signal.SIGTERM)
        wait_for(lambda: self.refused(pid) in job.stderr(), "the reason is said")
        self.check_end(job, pid, 123)
        self.assertLess(time.monotonic() - began, within(2, below=30), "not what a KILL may take")
        self.assertNotIn("got SIGKILL", job.stderr())

    def test_a_second_signal_ends_the_job_at_once(self):
        job = self.job("--no-python", self.root, self.path("end"))
        pid = self.stranger(job)
        job.signal(signal.SIGTERM)
        job.signal(signal.SIGINT)
        self.check_end(job, pid, 123)
        self.assertNotIn("got SIGKILL", job.stderr())

    def test_a_workers_child_is_named_and_all_others_are_ended(self):
        job = self.job("--shutdown-timeout", 0, "--no-python", "sh", "-c", f"sleep 1000 & echo $! >sleeper; {self.root} {self.path('end')}; exit 1")
        pid = self.stranger(job)
        sleeper = int(self.read("sleeper"))
        job.signal(signal.SIGTERM)
        self.check_end(job, pid, 123)
        self.assertTrue(is_gone(sleeper))

    def test_a_failure_elsewhere_is_still_named(self):
        job = self.job("--nproc-per-node", 2, "--shutdown-timeout", 0, "--no-python", "sh", "-c",
                       f"[ $RANK = 0 ] && exec {self.root} {self.path('end')}; while [ ! -e fail ]; do sleep 0.02; done; exit 3")
        pid = self.stranger(job)
        self.write("fail", "")
        self.check_end(job, pid, 123)
        self.assertRegex(job.stderr(), r"before that, rank 1 \(pid \d+\) exited with 3")

    def test_a_process_that_ends_within_the_grace_is_waited_for(self):
        job = self.job("--no-python", self.root, self.path("end"))
        pid = self.stranger(job)
        job.signal(signal.SIGTERM)
        wait_for(lambda: self.refused(pid) in job.stderr(), "the reason is said")
        self.write("end", "")
        self.assertEqual(job.wait(), 143, job.stderr())


if __name__ == "__main__":
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        print("SKIPPED: needs root and setpriv (Debian: util-linux)", file=sys.stderr)
        sys.exit(77)
    main()
