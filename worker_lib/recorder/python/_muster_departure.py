"""Notes in the rank's ring how the program began to end (rendezvous/ring/departure.h): an exception, or destroyed groups.

Loaded by the recorder, or by sitecustomize.py once an exception was not caught. Only the process that started with the
hook writes: a forked child may end as it likes.
"""
import importlib.machinery
import importlib.util
import os
import sys

CONTROL_FLOW = ("StopIteration", "StopAsyncIteration", "GeneratorExit", "CancelledError", "Empty", "Full")


def load_ring():
    if sys.implementation.name != "cpython" or "t" in sys.abiflags:
        raise ImportError("it needs CPython with its lock (GIL)")
    path = os.path.join(folder, "_muster_ring.abi3.so")
    loader = importlib.machinery.ExtensionFileLoader("_muster_ring", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_file_location("_muster_ring", path, loader=loader))
    loader.exec_module(module)
    return module


ring = load_ring()
noted = None  # The exception that was noted: its key, kind, text, place and threads.
has_left = False  # LEFT was noted.
shown = None  # The key of one that the program has survived.


def note(kind, error=None, threads=""):
    """An exception stays noted, with the time of its first note, until the program forms groups again."""
    global noted
    if os.getpid() != pid or error is None and noted and noted[1] != ring.THREAD_ENDED:
        return
    text = site = ""
    is_same = error is not None and noted is not None and noted[0] in map(key_of, chain_of(error))
    if is_same:
        key, before, text, site, before_threads = noted
        if before != ring.THREAD_ENDED:
            kind, threads = max(kind, before), threads or before_threads
        noted = key, kind, text, site, threads
    elif error is not None:
        root = chain_of(error)[-1]
        text, site = text_of(root), site_of(root.__traceback__)
        if kind == ring.THREAD_ENDED and (noted is not None or has_left):
            return  # The main thread was faster.
        noted = key_of(error), kind, text, site, threads
    ring.note_departure(record_fd, kind, *map(encodable, (text, site, threads)), is_same)


def key_of(error):
    """A reference would keep the tensors of its frames, and another exception may get the same id later."""
    return id(error), type(error).__name__, text_of(error)


def chain_of(error):
    """The exception, the one that it was raised from or while handling, and so on; the last one is the program's problem."""
    chain = []
    while error is not None and error not in chain:
        chain.append(error)
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    while len(chain) > 1 and type(chain[-1]).__name__ in CONTROL_FLOW:
        chain.pop()
    return chain


def is_failure(error):
    if error is None or isinstance(error, KeyboardInterrupt) or isinstance(error, SystemExit) and not error.code:
        return False
    return type(error).__name__ not in CONTROL_FLOW


def left():
    """The program destroys its groups, perhaps in a `finally` or `except`, or in a sys.excepthook of its own."""
    global has_left
    error = sys.exc_info()[1]
    if error is None and not goes_on():
        error = last_error()
    if is_failure(error):
        note(ring.RAISED, error)
    else:
        has_left = True
        note(ring.LEFT)


def went_on():
    """The program forms groups again."""
    global noted, has_left
    if noted is not None and noted[1] == ring.THREAD_ENDED and not has_left:
        return
    noted, has_left = None, False
    if os.getpid() == pid:
        ring.withdraw_departure(record_fd)


def uncaught(error):
    """sys.excepthook was called."""
    global shown
    if goes_on():
        shown = key_of(error)
    elif is_failure(error):
        note(ring.UNCAUGHT, error, waited_for())


def thread_ended(error, thread):
    """threading.excepthook was called. The program goes on; of several threads the first one is the most telling."""
    if noted is None and not has_left and is_failure(error) and not isinstance(error, SystemExit):
        note(ring.THREAD_ENDED, error, getattr(thread, "name", ""))


def goes_on():
    """True at a prompt, in other threads, and in the program itself, as if a toolkit's event loop calls the hook."""
    threading = sys.modules.get("threading")
    if threading is not None and threading.current_thread() is not threading.main_thread():
        return True
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "<module>":
        frame = frame.f_back
    return frame is not None or hasattr(sys, "ps1") or bool(sys.flags.interactive)


def ending():
    """The main thread has ended. The program may have replaced sys.excepthook."""
    error = last_error()
    if error is not None:
        uncaught(error)


def last_error():
    """The exception for which Python called sys.excepthook, unless the program has survived it."""
    error = getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)
    return None if error is None or key_of(error) == shown else error


def waited_for():
    """Threads for which the interpreter waits before it ends."""
    threading = sys.modules.get("threading")
    if threading is None:
        return ""
    return ", ".join(thread.name for thread in threading.enumerate()
                     if not thread.daemon and thread not in (threading.main_thread(), threading.current_thread()))


def text_of(error):
    """As Python prints it: "torch.OutOfMemoryError: CUDA out of memory"."""
    kind = type(error)
    name = kind.__qualname__ if kind.__module__ in ("builtins", "__main__") else f"{kind.__module__}.{kind.__qualname__}"
    try:
        text = str(error)
    except Exception:
        text = ""
    return f"{name}: {text}" if text else name


def encodable(text):
    """Without the lone surrogates that a file name may have."""
    return text.encode("utf-8", "replace").decode()


def site_of(trace):
    """The innermost place in the program itself."""
    site = ""
    while trace is not None:
        path = trace.tb_frame.f_code.co_filename
        if not site or not any(part in path for part in ("/site-packages/", "/dist-packages/", "/lib/python", "<frozen")):
            site = site_text(trace.tb_frame, trace.tb_lineno)
        trace = trace.tb_next
    return site


def site_text(frame, line=None):
    code = frame.f_code
    function = "" if code.co_name == "<module>" else f" {code.co_name}"
    return f"{os.path.basename(code.co_filename)}:{line or frame.f_lineno}{function}"
