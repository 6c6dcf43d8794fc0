"""Many nodes on one machine: meeting, ranks, restarts, losing and gaining nodes, one verdict, the host's return."""
import os
import signal
import socket
import time

from harness import LONG, Job, children_of, main, processes, wait_for, within
from nodes_harness import NodesTest
from ports import free_port


class Meeting(NodesTest):
    def test_static_nodes_form_one_world(self):
        jobs = [self.static(rank, 3, "--nproc-per-node", 2) for rank in (2, 0, 1)]
        starts = self.wait_starts(6)
        self.assert_world(starts, 3, 6, restart=0)
        for s in starts:
            self.assertEqual(s.node, f"n{s.group_rank}")
            self.assertEqual((s.rank, s.local_world), (2 * s.group_rank + s.local_rank, 2))
            self.assertEqual((s.master_addr, s.master_port), ("127.0.0.1", self.port))
        self.end_well(*jobs)

    def test_elastic_nodes_with_different_worker_counts_form_the_instant_all_are_there(self):
        jobs = [self.elastic(f"n{i}", "1:3", "--nproc-per-node", count, "--rdzv-conf", "last_call_timeout=600")
                for i, count in enumerate((2, 1, 3))]
        starts = self.wait_starts(6)
        self.assert_world(starts, 3, 6, restart=0)
        self.assertEqual({s.node: s.local_world for s in starts}, {"n0": 2, "n1": 1, "n2": 3})
        self.end_well(*jobs)

    def test_node_ranks_that_were_asked_for_are_honoured(self):
        jobs = [self.elastic(f"n{rank}", 3, "--node-rank", rank) for rank in (1, 2, 0)]
        for s in self.wait_starts(3):
            self.assertEqual(s.node, f"n{s.group_rank}")
        self.end_well(*jobs)

    def test_the_last_call_decides_for_fewer_than_all_nodes(self):
        jobs = [self.elastic(f"n{i}", "2:4", "--rdzv-conf", "last_call_timeout=1") for i in range(2)]
        self.assert_world(self.wait_starts(2), 2, 2, restart=0)
        self.end_well(*jobs)

    def test_a_waiting_node_says_which_node_ranks_are_missing(self):
        job = self.static(0, 2, "--rdzv-conf", "timeout=5")
        self.assert_exit(job, 122)
        self.assertIn("1 of 2 nodes", job.stderr())
        self.assertIn("missing: node rank 1", job.stderr())
        self.assertGreaterEqual(job.stderr().count("1 of 2 nodes"), 2, "a line while waiting, and one at the end")

    def test_read_timeout_ends_the_wait_for_a_silent_host(self):
        job = self.elastic("n0", 2, "--rdzv-conf", "is_host=0,read_timeout=2")
        self.assert_exit(job, 122)  # Not after the join time-out of 600 s.
        self.assertIn("for 2 s (read_timeout)", job.stderr())

    def test_two_jobs_share_one_endpoint(self):
        one = [self.elastic(f"a{i}", 2, "--rdzv-id", "job-a") for i in range(2)]
        two = [self.elastic(f"b{i}", 2, "--rdzv-id", "job-b") for i in range(2)]
        starts = self.wait_starts(4)
        for letter in "ab":
            self.assert_world([s for s in starts if s.node[0] == letter], 2, 2, restart=0)
        self.assertEqual(len({s.master_port for s in starts}), 2, "each job has a store of its own")
        self.end_well(*one, *two)

    def test_waiting_nodes_with_different_job_ids_name_each_other(self):
        first = self.elastic("a", 2, "--rdzv-id", "exp7")
        wait_for(lambda: first.stderr().count("1 of 2 nodes") >= 2, "it waits, and is told so less and less often")
        second = self.elastic("b", 2, "--rdzv-id", "exp8")
        for job, own, other in ((second, "exp8", "exp7"), (first, "exp7", "exp8")):
            wait_for(lambda: f"; job '{other}' (on {os.uname().nodename}) waits here as well, and this is job '{own}': nodes "
                             f"of one job need the same --rdzv-id; gives up in" in job.stderr(), f"{own} hears of {other}")
        late = self.elastic("c", 2, "--rdzv-id", "exp7")
        self.assert_world(self.wait_starts(2), 2, 2, restart=0)
        second.signal(signal.SIGTERM)
        self.assert_exit(second, 143)
        self.end_well(first, late)

    def test_nodes_meet_by_a_file(self):
        place = self.path("meet")
        for turn in range(2):  # The second job finds the file of the first.
            jobs = [self.node(f"n{i}", "--nnodes", 2, "--rdzv-backend", "file", "--rdzv-endpoint", place, "--rdzv-id", "f")
                    for i in range(2)]
            self.assert_world(self.wait_starts(2 * (turn + 1))[-2:], 2, 2, restart=0)
            self.end_well(*jobs)
            os.unlink(self.path("do"))

    def test_a_crashed_jobs_file_is_recognised(self):
        place = self.path("meet")
        flags = ("--nnodes", 2, "--rdzv-backend", "file", "--rdzv-endpoint", place, "--rdzv-id", "f")
        for i in range(2):
            self.node(f"old{i}", *flags)
        self.wait_starts(2)
        for job in list(self.jobs):
            self.kill_node(job)
        before = len(self.starts())
        jobs = [self.node(f"new{i}", *flags) for i in range(2)]
        self.assert_world(self.wait_starts(before + 2)[-2:], 2, 2, restart=0)
        self.end_well(*jobs)


class Tokens(NodesTest):
    def test_the_right_token_joins_and_the_wrong_one_is_refused(self):
        token = self.write("token", "opensesame\n", 0o600)
        wrong = self.write("wrong", "letmein\n", 0o600)
        first = self.elastic("first", 2, "--rdzv-token-file", token)
        stranger = self.elastic("stranger", 2, "--rdzv-token-file", wrong, "--rdzv-conf", "is_host=false")
        self.assert_exit(stranger, 122)
        self.assertIn("token", stranger.stderr())
        self.assertIn("refused a node at 127.0.0.1", first.stderr())
        second = self.elastic("second", 2, env={"MUSTER_TOKEN": "opensesame"})
        self.assert_world(self.wait_starts(2), 2, 2)
        self.end_well(first, second)
        self.assertNotIn("opensesame", first.stderr() + second.stderr() + stranger.stderr())

    def test_a_job_on_loopback_does_not_mention_tokens(self):
        jobs = [self.elastic(f"n{i}", 2) for i in range(2)]
        self.wait_starts(2)
        self.order("done")
        for job in jobs:
            self.assert_exit(job, 0)
            self.assertNotIn("token", job.stderr())

    def test_a_token_file_that_cannot_be_read_is_named(self):
        job = self.elastic("n0", 2, "--rdzv-token-file", self.path("nothing"))
        self.assert_exit(job, 121)
        self.assertIn(self.path("nothing"), job.stderr())


class Failures(NodesTest):
    def test_a_failure_on_one_node_restarts_all_nodes_and_costs_one_restart(self):
        jobs = [self.elastic(f"n{i}", 2, "--max-restarts", 1, "--nproc-per-node", 2) for i in range(2)]
        self.wait_starts(4)
        self.order("fail3", "n1.0")
        starts = self.wait_starts(8)
        self.assert_world(starts[4:], 2, 4, restart=1)
        self.assertEqual({(s.node, s.group_rank) for s in starts[:4]}, {(s.node, s.group_rank) for s in starts[4:]},
                         "ranks are kept")
        self.order("done")
        for job in jobs:
            self.assert_exit(job, 0)
            self.assertIn("exited with 3", job.stderr())

    def test_the_job_has_one_restart_budget_and_one_verdict(self):
        jobs = [self.elastic(f"n{i}", 3, "--max-restarts", 1) for i in range(3)]
        self.wait_starts(3)
        self.order("fail3", "n1.0")
        self.wait_starts(6)
        self.order("fail17", "n2.0")
        for job in jobs:
            self.assert_exit(job, 17)
        verdicts = {self.verdict(job) for job in jobs}
        self.assertEqual(len(verdicts), 1, "\n\n".join(verdicts))
        verdict = verdicts.pop()
        self.assertIn("exited with 17", verdict)
        self.assertIn("last words of rank", verdict)
        self.assertIn("(node rank", verdict)
        self.assertEqual(len(self.starts()), 6)

    def test_a_failure_ends_all_nodes_within_a_second(self):
        jobs = [self.elastic(f"n{i}", 4) for i in range(4)]
        self.wait_starts(4)
        began = time.monotonic()
        self.order("fail5", "n3.0")
        for job in jobs:
            self.assert_exit(job, 5)
        self.assertLess(time.monotonic() - began, within(1))

    def test_a_program_that_one_node_cannot_execute_ends_all_nodes_with_126(self):
        good = self.elastic("good", 2, "--max-restarts", 5)
        self.jobs.append(bad := self.elastic("bad", 2, "--max-restarts", 5))
        self.wait_starts(2)
        os.chmod(self.worker, 0o644)  # The next start cannot execute it.
        self.order("fail3", "bad.0")
        self.assert_exit(bad, 126)
        self.assert_exit(good, 126)
        self.jobs.remove(bad)

    def nowhere(self):
        return "./nowhere/" + os.path.basename(self.worker)

    def lacking(self, name, *flags):
        """Starts a node that lacks the program."""
        job = Job(*flags, "--no-python", self.nowhere(), cwd=self.folder.name, env={"NODE": name})
        job.name = name
        self.jobs.append(job)
        return job

    def c10d_flags(self, nodes, *flags):
        return ("--nnodes", nodes, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{self.port}", *flags)

    def static_flags(self, rank, nodes):
        return ("--nnodes", nodes, "--node-rank", rank, "--master-addr", "127.0.0.1", "--master-port", self.port)

    def assert_told(self, job):
        self.assert_exit(job, 127)
        self.assertRegex(job.stderr(), r"(?m)^muster: \S+(?: \(--node-rank=\d\))?: cannot run ./nowhere/\S+: no such file; check "
                                       r"the name and the folder$")

    def assert_said_here(self, job):
        self.assert_exit(job, 127)
        self.assertEqual(job.stderr().splitlines()[0], f"muster: cannot run {self.nowhere()}: no such file; check the name and the folder")

    def test_a_program_missing_on_one_node_is_named_on_all(self):
        waiting = self.elastic("good", 3, "--rdzv-id", "j")
        wait_for(lambda: self.listens(waiting), "the host is there")
        bad = self.lacking("bad", *self.c10d_flags(3, "--rdzv-id", "j"))
        late = self.elastic("late", 3, "--rdzv-id", "j")  # It may come before or after the end.
        self.assert_said_here(bad)
        self.assert_told(waiting)
        self.assert_told(late)
        self.assertEqual(self.starts(), [])

    def test_a_program_missing_on_the_host_is_named_on_later_nodes(self):
        for flags in (lambda rank: self.static_flags(rank, 3), lambda rank: self.c10d_flags(3, "--rdzv-id", "j")):
            bad = self.lacking("bad", *flags(0))
            wait_for(lambda: "cannot run" in bad.stderr(), "it has answered")
            others = [self.node(f"n{rank}", *flags(rank)) for rank in (1, 2)]
            for other in others:
                self.assert_told(other)
            began = time.monotonic()
            self.assert_said_here(bad)
            self.assertLess(time.monotonic() - began, within(1, below=10), "it does not stay once all have been told")

    def test_a_program_missing_everywhere_is_named_once_on_each_node(self):
        jobs = [self.lacking(f"n{rank}", *self.static_flags(rank, 3)) for rank in (2, 1, 0)]
        for job in jobs:
            self.assert_said_here(job)
            self.assertNotIn("cannot inform", job.stderr())

    def test_an_elastic_job_goes_on_without_a_node_that_lacks_the_program(self):
        conf = ("--rdzv-conf", "last_call_timeout=4", "--rdzv-id", "j")
        good = self.elastic("good", "1:3", *conf)
        wait_for(lambda: self.listens(good), "the host is there")
        bad = self.lacking("bad", *self.c10d_flags("1:3", *conf))
        self.assert_said_here(bad)
        self.assertIn("muster: the job continues without this node: ", bad.stderr())
        wait_for(lambda: f"does not take part: cannot run {self.nowhere()}: no such file" in good.stderr(), "the other is told")
        self.assert_world(self.wait_starts(1), 1, 1)
        self.end_well(good)

    def test_a_node_that_lacks_the_program_does_not_wait_long_for_nodes_that_never_come(self):
        began = time.monotonic()
        alone = self.lacking("alone", *self.static_flags(1, 2))
        self.assert_said_here(alone)
        self.assertIn("informing the other nodes (at most 10 s); a signal skips this", alone.stderr())
        self.assertIn("cannot inform the other nodes: no contact with the host", alone.stderr())
        self.assertLess(time.monotonic() - began, within(10))
        again = self.lacking("again", *self.static_flags(1, 2))
        wait_for(lambda: "informing" in again.stderr(), "it tries")
        again.signal(signal.SIGINT)
        self.assertEqual(again.wait(), -signal.SIGINT)

    def test_nodes_that_share_a_disk_have_folders_of_their_own(self):
        jobs = [self.static(i, 2, "--rdzv-id", "a/b", "--log-dir", self.path("logs/{{x}}/{job}-{start}/{host}.{node_rank}"))
                for i in range(2)]
        self.wait_starts(2)
        self.end_well(*jobs)
        host = os.uname().nodename
        self.assertEqual(sorted(os.listdir(self.path("logs/{x}/a_b-0"))), [f"{host}.{i}" for i in range(2)])

    def test_exit_code_torchrun_is_1_on_every_node(self):
        jobs = [self.elastic(f"n{i}", 2, "--exit-code", "torchrun") for i in range(2)]
        self.wait_starts(2)
        self.order("fail9", "n0.0")
        for job in jobs:
            self.assert_exit(job, 1)


class Losses(NodesTest):
    def test_survivors_of_a_killed_node_form_a_new_round(self):
        jobs = [self.ranked(i, "2:3") for i in range(3)]
        self.wait_starts(3)
        began = time.monotonic()
        self.kill_node(jobs[1])
        starts = self.wait_starts(5)[3:]
        self.assertLess(time.monotonic() - began, within(2))
        self.assert_world(starts, 2, 2, restart=0)
        self.assertEqual({s.node: s.group_rank for s in starts}, {"n0": 0, "n2": 1})
        self.end_well(jobs[0], jobs[2])

    def test_too_few_survivors_name_the_lost_node_and_exit_with_the_code_of_that_cause(self):
        rows = [(2, 3, 143, ("--exit-code", "torchrun,lost=143,user=9"))]
        if LONG:
            rows += [(1, 2, 122, ()), (0, 2, 143, ("--start-timeout", 10, "--exit-code", "lost=143,rendezvous=9"))]
        for lost, nodes, code, flags in rows:
            with self.subTest(lost=lost, nodes=nodes):
                self.port, before = free_port(), len(self.starts())
                jobs = [self.static(rank, nodes, *flags) for rank in range(nodes)]
                self.wait_starts(before + nodes)
                self.kill_node(jobs.pop(lost))
                for job in jobs:
                    self.assert_exit(job, code, 60)
                if lost != 0:
                    self.assertIn(f"(node rank {lost}) was lost", jobs[0].stderr())

    def test_a_worker_that_dies_of_a_lost_node_costs_no_restart(self):
        jobs = [self.ranked(i, "1:2", "--max-restarts", 0) for i in range(2)]
        self.wait_starts(2)
        agent = jobs[0].agent()
        os.kill(agent, signal.SIGSTOP)  # It must see both at once, however busy the machine is.
        self.order("fail1", "n0.0")
        wait_for(lambda: all(processes()[worker][1] == "Z" for worker in children_of(agent)), "the worker has ended")
        self.kill_node(jobs[1])
        os.kill(agent, signal.SIGCONT)
        starts = self.wait_starts(3)[2:]
        self.assert_world(starts, 1, 1, restart=0)
        self.end_well(jobs[0])

    def test_a_node_that_receives_a_round_and_its_end_at_once_gives_the_same_verdict(self):
        self.worker = self.write(f"f-{self.marker}.sh", "#!/bin/bash\n[ $RANK = 0 ] || sleep 1000\nexit 3\n")
        jobs = [self.ranked(i, 3, "--max-restarts", 0) for i in range(2)]
        agent = jobs[1].agent()
        wait_for(lambda: "2 of 3 nodes" in jobs[0].stderr(), "the second node is there")
        os.kill(agent, signal.SIGSTOP)
        self.addCleanup(lambda: os.kill(agent, signal.SIGCONT) if jobs[1].process.poll() is None else None)
        jobs.append(self.ranked(2, 3, "--max-restarts", 0))
        wait_for(lambda: "all ranks are stopped" in jobs[2].stderr(), "the host ends the round")
        os.kill(agent, signal.SIGCONT)
        for job in jobs:
            self.assert_exit(job, 3)
        self.assertEqual(len({self.verdict(job) for job in jobs}), 1, self.all_errors())

    def test_a_stopped_agent_loses_its_lease_and_comes_back_when_continued(self):
        jobs = [self.ranked(i, "1:2", "--lease", 1) for i in range(2)]
        self.wait_starts(2)
        agent = jobs[1].agent()
        os.kill(agent, signal.SIGSTOP)
        self.addCleanup(lambda: os.kill(agent, signal.SIGCONT) if jobs[1].process.poll() is None else None)
        starts = self.wait_starts(3)[2:]
        self.assert_world(starts, 1, 1, restart=0)
        self.assertIn("no sign of life", jobs[0].stderr())
        os.kill(agent, signal.SIGCONT)  # It comes back as a waiting node: there is a place for it.
        self.assert_world(self.wait_starts(5)[3:], 2, 2, restart=0)
        self.end_well(*jobs)

    def test_a_suspended_job_keeps_its_lease(self):
        jobs = [self.ranked(i, "1:2", "--lease", 1) for i in range(2)]
        self.wait_starts(2)
        jobs[1].signal(signal.SIGTSTP)
        wait_for(lambda: processes()[jobs[1].pid][1] == "T", "it is suspended")
        self.no_new_round(4)  # Several leases.
        jobs[1].signal(signal.SIGCONT)
        self.end_well(*jobs)
        self.assertEqual(len(self.starts()), 2)

    def test_a_newcomer_takes_the_place_of_a_lost_node(self):
        jobs = [self.ranked(i, "2:3") for i in range(2)]
        jobs.append(self.elastic("n2", "2:3", "--rdzv-conf", "is_host=false"))
        self.wait_starts(3)
        self.kill_node(jobs[1])
        self.wait_starts(5)
        jobs[1] = self.elastic("new", "2:3", "--rdzv-conf", "is_host=false")
        starts = self.wait_starts(8)[5:]
        self.assert_world(starts, 3, 3, restart=0)
        self.end_well(*jobs)


class Elastic(NodesTest):
    def test_a_late_node_joins_by_a_new_round(self):
        first = self.elastic("first", "1:2", "--rdzv-conf", "last_call_timeout=1")
        self.assert_world(self.wait_starts(1), 1, 1, restart=0)
        late = self.elastic("late", "1:2", "--rdzv-conf", "last_call_timeout=1")
        starts = self.wait_starts(3)[1:]
        self.assert_world(starts, 2, 2, restart=0)
        self.assertEqual({s.node: s.group_rank for s in starts}, {"first": 0, "late": 1})
        self.end_well(first, late)

    def test_a_spare_waits_and_takes_the_place_of_a_lost_node(self):
        jobs = [self.ranked(i, 2, "--spares", 1) for i in range(2)]
        self.wait_starts(2)
        spare = self.elastic("spare", 2, "--spares", 1)
        wait_for(lambda: "spare" in spare.stderr(), "the spare says what it is")
        self.assertEqual(len(self.starts()), 2, "no worker was disturbed")
        self.kill_node(jobs[1])
        starts = self.wait_starts(4)[2:]
        self.assert_world(starts, 2, 2, restart=0)
        self.assertEqual({s.node: s.group_rank for s in starts}, {"n0": 0, "spare": 1})
        self.end_well(jobs[0], spare)

    def test_a_spare_that_was_not_needed_exits_with_success(self):
        jobs = [self.ranked(i, 2, "--spares", 1) for i in range(2)]
        self.wait_starts(2)
        extra = self.elastic("extra", 2, "--spares", 1)
        wait_for(lambda: "spare" in extra.stderr(), "the extra node says what it is")
        self.end_well(*jobs, extra)

    def at_the_same_id(self, name, *program):
        job = Job("--nnodes", "1:2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{self.port}", "--rdzv-id", "job",
                  "--rdzv-conf", "last_call_timeout=1", "--no-python", *program, env={"NODE": name})
        job.name = name
        self.jobs.append(job)
        return job

    def test_another_program_at_the_same_id_is_refused(self):
        here = os.uname().nodename
        first = self.at_the_same_id("first", "sh", "-c", f"exec {self.worker}")
        self.wait_starts(1)
        others = [(self.at_the_same_id("other", "/bin/echo", "another program"), f"runs echo, but the job with this id runs sh -c (on {here})"),
                  (self.at_the_same_id("text", "sh", "-c", "echo another program"), "runs another sh -c than the job with this id")]
        for other, words in others:
            self.assert_exit(other, 122)
            self.assertIn(words, other.stderr())
            self.assertEqual(other.stdout(), "")
        self.end_well(first)
        self.assertEqual(len(self.starts()), 1, self.all_errors())

    def test_a_surplus_node_exits_with_122(self):
        jobs = [self.ranked(i, 2) for i in range(2)]
        self.wait_starts(2)
        extra = self.elastic("extra", 2)
        wait_for(lambda: "this one waits up to 15 s for a place" in extra.stderr(), "the extra node says what it is")
        self.end_well(*jobs)
        self.assert_exit(extra, 122)
        self.assertIn("the job has ended without this node", extra.stderr())

    def test_a_node_that_leaves_on_term_lets_the_others_go_on(self):
        jobs = [self.ranked(i, "1:2") for i in range(2)]
        self.wait_starts(2)
        jobs[1].signal(signal.SIGTERM)
        self.assert_exit(jobs[1], 143)
        self.assert_world(self.wait_starts(3)[2:], 1, 1, restart=0)
        self.end_well(jobs[0])

    def test_term_on_one_node_of_a_fixed_job_stops_it_everywhere(self):
        jobs = [self.static(rank, 2) for rank in range(2)]
        self.wait_starts(2)
        jobs[1].signal(signal.SIGTERM)
        for job in jobs:
            self.assert_exit(job, 143)
        self.assertIn("SIGTERM", jobs[0].stderr())

    def test_the_membership_budget_ends_a_job_that_loses_nodes_for_ever(self):
        jobs = [self.ranked(i, "1:3", "--max-membership-changes", 1) for i in range(3)]
        self.wait_starts(3)
        self.kill_node(jobs[2])
        self.wait_starts(5)
        self.kill_node(jobs[1])
        self.assert_exit(jobs[0], 122)
        self.assertIn("membership", jobs[0].stderr())


class TheHost(NodesTest):
    def test_survivors_on_the_hosts_machine_take_its_place_and_go_on(self):
        host = self.elastic("host", "2:3", "--lease", 1)
        wait_for(lambda: self.listens(host), "the first node hosts")
        jobs = [self.elastic(f"n{i}", "2:3", "--lease", 1) for i in range(2)]
        self.wait_starts(3)
        self.kill_node(host)
        self.assert_world(self.wait_starts(5)[3:], 2, 2, restart=0)
        self.end_well(*jobs)

    def test_a_killed_host_that_is_started_again_goes_on_with_the_job(self):
        jobs = [self.elastic(f"n{i}", 3, "--node-rank", i, "--rdzv-conf", f"is_host={i == 0}") for i in range(3)]
        self.wait_starts(3)
        self.kill_node(jobs[0])
        jobs[0] = self.elastic("n0", 3, "--node-rank", 0, "--rdzv-conf", "is_host=True")
        starts = self.wait_starts(6)[3:]
        self.assert_world(starts, 3, 3, restart=0)
        self.assertEqual({s.node: s.group_rank for s in starts}, {"n0": 0, "n1": 1, "n2": 2})
        self.end_well(*jobs)

    def test_a_second_signal_ends_a_host_whose_peers_workers_ignore_sigterm(self):
        deaf = self.write(f"deaf-{self.marker}.sh", f"#!/bin/bash\ntrap '' TERM\necho up >>{self.path('log')}\n"
                          f"while :; do read -t 5 <>{self.path('fifo')}; done\n")
        self.worker = deaf
        host, other = (self.ranked(rank, 2, "--start-timeout", 2, "--shutdown-timeout", 5) for rank in (0, 1))
        wait_for(lambda: self.read("log") == "up\n" * 2, "both workers run")
        host.signal(signal.SIGTERM)
        wait_for(lambda: "leaves (SIGTERM)" in other.stderr(), "the other node has heard of it")
        host.signal(signal.SIGINT)
        self.assert_exit(host, 143)
        self.assertNotIn("the agent", host.stderr())  # It was never in doubt.
        self.assert_exit(other, 122)

    def test_a_second_signal_keeps_the_exit_code_of_the_first(self):
        host, other = (self.ranked(rank, 2) for rank in (0, 1))
        self.wait_starts(2)
        agent = host.agent()
        os.kill(agent, signal.SIGSTOP)  # The host cannot acknowledge that the other leaves.
        self.addCleanup(lambda: os.kill(agent, signal.SIGCONT) if host.process.poll() is None else None)
        other.signal(signal.SIGINT)  # The lower number: the kernel delivers it first, even if both are pending.
        other.signal(signal.SIGTERM)
        self.assert_exit(other, 130)
        self.assertIn("stopped by SIGINT", other.stderr())
        os.kill(agent, signal.SIGCONT)
        self.assert_exit(host, 130)

    def test_agents_whose_host_never_returns_say_so_and_end(self):
        jobs = [self.elastic(f"n{i}", 2, "--rdzv-conf", f"join_timeout=4,is_host={i == 0}") for i in range(2)]
        self.wait_starts(2)
        self.kill_node(jobs[0])
        self.assert_exit(jobs[1], 122)
        self.assertIn(f"127.0.0.1:{self.port}", jobs[1].stderr())

    def test_another_server_on_the_port_is_recognised(self):
        server = socket.create_server(("127.0.0.1", self.port))
        self.addCleanup(server.close)
        job = self.elastic("n0", 2, "--rdzv-conf", "is_host=false")
        server.settimeout(0.1)
        connections = []
        while job.process.poll() is None:
            try:
                connections.append(server.accept()[0])
                connections[-1].sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
            except OSError:
                pass
        for connection in connections:
            connection.close()
        self.assert_exit(job, 122)
        self.assertIn(f"127.0.0.1:{self.port}", job.stderr())
        self.assertIn("SSH", job.stderr())

    def test_a_silent_server_on_the_port_is_named(self):
        server = socket.create_server(("127.0.0.1", self.port))
        self.addCleanup(server.close)
        job = self.elastic("n0", 2, "--rdzv-conf", "is_host=false,join_timeout=8")
        self.assert_exit(job, 122)
        self.assertIn("sends nothing", job.stderr())


if __name__ == "__main__":
    main()
