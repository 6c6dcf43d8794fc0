"""Workers that have PyTorch at once: importing it takes seconds, too long for the 200 workers of a test of 50 restarts.

    torch_nursery.py nursery SOCKET            imports PyTorch, then forks a child for each worker that calls
    torch_nursery.py worker SOCKET PROGRAM ... is started by a launcher: has a child do the work, and ends as it ends

A child gets the worker's environment, arguments and output, and never outlives the worker: a worker that gets SIGTERM
has its child killed and reaped first. A child's keeper (see forker.py) can also kill it at a moment that the program
planned beforehand, from outside, whatever the child is doing then.

Programs: restarts ATTEMPTS SEED LOG (see restart_many), together and without_last (the ranks of store/gloo_ranks.py),
script PATH ... (an unmodified program of a user).
"""

import contextlib
import datetime
import json
import os
import pathlib
import random
import runpy
import signal
import sys
import tempfile
import time

from waiting import pause

import forker

PATIENCE_S = 60


# ---- the test


@contextlib.contextmanager
def running(python, env=None):
    """Yields a function that makes the launcher's arguments from a program and its arguments. Without their first two
    words they are arguments of Python itself."""
    with tempfile.TemporaryDirectory(prefix="nursery_") as folder:
        socket = os.path.join(folder, "socket")
        with forker.running([python, __file__, "nursery", socket], env=env):
            yield lambda *program: ("--no-python", python, "-SE", __file__, "worker", socket, *map(str, program))


# ---- the worker: only modules of the standard library that import fast


def worker(path, *arguments):
    connection = forker.call(path, {"arguments": arguments, "environment": dict(os.environ)}, [1, 2])
    signal.signal(signal.SIGTERM, lambda *_: connection.send(b"k"))
    status = int(forker.read_line(connection) or sys.exit("the nursery hung up"))
    if os.WIFSIGNALED(status):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), os.WTERMSIG(status))
    os._exit(os.waitstatus_to_exitcode(status))


# ---- the nursery


class Log:
    """Lines of JSON that many processes append to one file, each with the time of the clock that all share."""

    def __init__(self, path):
        self.file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def __call__(self, what, **facts):
        rank, attempt = (int(os.environ[name]) for name in ("RANK", "TORCHELASTIC_RESTART_COUNT"))
        line = {"what": what, "attempt": attempt, "rank": rank, "at": time.monotonic()} | facts
        os.write(self.file, (json.dumps(line) + "\n").encode())


class Plan:
    """The ranks that are killed in an attempt, and when; all ranks compute the same plan.

    A launcher may delay jobs whose attempts die within their first second, one after the other. So every second attempt
    sleeps for that second, which others spend importing PyTorch.
    """

    LONGEST_S = {"started": 0.2, "init": 0.06, "working": 0.03}  # Longest time from the start of the phase to the kill.
    SLEEP_S = 1.1

    def __init__(self, seed, attempt, world):
        dice = random.Random(f"{seed} {attempt}")
        self.sleep_s = self.SLEEP_S if attempt % 2 else 0
        phases = ("init", "init", "working") if self.sleep_s else ("started", "init", "init", "working")
        self.victims = {}
        for rank in dice.sample(range(world), dice.choice((1, 1, 1, 2))):
            phase = dice.choice(phases)
            self.victims[rank] = phase, dice.uniform(0, self.LONGEST_S[phase])
        if attempt % 4 == 0:  # However quick the ranks are, some die in init_process_group.
            self.victims = dict.fromkeys(self.victims, ("init", 0))


class PlannedKill:
    """Kills the child some time after it has reported the planned phase."""

    def __init__(self, phases, planned, log):
        self.files, self.phases, self.planned, self.log = [phases], phases, planned, log
        self.child, self.kill_at, self.phase = None, None, None

    def patience_ms(self):
        return None if self.kill_at is None else max(0, 1000 * (self.kill_at - time.monotonic()))

    def look(self, ready, poller):
        if self.phases in ready:
            marks = os.read(self.phases, 64).decode().split()
            if not marks:
                poller.unregister(self.phases)
            elif self.planned and self.planned[0] in marks:
                self.kill_at, self.planned = time.monotonic() + self.planned[1], None
            self.phase = (marks or [self.phase])[-1]
        if self.kill_at is not None and time.monotonic() >= self.kill_at:
            self.log("kill", phase=self.phase)
            os.kill(self.child, signal.SIGKILL)
            self.kill_at = None


def nursery(path):
    # torch.set_num_threads() would not do: after a fork, autograd's threads race to replace the pool that it makes
    # ("Invalid thread pool!").
    os.environ["OMP_NUM_THREADS"] = "1"
    import gloo_ranks  # noqa: F401  (which imports PyTorch; children find it in place)
    import torch._dynamo  # noqa: F401  (as every optimizer does, for another second)

    connection, order, files = forker.serve(path)
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
    kill = PlannedKill(phases, planned, log)
    kill.child = os.fork()
    if kill.child == 0:
        os.dup2(files[0], 1)
        os.dup2(files[1], 2)
        os._exit(PROGRAMS[program](lambda phase: os.write(tell, f"{phase}\n".encode()), *arguments))
    os.close(tell)
    forker.keep(connection, kill.child, kill)


# ---- what the children do


def restart_many(tell, is_to_die, sleep_s, log):
    """Adds up with the other ranks until one is killed; in the last attempt, a few times.

    All add the number of their attempt, so a wrong sum would come from a worker of another attempt.
    """
    import torch
    import torch.distributed as dist

    attempt, world = int(os.environ["TORCHELASTIC_RESTART_COUNT"]), int(os.environ["WORLD_SIZE"])
    tell("started")
    pause(sleep_s, "as an import of PyTorch takes")
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
            raise RuntimeError("no rank was killed")
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


def script(_tell, path, *arguments):
    sys.argv = [path, *arguments]
    runpy.run_path(path, run_name="__main__")
    sys.stdout.flush()
    return 0


PROGRAMS = {"restarts": restart_many, "together": ranks(False), "without_last": ranks(True), "script": script}


if __name__ == "__main__":
    if sys.argv[1] == "worker":
        worker(*sys.argv[2:])
    else:
        sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "store"))
        nursery(sys.argv[2])
