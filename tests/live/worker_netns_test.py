"""Groups over several machines: ranks in network namespaces, started by hand with the variables that a launcher sets.

Collectives between nodes of equal size use shared memory within a node and TCP between nodes; between unequal ones they
use sockets alone. Needs root and iproute2; otherwise ends with 77 and says why.
"""
import os
import re
import signal
import subprocess
import sys
import unittest

import netns
from harness import LIMIT_S, long, run_tests, within

PROGRAM = os.environ.get("WORKER_NETNS_PROGRAM", "")
PORT = 29400


class Ranks:
    """The ranks of one job: shape[i] of them on node i + 1."""

    def __init__(self, cluster, shape, *args):
        world = sum(shape)
        self.ranks = []
        for node, count in enumerate(shape, start=1):
            for local in range(count):
                env = {"RANK": str(len(self.ranks)), "WORLD_SIZE": str(world), "LOCAL_RANK": str(local),
                       "LOCAL_WORLD_SIZE": str(count), "GROUP_RANK": str(node - 1),
                       "MASTER_ADDR": cluster.address(1), "MASTER_PORT": str(PORT)}
                self.ranks.append(cluster.run(node, [PROGRAM, *map(str, args)], env=env, stdout=subprocess.PIPE,
                                              stderr=subprocess.PIPE, text=True))

    def wait_until_looping(self):
        for rank, process in enumerate(self.ranks):
            line = process.stdout.readline()
            if line != f"rank {rank}: looping\n":
                raise AssertionError(f"rank {rank} said {line!r}, {process.stderr.read()!r}")

    def ends(self, but=()):
        """Returns [(code, output)] of all ranks but those in `but`."""
        found = []
        for rank, process in enumerate(self.ranks):
            if rank in but:
                continue
            out, err = process.communicate(timeout=LIMIT_S)
            found.append((process.returncode, err + out))
        return found


class NetnsTest(unittest.TestCase):
    def assert_ended(self, output, code, ranks, promise_s):
        """Checks that a rank's last line has this error, in this time."""
        line = output.strip().splitlines()[-1]
        match = re.match(r"rank (\d+): (\w+) after ([\d.]+) s, ranks([ \d]*):", line)
        self.assertTrue(match, line)
        self.assertEqual(match.group(2), code, line)
        self.assertEqual([int(r) for r in match.group(4).split()], ranks, line)
        self.assertLess(float(match.group(3)), within(promise_s), line)
        print(f"    {line}")

    def test_every_operation_is_right_in_every_shape(self):
        for shape in ([1, 1], [2, 2], [1, 1, 1], [2, 1, 2], [2, 2, 2]):
            with self.subTest(shape=shape), netns.Cluster(len(shape)) as cluster:
                ends = Ranks(cluster, shape, "tour").ends()
                print(f"    {shape}: {ends[0][1].strip()}")
                for rank, (code, output) in enumerate(ends):
                    self.assertEqual(code, 0, output)
                    self.assertRegex(output, rf"rank {rank}: \d+ checks")

    @long
    def test_every_operation_is_right_over_ipv6(self):
        with netns.Cluster(2, ipv6=True) as cluster:
            for code, output in Ranks(cluster, [2, 2], "tour").ends():
                self.assertEqual(code, 0, output)

    @long
    def test_a_stopped_rank_is_named_by_all_others_at_the_time_out(self):
        for shape in ([1, 1, 1], [2, 2]):
            with self.subTest(shape=shape), netns.Cluster(len(shape)) as cluster:
                late = sum(shape) - 1
                ranks = Ranks(cluster, shape, "stop", late)
                for code, output in ranks.ends(but=[late]):
                    self.assertEqual(code, 0, output)
                    self.assert_ended(output, "timeout", [late], 2)
                ranks.ranks[late].send_signal(signal.SIGKILL)

    def test_the_death_of_a_rank_is_known_to_all_others_within_a_second(self):
        for shape in ([1, 1, 1], [2, 2], [2, 1, 2]):
            with self.subTest(shape=shape), netns.Cluster(len(shape)) as cluster:
                dead = sum(shape) - 1
                for code, output in Ranks(cluster, shape, "die", dead).ends(but=[dead]):
                    self.assertEqual(code, 0, output)
                    self.assert_ended(output, "peer_failed", [dead], 1)

    def test_a_node_that_is_cut_off_ends_in_a_time_out_on_both_sides(self):
        with netns.Cluster(2) as cluster:
            ranks = Ranks(cluster, [1, 1], "loop")
            ranks.wait_until_looping()
            cluster.cut(2)
            for other, (code, output) in zip((1, 0), ranks.ends()):
                self.assertEqual(code, 0, output)
                self.assert_ended(output, "timeout", [other], 2)


if __name__ == "__main__":
    if not os.access(PROGRAM, os.X_OK):
        sys.exit(f"WORKER_NETNS_PROGRAM={PROGRAM!r}: set it to the ranks' program")
    netns.require_netns()
    run_tests()
