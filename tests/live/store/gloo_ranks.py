"""The workers of process_group_test.py: gloo_ranks.py WORLD WITHOUT_LAST

Imports PyTorch once and forks the ranks, which do what a training script does and know the store only from the
environment. Each rank prints one line of JSON.
"""

import datetime
import json
import os
import sys
import traceback

import torch
import torch.distributed as dist

PATIENCE = datetime.timedelta(seconds=60)


def train(rank):
    """Runs two steps of data-parallel training. Returns the sum of the weights, which all ranks must share."""
    torch.manual_seed(rank)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        optimizer.zero_grad()
        model(torch.randn(4, 8)).square().mean().backward()
        optimizer.step()
    return sum(parameter.double().sum().item() for parameter in model.parameters())


def all_together(rank, world):
    dist.init_process_group("gloo", timeout=PATIENCE)
    total = torch.tensor([rank + 1])
    dist.all_reduce(total)
    halves = [dist.new_group(range(half, world, 2)) for half in (0, 1)]
    part = torch.tensor([rank])
    dist.all_reduce(part, group=halves[rank % 2])
    objects = [None] * world
    dist.all_gather_object(objects, f"rank {rank}")
    # PyTorch 2.15 crashes in DistributedDataParallel under its own debug wrapper if there is no GPU.
    weights = train(rank) if "TORCH_DISTRIBUTED_DEBUG" not in os.environ else None
    dist.barrier()
    dist.monitored_barrier(timeout=PATIENCE)  # Comes last: behind it the debug wrapper counts rank 0's collectives wrongly.
    result = {"sum": total.item(), "part": part.item(), "objects": objects, "weights": weights}
    dist.destroy_process_group()
    return result


def without_last(rank, world):
    """The last rank does not join the barrier; rank 0 must name it."""
    dist.init_process_group("gloo", timeout=PATIENCE)
    store = dist.distributed_c10d._get_default_store()
    if rank == world - 1:
        store.wait(["judged"], PATIENCE)  # It lives, but is busy with something else.
        return {"missing": None}
    try:
        dist.monitored_barrier(timeout=datetime.timedelta(seconds=1), wait_all_ranks=True)
        return {"missing": "nobody"}
    except RuntimeError as error:
        return {"missing": str(error).splitlines()[0]}
    finally:
        if rank == 0:
            store.set("judged", "1")


def work(rank, world, without):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(world))
    torch.set_num_threads(1)
    result = (without_last if without else all_together)(rank, world)
    os.write(1, (json.dumps({"rank": rank} | result) + "\n").encode())


def main():
    world, without = int(sys.argv[1]), sys.argv[2] == "1"
    children = []
    for rank in range(world):
        child = os.fork()
        if child == 0:
            code = 1
            try:
                work(rank, world, without)
                code = 0
            except BaseException:
                traceback.print_exc()
            os._exit(code)
        children.append(child)
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    if any(codes):
        print(f"the ranks ended with {codes}", file=sys.stderr)
    return 1 if any(codes) else 0


if __name__ == "__main__":
    sys.exit(main())
