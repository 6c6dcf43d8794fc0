#!/usr/bin/env python3
"""Proves that the cluster of namespaces does what it says, faults above all: a test with a partition that is none
would pass for ever."""
import os
import re
import signal
import socket
import subprocess
import sys
import textwrap
import unittest

import netns
from harness import is_gone, nothing_happens_for, processes, wait_for, within

# Echoes lines. Prints "ready" once it listens; the port is the first argument.
ECHO = textwrap.dedent("""
    import socket, sys, threading
    listener = socket.create_server(("::", int(sys.argv[1])), family=socket.AF_INET6, dualstack_ipv6=True)
    print("ready", flush=True)
    def serve(connection):
        while True:
            data = connection.recv(65536)
            if not data:
                return
            connection.sendall(data)
    while True:
        connection, _ = listener.accept()
        threading.Thread(target=serve, args=(connection,), daemon=True).start()
    """)

# Connects; sends each line of its input and prints the answer or the error.
TALK = textwrap.dedent("""
    import socket, sys
    try:
        connection = socket.create_connection((sys.argv[1], int(sys.argv[2])), timeout=float(sys.argv[3]))
    except OSError as error:
        print(type(error).__name__, flush=True)
        sys.exit()
    print("port", connection.getsockname()[1], flush=True)
    for line in sys.stdin:
        try:
            connection.sendall(line.encode())
            print("got", connection.recv(65536).decode().strip(), flush=True)
        except OSError as error:
            print(type(error).__name__, flush=True)
    """)

PORT = 4444


class Talk:
    """A connection from a node to a named peer, driven line by line."""

    def __init__(self, cluster, i, to, limit_s=None):
        self.process = cluster.run(i, [sys.executable, "-c", TALK, to, PORT, limit_s or within(0.2)], stdin=subprocess.PIPE,
                                   stdout=subprocess.PIPE, text=True)
        self.first = self.process.stdout.readline().strip()
        self.port = int(self.first.split()[1]) if self.first.startswith("port") else None

    def say(self, word):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


def start_echo(cluster, i):
    process = cluster.run(i, [sys.executable, "-c", ECHO, PORT], stdout=subprocess.PIPE, text=True)
    assert process.stdout.readline() == "ready\n"
    return process


def reach(cluster, i, to):
    return Talk(cluster, i, to, limit_s=within(0.1)).first


class NetnsSelfTest(unittest.TestCase):
    def test_nodes_have_names_and_reach_each_other(self):
        with netns.Cluster(3) as cluster:
            start_echo(cluster, 2)
            self.assertEqual(cluster.output(1, ["hostname"]), "node1\n")
            self.assertEqual(Talk(cluster, 1, "node2").say("hello"), "got hello")
            self.assertEqual(Talk(cluster, 3, cluster.address(2)).say("hello"), "got hello")

    def test_nodes_of_two_clusters_do_not_meet(self):
        with netns.Cluster(2) as one, netns.Cluster(2) as other:
            start_echo(one, 2)
            self.assertEqual(Talk(one, 1, "node2").say("hello"), "got hello")
            self.assertEqual(reach(other, 1, "node2"), "ConnectionRefusedError")

    def test_nodes_reach_each_other_by_ipv6_alone(self):
        with netns.Cluster(2, ipv6=True) as cluster:
            start_echo(cluster, 2)
            self.assertEqual(Talk(cluster, 1, "node2").say("hello"), "got hello")
            self.assertEqual(cluster.address(2), "fd99::2")
            listed = cluster.output(1, ["ip", "-4", "-o", "addr", "show"])
            self.assertEqual([line.split()[1] for line in listed.splitlines()], ["lo"])

    def test_nodes_reach_each_other_by_both_families(self):
        with netns.Cluster(2, ipv6="both") as cluster:
            start_echo(cluster, 2)
            self.assertEqual(Talk(cluster, 1, "10.99.0.2").say("four"), "got four")
            self.assertEqual(Talk(cluster, 1, "fd99::2").say("six"), "got six")

    def test_one_of_two_nics_reaches_the_peers(self):
        with netns.Cluster(2, two_nics=True) as cluster:
            start_echo(cluster, 2)
            self.assertEqual(cluster.nic(), "eth1")
            self.assertEqual(Talk(cluster, 1, "node2").say("hello"), "got hello")
            for nic in ("eth0", "eth1"):
                self.assertIn("state UP", cluster.output(1, ["ip", "-o", "link", "show", nic]))
            self.assertEqual(reach(cluster, 1, "10.98.2.1"), "OSError")  # no route
            self.assertIn(reach(cluster, 1, "10.98.1.99"), ("TimeoutError", "OSError"))  # no host answers on eth0

    def test_a_cut_is_silent_and_heals(self):
        with netns.Cluster(3) as cluster:
            start_echo(cluster, 2)
            talk = Talk(cluster, 1, "node2")
            other = Talk(cluster, 3, "node2")
            self.assertEqual(talk.say("before"), "got before")
            cluster.cut(1)
            self.assertEqual(talk.say("lost"), "TimeoutError")  # neither an answer nor a reset came
            self.assertIn("LOWER_UP", cluster.output(1, ["ip", "-o", "link", "show", "eth0"]))
            self.assertEqual(other.say("others"), "got others")
            cluster.heal(1)
            # The kernel retransmits the lost line, so both answers come.
            wait_for(lambda: "got" in talk.say("after"), "the connection works again")

    def test_a_drop_is_one_way(self):
        with netns.Cluster(3) as cluster:
            start_echo(cluster, 2)
            start_echo(cluster, 3)
            self.assertEqual(Talk(cluster, 1, "node2").say("hello"), "got hello")
            cluster.drop(1, 2)
            self.assertEqual(reach(cluster, 1, "node2"), "TimeoutError")
            self.assertEqual(Talk(cluster, 1, "node3").say("hello"), "got hello")
            seen = cluster.output(1, ["ip", "-s", "-o", "link", "show", "eth0"])
            self.assertIn("state UP", seen)
            # Node 2's frames still arrive at node 1, whose answers get lost.
            counted = received(cluster, 1)
            cluster.run(2, [sys.executable, "-c", UDP, cluster.address(1)]).wait()
            wait_for(lambda: received(cluster, 1) >= counted + 10, "node 1 hears node 2")
            cluster.undrop(1, 2)
            self.assertEqual(Talk(cluster, 1, "node2").say("hello"), "got hello")

    def test_a_drop_loses_ipv6_too(self):
        with netns.Cluster(2, ipv6=True) as cluster:
            start_echo(cluster, 2)
            cluster.drop(1, 2)
            self.assertEqual(reach(cluster, 1, "node2"), "TimeoutError")
            cluster.undrop(1, 2)
            self.assertEqual(Talk(cluster, 1, "node2").say("hello"), "got hello")

    def test_names_can_be_missing_and_come_later(self):
        with netns.Cluster(2) as cluster:
            start_echo(cluster, 2)
            cluster.forget_names(1)
            self.assertEqual(reach(cluster, 1, "node2"), "gaierror")
            self.assertEqual(reach(cluster, 1, "node1"), "gaierror")
            self.assertEqual(Talk(cluster, 1, cluster.address(2)).say("hello"), "got hello")
            cluster.add_name(1, "pod-2", cluster.address(2))
            self.assertEqual(Talk(cluster, 1, "pod-2").say("hello"), "got hello")

    def test_a_running_program_sees_new_names(self):
        program = ("import socket, sys\nfor line in sys.stdin:\n"
                   "  try: print(socket.gethostbyname('pod'), flush=True)\n"
                   "  except OSError: print('missing', flush=True)\n")
        with netns.Cluster(1) as cluster:
            process = cluster.run(1, [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

            def ask():
                process.stdin.write("?\n")
                process.stdin.flush()
                return process.stdout.readline().strip()
            self.assertEqual(ask(), "missing")
            cluster.add_name(1, "pod", "10.99.0.77")
            self.assertEqual(ask(), "10.99.0.77")

    def test_a_nodes_own_name_can_mean_loopback_as_in_debian(self):
        with netns.Cluster(2) as cluster:
            cluster.own_name_is_loopback(1)
            look_up = [sys.executable, "-c", "import socket; print(socket.gethostbyname('node1'))"]
            self.assertEqual(cluster.output(1, look_up), "127.0.1.1\n")
            self.assertEqual(cluster.output(2, look_up), "10.99.0.1\n")

    def test_the_middlebox_forgets_idle_flows_silently(self):
        for ipv6 in (False, True):
            with self.subTest(ipv6=ipv6), netns.Cluster(2, ipv6=ipv6) as cluster:
                start_echo(cluster, 2)
                box = cluster.forward_idle_drop(1, idle_s=1.0)
                busy, idle = Talk(cluster, 1, "node2"), Talk(cluster, 1, "node2")
                self.assertEqual(idle.say("before"), "got before")
                nothing_happens_for(2.0, lambda: self.assertEqual(busy.say("busy"), "got busy"))  # The box reads a clock.
                self.assertEqual(idle.say("lost"), "TimeoutError")
                self.assertEqual(box.wait_for_drop(), sorted([idle.port, PORT]))
                self.assertEqual(Talk(cluster, 1, "node2").say("new"), "got new")

    def test_the_middlebox_carries_bulk(self):
        size = 8 << 20
        program = ("import socket, sys, threading\n"
                   f"c = socket.create_connection(('node2', {PORT}), timeout=20)\n"
                   f"threading.Thread(target=c.sendall, args=(bytes({size}),), daemon=True).start()\n"
                   "n = 0\n"
                   f"while n < {size}: n += len(c.recv(1 << 20))\n"
                   "print(n)\n")
        with netns.Cluster(2) as cluster:
            start_echo(cluster, 2)
            cluster.forward_idle_drop(1, idle_s=10)
            self.assertEqual(int(cluster.output(1, [sys.executable, "-c", program])), size)

    def test_a_cut_works_behind_a_middlebox_too(self):
        with netns.Cluster(2) as cluster:
            start_echo(cluster, 2)
            cluster.forward_idle_drop(1, idle_s=60)
            talk = Talk(cluster, 1, "node2")
            self.assertEqual(talk.say("before"), "got before")
            cluster.cut(1)
            self.assertEqual(talk.say("lost"), "TimeoutError")
            cluster.heal(1)
            wait_for(lambda: "got" in talk.say("after"), "the connection works again")

    def test_a_cluster_leaves_nothing_behind(self):
        before = everything()
        with netns.Cluster(2, ipv6="both", two_nics=True) as cluster:
            sleeper = cluster.run(1, ["sh", "-c", "sleep 1000 & echo $!; exec sleep 1000"], stdout=subprocess.PIPE, text=True)
            grandchild = int(sleeper.stdout.readline())
            cluster.forward_idle_drop(2, 5)
            self.assertNotEqual(everything(), before)
        self.assertEqual(everything(), before)
        wait_for(lambda: is_gone(sleeper.pid) and is_gone(grandchild), "what ran inside is gone")

    def test_sweep_clears_the_clusters_of_a_killed_test(self):
        before = everything()
        script = ("import netns, time\nwith netns.Cluster(2) as c:\n"
                  "  c.run(1, ['sleep', '1000'])\n  print(c.prefix, flush=True)\n  time.sleep(1000)\n")
        owner = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, cwd=netns.HERE)
        prefix = owner.stdout.readline().strip()
        self.assertIn(f"{prefix}-1", everything()[0])
        owner.send_signal(signal.SIGKILL)
        owner.wait()
        owner.stdout.close()
        netns.sweep()
        self.assertEqual(everything(), before)


# Ten datagrams to a port on which no process listens.
UDP = ("import socket, sys\ns = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)\n"
       "for _ in range(10):\n  s.sendto(b'x', (sys.argv[1], 9))\n")


def received(cluster, i):
    """Returns the packets that node i has received so far."""
    text = cluster.output(i, ["cat", f"/sys/class/net/{cluster.nic()}/statistics/rx_packets"])
    return int(text)


def everything():
    """Lists what a cluster could leave behind: namespaces, their files and links. Skips the clusters of other tests."""
    listed = subprocess.run(["ip", "netns", "list"], capture_output=True, text=True, check=True).stdout
    mine = [line.split()[0] for line in listed.splitlines() if belongs_here(line)]
    folder = "/etc/netns"
    files = [name for name in os.listdir(folder) if belongs_here(name)] if os.path.isdir(folder) else []
    links = sorted(name for _, name in socket.if_nameindex())
    return sorted(mine), sorted(files), links


def belongs_here(name):
    match = re.match(r"mu(\d+)c", name)
    if not match:
        return False
    pid, of_all = int(match.group(1)), processes()
    return pid == os.getpid() or pid not in of_all or of_all[pid][0] == os.getpid()


if __name__ == "__main__":
    netns.require_netns()
    unittest.main(verbosity=2)
