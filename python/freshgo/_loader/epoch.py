"""The iterators of a loader: each batch of an epoch once, whatever interrupts the consumer.

``KeyboardInterrupt``, and what other handlers of signals raise, may strike between any two steps, also after the
library handed a batch over and before the consumer has it. A batch counts as yielded only when nothing can come between
it and the consumer any more. Where the next batch of the library is not the one after it, the epoch is begun again
there: that costs what was prepared ahead, and yields the identical batch.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Iterator
from typing import Any, NoReturn

from freshgo._args.choices import Uneven
from freshgo._loader.engine import Batches, Engine
from freshgo._loader.position import FEW, Mode
from freshgo._loader.ranks import Share
from freshgo._native.loader import RawBatch
from freshgo._observe import log
from freshgo._observe.ranges import stage
from freshgo.errors import ClosedError, DTypeError, RankError

_SUMS = (
    *("batches", "rows", "hits", "packed", "misses", "held", "edges", "bytes_read", "requests"),
    *("seconds_waiting", "seconds"),
)
"""The figures of stats() that grow, and the time."""


class Epoch(Iterator[Any]):
    """The batches, or the trace, of one epoch. Threads that share it take turns, and get each batch once.

    Every rank makes as many batches as all others, so that they have made ``world_size`` times as many together.
    """

    def __init__(self, engine: Engine, *, trace: int | None = None, uneven: Uneven | None = None) -> None:
        self._engine = engine
        self._at = engine.at
        self._trace = trace
        self._uneven = uneven  # in place of the loader's
        self._turn = threading.RLock()  # a handler of signals may ask for a batch within another's turn
        self._run: int | None = None  # not begun
        self._batches: Batches
        self._mode: Mode
        self._share: Share
        self._began: dict[str, Any] | None = None  # the loader's figures at its first batch
        self._next = 0  # the batch that comes next, by the loader's own count
        self._first, self._done = 0, 0  # the batch that came first, and how many all ranks had made then
        self._end = 0  # the number after the last one
        self._finished = False

    def __next__(self) -> Any:
        index = None
        try:
            with self._turn:
                if self._finished:
                    raise StopIteration
                raw = self._fetch()
                if raw is None:
                    self._finish()
                    raise StopIteration
                batch = self._finished_batch(raw)
                index = raw.index
                self._count(index + 1)
        except BaseException:
            if index is not None and self._next == index + 1:  # interrupted where the turn ends
                self._count(index)
            raise
        return batch

    def _begin(self) -> None:
        """Begin the loader's next epoch, or trace one."""
        at, engine = self._at, self._engine
        with at.lock:
            self._share = engine.ranks.now(self._uneven)
            if self._trace is not None:
                at.run += 1
                at.continued, at.hurried = False, 0
                self._start(self._trace, 0, "trace", None)
                return
            if at.begun:
                at.move(at.epoch + 1, 0)
            at.running = None  # whatever iterator was served, this epoch is not its own
            at.continued, at.hurried = False, 0
            engine.settle(self._share)
            mode = engine.mode()
            at.run += 1
            engine.stop()  # so that the figures are this epoch's alone
            began = None if at.done else self._figures()
            self._start(at.epoch, at.done, mode, began)
            at.begun = True

    def _start(self, epoch: int, done: int, mode: Mode, began: dict[str, Any] | None) -> None:
        """Start the library's work, under the lock. Nothing is noted before that has succeeded."""
        started = self._engine.start(epoch, done, self._share, mode)
        self._batches, self._end = started.batches, started.count
        self._first, self._done, self._next = started.first, done, started.first
        self._mode, self._began, self._run = mode, began, self._at.run
        self._at.since = self._at.counted = started.first
        self._at.running = self._run

    def _fetch(self) -> RawBatch | None:
        """The batch that comes next, None after the last one."""
        engine = self._engine
        if self._run is None:
            self._begin()
        self._check_ranks()
        worth = self._mode == "train" and self._end - self._next >= FEW
        if worth and not engine.on_demand and engine.delivery.due(within=True):
            self._again()
        while True:
            self._check()
            try:
                with stage("freshgo.wait"):
                    raw = self._batches.next()
            except ClosedError:
                self._check()  # it is another thread that ended it
                if self._next == self._end:  # the loader has lent its memory since the last batch
                    return None
                if engine.openings.closed:
                    raise
                self._again(lent=True)
                continue
            self._check()
            if (self._end if raw is None else raw.index) == self._next:
                return raw
            self._again()

    def _again(self, *, lent: bool = False) -> None:
        """Begin the epoch again at the batch that comes next."""
        at = self._at
        with at.lock:
            self._check()
            if lent:
                at.continued = True
            else:
                self._engine.forget()
            epoch = at.epoch if self._trace is None else self._trace
            self._start(epoch, self._made(self._next), self._mode, self._began)

    def _check(self) -> None:
        if self._at.run != self._run:
            raise ClosedError(
                "this iterator has ended: its loader was closed, repositioned, or iterated anew; loops that run at the "
                "same time need a loader each"
            )

    def _check_ranks(self) -> None:
        share = self._engine.ranks.now(self._uneven)
        if share != self._share:
            raise RankError(
                f"this epoch began as that of rank {self._share.rank} of {self._share.world_size}, and this process is "
                f"now rank {share.rank} of {share.world_size}: go on with load_state_dict(state_dict()), or with the "
                "next epoch"
            )

    def _made(self, before: int) -> int:
        """How many batches all ranks together have made when this one has come to the batch ``before``."""
        made = self._done + (before - self._first) * self._share.world_size
        return min(made, self._engine.openings.num_batches)

    def _finished_batch(self, raw: RawBatch) -> Any:
        """What the consumer gets of a batch."""
        if self._trace is not None:
            return self._engine.assembler.nodes(raw)
        try:
            return self._engine.assembler.finished(raw)
        except Exception as error:  # of the caller's transform: who goes on all the same goes on after this batch
            self._next = raw.index + 1
            if isinstance(error, StopIteration):  # as in a generator: the loop would take it for the end of the epoch
                raise RuntimeError("the transform raised StopIteration") from error
            raise

    def _count(self, batches: int) -> None:
        """Record the number of batches that were yielded."""
        self._next = batches
        if self._at.run != self._run:
            return
        self._at.counted = batches
        # Who counts batches never asks for the one after the last: then the loader is idle all the same.
        self._at.running = None if batches == self._end else self._run
        if self._trace is None:
            self._at.done = self._made(batches)

    def _finish(self) -> None:
        self._finished = True
        self._at.running = None
        if self._trace is not None:
            return
        epoch = self._at.epoch
        self._at.move(epoch + 1, 0)
        if self._began is not None:
            before, after = self._began, self._figures()
            log.epoch_ended(epoch, after)
            self._at.whole.append({"epoch": epoch, **{key: after[key] - before[key] for key in _SUMS if key in after}})

    def _figures(self) -> dict[str, Any]:
        return {**self._engine.openings.stats(), "seconds": time.monotonic()}

    def __repr__(self) -> str:
        return (
            f"<iterator at batch {self._next} of {self._end}>" if self._run is not None else "<iterator at its start>"
        )

    def __reduce__(self) -> NoReturn:
        raise DTypeError(
            "the iterator of a Loader cannot be copied or pickled: iterate over the loader, and carry over its "
            "state_dict()"
        )

    def __del__(self) -> None:
        at = self._at
        # Who holds the lock begins another epoch or closes the loader, which ends this one.
        if not self._finished and at.run == self._run and at.lock.acquire(blocking=False):
            try:
                if at.run == self._run:
                    at.running = None
                    with contextlib.suppress(Exception):  # a finalizer has nobody to tell
                        self._engine.stop()
            finally:
                at.lock.release()
