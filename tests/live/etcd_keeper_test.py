"""A job's records in a real etcd: which node may host, the end of a lease, members that die or hang, and one clear line for
each way in which etcd cannot be used. Each node is an etcd_query, which runs a keeper alone and takes orders line by line.
"""
import os
import queue
import select
import shutil
import socket
import subprocess
import tempfile
import threading
import time
import unittest

import etcd
from harness import LIMIT_S, LiveTest, long, main, within
from ports import free_port, listening

QUERY = os.environ.get("MUSTER_ETCD_QUERY", "")
ENVIRONMENT, RENDEZVOUS = 121, 122
# Far more than a test takes.
LONG_LEASE_S = 300
# The limit from a change to the end of a wait for it; a wait without a change ends after 10 s.
WATCH_S, NO_CHANGE_S, OPERATION_S = 0.9, 10, 2.5


class Node:
    """A process with one keeper."""

    def __init__(self, endpoint, conf="", job="job/1", lease_s=LONG_LEASE_S, env=None):
        clean = {k: v for k, v in os.environ.items() if not k.startswith("ETCDCTL_")}
        self.process = subprocess.Popen([QUERY, endpoint, conf, job, str(lease_s)], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                                        text=True, env={**clean, **(env or {})})
        self.answers = queue.Queue()
        self.reader = threading.Thread(target=lambda: [self.answers.put(line.rstrip("\n")) for line in self.process.stdout])
        self.reader.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()
        self.reader.join()
        self.process.stdin.close()
        self.process.stdout.close()

    def begin(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def answer(self):
        return self.answers.get(timeout=LIMIT_S)

    def ask(self, line):
        self.begin(line)
        return self.answer()

    def persist(self, line):
        """Repeats the order until the answer is no rendezvous error."""
        deadline = time.monotonic() + 60
        while (answer := self.ask(line)).startswith(f"error {RENDEZVOUS} ") and time.monotonic() < deadline:
            pass
        return answer

    def seen(self):
        """(host, epoch, exit code of the ending or None)"""
        words = self.persist("look").split()
        assert words[0] == "seen", words
        return int(words[3]), int(words[5]), int(words[7]) if len(words) > 6 else None

    def until(self, line, wanted):
        """Repeats the order until the answer is `wanted`; returns the earlier answers."""
        others, deadline = [], time.monotonic() + 60
        while (answer := self.ask(line)) != wanted:
            assert time.monotonic() < deadline, (line, wanted, len(others), others[-3:])
            others.append(answer)
        return others

    def wait(self):
        """Looks, and begins to wait for any change since that look, even one before the watch begins."""
        self.seen()
        self.begin(f"wait {1000 * LONG_LEASE_S}")

    def woken_after_s(self):
        begun = time.monotonic()
        assert self.answer() == "woke"
        return time.monotonic() - begun


class Forgetful:
    """A proxy in front of etcd that forwards calls, but drops the answers to calls that contain `lose`."""

    def __init__(self, port):
        self.port, self.lose = port, None
        self.server, own = listening()
        self.endpoint = f"127.0.0.1:{own}"
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            near, _ = self.server.accept()
            threading.Thread(target=self.pass_on, args=(near, socket.create_connection(("127.0.0.1", self.port))), daemon=True).start()

    def pass_on(self, near, far):
        losing = False
        with near, far:
            while True:
                for source in select.select([near, far], [], [])[0]:
                    data = source.recv(65536)
                    if not data or (losing and source is far):
                        return
                    losing = losing or (self.lose is not None and self.lose in data)
                    (far if source is near else near).sendall(data)


class FallsSilent:
    """A server that refuses `calls` calls with an error of HTTP and then answers nothing."""

    def __init__(self, calls):
        self.left, self.open = calls, []
        self.server, own = listening()
        self.endpoint = f"127.0.0.1:{own}"
        threading.Thread(target=self.serve, daemon=True).start()

    def serve(self):
        while True:
            connection, _ = self.server.accept()
            self.open.append(connection)
            if self.left > 0 and connection.recv(65536):
                self.left -= 1
                connection.sendall(b"HTTP/1.1 503 Busy\r\nConnection: close\r\nContent-Length: 0\r\n\r\n")
                connection.close()


class EtcdTest(LiveTest):
    def nodes(self, count, cluster, **options):
        return [self.enterContext(Node(cluster.endpoint, **options)) for _ in range(count)]

    def wait_until_seen(self, node, wanted):
        """Waits repeatedly, as a job does, since a wait may end without a change."""
        while node.seen() != wanted:
            self.assertEqual(node.ask(f"wait {1000 * LONG_LEASE_S}"), "woke")

    def new_etcd(self, **options):
        folder = tempfile.mkdtemp(dir=self.folder.name)
        return self.enterContext(etcd.Etcd(folder, **options))


class OneMember(EtcdTest):
    @classmethod
    def setUpClass(cls):
        folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, folder)
        cls.etcd = cls.enterClassContext(etcd.Etcd(folder))

    def nodes_of_a_job(self, count, **options):
        """All tests share one etcd, and each has a job of its own."""
        return self.nodes(count, self.etcd, job=self.id(), **options)

    def test_one_of_several_nodes_becomes_host_and_the_others_see_it(self):
        nodes = self.nodes_of_a_job(5)
        self.assertEqual([node.seen() for node in nodes], [(0, 0, None)] * 5)
        for i, node in enumerate(nodes):
            node.begin(f"take {i + 1}")
        took = [node.answer() for node in nodes]
        self.assertEqual(sorted(took), ["no"] * 4 + ["yes"])
        winner = took.index("yes") + 1
        self.assertEqual([node.seen() for node in nodes], [(winner, 0, None)] * 5)

    def test_a_node_that_missed_a_change_can_neither_take_nor_write(self):
        first, second, late = self.nodes_of_a_job(3)
        for node in (first, second, late):
            node.seen()
        self.assertEqual(first.ask("take 1"), "yes")
        self.assertEqual(first.ask("write 1"), "yes")
        self.assertEqual(second.ask("take 2"), "no")
        second.seen()
        # The job's record is part of what was seen.
        self.assertEqual(first.ask("write 2"), "yes")
        self.assertEqual(second.ask("take 2"), "no")
        second.seen()
        self.assertEqual(second.ask("take 2"), "yes")
        self.assertEqual(first.ask("write 3"), "no")
        self.assertEqual(first.ask("beat"), "replaced")
        # The new host writes from now on, from the record that it saw.
        self.assertEqual(second.ask("write 3"), "yes")
        self.assertEqual(late.seen(), (2, 3, None))
        # An old host that leaves removes only its own record.
        self.assertEqual(first.ask("leave"), "left")
        self.assertEqual(late.seen(), (2, 3, None))
        self.assertEqual(second.ask("beat"), "kept")

    def test_a_round_costs_one_revision(self):
        host, = self.nodes_of_a_job(1)
        host.seen()
        host.ask("take 1")
        before = self.etcd.revision()
        self.assertEqual([host.ask("write 1"), host.ask("beat"), host.ask("write 2"), host.ask("beat")], ["yes", "kept"] * 2)
        self.assertEqual(self.etcd.revision(), before + 2)

    def test_a_host_that_leaves_is_gone_at_once_and_the_job_stays(self):
        host, other = self.nodes_of_a_job(2)
        host.seen()
        host.ask("take 1")
        host.ask("write 7")
        self.assertEqual(host.ask("leave"), "left")
        self.assertEqual(other.seen(), (0, 7, None))
        self.assertEqual(other.ask("take 2"), "yes")

    def test_an_ending_removes_the_host_and_expires(self):
        host, other = self.nodes_of_a_job(2)
        host.seen()
        host.ask("take 1")
        host.ask("write 1")
        self.assertEqual(host.ask("end 9 2"), "yes")
        self.assertEqual(other.seen(), (0, 1, 9))
        # A node may leave again, since the first answer may have been lost.
        self.assertEqual(host.ask("leave"), "left")
        self.wait_until_seen(other, (0, 0, None))

    def test_a_host_that_is_silent_loses_its_lease(self):
        host, = self.nodes_of_a_job(1, lease_s=2)
        other, = self.nodes_of_a_job(1)
        host.seen()
        host.ask("take 1")
        other.wait()
        self.assertEqual(other.answer(), "woke")
        self.wait_until_seen(other, (0, 0, None))
        self.assertEqual(host.ask("beat"), "gone")
        self.assertEqual(other.ask("take 2"), "yes")
        self.assertEqual(host.ask("beat"), "replaced")

    def test_a_host_learns_that_its_key_was_removed(self):
        host, = self.nodes_of_a_job(1)
        host.seen()
        host.ask("take 1")
        self.assertEqual(host.ask("beat"), "kept")
        self.etcd.check_ctl("del", "--prefix", "/muster/" + self.id())
        self.assertEqual(host.ask("beat"), "gone")

    def test_a_watch_wakes_at_a_change_and_misses_none(self):
        host, other = self.nodes_of_a_job(2)
        host.seen()
        host.ask("take 1")
        times = []
        for epoch in range(1, 21):
            other.wait()
            self.assertEqual(host.ask(f"write {epoch}"), "yes")
            times.append(other.woken_after_s())
            self.assertEqual(other.seen(), (1, epoch, None))
            # A change before the wait begins.
            self.assertEqual(host.ask(f"write {epoch + 100}"), "yes")
            other.begin(f"wait {1000 * LONG_LEASE_S}")
            self.assertLess(other.woken_after_s(), within(WATCH_S, below=NO_CHANGE_S))
        print(f"from a change to the end of the wait: {1000 * sorted(times)[10]:.1f} ms (median of 20)")
        self.assertLess(max(times), within(WATCH_S, below=NO_CHANGE_S))

    def test_other_keys_and_beats_wake_no_watch(self):
        host, other = self.nodes_of_a_job(2)
        host.seen()
        host.ask("take 1")
        other.seen()
        begun = time.monotonic()
        other.begin("wait 500")
        host.ask("beat")
        self.etcd.check_ctl("put", f"/muster/{self.id()}2/host", "x")
        self.assertEqual(other.answer(), "woke")
        self.assertGreaterEqual(time.monotonic() - begun, 0.4)

    def test_a_watch_survives_compaction(self):
        host, other = self.nodes_of_a_job(2)
        host.seen()
        host.ask("take 1")
        other.seen()
        host.ask("write 1")
        self.etcd.check_ctl("compaction", str(self.etcd.revision()))
        other.begin(f"wait {1000 * LONG_LEASE_S}")
        self.assertLess(other.woken_after_s(), within(WATCH_S, below=NO_CHANGE_S))
        self.assertEqual(other.seen(), (1, 1, None))
        # Compaction during a watch.
        other.wait()
        self.etcd.check_ctl("put", "other", "x")
        self.etcd.check_ctl("compaction", str(self.etcd.revision()))
        self.assertEqual(host.ask("write 2"), "yes")
        self.assertLess(other.woken_after_s(), within(WATCH_S, below=NO_CHANGE_S))
        self.assertEqual(other.seen(), (1, 2, None))

    def test_another_thread_ends_a_wait_and_the_host_may_still_leave(self):
        host, other = self.nodes_of_a_job(2)
        host.seen()
        host.ask("take 1")
        host.wait()
        host.begin("cancel")
        self.assertLess(host.woken_after_s(), within(WATCH_S, below=NO_CHANGE_S))
        self.assertEqual(host.ask("look"), f"error {RENDEZVOUS} etcd is not asked any more: this node leaves")
        self.assertEqual(host.ask("leave"), "left")
        self.assertEqual(other.seen(), (0, 0, None))

    def test_a_change_whose_answer_is_lost_is_made_once(self):
        way = Forgetful(self.etcd.ports[0])
        host = self.enterContext(Node(way.endpoint, job=self.id()))
        other, = self.nodes_of_a_job(1)
        earlier = self.etcd.leases()
        for line in ("take 1", "write 1", "end 9 300"):
            host.seen()
            before = self.etcd.revision()
            way.lose = b"POST /v3/kv/txn"
            # Every attempt loses its answer.
            self.assertRegex(host.ask(line), f"^error {RENDEZVOUS} no member of etcd can be used: {way.endpoint}: it (closed the "
                             "connection without an answer|did not answer in time)$")
            self.assertEqual(self.etcd.revision(), before + 1)
            way.lose = None
            self.assertEqual(host.ask(line), "yes")
            self.assertEqual(self.etcd.revision(), before + 1)
            if line != "end 9 300":
                self.assertEqual(host.ask("beat"), "kept")
                # The host renews the lease that it took the record with: there is no other.
                self.assertEqual(len(self.etcd.leases() - earlier), 1)
        self.assertEqual(other.seen(), (0, 1, 9))
        self.assertEqual(other.ask("take 2"), "yes")

    def test_a_try_cut_by_the_limit_does_not_hide_the_reason_before_it(self):
        # With a pause of 100 ms after each call, less than the limit of a whole call is left for the silent one.
        server = FallsSilent(calls=15)
        with Node(server.endpoint) as node:
            self.assertRegex(node.ask("look"), f"^error {RENDEZVOUS} no member of etcd can be used: {server.endpoint}: .*503")

    def test_a_foreign_text_is_refused_as_a_record(self):
        node, = self.nodes_of_a_job(1)
        self.etcd.check_ctl("put", f"/muster/{self.id()}/host", "x")
        self.assertEqual(node.ask("look"), f"error {ENVIRONMENT} etcd's key /muster/{self.id()}/host holds no record of muster: "
                         "remove it, or choose another etcd_prefix")


class ThreeMembers(EtcdTest):
    @long
    def test_a_killed_leader_is_replaced_within_seconds(self):
        cluster = self.new_etcd(members=3)
        host, other = self.nodes(2, cluster)
        host.seen()
        host.ask("take 1")
        other.wait()
        leader = cluster.leader()
        cluster.kill(leader)
        self.goes_on(host, other, 1)
        cluster.start(leader)
        # By now another member leads.
        second = cluster.leader()
        host.seen()
        cluster.kill(second)
        self.goes_on(host, other, 2, watching=False)

    def test_a_hung_leader_is_replaced_within_seconds(self):
        cluster = self.new_etcd(members=3)
        host, other = self.nodes(2, cluster)
        host.seen()
        host.ask("take 1")
        other.wait()
        leader = cluster.leader()
        cluster.stop(leader)
        self.goes_on(host, other, 1)
        cluster.go_on(leader)
        # Calls that reached the hung member are carried out now or never, and change nothing.
        self.assertEqual(host.persist("write 2"), "yes")
        self.assertEqual(other.seen(), (1, 2, None))

    def goes_on(self, host, other, epoch, watching=True):
        """Writes until one write is confirmed. None is refused, since no other node writes, and a write whose answer was lost
        counts if etcd carried it out."""
        begun = time.monotonic()
        failures = host.until(f"write {epoch}", "yes")
        print(f"the next change was made after {time.monotonic() - begun:.1f} s, after {failures}")
        self.assertEqual([line for line in failures if not line.startswith(f"error {RENDEZVOUS} no member of etcd can be used: ")], [])
        if watching:
            # A watch usually ends with its member; then the other node looks, and waits again.
            self.assertEqual(other.answer(), "woke")
        self.assertEqual(other.seen(), (1, epoch, None))
        self.assertEqual(host.persist("beat"), "kept")

    def test_a_look_fails_without_a_majority(self):
        cluster = self.new_etcd(members=3)
        node, = self.nodes(1, cluster)
        node.seen()
        for i in (0, 1):
            cluster.kill(i)
        begun = time.monotonic()
        self.assertRegex(node.ask("look"), f"^error {RENDEZVOUS} no member of etcd can be used: .*refused the connection; ")
        self.assertLess(time.monotonic() - begun, within(OPERATION_S))

    @long
    def test_a_member_that_is_down_is_passed_over(self):
        cluster = self.new_etcd(members=3)
        cluster.kill((cluster.leader() + 1) % 3)
        node, = self.nodes(1, cluster)
        node.until("look", "seen 0.0 host 0 epoch 0")


class Secured(EtcdTest):
    """Each way to log in, and one line for each failure to."""

    @classmethod
    def setUpClass(cls):
        folder = tempfile.mkdtemp()
        cls.addClassCleanup(shutil.rmtree, folder)
        cls.files = etcd.Certificates(folder)
        cls.files.sign("server", "/CN=etcd")
        cls.files.sign("named", "/CN=etcd", names="DNS:elsewhere")
        cls.files.sign("client", "/CN=someone")
        cls.files.sign("nameless", "/O=muster")
        other = f"{folder}/other"
        os.mkdir(other)
        cls.others = etcd.Certificates(other)
        cls.others.sign("client", "/CN=someone")

    def looks(self, cluster, conf="", wanted="seen 0.0 host 0 epoch 0", **options):
        with Node(cluster.endpoint, conf, **options) as node:
            self.assertEqual(node.ask("look"), wanted)

    def refuses(self, cluster, conf, why, **options):
        self.looks(cluster, conf, f"error {ENVIRONMENT} no member of etcd can be used: {cluster.endpoint}: {why}", **options)

    def pair(self, name, files=None):
        files = files or self.files
        return f"cert={files.path(name + '.pem')},key={files.path(name + '.key')}"

    @long
    def test_tls_accepts_only_the_right_authority(self):
        cluster = self.new_etcd(certificates=self.files)
        ca = f"cacert={self.files.path('ca.pem')}"
        self.looks(cluster, ca)
        with Node(cluster.endpoint.replace("127.0.0.1", "localhost"), ca) as node:
            self.assertEqual(node.ask("look"), "seen 0.0 host 0 epoch 0")
            self.assertEqual(node.ask("take 1"), "yes")
            node.wait()
            cluster.check_ctl("del", "--prefix", "/muster/")
            self.assertEqual(node.answer(), "woke")
        self.looks(cluster, "", env={"ETCDCTL_CACERT": self.files.path("ca.pem")})
        self.refuses(cluster, "protocol=http", "it speaks TLS only; give --rdzv-conf protocol=https,cacert=/PATH")
        others = self.others.path("ca.pem")
        self.refuses(cluster, f"cacert={others}", f"its certificate is not signed by an authority in {others}")
        self.refuses(cluster, "cacert=/nowhere", "cannot use the authorities in /nowhere: PK - Read/write of file failed")

    def test_a_certificate_for_another_host_is_refused(self):
        cluster = self.new_etcd(certificates=self.files, server="named")
        ca = f"cacert={self.files.path('ca.pem')}"
        self.refuses(cluster, ca, "its certificate is not for 127.0.0.1")
        by_name = cluster.endpoint.replace("127.0.0.1", "localhost")
        with Node(by_name, ca) as node:
            self.assertEqual(node.ask("look"), f"error {ENVIRONMENT} no member of etcd can be used: {by_name}: its certificate is not "
                             "for localhost")

    def test_client_certificates_are_demanded_and_checked(self):
        cluster = self.new_etcd(certificates=self.files, client_certificates=True)
        ca = f"cacert={self.files.path('ca.pem')}"
        self.looks(cluster, f"{ca},{self.pair('client')}")
        self.refuses(cluster, ca, "it demands a certificate of this client; give --rdzv-conf cert=/PATH,key=/PATH")
        self.refuses(cluster, f"{ca},{self.pair('client', self.others)}", "it refuses the certificate of this client")
        self.refuses(cluster, f"{ca},cert={self.files.path('client.pem')},key={self.files.path('server.key')}",
                     f"the key in {self.files.path('server.key')} is not that of the certificate {self.files.path('client.pem')}")

    def test_users_must_log_in_and_have_permission(self):
        cluster = self.new_etcd(certificates=self.files, client_certificates=True)
        for command in ("user add root:rootpass", "user grant-role root root", "role add jobs",
                        "role grant-permission jobs --prefix=true readwrite /muster/", "user add me:secret",
                        "user grant-role me jobs", "auth enable"):
            cluster.check_ctl(*command.split())
        conf = f"cacert={self.files.path('ca.pem')},{self.pair('nameless')}"
        mine = {"ETCDCTL_USER": "me:secret"}
        self.write("password", "secret\n", 0o600)
        self.looks(cluster, f"{conf},user=me,password_file={self.path('password')}")
        with Node(cluster.endpoint, conf, env=mine) as node:
            node.seen()
            self.assertEqual([node.ask("take 1"), node.ask("write 1"), node.ask("beat")], ["yes", "yes", "kept"])
            node.wait()
            cluster.check_ctl("del", "--prefix", "/muster/", user="root:rootpass")
            self.assertEqual(node.answer(), "woke")
            # A restarted etcd has forgotten the tokens of users.
            cluster.kill(0)
            cluster.start(0)
            self.assertEqual(node.until("look", "seen 0.0 host 0 epoch 0")[1:], [])

        def final(text):
            return f"error {ENVIRONMENT} etcd: {text}"
        self.looks(cluster, conf, final("there is no user me with this password"), env={"ETCDCTL_USER": "me:wrong"})
        self.looks(cluster, conf, final("it wants a user and a password; set ETCDCTL_USER=NAME and ETCDCTL_PASSWORD, or give "
                                        "--rdzv-conf user=NAME,password_file=/PATH"))
        self.looks(cluster, f"{conf},etcd_prefix=/else", env=mine,
                   wanted=final("user me may not read and write the keys below /else/ (etcdserver: permission denied)"))
        self.looks(cluster, f"{conf},user=me,password_file=/nowhere",
                   final("cannot read the password in /nowhere: No such file or directory"))
        named = f"cacert={self.files.path('ca.pem')},{self.pair('client')}"
        self.refuses(cluster, named, "with users enabled, its JSON gateway refuses client certificates that have a CN; "
                     "give one without", env=mine)

    def test_a_cluster_without_tls_refuses_https(self):
        cluster = self.new_etcd()
        self.refuses(cluster, "protocol=https", "it does not speak TLS; give --rdzv-conf protocol=http")
        # A user is ignored if etcd has none, as by etcdctl.
        self.looks(cluster, env={"ETCDCTL_USER": "me:secret"})

    def test_a_gateway_that_is_off_is_named(self):
        why = ("its JSON gateway is off; start etcd with enable-grpc-gateway: true (in a configuration file of etcd 3.4 it is off "
               "by default)")
        self.refuses(self.new_etcd(gateway=""), "", why)
        self.looks(self.new_etcd(gateway="enable-grpc-gateway: true\n"))

    def test_an_endpoint_that_does_not_listen_is_named(self):
        port = free_port()
        with Node(f"127.0.0.1:{port},nowhere.invalid", "") as node:
            self.assertRegex(node.ask("look"), f"^error {RENDEZVOUS} no member of etcd can be used: 127.0.0.1:{port}: it refused the "
                             "connection; nowhere.invalid:2379: its name (is unknown|could not be looked up)$")


if __name__ == "__main__":
    etcd.require_etcd()
    unittest.TestCase.maxDiff = None
    main()
