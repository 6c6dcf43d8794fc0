"""What worker_bench.py makes of its samples: tables in the layout of nccl-tests, tables of ratios, and the goals.

A ratio is that of two medians: how many times longer the other library takes. Its spread, in brackets, is the smallest
and the largest ratio of two samples of the same run.
"""

import dataclasses
import statistics
from typing import Any

from worker_peers import UNRECORDED

SHARED = "shared"  # muster's all_reduce on memory that the ranks of a node share.
ROOTED = ("broadcast", "reduce", "gather", "scatter")
REDUCING = ("reduce", "all_reduce", "reduce_scatter")
# In these operations the "count" of nccl-tests is that of one rank's block.
PER_RANK = ("gather", "all_gather", "scatter", "reduce_scatter", "all_to_all")
LARGEST = 64 << 20


@dataclasses.dataclass(frozen=True)
class Cell:
    layout: Any
    operation: str
    size: int

    def __str__(self):
        return f"{self.layout}: {self.operation} {size_name(self.size)}".rstrip()


def size_name(size):
    if size == 0:
        return ""
    for unit, scale in (("MiB", 1 << 20), ("KiB", 1 << 10)):
        if size >= scale:
            return f"{size / scale:g} {unit}"
    return f"{size} B"


def bus_factor(operation, ranks):
    """Returns bus bandwidth / algorithm bandwidth, as nccl-tests' PERFORMANCE.md derives it."""
    if operation == "all_reduce":
        return 2 * (ranks - 1) / ranks
    return (ranks - 1) / ranks if operation in PER_RANK else 1


# ---- ratios


@dataclasses.dataclass(frozen=True)
class Ratio:
    cell: Cell
    mine: str
    other: str
    value: float
    low: float
    high: float

    def __str__(self):
        return f"{number(self.value)} ({number(self.low)}–{number(self.high)})"


def number(value):
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def ratio(samples, cell, other, mine="muster"):
    theirs, ours = samples.get((cell, other)), samples.get((cell, mine))
    if not theirs or not ours:
        return None
    each = [a / b for a, b in zip(theirs, ours)]
    return Ratio(cell, mine, other, statistics.median(theirs) / statistics.median(ours), min(each), max(each))


def ratios(cells, samples, other):
    found = (ratio(samples, cell, other) for cell in cells)
    return [one for one in found if one]


# ---- the tables of nccl-tests

HEADER = """# {series}, {layout}: {operation}
#
#       size         count      type   redop    root     time   algbw   busbw  #wrong       min       max
#        (B)    (elements)                               (us)  (GB/s)  (GB/s)              (us)      (us)
"""


def write_tables(cells, samples, bytes_of, file):
    """One table for each library, layout and operation; time is the median of the runs."""
    last = None
    for series in dict.fromkeys(name for _, name in samples):
        for cell in (cell for cell in cells if (cell, series) in samples):
            if last != (series, cell.layout, cell.operation):
                last = (series, cell.layout, cell.operation)
                file.write("\n" + HEADER.format(series=series, layout=cell.layout, operation=cell.operation))
            file.write(line_of(cell, samples[cell, series], bytes_of(cell, cell.layout.ranks)))


def line_of(cell, values, size):
    operation, ranks, median = cell.operation, cell.layout.ranks, statistics.median(values)
    count = size // 4 // (ranks if operation in PER_RANK else 1)
    bandwidth = size / median / 1e3
    redop, root = "sum" if operation in REDUCING else "none", 0 if operation in ROOTED else -1
    return (f"{size:12d}  {count:12d}  {'float':>8s}  {redop:>6s}  {root:6d}  {median:7.2f}  {bandwidth:6.2f}  "
            f"{bandwidth * bus_factor(operation, ranks):6.2f}  {0:6d}  {min(values):8.2f}  {max(values):8.2f}\n")


# ---- the summary


def print_summary(cells, samples):
    nodes = sorted({cell.layout.nodes for cell in cells})
    print_goals(cells, samples)
    for count in nodes:
        mine = [cell for cell in cells if cell.layout.nodes == count]
        where = "One node" if count == 1 else "Two nodes"
        print_grid(f"{where}: muster, µs", mine, lambda cell, name: median_text(samples, cell, name))
        for other in ("gloo", "Open MPI", UNRECORDED):
            if ratios(mine, samples, other):
                title = f"{where}: {other}'s time / muster's"
                print_grid(title, mine, lambda cell, name, to=other: ratio_text(samples, cell, to, name))


def median_text(samples, cell, name):
    return number(statistics.median(samples[cell, name])) if (cell, name) in samples else ""


def ratio_text(samples, cell, other, name):
    if (other, name) == (UNRECORDED, SHARED):
        return ""  # That series has none.
    found = ratio(samples, cell, other, name)
    return number(found.value) if found else ""


def print_grid(title, cells, text):
    """A row for each operation and number of ranks, a column for each size; barrier's is in the first."""
    sizes = sorted({cell.size for cell in cells if cell.size}) or [0]
    rows = dict.fromkeys((cell.operation, cell.layout) for cell in cells)
    print(f"\n| {title} | ranks | {' | '.join(map(size_name, sizes))} |")
    print(f"| --- | --- |{' --- |' * len(sizes)}")
    for operation, layout in sorted(rows, key=lambda row: [*dict.fromkeys(r[0] for r in rows)].index(row[0])):
        print_grid_row(operation, layout, sizes, text, "muster")
        if operation == "all_reduce" and layout.nodes == 1:
            print_grid_row(operation, layout, sizes, text, SHARED)


def print_grid_row(operation, layout, sizes, text, name):
    found = [text(Cell(layout, operation, size), name) for size in sizes]
    if operation == "barrier":
        found = [text(Cell(layout, operation, 0), name), *[""] * (len(sizes) - 1)]
    if any(found):
        label = f"{operation}, shared memory" if name == SHARED else operation
        print(f"| {label} | {layout.ranks} | {' | '.join(found)} |")


# ---- the goals


def one_node(cells, operation=None, size=None):
    return [cell for cell in cells if cell.layout.nodes == 1 and operation in (None, cell.operation)
            and size in (None, cell.size)]


def single_goals(cells, samples):
    """Returns (what, goal, [ratios], the least)."""
    wanted = (("barrier, gloo's time / muster's", "barrier", 0, "muster", 10),
              ("8 B all_reduce, gloo's time / muster's", "all_reduce", 8, "muster", 10),
              ("64 MiB all_reduce, muster's bandwidth / gloo's", "all_reduce", LARGEST, "muster", 2),
              ("the same with buffers in the shared segment", "all_reduce", LARGEST, SHARED, 5))
    for what, operation, size, mine, least in wanted:
        found = [ratio(samples, cell, "gloo", mine) for cell in one_node(cells, operation, size)]
        yield what, f"≥ {least}", [one for one in found if one], least


def sweeping_goals(cells, samples):
    alone = one_node(cells)
    nodes = [cell for cell in cells if cell.layout.nodes > 1]
    large = [cell for cell in alone if cell.size == LARGEST]
    yield "every operation and size, muster's time / gloo's", "≤ 1.05", ratios(alone, samples, "gloo"), 1 / 1.05
    yield "every operation and size over TCP, muster's time / gloo's", "≤ 1", ratios(nodes, samples, "gloo"), 1
    yield "64 MiB, muster's time / Open MPI's", "≤ 1", ratios(large, samples, "Open MPI"), 1


def inverse(one):
    return Ratio(one.cell, one.mine, one.other, 1 / one.value, 1 / one.high, 1 / one.low)


def print_goals(cells, samples):
    print("| goal | wanted | measured (spread of the runs) | |\n| --- | --- | --- | --- |")
    misses = []
    for what, wanted, found, least in single_goals(cells, samples):
        texts = [f"{one} on {one.cell.layout.ranks} ranks" for one in found]
        missed = [one for one in found if one.value < least]
        misses.append((what, wanted, missed))
        if found:
            print(f"| {what} | {wanted} | {', '.join(texts)} | {'missed' if missed else 'met'} |")
    for what, wanted, found, least in sweeping_goals(cells, samples):
        missed = [inverse(one) for one in found if one.value < least]
        misses.append((what, wanted, missed))
        if found:
            worst = inverse(min(found, key=lambda one: one.value))
            text = f"{len(found) - len(missed)} of {len(found)} cells; worst {worst}, {worst.cell}"
            print(f"| {what} | {wanted} | {text} | {'missed' if missed else 'met'} |")
    print_misses(misses, samples)


def print_misses(misses, samples):
    print(f"\nCells that miss a goal: {sum(len(missed) for *_, missed in misses) or 'none'}.")
    for what, wanted, missed in misses:
        if missed:
            print(f"- {what}, wanted {wanted}:")
        for one in missed:
            doubt = ", within the spread" if one.low <= float(wanted.split()[1]) <= one.high else ""
            medians, shortest = both_texts(one, samples, statistics.median), both_texts(one, samples, min)
            print(f"  - {one.cell}: {one}{doubt}; {medians} µs, shortest samples {shortest}")


def both_texts(one, samples, of):
    mine, other = (number(of(samples[one.cell, name])) for name in (one.mine, one.other))
    return f"{mine} to {one.other}'s {other}"


def complaints(cells, samples):
    """Returns what is wrong on any machine: the smallest operations slower than gloo's, which sleeps in the kernel for each."""
    for cell in one_node(cells, "barrier") + one_node(cells, "all_reduce", 8):
        found = ratio(samples, cell, "gloo")
        if found and found.value < 1:
            yield f"{cell}: gloo takes only {found} of muster's time"
