"""Draws docs/plots/{start,rendezvous,collectives,torch_backend}.svg from the results that the benchmarks stored.

    tests/bench/plots.py [--results build/bench] [--to docs/plots]

./dev bench calls it at its end. Each picture is drawn from one file, written by --json of bench.py, rendezvous_bench.py,
worker_bench.py and torch_backend_bench.py. Times are on logarithmic axes; a mark is a median, the line through it
reaches from the smallest to the largest sample, and the number beside it is the median. A peer has the same colour in all
pictures; everything of PyTorch or of Open MPI has the colour and the mark of that family.
"""

import argparse
import dataclasses
import json
import math
import pathlib
import sys
import textwrap

from svg import PROSE, SMALL, TEXT, WIDTH, Picture, number, width_of

ROOT = pathlib.Path(__file__).resolve().parents[2]
HEADING, VALUE = 25, 17  # Heights of letters.
LEFT, RIGHT = 84, WIDTH - 16  # The ends of a grid line.
FIRST, LAST = LEFT + 26, WIDTH - 72  # The ends of curves; values have room beside them.


@dataclasses.dataclass(frozen=True)
class Look:
    name: str
    colour: str
    shape: str
    hollow: bool = False


MUSTER = Look("muster", "blue", "circle")
START = {"muster": MUSTER, "torchrun": Look("torchrun", "vermilion", "square"),
         "mpirun": Look("mpirun", "green", "triangle")}
RENDEZVOUS = {"torch": START["torchrun"],
              "torch, no look-ups": Look("torchrun without name look-ups", "vermilion", "square", hollow=True),
              "muster": MUSTER}
COLLECTIVES = {"gloo": Look("gloo (PyTorch)", "vermilion", "square"), "Open MPI": Look("Open MPI", "green", "triangle"),
               "muster": MUSTER}
START_ROWS = {"start_to_main": "From the command to the first worker's main",
              "start_to_end": "From the command to the end of two no-op workers"}


class Unusable(Exception):
    """The error in a file of results, in one line."""


# ---- the data


def read(path, looks, wanted=lambda point: True):
    """Returns the file's head, and those of its points that have a look and are wanted."""
    try:
        result = json.loads(path.read_text())
        points = [point for point in result["points"] if point["peer"] in looks and wanted(point)]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Unusable(f"{path} cannot be used ({error!r}); ./dev bench writes it") from None
    if not points:
        raise Unusable(f"{path} has no point to draw; ./dev bench measures all of them")
    return result, points


def spread(point):
    return point.get("min", point["median"]), point.get("max", point["median"])


def told(look, point, unit, where=""):
    low, high = spread(point)
    between = f" ({number(low)}–{number(high)})" if low < high else ""
    return f"{look.name}{where}: {number(point['median'])} {unit}{between}"


# ---- axes


class Log:
    """A logarithmic axis: `low` is at `start`, `high` is at `end`, in pixels."""

    def __init__(self, low, high, start, end):
        self.low, self.high, self.start, self.end = low, high, start, end

    def at(self, value):
        share = math.log(value / self.low) / math.log(self.high / self.low)
        return self.start + share * (self.end - self.start)

    def decades(self):
        exponents = range(math.ceil(math.log10(self.low)), math.floor(math.log10(self.high)) + 1)
        return [10**exponent if exponent >= 0 else 1 / 10**-exponent for exponent in exponents]


def extent(points):
    low, high = zip(*map(spread, points))
    return min(low), max(high)


# ---- what the pictures share


def legend(picture, y, looks):
    x = 24
    for look in sorted(looks, key=lambda look: look != MUSTER):
        picture.marker(x, y - 7, look.colour, look.shape, hollow=look.hollow)
        picture.text(x + 16, y, look.name, look.colour, font_weight=600)
        x += 44 + width_of(look.name, TEXT)


def caption(picture, y, head, points):
    """Returns the height of the picture."""
    lines = ", lines from the smallest to the largest" if any(low < high for low, high in map(spread, points)) else ""
    words = [head["machine"], head["date"], f"median of {head['runs']} runs{lines}", head.get("note")]
    for line in textwrap.wrap(f"{'; '.join(filter(None, words))}.", int((WIDTH - 32) / SMALL / PROSE)):
        picture.text(16, y, line, "quiet", SMALL)
        y += SMALL * 1.4
    return y - 4


def save(picture, height, folder, name):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_text(picture.written(height), encoding="utf-8")


# ---- start


def draw_start(results, folder):
    head, points = read(results / "start.json", START, lambda point: point["row"] in START_ROWS)
    rows = [row for row in START_ROWS if any(point["row"] == row for point in points)]
    found = {row: [(START[point["peer"]], point) for peer in START for point in points
                   if (point["row"], point["peer"]) == (row, peer)] for row in rows}
    said = (f"{START_ROWS[row]}: {', '.join(told(look, point, 'ms') for look, point in found[row])}." for row in rows)
    picture = Picture("Time to start a job of two workers, in milliseconds", " ".join(said))
    picture.text(16, 34, "Starting two workers", size=HEADING, font_weight=700)
    low, high = extent(points)
    bottom = 54 + sum(44 + 36 * len(found[row]) for row in rows)
    first = 10 ** math.floor(math.log10(low))
    axis = Log(first, max(high, 2 * first), 130, RIGHT - 120)  # The last value is printed behind its mark.
    for tick in axis.decades():
        picture.text(axis.at(tick), bottom + 22, number(tick), "quiet", anchor="middle")
    picture.text((axis.start + axis.end) / 2, bottom + 48, "time, ms (logarithmic)", "quiet", anchor="middle")
    y = 54
    for row in rows:
        picture.text(16, y + 28, START_ROWS[row], font_weight=600)
        y = draw_start_rows(picture, y + 44, axis, found[row])
    save(picture, caption(picture, bottom + 80, head, points), folder, "start.svg")


def draw_start_rows(picture, y, axis, found):
    for tick in axis.decades():
        picture.line([(axis.at(tick), y), (axis.at(tick), y + 36 * len(found))])
    for look, point in found:
        middle, (low, high) = y + 17, spread(point)
        x = axis.at(point["median"])
        picture.line([(axis.start, middle), (x, middle)], look.colour, stroke_dasharray="1 5")
        picture.line([(axis.at(low), middle), (axis.at(high), middle)], look.colour, 2.5)
        picture.marker(x, middle, look.colour, look.shape, told(look, point, "ms"))
        picture.text(axis.start - 14, middle + 7, look.name, look.colour, anchor="end", font_weight=600)
        behind = max(axis.at(high), x + 8) + 10
        picture.text(behind, middle + 7, f"{number(point['median'])} ms", look.colour, font_weight=600)
        y += 36
    return y


# ---- curves


class Values:
    """Puts numbers beside marks, where they hide neither curves nor each other."""

    # Offsets of the text's anchor from the mark: nearest first, for a curve with others below it.
    PLACES = [(0, -14, "middle"), (-4, -13, "end"), (4, -13, "start"), (-13, 6, "end"), (13, 6, "start"),
              (0, 27, "middle"), (4, 26, "start"), (-4, 26, "end"), (13, 16, "start"), (13, -6, "start"),
              (-13, 16, "end"), (-13, -6, "end"), (0, -30, "middle"), (0, 42, "middle")]

    def __init__(self, picture, top, bottom):
        self.picture, self.top, self.bottom, self.taken = picture, top, bottom, []

    def keep_off(self, x, y, radius):
        self.taken.append((x - radius, y - radius, x + radius, y + radius))

    def keep_off_line(self, first, second):
        steps = max(1, int(math.dist(first, second) / 4))
        for step in range(steps + 1):
            share = step / steps
            self.keep_off(first[0] + share * (second[0] - first[0]), first[1] + share * (second[1] - first[1]), 2)

    def put(self, x, y, words, colour, above):
        places = self.PLACES if above else sorted(self.PLACES, key=lambda place: place[1] < 0)
        boxes = [self.box(x + dx, y + dy, words, anchor) for dx, dy, anchor in places]
        best = min(range(len(places)), key=lambda i: (self.hidden(boxes[i]) + 3 * i, i))
        dx, dy, anchor = places[best]
        self.taken.append(boxes[best])
        self.picture.text(x + dx, y + dy, words, colour, VALUE, anchor)

    @staticmethod
    def box(x, y, words, anchor):
        width = width_of(words, VALUE)
        left = x - {"start": 0, "middle": width / 2, "end": width}[anchor]
        return left, y - VALUE * 0.8, left + width, y + 2

    def hidden(self, box):
        """Returns the number of square pixels that are already used or lie outside."""
        left, top, right, bottom = box
        outside = (max(0, LEFT - left) + max(0, right - WIDTH + 2) + max(0, self.top - top) +
                   max(0, bottom - self.bottom))
        return 100 * outside + sum(max(0, min(right, r) - max(left, l)) * max(0, min(bottom, b) - max(top, t))
                                   for l, t, r, b in self.taken)


def draw_curves(picture, curves, across, up, unit, place):
    """`curves`: {look: points}; `place`: a point's value on the horizontal axis, and its words."""
    values, marks = Values(picture, up.end, up.start), []
    for look, points in curves.items():
        way = [(across.at(place(point)[0]), up.at(point["median"])) for point in points]
        dashes = {"stroke_dasharray": "6 5"} if look.hollow else {}
        picture.line(way, look.colour, 2.5, stroke_linejoin="round", **dashes)
        for first, second in zip(way, way[1:]):
            values.keep_off_line(first, second)
        for point, (x, y) in zip(points, way):
            low, high = map(up.at, spread(point))
            picture.line([(x, low), (x, high)], look.colour, 1.5)
            values.keep_off_line((x, low), (x, high))
            picture.marker(x, y, look.colour, look.shape, told(look, point, unit, f", {place(point)[1]}"), look.hollow)
            values.keep_off(x, y, 8)
            marks.append((x, y, look, point))
    for x, y, look, point in sorted(marks, key=lambda mark: mark[:2]):
        under = any(other_x == x and other_y > y for other_x, other_y, *_ in marks)
        values.put(x, y, number(point["median"]), look.colour, under)


def draw_axes(picture, across, up, ticks, titles):
    """`ticks`: {value: words} of the horizontal axis."""
    for tick in up.decades():
        picture.line([(LEFT, up.at(tick)), (RIGHT, up.at(tick))])
        picture.text(LEFT - 8, up.at(tick) + 6, number(tick), "quiet", SMALL, "end")
    picture.line([(LEFT, up.start), (RIGHT, up.start)], "quiet")
    for value, words in ticks.items():
        x = across.at(value)
        picture.line([(x, up.start), (x, up.start + 6)], "quiet")
        picture.text(x, up.start + 25, words, "quiet", SMALL, "middle")
    picture.text(16, up.end - 12, titles[0], "quiet", SMALL)
    picture.text(RIGHT, up.start + 50, titles[1], "quiet", SMALL, "end")


def curves_of(points, looks, place):
    found = {look: [point for point in points if point["peer"] == peer] for peer, look in looks.items()}
    return {look: sorted(some, key=lambda point: place(point)[0]) for look, some in found.items() if some}


# ---- rendezvous


def draw_rendezvous(results, folder):
    head, points = read(results / "rendezvous.json", RENDEZVOUS)
    curves = curves_of(points, RENDEZVOUS, nodes_of)
    said = (told(look, point, "ms", f", {nodes_of(point)[1]}") for look, some in curves.items() for point in some)
    picture = Picture("Time until N nodes have met, in milliseconds", f"{'; '.join(said)}.")
    picture.text(16, 34, "Meeting of N nodes", size=HEADING, font_weight=700)
    legend(picture, 70, curves)
    low, high = extent(points)
    sizes = sorted({point["agents"] for point in points})
    across, up = Log(sizes[0], max(sizes[-1], sizes[0] * 2), FIRST, LAST), Log(low / 3, high * 1.8, 500, 126)
    ticks = {size: f"{size:,}" for size in sizes}
    titles = "time until the last one knows its rank, ms (logarithmic)", "nodes (logarithmic)"
    draw_axes(picture, across, up, ticks, titles)
    draw_curves(picture, curves, across, up, "ms", nodes_of)
    save(picture, caption(picture, 582, head, points), folder, "rendezvous.svg")


def nodes_of(point):
    return point["agents"], f"{point['agents']:,} nodes"


# ---- collectives


def draw_collectives(results, folder):
    draw_all_reduce(results / "collectives.json", "all_reduce on one node, float32", folder / "collectives.svg")


def draw_torch_backend(results, folder):
    draw_all_reduce(results / "torch_backend.json", "dist.all_reduce() on one node, from Python", folder / "torch_backend.svg")


def draw_all_reduce(results, heading, picture_path):
    head, points = read(results, COLLECTIVES, lambda point: (point["operation"], point["nodes"]) == ("all_reduce", 1))
    panels = sorted({point["ranks"] for point in points})
    curves = {ranks: curves_of([point for point in points if point["ranks"] == ranks], COLLECTIVES, size_of)
              for ranks in panels}
    said = (told(look, point, "µs", f", {ranks} ranks, {size_of(point)[1]}")
            for ranks in panels for look, some in curves[ranks].items() for point in some)
    picture = Picture("Time of all_reduce on one node, in microseconds", f"{'; '.join(said)}.")
    picture.text(16, 34, heading, size=HEADING, font_weight=700)
    legend(picture, 70, curves_of(points, COLLECTIVES, size_of))
    sizes = sorted({point["bytes"] for point in points})
    ticks = {size: byte_words(size).removesuffix("B").replace(" ", "") for size in sizes}
    low, high = extent(points)
    y = 84
    for ranks in panels:
        picture.text(16, y + 32, f"{ranks} ranks", font_weight=700)
        across = Log(sizes[0], max(sizes[-1], sizes[0] * 2), FIRST, LAST)
        up = Log(low / 4, high * 1.8, y + 420, y + 72)
        draw_axes(picture, across, up, ticks, ("time, µs (logarithmic)", "size, bytes (logarithmic)"))
        draw_curves(picture, curves[ranks], across, up, "µs", size_of)
        y += 484
    save(picture, caption(picture, y + 20, head, points), picture_path.parent, picture_path.name)


def size_of(point):
    return point["bytes"], byte_words(point["bytes"])


def byte_words(size):
    for unit, scale in (("Mi", 1 << 20), ("Ki", 1 << 10)):
        if size >= scale:
            return f"{size / scale:.3g} {unit}B"
    return f"{size} B"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=pathlib.Path, default=ROOT / "build" / "bench", metavar="FOLDER")
    parser.add_argument("--to", type=pathlib.Path, default=ROOT / "docs" / "plots", metavar="FOLDER")
    options = parser.parse_args()
    try:
        for draw in (draw_start, draw_rendezvous, draw_collectives, draw_torch_backend):
            draw(options.results, options.to)
    except Unusable as why:
        sys.exit(f"plots.py: {why}")


if __name__ == "__main__":
    main()
