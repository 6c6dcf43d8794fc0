"""The two forms in which PyTorch accepts a backend written in Python."""
from __future__ import annotations

import datetime
import sys
from typing import Any, List, Sequence, Set

import torch  # type: ignore[import-not-found]
import torch.distributed as dist  # type: ignore[import-not-found]
from muster._torch import NAME, OLDEST_LAZY, version_of
from muster._torch._group import Group
from muster._torch._operations import NUMBERS, PREMUL_SUM, Operations, is_profiled
from muster._torch._work import answer_questions
from torch._C._distributed_c10d import _create_work_from_future as create_work_from_future  # type: ignore[import-not-found]

HAS_BACKENDS = version_of(torch) >= OLDEST_LAZY  # Earlier, no Python class could derive from Backend.

STRIDED = torch.strided
# Keeps the Python halves alive: PyTorch's wrapper for TORCH_DISTRIBUTED_DEBUG=DETAIL keeps only a backend's C++ half.
KEPT: Set[Any] = set()


def create(options: Any, backend_options: Any = None) -> Any:
    """Makes the backend of a new group; torch.distributed calls it on the members, with its _DistributedBackendOptions."""
    ranks = list(options.global_ranks_in_group)
    name = "world" if not ranks else name_of(options.group_id, ranks)
    timeout = options.timeout
    group = Group(options.store, options.group_rank, options.group_size, name, timeout,
                  ranks or range(options.group_size))
    kind = MusterBackend if HAS_BACKENDS else MusterGroup
    return kind(options.store, group, timeout)


def name_of(group_id: str, ranks: Sequence[int]) -> str:
    """Returns a name for messages, "3 of ranks 0-3,7", at most 64 characters. Many of PyTorch's own names are hashes."""
    runs: List[List[int]] = []
    for rank in ranks:
        if runs and runs[-1][1] == rank - 1:
            runs[-1][1] = rank
        else:
            runs.append([rank, rank])
    listed = ",".join(str(first) if first == last else f"{first}-{last}" for first, last in runs)
    return f"{group_id if len(group_id) <= 16 else group_id[:8]} of ranks {listed}"[:64]


def safe(name: str) -> Any:
    """Makes an operation of MusterGroup. When C++ calls it (functional collectives), older PyTorch drops a Work's Python half,
    without which wait() never returns: so C++ gets a C++ Work."""
    original = getattr(Operations, name)

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        work = original(self, *args, **kwargs)
        if work is None or sys._getframe(1).f_code.co_filename.endswith(CALLERS):
            return work
        return create_work_from_future(work.get_future())

    method.__name__, method.__doc__ = name, original.__doc__
    return method


# Callers that keep the Python half: torch's functions, our own, and the launcher's recorder between them.
CALLERS = ("distributed_c10d.py", Operations.allreduce.__code__.co_filename, "_muster_recorder.py")
RETURN_WORKS = ("allreduce", "allreduce_coalesced", "reduce", "reduce_scatter", "_reduce_scatter_base",
                "reduce_scatter_tensor_coalesced", "broadcast", "allgather", "_allgather_base", "allgather_coalesced",
                "allgather_into_tensor_coalesced", "gather", "scatter", "alltoall_base", "alltoall", "barrier")


class MusterGroup(Operations, dist.ProcessGroup):  # type: ignore[misc]
    """Before PyTorch 2.14: a whole process group. It has no backends for devices, so it cannot serve pairs such as
    "cpu:muster,cuda:nccl"."""

    def __init__(self, store: Any, group: Group, timeout: datetime.timedelta) -> None:
        dist.ProcessGroup.__init__(self, group.rank, group.size)
        self.open(group)
        self.store, self.own_name, self.own_description = store, group.name, "undefined"

    def getBackendName(self) -> str:
        return NAME

    def getRank(self) -> int:
        return self.group.rank

    def getSize(self) -> int:
        return self.group.size

    def name(self) -> str:
        return NAME

    def get_group_store(self) -> Any:
        return self.store

    # PyTorch asks a group's backends for the following; this group has none.

    def _set_group_name(self, name: str) -> None:
        self.own_name = name

    def _set_group_desc(self, description: str) -> None:
        self.own_description = description

    setGroupName, setGroupDesc = _set_group_name, _set_group_desc

    def getGroupName(self) -> str:
        return self.own_name

    def getGroupDesc(self) -> str:
        return self.own_description

    group_name, group_desc = property(getGroupName), property(getGroupDesc)

    @property
    def _device_types(self) -> List[Any]:
        return [torch.device("cpu")]

    def _get_backend(self, device: Any) -> Any:
        if torch.device(device).type != "cpu":
            raise RuntimeError(f"group {self.group.name} has no backend for {device}: with muster beside another backend use PyTorch "
                               f"2.14 or later, and this is {torch.__version__}")
        return self


for name in RETURN_WORKS:
    setattr(MusterGroup, name, safe(name))

if HAS_BACKENDS:
    from torch._C._distributed_c10d import Backend, ErrorType

    answer_questions()

    class MusterBackend(Operations, Backend):  # type: ignore[misc]
        """From PyTorch 2.14 on: a process group's backend for CPU tensors, beside those for other devices."""

        returns_none = True
        supports_splitting = True
        supports_coalescing = False  # No single Work for several messages, which must be waited for together.

        def __init__(self, store: Any, group: Group, timeout: datetime.timedelta) -> None:
            Backend.__init__(self, group.rank, group.size)
            self.open(group)
            self.made_with = Backend.Options(NAME, timeout)
            self.made_with.group_name = group.name
            self.made_with.global_ranks_in_group = list(group.ranks)
            KEPT.add(self)

        # Fast paths for the two operations whose latency matters most, without what most calls do not need.

        def allreduce(self, tensors: Sequence[Any], opts: Any = None, given: Any = None) -> Any:
            if len(tensors) == 1 and opts is not None and not opts.asyncOp and given is None:
                tensor = tensors[0]
                number = NUMBERS.get(tensor.dtype)
                op = hash(opts.reduceOp)
                handle = self.group.handle
                if (number is not None and op != PREMUL_SUM and tensor.layout is STRIDED and tensor.is_cpu and tensor.is_contiguous()
                        and handle is not None and not self.coalesced and opts.timeout.days < 0 and not is_profiled()
                        and not tensor.is_neg()):
                    if self.in_flight:
                        self.sweep()
                    self.sequence += 1
                    address = tensor.data_ptr()
                    if self.muster_all_reduce(handle, address, address, tensor.numel(), number, op, self.options_of_calls, None):
                        return self.failed(tensors)
                    return None
            return Operations.allreduce(self, tensors, opts, given)

        def barrier(self, opts: Any = None) -> Any:
            handle = self.group.handle
            if (opts is None or opts.asyncOp or handle is None or self.coalesced or opts.timeout.days >= 0
                    or is_profiled()):
                return Operations.barrier(self, opts)
            if self.in_flight:
                self.sweep()
            self.sequence += 1
            return self.failed([]) if self.muster_barrier(handle, self.options_of_calls, None) else None

        def getBackendName(self) -> str:
            return NAME

        def name(self) -> str:
            return NAME

        @property
        def options(self) -> Any:
            return self.made_with

        def set_timeout(self, timeout: datetime.timedelta) -> None:
            super().set_timeout(timeout)
            self.made_with._timeout = timeout

        def abort(self) -> None:
            super().abort()
            KEPT.discard(self)

        def shutdown(self) -> None:
            super().shutdown()
            KEPT.discard(self)

        def get_error(self) -> Any:
            handle = self.group.handle
            if handle is None or not self.library.muster_group_failure(handle):
                return ErrorType.SUCCESS
            return ErrorType.TIMEOUT if self.group.failure().code == "timeout" else ErrorType.REMOTE_ERROR

        def split(self, store: Any, ranks: Sequence[int], opts: Any) -> Any:
            """Makes a group of the members with these ranks, in this order. Each of them calls it."""
            members = [self.group.ranks[rank] for rank in ranks]
            timeout = opts._timeout if opts is not None else self.made_with._timeout
            group_id = opts.group_name if opts is not None and opts.group_name else f"split of {self.group.name}"
            group = Group(store, list(ranks).index(self.group.rank), len(members), name_of(group_id, members), timeout,
                          members)
            return MusterBackend(store, group, timeout)

        def merge(self, store: Any, opts: Any, rank: int, size: int) -> Any:
            group = Group(store, rank, size, name_of(opts.group_name or "merged", range(size)), opts._timeout, range(size))
            return MusterBackend(store, group, opts._timeout)

        def perform_nocolor_split(self, device: Any) -> None:
            """No-op: NCCL needs it on ranks that are in no new group."""
