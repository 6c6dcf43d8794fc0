"""Wrong, cut and oversized frames on raw sockets, beside a working client of PyTorch that must not notice.

Also checks what PyTorch's own server does wrong: with --server=torch those tests must fail.
"""

import struct
import unittest

import serving

serving.need_torch()
serving.choose_server()

from serving import RawClient, keys_request, multi_set, ping, request, text  # noqa: E402
from torch.distributed import TCPStore  # noqa: E402

MIB = 1 << 20
HUGE = struct.pack("<Q", 1 << 62)
EMPTY_LIST = struct.pack("<Q", 0)
ONE = struct.pack("<q", 1)

# Sent after the handshake: the server must hang up.
WRONG = {
    "operation 19": bytes([19]),
    "operation 255": bytes([255]),
    "a second VALIDATE": serving.VALIDATE,
    "a key of 2^62 bytes": bytes([serving.GET]) + HUGE,
    "a key of 8193 bytes": request(serving.GET, b"/" + b"k" * 8192),
    "a value of 2^62 bytes": bytes([serving.SET]) + text(b"/k") + HUGE,
    "a value of -1 bytes": bytes([serving.SET]) + text(b"/k") + b"\xff" * 8,
    "a value of 8 MiB and a byte": bytes([serving.SET]) + text(b"/k") + struct.pack("<Q", 8 * MIB + 1),
    "an appendix of 2^62 bytes": bytes([serving.APPEND]) + text(b"/k") + HUGE,
    "an item of 2^62 bytes": bytes([serving.QUEUE_PUSH]) + text(b"/k") + HUGE,
    "an expectation of 2^62 bytes": bytes([serving.COMPARE_SET]) + text(b"/k") + HUGE,
    "a check of 2^62 keys": bytes([serving.CHECK]) + HUGE,
    "a wait for 131073 keys": bytes([serving.WAIT]) + struct.pack("<Q", 131073),
    "a get of 2^62 keys": bytes([serving.MULTI_GET]) + HUGE,
    "a set of 2^62 pairs": bytes([serving.MULTI_SET]) + HUGE,
    "a set of -1 pairs": bytes([serving.MULTI_SET]) + b"\xff" * 8,
    "an addition to a word": request(serving.SET, b"/word", b"seven") + request(serving.ADD, b"/word", number=1),
    "a barrier on a word": request(serving.SET, b"/word", b"seven") + request(serving.BARRIER, b"/word", number=2),
}

# Cut at every byte: the server must wait for the rest and serve others meanwhile.
WHOLE = {
    "SET": request(serving.SET, b"/cut", b"value"),
    "COMPARE_SET": request(serving.COMPARE_SET, b"/cut", b"", b"x"),
    "ADD": request(serving.ADD, b"/cut_n", number=1),
    "CHECK": keys_request(serving.CHECK, b"/a", b"/b"),
    "MULTI_SET": multi_set([(b"/cut_a", b"1"), (b"/cut_b", b"2")]),
    "BARRIER": request(serving.BARRIER, b"/cut_barrier", number=2),
}

FIRST_BYTES = {
    "an HTTP request": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "a TLS hello": bytes.fromhex("1603010200010001fc0303") + bytes(200),
    "another magic": b"\x00\xde\xad\xbe\xef",
    "a ping before VALIDATE": ping(),
    "zeros": bytes(64),
}


class Beside(serving.StoreTest):
    def setUp(self):
        super().setUp()
        self.torch = TCPStore("127.0.0.1", self.port)
        self.torch.set("before", "1")
        self.turns = 0

    def torch_works(self):
        self.turns += 1
        self.assertEqual(self.torch.add("turns", 1), self.turns)
        self.assertEqual(self.torch.get("before"), b"1")

    def test_a_wrong_frame_costs_its_sender_the_connection(self):
        for name, frame in WRONG.items():
            with self.subTest(name):
                bad = self.raw()
                bad.say(frame)
                self.torch_works()
                self.assertTrue(bad.was_hung_up_on())
                self.torch_works()
        self.assertLessEqual(set(self.torch.list_keys()), {"before", "turns", "word"})

    @serving.defect_of_torch("the first pairs of a cut MULTI_SET stay")
    def test_a_request_cut_anywhere_changes_nothing_when_its_sender_goes(self):
        for name, frame in WHOLE.items():
            for cut in range(1, len(frame)):
                with self.raw() as bad:
                    bad.say(frame[:cut])
            with self.subTest(name):
                self.torch_works()
        self.assertEqual(set(self.torch.list_keys()), {"before", "turns"})

    def test_a_request_may_come_byte_by_byte(self):
        slow = self.raw()
        for byte in b"".join(WHOLE.values()) + ping():
            slow.say(bytes([byte]))
        self.torch_works()
        # The answers of COMPARE_SET, ADD and CHECK, and the pong; the barrier waits for a second client.
        self.assertEqual(slow.hear(13 + 8 + 1 + 4), text(b"value") + ONE + b"\1" + serving.PONG)

    @serving.defect_of_torch("each pair is applied as it comes")
    def test_half_a_multi_set_is_not_applied(self):
        line, pairs = self.raw(), multi_set([(b"/half", b"1"), (b"/other", b"2")])
        line.say(pairs[:-1])
        for _ in range(200):  # Each check takes a turn of the server's loop.
            self.assertFalse(self.torch.check(["half"]))
        self.assertEqual(line.ask(pairs[-1:] + ping(), 4), serving.PONG)
        self.assertEqual(self.torch.multi_get(["half", "other"]), [b"1", b"2"])

    @serving.defect_of_torch("it accepts whatever comes first")
    def test_a_client_of_another_protocol_is_hung_up_on(self):
        for name, first in FIRST_BYTES.items():
            with self.subTest(name):
                stranger = self.raw(greet=False)
                stranger.socket.settimeout(5)
                stranger.say(first)
                self.torch_works()
                self.assertTrue(stranger.was_hung_up_on())
        self.assertTrue(self.torch.check(["before"]))

    @serving.defect_of_torch("it forgets that it waits for the rest of VALIDATE")
    def test_the_handshake_may_come_byte_by_byte(self):
        line = self.raw(greet=False)
        for byte in serving.VALIDATE:
            line.say(bytes([byte]))
            self.torch_works()
        self.assertEqual(line.ping(), serving.PONG)

    @serving.defect_of_torch("it holds silent connections for ever")
    def test_a_client_that_never_validates_is_hung_up_on_in_the_end(self):
        silent, half = self.raw(greet=False), self.raw(greet=False)
        half.say(serving.VALIDATE[:3])
        for line in (silent, half):
            line.socket.settimeout(15)
            self.assertTrue(line.was_hung_up_on())
        self.torch_works()


class Semantics(serving.StoreTest):
    """Cases in which the reference server loses answers or invents them."""

    def setUp(self):
        super().setUp()
        self.waiter, self.other = self.raw(), self.raw()

    def parked(self, *keys):
        """Waits for the pong behind a WAIT, which shows that the server has parked it."""
        self.assertEqual(self.waiter.ask(keys_request(serving.WAIT, *keys) + ping(), 4), serving.PONG)

    def woken_by(self, action):
        """Returns True if the waiter's next byte is the wake-up, False if it is the pong requested behind the action."""
        self.other.say(action + ping())
        self.assertEqual(self.other.hear(4), serving.PONG)
        first = self.waiter.ask(ping(0x77777777), 1)
        self.waiter.hear(3 if first != b"\0" else 4)
        return first == b"\0"

    @serving.defect_of_torch("a failed COMPARE_SET wakes those who wait for the key")
    def test_a_compare_set_that_creates_nothing_wakes_no_waiter(self):
        self.parked(b"/k")
        self.other.say(request(serving.COMPARE_SET, b"/k", b"x", b"1"))
        self.assertEqual(self.other.hear(9), text(b"x"))
        self.assertFalse(self.woken_by(b""))

    @serving.defect_of_torch("it counts a queue that is there already as missing")
    def test_a_wait_for_a_full_queue_and_a_key_ends_with_the_key(self):
        self.other.say(request(serving.QUEUE_PUSH, b"/q", b"1"))
        self.assertEqual(self.other.ping(), serving.PONG)
        self.parked(b"/q", b"/k")
        self.assertTrue(self.woken_by(request(serving.SET, b"/k", b"1")))

    @serving.defect_of_torch("a consumer stays listed under a queue that has served it")
    def test_a_served_consumer_is_forgotten_by_the_queue(self):
        self.parked(b"/q")
        self.assertTrue(self.woken_by(request(serving.QUEUE_PUSH, b"/q", b"1")))
        self.parked(b"/k")
        self.assertFalse(self.woken_by(request(serving.QUEUE_PUSH, b"/q", b"2")))

    def test_after_a_cancellation_is_answered_no_wake_up_follows(self):
        for _ in range(100):
            self.parked(b"/never")
            self.assertEqual(self.waiter.ask(bytes([serving.CANCEL_WAIT]), 1), b"\1")
        self.assertFalse(self.woken_by(request(serving.SET, b"/never", b"1")))

    def test_a_wake_up_before_the_cancellation_is_read_first(self):
        self.parked(b"/k")
        self.other.say(request(serving.SET, b"/k", b"1") + ping())
        self.assertEqual(self.other.hear(4), serving.PONG)
        self.assertEqual(self.waiter.ask(bytes([serving.CANCEL_WAIT]), 2), b"\0\1")

    def test_a_push_wakes_one_consumer_and_it_is_the_longest_waiting(self):
        lines = [self.raw() for _ in range(3)]
        for line in lines:
            self.assertEqual(line.ask(keys_request(serving.WAIT, b"/q") + ping(), 4), serving.PONG)
        for i, line in enumerate(lines):
            self.other.say(request(serving.QUEUE_PUSH, b"/q", b"item"))
            self.assertEqual(line.hear(1), b"\0")
            for later in lines[i + 1 :]:
                self.assertEqual(later.ping(), serving.PONG)

    def test_a_waiter_that_hung_up_leaves_the_others_woken(self):
        with RawClient(self.port) as gone:
            gone.ask(keys_request(serving.WAIT, b"/k") + ping(), 4)
            self.parked(b"/k")
        self.assertTrue(self.woken_by(request(serving.SET, b"/k", b"1")))

    def test_pipelined_requests_are_answered_in_order(self):
        frames = [request(serving.ADD, b"/n", number=1) for _ in range(5000)]
        answers = self.other.ask(b"".join(frames), 8 * len(frames))
        self.assertEqual(answers, struct.pack("<5000q", *range(1, 5001)))

    def test_empty_lists_are_answered(self):
        operations = (serving.CHECK, serving.WAIT, serving.MULTI_GET, serving.MULTI_SET)
        frames = [bytes([op]) + EMPTY_LIST for op in operations]
        self.assertEqual(self.other.ask(b"".join(frames) + ping(), 6), b"\0\0" + serving.PONG)


if __name__ == "__main__":
    unittest.main(verbosity=2)
