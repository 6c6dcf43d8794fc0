"""Every operation of PyTorch's own client, unmodified, against our store.

    MUSTER_STORE_HOST=build/release/tests/store_host MUSTER_TORCH_VENV=~/venv torch_client_test.py [--server=torch]

The C++ client behind torch.distributed.TCPStore is used in both its flavours; they differ only in what the client
itself refuses.
"""

import concurrent.futures
import datetime
import pathlib
import sys
import threading
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

import serving  # noqa: E402
from harness import long  # noqa: E402

serving.need_torch()
serving.choose_server()

import torch.distributed as dist  # noqa: E402  (needs the right Python)

MIB = 1 << 20
KEY_MAX = 8191  # The client adds one byte, a slash.
LIST_MAX = 131072
NO_VALUE_IS_A_MISTAKE = b"\0\xff\r\n\x80binary \0"


def milliseconds(number):
    return datetime.timedelta(milliseconds=number)


class Client(serving.StoreTest):
    use_libuv = True

    def setUp(self):
        super().setUp()
        self.store = self.connect()

    def connect(self, timeout_s=serving.LIMIT_S, **more):
        timeout = datetime.timedelta(seconds=timeout_s)
        return dist.TCPStore("127.0.0.1", self.port, timeout=timeout, use_libuv=self.use_libuv, **more)

    def in_background(self, function, *arguments):
        """Starts a call that blocks until another client does something. Returns its future result."""
        pool = concurrent.futures.ThreadPoolExecutor(1)
        self.addCleanup(pool.shutdown)
        return pool.submit(function, *arguments)


class Operations(Client):
    def test_set_and_get(self):
        self.store.set("k", "v")
        self.assertEqual(self.store.get("k"), b"v")
        self.store.set("k", "")
        self.assertEqual(self.store.get("k"), b"")

    def test_values_are_any_bytes(self):
        for value in (NO_VALUE_IS_A_MISTAKE, bytes(range(256)), "ümläut 數".encode()):
            self.store.set("binary", value)
            self.assertEqual(self.store.get("binary"), value)

    def test_keys_are_any_bytes(self):
        for key in ("", "/", "a/b//c", "ümläut 數", "nul\0inside", " ", "x" * KEY_MAX):
            self.store.set(key, "of " + key[:9])
            self.assertEqual(self.store.get(key), ("of " + key[:9]).encode())

    def test_add_counts_and_shows_as_text(self):
        self.assertEqual([self.store.add("n", d) for d in (5, -7, 0, 2**62)], [5, -2, -2, 2**62 - 2])
        self.assertEqual(self.store.get("n"), str(2**62 - 2).encode())
        self.store.set("text", " 12abc")
        self.assertEqual(self.store.add("text", 1), 13)

    def test_add_to_a_value_that_is_no_number_costs_the_connection(self):
        self.store.set("word", "seven")
        with self.assertRaises(dist.DistError):
            self.store.add("word", 1)
        self.assertEqual(self.connect().get("word"), b"seven")

    def test_add_wraps_as_the_reference_does(self):
        self.store.set("big", str(2**63 - 1))
        self.assertEqual(self.store.add("big", 1), -(2**63))

    def test_check(self):
        self.store.multi_set(["a", "b"], ["1", "2"])
        answers = [self.store.check(keys) for keys in ([], ["a"], ["a", "b"], ["a", "c"], ["c"], ["a"] * 3)]
        self.assertEqual(answers, [True, True, True, False, False, True])

    def test_compare_set(self):
        steps = [("", "1"), ("2", "3"), ("1", "2"), ("2", "2"), ("", "9")]
        self.assertEqual([self.store.compare_set("c", *step) for step in steps], [b"1", b"1", b"2", b"2", b"2"])

    def test_compare_set_of_an_absent_key_echoes_what_was_expected(self):
        self.assertEqual(self.store.compare_set("absent", "x", "1"), b"x")
        self.assertFalse(self.store.check(["absent"]))

    def test_an_empty_value_equals_an_empty_expectation(self):
        self.store.set("empty", "")
        self.assertEqual(self.store.compare_set("empty", "", "full"), b"full")

    def test_delete_key(self):
        self.store.set("d", "1")
        self.assertEqual([self.store.delete_key("d"), self.store.delete_key("d")], [True, False])
        self.assertFalse(self.store.check(["d"]))

    def test_num_keys_counts_every_key_and_no_queue(self):
        self.assertEqual(self.store.num_keys(), 0)
        self.store.multi_set(["a", "b", "c"], ["1", "2", "3"])
        self.store.delete_key("a")
        self.assertEqual(self.store.num_keys(), 2)
        self.connect(world_size=5, wait_for_workers=False)
        self.assertEqual(self.store.num_keys(), 2)
        self.connect(world_size=5)
        self.assertEqual(self.store.num_keys(), 3)  # "init/"

    def test_append_grows_beyond_what_a_set_may_hold(self):
        for _ in range(10):
            self.store.append("a", "x" * MIB)
        self.assertEqual(self.store.get("a"), b"x" * (10 * MIB))

    def test_multi_get_and_multi_set(self):
        keys = [f"key{i}" for i in range(1000)]
        self.store.multi_set(keys, [f"value {i}" for i in range(1000)])
        self.assertEqual(self.store.multi_get(keys), [f"value {i}".encode() for i in range(1000)])
        self.assertEqual(self.store.multi_get(["key7", "key7"]), [b"value 7", b"value 7"])

    def test_list_keys_drops_the_slash_and_what_has_none(self):
        self.connect(world_size=1)
        self.store.multi_set(["a", "b/c", ""], ["1", "2", "3"])
        self.assertEqual(sorted(self.store.list_keys()), ["", "a", "b/c"])

    def test_clone_sees_the_same_keys_over_another_connection(self):
        other = self.store.clone()
        other.set("k", "cloned")
        self.assertEqual((self.store.get("k"), other.num_keys()), (b"cloned", 1))

    def test_everything_the_client_can_do_is_offered(self):
        self.assertTrue(self.store.has_extended_api())
        self.assertEqual(self.store.libuvBackend, self.use_libuv)

    def test_prefixes_nest_outside_in(self):
        inner = dist.PrefixStore("inner", dist.PrefixStore("outer", self.store))
        inner.set("k", "1")
        self.assertEqual(inner.add("n", 3), 3)
        inner.append("k", "2")
        inner.multi_set(["x"], ["y"])
        self.assertEqual(self.store.multi_get(["outer/inner/k", "outer/inner/n", "outer/inner/x"]), [b"12", b"3", b"y"])
        self.assertEqual((inner.get("k"), inner.check(["k"]), inner.delete_key("k")), (b"12", True, True))


class Waiting(Client):
    def test_get_waits_for_the_key(self):
        value = self.in_background(self.connect().get, "late")
        other = self.connect()
        other.set("other", "1")
        other.set("late", "here")
        self.assertEqual(value.result(serving.LIMIT_S), b"here")

    def test_each_way_to_make_a_key_ends_a_wait(self):
        ways = {
            "set": lambda key: self.store.set(key, "1"),
            "add": lambda key: self.store.add(key, 1),
            "append": lambda key: self.store.append(key, "1"),
            "multi_set": lambda key: self.store.multi_set(["other", key], ["1", "1"]),
            "compare_set": lambda key: self.store.compare_set(key, "", "1"),
        }
        for name, make in ways.items():
            with self.subTest(name):
                waiter = self.connect()
                done = self.in_background(waiter.wait, [name, "already"])
                self.store.set("already", "1")
                make(name)
                self.assertIsNone(done.result(serving.LIMIT_S))

    def test_a_wait_that_times_out_names_the_key(self):
        with self.assertRaisesRegex(dist.DistStoreError, "wait timeout after 50ms, keys: /nope"):
            self.store.wait(["nope"], milliseconds(50))
        self.store.set("still", "usable")
        self.assertEqual(self.store.get("still"), b"usable")

    def test_a_cancelled_wait_is_forgotten(self):
        for _ in range(3):
            with self.assertRaises(dist.DistStoreError):
                self.store.wait(["k"], milliseconds(10))
        self.connect().set("k", "1")
        self.assertEqual((self.store.add("n", 1), self.store.get("k")), (1, b"1"))

    def test_cancelling_while_the_key_appears_never_shifts_the_answers(self):
        setter, waits = self.connect(), 300
        for i in range(waits):
            done = self.in_background(setter.set, f"race{i}", "1")
            try:
                self.store.wait([f"race{i}"], milliseconds(1))
            except dist.DistStoreError:
                pass
            self.assertEqual(self.store.add("n", 1), i + 1)  # A surplus byte would show here.
            done.result(serving.LIMIT_S)
        self.assertEqual(self.store.num_keys(), waits + 1)

    def test_the_default_timeout_is_the_stores(self):
        self.store.set_timeout(milliseconds(20))
        with self.assertRaisesRegex(dist.DistStoreError, "after 20ms"):
            self.store.get("never")

    def test_a_barrier_lets_all_go_when_the_last_has_come(self):
        clients = [self.connect() for _ in range(4)]
        early = [self.in_background(client.barrier, "b", 4) for client in clients[:3]]
        with self.assertRaisesRegex(dist.DistStoreError, "barrier timeout after 50ms, key: other"):
            self.store.barrier("other", 2, milliseconds(50))
        clients[3].barrier("b", 4)
        self.assertEqual([done.result(serving.LIMIT_S) for done in early], [None] * 3)
        self.assertEqual(self.store.get("b"), b"4")

    def test_a_barrier_through_a_prefix(self):
        stores = [dist.PrefixStore("p", self.connect()) for _ in range(3)]
        done = [self.in_background(store.barrier, "b", 3) for store in stores]
        self.assertEqual([one.result(serving.LIMIT_S) for one in done], [None] * 3)
        self.assertEqual(self.store.get("p/b/last_member"), b"1")

    def test_the_host_of_a_world_waits_for_all_clients(self):
        for i in range(4):
            self.connect(world_size=4)
        self.assertEqual(self.in_raw_count(), "4")

    def in_raw_count(self):
        with serving.RawClient(self.port) as line:
            length = int.from_bytes(line.ask(serving.request(serving.GET, b"init/"), 8), "little")
            return line.hear(length).decode()


class Queues(Client):
    def test_a_queue_is_first_in_first_out(self):
        for item in (b"1", NO_VALUE_IS_A_MISTAKE, b""):
            self.store.queue_push("q", item)
        self.assertEqual(self.store.queue_len("q"), 3)
        self.assertEqual([self.store.queue_pop("q") for _ in range(3)], [b"1", NO_VALUE_IS_A_MISTAKE, b""])
        self.assertEqual((self.store.queue_len("q"), self.store.num_keys()), (0, 0))

    def test_pop_of_an_empty_queue(self):
        with self.assertRaises(dist.QueueEmptyError):
            self.store.queue_pop("q", block=False)

    def test_a_blocking_pop_waits_for_the_push(self):
        item = self.in_background(self.connect().queue_pop, "q")
        self.store.queue_push("q", "pushed")
        self.assertEqual(item.result(serving.LIMIT_S), b"pushed")

    def test_a_queue_and_a_key_may_share_a_name(self):
        self.store.set("both", "key")
        self.store.queue_push("both", "item")
        self.assertEqual((self.store.get("both"), self.store.queue_len("both")), (b"key", 1))
        self.store.delete_key("both")
        self.assertEqual((self.store.check(["both"]), self.store.queue_pop("both")), (True, b"item"))

    def test_consumers_share_the_items_and_none_is_lost(self):
        consumers, each = 8, 100
        clients = [self.connect() for _ in range(consumers)]

        def consume(client):
            taken = []
            while len(taken) < each:
                try:
                    taken.append(client.queue_pop("work"))
                except dist.QueueEmptyError:
                    pass  # Another client was faster: the protocol wakes and pops in two steps.
            return taken

        done = [self.in_background(consume, client) for client in clients]
        for i in range(consumers * each):
            self.store.queue_push("work", str(i))
        taken = [item for one in done for item in one.result(serving.LIMIT_S)]
        self.assertEqual(sorted(map(int, taken)), list(range(consumers * each)))


class QueuesAreRefusedByThePlainClient(Client):
    use_libuv = False

    def test_a_refused_queue_call_leaves_the_client_usable(self):
        for call in (lambda: self.store.queue_len("q"), lambda: self.store.queue_push("q", "1")):
            with self.assertRaises((dist.DistError, NotImplementedError)):
                call()
        self.store.set("k", "1")
        self.assertEqual(self.store.get("k"), b"1")


class Limits(Client):
    def refused(self, action):
        """Checks that a client whose request is too large loses its connection, and another does not."""
        client = self.connect()
        with self.assertRaises((dist.DistError, RuntimeError)):
            action(client)
            client.num_keys()  # Some requests get no answer; the next one shows it.
        self.store.set("beside", "1")
        self.assertEqual(self.store.get("beside"), b"1")

    def test_a_value_of_8_MiB_and_not_a_byte_more(self):
        largest = b"\xa5" * (8 * MIB)
        self.store.set("large", largest)
        self.assertEqual(self.store.get("large"), largest)
        self.store.compare_set("large", largest, "small")
        self.assertEqual(self.store.get("large"), b"small")
        self.refused(lambda client: client.set("larger", largest + b"x"))
        self.refused(lambda client: client.append("larger", largest + b"x"))
        self.refused(lambda client: client.compare_set("larger", "", largest + b"x"))
        self.refused(lambda client: client.multi_set(["larger"], [largest + b"x"]))
        self.assertFalse(self.store.check(["larger"]))

    def test_a_key_of_8192_bytes_and_not_a_byte_more(self):
        self.assertEqual(self.store.add("k" * KEY_MAX, 1), 1)
        self.refused(lambda client: client.add("k" * (KEY_MAX + 1), 1))
        self.refused(lambda client: client.check(["k" * (KEY_MAX + 1)]))
        self.assertEqual(self.store.num_keys(), 2)

    def test_a_list_of_131072_keys_and_not_one_more(self):
        keys = [str(i) for i in range(LIST_MAX)]
        self.store.multi_set(keys, ["1"] * LIST_MAX)
        self.assertEqual(self.store.num_keys(), LIST_MAX)
        self.assertTrue(self.store.check(keys))
        self.assertEqual(self.store.multi_get(keys), [b"1"] * LIST_MAX)
        self.refused(lambda client: client.check([*keys, "one more"]))
        self.refused(lambda client: client.wait([*keys, "one more"]))


class ManyAtOnce(Client):
    def test_additions_of_many_clients_are_exact(self):
        clients, each = 64, 200
        stores = [self.connect() for _ in range(clients)]
        start = threading.Barrier(clients)

        def work(store):
            start.wait()
            return [store.add("n", 1) for _ in range(each)]

        with concurrent.futures.ThreadPoolExecutor(clients) as pool:
            seen = [value for values in pool.map(work, stores) for value in values]
        self.assertEqual(sorted(seen), list(range(1, clients * each + 1)))

    def test_all_waiters_of_a_key_are_woken(self):
        stores = [self.connect() for _ in range(100)]
        with concurrent.futures.ThreadPoolExecutor(len(stores)) as pool:
            values = [pool.submit(store.get, "go") for store in stores]
            self.store.set("go", "now")
            self.assertEqual([value.result(serving.LIMIT_S) for value in values], [b"now"] * len(stores))


@long
class OperationsOfThePlainClient(Operations):
    use_libuv = False


@long
class WaitingOfThePlainClient(Waiting):
    use_libuv = False


@long
class LimitsOfThePlainClient(Limits):
    use_libuv = False


@long
class ManyPlainClientsAtOnce(ManyAtOnce):
    use_libuv = False


if __name__ == "__main__":
    unittest.main(verbosity=2)
