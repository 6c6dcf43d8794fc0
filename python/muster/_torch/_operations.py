"""The operations of torch.distributed on CPU tensors, performed by the worker library.

Tensors are passed by address. A tensor that is not contiguous goes through a copy; so does a list of tensors unless they are
adjacent in memory. A synchronous call is performed before it returns, on the caller's thread.
"""
from __future__ import annotations

import ctypes
import datetime
import threading
from typing import Any, Callable, Dict, List, NoReturn, Optional, Sequence, Tuple

import torch  # type: ignore[import-not-found]
from muster import _library as lib
from muster._torch._group import ERRORS, LIVE, Group, milliseconds
from muster._torch._work import HAS_ENDED, Together, Waiter, Work
from torch._C import _distributed_c10d as c10d  # type: ignore[import-not-found]

# By torch's dtype; torch has the same names.
NUMBERS: Dict[Any, int] = {getattr(torch, name): number for name, number in lib.DTYPES.items()}
# Signed types of the same size, for operations that do not depend on the sign.
UNSIGNED: Dict[Any, int] = {getattr(torch, name): number for name, number in
                            (("uint16", lib.INT16), ("uint32", lib.INT32), ("uint64", lib.INT64)) if hasattr(torch, name)}
PARTS = {torch.complex32: lib.FLOAT16, torch.complex64: lib.FLOAT32, torch.complex128: lib.FLOAT64}
OPS = (lib.SUM, lib.AVERAGE, lib.PRODUCT, lib.MIN, lib.MAX, lib.BAND, lib.BOR, lib.BXOR)  # Indexed by torch's number.
OP_NAMES = ("SUM", "AVG", "PRODUCT", "MIN", "MAX", "BAND", "BOR", "BXOR", "PREMUL_SUM")
PREMUL_SUM = 8
OF_BOOL = {lib.SUM: lib.MAX, lib.PRODUCT: lib.MIN, lib.MIN: lib.MIN, lib.MAX: lib.MAX, lib.BAND: lib.MIN, lib.BOR: lib.MAX,
           lib.BXOR: lib.BXOR}
NO_TIMEOUT = datetime.timedelta(milliseconds=-1)
# Codes after which nothing was sent: such a call raises at once, like any wrong argument.
REFUSALS = (lib.InvalidArgumentError, lib.NotInitializedError, lib.NotMemberError, lib.ForkedError)

is_profiled = getattr(torch.autograd, "_profiler_enabled", lambda: False)


class Message:
    """Stands for the options of a send or receive, which has none."""

    asyncOp = True
    timeout = NO_TIMEOUT


MESSAGE = Message()
Finish = Optional[Callable[[], None]]


def moved(tensor: Any) -> Tuple[int, int]:
    """Returns the library's type and count for operations that only copy; unknown types are sent as bytes."""
    number = NUMBERS.get(tensor.dtype)
    if number is not None:
        return number, tensor.numel()
    return lib.UINT8, tensor.numel() * tensor.element_size()


def is_plain(tensor: Any) -> bool:
    """True if the elements are contiguous in memory and stored as they are (no lazy conjugation or negation)."""
    return tensor.is_contiguous() and not tensor.is_conj() and not tensor.is_neg()


def resolved(tensor: Any) -> Any:
    return tensor.detach().resolve_conj().resolve_neg()


def source(tensor: Any) -> Any:
    """Returns the tensor, or a copy of it that is_plain()."""
    return tensor if is_plain(tensor) else resolved(tensor).contiguous()


def target(tensor: Any, at_once: bool) -> Tuple[Any, Finish]:
    """Returns the tensor, or another one and a function that copies that into it in the end."""
    if is_plain(tensor):
        return tensor, None
    check_overlap(tensor)
    made = room("out", tensor.numel(), tensor.dtype, at_once)
    return made, lambda: copy(tensor, made.view(tensor.shape))


def check_overlap(tensor: Any) -> None:
    if torch._debug_has_internal_overlap(tensor) == 1:
        raise ERRORS[lib.InvalidArgumentError](f"elements of an output share memory, as expand() makes them (shape {list(tensor.shape)}, "
                                               f"strides {list(tensor.stride())}): pass x.contiguous() and read the result from it")


def copy(tensor: Any, values: Any) -> None:
    if tensor.requires_grad:
        tensor = tensor.detach()
    if tensor.is_inference() and not torch.is_inference_mode_enabled():  # Made in inference mode by an async_op that ends outside
                                                                         # it.
        with torch.inference_mode():
            tensor.copy_(values)
    else:
        tensor.copy_(values)


def are_adjacent(tensors: Sequence[Any]) -> bool:
    """True if the tensors are adjacent in one storage. Different storages do not count: keeping the first would not keep all."""
    address, storage = tensors[0].data_ptr(), tensors[0].untyped_storage()._cdata
    for tensor in tensors:
        if tensor.data_ptr() != address or not is_plain(tensor) or tensor.untyped_storage()._cdata != storage:
            return False
        address += tensor.nbytes
    return True


def share_memory(tensors: Sequence[Any]) -> bool:
    """True if two of the tensors overlap, or are one."""
    before = 0
    for start, size, tensor in sorted(((t.data_ptr(), t.numel(), t) for t in tensors if t.layout is torch.strided),
                                      key=lambda place: place[:2]):
        if size and start < before:
            return True
        last = sum((count - 1) * stride for count, stride in zip(tensor.shape, tensor.stride()))
        before = max(before, start + (last + 1) * tensor.itemsize if size else 0)
    return False


def sources(tensors: Sequence[Any], at_once: bool) -> Any:
    """Returns a tensor at the address of all of them, in order."""
    if len(tensors) == 1:
        return source(tensors[0])
    if are_adjacent(tensors):
        return tensors[0]
    made = room("in", sum(tensor.numel() for tensor in tensors), tensors[0].dtype, at_once)
    return torch.cat([resolved(tensor).reshape(-1) for tensor in tensors], out=made)


def targets(tensors: Sequence[Any], at_once: bool) -> Tuple[Any, Finish]:
    if len(tensors) == 1:
        return target(tensors[0], at_once)
    if are_adjacent(tensors):
        return tensors[0], None
    for tensor in tensors:
        check_overlap(tensor)
    made = room("out", sum(tensor.numel() for tensor in tensors), tensors[0].dtype, at_once)

    def finish() -> None:
        for tensor, part in zip(tensors, made.split([tensor.numel() for tensor in tensors])):
            copy(tensor, part.view(tensor.shape))

    return made, finish


ROOM = threading.local()
ROOM_BYTES = 64 << 20


def room(slot: str, count: int, dtype: Any, at_once: bool) -> Any:
    """Returns memory for copies. Synchronous calls reuse their thread's: fresh memory costs the kernel more time than the operation
    takes."""
    size = count * dtype.itemsize
    if not at_once or size > ROOM_BYTES:
        return torch.empty(count, dtype=dtype, device="cpu")
    memory = getattr(ROOM, slot, None)
    if memory is None or len(memory) < size:
        with torch.inference_mode(False):  # Otherwise it could not be written in another mode.
            memory = torch.empty(size, dtype=torch.uint8, device="cpu")
        setattr(ROOM, slot, memory)
    return memory[:size].view(dtype)


class Operations:
    """The operations of one group. A subclass makes this a backend of PyTorch and calls open().

    Thread rules are those of process_group.h: calls of several threads are safe, in an order that other ranks cannot know.
    """

    returns_none = False  # True if a completed call may return None for a Work.

    def open(self, group: Group) -> None:
        self.group = group
        self.library = group.library
        self.in_flight: Dict[int, Work] = {}
        self.to_sweep: List[int] = []  # Keys of in_flight.
        self.options_of_calls: Any = None  # A pointer after set_timeout().
        self.coalesced: Dict[int, List[Any]] = {}  # Works by thread, between start_coalescing() and end_coalescing().
        self.sequence = 0
        self.waiters: Dict[bool, Waiter] = {}  # Indexed by is_message.
        self.making_waiters = threading.Lock()
        self.members = group.size
        self.muster_all_reduce, self.muster_barrier = self.library.muster_all_reduce, self.library.muster_barrier

    # ---- how each is performed

    def refuse(self, operation: str, why: str) -> NoReturn:
        raise ERRORS[lib.InvalidArgumentError](f"{operation} of group {self.group.name}: {why}", operation, self.group.name)

    def check(self, operation: str, tensors: Sequence[Any]) -> None:
        dtype = tensors[0].dtype if tensors else None
        for tensor in tensors:
            if not tensor.is_cpu:
                self.refuse(operation, f"a tensor is on {tensor.device}, and muster has CPU tensors only: use "
                            f'init_process_group("cpu:muster,{tensor.device.type}:...") with that device\'s backend, or .cpu()')
            if tensor.layout is not torch.strided:
                self.refuse(operation, f"a tensor has the layout {tensor.layout}: use .to_dense()")
            if tensor.dtype is not dtype:
                self.refuse(operation, f"tensors have different types, {dtype} and {tensor.dtype}: convert them first")

    def check_one(self, operation: str, tensors: Sequence[Any]) -> Any:
        if len(tensors) != 1:
            self.refuse(operation, f"it takes one tensor, not {len(tensors)}")
        self.check(operation, tensors)
        return tensors[0]

    def check_root(self, operation: str, opts: Any) -> None:
        if opts.rootTensor != 0:
            self.refuse(operation, f"rootTensor is {opts.rootTensor}, and the only tensor is number 0")

    def check_list(self, operation: str, tensors: Sequence[Any], what: str) -> None:
        if len(tensors) != self.members:
            self.refuse(operation, f"{what} has {len(tensors)} tensors, and the group {self.members} ranks")

    def check_size(self, operation: str, out: Any, given: Any, times: int,
                   names: Tuple[str, str] = ("output", "input")) -> None:
        if out.numel() != given.numel() * times:
            self.refuse(operation, f"the {names[0]} has {out.numel()} elements and " +
                        (f"not {times} times the {given.numel()} of the {names[1]}" if times > 1 else
                         f"the {names[1]} {given.numel()}"))

    def reduction(self, operation: str, tensor: Any, opts: Any, given: Any) -> Tuple[int, int, int, Any]:
        """Returns the library's type, count of `tensor` and operator, and the input: `given`, or its product with a factor."""
        op = hash(opts.reduceOp)
        dtype = tensor.dtype
        if op == PREMUL_SUM:
            given, op = given.detach() * opts.reduceOp.__getstate__()[1], lib.SUM
            if given.dtype is not dtype:
                given = given.to(dtype)
        number = NUMBERS.get(dtype)
        if number is not None:
            return number, tensor.numel(), OPS[op], given
        if dtype is torch.bool and op in OF_BOOL:
            return lib.UINT8, tensor.numel(), OF_BOOL[op], given
        if dtype in PARTS and op in lib.OF_PARTS:
            return PARTS[dtype], tensor.numel() * 2, op, given
        if dtype in UNSIGNED and op in lib.SIGNLESS:
            return UNSIGNED[dtype], tensor.numel(), op, given
        self.refuse(operation, f"{OP_NAMES[op]} of {dtype} is not supported: convert the tensor first, to float32 for instance")

    def call_options(self, opts: Any) -> Any:
        timeout = opts.timeout
        if timeout.days < 0:
            return self.options_of_calls
        return ctypes.byref(lib.CallOptions(timeout_ms=milliseconds(timeout)))

    def is_at_once(self, opts: Any) -> bool:
        """True if the call must be performed before it returns. Older PyTorch does not tell."""
        return not getattr(opts, "asyncOp", True) and self.coalescing() is None

    def run(self, function: Any, arguments: Tuple[Any, ...], opts: Any, results: Sequence[Any], kept: Any,
            finish: Finish = None, is_recorded: bool = False) -> Any:
        """Calls the library. `kept`: the tensors that the arguments point into."""
        if not is_recorded and is_profiled():
            with torch.autograd.profiler.record_function("muster:" + function.__name__[7:]):
                return self.run(function, arguments, opts, results, kept, finish, True)
        group = self.group
        handle = group.handle
        if handle is None:
            group.refuse_closed()
        if self.in_flight:
            self.sweep()
        is_message = opts is MESSAGE
        if not is_message:
            self.sequence += 1
        if self.is_at_once(opts):
            status = function(handle, *arguments, self.call_options(opts), None)
            if status:
                return self.failed(results)
            if finish is not None:
                finish()
            return None if self.returns_none else Work(self, results)
        # Keeps storages, since `x.data = y` takes x's away. The Work exists before the operation: Ctrl-C may come between.
        storages = [tensor.untyped_storage() for tensor in kept if tensor is not None]
        started = ctypes.c_void_p()
        work = Work(self, results, started, storages, finish, is_message=is_message)
        try:
            status = function(handle, *arguments, self.call_options(opts), ctypes.byref(started))
        finally:
            if not started:
                self.in_flight.pop(id(work), None)
        if status:
            return self.failed(results)
        self.coalesce(work)
        return work

    def failed(self, results: Sequence[Any]) -> Any:
        """Returns a failed Work, whose wait() raises; raises at once after a wrong argument."""
        error = self.group.failure()
        if isinstance(error, REFUSALS):
            raise error
        work = Work(self, results, error=error)
        self.coalesce(work)
        return work

    def sweep(self) -> None:
        """Releases operations whose Works the program has dropped: on each new one, a few, oldest first, until two are not
        complete."""
        if not self.to_sweep:
            self.to_sweep = list(self.in_flight)[::-1]
        unfinished = 0
        for number in self.to_sweep[:-33:-1]:
            del self.to_sweep[-1:]  # Two sweeping threads may skip entries; the next round takes them.
            work = self.in_flight.get(number)
            if work is not None and work.future is None:  # With a future, its waiter must end it, since callbacks run there.
                unfinished += not work.poll()
                if unfinished == 2:
                    break

    def add_to_waiter(self, work: Work) -> bool:
        if HAS_ENDED.is_set():
            return False
        with self.making_waiters:
            if work.is_message not in self.waiters:
                self.waiters[work.is_message] = Waiter(work.is_message)
            waiter = self.waiters[work.is_message]
        return waiter.add(work)

    def together(self, works: Sequence[Any], results: Sequence[Any]) -> Any:
        """Combines Works into one, which is the Work itself for a single operation; completed ones may be None."""
        left = [work for work in works if work is not None]
        if not left:
            return None if works else Work(self, results)
        return left[0] if len(left) == 1 and len(results) == 1 else Together(left, results)

    # ---- reductions

    def allreduce(self, tensors: Sequence[Any], opts: Any = None, given: Any = None) -> Any:
        """`given`: the input, if it is not the tensor itself."""
        if len(tensors) == 1 and tensors[0].layout is not torch.strided:
            return self.allreduce_sparse(tensors, opts)
        tensor = self.check_one("all_reduce", tensors)
        opts = opts or c10d.AllreduceOptions()
        out, finish = target(tensor, self.is_at_once(opts))
        number, count, op, given = self.reduction("all_reduce", tensor, opts, tensor if given is None else given)
        given = source(given)
        return self.run(self.muster_all_reduce, (given.data_ptr(), out.data_ptr(), count, number, op), opts, tensors, (given, out),
                        finish)

    def allreduce_coalesced(self, tensors: Sequence[Any], opts: Any = None) -> Any:
        opts = opts or c10d.AllreduceCoalescedOptions()
        # No result may become an input.
        if share_memory(tensors):
            given = [tensor.detach().clone() for tensor in tensors]
            works = [Operations.allreduce(self, [tensor], opts, its) for tensor, its in zip(tensors, given)]
        else:
            works = [self.allreduce([tensor], opts) for tensor in tensors]
        return self.together(works, tensors)

    def allreduce_sparse(self, tensors: Sequence[Any], opts: Any = None) -> Any:
        """Performed before it returns, even if asynchronous: it takes three exchanges."""
        opts = opts or c10d.AllreduceOptions()
        tensor = tensors[0]
        if len(tensors) != 1 or tensor.layout is not torch.sparse_coo or not tensor.is_cpu:
            self.refuse("all_reduce", f"it takes one sparse COO tensor on the CPU at a time, and not {tensor.layout} on "
                        f"{tensor.device}: use .to_dense() or .to_sparse_coo()")
        if hash(opts.reduceOp) != lib.SUM:
            self.refuse("all_reduce", f"{OP_NAMES[hash(opts.reduceOp)]} of sparse tensors is not supported: use SUM, or .to_dense()")
        held = tensor.detach().coalesce()
        facts = torch.tensor([held._nnz(), held.sparse_dim(), *held.shape], device="cpu")
        others = facts.new_empty(self.members, len(facts))
        now = Now(opts.timeout)
        for work in (self.all_gather_single(others, facts, now), *self.gather_sparse(tensor, held, others, now)):
            if work is not None:
                work.wait()
        return None if self.returns_none and not getattr(opts, "asyncOp", True) else Work(self, tensors)

    def gather_sparse(self, tensor: Any, held: Any, others: Any, now: Any) -> Any:
        """Yields Works to wait for; then `tensor` is the sum."""
        if not (others[:, 1:] == others[0, 1:]).all():
            self.refuse("all_reduce", "the ranks have sparse tensors of different shapes")
        counts = others[:, 0].tolist()
        indices = [held.indices().new_empty(held.sparse_dim(), count) for count in counts]
        values = [held.values().new_empty(count, *held.values().shape[1:]) for count in counts]
        yield self.allgather([indices], [held.indices()], now)
        yield self.allgather([values], [held.values()], now)
        total = torch.sparse_coo_tensor(torch.cat(indices, 1), torch.cat(values), tensor.shape, device="cpu",
                                        check_invariants=False).coalesce()
        with torch.no_grad():  # detach() of a sparse tensor does not share its memory.
            tensor.copy_(total)

    def reduce(self, tensors: Sequence[Any], opts: Any) -> Any:
        tensor = self.check_one("reduce", tensors)
        self.check_root("reduce", opts)
        out, finish = target(tensor, self.is_at_once(opts))
        number, count, op, given = self.reduction("reduce", tensor, opts, tensor)
        given = source(given)
        root = opts.rootRank
        if root != self.group.rank:
            finish = None
        return self.run(self.library.muster_reduce, (given.data_ptr(), out.data_ptr(), count, number, op, root), opts, tensors,
                        (given, out), finish)

    def reduce_scatter_single(self, output: Any, given: Any, opts: Any = None) -> Any:
        opts = opts or c10d.ReduceScatterOptions()
        self.check("reduce_scatter", (output, given))
        self.check_size("reduce_scatter", given, output, self.members, ("input", "output"))
        out, finish = target(output, self.is_at_once(opts))
        number, count, op, given = self.reduction("reduce_scatter", output, opts, given)
        given = source(given)
        return self.run(self.library.muster_reduce_scatter, (given.data_ptr(), out.data_ptr(), count, number, op), opts, [output],
                        (given, out), finish)

    _reduce_scatter_base = reduce_scatter_single

    def reduce_scatter(self, outputs: Sequence[Any], inputs: Sequence[Sequence[Any]], opts: Any = None) -> Any:
        opts = opts or c10d.ReduceScatterOptions()
        output = self.check_one("reduce_scatter", outputs)
        self.check_list("reduce_scatter", inputs[0], "the list of inputs")
        self.check("reduce_scatter", (output, *inputs[0]))
        self.check_size("reduce_scatter", output, inputs[0][self.group.rank], 1)
        out, finish = target(output, self.is_at_once(opts))
        number, count, op, given = self.reduction("reduce_scatter", output, opts, sources(inputs[0], self.is_at_once(opts)))
        sizes = [tensor.numel() for tensor in inputs[0]]
        if len(set(sizes)) == 1:
            return self.run(self.library.muster_reduce_scatter, (given.data_ptr(), out.data_ptr(), count, number, op), opts,
                            outputs, (given, out), finish)
        if output.dtype in PARTS:
            sizes = [2 * size for size in sizes]
        return self.run(self.library.muster_reduce_scatter_v, (given.data_ptr(), out.data_ptr(), self.counts(sizes), number, op),
                        opts, outputs, (given, out), finish)

    def reduce_scatter_single_coalesced(self, outputs: Sequence[Any], inputs: Sequence[Any], opts: Any = None) -> Any:
        return self.together([self.reduce_scatter_single(*pair, opts) for pair in zip(outputs, inputs)], outputs)

    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced

    # ---- copies

    def counts(self, counts: Sequence[int]) -> Any:
        return (ctypes.c_size_t * self.members)(*counts)

    def broadcast(self, tensors: Sequence[Any], opts: Any = None) -> Any:
        opts = opts or c10d.BroadcastOptions()
        tensor = self.check_one("broadcast", tensors)
        self.check_root("broadcast", opts)
        root = opts.rootRank
        check_overlap(tensor)  # Checked on the root too, so that all ranks refuse it.
        data, finish = (source(tensor), None) if root == self.group.rank else target(tensor, self.is_at_once(opts))
        number, count = moved(tensor)
        return self.run(self.library.muster_broadcast, (data.data_ptr(), count, number, root), opts, tensors, (data,), finish)

    def all_gather_single(self, output: Any, given: Any, opts: Any = None) -> Any:
        opts = opts or c10d.AllgatherOptions()
        self.check("all_gather", (output, given))
        self.check_size("all_gather", output, given, self.members)
        out, finish = target(output, self.is_at_once(opts))
        given = source(given)
        number, count = moved(given)
        return self.run(self.library.muster_all_gather, (given.data_ptr(), out.data_ptr(), count, number), opts, [output],
                        (given, out), finish)

    _allgather_base = all_gather_single

    def allgather(self, outputs: Sequence[Sequence[Any]], inputs: Sequence[Any], opts: Any = None) -> Any:
        opts = opts or c10d.AllgatherOptions()
        given = self.check_one("all_gather", inputs)
        self.check_list("all_gather", outputs[0], "the list of outputs")
        self.check("all_gather", (given, *outputs[0]))
        self.check_size("all_gather", outputs[0][self.group.rank], given, 1)
        out, finish = targets(outputs[0], self.is_at_once(opts))
        given = source(given)
        number, count = moved(given)
        sizes = [moved(tensor)[1] for tensor in outputs[0]]
        if all(size == count for size in sizes):
            return self.run(self.library.muster_all_gather, (given.data_ptr(), out.data_ptr(), count, number), opts, outputs[0],
                            (given, out), finish)
        return self.run(self.library.muster_all_gather_v, (given.data_ptr(), out.data_ptr(), self.counts(sizes), number), opts,
                        outputs[0], (given, out), finish)

    def allgather_coalesced(self, outputs: Sequence[Sequence[Any]], inputs: Sequence[Any], opts: Any = None) -> Any:
        """`outputs` holds, for each rank, the list of its inputs."""
        self.check_list("all_gather", outputs, "the list of outputs")
        for one in outputs:
            if len(one) != len(inputs):
                self.refuse("all_gather", f"there are {len(inputs)} inputs and {len(one)} outputs of a rank")
        works = [self.allgather([[one[i] for one in outputs]], [given], opts) for i, given in enumerate(inputs)]
        return self.together(works, [tensor for one in outputs for tensor in one])

    def all_gather_single_coalesced(self, outputs: Sequence[Any], inputs: Sequence[Any], opts: Any = None) -> Any:
        return self.together([self.all_gather_single(*pair, opts) for pair in zip(outputs, inputs)], outputs)

    allgather_into_tensor_coalesced = all_gather_single_coalesced

    def gather(self, outputs: Sequence[Sequence[Any]], inputs: Sequence[Any], opts: Any) -> Any:
        given = self.check_one("gather", inputs)
        root, out, finish, sizes = opts.rootRank, None, None, None
        results: Sequence[Any] = []
        number, count = moved(given)
        if root == self.group.rank:
            results = outputs[0] if outputs else []
            self.check_list("gather", results, "the list of outputs")
            self.check("gather", (given, *results))
            out, finish = targets(results, self.is_at_once(opts))
            sizes = self.counts([moved(tensor)[1] for tensor in results])
        given = source(given)
        return self.run(self.library.muster_gather_v, (given.data_ptr(), count, None if out is None else out.data_ptr(), sizes,
                                                       number, root), opts, results, (given, out), finish)

    def scatter(self, outputs: Sequence[Any], inputs: Sequence[Sequence[Any]], opts: Any) -> Any:
        output = self.check_one("scatter", outputs)
        root, given, sizes = opts.rootRank, None, None
        if root == self.group.rank:
            tensors = inputs[0] if inputs else []
            self.check_list("scatter", tensors, "the list of inputs")
            self.check("scatter", (output, *tensors))
            given = sources(tensors, self.is_at_once(opts))
            sizes = self.counts([moved(tensor)[1] for tensor in tensors])
        out, finish = target(output, self.is_at_once(opts))
        number, count = moved(output)
        return self.run(self.library.muster_scatter_v, (None if given is None else given.data_ptr(), sizes, out.data_ptr(), count,
                                                        number, root), opts, outputs, (given, out), finish)

    # ---- all to all

    def all_to_all_single(self, output: Any, given: Any, output_splits: Sequence[int], input_splits: Sequence[int],
                          opts: Any = None) -> Any:
        opts = opts or c10d.AllToAllOptions()
        self.check("all_to_all", (output, given))
        receives, sends = self.splits(output, output_splits, "output"), self.splits(given, input_splits, "input")
        out, finish = target(output, self.is_at_once(opts))
        given = source(given)
        return self.run(self.library.muster_all_to_all_v, (given.data_ptr(), sends, out.data_ptr(), receives, moved(given)[0]),
                        opts, [output], (given, out), finish)

    alltoall_base = all_to_all_single

    def splits(self, tensor: Any, splits: Sequence[int], what: str) -> Any:
        """Converts counts of rows to counts of elements."""
        rows = tensor.shape[0] if tensor.dim() else 1
        count = moved(tensor)[1]
        if not splits:
            if rows % self.members:
                self.refuse("all_to_all", f"the {rows} rows of the {what} are not divisible by the {self.members} ranks: give "
                            f"{what}_split_sizes")
            return self.counts([count // self.members] * self.members)
        if len(splits) != self.members or sum(splits) != rows:
            self.refuse("all_to_all", f"{what}_split_sizes are {list(splits)}, and should be {self.members} numbers whose sum is the "
                        f"{rows} rows of the {what}")
        row = count // rows if rows else 0
        return self.counts([split * row for split in splits])

    def alltoall(self, outputs: Sequence[Any], inputs: Sequence[Any], opts: Any = None) -> Any:
        opts = opts or c10d.AllToAllOptions()
        self.check_list("all_to_all", outputs, "the list of outputs")
        self.check_list("all_to_all", inputs, "the list of inputs")
        self.check("all_to_all", (*outputs, *inputs))
        out, finish = targets(outputs, self.is_at_once(opts))
        given = sources(inputs, self.is_at_once(opts))
        sends, receives = (self.counts([moved(tensor)[1] for tensor in tensors]) for tensors in (inputs, outputs))
        return self.run(self.library.muster_all_to_all_v, (given.data_ptr(), sends, out.data_ptr(), receives, moved(given)[0]),
                        opts, outputs, (given, out), finish)

    # ---- messages

    def send(self, tensors: Sequence[Any], to: int, tag: int = 0) -> Any:
        tensor = source(self.check_one("send", tensors))
        number, count = moved(tensor)
        return self.run(self.library.muster_send, (tensor.data_ptr(), count, number, to, tag), MESSAGE, tensors, (tensor,))

    def recv(self, tensors: Sequence[Any], origin: int, tag: int = 0) -> Any:
        out, finish = target(self.check_one("recv", tensors), at_once=False)
        number, count = moved(out)
        return self.run(self.library.muster_recv, (out.data_ptr(), count, number, origin, tag, None), MESSAGE, tensors, (out,),
                        finish)

    def recv_anysource(self, tensors: Sequence[Any], tag: int = 0) -> Any:
        return self.recv(tensors, -1, tag)

    # ---- barriers

    def barrier(self, opts: Any = None) -> Any:
        return self.run(self.muster_barrier, (), opts or c10d.BarrierOptions(), [], ())

    def monitored_barrier(self, opts: Any = None, wait_all_ranks: bool = False) -> None:
        timeout = opts if isinstance(opts, datetime.timedelta) else getattr(opts, "timeout", NO_TIMEOUT)
        handle = self.group.handle
        if handle is None:
            self.group.refuse_closed()
        if self.library.muster_monitored_barrier(handle, int(wait_all_ranks), self.call_options(Now(timeout))):
            error = self.group.failure()
            if isinstance(error, lib.OperationTimeout):  # Adds the words that programs look for.
                late = ", ".join(map(str, error.failed_ranks))
                error.args = (f"{error} (Rank{'s' * (len(error.failed_ranks) > 1)} {late} failed to pass monitoredBarrier)",)
            raise error

    # ---- several at once

    def start_coalescing(self, device: Any = None) -> None:
        self.coalesced[threading.get_ident()] = []  # May lack its end, if the program raised.

    def end_coalescing(self, device: Any = None) -> Any:
        return Together(self.coalesced.pop(threading.get_ident(), []), [])

    def coalescing(self) -> Optional[List[Any]]:
        return self.coalesced.get(threading.get_ident()) if self.coalesced else None

    def coalesce(self, work: Work) -> None:
        """Notes the Work for end_coalescing(). Drops completed ones, which need no wait, except a failed one."""
        works = self.coalescing()
        if works is None:
            return
        works.append(work)
        if len(works) % 32 == 0:
            failed = [one for one in works if one.error is not None]
            works[:] = failed[:1] + [one for one in works if not one.is_done]

    _start_coalescing, _end_coalescing = start_coalescing, end_coalescing

    # ---- the group

    def set_timeout(self, timeout: datetime.timedelta) -> None:
        self.options_of_calls = ctypes.byref(lib.CallOptions(timeout_ms=milliseconds(timeout)))

    def abort(self) -> None:
        self.group.abort("abort() was called")

    def shutdown(self) -> None:
        self.group.leave()
        self.end_waiters()
        if not LIVE:
            ROOM.__dict__.clear()

    def end_waiters(self) -> None:
        for is_message in (False, True):
            waiter = self.waiters.pop(is_message, None)
            if waiter is not None:
                waiter.end()

    __del__ = end_waiters

    def _get_sequence_number_for_group(self) -> int:
        return self.sequence

    def _set_sequence_number_for_group(self) -> None:
        pass


class Now:
    """Options of an operation that is performed at once."""

    asyncOp = False

    def __init__(self, timeout: datetime.timedelta) -> None:
        self.timeout = timeout
