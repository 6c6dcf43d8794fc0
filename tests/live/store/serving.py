"""The store servers under test, and the protocol's bytes for tests that write them by hand.

MUSTER_STORE_HOST names the program that serves muster's store (tests/fakes/store_host.cc). `--server torch` runs the
same tests against PyTorch's own server: that checks the tests, and the list of that server's defects.
"""

import collections
import contextlib
import multiprocessing
import os
import random
import socket
import struct
import subprocess
import sys
import unittest

LIMIT_S = 30
SERVER = "muster"

VALIDATE = bytes.fromhex("00cef7853c")
SET, COMPARE_SET, GET, ADD, CHECK, WAIT, NUM_KEYS, DELETE_KEY, APPEND = 1, 2, 3, 4, 5, 6, 7, 8, 9
MULTI_GET, MULTI_SET, CANCEL_WAIT, PING, QUEUE_PUSH, QUEUE_POP, QUEUE_LEN, LIST_KEYS, BARRIER = range(10, 19)


def need_torch():
    """Starts this program again under the Python that has PyTorch, unless it already runs there."""
    venv = os.environ.get("MUSTER_TORCH_VENV")
    if not venv or not os.access(f"{venv}/bin/python", os.X_OK):
        sys.exit(f"MUSTER_TORCH_VENV is {venv!r}: set it to a virtual environment with PyTorch")
    if os.path.realpath(sys.prefix) != os.path.realpath(venv):
        os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "FATAL")  # The client prints its stack for each time-out.
        os.execv(f"{venv}/bin/python", [f"{venv}/bin/python", *sys.argv])


def store_host():
    program = os.environ.get("MUSTER_STORE_HOST", "")
    if not os.access(program, os.X_OK):
        sys.exit(f"MUSTER_STORE_HOST is {program!r}: set it to the store_host program")
    return program


class MusterServer:
    """store_host in its own process."""

    def __init__(self, *flags):
        self.process = subprocess.Popen([store_host(), *flags], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE)
        line = self.process.stdout.readline()
        if not line.strip().isdigit():
            self.stop()
            raise AssertionError(f"store_host did not print its port: {line!r}")
        self.port = int(line)
        self.pid = self.process.pid

    def memory_bytes(self):
        with open(f"/proc/{self.pid}/status") as status:
            return next(int(line.split()[1]) * 1024 for line in status if line.startswith("VmRSS"))

    def stop(self):
        self.process.terminate()
        code = self.process.wait(LIMIT_S)
        self.process.stdout.close()
        return code


class TorchServer:
    """PyTorch's server, on a thread of this process."""

    def __init__(self):
        from torch.distributed import TCPStore

        self.store = TCPStore("127.0.0.1", 0, None, is_master=True, wait_for_workers=False)
        self.port = self.store.port

    def stop(self):
        self.store = None
        return 0


def start_server():
    return MusterServer() if SERVER == "muster" else TorchServer()


def defect_of_torch(why):
    """Marks a promise that PyTorch's own server breaks; run against that server, the test must fail."""

    def mark(function):
        function.__doc__ = f"PyTorch's own server: {why}"
        return unittest.expectedFailure(function) if SERVER == "torch" else function

    return mark


def text(value):
    return struct.pack("<Q", len(value)) + value


def request(op, *parts, number=None):
    """Returns one opcode, its strings, and the 64-bit number that ends ADD and BARRIER."""
    tail = b"" if number is None else struct.pack("<q", number)
    return bytes([op]) + b"".join(map(text, parts)) + tail


def keys_request(op, *keys):
    return bytes([op]) + struct.pack("<Q", len(keys)) + b"".join(map(text, keys))


def multi_set(pairs):
    body = b"".join(text(key) + text(value) for key, value in pairs)
    return bytes([MULTI_SET]) + struct.pack("<Q", len(pairs)) + body


def ping(nonce=0x11223344):
    return bytes([PING]) + struct.pack("<I", nonce)


PONG = struct.pack("<I", 0x11223344)


class RawClient:
    """A socket that sends exactly what a test wants sent."""

    def __init__(self, port, greet=True):
        self.socket = socket.create_connection(("127.0.0.1", port), LIMIT_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if greet:
            self.say(VALIDATE + ping())
            assert self.hear(4) == PONG

    def say(self, data):
        self.socket.sendall(data)

    def hear(self, size):
        """Returns exactly that many bytes, or fewer if the server hangs up."""
        data = b""
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                break
            data += part
        return data

    def ask(self, data, size):
        self.say(data)
        return self.hear(size)

    def ping(self):
        return self.ask(ping(), 4)

    def was_hung_up_on(self):
        """Returns True once the server has closed, False if it still holds the connection after the limit."""
        try:
            while self.socket.recv(65536):
                pass
            return True
        except ConnectionError:
            return True
        except TimeoutError:
            return False

    def close(self):
        self.socket.close()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()


# ---- hostile connections

MIB = 1 << 20


def half_a_request(rng):
    value = rng.choice((100, 70_000, 8 * MIB))
    frame = bytes([SET]) + text(b"/hostile") + struct.pack("<Q", value)
    return VALIDATE + frame + bytes(min(value - 1, rng.choice((1, 99, 60_000, 800_000))))


def huge_lengths(rng):
    size = struct.pack("<Q", rng.choice((1 << 62, (1 << 64) - 1, 1 << 32, 8 * MIB + 1)))
    op = rng.choice((SET, GET, CHECK, WAIT, MULTI_SET, QUEUE_PUSH))
    return VALIDATE + bytes([op]) + size + bytes(50)


def endless_list(rng):
    return VALIDATE + bytes([WAIT]) + struct.pack("<Q", 131072) + text(b"x") * rng.randrange(5000)


# What one sends: its kind, and its bytes from a random generator.
KINDS = {
    "half requests": half_a_request,
    "huge lengths": huge_lengths,
    "endless lists": endless_list,
    "random bytes": lambda rng: rng.randbytes(rng.randrange(1, 4000)),
    "random operations": lambda rng: VALIDATE + bytes(rng.randrange(19) for _ in range(rng.randrange(1, 2000))),
    "HTTP": lambda rng: b"GET /metrics HTTP/1.1\r\nHost: localhost\r\nUser-Agent: scanner\r\n\r\n",
    "silence": lambda rng: b"",
    "readers that do not read": lambda rng: VALIDATE + request(GET, b"/large") * 2000,
    "pings without end": lambda rng: VALIDATE + ping() * 20000,
}


class Attacker:
    """One hostile connection: sends its data, at once or a byte at a time, and seldom reads."""

    def __init__(self, port, rng, kinds):
        self.kind = rng.choice(list(kinds))
        self.data = memoryview(kinds[self.kind](rng))
        self.slow = rng.random() < 0.3
        # Half of them read the answers too: they keep the server as busy as it lets them.
        self.reads = self.kind == "pings without end" and rng.random() < 0.5
        self.leaves_at_once = self.kind == "silence" and rng.random() < 0.5  # A port scan.
        self.socket = socket.socket()
        self.socket.setblocking(False)
        self.socket.connect_ex(("127.0.0.1", port))

    def turn(self):
        """Returns True while it has something left to send."""
        if self.leaves_at_once:
            self.socket.close()
            return False
        try:
            sent = self.socket.send(self.data[: 1 if self.slow else 65536])
            self.data = self.data[sent:]
            if self.reads and self.socket.recv(65536) == b"":
                return False
        except BlockingIOError:
            pass
        except OSError:
            return False
        return len(self.data) > 0


def attack(port, seed, count, kinds, stop, done):
    """Runs as a process: keeps `count` hostile connections open, and replaces finished ones sooner or later."""
    rng = random.Random(seed)
    attackers = [Attacker(port, rng, kinds) for _ in range(count)]
    made = collections.Counter(attacker.kind for attacker in attackers)
    while not stop.is_set():
        for i, attacker in enumerate(attackers):
            if not attacker.turn() and rng.random() < 0.02:
                attacker.socket.close()
                attackers[i] = Attacker(port, rng, kinds)
                made[attackers[i].kind] += 1
    for attacker in attackers:
        attacker.socket.close()
    done.put(made)


@contextlib.contextmanager
def crowd(port, seed, count, kinds):
    """Two processes keep `count` hostile connections open. Yields a Counter that is filled at the end: how many of each kind."""
    processes = multiprocessing.get_context("fork")  # The kinds cannot be pickled.
    stop, done, made = processes.Event(), processes.Queue(), collections.Counter()
    halves = [processes.Process(target=attack, args=(port, seed + i, count // 2, kinds, stop, done)) for i in range(2)]
    for half in halves:
        half.start()
    try:
        yield made
    finally:
        stop.set()
        for half in halves:
            made.update(done.get(timeout=LIMIT_S))
        for half in halves:
            half.join()


class StoreTest(unittest.TestCase):
    """Each test has its own server, so that it may count keys."""

    def setUp(self):
        self.server = start_server()
        self.addCleanup(self.check_end)
        self.port = self.server.port

    def check_end(self):
        self.assertEqual(self.server.stop(), 0, "the server did not survive the test")

    def raw(self, greet=True):
        client = RawClient(self.port, greet)
        self.addCleanup(client.close)
        return client


def choose_server():
    """Reads --server before the tests are made, since it decides which of them must fail."""
    global SERVER
    for flag in list(sys.argv):
        if flag.startswith("--server="):
            SERVER = flag.partition("=")[2]
            sys.argv.remove(flag)
    if SERVER not in ("muster", "torch"):
        sys.exit(f"--server={SERVER}: muster or torch")
