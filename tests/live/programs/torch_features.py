"""What a program of torch.distributed may do with the backend muster: torch_features.py [NAME ...]

Every rank runs all of the functions below in their order, or those named, and rank 0 prints "ok NAME" after each one.
Features that older PyTorch lacks are left out.
"""

import datetime
import gc
import multiprocessing
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
import weakref

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional

TYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex32", "complex64",
         "complex128", "uint16", "uint32", "uint64")
IS_NEW = tuple(int(part) for part in torch.__version__.split(".")[:2]) >= (2, 14)


def rank():
    return dist.get_rank()


def store():
    return dist.distributed_c10d._get_default_store()


def size():
    return dist.get_world_size()


def refused(call, error, *words):
    """Checks that the call raises this on every rank, in one line with all of the words."""
    try:
        call()
    except error as raised:
        text = str(raised)
        assert "\n" not in text and all(word in text for word in words), text
    else:
        raise AssertionError(f"not refused: {words}")


def types():
    for dtype in (getattr(torch, name) for name in TYPES if hasattr(torch, name)):
        ones = torch.ones(5).to(dtype)
        dist.all_reduce(ones)
        assert (ones.to(torch.complex64) == (1 if dtype is torch.bool else size())).all(), dtype
        own = torch.full((3,), rank() % 2).to(dtype)
        dist.broadcast(own, 1)
        gathered = torch.empty(3 * size(), dtype=dtype)
        dist.all_gather_into_tensor(gathered, own)
        assert (gathered.to(torch.complex64) == 1).all(), dtype
    small = torch.ones(3).to(torch.float8_e4m3fn)
    gathered = torch.empty(3 * size(), dtype=torch.float8_e4m3fn)
    dist.all_gather_into_tensor(gathered, small)
    assert (gathered.float() == 1).all()
    refused(lambda: dist.all_reduce(small), ValueError, "float8_e4m3fn", "convert the tensor first")
    refused(lambda: dist.all_reduce(torch.ones(2), dist.ReduceOp.BAND), ValueError, "band")


def reductions():
    for op, expected in ((dist.ReduceOp.SUM, size() * (size() + 1) / 2), (dist.ReduceOp.MIN, 1), (dist.ReduceOp.MAX, size()),
                         (dist.ReduceOp.AVG, (size() + 1) / 2)):
        tensor = torch.full((3,), rank() + 1.0)
        dist.all_reduce(tensor, op)
        assert torch.allclose(tensor, torch.full((3,), float(expected))), op
    tensor = torch.full((3,), rank() + 1.0)
    dist.all_reduce(tensor, dist._make_nccl_premul_sum(0.5))
    assert torch.allclose(tensor, torch.full((3,), size() * (size() + 1) / 4))
    flags = torch.tensor([rank() == 0, True, False])
    dist.all_reduce(flags, dist.ReduceOp.BXOR)
    assert flags.tolist() == [True, size() % 2 == 1, False]
    tensor = torch.ones(2)
    dist.reduce(tensor, size() - 1)
    assert (tensor == (size() if rank() == size() - 1 else 1)).all()
    sparse = torch.sparse_coo_tensor([[0, rank()]], [1.0, 2.0], (size(),), check_invariants=False)
    dist.all_reduce(sparse)
    assert sparse.to_dense().tolist() == [size() + 2.0] + [2.0] * (size() - 1)


def strided():
    tensor = torch.arange(6.0).reshape(2, 3).t()
    dist.all_reduce(tensor)
    assert torch.equal(tensor, torch.arange(6.0).reshape(2, 3).t() * size())
    tensor = torch.full((4, 4), float(rank()))
    dist.broadcast(tensor[:, ::2], 1)
    assert (tensor[:, ::2] == 1).all() and (tensor[:, 1::2] == rank()).all()
    outputs = [torch.zeros(3, 2).t() for _ in range(size())]
    dist.all_gather(outputs, torch.full((3, 2), float(rank())).t())
    assert all((output == number).all() for number, output in enumerate(outputs))
    conjugate = torch.full((2,), 1j).conj()  # Stored with the other sign.
    assert (functional.all_gather_tensor(conjugate, 0, dist.group.WORLD) == -1j).all()
    weight = torch.nn.Parameter(torch.full((2, 2), float(rank())))
    dist.broadcast(weight.t(), 0)  # A tensor that requires a gradient.
    assert (weight == 0).all()


def gathers():
    outputs = [torch.zeros(2) for _ in range(size())]
    dist.gather(torch.full((2,), float(rank())), outputs if rank() == 0 else None, 0)
    assert rank() or all((output == number).all() for number, output in enumerate(outputs))
    tensor = torch.zeros(2)
    dist.scatter(tensor, [torch.full((2,), float(number)) for number in range(size())] if rank() == 1 else None, 1)
    assert (tensor == rank()).all()
    dist.reduce_scatter(tensor, [torch.full((2,), float(number)) for number in range(size())])
    assert (tensor == rank() * size()).all()
    dist.reduce_scatter_tensor(tensor, torch.arange(float(size())).repeat_interleave(2))
    assert (tensor == rank() * size()).all()
    side_by_side = torch.zeros(size(), 2)
    dist.all_gather(list(side_by_side.unbind()), torch.full((2,), float(rank())))
    assert torch.equal(side_by_side[:, 0], torch.arange(float(size())))


def uneven():
    outputs = [torch.zeros(number + 1) for number in range(size())]
    dist.all_gather(outputs, torch.full((rank() + 1,), float(rank())))
    assert all((output == number).all() for number, output in enumerate(outputs))
    tensor = torch.zeros(rank() + 1)
    dist.reduce_scatter(tensor, [torch.full((number + 1,), float(number)) for number in range(size())])
    assert (tensor == rank() * size()).all()
    outputs = [torch.zeros(number + 1) for number in range(size())]
    dist.gather(torch.full((rank() + 1,), float(rank())), outputs if rank() == 0 else None, 0)
    assert rank() or all((output == number).all() for number, output in enumerate(outputs))
    given = torch.arange(float(size() * (size() + 1) // 2))
    output = torch.zeros((rank() + 1) * size())
    dist.all_to_all_single(output, given, [rank() + 1] * size(), [number + 1 for number in range(size())])
    first = rank() * (rank() + 1) // 2
    assert torch.equal(output, given[first:first + rank() + 1].repeat(size()))


def objects():
    held = [{"a": 1}, 2] if rank() == 0 else [None, None]
    dist.broadcast_object_list(held, 0)
    assert held == [{"a": 1}, 2]
    held = [None]
    dist.scatter_object_list(held, [f"for {number}" for number in range(size())] if rank() == 0 else None, 0)
    assert held == [f"for {rank()}"]
    held = [None] * size()
    dist.all_gather_object(held, {"rank": rank()})
    assert held == [{"rank": number} for number in range(size())]
    if rank() == 0:
        dist.send_object_list(["hello", {1}], 1)
    elif rank() == 1:
        held = [None, None]
        dist.recv_object_list(held, 0)
        assert held == ["hello", {1}]


def messages():
    after, before = (rank() + 1) % size(), (rank() - 1) % size()
    given, got = torch.full((200_000,), float(rank())), torch.zeros(200_000)
    for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, given, after), dist.P2POp(dist.irecv, got, before)]):
        work.wait()
    assert (got == before).all()
    if rank():
        dist.isend(torch.tensor([rank()]), 0, tag=7)  # Its Work and its tensor are dropped.
    else:
        number = torch.zeros(1, dtype=torch.int64)
        sources = []
        for _ in range(size() - 1):
            sources.append(dist.recv(number, tag=7))
            assert number.item() == sources[-1]
        assert sorted(sources) == list(range(1, size()))
    send, recv = dist.isend(given, after, tag=3), dist.irecv(got, before, tag=3)
    recv.wait()
    send.wait()
    assert send.is_completed() and recv.is_completed()
    refused(lambda: dist.send(given, after, tag=-3), ValueError, "tag -3")


def works():
    dropped = [dist.all_reduce(torch.ones(1000), async_op=True) for _ in range(300)]
    del dropped
    tensor = torch.ones(3)
    work = dist.all_reduce(tensor, async_op=True)
    work.wait()
    assert work.is_completed() and work.is_success() and (tensor == size()).all()
    assert work.result()[0].data_ptr() == tensor.data_ptr()
    future = dist.all_reduce(tensor, async_op=True).get_future()
    assert (future.then(lambda done: done.value()[0] * 2).wait() == 2 * size() ** 2).all()
    if rank() == 0:
        work = dist.barrier(async_op=True)
        try:
            work.wait(datetime.timedelta(milliseconds=50))
            raise AssertionError("it did not wait for the others")
        except TimeoutError as error:
            assert "is not complete after 0.05 s" in str(error)
        store().set("late", "1")
    else:
        store().wait(["late"])
        work = dist.barrier(async_op=True)
    work.wait()


def coalesced():
    tensors = [torch.full((3,), rank() + 1.0) for _ in range(4)]
    with dist._coalescing_manager(async_ops=True) as manager:
        for tensor in tensors:
            dist.all_reduce(tensor)
    manager.wait()
    assert all((tensor == size() * (size() + 1) / 2).all() for tensor in tensors)
    with dist._coalescing_manager(device=torch.device("cpu"), async_ops=True) as manager:
        dist.broadcast(tensors[0].fill_(rank()), 1)
        dist.broadcast(tensors[1].fill_(rank()), 0)
    manager.wait()
    assert (tensors[0] == 1).all() and (tensors[1] == 0).all()


def functionals():
    world = dist.group.WORLD
    assert (functional.all_reduce(torch.ones(3), "sum", world) == size()).all()
    gathered = functional.all_gather_tensor(torch.full((2,), float(rank())), 0, world)
    assert torch.equal(gathered, torch.arange(float(size())).repeat_interleave(2))
    assert (functional.reduce_scatter_tensor(torch.ones(2 * size()), "avg", 0, world) == 1).all()
    assert torch.equal(functional.all_to_all_single(torch.full((size(),), float(rank())), None, None, world),
                       torch.arange(float(size())))
    assert all((one == size()).all() for one in functional.all_reduce_coalesced([torch.ones(3), torch.ones(2)], "sum", world))


def groups():
    ends = dist.new_group([0, size() - 1])
    if rank() in (0, size() - 1):
        tensor = torch.ones(2)
        dist.all_reduce(tensor, group=ends)
        assert (tensor == 2).all()
    for _ in range(5):
        group = dist.new_group()
        future = dist.all_reduce(torch.ones(2), group=group, async_op=True).get_future()
        future.wait()
        dist.destroy_process_group(group)
    gloo = dist.new_group(backend="gloo")
    tensor = torch.ones(2)
    dist.all_reduce(tensor, group=gloo)
    assert (tensor == size()).all() and dist.get_backend(gloo) == "gloo"
    three = [dist.new_group() for _ in range(3)]

    def work(group):
        for _ in range(100):
            dist.all_reduce(torch.ones(8), group=group)

    threads = [threading.Thread(target=work, args=(group,)) for group in three]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def splits():
    if not IS_NEW or not hasattr(dist.group.WORLD, "split_group") or torch.__version__.startswith("2.14"):
        return
    half = size() // 2
    group = dist.split_group(split_ranks=[list(range(half)), list(range(half, size()))])
    tensor = torch.ones(2)
    dist.all_reduce(tensor, group=group)
    assert (tensor == (half if rank() < half else size() - half)).all()
    backend = group._get_backend(torch.device("cpu"))
    assert backend.name() == "muster" and dist.get_backend(group) == "muster"
    dist.destroy_process_group(group)
    refused(lambda: backend.allreduce([torch.ones(2)]), RuntimeError, "was destroyed", "new_group()")


def monitored_barrier():
    if not IS_NEW:
        return
    dist.monitored_barrier(timeout=datetime.timedelta(seconds=20))
    group = dist.new_group()
    if rank() == 0:
        refused(lambda: dist.monitored_barrier(group, datetime.timedelta(seconds=0.2), wait_all_ranks=True), RuntimeError,
                "rank 1", "failed to pass monitoredBarrier")


def meshes():
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor import Replicate, Shard, distribute_tensor

    mesh = init_device_mesh("cpu", (size(),))
    whole = torch.arange(4.0 * size()).reshape(2 * size(), 2)
    sharded = distribute_tensor(whole, mesh, [Shard(0)])
    assert torch.equal(sharded.full_tensor(), whole)
    product = sharded @ distribute_tensor(torch.eye(2), mesh, [Replicate()])
    assert torch.equal(product.redistribute(mesh, [Replicate()]).to_local(), whole)


def lists():
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    twice = torch.ones(2)
    dist.all_reduce_coalesced([twice, twice])
    assert (twice == size()).all(), twice
    row = torch.arange(6.0)
    dist.all_reduce_coalesced([row[:4], row[2:], row[::2]], async_op=True).wait()
    assert torch.equal(row, size() * torch.arange(6.0)), row
    pair = [torch.ones(1), torch.ones(1)]
    broadcast, reduce = dist.BroadcastOptions(), dist.ReduceOptions()
    for call in (lambda: backend.allreduce(pair), lambda: backend.broadcast(pair, broadcast), lambda: backend.reduce(pair, reduce)):
        refused(call, ValueError, "it takes one tensor, not 2")
    broadcast.rootTensor = reduce.rootTensor = 1
    for call in (lambda: backend.broadcast(pair[:1], broadcast), lambda: backend.reduce(pair[:1], reduce)):
        refused(call, ValueError, "rootTensor is 1, and the only tensor is number 0")


def inputs():
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    refused(lambda: backend.allreduce([torch.ones(2, device="meta")]), ValueError, "is on meta", "CPU tensors only")
    refused(lambda: backend.allreduce([torch.eye(2).to_sparse_csr()]), ValueError, "to_dense()")
    refused(lambda: dist.broadcast(torch.ones(3), size() + 5), ValueError, "root")
    refused(lambda: dist.all_gather_into_tensor(torch.ones(3 * size() + 1), torch.ones(3)), ValueError, "elements")
    refused(lambda: dist.all_to_all_single(torch.ones(size()), torch.ones(size()), [9] * size(), None), ValueError,
            "output_split_sizes")
    refused(lambda: backend.send([torch.ones(1)], rank(), 0), ValueError, "this rank itself")


def loaders():
    class Numbers(torch.utils.data.Dataset):
        def __len__(self):
            return 16

        def __getitem__(self, index):
            return torch.tensor(float(index))

    for batch in torch.utils.data.DataLoader(Numbers(), batch_size=4, num_workers=2):
        total = batch.sum()
        dist.all_reduce(total)
        assert total == size() * batch.sum()


def again():
    for _ in range(2):
        dist.destroy_process_group()
        dist.init_process_group("muster")
        tensor = torch.ones(2)
        dist.all_reduce(tensor)
        assert (tensor == size()).all()


def beside_gloo():
    dist.destroy_process_group()
    dist.init_process_group("gloo")
    group = dist.new_group([0, 1], backend="muster")
    if rank() < 2:
        tensor = torch.ones(3)
        dist.all_reduce(tensor, group=group)
        assert (tensor == 2).all() and dist.get_backend(group) == "muster"
    dist.destroy_process_group()
    if IS_NEW:
        dist.init_process_group("cpu:muster,cuda:gloo")
        tensor = torch.ones(3)
        dist.all_reduce(tensor)
        assert (tensor == size()).all()
        assert dist.group.WORLD._get_backend(torch.device("cuda")).name() == "gloo"
    else:
        dist.init_process_group("muster")


def memory_in_flight():
    """The program uses or drops a tensor or a Work while the operation is in flight."""
    count = 1 << 20
    if rank() == 0:
        got = torch.zeros(count)
        work = dist.irecv(got, 1)
        got.data = torch.zeros(1)
        other = torch.full((count,), 7.0)  # Would take the memory if it had been freed.
        dist.barrier()
        work.wait()
        assert (other == 7).all()
    else:
        dist.barrier()
        if rank() == 1:
            dist.send(torch.ones(count), 0)
    dropped = [weakref.ref(tensor.untyped_storage()) for tensor in [torch.ones(1000) for _ in range(40)]
               if dist.all_reduce(tensor, async_op=True)]
    dist.barrier()
    for _ in range(40):
        dist.all_reduce(torch.ones(1))
    gc.collect()
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    assert len(dropped) == 40 and not getattr(backend, "in_flight", None)
    apart = [torch.full((16,), float(number)) for number in range(2 * size())]
    parts = torch.cat(apart).split(16)
    inputs = [parts[number] for number in range(size())]
    output = torch.zeros(16)
    dist.reduce_scatter(output, inputs)  # Parts of one tensor.
    assert (output == rank() * size()).all()


def inference():
    with torch.inference_mode():
        tensor = torch.ones(3, 4).t()
        work = dist.all_reduce(tensor, async_op=True)
        outputs = [torch.zeros(4) for _ in range(size())]
        dist.all_gather(outputs, torch.ones(4))
    work.wait()
    assert (tensor == size()).all()
    output = torch.zeros(4)
    dist.reduce_scatter(output, [torch.ones(4) for _ in range(size())])  # Reuses the same copy's memory.
    assert (output == size()).all()
    with torch.device("meta"):
        tensor = torch.ones(300, 40, device="cpu").t()
        dist.all_reduce(tensor)
    assert (tensor == size()).all()


def outputs():
    backend = dist.group.WORLD._get_backend(torch.device("cpu"))
    wide = torch.ones(1).expand(4)
    refused(lambda: backend.allreduce([wide]), ValueError, "share memory", "expand()", ".contiguous()")
    refused(lambda: backend.broadcast([wide], dist.BroadcastOptions()), ValueError, "share memory")
    gathered = torch.zeros(size() * 4)
    dist.all_gather_into_tensor(gathered, wide)  # Inference tensors may be read.
    assert (gathered == 1).all()
    negative = torch._neg_view(torch.ones(4))  # Stored with the other sign.
    work = backend.allreduce([negative], dist.AllreduceOptions())
    assert work is None or work.wait()
    assert (negative == -size()).all()
    received = torch._neg_view(torch.full((4,), float(rank() + 1)))
    work = backend.broadcast([received], dist.BroadcastOptions())
    assert work is None or work.wait()
    assert (received == -1).all()
    refused(lambda: backend._reduce_scatter_base(torch.ones(3), torch.ones(3 * size() + 1), dist.ReduceScatterOptions()), ValueError,
            f"the input has {3 * size() + 1} elements and not {size()} times the 3 of the output")


def answers():
    """A Work answers its queries when it is complete, when it is not, and when it has failed."""
    if rank() == 0:
        work = dist.irecv(torch.zeros(1), 1, tag=11)
        refused(work.result, RuntimeError, "is not complete", "wait()")
        assert work.exception() is None and not work.is_completed()
    dist.barrier()
    if rank() == 1:
        dist.send(torch.ones(1), 0, tag=11)
    if rank() == 0:
        work.wait()
        assert work.result()[0] == 1 and work.source_rank() == 1
    group = dist.new_group([0, 1], timeout=datetime.timedelta(seconds=1))
    if rank() == 0:
        work = dist.irecv(torch.zeros(1), 1, group=group)
        for _ in range(100):
            if work.exception() is not None:
                break
            time.sleep(0.1)
        refused(work.result, RuntimeError, "recv")
    gloo = dist.new_group([0, 1], backend="gloo")
    if rank() == 0:
        work = dist.irecv(torch.zeros(1), 1, group=gloo)
        assert not any(work.is_completed() for _ in range(100))
    dist.barrier()
    if rank() == 1:
        dist.send(torch.ones(1), 0, group=gloo)
    if rank() == 0:
        work.wait()
        assert work.is_completed()
    dist.destroy_process_group(gloo)


def broken_coalescing():
    if not IS_NEW:
        return
    for _ in range(2):
        try:
            with dist._coalescing_manager(device=torch.device("cpu")):
                dist.broadcast(torch.ones(2), 0)
                raise KeyError("mine")
        except KeyError:
            pass
        for _ in range(200):
            dist.broadcast(torch.ones(2), 0)
    left = getattr(dist.group.WORLD._get_backend(torch.device("cpu")), "coalesced", {})  # A wrapper has none.
    assert sum(map(len, left.values())) < 64
    threads = [threading.Thread(target=lambda: dist.broadcast(torch.ones(2), 0))]  # Outside the coalesced block.
    threads[0].start()
    threads[0].join()
    tensor = torch.full((2,), float(rank()))
    with dist._coalescing_manager(device=torch.device("cpu")):
        dist.broadcast(tensor, 1)
    assert (tensor == 1).all() and not left


# ---- programs of their own

def in_program(*arguments):
    """Returns what this file prints with these arguments."""
    done = subprocess.run([sys.executable, __file__, "--program", *arguments], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                          stderr=subprocess.STDOUT, text=True, timeout=60)
    assert done.returncode == 0, done.stdout
    return done.stdout


def world_of_two(path, number):
    dist.init_process_group("muster", init_method=f"file://{path}", rank=number, world_size=2, timeout=datetime.timedelta(seconds=20))
    tensor = torch.ones(2)
    dist.all_reduce(tensor)
    assert (tensor == 2).all()


def child(number, path, ending):
    if ending == "return":  # Left by an exception that the program has survived.
        sys.last_value = sys.last_exc = ValueError("before")
    world_of_two(path, number)
    if number == 0:
        if ending == "raise":
            raise ValueError("mine")
        return
    try:
        dist.all_reduce(torch.ones(2))
    except dist.DistBackendError as error:
        print("told:", ending, error, flush=True)


def lives_on(path):
    """Runs rank 0 of two worlds, whose rank 1 is another process each time."""
    for number in range(2):
        world_of_two(f"{path}{number}", 0)
        dist.destroy_process_group()
    print("replaced", flush=True)


def program(method, folder, *endings):
    context = multiprocessing.get_context(method)
    path = os.path.join(folder, method)
    started = [context.Process(target=child, args=(number, path + ending, ending)) for ending in endings for number in range(2)]
    if method == "fork":
        started += [context.Process(target=lives_on, args=(path,)),
                    *(context.Process(target=world_of_two, args=(f"{path}{number}", 1)) for number in range(2))]
    for process in started:
        process.start()
    for process in started:
        process.join()


def processes():
    if rank() or size() > 2:
        return
    with tempfile.TemporaryDirectory() as folder:
        said = in_program("fork", folder, "raise", "return")
        assert "replaced" in said, said
        assert re.search("told: raise .* died", said) and re.search("told: return .* left", said), said
        said = in_program("spawn", folder, "raise")
        assert re.search("told: raise .* died", said), said


def after_the_end():
    if rank() or size() > 2:
        return
    with tempfile.TemporaryDirectory() as folder:
        text = ("import atexit, os, torch, torch.distributed as dist\n"
                "def late():\n"
                "  try: dist.all_reduce(torch.ones(2))\n"
                "  except Exception as error: print(error)\n"
                "atexit.register(late)\n"
                f"dist.init_process_group('muster', init_method='file://{folder}/store', rank=0, world_size=1)\n")
        done = subprocess.run([sys.executable, "-c", text], stdout=subprocess.PIPE, text=True, timeout=60)
        assert "this process is ending" in done.stdout and done.returncode == 0, done


CHECKS = (types, reductions, strided, gathers, uneven, objects, messages, works, coalesced, functionals, groups, splits,
          monitored_barrier, meshes, lists, inputs, loaders, memory_in_flight, inference, outputs, answers, broken_coalescing,
          processes, after_the_end, again, beside_gloo)


def main():
    torch.set_num_threads(1)
    dist.init_process_group("muster")
    for check in CHECKS:
        if not sys.argv[1:] or check.__name__ in sys.argv[1:]:
            check()
            dist.barrier()
            if rank() == 0:
                print("ok", check.__name__, flush=True)
    # Leaves its groups to the backend, which leaves them in order when the program ends.


if __name__ == "__main__":
    if sys.argv[1:2] == ["--program"]:
        program(*sys.argv[2:])
    else:
        main()
