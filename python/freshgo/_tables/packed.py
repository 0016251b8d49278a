"""Text that is compressed, as bytes."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any, cast

from freshgo._staging.workplace import written
from freshgo._tables.table import Spec
from freshgo.errors import (
    FreshgoError,
    InvalidArgumentError,
    ReadError,
    StoreNotFoundError,
    StorePermissionError,
)

_PIECE = 1 << 20
"""Bytes of text that are decompressed at a time. Arbitrary."""


@contextlib.contextmanager
def opened(spec: Spec, file: str) -> Iterator[IO[bytes]]:
    """Open a file whose suffix says how it is compressed, if it is.

    Raises, also while it is read:
        StoreNotFoundError, StorePermissionError, ReadError: it cannot be read.
        InvalidArgumentError: it is truncated, or compressed otherwise.
    """
    try:
        with _opened(file) as text:
            yield text
    except FreshgoError:
        raise
    except FileNotFoundError as error:
        raise StoreNotFoundError(error.errno, f"{spec.label}: no such file", file) from None
    except PermissionError as error:
        raise StorePermissionError(error.errno, f"{spec.label}: {error.strerror}", file) from None
    except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise ReadError(error.errno, f"{spec.label}: {error.strerror}", file) from error
        raise InvalidArgumentError(f"{spec.label}: {file}: not a whole compressed file: {error}") from error


def _opened(file: str) -> IO[bytes]:
    name = file.lower()
    opening: Any = next((o for end, o in ((".gz", gzip), (".bz2", bz2), (".xz", lzma)) if name.endswith(end)), None)
    if name.endswith(".zst"):
        import pyarrow

        return io.BufferedReader(pyarrow.input_stream(file, compression="zstd"))
    return Path(file).open("rb") if opening is None else cast(IO[bytes], opening.open(file))


def unpacked(spec: Spec, file: str, copy: Path) -> str:
    """Decompress a file, and return the path of the copy."""
    with written(copy), copy.open("wb") as out:
        out.writelines(_pieces(spec, file))
    return str(copy)


def _pieces(spec: Spec, file: str) -> Iterator[bytes]:
    with opened(spec, file) as text:
        yield from iter(lambda: text.read(_PIECE), b"")
