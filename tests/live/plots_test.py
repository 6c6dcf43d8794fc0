"""The pictures of docs/plots: each point of the results is at its place, in both colour schemes; or one line says why not.

The data is made up and takes the path of a real run: through the benchmarks' own functions into JSON files.
"""

import contextlib
import io
import math
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree as ElementTree

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "bench"))
import bench  # noqa: E402
import paired  # noqa: E402
import plots  # noqa: E402
import rendezvous_bench  # noqa: E402
import results  # noqa: E402
import svg  # noqa: E402
import verdict_picture  # noqa: E402
import worker_bench  # noqa: E402
from launching import Launcher  # noqa: E402
from worker_tables import SHARED, Cell  # noqa: E402

SVG = "{http://www.w3.org/2000/svg}"
MACHINE = "3 cores of a Testbed <9000> & Co"
START = {("start_to_main", "muster"): 2, ("start_to_main", "torchrun"): 2000, ("start_to_main", "mpirun"): 20,
         ("start_to_end", "muster"): 5, ("start_to_end", "torchrun"): 3000, ("start_to_end", "mpirun"): 30}
MEETING = {(2, "torch"): 1000, (2, "torch, no look-ups"): 800, (2, "muster"): 1, (32, "torch"): 4321,
           (32, "torch, no look-ups"): 1234, (32, "muster"): 10}
ALONE = 345
COLLECTIVES = {(ranks, name, size): base * ranks * (size / 8) ** 0.5
               for ranks in (2, 4) for name, base in (("muster", 0.5), ("gloo", 70), ("Open MPI", 0.61))
               for size in (8, 4096, 1 << 20)}


def around(median):
    """Returns samples with the given median, from half to twice of it."""
    return [median / 2, median, median * 2]


def samples_of_start():
    found = bench.Samples()
    for (row, name), median in {**START, ("stop", "muster"): 7, ("two_hundred", "mpirun"): math.inf}.items():
        for value in around(median):
            found.add(row, Launcher(name, (), ()), value)
    return found.points()


def samples_of_collectives():
    samples = {}
    for (ranks, name, size), median in COLLECTIVES.items():
        cell = Cell(worker_bench.Layout(1, ranks), "all_reduce", size)
        samples[cell, name] = around(median)
        samples[cell, SHARED] = around(1e-3)
        samples[Cell(worker_bench.Layout(2, ranks), "all_reduce", size), name] = around(1e9)
        samples[Cell(worker_bench.Layout(1, ranks), "gather", size), name] = around(1e9)
    return worker_bench.points(samples)


class PlotsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.results, self.to = pathlib.Path(folder.name, "results"), pathlib.Path(folder.name, "plots")
        meeting = rendezvous_bench.points({key: around(median) for key, median in MEETING.items()}, around(ALONE))
        for name, points in (("start", samples_of_start()), ("rendezvous", meeting),
                             ("collectives", samples_of_collectives()), ("torch_backend", samples_of_collectives())):
            results.store(self.results / f"{name}.json", MACHINE, 3, points)

    def run_plots(self):
        """Returns the error with which plots.py ends, or ""."""
        arguments, sys.argv = sys.argv, ["plots.py", "--results", str(self.results), "--to", str(self.to)]
        try:
            plots.main()
        except SystemExit as end:
            return str(end.code)
        finally:
            sys.argv = arguments
        return ""

    def picture(self, name):
        """Returns the root of the picture's XML."""
        self.assertEqual(self.run_plots(), "")
        return ElementTree.parse(self.to / f"{name}.svg").getroot()

    @staticmethod
    def marks(root):
        """Returns {text of the mark's hint: [(x, y)]}."""
        found = {}
        for group in root.iter(f"{SVG}g"):
            hint = group.find(f"{SVG}title")
            if hint is not None:
                place = re.fullmatch(r"translate\((\S+) (\S+)\)", group.get("transform"))
                found.setdefault(hint.text, []).append((float(place[1]), float(place[2])))
        return found

    @staticmethod
    def words(root):
        return [text.text for text in root.iter(f"{SVG}text")]

    def assert_logarithmic(self, places):
        """`places`: [(value, pixels)]. Equal ratios must be equal distances, and the farthest values well apart."""
        (low, first), (high, last) = min(places), max(places)
        self.assertGreater(abs(last - first), 100)
        for value, pixels in places:
            expected = first + (last - first) * math.log(value / low) / math.log(high / low)
            self.assertAlmostEqual(pixels, expected, delta=0.2, msg=f"{value} of {places}")

    def test_start_shows_every_launcher_and_row(self):
        self.assertNotIn("Infinity", (self.results / "start.json").read_text())  # The samples of a launch that did not end.
        root = self.picture("start")
        marks, words = self.marks(root), self.words(root)
        self.assertEqual(sum(map(len, marks.values())), len(START))
        places = []
        for (_, name), median in START.items():
            (x, _), = marks[f"{name}: {svg.number(median)} ms ({svg.number(median / 2)}–{svg.number(median * 2)})"]
            places.append((median, x))
            self.assertEqual(words.count(f"{median:,} ms"), 1)
            self.assertEqual(words.count(name), 2)
        self.assert_logarithmic(places)

    def test_rendezvous_shows_every_point(self):
        root = self.picture("rendezvous")
        marks, words = self.marks(root), self.words(root)
        across, up = [], []
        for (nodes, name), median in {**MEETING, (1000, "muster"): ALONE}.items():
            look = plots.RENDEZVOUS[name].name
            spread = f"{svg.number(median / 2)}–{svg.number(median * 2)}"
            (x, y), = marks.pop(f"{look}, {nodes:,} nodes: {svg.number(median)} ms ({spread})")
            across.append((nodes, x))
            up.append((median, y))
            self.assertIn(svg.number(median), words)
            self.assertEqual(words.count(look), 1)
        self.assertEqual(marks, {})
        self.assert_logarithmic(across)
        self.assert_logarithmic(up)

    def test_collectives_show_every_point(self):
        root = self.picture("collectives")
        marks, words = self.marks(root), self.words(root)
        self.assertEqual(sum(map(len, marks.values())), len(COLLECTIVES))
        across, up = [], {2: [], 4: []}
        for (ranks, name, size), median in COLLECTIVES.items():
            spread = f"{svg.number(median / 2)}–{svg.number(median * 2)}"
            hint = f"{plots.COLLECTIVES[name].name}, {plots.byte_words(size)}: {svg.number(median)} µs ({spread})"
            # The panel of 2 ranks is above that of 4.
            x, y = sorted(marks[hint], key=lambda place: place[1])[0 if ranks == 2 else -1]
            across.append((size, x))
            up[ranks].append((median, y))
            self.assertIn(svg.number(median), words)
        self.assert_logarithmic(across)
        self.assert_logarithmic(up[2])
        self.assert_logarithmic(up[4])

    def test_a_peer_keeps_its_colour(self):
        colours = {}
        for looks in (plots.START, plots.RENDEZVOUS, plots.COLLECTIVES):
            for peer, look in looks.items():
                colours.setdefault((look.colour, look.shape), set()).add(peer)
        self.assertEqual(sorted(map(sorted, colours.values())),
                         [["Open MPI", "mpirun"], ["gloo", "torch", "torch, no look-ups", "torchrun"], ["muster"]])

    def test_pictures_are_readable_in_light_in_dark_and_aloud(self):
        for name in ("start", "rendezvous", "collectives", "torch_backend"):
            root = self.picture(name)
            light, dark = root.find(f"{SVG}style").text.split("@media (prefers-color-scheme: dark)")
            for colour, (in_light, in_dark) in svg.COLOURS.items():
                self.assertIn(f".{colour}{{color:{in_light}}}", light)
                self.assertIn(f".{colour}{{color:{in_dark}}}", dark)
            self.assertEqual(root.get("width"), "720")
            self.assertEqual(root.get("aria-labelledby"), "title desc")
            about = root.find(f"{SVG}title"), root.find(f"{SVG}desc")
            self.assertEqual([element.get("id") for element in about], ["title", "desc"])
            self.assertRegex(about[0].text, "(milli|micro)seconds")
            self.assertIn("muster", about[1].text)
            self.assertIn(MACHINE, " ".join(self.words(root)))
            # Colours come from classes alone, so that each changes with the scheme.
            painted = {element.get(paint) for element in root.iter() for paint in ("fill", "stroke")}
            self.assertEqual(painted, {None, "none", "currentColor"})
            self.assertLessEqual({element.get("class") for element in root.iter()} - {None}, set(svg.COLOURS))

    def test_values_do_not_overlap_and_stay_inside_the_picture(self):
        for name in ("rendezvous", "collectives", "torch_backend"):
            boxes = []
            for text in self.picture(name).iter(f"{SVG}text"):
                box = plots.Values.box(float(text.get("x")), float(text.get("y")), text.text, text.get("text-anchor"))
                if text.get("font-size") == str(plots.VALUE):
                    self.assertTrue(0 <= box[0] and box[2] <= svg.WIDTH, text.text)
                    overlapping = [words for words, (left, top, right, bottom) in boxes
                                   if left < box[2] and box[0] < right and top < box[3] and box[1] < bottom]
                    self.assertEqual(overlapping, [], text.text)
                    boxes.append((text.text, box))

    def test_unusable_results_are_named_in_one_line(self):
        for name in ("start", "rendezvous", "collectives", "torch_backend"):
            with self.subTest(name):
                path = self.results / f"{name}.json"
                good = path.read_text()
                results.store(path, MACHINE, 3, [])
                self.assertEqual(self.run_plots(), f"plots.py: {path} has no point to draw; ./dev bench measures all of them")
                for broken in ("", "[]", "{}", '{"points": [{}]}'):
                    path.write_text(broken)
                    self.assert_unusable(path)
                path.unlink()
                self.assert_unusable(path)
                path.write_text(good)

    def assert_unusable(self, path):
        said = self.run_plots()
        self.assertRegex(said, f"^plots.py: {re.escape(str(path))} cannot be used .*; ./dev bench writes it$")
        self.assertNotIn("\n", said)


class VerdictPictureTest(unittest.TestCase):
    def test_draws_the_verdict_of_a_real_job(self):
        with tempfile.TemporaryDirectory() as folder:
            script = HERE.parent / "bench" / "verdict_picture.py"
            subprocess.run([sys.executable, script, "--to", folder], check=True, timeout=60)
            root = ElementTree.parse(pathlib.Path(folder, "verdict.svg")).getroot()
        drawn = {text.text: text.get("class") for text in root.iter(f"{SVG}text")}
        self.assertEqual(drawn["train.py FAILED: rank 2 of 4 exited with 1: ValueError: wrong shape (3, 4)"], "red")
        self.assertEqual(drawn["3 others were stopped by muster: ranks 0-1,3 killed by SIGTERM"], "ink")

    def test_draws_text_styles_and_wraps_long_lines(self):
        output = f"one <&> \x1b[1;31mbold\x1b[0m two\r\n\r\n{'x' * verdict_picture.COLUMNS}yz\r\n"
        lines = verdict_picture.styled_lines(output)
        self.assertEqual(lines, [[("one <&> ", set()), ("bold", {"bold", "red"}), (" two", set())], [],
                                 [("x" * verdict_picture.COLUMNS, set())], [("yz", set())]])
        root = ElementTree.fromstring(verdict_picture.draw(lines))
        drawn = [(text.text, text.get("class"), text.get("font-weight")) for text in root.iter(f"{SVG}text")]
        self.assertEqual(drawn, [("one <&> ", "ink", None), ("bold", "red", "700"), (" two", "ink", None),
                                 ("x" * verdict_picture.COLUMNS, "ink", None), ("yz", "ink", None)])

    def test_escape_sequences_that_cannot_be_drawn_are_refused(self):
        with contextlib.redirect_stderr(io.StringIO()), self.assertRaises(SystemExit) as end:
            verdict_picture.styled_lines("up \x1b[2A")
        self.assertIn("cannot be drawn", str(end.exception.code))


class Pairs(unittest.TestCase):
    def test_the_interval_is_that_of_the_sign_test(self):
        """The bounds come from tables of the binomial distribution; the order of the samples is irrelevant."""
        for count, low, high in ((6, 1, 6), (9, 2, 8), (30, 10, 21), (100, 40, 61)):
            values = [(7 * i) % count + 1 for i in range(count)] if count % 7 else list(range(count, 0, -1))
            self.assertEqual(paired.interval(values), (low, high))

    def test_the_two_alternate_as_first_and_the_first_pair_only_warms_up(self):
        calls = []
        def old():
            calls.append("old")
            return 2.0
        def new():
            calls.append("new")
            return 1.0
        self.assertEqual(paired.ratios_of(old, new, 3), [0.5] * 3)
        self.assertEqual(calls, ["new", "old"] + ["old", "new"] + ["new", "old"] + ["old", "new"])


if __name__ == "__main__":
    unittest.main(verbosity=2)
