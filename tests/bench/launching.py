"""The launchers that are compared: how each is called, and how one run of each is driven."""

import dataclasses
import math
import os
import pathlib
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(1, str(pathlib.Path(__file__).resolve().parents[1] / "live"))
from waiting import pause, polling  # noqa: E402, F401


@dataclasses.dataclass(frozen=True)
class Launcher:
    name: str
    command: tuple
    flags: tuple  # "{n}" is the number of workers
    restarts: tuple = ()
    tee: tuple = ()  # empty: not supported

    def call(self, workers, program, *more):
        return [*self.command, *(flag.replace("{n}", str(workers)) for flag in self.flags), *more, *program]


TORCH_FLAGS = {
    "flags": ("--nproc-per-node", "{n}", "--no-python"),
    "restarts": ("--max-restarts", "1"),
    "tee": ("--tee", "3", "--log-dir", "{folder}"),
}


def find(names):
    """Returns the launchers by name. Ends the program if one is missing, since no column may vanish silently."""
    torch = f"{os.environ.get('MUSTER_TORCH_VENV', '')}/bin/torchrun"
    paths = {"muster": os.environ.get("MUSTER", ""), "torchrun": torch, "mpirun": shutil.which("mpirun") or ""}
    found = []
    for name in names:
        path = os.path.abspath(paths[name]) if paths[name] else ""
        if not os.access(path, os.X_OK):
            sys.exit(f"{name} is not at {path!r}: set MUSTER, MUSTER_TORCH_VENV or PATH, or choose by --launchers")
        if name == "mpirun":
            found.append(Launcher(name, (path,), ("--allow-run-as-root", "--oversubscribe", "-np", "{n}")))
        else:
            found.append(Launcher(name, (path,), **TORCH_FLAGS))
    return found


def build_worker(folder):
    source = pathlib.Path(__file__).resolve().parent / "bench_worker.cc"
    program = folder / "bench_worker"
    subprocess.run(["g++", "-std=c++20", "-O2", "-static", str(source), "-o", str(program)], check=True)
    return str(program)


ENVIRONMENT = {
    name: value for name, value in os.environ.items() if not name.startswith(("PET_", "TORCHELASTIC_", "OMPI_"))
} | {"OMP_NUM_THREADS": "1"}


class Job:
    """A launcher that runs in its own folder, "{folder}" in its command; both end with the `with` block."""

    def __init__(self, command, stdout=subprocess.DEVNULL):
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="bench_"))
        self.command = [argument.replace("{folder}", str(self.folder)) for argument in command]
        self.stdout = stdout

    def __enter__(self):
        if self.stdout == "file":
            self.stdout = open(self.folder / "output", "wb")
        self.began = time.monotonic()
        self.process = subprocess.Popen(
            self.command,
            stdin=subprocess.DEVNULL,
            stdout=self.stdout,
            stderr=subprocess.DEVNULL,
            env=ENVIRONMENT | {"TMPDIR": str(self.folder)},
            cwd=self.folder,
        )
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.stop()
        if self.process.stdout:
            self.process.stdout.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def stop(self):
        """Returns the seconds from TERM to the end."""
        began = time.monotonic()
        self.process.send_signal(signal.SIGTERM)
        return self.await_end(120) - began

    def end(self, wanted=0, patience=600):
        """Waits for the end. Returns its time, or infinity if it does not come."""
        ended = self.await_end(patience)
        if ended < math.inf and self.process.returncode != wanted:
            sys.exit(f"{self.command} ended with {self.process.returncode}, wanted {wanted}")
        return ended

    def await_end(self, patience):
        """Uses a pidfd, since Popen.wait with a time-out polls only every 50 ms."""
        pidfd = os.pidfd_open(self.process.pid)
        try:
            readable, _, _ = select.select([pidfd], [], [], patience)
        finally:
            os.close(pidfd)
        ended = time.monotonic() if readable else math.inf
        if not readable:
            self.process.kill()
        self.process.wait()
        return ended

    def stamp(self, rank, attempt=0, patience=60):
        """Returns (start of that worker's main, its pid), as soon as the worker has written them."""
        path = self.folder / f"start.{attempt}.{rank}"
        for _ in polling(patience, 0.0005):
            if path.exists():
                nanoseconds, pid = path.read_text().split()
                return int(nanoseconds) / 1e9, int(pid)
        sys.exit(f"{self.command}: worker {rank} of attempt {attempt} did not start in {patience} s")

    def stamps(self, workers):
        return [self.stamp(rank) for rank in range(workers)]


def processes_of(pid):
    """Returns the launcher and its descendants that run the same program: for muster, front and agent."""
    family, seen = [pid], []
    program = os.readlink(f"/proc/{pid}/exe")
    while family:
        parent = family.pop()
        try:
            if os.readlink(f"/proc/{parent}/exe") != program:
                continue
            seen.append(parent)
            for task in os.listdir(f"/proc/{parent}/task"):
                children = pathlib.Path(f"/proc/{parent}/task/{task}/children").read_text()
                family += map(int, children.split())
        except OSError:
            continue
    return seen
