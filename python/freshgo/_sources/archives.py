"""Members of ``.npz`` archives: read where they lie if they are stored, piece by piece if they are compressed."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import struct
import zipfile
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from freshgo._args.arrays import Array, NpyFile, Stream
from freshgo._args.npy_files import read_header
from freshgo._sources.opening import Opening
from freshgo.errors import (
    CorruptError,
    FormatError,
    FreshgoError,
    ReadError,
    StoreNotFoundError,
    StorePermissionError,
)

_PIECE = 1 << 20
"""Bytes that are decompressed at a time: beyond it a call of zlib is no cheaper for each byte."""

_LOCAL_HEADER = 30
"""Bytes of a member's header in the archive before its name (APPNOTE.TXT 4.3.7)."""


@dataclasses.dataclass(frozen=True)
class Member:
    """An array in an archive."""

    path: Path
    name: str
    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    fortran: bool
    header: int
    """Bytes before the data."""
    offset: int | None
    """Where in the archive the member begins; None if it is compressed."""

    def array(self, opening: Opening) -> Array:
        """Return the array, to be read from its first row to its last. One in Fortran order is written out first."""
        if self.offset is None and not (self.fortran and len(self.shape) > 1):
            return self._stream(self.shape)
        return self.file(opening)

    def file(self, opening: Opening) -> NpyFile:
        """Return the array in a file, to be read in any order: a compressed one is written out."""
        if self.offset is not None:
            return NpyFile(str(self.path), self.offset + self.header, self.dtype, self.shape, self.fortran)
        kept = opening.keep(self._stream(self.shape))
        return dataclasses.replace(kept, fortran=self.fortran)

    def read(self) -> np.ndarray[Any, Any]:
        """Return a small array, such as one of counts."""
        with _read(self.path, self.name), np.load(self.path, allow_pickle=False) as archive:
            return np.asarray(archive[self.name])

    def _stream(self, shape: tuple[int, ...]) -> Stream:
        return Stream(f"{self.path.name}/{self.name}", self.dtype, shape, self._pieces)

    def _pieces(self) -> Iterator[bytes]:
        with _read(self.path, self.name), zipfile.ZipFile(self.path) as archive:
            with archive.open(f"{self.name}.npy") as member:
                member.read(self.header)
                while piece := member.read(_PIECE):  # compares the checksum before it returns the last
                    yield piece


def members(path: Path) -> dict[str, Member]:
    """Return the arrays of an archive by name. Only their headers are read; nothing is ever unpickled.

    Raises:
        FormatError, CorruptError: no archive, a truncated one, or one with other files than arrays.
        DTypeError: an array of objects.
        StoreNotFoundError, StorePermissionError, ReadError: it cannot be read.
    """
    with _read(path), zipfile.ZipFile(path) as archive:
        found = [_member(path, archive, info) for info in archive.infolist()]
    return {member.name: member for member in found}


def _member(path: Path, archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Member:
    name = info.filename.removesuffix(".npy")
    if name == info.filename:
        raise FormatError(f"{path}, member {info.filename!r}: expected a member named *.npy")
    with _read(path, name), archive.open(info) as file:
        header = read_header(file, f"{path}, member {name!r}")
    if info.file_size - header.size != header.n_bytes:
        raise FormatError(
            f"{path}, member {name!r}: shape {list(header.shape)} of {header.dtype} takes {header.n_bytes} bytes, "
            f"the member has {info.file_size - header.size}"
        )
    offset = _offset(path, info) if info.compress_type == zipfile.ZIP_STORED and not info.flag_bits & 1 else None
    return Member(path, name, header.dtype, header.shape, header.fortran, header.size, offset)


def _offset(path: Path, info: zipfile.ZipInfo) -> int:
    """Where the data of a member begin: its own header says how long it is, not the archive's list of members."""
    with path.open("rb") as file:
        file.seek(info.header_offset)
        name, extra = struct.unpack("<HH", file.read(_LOCAL_HEADER)[-4:])
    return info.header_offset + _LOCAL_HEADER + int(name) + int(extra)


@contextlib.contextmanager
def _read(path: Path, member: str | None = None) -> Iterator[None]:
    """Turn what zipfile says into our errors, which name file and member."""
    where = f"{path}" if member is None else f"{path}, member {member!r}"
    try:
        yield
    except FreshgoError:
        raise
    except FileNotFoundError as error:
        raise StoreNotFoundError(error.errno, "no such archive", str(path)) from None
    except PermissionError as error:
        raise StorePermissionError(error.errno, error.strerror, str(path)) from None
    except (zipfile.BadZipFile, zlib.error, EOFError, struct.error) as error:
        if member is None:
            raise FormatError(f"{where}: not a whole .npz archive, or a truncated one: {error}") from error
        raise CorruptError(f"{where}: {error or 'truncated'}") from error
    except (ValueError, NotImplementedError, RuntimeError, KeyError) as error:  # an encrypted member is a RuntimeError
        raise FormatError(f"{where}: not an array that can be read: {error}") from error
    except OSError as error:
        raise ReadError(error.errno or errno.EIO, error.strerror or str(error), str(path)) from error
