"""A rank of first_cause.py that is a Python program: rank.py FOLDER ROLE[@MS].

    victim          ends by the exception that it gets when a connection closes
    raise           ends by an exception, MS milliseconds after the start is given
    print_hang      raises, prints its traceback, and hangs in its clean-up
    record_hang     raises, writes torch's error file, and hangs in its clean-up before it prints anything
    print_late      as print_hang, but it ignores SIGTERM and is done after 1.2 s
    record_late     as record_hang, but it ignores SIGTERM and is done after 1.2 s
    fault, killed   dies by a SIGSEGV of its own, by SIGKILL
    slow_fault, slow_killed   the same with 3 GB that are freed after its connections were closed
    eat             takes memory until it is killed for that
    child           has a child that takes memory until it is killed, and goes on
    sleep           waits for ever

With $FIRST_CAUSE_MESH every rank is connected to every other. All greet each other, and only victims read the greetings:
so when a rank that is to fail closes a connection, its peer sees "connection reset".
"""

import atexit
import ctypes
import json
import mmap
import os
import select
import signal
import socket
import sys
import time
import traceback

FOLDER, RANK, WORLD = sys.argv[1], int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
CHUNK = 16 << 20
LATE_S = 1.2


def leave_file(name, content=""):
    path = f"{FOLDER}/{name}.{RANK}"
    with open(f"{path}.new", "w") as file:
        file.write(content)
    os.rename(f"{path}.new", path)


def await_number(name):
    while True:
        try:
            with open(f"{FOLDER}/{name}") as file:
                return int(file.read())
        except FileNotFoundError:
            time.sleep(0.002)


def await_start(delay_ms=0):
    at = await_number("go") + delay_ms * 1_000_000
    while (left := at - time.monotonic_ns()) > 0:
        time.sleep(left / 1e9)


def stamp():
    """Records the moment of this rank's failure; nothing happens between this and the failure."""
    file = os.open(f"{FOLDER}/stamp.{RANK}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o644)
    os.write(file, b"%d" % time.monotonic_ns())
    os.close(file)


def mesh(reads_greetings):
    listener = socket.create_server(("127.0.0.1", 0), backlog=64)
    leave_file("port", str(listener.getsockname()[1]))
    peers = [socket.create_connection(("127.0.0.1", await_number(f"port.{rank}"))) for rank in range(RANK)]
    while len(peers) < WORLD - 1:
        peers.append(listener.accept()[0])
    listener.close()
    for peer in peers:
        peer.sendall(b"x")
    for peer in peers if reads_greetings else ():
        peer.recv(1)
    return peers


def hold_memory(size=3 << 30):
    """Takes shared memory that the kernel frees after the sockets that are opened later, like buffers of a data loader."""
    with open("/proc/meminfo") as file:
        available = next(int(line.split()[1]) for line in file if line.startswith("MemAvailable")) * 1024
    os.posix_fallocate(os.memfd_create("buffers"), 0, min(size, available // 4))


def eat():
    eaten = []
    while True:
        eaten.append(mmap.mmap(-1, CHUNK, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | mmap.MAP_POPULATE))


def have_child_eat():
    pid = os.fork()
    if pid == 0:
        eat()
    _, status = os.waitpid(pid, 0)
    if not os.WIFSIGNALED(status) or os.WTERMSIG(status) != signal.SIGKILL:
        sys.exit(f"the child was to be killed for its memory, and ended with {status}")


class Rank:
    def __init__(self, role, delay_ms):
        self.role, self.delay_ms = role, delay_ms
        if role.startswith("slow_"):
            hold_memory()
        self.peers = mesh(role == "victim") if os.environ.get("FIRST_CAUSE_MESH") else []
        if role == "child":
            have_child_eat()
        leave_file("ready")

    def lose_peer(self):
        poll = select.poll()
        for peer in self.peers:
            poll.register(peer, select.POLLIN)
        ready = poll.poll()[0][0]
        peer = next(peer for peer in self.peers if peer.fileno() == ready)
        stamp()
        if not peer.recv(1):
            raise EOFError  # multiprocessing.connection raises it too.
        sys.exit("a peer sent unexpected data")

    def clean_up(self):
        for peer in self.peers:
            peer.close()
        time.sleep(LATE_S if self.role.endswith("_late") else 60)

    def fail(self):
        stamp()
        raise ValueError(f"wrong shape (3, {RANK})")

    def print_first(self):
        atexit.register(self.clean_up)
        self.fail()

    def record_first(self):
        """Leaves what torch's @record leaves, around a program whose clean-up is slow."""
        try:
            self.fail()
        except ValueError as error:
            extra = {"py_callstack": traceback.format_exc(), "timestamp": str(int(time.time()))}
            message = {"message": f"ValueError: {error}", "extraInfo": extra}
            with open(os.environ["TORCHELASTIC_ERROR_FILE"], "w") as file:
                json.dump({"message": message}, file)
            raise
        finally:
            self.clean_up()

    def play(self):
        if self.role == "victim":
            self.lose_peer()
        if self.role in ("sleep", "child"):
            time.sleep(1000)
        if self.role == "raise" or self.role.endswith("_late"):
            signal.signal(signal.SIGTERM, signal.SIG_IGN)
        await_start(self.delay_ms)
        if self.role == "raise":
            self.fail()
        if self.role.startswith("print_"):
            self.print_first()
        if self.role.startswith("record_"):
            self.record_first()
        stamp()
        if self.role.endswith("fault"):
            ctypes.string_at(0)
        if self.role.endswith("killed"):
            os.kill(os.getpid(), signal.SIGKILL)
        if self.role == "eat":
            eat()
        sys.exit(f"no role is called {self.role}")


if __name__ == "__main__":
    name, _, delay = sys.argv[2].partition("@")
    Rank(name, int(delay or 0)).play()
