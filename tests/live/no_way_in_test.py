"""Attempts of another user of a job's machine to get in. All fail, and the job does not notice.

Needs root, to change the user, and for two machines iproute2; otherwise ends with 77 and says why.
"""
import collections
import os
import resource
import shutil
import socket
import struct
import subprocess
import sys
import threading
import time

import netns
from harness import MUSTER, Job, LiveTest, is_witness, long, main, wait_for
from netns_nodes import PORT, NetnsTest, NodeJob
from nodes_harness import NodesTest
from ports import free_port
from relay import Relay

RANKS = os.environ.get("WORKER_NETNS_PROGRAM", "")
AGENTS = os.environ.get("MUSTER_RENDEZVOUS_AGENTS", "")
PROGRAMS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "programs")
STRANGER = os.path.join(PROGRAMS, "stranger.py")
PYTHON = os.path.join(os.environ.get("MUSTER_TORCH_VENV", ""), "bin", "python")
USER = 65533


def as_user(uid):
    return ("setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups", "--no-new-privs")


AS_USER = as_user(USER)


def ranks_of(launcher, program=RANKS):
    """Returns the pids of the job's ranks below a launcher's pid."""
    found, parents = [], [launcher]
    while parents:
        pid = parents.pop()
        try:
            with open(f"/proc/{pid}/task/{pid}/children", encoding="utf-8") as f:
                children = [int(child) for child in f.read().split()]
            with open(f"/proc/{pid}/cmdline", encoding="utf-8") as f:
                if f.read().split("\0")[0] == program and not is_witness(pid):
                    found.append(pid)
        except OSError:
            continue
        parents += children
    return sorted(found)


def secret_of(pid):
    with open(f"/proc/{pid}/environ", encoding="utf-8", errors="replace") as f:
        variables = dict(entry.split("=", 1) for entry in f.read().split("\0") if "=" in entry)
    return variables["MUSTER_WORKER_SECRET"]


class Attempts:
    """Checks of another user's attempts on one machine; mixed into the classes below."""

    def setUp(self):
        super().setUp()
        self.began = time.time()

    def check_outcomes(self, outcomes, wanted):
        for line in outcomes.splitlines():
            print(f"    {line}", file=sys.stderr)
        self.assertNotIn(": IN", outcomes)
        for attempt in wanted:
            self.assertIn(f"{attempt}: refused", outcomes)

    def check_secrets(self, node, pids):
        """Checks that another user on the node cannot read the job's secret in anything as new as the job."""
        stranger = [*AS_USER, sys.executable, STRANGER, "text", str(self.began - 1), self.folder.name]
        texts = self.cluster.output(node, stranger, limit_s=200)
        secrets = {secret_of(pid) for pid in pids}
        self.assertEqual(len(secrets), 1, "all ranks of the job have the same one")
        secret = secrets.pop()
        self.assertRegex(secret, "^[0-9a-f]{64}$")
        self.assertNotIn(secret, texts)
        self.assertIn("muster-watch-", texts, "the stranger reads names at all")


class OneNode(Attempts, NetnsTest):
    """Runs in a network namespace of its own, since other tests serve stores on this machine."""

    def test_ranks_refuse_another_user(self):
        self.make(1)
        job = self.start(1, "--nproc-per-node", 3, "--log-dir", self.path("logs"),
                         program=["--no-python", RANKS, "until", self.path("end")])
        wait_for(lambda: job.stdout().count("looping") == 3, "the ranks loop")
        pids = ranks_of(job.pid)
        self.assertEqual(len(pids), 3)
        stranger = [*AS_USER, sys.executable, STRANGER]
        self.check_outcomes(self.cluster.output(1, [*stranger, 3, *pids], limit_s=200),
                            ["signals", "processes", "watch over unix", "data over unix", "store"])
        self.assertIn(f"muster: refused a process of uid {USER} at the job's store", job.stderr())
        self.check_secrets(1, pids)
        self.write("end", "")
        self.assert_exit(job, 0)
        self.assertEqual(job.stdout().count(" rounds"), 3)
        self.assertNotIn("a stranger's words", job.stderr())


# Every worker's first action: an echo from the store.
ECHO = ("exec 3<>/dev/tcp/$MASTER_ADDR/$MASTER_PORT && printf '\\x00\\xce\\xf7\\x85\\x3c\\x0decho' >&3 && "
        "read -t 20 -r -N 4 answer <&3 && [ \"$answer\" = echo ] && echo reached")
TORCH = ("import torch, torch.distributed as dist; dist.init_process_group('gloo'); t = torch.ones(1); dist.all_reduce(t); "
         "print('sum', t.item()); dist.destroy_process_group()")
# Gloo itself needs netlink.
TORCH_STORE = ("import os, torch.distributed as dist; store, rank, world = next(dist.rendezvous('env://')); "
               "store.add('came', 1); [None for _ in iter(lambda: store.add('came', 0), 2)]; print('sum', 2.0)")


class WhoMayCome(LiveTest):
    """Workers and agents that belong to the job though the kernel reports another user for their connections, or none."""

    def check(self, *program, told=0):
        launcher = [MUSTER, "--nproc-per-node", "2", "--no-python", *program]
        ended = subprocess.run(launcher, capture_output=True, text=True, timeout=120, check=False, cwd=self.folder.name)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertEqual(ended.stdout.count("reached") + ended.stdout.count("sum 2.0"), 2, ended.stderr)
        self.assertNotIn("refused", ended.stderr)
        self.assertEqual(ended.stderr.count("every user of this machine can use the job's store"), told, ended.stderr)

    def test_workers_that_change_their_user_reach_the_store(self):
        self.check(*AS_USER, "bash", "-c", ECHO)

    @long
    def test_grandchildren_that_change_their_user_reach_the_store(self):
        self.check("bash", "-c", f"setsid {' '.join(AS_USER)} bash -c '{ECHO.replace(chr(39), chr(39) + chr(92) + chr(39) * 2)}'; exit $?")

    def test_workers_in_a_user_namespace_reach_the_store(self):
        if subprocess.run(["unshare", "--user", "true"], check=False).returncode != 0:
            self.skipTest("this machine refuses new user namespaces")
        self.check("unshare", "--user", "--map-root-user", "bash", "-c", ECHO)
        self.check("unshare", "--user", "--map-root-user", PYTHON, "-c", TORCH)

    def test_a_job_without_netlink_admits_every_local_user(self):
        sandbox = [sys.executable, os.path.join(PROGRAMS, "without_netlink.py"), MUSTER]
        for program in (["bash", "-c", ECHO], [PYTHON, "-c", TORCH_STORE]):
            ended = subprocess.run([*sandbox, "--nproc-per-node", "2", "--no-python", *program], capture_output=True,
                                   text=True, timeout=120, check=False, cwd=self.folder.name)
            self.assertEqual(ended.returncode, 0, ended.stderr)
            self.assertEqual(ended.stdout.count("reached") + ended.stdout.count("sum 2.0"), 2, ended.stderr)
            self.assertEqual(ended.stderr.count("muster: every user of this machine can use the job's store: the kernel does "
                                                "not show the owner of a connection (sock_diag: "), 1, ended.stderr)

    def test_store_allow_admits_another_user(self):
        with Job("--store-allow", "127.0.0.1", "--no-python", "sh", "-c",
                 f"echo $MASTER_PORT >{self.path('port')}; while [ ! -e {self.path('end')} ]; do sleep 0.05; done") as job:
            port = wait_for(lambda: self.exists("port") and self.read("port").strip(), "the worker runs")
            stranger = subprocess.run([*AS_USER, "env", "MASTER_ADDR=127.0.0.1", f"MASTER_PORT={port}", "bash", "-c", ECHO],
                                      capture_output=True, text=True, check=False)
            self.assertEqual(stranger.stdout, "reached\n", stranger.stderr)
            self.write("end", "")
            self.assertEqual(job.wait(), 0, job.stderr())


class UsersOfOneMachine(LiveTest):
    """Agents of two users at one endpoint, without a token; torchrun's default endpoint is the same for all users."""

    def setUp(self):
        super().setUp()
        shutil.copy(MUSTER, self.path("muster"))  # Readable for the other user.
        os.chmod(self.folder.name, 0o755)
        home = self.path("home")
        os.mkdir(home)
        os.chown(home, USER, USER)
        self.at_home = {"env": {**os.environ, "TMPDIR": home, "HOME": home}, "cwd": home}

    def test_a_job_refuses_an_agent_of_another_user(self):
        port = free_port()
        flags = ["--nnodes", "1:2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-conf",
                 "last_call_timeout=1"]
        with Job(*flags, "--rdzv-id", "roots", "--no-python", "sh", "-c",
                 f"while [ ! -e {self.path('end')} ]; do sleep 0.05; done") as job:
            wait_for(lambda: ranks_of(job.pid, "sh"), "root's worker runs")
            for theirs in "roots", "another":
                other = subprocess.run([*AS_USER, self.path("muster"), *flags, "--rdzv-id", theirs, "--no-python", "true"],
                                       capture_output=True, text=True, timeout=60, check=False, **self.at_home)
                self.assertEqual(other.returncode, 122, other.stderr)
                self.assertIn(f"the host at this endpoint runs as uid 0, this node as uid {USER}, and without a job token "
                              "users of one machine share no job: choose another port", other.stderr)
            self.write("end", "")
            self.assertEqual(job.wait(), 0, job.stderr())

    def test_a_node_refuses_a_host_of_another_user(self):
        port = free_port()
        flags = ["--nnodes", "2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "same"]
        # A host that cannot ask who joins.
        sandbox = [sys.executable, os.path.join(PROGRAMS, "without_netlink.py"), self.path("muster")]
        with subprocess.Popen([*AS_USER, *sandbox, *flags, "--no-python", "true"], stdout=subprocess.DEVNULL,
                              stderr=subprocess.PIPE, text=True, **self.at_home) as host:
            try:
                wait_for(lambda: not is_free(port), "the stranger listens")
                ended = subprocess.run([MUSTER, *flags, "--no-python", "true"], capture_output=True, text=True, timeout=60,
                                       check=False)
                self.assertEqual(ended.returncode, 122, ended.stderr)
                self.assertIn(f"runs as uid {USER}, this node as uid 0, and without a job token users of one machine share no "
                              "job", ended.stderr)
            finally:
                host.terminate()
                host.communicate()


def is_free(port):
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
            return True
        except OSError:
            return False


# What the connections send, in turns: nothing, the agents' magic, a whole Hello, half of the store's magic, HTTP.
WORDS = (b"", b"MSTR", b"MSTR" + struct.pack("<IBHI3s", 26, 1, 4, 3, b"job") + bytes(16), b"\0\xce", b"GET / HTTP/1.1\r\n")


class Strangers(threading.Thread):
    """Connects to a port again and again, from all over 127.0.0.0/24, and keeps many of the connections open."""

    def __init__(self, port, hurry):
        super().__init__(daemon=True)
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 6000)), hard))
        self.port, self.hurry = port, hurry
        self.open_max = min(5000, resource.getrlimit(resource.RLIMIT_NOFILE)[0] - 300)
        self.connected, self.is_over = 0, threading.Event()
        self.start()

    def run(self):
        open_ones, tried = collections.deque(), 0
        while not self.is_over.is_set():
            tried += 1
            if len(open_ones) >= self.open_max:
                open_ones.popleft().close()
            one = socket.socket()
            one.settimeout(5)
            open_ones.append(one)
            try:
                one.bind((f"127.0.0.{tried % 250 + 1}", 0))
                one.connect(("127.0.0.1", self.port))
                one.send(WORDS[tried % len(WORDS)])
                self.connected += 1
            except OSError:
                self.is_over.wait(0.01)
            if self.connected > self.hurry:
                self.is_over.wait(0.002)  # Others need the processors, too.
        for one in open_ones:
            one.close()

    def end(self):
        self.is_over.set()
        self.join()


class Flood(LiveTest):
    """Thousands of peers that never authenticate cost the job nothing but their own connections."""

    def test_a_host_with_few_descriptors_restarts_its_workers(self):
        port = free_port()
        worker = self.write("worker.sh", f"""#!/bin/bash
            touch {self.path("up")}.$TORCHELASTIC_RESTART_COUNT.$RANK
            while [ ! -e {self.path("fail")} ]; do sleep 0.05; done
            [ $TORCHELASTIC_RESTART_COUNT = 1 ] || exit 3
            {ECHO} && touch {self.path("reached")}.$RANK
            while [ ! -e {self.path("end")} ]; do sleep 0.05; done
        """)
        few = lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (128, 128))
        with Job("--nnodes", "1:2", "--rdzv-backend", "c10d", "--rdzv-endpoint", f"127.0.0.1:{port}", "--rdzv-id", "job",
                 "--rdzv-conf", "last_call_timeout=1", "--nproc-per-node", 2, "--max-restarts", 1, "--tee", 3, "--log-dir",
                 self.path("logs"), "--no-python", worker, preexec_fn=few) as job:
            self.wait_for_files("up.0.0", "up.0.1")
            strangers = Strangers(port, 10000)
            self.addCleanup(strangers.end)
            wait_for(lambda: strangers.connected >= 10000 or job.process.poll() is not None, "10,000 strangers", 120)
            self.write("fail", "")
            wait_for(lambda: self.exists("reached.0") and self.exists("reached.1") or job.process.poll() is not None,
                     f"the workers run again: {job.stderr()}", 120)
            self.write("end", "")
            self.assertEqual(job.wait(60), 0, job.stderr())
            said = job.stderr()
            self.assertRegex(said, f"closed [0-9]+ connections to port {port} from 127.0.0.[0-9]+ and other addresses, to make")
            self.assertLessEqual(said.count("closed "), 10, said)
            self.assertLessEqual(said.count("127.0.0."), 20, said)
            self.assertNotIn("ulimit", said)

    def test_agents_that_join_at_once_lose_none(self):
        count, port = int(os.environ.get("AGENTS", "200")), free_port()
        strangers = Strangers(port, 10000)
        self.addCleanup(strangers.end)
        ended = subprocess.run([AGENTS, "--agents", str(count), "--rounds", "3", "--port", str(port), "--places", str(count + 20)],
                               capture_output=True, text=True, timeout=300, check=False)
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertGreater(strangers.connected, 0)


class TwoNodes(Attempts, NetnsTest):
    def check(self, *flags):
        self.make(2)
        jobs = [self.c10d(i, 2, "--nproc-per-node", 2, "--log-dir", self.path(f"logs{i}"), *flags,
                          program=["--no-python", RANKS, "until", self.path("end")]) for i in (1, 2)]
        wait_for(lambda: all(job.stdout().count("looping") == 2 for job in jobs), "the ranks loop", 60)
        pids = [ranks_of(job.pid) for job in jobs]
        for node, own in enumerate(pids, start=1):
            self.assertEqual(len(own), 2)
            stranger = [*AS_USER, sys.executable, STRANGER]
            outcomes = self.cluster.output(node, [*stranger, 4, *own], limit_s=200)
            self.check_outcomes(outcomes, ["signals", "processes", "watch over unix", "data over unix",
                                           "watch over tcp", "data over tcp"])
            self.assertIn("watch over tcp: refused after a challenge", outcomes, "it does reach the watch")
            self.assertIn("data over tcp: refused after a challenge", outcomes, "it does reach the data's port")
            self.check_secrets(node, sum(pids, []))
        self.write("end", "")
        for job in jobs:
            self.assert_exit(job, 0)
            self.assertEqual(job.stdout().count(" rounds"), 2)
            self.assertNotIn("a stranger's words", job.stderr())

    @long
    def test_ranks_refuse_another_user_without_a_token(self):
        self.check()

    def test_ranks_refuse_another_user_with_a_token(self):
        self.write("token", "only the job's nodes know it")
        os.chmod(self.path("token"), 0o600)
        self.check("--rdzv-token-file", self.path("token"))


def frame(kind, fields):
    return struct.pack("<IB", 1 + len(fields), kind) + fields


def text(words):
    return struct.pack("<I", len(words)) + words


RELAYS_WORDS = b"so says the relay"
# Frames as PROTOCOL.md has them, which a node would obey or show: its job ended, its round is over, it must leave,
# a datagram from another node, the list of nodes.
TO_NODE = {
    "End": frame(68, struct.pack("<QBBiii", 1 << 62, 3, 0, 0, 0, -1) + text(b"") + text(RELAYS_WORDS) + struct.pack("<Biii", 0, 0, 0, -1)),
    "Stop": frame(68, struct.pack("<QBQB", 1 << 62, 2, 1, 0) + text(RELAYS_WORDS)),
    "Refused": frame(67, b"\x04" + text(RELAYS_WORDS)),
    "Delivered": frame(71, struct.pack("<Qiqq", 1, 0, 0, 0) + text(RELAYS_WORDS)),
    "Nodes": frame(70, struct.pack("<QBiI", 1, 1, 0, 0)),
}
# A failure report, a goodbye, a datagram to all, a query.
TO_HOST = {
    "Report": frame(3, struct.pack("<QQQBBiB", 1 << 62, 0, 1, 2, 1, 0, 1) + struct.pack("<iiiB", 1, 0, 66, 1) + text(RELAYS_WORDS) +
                    struct.pack("<qqB", 0, 0, 0)),
    "Goodbye": frame(4, b""),
    "Datagram": frame(6, struct.pack("<Qiqq", 1, -1, 0, 0) + text(RELAYS_WORDS)),
    "Query": frame(5, struct.pack("<Q", 1)),
}


def with_a_seal(lie):
    """Returns the frame in sealed form with a wrong seal, as a sender without the token would make it."""
    length, kind = struct.unpack("<IB", lie[:5])
    return struct.pack("<IB", length + 32, kind | 0x80) + lie[5:] + bytes(32)


class OnThePath(NodesTest):
    """A middleman injects frames into a node's connection. They cost that connection and nothing more."""

    def start(self, *flags):
        flags = ("--rdzv-conf", "last_call_timeout=1,is_host=true", *flags)
        host = self.elastic("host", "1:2", *flags)
        relay = Relay(self.port)
        self.addCleanup(relay.close)
        self.port = relay.port
        node = self.elastic("node", "1:2", *(flag.replace("is_host=true", "is_host=false") for flag in flags))
        wait_for(lambda: {start.world for start in self.starts()[-2:]} == {2}, "both nodes run", 60)
        return host, node, relay

    def newest(self, relay):
        return wait_for(lambda: next((way for way in relay.ways[-1:] if way.is_joined()), None), "the node is connected", 60)

    def test_injected_frames_are_refused_with_a_token(self):
        host, node, relay = self.start("--rdzv-token-file", self.write("token", "opensesame\n", 0o600))
        for lies, end in (TO_NODE, "near"), (TO_HOST, "far"):
            for name, lie in lies.items():
                for put_in in lie, with_a_seal(lie):
                    way = self.newest(relay)
                    getattr(way, end).sendall(put_in)
                    self.assertTrue(way.over.wait(60), f"{name} costs the connection")
        self.newest(relay)
        self.order("done")
        for job in host, node:
            self.assert_exit(job, 0)
            self.assertNotIn(RELAYS_WORDS.decode(), job.stderr())
        changed = "what came was changed, repeated, left out or put in on the way"
        self.assertEqual(node.stderr().count(f"was closed, and is opened anew: {changed}"), 1, node.stderr())
        self.assertEqual(host.stderr().count(f"was closed, and may be opened anew: {changed}"), 1, host.stderr())

    @long
    def test_injected_frames_are_obeyed_without_a_token(self):
        """Shows that the test above is worth something: these frames are valid except for the seal."""
        host, node, relay = self.start()
        self.newest(relay).near.sendall(TO_NODE["End"])
        self.assert_exit(node, 122)
        self.assertIn("this node lost its host and stopped its workers; the other nodes succeeded", node.stderr())
        self.end_well(host)


# Forwards connections, as one end of a tunnel does: relay PORT HOST.
RELAY = """
import socket, sys, threading
def pump(one, other):
    try:
        while data := one.recv(65536):
            other.sendall(data)
        other.shutdown(socket.SHUT_WR)
    except OSError:
        pass
with socket.create_server(("", int(sys.argv[1]))) as listener:
    print("relaying", flush=True)
    while True:
        one = listener.accept()[0]
        try:
            other = socket.create_connection((sys.argv[2], int(sys.argv[1])))
        except OSError:  # The host does not listen yet.
            one.close()
            continue
        for ends in (one, other), (other, one):
            threading.Thread(target=pump, args=ends, daemon=True).start()
"""


class TheStoreOfAnotherNode(Attempts, NetnsTest):
    """Node 1 serves the store; the attempts come from node 2."""

    WORKERS_USER = 65532

    def setUp(self):
        super().setUp()
        os.chmod(self.folder.name, 0o755)
        self.program = ["--no-python", "bash", "-c", f"{ECHO}; {' '.join(as_user(self.WORKERS_USER))} bash "
                        f"{self.write('echo.sh', ECHO)}; while [ ! -e {self.path('end')} ]; do sleep 0.05; done"]

    def wait_reached(self, jobs):
        """Waits until each worker has reached the store twice, the second time as another user."""
        wait_for(lambda: all(job.stdout().count("reached") == 4 for job in jobs), "the workers have reached the store", 60)

    def end(self, jobs, *said):
        """Ends the job. `said`: the host's lines about its store, each printed once."""
        self.write("end", "")
        for job in jobs:
            self.assert_exit(job, 0)
        lines = [line for line in jobs[0].stderr().splitlines() if "the job's store" in line and "did not say" not in line]
        self.assertEqual(lines, list(said))
        for job in jobs[1:]:
            self.assertNotIn("store", job.stderr())

    def attempts(self, user):
        return self.cluster.output(2, [*as_user(user), sys.executable, STRANGER, "store", "10.99.0.1", PORT], limit_s=60)

    def check(self, *flags):
        self.make(2)
        jobs = [self.c10d(i, 2, "--nproc-per-node", 2, *flags, program=self.program) for i in (1, 2)]
        self.wait_reached(jobs)
        self.check_outcomes(self.attempts(USER), ["read", "list", "write", "fill"])
        refused = ("muster: refused a connection from 10.99.0.2 to the job's store: the agent of node2 says that it is of no "
                   "user of the job there; --store-allow 10.99.0.2 admits every user of that machine")
        self.said(jobs[0], refused)
        wait_for(lambda: self.attempts(0).count(": IN") == 4, "root gets in", 120)
        self.end(jobs, refused)

    def test_another_user_is_refused_without_a_token(self):
        self.check()

    @long
    def test_another_user_is_refused_with_a_token(self):
        self.write("token", "only the job's nodes know it")
        os.chmod(self.path("token"), 0o600)
        self.check("--rdzv-token-file", self.path("token"))

    @long
    def test_store_allow_admits_every_user_of_a_node(self):
        self.make(2)
        jobs = [self.c10d(i, 2, "--nproc-per-node", 2, "--store-allow", "10.99.0.2", program=self.program) for i in (1, 2)]
        self.wait_reached(jobs)
        self.assertEqual(self.attempts(USER).count(": IN"), 4)
        self.end(jobs)

    def test_a_node_without_netlink_is_admitted_with_a_warning(self):
        self.make(2)
        sandbox = os.path.join(PROGRAMS, "without_netlink.py")
        flags = ("--nnodes", 2, "--nproc-per-node", 2, "--rdzv-backend", "c10d", "--rdzv-endpoint", f"node1:{PORT}")
        jobs = [self.start(1, *flags, program=self.program)]
        jobs.append(NodeJob(self.cluster, 2, [*map(str, flags), *self.program], [sys.executable, sandbox, MUSTER]))
        self.jobs.append(jobs[1])
        self.wait_reached(jobs)
        self.end(jobs, "muster: every user of node2 (10.99.0.2) can use the job's store, as can those of any other node "
                       "whose kernel does not show the owner of a connection")

    def test_a_node_behind_nat_is_admitted_with_a_warning(self):
        self.make(3)
        relay = self.cluster.run(3, [sys.executable, "-c", RELAY, PORT, "10.99.0.1"], stdout=subprocess.PIPE, text=True)
        self.assertEqual(relay.stdout.readline(), "relaying\n")
        jobs = [self.c10d(i, 2, "--nproc-per-node", 2, endpoint=f"node{at}", program=self.program) for i, at in ((1, 1), (2, 3))]
        self.wait_reached(jobs)
        self.end(jobs, "muster: every user of node2 (10.99.0.3) can use the job's store, as can those of any other node "
                       "from which addresses are translated on the way")


if __name__ == "__main__":
    if not os.access(RANKS, os.X_OK):
        sys.exit(f"WORKER_NETNS_PROGRAM={RANKS!r}: set it to the ranks' program")
    if os.geteuid() != 0 or not shutil.which("setpriv"):
        print("SKIPPED: needs root and setpriv (Debian: util-linux)", file=sys.stderr)
        sys.exit(netns.SKIPPED)
    netns.require_netns()
    main()
