"""The batches of an epoch on their way to the loop. The library makes all of them but the divided rows."""

from __future__ import annotations

import threading
import time
from collections import deque
from typing import Protocol

from freshgo._native.loader import RawBatch
from freshgo.errors import ClosedError

_AHEAD = 3
"""Batches beyond that of the loop whose rows were asked for: one that is read, one on its way, and one that is put
together or waits for the loop."""

_POLL_MS = 20
"""How long the thread waits for a batch of the library before it looks whether that is still wanted."""


class Source(Protocol):
    """The native loader, whose batches lack the rows that are divided."""

    def next(self, *, wait: bool = True, timeout_ms: int = 0) -> RawBatch | None:
        """The next batch; without ``wait``, None where it is not made yet."""


class Feed:
    """The batches of one epoch: a thread puts them in with their rows, the loop takes them out."""

    def __init__(self, source: Source, count: int, epoch: int, lock: threading.Condition) -> None:
        self._source, self._undelivered, self._unrequested, self._epoch = source, count, count, epoch
        self._lock = lock
        self._ready: deque[RawBatch] = deque()
        self._error: Exception | None = None
        self.ended = False  # nobody wants its batches
        self._settled = False  # no rank asks for rows of this epoch any more

    def next(self, *, wait: bool = True, timeout_ms: int = 0) -> RawBatch | None:
        """The next batch, with all rows; None after the last one, and without ``wait`` where it is not made yet."""
        until = None if wait else time.monotonic() + timeout_ms / 1000
        with self._lock:
            while not self._ready:
                if self.ended:
                    raise ClosedError("this epoch has ended")
                if self._undelivered == 0 and (self._settled or self._error is not None):
                    return None
                if self._error is not None:
                    raise self._error
                left = 1.0 if until is None else until - time.monotonic()
                if left <= 0:
                    return None
                self._lock.wait(left)
            self._lock.notify_all()
            return self._ready.popleft()

    # What the threads of the exchange call.

    def due(self) -> bool:
        """Return whether the rows of another batch are to be requested. The lock is held."""
        return not self.ended and self._error is None and self._unrequested > 0

    def room(self) -> bool:
        """Return whether there is room for it now. The lock is held."""
        return len(self._ready) + self._undelivered - self._unrequested < _AHEAD

    def requested(self) -> None:
        """Note that the rows of a batch were requested."""
        with self._lock:
            self._unrequested -= 1

    def take(self) -> RawBatch | None:
        """The next batch of the library; None where it is not made yet. The lock is held, so that nobody begins another
        epoch of it meanwhile."""
        return self._source.next(wait=False, timeout_ms=_POLL_MS)

    def settle(self, done: int) -> None:
        """Note for how many epochs no rank asks any more. The lock is held."""
        self._settled = done >= self._epoch

    def put(self, batch: RawBatch) -> None:
        """Give a batch to the loop."""
        with self._lock:
            self._undelivered -= 1
            self._ready.append(batch)
            self._lock.notify_all()

    def fail(self, error: Exception) -> None:
        """Let the loop raise this error after the batches that are made."""
        with self._lock:
            self._error = error
            self._lock.notify_all()
