"""A scenario: one launch that both launchers get, and what is expected of muster where it differs on purpose.

Flags, arguments and environment may hold @PROBE@ (the worker script), @PY@ (the interpreter), @BASE@ (a folder of this
run alone), @WORK@ (its working folder), @LOGS@ (a log folder that does not exist yet) and @PORT@ (a port that was free
just before).
"""

import dataclasses
import typing


@dataclasses.dataclass
class Scenario:
    section: str  # of the list that SECTIONS describes
    name: str
    args: list  # flags, program and its arguments
    plan: list = dataclasses.field(default_factory=list)  # steps of the probe
    env: dict = dataclasses.field(default_factory=dict)  # for both launchers
    # Observation key → value: what muster must show, whatever torchrun shows.
    muster: dict = dataclasses.field(default_factory=dict)
    # Name of the intended difference that makes the two launches incomparable; then `muster` says what must hold.
    whole: str = ""
    muster_args: list = None  # instead of args, where muster spells something differently
    muster_env: dict = dataclasses.field(default_factory=dict)  # for muster only
    act: typing.Callable = None  # called with the Run while the launcher runs
    files: dict = dataclasses.field(default_factory=dict)  # path under @WORK@ → text, made before the start
    stdin: str = None  # text for the launcher's stdin; None is /dev/null
    old_launch: bool = False  # torch.distributed.launch beside muster --pass-local-rank
    rejected: int = 0  # exit code with which muster must refuse in one line, before any worker starts
    kept_id: str = ""  # the --rdzv-id that muster keeps and torchrun replaces
    ignored_signals: tuple = ()  # ignored when the launcher starts, as under nohup
    cores: tuple = ()  # affinity of the launcher
    settle: float = 0  # seconds that what the launcher left behind has to disappear
    ignore: tuple = ()  # regular expressions for observation keys that say nothing in this scenario
    timeout: float = 60


def probe(*flags, args=()):
    return [*flags, "@PROBE@", *args]


def step(do, **details):
    return {"do": do, **details}


def say(text, **details):
    return step("print", text=text, **details)


def fail_after_all(count, code, rank=0, **details):
    """Rank `rank` exits once all `count` workers have come here; the others wait until they are stopped."""
    return [
        step("mark", name="before-failure", **details),
        step("await_mark", name="before-failure", count=count, **details),
        step("exit", code=code, rank=rank, **details),
        step("forever", **details),
    ]


def forever(**details):
    return step("forever", **details)
