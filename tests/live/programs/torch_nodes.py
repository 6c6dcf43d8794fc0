"""Programs of four ranks on two nodes, by $FAULT, in which ranks of one node end before the others."""
import os
import time

import torch
import torch.distributed as dist

VALUES = torch.ones(100)


def begin(calls):
    dist.init_process_group("gloo")
    for _ in range(calls):
        dist.all_reduce(VALUES)
    return dist.get_rank()


def restart_after_an_early_end():
    """Node 1 is done, then rank 0 fails; in the second attempt node 1 comes late to its 11th call."""
    rank = begin(10)
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        if rank > 1:
            os._exit(0)
        time.sleep(1)
        if rank == 0:
            os._exit(7)
        time.sleep(100)
    if rank > 1:
        time.sleep(1)
    for _ in range(10):
        dist.all_reduce(VALUES)
    dist.destroy_process_group()


def the_judges_ranks_end():
    """Node 0 leaves the group that it forms with node 1."""
    if begin(10) < 2:
        os._exit(0)
    time.sleep(0.5)
    dist.all_reduce(VALUES, group=dist.new_group([0, 1, 2, 3]))


def a_mismatch_after_the_judges_ranks_have_ended():
    rank = begin(1)
    group = dist.new_group([2, 3])
    dist.all_reduce(VALUES)
    if rank < 2:
        os._exit(0)
    time.sleep(0.5)
    dist.all_reduce(torch.ones(100 if rank == 2 else 200_000), group=group)
    dist.all_reduce(VALUES, group=group)


globals()[os.environ["FAULT"]]()
