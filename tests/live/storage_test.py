"""Disks that hang, are full or cannot be written: they cost files, never a job, its exit code or its end."""
import os
import signal
import subprocess
import tempfile
import time

from harness import MUSTER, MUSTERCTL, Job, LiveTest, is_gone, main, wait_for, within

FILES_LIMIT_S = 10


class Hung(LiveTest):
    """Logs on a frozen file system: a thread that writes there is in state D, and SIGKILL does not end it."""

    def start(self, disk, command, **options):
        job = Job("--log-dir", disk, "--no-python", "sh", "-c", command, **options)
        self.addCleanup(job.__exit__)
        return job

    def test_no_exit_waits_for_a_frozen_disk(self):
        disk, freeze, thaw = self.frozen_disk()
        until_go = f"while ! [ -e {self.path('go')} ]; do sleep 0.01; done"
        failed = self.start(disk, f"touch {self.path('up')}; {until_go}; echo last words >&2; exit 7")
        with open(f"{disk}/console", "w") as console:
            silent = self.start(disk, f"touch {self.path('up.2')}; {until_go}; echo more words >&2; exit 8", stderr=console)
        self.wait_for_files("up", "up.2")
        agent = failed.agent()
        freeze()
        self.write("go", "")
        began = time.monotonic()
        self.assertEqual(failed.wait(), 7)
        self.assertEqual(silent.wait(), 8)
        self.assertLess(time.monotonic() - began, within(FILES_LIMIT_S, 1.5))
        self.assertIn("sh FAILED: rank 0 exited with 7", failed.stderr())
        self.assertIn(f"the disk of {disk}", failed.stderr())
        self.assertTrue(os.path.exists(f"/proc/{agent}"), "its thread is stuck")
        self.assertNotIn("nothing", failed.stderr())
        self.assertIn(f"the agent (pid {agent}) is left behind: it hangs in the kernel", failed.stderr())
        thaw()
        wait_for(lambda: not os.path.exists(f"/proc/{agent}"), "the agent goes with the disk")

    def test_a_second_signal_does_not_wait_for_a_frozen_disk(self):
        disk, freeze, thaw = self.frozen_disk()
        job = self.start(disk, f"trap 'exit 9' TERM; echo $$$$ > {self.path('pid')}; while :; do sleep 0.01; done")
        worker = int(wait_for(lambda: self.exists("pid") and self.read("pid").strip(), "the worker's pid"))
        freeze()
        job.signal(signal.SIGTERM)
        wait_for(lambda: is_gone(worker), "the worker has ended")
        job.signal(signal.SIGINT)
        began = time.monotonic()
        self.assertEqual(job.wait(), 128 + signal.SIGTERM)
        self.assertLess(time.monotonic() - began, within(2, 2.5, below=FILES_LIMIT_S))
        thaw()


class Refused(LiveTest):
    """Without --log-dir no files were requested: if they cannot be written, memory keeps the last lines."""

    EVERYWHERE = "mount --bind / / && mount -o remount,ro,bind / && cd /"

    def run_on(self, mount, script):
        return subprocess.run(["unshare", "-m", "sh", "-c", f"{mount} && exec {MUSTER} --no-python sh -c '{script}'"], env=os.environ | {
            "TMPDIR": "/mnt", "MUSTER_RUN_DIR": self.path("run")}, capture_output=True, text=True, check=False)

    def setUp(self):
        super().setUp()
        if subprocess.run(["unshare", "-m", "true"], check=False, capture_output=True).returncode != 0:
            self.skipTest("a mount namespace needs root")

    def test_a_full_disk_costs_no_last_lines(self):
        job = self.run_on("mount -t tmpfs -o size=64k tmpfs /mnt", "seq 100000 120000; exit 3")
        self.assertEqual(job.returncode, 3)
        self.assertIn("stdout_tail.log: No space left on device", job.stderr)
        self.assertIn("lines of its stdout:\n", job.stderr)
        self.assertIn(" 120000\n", job.stderr)
        self.assertIn("Log: none could be written to /mnt/", job.stderr)

    def test_a_job_runs_without_a_log_folder(self):
        for mount, why in ((self.EVERYWHERE, "Read-only file system"), ("mount -t tmpfs -o nr_inodes=1 tmpfs /mnt", "No space left")):
            job = self.run_on(mount, "echo seen; echo why; exit 3")
            self.assertEqual(job.returncode, 3)
            self.assertIn(f": {why}", job.stderr)
            self.assertIn("the job continues without it", job.stderr)
            self.assertIn("The last 2 lines of its stdout:\n", job.stderr)

    def test_musterctl_says_why_it_cannot_reach_a_job(self):
        ask = f"set -- $(cat /proc/$PPID/stat); {MUSTERCTL} status $4"
        job = self.run_on(self.EVERYWHERE, ask)
        reason = f": cannot use the folder {self.path('run')} for musterctl: Read-only file system"
        self.assertRegex(job.stderr, f"(?m)^muster: musterctl cannot reach this job.*{reason}")
        self.assertRegex(job.stderr, f"(?m)^musterctl: cannot reach the job of pid [0-9]+{reason}")
        job = self.run_on("true", f"unset MUSTER_RUN_DIR; {ask}")
        self.assertIn(f"its folder is {self.path('run')}: set MUSTER_RUN_DIR as it was set for it", job.stderr)
        # Without the jobs of other tests, in this mount namespace.
        default = os.path.join(tempfile.gettempdir(), f"muster-{os.geteuid()}")
        job = self.run_on(f"mkdir -p {default} && mount -t tmpfs tmpfs {default}", f"unset MUSTER_RUN_DIR; XDG_RUNTIME_DIR={self.folder.name} {MUSTERCTL}")
        self.assertIn(f"its folder is {self.path('run')}: set MUSTER_RUN_DIR", job.stderr)
        self.assertEqual(job.stdout, "", "a job of this user is running")
        for command in ("setpriv --reuid 65534 --clear-groups", "unshare -m"):
            job = self.run_on("true", f"unset MUSTER_RUN_DIR; set -- $(cat /proc/$PPID/stat); {command} {MUSTERCTL} status $4")
            self.assertIn("it is a job of user 0" if "setpriv" in command else "it is in another container", job.stderr)

    def test_a_log_dir_that_cannot_be_made_refuses_the_job(self):
        job = subprocess.run([MUSTER, "--log-dir", "/proc/logs", "true"], capture_output=True, text=True, check=False)
        self.assertEqual(job.returncode, 121)
        self.assertIn("or none: --log-dir /dev/null", job.stderr)


if __name__ == "__main__":
    main()
