"""A rank of first_cause.py that is an ordinary torch program: torch_rank.py FOLDER RANK HOW.

That rank fails once the start is given; the others lose it in an all_reduce.

    plain, record   an exception, under @record
    finally         an exception; every rank destroys its group in a `finally`, and that rank then flushes its logger
    exits           the same by sys.exit(3)
    leaves          the rank destroys its group without an error, and uploads something
    lingers         an exception; a thread keeps the process, so that the others wait
    json            an exception that a logger writes to stdout, as one line of JSON; then sys.exit(1)
    prints          an exception that the program prints to stdout before os._exit(1)
    long            an exception with a message of 200 KiB
    wraps           every rank raises its own exception from the one that it met
    aborts          abort()
"""

import datetime
import json
import os
import sys
import threading
import time
import traceback

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

FOLDER, FIRST, HOW = sys.argv[1], int(sys.argv[2]), sys.argv[3]
LATE_S = 0.7


def stamp():
    with open(f"{FOLDER}/stamp.{dist.get_rank()}", "x") as file:
        file.write(str(time.monotonic_ns()))


def train():
    dist.init_process_group("gloo", timeout=datetime.timedelta(seconds=60))
    gradients = torch.ones(1000)
    dist.all_reduce(gradients)
    with open(f"{FOLDER}/ready.{dist.get_rank()}", "w"):
        pass
    while True:
        if dist.get_rank() == FIRST:
            time.sleep(0.002)
            if os.path.exists(f"{FOLDER}/go"):
                stamp()
                fail()
                return
        try:
            dist.all_reduce(gradients, op=dist.ReduceOp.MAX)
        except Exception:
            stamp()
            raise


def fail():
    if HOW == "leaves":
        return
    if HOW == "exits":
        sys.exit(3)
    if HOW == "lingers":
        threading.Thread(target=time.sleep, args=(1000,)).start()
    if HOW == "aborts":
        os.abort()
    if HOW == "long":
        raise RuntimeError("missing keys: " + ", ".join(f"layers.{i}.weight" for i in range(12000)))
    torch.nn.Linear(5, 2)(torch.ones(3, 4))


def train_and_tell():
    try:
        train()
    except Exception as error:
        if HOW == "wraps":
            raise ValueError("the trainer has failed") from error
        text = traceback.format_exc()
        print(json.dumps({"event": "failed", "level": "error", "exception": text}) if HOW == "json" else text, flush=True)
        sys.exit(1) if HOW == "json" else os._exit(1)


def train_and_finish():
    try:
        train()
    finally:
        is_first = dist.get_rank() == FIRST
        dist.destroy_process_group()
        if is_first:
            time.sleep(LATE_S)


if __name__ == "__main__":
    {"record": record(train), "finally": train_and_finish, "exits": train_and_finish, "leaves": train_and_finish,
     "json": train_and_tell, "prints": train_and_tell, "wraps": train_and_tell}.get(HOW, train)()
