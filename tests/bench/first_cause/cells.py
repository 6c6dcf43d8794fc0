"""The cells of first_cause.py: what fails, on how many nodes and ranks, with busy cores or not.

Every scenario has two cells, with all other factors inverted; "apart" needs two nodes.
"""

import dataclasses
import itertools


@dataclasses.dataclass(frozen=True)
class Cell:
    name: str
    what: str
    nodes: int
    ranks: int
    busy: bool
    roles: tuple = ()  # Roles of rank.cc: (of the first rank to fail, of the second, of all others)
    mesh: bool = True
    library: str = ""  # The scenario of library_rank.cc.
    torch: tuple = ()
    memory_mb: int = 0  # The limit of each node's memory cgroup.
    stops_agent: bool = False
    not_oom: bool = False  # A verdict that is certain of the out-of-memory killer is wrong.
    one_node: bool = False  # The ranks that fail are on one node.

    @property
    def scenario(self):
        return self.name.split("-")[0]

    def levels(self):
        """Returns the level of each factor."""
        return {
            "scenario": self.scenario,
            "nodes": self.nodes,
            "ranks": "5 to 8" if self.ranks > 4 else "2 to 4",
            "cores": "busy" if self.busy else "idle",
        }


CELLS = [
    Cell("hang-printed", "raises and hangs in its clean-up", 1, 3, False, ("py.print_hang", "", "py.victim")),
    Cell("hang-recorded", "the same, with an error file only", 2, 6, True, ("py.record_hang", "", "py.victim")),
    Cell("late-printed", "raises early, exits 1.2 s later", 1, 5, True, ("py.print_late", "", "py.victim")),
    Cell("late-recorded", "the same, with an error file only", 2, 4, False, ("py.record_late", "", "py.victim")),
    Cell("slow-fault", "SIGSEGV while it holds 3 GB, Python victims", 1, 8, False,
         ("py.slow_fault", "", "py.victim")),
    Cell("slow-killed", "SIGKILL while it holds 3 GB, Python victims", 2, 3, True,
         ("py.slow_killed", "", "py.victim")),
    Cell("abrupt-raise", "a Python exception, C victims that _exit at once", 1, 8, True,
         ("py.print_hang", "", "victim")),
    Cell("abrupt-throw", "a C++ exception, C victims that _exit at once", 2, 4, False, ("throw", "", "victim")),
    Cell("apart-20ms", "C programs that exit 20 ms apart, one on each node", 2, 2, True,
         ("exit", "exit@20", "sleep"), mesh=False),
    Cell("apart-100ms", "Python exceptions 100 ms apart, one on each node", 2, 8, False,
         ("py.raise", "py.raise@100", "sleep"), mesh=False),
    Cell("oom-few", "the out-of-memory killer, C victims", 1, 2, True, ("py.eat", "", "victim"), memory_mb=96),
    Cell("oom-many", "the out-of-memory killer, Python victims", 2, 5, False, ("py.eat", "", "py.victim"),
         memory_mb=160),
    Cell("child-killed", "a tolerated child OOM-killed, then another rank by SIGKILL", 1, 4, False,
         ("py.killed", "py.child", "sleep"), mesh=False, memory_mb=128, not_oom=True),
    Cell("child-raise", "a tolerated child OOM-killed, then another rank's exception", 2, 7, True,
         ("py.raise", "py.child", "py.sleep"), mesh=False, memory_mb=160, not_oom=True),
    Cell("agent-exit", "two C programs exit while the agent is stopped", 1, 6, False,
         ("exit", "exit@30", "sleep"), mesh=False, stops_agent=True, one_node=True),
    Cell("agent-raise", "two Python exceptions while the agent is stopped", 2, 4, True,
         ("py.raise", "py.raise@30", "sleep"), mesh=False, stops_agent=True, one_node=True),
    Cell("torch-plain", "torch with gloo, an exception", 1, 2, True, torch=("plain",)),
    Cell("torch-record", "torch with gloo, an exception under @record", 2, 5, False, torch=("record",)),
    Cell("torch-finally", "torch: destroys its group in a finally, then flushes its logger", 1, 3, False,
         torch=("finally",)),
    Cell("torch-finally2", "the same on two nodes", 2, 4, True, torch=("finally",)),
    Cell("torch-exits", "torch: sys.exit() in the same program", 1, 3, True, torch=("exits",)),
    Cell("torch-leaves", "torch: leaves without an error, then uploads", 2, 4, False, torch=("leaves",)),
    Cell("torch-lingers", "torch: an exception, and a thread that keeps the process", 1, 2, False,
         torch=("lingers",)),
    Cell("torch-json", "torch: an exception that is logged to stdout as JSON", 1, 3, False, torch=("json",)),
    Cell("torch-prints", "torch: an exception that is printed to stdout, then os._exit(1)", 2, 4, True, torch=("prints",)),
    Cell("torch-long", "torch: an exception with a message of 200 KiB", 1, 3, True, torch=("long",)),
    Cell("torch-wraps", "torch: every rank raises an exception of its own from what it met", 2, 4, False,
         torch=("wraps",)),
    Cell("torch-aborts", "torch: abort()", 2, 3, False, torch=("aborts",)),
    Cell("library-path", "worker library: rank 0 cannot open its data", 1, 4, False, library="path"),
    Cell("library-abort", "worker library: abort()", 2, 6, True, library="abort"),
    Cell("library-checkpoint", "worker library: a checkpoint that fails", 1, 7, True, library="checkpoint"),
    Cell("library-mismatch", "worker library: one rank's call differs", 2, 3, False, library="mismatch"),
    Cell("timeout-absent", "worker library: timeout, a rank does not arrive", 1, 3, True, library="absent"),
    Cell("timeout-stopped", "worker library: timeout, a rank is stopped", 2, 8, False, library="stopped"),
]


def holes(cells):
    """Returns the pairs of levels that no cell has; two nodes are a part of "apart"."""
    levels = [cell.levels() for cell in cells]
    for one, other in itertools.combinations(levels[0], 2):
        for pair in itertools.product(sorted({row[one] for row in levels}, key=str),
                                      sorted({row[other] for row in levels}, key=str)):
            if pair != ("apart", 1) and not any((row[one], row[other]) == pair for row in levels):
                yield f"{one} {pair[0]} with {other} {pair[1]}"
