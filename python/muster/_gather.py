"""Brings the results of all nodes' workers to each node, by the worker library, after the function has returned."""
from __future__ import annotations

import ctypes
import os
from typing import Any, Callable, List, Tuple

CHUNK_BYTES = 64 << 20
# Constants of muster.h. LONGEST_MS, since a rank may be done long before the last one.
UINT8, INT64 = 1, 4
AUTOMATIC, END_CALLS = 0, 0
LONGEST_MS = 10 * 365 * 24 * 3600 * 1000


class InitOptions(ctypes.Structure):
    _fields_ = [("struct_size", ctypes.c_size_t), ("init_method", ctypes.c_char_p), ("timeout_ms", ctypes.c_int64),
                ("backend", ctypes.c_int), ("rank", ctypes.c_int), ("world_size", ctypes.c_int), ("local_rank", ctypes.c_int),
                ("device", ctypes.c_int), ("on_sigterm", ctypes.c_int)]


class Gather:
    """Every rank calls run() once. Raises OSError without the library, RuntimeError with the library's message."""

    def __init__(self) -> None:
        self.library = ctypes.CDLL(os.path.join(os.path.dirname(os.path.realpath(__file__)), "lib", "libmuster.so.0"))
        self.library.muster_last_error.restype = ctypes.c_char_p

    def check(self, status: int) -> None:
        if status != 0:
            raise RuntimeError(self.library.muster_last_error().decode(errors="replace"))

    def run(self, folder: str, ranks_here: Callable[[str], Tuple[str, List[int]]]) -> None:
        """Writes FOLDER/all.RANK for every rank of the job: the bytes of its FOLDER/result.RANK."""
        library = self.library
        if not library.muster_is_initialized():
            options = InitOptions(ctypes.sizeof(InitOptions), None, LONGEST_MS, AUTOMATIC, -1, -1, -1, -1, END_CALLS)
            self.check(library.muster_init(ctypes.byref(options)))
        rank, world = library.muster_rank(), library.muster_world_size()
        own_path = os.path.join(folder, f"result.{rank}")
        own_size = ctypes.c_int64(os.path.getsize(own_path))
        sizes = (ctypes.c_int64 * world)()
        self.check(library.muster_all_gather(None, ctypes.byref(own_size), sizes, ctypes.c_size_t(1), INT64, None, None))
        chunk = ctypes.create_string_buffer(min(CHUNK_BYTES, max(sizes)))
        is_writer = rank == ranks_here(folder)[1][0]  # All ranks here have started.
        with open(own_path, "rb") as own:
            for root in range(world):
                target: Any = open(os.path.join(folder, f"all.{root}"), "wb") if is_writer else None
                for begin in range(0, sizes[root], CHUNK_BYTES):
                    length = min(CHUNK_BYTES, sizes[root] - begin)
                    if root == rank:
                        own.readinto(memoryview(chunk)[:length])
                    self.check(library.muster_broadcast(None, chunk, ctypes.c_size_t(length), UINT8, root, None, None))
                    if target:
                        target.write(memoryview(chunk)[:length])
                if target:
                    target.close()
        library.muster_destroy()
