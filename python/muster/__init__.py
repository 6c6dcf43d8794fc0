"""The Python package of the native launcher `muster`, its control program `musterctl` and the worker library.

    muster --nproc-per-node 4 train.py      the launcher: an executable beside this environment's Python
    python -m muster ...                    the same, with this Python for the workers
    python -m muster.torchrun ...           the same, under torchrun's name
    muster.launch(fn, *args, nproc=4)       runs a function in workers and returns their results
    muster.distributed                      collectives of the workers on numpy arrays and torch tensors

get_include() and get_library() serve to build C and C++ programs against the library.
"""
from __future__ import annotations

import os

TYPE_CHECKING = False  # Type checkers take it for true; importing `typing` would take most of this import's time.
if TYPE_CHECKING:
    from typing import Any

    from muster import distributed
    from muster._launch import LaunchError, launch

__all__ = ["LaunchError", "__version__", "distributed", "get_include", "get_library", "launch"]

_HERE = os.path.dirname(os.path.abspath(__file__))


def get_include() -> str:
    """Returns the folder of muster/muster.h (C) and muster/distributed.h (C++), to compile with."""
    return os.path.join(_HERE, "include")


def get_library() -> str:
    """Returns the path of libmuster.so.0, to link with or to open. A linked program finds it at run time by -Wl,-rpath or
    LD_LIBRARY_PATH."""
    return os.path.join(_HERE, "lib", "libmuster.so.0")


# Loads the rest on first use (PEP 562): `import muster` must cost nothing.
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
