#!/usr/bin/env python3
"""The matrix of links: which link is down, how long and when, in fixed and elastic jobs, under muster and under torchrun.

    links_matrix.py [--jobs 4] [--only WORD]

$MUSTER names the launcher, $MUSTER_TORCH_VENV a virtual environment with PyTorch. Each cell is a job of two nodes in
network namespaces, run by each launcher; its ranks exchange messages over their own sockets, which survive the cut, or over
gloo. Prints a Markdown table with a row for each cell: the exit codes of the nodes, and the number of workers started; --only
selects the rows that contain WORD. The exit status is 1 if muster failed a job that torchrun finished, or restarted workers
of a fixed job more often than torchrun.
"""
import argparse
import concurrent.futures
import dataclasses
import os
import sys
import tempfile

from harness import MUSTER, require_muster, wait_for
from netns import Cluster, require_netns
from waiting import pause

VENV = os.environ.get("MUSTER_TORCH_VENV", "")
WORKER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs", "link_worker.py")
LIMIT_S = 150.0
STEPS = 60


@dataclasses.dataclass(frozen=True)
class Cell:
    link: str  # The link that is down.
    seconds: int
    when: str
    nodes: str  # --nnodes
    ranks: str  # How their messages travel.

    def words(self):
        world = "fixed" if self.nodes == "2" else "elastic"
        return f"{self.link} | {self.seconds} s | {self.when} | {world} | {self.ranks}"


CELLS = (
    Cell("the host's", 1, "at the start", "2", "sockets"),
    Cell("the host's", 3, "in the middle", "1:2", "gloo"),
    Cell("the host's", 6, "at the end", "2", "sockets"),
    Cell("the host's", 12, "in the middle", "2", "sockets"),
    Cell("the member's", 1, "in the middle", "1:2", "sockets"),
    Cell("the member's", 3, "at the end", "2", "gloo"),
    Cell("the member's", 6, "in the middle", "2", "gloo"),
    Cell("the member's", 12, "at the start", "1:2", "sockets"),
    Cell("to the host", 1, "at the end", "2", "gloo"),
    Cell("to the host", 3, "at the start", "2", "sockets"),
    Cell("to the host", 6, "at the start", "1:2", "gloo"),
    Cell("to the host", 12, "in the middle", "2", "sockets"),
    Cell("from the host", 1, "in the middle", "2", "gloo"),
    Cell("from the host", 3, "in the middle", "1:2", "sockets"),
    Cell("from the host", 6, "in the middle", "2", "sockets"),
    Cell("from the host", 12, "at the end", "1:2", "sockets"),
)


@dataclasses.dataclass
class Outcome:
    codes: list  # Exit codes of the nodes; None: still running.
    starts: int  # Workers started.
    output: str

    def words(self):
        codes = ", ".join("runs on" if code is None else str(code) for code in self.codes)
        return f"{codes}; {self.starts} starts"


def break_link(cluster, link):
    if link.startswith("the "):
        cluster.cut(1 if link == "the host's" else 2)
    else:
        cluster.drop(*((2, 1) if link == "to the host" else (1, 2)))


def mend_link(cluster, link):
    if link.startswith("the "):
        cluster.heal(1 if link == "the host's" else 2)
    else:
        cluster.undrop(*((2, 1) if link == "to the host" else (1, 2)))


def run_job(cell, launcher):
    with Cluster(2) as cluster, tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder, \
            open(f"{folder}/output", "w+", encoding="utf-8", errors="replace") as output:
        flags = ["--nnodes", cell.nodes, "--nproc-per-node", "1", "--max-restarts", "3", "--rdzv-backend", "c10d",
                 "--rdzv-endpoint", "node1:29400", "--rdzv-id", "x", WORKER, cell.ranks, folder, str(STEPS)]
        env = {"GLOO_SOCKET_IFNAME": cluster.nic(), "OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
        nodes = [cluster.run(i, [*launcher, *flags], env=env, stdout=output, stderr=output) for i in (1, 2)]
        there = {"at the start": "up", "in the middle": "met", "at the end": "last"}[cell.when]
        wait_for(lambda: all(any(name.startswith(f"{there}.{rank}") for name in os.listdir(folder)) for rank in (0, 1)),
                 f"the ranks are {there}", LIMIT_S)
        break_link(cluster, cell.link)
        pause(cell.seconds, "the link is down")
        mend_link(cluster, cell.link)
        try:
            wait_for(lambda: all(node.poll() is not None for node in nodes), "both have ended", LIMIT_S)
        except AssertionError:
            pass
        starts = sum(name.startswith("up.") for name in os.listdir(folder))
        output.seek(0)
        return Outcome([node.poll() for node in nodes], starts, output.read())


def is_worse(cell, ours, theirs):
    """An elastic job goes on without a node that is silent for 3 s, so that node may return after the job's end (122)."""
    if cell.nodes != "2":
        return theirs.codes[0] == 0 and ours.codes[0] != 0
    return theirs.codes == [0, 0] and (ours.codes != [0, 0] or ours.starts > theirs.starts)


def run_cell(cell):
    ours = run_job(cell, [MUSTER, "--python", f"{VENV}/bin/python"])
    theirs = run_job(cell, [f"{VENV}/bin/torchrun"])
    return cell, ours, theirs


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=int, default=4, help="how many cells at a time")
    parser.add_argument("--only", default="", metavar="WORD")
    args = parser.parse_args()
    require_muster()
    require_netns()
    if not os.access(f"{VENV}/bin/torchrun", os.X_OK):
        print("SKIPPED: MUSTER_TORCH_VENV names no environment with torchrun", file=sys.stderr)
        sys.exit(77)
    print("| link | down | when | job | ranks | muster | torchrun |\n| --- | --- | --- | --- | --- | --- | --- |")
    worse = []
    with concurrent.futures.ThreadPoolExecutor(args.jobs) as pool:
        for cell, ours, theirs in pool.map(run_cell, [cell for cell in CELLS if args.only in cell.words()]):
            print(f"| {cell.words()} | {ours.words()} | {theirs.words()} |", flush=True)
            if is_worse(cell, ours, theirs):
                worse.append(f"== {cell.words()}\n{ours.output}")
    print("\n".join(worse), file=sys.stderr)
    sys.exit(1 if worse else 0)


if __name__ == "__main__":
    main()
