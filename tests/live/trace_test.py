#!/usr/bin/env python3
"""--trace: the calls of every rank in a file for ui.perfetto.dev, on one clock, complete up to the job's end."""
import collections
import json
import os
import signal
import subprocess

import hang_cells
from hang_cells import PROGRAM, PYTHON, TORCH, HangJob
from harness import Job, LiveTest, children_of, is_gone, main, require_programs, run, wait_for
from ports import free_port

CLOCK_AHEAD_S = 1000
CLOCK_ERROR_US = 1e6  # Far more than the error on one machine, far less than CLOCK_AHEAD_S.


def events_of(path):
    """Reads the events of a file whose end may be missing."""
    with open(path) as f:
        text = f.read()
    if text.endswith("]\n"):
        return json.loads(text)
    events, comma, _ = text.rpartition(",\n")
    return json.loads(events + "]") if comma else []


def calls_of(events):
    """Returns {(group, ordinal): {rank: event}}."""
    calls = collections.defaultdict(dict)
    for event in events:
        if event.get("cat") == "collective":
            args = event["args"]
            assert event["pid"] not in calls[args["group"], args["ordinal"]], f"twice: {event}"
            calls[args["group"], args["ordinal"]][event["pid"]] = event
    return calls


def names_of(events):
    return {event["pid"]: event["args"]["name"] for event in events if event["name"] == "process_name"}


def marks_of(events):
    return [event["name"] for event in events if event["ph"] == "i"]


class TraceTest(LiveTest):
    def setUp(self):
        super().setUp()
        self.file = self.path("trace.json")
        self.env = {"FAULT": "none", "CALLS": "50", "OMP_NUM_THREADS": "1"}

    def job(self, fault, *flags, **options):
        job = HangJob(self.folder.name, fault, "--trace", self.file, *flags, **options)
        self.addCleanup(job.__exit__)
        return job

    def assert_overlap(self, calls, ranks, error_us=0.0):
        """Checks that no rank ends a call before every rank has begun it."""
        for (group, ordinal), by_rank in calls.items():
            self.assertEqual(sorted(by_rank), list(range(ranks)), (group, ordinal))
            begun = max(event["ts"] for event in by_rank.values())
            over = min(event["ts"] + event["dur"] for event in by_rank.values())
            self.assertLess(begun, over + error_us, by_rank)


class OneNode(TraceTest):
    def test_a_trace_has_every_call_of_every_rank(self):
        job = self.job("none", env={"CALLS": "50"}, ranks=3)
        self.assertEqual(job.wait(), 0, job.stderr())
        events = events_of(self.file)
        calls = calls_of(events)
        self.assertEqual(sorted(calls), [("world", i) for i in range(1, 81)])
        self.assert_overlap(calls, 3)
        self.assertEqual(sorted(names_of(events)), [0, 1, 2])
        self.assertRegex(names_of(events)[1], r"^rank 1 \(pid \d+\)$")
        self.assertEqual(sorted(marks_of(events)), ["ended with 0"] * 3 + ["started"] * 3)
        args = calls["world", 80][2]["args"]
        self.assertEqual([args[k] for k in ("count", "type", "reduction", "synchronous")], [1000, "float32", "max", True])
        # The first calls may have been written before their place had a name.
        self.assertRegex(args["site"], r"^(hang_faults\+)?0x[0-9a-f]+$")

    def test_a_trace_has_musters_findings_and_the_unfinished_call(self):
        job = self.job("blocked_read", *hang_cells.limits(0.1), "--on-hang", "stop")
        job.wait()
        events = events_of(self.file)
        marks = marks_of(events)
        self.assertTrue(any(mark.startswith("rank 1 ") and "never entered all_reduce #31" in mark for mark in marks), marks)
        last = calls_of(events)["world", 31]
        self.assertEqual(sorted(last), [0, 2, 3])
        for event in last.values():
            self.assertEqual(event["args"]["end"], "not complete")
            self.assertGreater(event["dur"], 1e6)

    def test_all_attempts_share_one_file(self):
        code, _, err = run("--nproc-per-node", 2, "--max-restarts", 1, "--trace", self.file, "--no-python", "sh", "-c",
                           f'[ "$RANK" != 1 ] || [ "$MUSTER_RESTART_COUNT$TORCHELASTIC_RESTART_COUNT" != 0 ] || exit 3; '
                           f'exec "{PROGRAM}"', env=self.env)
        self.assertEqual(code, 0, err)
        events = events_of(self.file)
        self.assertIn("attempt 1", marks_of(events))
        self.assertIn("ended with 3", marks_of(events))
        self.assertEqual(len(calls_of(events)), 80)

    def test_a_trace_can_be_read_after_muster_is_killed(self):
        job = self.job("none", env={"CALLS": "100000"})
        wait_for(lambda: os.path.exists(self.file) and len(calls_of(events_of(self.file))) > 30, "some calls")
        agent = job.agent()
        for pid in (job.pid, agent):
            os.kill(pid, signal.SIGKILL)
        wait_for(lambda: is_gone(agent), "the agent's end")
        self.assertGreater(len(calls_of(events_of(self.file))), 30)

    def test_a_trace_needs_no_watch_for_hangs(self):
        job = self.job("pause", "--hang-timeout", "off", env={"PAUSE_S": "3"})
        self.assertEqual(job.wait(), 0, job.stderr())
        self.assertEqual(job.events(), [])
        self.assertEqual(len(calls_of(events_of(self.file))), 33)

    def test_missing_calls_are_counted_in_one_line(self):
        """The ranks make 8 rings' worth of calls while the agent is stopped between two polls."""
        job = self.job("none", env={"CALLS": "8000"}, ranks=2)
        wait_for(lambda: os.path.exists(self.file) and len(calls_of(events_of(self.file))) > 30, "some calls")
        agent = job.agent()
        os.kill(agent, signal.SIGSTOP)
        wait_for(lambda: not self.ranks_of(agent), "the ranks' end", 60)
        os.kill(agent, signal.SIGCONT)
        self.assertEqual(job.wait(), 0, job.stderr())
        self.assertRegex(job.stderr(), r"muster: trace: rank [01] calls faster than the trace can be read: \d+ of its calls "
                                       r"are missing\n")
        self.assertEqual(job.stderr().count("trace:"), 1)

    @staticmethod
    def ranks_of(agent):
        """Returns the ranks that run."""
        return [pid for pid in children_of(agent) if not is_gone(pid)]


class Nodes(TraceTest):
    def test_each_node_writes_a_file_on_the_first_nodes_clock(self):
        """The second node's monotonic clock is far ahead."""
        port = free_port()
        flags = ("--nnodes", 2, "--nproc-per-node", 2, "--master-addr", "127.0.0.1", "--master-port", port, "--trace",
                 self.file)
        ahead = ("unshare", "--time", "--monotonic", str(CLOCK_AHEAD_S), "--fork", "--kill-child")
        if subprocess.run([*ahead, "true"], capture_output=True, check=False).returncode != 0:
            self.skipTest("no time namespaces here (unshare --time fails)")
        first = Job(*flags, "--node-rank", 0, "--no-python", PROGRAM, env=self.env)
        self.addCleanup(first.__exit__)
        second = Job(*flags, "--node-rank", 1, "--no-python", PROGRAM, env=self.env, under=ahead)
        self.addCleanup(second.__exit__)
        self.assertEqual([job.wait() for job in (first, second)], [0, 0], first.stderr() + second.stderr())
        files = [events_of(self.path(f"trace.node{node}.json")) for node in (0, 1)]
        self.assertEqual([sorted(names_of(events)) for events in files], [[0, 1], [2, 3]])
        calls = calls_of(files[0] + files[1])
        self.assertEqual(len(calls), 80)
        self.assert_overlap(calls, 4, CLOCK_ERROR_US)
        first_call = min(event["ts"] for by_rank in calls.values() for event in by_rank.values())
        for event in files[0] + files[1]:  # Marks too, though the clock offset may have been unknown.
            self.assertLess(abs(event.get("ts", first_call) - first_call), 100e6, event)
        self.assertFalse(os.path.exists(self.file))


class Refused(TraceTest):
    def test_a_file_that_cannot_be_written_is_refused(self):
        """One of several nodes waits for no other first."""
        several = ("--nnodes", 2, "--node-rank", 1, "--master-addr", "127.0.0.1", "--master-port", free_port())
        for flags in ((), several):
            code, out, err = run(*flags, "--trace", "/proc/nothing/trace.json", "--no-python", "echo", "started")
            self.assertNotEqual(code, 0)
            self.assertEqual((out, err), ("", "muster: cannot write the trace /proc/nothing/trace.json: No such file or "
                                              "directory; name another file with --trace\n"))

    def test_a_trace_without_a_recorder_is_refused(self):
        code, _, err = run("--trace", self.file, "--no-recorder", "--no-python", "true")
        self.assertEqual(code, 2)
        self.assertIn("--trace shows what the ranks record; leave out --no-recorder, or --trace", err)
        self.assertFalse(os.path.exists(self.file))

    def test_a_full_disk_costs_the_trace_and_not_the_job(self):
        code, _, err = run("--nproc-per-node", 2, "--trace", "/dev/full", "--no-python", PROGRAM, env=self.env)
        self.assertEqual(code, 0, err)
        self.assertEqual([line for line in err.splitlines() if "/dev/full" in line],
                         ["muster: cannot write /dev/full: No space left on device; what the trace shows meanwhile is "
                          "dropped, the workers continue; free some space to resume"])


class Torch(TraceTest):
    def setUp(self):
        super().setUp()
        if not os.access(PYTHON, os.X_OK):
            self.skipTest(f"no PyTorch: {PYTHON} (set MUSTER_TORCH_VENV; ./dev test makes it)")

    def test_calls_have_lines_of_python(self):
        job = self.job("none", ranks=2, env={"CALLS": "10"}, program=TORCH)
        self.assertEqual(job.wait(120), 0, job.stderr())
        calls = {key: by_rank for key, by_rank in calls_of(events_of(self.file)).items()
                 if by_rank[0]["name"].startswith("all_reduce")}
        self.assertEqual(len(calls), 40)
        self.assert_overlap(calls, 2)
        for by_rank in calls.values():
            self.assertRegex(by_rank[1]["args"]["site"], r"^torch_faults\.py:\d+ plain_step$")


if __name__ == "__main__":
    require_programs(MUSTER_HANG_FAULTS=PROGRAM)
    main()
