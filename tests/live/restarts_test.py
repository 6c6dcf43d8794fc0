"""Attempts: budget, counters, fresh port, back-off, verdict, exit codes."""
import json
import os
import re
import resource
import signal
import time
import unittest

from harness import Job, LiveTest, children_of, long, main, run, wait_for, within


def kernel_log_is_ours():
    """Whether the kernel's log can be read, and its process numbers are those of this PID namespace."""
    try:
        with open("/dev/kmsg", "rb"):
            return os.readlink("/proc/self/ns/pid") == "pid:[4026531836]"
    except OSError:
        return False


needs_kernel_log = unittest.skipUnless(kernel_log_is_ours(), "the kernel's log cannot be read, or has other process numbers")


class Restarts(LiveTest):
    def test_all_workers_restart_until_the_job_succeeds(self):
        script = self.write("w.sh", f"""#!/bin/bash
            echo "$RANK $TORCHELASTIC_RESTART_COUNT $TORCHELASTIC_MAX_RESTARTS $MASTER_PORT" >>{self.path('log')}.$RANK
            [ $RANK = 1 ] && [ $TORCHELASTIC_RESTART_COUNT -lt 2 ] && exit 9
            [ $TORCHELASTIC_RESTART_COUNT = 2 ] && exit 0
            exec -a {self.marker} sleep 1000
            """)
        code, _, err = run("--nproc-per-node", 3, "--max-restarts", 3, "--no-python", script)
        self.assertEqual(code, 0, err)
        rows = [self.read(f"log.{rank}").split("\n")[:-1] for rank in range(3)]
        ports = []
        for count in range(3):
            line = rows[1][count].split()
            self.assertEqual(line[:3], ["1", str(count), "3"])
            ports.append(line[3])
        self.assertEqual(len(set(ports)), 3, "a fresh port serves each attempt")
        self.assertEqual(err.count("failed (exitcode: 9)"), 2)
        self.assert_nothing_left()

    def test_max_restarts_bounds_the_attempts(self):
        for restarts in (0, 1, 3):
            code, out, _ = run("--max-restarts", restarts, "--no-python", "sh", "-c", "echo started; exit 5")
            self.assertEqual((code, out), (5, "started\n" * (restarts + 1)))

    def test_the_old_group_is_gone_before_the_new_one_starts(self):
        """Each worker looks for processes of the previous attempt, which ignore TERM and left the session."""
        script = self.write("w.sh", f"""#!/bin/bash
            pgrep -f 'old-{self.marker}' >>{self.path('seen')}
            [ $TORCHELASTIC_RESTART_COUNT = 2 ] && exit 0
            setsid bash -c 'trap "" TERM; exec -a old-{self.marker} sleep 1000' >/dev/null 2>&1 &
            while ! pgrep -f 'old-{self.marker}' >/dev/null; do sleep 0.01; done
            exit 1
            """)
        code, _, err = run("--max-restarts", 2, "--shutdown-timeout", "0.3", "--no-python", script)
        self.assertEqual(code, 0, err)
        self.assertEqual(self.read("seen"), "")

    def test_a_restart_does_not_wait_for_a_poll(self):
        script = self.write("w.sh", f"#!/bin/bash\ndate +%s.%N >>{self.path('starts')}\nexec sleep 1000\n")
        job = Job("--max-restarts", 1, "--monitor-interval", "60", "--no-python", script)
        self.addCleanup(job.__exit__)
        wait_for(lambda: self.exists("starts") and self.read("starts").count("\n") == 1, "first start")
        worker = wait_for(lambda: self._workers(job), "the worker")[0]
        killed = time.time()
        os.kill(worker, signal.SIGKILL)
        wait_for(lambda: self.read("starts").count("\n") == 2, "second start")
        self.assertLess(float(self.read("starts").split()[1]) - killed, within(0.1))
        job.signal(signal.SIGTERM)
        self.assertEqual(job.wait(), 143)

    @staticmethod
    def _workers(job):
        return [p for agent in children_of(job.pid) for p in children_of(agent)]

    def test_quick_deaths_back_off(self):
        before = time.monotonic()
        code, _, err = run("--max-restarts", 4, "--no-python", "false")
        self.assertEqual(code, 1)
        # The pauses before the restarts: 0, 0.5, 1 and 2 s.
        self.assertGreater(time.monotonic() - before, 3.4)
        self.assertEqual(err.count("restarting"), 4)


class Verdict(LiveTest):
    def test_the_exit_code_is_the_culprits(self):
        for command, code in {"exit 1": 1, "exit 42": 42, "exit 255": 255, "kill -SEGV $$$$": 139, "kill -KILL $$$$": 137,
                              "kill -ABRT $$$$": 134}.items():
            with self.subTest(command=command):  # "$$" is how a "$" reaches a worker.
                got, _, err = run("--nproc-per-node", 2, "--no-python", "sh", "-c", command)
                self.assertEqual(got, code, err)
        got, _, _ = run("--exit-code", "torchrun", "--no-python", "sh", "-c", "exit 42")
        self.assertEqual(got, 1)

    def test_the_culprit_is_named_and_the_others_are_one_line(self):
        code, _, err = run("--nproc-per-node", 4, "--no-python", "bash", "-c",
                           "if [ $RANK = 2 ]; then sleep 0.3; echo no more data >&2; exit 42; fi; sleep 1000")
        self.assertEqual(code, 42)
        for text in ("rank 2", "exited with 42", "no more data", "Root Cause (first observed failure)",
                     "exitcode  : 42", "failed (exitcode: 42)"):
            self.assertIn(text, err)
        self.assertEqual(len([line for line in err.splitlines() if "3 others" in line]), 1, err)
        self.assertLess(len(err.splitlines()), 40)

    def test_a_python_traceback_is_in_the_headline(self):
        script = self.write("x.py", "def f():\n    raise ValueError('wrong shape (3, 4)')\nf()\n")
        code, _, err = run(script)
        self.assertEqual(code, 1)
        headline = next(line for line in err.splitlines() if "FAILED" in line)
        self.assertIn("ValueError: wrong shape (3, 4)", headline)

    def test_result_and_events_describe_the_job(self):
        code, _, _ = run("--log-dir", self.path("logs"), "--nproc-per-node", 2, "--max-restarts", 1, "--rdzv-id", "job1",
                         "--no-python", "sh", "-c", "[ $RANK = 1 ] && exit 6; sleep 1000")
        self.assertEqual(code, 6)
        run_dir = os.path.join(self.path("logs"), os.listdir(self.path("logs"))[0])
        self.assertRegex(os.path.basename(run_dir), r"^job1_\w{8}$")
        with open(os.path.join(run_dir, "result.json")) as f:
            result = json.load(f)
        self.assertEqual(result["outcome"], "failed")
        self.assertEqual(result["exit_code"], 6)
        self.assertEqual(result["culprit"]["rank"], 1)
        with open(os.path.join(run_dir, "events.jsonl")) as f:
            events = [json.loads(line) for line in f]
        names = [event["event"] for event in events]
        self.assertEqual(names[0], "job_started")
        self.assertEqual(names[-1], "job_ended")
        self.assertEqual(names.count("worker_started"), 4)
        self.assertEqual(names.count("worker_exited"), 4)
        self.assertEqual(names.count("restarting"), 1)

    def memory_limit(self):
        return self.limited("memory", (("memory.limit_in_bytes", 64 << 20), ("memory.max", 64 << 20)))[0]

    def pids_limit(self, most):
        return self.limited("pids", (("pids.max", most), ("pids.max", most)))

    HOG = "x = []\nwhile True: x.append(bytearray(1 << 20))\n"

    def test_a_kill_by_the_out_of_memory_killer_is_named(self):
        code, _, err = run("--no-python", "python3", "-c", self.HOG, preexec_fn=self.memory_limit())
        self.assertEqual(code, 137, err)
        self.assertIn("killed by the kernel's out-of-memory killer", err)

    @needs_kernel_log
    def test_an_outside_kill_after_an_oom_kill_of_a_child_is_not_called_oom(self):
        """The counter has moved; only the kernel's log knows that it killed another process."""
        script = self.write("w.py", f"""
import os, signal, subprocess, sys
child = subprocess.run([sys.executable, "-c", {self.HOG!r}])
assert child.returncode == -signal.SIGKILL, child
os.kill(os.getpid(), signal.SIGKILL)
""")
        code, _, err = run(script, preexec_fn=self.memory_limit())
        self.assertEqual(code, 137, err)
        self.assertIn("killed by SIGKILL from outside (not by muster, nor by the out-of-memory killer)", err)

    def test_an_exception_after_an_oom_kill_of_a_child_stays_the_cause(self):
        script = self.write("w.py", f"""
import subprocess, sys
subprocess.run([sys.executable, "-c", {self.HOG!r}])
raise ValueError("wrong shape")
""")
        code, _, err = run(script, preexec_fn=self.memory_limit())
        self.assertEqual(code, 1, err)
        self.assertIn("exited with 1: ValueError: wrong shape", err)
        self.assertIn("out-of-memory killer killed a process of this job; if that is why the rank failed", err)

    def test_an_oom_kill_of_a_helper_makes_out_of_memory_the_cause(self):
        script = self.write("w.py", f"""
import os, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", {self.HOG!r}])
open({self.path("pid")!r}, "w").write(str(child.pid))
if child.wait(): raise RuntimeError(f"loader process exited unexpectedly with {{child.returncode}}")
""")
        code, _, err = run("--exit-code", "oom=77", script, preexec_fn=self.memory_limit())
        self.assertEqual(code, 77, err)
        self.assertIn("RuntimeError: loader process exited unexpectedly with -9; the kernel's out-of-memory killer had "
                      "killed ", err)
        self.assertIn("the limit of the memory cgroup is 64 MiB", err)
        if kernel_log_is_ours():
            with open(self.path("pid")) as f:
                self.assertIn(f"had killed its process {f.read()} (", err)

    def test_a_thread_that_the_cgroup_refuses_is_named_with_pids_max(self):
        enter, folder = self.pids_limit(30)
        hold = "import threading\nfor _ in range(40): threading.Thread(target=threading.Event().wait, daemon=True).start()"
        code, _, err = run("--exit-code", "limit=78", "--no-python", "python3", "-c", hold, preexec_fn=enter)
        self.assertEqual(code, 78, err)
        self.assertIn(f"can't start new thread; pids.max of {folder} is 30", err)

    def test_a_fork_that_the_users_limit_refuses_is_named_with_that_limit(self):
        code, _, err = run("--exit-code", "limit=78", "--no-python", "sh", "-c",
                           "echo 'bash: fork: Resource temporarily unavailable' >&2; exit 254",
                           preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NPROC, (4321, 4321)))
        self.assertEqual(code, 78, err)
        if os.getuid():
            self.assertIn(f"ulimit -u (RLIMIT_NPROC) is 4321 for all processes and threads of uid {os.getuid()}", err)

    def test_a_kill_at_the_cpu_time_limit_is_named_with_that_limit(self):
        code, _, err = run("--exit-code", "limit=78", "--no-python", "sh", "-c", "ulimit -t 1; while :; do :; done")
        self.assertEqual(code, 78, err)
        self.assertIn("killed by SIGKILL at its CPU time limit (ulimit -t is 1 s)", err)

    @long
    @needs_kernel_log
    def test_a_stack_that_overflows_is_named(self):
        """The kernel logs only some such faults each second."""
        script = self.write("w.py", """
import ctypes, sys
sys.setrecursionlimit(10**9)
step = ctypes.CFUNCTYPE(None)
def dive(): step(dive)()
dive()
""")
        code, _, err = run(script)
        self.assertEqual(code, 139, err)
        self.assertIn("killed by SIGSEGV: its stack overflowed (ulimit -s is ", err)

    def kept_of(self, temp):
        return sorted(os.sep.join(os.path.join(folder, name).split(os.sep)[-3:])
                      for folder, _, names in os.walk(temp) for name in names)

    def test_the_last_lines_of_each_rank_are_kept_without_a_log_folder(self):
        temp, said = self.path("temp"), self.path("said")
        os.mkdir(temp)
        code, _, err = run("--nproc-per-node", 2, "--no-python", "sh", "-c",
                           f"""echo step of $RANK
                               [ $RANK = 0 ] && touch {said} && sleep 100
                               until [ -e {said} ]; do sleep 0.01; done; echo boom >&2; exit 5""",
                           env={"TMPDIR": temp})
        self.assertEqual(code, 5, err)
        self.assertNotIn("none was kept", err)
        log = re.search(r"^Log: (\S+/attempt_0/1/stderr_tail\.log)", err, re.M)
        self.assertTrue(log, err)
        with open(log[1]) as f:
            self.assertEqual(f.read(), "boom\n")
        self.assertEqual(self.kept_of(temp),
                         ["attempt_0/0/stdout_tail.log", "attempt_0/1/stderr_tail.log", "attempt_0/1/stdout_tail.log"])

    def test_kept_lines_are_removed_if_a_restart_succeeds(self):
        temp, seen = self.path("temp"), self.path("seen")
        os.mkdir(temp)
        code, _, err = run("--nproc-per-node", 2, "--max-restarts", 1, "--no-python", "sh", "-c",
                           f"echo text; [ -e {seen} ] && exit 0; touch {seen}; exit 5",
                           env={"TMPDIR": temp})
        self.assertEqual(code, 0, err)
        self.assertEqual(os.listdir(temp), [])

    def test_the_last_lines_of_a_stopped_job_are_kept(self):
        temp = self.path("temp")
        os.mkdir(temp)
        with Job("--no-python", "sh", "-c", f"echo at step 7; touch {self.path('up')}; exec sleep 1000",
                 env={"TMPDIR": temp}) as job:
            self.wait_for_files("up")
            job.signal(signal.SIGTERM)
            job.wait()
            self.assertRegex(job.stderr(), r"the last lines of each rank are kept in \S+/attempt_0\n")
        self.assertEqual(self.kept_of(temp), ["attempt_0/0/stdout_tail.log"])


class Core(LiveTest):
    def test_a_crash_without_a_core_is_named_by_its_signal(self):
        code, _, err = run("--no-python", "bash", "-c", "ulimit -c 0; kill -SEGV $$$$")
        self.assertEqual(code, 139)
        self.assertTrue(re.search(r"killed by SIGSEGV", err), err)


if __name__ == "__main__":
    main()
