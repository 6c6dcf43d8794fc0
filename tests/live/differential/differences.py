"""The table of intended differences between torchrun and muster, each with its reason.

A difference in an observation that no entry accepts fails the test; so does an entry that nothing uses. Entries accept
values as exactly as they can: what muster shows must be what muster promises, not merely something else.
"""

import dataclasses
import os
import pathlib
import re
import typing

MISSING = "<missing>"


@dataclasses.dataclass(frozen=True)
class Finding:
    """One observation key on which the launchers differ, with all that is needed to judge it."""

    scenario: typing.Any
    key: str
    torchrun: typing.Any
    muster: typing.Any
    torchrun_table: dict
    muster_table: dict


@dataclasses.dataclass(frozen=True)
class Difference:
    name: str
    reason: str
    keys: str = ""  # regular expression for the whole key; empty where a scenario names the entry itself
    accepts: typing.Callable = lambda finding: False
    may_not_show: bool = False  # Depends on the moment or on the number of cores.


def usable_cores(scenario):
    """As a launcher sees them: affinity, less what the cgroup's quota takes away."""
    cores = len(scenario.cores or os.sched_getaffinity(0))
    try:
        quota, period = pathlib.Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return cores if quota == "max" else max(1, min(cores, -(-int(quota) // int(period))))
    except OSError:
        return cores


def omp_is_a_fair_share(finding):
    local = int(finding.muster_table[re.sub("OMP_NUM_THREADS", "LOCAL_WORLD_SIZE", finding.key)])
    fair = max(1, usable_cores(finding.scenario) // local)
    return finding.torchrun == "1" and finding.muster == str(fair)


def with_id(finding, value):
    return value.replace("<uuid>", finding.scenario.kept_id) if isinstance(value, str) else value


def only_the_id_differs(finding):
    if not finding.scenario.kept_id:
        return False
    if MISSING not in (finding.torchrun, finding.muster):
        return with_id(finding, finding.torchrun) == finding.muster
    if finding.muster == MISSING:  # A path with the id in its name, which muster has under the other name.
        return finding.muster_table.get(with_id(finding, finding.key)) == finding.torchrun
    return any(with_id(finding, key) == finding.key for key in finding.torchrun_table if key != finding.key)


def declared(finding):
    """The scenario itself says what muster must show here."""
    return finding.key in finding.scenario.muster and finding.muster == finding.scenario.muster[finding.key]


def exit_as_declared(*codes):
    return lambda finding: declared(finding) and finding.torchrun in codes


def has_flags_without_effect(scenario):
    args = scenario.args
    filtered = any(argument.startswith("--duplicate-std") for argument in args)
    return (
        (filtered and not {"-t", "--tee"} & set(args))
        or "--monitor-interval" in args
        or any(method in args for method in ("fork", "forkserver"))
        or "PET_START_METHOD" in scenario.env
        or ("--standalone" in args and "--master-addr" in args)
        or "/dev/null" in args
    )


def is_the_record(finding):
    if finding.key.endswith("descriptors"):
        ours = finding.muster[3:]
        return finding.torchrun == [0, 1, 2] == finding.muster[:3] and 1 <= len(ours) <= 2 and min(ours) >= 100
    return finding.torchrun == MISSING and re.fullmatch(r"\d{3,}:[0-9a-f]+", finding.muster)


def is_stop_by_signal(finding):
    return declared(finding) and finding.scenario.act and finding.muster > 128


TABLE = (
    Difference(
        "exit code of a failed job",
        "The exit code is the culprit's own, so that scripts can act on it; torchrun always says 1.",
        "exit",
        lambda finding: not finding.scenario.act
        and not finding.scenario.rejected
        and finding.torchrun == 1
        and declared(finding),
    ),
    Difference(
        "exit code after a signal to the launcher",
        "128+n, as shells and schedulers expect; torchrun says 1 (or leaves the workers behind and dies).",
        "exit",
        is_stop_by_signal,
    ),
    Difference(
        "exit code of refused input",
        "2 for usage, 121 to 127 for what the machine refuses; torchrun ends most of it with a traceback and 1.",
        "exit",
        lambda finding: finding.torchrun in (1, 2) and finding.muster == finding.scenario.rejected != 0,
    ),
    Difference(
        "OMP_NUM_THREADS",
        "A fair share of the usable cores; torchrun's 1 leaves most of the machine idle.",
        r"worker.*\.env\.OMP_NUM_THREADS",
        omp_is_a_fair_share,
        may_not_show=True,  # On two cores a fair share of two workers is torchrun's 1.
    ),
    Difference(
        "MASTER_ADDR of one node",
        "127.0.0.1, where the store listens for this machine alone; torchrun publishes the machine's name and listens to all.",
        r"worker.*\.env\.MASTER_ADDR",
        lambda finding: finding.muster == "127.0.0.1" and "--local-addr" not in finding.scenario.args,
    ),
    Difference(
        "unknown keys of --rdzv-conf",
        "Are ignored with one line that names them; torchrun takes a misspelt time-out without a word.",
        r"stderr\.launcher_speaks",
        lambda finding: (finding.torchrun, finding.muster) == (False, True)
        and any("colour=" in argument or "'join_timeout" in argument for argument in finding.scenario.args),
    ),
    Difference(
        "flags without effect",
        "Are named in one line each; torchrun says nothing of a filter without tee, and muster has no use for some flags.",
        r"stderr\.launcher_speaks",
        lambda finding: (finding.torchrun, finding.muster) == (False, True) and has_flags_without_effect(finding.scenario),
    ),
    Difference(
        "a flag of the launcher behind the script",
        "Stays the script's, and a line says where flags of the launcher belong; torchrun runs one worker without a word.",
        r"stderr\.launcher_speaks",
        lambda finding: (finding.torchrun, finding.muster) == (False, True)
        and "@PROBE@ --nproc-per-node" in " ".join(finding.scenario.args),
    ),
    Difference(
        "master port over restarts",
        "Every attempt gets a fresh port, so that nothing of an old attempt can answer; torchrun keeps one store.",
        r"master_port\.fresh_per_attempt",
        lambda finding: (finding.torchrun, finding.muster) == (False, True),
    ),
    Difference(
        "--rdzv-id on one node",
        "Kept when given; torchrun replaces it by a random one.",
        r"worker.*\.env\.TORCHELASTIC_(RUN_ID|ERROR_FILE)|(logs|tmp):.*",
        only_the_id_differs,
    ),
    Difference(
        "made-up run ids",
        "Random both times; muster has one form for all of them.",
        r"worker.*\.env\.TORCHELASTIC_(RUN_ID|ERROR_FILE)",
        lambda finding: "<128 bits>" in finding.torchrun
        and finding.torchrun.replace("<128 bits>", "<uuid>") == finding.muster,
    ),
    Difference(
        "deprecation of the old launcher",
        "muster has no old launcher, only a flag for its habit; so nothing is deprecated.",
        r"stderr\.launcher_speaks",
        lambda finding: finding.scenario.old_launch and (finding.torchrun, finding.muster) == (True, False),
    ),
    Difference(
        "PyTorch's compile cache",
        "Parts of PyTorch that torchrun loads for some flags make it and name it to the workers.",
        r"worker.*\.env\.TORCHINDUCTOR_CACHE_DIR|tmp:torchinductor_.*",
        lambda finding: finding.muster == MISSING,
    ),
    Difference(
        "stdin",
        "Goes to rank 0 alone; torchrun lets all workers fight for it.",
        r"worker.*\.stdin",
        lambda finding: finding.torchrun == "file" and ".0]" not in finding.key and finding.muster == "/dev/null",
    ),
    Difference(
        "lines read from stdin",
        "As above.",
        r"stdout\[.*",
        lambda finding: finding.scenario.stdin is not None and declared(finding),
    ),
    Difference(
        "worker streams are pipes",
        "The launcher writes lines whole to the console; torchrun's workers share one descriptor and tear them.",
        r"worker.*\.(stdout|stderr)",
        lambda finding: (finding.torchrun, finding.muster) == ("file", "pipe"),
    ),
    Difference(
        "streams that are not shown",
        "The console filter hides them, but they are read: a failure must be able to quote the worker's last lines.",
        r"worker.*\.(stdout|stderr)",
        lambda finding: (finding.torchrun, finding.muster) == ("/dev/null", "pipe")
        and "--local-ranks-filter" in finding.scenario.args,
    ),
    Difference(
        "CUDA_DEVICE_ORDER",
        "Goes with every device index that the launcher wrote itself, so that the index means the device it looked up.",
        r"worker.*\.env\.CUDA_DEVICE_ORDER",
        lambda finding: (finding.torchrun, finding.muster) == (MISSING, "PCI_BUS_ID")
        and "--virtual-local-rank" in finding.scenario.args,
    ),
    Difference(
        "a relative log folder",
        "Is made absolute, so that a worker which changes its folder still finds its error file.",
        r"worker.*\.env\.TORCHELASTIC_ERROR_FILE",
        lambda finding: finding.torchrun[:1] not in ("/", "<")
        and finding.muster == f"<base>/work/{finding.torchrun}",
    ),
    Difference(
        "tee keeps bytes",
        "Carriage returns and bytes that are not UTF-8 pass unchanged, one prefix a line.",
        r"(stdout|stderr)\[.*",
        lambda finding: finding.scenario.section in ("5.3", "5.4") and declared(finding),
    ),
    Difference(
        "nothing is left behind",
        "Background children, and workers of a launcher that died, are ended; torchrun leaves them.",
        "left",
        lambda finding: finding.torchrun != [] and finding.muster == [],
    ),
    Difference(
        "result.json, events.jsonl and evidence_N.json",
        "How the job went, for programs, and what was known when the culprit of attempt N was named.",
        r"logs:.*/(result\.json|events\.jsonl|evidence_\d+\.json)",
        lambda finding: finding.torchrun == MISSING,
    ),
    Difference(
        "the last lines of each rank",
        "Are kept where a stream has no log file, until the job has succeeded; torchrun has nothing to show then.",
        r"(logs|tmp):.*/attempt_\d+/\d+/std(out|err)_tail\.log",
        lambda finding: finding.torchrun == MISSING,
    ),
    Difference(
        "the record of collectives",
        "Each worker gets one more descriptor and its number: memory in which the worker library records its calls. A Python "
        "program has another one, where it prints its stack if muster asks for it.",
        r"worker.*\.(env\.MUSTER_RECORD_FD|descriptors)",
        is_the_record,
    ),
    Difference(
        "the workers' secret",
        "By which the ranks of the worker library know each other.",
        r"worker.*\.env\.MUSTER_WORKER_SECRET",
        lambda finding: finding.torchrun == MISSING and re.fullmatch(r"[0-9a-f]{64}", finding.muster),
    ),
    Difference(
        "MUSTER_START_COUNT",
        "How often the engine had started this job before; 0 without one.",
        r"worker.*\.env\.MUSTER_START_COUNT",
        lambda finding: finding.torchrun == MISSING and finding.muster == "0",
    ),
    Difference(
        "the recorder of NCCL's calls",
        "NCCL's profiler plugin is muster's, which loads the one that was set.",
        r"worker.*\.env\.NCCL_PROFILER_PLUGIN",
        lambda finding: finding.torchrun == MISSING and finding.muster.endswith("/libnccl-profiler-muster.so"),
    ),
    Difference(
        "no empty temporary folders",
        "Without --log-dir, folders in $TMPDIR that hold nothing are removed at the end.",
        r"tmp:torchelastic_<8>.*",
        lambda finding: finding.muster == MISSING and finding.torchrun in ("<folder>", "0o700", "0o755"),
    ),
)

# Named by scenarios in which the launchers cannot be compared key by key.
WHOLE = (
    Difference("ambiguous-looking script arguments", "Belong to the script; torchrun checks them as its own flags."),
    Difference("prefixes", "`--nproc 2` has one meaning, so it is accepted; torchrun calls it ambiguous."),
    Difference("several nodes", "Not served on one machine yet: refused with one line instead of a time-out."),
    Difference("Python plug-ins", "There is no Python in the launcher: refused with one line."),
    Difference("not executable", "One line at once, never restarted; torchrun shows a traceback or restarts."),
    Difference("malformed error file", "Shown as it is; torchrun's agent crashes on it."),
    Difference("inherited SIGHUP", "Ignored stays ignored, as nohup wants; torchrun ends the job."),
    Difference("unlisted signals", "Forwarded once to each worker; torchrun dies and leaves its workers."),
    Difference("signal before the workers run", "The same orderly end at every moment.", may_not_show=True),
    Difference("grace", "--shutdown-timeout holds everywhere; torchrun waits 30 s when a sibling failed."),
    Difference("second signal", "Ends the job at once and leaves nothing; torchrun starts its wait anew."),
)


def judge(finding):
    """The entry that accepts the finding, or None."""
    if finding.scenario.whole:
        return next(entry for entry in WHOLE if entry.name == finding.scenario.whole)
    for entry in TABLE:
        if re.fullmatch(entry.keys, finding.key) and entry.accepts(finding):
            return entry
    return None
