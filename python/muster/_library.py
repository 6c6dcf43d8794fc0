"""The worker library through ctypes: functions, structures and numbers of muster.h, and its failures as exceptions.

    library = load()
    status = library.muster_all_reduce(None, address, address, count, FLOAT32, SUM, None, None)
    if status:
        raise_last()

Addresses, handles and pointers to structures are c_void_p: an int, None, or ctypes.byref() of something. A call releases the
interpreter's lock. Failures are kept per thread, so query one on the thread of the call.
"""
from __future__ import annotations

import ctypes
import math
import os
import re
import sys
from ctypes import c_char_p, c_int, c_int64, c_size_t, c_uint64, c_void_p
from typing import Any, ClassVar, Dict, Match, NoReturn, Optional, Sequence, Tuple, Type

import muster

ABI_VERSION = 1

IN_PROGRESS, OK, FORKED = -1, 0, 4
INT8, UINT8, INT16, INT32, INT64, FLOAT16, BFLOAT16, FLOAT32, FLOAT64 = range(9)
SUM, AVERAGE, PRODUCT, MIN, MAX, BAND, BOR, BXOR = range(8)
BACKEND_AUTOMATIC, BACKEND_CPU, BACKEND_NCCL, BACKEND_GLOO = range(4)
STOP_END_CALLS, STOP_AGREE, STOP_IGNORE = range(3)
SIGNLESS = frozenset((SUM, PRODUCT, BAND, BOR, BXOR))  # Give the same bits for signed and unsigned integers.
OF_PARTS = frozenset((SUM, AVERAGE))  # May be performed on the parts of complex numbers.

DTYPES = {"int8": INT8, "uint8": UINT8, "int16": INT16, "int32": INT32, "int64": INT64, "float16": FLOAT16,
          "bfloat16": BFLOAT16, "float32": FLOAT32, "float64": FLOAT64}
ITEM_SIZES = (1, 1, 2, 4, 8, 2, 2, 4, 8)  # Indexed by dtype.
REDUCE_OPS = {"sum": SUM, "average": AVERAGE, "product": PRODUCT, "min": MIN, "max": MAX, "band": BAND, "bor": BOR,
              "bxor": BXOR}
BACKENDS = {"automatic": BACKEND_AUTOMATIC, "cpu": BACKEND_CPU, "nccl": BACKEND_NCCL, "gloo": BACKEND_GLOO}
STOP_POLICIES = {"end_calls": STOP_END_CALLS, "agree": STOP_AGREE, "ignore": STOP_IGNORE}


class DistributedError(RuntimeError):
    """A call of the worker library has failed. The message is one line: what was tried, on what, and what to do next.

    code          why, as in error.h: "peer_failed"; each has its own class below
    operation     "all_reduce", or another function that failed; may be ""
    group         "world", or the name of another group; "" if no group was involved
    failed_ranks  ranks of the job where the failure began, ascending, equal on all ranks that fail for the same reason

    After InvalidArgumentError, NotInitializedError, NotMemberError and ForkedError nothing was sent and nothing has changed. After
    others the contents of the buffers are undefined, and the operation's group is unusable: each further call raises that error
    again. Other groups are not affected.
    """

    code: str = "unknown"

    def __init__(self, message: str, operation: str = "", group: str = "", failed_ranks: Sequence[int] = ()) -> None:
        super().__init__(message)
        self.operation = operation
        self.group = group
        self.failed_ranks: Tuple[int, ...] = tuple(failed_ranks)

    def __str__(self) -> str:  # OSError, a base of OperationTimeout, has its own.
        return str(self.args[0])

    def __reduce__(self) -> Tuple[Any, ...]:
        return type(self), (self.args[0], self.operation, self.group, self.failed_ranks), {"code": self.code}


class InvalidArgumentError(DistributedError, ValueError):
    """A wrong size, dtype, root, device or option."""

    code = "invalid_argument"


class NotInitializedError(DistributedError):
    """The call came before init() or after destroy()."""

    code = "not_initialized"


class NotMemberError(DistributedError):
    """This rank does not belong to the group."""

    code = "not_member"


class ForkedError(DistributedError):
    """The process is a child of fork(); its parent has the job."""

    code = "forked"


class JobEnvironmentError(DistributedError):
    """A variable that launchers set is missing, malformed or contradicts another."""

    code = "environment"


class RendezvousError(DistributedError):
    """The store through which the ranks meet failed or is gone."""

    code = "rendezvous"


class OperationTimeout(DistributedError, TimeoutError):
    """Deadline passed; failed_ranks hold up all others."""

    code = "timeout"


class PeerFailedError(DistributedError):
    """Another rank died or left: failed_ranks."""

    code = "peer_failed"


class AbortedError(DistributedError):
    """abort() was called, here or on another rank."""

    code = "aborted"


class StoppedError(DistributedError):
    """The job was told to end (SIGTERM)."""

    code = "stopped"


class MismatchError(DistributedError):
    """The ranks have called different operations; failed_ranks differ from most."""

    code = "mismatch"


class BackendError(DistributedError):
    """NCCL, CUDA or Gloo failed or is missing."""

    code = "backend"


class ResourceError(DistributedError):
    """The kernel refused: memory, descriptors, sockets, a file."""

    code = "system"


ERRORS: Dict[int, Type[DistributedError]] = {
    1: InvalidArgumentError, 2: NotInitializedError, 3: NotMemberError, 4: ForkedError, 5: JobEnvironmentError,
    6: RendezvousError, 7: OperationTimeout, 8: PeerFailedError, 9: AbortedError, 10: StoppedError, 11: MismatchError,
    12: BackendError, 13: ResourceError}
for _error in (DistributedError, *ERRORS.values()):
    _error.__module__ = "muster.distributed"  # The name for tracebacks and pickle.


class _Options(ctypes.Structure):
    """Sets struct_size and the values of muster.h's initialiser."""

    INITIAL: ClassVar[Dict[str, int]]

    def __init__(self, **members: Any) -> None:
        super().__init__(struct_size=ctypes.sizeof(self), **{**self.INITIAL, **members})


class InitOptions(_Options):
    INITIAL = {"timeout_ms": -1, "rank": -1, "world_size": -1, "local_rank": -1, "device": -1}
    _fields_ = [("struct_size", c_size_t), ("init_method", c_char_p), ("timeout_ms", c_int64), ("backend", c_int),
                ("rank", c_int), ("world_size", c_int), ("local_rank", c_int), ("device", c_int), ("on_sigterm", c_int)]


class GroupOptions(_Options):
    INITIAL = {"timeout_ms": -1, "backend": -1}
    _fields_ = [("struct_size", c_size_t), ("name", c_char_p), ("timeout_ms", c_int64), ("backend", c_int), ("site", c_void_p)]


class CallOptions(_Options):
    INITIAL = {"timeout_ms": -1, "cuda_device": -1}
    _fields_ = [("struct_size", c_size_t), ("timeout_ms", c_int64), ("stream", c_void_p), ("cuda_device", c_int),
                ("site", c_void_p)]


class P2P(ctypes.Structure):
    """One operation of a batch."""

    _fields_ = [("is_send", c_int), ("data", c_void_p), ("count", c_size_t), ("dtype", c_int), ("peer", c_int),
                ("tag", c_int)]


class Store(_Options):
    """A store of the program where the members of a group meet. The functions are called on the joining thread."""

    SET = ctypes.CFUNCTYPE(c_int, c_void_p, c_char_p, c_void_p, c_size_t)
    GET = ctypes.CFUNCTYPE(c_int, c_void_p, c_char_p, c_int64, c_void_p, c_size_t, ctypes.POINTER(c_size_t))
    ERROR = ctypes.CFUNCTYPE(c_void_p, c_void_p)
    INITIAL = {}
    _fields_ = [("struct_size", c_size_t), ("context", c_void_p), ("set", SET), ("get", GET), ("error", ERROR)]


class JoinOptions(_Options):
    INITIAL = {"timeout_ms": -1, "device": -1, "on_sigterm": STOP_IGNORE}
    _fields_ = [("struct_size", c_size_t), ("name", c_char_p), ("timeout_ms", c_int64), ("backend", c_int), ("device", c_int),
                ("on_sigterm", c_int), ("server_port", c_int), ("known_as", ctypes.POINTER(c_int)), ("server_host", c_char_p)]


# Result type of each function, then its parameters. p: an address, a handle, or a pointer to a structure.
_TYPES: Dict[str, Any] = {"i": c_int, "l": c_int64, "n": c_size_t, "p": c_void_p, "s": c_char_p, "u": c_uint64,
                          "v": None}
_FUNCTIONS: Dict[str, str] = {name: types for name, _, types in (row.partition(":") for row in """
    abi_version:i status_name:si dtype_name:si reduce_op_name:si dtype_size:ni last_error_code:i last_error:s
    last_error_operation:s last_error_group:s last_error_ranks:npn init:ip destroy:v is_initialized:i rank:i
    world_size:i local_rank:i local_world_size:i node_rank:i restart_count:i cuda_device:i is_nccl_available:i
    is_gloo_available:i world:ip new_group:ipnpp split:ipiipp group_free:vp group_is_member:ip group_rank:ip
    group_size:ip group_global_rank:ipi group_from_global_rank:ipi group_name:sp group_join:ipiipp group_leave:ip
    group_abort:ips group_failure:ip group_shrink:ippp group_agree:ipupp barrier:ippp monitored_barrier:ipip broadcast:ippniipp reduce:ipppniiipp
    all_reduce:ipppniipp gather:ipppniipp gather_v:ippnppiipp all_gather:ipppnipp all_gather_v:ippppipp
    scatter:ipppniipp scatter_v:ippppniipp reduce_scatter:ipppniipp reduce_scatter_v:ippppiipp all_to_all:ipppnipp
    all_to_all_v:ipppppipp send:ippniiipp recv:ippniiippp batch:ippnpp broadcast_bytes:ippnippp
    all_gather_bytes:ippnppp free:vp allocate_shared:ipnpp shared_memory_data:pp shared_memory_bytes:np
    shared_memory_free:vp should_stop:ipp request_stop:i section_enter:is section_leave:v work_wait:ipl
    work_synchronize:ip work_status:ip work_source:ip work_free:vp name_site:ps
    """.split())}

_library: Optional[ctypes.CDLL] = None


def load() -> ctypes.CDLL:
    """Returns the library of this package, opened once. Raises ImportError if it is missing or of another version."""
    global _library
    if _library is None:
        _library = _open(muster.get_library())
    return _library


class Uncaught:
    """Tracks uncaught exceptions since this object was made; the program has survived earlier ones."""

    def __init__(self) -> None:
        self.before = self.last()

    @staticmethod
    def last() -> Tuple[Any, Any]:
        """Under the names of Python 3.12 and of older versions."""
        return getattr(sys, "last_exc", None), getattr(sys, "last_value", None)

    def is_there(self) -> bool:
        """True if there is one; not at a prompt, where the session continues."""
        return not hasattr(sys, "ps1") and any(now is not None and now is not before for now, before in zip(self.last(), self.before))


def _open(path: str) -> ctypes.CDLL:
    try:
        library = ctypes.CDLL(path)
    except OSError as error:
        raise ImportError(f"the worker library cannot be opened: {error}; install the wheel of muster-launch again") from None
    version = library.muster_abi_version()
    if version != ABI_VERSION:
        raise ImportError(f"{path} has version {version} of the interface and this package needs {ABI_VERSION}; install the wheel "
                          "of muster-launch again")
    for name, types in _FUNCTIONS.items():
        function = getattr(library, f"muster_{name}")
        function.restype, *function.argtypes = (_TYPES[each] for each in types)
    return library


EXCHANGES = "send(async_op=True) or batch()"  # The advice for ranks that both send first.
# C names in the library's messages, to be replaced by this package's.
_NAME_IN_C = re.compile(r"\bmuster_(?:group_|init_options\.)?(\w+)")


def _in_words_of_python(message: str) -> str:
    def named(match: Match[str]) -> str:
        name = match[1]
        known = "." in match[0] or match[0].partition("_")[2] in _FUNCTIONS
        return {"timeout_ms": "timeout"}.get(name, name) if known else match[0]

    message = _NAME_IN_C.sub(named, message).replace("recv() with from < 0 receives", "recv() without a source receives")
    return message.replace("send() with a work or batch()", EXCHANGES)


def text_of(name: Optional[bytes]) -> str:
    return (name or b"").decode(errors="replace")


def last_error() -> DistributedError:
    """Returns the failure of this thread's last failing call."""
    library = load()
    code = library.muster_last_error_code()
    count = library.muster_last_error_ranks(None, 0)
    ranks = (c_int * count)()
    library.muster_last_error_ranks(ranks, count)
    error = ERRORS.get(code, DistributedError)(
        _in_words_of_python(text_of(library.muster_last_error())),
        _in_words_of_python(text_of(library.muster_last_error_operation())), text_of(library.muster_last_error_group()), ranks)
    if code not in ERRORS:
        error.code = text_of(library.muster_status_name(code))
    return error


def raise_last() -> NoReturn:
    raise last_error()


def check(status: int) -> None:
    """Raises this thread's last failure unless `status` is 0."""
    if status:
        raise last_error()


def check_number(number: int) -> int:
    """Variant for functions that return a number, or -1."""
    if number < 0:
        raise last_error()
    return number


def short(value: Any) -> str:
    """Returns a short text for a message, on one line."""
    try:
        text = " ".join(repr(value).split())
    except Exception:  # A closed file, or an integer with too many digits.
        text = object.__repr__(value)
    return text if len(text) <= 60 else text[:57] + "..."


def text_for_c(text: Any, what: str) -> Optional[bytes]:
    """Encodes a string; None stays None."""
    if text is None:
        return None
    if not isinstance(text, str):
        raise TypeError(f"{what} is a string, not {short(text)}")
    if "\0" in text:
        raise InvalidArgumentError(f"{what} has a character NUL: {short(text)}")
    return text.encode(errors="replace")


def milliseconds(timeout: Optional[float]) -> int:
    """Converts seconds; None: the default. Rounds up: anything above 0 is at least 1 ms."""
    if timeout is None:
        return -1
    try:
        is_valid = bool(timeout >= 0)  # False for NaN.
    except (TypeError, ValueError, ArithmeticError):
        raise TypeError(f"timeout is a number of seconds, or None, not {short(timeout)}") from None
    if not is_valid:
        raise InvalidArgumentError(f"timeout is a number of seconds from 0 on, or None, not {short(timeout)}")
    return math.ceil(timeout * 1000) if timeout < LONGEST_MS / 1000 else LONGEST_MS


LONGEST_MS = 10 * 365 * 24 * 3600 * 1000


class Sites:
    """Places of calls in the program, for the report of a hang: the first frame outside of `inside` (file names or prefixes of
    them). Used only if a launcher listens."""

    CODES_MAX = 4096
    FRAMES_MAX = 100

    def __init__(self, inside: Tuple[str, ...]) -> None:
        library = load()
        self.inside = inside
        self.is_wanted = bool(os.environ.get("MUSTER_RECORD_FD"))
        self.name_site = library.muster_name_site
        self.codes: Dict[int, Tuple[Any, bool]] = {}  # Keyed by id(); keeps the code, so that the id stays unique.
        self.sites: Dict[Tuple[int, int], int] = {}

    def current(self) -> int:
        """Returns CallOptions.site; 0: unknown."""
        frame: Any = sys._getframe(1)
        for _ in range(self.FRAMES_MAX):
            if frame is None:
                break
            code = frame.f_code
            if not self.is_inside(code):
                key = id(code), frame.f_lasti
                site = self.sites.get(key, 0)
                if not site:  # 0 if asked for before the recorder was ready.
                    site = self.sites[key] = self.name_site(site_text(frame).encode()) or 0
                return site
            frame = frame.f_back
        return 0

    def is_inside(self, code: Any) -> bool:
        known = self.codes.get(id(code))
        if known is None:
            if len(self.codes) >= self.CODES_MAX:
                self.codes.clear()
                self.sites.clear()
            known = self.codes[id(code)] = (code, code.co_filename.startswith(self.inside))
        return known[1]


def site_text(frame: Any) -> str:
    code = frame.f_code
    function = "" if code.co_name == "<module>" else f" {code.co_name}"
    return f"{os.path.basename(code.co_filename)}:{frame.f_lineno}{function}"
