#!/usr/bin/env python3
"""Hangs of real jobs: each fault is found, healthy jobs get no verdict, and verdicts are printed and written as documented.

    hang_test.py [--rest | CLASS...]

All limits are a tenth of their defaults. hang_matrix.py runs the faults with more ranks, and any number of times.
"""
import json
import os
import re
import signal
import socket

from hang_cells import FAULTS, PROGRAM, RECORDED_MISMATCH, HangJob, healthy, limits, perform
import harness
from harness import LONG, Job, LiveTest, long, musterctl, nothing_happens_for, pause, processes, say, wait_for

SCALE = 0.1
HEALTHY_S = float(os.environ.get("MUSTER_HEALTHY_S", "120" if LONG else "10"))
WATCHED_S = 2
LOOKS_A_SECOND = 4


class HangTest(LiveTest):
    def job(self, fault, *flags, scale=SCALE, **options):
        job = HangJob(self.folder.name, fault, *limits(scale), *flags, **options)
        self.addCleanup(job.__exit__)
        return job

    def said(self, job):
        """muster's lines on stderr, with what differs from run to run replaced."""
        text = "\n".join(line for line in job.stderr().split("\n") if "OMP_NUM_THREADS" not in line)
        text = re.sub(r"\bpid \d+", "pid N", re.sub(r"\b(\d+\.\d|\d+) s\b", "T s", text))
        text = re.sub(r"hang_faults\+0x[0-9a-f]+", "hang_faults+X", text)
        return re.sub(r"\(descriptor \d+\)", "(descriptor N)", text)


class Faults(HangTest):
    def check(self, nodes):
        for number, fault in enumerate(FAULTS):
            ranks = 2 + 2 * (number % 2)
            with self.subTest(fault=fault):
                row = perform(fault, ranks, number // 2 % ranks, SCALE, nodes=nodes)
                say(f"{fault}, rank {row['culprit']} of {ranks}: after {row['verdict_s']} s")
                self.assertTrue(row["right"], row)

    def test_each_fault_is_found_with_the_right_rank_and_class(self):
        self.check(nodes=1)

    @long
    def test_each_fault_is_found_over_two_nodes(self):
        self.check(nodes=2)


class Stragglers(HangTest):
    """Rank 1 is 4 ms late in each of its calls, one every 6 ms; rank 0 waits for it, and so is as late in its other group,
    which must not count. On a machine that is busy with other tests the ranks also wait for a processor."""

    NAMED = re.compile(r"rank (\d) \([^)]*\) made the other rank of group '(?:tp|dp)' wait (\d+) % of the time "
                       r"\([\d.]+ ms in each of \d+ calls\)")

    def check(self, nodes):
        job = self.job("straggle", culprit=1, ranks=4, nodes=nodes, env={"SECONDS": "8"})
        self.assertEqual(job.wait(60), 0, job.stderr())
        for node in range(nodes):
            event, = wait_for(lambda node=node: job.events("straggler", node=node), "straggler in events.jsonl")
            say(event["text"])
            self.assertEqual(event["rank"], 1)
            self.assertGreater(event["seconds"], 1)
            self.assertRegex(event["text"], rf"^stragglers of the last [\d.]+ s: {self.NAMED.pattern}")
            (first, share), *others = self.NAMED.findall(event["text"])
            self.assertEqual(first, "1")
            for _, other in others:
                self.assertLess(int(other), int(share) / 3)
        self.assertIn(f"muster: {event['text']}\n", job.stderr())

    def test_are_named_and_the_ranks_that_they_hold_up_are_not(self):
        self.check(nodes=1)

    @long
    def test_are_named_over_two_nodes(self):
        self.check(nodes=2)


class Words(HangTest):
    CALL = "all_reduce #31 of group 'world'"
    GOES_ON = {"CALLS": "1000000"}  # The job runs until it is stopped.

    def test_withdraw_the_verdict_on_a_rank_that_arrives(self):
        job = self.job("blocked_read", culprit=2, env=self.GOES_ON)
        job.wait_found("hang")
        job.go_on()
        job.wait_found("withdrawn")
        job.stop()
        said = self.said(job)
        blocked = f"blocked in read() of {job.fifo} (descriptor N)"
        call = f"{self.CALL} (max of 1000 float32)"
        self.assertIn(f"muster: 3 ranks have waited T s for rank 2 (pid N) in {call} at hang_faults+X; rank 2 has not "
                      f"called it and is {blocked}\n", said)
        self.assertIn(f"muster: rank 2 (pid N) never entered {call}; 3 other ranks have waited T s; rank 2 is {blocked}\n",
                      said)
        self.assertRegex(said, r"\n  waiting: ranks 0-1,3 at hang_faults\+X\n  the last calls: musterctl records \S+ "
                         r"--ranks 2\n")
        self.assertIn(f"muster: rank 2 went on: the verdict on {self.CALL} is withdrawn; from now on the limit is T s\n",
                      said)
        self.assertIsNone(job.result()["hang"])

    def test_report_the_end_of_a_wait_before_its_limit(self):
        job = self.job("timed_read", "--busy-timeout", 60, env=self.GOES_ON)
        self.assertEqual(job.wait_found("waiting")["class"], "busy")
        job.go_on()
        wait_for(lambda: f"muster: rank 1 came to {self.CALL} after T s\n" in self.said(job), "the wait is over")
        job.stop()
        self.assertEqual(job.found("hang", "mismatch", "withdrawn"), [])

    def test_report_a_rank_in_a_section_without_a_verdict(self):
        job = self.job("section", env={"PAUSE_S": "2"})
        self.assertEqual(job.wait(), 0, job.stderr())
        self.assertIn("busy", [e["class"] for e in job.found("waiting")], job.stderr())
        self.assertEqual(job.found("hang", "mismatch", "withdrawn"), [], job.stderr())

    def test_events_and_result_json_hold_the_verdict(self):
        """The job is stopped after the verdict."""
        job = self.job("blocked_read", culprit=3)
        job.wait_found("hang")
        self.assertEqual(job.stop(), 128 + signal.SIGTERM)
        facts = {"attempt": 0, "ranks": [3], "class": "never_entered", "by": "time", "group": "world",
                 "operation": "all_reduce (max) of 1000 float32", "ordinal": 31, "waiting": [0, 1, 2], "confidence": "high"}
        events = [e for e in job.events() if e.get("ranks") == [3]]  # On a busy machine others are late, too.
        self.assertEqual([e["event"] for e in events], ["waiting", "hang"])
        for event in events:
            self.assertEqual({k: v for k, v in event.items() if k not in ("time", "event", "seconds", "text")}, facts)
            self.assertGreaterEqual(event["seconds"], {"waiting": 1.0, "hang": 1.2}[event["event"]])
        result = job.result()
        self.assertEqual(result["hang"], {k: v for k, v in events[1].items() if k not in ("time", "event")})
        self.assertIsNone(result["mismatch"])
        self.assertIn(f"muster: before the stop: {events[1]['text']}\n", job.stderr())


class Failures(HangTest):
    def test_a_mismatch_that_makes_another_rank_fail_is_the_cause(self):
        job = self.job("none", program=RECORDED_MISMATCH, env={"ABORT": "1"})
        self.assertEqual(job.wait(), 128 + signal.SIGABRT, job.stderr())
        result = job.result()
        self.assertEqual([e["event"] for e in job.events()], ["mismatch"], job.stderr())
        self.assertEqual((result["culprit"]["rank"], result["reason"], result["class"]), (1, "mismatch", "user"))
        self.assertEqual(result["summary"], "rank 1 called all_reduce #1 of group 'world' with 2000 float32, the others with "
                         "1000 float32")
        self.assertNotIn("the job goes on", job.stderr())

    @long
    def test_both_ranks_are_shown_if_only_two_differ(self):
        job = self.job("none", program=RECORDED_MISMATCH, ranks=2, env={"ABORT": "1"})
        job.wait()
        self.assertEqual(job.result()["summary"], "rank 0 called all_reduce #1 of group 'world' with 1000 float32, rank 1 with "
                         "2000 float32; which of them is wrong is unknown")


class Nodes(HangTest):
    """Reports of nodes about ranks on other nodes."""

    def test_all_nodes_print_and_write_the_same_verdict(self):
        job = self.job("blocked_read", culprit=3, nodes=2)
        job.wait_found("hang")
        other = job.others[0]
        wait_for(lambda: "never entered" in other.stderr(), "the other node prints it")
        job.stop()
        host = socket.gethostname()
        blocked = rf"muster: rank 3 \({re.escape(host)}, pid {job.pids()[3]}\) never entered all_reduce #31 of group 'world'"
        for one in (job, other):
            self.assertRegex(one.stderr(), blocked)
            self.assertRegex(one.stderr(), rf"muster: 3 ranks have waited \S+ s for rank 3 \({re.escape(host)}, pid \d+\) in")
        keep = lambda events: [{k: v for k, v in e.items() if k != "time"} for e in events]
        self.assertEqual(keep(job.events()), keep(job.events(node=1)))
        self.assertEqual([e["class"] for e in job.events(node=1) if e.get("ranks") == [3]], ["never_entered", "never_entered"])

    def test_a_verdict_is_withdrawn_on_all_nodes(self):
        job = self.job("blocked_read", culprit=2, nodes=2, env=Words.GOES_ON)
        job.wait_found("hang")
        job.go_on()
        job.wait_found("withdrawn")
        wait_for(lambda: "is withdrawn" in job.others[0].stderr(), "the other node prints it")
        job.stop()
        for node in (0, 1):
            self.assertIsNone(job.result(node)["hang"])

    @long
    def test_a_mismatch_is_the_cause_on_either_node(self):
        for culprit in (1, 2):
            with self.subTest(culprit=culprit):
                job = self.job("none", program=RECORDED_MISMATCH, ranks=4, nodes=2,
                               env={"ABORT": "1", "CULPRIT": str(culprit)})
                job.wait()
                job.others[0].wait()
                words = f"rank {culprit} called all_reduce #1 of group 'world' with 2000 float32, the others with 1000 float32"
                for node in (0, 1):
                    result = job.result(node)
                    self.assertEqual((result["culprit"]["rank"], result["reason"], result["summary"]),
                                     (culprit, "mismatch", words), job.stderr())

    def test_a_mismatch_that_no_rank_notices_is_reported_at_the_end(self):
        for nodes in (1, 2):
            with self.subTest(nodes=nodes):
                job = self.job("none", program=RECORDED_MISMATCH, ranks=2, nodes=nodes, env={"LEAVE": "all"})
                for node, one in enumerate((job, *job.others)):
                    self.assertEqual(one.wait(), 0, one.stderr())
                    self.assertEqual([(e["event"], e["by"], e["ranks"]) for e in job.events(node=node)],
                                     [("mismatch", "proof", [0, 1])], one.stderr())
                    self.assertEqual((job.result(node)["exit_code"], job.result(node)["mismatch"]["ranks"]), (0, [0, 1]))
                    self.assertRegex(one.stderr(), r"muster: rank 0 \(.*pid \d+\) called all_reduce #1 of group 'world' with 1000 "
                                                   r"float32, rank 1 \(.*pid \d+\) with 2000 float32; which of them is wrong is unknown")
                    self.assertNotRegex(one.stderr(), "counts as failed|the job goes on|musterctl")
                self.assertEqual([b["verdict"]["ranks"] for b in job.bundles().values()], [[0, 1]])

    def test_a_stop_as_the_job_ends_keeps_the_result(self):
        for _ in range(5):
            job = self.job("none", program=RECORDED_MISMATCH, ranks=2, nodes=2, env={"LEAVE": "all"})
            job.wait_found("mismatch")
            self.assertIn(job.stop(), (0, 128 + signal.SIGTERM))
            self.assertEqual(job.result()["mismatch"]["ranks"], [0, 1], job.stderr())

    @long
    def test_short_waits_are_not_reported(self):
        job = self.job("pause", ranks=4, nodes=2, scale=0.5, env={"PAUSE_S": "3"})  # A notice would come after 5 s.
        self.assertEqual(job.wait(), 0, job.stderr())
        self.assertEqual(job.events(), [], job.stderr())


class Suspension(HangTest):
    def test_a_job_with_a_suspended_node_gets_no_verdict(self):
        job = self.job("healthy", "--on-hang", "restart", ranks=4, nodes=2, env={"SECONDS": "6", "PAUSE_S": "0.1"})
        other = job.others[0]
        wait_for(lambda: "fault" in job.stdout(), "the job runs")
        for one in (job, other):
            one.signal(signal.SIGTSTP)
            wait_for(lambda one=one: processes()[one.pid][1] == "T", "the job is suspended")
        pause(1, "both stand still")
        job.signal(signal.SIGCONT)
        pause(4, "node 1 is late for three limits")
        other.signal(signal.SIGCONT)
        self.assertEqual([one.wait(60) for one in (job, other)], [0, 0], job.stderr())
        self.assertEqual(job.found("hang", "mismatch"), [], job.stderr())


class Actions(HangTest):
    """--on-hang decides what follows a verdict."""

    CIRCLE = "is part of a hang: ranks wait for each other: "
    BLOCKED = r"rank 3 never entered all_reduce #31 of group 'world' \(max of 1000 float32\); 3 other ranks have waited \S+ s; "

    def failed(self, fault, *flags, **options):
        """Runs a job to its end; returns each node's result.json, and the job."""
        job = self.job(fault, *flags, **options)
        codes = [one.wait(60) for one in (job, *job.others)]
        self.assertEqual(codes, [1] * len(codes), job.stderr())
        self.assertIn("now counts as failed (--on-hang)\n", job.stderr())
        return [job.result(node) for node in range(len(codes))], job

    def test_a_proof_ends_the_job(self):
        (result,), job = self.failed("crossed_groups", culprit=1)
        self.assertEqual((result["outcome"], result["reason"], result["class"]), ("failed", "hang", "stuck"))
        self.assertIn(result["culprit"]["rank"], (1, 2))
        self.assertIn(self.CIRCLE, result["summary"])
        self.assertIn("muster: where they are now, the late ones first:\n", job.stderr(), "before they are stopped")
        self.assertEqual([e["event"] for e in job.events()], ["hang"])

    def test_a_rank_that_exited_with_0_does_not_count_as_failed(self):
        job = self.job("none", program=RECORDED_MISMATCH, ranks=3, culprit=0, env={"LEAVE": "first"})
        self.assertEqual(job.wait_found("mismatch")["ranks"], [0])
        wait_for(lambda: "the whole picture" in job.stderr(), "the bundle is written")
        self.assertEqual(job.stop(), 128 + signal.SIGTERM)
        self.assertEqual(job.result()["mismatch"]["ranks"], [0])
        self.assertEqual(job.events("attempt_failed"), [], job.stderr())
        self.assertNotIn("counts as failed", job.stderr())
        self.assertIn("the job goes on", job.stderr())

    def test_restart_stays_within_the_budget(self):
        (result,), job = self.failed("blocked_read", "--on-hang", "restart", "--max-restarts", 1, culprit=3)
        self.assertRegex(result["summary"], self.BLOCKED)
        self.assertEqual((result["reason"], result["culprit"]["rank"], len(result["attempts"])), ("hang", 3, 2))
        self.assertEqual([e["attempt"] for e in job.found("hang")], [0, 1])
        self.assertEqual(len(job.events("restarting")), 1)

    def test_stop_restarts_nothing(self):
        """The rank that hangs runs on the other node."""
        results, job = self.failed("blocked_read", "--on-hang", "stop", "--max-restarts", 3, nodes=2, culprit=3)
        self.assertIn("rank 3 now counts as failed (--on-hang)\n", job.stderr())
        for result in results:
            self.assertRegex(result["summary"], self.BLOCKED)
            self.assertEqual(len(result["attempts"]), 1)

    @long
    def test_a_rank_fails_on_either_node(self):
        for nodes_culprit in (0, 3):
            with self.subTest(culprit=nodes_culprit):
                results, job = self.failed("blocked_read", "--on-hang", "restart", nodes=2, culprit=nodes_culprit)
                for result in results:
                    self.assertEqual((result["reason"], result["culprit"]["rank"]), ("hang", nodes_culprit), job.stderr())
                    self.assertIn(f"rank {nodes_culprit} never entered all_reduce #31 of group 'world'", result["summary"])

    def test_report_leaves_the_job_alone(self):
        job = self.job("crossed_groups", "--on-hang", "report", culprit=1)
        job.wait_found("hang")
        wait_for(lambda: "the job goes on" in job.stderr(), "the outcome is printed")
        nothing_happens_for(0.5, lambda: self.assertIsNone(job.process.poll()))


class Bundle(HangTest):
    """The file that a verdict or musterctl dump leaves."""

    def told(self, job):
        """The bundle of the only verdict, and its text."""
        line, = wait_for(lambda: re.findall(r"muster: the whole picture: (\S+)\n", job.stderr()), "the bundle is written")
        self.assertEqual(list(job.bundles()), ["hang_1.json"])
        with open(line) as f:
            text = f.read()
        return json.loads(text), text

    def assert_whole(self, bundle, event):
        """Checks a bundle of blocked_read with culprit 3 of 4 ranks."""
        self.assertEqual(bundle["verdict"], {k: v for k, v in event.items() if k not in ("time", "event", "attempt")})
        self.assertIn(event["text"], bundle["text"])
        self.assertEqual((bundle["left_out"], bundle["unanswered"], bundle["run_id"] != ""), (0, [], True))
        self.assertEqual([r["rank"] for r in bundle["records"]], [0, 1, 2, 3])
        self.assertEqual([r["calls"][-1]["ordinal"] for r in bundle["records"]], [31, 31, 31, 30])
        self.assertEqual([r["rank"] for r in bundle["stacks"]], [3, 0, 1, 2])
        self.assertIn("read_fifo", json.dumps(bundle["stacks"][0]["threads"][0]))

    @long
    def test_shows_the_ranks_of_one_node(self):
        job = self.job("blocked_read", culprit=3, env={"A_TOKEN": "hunter2"})
        event = job.wait_found("hang")
        bundle, text = self.told(job)
        self.assert_whole(bundle, event)
        self.assertEqual(bundle["variables"], [])
        self.assertNotIn("hunter2", text)
        said = job.stderr()
        self.assertLess(said.index("where they are now"), said.index("the whole picture"))
        job.stop()

    def test_shows_two_nodes_and_the_variables_that_differ(self):
        job = self.job("blocked_read", culprit=3, nodes=2, env={"MODE": "fast", "A_TOKEN": "hunter2", "SAME": "x"},
                       env_of_others={"MODE": "slow", "A_TOKEN": "swordfish", "MORE": "1"})
        event = job.wait_found("hang")
        bundle, text = self.told(job)
        self.assert_whole(bundle, event)
        value = lambda text, node: {"value": text, "nodes": [node]}
        self.assertEqual(bundle["variables"], [
            {"name": "A_TOKEN", "values": [value("(hidden)", 0), value("(hidden)", 1)]},
            {"name": "MODE", "values": [value("fast", 0), value("slow", 1)]},
            {"name": "MORE", "values": [value(None, 0), value("1", 1)]}])
        self.assertNotRegex(text, "hunter2|swordfish")
        self.assertEqual(job.bundles(node=1), {})
        self.assertNotIn("the whole picture", job.others[0].stderr())
        job.stop()

    def test_is_written_before_a_rank_is_made_to_fail(self):
        job = self.job("crossed_groups", culprit=1)
        job.wait()
        bundle, _ = self.told(job)
        self.assertEqual(bundle["verdict"]["class"], "circle")
        self.assertEqual([len(r["threads"]) > 0 for r in bundle["stacks"]], [True] * 4, bundle["stacks"])

    def test_has_no_stacks_if_the_job_has_failed(self):
        job = self.job("none", program=RECORDED_MISMATCH, env={"ABORT": "1"})
        job.wait()
        (name, bundle), = job.bundles().items()
        self.assertEqual((name, bundle["verdict"]["class"], bundle["stacks"]), ("hang_1.json", "signature", []))

    def without_a_folder(self, fault, *flags):
        fifo = os.path.join(self.folder.name, "fifo")
        os.mkfifo(fifo)
        job = Job("--nproc-per-node", 2, *limits(SCALE), *flags, "--no-python", PROGRAM,
                  env={"FAULT": fault, "CULPRIT": "1", "FIFO": fifo})
        self.addCleanup(job.__exit__)
        return job

    def test_is_not_written_without_a_log_folder(self):
        job = self.without_a_folder("blocked_read")
        wait_for(lambda: "where they are now" in job.stderr(), "the stacks are printed")
        job.signal(signal.SIGTERM)
        job.wait()
        self.assertNotIn("the whole picture", job.stderr())

    def dump(self, job, *flags):
        return musterctl("dump", job.pid, *flags)

    def test_is_written_for_a_healthy_job_on_request(self):
        for node in (0, 1):
            with self.subTest(node=node):
                job = self.job("idle", nodes=2, env_of_others={"MODE": "slow"})
                asked = [job, *job.others][node]
                code, out, err = wait_for(lambda: (answer := self.dump(asked))[0] == 0 and answer, "all nodes answer")
                self.assertEqual((code, err), (0, ""))
                with open(out.strip()) as f:
                    bundle = json.load(f)
                self.assertRegex(out, r"/dump_\d+\.json\n$")
                self.assertIsNone(bundle["verdict"])
                self.assertEqual(sorted(r["rank"] for r in bundle["stacks"]), [0, 1, 2, 3])
                self.assertEqual([v["name"] for v in bundle["variables"]], ["MODE"])
                code, out, err = self.dump(asked, "--json")
                self.assertEqual((code, err, len(out.splitlines())), (0, "", 1))
                self.assertIn(os.path.basename(json.loads(out)["path"]), job.bundles(node))
                job.stop()

    def test_request_is_refused_without_a_log_folder(self):
        job = self.without_a_folder("idle", "--log-dir", "/dev/null")
        wait_for(lambda: "fault" in job.stdout(), "the job runs")
        self.assertEqual(self.dump(job), (1, "", "musterctl: the job has no log folder for it: give it one with --log-dir\n"))

    def test_lacks_a_node_that_does_not_answer(self):
        job = self.job("idle", "--lease", 60, nodes=2)
        wait_for(lambda: self.dump(job)[0] == 0, "all nodes answer")
        agent = job.others[0].agent()
        os.kill(agent, signal.SIGSTOP)
        try:
            code, out, err = self.dump(job)
        finally:
            os.kill(agent, signal.SIGCONT)
        self.assertEqual(code, 1)
        self.assertRegex(err, r"^musterctl: \S+ \(ranks 2-3\): no answer within 9 s\n$")
        with open(out.strip()) as f:
            bundle = json.load(f)
        self.assertEqual(sorted(r["rank"] for r in bundle["stacks"]), [0, 1])  # The one whose call has ended comes first.
        self.assertEqual(bundle["unanswered"], [err[len("musterctl: "):-1]])
        job.stop()


class Nothing(HangTest):
    """Jobs about which nothing is reported, though a rank is late."""

    LATE = {"PAUSE_S": "2"}

    def assert_silent(self, job):
        self.assertEqual(job.wait(), 0, job.stderr())
        self.assertEqual(job.events(), [], job.stderr())
        self.assertNotRegex(job.stderr(), "waited|never entered|has not called")

    def test_is_reported_without_a_recorder_or_a_limit(self):
        for flags in (("--no-recorder",), ("--hang-timeout", "off")):
            with self.subTest(flags=flags):
                self.assert_silent(self.job("pause", *flags, env=self.LATE))


class Healthy(HangTest):
    def test_jobs_get_no_verdict(self):
        for nodes in (1, 2) if LONG else (2,):
            with self.subTest(nodes=nodes):
                verdicts, notices = healthy(4, HEALTHY_S, SCALE, nodes=nodes)
                say(f"{HEALTHY_S:.0f} s on {nodes} nodes: verdicts: {len(verdicts)} (notices: {len(notices)})")
                self.assertEqual(verdicts, [])


def switches(pid):
    """The number of times that the threads of a process have been woken."""
    total = 0
    for thread in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{thread}/status") as f:
            total += int(re.search(r"\nvoluntary_ctxt_switches:\s*(\d+)", f.read())[1])
    return total


class WakeUps(HangTest):
    """The agent's wake-ups while the ranks are idle and no call is in progress."""

    def woken(self, job, lines):
        """The fewest wake-ups of the agent in three times WATCHED_S, once `lines` lines show that the ranks run."""
        wait_for(lambda: job.stdout().count("\n") >= lines, "the ranks run")
        counts, agent = [], job.agent()
        for _ in range(3):
            before = switches(agent)
            pause(WATCHED_S, "the time that is counted")
            counts.append(switches(agent) - before)
        return min(counts)

    def test_the_agent_sleeps_without_rings(self):
        with Job("--nproc-per-node", 4, "--no-python", "sh", "-c", "echo runs; exec sleep 1000") as job:
            self.assertEqual(self.woken(job, 4), 0)

    def test_the_agent_polls_rings_a_few_times_a_second(self):
        count = self.woken(self.job("idle"), 1)
        say(f"{count / WATCHED_S:.1f} times a second")
        self.assertGreater(count, 0)
        self.assertLessEqual(count, LOOKS_A_SECOND * WATCHED_S + 1)


def main():
    harness.require_programs(MUSTER_HANG_FAULTS=PROGRAM)
    harness.main(apart=("Faults", "Stragglers", "Healthy"))


if __name__ == "__main__":
    main()
