#!/usr/bin/env python3
"""gate.py on small sets of tests: a flaky one, a broken one, one that skips itself."""
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

GATE = pathlib.Path(__file__).with_name("gate.py")
SUMMARY = "tests passed, "


class Gate(unittest.TestCase):
    def setUp(self):
        held = tempfile.TemporaryDirectory()
        self.addCleanup(held.cleanup)
        self.folder = pathlib.Path(held.name)
        (self.folder / "all").mkdir()
        # Fails the first time it runs, after 100 lines of output.
        self.flaky = f"if [ -e {held.name}/ran ]; then exit 0; fi; touch {held.name}/ran; seq 100; echo 'a <bad> & day'; exit 1"

    def run_gate(self, tests, ci, *arguments):
        """Runs {name: shell command}: the exit status and the output's lines."""
        with open(self.folder / "all" / "CTestTestfile.cmake", "w", encoding="utf-8") as file:
            for name, command in tests.items():
                file.write(f"add_test([==[{name}]==] bash -c [==[{command}]==])\n"
                           f"set_tests_properties([==[{name}]==] PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 1)\n")
        env = {name: value for name, value in os.environ.items() if name != "CI"}
        done = subprocess.run([sys.executable, GATE, self.folder / "all", *arguments], capture_output=True, text=True, check=False,
                              env={**env, **({"CI": "1"} if ci else {})})
        return done.returncode, done.stdout.splitlines()

    def assert_summary_is_last(self, lines, failed, count):
        [first] = [i for i, line in enumerate(lines) if SUMMARY in line and f"{failed} tests failed out of {count}" in line]
        self.assertFalse([line for line in lines[first:] if line.startswith("----") or line.startswith("unstable")])

    def test_a_flaky_test_is_listed_as_unstable_on_ci(self):
        code, lines = self.run_gate({"release.live.flaky": self.flaky, "release.live.fine": "true"}, True)
        self.assertEqual(code, 0, lines)
        self.assertEqual(lines[lines.index("unstable: passed when run again, alone (first output in build/unstable):") + 1],
                         "  release.live.flaky")
        self.assertIn("a <bad> & day", (self.folder / "unstable" / "release.live.flaky.log").read_text(encoding="utf-8"))
        self.assert_summary_is_last(lines, 1, 2)

    def test_a_flaky_test_is_red_elsewhere(self):
        code, lines = self.run_gate({"release.live.flaky": self.flaky}, False)
        self.assertEqual(code, 8, lines)
        begin = lines.index("---- release.live.flaky failed; its output ends with:")
        self.assertEqual(lines[begin + 1:begin + 41], [*map(str, range(62, 101)), "a <bad> & day"])
        self.assertFalse([line for line in lines if line.startswith("unstable")])

    def test_a_fault_is_red_in_both(self):
        for ci in False, True:
            for fault in "exit 1", "sleep 9", "kill -9 $$":
                code, lines = self.run_gate({"release.live.broken": fault, "release.live.fine": "true"}, ci)
                self.assertEqual(code, 8, lines)
                self.assert_summary_is_last(lines, 1, 2)

    def test_a_fault_beside_a_flaky_test_is_red(self):
        code, lines = self.run_gate({"release.live.flaky": self.flaky, "release.live.broken": "exit 1"}, True)
        self.assertEqual(code, 8, lines)
        self.assertIn("  release.live.flaky", lines)
        self.assertNotIn("  release.live.broken", lines)

    def test_a_unit_test_is_not_repeated(self):
        code, lines = self.run_gate({"release.unit.flaky": self.flaky}, True)
        self.assertEqual(code, 8, lines)

    def test_many_failures_are_not_repeated(self):
        code, lines = self.run_gate({f"release.live.{i}": f"[ -e {self.folder}/{i} ] || ! touch {self.folder}/{i}"
                                     for i in range(11)}, True)
        self.assertEqual(code, 8, lines)

    def test_a_test_that_skips_itself_is_no_failure(self):
        code, lines = self.run_gate({"release.live.skips": "exit 77", "release.live.fine": "true"}, True)
        self.assertEqual(code, 0, lines)

    def test_no_test_is_an_error(self):
        code, lines = self.run_gate({"release.live.fine": "true"}, True, "-R", "no_such_test")
        self.assertNotEqual(code, 0, lines)


if __name__ == "__main__":
    unittest.main(verbosity=2)
