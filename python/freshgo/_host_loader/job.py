"""A native loader that serves the ranks of a host: one order of their batches, dealt out to them in turn.

The loader makes the batches of all local ranks in the order of their numbers, so that it samples, plans and reads as
one. Batch i of its share belongs to local rank i modulo their number. Whoever lacks a batch takes the next ones from
the loader, for whoever they are, until its own has come. An epoch begins once every rank has asked for it.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from freshgo._host.ranks import spoken
from freshgo._host.table import StepPart
from freshgo._host_loader.steps import Meeting
from freshgo._host_loader.tables import SharedTable
from freshgo._native.handle import POLL_MS
from freshgo._native.loader import Loader as NativeLoader
from freshgo._native.loader import RawBatch, share_count
from freshgo._native.table import flush, settle
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
    requests: int = 0
    """The number of the batch that it has asked for last: it is done with those before."""
    batch: RawBatch | None = None
    """The last one that was made for it, where the loader trains tables."""
    next: int = 0
    """The number of its next batch in that epoch."""
    ready: deque[RawBatch] = field(default_factory=deque)
    error: Exception | None = None
    """Why the epoch that it was in, or asked for, has ended."""


class GoneError(Exception):
    """The rank that is being served has ended."""


class Job:
    """A loader and the ranks that it serves. The methods are called by one thread for each of them."""

    def __init__(self, native: NativeLoader, count: int, tables: Sequence[SharedTable] = ()) -> None:
        """``tables``: which the loader trains, in its order."""
        self.native, self.tables = native, list(tables)
        self._meeting: Meeting | None = None
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
            if number != mine.requests:
                mine.requests = number
                self._changed.notify_all()
            while True:
                self._check(mine)
                if not mine.running or self._run is None:
                    raise ClosedError("the loader has no running epoch")
                self._check_meeting(mine)
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
                if self._loader_busy or full or self._is_step_open():
                    if not wait:
                        return False
                    self._wait(alive)
                elif not self._take(wait, alive):
                    return False

    def step(
        self, local: int, number: int, part: StepPart, seconds: float | None, alive: Callable[[], bool]
    ) -> int | None:
        """Make a step over a table, once all ranks have come that have a batch of this number. Returns the number of
        the step, None where no rank has a gradient. ``seconds``: how long a rank waits for others, None: for ever."""
        until = math.inf if seconds is None else time.monotonic() + seconds
        with self._changed:
            mine = self._ranks[local]
            self._check(mine)
            if not mine.running or self._run is None:
                raise ClosedError("the loader has no running epoch")
            meeting = self._meeting = self._meeting or Meeting(number, part.place)
            meeting.parts[local] = part
            if (meeting.number, meeting.place) != (number, part.place):
                self._fail(RankError("the ranks do not make their steps over the tables in the same order"))
            while not meeting.over:
                self._check(mine)
                self._check_meeting(mine)
                missing = [other for other in self._with_batch(number) if other not in meeting.parts]
                if not missing and not self._loader_busy:
                    self._hold(meeting)
                elif time.monotonic() > until:
                    self._fail(self._absent(missing, "has not come to it within the timeout of the process group"))
                else:
                    self._wait(alive)
            if meeting.error is not None:
                raise meeting.error
            return meeting.step

    def flush(self) -> bool:
        """Write the rows of the tables to their files, as the last step has left them. The epoch goes on. Return False
        where no rank is left, and the loader is being closed, which does the same."""
        with self._changed:
            if not self._ranks:
                return False
            while self._loader_busy:
                self._changed.wait(_LOOK)
            run = self._run
            if run is not None and self._taken > 0:
                flush(self.native)
                return True
            settle(self.native)
            if run is not None:
                self.native.start(run.epoch, run.done, run.mode)
            return True

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
            rank.requested, rank.running, rank.next, rank.requests = None, True, 0, 0
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
            rank.batch = raw if self.tables else None
        return True

    def _received(self, wait: bool, alive: Callable[[], bool]) -> RawBatch | None:
        while True:
            raw = self.native.next(wait=False, timeout_ms=POLL_MS if wait else 0)
            if raw is not None or not wait:
                return raw
            if not alive():
                raise GoneError

    def _again(self, local: int, number: int) -> RawBatch:
        """Make a batch anew that was lost on its way: the loader goes back to its step, and then on to where it was."""
        run, found = self._run, None
        assert run is not None
        self.native.start(run.epoch, run.done + number * run.world_size, run.mode)
        for place in range(number * self._count, self._taken):
            raw = self.native.next()
            if place % self._count == local and place // self._count == number:
                found = raw
        assert found is not None, "it was made before"
        if self.tables:
            self._ranks[local].batch = found
        return found

    def _is_step_open(self) -> bool:
        """Whether the next batch is the first of a step, and ranks are not yet done with the step before."""
        step, place = divmod(self._taken, self._count)
        return bool(self.tables) and place == 0 and any(r.running and r.requests < step for r in self._ranks.values())

    def _with_batch(self, number: int) -> list[int]:
        """Return the local ranks that have a batch of this number."""
        return [local for local in range(self._count) if local + number * self._count < self._total - self._first]

    def _hold(self, meeting: Meeting) -> None:
        """Make the step of a meeting to which all have come."""
        run = self._run
        assert run is not None
        self._meeting = None
        batches = {local: rank.batch for local, rank in self._ranks.items() if rank.batch is not None}
        meeting.hold(self.native, batches, run.world_size, run.rank)
        if meeting.step is not None:
            self.tables[meeting.place].changed()
        self._changed.notify_all()

    def _check_meeting(self, mine: _Rank) -> None:
        """End the epoch of all ranks, and raise, where one of them does not come to the step that others make."""
        meeting = self._meeting
        if meeting is None:
            return
        for local in self._with_batch(meeting.number):
            rank = self._ranks.get(local)
            if rank is None or not rank.running:
                self._fail(self._absent([local], "has left its loop"))
            elif rank.requests > meeting.number:
                self._fail(self._absent([local], "goes on to its next batch"))
            else:
                continue
            self._check(mine)

    def _absent(self, missing: list[int], why: str) -> RankError:
        assert self._run is not None
        return RankError(
            f"an optimiser's step() over a table that ranks share needs all ranks that have a batch, and "
            f"{spoken([self._run.rank + local for local in missing])} {why}"
        )

    def _leave(self, rank: _Rank) -> None:
        rank.requested, rank.running, rank.batch = None, False, None
        rank.ready.clear()
        if not any(other.running for other in self._ranks.values()) and not self._loader_busy and self._run is not None:
            self._run = None
            self.native.stop()
        self._changed.notify_all()

    def _fail(self, error: Exception) -> None:
        """End the epoch of all ranks. Each raises this error."""
        self._meeting = None
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
