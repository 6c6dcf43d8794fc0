#!/usr/bin/env python3
"""`musterctl stacks` on real processes: native and Python frames; ranks that are stopped, loop or hold the GIL; an
ordinary user's ranks; and the message if libdw, py-spy or ptrace is missing.

The native ranks are $MUSTER_HANG_FAULTS. py-spy is the one in $MUSTER_TORCH_VENV.
"""
import ctypes
import glob
import json
import os
import re
import shutil
import signal
import struct
import subprocess

import harness
from harness import (MUSTER, MUSTERCTL, Job, LiveTest, is_gone, long, musterctl, require_programs, run_tests,
                     wait_for)

NATIVE = os.environ.get("MUSTER_HANG_FAULTS", "")
VENV = os.environ.get("MUSTER_TORCH_VENV", "")
USER = 65534
PY_SPY = os.path.join(VENV, "bin", "py-spy")
NO_PY_SPY = "py-spy is not installed (pip install py-spy)"

# Each rank runs the function that its argument names, and prints "there" just before it gets stuck.
PYTHON = """
import ctypes, os, sys, threading, time
def blocked_read():
    end, other = os.pipe()
    print("there", flush=True)
    os.read(end, 1)
def lock():
    mutex = threading.Lock()
    mutex.acquire()
    print("there", flush=True)
    mutex.acquire()
def loop():
    print("there", flush=True)
    while True: pass
def gil():
    sleep = ctypes.PyDLL(None).sleep
    print("there", flush=True)
    sleep(1000)
def hidden():
    ctypes.CDLL(None).prctl(4, 0)  # PR_SET_DUMPABLE
    blocked_read()
def train(what):
    globals()[what]()
def other():
    time.sleep(1000)
threading.Thread(target=other, name="loader", daemon=True).start()
train(sys.argv[1 + int(os.environ["RANK"])])
"""


def frames(rank, thread=0):
    """Returns ["function", or "function file:line" if the line is known ...], the innermost first."""
    return [f["function"] + (f" {os.path.basename(f['file'])}:{f['line']}" if f["line"] else "")
            for one in rank["threads"][thread:][:1] for f in one["frames"]]  # A new rank may have no thread yet.


def line_of(text):
    """Returns the number of the line of PYTHON that has the text."""
    return next(i for i, line in enumerate(PYTHON.split("\n"), 1) if text in line)


def without_ptrace():
    """Runs in a child before exec: ptrace(2) and process_vm_readv(2) fail with EPERM, as in many containers."""
    def jump(number):
        return struct.pack("=HBBI", 0x15, 0, 1, number) + struct.pack("=HBBI", 0x06, 0, 0, 0x00050001)
    code = struct.pack("=HBBI", 0x20, 0, 0, 0) + jump(101) + jump(310) + struct.pack("=HBBI", 0x06, 0, 0, 0x7FFF0000)
    buffer = ctypes.create_string_buffer(code)
    program = struct.pack("@HP", len(code) // 8, ctypes.addressof(buffer))
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(38, 1, 0, 0, 0) != 0 or libc.prctl(22, 2, ctypes.c_char_p(program), 0, 0) != 0:
        os._exit(99)


class StacksTest(LiveTest):
    def setUp(self):
        super().setUp()
        os.mkdir(self.path("run"), 0o700)
        self.env = {"MUSTER_RUN_DIR": self.path("run"), "OMP_NUM_THREADS": "1", "DIR": self.folder.name}
        self.write("ranks.py", PYTHON)

    def start(self, *args, **options):
        job = Job("--shutdown-timeout", 5, *args, env=self.env | options.pop("env", {}), **options)
        self.addCleanup(job.__exit__)
        return job

    def python(self, *whats, flags=(), env=(), **options):
        """Starts ranks with py-spy on PATH, unless `env` sets another PATH."""
        path = {"PATH": os.path.dirname(PY_SPY) + ":" + os.environ["PATH"]}
        job = self.start("--nproc-per-node", len(whats), *flags, self.path("ranks.py"), *whats, env=path | dict(env), **options)
        wait_for(lambda: job.stdout().count("there") == len(whats), "the ranks are there")
        return job

    def ask(self, *args):
        return musterctl("stacks", *args, env=self.env)

    def shown(self, *args):
        code, out, err = self.ask(*args)
        self.assertEqual((code, err), (0, ""))
        return out

    def stacks(self, *args):
        return {r["rank"]: r for r in json.loads(self.shown("--json", *args))["stacks"]}

    def stacks_with(self, rank, frame):
        """Waits until the rank is in the frame: it prints "there" just before. Returns all stacks."""
        def there():
            stacks = self.stacks()
            return stacks if frame in " ".join(frames(stacks[rank])) else None
        return wait_for(there, frame)


class Frames(StacksTest):
    def test_python_ranks_show_their_own_lines(self):
        if not os.access(PY_SPY, os.X_OK):
            self.skipTest(f"no py-spy: {PY_SPY} (./dev test installs it)")
        whats = ["blocked_read", "lock", "loop", "gil"]
        lines = {"blocked_read": line_of("os.read"), "lock": line_of("mutex.acquire()") + 2, "loop": line_of("while True"),
                 "gil": line_of("    sleep(1000)")}
        job = self.python(*whats)
        stacks = self.stacks_with(3, "gil")
        for rank, what in enumerate(whats):
            with self.subTest(what=what):
                self.assertEqual(stacks[rank]["missing"], "")
                found = frames(stacks[rank])
                own = [f for f in found if "ranks.py" in f]
                self.assertEqual(own[0], f"{what} ranks.py:{lines[what]}")
                self.assertEqual([f.split()[0] for f in own[1:]], ["train", "<module>"])
                if what != "loop":
                    self.assertNotIn("ranks.py", found[0])  # It is a frame of the interpreter's callee.
                names = [t["name"] for t in stacks[rank]["threads"]]
                self.assertIn("MainThread", names[0])
                self.assertTrue(any("loader" in name for name in names), names)
        self.assertTrue(frames(stacks[0])[0].endswith("read"), frames(stacks[0]))
        text = self.shown("--ranks", "0")
        self.assertRegex(text, r"^  rank 0 \(pid \d+\): \S*read ← .*blocked_read \(ranks.py:\d+\) ← train \(ranks.py:\d+\) ← "
                         r"<module> \(ranks.py:\d+\)\n    no other process holds the other end of the pipe or socket that it reads\n$")
        self.assertEqual(job.process.poll(), None, job.stderr())

    def test_the_native_rank_outside_calls_comes_first(self):
        """Starts more ranks than are read at a time."""
        os.mkfifo(self.path("fifo"))
        self.start("--nproc-per-node", 6, "--no-python", NATIVE,
                   env={"FAULT": "blocked_read", "CULPRIT": "1", "FIFO": self.path("fifo")})
        stacks = wait_for(lambda: self.ask("--json")[0] == 0 and self.stacks_with(1, "read_fifo"), "the ranks run")
        self.assertRegex(" ".join(frames(stacks[1])), r"^\S*read .*hang_faults.cc:\d+")
        self.assertIn("main hang_faults.cc", " ".join(frames(stacks[0])))
        text = wait_for(lambda: (t := self.shown()).startswith("  rank 1 ") and t, "it comes first")
        self.assertRegex(text, r"^  rank 1 \(pid \d+\): \S*read ← \S+read_fifo \(hang_faults.cc:\d+\) ← main [^\n]+\n  5 ranks ")
        code, out, err = self.ask("--ranks", 7)
        self.assertEqual((code, out, len(err.splitlines())), (1, "", 1), err)

    def test_a_stopped_rank_stays_stopped(self):
        self.python("blocked_read", "blocked_read")
        pid = self.stacks_with(0, "read")[0]["pid"]
        os.kill(pid, signal.SIGSTOP)
        wait_for(lambda: harness.processes()[pid][1] == "T", "it is stopped")
        self.assertIn("read", " ".join(frames(self.stacks()[0])))
        self.assertEqual(harness.processes()[pid][1], "T")
        os.kill(pid, signal.SIGCONT)
        wait_for(lambda: harness.processes()[pid][1] == "S", "it goes on")

    def test_a_rank_that_has_ended_is_named(self):
        self.write("one.sh", "#!/bin/sh\n[ $RANK = 1 ] || exit 0\necho there\nread x < fifo\n")
        os.mkfifo(self.path("fifo"))
        self.start("--nproc-per-node", 2, "--no-python", self.path("one.sh"), cwd=self.folder.name)
        text = wait_for(lambda: "has ended" in (t := self.ask()[1]) and t, "rank 0 has ended")
        self.assertRegex(text, r"(?m)^  rank 0 \(pid \d+\): the worker has ended$")
        self.assertRegex(text, r"(?m)^  rank 1 \(pid \d+\): \S+ ")


class OtherRights(StacksTest):
    def setUp(self):
        super().setUp()
        if os.geteuid() != 0:
            self.skipTest("not root: it starts muster as another user")
        if not os.access(PY_SPY, os.X_OK):
            self.skipTest(f"no py-spy: {PY_SPY} (./dev test installs it)")
        os.chmod(self.folder.name, 0o777)
        os.chown(self.path("run"), USER, USER)
        for program in MUSTER, MUSTERCTL, PY_SPY:
            shutil.copy(program, self.path(os.path.basename(program)))  # Readable for the user.
        self.path_of_user = {"PATH": f"{self.folder.name}:/usr/bin:/bin", "TMPDIR": self.folder.name}

    def user(self):
        os.setgroups([])
        os.setresgid(USER, USER, USER)
        os.setresuid(USER, USER, USER)

    def ask(self, *args):
        done = subprocess.run([self.path("musterctl"), "stacks", *map(str, args)], env={**os.environ, **self.env},
                              capture_output=True, text=True, timeout=60, check=False, preexec_fn=self.user)
        return done.returncode, done.stdout, done.stderr

    def python(self, *whats, **options):
        harness.MUSTER, muster = self.path("muster"), harness.MUSTER
        try:
            return super().python(*whats, flags=("--python", "/usr/bin/python3"), env=self.path_of_user, preexec_fn=self.user,
                                  cwd=self.folder.name, **options)
        finally:
            harness.MUSTER = muster

    def test_an_ordinary_users_ranks_show_their_frames(self):
        self.python("blocked_read", "lock")
        stacks = self.stacks_with(1, "lock")
        self.assertEqual([s["missing"] for s in stacks.values()], ["", ""])
        self.assertIn("blocked_read ranks.py", " ".join(frames(stacks[0])))
        self.assertNotIn("ranks.py", frames(stacks[0])[0])

    def test_a_rank_that_hides_itself_prints_its_own_frames(self):
        """PR_SET_DUMPABLE is 0: other processes of the user may not read the rank. It prints its own frames."""
        self.python("hidden", "lock", "lock")
        stacks = self.stacks_with(1, "lock")
        self.assertIn("lock ranks.py", " ".join(frames(stacks[2])))
        self.assertIn("hidden ranks.py", " ".join(frames(stacks[0])))  # The rank has printed them.
        self.assertIn("no native frames", stacks[0]["missing"])
        self.assertEqual(len(re.findall(r"(?m)^  \S", self.shown())), 3)


    def test_another_users_rank_does_not_choose_what_root_runs(self):
        self.write("py-spy", f"#!/bin/sh\ntouch {self.path('was-run')}\n")
        os.symlink("/usr/bin/python3", self.path("python"))
        os.chmod(self.path("ranks.py"), 0o644)
        os.chown(self.path("run"), 0, 0)
        job = self.start("--nproc-per-node", 1, "--no-python", "setpriv", f"--reuid={USER}", "--clear-groups",
                         self.path("python"), self.path("ranks.py"), "lock", env={"PATH": "/usr/bin:/bin"})
        wait_for(lambda: "there" in job.stdout(), "the rank is there")
        code, out, err = musterctl("stacks", job.pid, env=self.env)
        self.assertEqual((code, err), (0, ""))
        self.assertIn(NO_PY_SPY, out)
        self.assertFalse(self.exists("was-run"))


class Missing(StacksTest):
    def test_a_missing_py_spy_is_named(self):
        job = self.python("blocked_read", flags=("--python", "/usr/bin/python3", "--no-python-hook"),
                          env={"PATH": "/usr/bin:/bin"})
        stacks = self.stacks_with(0, "read")
        self.assertIn(NO_PY_SPY, stacks[0]["missing"])
        text = self.shown()
        self.assertRegex(text, r"^  rank 0 \(pid \d+\): \S*read")
        self.assertRegex(text, r"\n  rank 0 \(pid \d+\): no Python frames: [^\n]+\n$")
        self.assertEqual(job.process.poll(), None, job.stderr())

    def test_a_missing_libdw_is_named(self):
        self.write("libdw.so.1", "")
        self.python("blocked_read", env={"LD_LIBRARY_PATH": self.folder.name})
        stacks = self.stacks()
        self.assertEqual(stacks[0]["missing"], "no native frames: libdw.so.1 is not installed (Debian: apt install libdw1)")
        self.assertIn("blocked_read ranks.py", frames(stacks[0])[0])

    def test_forbidden_ptrace_is_named(self):
        job = self.python("blocked_read", "blocked_read", preexec_fn=without_ptrace)
        stacks = self.stacks()
        for rank in stacks.values():
            self.assertIn("blocked_read ranks.py", frames(rank)[0])  # py-spy works without ptrace.
            self.assertRegex(rank["missing"], "^no native frames: 2 threads: ptrace is not permitted ")
        self.assertEqual(len(re.findall(r"(?m)^  \S", self.shown())), 2)
        self.assertEqual(job.process.poll(), None, job.stderr())


class OfPytorch(StacksTest):
    def setUp(self):
        super().setUp()
        self.interpreter = os.path.join(VENV, "bin", "python")
        if not os.access(PY_SPY, os.X_OK):
            self.skipTest(f"no PyTorch with py-spy in {VENV!r}: set MUSTER_TORCH_VENV (./dev test makes it)")

    def test_programs_print_their_own_frames_without_py_spy(self):
        """Without py-spy, and in a rank that hides itself and holds the GIL."""
        os.makedirs(self.path("bin"))
        os.symlink(os.path.realpath(self.interpreter), self.path("bin/python3"))
        packages = glob.glob(os.path.join(VENV, "lib", "python3*", "site-packages"))[0]
        hidden = PYTHON.replace("def gil():", "def gil():\n    ctypes.CDLL(None).prctl(4, 0)")
        self.write("ranks.py", "import torch.distributed\n" + hidden)
        job = self.start("--nproc-per-node", 2, "--python", self.path("bin/python3"), self.path("ranks.py"), "gil", "lock",
                         env={"PATH": "/usr/bin:/bin", "PYTHONPATH": packages})
        wait_for(lambda: job.stdout().count("there") == 2, "the ranks are there", 120)
        stacks = self.stacks_with(1, "lock")
        for rank, what in enumerate(("gil", "lock")):
            found = frames(stacks[rank])
            self.assertEqual([f.split()[0] for f in found if "ranks.py" in f], [what, "train", "<module>"], stacks[rank])
            self.assertEqual(stacks[rank]["missing"], "")
        # Retries: on a busy machine an answer may lack native frames, which adds a line.
        wait_for(lambda: self.shown("--ranks", "0").count("\n") == 1, lambda: self.shown("--ranks", "0"))
        self.assertEqual(job.process.poll(), None, job.stderr())

    def without_py_spy(self, program, *args):
        os.makedirs(self.path("bin"))
        os.symlink(os.path.realpath(self.interpreter), self.path("bin/python3"))
        packages = glob.glob(os.path.join(VENV, "lib", "python3*", "site-packages"))[0]
        self.write("ranks.py", program)
        job = self.start("--nproc-per-node", 1, "--python", self.path("bin/python3"), self.path("ranks.py"), *args,
                         env={"PATH": "/usr/bin:/bin", "PYTHONPATH": packages})
        wait_for(lambda: "there" in job.stdout(), "the rank is there", 120)
        return job

    @long
    def test_running_threads_survive_the_printing_of_stacks(self):
        job = self.without_py_spy("""
import json, threading, time, torch.distributed
def walk(depth):
    json.loads("[1]")
    return depth and walk(depth - 1)
def prefetch():
    while True: walk(50)
for _ in range(3): threading.Thread(target=prefetch, daemon=True).start()
print("there", flush=True)
time.sleep(1000)
""")
        self.stacks_with(0, "<module> ranks.py:10")
        for _ in range(15):
            self.assertIn("<module> ranks.py:10", " ".join(frames(self.stacks()[0])))
        self.assertEqual(job.process.poll(), None, job.stderr())

    def test_nothing_is_written_to_other_files(self):
        job = self.without_py_spy(f"""
import os, time, torch.distributed
os.closerange(3, 4096)
files = [open({self.path('data')!r} + str(i), "w") for i in range(150)]
print("there", flush=True)
time.sleep(1000)
""")
        self.assertIn("no Python frames", self.stacks()[0]["missing"])
        self.assertEqual({os.path.getsize(path) for path in glob.glob(self.path("data*"))}, {0})
        self.assertEqual(job.process.poll(), None, job.stderr())

    @long
    def test_eight_pytorch_ranks_are_grouped_by_their_frames(self):
        self.write("train.py", """
import os, torch, torch.distributed as dist
def load_batch():
    end, other = os.pipe()
    os.read(end, 1)
def main():
    dist.init_process_group("gloo")
    dist.all_reduce(torch.ones(8))
    print("there", flush=True)
    if dist.get_rank() == 5: load_batch()
    dist.all_reduce(torch.ones(8))
main()
""")
        job = self.start("--nproc-per-node", 8, "--python", self.interpreter, self.path("train.py"))
        wait_for(lambda: job.stdout().count("there") == 8, "the ranks are there", 120)
        text = wait_for(lambda: (t := self.shown()).count("\n") == 2 and t, "seven ranks wait in one function")
        self.assertRegex(text, r"(?m)^  rank 5 \(pid \d+\): \S*read ← load_batch \(train.py:5\) ← main \(train.py:10\) ← ")
        self.assertRegex(text, r"(?m)^  7 ranks \(0-4,6-7\): \S+ ← .*main \(train.py:11\) ← <module> \(train.py:12\)$")
        stacks = self.stacks()
        self.assertEqual([r["missing"] for r in stacks.values()], [""] * 8)
        self.assertFalse(any(is_gone(r["pid"]) for r in stacks.values()))


if __name__ == "__main__":
    require_programs(MUSTER=MUSTER, MUSTERCTL=MUSTERCTL, MUSTER_HANG_FAULTS=NATIVE)
    run_tests()
