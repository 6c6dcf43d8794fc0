"""Addresses and element types of arrays, for the worker library: numpy arrays, torch tensors, any object with the buffer protocol
(bytearray, array.array, memoryview) or DLPack (jax, cupy).

Nothing is copied. numpy and torch are not imported here: a program that has such arrays has them.
"""
from __future__ import annotations

import array as arrays
import ctypes
import math
import operator
import sys
from typing import Any, Dict, FrozenSet, Optional, Sequence, Tuple, Type

from muster import _library
from muster._library import InvalidArgumentError, short

HOST = -1  # Takes the place of a GPU's index.


class Kind:
    """An element as the library sees it: `parts` numbers of one of its types. `operations`: the reductions valid for it; None: all
    that the library has for that type."""

    __slots__ = ("name", "code", "parts", "operations", "item_size")

    def __init__(self, name: str, code: int, parts: int = 1, operations: Optional[FrozenSet[int]] = None) -> None:
        self.name, self.code, self.parts, self.operations = name, code, parts, operations
        self.item_size = parts * _library.ITEM_SIZES[code]


_LOGICAL = frozenset((_library.MIN, _library.MAX, _library.BAND, _library.BOR, _library.BXOR))
KINDS: Dict[str, Kind] = {name: Kind(name, code) for name, code in _library.DTYPES.items()}
for _kind in (Kind("uint16", _library.INT16, 1, _library.SIGNLESS), Kind("uint32", _library.INT32, 1, _library.SIGNLESS),
              Kind("uint64", _library.INT64, 1, _library.SIGNLESS), Kind("bool", _library.UINT8, 1, _LOGICAL),
              Kind("complex64", _library.FLOAT32, 2, _library.OF_PARTS), Kind("complex128", _library.FLOAT64, 2, _library.OF_PARTS)):
    KINDS[_kind.name] = _kind

# (address or None, number of elements, their kind, GPU index or HOST, an object that keeps the memory alive)
Buffer = Tuple[Optional[int], int, Kind, int, Any]

_byte_of = ctypes.c_char.from_buffer
_address_of = ctypes.addressof


class Family:
    """Reads arrays of one library. `who` begins each message: "all_reduce: out". `stream`: the one they are used on."""

    def buffer(self, array: Any, is_written: bool, who: str, stream: Optional[int] = None) -> Buffer:
        raise NotImplementedError

    def shape(self, array: Any) -> Optional[Tuple[int, ...]]:
        """None: only a length."""
        raise NotImplementedError

    def new(self, array: Any, shape: Sequence[int], who: str) -> Any:
        """Returns an uninitialised array of the same element type."""
        raise NotImplementedError


def kind_of(name: str, who: str) -> Kind:
    kind = KINDS.get(name)
    if kind is None:
        raise TypeError(f"{who} has elements of type {name}, and the library has {', '.join(KINDS)}")
    return kind


def unfit(who: str, what: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"{who} {what}", who.partition(":")[0])


def not_contiguous(who: str, remedy: str) -> InvalidArgumentError:
    return unfit(who, f"is not C-contiguous: pass {remedy}, or a copy of it")


def stream_number(stream: Any) -> int:
    try:
        number = operator.index(stream)
    except TypeError:
        raise TypeError(f"stream is a cudaStream_t as a number, as torch's cuda_stream is, not {short(stream)}") from None
    if not 0 <= number < 1 << 64:
        raise InvalidArgumentError(f"stream is a cudaStream_t as a number, not {short(stream)}")
    return number


def read_only(who: str) -> InvalidArgumentError:
    return unfit(who, "is read-only, and the result is to be written into it")


class Numpy(Family):
    def __init__(self, numpy: Any) -> None:
        self.numpy = numpy
        self.kinds: Dict[Any, Kind] = {}

    def buffer(self, array: Any, is_written: bool, who: str, stream: Optional[int] = None) -> Buffer:
        kind = self.kinds.get(array.dtype) or self.kind(array.dtype, who)
        try:
            keep = _byte_of(array)  # Faster than array.ctypes; refuses read-only and non-contiguous arrays.
            return _address_of(keep), array.size, kind, HOST, keep
        except (TypeError, ValueError):  # Also empty, or of a dtype unknown to the buffer protocol.
            pass
        if not array.flags.c_contiguous:
            raise not_contiguous(who, "numpy.ascontiguousarray(it)")
        if is_written and not array.flags.writeable:
            raise read_only(who)
        return array.__array_interface__["data"][0], array.size, kind, HOST, array

    def kind(self, dtype: Any, who: str) -> Kind:
        if not dtype.isnative:
            raise TypeError(f"{who} has elements of type {dtype.str}, of another byte order: pass it with .astype({dtype.name!r})")
        kind = self.kinds[dtype] = kind_of(dtype.name, who)
        return kind

    def shape(self, array: Any) -> Optional[Tuple[int, ...]]:
        shape: Tuple[int, ...] = array.shape
        return shape

    def new(self, array: Any, shape: Sequence[int], who: str) -> Any:
        return self.numpy.empty(tuple(shape), array.dtype)


class NumpyScalar(Numpy):
    def buffer(self, array: Any, is_written: bool, who: str, stream: Optional[int] = None) -> Buffer:
        if is_written:
            raise read_only(who)
        return super().buffer(self.numpy.asarray(array), False, who)


class Torch(Family):
    def __init__(self, torch: Any) -> None:
        self.torch = torch
        self.storage_of = getattr(torch.Tensor, "untyped_storage", torch.Tensor.storage)  # Named so since PyTorch 2.0.
        self.kinds = {getattr(torch, name): kind for name, kind in KINDS.items() if hasattr(torch, name)}

    def buffer(self, array: Any, is_written: bool, who: str, stream: Optional[int] = None) -> Buffer:
        kind = self.kinds.get(array.dtype)
        if kind is None:
            kind = kind_of(str(array.dtype).rpartition(".")[2], who)
        if array.layout is not self.torch.strided:
            raise unfit(who, f"has the layout {array.layout}: pass its parts, or .to_dense()")
        if array.is_nested:
            raise unfit(who, "is a nested tensor: pass its parts")
        if not array.is_contiguous() or array.is_neg() or kind.parts > 1 and array.is_conj():
            raise not_contiguous(who, "its .resolve_conj().resolve_neg().contiguous()")
        device = HOST
        if not array.is_cpu:
            if array.device.type != "cuda":
                raise unfit(who, f"is on the device {array.device}: the library has host memory and NVIDIA GPUs")
            device = array.device.index
        keep = array, self.storage_of(array)  # A tensor's storage may be replaced while in flight: x.data = ...
        return array.data_ptr(), array.numel(), kind, device, keep

    def shape(self, array: Any) -> Optional[Tuple[int, ...]]:
        return tuple(array.shape)

    def new(self, array: Any, shape: Sequence[int], who: str) -> Any:
        return self.torch.empty(tuple(shape), dtype=array.dtype, device=array.device)


class Plain(Family):
    """Objects with the buffer protocol."""

    def buffer(self, array: Any, is_written: bool, who: str, stream: Optional[int] = None) -> Buffer:
        try:
            view = memoryview(array)
        except (BufferError, ValueError) as error:  # Released, or closed.
            raise unfit(who, f"cannot be read: {error}") from None
        kind = _kind_of_format(view.format, view.itemsize, who)
        if not view.c_contiguous:
            raise not_contiguous(who, "bytes(it)")
        if is_written and view.readonly:
            raise read_only(who)
        if view.nbytes == 0:
            return None, 0, kind, HOST, view
        address = _address_of_read_only(view) if view.readonly else _address_of(_byte_of(view))
        return address, view.nbytes // view.itemsize, kind, HOST, view

    def shape(self, array: Any) -> Optional[Tuple[int, ...]]:
        return None

    def new(self, array: Any, shape: Sequence[int], who: str) -> Any:
        view = memoryview(array)
        count = math.prod(shape)
        kind = _kind_of_format(view.format, view.itemsize, who)
        if kind.name == "uint8":
            return bytearray(count)
        code = view.format.lstrip("@")
        if code not in arrays.typecodes:
            code = _CODES.get(kind.name, "")
        if not code:
            raise unfit(f"{who}:", f"there is no array.array of {kind.name} for the result: pass out=")
        return arrays.array(code, bytes(kind.item_size)) * count


# Type codes of array.array, whose sizes depend on the machine.
_CODES = {f"{sign}int{8 * arrays.array(code).itemsize}": code
          for sign, codes in (("", "lqihb"), ("u", "LQIHB")) for code in codes}
_CODES.update(float32="f", float64="d")


class DLPack(Family):
    """Objects with __dlpack__() (https://github.com/dmlc/dlpack)."""

    CPU, CUDA, CUDA_HOST, CUDA_MANAGED = 1, 2, 3, 13
    TYPES = {0: "int", 1: "uint", 2: "float", 4: "bfloat", 5: "complex", 6: "bool"}
    READ_ONLY, IS_COPIED = 1, 2

    def buffer(self, array: Any, is_written: bool, who: str, stream: Optional[int] = None) -> Buffer:
        device_type, index = array.__dlpack_device__()
        if device_type not in (self.CPU, self.CUDA, self.CUDA_HOST, self.CUDA_MANAGED):
            raise unfit(who, f"is on device {int(device_type)} of DLPack's: the library has host memory and NVIDIA GPUs")
        is_on_gpu = device_type in (self.CUDA, self.CUDA_MANAGED)
        # The producer makes this stream wait for the data. 1: the legacy default stream.
        capsule = self.export(array, {"stream": stream_number(stream or 0) or 1} if is_on_gpu else {}, who)
        tensor, flags = _tensor_of(capsule)
        if is_written and flags & self.IS_COPIED:
            raise unfit(who, "gives a copy of itself by DLPack, and the result is to be written into it")
        if is_written and (flags & self.READ_ONLY or type(array).__module__.partition(".")[0] in ("jax", "jaxlib")):
            raise read_only(who)
        shape = tensor.shape[:tensor.ndim]
        count = math.prod(shape)
        if count > 1 and tensor.strides and not _is_contiguous(shape, tensor.strides[:tensor.ndim]):
            raise not_contiguous(who, "a contiguous one")
        if tensor.lanes != 1 or tensor.type not in self.TYPES:
            raise TypeError(f"{who} has elements of a type ({tensor.type}, {tensor.bits} bits) that the library has not")
        bits = "" if tensor.type == 6 else str(tensor.bits)
        kind = kind_of(self.TYPES[tensor.type] + bits, who)
        address = tensor.data + tensor.byte_offset if tensor.data else None
        return address, count, kind, index if is_on_gpu else HOST, (array, capsule)

    def export(self, array: Any, options: Dict[str, int], who: str) -> Any:
        try:
            for newer in ({"max_version": (1, 0), "copy": False}, {"max_version": (1, 0)}):
                try:
                    return array.__dlpack__(**newer, **options)
                except TypeError:  # Older protocol.
                    pass
            return array.__dlpack__(**options)
        except BufferError as error:
            raise unfit(who, f"cannot be had by DLPack: {error}") from None

    def shape(self, array: Any) -> Optional[Tuple[int, ...]]:
        return tuple(array.shape)

    def new(self, array: Any, shape: Sequence[int], who: str) -> Any:
        _, _, kind, device, _ = self.buffer(array, False, who)
        numpy = numpy_for(f"{who} without out=")
        try:
            dtype = numpy.dtype(kind.name)  # Includes bfloat16 with ml_dtypes, which jax has.
        except TypeError:
            dtype = None
        if device != HOST or dtype is None:
            raise unfit(f"{who}:", "pass out= for the result, of the array's library")
        return numpy.empty(tuple(shape), dtype)


class _Tensor(ctypes.Structure):
    """DLTensor."""

    _fields_ = [("data", ctypes.c_void_p), ("device_type", ctypes.c_int32), ("device", ctypes.c_int32), ("ndim", ctypes.c_int32),
                ("type", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16),
                ("shape", ctypes.POINTER(ctypes.c_int64)), ("strides", ctypes.POINTER(ctypes.c_int64)),
                ("byte_offset", ctypes.c_uint64)]


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _fields_ = [("version", ctypes.c_uint32 * 2), ("context", ctypes.c_void_p), ("deleter", ctypes.c_void_p),
                ("flags", ctypes.c_uint64), ("tensor", _Tensor)]


class _View(ctypes.Structure):
    """Py_buffer."""

    _fields_ = [("buf", ctypes.c_void_p), ("obj", ctypes.c_void_p), ("rest", ctypes.c_byte * 128)]


_pointer_in = ctypes.pythonapi.PyCapsule_GetPointer
_pointer_in.restype, _pointer_in.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_is_capsule = ctypes.pythonapi.PyCapsule_IsValid
_is_capsule.argtypes = [ctypes.py_object, ctypes.c_char_p]
_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = [ctypes.py_object, ctypes.c_void_p, ctypes.c_int]
_release_buffer = ctypes.pythonapi.PyBuffer_Release
_release_buffer.restype, _release_buffer.argtypes = None, [ctypes.c_void_p]


def _tensor_of(capsule: Any) -> Tuple[_Tensor, int]:
    """Returns the tensor and its flags. The capsule stays ours: its memory is freed with it."""
    if _is_capsule(capsule, b"dltensor_versioned"):
        managed = _Versioned.from_address(_pointer_in(capsule, b"dltensor_versioned"))
        return managed.tensor, managed.flags
    return _Tensor.from_address(_pointer_in(capsule, b"dltensor")), 0


def _is_contiguous(shape: Sequence[int], strides: Sequence[int]) -> bool:
    expected = 1
    for length, stride in zip(reversed(shape), reversed(strides)):
        if length > 1 and stride != expected:
            return False
        expected *= length
    return True


def _address_of_read_only(view: memoryview) -> int:
    """Returns the address, which ctypes gives for writable memory only. The view keeps it in place."""
    found = _View()
    _get_buffer(view, ctypes.byref(found), 0)
    address: int = found.buf
    _release_buffer(ctypes.byref(found))
    return address


def _kind_of_format(text: str, size: int, who: str) -> Kind:
    code = text.lstrip("@=") if text[:1] != ("<" if sys.byteorder == "little" else ">") else text[1:]
    if len(code) == 1 and code in "bhilqn":
        return KINDS[f"int{8 * size}"]
    if len(code) == 1 and code in "cBHILQN":
        return KINDS[f"uint{8 * size}"]
    if code == "?":
        return KINDS["bool"]
    name = {"e": "float16", "f": "float32", "d": "float64", "Zf": "complex64", "Zd": "complex128"}.get(code)
    return kind_of(name or short(text), who)


def numpy_for(what: str) -> Any:
    try:
        import numpy
    except ImportError:
        raise InvalidArgumentError(f"{what} needs numpy, which is not installed") from None
    return numpy


_families: Dict[Type[Any], Family] = {}
_made: Dict[str, Family] = {}


def _made_for(name: str) -> Optional[Family]:
    """Returns numpy's or torch's Family, if the program has imported it."""
    module = sys.modules.get(name)
    if name not in _made and module is not None:
        _made[name] = Numpy(module) if name == "numpy" else Torch(module)
    return _made.get(name)


def family_of(array: Any, who: str) -> Family:
    kind = type(array)
    family = _families.get(kind)
    if family is None:
        family = _families[kind] = _find_family(array, who)
    return family


def _find_family(array: Any, who: str) -> Family:
    numpy, torch, masked = _made_for("numpy"), _made_for("torch"), sys.modules.get("numpy.ma")
    if masked is not None and isinstance(array, masked.MaskedArray):
        raise TypeError(f"{who} is a masked array, and the library knows no masks: pass its .filled() or its .data")
    if isinstance(numpy, Numpy) and isinstance(array, numpy.numpy.ndarray):
        return numpy
    if isinstance(numpy, Numpy) and isinstance(array, numpy.numpy.generic):
        return NumpyScalar(numpy.numpy)
    if isinstance(torch, Torch) and isinstance(array, torch.torch.Tensor):
        return torch
    if hasattr(array, "__dlpack__") and hasattr(array, "__dlpack_device__"):
        return DLPack()
    try:
        memoryview(array)
    except TypeError:
        pass
    except (BufferError, ValueError):  # Has the protocol, but is closed.
        return Plain()
    else:
        return Plain()
    raise TypeError(f"{who} is of type {type(array).__name__}, and an array is expected: a numpy array, a torch tensor, or what "
                    "has the buffer protocol or DLPack")
