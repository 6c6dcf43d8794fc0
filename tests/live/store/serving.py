"""The store servers under test, and the protocol's bytes for tests that write them by hand.

MUSTER_STORE_HOST names the program that serves muster's store (tests/fakes/store_host.cc). `--server torch` runs the
same tests against PyTorch's own server: that checks the tests, and the list of that server's defects.
"""

import os
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
