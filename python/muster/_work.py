"""Operations in flight: their handles, the memory that belongs to them, and waits that Ctrl-C can interrupt.

An operation writes into its arrays whenever the other ranks get there, even if its Work and the arrays were dropped. So
`_in_flight` holds each one from before it is begun until it is seen to be complete; those without a Work are polled when the next
begins. What is still in flight when the interpreter ends is never freed.
"""
from __future__ import annotations

import collections
import ctypes
import math
import os
import signal
import sys
import threading
import time
from typing import Any, Callable, Deque, Generic, List, NoReturn, Optional, Sequence, Set, Tuple, TypeVar

from muster import _library
from muster._library import FORKED, IN_PROGRESS, DistributedError, raise_last

T = TypeVar("T")
SLICE_S = 0.1  # Interval at which Python's signal handlers get their turn.
SLICE_MS = int(SLICE_S * 1000)
SWEPT = 4  # Each new operation polls up to this many old ones.

_library_of_c = _library.load()
_wait, _status, _free = _library_of_c.muster_work_wait, _library_of_c.muster_work_status, _library_of_c.muster_work_free


class Flight:
    """One operation. `buffers`: the memory that it uses, kept alive. `is_waited`: waited for successfully, which on a GPU precedes
    completion."""

    __slots__ = ("handle", "buffers", "is_on_gpu", "is_waited")

    def __init__(self, buffers: Any, is_on_gpu: bool) -> None:
        self.handle: Any = ctypes.c_void_p()  # None once freed.
        self.buffers = buffers
        self.is_on_gpu = is_on_gpu
        self.is_waited = False


_in_flight: Set[Flight] = set()
_without_work: Deque[Flight] = collections.deque()
_left: List[Background[Any]] = []  # Waits left by a signal handler that raised.
calls_elsewhere: Set[int] = set()  # Threads in a call, except the main one.
_is_ending = False


def sweep(limit: int = SWEPT) -> None:
    """Frees complete operations without a Work; polls `limit` of them."""
    for _ in range(min(limit, len(_without_work))):
        try:
            flight = _without_work.popleft()
        except IndexError:  # Another thread took the last one.
            return
        handle = flight.handle
        if handle and _status(handle) in (IN_PROGRESS, FORKED):
            _without_work.append(flight)
            continue
        # A signal handler may raise in between: then it leaks, and is not freed twice.
        flight.handle = None
        if handle:
            _free(handle)
        _in_flight.discard(flight)


class Work:
    """An operation in flight: the result of a call with async_op=True.

    Its arrays belong to it until it is complete: do not change them, or read those that it writes. They are kept alive that long,
    even if the Work is dropped, which does not cancel the operation; a failure may then go unnoticed. Forced resizing goes
    undetected: numpy's resize(refcheck=False), torch's untyped_storage().resize_(). Any thread may call anything.

    result  the array with the result, or None where this rank gets none; valid once the operation is complete
    """

    __slots__ = ("_flight", "_is_done", "result")

    def __init__(self, buffers: Any, result: Any, is_on_gpu: bool = False) -> None:
        self._flight = Flight(buffers, is_on_gpu)
        self._is_done = False
        self.result = result

    def wait(self, timeout: Optional[float] = None) -> bool:
        """Blocks until the operation is complete, at most `timeout` seconds; returns True if it is. Raises its failure. It has the
        deadline that it was begun with, so without a timeout this always returns. On GPU memory it makes the operation's stream
        wait instead, and returns at once: see synchronize(). Ctrl-C ends the wait, not the operation."""
        if self._is_done:
            return True
        until = None if timeout is None else time.monotonic() + _library.milliseconds(timeout) / 1000
        while True:
            left = SLICE_MS if until is None else max(0, min(SLICE_MS, int((until - time.monotonic()) * 1000 + 0.999)))
            status = _wait(self._flight.handle, left)
            if status != IN_PROGRESS:
                self._end(status)
                return True
            if until is not None and time.monotonic() >= until:
                return False

    def synchronize(self) -> None:
        """Blocks until the results are in memory, on GPUs too. Raises as wait() does."""
        self.wait()
        if not self._is_done:
            if _library_of_c.muster_work_synchronize(self._flight.handle):
                raise_last()
            self._release()

    def is_completed(self) -> bool:
        """True if it is complete, successfully or not. Never blocks. Raises ForkedError in a child of fork()."""
        status = int(_status(self._flight.handle))
        if status == FORKED:
            raise_last()
        return status != IN_PROGRESS

    @property
    def source(self) -> int:
        """The group rank of the sender, for a completed receive from any rank; otherwise -1."""
        return int(_library_of_c.muster_work_source(self._flight.handle))

    def _end(self, status: int) -> None:
        if status:
            error = _library.last_error()
            _in_flight.discard(self._flight)
            raise error
        self._flight.is_waited = True
        if not self._flight.is_on_gpu:  # On a GPU, only its stream waits.
            self._release()

    def _release(self) -> None:
        self._is_done = True
        self._flight.buffers = None
        _in_flight.discard(self._flight)

    # Bound as defaults: when the interpreter ends, the module's names may be gone.
    def __del__(self, free: Any = _free, in_flight: Any = _in_flight, without_work: Any = _without_work) -> None:
        flight = self._flight
        if flight in in_flight:
            without_work.append(flight)
            if _is_ending is False:
                sweep()
        elif flight.handle:
            handle, flight.handle = flight.handle, None
            free(handle)

    def __repr__(self) -> str:
        return f"<muster.distributed.Work, {'complete' if self._flight not in _in_flight else 'in flight'}>"


Work.__module__ = "muster.distributed"


def begin(function: Any, arguments: Tuple[Any, ...], options: Any, work: Work) -> Work:
    """Calls function(*arguments, options, &work)."""
    _register((work,))
    if function(*arguments, options, ctypes.byref(work._flight.handle)):
        _refused((work,))
    return work


def is_any_in_flight() -> bool:
    """True if an operation in flight was not waited for, its wait was left, or another thread is in a call."""
    return (bool(calls_elsewhere)
            or any(not each.is_waited and bool(each.handle) and _status(each.handle) == IN_PROGRESS for each in list(_in_flight))
            or any(not each.is_done.is_set() for each in _left))


def begin_several(function: Any, arguments: Tuple[Any, ...], options: Any, works: Sequence[Work]) -> None:
    """Calls function(*arguments, options, works)."""
    handles = (ctypes.c_void_p * len(works))()
    for index, work in enumerate(works):
        work._flight.handle = ctypes.c_void_p.from_buffer(handles, index * ctypes.sizeof(ctypes.c_void_p))
    _register(works)
    if function(*arguments, options, handles):
        _refused(works)


def _register(works: Sequence[Work]) -> None:
    """Call before they are begun: a signal handler may raise as soon as that call returns."""
    if _without_work:
        sweep()
    for work in works:
        _in_flight.add(work._flight)
        if _is_ending:
            _keep_for_ever(work._flight)


def _refused(works: Sequence[Work]) -> NoReturn:
    error = _library.last_error()
    for work in works:
        _in_flight.discard(work._flight)
    raise error


def _keep_for_ever(flight: Flight) -> None:
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(flight))


def end_of_interpreter() -> None:
    """Leaks memory into which the library may still write."""
    global _is_ending
    _is_ending = True
    sweep(len(_without_work))
    for flight in list(_in_flight):
        _keep_for_ever(flight)


# The group of the main thread's current operation; a new tuple for each.
blocked: Optional[Tuple[Any]] = None
aborting = threading.RLock()  # No handle is freed while the thread below uses it.
next_look = math.inf  # Next time for look_after_signals() on the main thread.
LOOK_S, LOOK_AT_OTHERS_S = 0.001, 0.1
_wakeup_fd = -1


def watch_interrupts() -> None:
    """Starts a thread that, on Ctrl-C, ends the main thread's current call by aborting its group: Python's own handler waits for
    the end of the call. No-op where that is not possible: on another thread, or while an event loop owns the signals."""
    global _wakeup_fd
    if threading.current_thread() is not threading.main_thread():
        return
    if _wakeup_fd < 0:
        incoming, _wakeup_fd = os.pipe()
        os.set_blocking(_wakeup_fd, False)
        os.register_at_fork(after_in_child=_leave_signals)
        threading.Thread(target=_watch, args=(incoming,), name="muster", daemon=True).start()
    look_after_signals()


def look_after_signals() -> None:
    """Takes the wakeup fd unless an event loop has it: one that ends leaves it unset (-1). A running loop loses it only for the
    moment of this check."""
    global next_look
    before = signal.set_wakeup_fd(_wakeup_fd, warn_on_full_buffer=False)
    is_others = before not in (-1, _wakeup_fd)
    if is_others:
        signal.set_wakeup_fd(before)
    next_look = time.monotonic() + (LOOK_AT_OTHERS_S if is_others else LOOK_S)


def _leave_signals() -> None:
    """Resets the state in a forked child: the pipe is the parent's, and its thread may have held the lock."""
    global aborting, next_look
    aborting, next_look = threading.RLock(), math.inf
    now = signal.set_wakeup_fd(-1)
    if now != _wakeup_fd:
        signal.set_wakeup_fd(now)


def _watch(incoming: int) -> None:
    while True:
        numbers = os.read(incoming, 64)
        found = blocked
        if found and signal.SIGINT in numbers and signal.getsignal(signal.SIGINT) is signal.default_int_handler:
            time.sleep(SLICE_S)  # A call that ends by itself is left alone.
            with aborting:
                if blocked is found:
                    try:
                        found[0].abort("it was interrupted (SIGINT)")
                    except DistributedError:  # The group was closed meanwhile.
                        pass
        found = None  # Otherwise the group would live until the next signal.


def is_attended() -> bool:
    """True if a Ctrl-C is likely meant for this process: at a prompt, in a notebook, or in the foreground of a terminal."""
    if hasattr(sys, "ps1") or sys.flags.interactive:
        return True
    try:
        terminal = os.open("/dev/tty", os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY)
    except OSError:
        return False
    try:
        return os.tcgetpgrp(terminal) == os.getpgrp()
    except OSError:
        return False
    finally:
        os.close(terminal)


class Background(Generic[T]):
    """A blocking call without an asynchronous form, on its own thread. If a signal handler's exception ends the wait, the call
    continues, and its result is undone."""

    def __init__(self, function: Callable[[], T], undo: Optional[Callable[[T], None]] = None) -> None:
        self.function, self.undo = function, undo
        self.is_done, self.settling = threading.Event(), threading.Lock()
        self.outcome: List[Tuple[Any, Optional[BaseException]]] = []
        self.is_left = False
        threading.Thread(target=self.run, name="muster", daemon=True).start()

    def run(self) -> None:
        result: Any = None
        failure: Optional[BaseException] = None
        try:
            result = self.function()
        except BaseException as error:
            failure = error
        with self.settling:
            self.outcome.append((result, failure))
            is_unwanted = self.is_left
        if is_unwanted:
            self.end()
        self.is_done.set()

    def wait_for_end(self) -> None:
        while not self.is_done.wait(SLICE_S):
            pass

    def wait(self) -> T:
        try:
            self.wait_for_end()
        except BaseException:
            with self.settling:
                self.is_left = True
                is_late = bool(self.outcome)
            if is_late:
                self.end()
            _left.append(self)
            raise
        result, failure = self.outcome[0]
        if failure is not None:
            raise failure
        return result  # type: ignore[no-any-return]

    def end(self) -> None:
        result, failure = self.outcome[0]
        if failure is None and self.undo is not None:
            self.undo(result)
