"""The headline and the remedy for unmodified torch programs that fail, with torch's error file and without.

The same programs made the samples in tests/fixtures/last_words.
"""

import os
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[1:1] = [str(HERE / "store")]
from harness import LiveTest, long, main, run  # noqa: E402
import serving  # noqa: E402

PROGRAM = HERE.parent / "fixtures" / "last_words" / "programs" / "torch_ranks.py"
PATIENCE_S = 180.0


class LastWords(LiveTest):
    def failure_of(self, *arguments, ranks=2):
        """Runs a job that fails; returns its {headline, remedy, whole stderr}."""
        environment = {"GLOO_SOCKET_IFNAME": "lo", "OMP_NUM_THREADS": "1",
                       "PATH": f"{os.path.dirname(sys.executable)}:{os.environ['PATH']}"}
        code, _, whole = run("--exit-code", "torchrun", "--nproc-per-node", ranks, *arguments, env=environment, limit_s=PATIENCE_S)
        self.assertNotEqual(code, 0)
        lines = whole.splitlines()
        headlines = [line for line in lines if " FAILED: rank " in line]
        self.assertEqual(len(headlines), 1, whole)
        remedies = [line.removeprefix("What to do: ") for line in lines if line.startswith("What to do: ")]
        return {"headline": headlines[0], "remedy": "".join(remedies), "whole": whole}

    def assert_headline(self, verdict, words):
        self.assertEqual(verdict["headline"], f"{PROGRAM} FAILED: {words}", verdict["whole"])

    def of_both(self, how, words, remedy):
        """Checks the verdict with torch's error file (@record) and without."""
        for record in ((), ("record",)):
            with self.subTest(record=record):
                verdict = self.failure_of(PROGRAM, how, "apart", *record)
                self.assert_headline(verdict, words)
                self.assertIn(remedy, verdict["remedy"])
                self.assertEqual("  error_file: " in verdict["whole"], bool(record), verdict["whole"])
                # The error file adds nothing to a stderr that shows the exception.
                self.assertNotIn("From its error file", verdict["whole"])

    def test_show_an_exception_behind_torchs_prefix(self):
        self.of_both("from_cause", "rank 1 of 2 exited with 1: RuntimeError: the configuration is not complete "
                                   "(caused by KeyError: 'lr')", "")

    @long
    def test_give_the_remedy_of_an_exception(self):
        self.of_both("no_module", "rank 1 of 2 exited with 1: ModuleNotFoundError: No module named 'nosuchmodule'",
                     "that package is not installed for the Python that ran")

    @long
    def test_show_the_exception_of_a_data_loader(self):
        verdict = self.failure_of(PROGRAM, "data_loader", "apart", "record")
        self.assert_headline(verdict, "rank 1 of 2 exited with 1: KeyError: 'b' (in DataLoader worker process 0)")

    @long
    def test_show_an_exception_that_the_program_defines(self):
        verdict = self.failure_of(PROGRAM, "own_exception", "apart")
        self.assert_headline(verdict, "rank 1 of 2 exited with 1: ShardMissing: shard 3 of rank 0 is not there")

    @long
    def test_show_gloos_error_on_tensors_of_different_sizes(self):
        # The hook would make the records of both ranks explain the failure.
        verdict = self.failure_of("--no-python-hook", PROGRAM, "sizes")
        self.assertRegex(verdict["headline"], r"rank 0 of 2 killed by SIGABRT.*: gloo::EnforceNotMet: .* Is there a "
                                              r"distributed collective mismatch in your code\?$")

    def test_blame_the_rank_that_missed_a_monitored_barrier(self):
        verdict = self.failure_of(PROGRAM, "barrier_of_all")
        self.assert_headline(verdict, "rank 1 of 2 kept rank 0 waiting until it gave up")
        self.assertIn("\nIts first victim: rank 0 exited with 1: RuntimeError: [Rank 0]: Ranks 1 failed to pass "
                      "monitoredBarrier in 2000 ms\n", verdict["whole"])

    @long
    def test_explain_a_module_that_is_missing(self):
        verdict = self.failure_of("-m", "nosuchmodule", ranks=1)
        self.assertEqual(verdict["headline"], "-m nosuchmodule FAILED: rank 0 exited with 1: No module named nosuchmodule")
        self.assertIn("-m takes a module that the Python that ran can import: check its spelling", verdict["remedy"])


if __name__ == "__main__":
    serving.need_torch()
    main()
