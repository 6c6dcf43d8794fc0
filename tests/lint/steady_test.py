#!/usr/bin/env python3
"""Checks that each rule of steady.py finds what is planted, and nothing else."""
import os
import tempfile
import unittest

import steady


class SteadyTest(unittest.TestCase):
    def complaints(self, path, text):
        with tempfile.TemporaryDirectory() as root:
            os.makedirs(os.path.dirname(os.path.join(root, path)))
            with open(os.path.join(root, path), "w", encoding="utf-8") as file:
                file.write(text)
            return list(steady.complaints(root))

    def check(self, words, bad, good, path="tests/live/a_test.py"):
        for text in bad:
            with self.subTest(text):
                found = self.complaints(path, text)
                self.assertEqual(len(found), 1, found)
                self.assertIn(words, found[0])
                self.assertTrue(found[0].startswith(f"{path}:{text.count(chr(10)) or 1}: "), found)
        for text in good:
            with self.subTest(text):
                self.assertEqual(self.complaints(path, text), [])

    def test_reports_sleeps(self):
        self.check("a sleep; wait_for() a fact", ["time.sleep(1)\n", "from time import sleep\nsleep(1)\n"],
                   ["pause(1, 'why')\n", "run('import time; time.sleep(1)')\n", "await asyncio.sleep(0)\n", "run(['sleep', '1'])\n"])

    def test_reports_ports_that_another_test_may_take(self):
        self.check("a port of the kernel's choice", ["s.bind(('127.0.0.1', 0))\nport = s.getsockname()[1]\n"],
                   ["server, port = listening()\n", "port = free_port()\n"])
        self.check("a port by chance", ["port = random.randrange(20000, 30000)\n", "self.port = 20000 + random.randint(0, 9)\n"],
                   ["seed = random.randrange(20000)\n"])
        self.check("a fixed port", ["run('--master-port', 29871)\n", "run(['--master-port', '29871'])\n",
                                    "run('--rdzv-endpoint', '127.0.0.1:29400')\n", "connect(f'tcp://localhost:4444/{name}')\n"],
                   ["run('--master-port', port)\n", "run('--rdzv-endpoint', f'127.0.0.1:{port}')\n", "refused('localhost:70000')\n",
                    "run('--rdzv-endpoint', 'node1:29400')\n", "refused('--master-port', '0')\n"])

    def test_reports_names_in_tmp(self):
        self.check("a name in /tmp", ["open('/tmp/x')\n", "mkdtemp(dir='/tmp')\n", "run(f'touch /tmp/{name}')\n",
                                      "run('touch /tmp/x')\n"],
                   ["open(self.path('tmp/x'))\n", "open(f'{folder}/tmp/x')\n", "'''What /tmp/x is.'''\n"])

    def test_reports_bounds_of_time_without_within(self):
        took = "took = time.monotonic() - began\n"
        self.check("a bound of time without within()",
                   ["self.assertLess(time.monotonic() - began, 5)\n", took + "self.assertLessEqual(took, LIMIT)\n",
                    "began = time.time()\nself.assertLess(max(s.at for s in new) - began, 5.0)\n",
                    "self.assertLess(other.woken_after_s(), 9)\n", took + "assert 0.2 < took < 2\n"],
                   ["self.assertLess(time.monotonic() - began, within(5))\n", took + "self.assertLess(took, 5 + within(1))\n",
                    took + "self.assertGreater(took, 5)\n", "self.assertLess(len(lines), 40)\n", took + "assert 0.2 < took\n"])

    def test_exempts_programs_and_helpers(self):
        for path in ("tests/live/waiting.py", "tests/live/programs/a.py", "tests/fixtures/x/a.py", "tests/gpu/torch_gpu.py"):
            self.check("", [], ["time.sleep(1)\n"], path)
        self.check("", [], ["port = s.getsockname()[1]\n"], "tests/live/ports.py")
        self.check("a sleep", ["time.sleep(1)\n"], [], "tests/live/ports.py")

    def test_reports_sleeps_in_cpp(self):
        self.check("a sleep; wait_for.h waits", ["std::this_thread::sleep_for(10ms);\n", "std::this_thread::sleep_until(end);\n",
                                                 "usleep(10);\n"],
                   ["wait_for(done, \"it is done\");\n", "// sleep_for() is what the other does.\n"], "tests/unit/a_test.cc")
        for path in ("tests/wait_for.h", "tests/live/programs/a.cc", "tests/bench/a.cc", "tests/fakes/a.cc", "agent/a.cc"):
            self.check("", [], ["std::this_thread::sleep_for(10ms);\n"], path)


if __name__ == "__main__":
    unittest.main(verbosity=2)
