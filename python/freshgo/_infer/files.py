"""The files of an inference: rows that are written by ranges, and how far it is."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from freshgo._args.npy_files import read_npy_header
from freshgo._staging.workplace import written
from freshgo.errors import CorruptError, FormatError, ReadError

RESULT = "out"
"""In the directory of an inference: what is put at its target in the end."""


@dataclasses.dataclass
class Moved:
    """Bytes read from files and written to them."""

    read: int = 0
    written: int = 0


@contextlib.contextmanager
def file_of(path: Path) -> Iterator[int]:
    """A file to read."""
    try:
        file = os.open(path, os.O_RDONLY)
    except OSError as error:
        raise ReadError(error.errno, error.strerror, str(path)) from error
    try:
        yield file
    finally:
        os.close(file)


def read_at(file: int, into: memoryview, at: int, moved: Moved) -> None:
    """Fill memory with the bytes of a file from ``at`` on."""
    moved.read += len(into)
    while len(into):
        try:
            n = os.preadv(file, [into], at)
        except OSError as error:
            raise ReadError(error.errno, error.strerror or str(error), _opened(file)) from error
        if n == 0:
            raise CorruptError(5, f"truncated: the file ends before byte {at}", _opened(file))
        into, at = into[n:], at + n


def _opened(file: int) -> str:
    """Return the path of an open file."""
    return str(Path(f"/proc/self/fd/{file}").readlink())


class Rows:
    """A ``.npy`` file of a known shape, written by ranges and in any order."""

    def __init__(self, path: Path, shape: tuple[int, ...], dtype: Any, moved: Moved | None = None) -> None:
        """Create the file, or go on with the one that is there, which has the same shape and dtype."""
        self.path, self.shape, self.dtype = path, shape, np.dtype(dtype)
        self.moved = Moved() if moved is None else moved
        self._row_bytes = int(np.prod(shape[1:], dtype=np.int64)) * self.dtype.itemsize
        with written(path):
            if path.exists():
                self.offset = self._found()
                self._file = os.open(path, os.O_RDWR)
                return
            new = path.with_name(f"{path.name}.new")  # after a loss of power the file is whole, or not there
            with new.open("wb") as file:
                described = {"descr": self.dtype.str, "fortran_order": False, "shape": shape}
                np.lib.format.write_array_header_1_0(file, described)
                self.offset = file.tell()
                file.truncate(self.offset + shape[0] * self._row_bytes)
                os.fsync(file.fileno())
            new.replace(path)
            self._file = os.open(path, os.O_RDWR)

    def _found(self) -> int:
        try:
            there = read_npy_header(self.path)
        except FormatError as error:
            raise CorruptError(5, f"damaged, remove it to begin anew: {error}", str(self.path)) from None
        if there.shape != self.shape or there.dtype != self.dtype:
            came = f"{there.dtype} of shape {there.shape}"
            raise CorruptError(
                5,
                f"damaged, remove it to begin anew: expected {self.dtype} of shape {self.shape}, got {came}",
                str(self.path),
            )
        return there.offset

    def write(self, first: int, rows: Tensor) -> None:
        """Write rows from the one of this number on."""
        self._put(first * self._row_bytes, rows)

    def write_numbers(self, first: int, numbers: Tensor) -> None:
        """Write numbers, counted over all rows, from this one on."""
        self._put(first * self.dtype.itemsize, numbers)

    def _put(self, at: int, rows: Tensor) -> None:
        rows = rows.float() if rows.dtype == torch.bfloat16 else rows  # of autocast; NumPy has no such numbers
        data = memoryview(np.ascontiguousarray(rows.numpy(), dtype=self.dtype).reshape(-1).view(np.uint8).data)
        at += self.offset
        self.moved.written += len(data)
        with written(self.path):
            while len(data):
                n = os.pwrite(self._file, data, at)
                data, at = data[n:], at + n

    def read(self, first: int, rows: np.ndarray) -> None:
        """Fill an array with rows from the one of this number on."""
        memory = memoryview(rows.reshape(-1).view(np.uint8).data)
        read_at(self._file, memory, self.offset + first * self._row_bytes, self.moved)

    def at(self, numbers: np.ndarray) -> np.ndarray:
        """Rows by their numbers; those that follow each other in the file are read at once."""
        out = np.empty((len(numbers), *self.shape[1:]), self.dtype)
        ends = [*(np.flatnonzero(np.diff(numbers) != 1) + 1).tolist(), len(numbers)]
        for first, end in zip([0, *ends[:-1]], ends, strict=True):
            if first < end:
                self.read(int(numbers[first]), out[first:end])
        return out

    def sync(self) -> None:
        """Make what was written durable."""
        with written(self.path):
            os.fsync(self._file)

    def __enter__(self) -> Rows:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


class State:
    """How far an inference is, in a file that is replaced as a whole."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / "state.json"

    def read(self) -> dict[str, Any] | None:
        """Return what was saved; None where there is nothing that can be read."""
        try:
            state = json.loads(self._path.read_text())
        except (OSError, ValueError):
            return None
        return state if isinstance(state, dict) else None

    def write(self, state: dict[str, Any]) -> None:
        new = self._path.with_suffix(".new")
        with written(new):
            with new.open("w") as file:
                json.dump(state, file)
                file.flush()
                os.fsync(file.fileno())
            new.replace(self._path)
