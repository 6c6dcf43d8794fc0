"""A rank of worker_bench.py on torch.distributed's gloo: worker_bench_rank.h has the commands and the answers.

A tight loop over preallocated tensors, with one thread of computation, as torchrun sets it (OMP_NUM_THREADS=1). The calls
are the synchronous ones that write into the caller's memory.
"""

import os
import socket
import time

import torch
import torch.distributed as dist

PERIOD = 11
MESSAGE = 256  # Elements of a message of isend_recv.


class Rank:
    def __init__(self):
        self.rank, self.size = dist.get_rank(), dist.get_world_size()
        elements = int(os.environ["WORKER_BENCH_BYTES"]) // 4
        self.memory, self.target = torch.zeros(elements), torch.zeros(elements)
        # values(rank, index) is (index + 4 * rank) % 11: this list with an offset for each rank.
        self.numbers = (torch.arange(elements + 4 * self.size) % PERIOD).float()

    def values(self, rank, first, count):
        return self.numbers[4 * rank + first:][:count]

    def sums(self, first, count):
        return sum(self.values(rank, first, count) for rank in range(self.size))

    def prepare(self, whole):
        self.whole, self.block = whole, whole // self.size
        self.data, self.result = self.memory[:whole], self.target[:whole]

    def round_trip(self, data, result):
        last = self.size - 1
        if self.rank == 0:
            dist.send(data, last)
            dist.recv(result, last)
        elif self.rank == last:
            dist.recv(result, 0)
            dist.send(data, 0)

    def exchange(self, data, result):
        other = self.size - 1 - self.rank
        if 0 in (self.rank, other):
            sends = [dist.isend(piece, other) for piece in data.split(MESSAGE)]
            for piece in result.split(MESSAGE):
                dist.recv(piece, other)
            for send in sends:
                send.wait()

    def operation(self, name):
        data, result = self.data, self.result
        data_block, result_block = data[:self.block], result[:self.block]
        is_root = self.rank == 0
        data_list = list(data.chunk(self.size)) if is_root and name == "scatter" else None
        result_list = list(result.chunk(self.size)) if is_root and name == "gather" else None
        return {
            "barrier": dist.barrier,
            "broadcast": lambda: dist.broadcast(data, 0),
            "reduce": lambda: dist.reduce(data, 0),
            "all_reduce": lambda: dist.all_reduce(data),
            "gather": lambda: dist.gather(data_block, result_list, 0),
            "all_gather": lambda: dist.all_gather_into_tensor(result, data_block),
            "scatter": lambda: dist.scatter(result_block, data_list, 0),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(result_block, data),
            "all_to_all": lambda: dist.all_to_all_single(result, data),
            "send_recv": lambda: self.round_trip(data, result),
            "isend_recv": lambda: self.exchange(data, result),
        }[name]

    def expected(self, name):
        """Returns the contents of this rank's memory after the operation, and which memory; None: nothing new."""
        whole, block, mine = self.whole, self.block, self.rank * self.block
        everyone = range(self.size)
        if name == "broadcast":
            return self.data, self.values(0, 0, whole)
        if name == "all_reduce" or name == "reduce" and self.rank == 0:
            return self.data, self.sums(0, whole)
        if name == "all_gather" or name == "gather" and self.rank == 0:
            return self.result, torch.cat([self.values(rank, 0, block) for rank in everyone])
        if name == "scatter":
            return self.result[:block], self.values(0, mine, block)
        if name == "reduce_scatter":
            return self.result[:block], self.sums(mine, block)
        if name == "all_to_all":
            return self.result, torch.cat([self.values(rank, mine, block) for rank in everyone])
        if name in ("send_recv", "isend_recv") and self.rank in (0, self.size - 1):
            return self.result, self.values(self.size - 1 - self.rank, 0, whole)
        return None

    def check(self, name):
        self.data.copy_(self.values(self.rank, 0, self.whole))
        self.result.fill_(-1)
        self.operation(name)()
        found = self.expected(name)
        verdict = "ok" if found is None or torch.equal(*found) else "some elements are wrong"
        self.data.zero_()  # Zeros stay zeros however often they are summed in place.
        return verdict

    def time(self, name, warm_up, iterations):
        call = self.operation(name)
        for _ in range(warm_up):
            call()
        dist.barrier()
        began = time.perf_counter()
        for _ in range(iterations):
            call()
        return f"{(time.perf_counter() - began) / iterations * 1e6:.4f}"

    def answer(self, what, name, size, warm_up=0, iterations=1):
        self.prepare(int(size) // 4)
        return self.check(name) if what == "check" else self.time(name, int(warm_up), int(iterations))


def main():
    dist.init_process_group("gloo")
    rank = Rank()
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(os.environ["WORKER_BENCH_SOCKET"])
        with connection.makefile("rw") as driver:
            print(rank.rank, file=driver, flush=True)
            for line in driver:
                print(rank.answer(*line.split()), file=driver, flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
