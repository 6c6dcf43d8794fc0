"""Workers that have PyTorch at once: importing it takes seconds, which a test of 50 restarts cannot pay 200 times.

    torch_nursery.py nursery SOCKET            imports PyTorch, then forks a child for each worker that calls
    torch_nursery.py worker SOCKET PROGRAM ... what a launcher starts: has its child do the work, and ends as that ends

A child gets the worker's environment, arguments and output, and never outlives the worker: a worker that is told to
stop has its child killed and reaped first. A child's keeper (one process for each) can also kill it at a moment that
the program planned beforehand, from outside, whatever the child is doing then.

Programs: restarts ATTEMPTS SEED LOG (see restart_many), together and without_last (the ranks of store/gloo_ranks.py).
"""

import datetime
import json
import os
import pathlib
import random
import select
import signal
import socket
import sys
import time

PATIENCE_S = 60


# ---- the worker: nothing but the standard library's quick part


def read_line(connection):
    """A whole line, or nothing if the other end is gone."""
    line = b""
    while not line.endswith(b"\n"):
        more = connection.recv(4096)
        if not more:
            return b""
        line += more
    return line


def worker(path, *arguments):
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    signal.signal(signal.SIGTERM, lambda *_: connection.send(b"k"))
    order = json.dumps({"arguments": arguments, "environment": dict(os.environ)}) + "\n"
    socket.send_fds(connection, [order[:1].encode()], [1, 2])
    connection.sendall(order[1:].encode())
    status = int(read_line(connection) or sys.exit("the nursery hung up"))
    if os.WIFSIGNALED(status):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status))


# ---- the nursery


class Log:
    """Lines of JSON that many processes append to one file; each says when, by the clock that all share."""

    def __init__(self, path):
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def __call__(self, what, **facts):
        rank, attempt = (int(os.environ[name]) for name in ("RANK", "TORCHELASTIC_RESTART_COUNT"))
        line = {"what": what, "attempt": attempt, "rank": rank, "at": time.monotonic()} | facts
        os.write(self.file, (json.dumps(line) + "\n").encode())


class Plan:
    """Who is killed in which attempt and when, the same for all ranks that ask.

    A launcher may let jobs wait whose attempts die within their first second, one after the other: so every second
    attempt spends that second asleep, as others spend it importing PyTorch.
    """

    LONGEST_S = {"started": 0.2, "init": 0.06, "working": 0.03}  # From the begin of the phase to the kill.
    SLEEP_S = 1.1

    def __init__(self, seed, attempt, world):
        dice = random.Random(f"{seed} {attempt}")
        self.sleep_s = self.SLEEP_S if attempt % 2 else 0
        phases = ("init", "init", "working") if self.sleep_s else ("started", "init", "init", "working")
        self.victims = {}
        for rank in dice.sample(range(world), dice.choice((1, 1, 1, 2))):
            phase = dice.choice(phases)
            self.victims[rank] = phase, dice.uniform(0, self.LONGEST_S[phase])


def keep(connection, child, phases, planned, log):
    """Reaps the child, having killed it if the worker says so or vanishes, or when it is planned."""
    done = os.pidfd_open(child)
    poller = select.poll()
    for file in (connection.fileno(), phases, done):
        poller.register(file, select.POLLIN)
    kill_at, phase = None, None
    while True:
        patience = None if kill_at is None else max(0, 1000 * (kill_at - time.monotonic()))
        ready = [file for file, _ in poller.poll(patience)]
        if done in ready:
            break
        if connection.fileno() in ready:
            os.kill(child, signal.SIGKILL)
            poller.unregister(connection.fileno())
        if phases in ready:
            marks = os.read(phases, 64).decode().split()
            if not marks:
                poller.unregister(phases)
            elif planned and planned[0] in marks:
                kill_at, planned = time.monotonic() + planned[1], None
            phase = (marks or [phase])[-1]
        if kill_at is not None and time.monotonic() >= kill_at:
            log("kill", phase=phase)
            os.kill(child, signal.SIGKILL)
            kill_at = None
    connection.sendall(f"{os.waitpid(child, 0)[1]}\n".encode())


def raise_child(connection):
    """One worker's call, in a process of its own: forks the child and keeps it."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    first, files, _, _ = socket.recv_fds(connection, 1, 2)
    rest = read_line(connection)
    if not rest:
        return  # The worker was stopped before it could say what it wants.
    order = json.loads(first + rest)
    os.environ.clear()
    os.environ.update(order["environment"])
    program, *arguments = order["arguments"]
    phases, tell = os.pipe()
    planned, log = None, None
    if program == "restarts":
        attempts, seed, log = int(arguments[0]), arguments[1], Log(arguments[2])
        rank, world, attempt = (int(os.environ[n]) for n in ("RANK", "WORLD_SIZE", "TORCHELASTIC_RESTART_COUNT"))
        is_to_die, plan = attempt < attempts, Plan(seed, attempt, world)
        planned = plan.victims.get(rank) if is_to_die else None
        arguments = (is_to_die, plan.sleep_s, log)
    child = os.fork()
    if child == 0:
        os.dup2(files[0], 1)
        os.dup2(files[1], 2)
        os._exit(PROGRAMS[program](lambda phase: os.write(tell, f"{phase}\n".encode()), *arguments))
    os.close(tell)
    keep(connection, child, phases, planned, log)


def nursery(path):
    import gloo_ranks  # noqa: F401  (which imports PyTorch; children find it in place)
    import torch

    torch.set_num_threads(1)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(path)
    listener.listen(1000)
    print("ready", flush=True)
    while True:
        connection, _ = listener.accept()
        if os.fork() == 0:
            listener.close()
            raise_child(connection)
            os._exit(0)
        connection.close()


# ---- what the children do


def restart_many(tell, is_to_die, sleep_s, log):
    """Meets the others and adds up with them until somebody is killed; in the last attempt, a few times.

    All add the number of their attempt, so a sum that does not fit would come from a worker of another one.
    """
    import torch
    import torch.distributed as dist

    attempt, world = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), int(os.environ["WORLD_SIZE"])
    tell("started")
    time.sleep(sleep_s)
    try:
        log("init")
        tell("init")
        dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=PATIENCE_S))
        log("ready")
        end = time.monotonic() + PATIENCE_S
        rounds = 0
        while time.monotonic() < end if is_to_die else rounds < 5:
            total = torch.tensor([attempt])
            dist.all_reduce(total)
            if total.item() != attempt * world:
                raise RuntimeError(f"a stale sum: {total.item()}, not {attempt * world}")
            if rounds == 0:
                log("working")
                tell("working")
            rounds += 1
        if is_to_die:
            raise RuntimeError("nobody was killed")
        dist.barrier()
        log("done")
        return 0
    except BaseException as error:
        log("error", text=str(error).splitlines()[0])
        print(error, file=sys.stderr, flush=True)
        return 1


def ranks(without_last):
    def run(_tell, *_marker):
        import gloo_ranks

        gloo_ranks.work(int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), without_last)
        return 0

    return run


PROGRAMS = {"restarts": restart_many, "together": ranks(False), "without_last": ranks(True)}


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        worker(*sys.argv[2:])
    else:
        sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "store"))
        nursery(sys.argv[2])
