"""The native launcher `muster`, its control program `musterctl` and the worker library, as Python's packages see them.

    muster --nproc-per-node 4 train.py      the launcher: an executable beside this environment's Python
    python -m muster ...                    the same, with this Python for the workers
    python -m muster.torchrun ...           the same, for those who look for that name

A C or C++ program is built against the library with get_include() and get_library().
"""
import os

__all__ = ["__version__", "get_include", "get_library"]

_HERE = os.path.dirname(os.path.abspath(__file__))


def get_include() -> str:
    """The folder to compile with: it has muster/muster.h (C) and muster/distributed.h (C++)."""
    return os.path.join(_HERE, "include")


def get_library() -> str:
    """The file to link with, or to open: libmuster.so.0. A program that is linked with it finds it at run time by
    -Wl,-rpath, or in LD_LIBRARY_PATH."""
    return os.path.join(_HERE, "lib", "libmuster.so.0")


def __getattr__(name: str) -> str:
    if name == "__version__":
        from importlib.metadata import version  # Takes longer than all else here.

        return version("muster-launch")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
