"""Arrays that grow in files, until the library takes them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from freshgo._args.arrays import NpyFile
from freshgo._staging.workplace import written
from freshgo.errors import FreshgoError


class RawFile:
    """A file of rows of one dtype and shape, without a header."""

    def __init__(self, directory: Path, number: int) -> None:
        self._path = directory / f"array{number}.bin"
        self._dtype: np.dtype[Any] | None = None
        self._row: tuple[int, ...] = ()
        self._rows = 0
        with written(self._path):
            self._file = self._path.open("wb", buffering=1 << 20)

    def append(self, rows: np.ndarray[Any, Any]) -> None:
        """Write rows behind the others."""
        if self._dtype is None:
            self._dtype, self._row = rows.dtype, rows.shape[1:]
        assert rows.dtype == self._dtype and rows.shape[1:] == self._row
        with written(self._path):
            self._file.write(np.ascontiguousarray(rows).reshape(-1).view(np.uint8).data)
        self._rows += len(rows)

    def close(self) -> None:
        """Close the file, whole or not."""
        with written(self._path):
            self._file.close()

    def finish(self, dtype: Any, row: tuple[int, ...] = ()) -> NpyFile:
        """Return the array; ``dtype`` and ``row`` are those of one without rows."""
        self.close()
        if self._dtype is None:
            self._dtype, self._row = np.dtype(dtype), row
        return NpyFile(str(self._path), 0, self._dtype, (self._rows, *self._row))


class Files:
    """The arrays of one conversion: made in a directory, closed together."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._made: list[RawFile] = []

    def new(self) -> RawFile:
        """Begin an array."""
        self._made.append(RawFile(self._directory, len(self._made)))
        return self._made[-1]

    @contextlib.contextmanager
    def unnamed(self) -> Iterator[None]:
        """Let errors of the library name a tensor and not its file, which is removed before the user could look."""
        try:
            yield
        except FreshgoError as error:
            file = re.compile(rf" in {re.escape(str(self._directory))}/array\d+\.bin")
            error.args = tuple(file.sub("", one) if isinstance(one, str) else one for one in error.args)
            raise

    def close(self) -> None:
        """Close all files."""
        for file in self._made:
            file.close()
