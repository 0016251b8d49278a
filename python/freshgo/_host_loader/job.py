"""A native loader that serves the ranks of a host: one order of their batches, dealt out to them in turn.

The loader makes the batches of all local ranks in the order of their numbers, so that it samples, plans and reads as
one. Batch i of its share belongs to local rank i modulo their number. Whoever lacks a batch takes the next ones from
the loader, for whoever they are, until its own has come. An epoch begins once every rank has asked for it.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from freshgo._native.handle import POLL_MS
from freshgo._native.loader import Loader as NativeLoader
from freshgo._native.loader import RawBatch, share_count
from freshgo.errors import ClosedError, RankError

AHEAD = 2
"""Batches that wait for a rank while others go on. The ranks of a job that trains together are at most one apart."""

_LOOK = 0.05
"""Seconds after which who waits looks again whether its rank is still there."""


@dataclass(frozen=True)
class Run:
    """An epoch, as a rank asks for it: the same for all ranks of the host."""

    epoch: int
    done: int
    mode: Any
    rank: int
    """The first rank of the host."""
    world_size: int
    uneven: int


@dataclass
class _Rank:
    requested: Run | None = None
    """The epoch that it waits for."""
    running: bool = False
    """Whether it is in the epoch that runs."""
    next: int = 0
    """The number of its next batch in that epoch."""
    ready: deque[RawBatch] = field(default_factory=deque)
    error: Exception | None = None
    """Why the epoch that it was in, or asked for, has ended."""


class GoneError(Exception):
    """The rank that is being served has ended."""


class Job:
    """A loader and the ranks that it serves. The methods are called by one thread for each of them."""

    def __init__(self, native: NativeLoader, count: int) -> None:
        self.native = native
        self._ranks = {local: _Rank() for local in range(count)}
        self._count = count
        self._changed = threading.Condition()
        self._lost: RankError | None = None
        self._loader_busy = False  # a thread is within the loader
        self._run: Run | None = None
        self._total = self._first = self._taken = 0  # batches of the share, in all, where it began, and taken since

    def start(self, local: int, run: Run, alive: Callable[[], bool]) -> int:
        """Begin an epoch for a rank, as soon as all of them have asked for it. A rank that has not left the one that
        runs goes back in it. Returns the number of its next batch."""
        with self._changed:
            mine = self._ranks[local]
            if mine.running and self._run is not None:
                steps, rest = divmod(run.done - self._run.done, run.world_size)
                if 0 <= steps <= mine.next and rest == 0 and replace(run, done=self._run.done) == self._run:
                    return steps
            self._leave(mine)
            mine.requested, mine.error = run, None
            self._changed.notify_all()
            while mine.requested is not None:
                self._check(mine)
                requested = [rank.requested for rank in self._ranks.values()]
                if None in requested or self._loader_busy:
                    self._wait(alive)
                elif any(other != run for other in requested):
                    self._fail(RankError(f"the ranks of this host begin different epochs: {self._shown()}"))
                else:
                    self._begin(run)
            self._check(mine)
            return 0

    def next(self, local: int, number: int, wait: bool, alive: Callable[[], bool]) -> RawBatch | bool | None:
        """Return batch ``number`` of a rank in the epoch that runs, None after the last one, and False where it is not
        made yet and ``wait`` is not set."""
        with self._changed:
            mine = self._ranks[local]
            while True:
                self._check(mine)
                if not mine.running or self._run is None:
                    raise ClosedError("the loader has no running epoch")
                if number == mine.next and mine.ready:
                    mine.next += 1
                    self._changed.notify_all()  # there is room again
                    return mine.ready.popleft()
                if number < mine.next and not self._loader_busy:
                    return self._again(local, number)
                if local + number * self._count >= self._total - self._first:
                    return None
                turn = self._ranks.get(self._taken % self._count)
                full = turn is not None and turn.running and len(turn.ready) >= AHEAD
                if self._loader_busy or full:
                    if not wait:
                        return False
                    self._wait(alive)
                elif not self._take(wait, alive):
                    return False

    def stop(self, local: int) -> None:
        """Leave the epoch that runs."""
        with self._changed:
            self._leave(self._ranks[local])

    def left(self, local: int, *, lost: str | None) -> bool:
        """Go on without a rank, or tell all others that it is lost. Returns whether it was the last one."""
        with self._changed:
            if lost is not None and self._lost is None:
                self._lost = RankError(lost)
            self._leave(self._ranks.pop(local))
            self._changed.notify_all()
            return not self._ranks

    def close(self) -> None:
        """Free what the loader holds."""
        self.native.close()

    # With the lock held.

    def _begin(self, run: Run) -> None:
        members = {"rank": run.rank, "world_size": run.world_size, "uneven": run.uneven, "adjacent": self._count}
        try:
            self.native.take(members)
            self.native.start(run.epoch, run.done, run.mode)
        except Exception as error:
            self._fail(error)
            return
        self._run, self._taken = run, 0
        self._total = share_count(members, self.native.num_batches, 0)
        self._first = self._total - share_count(members, self.native.num_batches, run.done)
        for rank in self._ranks.values():
            rank.requested, rank.running, rank.next = None, True, 0
            rank.ready.clear()
        self._changed.notify_all()

    def _take(self, wait: bool, alive: Callable[[], bool]) -> bool:
        """Take a batch from the loader, for whichever rank it is; False where ``wait`` is not set and there is none
        yet. The lock is not held meanwhile."""
        self._loader_busy, raw, failed = True, None, None
        self._changed.release()
        try:
            raw = self._received(wait, alive)
        except GoneError:
            raise
        except Exception as error:
            failed = error
        finally:
            self._changed.acquire()
            self._loader_busy = False
            self._changed.notify_all()
        if failed is not None:
            self._fail(failed)
        if raw is None:
            return failed is not None  # which the next look finds
        rank = self._ranks.get(self._taken % self._count)
        self._taken += 1
        if rank is not None and rank.running:
            rank.ready.append(raw)
        return True

    def _received(self, wait: bool, alive: Callable[[], bool]) -> RawBatch | None:
        while True:
            raw = self.native.next(wait=False, timeout_ms=POLL_MS if wait else 0)
            if raw is not None or not wait:
                return raw
            if not alive():
                raise GoneError

    def _again(self, local: int, number: int) -> RawBatch:
        """Make a batch anew that was lost on its way: the loader goes back to it, and then on to where it was."""
        run = self._run
        assert run is not None
        found = self._at(run, number, number * self._count + local)
        assert found is not None, "it was made before"
        left = self._first + self._taken < self._total
        if left:
            self._at(run, self._taken // self._count, self._taken - 1)
        return found

    def _at(self, run: Run, step: int, place: int) -> RawBatch | None:
        """Begin at a step of all ranks and return the batch at a place in the epoch that runs, if that step has it."""
        self.native.start(run.epoch, run.done + step * run.world_size, run.mode)
        found = None
        for _ in range(step * self._count, place + 1):
            found = self.native.next()
        return found

    def _leave(self, rank: _Rank) -> None:
        rank.requested, rank.running = None, False
        rank.ready.clear()
        if not any(other.running for other in self._ranks.values()) and not self._loader_busy and self._run is not None:
            self._run = None
            self.native.stop()
        self._changed.notify_all()

    def _fail(self, error: Exception) -> None:
        """End the epoch of all ranks. Each raises this error."""
        for rank in self._ranks.values():
            rank.error = error
            self._leave(rank)

    def _check(self, mine: _Rank) -> None:
        if self._lost is not None:
            raise self._lost
        if mine.error is not None:
            error, mine.error = mine.error, None
            raise error

    def _wait(self, alive: Callable[[], bool]) -> None:
        self._changed.wait(_LOOK)
        if not alive():
            raise GoneError

    def _shown(self) -> str:
        requested: Mapping[int, Run | None] = {local: rank.requested for local, rank in self._ranks.items()}
        return ", ".join(
            f"local rank {local} epoch {run.epoch} after {run.done} batches"
            for local, run in requested.items()
            if run is not None
        )
