"""Defers exceptions of signal handlers, which Python would raise anywhere."""
from __future__ import annotations

import signal
import sys
import threading
from typing import Any, Callable, Dict, List, Optional, TypeVar

R = TypeVar("R")


class Handlers:
    """Inside the context, handlers of the main thread run as usual, but raise only in call(); exceptions elsewhere are kept until
    check() or the end. So nothing is left half done, and no unrelated `except` gets them. No-op on other threads, which run no
    handlers.

    on_raise      called when an exception is kept
    on_interrupt  called instead of SIGINT's handler, which runs at the end of the job: see interrupted()
    """

    def __init__(self) -> None:
        self.before: Dict[int, Any] = {}
        self.kept: List[BaseException] = []
        self.raised: List[BaseException] = []  # Exceptions raised in call().
        self.defers, self.is_past = True, False
        self.interrupts = 0
        self.on_raise: Optional[Callable[[], None]] = None
        self.on_interrupt: Optional[Callable[[], None]] = None

    def __enter__(self) -> Handlers:
        if threading.current_thread() is threading.main_thread():
            try:
                for number in signal.valid_signals():
                    handler = signal.getsignal(number)
                    if callable(handler):
                        self.before[number] = handler
                        signal.signal(number, self.handle)
            except BaseException:  # Raised by a handler not replaced yet.
                self.restore()
                raise
        return self

    def __exit__(self, _: Any, error: Optional[BaseException], *more: object) -> None:
        self.defers = True
        self.restore()
        if self.kept and not any(error is each for each in self.kept):
            raise self.kept[0]

    def restore(self) -> None:
        self.is_past = True
        for number, handler in self.before.items():
            for _ in range(2):  # Again, if an already restored handler raised first.
                try:
                    if signal.getsignal(number) == self.handle:  # Otherwise a handler installed another.
                        signal.signal(number, handler)
                except BaseException as error:
                    self.kept.append(error)

    def handle(self, number: int, frame: Any) -> Any:
        if self.is_past:  # The handler was saved elsewhere and outlived the context.
            return self.before[number](number, frame)
        if number == signal.SIGINT and self.on_interrupt:
            self.interrupts += 1
            return self.on_interrupt()
        try:
            self.before[number](number, frame)
        except BaseException as error:
            if not self.defers:
                self.raised.append(error)
                raise
            self.kept.append(error)
            if self.on_raise:
                self.on_raise()

    def check(self) -> None:
        if self.kept:
            raise self.kept[0]

    def interrupted(self) -> None:
        """Calls SIGINT's handler if on_interrupt was called in its place."""
        if self.interrupts:
            self.before[signal.SIGINT](signal.SIGINT, sys._getframe())

    def call(self, function: Callable[..., R], *args: Any, **kwargs: Any) -> R:
        """Calls foreign code that may take long: handlers may raise in it."""
        self.check()
        self.defers = False
        try:
            return function(*args, **kwargs)
        finally:
            self.defers = True

    def has_raised(self, error: BaseException) -> bool:
        """True if a handler raised it in call()."""
        return any(error is each for each in self.raised)
