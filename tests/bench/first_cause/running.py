"""One run of a cell of first_cause.py: a job of one or two launchers on loopback, and their verdicts."""

import contextlib
import glob
import json
import os
import pathlib
import re
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[2] / "live"))
from ports import free_port  # noqa: E402
from waiting import polling  # noqa: E402

PROGRAMS = pathlib.Path(__file__).resolve().parent
PATIENCE_S, TORCH_PATIENCE_S = 60, 180
BEFORE_START_NS = 30_000_000
SAME_MOMENT_NS = 1_000_000


class MissingVerdict(Exception):
    pass


class MemoryCgroup:
    """A memory cgroup below our own (v1) or below the root (v2), like a container's."""

    def __init__(self, name, limit_mb):
        with open("/proc/self/cgroup") as file:
            own = [line.strip().split(":", 2) for line in file]
        v1 = [path for _, controllers, path in own if "memory" in controllers.split(",")]
        self.folder = f"/sys/fs/cgroup/memory{v1[0]}/{name}" if v1 else f"/sys/fs/cgroup/{name}"
        if not v1:
            self.write("../cgroup.subtree_control", "+memory")
        os.mkdir(self.folder)
        self.write("memory.limit_in_bytes" if v1 else "memory.max", limit_mb << 20)
        swap = "memory.memsw.limit_in_bytes" if v1 else "memory.swap.max"
        if os.path.exists(f"{self.folder}/{swap}"):
            self.write(swap, limit_mb << 20 if v1 else 0)

    def write(self, name, value):
        with open(os.path.normpath(f"{self.folder}/{name}"), "w") as file:
            file.write(str(value))

    def enter(self):
        self.write("cgroup.procs", os.getpid())

    def remove(self):
        for _ in polling(2):
            with contextlib.suppress(OSError):
                os.rmdir(self.folder)
                return


def why_no_cgroup():
    try:
        MemoryCgroup(f"first_cause_{os.getpid()}_probe", 64).remove()
    except OSError as error:
        return str(error)
    return ""


@contextlib.contextmanager
def busy_cores(rank_program, wanted):
    """Runs one process for each usable core that takes all of it."""
    cores = len(os.sched_getaffinity(0)) if wanted else 0
    spinning = [subprocess.Popen([rank_program, "spin"]) for _ in range(cores)]
    try:
        yield
    finally:
        for process in spinning:
            process.kill()
            process.wait()


def first_and_second(cell, chance):
    """Returns (the rank that must fail first, the second one)."""
    on_first_node = (cell.ranks + cell.nodes - 1) // cell.nodes
    nodes = [range(on_first_node), range(on_first_node, cell.ranks)]
    if cell.library in ("path", "checkpoint"):
        return 0, None
    if cell.one_node:
        return chance.sample([rank for rank in chance.choice(nodes[: cell.nodes])], 2)
    if cell.scenario == "apart":
        chance.shuffle(nodes)
        return [chance.choice(node) for node in nodes]
    return chance.sample(range(cell.ranks), 2)


class Run:
    def __init__(self, cell, muster, programs, chance):
        self.cell, self.muster, self.programs = cell, muster, programs
        self.first, self.second = first_and_second(cell, chance)
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="first_cause_"))
        self.deadline = time.monotonic() + (TORCH_PATIENCE_S if cell.torch else PATIENCE_S)
        self.fronts, self.cgroups = [], []

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for front in self.fronts:
            if front.poll() is None:
                front.kill()  # All of its job ends with it.
                front.wait()
        for cgroup in self.cgroups:
            cgroup.remove()
        shutil.rmtree(self.folder, ignore_errors=True)

    # ---- the job

    def program(self):
        cell, folder = self.cell, str(self.folder)
        if cell.torch:
            python = os.environ.get("MUSTER_TORCH_VENV", "") + "/bin/python"
            return ["--python", python, str(PROGRAMS / "torch_rank.py"), folder, str(self.first), *cell.torch]
        if cell.library:
            whose = [] if cell.library in ("path", "checkpoint") else [str(self.first)]
            return [self.programs["library_rank"], folder, cell.library, *whose]
        first, second, others = cell.roles
        roles = [f"{self.first}={first}", *([f"{self.second}={second}"] if second else []), f"*={others}"]
        return [self.programs["rank"], folder, *roles]

    def start(self):
        cell = self.cell
        environment = {n: v for n, v in os.environ.items() if not n.startswith(("PET_", "TORCHELASTIC_", "MUSTER"))}
        environment |= {"OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo", "TORCH_CPP_LOG_LEVEL": "ERROR",
                        "FIRST_CAUSE_PROGRAMS": str(PROGRAMS), "PYTHONDONTWRITEBYTECODE": "1",
                        **({"FIRST_CAUSE_MESH": "1"} if cell.mesh else {})}
        port, share = free_port(), (cell.ranks + cell.nodes - 1) // cell.nodes
        for node in range(cell.nodes):
            workers = share if node == 0 else cell.ranks - share
            flags = ["--nproc-per-node", str(workers), "--log-dir", str(self.folder / f"logs.{node}"),
                     "--shutdown-timeout", "5"]
            if cell.nodes > 1:
                flags += ["--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}",
                          "--rdzv-id", "job", "--node-rank", str(node), "--rdzv-conf", f"is_host={node == 0}"]
            enter = None
            if cell.memory_mb:
                self.cgroups.append(MemoryCgroup(f"first_cause_{os.getpid()}_{node}", cell.memory_mb))
                enter = self.cgroups[-1].enter
            with open(self.folder / f"output.{node}", "wb") as output:
                self.fronts.append(subprocess.Popen([self.muster, *flags, *self.program()], stdin=subprocess.DEVNULL,
                                                    stdout=output, stderr=output, env=environment, preexec_fn=enter))

    def await_files(self, what, ranks):
        """Waits until each of these ranks has left its file, or the job is over."""
        for _ in polling(self.deadline - time.monotonic()):
            if all((self.folder / f"{what}.{rank}").exists() for rank in ranks):
                return
            if any(front.poll() is not None for front in self.fronts):
                raise MissingVerdict(f"the job ended before the ranks were {what}: {self.output()}")
        raise MissingVerdict(f"the ranks were not {what} in time: {self.output()}")

    def give_start(self):
        (self.folder / "go.new").write_text(str(time.monotonic_ns() + BEFORE_START_NS))
        os.rename(self.folder / "go.new", self.folder / "go")

    def perform(self):
        self.start()
        self.await_files("ready", range(self.cell.ranks))
        if self.cell.stops_agent:
            self.fail_before_a_stopped_agent()
        else:
            self.give_start()
        for front in self.fronts:
            try:
                front.wait(max(0.0, self.deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                raise MissingVerdict(f"the job did not end: {self.output()}") from None

    def fail_before_a_stopped_agent(self):
        share = (self.cell.ranks + self.cell.nodes - 1) // self.cell.nodes
        front = self.fronts[0 if self.first < share else 1]
        with open(f"/proc/{front.pid}/task/{front.pid}/children") as file:
            agent = int(file.read().split()[0])
        ends = [os.pidfd_open(pid) for pid in self.children(agent)]
        os.kill(agent, signal.SIGSTOP)
        try:
            self.give_start()
            self.await_files("stamp", (self.first, self.second))
            for _ in polling(self.deadline - time.monotonic()):
                if len(select.select(ends, [], [], 1)[0]) >= 2:
                    break
        finally:
            os.kill(agent, signal.SIGCONT)
            for end in ends:
                os.close(end)

    @staticmethod
    def children(pid):
        found = []
        for task in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{task}/children") as file:
                found += map(int, file.read().split())
        return found

    # ---- what became of it

    def output(self):
        texts = [path.read_text(errors="replace")[-2000:] for path in sorted(self.folder.glob("output.*"))]
        return "\n".join(texts)

    def stamps(self):
        """Returns the stamps, without those of ranks that were stopped while they wrote one."""
        texts = {int(path.suffix[1:]): path.read_text() for path in self.folder.glob("stamp.*")}
        return {rank: int(text) for rank, text in texts.items() if text}

    def results(self):
        found = []
        for node in range(self.cell.nodes):
            paths = glob.glob(f"{self.folder}/logs.{node}/*/result.json")
            if not paths:
                raise MissingVerdict(f"node {node} wrote no result.json: {self.output()}")
            found.append(json.loads(pathlib.Path(paths[0]).read_text()))
        return found

    def evidence(self):
        """Returns each node's evidence, without names of this machine."""
        nodes = []
        for path in sorted(glob.glob(f"{self.folder}/logs.*/*/evidence_0.json")):
            text = pathlib.Path(path).read_text()
            for ours, neutral in ((str(self.folder), "/tmp/job"), (str(PROGRAMS), "/home/user"),
                                  (os.environ.get("MUSTER_TORCH_VENV") or "/nowhere", "/home/user/venv"),
                                  (str(PROGRAMS.parents[2]), "/home/user/muster")):
                text = text.replace(ours, neutral)
            text = re.sub(r'"host":\s*"[^"]*"', f'"host":"node{len(nodes)}"', text)
            nodes.append(json.loads(text.replace(socket.gethostname(), f"node{len(nodes)}")))
        return nodes


def said(result):
    culprit = result["culprit"]
    everybody = [culprit or {}, *result["others"]]
    return {
        "rank": culprit and culprit["rank"],
        "simultaneous": [worker["rank"] for worker in everybody if worker.get("part") == "simultaneous"],
        "reason": result["reason"],
        "class": result["class"],
        "summary": result["summary"],
    }


def outcome(cell, stamps, verdicts):
    """Returns ("right" or "wrong", what is wrong). `verdicts`: one from each node."""
    truth = min(stamps, key=stamps.get)
    named = {verdict["rank"] for verdict in verdicts}
    if len(named) > 1:
        return "wrong", f"nodes disagree: {sorted(map(str, named))}"
    rank, together = verdicts[0]["rank"], {*verdicts[0]["simultaneous"], verdicts[0]["rank"]}
    if truth not in together:
        return "wrong", f"rank {rank} ({verdicts[0]['reason']}) instead of rank {truth}"
    far = [other for other in together if stamps.get(other, sys.maxsize) - stamps[truth] >= SAME_MOMENT_NS]
    if far:
        return "wrong", f"rank {truth} as simultaneous with rank {far[0]}"
    if cell.not_oom and verdicts[0]["class"] == "oom" and "probably" not in verdicts[0]["summary"]:
        return "wrong", f"certain of the out-of-memory killer: {verdicts[0]['summary']}"
    return "right", ""


def one_run(cell, muster, programs, chance):
    """Returns (the record of a run, the evidence that its nodes had)."""
    began = time.monotonic()
    record, evidence = {"cell": cell.name}, []
    with busy_cores(programs["rank"], cell.busy), Run(cell, muster, programs, chance) as run:
        record["first"] = run.first
        try:
            run.perform()
            stamps = run.stamps()
            if not stamps:
                raise MissingVerdict(f"no rank failed: {run.output()}")
            verdicts = [said(result) for result in run.results()]
            record["outcome"], record["why"] = outcome(cell, stamps, verdicts)
            record |= {"truth": min(stamps, key=stamps.get), "stamps": stamps, "verdicts": verdicts}
            evidence = run.evidence()
        except MissingVerdict as error:
            record |= {"outcome": "missing", "why": str(error)}
    record["seconds"] = round(time.monotonic() - began, 3)
    return record, evidence
