"""What a training program does on a GPU, well or not, under any launcher: torch_gpu.py HOW [FOLDER].

All ranks share the GPU that they see first, so each is a host of its own to NCCL. On a machine without a GPU the same
programs run on gloo and host memory, except those that only a GPU can make fail.

ddp, fsdp2     train the same model on the same data; rank 0 prints the loss of every step
killed         as ddp with a checkpoint in FOLDER after each step; rank 1 is killed in the first attempt, at step 5
out_of_memory, illegal_access, device_assert
               rank 1 fails so on the GPU, while the others wait in an all_reduce
timeout        rank 1 sleeps, and the others wait in an all_reduce, whose limit is 5 s; it prints the file $TOLD, if any, as
               PyTorch's flight recorder prints who has given up; ranks that give up take $LINGER_S to end
hang           rank 1 reads from a pipe into which nobody writes, and the others wait in an all_reduce
full           one rank takes all memory of the GPU, and is killed in the first attempt
held           one rank takes memory of the GPU, hands what it has open of the GPU to the process that listens at
               FOLDER/holder, and fails in the first attempt; without a GPU it tells the stand-in of the driver that it did
records        three calls, and then rank 0 shows what musterctl ($MUSTERCTL) knows of them
"""
import datetime
import os
import signal
import socket
import subprocess
import sys
import time

RANK = int(os.environ["RANK"])
os.environ.setdefault("NCCL_HOSTID", f"rank{RANK}")

import torch
import torch.distributed as dist
from torch import nn

GPU = torch.cuda.is_available()
DEVICE = torch.device("cuda:0" if GPU else "cpu")
STEPS = 12
CULPRIT = int(os.environ.get("CULPRIT", "1"))


def start():
    if GPU:
        torch.cuda.set_device(DEVICE)
    dist.init_process_group("nccl" if GPU else "gloo", timeout=datetime.timedelta(seconds=120))
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)).to(DEVICE)


def leave():
    dist.barrier()
    if GPU:
        return dist.destroy_process_group()
    sys.stdout.flush()
    os._exit(0)  # Where the others have ended, gloo may abort as Python ends.


def train(model, begin=0, after=lambda step, optimizer: None, optimizer=None):
    optimizer = optimizer or torch.optim.SGD(model.parameters(), 0.1)
    for step in range(begin, STEPS):
        data = torch.Generator().manual_seed(1000 * step + RANK)
        x, y = torch.randn(32, 64, generator=data).to(DEVICE), torch.randint(0, 10, (32,), generator=data).to(DEVICE)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        total = loss.detach().clone()
        dist.all_reduce(total)
        if RANK == 0:
            print(f"step {step} loss {total.item():.9g}", flush=True)
        after(step, optimizer)
    leave()


def parallel(model):
    return nn.parallel.DistributedDataParallel(model, device_ids=[0] if GPU else None)


def ddp():
    train(parallel(start()))


def fsdp2():
    from torch.distributed.fsdp import fully_shard
    model = start()
    mesh = dist.init_device_mesh(DEVICE.type, (dist.get_world_size(),))
    for layer in model:
        if isinstance(layer, nn.Linear):
            fully_shard(layer, mesh=mesh)
    train(fully_shard(model, mesh=mesh))


def killed():
    path, model = os.path.join(sys.argv[2], "checkpoint"), start()
    optimizer, begin = torch.optim.SGD(model.parameters(), 0.1), 0
    if os.path.exists(path):
        state = torch.load(path, map_location=DEVICE, weights_only=True)
        model.load_state_dict(state["model"])
        begin = state["step"] + 1
        print(f"rank {RANK} goes on at step {begin}", flush=True)

    def after(step, _):
        if RANK == 0:
            torch.save({"model": model.state_dict(), "step": step}, path + ".new")
            os.rename(path + ".new", path)
        dist.barrier()
        if RANK == CULPRIT and step == 5 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
            os.kill(os.getpid(), signal.SIGKILL)

    train(parallel(model), begin, after, optimizer)


def on_the_culprit(fail, seconds=120):
    """Fails in the second call, whose limit it is: ranks may come to the first one far apart, on a busy machine."""
    start()
    tensor = torch.ones(1000, device=DEVICE)
    dist.all_reduce(tensor)
    if GPU:
        torch.cuda.synchronize()
    # What set_timeout() is since PyTorch 2.15.
    dist.group.WORLD._get_backend(DEVICE)._set_default_timeout(datetime.timedelta(seconds=seconds))
    if RANK == CULPRIT:
        fail()
    try:
        dist.all_reduce(tensor)
    except RuntimeError:
        time.sleep(float(os.environ.get("LINGER_S", "0")))
        raise
    if GPU:
        torch.cuda.synchronize()


def allocate_too_much():
    kept = []
    while True:
        kept.append(torch.empty(64 << 30, dtype=torch.uint8, device=DEVICE))


def access_illegally():
    kernel = torch.cuda._compile_kernel('extern "C" __global__ void poke(int* at) { at[threadIdx.x] = 1; }', "poke")
    kernel((1, 1, 1), (32, 1, 1), (0x10,))
    torch.cuda.synchronize()


def assert_on_the_device():
    torch.zeros(4, device=DEVICE)[torch.tensor([7], device=DEVICE)].sum().item()


def sleep_and_be_told():
    if "TOLD" in os.environ:
        with open(os.environ["TOLD"], encoding="utf-8") as f:
            print(f.read(), file=sys.stderr, flush=True)
    time.sleep(1000)


def read_what_nobody_writes():
    os.read(os.pipe()[0], 1)


def full():
    free = torch.cuda.mem_get_info()[0]
    print(f"free {free / 1e9:.1f} GB", flush=True)
    kept = torch.empty(free - (4 << 30), dtype=torch.uint8, device=DEVICE).fill_(1)
    torch.cuda.synchronize()
    if os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        os.kill(os.getpid(), signal.SIGKILL)
    del kept


def held():
    if os.environ["TORCHELASTIC_RESTART_COUNT"] != "0":
        return
    size = 8 << 30
    if GPU:
        kept = torch.empty(size, dtype=torch.uint8, device=DEVICE).fill_(1)
        torch.cuda.synchronize()
    else:
        with open(os.environ["FAKE_NVML"], "a") as machine:
            machine.write(f"process 0 {os.getpid()} {size}\n")
    with os.scandir("/proc/self/fd") as entries:
        ours = [int(e.name) for e in entries if os.readlink(e.path).startswith("/dev/nvidia" if GPU else "/dev/null")]
    with socket.socket(socket.AF_UNIX) as holder:
        holder.connect(os.path.join(sys.argv[2], "holder"))
        for some in range(0, max(len(ours), 1), 100):  # unix(7): at most 253 in one message.
            socket.send_fds(holder, [b"x"], ours[some:some + 100])
        holder.shutdown(socket.SHUT_WR)
        holder.recv(1)  # It has them all.
    print(f"pid {os.getpid()} gave {len(ours)} descriptors away", flush=True)
    os._exit(1)


def records():
    start()
    for count in 1000, 2000, 3000:
        dist.all_reduce(torch.ones(count, device=DEVICE))
    if GPU:
        torch.cuda.synchronize()
    dist.barrier()
    if RANK == 0:
        shown = subprocess.run([os.environ["MUSTERCTL"], "records", os.environ["TORCHELASTIC_RUN_ID"], "--json", "-n", "8"], stdout=subprocess.PIPE, check=True)
        print("RECORDS", shown.stdout.decode().replace("\n", " "), flush=True)
    dist.barrier()
    dist.destroy_process_group()


HOW = {
    "ddp": ddp,
    "fsdp2": fsdp2,
    "killed": killed,
    "out_of_memory": lambda: on_the_culprit(allocate_too_much),
    "illegal_access": lambda: on_the_culprit(access_illegally),
    "device_assert": lambda: on_the_culprit(assert_on_the_device),
    "timeout": lambda: on_the_culprit(sleep_and_be_told, 5),
    "hang": lambda: on_the_culprit(read_what_nobody_writes, 1800),
    "full": full,
    "held": held,
    "records": records,
}

if __name__ == "__main__":
    HOW[sys.argv[1]]()
