"""How tests wait: for a fact where there is one, and by bounds that grow with the machine's load.

A test calls no time.sleep() of its own (lint/steady.py): wait_for() waits for a fact, nothing_happens_for() proves that there
is none, pause() is a delay that the test is about.
"""
import math
import os
import time

LIMIT_S = 120.0  # Ten times what anything takes on a busy machine.


def load():
    """How many times as long as on an idle machine something may take here, since others wait for the processors as well."""
    return max(1.0, os.getloadavg()[0] / os.cpu_count())


def within(promise, factor=10, below=math.inf):
    """The bound of a time that is promised: so many times as much, and more under load, but less than what else it may be.

    Of whatever unit `promise` has. `below`: how long it takes where the promise is broken.
    """
    return min(promise * factor * load(), 0.9 * below)


def polling(seconds, every_s=0.005):
    """Time after time for that long, and once more at its end."""
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        yield
        time.sleep(every_s)
    yield


def wait_for(condition, what, limit_s=LIMIT_S):
    """Returns the first true value of condition(); fails the test after the limit. `what` is a text, or gives one then."""
    for _ in polling(limit_s):
        value = condition()
        if value:
            return value
    raise AssertionError(f"not within {limit_s:.1f} s: {what() if callable(what) else what}")


def wait_until_stuck(pid, what):
    """Until the first thread of a process sleeps whenever it is looked at, twenty times in a row: it waits in a call."""
    seen = []

    def sleeps():
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as f:
            seen.append(f.read().rpartition(")")[2].split()[0])
        return seen[-20:] == ["S"] * 20
    wait_for(sleeps, what)


def nothing_happens_for(seconds, check):
    """check() raises once something has happened. For absences that no fact proves, over a time in which it would come."""
    for _ in polling(seconds, 0.02):
        check()


def pause(seconds, _why):
    """A delay that is the subject of the test: a random moment, a stall, the distance of two signals, a window of measuring."""
    time.sleep(seconds)
