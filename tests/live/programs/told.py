"""A worker that logs each signal and its sender to LOG.RANK, a line each: told.py LOG [SAVE_S]

With SAVE_S it saves for that long after SIGTERM and ends with 0; without it SIGTERM ends it as it does any program.
"""
import os
import signal
import sys
import time

log = open(f"{sys.argv[1]}.{os.environ['RANK']}", "a", buffering=1, encoding="utf-8")
heard = {signal.SIGUSR1, signal.SIGUSR2, *([signal.SIGTERM] if len(sys.argv) > 2 else [])}


def name_of(pid):
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8") as f:
            return f.read().strip()
    except OSError:
        return "nobody"


# Handled, since an ignored signal is not received, and blocked, so that the sender of each is known.
for number in heard:
    signal.signal(number, lambda *_: None)
signal.pthread_sigmask(signal.SIG_BLOCK, heard)
log.write(f"start {os.environ['MUSTER_START_COUNT']} {os.environ['TORCHELASTIC_RESTART_COUNT']}\n")
end = None
while end is None or time.monotonic() < end:
    got = signal.sigtimedwait(heard, 0.1)
    if got:
        log.write(f"{signal.Signals(got.si_signo).name} from {name_of(got.si_pid)}\n")
        if got.si_signo == signal.SIGTERM and end is None:
            end = time.monotonic() + float(sys.argv[2])
log.write("saved\n")
