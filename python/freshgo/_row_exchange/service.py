"""The threads that exchange rows with the other ranks, for the batches of a loader in their order.

One thread requests and reads, one sends, and one assembles rows, so that the rows of a batch travel while the rows of
the next are read and the rows of the one before are assembled. The first thread takes turns as long as any rank
requests rows, whatever the loop of its own rank does: a rank that has left an epoch, or was closed, answers until the
others have their rows. Ranks that leave epochs early may be in different epochs. The threads are idle when no rank
requests rows and all ranks have begun equally many epochs: a rank that has begun fewer will request rows again. So a
whole epoch ends on a rank when no rank requests rows of it, and no rank needs the ranks that leave the job after it.
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
from freshgo._row_exchange.division import DividedNodes
from freshgo._row_exchange.exchange import Exchange, PeerFailedError, Turn
from freshgo._row_exchange.feed import Feed, Source
from freshgo._row_exchange.rows import HotRows, RowsOf
from freshgo._row_exchange.wire import LinkLostError
from freshgo.errors import FreshgoError, InternalError, RankError

_FILL_BYTES = 4 << 20
"""Bytes of rows that are requested at a time to fill the memory of the hottest rows. Arbitrary."""

_services: weakref.WeakSet[Service] = weakref.WeakSet()

_LEAVE_SECONDS = 2.0
"""The longest wait of a process that ends, for turns that other ranks have begun."""


@atexit.register
def _close_services() -> None:
    """End the idle threads before the interpreter frees the objects that they use."""
    for service in list(_services):
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
    """A thread that does one step of each turn, in the order of the turns."""

    def __init__(self, name: str, step: Callable[[_Underway], None]) -> None:
        self._turns: queue.SimpleQueue[_Underway | None] = queue.SimpleQueue()
        self._step = step
        self.thread = threading.Thread(target=self._run, daemon=True, name=name)
        self.thread.start()

    def take(self, underway: _Underway | None) -> None:
        """Queue a turn; None ends the thread."""
        self._turns.put(underway)

    def _run(self) -> None:
        while (underway := self._turns.get()) is not None:
            self._step(underway)
            del underway  # and its rows, while it waits


class Service:
    """The threads, which begin with the first epoch."""

    def __init__(
        self, exchange: Exchange, frame: Frame, choose: Callable[[int], HotRows], closing: Callable[[], None]
    ) -> None:
        """``choose`` makes room for the hottest rows once the bytes of a batch are known. ``closing`` is called in the
        end, when the other ranks need nothing any more."""
        self.exchange = exchange
        self._frame, self._closing = frame, closing
        self._choose: Callable[[int], HotRows] | None = choose
        self._lock = threading.Condition()
        self._feed: Feed | None = None
        self._pending: RawBatch | None = None  # the next batch, which waits until the hottest rows have come
        self._pending_feed: Feed | None = None  # the feed of that batch
        self._closed = False
        self._begun = 0  # epochs
        self._requested = False  # whether any rank requested rows in the last turn
        self._all_finished = 0  # epochs that all ranks had finished in the last turn
        self._finished = 0  # epochs that this rank announces as finished in the next turn
        self._filling = True  # the hottest rows of some rank have not come
        self._idle = False  # in no turn, and no rank needs one
        self._error: FreshgoError | None = None
        self._error_known = False  # all ranks know of the error, or cannot be reached
        self._assembling = _Step("freshgo-rows", self._assemble)
        self._sending = _Step("freshgo-wire", self._send)
        self._thread = threading.Thread(target=self._run, daemon=True, name="freshgo-exchange")
        self._thread.start()
        _services.add(self)

    def begin(self, source: Source, count: int) -> Feed:
        """Fetch the rows of ``count`` batches, in place of the batches of an epoch that was stopped. A rank without
        batches begins too, since the others wait for it."""
        with self._lock:
            if self._error is not None:
                raise self._error
            self._begun, self._idle = self._begun + 1, False
            self._feed = Feed(source, count, self._begun, self._lock)
            self._lock.notify_all()
            return self._feed

    def stop(self) -> None:
        """Fetch no more rows for this rank. It still answers the others."""
        with self._lock:
            if self._feed is not None:
                self._feed.ended = True
                self._feed = self._pending_feed = self._pending = None
                self.exchange.buffers.clear()
                self._lock.notify_all()

    def close(self) -> None:
        """End the threads once no rank requests rows, at once if none does now."""
        self.stop()
        with self._lock:
            self._closed = True
            self._lock.notify_all()
            waits = self._idle or self.exchange.wire is None
        own = (self._thread, self._sending.thread, self._assembling.thread)
        if waits and threading.current_thread() not in own:
            self._thread.join()

    def join(self, seconds: float) -> None:
        """Wait for the end of the threads, after ``close``."""
        self._thread.join(seconds)

    def _run(self) -> None:
        try:
            while (feed := self._next_request()) is not None or self._needs_turn():
                if feed is None:
                    self._sending.take(self._begin_turn(None))  # this rank requests nothing
                else:
                    self._advance(feed)
        except Exception as error:
            self._end_steps()  # they may have the first error
            self._note_error(error)
            if not self._error_known:
                self.exchange.fail()
            with self._lock:
                if self._feed is not None and self._error is not None:
                    self._feed.fail(self._error)
        finally:
            self._end_steps()
            self._idle = True
            self._closing()

    def _end_steps(self) -> None:
        """End the other threads, after the turns that they have."""
        for step in (self._sending, self._assembling):
            step.take(None)
            step.thread.join()

    def _note_error(self, error: Exception) -> None:
        """Keep the first error, which ends the turns."""
        known = RankError(str(error)) if isinstance(error, LinkLostError | PeerFailedError) else error
        with self._lock:
            self._error_known = self._error_known or isinstance(error, LinkLostError | PeerFailedError)
            if self._error is None:
                self._error = known if isinstance(known, FreshgoError) else InternalError(repr(known))
            self._lock.notify_all()

    def _begin_turn(self, requests: Mapping[str, Tensor] | None, *, fills: bool = False) -> _Underway:
        """Take the first step of a turn."""
        turn = self.exchange.request(requests, self._finished, fills=fills)
        self._filling = self._filling and turn.fills
        with self._lock:
            self._requested, self._all_finished = turn.requested, turn.finished
            if self._feed is not None:
                self._feed.settle(turn.finished)
            self._lock.notify_all()
        return _Underway(turn)

    def _needs_turn(self) -> bool:
        """Whether another turn comes: a rank requested rows in the last, or has begun fewer epochs than this one."""
        return self._requested or self._all_finished < self._begun

    def _send(self, underway: _Underway) -> None:
        self.exchange.send(underway.turn)
        self._assembling.take(underway)

    def _assemble(self, underway: _Underway) -> None:
        try:
            underway.rows = self.exchange.assemble(underway.turn)
            if underway.feed is not None and underway.raw is not None and self._error is None:
                tensors = self._frame.filled(underway.raw.tensors, underway.rows)
                underway.feed.put(dataclasses.replace(underway.raw, tensors=tensors))
        except Exception as error:
            self._note_error(error)
        finally:
            underway.done.set()

    def _next_request(self) -> Feed | None:
        """Return the feed that needs a batch; None if only other ranks need rows, or, after ``close``, no rank."""
        with self._lock:
            while True:
                if self._error is not None:  # of a later step of a turn
                    raise self._error
                feed = self._feed
                if feed is not None and feed.due():
                    if feed.room():
                        self._idle, self._finished = False, self._begun - 1
                        return feed
                elif self._needs_turn() or self._closed:
                    self._finished = self._begun
                    return None
                else:
                    self._idle = True
                self._lock.wait(1.0)

    def _advance(self, feed: Feed) -> None:
        """Take one turn for a feed, if its batch is made. The first turns are for the hottest rows, on all ranks, so
        that they come to the end of an epoch together."""
        raw = self._next(feed)
        if raw is None:
            time.sleep(0.0005)  # without the lock, for which another thread may wait
            return
        nodes, requests = self.exchange.division.nodes, self._frame.ids(raw.tensors)
        if self._choose is not None:
            self.exchange.hot = self._choose(sum(requests[of.node_type].numel() * of.n_bytes for of in nodes))
            self._choose = None
        if self._filling:
            self._fill()
            return
        self._pending = None
        underway = self._begin_turn(requests)
        underway.feed, underway.raw = feed, raw
        feed.requested()
        self._sending.take(underway)

    def _fill(self) -> None:
        """Request the next of the hottest rows."""
        hot, nodes = self.exchange.hot, self.exchange.division.nodes
        requests = {of.node_type: torch.empty(0, dtype=torch.int64) for of in nodes}
        filled = next((of for of in nodes if hot.missing(of, _FILL_BYTES).numel()), None)
        if filled is not None:
            requests[filled.node_type] = hot.missing(filled, _FILL_BYTES)
        underway = self._begin_turn(requests, fills=filled is not None)
        self._sending.take(underway)
        underway.done.wait()
        if filled is not None and self._error is None:
            hot.fill(filled, underway.rows[filled.node_type])

    def _next(self, feed: Feed) -> RawBatch | None:
        """Return the next batch of the library, None if it is not made or not needed. An error of the library ends this
        rank's feed alone: the others go on."""
        with self._lock:
            if not feed.due():
                return None
            if self._pending is not None and self._pending_feed is feed:
                return self._pending
            try:
                self._pending, self._pending_feed = feed.take(), feed
            except FreshgoError as error:
                feed.fail(error)
                return None
            return self._pending


@dataclasses.dataclass(frozen=True)
class Frame:
    """The places of divided rows in a batch of the library."""

    nodes: tuple[DividedNodes, ...]
    prefixes: dict[str, str]
    """The prefix of the names of tensors, by node type."""

    def ids(self, tensors: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return the nodes of a batch by type; an empty tensor for types that it does not have."""
        found = {of.node_type: tensors.get(f"{self.prefixes[of.node_type]}n_id") for of in self.nodes}
        return {t: torch.empty(0, dtype=torch.int64) if ids is None else ids for t, ids in found.items()}

    def filled(self, tensors: dict[str, Tensor], rows: Mapping[str, RowsOf]) -> dict[str, Tensor]:
        """Return the tensors of a batch together with its rows, named and shaped as the library does."""
        whole = dict(tensors)
        for of in self.nodes:
            prefix = self.prefixes[of.node_type]
            if f"{prefix}n_id" in tensors:
                for one in of.tensors:
                    table = rows[of.node_type][one.name]
                    whole[f"{prefix}{one.name}"] = table.view(one.dtype).view(table.size(0), *one.shape)
        return whole
