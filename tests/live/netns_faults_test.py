#!/usr/bin/env python3
"""Machines that die, fall silent, lose one direction of traffic and come back: the others go on, soon.

Prints the seconds from the fault to the last worker of the new round.
"""
import signal
import time

from harness import is_gone, long, pause, wait_for, within
from netns_nodes import NetnsTest, main

# Promised times for survivors of a lost node: after silence, and after a reset connection.
SILENT_S, KILLED_S = 5.0, 2.0


class Losses(NetnsTest):
    """Losses of nodes other than the one with the endpoint."""

    def form(self, n, nodes, *flags, start=None):
        self.make(n)
        for i in range(1, n + 1):
            (start or self.c10d)(i, nodes, *flags)
        self.jobs_by_node = {job.node: job for job in self.jobs}
        return self.world(0, n, n)

    def assert_survivors(self, what, began, at, nodes, promise_s):
        starts = self.world(at, nodes, nodes)
        seconds = max(s.at for s in starts) - began
        self.say_seconds(what, seconds)
        self.assertLess(seconds, within(promise_s, 5), self.all_errors())
        self.assertEqual({s.restart for s in starts}, {0}, "a lost node costs no restart")
        return starts

    def lose_by_silence(self, i):
        began = time.time()
        self.cluster.cut(i)
        self.power_off(self.jobs_by_node[i])
        return began

    def lose_by_kill(self, i):
        began = time.time()
        self.power_off(self.jobs_by_node[i])
        return began

    @long
    def test_survivors_go_on_without_a_silent_node(self):
        self.form(4, "2:4")
        began = self.lose_by_silence(3)
        starts = self.assert_survivors("3 survivors of a node cut off and killed", began, 4, 3, SILENT_S)
        self.assertEqual({s.node: s.rank for s in starts}, {"node1": 0, "node2": 1, "node4": 2})
        self.finish()
        for job in self.jobs:
            self.assertIn("node3", job.stderr())

    @long
    def test_survivors_go_on_without_a_killed_node(self):
        self.form(4, "2:4")
        began = self.lose_by_kill(2)
        starts = self.assert_survivors("3 survivors of a killed node", began, 4, 3, KILLED_S)
        self.assertEqual({s.node: s.rank for s in starts}, {"node1": 0, "node3": 2, "node4": 1})
        self.finish()

    def test_two_losses_and_a_late_node_cost_no_restart(self):
        self.form(4, "1:4")
        self.assert_survivors("after silence", self.lose_by_silence(4), 4, 3, SILENT_S)
        self.assert_survivors("after a kill", self.lose_by_kill(2), 7, 2, KILLED_S)
        self.cluster.heal(4)
        began = time.time()
        self.c10d(4, "1:4")
        self.assert_survivors("a late node and those that waited for it", began, 9, 3, KILLED_S)
        self.finish()

    def test_a_spare_takes_a_silent_nodes_place(self):
        self.make(3)
        self.jobs_by_node = {i: self.c10d(i, 2, "--spares", 1) for i in (1, 2)}
        self.world(0, 2, 2)
        self.said(self.c10d(3, 2, "--spares", 1), "spare")
        starts = self.assert_survivors("a spare in a silent node's place", self.lose_by_silence(2), 2, 2, SILENT_S)
        self.assertEqual({s.node: s.rank for s in starts}, {"node1": 0, "node3": 1})
        self.finish()

    def test_a_static_job_ends_if_a_node_falls_silent(self):
        self.form(3, 3, "--lease", 3, start=self.static)
        began = self.lose_by_silence(3)
        for job in list(self.jobs):
            self.assert_exit(job, 122)
            self.assertIn("node3 (node rank 2)", job.stderr())
        self.say_seconds("a static job's verdict on a silent node", time.time() - began)

    @long
    def test_a_node_that_is_killed_comes_back_with_the_same_command(self):
        self.form(3, "2:3")
        began = self.lose_by_kill(3)
        self.c10d(3, "2:3")
        self.wait_starts(3 + 3)
        self.say_seconds("from the kill to all three again", max(s.at for s in self.whole_world(3)) - began)
        self.finish()


class Flaps(NetnsTest):
    """Links that are down for a while, in a job that needs all of its nodes."""

    def form(self, n, *flags):
        self.make(n)
        jobs = [self.c10d(i, n, *flags) for i in range(1, n + 1)]
        self.world(0, n, n)
        return jobs

    def flap(self, jobs, cut, seconds):
        began = time.monotonic()
        self.cluster.cut(cut)
        pause(seconds, "the link is down")
        self.cluster.heal(cut)
        self.said(jobs[0], "is back after")
        self.say_seconds(f"a link that is down for {seconds} s is back", time.monotonic() - began)

    def test_a_link_that_is_down_for_4_s_is_a_notice(self):
        jobs = self.form(2)
        self.flap(jobs, 2, 4)
        self.assertIn("no sign of node2 (node rank 1) for 3 s; waiting up to 15 s", jobs[0].stderr())
        self.assertRegex(jobs[1].stderr(), r"no sign of the host of the job at node1:29400 for \d s .*; waiting up to 15 s")
        self.finish()
        self.assertEqual(len(self.starts()), 2, self.all_errors())

    @long
    def test_links_that_are_down_for_seconds_cost_no_round(self):
        jobs = self.form(3)
        for cut, seconds in ((2, 1), (1, 6), (3, 12), (1, 12)):
            with self.subTest(cut=cut, seconds=seconds):
                began = len(jobs[0].stderr())
                self.cluster.cut(cut)
                pause(seconds, "the link is down")
                self.cluster.heal(cut)
                if seconds > 3:
                    wait_for(lambda: "is back after" in jobs[0].stderr()[began:], "it is back")
                self.no_new_round(4)
        self.finish()
        self.assertEqual(len(self.starts()), 3, self.all_errors())

    def test_a_middlebox_that_forgets_everything_costs_no_round(self):
        jobs = self.form(2)
        box = self.cluster.forward_idle_drop(2, 2.0)
        self.assertTrue(box.wait_for_drop())
        self.said(jobs[0], "is back after")
        self.finish()
        self.assertEqual(len(self.starts()), 2, self.all_errors())

    def test_a_link_that_is_cut_as_the_workers_end_costs_nothing(self):
        jobs = self.form(2)
        self.cluster.cut(2)
        self.order("done")
        self.said(jobs[0], "no sign of node2")
        self.cluster.heal(2)
        for job in jobs:
            self.assert_exit(job, 0)

    def test_nodes_whose_workers_have_exited_with_0_end_well_without_each_other(self):
        jobs = self.form(2, "--lease", 2)
        self.cluster.cut(2)
        self.end_well(*jobs)
        self.assertIn("all workers of the other nodes have exited with 0", jobs[0].stderr())
        self.assertIn("all workers of this node have exited with 0", jobs[1].stderr())

    def test_a_node_that_dies_as_it_joins_is_not_counted(self):
        self.make(3)
        first, dead = (self.c10d(i, 3) for i in (1, 3))
        self.said(first, "2 of 3 nodes")
        self.cluster.cut(3)
        self.power_off(dead)
        self.c10d(2, 3)
        self.said(first, "here: node1, node2")
        self.cluster.heal(3)
        self.c10d(3, 3)
        self.whole_world(3)
        self.finish()

    def test_a_node_that_returns_at_once_takes_its_own_place(self):
        jobs = self.form(3)
        self.power_off(jobs[2])
        self.c10d(3, 3)
        self.world(3, 3, 3)
        self.finish()


class Partitions(NetnsTest):
    def form(self, n, nodes, *flags):
        self.make(n)
        for i in range(1, n + 1):
            self.c10d(i, nodes, *flags)
        return self.world(0, n, n)

    def assert_stopped_before(self, old, new, what):
        """Checks that no old worker is alive on a node that has started a new one."""
        nodes = {s.node for s in new}
        left = [s for s in old if s.node in nodes and not is_gone(s.pid)]
        self.assertEqual(left, [], what)

    def test_a_cut_node_stops_its_own_workers_and_comes_back_when_healed(self):
        old = self.form(3, "2:3")
        began = time.time()
        self.cluster.cut(3)
        new = self.world(3, 2, 2)
        self.say_seconds("the others without the cut node", max(s.at for s in new) - began)
        self.assertLess(max(s.at for s in new) - began, within(SILENT_S, 5))
        self.workers_gone([s for s in old if s.node == "node3"])
        self.say_seconds("the cut node's own workers are gone", time.time() - began)
        self.assertLess(time.time() - began, within(SILENT_S, 5))
        self.assert_stopped_before(old, new, "the first generation")
        healed = time.time()
        self.cluster.heal(3)
        last = self.whole_world(3)
        self.say_seconds("all three after healing", max(s.at for s in last) - healed)
        self.finish()

    def test_a_short_cut_changes_nothing(self):
        self.form(3, "2:3")
        self.cluster.cut(3)
        pause(1.0, "a third of the lease")
        self.cluster.heal(3)
        self.no_new_round(5.0)  # Two leases with the cut: long enough for any consequence.
        self.finish()

    def test_a_cut_host_goes_on_alone_until_it_is_healed(self):
        old = self.form(3, "1:3")
        began = time.time()
        self.cluster.cut(1)
        alone = self.world(3, 1, 1)
        self.assertEqual(alone[0].node, "node1")
        self.say_seconds("the cut host goes on alone", alone[0].at - began)
        self.workers_gone(old)
        self.say_seconds("all old workers are gone", time.time() - began)
        self.assertLess(time.time() - began, within(SILENT_S, 5))
        healed = time.time()
        self.cluster.heal(1)
        last = self.whole_world(3)
        self.say_seconds("all three after healing", max(s.at for s in last) - healed)
        self.finish()

    def test_a_cut_host_says_that_it_lost_its_own_network(self):
        self.form(3, "2:3")
        self.cluster.cut(1)
        self.said(self.jobs[0], "this node lost its network: no sign of any other node for 3 s")
        self.cluster.heal(1)
        self.wait_starts(6)
        self.whole_world(3)
        self.assertNotIn("was lost", self.all_errors())
        self.finish()

    @long
    def test_a_cut_host_ends_a_job_that_needs_all_nodes(self):
        self.form(3, 3, "--lease", 3, "--rdzv-conf", "join_timeout=8")
        began = time.time()
        self.cluster.cut(1)
        for job in self.jobs:
            self.assert_exit(job, 122)
        self.say_seconds("all have ended", time.time() - began)
        self.assertIn("the host of the job lost its network, or all other nodes theirs", self.jobs[0].stderr())
        for job in self.jobs[1:]:
            self.assertIn("node1:29400", job.stderr())

    def test_a_cut_node_ends_at_once_on_sigterm(self):
        self.form(3, "2:3", "--lease", 10)
        self.cluster.cut(3)
        began = time.time()
        self.jobs[2].signal(signal.SIGTERM)
        self.assert_exit(self.jobs[2], 143)
        self.say_seconds("a cut node's own end", time.time() - began)
        self.assertLess(time.time() - began, within(1, below=10), "it does not wait for the lease")
        self.world(3, 2, 2)
        self.finish(self.jobs[:2])

    def test_a_node_that_falls_silent_while_the_nodes_meet_is_not_waited_for(self):
        self.make(4)
        jobs = [self.c10d(i, "3:4", "--rdzv-conf", "last_call_timeout=6") for i in (1, 2)]
        self.said(jobs[0], "2 of 4 nodes")
        self.cluster.cut(2)
        self.said(jobs[0], "1 of 4 nodes")
        jobs += [self.c10d(i, "3:4") for i in (3, 4)]
        starts = self.world(0, 3, 3)
        self.assertEqual({s.node for s in starts}, {"node1", "node3", "node4"})
        self.cluster.heal(2)
        self.whole_world(4)
        self.finish()

    @long
    def test_a_cut_node_that_returns_after_the_jobs_end_does_not_wait_for_ever(self):
        self.form(3, "2:3", "--rdzv-conf", "join_timeout=6")
        self.cluster.cut(3)
        self.world(3, 2, 2)
        self.finish(self.jobs[:2])
        self.cluster.heal(3)
        self.assert_exit(self.jobs[2], 122)
        self.assertIn("node1:29400", self.jobs[2].stderr())

    def one_way(self, sender, receiver):
        old = self.form(3, "2:3")
        began = time.time()
        self.cluster.drop(sender, receiver)
        new = self.world(3, 2, 2)
        self.assertEqual({s.node for s in new}, {"node1", "node2"})
        self.say_seconds(f"survivors when {sender} is not heard by {receiver}", max(s.at for s in new) - began)
        self.assertLess(max(s.at for s in new) - began, within(2 * SILENT_S, 5), self.all_errors())
        self.workers_gone(old)
        self.say_seconds("all old workers are gone", time.time() - began)
        healed = time.time()
        self.cluster.undrop(sender, receiver)
        last = self.whole_world(3)
        self.say_seconds("all three after healing", max(s.at for s in last) - healed)
        self.finish()

    def test_the_others_go_on_without_a_node_that_is_not_heard(self):
        self.one_way(3, 1)

    @long
    def test_the_others_go_on_without_a_node_that_hears_nothing(self):
        self.one_way(1, 3)

    @long
    def test_nodes_that_reach_the_host_but_not_each_other_keep_their_round(self):
        self.form(3, "2:3")
        self.cluster.drop(2, 3)
        self.cluster.drop(3, 2)
        self.no_new_round(6.0)  # Two leases.
        self.finish()


class TheHost(NetnsTest):
    def host_returns(self, start, cut):
        self.make(3)
        jobs = [start(i) for i in (1, 2, 3)]
        first = self.world(0, 3, 3)
        if cut:
            self.cluster.cut(1)
        self.power_off(jobs[0])
        self.workers_gone(first)
        if cut:
            self.cluster.heal(1)
        began = time.time()
        start(1)
        again = self.world(3, 3, 3)
        self.say_seconds("from the host's new start to the world", max(s.at for s in again) - began)
        self.assertEqual({s.node: s.rank for s in again}, {"node1": 0, "node2": 1, "node3": 2})
        self.assertEqual({s.restart for s in again}, {0})
        self.finish()

    def test_a_killed_host_returns_with_the_same_command(self):
        self.host_returns(lambda i: self.c10d(i, 3), cut=False)

    @long
    def test_a_killed_host_of_an_elastic_job_returns(self):
        self.host_returns(lambda i: self.c10d(i, "2:3"), cut=False)

    @long
    def test_a_killed_static_host_returns(self):
        self.host_returns(lambda i: self.static(i, 3), cut=False)

    @long
    def test_a_silent_host_returns(self):
        self.host_returns(lambda i: self.c10d(i, 3), cut=True)

    @long
    def test_a_killed_host_whose_name_means_loopback_at_home_returns(self):
        def start(i):
            self.cluster.own_name_is_loopback(1)
            return self.c10d(i, 3)
        self.host_returns(start, cut=False)

    def test_a_host_that_does_not_return_is_named(self):
        self.make(2)
        jobs = [self.c10d(i, 2, "--rdzv-conf", "join_timeout=5") for i in (1, 2)]
        self.world(0, 2, 2)
        self.power_off(jobs[0])
        self.assert_exit(jobs[1], 122)
        self.assertIn("node1:29400", jobs[1].stderr())


class Middleboxes(NetnsTest):
    @long
    def test_a_job_that_is_idle_for_longer_than_a_middlebox_remembers_keeps_its_world(self):
        self.make(3)
        self.cluster.forward_idle_drop(2, 2.0)
        for i in (1, 2, 3):
            self.c10d(i, 3)
        self.world(0, 3, 3)
        self.no_new_round(7.0)  # Three times what the box remembers: heartbeats keep the flow known.
        self.finish()

    def test_a_middlebox_that_forgets_everything_costs_a_round_and_no_node(self):
        """The box appears while the job runs: it knows none of the connections, as after a failover of firewalls."""
        self.make(3)
        for i in (1, 2, 3):
            self.c10d(i, "2:3")
        self.world(0, 3, 3)
        began = time.time()
        box = self.cluster.forward_idle_drop(2, 2.0)
        self.assertTrue(box.wait_for_drop())
        self.wait_starts(6)
        self.say_seconds("all three in a round again", max(s.at for s in self.whole_world(3)) - began)
        self.finish()


if __name__ == "__main__":
    main()
