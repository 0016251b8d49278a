"""CSV files of numbers, as they are or compressed with gzip, into arrays in files."""

from __future__ import annotations

import gzip
import itertools
import re
import warnings
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from freshgo._args.arrays import NpyFile
from freshgo._sources.opening import Opening
from freshgo.errors import FormatError, ReadError, StoreNotFoundError, StorePermissionError

_CHUNK_BYTES = 4 << 20
"""About how much text is read at a time. Arbitrary."""

_AT_ROW = re.compile(r"(?<=at row )\d+")


class _NoIntegersError(Exception):
    """A column holds other numbers than integers."""


def read_csv(path: Path, opening: Opening, *, columns: int | None = None, integers: bool = False) -> NpyFile:
    """Return the numbers of a file without a header: int64 if all are integers, else float32, ``[rows, columns]``.

    Args:
        path: the file; gzip is known by its suffix ``.gz``.
        opening: where the array goes.
        columns: how many there must be, if that is known.
        integers: all must be integers.

    Raises:
        FormatError: other text than numbers, rows of several lengths, a truncated file; the message names file and row.
        StoreNotFoundError, StorePermissionError, ReadError: it cannot be read.
    """
    try:
        return _numbers(path, opening, np.dtype(np.int64), columns)
    except _NoIntegersError as error:
        if integers:
            raise FormatError(f"{path}: expected integers: {error}") from None
    return _numbers(path, opening, np.dtype(np.float32), columns)


def read_header(path: Path) -> dict[str, list[str]]:
    """Return the columns of a small file with a header, as text."""
    rows = [line.rstrip("\r\n").split(",") for line in _lines(path)]
    if not rows or any(len(row) != len(rows[0]) for row in rows):
        raise FormatError(f"{path}: expected a header row, and rows with as many fields")
    return {name: [row[place] for row in rows[1:]] for place, name in enumerate(rows[0])}


def read_words(path: Path) -> list[list[str]]:
    """Return the rows of a small file without a header, as text."""
    return [line.rstrip("\r\n").split(",") for line in _lines(path) if line.strip()]


def read_counts(path: Path) -> list[int]:
    """Return the only column of a small file of counts."""
    try:
        return [int(float(row[0])) for row in read_words(path)]
    except (ValueError, OverflowError) as error:
        raise FormatError(f"{path}: expected counts: {error}") from None


def _lines(path: Path) -> Iterator[str]:
    try:
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
            yield from file
    except FileNotFoundError as error:
        raise StoreNotFoundError(error.errno, "no such file", str(path)) from None
    except PermissionError as error:
        raise StorePermissionError(error.errno, error.strerror, str(path)) from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise FormatError(f"{path}: not a whole gzip file, or a truncated one: {error}") from error
    except UnicodeDecodeError as error:
        raise FormatError(f"{path}: expected numbers as text: {error}") from None
    except OSError as error:
        raise ReadError(error.errno, error.strerror, str(path)) from error


def _numbers(path: Path, opening: Opening, dtype: np.dtype[Any], columns: int | None) -> NpyFile:
    width = columns
    done = 0

    def rows() -> Iterator[np.ndarray[Any, Any]]:
        nonlocal width, done
        lines: Iterator[str] = (line for line in _lines(path) if line.strip())
        first = next(lines, None)
        if first is None:
            return
        lines, step = itertools.chain([first], lines), max(1, _CHUNK_BYTES // len(first))
        while chunk := list(itertools.islice(lines, step)):
            part = _parsed(path, chunk, dtype, done)
            width = part.shape[1] if width is None else width
            if part.shape[1] != width:
                raise FormatError(f"{path}, row {done}: {part.shape[1]} columns, expected {width}")
            done += len(part)
            opening.report(f"reading {path.name}", done, 0)
            yield part

    return opening.keep_rows(path.name, rows(), dtype, (width or 0,))


def _parsed(path: Path, lines: list[str], dtype: np.dtype[Any], first: int) -> np.ndarray[Any, Any]:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", DeprecationWarning)  # of NumPy before 2, which cuts the fraction off
            wide = dtype if dtype.kind == "i" else np.dtype(np.float64)
            rows = np.loadtxt(lines, dtype=wide, delimiter=",", ndmin=2, comments=None)
        with np.errstate(over="ignore"):
            numbers = rows.astype(dtype, copy=False)
        if dtype.kind == "f" and np.isinf(numbers).any():
            row, column = np.argwhere(np.isinf(numbers))[0]
            raise FormatError(
                f"{path}, row {first + row}: {rows[row, column]} in column {column} is too large for float32"
            )
        return numbers
    except DeprecationWarning as warning:
        raise _NoIntegersError(str(warning)) from None
    except FormatError:
        raise
    except ValueError as error:
        counted = "columns changed" in str(error)  # NumPy counts the rows of this message from 1, of others from 0
        said = _AT_ROW.sub(lambda row: str(first + int(row[0]) - counted), str(error).partition(";")[0])
        if "convert string" in said and dtype.kind == "i":
            raise _NoIntegersError(said) from None
        raise FormatError(f"{path}: {said}") from None
