"""A program of torch.distributed on gloo in which rank 0 does what takes long, while the others wait for it in a barrier.

    SERVER=127.0.0.1:8000 FOLDER=/tmp/x muster --nproc-per-node 3 healthy_waits.py SECONDS SCENE...

The server (healthy_test.py has it) answers SECONDS after a request, or a byte at a time for as long. Warms up first, so that
the launcher has seen many short waits.
"""
import fcntl
import os
import select
import socket
import subprocess
import sys
import tempfile
import threading
import time

import torch
import torch.distributed as dist

SECONDS = float(sys.argv[1])


def until_the_end():
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        yield


def poll_a_file():
    for _ in until_the_end():
        os.path.exists(os.environ["FOLDER"] + "/nothing")
        time.sleep(0.05)


def poll_a_server():
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        for _ in until_the_end():
            with socket.socket() as one:
                one.connect_ex(closed.getsockname())
            time.sleep(0.05)


def connect(what):
    host, port = os.environ["SERVER"].rsplit(":", 1)
    server = socket.create_connection((host, int(port)))
    server.sendall(f"{what} {SECONDS}\n".encode())
    return server


def ask_a_server():
    with connect("answer") as server:
        server.settimeout(None)
        server.recv(1)


def watch_a_server():
    """As an event loop does."""
    with connect("answer") as server, select.epoll() as loop:
        loop.register(server, select.EPOLLIN)
        loop.poll()


def download():
    with connect("trickle") as server:
        while server.recv(100):
            pass


def serve():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        client = subprocess.Popen(["sh", "-c", f"sleep {SECONDS}; exec {sys.executable} -c 'import socket, sys; "
                                   f"socket.create_connection((\"127.0.0.1\", {listener.getsockname()[1]}))'"])
        listener.accept()[0].close()
        client.wait()


def run_a_child():
    subprocess.run(["sleep", str(SECONDS)], check=True)


def read_from_a_child():
    subprocess.run(["sh", "-c", f"sleep {SECONDS}; echo done"], check=True, capture_output=True)


def ask_by_a_child():
    """An upload tool that waits for its server."""
    code = ("import os, socket; host, port = os.environ['SERVER'].rsplit(':', 1); "
            "s = socket.create_connection((host, int(port))); s.sendall(b'answer %f\\n'); s.settimeout(None); s.recv(1)" % SECONDS)
    subprocess.run([sys.executable, "-c", code], check=True)


def ask_a_child_by_a_socket():
    """The rank keeps the child's end open, as programs do that only fork."""
    own, its = socket.socketpair()
    with own, its:
        if os.fork() == 0:
            own.close()
            time.sleep(SECONDS)
            its.send(b"x")
            os._exit(0)
        own.recv(1)
        os.wait()


def run_a_child_that_asks_another():
    own, its = socket.socketpair()
    with its:
        asks = subprocess.Popen([sys.executable, "-c", "import socket; socket.socket(fileno=0).recv(1)"], stdin=own)
        own.close()
        if os.fork() == 0:
            time.sleep(SECONDS)
            its.send(b"x")
            os._exit(0)
        asks.wait()
        os.wait()


def evaluate():
    for _ in until_the_end():
        torch.ones(100, 100) @ torch.ones(100, 100)


def save_in_a_thread():
    def save():
        with tempfile.TemporaryFile() as file:
            for _ in until_the_end():
                file.seek(0)
                file.write(bytes(1 << 20))
                time.sleep(0.05)
    thread = threading.Thread(target=save)
    thread.start()
    thread.join()


def take_turns():
    """A child holds the lock for which rank 0 waits, as one that downloads for all."""
    with open(os.environ["FOLDER"] + "/lock", "w") as lock:
        holder = subprocess.Popen(["flock", lock.name, "sleep", str(SECONDS)])
        while holder.poll() is None:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                fcntl.flock(lock, fcntl.LOCK_UN)
            except OSError:
                pass
            time.sleep(0.05)


def load_slowly():
    for _ in torch.utils.data.DataLoader(Slow(), num_workers=1):
        pass


class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 2

    def __getitem__(self, at):
        time.sleep(SECONDS / 2)
        return torch.zeros(1)


def prompt():
    assert input("? ") == "go on"


def debug():
    import pdb
    pdb.set_trace()


SCENES = {function.__name__: function for function in (
    poll_a_file, poll_a_server, ask_a_server, watch_a_server, download, serve, run_a_child, read_from_a_child, ask_by_a_child,
    ask_a_child_by_a_socket, run_a_child_that_asks_another, evaluate, save_in_a_thread, take_turns, load_slowly, prompt, debug)}


def main():
    dist.init_process_group("gloo")
    tensor = torch.ones(1000)
    for _ in range(30):
        dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
        dist.barrier()
    for name in sys.argv[2:]:
        if dist.get_rank() == 0:
            print("scene", name, flush=True)
            SCENES[name]()
        dist.barrier()
    dist.destroy_process_group()


main()
