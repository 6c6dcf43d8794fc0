#!/usr/bin/env python3
"""Jobs that meet through a real etcd, each node in a network namespace: hosts that die or are cut off, an etcd without a
leader or a quorum, latecomers. The members of etcd share the nodes' namespaces or have their own.

COUNT=N: how many hosts one job loses and replaces (default 3). OUTAGE=S: how long etcd has no quorum (default 8)."""
import json
import os
import signal
import tempfile
import time

import etcd
import netns_nodes
from harness import long, wait_for, within
from netns_nodes import NetnsTest

COUNT = int(os.environ.get("COUNT", "3"))
OUTAGE_S = float(os.environ.get("OUTAGE", "8"))
CLIENTS, PEERS = 2379, 2380


class NodesEtcd(etcd.Etcd):
    """One member on each of the given nodes of a cluster."""

    def __init__(self, folder, cluster, nodes):
        self.cluster, self.nodes, self.asked_from = cluster, nodes, nodes[-1]
        super().__init__(folder, members=len(nodes))

    def client(self, i):
        return f"{self.cluster.address(self.nodes[i])}:{CLIENTS}"

    def peer(self, i):
        return f"http://{self.cluster.address(self.nodes[i])}:{PEERS}"

    def spawn(self, i, command, **popen):
        return self.cluster.run(self.nodes[i], command, **popen)

    def run_ctl(self, command, **popen):
        return self.cluster.run(self.asked_from, command, **popen)


class EtcdNodes(NetnsTest):
    def up(self, nodes, members):
        cluster = self.make(nodes)
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.etcd = NodesEtcd(folder.name, cluster, members)
        self.etcd.__enter__()
        self.addCleanup(self.etcd.__exit__)

    def join(self, i, nodes="3:4", *flags, **options):
        return self.start(i, "--nnodes", nodes, "--rdzv-backend", "etcd", "--rdzv-endpoint", self.etcd.endpoint, "--rdzv-id",
                          "job", *flags, **options)

    def record(self, name):
        """The lines of etcd's key /muster/job/NAME as a dictionary; None: there is no such key."""
        out = self.etcd.check_ctl("get", f"/muster/job/{name}", "-w", "json")
        entries = json.loads(out).get("kvs", [])
        if not entries:
            return None
        text = self.etcd.check_ctl("get", f"/muster/job/{name}", "--print-value-only")
        return dict(line.split(" ", 1) for line in text.splitlines() if " " in line)

    def job_record(self):
        return {key: int(value) for key, value in self.record("job").items() if key in ("epoch", "restarts", "changes")}

    def four(self, first=1, *flags):
        """Starts a job of four nodes whose host is node `first`; returns its workers."""
        self.join(first, "3:4", *flags)
        wait_for(lambda: self.record("host"), "the first node is the host")
        for i in (i for i in (1, 2, 3, 4) if i != first):
            self.join(i, "3:4", *flags)
        return self.world(0, 4, 4)

    def kill(self, job):
        self.kill_node(job)
        self.forget(job)

    def forget(self, job):
        self.jobs.remove(job)
        job.__exit__()

    def job_on(self, node):
        return next(job for job in self.jobs if job.node == node)

    def fail_a_worker(self, starts, rank):
        os.kill(next(s.pid for s in starts if s.rank == rank), signal.SIGKILL)

    def cut_off(self, node):
        self.cluster.cut(node)
        return time.time()

    def survivors(self, at, since, what, promise_s):
        """The workers of the survivors' new round; prints when the last started, in seconds since `since`."""
        starts = self.world(at, 3, 3, limit_s=within(promise_s))
        self.say_seconds(what, max(s.at for s in starts) - since)
        return starts

    def all_end(self, code):
        for job in list(self.jobs):
            self.assert_exit(job, code)
            self.forget(job)

    # ---- lost hosts

    def test_a_host_whose_processes_die_is_replaced(self):
        self.up(7, [5, 6, 7])
        before = self.four()
        since = time.time()
        self.kill(self.job_on(1))
        after = self.survivors(4, since, "the host was killed", 2)
        self.assertNotIn("node1", {s.node for s in after})
        ranks = {s.node: s.rank for s in before if s.rank < 3}
        self.assertEqual({s.node: s.rank for s in after if s.node in ranks}, {n: r for n, r in ranks.items() if n != "node1"})
        self.assertEqual(self.job_record(), {"epoch": 2, "restarts": 0, "changes": 1})
        self.finish()

    def test_a_host_that_is_cut_off_is_replaced_and_stops_its_workers(self):
        self.up(7, [5, 6, 7])
        before = self.four()
        since = self.cut_off(1)
        self.survivors(4, since, "the host was cut off", 6)
        self.workers_gone([s for s in before if s.node == "node1"])
        self.cluster.heal(1)
        self.whole_world(4)  # The old host returns as a member.
        self.finish()

    @long
    def test_a_host_that_is_cut_off_with_etcds_leader_is_replaced(self):
        self.up(4, [1, 2, 3])
        host = 1 + self.etcd.leader()
        self.four(host)
        self.etcd.make_leader(host - 1)  # The leader may have moved.
        self.etcd.asked_from = next(i for i in (1, 2, 3) if i != host)
        since = self.cut_off(host)
        self.survivors(4, since, "the host was cut off with etcd's leader", 10)
        self.cluster.heal(host)
        self.whole_world(4)
        self.finish()

    @long
    def test_any_number_of_hosts_may_be_lost_and_replaced(self):
        """Starts a new node for each lost host until the budget of membership changes is spent."""
        self.up(7, [5, 6, 7])
        self.four(1, "--max-membership-changes", 2 * COUNT)
        at = 4
        for i in range(COUNT):
            host = int(self.record("host")["host"][4:])
            before = {s.node: s.rank for s in self.starts()[-4:]}
            self.kill(self.job_on(host))
            after = self.world(at, 3, 3)
            at += 3
            self.assertEqual({s.node: s.rank for s in after if before[s.node] < 3},
                             {node: rank for node, rank in before.items() if rank < 3 and node != f"node{host}"})
            self.join(host, "3:4", "--max-membership-changes", 2 * COUNT)
            self.world(at, 4, 4)
            at += 4
            self.assertEqual(self.job_record(), {"epoch": 2 * i + 3, "restarts": 0, "changes": 2 * i + 2})
        self.kill(self.job_on(int(self.record("host")["host"][4:])))
        for job in list(self.jobs):
            self.assert_exit(job, 122)
            self.assertIn(f"the budget of {2 * COUNT} membership changes is spent", job.stderr())

    def test_a_job_goes_on_after_all_of_its_nodes_were_killed(self):
        self.up(5, [5])
        self.four()
        for job in list(self.jobs):
            self.kill(job)
        for i in (2, 1, 4, 3):
            self.join(i)
        self.world(4, 4, 4)
        self.assertEqual(self.job_record(), {"epoch": 2, "restarts": 0, "changes": 1})
        self.finish()

    # ---- a lost etcd

    def test_a_round_survives_etcds_leader_and_a_failure_waits_for_a_quorum(self):
        self.up(7, [5, 6, 7])
        starts = self.four(1, "--max-restarts", 2)
        leader = self.etcd.leader()
        self.etcd.kill(leader)
        self.fail_a_worker(starts, 2)
        starts = self.world(4, 4, 4)
        self.etcd.start(leader)
        others = [i for i in range(3) if i != leader]
        for i in others:  # One member of three is no quorum.
            self.etcd.stop(i)
        self.no_new_round(OUTAGE_S)
        self.fail_a_worker(starts, 1)
        self.no_new_round(2)
        for i in others:
            self.etcd.go_on(i)
        wait_for(self.etcd.takes_changes, "etcd takes changes")
        since = time.time()
        starts = self.world(8, 4, 4, limit_s=60)
        self.say_seconds("after the quorum's return", max(s.at for s in starts) - since)
        self.assertEqual(self.job_record(), {"epoch": 3, "restarts": 2, "changes": 0})
        self.finish()

    def test_a_host_that_has_lost_etcd_keeps_its_round(self):
        """Patroni's failsafe rule: the host's lease has expired, but all members are connected."""
        self.up(5, [5])
        self.four()
        self.etcd.kill(0)
        self.said(self.job_on(1), "no new round can form until it answers again")
        self.assertEqual(len(self.starts()), 4)
        self.etcd.start(0)
        self.said(self.job_on(1), "answers again")
        wait_for(lambda: self.record("host"), "the host has its record again")
        self.assertEqual(len(self.starts()), 4)
        self.finish()

    # ---- the end

    def test_a_latecomer_learns_how_the_job_ended(self):
        self.up(5, [5])
        for i in (1, 2):
            self.join(i, 2)
        self.world(0, 2, 2)
        self.order("done")
        self.all_end(0)
        late = self.join(3, 2)
        self.assert_exit(late, 0)
        self.assertIn("is over: all workers of all nodes succeeded", late.stderr())
        self.assertIsNone(self.record("host"))

    @long
    def test_a_failed_job_frees_its_id_after_a_lease(self):
        self.up(5, [5])
        for i in (1, 2):
            self.join(i, 2)
        self.fail_a_worker(self.world(0, 2, 2), 1)
        self.all_end(137)
        wait_for(lambda: self.record("job") is None, "the failed job is forgotten")
        for i in (1, 2):
            self.join(i, 2)
        self.world(2, 2, 2)
        self.finish()

    # ---- an etcd that cannot be used

    def test_an_etcd_that_cannot_be_used_costs_one_line(self):
        self.up(2, [1])
        other = self.start(2, "--nnodes", 2, "--rdzv-backend", "etcd", "--rdzv-endpoint", f"https://{self.etcd.endpoint}", "--rdzv-id", "x")
        self.assert_exit(other, 121)
        self.assertEqual(len(other.stderr().splitlines()), 1, other.stderr())
        nothing = self.start(2, "--nnodes", 2, "--rdzv-backend", "etcd", "--rdzv-endpoint", "node1:1", "--rdzv-id", "x",
                             "--start-timeout", 4)
        self.assert_exit(nothing, 122)
        self.assertIn("node1:1: it refused the connection; check that most members of etcd run", nothing.stderr())


if __name__ == "__main__":
    etcd.require_etcd()
    netns_nodes.main()
