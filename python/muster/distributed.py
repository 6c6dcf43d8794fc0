"""The worker library: operations between the ranks of a job, on numpy arrays, torch tensors and any object with the buffer
protocol or DLPack. None of these has to be installed.

    import muster.distributed as dist
    import numpy

    with dist.init() as world:                        # RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT, as muster sets them
        loss = numpy.full(3, float(dist.rank()))
        world.all_reduce(loss, "average")             # in place; dist.all_reduce() is the same
        every = world.all_gather(loss)                # a new array, of shape (world.size, 3)
        work = world.all_reduce(loss, async_op=True)
        ...
        work.wait()

Operations are collective, as in MPI and torch.distributed: all members of a group call the same ones in the same order. An array is
C-contiguous, and never copied. Reductions: "sum", "average", "product", "min", "max", and for integers "band", "bor", "bxor".
Elements: int8 to int64, float16, bfloat16, float32, float64; unsigned integers, if the result has the same bits (not min, max,
average); complex numbers, whose parts are summed or averaged; bool, without sums.

In place or not: an operation whose result has the shape of its array writes it there, unless given `out`; the others return a new
array of the same library, unless given `out`, in which only the number of elements must match. An operation returns the array with
the result, or None if this rank gets none; with async_op=True it is only begun, and returns a Work, which has the result. A
`timeout` is in seconds and replaces the group's. On GPU memory (NCCL) `stream` is a cudaStream_t as a number, and an operation
returns when it is on the stream; with arrays in host memory it is refused.

Roots, `dest` and `source` are ranks of the group; the list of new_group(), and ranks in errors, are ranks of the job.

A call that fails raises a subclass of DistributedError, within a second after a rank has died. TypeError: not an array, or an
element type that the library does not have.

Threads: any thread may call anything, and a call lets the others run. Calls on one group from several threads have an order that
the other ranks cannot know: give each thread its own group. Nothing works in a child of fork(): see ForkedError.

Ctrl-C, at a prompt, in a notebook and in the foreground of a terminal: raises KeyboardInterrupt in the call within 0.1 s. The
operation is not cancelled, and keeps its arrays until it is complete; the group's next operations come after it. So either the
other ranks make the same call, or abort() ends the group. Elsewhere, as under a launcher, calls are faster, and KeyboardInterrupt
comes after 0.1 s through abort(), unless SIGINT has another handler than Python's, or a running event loop has the signals.
init(interruptible=) overrides this.

The end: destroy() leaves the job. It is called when the interpreter ends, also by sys.exit() with any code, but not after an
uncaught exception, nor while an operation of this rank is in flight (its Work was not waited for, Ctrl-C left it, or another thread
is in it): then the process just ends, waits for nothing, and the other ranks see that this one died.
"""
from __future__ import annotations

import atexit
import ctypes
import math
import operator
import os
import pickle
import sys
import threading
import time
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from types import TracebackType
from typing import Any, Callable, Dict, List, NamedTuple, Optional, Sequence, Tuple, Type, TypeVar, Union

from muster import _library, _work
from muster._arrays import HOST, Buffer, Family, Kind, family_of, numpy_for, stream_number, unfit
from muster._library import (
    AbortedError,
    BackendError,
    DistributedError,
    ForkedError,
    InvalidArgumentError,
    JobEnvironmentError,
    MismatchError,
    NotInitializedError,
    NotMemberError,
    OperationTimeout,
    PeerFailedError,
    RendezvousError,
    ResourceError,
    StoppedError,
    check,
    check_number,
    milliseconds,
    raise_last,
    short,
    text_for_c,
)
from muster._work import Work

__all__ = [
    "AbortedError", "BackendError", "DistributedError", "ForkedError", "Group", "InvalidArgumentError", "JobEnvironmentError",
    "MismatchError", "NotInitializedError", "NotMemberError", "OperationTimeout", "PeerFailedError", "Recv", "RendezvousError",
    "ResourceError", "Send", "StoppedError", "Work", "abort", "agree", "all_gather", "all_gather_bytes", "all_gather_object",
    "all_gather_v", "all_reduce", "all_to_all", "all_to_all_v", "allocate_shared", "barrier", "batch", "broadcast",
    "broadcast_bytes", "broadcast_object", "cuda_device", "destroy", "failure", "gather", "gather_v", "init",
    "is_gloo_available", "is_initialized", "is_nccl_available", "local_rank", "local_world_size", "monitored_barrier",
    "new_group", "node_rank", "rank", "recv", "reduce", "reduce_scatter", "reduce_scatter_v", "request_stop", "restart_count",
    "scatter", "scatter_v", "section", "send", "should_stop", "shrink", "split", "world", "world_size"]

T = TypeVar("T")

_lib = _library.load()
_sites = _library.Sites((os.path.dirname(os.path.abspath(__file__)) + os.sep,))
_main_thread = threading.main_thread().ident
_monotonic = time.monotonic
_bytes_at = ctypes.PYFUNCTYPE(ctypes.py_object, ctypes.c_void_p, ctypes.c_ssize_t)(("PyBytes_FromStringAndSize", ctypes.pythonapi))
_is_interruptible = False
_options_known: Dict[Any, Any] = {}
OPTIONS_MAX = 1024
BYTES_MAX = (1 << 63) - 1  # Maximum size of an array for Python and the kernel.
PICKLE_PROTOCOL = 5  # Known to all supported Pythons: ranks may have different ones.


class Send(NamedTuple):
    """One operation of batch()."""

    array: Any
    dest: int
    tag: int = 0


class Recv(NamedTuple):
    """One operation of batch()."""

    array: Any
    source: int
    tag: int = 0


def _options(timeout: Optional[float], device: int = HOST, stream: Optional[int] = None) -> Any:
    """Returns the options argument of a function; cached for each place in the program."""
    site = _sites.current() if _sites.is_wanted else 0
    if stream is not None:
        stream = stream_number(stream)
        if device == HOST:
            raise InvalidArgumentError("stream is for arrays on a GPU, and these are in host memory")
    if timeout is None and device == HOST and not site:
        return None
    key = milliseconds(timeout), device, stream, site
    known = _options_known.get(key)
    if known is None:
        if len(_options_known) >= OPTIONS_MAX:
            _options_known.clear()
        known = _options_known[key] = ctypes.byref(_library.CallOptions(
            timeout_ms=key[0], cuda_device=device, stream=stream, site=site or None))
    return known


def _is_main() -> bool:
    return threading.get_ident() == _main_thread


def _blocking(call: Callable[[], T], group: Optional[Group] = None, undo: Optional[Callable[[T], None]] = None) -> T:
    """Runs a call without an asynchronous form: an operation of the group, or something else that takes long."""
    if group is not None:
        group._follow()
    if not _is_main():
        return _elsewhere(call)
    if group is not None and not _is_interruptible:
        return _watched(call, group)
    background = _work.Background(call, undo)
    if group is not None:
        group._left = background  # Kept until it is known to have ended.
    result = background.wait()
    if group is not None:
        group._left = None
    return result


def _watched(call: Callable[..., T], group: Group, *arguments: Any) -> T:
    """Calls on the main thread: see watch_interrupts()."""
    if _monotonic() > _work.next_look:
        _work.look_after_signals()
    _work.blocked = (group,)
    try:
        return call(*arguments)
    finally:
        _work.blocked = None


def _elsewhere(call: Callable[..., T], *arguments: Any) -> T:
    """Calls on another thread, which may still be in it when the interpreter ends."""
    me = threading.get_ident()
    _work.calls_elsewhere.add(me)
    try:
        return call(*arguments)
    finally:
        _work.calls_elsewhere.discard(me)


def _reduction(op: str, kind: Kind, operation: str) -> int:
    code = _library.REDUCE_OPS.get(op) if isinstance(op, str) else None
    if code is None:
        raise InvalidArgumentError(f"{operation}: op is one of {', '.join(_library.REDUCE_OPS)}, not {short(op)}", operation)
    if kind.operations is not None and code not in kind.operations:
        able = ", ".join(name for name, number in _library.REDUCE_OPS.items() if number in kind.operations)
        raise InvalidArgumentError(f"{operation}: {op} of {kind.name} is not defined; what is: {able}", operation)
    return code


def _counts(counts: Optional[Sequence[int]], size: int, kind: Kind, operation: str, name: str = "counts") -> Any:
    """Converts to the library's counts, of the parts of elements."""
    try:
        numbers = [count.__index__() for count in counts]  # type: ignore[union-attr]
    except (TypeError, AttributeError):
        raise TypeError(f"{operation}: {name} is a list of numbers of elements, by rank, not {short(counts)}") from None
    if len(numbers) != size or min(numbers, default=0) < 0 or sum(numbers) * kind.item_size > BYTES_MAX:
        raise InvalidArgumentError(f"{operation}: {name} is {short(numbers)}, and a number of elements for each of {size} ranks is "
                                   "expected", operation)
    return (ctypes.c_size_t * size)(*(number * kind.parts for number in numbers))


def _number(value: Any, what: str) -> int:
    """Checks that the value fits a C int: ctypes would take its lowest bits."""
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{what} is an integer, not {short(value)}") from None
    if not -1 << 31 <= number < 1 << 31:
        raise InvalidArgumentError(f"{what} is an integer of 32 bits, not {short(value)}")
    return number


def _fitting(out: Any, count: int, kind: Kind, device: int, who: str, stream: Optional[int]) -> Tuple[Optional[int], Any]:
    """Returns the address for the result, and the object that keeps it alive."""
    address, given, its_kind, its_device, keep = family_of(out, who).buffer(out, True, who, stream)
    if its_kind is not kind:
        raise unfit(who, f"has elements of type {its_kind.name}, and the array {kind.name}")
    if given != count:
        raise unfit(who, f"has {given} elements, and the result has {count}")
    if its_device != device:
        raise unfit(who, f"is {_place(its_device)}, and the array {_place(device)}")
    return address, keep


def _place(device: int) -> str:
    return "in host memory" if device == HOST else f"on GPU {device}"


def _rows(array: Any, family: Family, count: int, size: int, who: str) -> Tuple[int, ...]:
    """Returns the shape of each rank's block in an array of all blocks."""
    shape = family.shape(array)
    if shape is None:
        if count % size:
            raise unfit(who, f"has {count} elements, which are no blocks for {size} ranks")
        return (count // size,)
    if not shape or shape[0] != size:
        raise unfit(who, f"has the shape {shape}, and the first dimension is to be the {size} ranks: reshape it, or pass out=")
    return shape[1:]


def _handle_from(function: Any, *arguments: Any) -> int:
    """Returns the handle that function(*arguments, &handle) makes."""
    handle = ctypes.c_void_p()
    check(function(*arguments, ctypes.byref(handle)))
    assert handle.value is not None
    return handle.value


def _group_options(name: Optional[str], timeout: Optional[float], backend: Optional[str] = None) -> Any:
    number = -1 if backend is None else _choice(backend, _library.BACKENDS, "backend")
    return _library.GroupOptions(name=text_for_c(name, "name"), timeout_ms=milliseconds(timeout), backend=number)


def _choice(name: Any, choices: Dict[str, int], what: str) -> int:
    number = choices.get(name) if isinstance(name, str) else None
    if number is None:
        raise InvalidArgumentError(f"{what} is one of {', '.join(choices)}, not {short(name)}")
    return number


class Group:
    """Ranks of the job and the operations between them. Made by new_group() or split(); `world` has all ranks. A handle: close(),
    or the end of the object, does not end the group for others, nor operations in flight."""

    def __init__(self, handle: Optional[int]) -> None:
        self._handle = handle
        self._free: Any = _lib.muster_group_free
        self._left: Optional[_work.Background[Any]] = None  # An operation left by Ctrl-C.

    # ---- membership. These never block.

    @property
    def is_member(self) -> bool:
        """True if this rank belongs to it. If not, every operation raises NotMemberError."""
        return bool(_lib.muster_group_is_member(self._handle))

    @property
    def rank(self) -> int:
        """This process's rank in the group."""
        return check_number(_lib.muster_group_rank(self._handle))

    @property
    def size(self) -> int:
        return check_number(_lib.muster_group_size(self._handle))

    @property
    def ranks(self) -> Tuple[int, ...]:
        """The members' ranks in the job, by rank in the group."""
        return tuple(self.global_rank(rank) for rank in range(self.size))

    def global_rank(self, group_rank: int) -> int:
        """Returns the rank in the job of a group's rank."""
        return check_number(_lib.muster_group_global_rank(self._handle, _number(group_rank, "global_rank: group_rank")))

    def group_rank(self, global_rank: int) -> int:
        """Returns the rank in the group of a job's rank."""
        return check_number(_lib.muster_group_from_global_rank(self._handle, _number(global_rank, "group_rank: global_rank")))

    @property
    def name(self) -> str:
        name = _library.text_of(_lib.muster_group_name(self._handle))
        if not name:
            check_number(_lib.muster_group_size(self._handle))  # Raises the reason.
        return name

    def __repr__(self) -> str:
        return f"<muster.distributed.Group {_library.text_of(_lib.muster_group_name(self._handle))!r}>"

    def __reduce__(self) -> str:
        """Pickles the world: functions sent to workers may refer to all_reduce(), a method of it."""
        if self is not world:
            raise TypeError("a group belongs to its process, and can neither be pickled nor copied")
        return "world"

    def close(self) -> None:
        """Frees the handle. The group itself lives on for other ranks, and while it has operations in flight."""
        if self._handle is not None:  # None: the world.
            with _work.aborting:
                self.__del__()
                self.__class__ = _ClosedGroup

    def __del__(self) -> None:
        handle = self.__dict__.pop("_handle", None)
        if handle is not None:
            self._free(handle)

    # ---- other groups, and the end of this one

    def split(self, color: int, key: int = 0, *, name: Optional[str] = None, timeout: Optional[float] = None) -> Group:
        """Collective: members that pass the same `color` (>= 0) form a group, ordered by `key`, then by rank here. With a color
        below 0, is_member of the result is False."""
        options, color, key = _group_options(name, timeout), _number(color, "split: color"), _number(key, "split: key")
        return _blocking(lambda: Group(_handle_from(_lib.muster_split, self._handle, color, key, ctypes.byref(options))), self)

    # ---- after a death, which fails every call of the group on all members (MPI's users know this way on as ULFM)

    def shrink(self, *, name: Optional[str] = None, timeout: Optional[float] = None) -> Group:
        """Returns a group of the members that are there, in this group's order and with its name: all of them call it, once their
        calls have failed. It needs no launcher and no store. One that dies meanwhile is left out, too. In the new group, roots and
        peers are its ranks, from 0 on; messages and errors name the members by their ranks in the job. What was in flight is lost:
        some members may have completed an operation that failed on others, so agree on the step from which to go on.

        Raises OperationTimeout with the members that live and do not call it."""
        options = _group_options(name, timeout)
        return _blocking(lambda: Group(_handle_from(_lib.muster_group_shrink, self._handle, ctypes.byref(options))), self)

    def agree(self, value: int, *, timeout: Optional[float] = None) -> int:
        """Returns the bits that are set in the `value` (0 to 2**64 - 1) of all members that are there: the same on all that get an
        answer, whatever dies meanwhile, and also if the group has failed. All of them call it, equally often."""
        options = _options(timeout)
        if not isinstance(value, int) or not 0 <= value < 1 << 64:
            raise InvalidArgumentError(f"agree: value is an integer from 0 to 2**64 - 1, not {short(value)}")

        def call() -> int:
            agreed = ctypes.c_uint64()
            check(_lib.muster_group_agree(self._handle, value, ctypes.byref(agreed), options))
            return agreed.value

        return _blocking(call, self)

    def abort(self, reason: Optional[str] = None) -> None:
        """Ends every blocked and future call of this group, on all its ranks, with AbortedError. Returns at once."""
        check(_lib.muster_group_abort(self._handle, text_for_c(reason, "abort: reason")))

    def failure(self) -> Optional[DistributedError]:
        """Returns the group's failure; None if it has not failed. Raises NotInitializedError outside of a job."""
        if not _lib.muster_group_failure(self._handle):
            return None
        error = _library.last_error()
        if isinstance(error, (NotInitializedError, InvalidArgumentError, ForkedError)):
            raise error
        return error

    # ---- calls of the library

    def _follow(self) -> None:
        """Waits for an operation left by Ctrl-C: later ones must come after it."""
        if self._left is not None:
            self._left.wait_for_end()
            self._left = None

    def _run(self, function: Any, arguments: Tuple[Any, ...], keeps: Any, result: Any, timeout: Optional[float], async_op: bool,
             device: int = HOST, stream: Optional[int] = None) -> Any:
        if self._left is not None:
            self._follow()
        options = _options(timeout, device, stream)
        if async_op:
            return _work.begin(function, arguments, options, Work(keeps, result, device != HOST))
        is_main = _is_main()
        if device != HOST or is_main and _is_interruptible:
            _work.begin(function, arguments, options, Work(keeps, result, device != HOST)).wait()
        elif _watched(function, self, *arguments, options, None) if is_main else _elsewhere(function, *arguments, options, None):
            raise_last()
        return result

    # ---- one to all and all to one

    def broadcast(self, array: Any, root: int = 0, *, timeout: Optional[float] = None, async_op: bool = False,
                  stream: Optional[int] = None) -> Any:
        """Copies the root's array into every rank's, of the same number and type of elements. Returns the array."""
        root = _number(root, "broadcast: root")
        family = family_of(array, "broadcast: array")
        is_written = _lib.muster_group_rank(self._handle) != root
        address, count, kind, device, keep = family.buffer(array, is_written, "broadcast: array", stream)
        return self._run(_lib.muster_broadcast, (self._handle, address, count * kind.parts, kind.code, root), keep, array, timeout,
                         async_op, device, stream)

    def reduce(self, array: Any, root: int = 0, op: str = "sum", *, out: Any = None, timeout: Optional[float] = None,
               async_op: bool = False, stream: Optional[int] = None) -> Any:
        """Reduces all arrays element-wise into the root's array, or its `out`. Writes nothing on other ranks."""
        root = _number(root, "reduce: root")
        is_root = _lib.muster_group_rank(self._handle) == root
        family = family_of(array, "reduce: array")
        address, count, kind, device, keep = family.buffer(array, is_root and out is None, "reduce: array", stream)
        code = _reduction(op, kind, "reduce")
        target, keeps, result = address, keep, array if is_root else None
        if not is_root:
            target = None
        elif out is not None:
            target, keep_out = _fitting(out, count, kind, device, "reduce: out", stream)
            keeps, result = (keep, keep_out), out
        return self._run(_lib.muster_reduce, (self._handle, address, target, count * kind.parts, kind.code, code, root), keeps,
                         result, timeout, async_op, device, stream)

    def gather(self, array: Any, root: int = 0, *, out: Any = None, timeout: Optional[float] = None, async_op: bool = False,
               stream: Optional[int] = None) -> Any:
        """Gathers all arrays on the root, by rank: a new array of shape (size, *array.shape), or `out`. Others get None."""
        root = _number(root, "gather: root")
        family = family_of(array, "gather: array")
        address, count, kind, device, keep = family.buffer(array, False, "gather: array", stream)
        target, keeps, result = None, keep, None
        if _lib.muster_group_rank(self._handle) == root:
            size = self.size
            result = family.new(array, _with_ranks(size, family.shape(array), count), "gather") if out is None else out
            target, keep_out = _fitting(result, size * count, kind, device, "gather: out", stream)
            keeps = keep, keep_out
        return self._run(_lib.muster_gather, (self._handle, address, target, count * kind.parts, kind.code, root), keeps, result,
                         timeout, async_op, device, stream)

    def gather_v(self, array: Any, counts: Optional[Sequence[int]] = None, root: int = 0, *, out: Any = None,
                 timeout: Optional[float] = None, async_op: bool = False, stream: Optional[int] = None) -> Any:
        """Gathers counts[r] elements of rank r; only the root needs `counts`. It gets a new array of shape (sum(counts),), or
        `out`."""
        root = _number(root, "gather_v: root")
        family = family_of(array, "gather_v: array")
        address, count, kind, device, keep = family.buffer(array, False, "gather_v: array", stream)
        target, keeps, result, given = None, keep, None, None
        if _lib.muster_group_rank(self._handle) == root:
            given = _counts(counts, self.size, kind, "gather_v")
            total = sum(given) // kind.parts
            result = family.new(array, (total,), "gather_v") if out is None else out
            target, keep_out = _fitting(result, total, kind, device, "gather_v: out", stream)
            keeps = keep, keep_out, given
        return self._run(_lib.muster_gather_v, (self._handle, address, count * kind.parts, target, given, kind.code, root), keeps,
                         result, timeout, async_op, device, stream)

    def scatter(self, array: Any = None, root: int = 0, *, out: Any = None, timeout: Optional[float] = None,
                async_op: bool = False, stream: Optional[int] = None) -> Any:
        """Copies block r of the root's array, of shape (size, *shape), to `out` of rank r. Other ranks pass no array. The root may
        omit `out`, and gets a new array."""
        root = _number(root, "scatter: root")
        source, keep, count = None, None, -1
        if _lib.muster_group_rank(self._handle) == root:
            size = self.size
            family = family_of(array, "scatter: array")
            source, total, kind, device, keep = family.buffer(array, False, "scatter: array", stream)
            if out is None:
                out = family.new(array, _rows(array, family, total, size, "scatter: array"), "scatter")
            count = total // size if total % size == 0 else -1
            target, keep_out = _fitting_block(out, total, size, kind, device, "scatter", stream)
        else:
            target, count, kind, device, keep_out = _required(out, "scatter", stream)
        return self._run(_lib.muster_scatter, (self._handle, source, target, count * kind.parts, kind.code, root), (keep, keep_out),
                         out, timeout, async_op, device, stream)

    def scatter_v(self, array: Any = None, counts: Optional[Sequence[int]] = None, root: int = 0, *, out: Any = None,
                  timeout: Optional[float] = None, async_op: bool = False, stream: Optional[int] = None) -> Any:
        """Scatters counts[r] elements to rank r; only the root needs `counts` and `array`, of sum(counts) elements. All others give
        `out`."""
        root = _number(root, "scatter_v: root")
        source, keep, given = None, None, None
        rank = _lib.muster_group_rank(self._handle)
        if rank == root:
            family = family_of(array, "scatter_v: array")
            source, total, kind, device, keep = family.buffer(array, False, "scatter_v: array", stream)
            given = _counts(counts, self.size, kind, "scatter_v")
            _require_sum(given, total, kind, "scatter_v: array")
            count = given[rank] // kind.parts
            out = family.new(array, (count,), "scatter_v") if out is None else out
            target, keep_out = _fitting(out, count, kind, device, "scatter_v: out", stream)
        else:
            target, count, kind, device, keep_out = _required(out, "scatter_v", stream)
        return self._run(_lib.muster_scatter_v, (self._handle, source, given, target, count * kind.parts, kind.code, root),
                         (keep, keep_out, given), out, timeout, async_op, device, stream)

    # ---- all to all

    def all_reduce(self, array: Any, op: str = "sum", *, out: Any = None, timeout: Optional[float] = None, async_op: bool = False,
                   stream: Optional[int] = None) -> Any:
        """Reduces all arrays element-wise into the array, or `out`; bitwise equal on all ranks."""
        family = family_of(array, "all_reduce: array")
        address, count, kind, device, keep = family.buffer(array, out is None, "all_reduce: array", stream)
        code = _reduction(op, kind, "all_reduce")
        target, result = address, array
        if out is not None:
            target, keep_out = _fitting(out, count, kind, device, "all_reduce: out", stream)
            keep, result = (keep, keep_out), out
        return self._run(_lib.muster_all_reduce, (self._handle, address, target, count * kind.parts, kind.code, code), keep, result,
                         timeout, async_op, device, stream)

    def all_gather(self, array: Any, *, out: Any = None, timeout: Optional[float] = None, async_op: bool = False,
                   stream: Optional[int] = None) -> Any:
        """Gathers all arrays on all ranks, by rank: a new array of shape (size, *array.shape), or `out`."""
        family, size = family_of(array, "all_gather: array"), self.size
        address, count, kind, device, keep = family.buffer(array, False, "all_gather: array", stream)
        result = family.new(array, _with_ranks(size, family.shape(array), count), "all_gather") if out is None else out
        target, keep_out = _fitting(result, size * count, kind, device, "all_gather: out", stream)
        return self._run(_lib.muster_all_gather, (self._handle, address, target, count * kind.parts, kind.code), (keep, keep_out),
                         result, timeout, async_op, device, stream)

    def all_gather_v(self, array: Any, counts: Sequence[int], *, out: Any = None, timeout: Optional[float] = None,
                     async_op: bool = False, stream: Optional[int] = None) -> Any:
        """Gathers counts[r] elements of rank r, with equal `counts` on all: a new array of shape (sum(counts),), or `out`."""
        family, size = family_of(array, "all_gather_v: array"), self.size
        address, count, kind, device, keep = family.buffer(array, False, "all_gather_v: array", stream)
        given = _counts(counts, size, kind, "all_gather_v")
        _require_own(given, self._handle, count, kind, "all_gather_v: array")
        total = sum(given) // kind.parts
        result = family.new(array, (total,), "all_gather_v") if out is None else out
        target, keep_out = _fitting(result, total, kind, device, "all_gather_v: out", stream)
        return self._run(_lib.muster_all_gather_v, (self._handle, address, target, given, kind.code), (keep, keep_out, given),
                         result, timeout, async_op, device, stream)

    def reduce_scatter(self, array: Any, op: str = "sum", *, out: Any = None, timeout: Optional[float] = None,
                       async_op: bool = False, stream: Optional[int] = None) -> Any:
        """Rank r gets block r of the reduction of all arrays, of shape (size, *shape): a new array of shape `shape`, or `out`."""
        family, size = family_of(array, "reduce_scatter: array"), self.size
        address, total, kind, device, keep = family.buffer(array, False, "reduce_scatter: array", stream)
        code = _reduction(op, kind, "reduce_scatter")
        if out is None:
            out = family.new(array, _rows(array, family, total, size, "reduce_scatter: array"), "reduce_scatter")
        target, keep_out = _fitting_block(out, total, size, kind, device, "reduce_scatter", stream)
        return self._run(_lib.muster_reduce_scatter, (self._handle, address, target, total // size * kind.parts, kind.code, code),
                         (keep, keep_out), out, timeout, async_op, device, stream)

    def reduce_scatter_v(self, array: Any, counts: Sequence[int], op: str = "sum", *, out: Any = None,
                         timeout: Optional[float] = None, async_op: bool = False, stream: Optional[int] = None) -> Any:
        """Scatters the reduction with counts[r] elements in block r, equal `counts` on all: a new array of shape (counts[rank],),
        or `out`."""
        family, size = family_of(array, "reduce_scatter_v: array"), self.size
        address, total, kind, device, keep = family.buffer(array, False, "reduce_scatter_v: array", stream)
        code, given = _reduction(op, kind, "reduce_scatter_v"), _counts(counts, size, kind, "reduce_scatter_v")
        _require_sum(given, total, kind, "reduce_scatter_v: array")
        count = given[self.rank] // kind.parts
        out = family.new(array, (count,), "reduce_scatter_v") if out is None else out
        target, keep_out = _fitting(out, count, kind, device, "reduce_scatter_v: out", stream)
        return self._run(_lib.muster_reduce_scatter_v, (self._handle, address, target, given, kind.code, code),
                         (keep, keep_out, given), out, timeout, async_op, device, stream)

    def all_to_all(self, array: Any, *, out: Any = None, timeout: Optional[float] = None, async_op: bool = False,
                   stream: Optional[int] = None) -> Any:
        """Block s of rank r's result is block r of rank s's array, of shape (size, *shape): a new array of that shape, or `out`,
        which may not be the array."""
        family, size = family_of(array, "all_to_all: array"), self.size
        address, total, kind, device, keep = family.buffer(array, False, "all_to_all: array", stream)
        if out is None:
            out = family.new(array, (size, *_rows(array, family, total, size, "all_to_all: array")), "all_to_all")
        _require_blocks(total, size, "all_to_all: array")
        target, keep_out = _fitting(out, total, kind, device, "all_to_all: out", stream)
        return self._run(_lib.muster_all_to_all, (self._handle, address, target, total // size * kind.parts, kind.code),
                         (keep, keep_out), out, timeout, async_op, device, stream)

    def all_to_all_v(self, array: Any, send_counts: Sequence[int], recv_counts: Sequence[int], *, out: Any = None,
                     timeout: Optional[float] = None, async_op: bool = False, stream: Optional[int] = None) -> Any:
        """Sends send_counts[r] elements to rank r and receives recv_counts[r] from it, which must equal what rank r sends: a new
        array of shape (sum(recv_counts),), or `out`."""
        family, size = family_of(array, "all_to_all_v: array"), self.size
        address, total, kind, device, keep = family.buffer(array, False, "all_to_all_v: array", stream)
        sent = _counts(send_counts, size, kind, "all_to_all_v", "send_counts")
        received = _counts(recv_counts, size, kind, "all_to_all_v", "recv_counts")
        _require_sum(sent, total, kind, "all_to_all_v: array", "send_counts")
        count = sum(received) // kind.parts
        out = family.new(array, (count,), "all_to_all_v") if out is None else out
        target, keep_out = _fitting(out, count, kind, device, "all_to_all_v: out", stream)
        return self._run(_lib.muster_all_to_all_v, (self._handle, address, sent, target, received, kind.code),
                         (keep, keep_out, sent, received), out, timeout, async_op, device, stream)

    # ---- barriers

    def barrier(self, *, timeout: Optional[float] = None, async_op: bool = False) -> Any:
        """Returns None when every member has called it."""
        return self._run(_lib.muster_barrier, (self._handle,), None, None, timeout, async_op)

    def monitored_barrier(self, *, wait_all_ranks: bool = True, timeout: Optional[float] = None) -> None:
        """Like barrier(), but slower, and finds out which members are missing: OperationTimeout names all of them, or the first
        (wait_all_ranks=False). The group then stays usable."""
        options = _options(timeout)
        _blocking(lambda: check(_lib.muster_monitored_barrier(self._handle, wait_all_ranks, options)), self)

    # ---- from one rank to another

    def send(self, array: Any, dest: int, tag: int = 0, *, timeout: Optional[float] = None, async_op: bool = False,
             stream: Optional[int] = None) -> Any:
        """Sends to a recv() of the same number and type of elements, and the same tag. May return before that, or wait for it: to
        exchange, use batch(). Returns None."""
        address, count, kind, device, keep = family_of(array, "send: array").buffer(array, False, "send: array", stream)
        return self._run(_lib.muster_send, (self._handle, address, count * kind.parts, kind.code, _number(dest, "send: dest"),
                                            _number(tag, "send: tag")), keep, None, timeout, async_op, device, stream)

    def recv(self, array: Any, source: Optional[int] = None, tag: int = 0, *, timeout: Optional[float] = None,
             async_op: bool = False, stream: Optional[int] = None) -> Any:
        """Fills the array; without a source from the first message with that tag. Returns the sender's rank, or with async_op=True
        a Work that has it as `source`."""
        address, count, kind, device, keep = family_of(array, "recv: array").buffer(array, True, "recv: array", stream)
        sender = ctypes.c_int(-1)
        arguments = self._handle, address, count * kind.parts, kind.code, _source(source), _number(tag, "recv: tag"), ctypes.byref(sender)
        if async_op or device != HOST or _is_interruptible and _is_main():
            work: Work = self._run(_lib.muster_recv, arguments, (keep, sender), array, timeout, True, device, stream)
            if async_op:
                return work
            work.wait()
            return work.source
        self._run(_lib.muster_recv, arguments, keep, None, timeout, False, device, stream)
        return sender.value

    def batch(self, operations: Sequence[Union[Send, Recv]], *, timeout: Optional[float] = None, async_op: bool = False,
              stream: Optional[int] = None) -> Optional[List[Work]]:
        """Performs all at the same time, so that no order of sends and receives can deadlock. With async_op=True returns a Work for
        each, in their order."""
        of_c, works, devices = (_library.P2P * len(operations))(), [], set()
        for each, operation in zip(of_c, operations):
            is_send = isinstance(operation, Send)
            if not isinstance(operation, (Send, Recv)):
                raise TypeError(f"batch: its operations are Send(array, dest, tag) and Recv(array, source, tag), not "
                                f"{short(operation)}")
            family = family_of(operation.array, "batch: array")
            address, count, kind, device, keep = family.buffer(operation.array, not is_send, "batch: array", stream)
            devices.add(device)
            works.append(Work(keep, operation.array, device != HOST))
            each.is_send, each.data, each.count, each.dtype = is_send, address, count * kind.parts, kind.code
            each.peer, each.tag = _number(operation[1], "batch: a rank"), _number(operation[2], "batch: a tag")
        if len(devices) > 1:
            raise InvalidArgumentError("batch: its arrays are on different devices", "batch")
        options = _options(timeout, devices.pop(), stream) if devices else _options(timeout)
        self._follow()
        _work.begin_several(_lib.muster_batch, (self._handle, of_c, len(works)), options, works)
        if async_op:
            return works
        for work in works:
            work.wait()
        return None

    # ---- bytes and objects of any length, which may differ between ranks

    def broadcast_bytes(self, data: Any = None, root: int = 0, *, timeout: Optional[float] = None) -> bytes:
        """Returns the root's `data` (bytes or the like) on all ranks. Others pass nothing."""
        root = _number(root, "broadcast_bytes: root")
        is_root = _lib.muster_group_rank(self._handle) == root
        given, options = _bytes(data, "broadcast_bytes") if is_root else b"", _options(timeout)

        def call() -> bytes:
            out, length = ctypes.c_void_p(), ctypes.c_size_t()
            check(_lib.muster_broadcast_bytes(self._handle, given, len(given), root, ctypes.byref(out), ctypes.byref(length),
                                              options))
            return _taken(out, [length.value])[0]

        return _blocking(call, self)

    def all_gather_bytes(self, data: Any, *, timeout: Optional[float] = None) -> List[bytes]:
        """Returns the `data` of all ranks, by rank."""
        given, lengths, options = _bytes(data, "all_gather_bytes"), (ctypes.c_size_t * self.size)(), _options(timeout)

        def call() -> List[bytes]:
            out = ctypes.c_void_p()
            check(_lib.muster_all_gather_bytes(self._handle, given, len(given), ctypes.byref(out), lengths, options))
            return _taken(out, list(lengths))

        return _blocking(call, self)

    def broadcast_object(self, value: Any = None, root: int = 0, *, timeout: Optional[float] = None) -> Any:
        """Returns the root's `value`, pickled, on all ranks. As always with pickle, the ranks must trust each other. A value that
        cannot be pickled raises on the root alone, and the others wait until their timeout, or the root's end."""
        is_root = _lib.muster_group_rank(self._handle) == root
        data = pickle.dumps(value, PICKLE_PROTOCOL) if is_root else None
        received = self.broadcast_bytes(data, root, timeout=timeout)
        return value if is_root else pickle.loads(received)

    def all_gather_object(self, value: Any, *, timeout: Optional[float] = None) -> List[Any]:
        """Returns the values of all ranks, pickled, by rank. One that cannot be pickled raises on its rank alone; see
        broadcast_object()."""
        return [pickle.loads(data) for data in self.all_gather_bytes(pickle.dumps(value, PICKLE_PROTOCOL), timeout=timeout)]

    # ---- memory that all members on this node share

    def allocate_shared(self, shape: Union[int, Sequence[int]], dtype: Any = None, *, timeout: Optional[float] = None) -> Any:
        """Returns a zeroed numpy array of that shape and dtype; without a dtype a memoryview of `shape` bytes. Collective: each
        member asks for the same size and gets its own memory, which the others on its node can access; operations on it need no
        copies. It lives while an array, a view or an operation uses it."""
        if dtype is None:
            item_size, numpy = 1, None
        else:
            numpy = numpy_for("allocate_shared: an array with a dtype")
            item_size = numpy.dtype(dtype).itemsize
        lengths = tuple(map(operator.index, shape)) if isinstance(shape, Iterable) else (operator.index(shape),)
        size = math.prod((item_size, *lengths))
        if min(lengths, default=0) < 0 or size > BYTES_MAX:
            raise InvalidArgumentError(f"allocate_shared: there is no shape {short(lengths)}", "allocate_shared")
        options = _options(timeout)
        memory = _blocking(lambda: _SharedMemory(_handle_from(_lib.muster_allocate_shared, self._handle, size, options)), self)
        view = memory.view(size)
        return view if numpy is None else numpy.frombuffer(view, dtype).reshape(lengths)


class _ClosedGroup(Group):
    @property
    def _handle(self) -> Optional[int]:  # type: ignore[override]
        raise InvalidArgumentError("the group has been closed: close() gave its handle back")

    def __repr__(self) -> str:
        return "<muster.distributed.Group, closed>"

    def close(self) -> None:
        """No-op."""


class _SharedMemory:
    def __init__(self, handle: int) -> None:
        self.handle = handle
        self.free = _lib.muster_shared_memory_free

    def view(self, size: int) -> memoryview:
        if size == 0:
            return memoryview(bytearray())
        memory: Any = (ctypes.c_ubyte * size).from_address(_lib.muster_shared_memory_data(self.handle))
        memory.owner = self  # Views of it keep this alive.
        return memoryview(memory).cast("B")

    def __del__(self) -> None:
        self.free(self.handle)


def _with_ranks(size: int, shape: Optional[Tuple[int, ...]], count: int) -> Tuple[int, ...]:
    return (size, count) if shape is None else (size, *shape)


def _fitting_block(out: Any, total: int, size: int, kind: Kind, device: int, operation: str,
                   stream: Optional[int]) -> Tuple[Optional[int], Any]:
    _require_blocks(total, size, f"{operation}: array")
    return _fitting(out, total // size, kind, device, f"{operation}: out", stream)


def _require_blocks(total: int, size: int, who: str) -> None:
    if total % size:
        raise unfit(who, f"has {total} elements, which are no blocks for {size} ranks")


def _require_sum(counts: Any, total: int, kind: Kind, who: str, name: str = "counts") -> None:
    expected = sum(counts) // kind.parts
    if total != expected:
        raise unfit(who, f"has {total} elements, and {name} add up to {expected}")


def _require_own(counts: Any, handle: Any, count: int, kind: Kind, who: str) -> None:
    rank = _lib.muster_group_rank(handle)
    if rank >= 0 and count * kind.parts != counts[rank]:
        raise unfit(who, f"has {count} elements, and counts[{rank}] is {counts[rank] // kind.parts}")


def _required(out: Any, operation: str, stream: Optional[int]) -> Buffer:
    if out is None:
        raise InvalidArgumentError(f"{operation}: ranks that are not the root give out=, the array that gets their block", operation)
    return family_of(out, f"{operation}: out").buffer(out, True, f"{operation}: out", stream)


def _source(source: Optional[int]) -> int:
    if source is None:
        return -1
    number = _number(source, "recv: source")
    if number < 0:
        raise InvalidArgumentError(f"recv: there is no rank {number}; None receives from any", "recv")
    return number


def _bytes(data: Any, operation: str) -> bytes:
    try:
        return data if isinstance(data, bytes) else bytes(memoryview(data))
    except TypeError:
        raise TypeError(f"{operation}: data is bytes, or has the buffer protocol, and is no {type(data).__name__}") from None


def _taken(out: ctypes.c_void_p, lengths: Sequence[int]) -> List[bytes]:
    """Returns, and frees, strings that the library has allocated."""
    address, parts = out.value or 0, []
    try:
        for length in lengths:
            parts.append(_bytes_at(address, length))
            address += length
    finally:
        _lib.muster_free(out)
    return parts


# ---- joining and leaving the job


class _Joined:
    """The result of init(): `with` leaves the job at the end of its block, unless that raises."""

    def __enter__(self) -> Group:
        return world

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException],
                 trace: Optional[TracebackType]) -> None:
        if kind is None:
            destroy()


def init(init_method: Optional[str] = None, *, timeout: Optional[float] = None, backend: str = "automatic",
         rank: Optional[int] = None, world_size: Optional[int] = None, local_rank: Optional[int] = None,
         device: Optional[int] = None, on_sigterm: str = "end_calls", interruptible: Optional[bool] = None) -> _Joined:
    """Joins the job; blocks until all ranks have. As a context manager it gives `world`.

    init_method    "env://" (None): RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, else Open MPI's or Slurm's variables, else a
                   world of one; "tcp://host:port" or "file:///path" with `rank` and `world_size`
    timeout        seconds, for joining and as the default for each operation; None: 30 minutes
    backend        "automatic", "cpu", "nccl" or "gloo"
    rank, world_size, local_rank, device  override RANK, WORLD_SIZE, LOCAL_RANK, and the GPU, by default LOCAL_RANK's
    on_sigterm     "end_calls": SIGTERM ends blocked calls with StoppedError, and a second later the process; "agree": it makes
                   should_stop() true; "ignore". A handler that the program has installed is left alone.
    interruptible  True: Ctrl-C leaves calls of the main thread without abort(); None: at a prompt, in a notebook and in the
                   foreground of a terminal. It costs some 15 µs a call.

    Raises OperationTimeout with the missing ranks, JobEnvironmentError, RendezvousError, InvalidArgumentError (also if
    already joined), and others that error.h explains.
    """
    global _is_interruptible
    options = _library.InitOptions(
        init_method=text_for_c(init_method, "init: init_method"), timeout_ms=milliseconds(timeout),
        backend=_choice(backend, _library.BACKENDS, "init: backend"), rank=_or_unset(rank, "rank"),
        world_size=_or_unset(world_size, "world_size"), local_rank=_or_unset(local_rank, "local_rank"),
        device=_or_unset(device, "device"), on_sigterm=_choice(on_sigterm, _library.STOP_POLICIES, "init: on_sigterm"))
    _is_interruptible = _work.is_attended() if interruptible is None else interruptible
    _blocking(lambda: check(_lib.muster_init(ctypes.byref(options))), undo=lambda _: _lib.muster_destroy())
    _leave_at_exit()
    if not _is_interruptible:
        _work.watch_interrupts()
    return _Joined()


def _or_unset(value: Optional[int], name: str) -> int:
    number = -1 if value is None else _number(value, f"init: {name}")
    if value is not None and number < 0:
        raise InvalidArgumentError(f"init: {name} is a number from 0 on, not {number}", "init")
    return number


_is_registered = False
_uncaught = _library.Uncaught()  # Counts since the last init().


def _leave_at_exit() -> None:
    global _is_registered, _uncaught
    _uncaught = _library.Uncaught()
    if not _is_registered:
        _is_registered = True
        atexit.register(_at_exit)


def _at_exit() -> None:
    try:
        if not _uncaught.is_there() and not _work.is_any_in_flight():
            _lib.muster_destroy()
    finally:
        _work.end_of_interpreter()


def destroy() -> None:
    """Leaves the job in order: waits for this rank's operations in flight, as long as their other ends do their part, and announces
    to the other ranks that it left on purpose. No-op outside of a job. Its groups can no longer be used."""
    _blocking(_lib.muster_destroy)
    _work.sweep(len(_work._without_work))


def is_initialized() -> bool:
    return bool(_lib.muster_is_initialized())


# The following raise NotInitializedError outside of a job.


def rank() -> int:
    """RANK: this rank in the job."""
    return check_number(_lib.muster_rank())


def world_size() -> int:
    return check_number(_lib.muster_world_size())


def local_rank() -> int:
    """This rank on this node."""
    return check_number(_lib.muster_local_rank())


def local_world_size() -> int:
    """The number of ranks on this node."""
    return check_number(_lib.muster_local_world_size())


def node_rank() -> int:
    """The number of this node."""
    return check_number(_lib.muster_node_rank())


def restart_count() -> int:
    """Number of restarts so far."""
    return check_number(_lib.muster_restart_count())


def cuda_device() -> Optional[int]:
    """This rank's GPU, or None."""
    rank()  # Raises outside of a job: -1 below could be that failure.
    device: int = _lib.muster_cuda_device()
    return None if device < 0 else device


def is_nccl_available() -> bool:
    """True if the library can open NCCL and a GPU here. Needs no job."""
    return bool(_lib.muster_is_nccl_available())


def is_gloo_available() -> bool:
    return bool(_lib.muster_is_gloo_available())


def new_group(ranks: Iterable[int], *, name: Optional[str] = None, timeout: Optional[float] = None,
              backend: Optional[str] = None) -> Group:
    """Makes a group of these ranks of the job, in this order. All members call it with the same list, and it blocks until they
    have; other ranks need not, and get one whose is_member is False. `name` is used in messages; `timeout` and `backend` default to
    the world's."""
    if not isinstance(ranks, Iterable) or isinstance(ranks, (AbstractSet, str)):
        raise TypeError(f"new_group: ranks is a list of ranks, in the order that they get in the group, not {short(ranks)}")
    numbers = [_number(rank, "new_group: each of ranks") for rank in ranks]
    members = (ctypes.c_int * len(numbers))(*numbers)
    options = _group_options(name, timeout, backend)
    return _blocking(lambda: Group(_handle_from(_lib.muster_new_group, members, len(members), ctypes.byref(options))))


# ---- the end of the job, and what a rank does meanwhile


def should_stop(*, timeout: Optional[float] = None) -> bool:
    """True if the job was asked to end, by SIGTERM or request_stop() on any rank: collective over the world, with the same answer
    on all. Needs init(on_sigterm="agree"). Takes microseconds: call it at every step."""
    options = _options(timeout)

    def call() -> bool:
        stop = ctypes.c_int()
        check(_lib.muster_should_stop(ctypes.byref(stop), options))
        return bool(stop.value)

    return _blocking(call, world)


def request_stop() -> None:
    """Acts as if this process had received SIGTERM. Never blocks."""
    check(_lib.muster_request_stop())


class section:
    """`with section("evaluation"):` marks what this rank does while others wait for it: the launcher reports it, and allows more
    time before it assumes a hang. May be nested. Never blocks."""

    def __init__(self, name: str) -> None:
        if name is None:
            raise TypeError("section: name is a string, not None")
        self.name = text_for_c(name, "section: name")

    def __enter__(self) -> None:
        check(_lib.muster_section_enter(self.name))

    def __exit__(self, *_: object) -> None:
        _lib.muster_section_leave()


# ---- the group of all ranks. These raise NotInitializedError outside of a job.

world = Group(None)
split = world.split
shrink = world.shrink
agree = world.agree
abort = world.abort
failure = world.failure
broadcast = world.broadcast
reduce = world.reduce
gather = world.gather
gather_v = world.gather_v
scatter = world.scatter
scatter_v = world.scatter_v
all_reduce = world.all_reduce
all_gather = world.all_gather
all_gather_v = world.all_gather_v
reduce_scatter = world.reduce_scatter
reduce_scatter_v = world.reduce_scatter_v
all_to_all = world.all_to_all
all_to_all_v = world.all_to_all_v
barrier = world.barrier
monitored_barrier = world.monitored_barrier
send = world.send
recv = world.recv
batch = world.batch
broadcast_bytes = world.broadcast_bytes
all_gather_bytes = world.all_gather_bytes
broadcast_object = world.broadcast_object
all_gather_object = world.all_gather_object
allocate_shared = world.allocate_shared
