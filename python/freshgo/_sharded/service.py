"""The threads that exchange rows with the other ranks, for the batches of one loader after the other.

One asks and reads, one hands over, and one puts rows together, so that the rows of a batch are under way while those of
the next are read and those of the one before are put together. The first takes its turns as long as any rank asks for
rows, whatever the loop of its own rank does: a rank that has left an epoch, or was closed, answers until the others
have what they want. Ranks that leave epochs early may be in different ones. The threads rest when nobody asks and all
ranks have begun as many epochs: one that has begun fewer will ask again. So a whole epoch ends on a rank when no rank
asks for it any more, and those that leave the job after it are needed by nobody.
"""

from __future__ import annotations

import atexit
import dataclasses
import queue
import threading
import time
import weakref
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from freshgo._native.loader import RawBatch
from freshgo._sharded.division import DividedNodes
from freshgo._sharded.exchange import Exchange, ToldError, Turn
from freshgo._sharded.feed import Feed, Source
from freshgo._sharded.rows import Hot, RowsOf
from freshgo._sharded.wire import LinkLostError
from freshgo.errors import FreshgoError, InternalError, RankError

_FILL_BYTES = 4 << 20
"""Rows that are asked for at a time to fill the memory of the hottest. Arbitrary."""

_living: weakref.WeakSet[Service] = weakref.WeakSet()

_LEAVE_SECONDS = 2.0
"""How long a process that ends waits for turns that other ranks have begun."""


@atexit.register
def _close_living() -> None:
    """Let the threads end that may, before the interpreter takes away what they use."""
    for service in list(_living):
        service.close()
        service.join(_LEAVE_SECONDS)


@dataclasses.dataclass
class _Underway:
    """A turn, and the batch that it is for."""

    turn: Turn
    feed: Feed | None = None
    raw: RawBatch | None = None
    rows: dict[str, RowsOf] = dataclasses.field(default_factory=dict)
    done: threading.Event = dataclasses.field(default_factory=threading.Event)


class _Step:
    """A thread that takes a step of one turn after the other."""

    def __init__(self, name: str, step: Callable[[_Underway], None]) -> None:
        self._turns: queue.SimpleQueue[_Underway | None] = queue.SimpleQueue()
        self._step = step
        self.thread = threading.Thread(target=self._run, daemon=True, name=name)
        self.thread.start()

    def take(self, underway: _Underway | None) -> None:
        """Let it go on with a turn; None: it ends."""
        self._turns.put(underway)

    def _run(self) -> None:
        while (underway := self._turns.get()) is not None:
            self._step(underway)
            del underway  # and its rows, while it waits


class Service:
    """The threads, which begin with the first epoch."""

    def __init__(
        self, exchange: Exchange, frame: Frame, choose: Callable[[int], Hot], closing: Callable[[], None]
    ) -> None:
        """``choose`` makes room for the hottest rows once the bytes of a batch are known. ``closing`` is called in the
        end, when the other ranks need nothing any more."""
        self.exchange = exchange
        self._frame, self._closing = frame, closing
        self._choose: Callable[[int], Hot] | None = choose
        self._lock = threading.Condition()
        self._feed: Feed | None = None
        self._of: Feed | None = None  # of which the next batch is
        self._raw: RawBatch | None = None  # what waits until the hottest rows have come
        self._closed = False
        self._begun = 0  # epochs
        self._asked, self._done = False, 0  # by any rank in the last turn; epochs that all ranks were done with then
        self._says = 0  # epochs that this rank is done with in the next turn
        self._filling = True  # the hottest rows of some rank have not come
        self._rests = False  # in no turn, and nobody wants one
        self._error: FreshgoError | None = None
        self._told = False  # all ranks know of it, or cannot be told
        self._together = _Step("freshgo-rows", self._put_together)
        self._handing = _Step("freshgo-wire", self._hand_over)
        self._thread = threading.Thread(target=self._run, daemon=True, name="freshgo-exchange")
        self._thread.start()
        _living.add(self)

    def begin(self, source: Source, count: int) -> Feed:
        """Fetch the rows of so many batches, in place of those of an epoch before, which was stopped. A rank without
        batches begins too, since the others wait for it."""
        with self._lock:
            if self._error is not None:
                raise self._error
            self._begun, self._rests = self._begun + 1, False
            self._feed = Feed(source, count, self._begun, self._lock)
            self._lock.notify_all()
            return self._feed

    def stop(self) -> None:
        """Fetch no more rows for this rank. The others are answered."""
        with self._lock:
            if self._feed is not None:
                self._feed.ended = True
                self._feed = self._of = self._raw = None
                self.exchange.buffers.clear()
                self._lock.notify_all()

    def close(self) -> None:
        """End the threads once nobody asks any more, at once if that is so now."""
        self.stop()
        with self._lock:
            self._closed = True
            self._lock.notify_all()
            waits = self._rests or self.exchange.wire is None
        own = (self._thread, self._handing.thread, self._together.thread)
        if waits and threading.current_thread() not in own:
            self._thread.join()

    def join(self, seconds: float) -> None:
        """Wait for the end of the thread, which was closed."""
        self._thread.join(seconds)

    def _run(self) -> None:
        try:
            while (feed := self._wanted()) is not None or self._lively():
                if feed is None:
                    self._answer()
                else:
                    self._advance(feed)
        except Exception as error:
            self._end_steps()  # which may know better why
            self._failed(error)
            if not self._told:
                self.exchange.fail()
            with self._lock:
                if self._feed is not None and self._error is not None:
                    self._feed.fail(self._error)
        finally:
            self._end_steps()
            self._rests = True
            self._closing()

    def _end_steps(self) -> None:
        """Let the other threads end, after what is on its way."""
        for step in (self._handing, self._together):
            step.take(None)
            step.thread.join()

    def _failed(self, error: Exception) -> None:
        """Note why there are no more turns: what was first."""
        known = RankError(str(error)) if isinstance(error, LinkLostError | ToldError) else error
        with self._lock:
            self._told = self._told or isinstance(error, LinkLostError | ToldError)
            if self._error is None:
                self._error = known if isinstance(known, FreshgoError) else InternalError(repr(known))
            self._lock.notify_all()

    def _turn(self, wanted: Mapping[str, Tensor] | None, *, fills: bool = False) -> _Underway:
        """Take the first step of a turn."""
        turn = self.exchange.ask(wanted, self._says, fills=fills)
        self._filling = self._filling and turn.fills
        with self._lock:
            self._asked, self._done = turn.asked, turn.done
            if self._feed is not None:
                self._feed.settle(turn.done)
            self._lock.notify_all()
        return _Underway(turn)

    def _lively(self) -> bool:
        """Whether there is another turn: some rank asked in the last one, or has begun fewer epochs than this one."""
        return self._asked or self._done < self._begun

    def _hand_over(self, underway: _Underway) -> None:
        self.exchange.hand_over(underway.turn)
        self._together.take(underway)

    def _put_together(self, underway: _Underway) -> None:
        try:
            underway.rows = self.exchange.together(underway.turn)
            if underway.feed is not None and underway.raw is not None and self._error is None:
                tensors = self._frame.filled(underway.raw.tensors, underway.rows)
                underway.feed.put(dataclasses.replace(underway.raw, tensors=tensors))
        except Exception as error:
            self._failed(error)
        finally:
            underway.done.set()

    def _answer(self) -> None:
        """Take a turn in which this rank asks for nothing."""
        self._handing.take(self._turn(None))

    def _wanted(self) -> Feed | None:
        """The feed that wants a batch; None where the other ranks alone want something, or nobody in the end."""
        with self._lock:
            while True:
                if self._error is not None:  # of a turn whose first step was well
                    raise self._error
                feed = self._feed
                if feed is not None and feed.due():
                    if feed.room():
                        self._rests, self._says = False, self._begun - 1
                        return feed
                elif self._lively() or self._closed:
                    self._says = self._begun
                    return None
                else:
                    self._rests = True
                self._lock.wait(1.0)

    def _advance(self, feed: Feed) -> None:
        """Take one turn for a feed, if its batch is made. The first turns are for the hottest rows, on all ranks, so
        that they come to the end of an epoch together."""
        raw = self._next(feed)
        if raw is None:
            time.sleep(0.0005)  # outside of the lock, which another thread may wait for
            return
        nodes, wanted = self.exchange.division.nodes, self._frame.ids(raw.tensors)
        if self._choose is not None:
            self.exchange.hot = self._choose(sum(wanted[of.node_type].numel() * of.n_bytes for of in nodes))
            self._choose = None
        if self._filling:
            self._fill()
            return
        self._raw = None
        underway = self._turn(wanted)
        underway.feed, underway.raw = feed, raw
        feed.asked()
        self._handing.take(underway)

    def _fill(self) -> None:
        """Ask for the next of the hottest rows."""
        hot, nodes = self.exchange.hot, self.exchange.division.nodes
        wanted = {of.node_type: torch.empty(0, dtype=torch.int64) for of in nodes}
        filled = next((of for of in nodes if hot.missing(of, _FILL_BYTES).numel()), None)
        if filled is not None:
            wanted[filled.node_type] = hot.missing(filled, _FILL_BYTES)
        underway = self._turn(wanted, fills=filled is not None)
        self._handing.take(underway)
        underway.done.wait()
        if filled is not None and self._error is None:
            hot.fill(filled, underway.rows[filled.node_type])

    def _next(self, feed: Feed) -> RawBatch | None:
        """The next batch of the library, None where it is not made or not wanted. An error of the library is this
        rank's own: the others go on."""
        with self._lock:
            if not feed.due():
                return None
            if self._raw is not None and self._of is feed:
                return self._raw
            try:
                self._raw, self._of = feed.take(), feed
            except FreshgoError as error:
                feed.fail(error)
                return None
            return self._raw


@dataclasses.dataclass(frozen=True)
class Frame:
    """Where divided rows belong in a batch of the library."""

    nodes: tuple[DividedNodes, ...]
    prefixes: dict[str, str]
    """What the names of tensors begin with, by node type."""

    def ids(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """The nodes of a batch, by type; of types that it does not have, none."""
        found = {of.node_type: tensors.get(f"{self.prefixes[of.node_type]}n_id") for of in self.nodes}
        return {t: torch.empty(0, dtype=torch.int64) if ids is None else ids for t, ids in found.items()}

    def filled(self, tensors: dict[str, Tensor], rows: Mapping[str, RowsOf]) -> dict[str, Tensor]:
        """The tensors of a batch together with its rows, as the library names and shapes them."""
        whole = dict(tensors)
        for of in self.nodes:
            prefix = self.prefixes[of.node_type]
            if f"{prefix}n_id" in tensors:
                for one in of.tensors:
                    table = rows[of.node_type][one.name]
                    whole[f"{prefix}{one.name}"] = table.view(one.dtype).view(table.size(0), *one.shape)
        return whole
