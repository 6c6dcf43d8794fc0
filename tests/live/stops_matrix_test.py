"""A stop loses nothing: whatever stops a job, whatever its ranks are and wherever their output goes, each of them saves."""
import itertools
import os
import unittest

import stops_matrix
from harness import long, main

FACTORS = range(4)


def levels(cells, factor):
    return {cell.factors()[factor] for cell in cells}


class Plan(unittest.TestCase):
    def test_every_pair_of_levels_is_in_a_cell(self):
        cells = stops_matrix.CELLS
        pairs = {((a, one), (b, other)) for a, b in itertools.combinations(FACTORS, 2)
                 for one in levels(cells, a) for other in levels(cells, b)}
        impossible = {((0, "loss of a node"), (3, 1))}
        self.assertEqual(pairs - stops_matrix.all_pairs(cells), impossible)
        self.assertEqual(len(set(cells)), 24)

    def test_every_level_is_in_a_cell_of_the_gate(self):
        cells = [cell for cell in stops_matrix.CELLS if cell.in_gate]
        self.assertEqual(len(cells), 8)
        for factor in FACTORS:
            self.assertEqual(levels(cells, factor), levels(stops_matrix.CELLS, factor))


class Stops(unittest.TestCase):
    def check(self, cells, runs, jobs):
        with_torch = os.access(stops_matrix.TORCH, os.X_OK)
        rows = stops_matrix.run_cells([cell for cell in cells if with_torch or cell.rank != "Python"], runs, jobs, alone_runs=0)
        for row in rows:
            with self.subTest(row.cell.words()):
                self.assertEqual(row.saved, row.ranks, "\n".join([row.text(), *row.outputs]))
        if not with_torch:
            self.skipTest("MUSTER_TORCH_VENV names no environment with PyTorch, which the cells with its loader need")

    def test_all_ranks_save_in_eight_cells(self):
        self.check([cell for cell in stops_matrix.CELLS if cell.in_gate], runs=1, jobs=4)

    @long
    def test_all_ranks_save_in_all_cells_six_at_a_time(self):
        self.check(stops_matrix.CELLS, runs=20, jobs=6)


if __name__ == "__main__":
    main()
