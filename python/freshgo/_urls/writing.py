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


class Sending:
    """A file that was sent to a path of a place, where it does not appear yet."""

    def __init__(self, place: Place, file: Path, path: str, report: Callable[[int], None]) -> None:
        """Send the file; ``report`` gets how many of its bytes were sent.

        Raises:
            InvalidArgumentError: nothing can be written there, as by HTTP.
            StorePermissionError, StoreNotFoundError: access is denied, or there is no such bucket.
            WriteError: the connection was lost in every attempt.
        """
        self._place, self._file, self._path, self._report = place, file, path, report
        self._sent: Any = None
        self._calling(self._send)

    def appear(self) -> None:
        """Let the object appear. If the request fails, the file is sent again.

        Raises:
            StorePermissionError, StoreNotFoundError, WriteError: as when sending; nothing new is at the path then.
        """
        self._calling(self._commit)
        url = self._place.shown(self._path)
        try:
            entry = self._place.entry(self._path)
        except ReadError as error:
            raise WriteError(error.errno, error.strerror, url) from None
        size = self._file.stat().st_size
        if entry is None or entry.size != size:
            raise WriteError(errno.EIO, f"{entry and entry.size} bytes are there, {size} were sent", url)

    def discard(self) -> None:
        """Let the server forget what was sent. Nothing happens after the object has appeared."""
        if self._sent is not None:
            _discard(self._sent)
            self._sent = None

    def _calling(self, call: Callable[[], None]) -> None:
        url = self._place.shown(self._path)
        try:
            self._place.calling(call, url, "writing")
        except ReadError as error:
            raise WriteError(error.errno, error.strerror, url) from None

    def _send(self) -> None:
        self._sent = _sent(self._place, self._file, self._path, self._report)

    def _commit(self) -> None:
        if self._sent is None:  # an attempt before has failed
            self._send()
        try:
            self._sent.commit()
        except BaseException:
            self.discard()
            raise
        self._sent = None


def upload(place: Place, file: Path, path: str, report: Callable[[int], None]) -> None:
    """Write a file to a path of a place; ``report`` gets how many of its bytes were sent.

    Raises:
        InvalidArgumentError, StorePermissionError, StoreNotFoundError, WriteError: as :class:`Sending`.
    """
    sending = Sending(place, file, path, report)
    try:
        sending.appear()
    finally:
        sending.discard()


def remove(place: Place, path: str) -> None:
    """Remove the object at a path, if there is one."""
    with contextlib.suppress(FileNotFoundError):
        place.calling(lambda: place.fs.rm_file(path), place.shown(path), "removing")


def _sent(place: Place, file: Path, path: str, report: Callable[[int], None]) -> Any:
    """Send a file, and return what lets it appear (``commit``)."""
    block = max(PART, -(-file.stat().st_size // _PARTS))
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
    except BaseException:
        _discard(out)
        raise
    return out


def _discard(out: Any) -> None:
    with contextlib.suppress(Exception):
        out.discard()
    with contextlib.suppress(Exception):
        out.closed = True  # or its finalizer would send what it has
