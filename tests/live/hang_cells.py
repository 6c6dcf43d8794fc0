"""The cells of the matrix of hang detection: jobs in which one rank keeps the others waiting, and the verdicts on them.

A cell is a fault, a library and a number of ranks; its outcome is a row. The libraries are worker_lib
(programs/hang_faults.cc, named by $MUSTER_HANG_FAULTS), and torch and torch_ddp (programs/torch_faults.py on gloo, in the
virtual environment that $MUSTER_TORCH_VENV names). A fault that the worker library detects, or that breaks gloo, ends in the
ordinary verdict on a failed job, to which the detector must add nothing.
"""
import contextlib
import ctypes
import dataclasses
import datetime
import glob
import json
import os
import re
import signal
import tempfile

from harness import Job, is_gone, pause, wait_for, within
from ports import free_port

PROGRAM = os.environ.get("MUSTER_HANG_FAULTS", "")
RECORDED_MISMATCH = ("--no-python", os.environ.get("MUSTER_RECORDED_MISMATCH", ""))  # Its ranks only record a call.
PROMISE_S = 15.0  # The limit from the fault until the detector names it.
TOLD_S = 20.0  # A node reports a verdict to the others at once, and again after a second.
VERDICTS = ("hang", "mismatch")


HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = os.path.join(os.environ.get("MUSTER_TORCH_VENV", ""), "bin", "python")
TORCH = ("--python", PYTHON, os.path.join(HERE, "programs", "torch_faults.py"))


@dataclasses.dataclass(frozen=True)
class Expected:
    what: str  # The class of the verdict, or "signal" for a job that failed of one.
    by: str  # "time", "proof", "failure" (the job failed of the fault) or "proof or failure".
    ranks: str = "culprit"  # "pair": also the next rank; "tie": both ranks of a world of two, since neither is right.

    def ranks_of(self, culprit, world):
        with_next = self.ranks == "pair" or (self.ranks == "tie" and world == 2)
        return sorted({culprit, (culprit + 1) % world} if with_next else {culprit})


MISMATCH = Expected("signature", "failure", "tie")
FAULTS = {
    "blocked_read": Expected("never_entered", "time"),
    "lock": Expected("never_entered", "time"),
    "endless_loop": Expected("busy", "time"),
    "sleep": Expected("busy", "time"),
    "chain": Expected("never_entered", "time"),
    "stopped": Expected("stopped", "time"),
    "stopped_inside": Expected("stopped", "time"),
    "crossed_groups": Expected("circle", "proof", "pair"),
    "recv_without_send": Expected("circle", "proof", "pair"),
    "other_size": MISMATCH,
    "other_dtype": MISMATCH,
    "other_operation": MISMATCH,
    "other_root": MISMATCH,
    "other_reduction": MISMATCH,
    "swapped": MISMATCH,
    "barrier_too_few": MISMATCH,
    "early_exit": Expected("exited", "failure"),
    "killed": Expected("signal", "failure"),
}


MISMATCH_IN_TORCH = Expected("signature", "proof or failure", "tie")
# Ranks to which gloo reports a broken connection take a while to end; the others wait for ever.
EXIT_IN_TORCH = Expected("exited", "proof or failure")
LIBRARIES = {
    "worker_lib": FAULTS,
    "torch": {"gil": Expected("never_entered", "time")} | {
        fault: MISMATCH_IN_TORCH if expected == MISMATCH else expected for fault, expected in FAULTS.items()} | {
            "early_exit": EXIT_IN_TORCH},
}
LIBRARIES["torch_ddp"] = {fault: LIBRARIES["torch"][fault] for fault in
                          ("blocked_read", "gil", "endless_loop", "stopped", "other_size", "barrier_too_few", "early_exit",
                           "killed")}


def program_of(library):
    """Arguments and environment of the library's job."""
    if library == "worker_lib":
        return ("--no-python", PROGRAM), {}
    return TORCH, {"STEP": "ddp"} if library == "torch_ddp" else {}


def limits(scale, busy_s=600):
    """Flags for all limits times `scale`. By default ranks that are busy have no fixed limit; here they have a long one unless
    a test wants a busy rank found, since on a loaded machine a rank may be seconds behind the others."""
    return () if scale == 1 else ("--hang-timeout", 12 * scale, "--busy-timeout", busy_s * scale)


class HangJob(Job):
    """A job with a fault, a log folder and a pipe that ends some faults. With several nodes, each an agent on this machine, it
    is the first node, and `others` are the rest."""

    def __init__(self, folder, fault, *flags, ranks=4, culprit=1, env=None, program=("--no-python", PROGRAM), nodes=1,
                 env_of_others=None):
        home = tempfile.mkdtemp(dir=folder)
        self.logs, self.fifo = os.path.join(home, "logs"), os.path.join(home, "fifo")
        os.mkfifo(self.fifo)
        common = ("--nproc-per-node", ranks // nodes, "--shutdown-timeout", 3, *flags)
        if nodes > 1:
            common = ("--nnodes", nodes, "--master-addr", "127.0.0.1", "--master-port", free_port(), *common)
        env = {"FAULT": fault, "CULPRIT": str(culprit), "FIFO": self.fifo, **(env or {})}
        place = lambda node: ("--node-rank", node, "--log-dir", self.logs_of(node)) if nodes > 1 else ("--log-dir", self.logs)
        super().__init__(*common, *place(0), *program, env=env)
        env = {**env, **(env_of_others or {})}
        self.others = [Job(*common, *place(node), *program, env=env) for node in range(1, nodes)]

    def __exit__(self, *exc):
        for other in self.others:
            other.__exit__(*exc)
        super().__exit__(*exc)

    def logs_of(self, node):
        return self.logs if node == 0 else f"{self.logs}-{node}"

    def stdout(self):
        return super().stdout() + "".join(other.stdout() for other in self.others)

    def go_on(self):
        """Ends the fault of a rank that reads from the pipe."""
        with open(self.fifo, "w") as f:
            f.write("x")

    def events(self, *names, node=0):
        """The events with these names that a node has written; no names: notices, verdicts and withdrawals."""
        lines = []
        for path in glob.glob(os.path.join(self.logs_of(node), "*", "events.jsonl")):
            with open(path) as f:
                lines = f.read().split("\n")[:-1]
        events = map(json.loads, lines)
        return [e for e in events if (e["event"] in names if names else "class" in e)]

    def found(self, *names):
        return [e for e in self.events() if e["event"] in names]

    def wait_found(self, name):
        return wait_for(lambda: self.found(name), f"{name} in events.jsonl")[0]

    def result(self, node=0):
        with open(glob.glob(os.path.join(self.logs_of(node), "*", "result.json"))[0]) as f:
            return json.load(f)

    def bundles(self, node=0):
        """The bundles of verdicts and of musterctl dump, by file name."""
        found = {}
        for path in glob.glob(os.path.join(self.logs_of(node), "*", "*_[0-9]*.json")):
            if not os.path.basename(path).startswith("evidence_"):
                with open(path) as f:
                    found[os.path.basename(path)] = json.load(f)
        return found

    def stop(self):
        """Stops the job unless it has ended; returns its exit code."""
        if self.process.poll() is None:
            self.signal(signal.SIGTERM)
        for other in self.others:
            other.wait()
        return self.wait()

    def pids(self):
        return [e["pid"] for node in range(1 + len(self.others)) for e in self.events("worker_started", node=node)]


def seconds_of(event):
    return datetime.datetime.fromisoformat(event["time"].replace("Z", "+00:00")).timestamp()


def failure_of(job):
    """The verdict on a failed job in the form of a detector's event; None: the job has not failed."""
    result, failed = job.result(), job.events("attempt_failed")
    if not failed or not result["culprit"]:
        return None
    culprit, summary = result["culprit"], result["summary"]
    ranks, what = [culprit["rank"]], result["class"]
    if result["reason"] == "mismatch" or re.search("all ranks must make the same calls|called something else", summary):
        what = "signature"
        if result["world"]["size"] == 2:
            ranks = sorted({int(rank) for rank in re.findall(r"\brank (\d+)", summary)})
    elif culprit["exit_code"] == 0:
        what = "exited"
    return {"time": failed[0]["time"], "class": what, "by": "failure", "ranks": ranks, "text": summary}


def is_right(event, expected, culprit, world):
    # A circle lists its ranks in the order in which they wait for each other.
    return (event["class"] == expected.what and event["by"] in expected.by.split(" or ")
            and sorted(event["ranks"]) == expected.ranks_of(culprit, world))


def perform(fault, ranks, culprit, scale, library="worker_lib", nodes=1):
    """Runs one cell; returns its row."""
    expected = LIBRARIES[library][fault]
    # The verdict on a rank that may be busy takes one to ten minutes with the default limits, so its notice counts.
    last = ("waiting",) if expected.what == "busy" and scale == 1 else VERDICTS
    flags = limits(scale, *([30] if expected.what == "busy" else []))
    program, env = program_of(library)
    with (tempfile.TemporaryDirectory() as folder,
          HangJob(folder, fault, *flags, ranks=ranks, culprit=culprit, env=env, program=program,
                  nodes=nodes) as job):
        with contextlib.suppress(AssertionError):  # The row shows a time-out.
            wait_for(lambda: job.found(*last) or job.process.poll() is not None, fault)
            wait_for(lambda: all_know(job), "all nodes know", TOLD_S)  # A stop would cut it short.
        job.stop()
        row = {"library": library, "fault": fault, "ranks": ranks, "nodes": nodes, "culprit": culprit, "scale": scale,
               **judged(job, expected, ranks, culprit)}
        return row | {"right": row["right"] and all_know(job)}


def all_know(job):
    """True if all nodes have written the same verdicts."""
    texts = [[e["text"] for e in job.events("hang", "mismatch", node=node)] for node in range(1 + len(job.others))]
    return all(one == texts[0] for one in texts)


def judged(job, expected, ranks, culprit):
    """Returns what was found in a job that has ended, how long after the fault, and whether it is right.
    A failure is known once the ranks have ended; only the matrix holds that time to the promise."""
    failure, notices = failure_of(job), job.found("waiting")
    verdicts = job.found(*VERDICTS)
    says_the_same = any((v["class"], v["ranks"]) == (failure["class"], failure["ranks"]) for v in verdicts if failure)
    if failure and not (verdicts and (says_the_same or job.result()["reason"] in ("mismatch", "hang"))):
        verdicts.append(failure)
    began = re.search(r"fault ([\d.]+)", job.stdout())
    right = [e for e in notices + verdicts if is_right(e, expected, culprit, ranks)]
    after = lambda events: round(seconds_of(events[0]) - float(began[1]), 3) if began and events else None
    named_s = after(right)
    in_time = named_s is not None and (right[0]["by"] == "failure" or named_s <= within(PROMISE_S, 1))
    return {"found": [{key: e[key] for key in ("class", "by", "ranks", "text")} for e in verdicts or notices],
            "named_s": named_s, "verdict_s": after(verdicts),
            "right": (in_time and len(verdicts) < 2
                      and all(e in right for e in verdicts) and not job.found("withdrawn"))}


# ---- healthy jobs

SEIZE, INTERRUPT, DETACH, WAIT_ALL = 0x4206, 0x4207, 17, 0x40000000


def trace(pid, seconds):
    """Stops a process with ptrace, as a debugger does."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.ptrace.argtypes = (ctypes.c_long, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p)
    for request in (SEIZE, INTERRUPT):
        if libc.ptrace(request, pid, None, None) != 0:
            raise OSError(ctypes.get_errno(), "ptrace")
    os.waitpid(pid, WAIT_ALL)
    pause(seconds, "as long as a person takes")
    libc.ptrace(DETACH, pid, None, None)


def stop(pid, seconds):
    os.kill(pid, signal.SIGSTOP)
    pause(seconds, "as long as a person takes")
    os.kill(pid, signal.SIGCONT)


def suspend(job, seconds):
    job.signal(signal.SIGTSTP)
    pause(seconds, "as long as a person takes")
    job.signal(signal.SIGCONT)


def healthy(ranks, seconds, scale, library="worker_lib", nodes=1):
    """Runs a job without a fault: jitter, long computing, sleeping, writing, loading, and a user who stops and debugs it.
    Returns (verdicts, notices), lists of events."""
    program, env = program_of(library)
    env = env | {"SECONDS": str(seconds), "PAUSE_S": str(30 * scale)}
    with (tempfile.TemporaryDirectory() as folder,
          HangJob(folder, "healthy", *limits(scale, 60), ranks=ranks, env=env, program=program, nodes=nodes) as job):
        wait_for(lambda: "fault" in job.stdout(), "the job runs")
        for turn in range(1 << 30):
            pid = job.pids()[turn % ranks]
            for act in (lambda: trace(pid, 25 * scale), lambda: stop(pid, 5 * scale), lambda: suspend(job, 25 * scale)):
                pause(30 * scale, "undisturbed")
                try:
                    if job.process.poll() is None:
                        act()
                except (ProcessLookupError, PermissionError):
                    if not is_gone(pid):  # ptrace also fails on a process that has ended.
                        raise
            if job.process.poll() is not None:
                break
        if job.wait() != 0:
            raise AssertionError(f"a healthy job has failed:\n{job.stderr()}")
        return job.found(*VERDICTS), job.found("waiting")
