"""A rank of first_cause.py that is an ordinary torch program: torch_rank.py FOLDER RANK [record].

That rank fails once the start is given; the others lose it in an all_reduce.
"""

import datetime
import os
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.elastic.multiprocessing.errors import record

FOLDER = sys.argv[1]


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
        if dist.get_rank() == int(sys.argv[2]):
            time.sleep(0.002)
            if os.path.exists(f"{FOLDER}/go"):
                stamp()
                torch.nn.Linear(5, 2)(torch.ones(3, 4))
        try:
            dist.all_reduce(gradients, op=dist.ReduceOp.MAX)
        except Exception:
            stamp()
            raise


if __name__ == "__main__":
    (record(train) if "record" in sys.argv else train)()
