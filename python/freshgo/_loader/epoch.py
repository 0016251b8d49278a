"""The iterators of a loader: each batch of an epoch once, whatever interrupts the consumer.

``KeyboardInterrupt``, and what other handlers of signals raise, may strike between any two steps, also after the
library handed a batch over and before the consumer has it. A batch counts as yielded only when nothing can come between
it and the consumer any more. Where the next batch of the library is not the one after it, the epoch is begun again
there: that costs what was prepared ahead, and yields the identical batch.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Literal

from freshgo.errors import ClosedError

if TYPE_CHECKING:
    from freshgo._device.mover import Ahead
    from freshgo._native.loader import Loader as NativeLoader
    from freshgo._native.loader import RawBatch
    from freshgo.loader import Loader


class Epoch(Iterator[Any]):
    """The batches, or the trace, of one epoch. Threads that share it take turns, and get each batch once.

    The loader does not know its iterators, only the number of the newest, so that one that is dropped in mid-epoch
    is collected at once, which stops the work.
    """

    def __init__(self, loader: Loader, *, trace: int | None = None) -> None:
        self._loader = loader
        self._trace = trace
        self._turn = threading.RLock()  # a handler of signals may ask for a batch within another's turn
        self._run: int | None = None  # not begun
        self._batches: NativeLoader | Ahead
        self._mode: Literal["train", "trace", "plain"]
        self._began: dict[str, Any] | None = None  # the loader's figures at its first batch
        self._next = 0  # the batch that comes next
        self._finished = False

    def __next__(self) -> Any:
        index = None
        try:
            with self._turn:
                if self._finished:
                    raise StopIteration
                raw = self._ask()
                if raw is None:
                    self._finish()
                    raise StopIteration
                batch = self._taken(raw)
                index = raw.index
                self._count(index + 1)
        except BaseException:
            if index is not None and self._next == index + 1:  # interrupted where the turn ends
                self._count(index)
            raise
        return batch

    def begin(
        self,
        epoch: int,
        first: int,
        mode: Literal["train", "trace", "plain"],
        began: dict[str, Any] | None = None,
    ) -> None:
        """Start the library's work, under the loader's lock. Nothing is noted before that has succeeded."""
        loader = self._loader
        loader._native.start(epoch, first, mode)
        self._batches = loader._native if self._trace is not None else loader._delivery.batches(loader._native)
        self._mode, self._began, self._next, self._run = mode, began, first, loader._run

    def _ask(self) -> RawBatch | None:
        """The batch that comes next, None after the last one."""
        loader = self._loader
        if self._run is None:
            loader._begin(self, self._trace)
        while True:
            self._check()
            try:
                raw = self._batches.next()
            except ClosedError:
                self._check()  # it is another thread that ended it
                raise
            self._check()
            if (len(loader) if raw is None else raw.index) == self._next:
                return raw
            with loader._lock:
                self._check()
                if loader._history is not None:
                    loader._history._left()
                epoch = loader._epoch if self._trace is None else self._trace
                self.begin(epoch, self._next, self._mode, self._began)

    def _check(self) -> None:
        if self._loader._run != self._run:
            raise ClosedError(
                "this iterator has ended: its loader was closed, repositioned, or iterated anew; loops that run at the "
                "same time need a loader each"
            )

    def _taken(self, raw: RawBatch) -> Any:
        """What the consumer gets of a batch."""
        if self._trace is not None:
            return self._loader._nodes(raw)
        try:
            return self._loader._take(raw)
        except Exception:  # of the caller's transform: who goes on all the same goes on after this batch
            self._next = raw.index + 1
            raise

    def _count(self, batches: int) -> None:
        """Note that so many batches of the epoch were yielded."""
        self._next = batches
        if self._trace is None and self._loader._run == self._run:
            self._loader._yielded = batches

    def _finish(self) -> None:
        self._finished = True
        if self._trace is None:
            self._loader._end_epoch(self._began)

    def __del__(self) -> None:
        loader = self._loader
        # Who holds the lock begins another epoch or closes the loader, which ends this one.
        if not self._finished and loader._run == self._run and loader._lock.acquire(blocking=False):
            try:
                if loader._run == self._run:
                    with contextlib.suppress(Exception):  # a finalizer has nobody to tell
                        loader._native.stop()
            finally:
                loader._lock.release()
