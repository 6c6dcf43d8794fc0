"""Handlers of signals, where Python would let them raise in the midst of anything."""
from __future__ import annotations

import signal
import sys
import threading
from typing import Any, Callable, Dict, List, Optional, TypeVar

R = TypeVar("R")


class Handlers:
    """Within it a handler of the main thread runs when it would, but raises only in call(); what it raises elsewhere is kept, until
    check() or the end. So nothing is left half done, and no `except` that was meant for something else gets it. Where another
    thread enters it, it changes nothing: those run no handlers.

    on_raise      called when something is to be kept
    on_interrupt  called instead of SIGINT's handler, which is called at the end of the job: see interrupted()
    """

    def __init__(self) -> None:
        self.before: Dict[int, Any] = {}
        self.kept: List[BaseException] = []
        self.raised: List[BaseException] = []  # In call().
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
            except BaseException:  # Of a handler that was not replaced yet.
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
            for _ in range(2):  # Again, if a handler that is its own already has raised before this one was.
                try:
                    if signal.getsignal(number) == self.handle:  # Else a handler has put another one there.
                        signal.signal(number, handler)
                except BaseException as error:
                    self.kept.append(error)

    def handle(self, number: int, frame: Any) -> Any:
        if self.is_past:  # Somebody has kept it.
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
        """Calls SIGINT's handler, if on_interrupt was called in its place."""
        if self.interrupts:
            self.before[signal.SIGINT](signal.SIGINT, sys._getframe())

    def call(self, function: Callable[..., R], *args: Any, **kwargs: Any) -> R:
        """What may take long, and is not ours: handlers raise in it."""
        self.check()
        self.defers = False
        try:
            return function(*args, **kwargs)
        finally:
            self.defers = True

    def has_raised(self, error: BaseException) -> bool:
        """Whether a handler has raised it, in call()."""
        return any(error is each for each in self.raised)
