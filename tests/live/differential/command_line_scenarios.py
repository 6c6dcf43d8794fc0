"""Scenarios for the command line: sections 1.1 to 1.10."""

from scenario import Scenario, fail_after_all, probe, say

SHOW = [say("here")]


def refused(section, name, args, code=2, **more):
    """Input that neither launcher takes. The probe must never run."""
    return Scenario(section, name, args, rejected=code, **more)


FLAGS = [
    Scenario(
        "1.1",
        "many flags at once",
        probe(
            *("--nnodes", "1:1", "--nproc-per-node", "2", "--role", "trainer", "--max-restarts", "3"),
            *("--monitor-interval", "0.05", "--start-method", "fork", "--shutdown-timeout", "7"),
            *("--signals-to-handle", "SIGTERM,SIGINT", "--event-log-handler", "null", "--logs-specs", "default"),
            *("--local-addr", "127.0.0.1"),
        ),
        SHOW,
    ),
    Scenario(
        "1.1",
        "everything by PET_ variables",
        ["@PY@", "@PROBE@", "x"],
        SHOW,
        env={
            "PET_NPROC_PER_NODE": "2",
            "PET_ROLE": "actor",
            "PET_MAX_RESTARTS": "2",
            "PET_NO_PYTHON": "1",
            "PET_MODULE": "0",
            "PET_LOG_DIR": "@LOGS@",
            "PET_REDIRECTS": "3",
        },
    ),
    Scenario(
        "1.1",
        "the command line wins over a junk variable",
        probe("--max-restarts", "1", "--role", "cli"),
        SHOW,
        env={"PET_MAX_RESTARTS": "x", "PET_ROLE": "env", "PET_START_METHOD": "junk"},
    ),
    Scenario("1.1", "unknown signal names warn only", probe("--signals-to-handle", "SIGTERM,SIGFOO"), SHOW),
    refused("1.1", "more than one colon in --nnodes", probe("--nnodes", "1:2:3")),
    refused("1.1", "min over max in --nnodes", probe("--nnodes", "2:1")),
    refused("1.1", "--nnodes is no number", probe("--nnodes", "x")),
    refused("1.1", "negative --max-restarts", probe("--max-restarts", "-1")),
    refused("1.1", "--monitor-interval 0", probe("--monitor-interval", "0")),
    refused("1.1", "negative --shutdown-timeout", probe("--shutdown-timeout", "-1")),
    refused("1.1", "unknown event log handler", probe("--event-log-handler", "nope")),
    refused("1.1", "unknown start method", probe("--start-method", "thread")),
    refused("1.1", "a signal that cannot be handled", probe("--signals-to-handle", "SIGKILL")),
    refused("1.1", "junk in PET_MAX_RESTARTS", probe(), env={"PET_MAX_RESTARTS": "x"}),
    refused("1.1", "empty PET_NNODES", probe(), env={"PET_NNODES": ""}),
    refused("1.1", "a word in PET_STANDALONE", probe(), env={"PET_STANDALONE": "yes"}),
    refused("1.1", "--module with --no-python", ["--module", "--no-python", "@PROBE@"]),
]

MODES = [
    Scenario("1.2", "nothing given", probe(), SHOW),
    Scenario("1.2", "an id alone", probe("--rdzv-id", "job7"), SHOW, kept_id="job7"),
    Scenario("1.2", "a master port means static", probe("--master-port", "@PORT@", "--nproc-per-node", "2"), SHOW),
    Scenario("1.2", "standalone takes no id", probe("--standalone", "--rdzv-id", "job8"), SHOW, kept_id="job8"),
    Scenario("1.2", "standalone ignores the master", probe("--standalone", "--master-addr", "192.0.2.1"), SHOW),
    Scenario(
        "1.2",
        "c10d with an endpoint keeps the id",
        probe("--rdzv-backend", "c10d", "--rdzv-endpoint", "localhost:0", "--rdzv-id", "job9"),
        SHOW,
    ),
    Scenario("1.2", "an empty id is made up", probe("--master-port", "@PORT@", "--rdzv-id", ""), SHOW),
    refused("1.2", "a static endpoint without a port", probe("--rdzv-backend=static", "--rdzv-endpoint=localhost")),
    Scenario(
        "1.2",
        "two nodes",
        probe("--standalone", "--nnodes", "2", "--rdzv-conf", "join_timeout=2,last_call_timeout=1"),
        whole="several nodes",
        rejected=2,
    ),
]

WORKERS = [
    Scenario("1.3", "three", probe("--nproc-per-node", "3"), SHOW),
    Scenario("1.3", "spaces around the number", probe("--nproc-per-node", " 2 "), SHOW),
    Scenario("1.3", "cpu is the affinity mask", probe("--nproc-per-node", "cpu"), SHOW, cores=(0, 1)),
    Scenario("1.3", "auto without a GPU is cpu", probe("--nproc-per-node", "auto"), SHOW, cores=(0, 1)),
    Scenario(
        "1.3", "OMP_NUM_THREADS stays when set", probe("--nproc-per-node", "2"), SHOW, env={"OMP_NUM_THREADS": "5"}
    ),
    Scenario(
        "1.3",
        "even an empty one",
        probe("--nproc-per-node", "2"),
        SHOW,
        env={"OMP_NUM_THREADS": ""},
        ignore=("stderr.launcher_speaks",),  # The OpenMP library in torchrun's own process complains.
    ),
    refused("1.3", "gpu without a GPU", probe("--nproc-per-node", "gpu"), code=121),
    refused("1.3", "xpu without one", probe("--nproc-per-node", "xpu"), code=121),
    refused("1.3", "a word", probe("--nproc-per-node", "banana")),
    refused("1.3", "zero", probe("--nproc-per-node", "0")),
    refused("1.3", "negative", probe("--nproc-per-node", "-1")),
    refused("1.3", "a fraction", probe("--nproc-per-node", "1.5")),
]


def endpoint(text, backend="static"):
    return probe("--rdzv-backend", backend, "--rdzv-endpoint", text)


ENDPOINTS = [
    Scenario("1.4", "host and port", endpoint("127.0.0.1:@PORT@"), SHOW),
    Scenario("1.4", "spaces around it", endpoint("  127.0.0.1:@PORT@ "), SHOW),
    Scenario("1.4", "brackets around the host", endpoint("[127.0.0.1]:@PORT@"), SHOW),
    Scenario("1.4", "port 0 for c10d", endpoint("localhost:0", "c10d"), SHOW),
    refused("1.4", "a port too large", endpoint("localhost:70000")),
    refused("1.4", "a port that is a word", endpoint("localhost:http", "c10d")),
    refused("1.4", "junk in the host", endpoint("local host:1", "c10d")),
]


def configured(text):
    return probe("--standalone", "--rdzv-conf", text)


CONFIGURATION = [
    Scenario("1.5", "known keys", configured("join_timeout=60,last_call_timeout=1,read_timeout=30"), SHOW),
    Scenario("1.5", "unknown keys pass", configured("colour=blue, read_timeout = 30"), SHOW),
    Scenario("1.5", "quotes inside", configured("'join_timeout=5,last_call_timeout=1,timeout=5'"), SHOW),
    refused("1.5", "a trailing comma", configured("join_timeout=5,")),
    refused("1.5", "no value", configured("join_timeout=")),
    refused("1.5", "no equals sign", configured("join_timeout")),
    refused("1.5", "a reserved key", configured("backend=c10d")),
    refused("1.5", "a time-out that is a word", configured("join_timeout=soon")),
    refused("1.5", "a time-out of 0", configured("join_timeout=0")),
]

NUMA = [
    Scenario("1.6", "no binding by default", probe("--nproc-per-node", "2"), SHOW, cores=(1, 2)),
    refused("1.6", "node without an accelerator", probe("--numa-binding", "node"), code=121),
    refused("1.6", "exclusive without an accelerator", probe("--numa-binding", "exclusive"), code=121),
    refused("1.6", "core-complex without an accelerator", probe("--numa_binding=core-complex"), code=121),
    refused("1.6", "an unknown mode", probe("--numa-binding", "core")),
]

OLD_LAUNCH = [
    Scenario(
        "1.7",
        "adds --local-rank",
        probe("--nproc-per-node", "2", args=["a", "--b"]),
        SHOW,
        old_launch=True,
        muster_args=probe("--pass-local-rank", "--nproc-per-node", "2", args=["a", "--b"]),
    ),
    Scenario("1.7", "--use-env adds nothing", probe("--use-env", args=["a"]), SHOW, old_launch=True),
    Scenario("1.7", "--use_env adds nothing", probe("--use_env"), SHOW, old_launch=True),
    Scenario(
        "1.7",
        "with a module",
        ["-m", "pack.worker", "a"],
        SHOW,
        old_launch=True,
        muster_args=["--pass-local-rank", "-m", "pack.worker", "a"],
        files={"pack/worker.py": "import runpy\nrunpy.run_path('@PROBE@', run_name='__main__')\n"},
    ),
    Scenario(
        "1.7",
        "exit codes and restarts",
        probe("--max-restarts", "1"),
        fail_after_all(1, 3, attempt=0) + SHOW,
        old_launch=True,
        muster_args=probe("--pass-local-rank", "--max-restarts", "1"),
    ),
]

PLUGIN = {
    "plug-1.0.dist-info/METADATA": "Metadata-Version: 2.1\nName: plug\nVersion: 1.0\n",
    "plug-1.0.dist-info/entry_points.txt": "[torchrun.logs_specs]\nmine = plug:Mine\n",
    "plug.py": "from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs as Mine\n",
}

PLUGINS = [
    refused("1.8", "an unknown backend", probe("--rdzv-backend", "nope", "--rdzv-endpoint", "localhost:1")),
    refused("1.8", "an unknown log layout", probe("--logs-specs", "nope")),
    Scenario("1.8", "the default log layout", probe("--logs_specs=default"), SHOW),
    Scenario(
        "1.8",
        "a log layout from a package",
        probe("--logs-specs", "mine"),
        SHOW,
        files=PLUGIN,
        env={"PYTHONPATH": "@WORK@"},
        whole="Python plug-ins",
        rejected=2,
    ),
]


def passed_on(name, *args, **more):
    return Scenario("1.9", name, list(args), SHOW, **more)


PARSING = [
    passed_on("underscores and equals signs", "--nproc_per_node=2", "--max_restarts=1", "@PROBE@"),
    passed_on("a prefix past the first separator", "--nproc-p", "2", "--max_r", "1", "--stand", "@PROBE@"),
    passed_on("PyTorch's own prefix", "--redirect=3", "--log-dir", "@LOGS@", "@PROBE@"),
    passed_on("a value that sticks to its letter", "-r3", "-t", "0", "--log-dir", "@LOGS@", "@PROBE@"),
    passed_on(
        "letters in a cluster",
        *("-mt", "3", "--log-dir", "@LOGS@", "worker"),
        files={"worker.py": "import runpy\nrunpy.run_path('@PROBE@', run_name='__main__')\n"},
    ),
    passed_on("the last one wins", "--nproc-per-node", "4", "--nproc_per_node", "2", "@PROBE@"),
    passed_on("flags after the script are its own", "@PROBE@", "--nproc-per-node", "5", "-h", "--standalone"),
    passed_on("-- before the script", "--", "@PROBE@", "a"),
    passed_on("-- right after the script", "@PROBE@", "--", "a", "b"),
    passed_on("two of them", "@PROBE@", "--", "--", "c"),
    passed_on("-- among arguments", "@PROBE@", "a", "--", "b"),
    passed_on("empty and odd arguments", "@PROBE@", "", " ", "*", "ä", "a=b"),
    Scenario(
        "1.9",
        "script arguments like prefixes",
        probe(args=["--n", "5", "--rdzv", "x"]),
        SHOW,
        whole="ambiguous-looking script arguments",
        muster={"exit": 0, "workers": [(0, 0)]},
    ),
    Scenario(
        "1.9",
        "a prefix that names one thing",
        probe("--nproc", "2"),
        SHOW,
        whole="prefixes",
        muster={"exit": 0, "workers": [(0, 0), (0, 1)]},
    ),
    refused("1.9", "an unknown flag", probe("--max-restart-count", "1")),
    refused("1.9", "no script", ["--nproc-per-node", "2"]),
    refused("1.9", "a value for a switch", ["--module=x", "@PROBE@"]),
    refused("1.9", "a flag without its value", ["--nproc-per-node"]),
]

SUBSTITUTED = ["${local_rank}", "$local_rank", "x${local_rank}y", "$$", "$HOME", "${rank}", "$", "100%"]

WRAPPER = '#!/bin/sh\necho "P|$RANK|0|called with $*"\nexec @PY@ "$@"\n'

COMMANDS = [
    Scenario("1.10", "a script", probe("--nproc-per-node", "2", args=["a b", "c"]), SHOW),
    Scenario(
        "1.10",
        "a module",
        ["-m", "pack.worker", "a"],
        SHOW,
        files={
            "pack/__init__.py": "",
            "pack/worker.py": "import runpy\nrunpy.run_path('@PROBE@', run_name='__main__')\n",
        },
    ),
    Scenario("1.10", "a program from PATH", ["--no-python", "python3", "@PROBE@", "a"], SHOW),
    Scenario(
        "1.10",
        "a script with an interpreter line",
        ["--no-python", "./worker.sh", "a b"],
        SHOW,
        files={"worker.sh": '#!/bin/sh\nexec @PY@ @PROBE@ "$@"\n'},
    ),
    Scenario(
        "1.10",
        "--run-path",
        probe("--run-path", args=["a"]),
        SHOW,
        # The interpreter is the launcher's business there; what the script sees is compared.
        ignore=(r".*\.argv", r".*\.leads_(session|group)", r".*\.descriptors"),
    ),
    Scenario("1.10", "PYTHON_EXEC", probe(args=["a"]), SHOW, env={"PYTHON_EXEC": "@WORK@/py"}, files={"py": WRAPPER}),
    Scenario("1.10", "substitution", probe("--nproc-per-node", "2", args=SUBSTITUTED), SHOW),
    Scenario(
        "1.10",
        "substitution under --virtual-local-rank",
        probe("--virtual-local-rank", "--nproc-per-node", "2", args=SUBSTITUTED),
        SHOW,
    ),
]

SCENARIOS = (
    FLAGS
    + MODES
    + WORKERS
    + ENDPOINTS
    + CONFIGURATION
    + NUMA
    + OLD_LAUNCH
    + PLUGINS
    + PARSING
    + COMMANDS
)
