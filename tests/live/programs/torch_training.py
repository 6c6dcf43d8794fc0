"""Trains a small model on CPUs and prints its last loss: torch_training.py FOLDER KIND:BACKEND ...

ddp   a GPT of two layers under DistributedDataParallel, in many buckets
fsdp  the same sharded by FSDP2; halfway its state is written to FOLDER by torch.distributed.checkpoint, and read back into
      a new model, which goes on

Rank 0 prints "KIND:BACKEND loss VALUE", and every rank "KIND:BACKEND ended with CODE". Each training has its own process,
forked once all is imported, which takes longer than training; its world meets at a file in FOLDER.
"""

import os
import sys

import torch
import torch._dynamo  # noqa: F401  An optimizer imports it.
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from torch.nn.parallel import DistributedDataParallel

WORDS, WIDTH, HEADS, LENGTH, STEPS = 61, 64, 4, 32, 20


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attention = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)
        self.mlp = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1])
        normed = self.norm1(x)
        x = x + self.attention(normed, normed, normed, attn_mask=mask, need_weights=False)[0]
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    def __init__(self):
        super().__init__()
        self.words, self.places = nn.Embedding(WORDS, WIDTH), nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.ModuleList([Block(), Block()])
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, text):
        x = self.words(text) + self.places(torch.arange(text.shape[1]))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


def batch(step):
    """Returns this rank's part: sequences in which each word follows from the one before."""
    generator = torch.Generator().manual_seed(1000 * step + dist.get_rank())
    start, stride = (torch.randint(WORDS, (8, 1), generator=generator) for _ in range(2))
    text = (start + (stride % 5 + 1) * torch.arange(LENGTH + 1)) % WORDS
    return text[:, :-1], text[:, 1:]


def made(kind):
    torch.manual_seed(0)
    model = Gpt()
    if kind == "ddp":
        model = DistributedDataParallel(model, bucket_cap_mb=0.05)
    else:
        from torch.distributed.fsdp import fully_shard  # Elsewhere in older versions.

        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)
    return model, torch.optim.AdamW(model.parameters(), lr=3e-3)


def train(model, optimizer, steps):
    loss = None
    for step in steps:
        text, target = batch(step)
        loss = nn.functional.cross_entropy(model(text).flatten(0, 1), target.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.detach()


def reloaded(model, optimizer, folder):
    weights, state = get_state_dict(model, optimizer)
    dcp.save({"model": weights, "optimizer": state}, checkpoint_id=folder)
    model, optimizer = made("fsdp")
    weights, state = get_state_dict(model, optimizer)
    dcp.load({"model": weights, "optimizer": state}, checkpoint_id=folder)
    set_state_dict(model, optimizer, model_state_dict=weights, optim_state_dict=state)
    return model, optimizer


def run(kind, backend, folder):
    dist.init_process_group(backend, f"file://{folder}/{kind}-{backend}", rank=int(os.environ["RANK"]),
                            world_size=int(os.environ["WORLD_SIZE"]))
    model, optimizer = made(kind)
    loss = train(model, optimizer, range(STEPS // 2))
    if kind == "fsdp":
        model, optimizer = reloaded(model, optimizer, f"{folder}/state-{backend}")
    loss = train(model, optimizer, range(STEPS // 2, STEPS))
    dist.all_reduce(loss)
    if dist.get_rank() == 0:
        print(f"{kind}:{backend} loss {loss.item() / dist.get_world_size():.6f}", flush=True)
    dist.destroy_process_group()


def main():
    folder, *trainings = sys.argv[1:]
    for training in trainings:
        child = os.fork()
        if child == 0:
            torch.set_num_threads(1)  # Not before the fork: see torch_nursery.py.
            run(*training.split(":"), folder)
            os._exit(0)  # gloo's threads outlive the group, and abort some programs as the interpreter ends.
        print(f"{training} ended with {os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])}", flush=True)


if __name__ == "__main__":
    main()
