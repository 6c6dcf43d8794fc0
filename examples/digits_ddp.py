"""Trains a small network on handwritten digits with PyTorch's DistributedDataParallel.

    muster --nproc-per-node 4 --max-restarts 3 examples/digits_ddp.py --checkpoint /tmp/digits.pt

Nothing in it knows muster: it needs the variables that torchrun sets, and gloo on CPUs. After every epoch rank 0
saves a checkpoint; a restarted job continues from there and ends with the same loss as one that was never
disturbed. To see that happen, let a worker kill itself in the first attempt: --kill-rank 1 --kill-epoch 5.
"""

import argparse
import csv
import os
import pathlib
import signal
import sys

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

DATA = pathlib.Path(__file__).parent / "data" / "digits.csv"


def load_digits(path):
    """Images as floats from 0 to 1 (1797 × 64) and their digits (1797)."""
    with open(path, newline="") as file:
        rows = [[int(value) for value in row] for row in list(csv.reader(file))[1:]]
    table = torch.tensor(rows)
    return table[:, :64].float() / 16, table[:, 64]


def save(path, epoch, model, optimizer):
    """Leaves either the old checkpoint or the new one, whatever happens meanwhile."""
    unfinished = f"{path}.tmp"
    state = {"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, unfinished)
    os.replace(unfinished, path)


def resume(path, model, optimizer):
    """Returns the first epoch that is still to do."""
    if path is None or not os.path.exists(path):
        return 0
    state = torch.load(path)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["epoch"] + 1


def die_if_told(options, epoch, rank):
    first_attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
    if first_attempt and rank == options.kill_rank and epoch == options.kill_epoch:
        print(f"rank {rank}: killing myself in epoch {epoch}", flush=True)
        os.kill(os.getpid(), signal.SIGKILL)


def train_epoch(epoch, batch, images, digits, model, optimizer):
    """Every rank takes its share of each batch; DDP averages their gradients."""
    rank, world = dist.get_rank(), dist.get_world_size()
    order = torch.randperm(len(digits), generator=torch.Generator().manual_seed(epoch))
    for start in range(0, len(order) - batch + 1, batch):
        mine = order[start : start + batch][rank::world]
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(images[mine]), digits[mine]).backward()
        optimizer.step()


def evaluate(images, digits, model):
    """Mean loss and share of digits that are recognised, over all of them."""
    mine = slice(dist.get_rank(), None, dist.get_world_size())
    with torch.no_grad():
        scores = model.module(images[mine])
    loss = torch.nn.functional.cross_entropy(scores, digits[mine], reduction="sum")
    right = (scores.argmax(dim=1) == digits[mine]).sum()
    total = torch.stack([loss.double(), right.double()])
    dist.all_reduce(total)
    return (total / len(digits)).tolist()


def parse_options():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--checkpoint", help="file to save to after every epoch, and to resume from")
    parser.add_argument("--kill-rank", type=int, default=-1)
    parser.add_argument("--kill-epoch", type=int, default=-1)
    return parser.parse_args()


def main():
    options = parse_options()
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    images, digits = load_digits(DATA)
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 10))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, momentum=0.9)
    # Every rank reads the checkpoint before DDP's first exchange, so rank 0 cannot replace it meanwhile.
    first_epoch = resume(options.checkpoint, net, optimizer)
    if rank == 0:
        print(f"starting at epoch {first_epoch} of {options.epochs}", flush=True)
    model = DistributedDataParallel(net)
    # After its first step DDP lays out its buckets anew, which changes the order in which gloo adds. A step that is
    # thrown away keeps that out of the training, so a resumed job repeats an undisturbed one to the last bit.
    torch.nn.functional.cross_entropy(model(images[:1]), digits[:1]).backward()

    for epoch in range(first_epoch, options.epochs):
        die_if_told(options, epoch, rank)
        train_epoch(epoch, options.batch, images, digits, model, optimizer)
        if rank == 0 and options.checkpoint:
            save(options.checkpoint, epoch, net, optimizer)

    loss, accuracy = evaluate(images, digits, model)
    if rank == 0:
        print(f"final loss {loss!r} accuracy {accuracy:.4f}", flush=True)
    dist.destroy_process_group()
    # gloo's threads outlive the group (PyTorch 2.15). One that lets go of a tensor while the interpreter is going away
    # aborts the process, about once in 25 runs on a busy machine; so the interpreter is not taken down at all.
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
