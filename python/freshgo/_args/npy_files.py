"""Graphs in ``.npy`` files: what is where, read from their names and headers. Of data only ``num_nodes`` is
read here."""

from __future__ import annotations

import dataclasses
import errno
import io
import os
import stat
from pathlib import Path
from typing import IO, Any

import numpy as np

from freshgo._args.arrays import NpyFile
from freshgo.errors import (
    DTypeError,
    FormatError,
    InvalidArgumentError,
    ReadError,
    StoreNotFoundError,
    StorePermissionError,
)

TYPE_SEPARATOR = "__"
"""Between source, relation and target in the name of a directory, as PyG joins them."""

_READERS = {(1, 0): (np.lib.format.read_array_header_1_0, 2), (2, 0): (np.lib.format.read_array_header_2_0, 4)}
"""What reads a header after its version, and the bytes of its length."""

_LONGEST = 65_535
"""Bytes of a header. Longer ones are of structs; NumPy would read any length into memory."""


def is_of_types(directory: Path) -> bool:
    """Whether a directory has a directory for each type."""
    return any(path.is_dir() for path in directory.glob(f"*{TYPE_SEPARATOR}*{TYPE_SEPARATOR}*"))


def read_types(directory: Path) -> dict[Any, Any]:
    """Return the ``.npy`` files of the directories of types; one with the separator in its name is of edges."""
    items: dict[Any, Any] = {}
    for path in sorted(directory.iterdir()):
        if not path.is_dir() or path.name.startswith("."):
            continue
        names = tuple(path.name.split(TYPE_SEPARATOR))
        if len(names) not in (1, 3):
            raise InvalidArgumentError(
                f"{path} must be named as a node type or as source{TYPE_SEPARATOR}relation{TYPE_SEPARATOR}target"
            )
        items[names if len(names) == 3 else path.name] = read_directory(path)
    return items


@dataclasses.dataclass(frozen=True)
class NpyHeader:
    """What a header says: no more than that, for the file may be shorter."""

    shape: tuple[int, ...]
    fortran: bool
    dtype: np.dtype[Any]
    size: int
    """Bytes before the data."""
    n_bytes: int
    """Bytes of the data."""


def read_header(file: IO[bytes], where: str) -> NpyHeader:
    """Return the header of the array that begins here."""
    first = file.read(12)
    version = (first[6], first[7]) if len(first) == 12 and first.startswith(np.lib.format.MAGIC_PREFIX) else None
    if version is None:
        raise FormatError(f"{where}: not a .npy file: {'it does not begin as one' if first else 'it is empty'}")
    if version not in _READERS:
        raise FormatError(f"{where}: .npy version {version} is not supported, expected 1.0 or 2.0")
    reader, width = _READERS[version]
    length = int.from_bytes(first[8 : 8 + width], "little")
    if length > _LONGEST:
        raise FormatError(f"{where}: not a .npy file of numbers: its header has {length} bytes")
    size = 8 + width + length
    try:
        shape, fortran, dtype = reader(io.BytesIO((first + file.read(max(size - 12, 0)))[8:size]))
    except Exception as error:  # NumPy evaluates it as a literal of Python, which raises what Python's parser raises
        raise FormatError(f"{where}: not a .npy file: {error}") from error
    if dtype.hasobject or dtype.names is not None:
        raise DTypeError(f"{where}: holds {dtype}, expected numbers (pickled objects are never loaded)")
    n_bytes = int(dtype.itemsize)
    for n in shape:
        n_bytes *= int(n)
        if not 0 <= int(n) < 1 << 63 or n_bytes >= 1 << 63:
            raise FormatError(f"{where}: not a .npy file: its header has an impossible shape")
    return NpyHeader(tuple(map(int, shape)), bool(fortran), dtype, size, n_bytes)


def read_npy_header(path: Path) -> NpyFile:
    """Return where the data of a ``.npy`` file lie. Only its header is read; nothing is ever unpickled."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would wait for who writes to it
            raise FormatError(f"{path}: a directory, a pipe or a device, expected a .npy file")
        with path.open("rb") as file:
            header = read_header(file, str(path))
            held = file.seek(0, os.SEEK_END) - header.size
    except FileNotFoundError as error:
        raise StoreNotFoundError(error.errno, "no such .npy file", str(path)) from None
    except PermissionError as error:
        raise StorePermissionError(error.errno, error.strerror, str(path)) from None
    except OSError as error:
        raise ReadError(error.errno, error.strerror, str(path)) from error
    if held < header.n_bytes:
        raise FormatError(f"{path}: truncated: the header promises {header.n_bytes} bytes of data, the file has {held}")
    return NpyFile(path=str(path), offset=header.size, dtype=header.dtype, shape=header.shape, fortran=header.fortran)


def read_directory(directory: Path) -> dict[str, Any]:
    """Return the ``.npy`` files of a directory by name; ``<split>_idx.npy`` are the node ids of a split, and
    ``num_nodes.npy`` is a number."""
    if not directory.is_dir():
        raise StoreNotFoundError(errno.ENOENT, "no such directory of .npy files", str(directory))
    items: dict[str, Any] = {}
    splits = {}
    for path in sorted(directory.glob("*.npy")):
        if path.stem.endswith("_idx"):
            splits[path.stem.removesuffix("_idx")] = path
        else:
            items[path.stem] = _count(path) if path.stem == "num_nodes" else path
    return {**items, "splits": splits} if splits else items


def _count(path: Path) -> int:
    file = read_npy_header(path)
    if file.shape != () or file.dtype.kind not in "iu":
        raise DTypeError(f"{path}: expected one integer, got {file.dtype} of shape {list(file.shape)}")
    return int(np.fromfile(path, file.dtype, 1, offset=file.offset)[0])
