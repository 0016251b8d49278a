"""The batches of an epoch, each sent to a device while the loop works at the batch before."""

from __future__ import annotations

import dataclasses
import threading
import time
import weakref
from collections import deque

from freshgo._device.mover import Mover, Moving
from freshgo._native.loader import Batches, RawBatch

_POLL_MS = 20
"""How long the thread that sends batches ahead waits for one before it looks whether the loop asks: a poll costs 10 us
of the processor, and a loop that ends waits this long."""


class Ahead:
    """The batches of an epoch on the device, with the next one on its way as soon as it is made.

    A thread takes the next batch from the source while the loop works. The loop takes one itself if none is on its way:
    so it shows progress and can be interrupted where it waits, and what goes wrong is raised in it.
    """

    def __init__(self, source: Batches, mover: Mover, count: int, *, look: bool) -> None:
        """``count`` batches come. ``look``: send the next one before it is asked for."""
        self._source = source
        self._mover = mover
        self._left = count
        self.received = 0  # batches that the loop has
        self._moving: deque[tuple[RawBatch, Moving]] = deque()
        self._taken: RawBatch | None = None  # from the source, and not on its way: the device had no room
        self._changed = changed = threading.Condition()  # guards what follows
        self._asking = 0  # calls of next() that run: one within another where a handler of signals asks
        self._sending = False  # the thread takes a batch
        self._failed = False  # it could not, which the loop finds when it asks for that batch
        self._ended = not look

        def gone(_: object) -> None:
            with changed:
                changed.notify_all()

        self._thread = threading.Thread(target=_send, args=(weakref.ref(self, gone), changed), daemon=True)

    def next(self, *, wait: bool = True, timeout_ms: int = 0) -> RawBatch | None:
        """The next batch, ``None`` after the last one. Waits for it in steps, so Ctrl-C works."""
        with self._changed:
            self._asking += 1
        try:
            with self._changed:
                while self._sending:
                    self._changed.wait()
            if not self._moving and not self._fetch(wait=True):
                return None
            raw, moving = self._moving[0]
            tensors = self._mover.receive(moving)
            self._moving.popleft()
            self.received += 1
        finally:
            with self._changed:
                self._asking -= 1
                self._failed = False
                self._changed.notify_all()
        if not self.ended and self._thread.ident is None:
            self._thread.start()
        return dataclasses.replace(raw, tensors=tensors)

    def end(self) -> None:
        """Leave the source alone from now on, unless the loop asks."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join()

    def begin_thread(self) -> None:
        self._mover.begin_thread()

    def due(self) -> bool:
        """Whether the thread is to take a batch. The lock is held, and it does if so."""
        self._sending = not (self._asking or self._failed or self._moving)
        return self._sending

    def send(self) -> bool:
        """Take the next batch and send it, if it is made soon. Returns whether there was one."""
        failed, came = True, False
        try:
            came = self._fetch(wait=False, timeout_ms=_POLL_MS)
            failed = False
        except Exception:  # the loop finds it too
            pass
        finally:
            with self._changed:
                self._sending, self._failed = False, failed
                self._changed.notify_all()
        return came

    @property
    def ended(self) -> bool:
        """Whether no batch is to be sent ahead any more."""
        return self._ended or self._left == 0

    def _fetch(self, *, wait: bool, timeout_ms: int = 0) -> bool:
        self._mover.make_room(wait=True)
        if self._taken is None:
            self._taken = self._source.next(wait=wait, timeout_ms=timeout_ms)
            self._left -= self._taken is not None
        raw = self._taken
        if raw is None:
            return False
        self._moving.append((raw, self._mover.send(raw.tensors)))
        self._taken = None
        raw.tensors.clear()  # the mover knows how long they are needed
        return True


def _send(of: weakref.ref[Ahead], changed: threading.Condition) -> None:
    """Send batches ahead until there is nobody to take them. What waits here keeps nothing alive."""
    if (ahead := of()) is not None:
        ahead.begin_thread()
    while True:
        with changed:
            ahead = of()
            if ahead is None or ahead.ended:
                return
            if not ahead.due():
                del ahead
                if of() is not None:
                    changed.wait()
                continue
        until = time.monotonic() + _POLL_MS / 1000
        came = ahead.send()
        del ahead
        with changed:
            if not came and (left := until - time.monotonic()) > 0:  # the source has not waited
                changed.wait(left)
