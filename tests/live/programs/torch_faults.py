"""The faults of hang_faults.cc, as an ordinary program of torch.distributed on gloo that does not know muster.

    FAULT=blocked_read CULPRIT=2 FIFO=PATH muster --nproc-per-node 4 torch_faults.py

STEP=ddp makes each call a step of DistributedDataParallel. $FIFO, $CALLS, $PAUSE_S and $SECONDS are as there.
"""
import ctypes
import os
import random
import signal
import threading
import time

import torch
import torch.distributed as dist

CULPRIT = int(os.environ.get("CULPRIT", "0"))
FAULT = os.environ.get("FAULT", "none")
PAUSE_S = float(os.environ.get("PAUSE_S", "1"))
HEALTHY_CALLS = 30
VALUES = torch.ones(1000)


def plain_step():
    dist.all_reduce(VALUES, op=dist.ReduceOp.MAX)


def train(model, optimizer):
    optimizer.zero_grad()
    model(VALUES).sum().backward()
    optimizer.step()


def ddp_step():
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1000, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    return lambda: train(model, optimizer)


def warm_up():
    """Loads what PyTorch loads in the first step: seconds on a busy machine, and longer on some ranks than on others."""
    model = torch.nn.Linear(1000, 1)
    train(model, torch.optim.SGD(model.parameters(), lr=0.01))


def partner():
    return (CULPRIT + 1) % dist.get_world_size()


# ---- what the culprit does

def read_fifo():
    with open(os.environ["FIFO"], "r+b", buffering=0) as fifo:
        fifo.read(1)


def wait_for_lock():
    lock = threading.Lock()
    lock.acquire()
    lock.acquire()


def hold_gil():
    ctypes.PyDLL(None).pause()


def loop_for_ever():
    while True:
        pass


def gather_instead():
    dist.all_gather([torch.empty(1000) for _ in range(dist.get_world_size())], VALUES)


def two(*calls):
    return lambda: [call() for call in calls]


def crossed_groups():
    both = sorted({CULPRIT, partner()})
    first, second = dist.new_group(both), dist.new_group(both)
    if dist.get_rank() == partner():
        first, second = second, first
    if dist.get_rank() in both:
        dist.barrier(group=first)
        dist.barrier(group=second)


def chain():
    world, rank = dist.get_world_size(), dist.get_rank()
    pairs = [dist.new_group(list(range(first, min(first + 2, world)))) for first in range(0, world, 2)]
    across = [dist.new_group(list(range(first, world, 2))) for first in range(2)]
    if rank == CULPRIT:
        read_fifo()
    dist.all_reduce(VALUES, group=pairs[rank // 2])
    dist.all_reduce(VALUES, group=across[rank % 2])


def stop_soon():
    """The rank enters its call meanwhile, where the others are late."""
    threading.Timer(PAUSE_S / 3, os.kill, (os.getpid(), signal.SIGSTOP)).start()


def broadcast(root):
    return lambda: dist.broadcast(VALUES, src=root)


def nothing():
    pass


# ---- a healthy job

def compute():
    end = time.monotonic() + PAUSE_S
    while time.monotonic() < end:
        torch.ones(100, 100) @ torch.ones(100, 100)


def write_checkpoint():
    end = time.monotonic() + PAUSE_S
    while time.monotonic() < end:
        torch.save(torch.ones(1 << 18), "/dev/null")


def load():
    """Waits for a slow loader process to prepare the data that the rank then reads."""
    end, other = os.pipe()
    if os.fork() == 0:
        compute()
        os.write(other, b"x")
        os._exit(0)
    os.read(end, 1)
    os.wait()


def be_healthy(step):
    """Runs for $SECONDS of rank 0's clock: jitter, and one rank after the other that is late for a reason."""
    rank, ended = dist.get_rank(), torch.zeros(1)
    end = time.monotonic() + float(os.environ["SECONDS"])
    scenes = [compute, lambda: time.sleep(PAUSE_S), write_checkpoint, load]
    if rank == 0:
        compute()  # Compiles its first step.
    turn = 0
    while not ended:
        for _ in range(50):
            time.sleep(random.random() * 0.004)
            step()
        works = [dist.all_reduce(torch.ones(10), async_op=True) for _ in range(3)]
        if rank == turn % dist.get_world_size():
            scenes[turn % len(scenes)]()
        for work in works:
            work.wait()
        ended[0] = float(rank == 0 and time.monotonic() > end)
        dist.broadcast(ended, src=0)
        turn += 1


FAULTS = {  # The culprit's function, and that of the others, before all make the call.
    "none": (nothing, nothing),
    "blocked_read": (read_fifo, nothing),
    "lock": (wait_for_lock, nothing),
    "gil": (hold_gil, nothing),
    "endless_loop": (loop_for_ever, nothing),
    "sleep": (lambda: time.sleep(3600), nothing),
    "pause": (lambda: time.sleep(PAUSE_S), nothing),
    "chain": (chain, chain),
    "stopped_inside": (stop_soon, lambda: time.sleep(PAUSE_S)),
    "stopped": (lambda: os.kill(os.getpid(), signal.SIGSTOP), nothing),
    "killed": (lambda: os.kill(os.getpid(), signal.SIGKILL), nothing),
    "early_exit": (lambda: os._exit(0), nothing),
    "crossed_groups": (crossed_groups, crossed_groups),
    "recv_without_send": (lambda: dist.recv(VALUES, src=partner()), nothing),
    "other_size": (lambda: dist.all_reduce(torch.ones(2000), op=dist.ReduceOp.MAX), plain_step),
    "other_dtype": (lambda: dist.all_reduce(VALUES.double(), op=dist.ReduceOp.MAX), plain_step),
    "other_operation": (gather_instead, plain_step),
    "other_root": (broadcast(1), broadcast(0)),
    "other_reduction": (lambda: dist.all_reduce(VALUES, op=dist.ReduceOp.SUM), plain_step),
    "swapped": (two(broadcast(0), plain_step), two(plain_step, broadcast(0))),
    "barrier_too_few": (nothing, dist.barrier),
}


def main():
    is_ddp = os.environ.get("STEP") == "ddp"
    if is_ddp:
        warm_up()
    dist.init_process_group("gloo")
    step = ddp_step() if is_ddp else plain_step
    for _ in range(HEALTHY_CALLS):
        step()
    is_culprit = dist.get_rank() == CULPRIT
    if is_culprit:
        print(f"fault {time.time():.3f}", flush=True)
    if FAULT == "healthy":
        be_healthy(step)
        return dist.destroy_process_group()
    FAULTS[FAULT][0 if is_culprit else 1]()
    for _ in range(int(os.environ.get("CALLS", "3"))):
        step()
        time.sleep(0.001)
    dist.destroy_process_group()


main()
