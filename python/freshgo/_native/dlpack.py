"""Arrays on their way into the library (descriptions) and out of it (DLPack capsules)."""

from __future__ import annotations

import ctypes
import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from operator import mul
from typing import TYPE_CHECKING, Any

import torch
from torch.utils.dlpack import from_dlpack

from freshgo._args.arrays import Array, EdgeFiles, NpyFile, Pipe, Stream, in_native_order
from freshgo._native import abi, header
from freshgo.errors import DTypeError, InvalidArgumentError

if TYPE_CHECKING:
    import numpy as np

_INT, _UINT, _FLOAT, _BFLOAT, _BOOL = 0, 1, 2, 4, 6

_DTYPES: dict[str, tuple[int, int]] = {
    "bool": (_BOOL, 8),
    "int8": (_INT, 8),
    "int16": (_INT, 16),
    "int32": (_INT, 32),
    "int64": (_INT, 64),
    "uint8": (_UINT, 8),
    "uint16": (_UINT, 16),
    "uint32": (_UINT, 32),
    "uint64": (_UINT, 64),
    "float16": (_FLOAT, 16),
    "bfloat16": (_BFLOAT, 16),
    "float32": (_FLOAT, 32),
    "float64": (_FLOAT, 64),
}
"""DLPack's code and width of every dtype, by the name that PyTorch and NumPy share."""

_INSTEAD = {
    "complex": "torch.view_as_real({}), pairs of floats",
    "float8": "{}.to(torch.float16)",
    "quint": "{}.dequantize()",
    "qint": "{}.dequantize()",
}
"""What to store of a tensor with another dtype, by how its name begins."""

_BIG_ENDIAN = " (big-endian)"


@dataclass(frozen=True)
class _Layout:
    """An array taken apart: address in memory, or offset in a file; strides in bytes."""

    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    address: int
    path: str | None = None
    pipe: int = 0

    @property
    def item_bytes(self) -> int:
        return _DTYPES[self.dtype][1] // 8

    def extent(self) -> tuple[int, int]:
        """First byte and the one after the last."""
        if 0 in self.shape:
            return self.address, self.address
        reach = [(n - 1) * stride for n, stride in zip(self.shape, self.strides, strict=True)]
        low = self.address + sum(r for r in reach if r < 0)
        return low, self.address + sum(r for r in reach if r > 0) + self.item_bytes

    def readable_from_file(self) -> bool:
        """Whether rows, or else columns, lie in a file without gaps and in order."""
        if not self.shape or min(self.strides) < 0:
            return False
        dense = _dense_strides(self.shape, self.item_bytes)
        pairs = zip(self.shape[1:], self.strides[1:], dense[1:], strict=True)
        rows = all(n <= 1 or stride == want for n, stride, want in pairs)
        row_bytes = dense[0] if len(self.shape) else self.item_bytes
        return (rows and self.strides[0] >= row_bytes) or self.strides[0] == self.item_bytes


class ArrayList:
    """Descriptions of arrays for one call, and everything that must stay alive while the library may read them."""

    def __init__(self, *, map_files: bool = False) -> None:
        """With ``map_files``, an array that is a shared mapping of a file is described as that file."""
        self._alive: list[Any] = []
        self._mappings = _shared_mappings() if map_files else []

    def one(self, name: str, array: Array) -> header.Array:
        """Describe one array."""
        layout = _layout(name, array)
        if layout.path is None and not layout.pipe:
            layout = next((m for m in (r.apply(layout) for r in self._mappings) if m is not None), layout)
        code, bits = _DTYPES[layout.dtype]
        ndim = len(layout.shape)
        raw = header.Array(
            name=c_string(name),
            dtype=header.DataType(code, bits, 1),
            ndim=ndim,
            pipe=layout.pipe,
            shape=(ctypes.c_int64 * ndim)(*layout.shape),
            strides=(ctypes.c_int64 * ndim)(*layout.strides),
        )
        if layout.pipe:
            pass
        elif layout.path is None:
            raw.data = layout.address
        else:
            raw.path, raw.offset = os.fsencode(layout.path), layout.address
        self._alive.append((array, raw))
        return raw

    def several(self, name: str, arrays: Sequence[Array]) -> tuple[Any, int]:
        """Describe arrays of one name: a pointer and a count."""
        raw = (header.Array * len(arrays))(*(self.one(name, array) for array in arrays))
        self._alive.append(raw)
        return raw, len(raw)

    def many(self, arrays: Mapping[str, Array], forms: Mapping[str, str] | None = None) -> tuple[Any, int]:
        """Describe named arrays, and in which form some are to be stored: a pointer and a count."""
        raw = (header.Array * len(arrays))(*(self.one(name, array) for name, array in arrays.items()))
        for one, name in zip(raw, arrays, strict=True):
            if forms and name in forms:
                one.stored = forms[name].encode()
        self._alive.append(raw)
        return raw, len(raw)


def describe(raw: header.Array, name: str, dtype: str, shape: tuple[int, ...], offset: int) -> None:
    """Describe an array in place, row-major and at an offset. It keeps alive what it points to."""
    code, bits = _DTYPES[dtype]
    raw.name, raw.dtype, raw.ndim, raw.offset = name.encode(), header.DataType(code, bits, 1), len(shape), offset
    raw.shape = (ctypes.c_int64 * len(shape))(*shape)


def use_versioned() -> bool:
    """Whether this PyTorch takes the versioned capsule."""
    return hasattr(torch._C, "_to_dlpack_versioned")


def to_torch(tensors: ctypes.Array[header.Tensor], count: int, versioned: bool) -> dict[str, torch.Tensor]:
    """Take the first ``count`` tensors over, by name: their memory is freed with the last reference to them.

    All capsules exist before the first is consumed, so an error on the way leaks none.
    """
    names = [(tensors[i].name or b"").decode() for i in range(count)]  # before the tensors, whose part they are, go
    return dict(zip(names, map(from_dlpack, abi.new_capsules(tensors, count, versioned)), strict=True))


def discard(tensors: ctypes.Array[header.Tensor], count: int, versioned: bool) -> None:
    """Free those of the first ``count`` tensors that nobody has taken over."""
    left = [tensors[i].managed for i in range(count) if tensors[i].managed]
    abi.new_capsules(
        (header.Tensor * len(left))(*(header.Tensor(managed=managed) for managed in left)), len(left), versioned
    )


def _layout(name: str, array: Array) -> _Layout:
    if isinstance(array, torch.Tensor):
        if array.device.type != "cpu" or array.layout != torch.strided:
            raise DTypeError(f"{name} must be a dense tensor on the CPU, got layout {array.layout} on {array.device}")
        dtype = _known(name, str(array.dtype).removeprefix("torch."))
        item = array.element_size()
        return _Layout(dtype, tuple(array.shape), tuple(s * item for s in array.stride()), array.data_ptr())
    if isinstance(array, NpyFile):
        dtype = _known(name, _numpy_name(array.dtype))
        item = array.dtype.itemsize
        strides = _dense_strides(array.shape[::-1], item)[::-1] if array.fortran else _dense_strides(array.shape, item)
        return _Layout(dtype, tuple(array.shape), strides, array.offset, array.path)
    if isinstance(array, Pipe):
        dtype = _known(name, _numpy_name(array.dtype))
        return _Layout(dtype, array.shape, _dense_strides(array.shape, array.dtype.itemsize), 0, pipe=array.descriptor)
    assert not isinstance(array, Stream | EdgeFiles), f"{name} has not been put where the library can read it"
    interface = getattr(array, "__array_interface__", None)
    if interface is None:
        raise DTypeError(f"{name} must be a torch tensor or a NumPy array, got {type(array).__name__}")
    dtype = _known(name, _numpy_name(array.dtype))
    return _Layout(dtype, tuple(array.shape), tuple(array.strides), interface["data"][0])


def c_string(name: str) -> bytes:
    """Return the name of a tensor as the library takes it."""
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        encoded = b"\0"
    if 0 in encoded:  # it would end there
        raise InvalidArgumentError(f"the name of a tensor must be text without zero characters, got {name!r}")
    return encoded


def _known(name: str, dtype: str) -> str:
    if dtype not in _DTYPES:
        how = next((f": store {of.format(name)}" for begins, of in _INSTEAD.items() if dtype.startswith(begins)), "")
        if dtype.endswith(_BIG_ENDIAN):
            raise DTypeError(f"{name} has dtype {dtype}{in_native_order(name)}")
        raise DTypeError(f"{name} has dtype {dtype}, expected one of {', '.join(_DTYPES)}{how}")
    return dtype


def _numpy_name(dtype: np.dtype[Any]) -> str:
    return dtype.name if dtype.isnative or dtype.itemsize == 1 else f"{dtype.name}{_BIG_ENDIAN}"


def _dense_strides(shape: Sequence[int], item: int) -> tuple[int, ...]:
    sizes = [max(n, 1) for n in shape]
    return tuple(accumulate(sizes[:0:-1], mul, initial=item))[::-1] if sizes else ()


@dataclass(frozen=True)
class _Mapping:
    """A shared mapping of a regular file into this process."""

    start: int
    end: int
    offset: int
    path: str

    def apply(self, layout: _Layout) -> _Layout | None:
        """The same array as a part of the file, if it is one."""
        low, high = layout.extent()
        if low == high or low < self.start or high > self.end or not layout.readable_from_file():
            return None
        return _Layout(layout.dtype, layout.shape, layout.strides, layout.address - self.start + self.offset, self.path)


def _shared_mappings() -> list[_Mapping]:
    """The shared file mappings of this process whose files are still those at their paths.

    Only shared ones: a private mapping may hold changes that the file does not have.
    """
    found = []
    with open("/proc/self/maps", "rb") as maps:  # noqa: PTH123 (bytes of one pseudo file)
        for line in maps:
            fields = line.rstrip(b"\n").split(None, 5)
            if len(fields) < 6 or fields[1][3:4] != b"s" or not fields[5].startswith(b"/"):
                continue
            start, end = (int(part, 16) for part in fields[0].split(b"-"))
            path = os.fsdecode(fields[5].replace(b"\\012", b"\n"))
            if _is_file(path, fields[3].decode(), int(fields[4])):
                found.append(_Mapping(start, end, int(fields[2], 16), path))
    return found


def _is_file(path: str, device: str, inode: int) -> bool:
    """Whether ``path`` names the regular file with this device (major:minor, in hexadecimal) and inode."""
    try:
        now = os.stat(path)  # noqa: PTH116 (a path as the system has it)
    except OSError:
        return False
    major, minor = (int(part, 16) for part in device.split(":"))
    return stat.S_ISREG(now.st_mode) and now.st_ino == inode and now.st_dev == os.makedev(major, minor)
