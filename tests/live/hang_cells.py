"""Jobs in which one rank keeps the others waiting, and what is found: the cells of the matrix of hang detection.

A cell is a fault of a library's program with so many ranks; its outcome is a row. The libraries are worker_lib
(programs/hang_faults.cc, named by $MUSTER_HANG_FAULTS), and torch and torch_ddp (programs/torch_faults.py on gloo, in the
virtual environment that $MUSTER_TORCH_VENV names). What the worker library finds by itself, or gloo breaks at, ends in the
ordinary verdict on a failed job, and the detector must add nothing to it.
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
RECORDED_MISMATCH = ("--no-python", os.environ.get("MUSTER_RECORDED_MISMATCH", ""))  # Its ranks do nothing else.
PROMISE_S = 15.0  # From the fault until it is named.
TOLD_S = 20.0  # A node tells the others at once, and again after a second.
VERDICTS = ("hang", "mismatch")


HERE = os.path.dirname(os.path.abspath(__file__))
PYTHON = os.path.join(os.environ.get("MUSTER_TORCH_VENV", ""), "bin", "python")
TORCH = ("--python", PYTHON, os.path.join(HERE, "programs", "torch_faults.py"))


@dataclasses.dataclass(frozen=True)
class Expected:
    what: str  # The class; of a failed job "signal" as well.
    by: str  # "failure": the job has failed of it; "proof or failure".
    ranks: str = "culprit"  # "pair": the next rank too; "tie": of two ranks both, since neither is right.

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
# Ranks that gloo has told of a broken connection need a while to end; the others wait for ever.
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
    """Arguments and environment of its job."""
    if library == "worker_lib":
        return ("--no-python", PROGRAM), {}
    return TORCH, {"STEP": "ddp"} if library == "torch_ddp" else {}


def limits(scale, busy_s=600):
    """Flags for all limits times `scale`; the defaults have no fixed one for ranks that are busy. Where no rank is to be
    found busy it is a long one: on a busy machine a rank may be seconds behind the others."""
    return () if scale == 1 else ("--hang-timeout", 12 * scale, "--busy-timeout", busy_s * scale)


class HangJob(Job):
    """A job with a fault, a log folder and a pipe that ends some faults. Of several nodes, each an agent on this machine,
    it is the first; the others are its `others`."""

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
        """Ends the fault of a rank that reads."""
        with open(self.fifo, "w") as f:
            f.write("x")

    def events(self, *names, node=0):
        """Those with these names; none: the notices, verdicts and withdrawals. As a node has written them."""
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
        """By name: those of verdicts and of musterctl dump."""
        found = {}
        for path in glob.glob(os.path.join(self.logs_of(node), "*", "*_[0-9]*.json")):
            if not os.path.basename(path).startswith("evidence_"):
                with open(path) as f:
                    found[os.path.basename(path)] = json.load(f)
        return found

    def stop(self):
        """Its exit code. One that has ended already is only waited for."""
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
    """What the verdict on a failed job says, as an event of the detector would; None: it has not failed."""
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
    # A circle is named in the order in which its ranks wait for each other.
    return (event["class"] == expected.what and event["by"] in expected.by.split(" or ")
            and sorted(event["ranks"]) == expected.ranks_of(culprit, world))


def perform(fault, ranks, culprit, scale, library="worker_lib", nodes=1):
    """One cell: its row."""
    expected = LIBRARIES[library][fault]
    # With the limits of every day a rank that may be busy is judged after a minute or ten: its notice counts.
    last = ("waiting",) if expected.what == "busy" and scale == 1 else VERDICTS
    flags = limits(scale, *([30] if expected.what == "busy" else []))
    program, env = program_of(library)
    with (tempfile.TemporaryDirectory() as folder,
          HangJob(folder, fault, *flags, ranks=ranks, culprit=culprit, env=env, program=program,
                  nodes=nodes) as job):
        with contextlib.suppress(AssertionError):  # The row says so.
            wait_for(lambda: job.found(*last) or job.process.poll() is not None, fault)
            wait_for(lambda: all_know(job), "all nodes know", TOLD_S)  # Before the job is stopped.
        job.stop()
        row = {"library": library, "fault": fault, "ranks": ranks, "nodes": nodes, "culprit": culprit, "scale": scale,
               **judged(job, expected, ranks, culprit)}
        return row | {"right": row["right"] and all_know(job)}


def all_know(job):
    """Whether each node has written the same verdicts."""
    texts = [[e["text"] for e in job.events("hang", "mismatch", node=node)] for node in range(1 + len(job.others))]
    return all(one == texts[0] for one in texts)


def judged(job, expected, ranks, culprit):
    """What was found in a job that has ended, how long after the fault, and whether it is right.
    A failure that ranks report themselves comes when they have ended, which the matrix alone holds to the promise."""
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
    """Holds a process as a debugger does."""
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
    """A job without a fault: jitter, long computing, sleeping, writing, loading, and a person who stops and debugs it.
    (verdicts, notices), each a list of events."""
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
                    if not is_gone(pid):  # A process that has ended can't be traced either.
                        raise
            if job.process.poll() is not None:
                break
        if job.wait() != 0:
            raise AssertionError(f"a healthy job has failed:\n{job.stderr()}")
        return job.found(*VERDICTS), job.found("waiting")
