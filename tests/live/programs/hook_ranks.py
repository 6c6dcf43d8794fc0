"""A PyTorch program that knows nothing of muster's Python hook: $PART on two ranks of gloo.

    calls     every kind of call, a pause while $FOLDER/first.RANK exists, then a second world
    broken    the hook's own code fails in the middle of a call
    gil       rank 1 blocks in C, holding the GIL, while rank 0 calls all_reduce
    mismatch  rank 1 calls another operation than rank 0
    library   calls by a package: for the program, and in a thread of the package's own
    derived   two groups are Python classes, one derived from the other
"""
import ctypes
import gc
import os
import subprocess
import sys
import threading
import time
import weakref

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.utils.data import DataLoader

FOLDER, PART = os.environ["FOLDER"], os.environ["PART"]
RANK = int(os.environ["RANK"])
ONES = torch.ones(4)


def pause(name):
    path = os.path.join(FOLDER, f"{name}.{RANK}")
    open(path, "w").close()
    while os.path.exists(path):
        time.sleep(0.02)


def collectives():
    ones, pair = ONES, [torch.empty(4), torch.empty(4)]
    dist.all_reduce(ones.clone(), op=dist.ReduceOp.MAX)
    dist.all_reduce(ones.clone().double(), async_op=True).wait()
    dist.broadcast(ones, 1)
    dist.reduce(ones.clone(), 0, op=dist.ReduceOp.PRODUCT)
    dist.all_gather(pair, ones)
    dist.all_gather_into_tensor(torch.empty(8), ones)
    dist.gather(ones, pair if RANK == 0 else None, 0)
    dist.scatter(torch.empty(4), [ones, ones] if RANK == 1 else None, 1)
    dist.reduce_scatter(torch.empty(4), [ones, ones], op=dist.ReduceOp.MIN)
    dist.reduce_scatter_tensor(torch.empty(2), ones)
    dist.all_to_all(pair, [ones, ones])
    dist.all_to_all_single(torch.empty(4), ones)
    dist.barrier()


def messages():
    ones, peer = ONES, 1 - RANK
    if RANK == 0:
        dist.send(ones, 1, tag=3)
        dist.recv(ones)
    else:
        dist.recv(ones, 0, tag=3)
        dist.send(ones, 0)
    for work in (dist.isend(ones, peer), dist.irecv(torch.empty(4), peer)):
        work.wait()
    batch = [dist.P2POp(dist.isend, ones, peer), dist.P2POp(dist.irecv, torch.empty(4), peer)]
    for work in dist.batch_isend_irecv(batch):
        work.wait()


def from_cpp():
    """Calls that C++ makes, not Python."""
    functional.all_reduce(ONES, "min", dist.group.WORLD).sum()
    torch.compile(lambda x: functional.all_reduce(x, "max", dist.group.WORLD).sum(), backend="eager")(ONES)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
    model(ONES).sum().backward()


def objects():
    dist.all_gather_object([None, None], {"rank": RANK})
    dist.broadcast_object_list([RANK], 0)


def refuse():
    """The call raises before anything is sent, so it does not count."""
    try:
        dist.all_gather([torch.empty(4)], ONES)
    except RuntimeError:
        return
    print("not refused")


def reduce_late():
    """Rank 1 is so late that the recorder looks at rank 0 in its call."""
    tensor = torch.ones(1000)
    if RANK == 1:
        time.sleep(1)
    dist.all_reduce(tensor)
    return weakref.ref(tensor)


def check_no_tensor_is_kept():
    gc.disable()  # The next collection may be far away, and so much memory be kept.
    seen = reduce_late()
    give_up = time.monotonic() + 20
    while seen() is not None and time.monotonic() < give_up:
        time.sleep(0.02)
    gc.enable()
    print("tensor", "kept" if seen() is not None else "gone")


def check_others():
    print("path", os.environ.get("PYTHONPATH"), [path for path in sys.path if path.endswith(".python")])
    print("child", subprocess.run([sys.executable, "-c", "import os, sys; print(os.environ.get('PYTHONPATH'), [path for path in "
                                   "sys.path if path.endswith('.python')], 'sitecustomize' in sys.modules)"],
                                  capture_output=True, text=True, check=True).stdout.strip())
    print("loaded", sum(len(batch) for batch in DataLoader(range(10), batch_size=2, num_workers=1)))


def calls():
    collectives()
    messages()
    dist.barrier(dist.new_group([1, 0]))
    dist.new_group([1])
    from_cpp()
    objects()
    refuse()
    check_no_tensor_is_kept()
    check_others()
    pause("first")
    dist.destroy_process_group()
    dist.init_process_group("gloo", f"file://{FOLDER}/store", rank=RANK, world_size=2)
    dist.barrier()
    pause("second")


def broken():
    ones = torch.ones(4)
    getframe, sys._getframe = sys._getframe, None
    dist.all_reduce(ones)
    sys._getframe = getframe
    dist.all_reduce(ones)
    print("sum", ones[0].item())
    pause("broken")


def gil():
    fifo = os.open(os.environ["FIFO"], os.O_RDONLY | os.O_NONBLOCK) if RANK == 1 else None
    dist.all_reduce(ONES)
    if RANK == 1:
        os.set_blocking(fifo, True)
        writer = os.open(os.environ["FIFO"], os.O_WRONLY)  # Else the read would return at end of file.
        ctypes.PyDLL(None).read(fifo, ctypes.create_string_buffer(1), 1)
        os.close(writer)
    dist.all_reduce(ONES)


def mismatch():
    dist.barrier()
    if RANK == 1:
        dist.broadcast(ONES, 0)
    else:
        dist.all_reduce(ONES)


class Own(dist.ProcessGroup):
    """Forwards all calls to the world."""

    def getBackendName(self):
        return "own"

    def allreduce(self, tensors, options):
        return dist.group.WORLD._get_backend(ONES.device).allreduce(tensors, options)

    def broadcast(self, tensors, options):
        return dist.group.WORLD._get_backend(ONES.device).broadcast(tensors, options)


class Derived(Own):
    def allreduce(self, tensors, options):
        return super().allreduce(tensors, options)


def library():
    package = os.path.join(FOLDER, f"{RANK}", "site-packages")
    os.makedirs(package, exist_ok=True)
    with open(os.path.join(package, "trainer.py"), "w", encoding="utf-8") as file:
        file.write("import torch.distributed as dist\n\ndef sync(tensor):\n    dist.all_reduce(tensor)\n\n"
                   "def fit(step):\n    step()\n")
    sys.path.insert(0, package)
    import trainer
    trainer.fit(lambda: trainer.sync(ONES.clone()))
    thread = threading.Thread(target=trainer.sync, args=(ONES.clone(),))
    thread.start()
    thread.join()
    pause("library")


def derived():
    for kind in (Own, Derived):
        name = kind.__name__.lower()
        dist.Backend.register_backend(name, lambda store, rank, size, timeout, kind=kind: kind(rank, size), devices=["cpu"])
        group = dist.new_group(backend=name, group_desc=name)
        for _ in range(3):
            dist.all_reduce(ONES, group=group)
            dist.broadcast(ONES, 0, group=group)
    pause("derived")


dist.init_process_group("gloo")
globals()[PART]()
dist.destroy_process_group()
