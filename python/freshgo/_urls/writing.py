"""Files that are written to URLs: an object appears whole or not at all."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable
from pathlib import Path
from typing import Any

from freshgo._urls.place import Place
from freshgo.errors import InvalidArgumentError, ReadError, WriteError

PART = 8 << 20
"""Bytes of a part of an upload; three of them are in memory. S3 takes 5 MiB and more."""

_PARTS = 9000
"""The most parts of an upload. S3 takes 10,000."""


def upload(place: Place, file: Path, path: str, report: Callable[[int], None]) -> None:
    """Write a file to a path of a place; ``report`` gets how many of its bytes were sent.

    Raises:
        InvalidArgumentError: nothing can be written there, as by HTTP.
        StorePermissionError, StoreNotFoundError: access is denied, or there is no such bucket.
        WriteError: the connection was lost in every attempt; nothing is at the path then.
    """
    url = place.shown(path)
    try:
        place.calling(lambda: _send(place, file, path, report), url, "writing")
        entry = place.entry(path)
    except ReadError as error:
        raise WriteError(error.errno, error.strerror, url) from None
    if entry is None or entry.size != file.stat().st_size:
        raise WriteError(errno.EIO, f"{entry and entry.size} bytes are there, {file.stat().st_size} were sent", url)


def remove(place: Place, path: str) -> None:
    """Remove the object at a path, if there is one."""
    with contextlib.suppress(FileNotFoundError):
        place.calling(lambda: place.fs.rm_file(path), place.shown(path), "removing")


def _send(place: Place, file: Path, path: str, report: Callable[[int], None]) -> None:
    size = file.stat().st_size
    block = max(PART, -(-size // _PARTS))
    try:
        out: Any = place.fs.open(path, "wb", block_size=block, autocommit=False)
    except NotImplementedError:
        raise InvalidArgumentError(f"{place.shown(path)!r}: {place.scheme}:// can be read, not written") from None
    try:
        sent = 0
        with file.open("rb", buffering=0) as source:
            while piece := source.read(PART):
                out.write(piece)
                sent += len(piece)
                report(sent)
        out.close()
        out.commit()
    except BaseException:
        with contextlib.suppress(Exception):
            out.discard()
        with contextlib.suppress(Exception):
            out.closed = True  # or its finalizer would send what it has
        raise
