#!/usr/bin/env python3
"""Elections for the endpoint between nodes in network namespaces: exactly one becomes the host, whatever the endpoint's name
resolves to on each node. $CLAIM_HOST names the program that plays one node (fakes/claim_host.cc)."""
import json
import os
import subprocess
import sys
import textwrap
import unittest

import netns

CLAIM_HOST = os.environ.get("CLAIM_HOST", "")
PORT = 29500

# Forwards each connection to another address, like a service in front of a pod.
FORWARD = textwrap.dedent("""
    import socket, sys, threading
    listener = socket.create_server(("0.0.0.0", int(sys.argv[2])))
    print("ready", flush=True)
    def pump(a, b):
        try:
            while data := a.recv(65536):
                b.sendall(data)
            b.shutdown(socket.SHUT_WR)
        except OSError:
            pass  # one end is gone
    while True:
        a, _ = listener.accept()
        try:
            b = socket.create_connection((sys.argv[1], int(sys.argv[2])))
        except OSError:
            a.close()
            continue
        for pair in ((a, b), (b, a)):
            threading.Thread(target=pump, args=pair, daemon=True).start()
    """)


def claim(cluster, i, endpoint, limit_ms=3000):
    """The outcome of node i's claim; a host keeps running."""
    process = cluster.run(i, [CLAIM_HOST, endpoint, PORT, limit_ms], stdout=subprocess.PIPE, text=True)
    return json.loads(process.stdout.readline())


class ClaimTest(unittest.TestCase):
    def assert_lost_to_an_agent(self, outcome):
        self.assertEqual((outcome["host"], outcome.get("why")), (False, "somebody_else"), outcome)
        self.assertIn("another agent listens there", outcome["message"])

    def test_only_the_named_node_is_the_host(self):
        with netns.Cluster(4) as cluster:
            early = claim(cluster, 1, "node2")
            self.assertEqual((early["host"], early["why"]), (False, "unreachable"))
            self.assertIn("10.99.0.2:29500 Connection refused", early["message"])
            host = claim(cluster, 2, "node2")
            print("decided in", host.pop("us"), "us", file=sys.stderr)
            self.assertEqual(host, {"host": True, "reached": "10.99.0.2:29500", "bound": "10.99.0.2:29500",
                                    "everywhere": False})
            for i in (1, 3, 4):
                self.assert_lost_to_an_agent(claim(cluster, i, "node2"))

    def test_simultaneous_claims_elect_one_host(self):
        with netns.Cluster(6) as cluster:
            processes = [cluster.run(i, [CLAIM_HOST, "node3", PORT, 3000], stdout=subprocess.PIPE, text=True)
                         for i in range(1, 7)]
            outcomes = [json.loads(process.stdout.readline()) for process in processes]
            self.assertEqual([outcome["host"] for outcome in outcomes], [i == 3 for i in range(1, 7)], outcomes)

    def test_a_host_whose_own_name_means_loopback_listens_everywhere(self):
        with netns.Cluster(3) as cluster:
            cluster.own_name_is_loopback(1)
            host = claim(cluster, 1, "node1")
            self.assertEqual((host["host"], host["everywhere"], host["reached"]), (True, True, "127.0.1.1:29500"))
            for i in (2, 3):
                self.assert_lost_to_an_agent(claim(cluster, i, "node1"))

    def test_the_node_behind_a_forwarding_address_is_the_host(self):
        with netns.Cluster(3) as cluster:
            for i in (1, 2):
                cluster.add_name(i, "service", cluster.address(3))
            front = cluster.run(3, [sys.executable, "-c", FORWARD, cluster.address(1), PORT], stdout=subprocess.PIPE,
                                text=True)
            self.assertEqual(front.stdout.readline(), "ready\n")
            # The service leads to node 1, where nothing listens yet, so node 2 does not reach itself.
            other = claim(cluster, 2, "service")
            self.assertEqual((other["host"], other["why"]), (False, "somebody_else"))
            host = claim(cluster, 1, "service")
            self.assertEqual((host["host"], host["everywhere"], host["reached"]), (True, True, "10.99.0.3:29500"))
            self.assert_lost_to_an_agent(claim(cluster, 2, "service"))

    def test_ipv6_alone_elects_a_host(self):
        with netns.Cluster(3, ipv6=True) as cluster:
            host = claim(cluster, 1, "node1")
            self.assertEqual((host["host"], host["reached"], host["everywhere"]), (True, "[fd99::1]:29500", False))
            for i in (2, 3):
                self.assert_lost_to_an_agent(claim(cluster, i, "node1"))

    def test_a_link_local_address_with_its_interface_elects_a_host(self):
        with netns.Cluster(2, ipv6=True) as cluster:
            listed = cluster.output(1, ["ip", "-6", "-o", "addr", "show", "dev", "eth0", "scope", "link"])
            address = listed.split()[3].split("/")[0] + "%eth0"
            host = claim(cluster, 1, address)
            self.assertEqual((host["host"], host["everywhere"]), (True, False), host)
            self.assert_lost_to_an_agent(claim(cluster, 2, address))

    def test_a_host_with_two_families_answers_by_either(self):
        with netns.Cluster(2, ipv6="both") as cluster:
            host = claim(cluster, 1, "node1")
            self.assertTrue(host["host"], host)
            for address in ("10.99.0.1", "fd99::1"):
                self.assert_lost_to_an_agent(claim(cluster, 2, address))

    def test_a_name_that_appears_later_elects_a_host(self):
        with netns.Cluster(2) as cluster:
            cluster.forget_names(1)
            early = claim(cluster, 1, "pod-0")
            self.assertEqual((early["host"], early["why"]), (False, "name_missing"))
            cluster.add_name(1, "pod-0", cluster.address(1))
            self.assertTrue(claim(cluster, 1, "pod-0")["host"])

    def test_a_second_agent_of_the_host_finds_the_port_taken(self):
        with netns.Cluster(1) as cluster:
            self.assertTrue(claim(cluster, 1, "node1")["host"])
            second = claim(cluster, 1, "node1")
            self.assertEqual((second["host"], second["why"]), (False, "port_taken"))

    def test_a_host_that_does_not_answer_is_unreachable(self):
        with netns.Cluster(2) as cluster:
            cluster.cut(2)
            lost = claim(cluster, 1, "node2", limit_ms=200)
            self.assertEqual((lost["host"], lost["why"]), (False, "unreachable"))
            self.assertIn("10.99.0.2:29500 did not answer in time", lost["message"])

    def test_a_killed_host_leaves_its_port_to_the_next_agent(self):
        with netns.Cluster(2) as cluster:
            process = cluster.run(1, [CLAIM_HOST, "node1", PORT], stdout=subprocess.PIPE, text=True)
            self.assertTrue(json.loads(process.stdout.readline())["host"])
            self.assert_lost_to_an_agent(claim(cluster, 2, "node1"))
            process.kill()
            process.wait()
            again = claim(cluster, 1, "node1")
            self.assertTrue(again["host"], again)


if __name__ == "__main__":
    netns.require_netns()
    if not os.access(CLAIM_HOST, os.X_OK):
        sys.exit(f"CLAIM_HOST={CLAIM_HOST!r}: set it to the program to be tested")
    unittest.main(verbosity=2)
