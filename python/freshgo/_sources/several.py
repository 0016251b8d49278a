"""Arrays that several files hold, one after the other: ``.npy`` files, and edges in Parquet files."""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from freshgo._args.arrays import EdgeFiles, NpyFile, Stream
from freshgo._args.named import transposed_file
from freshgo._args.npy_files import read_npy_header
from freshgo._args.urls import is_url, local_path
from freshgo._sources.opening import Opening
from freshgo.errors import (
    DTypeError,
    FormatError,
    InvalidArgumentError,
    LibraryError,
    ReadError,
    StoreNotFoundError,
    StorePermissionError,
)

_PIECE = 1 << 20
"""Bytes of rows that are read at a time."""

_ROWS = 1 << 16
"""Edges of Parquet that are decoded at a time. Arbitrary: 1 MiB of int64."""

_PARQUET = (".parquet", ".pq")


def is_several(value: object) -> bool:
    """Whether a value names files that hold one array: a list of paths of ``.npy`` or Parquet files."""
    return isinstance(value, list | tuple) and bool(value) and all(map(_is_path, value))


def has_several(data: object) -> bool:
    """Whether a mapping of tensors, or of types, names such lists, or edges in a Parquet file."""
    if not isinstance(data, Mapping):
        return False
    return any(
        is_several(value) or (_of_edges(key) and _is_path(value, _PARQUET)) or has_several(value)
        for key, value in data.items()
    )


def with_several(data: Mapping[Any, Any], opening: Opening, label: str = "") -> dict[Any, Any]:
    """Return a mapping of tensors, or of types, with arrays in the place of lists of files and of Parquet files.
    ``label`` stands before names in messages.

    Raises:
        InvalidArgumentError: shapes that do not follow one another.
        DTypeError: dtypes that differ; edges that are no integers.
        FormatError, StoreNotFoundError, StorePermissionError, ReadError, LibraryError: a file that cannot be read.
        WriteError: the disk has no room for the edges of Parquet files.
    """
    given: dict[Any, Any] = {}
    for key, value in data.items():
        name = f"{label}{key}"
        if isinstance(value, Mapping):
            given[key] = with_several(value, opening, f"{name}.")
        elif _of_edges(key) and (is_several(value) or _is_path(value, _PARQUET)):
            name = key if isinstance(key, str) else "edge_index"
            given[key] = edges_in(value if is_several(value) else [value], f"{label}{name}", opening)
        elif is_several(value):
            given[key] = _rows(_files(value, name), name)
        else:
            given[key] = value
    return given


def edges_in(paths: Sequence[str | os.PathLike[str]], name: str, opening: Opening) -> NpyFile | EdgeFiles:
    """Return the edges of files: of ``.npy`` files of shape ``[2, edges]`` or ``[edges, 2]`` as they lie, of Parquet
    files with two columns of integers, the sources and the targets, in a copy beside the store."""
    parquet = [_is_path(path, _PARQUET) for path in paths]
    if all(parquet):
        _check_local(paths, name)
        return _parquet([Path(local_path(os.fspath(path))) for path in paths], opening)
    if any(parquet):
        raise InvalidArgumentError(f"{name} lists .npy and Parquet files, expected files of one kind")
    files = []
    for file in _files(paths, name):
        if len(file.shape) == 2 and file.shape[1] == 2 and file.shape[0] != 2:
            file = transposed_file(file)
        if len(file.shape) != 2 or file.shape[0] != 2:
            raise InvalidArgumentError(
                f"{name} must have shape [2, num_edges] or [num_edges, 2] in each file, got {list(file.shape)} in "
                f"{file.path}"
            )
        files.append(file)
    held = [file for file in files if file.shape[1]] or files[:1]  # np.zeros((2, 0)) holds float64, and no id
    _check_alike(held, name)
    return held[0] if len(held) == 1 else EdgeFiles(tuple(held))


def _is_path(value: object, suffixes: tuple[str, ...] = (".npy", *_PARQUET)) -> bool:
    return isinstance(value, str | os.PathLike) and os.fspath(value).endswith(suffixes)


def _of_edges(key: object) -> bool:
    return key == "edge_index" or isinstance(key, tuple)


def _files(paths: Sequence[Any], name: str) -> list[NpyFile]:
    """Return the headers of ``.npy`` files."""
    files = []
    _check_local(paths, name)
    for path in paths:
        if not _is_path(path, (".npy",)):
            raise InvalidArgumentError(
                f"{name} lists {os.fspath(path)!r}, expected .npy files: edges alone are read from Parquet, "
                "convert_tables reads tables"
            )
        files.append(read_npy_header(Path(local_path(os.fspath(path)))))
    return files


def _check_local(paths: Sequence[Any], name: str) -> None:
    """Refuse URLs."""
    if any(map(is_url, paths)):
        raise InvalidArgumentError(f"{name} lists URLs, expected local files: copy them first")


def _check_alike(files: Sequence[NpyFile], name: str) -> None:
    """Refuse files of different dtypes."""
    for file in files:
        if file.dtype != files[0].dtype:
            raise DTypeError(
                f"{name} has dtype {files[0].dtype} in {files[0].path} and {file.dtype} in {file.path}, expected one"
            )


def _rows(files: list[NpyFile], name: str) -> Stream:
    """Return rows that follow one another."""
    _check_alike(files, name)
    for file in files:
        if not file.shape or file.shape[1:] != files[0].shape[1:]:
            raise InvalidArgumentError(
                f"{name} has shape {list(files[0].shape)} in {files[0].path} and {list(file.shape)} in {file.path}, "
                "expected equal rows"
            )
    rows, row = sum(file.shape[0] for file in files), files[0].shape[1:]

    def pieces() -> Iterator[Any]:
        for file in files:
            yield from _pieces(file)

    return Stream(name, files[0].dtype, (rows, *row), pieces)


def _pieces(file: NpyFile) -> Iterator[np.ndarray[Any, Any]]:
    """Yield the rows of a file, in C order."""
    count, row = file.shape[0], int(np.prod(file.shape[1:], dtype=np.int64))
    step = max(1, _PIECE // max(1, row * file.dtype.itemsize))
    columns = np.memmap(file.path, file.dtype, "r", file.offset, file.shape, "F") if file.fortran and row > 1 else None
    for first in range(0, count, step):
        n = min(step, count - first)
        if columns is not None:
            yield np.ascontiguousarray(columns[first : first + n])
            continue
        try:
            rows = np.fromfile(file.path, file.dtype, n * row, offset=file.offset + first * row * file.dtype.itemsize)
        except OSError as error:  # it was removed, or the disk fails
            raise ReadError(error.errno or errno.EIO, error.strerror or str(error), file.path) from error
        if len(rows) < n * row:
            raise FormatError(f"{file.path}: truncated while it was being read")
        yield rows


def _parquet(paths: list[Path], opening: Opening) -> NpyFile:
    """Return the edges of Parquet files: a copy of their two columns."""
    try:
        from pyarrow import types
    except ImportError as error:
        raise LibraryError(f"a Parquet file needs pyarrow: pip install 'freshgo[tables]' ({error})") from error
    total, dtypes = 0, []
    for path in paths:
        with _opened(path) as file:
            fields = list(file.schema_arrow)
            total += file.metadata.num_rows
        if len(fields) != 2:
            raise InvalidArgumentError(
                f"{path} has the columns {', '.join(field.name for field in fields)}, expected two, the sources and "
                "the targets: convert_tables takes any with Table(..., src=, dst=)"
            )
        for field in fields:
            if not types.is_integer(field.type):
                raise DTypeError(f"{path} has {field.type} in the column {field.name}, expected integers")
            dtypes.append(np.dtype(field.type.to_pandas_dtype()))
    dtype = np.result_type(*dtypes)
    if dtype.kind not in "iu":
        raise DTypeError(
            f"{paths[0]} and others hold {', '.join(sorted({d.name for d in dtypes}))}, expected one dtype"
        )
    opening.check_space(total * 2 * dtype.itemsize, "the edges")

    def rows() -> Iterator[np.ndarray[Any, Any]]:
        done = 0
        for path in paths:
            for batch in _batches(path):
                for column, values in zip(batch.schema.names, batch.columns, strict=True):
                    if values.null_count:
                        raise InvalidArgumentError(f"{path} has a null in the column {column}, expected an id")
                ends = [values.to_numpy(zero_copy_only=False) for values in batch.columns]
                done += len(batch)
                yield np.stack(ends, axis=1).astype(dtype, copy=False)
                opening.report("reading Parquet", done, total)

    names = f"{paths[0]}" if len(paths) == 1 else f"{paths[0]} and {len(paths) - 1} more"
    kept = opening.keep_rows(names, rows(), dtype, (2,))
    return transposed_file(kept)


def _batches(path: Path) -> Iterator[Any]:
    """Yield the rows of a Parquet file in record batches."""
    with _opened(path) as file:
        yield from file.iter_batches(_ROWS, use_threads=False)


@contextlib.contextmanager
def _opened(path: Path) -> Iterator[Any]:
    """Open a Parquet file, and name it where pyarrow cannot read it."""
    from pyarrow import ArrowException, parquet

    try:
        # pyarrow otherwise reads the columns of a row group as a whole, and many files have one group.
        with parquet.ParquetFile(path, buffer_size=_PIECE, pre_buffer=False) as file:
            yield file
    except FileNotFoundError:
        raise StoreNotFoundError(errno.ENOENT, "no such Parquet file", str(path)) from None
    except PermissionError as error:
        raise StorePermissionError(error.errno, error.strerror, str(path)) from None
    except (OSError, ArrowException) as error:
        raise FormatError(f"{path}: not a whole Parquet file: {error}") from None
