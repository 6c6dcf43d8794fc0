"""Scenarios for output and logs: sections 5.1 to 5.5."""

from scenario import Scenario, fail_after_all, probe, say, step

BOTH = [say("to stdout"), say("to stderr", stream="err")]
LOGS = ("--log-dir", "@LOGS@")
TWO = ("--nproc-per-node", "2")


def logged(section, name, *flags, plan=None, **more):
    return Scenario(section, name, probe(*LOGS, *flags), BOTH if plan is None else plan, **more)


def refused(section, name, args, code=2, **more):
    return Scenario(section, name, args, rejected=code, **more)


LAYOUT = [
    logged("5.1", "a folder and nothing in it", *TWO),
    logged("5.1", "everything redirected", *TWO, "-r", "3"),
    logged("5.1", "an id in the name", *TWO, "-r", "3", "--rdzv-id", "job5", kept_id="job5"),
    logged(
        "5.1",
        "a folder for every attempt",
        *(*TWO, "-r", "3", "--max-restarts", "2"),
        plan=BOTH + fail_after_all(2, 1, attempt=0) + fail_after_all(2, 1, rank=1, attempt=1),
    ),
    Scenario("5.1", "parents are made", probe("--log-dir", "@LOGS@/a/b", "-r", "1"), BOTH),
    Scenario("5.1", "no --log-dir", probe(*TWO, "-r", "3"), BOTH),
    Scenario("5.1", "/dev/null takes no logs", probe(*TWO, "--log-dir", "/dev/null", "-r", "3", "-t", "3"), BOTH),
    Scenario("5.1", "a relative folder", probe("--log-dir", "../logs/here", "-r", "3"), BOTH),
    refused("5.1", "a file as folder", probe("--log-dir", "@WORK@/file"), code=121, files={"file": "x"}),
]

VALUES = [
    logged("5.2", "redirect nothing", *TWO, "-r", "0"),
    logged("5.2", "redirect stdout", *TWO, "-r", "1"),
    logged("5.2", "redirect stderr", *TWO, "-r", "2"),
    logged("5.2", "by rank", *TWO, "-r", "0:1,1:3"),
    logged("5.2", "missing ranks mean none", *TWO, "-r", "1:2"),
    logged("5.2", "the last of two wins", *TWO, "-r", "0:1,0:2"),
    logged("5.2", "ranks beyond the last", *TWO, "-r", "7:3"),
    logged("5.2", "tee and redirect", *TWO, "-r", "1", "-t", "2"),
    logged("5.2", "tee of what is redirected", *TWO, "-r", "3", "-t", "0:1"),
    refused("5.2", "a trailing comma", probe("-r", "0:1,")),
    refused("5.2", "two digits", probe("-r", "11")),
    refused("5.2", "a map and a value", probe("-t", "1,0:1")),
    refused("5.2", "4", probe("--tee", "4")),
]

TEMPLATE = "<${role_name}|${local_rank}|${rank}|${hostname}|${unknown}|$$>"


def raw(text, stream="out"):
    return step("raw", text=text, stream=stream, rank=0)


TEE = [
    logged("5.3", "the default prefix", *TWO, "-t", "3"),
    logged("5.3", "the role is in it", *TWO, "-t", "3", "--role", "actor"),
    logged("5.3", "a template", *TWO, "-t", "3", "--log-line-prefix-template", TEMPLATE),
    logged(
        "5.3", "a template from the environment", "-t", "1", env={"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": TEMPLATE}
    ),
    logged("5.3", "a filter", *TWO, "-t", "3", "--local-ranks-filter", "1"),
    logged("5.3", "a filter without tee", *TWO, "--local-ranks-filter", "0"),
    logged("5.3", "a filter that matches nobody", *TWO, "-t", "1", "--local-ranks-filter", "5"),
    logged("5.3", "a filter with spaces", *TWO, "-t", "3", "--local-ranks-filter", " 0, 1"),
    refused("5.3", "an empty item in the filter", probe("--local-ranks-filter", "0,,1")),
    logged(
        "5.3",
        "carriage returns",
        *("-t", "1"),
        plan=[raw("P|0|0|10%\rP|0|0|20%\r\nP|0|0|end\r\n")],
        muster={"stdout[0.0]": ["[default0]:P|0|0|10%\rP|0|0|20%\r\n", "[default0]:P|0|0|end\r\n"]},
    ),
    logged(
        "5.3",
        "bytes that are no text",
        *("-t", "1"),
        plan=[raw("P|0|0|\xff\xfe\x00\x01\n")],
        muster={"stdout[0.0]": ["[default0]:P|0|0|\xff\xfe\x00\x01\n"]},
    ),
    logged("5.3", "no newline at the end", "-t", "1", plan=[raw("P|0|0|whole\nP|0|0|tail")]),
    logged(
        "5.3",
        "the output of a failing worker",
        *(*TWO, "-t", "3"),
        plan=BOTH + fail_after_all(2, 5, rank=1),
        muster={"exit": 5},
    ),
    logged("5.3", "a thousand lines", *TWO, "-t", "1", plan=[raw("".join(f"P|0|0|{n}\n" for n in range(1000)))]),
]

NEEDLES = [say("apple pie"), say("pear"), say("Apple", stream="err"), say("an apple, cut", stream="err")]

FILTERS = [
    logged("5.4", "a needle", *TWO, "-t", "3", "--duplicate-stdout-filters", "apple", plan=NEEDLES),
    logged("5.4", "several needles on stderr", "-t", "3", "--duplicate-stderr-filters", "apple,Apple", plan=NEEDLES),
    logged("5.4", "a comma in the needle", "-t", "2", "--duplicate-stderr-filters", "apple,, cut", plan=NEEDLES),
    logged("5.4", "nothing matches", "-t", "3", "--duplicate_stdout_filters", "plum", plan=NEEDLES),
    logged("5.4", "without tee", "-r", "3", "--duplicate-stdout-filters", "apple", plan=NEEDLES),
    logged(
        "5.4",
        "by variable, over a restart",
        *(*TWO, "-t", "1", "--max-restarts", "1"),
        plan=NEEDLES + fail_after_all(2, 1, attempt=0),
        env={"PET_DUPLICATE_STDOUT_FILTERS": "apple"},
    ),
]

OWN = [
    Scenario("5.5", "one worker, no word", probe(), BOTH),
    Scenario("5.5", "OMP_NUM_THREADS is mentioned", probe(*TWO), BOTH),
    Scenario("5.5", "no word when it is set", probe(*TWO), BOTH, env={"OMP_NUM_THREADS": "1"}),
    Scenario("5.5", "a restart is mentioned", probe("--max-restarts", "1"), fail_after_all(1, 1, attempt=0) + BOTH),
    Scenario("5.5", "all of it on stderr", probe(*TWO), BOTH + fail_after_all(2, 6, rank=1), muster={"exit": 6}),
    Scenario("5.5", "LOGLEVEL hides warnings", probe(*TWO), BOTH, env={"LOGLEVEL": "ERROR"}),
]

SCENARIOS = LAYOUT + VALUES + TEE + FILTERS + OWN
