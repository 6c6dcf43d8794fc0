"""How tests wait: for a fact if there is one, and with bounds that grow with the machine's load.

Tests do not call time.sleep() (lint/steady.py): wait_for() waits for a fact, nothing_happens_for() checks that none appears,
pause() is a delay that is the subject of the test.
"""
import math
import os
import time

LIMIT_S = 120.0  # Ten times what anything takes on a busy machine.


def load():
    """Returns the factor, at least 1, by which other processes that wait for a processor slow this one down."""
    return max(1.0, os.getloadavg()[0] / os.cpu_count())


def within(promise, factor=10, below=math.inf):
    """Returns the upper bound for a promised time: `factor` times the promise, more under load, but less than `below`.

    The unit is that of `promise`. `below`: the time that a broken promise takes.
    """
    return min(promise * factor * load(), 0.9 * below)


def polling(seconds, every_s=0.005):
    """Yields every `every_s` for `seconds`, and once more at the end."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield
        time.sleep(every_s)
    yield


def wait_for(condition, what, limit_s=LIMIT_S):
    """Returns the first true value of condition(); fails the test after the limit. `what`: a text, or a function of one."""
    for _ in polling(limit_s):
        value = condition()
        if value:
            return value
    raise AssertionError(f"not within {limit_s:.1f} s: {what() if callable(what) else what}")


def wait_until_stuck(pid, what):
    """Waits until the first thread of a process has been asleep twenty times in a row, so it waits in a call."""
    seen = []

    def sleeps():
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
            seen.append(f.read().rpartition(")")[2].split()[0])
        return seen[-20:] == ["S"] * 20
    wait_for(sleeps, what)


def nothing_happens_for(seconds, check):
    """Calls check(), which raises once something has happened, for `seconds`: for an absence that no fact proves."""
    for _ in polling(seconds, 0.02):
        check()


def pause(seconds, _why):
    """A delay that is the subject of the test: a random moment, a stall, the time between two signals."""
    time.sleep(seconds)
