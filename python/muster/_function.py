"""The script that each worker of muster.launch() runs, under another name. It may import nothing of its own package before the
caller's sys.path is known.

    python 'FOLDER/muster.launch(fn).py' FOLDER

Files in FOLDER, for each rank of this node except `call` and `all.RANK`:

    call          two pickles: the Preparation, and (fn, args, kwargs)
    started.RANK  its attempt()
    result.RANK   a pickle of fn's result
    error.RANK    a pickle of (attempt, traceback as text), and one of the exception or None
    all.RANK      the result of each rank of the job, if requested
"""
from __future__ import annotations

import errno
import functools
import os
import pickle
import runpy
import sys
import traceback
import types
from typing import Any, Dict, List, NamedTuple, Optional, Tuple

PROTOCOL = 5  # Writes large buffers without a copy (PEP 574).
# Set in `sys` while a worker reads the call, which may import the module that calls launch().
IS_PREPARING = "_MUSTER_IS_PREPARING"


class Preparation(NamedTuple):
    """Makes a worker's interpreter like the caller's; stored as a plain tuple."""

    path: List[str]  # sys.path; for another Python only its first entry.
    has_all_paths: bool
    argv: List[str]  # sys.argv
    main: Any  # For multiprocessing.spawn.prepare(); None: not needed.
    pickler: str  # Module that pickles the results.
    version: Optional[Tuple[int, int]]  # Python's, if code is sent by value: bytecode fits one version.
    gather: bool  # True if every node gets all results.
    files: Dict[str, str]  # Source files by __qualname__ of functions sent by value.


def attempt() -> str:
    """Returns an id of the attempt, equal for all ranks here; earlier attempts may have had other ranks. A change of nodes is no
    restart, but gives the next attempt another folder, whose name is part of the id."""
    folder = os.path.dirname(os.path.dirname(os.environ.get("TORCHELASTIC_ERROR_FILE", "")))
    return "{TORCHELASTIC_RESTART_COUNT} {WORLD_SIZE} ".format(**os.environ) + os.path.basename(folder)


def ranks(folder: str) -> Tuple[str, List[int]]:
    """Returns the newest attempt, and the ranks that have started in it here."""
    started = {}
    for name in os.listdir(folder):
        kind, _, rank = name.partition(".")
        if kind == "started" and rank.isdigit():  # Otherwise it was killed while writing.
            path = os.path.join(folder, name)
            with open(path, encoding="ascii") as file:
                started[int(rank)] = (os.stat(path).st_mtime_ns, file.read())
    newest = max(started.values(), default=(0, ""))[1]
    return newest, sorted(rank for rank, (_, text) in started.items() if text == newest)


def label(fn: Any, files: Dict[str, str]) -> None:
    """Restores the file names, which cloudpickle replaces, of functions sent by value: tracebacks show the user's own lines."""

    def labelled(code: types.CodeType, file: str) -> types.CodeType:
        constants = (labelled(c, file) if isinstance(c, types.CodeType) else c for c in code.co_consts)
        return code.replace(co_filename=file, co_consts=tuple(constants))

    for function in (fn, *list(fn.__globals__.values())):
        if isinstance(function, types.FunctionType) and function.__module__ == "__main__" and function.__qualname__ in files:
            function.__code__ = labelled(function.__code__, files[function.__qualname__])


def settle(call: Any, files: Dict[str, str]) -> types.ModuleType:
    """Returns a __main__ module that holds what was sent by value out of the caller's, since other objects pickle by name."""
    fn, args, kwargs = call
    main = types.ModuleType("__main__")
    fn = inner(fn)
    for kind in map(type, (fn, *args, *kwargs.values())):
        if kind.__module__ == "__main__":
            setattr(main, kind.__name__, kind)
    if isinstance(fn, types.FunctionType):
        label(fn, files)
        for name, value in list(fn.__globals__.items()):
            if not name.startswith("__"):
                setattr(main, name, value)
    return main


def inner(fn: Any) -> Any:
    """Returns the function in a functools.partial or a bound method."""
    while isinstance(fn, (functools.partial, types.MethodType)):
        fn = fn.func if isinstance(fn, functools.partial) else fn.__func__
    return fn


def write(folder: str, name: str, values: List[Any], pickler: Any) -> None:
    """Writes a pickle of each value; all or nothing, since a worker may be killed while it writes."""
    path = os.path.join(folder, name)
    try:
        with open(path + ".part", "wb") as file:
            for value in values:
                pickler.dump(value, file, protocol=PROTOCOL)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        os.remove(path + ".part")  # Make room for the error report.
        raise OSError(error.errno, f"cannot write what goes to the caller ({error.strerror}); free some space there, or set TMPDIR to "
                                   "another folder", folder) from None
    os.replace(path + ".part", path)


def can_travel(error: BaseException, pickler: Any) -> bool:
    """True if the exception survives pickling: many are written without complaint, but their constructors want other arguments."""
    try:
        return isinstance(pickle.loads(pickler.dumps(error)), BaseException)
    except Exception:
        return False


def fail(folder: str, rank: str, error: BaseException, pickler: Any) -> None:
    """Reports the exception to the caller, without the frames of this file."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    error.__traceback__ = frames
    text = "".join(traceback.format_exception(type(error), error, frames))
    travels = error if can_travel(error, pickler) else None
    try:
        write(folder, f"error.{rank}", [(attempt(), text), travels], pickler)
    except OSError:  # Disk full. The launcher's verdict has it anyway.
        pass
    sys.last_value = error  # As if uncaught: other ranks must see that this one died.
    sys.excepthook(type(error), error, frames)  # The launcher's verdict reads its output.


def read_call(file: Any, preparation: Preparation) -> Any:
    setattr(sys, IS_PREPARING, True)
    try:
        if preparation.main is not None:
            from multiprocessing import spawn

            spawn.prepare(preparation.main)
        elif preparation.version and preparation.version != sys.version_info[:2]:
            raise RuntimeError(f"the function was sent by Python {'.'.join(map(str, preparation.version))}, and the workers' is another: "
                               "leave out python=, or put the function into a module")
        call = pickle.load(file)
    except (AttributeError, ImportError) as error:
        if preparation.pickler != "pickle":
            raise
        raise TypeError(f"a worker does not find what was sent to it: {error}; put it into a module, or pip install cloudpickle") from None
    finally:
        delattr(sys, IS_PREPARING)
    if preparation.main is None:
        sys.modules["__main__"] = settle(call, preparation.files)
    return call


def main() -> int:
    folder = sys.argv[1]
    rank = os.environ["RANK"]
    for name in ("result", "error"):  # Left by an earlier attempt.
        try:
            os.remove(os.path.join(folder, f"{name}.{rank}"))
        except FileNotFoundError:
            pass
    started = os.path.join(folder, f"started.{rank}")
    with open(started + ".part", "w", encoding="ascii") as text:
        text.write(attempt())
    os.replace(started + ".part", started)
    pickler: Any = pickle
    try:
        with open(os.path.join(folder, "call"), "rb") as file:
            preparation = Preparation(*pickle.load(file))
            # The first entry of its own path is this file's folder.
            sys.path[:] = preparation.path if preparation.has_all_paths else [*preparation.path, *sys.path[1:]]
            sys.argv[:] = preparation.argv
            try:
                pickler = __import__(preparation.pickler)
            except ImportError:  # In another Python; perhaps it is not needed.
                pass
            gather: Any = None
            if preparation.gather:  # Before fn, so that a missing library shows at once.
                gather = runpy.run_path(os.path.join(os.path.dirname(os.path.realpath(__file__)), "_gather.py"))["Gather"]()
            fn, args, kwargs = read_call(file, preparation)
        try:
            result = fn(*args, **kwargs)
        except SystemExit as error:
            if error.code:
                raise
            raise RuntimeError("the function has left by sys.exit(), without a result") from None
        try:
            write(folder, f"result.{rank}", [result], pickler)
        except (pickle.PicklingError, TypeError, AttributeError) as error:
            raise TypeError(f"the result of rank {rank} cannot be pickled: {error}") from None
        if gather:
            gather.run(folder, ranks)
    except Exception as error:
        fail(folder, rank, error, pickler)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
