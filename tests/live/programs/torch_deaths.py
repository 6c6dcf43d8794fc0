"""Rank 1 dies in the middle of an operation, and the others print their error, and when it came.

    torch_deaths.py BACKEND backward|fsdp|all_reduce|async|recv|future|barrier:PORT ...

A rank with an error prints "WHAT told MILLISECONDS TYPE: MESSAGE"; rank 1 leaves the time of its death in $DEATHS, a
folder. Each world has its port and its own processes, forked once all is imported; each prints "WHAT ended with CODE".
"""

import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def place():
    return os.path.join(os.environ["DEATHS"], os.environ["MASTER_PORT"])


def die(*_):
    if dist.get_rank() == 1:
        with open(place(), "w") as file:
            file.write(str(time.monotonic()))
        os.kill(os.getpid(), signal.SIGKILL)


def death():
    """Returns the time of rank 1's death; not a number while it lives."""
    try:
        with open(place()) as file:
            return float(file.read())
    except FileNotFoundError:
        return float("nan")


def train(sharded):
    model = torch.nn.Sequential(*(torch.nn.Linear(64, 64) for _ in range(6)))
    if sharded:
        from torch.distributed.fsdp import fully_shard  # Elsewhere in older versions.

        for layer in model:
            fully_shard(layer)
        fully_shard(model)
        wrapped = model
    else:
        wrapped = DistributedDataParallel(model, bucket_cap_mb=0.01)
    for step in range(5):
        if step == 3:
            model[2].register_forward_hook(lambda module, given, out: out.register_hook(die) and None)
        out = wrapped(torch.randn(8, 64))
        out.sum().backward()


def perform(what):
    tensor = torch.ones(1000)
    dist.all_reduce(tensor)
    if what in ("backward", "fsdp"):
        train(what == "fsdp")
        return
    if dist.get_rank() == 1:
        time.sleep(0.3)
        die()
    if what == "all_reduce":
        dist.all_reduce(tensor)
    elif what == "async":
        dist.all_reduce(tensor, async_op=True).wait()
    elif what == "future":
        dist.all_reduce(tensor, async_op=True).get_future().wait()
    elif what == "recv":
        dist.recv(tensor, 1)
    elif what == "barrier":
        dist.barrier()


def run(backend, what):
    dist.init_process_group(backend)
    try:
        perform(what)
    except Exception as error:
        now = time.monotonic()
        print(f"{what} told {1000 * (now - death()):.0f} {type(error).__name__}: {error}", flush=True)
        os._exit(3)
    print(f"{what} not told", flush=True)
    os._exit(0)


def main():
    for case in sys.argv[2:]:
        what, os.environ["MASTER_PORT"] = case.split(":")
        child = os.fork()
        if child == 0:
            torch.set_num_threads(1)  # Not before the fork: see torch_nursery.py.
            run(sys.argv[1], what)
        print(f"{what} ended with {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}", flush=True)


if __name__ == "__main__":
    main()
