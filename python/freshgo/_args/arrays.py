"""Arrays of users as tensors: whatever strides they have and whether they may be written or not."""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from freshgo.errors import DTypeError


@dataclass(frozen=True)
class NpyFile:
    """The data of a ``.npy`` file: where in the file they begin, their NumPy dtype and shape, and the order."""

    path: str
    offset: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool = False


@dataclass(frozen=True)
class EdgeFiles:
    """The edges of several ``.npy`` files, one after the other: each ``[2, edges]``, all of one dtype."""

    files: tuple[NpyFile, ...]

    @property
    def dtype(self) -> np.dtype[Any]:
        return self.files[0].dtype

    @property
    def shape(self) -> tuple[int, ...]:
        return (2, sum(file.shape[1] for file in self.files))


@dataclass(frozen=True, eq=False)
class Stream:
    """An array that is made while it is read, in C order: of an archive that is compressed, of rows that a program
    reads. Each call of ``pieces`` begins anew, and what it yields are the bytes of the array, in pieces of any size."""

    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    pieces: Callable[[], Iterator[Any]]
    stop: Callable[[], object] = lambda: None
    """Ends the waiting of a piece that nobody needs any more, from any thread."""

    def column(self, column: int) -> Stream:
        """Return a column of two dimensions, for which all of them are read."""
        width = self.shape[1] * self.dtype.itemsize

        def pieces() -> Iterator[Any]:
            rest = b""
            for piece in self.pieces():
                rest += bytes(memoryview(piece).cast("B"))
                whole = len(rest) // width * width
                rows = np.frombuffer(rest[:whole], self.dtype).reshape(-1, self.shape[1])
                yield np.ascontiguousarray(rows[:, column])
                rest = rest[whole:]

        return Stream(f"{self.name}[:, {column}]", self.dtype, self.shape[:1], pieces)


@dataclass(frozen=True)
class Pipe:
    """An open pipe from which an array comes once, in C order."""

    descriptor: int
    dtype: np.dtype[Any]
    shape: tuple[int, ...]


ArrayLike = Tensor | np.ndarray[Any, Any]
Array = ArrayLike | NpyFile | EdgeFiles | Stream | Pipe

_NO_NUMBERS = {"U": "text", "S": "bytes", "O": "objects", "M": "dates", "m": "spans of time", "V": "records"}
"""What arrays of these kinds of NumPy hold."""

_PIECE = 1 << 20  # numbers that are compared at a time, so that what they are compared with is small; arbitrary


_PAGE, _PER_PAGE = 4096, 819
"""Bytes of a page of a store, and how many numbers of five bytes one holds."""


def stored_dtype(name: str) -> np.dtype[Any]:
    """Return the dtype of an array of a store by its name; ``uint40``, which NumPy lacks, is five bytes."""
    return np.dtype("V5" if name == "uint40" else name)


def read_uint40(read: Callable[[memoryview, int], object], first: int, count: int) -> np.ndarray[Any, Any]:
    """Return ``count`` numbers of five bytes, of a file of a store, from number ``first`` on, as int64. ``read`` fills
    memory from an offset of the file on."""
    begin, end = first // _PER_PAGE, -(-(first + count) // _PER_PAGE)
    pages = np.empty((end - begin, _PAGE), np.uint8)
    if count:
        read(pages.reshape(-1).data, begin * _PAGE)
    skip = first - begin * _PER_PAGE
    wide = np.zeros((count, 8), np.uint8)
    wide[:, :5] = pages[:, : 5 * _PER_PAGE].reshape(-1, 5)[skip : skip + count]
    return wide.view("<i8").reshape(-1)


def as_tensor(value: object) -> Tensor:
    """Return a tensor as it is, and anything else as NumPy reads it: over the same memory where PyTorch has such
    strides.

    Raises:
        TypeError, ValueError: NumPy reads no numbers there, or none that PyTorch has. DTypeError, a TypeError: a tensor
            is sparse or nested, or on the meta device; an array has its bytes in another order.
    """
    if isinstance(value, Tensor):
        if value.layout != torch.strided or value.is_nested or value.is_meta:
            kind = "nested" if value.is_nested else str(value.layout)
            raise DTypeError(f"expected a dense tensor that holds values, got a {kind} one on {value.device}")
        return value
    array = np.asarray(value)
    if array.dtype.kind in _NO_NUMBERS:
        raise DTypeError(f"it holds {_NO_NUMBERS[array.dtype.kind]}, not numbers")
    if not array.dtype.isnative:
        raise DTypeError(f"got big-endian numbers{in_native_order('array')}")
    if any(stride < 0 for stride in array.strides):  # PyTorch has none: of edges[::-1], of argsort()[::-1]
        array = array.copy()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "The given NumPy array is not writable")  # nothing here writes to it
        return torch.from_numpy(array)


def in_native_order(name: str) -> str:
    """Return the end of a message: how to turn the bytes of an array into the order of this machine."""
    return f": {name}.astype({name}.dtype.newbyteorder('=')) has the bytes in the order of this machine"


def is_integer(array: Array) -> bool:
    """Whether these are integers, and no bools."""
    dtype = array.dtype
    if isinstance(dtype, torch.dtype):
        return not (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool)
    return dtype.kind in "iu"


def counts_up(array: Array) -> bool:
    """Whether these are 0, 1, 2, ..., in memory."""
    if not isinstance(array, Tensor | np.ndarray) or len(array.shape) != 1 or not is_integer(array):
        return False
    for start in range(0, array.shape[0], _PIECE):
        part = array[start : start + _PIECE]
        numbers = part.numpy(force=True) if isinstance(part, Tensor) else part
        if not np.array_equal(numbers, np.arange(start, start + len(part))):
            return False
    return True


def tensor_digest(tensor: Tensor) -> str:
    """Return a short name of a tensor's integers."""
    ids = tensor.to(torch.int64).contiguous().numpy()
    return hashlib.sha256(ids.astype("<i8", copy=False).data).hexdigest()[:16]


def values_digest(tensor: Tensor) -> str:
    """Return a short name of a tensor's values, of any dtype and shape."""
    values = tensor.contiguous()
    digest = hashlib.sha256(f"{values.dtype} {list(values.shape)}".encode())
    digest.update(values.view(torch.uint8).numpy().data)
    return digest.hexdigest()[:16]
