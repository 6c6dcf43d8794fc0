#!/usr/bin/env python3
"""Nodes with networks of their own meet: names, families, interfaces, addresses, and real PyTorch on top."""
import os
import subprocess
import sys
import time

from claim_netns_test import FORWARD
from harness import long, wait_for
from netns_nodes import PORT, NetnsTest, main

TORCH = os.environ.get("MUSTER_TORCH_VENV", "")

ALL_REDUCE = """
import torch, torch.distributed as dist
dist.init_process_group("gloo")
total = torch.tensor([dist.get_rank() + 1])
dist.all_reduce(total)
print("sum", total.item(), "of", dist.get_world_size(), flush=True)
dist.destroy_process_group()
"""

# Reduces until rank 0 sees the order to end. The first reduction of a world leaves a file.
TRAINING = """
import os, torch, torch.distributed as dist
dist.init_process_group("gloo")
world = dist.get_world_size()
while True:
    done = torch.tensor([int(dist.get_rank() == 0 and os.path.exists("{folder}/do")), 1])
    dist.all_reduce(done)
    assert done[1].item() == world
    if dist.get_rank() == 0:
        open(f"{folder}/first.of.{{world}}", "w").close()
    if done[0].item():
        break
dist.destroy_process_group()
"""


class Forming(NetnsTest):
    def test_four_nodes_form_and_the_endpoints_host_is_first(self):
        self.make(4)
        began = time.time()
        for i in (4, 2, 1, 3):
            self.c10d(i, 4, "--nproc-per-node", 2, endpoint="node3")
        starts = self.world(0, 4, 8)
        self.say_seconds("4 nodes by c10d, from nothing", max(s.at for s in starts) - began)
        self.assertEqual({s.node: s.group_rank for s in starts}, {"node3": 0, "node1": 1, "node2": 2, "node4": 3})
        self.assertEqual({(s.master_addr, s.master_port) for s in starts}, {("10.99.0.3", PORT)})
        self.finish()

    def test_four_static_nodes_form_with_the_ranks_they_were_given(self):
        self.make(4)
        began = time.time()
        for i in (4, 2, 1, 3):
            self.static(i, 4)
        starts = self.world(0, 4, 4)
        self.say_seconds("4 static nodes, from nothing", max(s.at for s in starts) - began)
        self.assertEqual({s.node: s.rank for s in starts}, {f"node{i}": i - 1 for i in range(1, 5)})
        self.assertEqual({s.master_addr for s in starts}, {"node1"}, "as it was typed")
        self.finish()

    def test_the_host_says_once_that_there_is_no_token(self):
        self.make(2)
        for i in (1, 2):
            self.c10d(i, 2)
        self.world(0, 2, 2)
        self.finish()
        self.assertEqual([job.stderr().count("no job token") for job in self.jobs], [1, 0], self.all_errors())

    def test_worker_port_sets_the_masters_port(self):
        self.make(2)
        for i in (1, 2):
            self.c10d(i, 2, "--worker-port", 31000)
        self.assertEqual({s.master_port for s in self.world(0, 2, 2)}, {31000})
        self.finish()


class Families(NetnsTest):
    def ipv6_alone(self, start):
        self.make(3, ipv6=True)
        for i in (1, 2, 3):
            start(i)
        starts = self.world(0, 3, 3)
        self.finish()
        self.assertNotIn("warning", self.all_errors().lower())
        return {s.master_addr for s in starts}

    def test_nodes_meet_by_name_with_ipv6_alone(self):
        self.assertEqual(self.ipv6_alone(lambda i: self.c10d(i, 3)), {"fd99::1"})

    @long
    def test_nodes_meet_by_address_with_ipv6_alone(self):
        self.assertEqual(self.ipv6_alone(lambda i: self.c10d(i, 3, endpoint="[fd99::1]")), {"fd99::1"})

    @long
    def test_static_nodes_meet_by_name_with_ipv6_alone(self):
        self.assertEqual(self.ipv6_alone(lambda i: self.static(i, 3)), {"node1"})

    @long
    def test_static_nodes_meet_by_address_with_ipv6_alone(self):
        self.assertEqual(self.ipv6_alone(lambda i: self.static(i, 3, master="[fd99::1]")), {"fd99::1"})

    def test_each_node_needs_only_one_of_two_families(self):
        self.make(3, ipv6="both")
        self.cluster.set_names(2, [("10.99.0.1", "node1")])
        self.cluster.set_names(3, [("fd99::1", "node1")])
        for i in (1, 2, 3):
            self.c10d(i, 3)
        starts = self.wait_starts(3)
        self.assertEqual(sorted(s.rank for s in starts), [0, 1, 2])
        self.assertTrue(all(s.reached for s in starts), self.read("log"))
        masters = {s.node: s.master_addr for s in starts}
        self.assertEqual((masters["node2"], masters["node3"]), ("10.99.0.1", "fd99::1"), "each what it can reach")
        self.finish()


class Names(NetnsTest):
    def test_nodes_meet_without_resolvable_host_names(self):
        self.make(4)
        for i in range(1, 5):
            self.cluster.forget_names(i)
        began = time.time()
        for i in range(1, 5):
            self.c10d(i, 4, endpoint="10.99.0.1")
        starts = self.world(0, 4, 4)
        self.say_seconds("unresolvable names", max(s.at for s in starts) - began)
        self.assertEqual({s.node: s.rank for s in starts}, {f"node{i}": i - 1 for i in range(1, 5)})
        self.finish()
        for job in self.jobs:
            self.assertNotRegex(job.stderr(), "looked up|has no address")

    @long
    def test_static_nodes_meet_without_resolvable_host_names(self):
        self.make(2)
        for i in (1, 2):
            self.cluster.forget_names(i)
        for i in (1, 2):
            self.static(i, 2, master="10.99.0.1")
        self.assertEqual({s.master_addr for s in self.world(0, 2, 2)}, {"10.99.0.1"})
        self.finish()

    def test_nodes_meet_if_the_endpoints_name_means_loopback_at_home(self):
        self.make(4)
        self.cluster.own_name_is_loopback(1)
        for i in (1, 2, 3):
            self.c10d(i, 3)
        starts = self.world(0, 3, 3)
        self.assertEqual({s.node: s.rank for s in starts}, {"node1": 0, "node2": 1, "node3": 2})
        self.assertEqual({s.master_addr for s in starts}, {"10.99.0.1"}, "which all of them reach")
        self.assertEqual([self.ask_store(i, "10.99.0.1") for i in (2, 4)], ["echo", "refused"],
                         "it listens everywhere, and asks who comes")
        self.finish()

    def test_a_loopback_endpoint_is_named_in_the_first_line_of_waiting(self):
        self.make(4)
        for i in (1, 2):
            self.cluster.add_name(i, "head", "127.0.1.1")
            self.c10d(i, 2, "--start-timeout", 4, endpoint="head")
        self.cluster.own_name_is_loopback(3)
        meeting = [self.c10d(i, 3, endpoint="node3") for i in (3, 4)]
        for i, job in ((1, self.jobs[0]), (2, self.jobs[1])):
            self.assertIn(f"; head is 127.0.1.1 here, so nodes on other machines cannot reach this one by it: give all nodes "
                          f"an address that they share, such as 10.99.0.{i} if this one is to host; ", self.said(job, "1 of 2 nodes"))
        for job in meeting:
            self.assertIn("2 of 3 nodes; here: node3, node4; gives up in", self.said(job, "of 3 nodes"), "another has found it")
        for job in self.jobs[:2]:
            self.assert_exit(job, 122)

    def test_a_static_master_that_is_not_on_rank_0_is_named(self):
        self.make(1)
        job = self.static(1, 2, master="10.99.0.77")
        self.assertIn("MASTER_ADDR only if the network leads it here", self.said(job, "10.99.0.77 is no address of this machine"))

    @long
    def test_nodes_meet_if_every_own_name_means_loopback(self):
        self.make(3)
        for i in (1, 2, 3):
            self.cluster.own_name_is_loopback(i)
        for i in (3, 2, 1):
            self.c10d(i, 3, endpoint="node2")
        self.assertEqual({s.master_addr for s in self.world(0, 3, 3)}, {"10.99.0.2"})
        self.finish()

    @long
    def test_static_nodes_meet_if_the_masters_name_means_loopback_at_home(self):
        self.make(2)
        self.cluster.own_name_is_loopback(1)
        for i in (2, 1):
            self.static(i, 2)
        self.world(0, 2, 2)
        self.finish()

    def test_nodes_meet_through_a_service_address(self):
        """All connections through the front come from one address, which belongs to no node."""
        self.make(4)
        for i in (1, 2, 3):
            self.cluster.add_name(i, "service", "10.99.0.4")
        front = self.cluster.run(4, [sys.executable, "-c", FORWARD, "10.99.0.2", PORT], stdout=subprocess.PIPE,
                                 text=True)
        self.assertEqual(front.stdout.readline(), "ready\n")
        for i in (1, 2, 3):
            self.c10d(i, 3, endpoint="service")
        starts = self.world(0, 3, 3)
        self.assertEqual({s.node: s.rank for s in starts}, {"node2": 0, "node1": 1, "node3": 2})
        self.finish()

    def test_nodes_meet_once_the_endpoints_name_resolves(self):
        self.make(3)
        for i in (1, 2, 3):
            self.c10d(i, 3, endpoint="pod-0")
        for job in self.jobs:
            self.assertIn("pod-0", self.said(job, "waiting"))
        began = time.time()
        for i in (1, 2, 3):
            self.cluster.add_name(i, "pod-0", "10.99.0.1")
        starts = self.world(0, 3, 3)
        self.say_seconds("from the name's coming to the world", max(s.at for s in starts) - began)
        self.finish()

    @long
    def test_a_name_that_never_resolves_is_named_at_the_end(self):
        self.make(1)
        job = self.c10d(1, 2, "--rdzv-conf", "join_timeout=4", endpoint="pod-0")
        self.assert_exit(job, 122)
        self.assertIn("pod-0", job.stderr())


class Interfaces(NetnsTest):
    """eth1 reaches the peers, eth0 no node."""

    def two_nics(self, *flags, env=None):
        self.make(3, two_nics=True)
        for name, value in (env or {}).items():
            os.environ[name] = value
            self.addCleanup(os.environ.pop, name)
        for i in (1, 2, 3):
            self.c10d(i, 3, *flags)
        starts = self.world(0, 3, 3)
        self.finish()
        self.assertEqual({s.master_addr for s in starts}, {"10.99.0.1"})
        exported, = {(s.gloo, s.nccl) for s in starts}
        return exported

    def export_lines(self, job):
        return [line for line in job.stderr().splitlines() if "SOCKET_IFNAME" in line]

    def test_the_interface_that_reaches_the_peers_is_exported_and_said(self):
        self.assertEqual(self.two_nics(), ("eth1", "=eth1"))
        for job in self.jobs:
            line, = self.export_lines(job)
            self.assertIn("eth1", line)
            self.assertIn("eth0", line)

    def test_the_export_can_be_switched_off(self):
        self.assertEqual(self.two_nics("--no-iface-env"), ("unset", "unset"))
        self.assertEqual([self.export_lines(job) for job in self.jobs], [[], [], []])

    def test_the_users_own_value_is_kept(self):
        self.assertEqual(self.two_nics(env={"GLOO_SOCKET_IFNAME": "mine"}), ("mine", "=eth1"))

    def test_iface_names_the_interface(self):
        self.assertEqual(self.two_nics("--iface", "eth1"), ("eth1", "=eth1"))

    def test_an_interface_that_does_not_exist_is_named(self):
        self.make(1, two_nics=True)
        job = self.c10d(1, 2, "--iface", "eth7")
        self.assert_exit(job, 2)
        self.assertIn("eth7", job.stderr())

    def test_nothing_is_exported_with_one_nic(self):
        self.make(2)
        for i in (1, 2):
            self.c10d(i, 2)
        self.assertEqual({(s.gloo, s.nccl) for s in self.world(0, 2, 2)}, {("unset", "unset")})
        self.finish()


class ByAFile(NetnsTest):
    """The file is on a file system that all nodes share; the address in it has to be reachable over the network."""

    def meet(self, i, nodes, *flags):
        return self.start(i, "--nnodes", nodes, "--rdzv-backend", "file", "--rdzv-endpoint", self.path("meet"),
                          "--rdzv-id", "job", *flags)

    def form(self, **cluster):
        self.make(3, **cluster)
        for i in (1, 2, 3):
            self.meet(i, 3)
        starts = self.world(0, 3, 3)
        self.finish()
        return starts

    def test_nodes_meet(self):
        self.assertTrue({s.master_addr for s in self.form()} < {"10.99.0.1", "10.99.0.2", "10.99.0.3"})

    def test_nodes_meet_with_ipv6_alone(self):
        self.assertTrue({s.master_addr for s in self.form(ipv6=True)} < {"fd99::1", "fd99::2", "fd99::3"})

    def test_nodes_find_the_nic_that_reaches_the_peers(self):
        starts = self.form(two_nics=True)
        self.assertTrue({s.master_addr for s in starts} < {"10.99.0.1", "10.99.0.2", "10.99.0.3"})
        self.assertEqual({(s.gloo, s.nccl) for s in starts}, {("eth1", "=eth1")})

    def test_a_host_that_died_silently_is_replaced(self):
        self.make(3)
        flags = ("2:3", "--rdzv-conf", "last_call_timeout=1")
        jobs = [self.meet(1, *flags)]
        wait_for(lambda: self.exists("meet"), "the first node is the host")
        jobs += [self.meet(i, *flags) for i in (2, 3)]
        self.world(0, 3, 3)
        began = time.time()
        self.cluster.cut(1)
        self.power_off(jobs[0])
        starts = self.wait_starts(5)[3:]
        self.say_seconds("a new host by the file", max(s.at for s in starts) - began)
        self.assertEqual({s.node for s in starts}, {"node2", "node3"})
        self.finish()


class TheStore(NetnsTest):
    def ask(self, i):
        return self.ask_store(i, "10.99.0.1")

    def test_the_store_refuses_an_address_outside_the_round_and_says_so_once(self):
        self.make(4)
        jobs = [self.c10d(i, 3) for i in (1, 2, 3)]
        self.world(0, 3, 3)
        self.assertEqual([self.ask(i) for i in (4, 4, 2, 4)], ["refused", "refused", "echo", "refused"])
        line = self.said(jobs[0], "refused a connection from 10.99.0.4")
        for i in (1, 2, 3):
            self.assertIn(f"10.99.0.{i}", line)
        self.assertIn("--store-allow", line)
        self.finish()
        self.assertEqual(self.all_errors().count("refused a connection"), 1)

    def test_the_host_listens_at_the_endpoints_address_alone(self):
        self.make(2)
        for i in (1, 2):
            self.c10d(i, 2)
        self.world(0, 2, 2)
        listening = [line.split()[3] for line in self.cluster.output(1, ["ss", "-Hltn"]).splitlines()]
        self.assertEqual(listening, [f"10.99.0.1:{PORT}"])
        self.assertEqual(self.cluster.output(2, ["ss", "-Hltn"]), "", "only the host listens")
        self.finish()

    def test_store_allow_admits_an_address(self):
        self.make(4)
        jobs = [self.c10d(i, 2, "--store-allow", "10.99.0.4/32") for i in (1, 2)]
        self.world(0, 2, 2)
        self.assertEqual([self.ask(i) for i in (4, 3)], ["echo", "refused"])
        self.finish()
        self.assertIn("refused a connection from 10.99.0.3", jobs[0].stderr())

    @long
    def test_store_allow_any_admits_every_address(self):
        self.make(3)
        for i in (1, 2):
            self.c10d(i, 2, "--store-allow", "any")
        self.world(0, 2, 2)
        self.assertEqual(self.ask(3), "echo")
        self.finish()


class RealTorch(NetnsTest):
    def own_names(self):
        pass  # Keeps the names.

    def torch_program(self, text):
        python = os.path.join(TORCH, "bin", "python")
        if not os.access(python, os.X_OK):
            self.skipTest("no PyTorch: set MUSTER_TORCH_VENV to a virtual environment that has it")
        return ["--python", python, self.write(f"t-{self.marker}.py", text)]

    def sums(self, start, **cluster):
        program = self.torch_program(ALL_REDUCE)
        self.make(2, **cluster)
        self.own_names()
        jobs = [start(i, program) for i in (1, 2)]
        for job in jobs:
            self.assert_exit(job, 0, 240)
        return [line for job in jobs for line in sorted(job.stdout().splitlines())]

    @long
    def test_gloo_reduces_over_two_nodes(self):
        self.assertEqual(self.sums(lambda i, p: self.c10d(i, 2, "--nproc-per-node", 2, program=p)), ["sum 10 of 4"] * 4)

    @long
    def test_gloo_reduces_over_static_nodes_with_ipv6_alone(self):
        self.assertEqual(self.sums(lambda i, p: self.static(i, 2, program=p), ipv6=True), ["sum 3 of 2"] * 2)

    @long
    def test_gloo_reduces_if_own_names_mean_loopback(self):
        self.own_names = self.cluster_names_mean_loopback
        self.assertEqual(self.sums(lambda i, p: self.c10d(i, 2, program=p)), ["sum 3 of 2"] * 2)

    @long
    def test_gloo_reduces_if_own_names_do_not_resolve(self):
        self.own_names = self.cluster_names_mean_nothing
        self.assertEqual(self.sums(lambda i, p: self.c10d(i, 2, endpoint="10.99.0.1", program=p)), ["sum 3 of 2"] * 2)

    def cluster_names_mean_loopback(self):
        for i in (1, 2):
            self.cluster.own_name_is_loopback(i)

    def cluster_names_mean_nothing(self):
        for i in (1, 2):
            self.cluster.forget_names(i)

    def test_gloo_takes_the_interface_that_reaches_the_peers(self):
        self.assertEqual(self.sums(lambda i, p: self.c10d(i, 2, program=p), two_nics=True), ["sum 3 of 2"] * 2)

    def test_training_goes_on_when_a_node_falls_silent_amid_all_reduce(self):
        program = self.torch_program(TRAINING.format(folder=self.folder.name))
        self.make(3)
        jobs = [self.c10d(i, "2:3", program=program) for i in (1, 2, 3)]
        wait_for(lambda: self.exists("first.of.3"), "three ranks have reduced", 240)
        began = time.time()
        self.cluster.cut(3)
        self.power_off(jobs[2])
        wait_for(lambda: self.exists("first.of.2"), "two ranks have reduced", 240)
        self.say_seconds("from the loss to the first all_reduce of two, Python's imports included", time.time() - began)
        self.order("done")
        for job in jobs[:2]:
            self.assert_exit(job, 0, 240)


if __name__ == "__main__":
    main()
