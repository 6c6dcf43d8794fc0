"""A program of torch.distributed on gloo in which each rank but 0 is late for something outside of its own main thread.

    FOLDER=/tmp/x muster --nproc-per-node 8 hidden_waits.py

$FOLDER has the FIFOs "go", which rank 0 opens before it waits for the others in a barrier, and "never". Prints "there" eight
times, where the ranks, or their children and threads, get stuck.
"""
import fcntl
import multiprocessing.pool
import os
import queue
import subprocess
import threading

import torch
import torch.distributed as dist

FOLDER = os.environ["FOLDER"]
fork = multiprocessing.get_context("fork")


def open_fifo(name):
    """Returns once a writer opens it, too."""
    open(os.path.join(FOLDER, name), "rb").close()


def there():
    print("there", flush=True)


def get_stuck():
    there()
    open_fifo("never")


class Stuck(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, at):
        get_stuck()


def loader():
    for _ in torch.utils.data.DataLoader(Stuck(), num_workers=2):
        pass


def start_and_kill():
    helper = fork.Process(target=open_fifo, args=["never"])
    helper.start()
    helper.kill()
    return helper


def killed_helper():
    results = fork.Queue()
    helper = start_and_kill()
    there()
    results.get()
    helper.join()


def reaped_helper():
    results = fork.Queue()
    start_and_kill().join()
    there()
    results.get()


def command():
    there()
    subprocess.run(["sleep", "3600"], check=True)


def file_lock():
    with open(os.path.join(FOLDER, "lock"), "w") as lock:
        there()
        fcntl.flock(lock, fcntl.LOCK_EX)


def thread():
    with multiprocessing.pool.ThreadPool(2):  # Its threads are idle.
        downloader = threading.Thread(target=get_stuck, name="downloader")
        downloader.start()
        downloader.join()


def read_records():
    there()
    raise ValueError("record 12 is torn")


def ended_thread():
    records = queue.Queue()
    threading.Thread(target=read_records, name="reader").start()
    records.get()


def main():
    dist.init_process_group("gloo")
    scenes = [lambda: open_fifo("go"), loader, killed_helper, reaped_helper, command, file_lock, thread,
              ended_thread]
    rank = dist.get_rank()
    lock = open(os.path.join(FOLDER, "lock"), "w")
    if rank == 1:
        fcntl.flock(lock, fcntl.LOCK_EX)
    for _ in range(30):
        dist.barrier()
    scenes[rank]()
    dist.barrier()


main()
