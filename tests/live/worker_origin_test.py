#!/usr/bin/env python3
"""The origin of a failure, as every rank that meets it reports it: the record that it leaves for the launcher.

The ranks (programs/worker_origin_ranks.cc, named by $MUSTER_WORKER_ORIGIN_RANKS) are started by hand with the
contract's variables and a MUSTER_RECORD_FD each, on this machine or (--nodes) on two nodes in network namespaces.

    worker_origin_test.py [--nodes] [CLASS...]
    worker_origin_test.py --measure COUNT     stops a rank amid traffic, COUNT times on each of four shapes;
                                                  prints how many ranks named another
"""
import fcntl
import os
import re
import signal
import struct
import subprocess
import sys
import typing

import netns
from harness import LIMIT_S, LiveTest, pause, run_tests, say, wait_for
from ports import free_port

RANKS = os.environ.get("MUSTER_WORKER_ORIGIN_RANKS", "")
ON_ERROR = 3
SHORT_MS = 700


class Ring:
    """The memory in which a rank leaves its record, as an agent makes it (rendezvous/ring/ring_layout.h)."""
    BYTES = 512 * 1024
    NONCE = 0x1f00c3a29b7e4d51
    REPORT = 4096 + 8 * (1 + 8 + 8 * 16 + 2 + 128)
    CODES = {6: "rendezvous", 7: "timeout", 8: "peer_failed", 9: "aborted", 10: "stopped", 11: "mismatch", 12: "backend",
             13: "system"}

    def __init__(self):
        made = os.memfd_create("ring", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        self.fd = fcntl.fcntl(made, fcntl.F_DUPFD_CLOEXEC, 100)
        os.close(made)
        os.ftruncate(self.fd, self.BYTES)
        fcntl.fcntl(self.fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
        os.pwrite(self.fd, b"MSTRRING" + struct.pack("<QQQ", 1, self.BYTES, self.NONCE), 0)

    def name(self):
        return f"{self.fd}:{self.NONCE:016x}"

    def record(self):
        """Returns the record, or None if there is none."""
        raw = os.pread(self.fd, 8 * (2 + 64 + 128), self.REPORT)
        time_ns, what = struct.unpack_from("<QQ", raw)
        message = raw[528:].split(b"\0", 1)[0].decode()
        origin = [rank - 1 for rank in struct.unpack_from("<128I", raw, 16) if rank]
        return Record(time_ns, self.CODES.get(what & 0xff, ""), (what >> 32) - 1, origin, message) if time_ns else None


class Record(typing.NamedTuple):
    """The record of a rank."""
    time_ns: int
    code: str
    rank: int
    origin: list
    message: str


class Scene:
    """The ranks of one job: shape[i] of them on node i + 1 of the cluster, or all here without a cluster."""

    def __init__(self, test, shape, *scene, cluster=None, short_ms=SHORT_MS):
        self.test, self.world = test, sum(shape)
        for name in os.listdir(test.folder.name):
            os.unlink(test.path(name))
        self.ranks, self.rings = [], []
        master = cluster.address(1) if cluster else "127.0.0.1"
        port = 29400 if cluster else free_port()
        for node, count in enumerate(shape):
            for local in range(count):
                rank = len(self.ranks)
                ring = Ring()
                self.rings.append(ring)
                env = {"RANK": str(rank), "WORLD_SIZE": str(self.world), "LOCAL_RANK": str(local),
                       "LOCAL_WORLD_SIZE": str(count), "GROUP_RANK": str(node), "MASTER_ADDR": master,
                       "MASTER_PORT": str(port), "MUSTER_RECORD_FD": ring.name()}
                argv = [RANKS, test.folder.name, str(short_ms), *map(str, scene)]
                options = {"stderr": subprocess.PIPE, "text": True, "pass_fds": [ring.fd]}
                if cluster:
                    process = cluster.run(node + 1, argv, env=env, **options)
                else:
                    process = subprocess.Popen(argv, env=dict(os.environ, **env), **options)
                self.ranks.append(process)
        test.addCleanup(self.close)

    def kill(self):
        for process in self.ranks:
            if process.poll() is None:
                process.kill()
            process.wait()
            process.stderr.close()

    def close(self):
        self.kill()
        for ring in self.rings:
            os.close(ring.fd)

    def log(self, what):
        if not self.test.exists("log"):
            return []
        return [line for line in self.test.read("log").split("\n") if line.startswith(what + " ")]

    def wait_log(self, count, what):
        def found():
            lines = self.log(what)
            return lines if len(lines) >= count else None
        try:
            return wait_for(found, f"{count} times {what!r}", LIMIT_S)
        except AssertionError as e:
            raise AssertionError(f"{e}\n{self.account()}") from None

    def account(self):
        return self.test.read("log") if self.test.exists("log") else "no log"

    def end(self, but=()):
        """Waits for all ranks but those in `but`. Returns {rank: record} of those that ended with an error."""
        for rank, process in enumerate(self.ranks):
            if rank not in but:
                try:
                    process.wait(LIMIT_S)
                except subprocess.TimeoutExpired:
                    raise AssertionError(f"rank {rank} does not end\n{self.account()}") from None
        self.kill()
        found = {}
        for rank, ring in enumerate(self.rings):
            if (record := ring.record()) is not None:
                found[rank] = record
        return found


class OriginTest(LiveTest):
    """Scenes on one node; TwoNodes has them on two."""
    cluster = None
    SHAPE = [4]

    def scene(self, *words, shape=None, **options):
        return Scene(self, shape or self.SHAPE, *words, cluster=self.cluster, **options)

    def assert_origin(self, scene, origin, code, but=(), of=None, words=()):
        """Checks that all ranks but those in `but` (or those in `of`) left a record with this origin. Returns the records,
        without those of ranks that only report that another ended for it."""
        found = scene.end(but)
        expected = sorted(of if of is not None else set(range(scene.world)) - set(but))
        self.assertEqual(sorted(found), expected, scene.account())
        told = {}
        for rank, record in sorted(found.items()):
            self.assertEqual((record.rank, record.origin), (rank, origin), f"{record.message}\n{scene.account()}")
            # On a busy machine a rank may end for the origin before another has come that far.
            if re.search(r": rank \d+ \([^)]*\) (died; its own output|ended after this: )", record.message):
                self.assertEqual(record.code, "peer_failed", record.message)
                continue
            self.assertIn(record.code, code if isinstance(code, tuple) else (code,), record.message)
            for word in words:
                self.assertIn(word, record.message)
            told[rank] = record
        return told

    def all_but(self, *ranks, shape=None):
        return [r for r in range(sum(shape or self.SHAPE)) if r not in ranks]


class Told:
    """Failures that one rank meets and reports to all."""

    def test_a_checkpoint_read_failure_is_traced_to_the_reading_rank(self):
        records = self.assert_origin(self.scene("load", "/dev"), [0], "system")
        for record in records.values():
            self.assertTrue(record.message.startswith("load_checkpoint of group world on rank 0: "), record.message)

    def test_a_checkpoint_write_failure_is_traced_to_the_writing_rank(self):
        scene = self.scene("save_in_group", "/no/such/folder/model", 1)
        members = self.all_but(0)
        scene.wait_log(len(members), "error")
        self.assert_origin(scene, [1], "system", but=[0], of=members)

    def test_a_rank_that_ends_because_of_another_is_not_named(self):
        records = self.scene("load_in_pair", "/dev", 0, 3).end(but=[0])
        self.assertEqual({rank: records[rank].origin for rank in (1, 2, 3)}, {1: [0], 2: [0], 3: [0]},
                         [record.message for record in records.values()])
        for rank in (1, 2):
            self.assertRegex(records[rank].message, r"rank 3 \([^)]*\) ended after this: load_checkpoint of .* /dev")

    def test_a_throwing_block_is_traced_to_its_rank(self):
        self.assert_origin(self.scene("zero_first"), [0], ("peer_failed", "system"), words=["no data set here"])

    def test_a_throwing_block_of_one_node_is_traced_to_its_rank(self):
        first = 0 if self.cluster is None else self.SHAPE[0]
        self.assert_origin(self.scene("local_zero_first", first), [first], ("peer_failed", "system"))

    def test_abort_is_traced_to_the_rank_that_called_it(self):
        self.assert_origin(self.scene("abort", 2), [2], "aborted", words=["rank 2 (", "the test says so"])

    def test_a_refusal_by_the_kernel_is_traced_to_its_rank(self):
        for odd in (0, 3):
            for scene in ("thread", "allocation"):
                if scene == "allocation" and self.cluster is not None and not self.SHARES:
                    continue
                with self.subTest(scene=scene, odd=odd):
                    self.assert_origin(self.scene(scene, odd), [odd], "system")


class Mismatches:
    def test_the_rank_that_differs_from_most_is_the_origin(self):
        for kind in ("operation", "count", "dtype", "root", "skipped", "late", "majority late"):
            for odd in (1, 3):
                with self.subTest(kind=kind, odd=odd):
                    self.assert_origin(self.scene("mismatch", kind, odd), [odd], "mismatch")

    def test_two_ranks_that_differ_are_both_the_origin(self):
        for kind in ("operation", "count", "dtype"):
            with self.subTest(kind=kind):
                shape = [2] if self.cluster is None else [1, 1]
                self.assert_origin(self.scene("mismatch", kind, 1, shape=shape), [0, 1], "mismatch")

    def test_a_rank_with_other_buckets_shared_memory_or_backend_is_the_origin(self):
        for scene in ("buckets", "shared", "backend"):
            for odd in (0, 2):
                with self.subTest(scene=scene, odd=odd):
                    self.assert_origin(self.scene(scene, odd), [odd], "mismatch")

    def test_both_ends_of_a_message_that_does_not_fit_are_the_origin(self):
        self.assert_origin(self.scene("message"), [0, 1], "mismatch")


class Late:
    def late(self, *scene, **options):
        """A rank whose question gets no answer says "did not arrive in time" of the rank that it awaits. On a machine so busy
        that 250 ms are too short for an answer, the scene is played again, twice at most."""
        for _ in range(2):
            try:
                return self.late_once(*scene, **options)
            except AssertionError as error:
                if "did not arrive in time; check what it is doing instead" not in str(error):
                    raise
                print(f"    no answer in time: {str(error).splitlines()[-1]}", end=" ", flush=True)
        return self.late_once(*scene, **options)

    def late_once(self, scene, culprit, *words, more=(), shape=None, of=None, **options):
        """Checks that all ranks that timed out name `culprit`, which never ends by itself."""
        running = self.scene(scene, culprit, *more, shape=shape, **options)
        others = self.all_but(culprit, shape=shape) if of is None else of
        running.wait_log(len(others), "error")
        return self.assert_origin(running, [culprit], ("timeout", "peer_failed", "rendezvous"), but=[culprit], of=others,
                                  words=words)

    def test_a_rank_that_computes_is_reported_as_not_calling(self):
        for culprit in (0, 3):
            for count in (1, 500_000):
                with self.subTest(culprit=culprit, count=count):
                    records = self.late("late", culprit, more=[count])
                    self.assertTrue(any("has not called it within 700 ms (its last: all_reduce 3)" in r.message
                                        for r in records.values()), [r.message for r in records.values()])

    def test_a_stopped_rank_is_not_reported_as_one_that_computes(self):
        for culprit in (0, 3):
            with self.subTest(culprit=culprit):
                records = self.late("stopped", culprit, more=[500_000])
                for record in records.values():
                    self.assertNotIn("has not called", record.message)
                    self.assertRegex(record.message, rf"rank {culprit} \([^)]*\) (is stopped|does not answer)")

    def test_a_rank_that_waits_for_the_culprit_in_another_group_is_passed_over(self):
        for culprit, between in ((3, 0), (0, 3), (2, 3), (3, 2), (1, 2)):
            with self.subTest(culprit=culprit, between=between):
                self.late("pair", culprit, more=[between])

    def test_a_rank_that_waits_for_the_culprits_message_is_passed_over(self):
        for scene in ("recv", "irecv"):
            for culprit, between in ((3, 0), (0, 3), (2, 3)):
                with self.subTest(scene=scene, culprit=culprit, between=between):
                    self.late(scene, culprit, more=[between])

    def test_a_chain_of_ranks_is_followed_to_its_end(self):
        # Rank 0 passes on what happens on one node to the other: if it is stopped, the last rank learns nothing of why the
        # others have ended.
        for culprit, second, first in ((3, 2, 1), (0, 3, 1), (2, 3, 1), (1, 0, 2)):
            with self.subTest(culprit=culprit, second=second, first=first):
                self.late("chain", culprit, more=[second, first])

    def test_a_rank_that_gave_up_on_the_culprit_is_passed_over(self):
        for first in (1, 3):
            with self.subTest(first=first):
                self.late("behind", 0, more=[first])

    def test_a_rank_that_is_kept_in_an_earlier_call_is_passed_over(self):
        for culprit, root in ((3, 0), (0, 3), (1, 0)):
            with self.subTest(culprit=culprit, root=root):
                self.late("earlier", culprit, more=[root])

    def test_a_rank_that_is_kept_in_a_meeting_is_passed_over(self):
        for scene in ("new_group", "monitored"):
            for culprit, between in ((3, 0), (0, 2)):
                with self.subTest(scene=scene, culprit=culprit, between=between):
                    self.late(scene, culprit, more=[between])

    def test_a_circle_names_the_ranks_outside_the_majoritys_call(self):
        # A rank that times out late may first hear that another has ended for the origin.
        self.assert_origin(self.scene("circle", 1), [1], ("timeout", "peer_failed"))

    def test_two_ranks_that_wait_for_each_other_are_both_named(self):
        shape = [2] if self.cluster is None else [1, 1]
        self.assert_origin(self.scene("circle", 1, shape=shape), [0, 1], ("timeout", "peer_failed"))


class Traffic:
    ROUNDS = 3

    def traffic(self, rounds, shape):
        """Stops a rank amid traffic. Returns (ranks that named another, number of all that named one)."""
        wrong, all_told = [], 0
        for seed in range(rounds):
            scene = self.scene("traffic", seed, shape=shape)
            world = sum(shape)
            scene.wait_log(world, "runs")
            pause(seed % 7 * 0.011, "any moment")
            culprit = seed * 5 % world
            scene.ranks[culprit].send_signal(signal.SIGSTOP)
            scene.wait_log(world - 1, "error")
            for rank, record in scene.end(but=[culprit]).items():
                all_told += 1
                if record.origin != [culprit]:
                    wrong.append(f"seed {seed}: rank {culprit} was stopped, rank {rank}: {record.origin} "
                                 f"{record.message}")
        return wrong, all_told

    def test_a_rank_stopped_in_the_middle_of_traffic_is_named_by_all(self):
        for shape in self.SHAPES:
            with self.subTest(shape=shape):
                wrong, all_told = self.traffic(self.ROUNDS, shape)
                say(f"{shape}: {len(wrong)} of {all_told} ranks named another")
                self.assertEqual(wrong, [])


class OneNode(Told, Mismatches, Late, Traffic, OriginTest):
    SHAPES = ([4], [6])


class TwoNodes(Told, Mismatches, Late, Traffic, OriginTest):
    SHAPE = [2, 2]
    SHAPES = ([2, 2], [3, 3], [1, 3])
    SHARES = True

    @classmethod
    def setUpClass(cls):
        cls.cluster = netns.Cluster(2)
        cls.cluster.__enter__()

    @classmethod
    def tearDownClass(cls):
        cls.cluster.down()


class Uneven(Told, Mismatches, Late, OriginTest):
    """Nodes of unequal sizes: everything goes over sockets."""
    SHAPE = [1, 3]
    SHARES = False
    setUpClass, tearDownClass = TwoNodes.setUpClass, TwoNodes.tearDownClass


def measure(count):
    total, told = 0, 0
    netns.require_netns()
    for cls, shape in ((OneNode, [4]), (OneNode, [8]), (TwoNodes, [2, 2]), (TwoNodes, [4, 4])):
        cls.setUpClass()
        test = cls("test_a_rank_stopped_in_the_middle_of_traffic_is_named_by_all")
        test.setUp()
        wrong, all_told = test.traffic(count, shape)
        test.doCleanups()
        cls.tearDownClass()
        runs = len({re.match(r"seed (\d+)", line)[1] for line in wrong})
        print(f"{shape}: {len(wrong)} of {all_told} ranks named another, in {runs} of {count} runs", flush=True)
        print("".join(f"    {line}\n" for line in wrong[:12]), end="", flush=True)
        total, told = total + len(wrong), told + all_told
    print(f"in all: {total} of {told}")


def main():
    if not os.access(RANKS, os.X_OK):
        sys.exit(f"MUSTER_WORKER_ORIGIN_RANKS={RANKS!r}: set it to the ranks' program")
    if "--measure" in sys.argv:
        measure(int(sys.argv[sys.argv.index("--measure") + 1]))
        return
    if "--nodes" in sys.argv:
        sys.argv.remove("--nodes")
        netns.require_netns()
        sys.argv += [] if len(sys.argv) > 1 else ["TwoNodes", "Uneven"]
    elif len(sys.argv) == 1:
        sys.argv += ["OneNode"]
    run_tests()


if __name__ == "__main__":
    main()
