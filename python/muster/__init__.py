"""The native launcher `muster`, its control program `musterctl` and the worker library, as Python's packages see them.

    muster --nproc-per-node 4 train.py      the launcher: an executable beside this environment's Python
    python -m muster ...                    the same, with this Python for the workers
    python -m muster.torchrun ...           the same, for those who look for that name
    muster.launch(fn, *args, nproc=4)       a function in workers, and what they return
    muster.distributed                      what workers do together: collectives on numpy arrays and torch tensors

A C or C++ program is built against the library with get_include() and get_library().
"""
from __future__ import annotations

import os

TYPE_CHECKING = False  # Type checkers take it for true; `typing` would be most of the time of this import.
if TYPE_CHECKING:
    from typing import Any

    from muster import distributed
    from muster._launch import LaunchError, launch

__all__ = ["LaunchError", "__version__", "distributed", "get_include", "get_library", "launch"]

_HERE = os.path.dirname(os.path.abspath(__file__))


def get_include() -> str:
    """The folder to compile with: it has muster/muster.h (C) and muster/distributed.h (C++)."""
    return os.path.join(_HERE, "include")


def get_library() -> str:
    """The file to link with, or to open: libmuster.so.0. A program that is linked with it finds it at run time by
    -Wl,-rpath, or in LD_LIBRARY_PATH."""
    return os.path.join(_HERE, "lib", "libmuster.so.0")


# `import muster` is to cost nothing: the rest is loaded when it is asked for (PEP 562).
def __getattr__(name: str) -> Any:
    if name in ("launch", "LaunchError"):
        from muster import _launch

        return getattr(_launch, name)
    if name == "distributed":
        from importlib import import_module

        return import_module("muster.distributed")
    if name == "__version__":
        from importlib.metadata import version

        return version("muster-launch")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
