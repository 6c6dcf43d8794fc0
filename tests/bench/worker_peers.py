"""The libraries that worker_bench.py compares: how their ranks are started, and how they get commands.

A job's ranks live through many measurements. Each is connected to this process by a Unix socket (which network namespaces
do not affect) and blocks in reading it between commands: see worker_bench_rank.h.
"""

import os
import pathlib
import socket
import subprocess
import sys
import tempfile
import time

import launching

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "live"))
import netns  # noqa: E402
from ports import free_port  # noqa: E402

PATIENCE = 120  # seconds until all ranks have come, and for one answer
PEERS = ("muster", "gloo", "Open MPI")
UNRECORDED = "unrecorded"  # muster with --no-recorder, on one node.
# --oversubscribe only permits more ranks than slots. Pinning is left out since the others do not pin either.
MPI_FLAGS = ("--allow-run-as-root", "--oversubscribe", "--bind-to", "none")
PORTS_OF_NODES = {"muster": "29500", "gloo": "29501"}  # Rank 0 listens there, in its own namespace.


def program(path, hint):
    if not os.access(path, os.X_OK):
        sys.exit(f"{path} cannot be run: {hint}")
    return os.path.abspath(path)


def muster():
    return program(os.environ.get("MUSTER", ""), "set MUSTER to the launcher, as build/release/muster")


def worker_bench():
    default = os.path.join(os.path.dirname(muster()), "tests", "worker_bench")
    path = os.environ.get("MUSTER_WORKER_BENCH", default)
    return program(path, "build the target worker_bench, or set MUSTER_WORKER_BENCH")


def torch_python():
    venv = os.environ.get("MUSTER_TORCH_VENV") or os.path.expanduser("~/.cache/muster/torch")
    return program(f"{venv}/bin/python", "set MUSTER_TORCH_VENV to a virtual environment with PyTorch")


def build_mpi_bench(folder):
    """Compiles the ranks of Open MPI. Returns the program's path."""
    target = os.path.join(folder, "mpi_bench")
    sources = [str(HERE / name) for name in ("mpi_bench.cc", "worker_bench_rank.cc")]
    subprocess.run(["mpicxx", "-std=c++20", "-O2", f"-I{HERE.parents[1]}", *sources, "-o", target], check=True)
    return target


def versions(peers):
    """Returns one line for the report."""
    found = []
    if "gloo" in peers:
        command = [torch_python(), "-c", "import torch; print(torch.__version__)"]
        done = subprocess.run(command, capture_output=True, text=True, check=True)
        found.append(f"gloo of PyTorch {done.stdout.strip()} (OMP_NUM_THREADS=1, as torchrun sets it)")
    if "Open MPI" in peers:
        done = subprocess.run(["mpirun", "--version"], capture_output=True, text=True, check=True)
        found.append(f"{done.stdout.splitlines()[0]} ({' '.join(MPI_FLAGS)})")
    return "; ".join(found)


class Failed(Exception):
    pass


class Job:
    """The ranks of one library: on this machine, or half of them on each node of a cluster."""

    def __init__(self, peer, ranks, bytes_max, mpi_bench=None, cluster=None):
        self.name, self.ranks, self.cluster = f"{peer} on {ranks} ranks", ranks, cluster
        self.folder = tempfile.TemporaryDirectory(prefix="worker_bench_")
        path = os.path.join(self.folder.name, "driver")
        self.environment = dict(launching.ENVIRONMENT, WORKER_BENCH_SOCKET=path, WORKER_BENCH_BYTES=str(bytes_max),
                                TORCH_CPP_LOG_LEVEL="ERROR")
        self.processes, self.connections = [], []
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(path)
            listener.listen(ranks)
            listener.settimeout(1)
            try:
                self.start(peer, mpi_bench)
                self.connections = self.accept(listener)
            except BaseException:
                self.end()
                raise

    def start(self, peer, mpi_bench):
        if peer == "gloo":
            self.start_by_hand(peer, [torch_python(), str(HERE / "gloo_bench.py")])
        elif peer == "Open MPI":
            self.run(["mpirun", *MPI_FLAGS, "-np", str(self.ranks), mpi_bench])
        elif self.cluster:
            self.start_by_hand(peer, [worker_bench(), "--no-shared"])
        else:
            flags = ["--no-recorder"] if peer == UNRECORDED else []
            self.run([muster(), "--nproc-per-node", str(self.ranks), *flags, worker_bench()])

    def run(self, argv, node=None, **more):
        environment = self.environment | more
        files = {"stdin": subprocess.DEVNULL, "stdout": sys.stderr}
        if node:
            self.processes.append(self.cluster.run(node, argv, env=environment, **files))
        else:
            self.processes.append(subprocess.Popen(argv, env=environment, **files))

    def start_by_hand(self, peer, argv):
        """Starts the ranks with the variables that a launcher sets."""
        local = self.ranks // 2 if self.cluster else self.ranks
        port = PORTS_OF_NODES[peer] if self.cluster else str(free_port())
        for rank in range(self.ranks):
            node = rank // local + 1
            more = {"RANK": str(rank), "LOCAL_RANK": str(rank % local), "GROUP_RANK": str(node - 1),
                    "WORLD_SIZE": str(self.ranks), "LOCAL_WORLD_SIZE": str(local), "MASTER_ADDR": "127.0.0.1",
                    "MASTER_PORT": port}
            if self.cluster:
                more |= {"MASTER_ADDR": self.cluster.address(1), "GLOO_SOCKET_IFNAME": self.cluster.nic()}
            self.run(argv, node if self.cluster else None, **more)

    def accept(self, listener):
        by_rank, deadline = {}, time.monotonic() + PATIENCE
        while len(by_rank) < self.ranks:
            try:
                connection, _ = listener.accept()
            except TimeoutError:
                if time.monotonic() > deadline or any(process.poll() is not None for process in self.processes):
                    raise Failed(f"{self.name} did not start, only ranks {sorted(by_rank)} came") from None
                continue
            connection.settimeout(PATIENCE)
            stream = connection.makefile("rw")
            connection.close()  # The stream holds it open.
            by_rank[int(stream.readline())] = stream
        return [by_rank[rank] for rank in range(self.ranks)]

    def tell(self, command):
        """Sends all ranks the command. Returns their answers."""
        for stream in self.connections:
            stream.write(command + "\n")
            stream.flush()
        return [self.answer_to(command, rank) for rank in range(self.ranks)]

    def answer_to(self, command, rank):
        try:
            line = self.connections[rank].readline()
        except TimeoutError:
            raise Failed(f"{self.name}: rank {rank} has not answered `{command}` in {PATIENCE} s") from None
        if not line:
            raise Failed(f"{self.name}: rank {rank} ended in `{command}`")
        return line.strip()

    def check(self, operation, size):
        for rank, verdict in enumerate(self.tell(f"check {operation} {size}")):
            if verdict != "ok":
                raise Failed(f"{self.name}: {operation} of {size} bytes gives rank {rank} a wrong result: {verdict}")

    def time(self, operation, size, warm_up, iterations):
        """Returns the microseconds per call: the mean on the slowest rank."""
        return max(map(float, self.tell(f"time {operation} {size} {warm_up} {iterations}")))

    def end(self):
        for stream in self.connections:
            stream.close()
        if not self.connections:
            for process in self.processes:
                process.kill()
        for process in self.processes:
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self.folder.cleanup()
