"""A program of torch.distributed in which ranks wait for keys of the job's store that one rank does not set.

    muster --nproc-per-node 3 store_waits.py SCENE

The rank that does not come reads a byte of the FIFO "gate" in FOLDER instead.
"""
import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

RANK = int(os.environ["RANK"])
WORLD = int(os.environ["WORLD_SIZE"])


def read_from(name):
    with open(os.environ["FOLDER"] + "/" + name, "rb", buffering=0) as fifo:
        fifo.read(1)


def stay_away():
    print("stays away", flush=True)
    read_from("gate")


def own_store():
    return dist.TCPStore(os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), is_master=False, timeout=timedelta(minutes=5))


def own_keys():
    """Each rank sets the key with its number, and waits for those of all."""
    store = own_store()
    if RANK == 2:
        stay_away()
    store.set(f"ready/{RANK}", "")
    store.wait([f"ready/{rank}" for rank in range(WORLD)])
    read_from("end")


def one_key():
    """Nothing shows who sets it."""
    store = own_store()
    if RANK == 0:
        stay_away()
        store.set("weights", "")
    store.get("weights")


def init():
    if RANK == 1:
        stay_away()
    dist.init_process_group("gloo")


def new_group():
    """PyTorch wants all ranks to call it; rank 2 does not, so its next group has another name."""
    dist.init_process_group("gloo")
    if RANK != 2:
        dist.new_group([0, 1])
    group = dist.new_group([0, 2])
    if RANK != 1:
        dist.all_reduce(torch.ones(1), group=group)


def time_out():
    """The others give up after a while, and fail."""
    store = own_store()
    if RANK == 2:
        stay_away()
    store.set(f"ready/{RANK}", "")
    store.wait([f"ready/{rank}" for rank in range(WORLD)], timedelta(seconds=float(os.environ["PATIENCE"])))


def watch_in_a_thread():
    """As libraries wait for a key that tells of an abort, as long as the job runs."""
    import threading
    store = own_store()
    threading.Thread(target=lambda: store.get("abort"), daemon=True).start()
    stay_away()
    os._exit(0)


globals()[sys.argv[1]]()
