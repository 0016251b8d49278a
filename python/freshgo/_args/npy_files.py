"""Graphs in ``.npy`` files: what is where, read from their names and headers. No data are read here."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path
from typing import Any

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


def read_npy_header(path: Path) -> NpyFile:
    """Return where the data of a ``.npy`` file lie. Only its header is read; nothing is ever unpickled."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would wait for who writes to it
            raise FormatError(f"{path}: a directory, a pipe or a device, expected a .npy file")
        with path.open("rb") as file:
            version = np.lib.format.read_magic(file)
            if version == (1, 0):
                shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
            elif version == (2, 0):
                shape, fortran, dtype = np.lib.format.read_array_header_2_0(file)
            else:
                raise FormatError(f"{path}: .npy version {version} is not supported, expected 1.0 or 2.0")
            offset = file.tell()
            size = file.seek(0, os.SEEK_END)
    except FileNotFoundError as error:
        raise StoreNotFoundError(error.errno, "no such .npy file", str(path)) from None
    except PermissionError as error:
        raise StorePermissionError(error.errno, error.strerror, str(path)) from None
    except OSError as error:
        raise ReadError(error.errno, error.strerror, str(path)) from error
    except FormatError:
        raise
    except ValueError as error:
        raise FormatError(f"{path}: not a .npy file: {error}") from error
    if dtype.hasobject or dtype.names is not None:
        raise DTypeError(f"{path}: holds {dtype}, expected numbers (pickled objects are never loaded)")
    n_bytes = int(np.prod(shape, dtype=object)) * dtype.itemsize
    if size - offset < n_bytes:
        raise FormatError(
            f"{path}: truncated: the header promises {n_bytes} bytes of data, the file has {size - offset}"
        )
    return NpyFile(path=str(path), offset=offset, dtype=dtype, shape=tuple(shape), fortran=fortran)


def read_directory(directory: Path) -> dict[str, Any]:
    """Return the ``.npy`` files of a directory by name; ``<split>_idx.npy`` are the node ids of a split."""
    if not directory.is_dir():
        raise StoreNotFoundError(errno.ENOENT, "no such directory of .npy files", str(directory))
    items: dict[str, Any] = {}
    splits = {}
    for path in sorted(directory.glob("*.npy")):
        if path.stem.endswith("_idx"):
            splits[path.stem.removesuffix("_idx")] = path
        else:
            items[path.stem] = path
    return {**items, "splits": splits} if splits else items
