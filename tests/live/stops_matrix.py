#!/usr/bin/env python3
"""The matrix of stops: what stops a job, what its ranks are, where its output goes, one node or two; and what is saved.

    stops_matrix.py [--runs 20] [--jobs 6] [--only WORD]

$MUSTER names the launcher, $MUSTER_STOP_SAVER the program fakes/stop_saver.cc, $MUSTER_TORCH_VENV a virtual environment
with PyTorch. Each cell runs --runs times, --jobs cells at a time, and up to five times as a single process without a
launcher that is stopped the same way (by SIGTERM if a failure or a lost node is the cause). Prints a Markdown table with a
row for each cell; --only selects the rows that have the word. The exit status is 1 if a rank's save is missing.

The cells cover every pair of levels of two factors. The engine is Slurm, by its variables and its daemon's name, or one
that muster does not know. A rank saves for a second, in steps that its helper process serves, and prints a line for each.
It gives up if it gets a second signal. If the signal goes to every process, helpers ignore it, as in programs that are
written for that; otherwise they die of it.
"""
import argparse
import collections
import concurrent.futures
import dataclasses
import itertools
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import threading

from harness import MUSTER, is_gone, pause, polling, require_muster, wait_for
from ports import free_port

SAVER = os.environ.get("MUSTER_STOP_SAVER", "")
TORCH = os.path.join(os.environ.get("MUSTER_TORCH_VENV", ""), "bin", "python")
PYTHON_SAVER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs", "stop_saver.py")
POLL_S = 0.05  # Up to six scenes poll at a time.
READY_S = 120.0
LIMIT_S = 40.0  # More than the grace.
ALONE_S, ALONE_RUNS = 5.0, 5

PLAIN = f"{shlex.quote(sys.executable)} {shlex.quote(PYTHON_SAVER)} plain"
TRAPPING = """
save() {
  trap 'echo -n told twice >$STOPS/lost.$RANK; exit 4' TERM INT
  for part in 0 1 2 3 4 5 6 7 8 9; do
    echo saving part $part || { echo -n console gone >$STOPS/lost.$RANK; exit 4; }
    sleep 0.1
  done
  echo saved >$STOPS/draft.$RANK; mv $STOPS/draft.$RANK $STOPS/save.$RANK; exit 0
}
trap save TERM INT
touch $STOPS/ready.$RANK
for step in {1..6000}; do sleep 0.05; done
"""
# The command of a rank.
PROGRAMS = {
    "Python, torch's loader": (TORCH, PYTHON_SAVER, "torch"),
    "shell, Python below it": ("bash", "-c", f"{PLAIN}; echo after"),
    "shell in a shell, Python below": ("sh", "-c", f"bash -c {shlex.quote(PLAIN + '; :')}; echo after"),
    "shell with a trap": ("bash", "-c", TRAPPING),
    "C++": (SAVER,),
    "profiler around C++": (SAVER, "profile", SAVER),
}
# Writes its pid to a file and becomes the program.
SAYS_PID = 'echo $BASHPID >"$0.draft"; mv "$0.draft" "$0"; exec "$@"'
# The rank that fails writes its pid to ready.RANK and never saves.
FAILS = f"""[ $RANK != $CULPRIT ] || exec bash -c '{SAYS_PID}' "$STOPS/ready.$RANK" sleep 1000; exec "$@\""""
# Ways in which a wrapper passes SIGTERM on to the launcher.
WRAPPERS = {
    "a trap": """trap 'kill -TERM $child' TERM; "$@" & child=$!; wait $child; wait $child""",
    "to its group": """trap "trap '' TERM; kill -TERM 0" TERM; "$@" & child=$!; wait $child; wait $child""",
    "again, 0.3 s after the group got it": """trap 'sleep 0.3; kill -TERM $child' TERM; "$@" & child=$!; wait $child; wait $child""",
}


@dataclasses.dataclass(frozen=True)
class Cell:
    by: str
    how: str
    program: str
    console: str
    nodes: int
    in_gate: bool = False

    @property
    def rank(self):
        """The factor: what a rank is."""
        return self.program.split(",")[0].split(" ")[0]

    def factors(self):
        return self.by, self.rank, self.console, self.nodes

    @property
    def ranks(self):
        """The number of ranks of a whole job, with the one that fails."""
        return 2 + (self.by == "failure")

    def words(self):
        return f"{self.by}: {self.how} | {self.program} | {self.console} | {self.nodes}"


CELLS = (
    Cell("user", "Ctrl-C", "Python, torch's loader", "terminal", 1, in_gate=True),
    Cell("user", "Ctrl-C", "shell with a trap", "tee", 1, in_gate=True),
    Cell("user", "SIGTERM", "C++", "pipe", 2),
    Cell("user", "SIGINT", "profiler around C++", "file", 2),
    Cell("service manager", "control-group", "Python, torch's loader", "tee", 2),
    Cell("service manager", "control-group", "shell, Python below it", "pipe", 1, in_gate=True),
    Cell("service manager", "mixed", "C++", "file", 1),
    Cell("service manager", "control-group", "profiler around C++", "terminal", 1),
    Cell("wrapper", "to its group", "Python, torch's loader", "pipe", 1),
    Cell("wrapper", "a trap", "shell in a shell, Python below", "file", 2),
    Cell("wrapper", "again, 0.3 s after the group got it", "C++", "terminal", 1, in_gate=True),
    Cell("wrapper", "to its group", "profiler around C++", "tee", 1),
    Cell("engine", "Slurm", "Python, torch's loader", "file", 1),
    Cell("engine", "of another kind", "shell with a trap", "terminal", 1),
    Cell("engine", "of another kind", "C++", "tee", 2),
    Cell("engine", "Slurm", "profiler around C++", "pipe", 2, in_gate=True),
    Cell("failure", "another rank is killed", "Python, torch's loader", "terminal", 2),
    Cell("failure", "another rank is killed", "shell, Python below it", "tee", 1),
    Cell("failure", "another rank is killed", "C++", "pipe", 1, in_gate=True),
    Cell("failure", "another rank is killed", "profiler around C++", "file", 1, in_gate=True),
    Cell("loss of a node", "a member", "Python, torch's loader", "tee", 2),
    Cell("loss of a node", "the host", "shell in a shell, Python below", "pipe", 2),
    Cell("loss of a node", "a member", "C++", "file", 2, in_gate=True),
    Cell("loss of a node", "the host", "profiler around C++", "terminal", 2),
)


def all_pairs(cells):
    """Returns the pairs of levels of two factors that are in a cell."""
    return {pair for cell in cells for pair in itertools.combinations(enumerate(cell.factors()), 2)}


def kill(pids, *signals):
    for pid, number in itertools.product(pids, signals):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            pass


class Console:
    """The destination of a command's output, which it keeps. `typed`: a terminal, so that keys can be pressed."""

    def __init__(self, kind, command, log, env, typed):
        self.master, self.text = None, bytearray()
        if kind == "tee":
            command = ("bash", "-c", f"{shlex.join(command)} 2>&1 | tee {shlex.quote(log)}")
        if kind == "terminal" or typed:
            self.master, slave = os.openpty()
            self.process = subprocess.Popen(("setsid", "--ctty", *command), stdin=slave, stdout=slave, stderr=slave, env=env)
            os.close(slave)
            source = self.master
        elif kind in ("pipe", "tee"):
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                            stderr=subprocess.STDOUT, env=env, start_new_session=True)
            source = self.process.stdout.fileno()
        else:
            with open(log, "wb") as file:
                self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=env,
                                                start_new_session=True)
            return
        self.reader = threading.Thread(target=self.drain, args=(source,))
        self.reader.start()

    def drain(self, source):
        try:
            while read := os.read(source, 65536):
                self.text += read
        except OSError:  # EIO: no process has the terminal open any longer.
            pass

    def close(self):
        """Call this once every process that writes to it has ended."""
        self.process.wait()
        if self.process.stdout:
            self.reader.join()
            self.process.stdout.close()
        if self.master is not None:
            self.reader.join()
            os.close(self.master)


class Scene:
    """One run of a cell, with the launcher or as a single process. The moment of the stop depends on its number."""

    def __init__(self, cell, alone, number, folder):
        self.cell, self.alone, self.number, self.folder = cell, alone, number, folder
        self.nodes = 1 if alone else cell.nodes
        self.ranks = 1 if alone else cell.ranks
        self.culprit = self.ranks - 1 if cell.by == "failure" and not alone else None
        self.port = free_port() if self.nodes > 1 else None
        self.written, self.daemons = "", []
        self.consoles = [self.start(node) for node in range(self.nodes)]

    def path(self, name):
        return os.path.join(self.folder, name)

    def says_pid(self, name, command):
        return ("bash", "-c", SAYS_PID, self.path(name), *command)

    def environment(self, node):
        env = {**os.environ, "STOPS": self.folder, "STOPS_NODE": str(node), "OMP_NUM_THREADS": "1"}
        if self.alone:
            env |= {"RANK": "0", "WORLD_SIZE": "1"}
        if self.culprit is not None:
            env["CULPRIT"] = str(self.culprit)
        if self.cell.by == "engine" or self.cell.how == "control-group":
            env["SHIELDED"] = "1"
        if self.cell.how == "Slurm":
            env |= {"SLURM_JOB_ID": "1", "SLURM_STEP_ID": "0", "SLURM_STEP_NUM_NODES": str(self.nodes),
                    "SLURM_STEP_NUM_TASKS": str(self.nodes), "SLURM_NODEID": str(node), "SLURM_PROCID": str(node)}
        return env

    def start(self, node):
        command = PROGRAMS[self.cell.program]
        if not self.alone:
            if self.culprit is not None:
                command = ("sh", "-c", FAILS, "sh", *command)
            flags = ["--nproc-per-node", self.ranks // self.nodes + (node == 1 and self.ranks % self.nodes)]
            if self.nodes > 1:
                flags += ["--nnodes", self.nodes, "--node-rank", node, "--master-addr", "127.0.0.1", "--master-port", self.port,
                          "--lease", 3]
            command = (MUSTER, *map(str, flags), "--no-python", *command)
        command = self.says_pid(f"front.{node}", command)
        if self.cell.by == "wrapper":
            command = self.says_pid(f"wrapper.{node}", ("bash", "-c", WRAPPERS[self.cell.how], "wrapper", *command))
        return Console(self.cell.console, command, self.path(f"log.{node}"), self.environment(node),
                       typed=self.cell.how == "Ctrl-C")

    def pid(self, name):
        with open(self.path(name), encoding="ascii") as file:
            return int(file.read())

    def members(self, node=None):
        """Returns the pids of its processes, or of one node's."""
        marks = [f"STOPS={self.folder}\0".encode()] + ([] if node is None else [f"STOPS_NODE={node}\0".encode()])
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{name}/environ", "rb") as file:
                    content = file.read()
            except OSError:  # The process has ended.
                continue
            if all(mark in content for mark in marks):
                found.append(int(name))
        return sorted(found)

    def output(self):
        texts = []
        for node, console in enumerate(self.consoles):
            texts.append(bytes(console.text))
            if os.path.exists(self.path(f"log.{node}")):
                with open(self.path(f"log.{node}"), "rb") as file:
                    texts.append(file.read())
        return b"\n".join(texts).decode(errors="replace")

    def has(self, what, rank):
        return os.path.exists(self.path(f"{what}.{rank}"))

    # ---- what stops it

    def stop(self):
        {"user": self.stop_by_user, "service manager": self.stop_by_manager, "wrapper": self.stop_by_wrapper,
         "engine": self.stop_by_engine, "failure": self.fail, "loss of a node": self.lose_node}[self.cell.by]()

    def stop_by_user(self):
        if self.cell.how == "Ctrl-C":
            os.write(self.consoles[0].master, b"\x03")
        else:
            kill([self.pid("front.0")], signal.Signals[self.cell.how])

    def stop_by_manager(self):
        """Signals as systemd does: the main process first, then the rest of its cgroup unless KillMode=mixed."""
        main = self.consoles[0].process.pid
        others = [] if self.cell.how == "mixed" else [pid for pid in self.members(0) if pid != main]
        self.start_daemon("systemd", [main, *others[::-1 if self.number % 2 else 1]])

    def stop_by_wrapper(self):
        node = self.nodes - 1
        if self.cell.how.startswith("again"):
            os.killpg(self.consoles[node].process.pid, signal.SIGTERM)
        else:
            kill([self.pid(f"wrapper.{node}")], signal.SIGTERM)

    def stop_by_engine(self):
        for pids in [self.members(node) for node in range(self.nodes)]:
            self.start_daemon("slurmstepd" if self.cell.how == "Slurm" else "jobd", pids)

    def start_daemon(self, name, pids):
        """Starts a process that signals `pids` and lives on, since receivers may look at their sender."""
        path = self.path(f"daemon.{len(self.daemons)}")
        os.mkdir(path)
        os.symlink(SAVER, f"{path}/{name}")
        self.daemons.append(subprocess.Popen((f"{path}/{name}", "signal", *map(str, pids)), stdin=subprocess.PIPE))

    def fail(self):
        if self.alone:
            return kill([self.pid("front.0")], signal.SIGTERM)
        return kill([self.pid(f"ready.{self.culprit}")], signal.SIGKILL)

    def lose_node(self):
        if self.alone:
            return kill([self.pid("front.0")], signal.SIGTERM)
        kill(self.members(self.lost_node()), signal.SIGKILL)

    def lost_node(self):
        return 0 if self.cell.how == "the host" else 1

    # ---- what comes of it

    def expected(self):
        """Returns the ranks that must save."""
        lost = None if self.alone or self.cell.by != "loss of a node" else self.lost_node()
        return [rank for rank in range(self.ranks) if rank not in (self.culprit, lost)]

    def wait_for_saves(self):
        """Waits until all ranks have saved or none can any more: a launcher leaves nothing, a single process may."""
        fronts = [self.pid(f"front.{node}") for node in range(self.nodes)]

        def over():
            return (all(self.saved(rank) or self.has("lost", rank) for rank in self.expected())
                    or all(map(is_gone, fronts)) and not (self.alone and self.members()))
        for _ in polling(ALONE_S if self.alone else LIMIT_S, POLL_S):
            if over():
                break

    def saved(self, rank):
        return self.has("save", rank) and (self.cell.rank != "profiler" or self.has("report", rank))

    def loss(self, rank):
        """Returns why a rank has not saved."""
        if self.has("lost", rank):
            with open(self.path(f"lost.{rank}"), encoding="utf-8") as file:
                return file.read()
        if not self.has("ready", rank):
            return "not started"
        return "no report" if self.has("save", rank) else "killed or not told"

    def play(self):
        """Plays the scene. Returns (saves, losses by cause)."""
        for _ in polling(READY_S, POLL_S):
            if all(self.has("ready", rank) for rank in range(self.ranks)):
                pause((1 + self.number % 5) * 0.05, "any moment when its ranks are older than 20 ms")
                self.stop()
                self.wait_for_saves()
                break
        self.written = self.output()
        losses = collections.Counter(self.loss(rank) for rank in self.expected() if not self.saved(rank))
        return len(self.expected()) - losses.total(), losses

    def __enter__(self):
        return self

    def __exit__(self, *_):
        wait_for(lambda: not self.members() or kill(self.members(), signal.SIGKILL), "nothing of it is left")
        for console in self.consoles:
            console.close()
        for daemon in self.daemons:
            daemon.communicate()


@dataclasses.dataclass
class Row:
    """The results of a cell."""
    cell: Cell
    saved: int = 0
    ranks: int = 0
    losses: collections.Counter = dataclasses.field(default_factory=collections.Counter)
    alone_saved: int = 0
    alone_runs: int = 0
    outputs: list = dataclasses.field(default_factory=list)  # Outputs of the runs in which a save is missing.

    def add(self, scene, saved, losses):
        if scene.alone:
            self.alone_saved += saved
            self.alone_runs += 1
            return
        self.saved += saved
        self.ranks += len(scene.expected())
        self.losses += losses
        if losses:
            self.outputs.append(scene.written)

    def text(self):
        lost = "; ".join(f"{count} × {why}" for why, count in self.losses.most_common())
        return (f"| {self.cell.words()} | {self.saved} of {self.ranks} | {self.alone_saved} of {self.alone_runs} | "
                f"{lost or '-'} |")


def play(*run):
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, Scene(*run, folder) as scene:
        return scene, *scene.play()


def run_cells(cells, runs, jobs, alone_runs=ALONE_RUNS):
    """Returns a row for each cell."""
    rows = {cell: Row(cell) for cell in cells}
    plan = [(cell, alone, number) for number in range(runs) for cell in cells for alone in (False, True)
            if not alone or number < alone_runs]
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        for (cell, *_), outcome in zip(plan, pool.map(lambda run: play(*run), plan)):
            rows[cell].add(*outcome)
    return list(rows.values())


def table(rows):
    """Returns the rows as Markdown."""
    return "\n".join(["| stopped by | a rank is | console | nodes | saved | alone | lost |", "| --- | --- | --- | --- | --- | --- | --- |",
                      *(row.text() for row in rows)])


def main():
    parser = argparse.ArgumentParser(usage=__doc__)
    parser.add_argument("--runs", default=20, type=int)
    parser.add_argument("--jobs", default=6, type=int)
    parser.add_argument("--only", default="")
    parser.add_argument("--show", action="store_true", help="the output of runs in which a save is missing")
    options = parser.parse_args()
    require_muster()
    rows = run_cells([cell for cell in CELLS if options.only in cell.words()], options.runs, options.jobs)
    print(table(rows))
    if options.show:
        print("\n".join(f"--- {row.cell.words()}\n{output}" for row in rows for output in row.outputs))
    return any(row.losses for row in rows)


if __name__ == "__main__":
    sys.exit(main())
