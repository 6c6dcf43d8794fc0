"""Helpers of the live tests: start the real launcher, watch real processes, wait for facts.

Every test runs the binary that $MUSTER names. Tests recognise the processes of a job by a marker on their command line,
which the launcher never looks at.
"""
import contextlib
import glob
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest
import uuid

from waiting import LIMIT_S, nothing_happens_for, pause, polling, wait_for, wait_until_stuck, within  # noqa: F401

MUSTER = os.environ.get("MUSTER", "")
if "MUSTER_ON_OLD_KERNEL" in os.environ:  # What runs there is the published launcher.
    MUSTER = os.environ.get("MUSTER_PUBLISHED", MUSTER)
MUSTERCTL = os.environ.get("MUSTERCTL", "")
SHARED_TMP = "/tmp"  # Only for files that the launcher and the library keep there whatever TMPDIR is.
# The temporary folder of this test program and of all that it starts. Failed jobs leave their last lines there.
_TEMP = tempfile.TemporaryDirectory(prefix="muster-live-", ignore_cleanup_errors=True)
os.environ.update(TMPDIR=_TEMP.name, HOME=_TEMP.name)


def require_programs(**programs):
    """Ends this program unless each variable, by its name, has the path of a program that can be run."""
    for name, path in programs.items():
        if not os.access(path, os.X_OK):
            sys.exit(f"{name}={path!r}: set it to the program to be tested")


def require_muster():
    require_programs(MUSTER=MUSTER)


def skip_without(*variables):
    """Ends this program as skipped unless these variables are set."""
    absent = [name for name in variables if not os.environ.get(name)]
    if absent:
        print(f"SKIPPED: {', '.join(absent)} not set (./dev test sets them)", file=sys.stderr)
        sys.exit(77)


def say(text):
    """Prints what was measured, behind the test's name."""
    print(f"\n    {text}", file=sys.stderr, end=" ", flush=True)


def output_of(*command, **options):
    """What a command that must succeed prints on either stream."""
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, timeout=180, check=False,
                          **options)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, command))} ended with {done.returncode}:\n{done.stdout}")
    return done.stdout


def musterctl(*args, env=None):
    """Runs musterctl to its end: (exit code, stdout, stderr)."""
    done = subprocess.run([MUSTERCTL, *map(str, args)], env=os.environ | (env or {}), stdin=subprocess.DEVNULL,
                          capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, done.stdout, done.stderr


def mount_tmpfs(test, folder, options):
    """Mounts a file system in memory until the test ends; skips the test where that is not allowed."""
    if os.geteuid() != 0 or subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], check=False).returncode != 0:
        test.skipTest("mounting a file system needs root")
    test.addCleanup(subprocess.run, ["umount", "-l", folder], check=True)


def install_wheel(add_cleanup, python):
    """Installs the wheel of $MUSTER_DIST in a folder that add_cleanup removes; returns it, for PYTHONPATH."""
    held = tempfile.TemporaryDirectory(prefix="muster-python-")
    add_cleanup(held.cleanup)
    [wheel] = glob.glob(f"{os.environ['MUSTER_DIST']}/*_{os.uname().machine}.whl")
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-index", "--disable-pip-version-check", "--target", held.name,
                    wheel], check=True, stdin=subprocess.DEVNULL)
    return held.name


def bare_python(test_class):
    """The path of a Python without packages, removed after the class."""
    held = tempfile.TemporaryDirectory(prefix="muster-python-")
    test_class.addClassCleanup(held.cleanup)
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", held.name], check=True)
    return os.path.join(held.name, "bin", "python")


def start_kernel(test, python, env, folder):
    """(manager, client) of a notebook's kernel that runs `python`, which has jupyter's client; the test's cleanup stops both."""
    sys.path[:0] = glob.glob(os.path.join(os.path.dirname(python), "..", "lib", "python3*", "site-packages"))
    from jupyter_client import KernelManager
    # A manager with TCP chooses ports that another process may take before the kernel binds them.
    manager = KernelManager(transport="ipc", connection_file=os.path.join(folder, "kernel.json"))
    manager.kernel_spec.argv[0] = python
    manager.start_kernel(env=env, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    test.addCleanup(manager.shutdown_kernel, now=True)
    client = manager.client()
    client.start_channels()
    test.addCleanup(client.stop_channels)
    client.wait_for_ready(timeout=LIMIT_S)
    return manager, client


def end_of_cell(client, request, on_print=lambda printed: None):
    """Returns (what the cell printed, the name of its exception or None) once it has ended. `on_print` gets what it has printed
    so far."""
    printed, error = "", None
    while True:
        message = client.get_iopub_msg(timeout=LIMIT_S)
        if message["parent_header"].get("msg_id") != request:
            continue
        content = message["content"]
        if message["msg_type"] == "stream":
            printed += content["text"]
            on_print(printed)
        elif message["msg_type"] == "error":
            error = content["ename"]
        elif message["msg_type"] == "status" and content["execution_state"] == "idle":
            return printed, error


def processes():
    """{pid: (ppid, state, cmdline)} of all processes, including zombies."""
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat") as f:
                rest = f.read().rpartition(")")[2].split()
            with open(f"/proc/{name}/cmdline", "rb") as f:
                cmdline = f.read().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue
        if rest:  # Else the process ended between open() and read().
            found[int(name)] = (int(rest[1]), rest[0], cmdline)
    return found


def name_of(pid):
    try:
        with open(f"/proc/{pid}/comm") as f:
            return f.read().strip()
    except OSError:
        return ""


def is_witness(pid):
    """True for the agent's witness process, whose command line is like a worker's."""
    return name_of(pid) == "signal-witness"


def alive_with(marker):
    """Pids of processes, zombies excluded, that have the marker on their command line."""
    return [p for p, (_, state, cmdline) in processes().items() if state not in "ZX" and marker in cmdline and not is_witness(p)]


def children_of(pid):
    return [p for p, (parent, _, _) in processes().items() if parent == pid and not is_witness(p)]


def signal_all(pids, number):
    """Signals the processes one right after the other, as a service manager does: a busy machine must not hold the sender up
    between two signals, since the launcher then counts them as two requests."""
    policy = os.sched_getscheduler(0)
    with contextlib.suppress(PermissionError):
        os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1))
    try:
        for pid in pids:
            os.kill(pid, number)
    finally:
        os.sched_setscheduler(0, policy, os.sched_param(0))


def is_gone(pid):
    try:
        with open(f"/proc/{pid}/stat") as f:
            return f.read().rpartition(")")[2].split()[0] in "ZX"
    except OSError:
        return True


class Job:
    """A launcher process under test. Its output goes to files, so it never blocks on the test."""

    def __init__(self, *args, env=None, stdin=subprocess.DEVNULL, cwd=None, under=(), **popen):
        """`under`: a command that runs the launcher; its pid is the job's."""
        self.out = tempfile.TemporaryFile()
        self.err = tempfile.TemporaryFile()
        self.process = subprocess.Popen([*under, MUSTER, *map(str, args)], stdin=stdin, stdout=popen.pop("stdout", self.out),
                                        stderr=popen.pop("stderr", self.err), env=os.environ | (env or {}), cwd=cwd, **popen)
        self.pid = self.process.pid

    def agent(self):
        return wait_for(lambda: [p for p in children_of(self.pid) if name_of(p) == "muster-agent"], "the front has an agent")[0]

    def signal(self, number):
        os.kill(self.pid, number)

    def wait(self, limit_s=LIMIT_S):
        return self.process.wait(limit_s)

    def stdout(self):
        return self._read(self.out)

    def stderr(self):
        return self._read(self.err)

    @staticmethod
    def _read(file):
        return os.pread(file.fileno(), 1 << 26, 0).decode(errors="replace")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
        self.out.close()
        self.err.close()


def run(*args, limit_s=LIMIT_S, **options):
    """Runs a job to its end: (exit code, stdout, stderr)."""
    with Job(*args, **options) as job:
        code = job.wait(limit_s)
        return code, job.stdout(), job.stderr()


class LiveTest(unittest.TestCase):
    def setUp(self):
        self.folder = tempfile.TemporaryDirectory()
        self.addCleanup(self.folder.cleanup)
        self.marker = f"marker-{uuid.uuid4().hex}"

    def path(self, name):
        return os.path.join(self.folder.name, name)

    def write(self, name, content, mode=0o755):
        with open(self.path(name), "w") as f:
            f.write(content)
        os.chmod(self.path(name), mode)
        return self.path(name)

    def read(self, name):
        with open(self.path(name)) as f:
            return f.read()

    def exists(self, name):
        return os.path.exists(self.path(name))

    def wait_for_files(self, *names):
        wait_for(lambda: all(self.exists(n) for n in names), f"files {names}")

    def limited(self, controller, limits):
        """Returns a function that moves its process into a new cgroup with the given limit ((file, value) for version 1, then
        for version 2), and the cgroup's folder. Skips the test if no cgroup can be made."""
        folder = None
        for (name, value), root in zip(limits, (f"/sys/fs/cgroup/{controller}", "/sys/fs/cgroup")):
            candidate = os.path.join(root, f"muster-test-{os.getpid()}")
            try:
                os.mkdir(candidate)
                with open(os.path.join(candidate, name), "w") as f:
                    f.write(str(value))
                folder = candidate
                break
            except OSError:
                if os.path.isdir(candidate):
                    os.rmdir(candidate)
        if folder is None:
            self.skipTest(f"no cgroup of {controller} can be created here")
        self.addCleanup(os.rmdir, folder)
        return lambda: open(os.path.join(folder, "cgroup.procs"), "w").write(str(os.getpid())), folder

    def frozen_disk(self):
        """(folder, freeze, thaw) of a loop-mounted file system; while it is frozen, writes block. Skips if it cannot be made."""
        if os.geteuid() != 0 or not shutil.which("fsfreeze") or not shutil.which("mkfs.ext4"):
            self.skipTest("freezing a file system needs root, fsfreeze and mkfs.ext4")
        image, disk = self.path("image"), self.path("disk")
        with open(image, "wb") as f:
            f.truncate(64 << 20)
        os.mkdir(disk)
        subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
        if subprocess.run(["mount", "-o", "loop", image, disk], check=False).returncode != 0:
            self.skipTest("no loop device can be mounted here")
        self.addCleanup(subprocess.run, ["umount", "-l", disk], check=True)
        thaw = lambda: subprocess.run(["fsfreeze", "-u", disk], check=False, stderr=subprocess.DEVNULL)
        self.addCleanup(thaw)
        return disk, lambda: subprocess.run(["fsfreeze", "-f", disk], check=True), thaw

    def assert_nothing_left(self):
        """Allows a moment for killed processes to go."""
        def left():
            all_of_them = processes()
            return f"what is left has gone: {[(p, all_of_them.get(p)) for p in alive_with(self.marker)]}"
        wait_for(lambda: not alive_with(self.marker), left, within(0.2))


# Marks slow tests for ./dev long; the gate has an example of each, or the same on another level.
LONG = bool(os.environ.get("MUSTER_LONG"))
long = unittest.skipUnless(LONG, "only ./dev long runs it")


class TimedResult(unittest.TextTestResult):
    """Prints how long each test took."""

    def startTest(self, test):
        super().startTest(test)
        self.began = time.monotonic()

    def stopTest(self, test):
        self.stream.writeln(f"    {time.monotonic() - self.began:.1f} s")
        super().stopTest(test)


def run_tests(argv=None):
    unittest.main(module="__main__", argv=argv, verbosity=2,
                  testRunner=unittest.TextTestRunner(resultclass=TimedResult, verbosity=2))


def main(apart=()):
    """Runs the named classes, or all; with --rest all but `apart`, which CTest runs as tests of their own."""
    require_muster()
    if "--rest" in sys.argv:
        cases = unittest.defaultTestLoader.loadTestsFromModule(sys.modules["__main__"])
        sys.argv[1:] = sorted({type(case).__name__ for suite in cases for case in suite} - set(apart))
    run_tests()
