"""What an operation returns to PyTorch: a Work, and its future.

PyTorch's C++ side wraps a Python Work in its own, which passes on wait() and get_future() only. Other questions of programs
(is_completed(), source_rank(), ...) are passed to the wrapped Work: see answer_questions().
"""
from __future__ import annotations

import contextlib
import ctypes
import datetime
import queue
import threading
import time
import weakref
from typing import Any, Callable, Dict, List, Optional, Sequence

import torch  # type: ignore[import-not-found]
import torch.distributed as dist  # type: ignore[import-not-found]
from muster import _library as lib
from muster._torch import _group

SLICE_MS = 200  # A wait returns to Python this often, for Ctrl-C.
UNLIMITED = datetime.timedelta(0)


class Asked(dist.Work):  # type: ignore[misc]
    """Queries by programs to which PyTorch hands this object. Subclasses have wait(), poll() and `error`."""

    source = -1

    def is_completed(self) -> Any:
        return self.poll()

    def is_success(self) -> bool:
        return self.poll() and self.error is None

    def exception(self) -> Any:
        self.poll()
        return self.error

    def source_rank(self) -> int:
        self.poll()
        return self.source

    _source_rank = source_rank

    def synchronize(self) -> None:
        self.wait()


class Work(Asked):
    """An operation, which is complete from the start if it has no handle.

    handle    the library's operation, set by the call that starts it; freed with this object, when no thread can wait on it
    kept      the memory that the operation reads and writes; dropped when it is complete
    results   the tensors that its future gives
    finish    copies the results into tensors that are not contiguous
    """

    def __init__(self, group: Any, results: Sequence[Any], handle: Optional[ctypes.c_void_p] = None, kept: Any = None,
                 finish: Optional[Callable[[], None]] = None, error: Optional[BaseException] = None,
                 is_message: bool = False) -> None:
        dist.Work.__init__(self)
        self.group, self.results, self.handle, self.kept, self.finish = group, results, handle, kept, finish
        self.error, self.is_message = error, is_message
        self.is_done = handle is None
        self.future: Any = None
        self.has_waiter = False
        self.ending = threading.Lock()
        if handle is not None:
            group.in_flight[id(self)] = self

    def __del__(self) -> None:
        if self.handle and not self.group.group.is_over:
            self.group.library.muster_work_free(self.handle)

    def wait(self, timeout: datetime.timedelta = UNLIMITED) -> bool:
        """Raises the operation's failure, or OperationTimeout if it is not complete in `timeout`; the operation continues."""
        if not self.is_done:
            left = -1 if timeout == UNLIMITED else _group.milliseconds(timeout)
            while not self.poll(SLICE_MS if left < 0 else min(SLICE_MS, left)):
                if left >= 0:
                    left -= SLICE_MS
                    if left <= 0:
                        raise _group.ERRORS[lib.OperationTimeout](f"wait(): the operation of group {self.group.group.name} is not "
                                                                  f"complete after {timeout.total_seconds():g} s; it goes on")
        if self.error is not None:
            raise self.error
        return True

    def poll(self, wait_ms: int = 0) -> bool:
        """Waits at most `wait_ms`; returns True if complete."""
        if not self.is_done:
            if not self.handle:  # Another thread is starting it.
                return False
            library = self.group.library
            status = library.muster_work_wait(self.handle, wait_ms) if wait_ms else library.muster_work_status(self.handle)
            if status == lib.IN_PROGRESS:
                return False
            self.end(self.group.group.failure() if status else None)
        elif self.future is not None:
            self.settle()
        return True

    def end(self, error: Optional[BaseException]) -> None:
        """Ends the operation, on the first thread that notices; the others wait for that."""
        with self.ending:
            if not self.is_done:
                if error is None:
                    if self.is_message:
                        self.source = self.group.library.muster_work_source(self.handle)
                    if self.finish is not None:
                        try:
                            self.finish()
                        except Exception as problem:
                            error = problem
                self.error = error
                self.kept = self.finish = None
                self.is_done = True
        self.settle()

    def settle(self) -> None:
        """Completes the future after the end. Repeated at the next poll(), since Ctrl-C may come between: a future that is never
        set is a hang."""
        self.group.in_flight.pop(id(self), None)
        future = self.future
        if future is not None and not future.done():
            with contextlib.suppress(RuntimeError):  # Another thread has just done it.
                future.set_result(self.results)

    def get_future(self) -> Any:
        if answers(self):
            return NOTHING
        with self.ending:
            future = self.future
            if future is None:
                future = self.future = torch.futures.Future()
        if not self.poll() and not self.has_waiter:
            self.has_waiter = self.group.add_to_waiter(self)
            if not self.has_waiter:  # The group was left meanwhile, which ended its operations.
                self.poll()
        # A failure set here would not reach C++: only a callback that raises makes its future fail.
        return future.then(self.outcome)

    def outcome(self, _: Any) -> Any:
        if self.error is not None:
            raise self.error
        return self.results

    def result(self) -> List[Any]:
        if not self.poll():
            raise RuntimeError(f"result(): the operation of group {self.group.group.name} is not complete: call wait() first")
        self.outcome(None)
        return list(self.results)


class Together(Asked):
    """Several Works as one."""

    def __init__(self, works: Sequence[Work], results: Sequence[Any]) -> None:
        dist.Work.__init__(self)
        self.works, self.results = works, results

    def wait(self, timeout: datetime.timedelta = UNLIMITED) -> bool:
        for work in self.works:
            work.wait(timeout)
        return True

    def get_future(self) -> Any:
        if answers(self):
            return NOTHING
        return torch.futures.collect_all([work.get_future() for work in self.works]).then(self.outcome)

    def outcome(self, _: Any) -> Any:
        for work in self.works:
            work.outcome(None)
        return self.results

    def poll(self) -> bool:
        return all([work.poll() for work in self.works])

    @property
    def error(self) -> Optional[BaseException]:
        return next((work.error for work in self.works if work.error is not None), None)

    def result(self) -> List[Any]:
        for work in self.works:
            work.result()
        return list(self.results)


HAS_ENDED = threading.Event()
WAITERS: "weakref.WeakSet[Waiter]" = weakref.WeakSet()
LAST_S = 0.2


def end_waiters() -> None:
    """Ends the waiters before the interpreter does: it stops daemon threads anywhere, and inside PyTorch's C++, where they set
    futures, that aborts the process. Nothing blocks them, since the groups were left before, except after an uncaught exception:
    then they wait in the library."""
    HAS_ENDED.set()
    deadline = time.monotonic() + LAST_S
    waiters = list(WAITERS)
    for waiter in waiters:
        waiter.end()
    for waiter in waiters:
        waiter.thread.join(max(0.0, deadline - time.monotonic()))


_group.AT_THE_END.append(end_waiters)


class Waiter:
    """A thread that waits for operations with futures, in order, since no other thread may be waiting for them.

    Collectives end in call order. Messages do not, so they are polled in turn.
    """

    MESSAGE_SLICE_MS = 2

    def __init__(self, in_turn: bool) -> None:
        self.works: "queue.SimpleQueue[Optional[Work]]" = queue.SimpleQueue()
        self.adding = threading.Lock()
        self.is_ended = False
        # A daemon: it must not keep a program from ending, and its operations may never end.
        self.thread = threading.Thread(target=self.run_in_turn if in_turn else self.run, name="muster futures", daemon=True)
        self.thread.start()
        WAITERS.add(self)

    def add(self, work: Work) -> bool:
        with self.adding:
            if not self.is_ended:
                self.works.put(work)
            return not self.is_ended

    def end(self) -> None:
        """Ends the thread once the earlier Works are done."""
        with self.adding:
            if not self.is_ended:
                self.is_ended = True
                self.works.put(None)

    def run(self) -> None:
        while True:
            work = self.works.get()
            if work is None:
                return
            try:
                while not work.poll(3_600_000):
                    pass
            except Exception as problem:  # Report it through the future.
                work.end(problem)
            del work  # Otherwise kept until the next one.

    def run_in_turn(self) -> None:
        works: List[Work] = []
        is_ending = False
        while works or not is_ending:
            if not works or not self.works.empty():
                work = self.works.get()
                if work is None:
                    is_ending = True
                else:
                    works.append(work)
                del work
            works = [work for work in works if not work.poll(self.MESSAGE_SLICE_MS)]


# ---- questions to PyTorch's wrapper

QUESTION = threading.local()
FOREIGN: Dict[int, Any] = {}  # Weak references to other backends' Works by id(), since programs may query them often.
NOTHING: Any = torch.futures.Future()
ASKED = ("is_completed", "is_success", "exception", "result", "source_rank", "_source_rank")


def answers(work: Any) -> bool:
    """Returns True, and notes `work`, if get_future() was only called to find the wrapped object: see wrapped_in()."""
    found = getattr(QUESTION, "found", None)
    if found is None:
        return False
    found.append(work)
    return True


def wrapped_in(work: Any) -> Any:
    """Returns our Work inside PyTorch's, or None: PyTorch passes get_future() on, and ours notes itself."""
    found: List[Any] = []
    QUESTION.found = found
    try:
        work.get_future()
    except Exception:  # Many Works have none.
        pass
    finally:
        QUESTION.found = None
    if not found:
        number = id(work)
        FOREIGN[number] = weakref.ref(work, lambda _: FOREIGN.pop(number, None))
        return None
    return found[0]


def answer_questions() -> None:
    """Makes dist.Work pass on what its C++ wrapper of a Python Work does not: there an operation is never complete and has no
    source. Works of other backends answer as before."""

    def passed_on(name: str, original: Any) -> Any:
        def method(self: Any, *args: Any) -> Any:
            if type(self) is dist.Work and id(self) not in FOREIGN:
                inner = wrapped_in(self)
                if inner is not None:
                    return getattr(inner, name)(*args)
            return original(self, *args)

        method.__name__, method.__doc__ = name, original.__doc__
        return method

    for name in ASKED:
        original = getattr(dist.Work, name, None)
        if original is not None and getattr(original, "__module__", "") != __name__:
            setattr(dist.Work, name, passed_on(name, original))
