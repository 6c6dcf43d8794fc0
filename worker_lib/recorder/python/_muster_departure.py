"""Notes in the rank's ring how the program began to end (rendezvous/ring/departure.h): an exception, or destroyed groups.

Loaded by the recorder, or by sitecustomize.py once an exception was not caught. Only the process that started with the
hook writes: a forked child may end as it likes.
"""
import importlib.machinery
import importlib.util
import os
import sys


def load_ring():
    if sys.implementation.name != "cpython" or "t" in sys.abiflags:
        raise ImportError("it needs CPython with its lock (GIL)")
    path = os.path.join(folder, "_muster_ring.abi3.so")
    loader = importlib.machinery.ExtensionFileLoader("_muster_ring", path)
    module = importlib.util.module_from_spec(importlib.util.spec_from_file_location("_muster_ring", path, loader=loader))
    loader.exec_module(module)
    return module


ring = load_ring()


# The exception that was noted: its id (a reference would keep the tensors of its frames), text and place.
noted = None


def note(kind, error=None, threads=""):
    """An exception stays noted, with the time of its first note, until the program forms groups again."""
    global noted
    if os.getpid() != pid or isinstance(error, KeyboardInterrupt) or error is None and noted:
        return
    is_same = noted is not None and noted[0] in causes(error)
    if error is not None and not is_same:
        noted = id(error), text_of(error), site_of(error.__traceback__)
    _, text, site = noted or (0, "", "")
    ring.note_departure(record_fd, kind, text, site, threads, is_same)


def causes(error):
    """The ids of an exception and of those during whose handling it was raised."""
    ids = []
    while error is not None and id(error) not in ids:
        ids.append(id(error))
        error = error.__cause__ or error.__context__
    return ids


def left():
    """The program destroys its groups, perhaps in a `finally` or `except`, or in a sys.excepthook of its own."""
    error = sys.exc_info()[1] or last_error()
    if isinstance(error, KeyboardInterrupt) or isinstance(error, SystemExit) and not error.code:
        error = None
    note(ring.LEFT if error is None else ring.RAISED, error)


def went_on():
    """The program forms groups again."""
    global noted
    noted = None
    if os.getpid() == pid:
        ring.withdraw_departure()


def uncaught(error):
    """sys.excepthook was called."""
    if not goes_on():
        note(ring.UNCAUGHT, error, waited_for())


def goes_on():
    """True in an interpreter at a prompt, and if the program itself calls the hook, as toolkits with an event loop do."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_name not in ("<module>", "_bootstrap"):
        frame = frame.f_back
    return frame is not None or hasattr(sys, "ps1") or sys.flags.interactive


def ending():
    """The main thread has ended. The program may have replaced sys.excepthook."""
    error = last_error()
    if error is not None:
        uncaught(error)


def last_error():
    """The exception for which Python called sys.excepthook."""
    return getattr(sys, "last_exc", None) or getattr(sys, "last_value", None)


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
