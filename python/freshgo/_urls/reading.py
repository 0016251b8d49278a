"""Objects at URLs, read in pieces: several requests ahead, each tried again where its connection is lost."""

from __future__ import annotations

import collections
import concurrent.futures
import contextlib
import errno
import os
import threading
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

from freshgo._staging.workplace import written
from freshgo._urls.failures import changed
from freshgo._urls.place import Entry, Place
from freshgo.errors import InvalidArgumentError, ReadError

PIECE = 4 << 20
"""Bytes of a request: a tenth of a second of a gigabit line, as long as the first byte takes. Arbitrary."""

AHEAD = 4
"""Requests at a time. Arbitrary: of an object store each has a connection, and the rate of one."""

_FIRST = 1 << 20
"""Bytes of the first two requests, which are sent one after the other: an array that waits for its turn holds one."""

_POLL = 0.1
"""Seconds until :meth:`Reader.stop` is noticed."""

MEMORY = (AHEAD + 2) * PIECE
"""Bytes that reading an object takes."""


class Reader:
    """An object that is read."""

    def __init__(self, place: Place, entry: Entry) -> None:
        self._place, self._entry = place, entry
        self._handles = threading.local()
        self._stopped = threading.Event()
        self._done = 0
        """Bytes of a stream that were yielded, or are passed over."""

    @property
    def url(self) -> str:
        """The object as messages show it."""
        return self._entry.url

    def stop(self) -> None:
        """Let nothing wait any longer: what is being read ends with an error."""
        self._stopped.set()

    def pieces(self, start: int = 0) -> Generator[bytes, None, None]:
        """Yield the bytes of the object from ``start`` on.

        Raises:
            ReadError: a connection was lost, in every attempt; or the object has changed since it was listed. The
                message names object and offset.
        """
        yield from self._ranges(start) if self._has_ranges(start) else self._stream(start)
        self._check()

    def range(self, start: int, end: int) -> bytes:
        """Return some bytes, of an object that is read by ranges.

        Raises:
            ReadError: as of :meth:`pieces`.
        """

        def read() -> bytes:
            try:
                if self._place.scheme == "memory":  # whose files have one position for all threads
                    data = bytes(self._place.fs.cat_file(self._entry.path, start, end))
                else:
                    file = self._handle()
                    file.seek(start)
                    data = bytes(file.read(end - start))
            except Exception:
                self._handles.file = None
                raise
            if len(data) < end - start:
                self._check()
                raise ConnectionError(f"{len(data)} of {end - start} bytes came")
            return data

        return self._place.calling(read, self.url, f"reading bytes {start} to {end}", self._stopped)

    def _check(self) -> None:
        """Compare the object with the one that was listed."""
        now = self._place.entry(self._entry.path)
        if now is None or now.size != self._entry.size or _differ(now.mark, self._entry.mark):
            raise changed(self.url)

    def _handle(self) -> Any:
        """Return the file of this thread."""
        if getattr(self._handles, "file", None) is None:
            self._handles.file = self._place.fs.open(self._entry.path, "rb", block_size=PIECE, cache_type="none")
        return self._handles.file

    def _has_ranges(self, start: int) -> bool:
        """Whether the server sends parts of the object. One that does not is asked only for the whole."""
        size = self._entry.size
        if size is None or size <= start:
            return size is not None
        if self._place.scheme not in ("http", "https") or (start == 0 and size <= _FIRST):
            return True
        try:
            self.range(1, 2)
        except InvalidArgumentError:  # fsspec: "doesn't appear to support range requests"
            return False
        return True

    def _ranges(self, start: int) -> Iterator[bytes]:
        size = int(self._entry.size or 0)
        waiting: collections.deque[Future[bytes]] = collections.deque()
        first, at = start, start
        pool = ThreadPoolExecutor(AHEAD, thread_name_prefix="freshgo reading")
        try:
            while at < size or waiting:
                quiet = at - first < 2 * _FIRST
                while at < size and len(waiting) < (1 if quiet else AHEAD):
                    end = min(size, at + (_FIRST if quiet else PIECE))
                    waiting.append(pool.submit(self.range, at, end))
                    at = end
                    quiet = at - first < 2 * _FIRST
                yield self._waited(waiting.popleft())
        finally:
            self._stopped.set()  # of requests that nobody waits for
            pool.shutdown(wait=False, cancel_futures=True)

    def _waited(self, future: Future[bytes]) -> bytes:
        """Return what a request brings, unless nobody waits for it any more."""
        while not self._stopped.is_set():
            if concurrent.futures.wait([future], timeout=_POLL).done:
                return future.result()
        raise ReadError(errno.EINTR, "reading was interrupted", self.url)

    def _stream(self, start: int) -> Iterator[bytes]:
        """Read the object by one request. Where its connection is lost, another one begins with the first byte, and the
        bytes that came are passed over."""
        self._done, self._handles.file = start, None
        while True:
            what = f"reading from byte {self._done} on"
            piece = self._place.calling(self._next, self.url, what, self._stopped)
            if not piece:
                return
            self._done += len(piece)
            yield piece

    def _next(self) -> bytes:
        """Return the bytes of a stream that come next, none at its end."""
        try:
            if self._handles.file is None:
                self._handles.file, self._handles.at = self._place.fs.open(self._entry.path, "rb", block_size=0), 0
            while True:
                passed = self._done - self._handles.at
                data = bytes(self._handles.file.read(_FIRST if passed <= 0 else min(_FIRST, passed)))
                self._handles.at += len(data)
                if passed <= 0 or not data:
                    break
            size = self._entry.size
            if not data and self._handles.at < (self._done if size is None else size):
                self._check()
                raise ConnectionError(f"{self._handles.at} of {size or 'more'} bytes came")
        except Exception:
            self._handles.file = None
            raise
        return data


def _differ(now: str, before: str) -> bool:
    """Whether two marks of one kind differ."""
    return now.partition("=")[0] == before.partition("=")[0] and now != before


def copy(reader: Reader, size: int | None, to: Path, report: Callable[[int], None]) -> None:
    """Copy an object to a file, behind what the file has of it; ``report`` gets the number of each piece's bytes.

    Raises:
        ReadError: as of :meth:`Reader.pieces`; the file keeps what came.
        StorePermissionError, WriteError: the file cannot be written.
    """
    with written(to), to.open("ab", buffering=0) as file:
        done = file.tell()
        with contextlib.closing(reader.pieces(done)) as pieces:
            for piece in pieces:
                view = memoryview(piece)
                while view:
                    view = view[file.write(view) :]
                done += len(piece)
                report(len(piece))
        os.fsync(file.fileno())
    if size is not None and done != size:
        raise ReadError(errno.EIO, f"{done} bytes came, expected {size}", reader.url)
