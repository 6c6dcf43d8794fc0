"""A group of the worker library for a group of PyTorch: meeting through PyTorch's store, failures, and leaving."""
from __future__ import annotations

import atexit
import ctypes
import datetime
import os
import sys
import threading
import weakref
from typing import Any, Callable, Dict, List, NoReturn, Optional, Sequence, Tuple, Type

import torch.distributed as dist  # type: ignore[import-not-found]
from muster import _library as lib

DistBackendError: Any = getattr(dist, "DistBackendError", RuntimeError)


def _also_of_torch(cls: Type[lib.DistributedError]) -> Type[lib.DistributedError]:
    """Returns the same failure as a subclass of PyTorch's exception, for programs that catch that."""
    return type(cls.__name__, (cls, DistBackendError), {"__doc__": cls.__doc__, "__module__": __name__})


_KINDS: List[Type[lib.DistributedError]] = [lib.DistributedError, *lib.ERRORS.values()]
ERRORS: Dict[Type[lib.DistributedError], Type[lib.DistributedError]] = {cls: _also_of_torch(cls) for cls in _KINDS}
globals().update({cls.__name__: cls for cls in ERRORS.values()})  # pickle looks classes up by name.


MILLISECOND = datetime.timedelta(milliseconds=1)


def milliseconds(timeout: datetime.timedelta) -> int:
    """Rounds up: anything above 0 is at least 1 ms."""
    return min(max(0, -(-timeout // MILLISECOND)), lib.LONGEST_MS)


def store_server(store: Any) -> Tuple[Optional[str], int]:
    """Returns the address of the store's server, if it is a TCPStore."""
    while hasattr(store, "underlying_store"):
        store = store.underlying_store
    if isinstance(store, dist.TCPStore):
        return store.host, store.port
    return None, 0


class StoreCalls:
    """A PyTorch store as a muster_store: the callbacks run on the joining thread, before the join returns."""

    def __init__(self, store: Any, prefix: str) -> None:
        self.store, self.prefix = store, prefix
        self.text = ctypes.create_string_buffer(b"")
        self.raised: Optional[BaseException] = None  # Ctrl-C, say: raised again once the library has returned.
        self.calls = lib.Store(set=lib.Store.SET(self.set), get=lib.Store.GET(self.get), error=lib.Store.ERROR(self.error))

    def failed(self, error: BaseException) -> int:
        if not isinstance(error, Exception):
            self.raised = error
        self.text = ctypes.create_string_buffer((str(error).partition("\n")[0] or type(error).__name__).encode())
        return 2

    def set(self, _: Any, key: bytes, value: int, length: int) -> int:
        try:
            self.store.set(self.prefix + key.decode(), ctypes.string_at(value, length))
            return 0
        except BaseException as error:
            return self.failed(error)

    def get(self, _: Any, key: bytes, timeout_ms: int, value: int, capacity: int, length: Any) -> int:
        name = self.prefix + key.decode()
        try:
            self.store.wait([name], datetime.timedelta(milliseconds=max(1, timeout_ms)))
            found = bytes(self.store.get(name))
        except BaseException as error:
            status = self.failed(error)
            is_late = isinstance(error, Exception) and ("imeout" in str(error) or "imed out" in str(error))
            return 1 if is_late else status
        length[0] = len(found)
        ctypes.memmove(value, found, min(capacity, len(found)))
        return 0

    def error(self, _: Any) -> int:
        return ctypes.addressof(self.text)


class Group:
    """One group's handle, which lives as long as this object. Any thread may call anything.

    handle       for calls of the library; None once the group is closed
    ranks        the members' global ranks, by group rank
    """

    is_over = False  # True once this process must not use its groups. A class attribute, since it is read when modules are gone.

    def __init__(self, store: Any, rank: int, size: int, name: str, timeout: datetime.timedelta,
                 ranks: Sequence[int]) -> None:
        self.library = lib.load()
        self.name, self.rank, self.size, self.ranks = name, rank, size, tuple(ranks)
        self.why_closed = ""
        self.closing = threading.Lock()
        self.owned: Optional[int] = None
        self.handle: Optional[int] = None
        self.handle = self.owned = _join(self.library, store, self, timeout)
        LIVE.add(self)

    def failure(self) -> lib.DistributedError:
        """Returns the failure of this thread's last call."""
        error = lib.last_error()
        text = str(error).replace(lib.EXCHANGES, "isend() or batch_isend_irecv()")
        if text.endswith("give a longer timeout"):
            text += " to init_process_group() or new_group()"
        return ERRORS.get(type(error), ERRORS[lib.DistributedError])(text, error.operation, error.group, error.failed_ranks)

    def refuse_closed(self) -> NoReturn:
        why = self.why_closed or "was destroyed: make another by init_process_group() or new_group()"
        raise ERRORS[lib.NotInitializedError](f"group {self.name} {why}", group=self.name)

    def abort(self, reason: str) -> None:
        if self.handle is not None:
            self.library.muster_group_abort(self.handle, reason.encode())

    def leave(self) -> None:
        """Leaves in order, which the other ranks learn. Calls of other threads end with an error."""
        with self.closing:
            handle, self.handle = self.handle, None
            LIVE.discard(self)
        if handle is not None and not self.is_over:
            self.library.muster_group_leave(handle)

    def __del__(self) -> None:
        if not self.is_over and self.owned is not None:
            self.leave()
            self.library.muster_group_free(self.owned)


AT_THE_END: List[Callable[[], None]] = []  # Called after the groups were left.
LIVE: "weakref.WeakSet[Group]" = weakref.WeakSet()


def _join(library: Any, store: Any, group: Group, timeout: datetime.timedelta) -> int:
    if Leaving.is_done:
        raise ERRORS[lib.NotInitializedError](f"group {group.name} cannot be made: {ENDING}", group=group.name)
    Leaving.prepare()
    calls = StoreCalls(store, f"{generation(store, group)}/")
    host, port = store_server(store)
    # end_calls: a launcher stops the ranks as soon as one has died, and the others should first report that.
    options = lib.JoinOptions(name=group.name.encode(), timeout_ms=milliseconds(timeout), backend=lib.BACKEND_CPU,
                              on_sigterm=lib.STOP_END_CALLS, known_as=(ctypes.c_int * group.size)(*group.ranks),
                              server_host=host.encode() if host else None, server_port=port)
    handle = ctypes.c_void_p()
    status = library.muster_group_join(ctypes.byref(calls.calls), group.rank, group.size, ctypes.byref(options),
                                       ctypes.byref(handle))
    if calls.raised is not None:
        if not status:
            library.muster_group_leave(handle)
            library.muster_group_free(handle)
        raise calls.raised
    if status:
        raise group.failure()
    assert handle.value is not None
    Group.is_over = False  # Was True in a forked child, which gets here if its parent never had a group.
    return handle.value


def generation(store: Any, group: Group) -> int:
    """Counts this rank's earlier joins at this store, which outlives the groups that met there. The count is kept in the store, for
    a process that replaces another one."""
    try:
        return int(store.add(f"muster/{group.rank}/joins", 1)) - 1
    except Exception as error:
        text = str(error).partition("\n")[0] or type(error).__name__
        raise ERRORS[lib.RendezvousError](f"joining group {group.name}: the store of PyTorch failed: {text}; see whether rank 0, or "
                                          "whoever serves it, still runs", "group_join", group.name) from None


ENDING = "this process is ending; what needs its groups is to run before, in an atexit handler registered after they were made"


class Leaving:
    """Leaves the groups at the end of a process that did not destroy them. After an uncaught exception it does not, so that the
    other ranks see a death."""

    is_prepared = is_done = False
    uncaught = lib.Uncaught()  # Counts since the first group.

    @classmethod
    def prepare(cls) -> None:
        if cls.is_prepared:
            return
        cls.is_prepared, cls.uncaught = True, lib.Uncaught()
        # Children of multiprocessing end without atexit, or with the exception already handled.
        process = sys.modules.get("multiprocessing.process")
        if process is not None and process.parent_process() is not None:
            from multiprocessing.util import Finalize  # Already loaded there.

            Finalize(None, leave_all, exitpriority=-100)

    @classmethod
    def is_death(cls) -> bool:
        if cls.uncaught.is_there():
            return True
        raised = sys.exc_info()[1]  # multiprocessing calls us in a `finally`.
        return raised is not None and not (isinstance(raised, SystemExit) and raised.code in (None, 0))


def leave_all() -> None:
    if Leaving.is_done or Group.is_over:
        return
    Leaving.is_done = True
    if not Leaving.is_death():
        for group in list(LIVE):
            group.why_closed = f"was left: {ENDING}"
            group.leave()
    for then in AT_THE_END:
        then()
    Group.is_over = True


def forget_all() -> None:
    """Forgets the groups in a forked child: they are its parent's."""
    Group.is_over, Leaving.is_prepared = True, False
    for group in list(LIVE):
        group.closing = threading.Lock()
        group.handle = None
        group.why_closed = "belongs to the parent of this process, which was forked: start processes that are to have groups by spawn"
    LIVE.clear()


atexit.register(leave_all)
os.register_at_fork(after_in_child=forget_all)
