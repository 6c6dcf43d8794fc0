"""What each worker of muster.launch() runs, as a script under another name: it may import nothing of its own package before the
caller's sys.path is known.

    python 'FOLDER/muster.launch(fn).py' FOLDER

In FOLDER: `call`, two pickles, the Preparation and (fn, args, kwargs); of each rank that a worker here has, `started.RANK`, its
attempt(); `result.RANK`, a pickle of what fn returned; `error.RANK`, a pickle of its attempt and its traceback as
text, and one of the exception or None; and `all.RANK`, the result of each rank of the job, if that was asked for.
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

PROTOCOL = 5  # Large buffers are written without a copy (PEP 574).
EXTRA = "pip install 'muster-launch[cloudpickle]'"
# Of `sys`, while a worker reads the call, which may import the module that calls launch().
IS_PREPARING = "_MUSTER_IS_PREPARING"


class Preparation(NamedTuple):
    """What makes a worker's interpreter like the caller's; as a plain tuple in the file."""

    path: List[str]  # sys.path, or of another Python only what comes first there.
    has_all_paths: bool
    argv: List[str]  # sys.argv
    main: Any  # What multiprocessing.spawn.prepare() takes, or None: the function brings its module along.
    pickler: str  # The module whose dump() the results are written with.
    version: Optional[Tuple[int, int]]  # Of Python, if code travels by value: it is for that one.
    gather: bool  # Whether every node gets the results of all.
    files: Dict[str, str]  # Of functions that travel by value, by __qualname__: where they were defined.


def attempt() -> str:
    """The same for all ranks that are here; those of an earlier one may have been others. A change of nodes counts as no restart,
    but gives the next one another folder, whose name says it."""
    folder = os.path.dirname(os.path.dirname(os.environ.get("TORCHELASTIC_ERROR_FILE", "")))
    return "{TORCHELASTIC_RESTART_COUNT} {WORLD_SIZE} ".format(**os.environ) + os.path.basename(folder)


def ranks(folder: str) -> Tuple[str, List[int]]:
    """The newest attempt, and the ranks that have started in it here."""
    started = {}
    for name in os.listdir(folder):
        kind, _, rank = name.partition(".")
        if kind == "started" and rank.isdigit():  # Else it was killed while it wrote.
            path = os.path.join(folder, name)
            with open(path, encoding="ascii") as file:
                started[int(rank)] = (os.stat(path).st_mtime_ns, file.read())
    newest = max(started.values(), default=(0, ""))[1]
    return newest, sorted(rank for rank, (_, text) in started.items() if text == newest)


def label(fn: Any, files: Dict[str, str]) -> None:
    """Gives functions that have travelled by value the names of their files again, which cloudpickle replaces: a traceback is
    to show the user's own lines."""

    def labelled(code: types.CodeType, file: str) -> types.CodeType:
        constants = (labelled(c, file) if isinstance(c, types.CodeType) else c for c in code.co_consts)
        return code.replace(co_filename=file, co_consts=tuple(constants))

    for function in (fn, *list(fn.__globals__.values())):
        if isinstance(function, types.FunctionType) and function.__module__ == "__main__" and function.__qualname__ in files:
            function.__code__ = labelled(function.__code__, files[function.__qualname__])


def settle(call: Any, files: Dict[str, str]) -> types.ModuleType:
    """What has travelled by value out of the caller's __main__ is found in this one, which the result is: others pickle by
    name."""
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
    """The function in a functools.partial or a bound method."""
    while isinstance(fn, (functools.partial, types.MethodType)):
        fn = fn.func if isinstance(fn, functools.partial) else fn.__func__
    return fn


def write(folder: str, name: str, values: List[Any], pickler: Any) -> None:
    """A pickle of each; all of them or nothing: a worker may be killed while it writes."""
    path = os.path.join(folder, name)
    try:
        with open(path + ".part", "wb") as file:
            for value in values:
                pickler.dump(value, file, protocol=PROTOCOL)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        os.remove(path + ".part")  # There is to be room for what says so.
        raise OSError(error.errno, f"cannot write what goes to the caller ({error.strerror}); free some space there, or set TMPDIR to "
                                   "another folder", folder) from None
    os.replace(path + ".part", path)


def can_travel(error: BaseException, pickler: Any) -> bool:
    """Many exceptions are written without complaint and cannot be read: their constructors want other arguments."""
    try:
        return isinstance(pickle.loads(pickler.dumps(error)), BaseException)
    except Exception:
        return False


def fail(folder: str, rank: str, error: BaseException, pickler: Any) -> None:
    """Leaves the exception to the caller. The frames of this file are nobody's business."""
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename == __file__:
        frames = frames.tb_next
    error.__traceback__ = frames
    text = "".join(traceback.format_exception(type(error), error, frames))
    travels = error if can_travel(error, pickler) else None
    try:
        write(folder, f"error.{rank}", [(attempt(), text), travels], pickler)
    except OSError:  # The disk is full. The launcher's verdict has it all the same.
        pass
    sys.last_value = error  # As where nobody catches it: other ranks are told that this one has died.
    sys.excepthook(type(error), error, frames)  # The launcher's verdict reads what that says.


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
        raise TypeError(f"a worker does not find what was sent to it: {error}; put it into a module, or {EXTRA}") from None
    finally:
        delattr(sys, IS_PREPARING)
    if preparation.main is None:
        sys.modules["__main__"] = settle(call, preparation.files)
    return call


def main() -> int:
    folder = sys.argv[1]
    rank = os.environ["RANK"]
    for name in ("result", "error"):  # Of an earlier attempt.
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
            # Of its own the folder of this file comes first.
            sys.path[:] = preparation.path if preparation.has_all_paths else [*preparation.path, *sys.path[1:]]
            sys.argv[:] = preparation.argv
            try:
                pickler = __import__(preparation.pickler)
            except ImportError:  # Of another Python: perhaps nothing needs it.
                pass
            gather: Any = None
            if preparation.gather:  # Before fn, so that what is missing shows at once.
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
