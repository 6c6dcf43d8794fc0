"""Scenarios for the life of a job: sections 4.1 to 4.8."""

import json
import signal

from scenario import Scenario, fail_after_all, forever, probe, say, step

SHOW = [say("here")]
TWO = ("--nproc-per-node", "2")
# Long enough for workers that end when they are told to, short for those that do not.
STOP_QUICKLY = ("--shutdown-timeout", "1")
READY = [step("mark", name="ready"), forever()]


def when_ready(*signals, count=2):
    """Sends the signals, each after `count` workers have said that they got the one before."""

    def act(run):
        # A report is written before the handlers stand, so readiness is a mark of its own.
        run.await_mark("ready", count)
        for index, number in enumerate(signals):
            if index:
                run.await_mark(f"got-{signals[index - 1].name}", count)
            run.send(number)

    return act


def as_soon_as_it_lives(number):
    def act(run):
        run.send(number)

    return act


LOOP = [
    Scenario("4.1", "all succeed", probe("--nproc-per-node", "3"), SHOW),
    Scenario(
        "4.1",
        "an early success is no event",
        probe(*TWO),
        [step("exit", code=0, rank=0), step("sleep", seconds=0.4, rank=1)] + SHOW,
    ),
    Scenario(
        "4.1", "one failure ends all", probe("--nproc-per-node", "3"), fail_after_all(3, 9, 1), muster={"exit": 9}
    ),
    Scenario(
        "4.1",
        "a restart replaces all",
        probe(*TWO, "--max-restarts", "1"),
        SHOW + fail_after_all(2, 9, 1, attempt=0),
    ),
    Scenario(
        "4.1",
        "restarts run out",
        probe(*TWO, "--max-restarts", "2"),
        SHOW + fail_after_all(2, 8, 0),
        muster={"exit": 8, "workers": [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)]},
    ),
    Scenario(
        "4.1",
        "one that succeeded starts anew, too",
        probe(*TWO, "--max-restarts", "1"),
        [step("await_reports", count=2, attempt=0), step("exit", code=0, rank=0, attempt=0)]
        + [step("sleep", seconds=0.3, attempt=0), step("exit", code=1, attempt=0)]
        + SHOW,
    ),
]


def ends_with(name, plan, code, *flags, **more):
    return Scenario("4.2", name, probe(*flags), plan, muster={"exit": code}, **more)


def dies_of(name):
    return [step("kill", signal=name)]


CODES = [
    ends_with("success", SHOW, 0),
    ends_with("exit 1", [step("exit", code=1)], 1),
    ends_with("exit 42", [step("exit", code=42)], 42),
    ends_with("exit 255", [step("exit", code=255)], 255),
    ends_with("SIGSEGV", dies_of("SIGSEGV"), 139),
    ends_with("SIGKILL", dies_of("SIGKILL"), 137),
    ends_with("SIGTERM from itself", dies_of("SIGTERM"), 143),
    ends_with("of the first that failed", fail_after_all(2, 7, rank=1), 7, *TWO),
    Scenario(
        "4.2",
        "torchrun's code by a flag",
        probe(),
        [step("exit", code=42)],
        muster_args=probe("--exit-code", "torchrun"),
        muster={"exit": 1},
    ),
]


def not_executable(name, args, code, **more):
    return Scenario("4.3", name, args, whole="not executable", rejected=code, **more)


STARTING = [
    not_executable("no such program", ["--no-python", "no-such-program"], 127),
    not_executable("no such script", ["no_such_script.py"], 127),
    not_executable("no such script, restarts left", ["--max-restarts", "2", "no_such_script.py"], 127),
    not_executable("a folder", ["--no-python", "@WORK@"], 126),
    not_executable("not executable", ["--no-python", "./plain"], 126, files={"plain": "echo no\n"}),
    not_executable(
        "the interpreter is missing", ["--no-python", "./odd"], 127, files={"odd": "#!/no/such/interpreter\n"}
    ),
    Scenario(
        "4.3",
        "a module that does not exist",
        ["-m", "no_such_module"],
        muster={"exit": 1, "workers": []},
    ),
    Scenario("4.3", "a script with an error", ["bad.py"], files={"bad.py": "def\n"}, muster={"exit": 1}),
]


def noting(*names, code=None):
    """The worker says which of these signals it got; with a code it then exits."""
    then = {"then": "mark"} if code is None else {"then": "exit", "code": code}
    return [step("on", signal=name, **then) for name in names]


def stopped_by(number, name=None, **more):
    return Scenario(
        "4.4",
        name or f"{number.name} is passed on",
        probe(*TWO, *STOP_QUICKLY),
        noting(number.name, code=0) + READY,
        act=when_ready(number),
        muster={"exit": 128 + number},
        **more,
    )


SIGNALS = [
    stopped_by(signal.SIGTERM),
    stopped_by(signal.SIGINT),
    stopped_by(signal.SIGHUP),
    stopped_by(signal.SIGQUIT),
    Scenario(
        "4.4",
        "USR1 when it is listed",
        probe(*TWO, *STOP_QUICKLY, "--signals-to-handle", "SIGUSR1"),
        noting("SIGUSR1", code=0) + READY,
        act=when_ready(signal.SIGUSR1),
        muster={"exit": 128 + signal.SIGUSR1},
    ),
    Scenario(
        "4.4",
        "USR1 when it is not",
        probe(*TWO),
        noting("SIGUSR1") + [step("mark", name="ready"), step("await_mark", name="got-SIGUSR1", count=2)] + SHOW,
        act=when_ready(signal.SIGUSR1),
        whole="unlisted signals",
        muster={
            "exit": 0,
            "left": [],
            "stdout[0.0]": ["P|0|0|got SIGUSR1\n", "P|0|0|here\n"],
            "stdout[0.1]": ["P|1|0|got SIGUSR1\n", "P|1|0|here\n"],
        },
    ),
    Scenario(
        "4.4",
        "HUP under nohup",
        probe(*TWO),
        READY[:1] + [step("sleep", seconds=1)] + SHOW,
        act=when_ready(signal.SIGHUP),
        ignored_signals=(signal.SIGHUP,),
        whole="inherited SIGHUP",
        muster={"exit": 0, "stdout[0.0]": ["P|0|0|here\n"], "stdout[0.1]": ["P|1|0|here\n"]},
    ),
    Scenario(
        "4.4",
        "no restart after a signal",
        probe(*TWO, *STOP_QUICKLY, "--max-restarts", "3"),
        READY,
        act=when_ready(signal.SIGTERM),
        muster={"exit": 143, "workers": [(0, 0), (0, 1)]},
    ),
    Scenario(
        "4.4",
        "a second TERM",
        probe(*TWO, "--shutdown-timeout", "3"),
        noting("SIGTERM") + READY,
        act=when_ready(signal.SIGTERM, signal.SIGTERM),
        whole="second signal",
        muster={"exit": 143, "left": []},
    ),
    Scenario(
        "4.4",
        "TERM before the workers run",
        probe(*TWO),
        [forever()],
        act=as_soon_as_it_lives(signal.SIGTERM),
        whole="signal before the workers run",
        muster={"left": []},
    ),
]

STOPPING = [
    Scenario(
        "4.5",
        "a worker that ignores TERM is killed",
        probe(*TWO, *STOP_QUICKLY),
        noting("SIGTERM") + READY,
        act=when_ready(signal.SIGTERM),
        muster={"exit": 143},
    ),
    Scenario(
        "4.5",
        "siblings of a failure get TERM",
        probe(*TWO),
        [*noting("SIGTERM", code=0), step("mark", name="ready"), step("await_mark", name="ready", count=2)]
        + [step("exit", code=3, rank=1), forever()],
        muster={"exit": 3},
    ),
    Scenario(
        "4.5",
        "children in the group get it, too",
        probe(*TWO, *STOP_QUICKLY),
        [step("child", rank=0), *READY],
        act=when_ready(signal.SIGTERM),
        muster={"exit": 143},
    ),
    Scenario(
        "4.5",
        "the grace when a sibling failed",
        probe(*TWO, "--shutdown-timeout", "1"),
        [*noting("SIGTERM"), step("mark", name="ready"), step("await_mark", name="ready", count=2)]
        + [step("exit", code=3, rank=1), step("await_mark", name="got-SIGTERM", count=1)]
        + [step("sleep", seconds=4), say("lived on")],
        whole="grace",
        muster={"exit": 3, "stdout[0.0]": ["P|0|0|got SIGTERM\n"]},
    ),
    Scenario(
        "4.5",
        "TERM before every restart",
        probe(*TWO, "--max-restarts", "2"),
        [*noting("SIGTERM", code=0), step("mark", name="ready")]
        + [step("await_mark", name="ready", count=2, attempt=attempt) for attempt in (0, 1)]
        + [step("exit", code=5, rank=attempt, attempt=attempt) for attempt in (0, 1)]
        + [step("forever", attempt=attempt) for attempt in (0, 1)]
        + SHOW,
    ),
]


def kill_launcher(run):
    run.await_mark("ready", 2)
    run.send(signal.SIGKILL)


ORPHANS = [
    Scenario(
        "4.6",
        "a child left by a success",
        probe(*STOP_QUICKLY),
        [step("child"), *SHOW],
        muster={"exit": 0, "left": []},
        ignore=("stderr.launcher_speaks",),
    ),
    Scenario(
        "4.6",
        "a child left by a failure",
        probe(*STOP_QUICKLY),
        [step("child"), step("exit", code=3)],
        muster={"exit": 3, "left": []},
    ),
    Scenario(
        "4.6",
        "a child with a session of its own",
        probe(*STOP_QUICKLY),
        [step("child", setsid=True, ignores="SIGTERM"), *SHOW],
        muster={"exit": 0, "left": []},
        ignore=("stderr.launcher_speaks",),
    ),
    Scenario(
        "4.6",
        "SIGKILL of the launcher",
        probe(*TWO),
        READY,
        act=kill_launcher,
        settle=3,
        muster={"exit": -9, "left": []},
        ignore=(r"(tmp|logs):.*", "stderr.launcher_speaks"),
    ),
    Scenario(
        "4.6",
        "a child that holds the output",
        probe("--log-dir", "@LOGS@", "-t", "1", *STOP_QUICKLY),
        [step("child", holds_output=True, setsid=True), *SHOW],
        muster={"exit": 0, "left": []},
        ignore=("stderr.launcher_speaks",),
    ),
]


def summarised(name, plan, rank, code, *flags, **more):
    shown = {"summary.root_rank": rank, "summary.root_exitcode": code, "exit": code if code > 0 else 128 - code}
    return Scenario("4.7", name, probe(*flags), plan, muster=shown, **more)


SUMMARY = [
    summarised("one worker", [step("exit", code=7)], 0, 7),
    summarised("the root is named", fail_after_all(3, 12, rank=2), 2, 12, "--nproc-per-node", "3"),
    summarised(
        "a signal",
        [step("await_reports", count=2), step("kill", signal="SIGSEGV", rank=1), forever()],
        *(1, -11),
        *TWO,
    ),
    summarised("after restarts", fail_after_all(2, 6, rank=1), 1, 6, *TWO, "--max-restarts", "1"),
    Scenario("4.7", "none on success", probe(*TWO), SHOW, muster={"summary.strings": []}),
]

MESSAGE = "ValueError: boom"
RECORDED = json.dumps(
    {"message": {"message": MESSAGE, "extraInfo": {"py_callstack": "Traceback: here", "timestamp": "@NOW@"}}}
)
PLAIN = json.dumps({"message": "just text", "timestamp": "@NOW@"})
RECORDING = """
import os, sys, time
from torch.distributed.elastic.multiprocessing.errors import record
@record
def main():
    if os.environ["RANK"] == "1":
        raise ValueError("boom")
    time.sleep(300)
main()
"""


def with_error_file(name, content, code=3, **more):
    """Rank 1 writes the file and fails; the launcher was told to pass one on."""
    plan = [
        step("await_reports", count=2),
        step("error_file", content=content, rank=1),
        step("exit", code=code, rank=1),
        forever(),
    ]
    return Scenario(
        "4.8",
        name,
        probe(*TWO, "--log-dir", "@LOGS@"),
        plan,
        env={"TORCHELASTIC_ERROR_FILE": "@BASE@/tmp/agent_error.json"},
        ignore=(r"tmp:agent_error.*",) if more.get("whole") else (),
        **{"muster": {"exit": code, "summary.root_rank": 1}, **more},
    )


ERROR_FILES = [
    with_error_file("as PyTorch records it", RECORDED),
    with_error_file("plain text in it", PLAIN),
    with_error_file("no JSON", "{ not", whole="malformed error file", muster={"exit": 3}),
    with_error_file("JSON without a message", '{"a": 1}', whole="malformed error file", muster={"exit": 3}),
    Scenario(
        "4.8",
        "none from the root cause",
        probe(*TWO),
        fail_after_all(2, 3, rank=1),
        env={"TORCHELASTIC_ERROR_FILE": "@BASE@/tmp/agent_error.json"},
        muster={"exit": 3},
    ),
    Scenario(
        "4.8",
        "of a worker that succeeds",
        probe("--log-dir", "@LOGS@"),
        [step("error_file", content=RECORDED), *SHOW],
    ),
    Scenario(
        "4.8",
        "an older one is the root cause",
        probe(*TWO, "--log-dir", "@LOGS@"),
        [step("await_reports", count=2), step("error_file", content=RECORDED, offset=-50, rank=0)]
        + [step("mark", name="written", rank=0), step("await_mark", name="written", count=1)]
        + [step("exit", code=4, rank=0), step("sleep", seconds=0.02), step("exit", code=5, rank=1)],
        muster={"exit": 4, "summary.root_rank": 0},
    ),
    # Both are dead when torchrun looks; muster sees rank 1 end first, and stops rank 0.
    Scenario(
        "4.8",
        "an older one is the root cause though it exits last",
        probe(*TWO, "--log-dir", "@LOGS@", "--monitor-interval", "3"),
        [step("await_reports", count=2), step("on", signal="SIGTERM", then="ignore")]
        + [step("error_file", content=RECORDED, rank=0), step("mark", name="older", rank=0)]
        + [step("await_mark", name="older", count=1), step("sleep", seconds=2.1, rank=1)]
        + [step("error_file", content=RECORDED, rank=1), step("mark", name="newer", rank=1), step("exit", code=5, rank=1)]
        + [step("await_mark", name="newer", count=1), step("exit", code=4, rank=0)],
        muster={"exit": 4, "summary.root_rank": 0},
    ),
    Scenario(
        "4.8",
        "by PyTorch itself",
        [*TWO, "--log-dir", "@LOGS@", "recording.py"],
        files={"recording.py": RECORDING},
        env={"OMP_NUM_THREADS": "1"},
        muster={"exit": 1, "summary.root_rank": 1},
        timeout=120,
    ),
]

SCENARIOS = LOOP + CODES + STARTING + SIGNALS + STOPPING + ORPHANS + SUMMARY + ERROR_FILES
