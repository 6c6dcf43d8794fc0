#!/usr/bin/env python3
"""`musterctl stacks` and `musterctl records` answer for the whole job from any of its nodes.

Two nodes with networks of their own, two ranks on each. The native ranks are $MUSTER_HANG_FAULTS: rank 3 reads a FIFO
while the others wait for it in all_reduce #31. py-spy is the one in $MUSTER_TORCH_VENV.
"""
import json
import glob
import os
import signal
import time

from harness import MUSTERCTL, musterctl, require_programs, wait_for, within
from netns_nodes import NetnsTest, main

NATIVE = os.environ.get("MUSTER_HANG_FAULTS", "")
PY_SPY = os.path.join(os.environ.get("MUSTER_TORCH_VENV", ""), "bin", "py-spy")

PYTHON = """
import os, time
def load_batch():
    end, other = os.pipe()
    os.read(end, 1)
def step():
    time.sleep(1000)
load_batch() if os.environ["RANK"] == "3" else step()
# {marker}
"""


class TwoNodes(NetnsTest):
    def setUp(self):
        super().setUp()
        os.mkdir(self.path("run"), 0o700)
        os.mkfifo(self.path("batches"))
        for name, value in {"MUSTER_RUN_DIR": self.path("run"), "FAULT": "blocked_read", "CULPRIT": "3",
                            "FIFO": self.path("batches"), "OMP_NUM_THREADS": "1"}.items():
            self.set_variable(name, value)

    def set_variable(self, name, value):
        """Sets the variable for every node's launcher and for musterctl."""
        before = os.environ.get(name)
        os.environ[name] = value
        self.addCleanup(*((os.environ.pop, name) if before is None else (os.environ.__setitem__, name, before)))

    def start_nodes(self, *flags, native=True, last=()):
        self.make(2)
        program = ["--no-python", NATIVE] if native else [self.write("ranks.py", PYTHON.format(marker=self.marker))]
        for i in (1, 2):
            self.c10d(i, 2, "--nproc-per-node", 2, "--shutdown-timeout", 5, *flags, *(last if i == 2 else ()), program=program)

    def ask(self, job, command, *args):
        return musterctl(command, job.pid, *args)

    def answer(self, job, command, *args):
        """Returns {rank: its object}, {} while not every rank can be asked."""
        code, out, err = self.ask(job, command, "--json", *args)
        if code != 0:
            self.assertTrue(err.startswith("musterctl: "), err)
            return {}
        return {r["rank"]: r for r in json.loads(out)[command]}

    def wait_for_the_others(self):
        """Waits until ranks 0 to 2 wait for rank 3."""
        def waiting():
            records = self.answer(self.jobs[0], "records", "-n", 1)
            return len(records) == 4 and all(records[r]["calls"] and records[r]["calls"][-1]["ordinal"] == 31 for r in (0, 1, 2))
        try:
            wait_for(waiting, "rank 3 has not come")
        except AssertionError as e:
            raise AssertionError(f"{e}\n{self.ask(self.jobs[0], 'records')}\n{self.all_errors()}") from None

    def ask_in_time(self, promise_s, job, command, *args):
        began = time.monotonic()
        answer = self.ask(job, command, *args)
        took = time.monotonic() - began
        self.say_seconds(f"{job.name}: {' '.join(map(str, [command, *args]))}", took)
        self.assertLess(took, within(promise_s))
        return answer


class WholeJob(TwoNodes):
    def test_either_node_answers_for_all_ranks(self):
        self.start_nodes()
        self.wait_for_the_others()
        for job in self.jobs:
            with self.subTest(job.name):
                code, out, err = self.ask_in_time(1, job, "records")
                self.assertEqual((code, err), (0, ""))
                self.assertEqual([line.split()[1] for line in out.splitlines()], ["0", "1", "2", "3"])
                self.assertRegex(out, r"(?m)^rank 3 \(pid \d+\): between calls for .*; last: all_reduce #30 of group 'world'")
                code, out, err = self.ask_in_time(1, job, "stacks")
                self.assertEqual((code, err), (0, ""))
                # The late rank comes first, whatever its node.
                self.assertRegex(out, r"^  rank 3 \(pid \d+\): \S*read ← \S+read_fifo \(hang_faults.cc:\d+\) ← main ")
                self.assertRegex(out, r"^(.*\n)(  [^\n]+: \S+ ← \S+call \(hang_faults.cc:\d+\) ← main [^\n]+\n){1,3}$")
                stacks = self.answer(job, "stacks")
                self.assertEqual([stacks[r]["in_call"] for r in range(4)], [True, True, True, False])
                self.assertEqual(set(self.answer(job, "stacks", "--ranks", "1-2")), {1, 2})
                self.assertIn("    thread ", self.ask(job, "stacks", "-a", "--ranks", 3)[1])
                self.assertEqual([len(r["calls"]) for r in self.answer(job, "records", "-n", 20).values()], [20] * 4)

    def test_unknown_ranks_are_refused(self):
        self.start_nodes()
        self.wait_for_the_others()
        for job in self.jobs:
            for command in "records", "stacks":
                self.assertEqual(self.ask(job, command, "--ranks", 99),
                                 (1, "", "musterctl: rank 99 is not of this job, whose ranks are 0-3\n"))
                code, out, err = self.ask(job, command, "--ranks", "3-5")
                self.assertEqual((code, err), (1, "musterctl: ranks 4-5 are not of this job, whose ranks are 0-3\n"))
                self.assertIn("rank 3 ", out)

    def test_python_frames_come_from_all_nodes(self):
        if not os.access(PY_SPY, os.X_OK):
            self.skipTest(f"no py-spy: {PY_SPY} (./dev test installs it)")
        self.set_variable("PATH", os.path.dirname(PY_SPY) + ":" + os.environ["PATH"])
        self.start_nodes(native=False)
        for job in self.jobs:
            text = wait_for(lambda: "load_batch" in (t := self.ask(job, "stacks")[1]) and "  3 ranks (0-2): " in t and t,
                            "the ranks are where they stay")
            self.assertRegex(text, r"(?m)^  rank 3 \(pid \d+\): \S*read ← load_batch \(ranks.py:5\) ← <module> \(ranks.py:8\)$")
            self.assertRegex(text, r"(?m)^  3 ranks \(0-2\): .* ← step \(ranks.py:7\) ← <module> \(ranks.py:8\)$")

    def test_a_long_answer_arrives_whole(self):
        """The answer is larger than one datagram of the rendezvous."""
        self.start_nodes()
        self.wait_for_the_others()
        code, out, err = self.ask_in_time(1, self.jobs[0], "records", "--json", "-n", 4096, "--ranks", "2-3")
        self.assertEqual((code, err), (0, ""))
        self.assertGreater(len(out), 16384)
        self.assertEqual({r["rank"]: len(r["calls"]) for r in json.loads(out)["records"]}, {2: 31, 3: 30})


class NodesWithoutAnAnswer(TwoNodes):
    def stop(self, pid):
        """Each thread stops on its own: one may still answer for a moment."""
        os.kill(pid, signal.SIGSTOP)
        self.addCleanup(os.kill, pid, signal.SIGCONT)
        def states():
            for path in glob.glob(f"/proc/{pid}/task/*/stat"):
                with open(path) as f:
                    yield f.read().rpartition(") ")[2][0]
        wait_for(lambda: set(states()) == {"T"}, "all of its threads are stopped")

    def test_a_stopped_agent_costs_one_line(self):
        """The stopped agent costs one line; the answers of the others are shown."""
        self.start_nodes("--lease", 30)
        self.wait_for_the_others()
        agent = self.jobs[1].agent()
        self.stop(agent)
        for command, promise_s in ("records", 3), ("stacks", 5):
            code, out, err = self.ask_in_time(promise_s, self.jobs[0], command)
            self.assertRegex(err, r"^musterctl: node2 \(ranks 2-3\): no answer within \d+ s\n$")
            self.assertEqual(code, 1)
            self.assertRegex(out, r"rank 0 \(pid|2 ranks \(0-1\)")
        code, out, err = self.ask(self.jobs[0], "records", "--ranks", 2)
        self.assertEqual((code, out), (1, ""))
        self.assertRegex(err, r"^musterctl: node2 \(ranks 2-3\): no answer within \d+ s\n$")
        os.kill(agent, signal.SIGCONT)
        wait_for(lambda: len(self.answer(self.jobs[0], "records")) == 4, "it answers again")

    def test_a_stopped_host_costs_one_line(self):
        self.start_nodes("--lease", 30)
        self.wait_for_the_others()
        agent = self.jobs[0].agent()
        self.stop(agent)
        code, out, err = self.ask_in_time(1, self.jobs[1], "records")
        self.assertEqual(err, "musterctl: ranks 0-1: the job's host has not said which node has them; try again\n")
        self.assertEqual((code, [line.split()[1] for line in out.splitlines()]), (1, ["2", "3"]))
        os.kill(agent, signal.SIGCONT)
        wait_for(lambda: len(self.answer(self.jobs[1], "records")) == 4, "it answers again")

    def test_a_node_without_records_costs_one_line(self):
        self.start_nodes(last=["--no-recorder"])
        wait_for(lambda: "rank 1 " in self.ask(self.jobs[0], "records")[1], "the ranks run")
        code, out, err = self.ask(self.jobs[0], "records")
        self.assertEqual((code, [line.split()[1] for line in out.splitlines()]), (1, ["0", "1"]))
        self.assertEqual(err, "musterctl: node2 (ranks 2-3): calls are not recorded: the job was started with --no-recorder\n")
        code, out, err = self.ask(self.jobs[1], "records", "--ranks", "2-3")
        self.assertEqual((code, out, len(err.splitlines())), (1, "", 1), err)


if __name__ == "__main__":
    require_programs(MUSTERCTL=MUSTERCTL, MUSTER_HANG_FAULTS=NATIVE)
    main()
