"""Turns in which all ranks exchange rows: in each, every rank may request rows, and answers the others.

A turn has three steps. In the first every rank announces whether it goes on, how many epochs it has finished, and how
many rows it requests from each rank. So all know the bytes between all pairs, and nothing is sent where nothing is
requested. Then come the ids, and each rank reads the rows requested from it. In the second step the rows go as one
message to each rank: a status word, then the rows of each tensor of each node type. In the third a rank assembles its
rows. The steps of different turns may run at the same time, each step in one thread and in the order of the turns.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from freshgo._row_exchange.buffers import Buffers
from freshgo._row_exchange.division import DividedNodes, Division, holders
from freshgo._row_exchange.requests import Reply, Request
from freshgo._row_exchange.rows import HotRows, LocalParts, RowsOf
from freshgo._row_exchange.schedule import Chooser, Way
from freshgo._row_exchange.wire import LinkLostError, Wire
from freshgo.errors import RankError

IDLE, REQUESTS, FILLS, FAILED = 0, 1, 2, 3
_ANNOUNCED = 3  # words of an announcement before its counts: state, nanoseconds of an earlier exchange, finished epochs
_STATUS_BYTES = 8

AHEAD = 2
"""Turns whose rows may be under way, or not yet sent, when the next turn begins."""


class PeerFailedError(RankError):
    """Another rank failed, and has announced it to all ranks."""


@dataclass
class Counts:
    """The rows and bytes exchanged so far."""

    rows_held: int = 0
    rows_own: int = 0
    rows_remote: int = 0
    rows_served: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    turns: int = 0
    seconds: float = 0.0
    """The time of sending rows."""


@dataclass
class Turn:
    """One turn of this rank."""

    requests: list[Request]
    """By node type."""
    requested: bool = True
    """Whether any rank requested rows."""
    finished: int = 0
    """Epochs that all ranks have finished."""
    fills: bool = False
    """Whether any rank still requests the hottest rows, before its first batch."""
    replies: list[Reply] = field(default_factory=list)
    """The rows of this rank's parts that it needs itself, by node type."""
    sent: Tensor | None = None
    parts: list[int] = field(default_factory=list)
    """Bytes of ``sent`` for each rank."""
    received: Tensor | None = None
    n_bytes: list[int] = field(default_factory=list)
    """Bytes of ``came`` from each rank."""
    way: Way = "all_to_all"
    all_bytes: int = 0
    """Bytes of the rows of all ranks."""
    waited: int = 0
    nanoseconds: int = 0
    """The time of sending rows."""
    over: threading.Event = field(default_factory=threading.Event)
    """Set when the second step is done, or has failed."""
    error: Exception | None = None
    """The error of reading rows here, which the status of the messages tells the others; or the loss of a rank."""


class Exchange:
    """The turns of one rank, of several or alone."""

    def __init__(
        self, division: Division, local: LocalParts, hot: HotRows, wire: Wire | None, chooser: Chooser
    ) -> None:
        self.division, self.local, self.hot, self.wire, self.chooser = division, local, hot, wire, chooser
        self.counts = Counts()
        self.buffers = Buffers()
        self._rank, self._world = (0, 1) if wire is None else (wire.rank, wire.world_size)
        self._holders = holders(len(division.parts), self._rank, self._world)
        self._recent: deque[Turn] = deque(maxlen=AHEAD)

    # The first step.

    def request(self, requests: Mapping[str, Tensor] | None, done: int, *, fills: bool = False) -> Turn:
        """Request rows from the other ranks, and read the rows that they request.

        Args:
            wanted: ids by node type, in any order; an id may occur twice. None requests nothing.
            done: the epochs that this rank has finished.
            fills: this rank still requests the hottest rows, so that no rank requests a batch in the next turn.

        Raises:
            ToldError: another rank failed; then there are no more turns
            LinkLostError: another rank is gone
        """
        turn = Turn(
            [
                Request(of, None if requests is None else requests[of.node_type], self.hot, self._holders, self._world)
                for of in self.division.nodes
            ],
            requests is not None,
            done,
            fills,
        )
        self.counts.rows_held += sum(of.hit_places.numel() for of in turn.requests)
        self.counts.rows_own += sum(of.count(self._rank) for of in turn.requests)
        if self.wire is None:
            self._read_replies(turn, [])
            return turn
        before = self._recent[0] if len(self._recent) == AHEAD else None
        if before is not None:
            before.over.wait()
            if isinstance(before.error, LinkLostError):
                raise before.error
        counts = [[of.count(other) for of in turn.requests] for other in range(self._world)]
        counts[self._rank] = [0] * len(turn.requests)
        state = FILLS if fills else IDLE if requests is None else REQUESTS
        announced = self.wire.announce(
            self._announcement(state, 0 if before is None else before.nanoseconds, done, counts)
        )
        failed = (announced[:, 0] == FAILED).nonzero().view(-1).tolist()
        if failed:
            raise PeerFailedError(
                f"rank {failed[0]} could not go on with the exchange of rows, and has raised the error"
            )
        if before is not None:
            self.chooser.record(float(announced[:, 1].max()) / 1e9, before.all_bytes, before.way)
        self.counts.turns += 1
        self._recent.append(turn)
        turn.requested, turn.fills = bool((announced[:, 0] != IDLE).any()), bool((announced[:, 0] == FILLS).any())
        turn.finished = int(announced[:, 2].min())
        # Of the first rank, from the second, of the type.
        requested = announced[:, _ANNOUNCED:].view(self._world, self._world, len(turn.requests))
        widths = torch.tensor([of.n_bytes for of in self.division.nodes])
        turn.way, turn.all_bytes = self.chooser.way, int((requested * widths).sum())
        self._read_replies(turn, self._receive_requests(turn, requested) if turn.all_bytes else [])
        return turn

    def fail(self) -> None:
        """Tell all ranks, which would otherwise wait for this one in the next turn, that there is none."""
        if self.wire is not None:
            with contextlib.suppress(LinkLostError):
                self.wire.announce(self._announcement(FAILED, 0, 0, [[0] * len(self.division.nodes)] * self._world))

    def _announcement(self, state: int, nanoseconds: int, done: int, counts: list[list[int]]) -> Tensor:
        return torch.tensor([state, nanoseconds, done, *(count for of_rank in counts for count in of_rank)])

    def _receive_requests(self, turn: Turn, requested: Tensor) -> list[list[Tensor]]:
        """Exchange the ids of requests, and return the ids that each rank requests here, by node type."""
        assert self.wire is not None
        of_me = requested[:, self._rank].tolist()
        began = time.monotonic_ns()
        requests = [
            torch.cat([of.ids_of(other)[: None if other != self._rank else 0] for of in turn.requests])
            for other in range(self._world)
        ]
        received = self.wire.exchange_ids(requests, [sum(of_rank) for of_rank in of_me])
        turn.waited = time.monotonic_ns() - began
        self.counts.bytes_sent += 8 * sum(map(len, requests))
        self.counts.bytes_received += 8 * sum(map(len, received))
        return [list(torch.split(ids, of_me[r])) for r, ids in enumerate(received)]

    def _read_replies(self, turn: Turn, requested_of_me: list[list[Tensor]]) -> None:
        """Read the requested rows of this rank's parts, and write the messages. An error is kept: the others wait for
        an answer."""
        others = [r for r in range(len(requested_of_me)) if r != self._rank]
        turn.parts = [
            _STATUS_BYTES
            + sum(ids.numel() * of.n_bytes for ids, of in zip(requested, self.division.nodes, strict=True))
            if r in others
            else 0
            for r, requested in enumerate(requested_of_me)
        ]
        turn.n_bytes = [
            _STATUS_BYTES + sum(of.count(r) * of.of.n_bytes for of in turn.requests) if r in others else 0
            for r in range(len(requested_of_me))
        ]
        self.counts.bytes_sent += sum(turn.parts)
        self.counts.bytes_received += sum(turn.n_bytes)
        turn.sent = self.buffers.empty(sum(turn.parts))
        messages = list(torch.split(turn.sent, turn.parts))
        at = [_STATUS_BYTES] * len(requested_of_me)
        try:
            for place, of in enumerate(turn.requests):
                requested = [requested_of_me[r][place] for r in others]
                reply = Reply(of.of, [of.ids_of(self._rank), *requested], self.hot, self.local)
                turn.replies.append(reply)
                for i, r in enumerate(others, 1):
                    end = at[r] + requested[i - 1].numel() * of.of.n_bytes
                    reply.write(i, tables(of.of, messages[r][at[r] : end]))
                    at[r] = end
                    self.counts.rows_served += requested[i - 1].numel()
        except Exception as error:
            turn.error = error
        for r in others:
            messages[r][:_STATUS_BYTES] = turn.error is not None

    # The second step.

    def send(self, turn: Turn) -> None:
        """Send the rows that the other ranks want, and receive those that this one does. An error is kept."""
        try:
            if self.wire is None or turn.all_bytes == 0:
                return
            assert turn.sent is not None
            turn.received = self.buffers.empty(sum(turn.n_bytes))
            began = time.monotonic_ns()
            self.wire.exchange_rows(turn.sent, turn.parts, turn.received, turn.n_bytes, turn.way)
            turn.nanoseconds = time.monotonic_ns() - began
            self.counts.seconds += (turn.nanoseconds + turn.waited) / 1e9
        except Exception as error:
            turn.error = turn.error or error
        finally:
            turn.sent = None
            turn.over.set()

    # The third step.

    def assemble(self, turn: Turn) -> dict[str, RowsOf]:
        """Return the rows that were wanted, in the order of the ids.

        Raises:
            LinkLostError: another rank is gone
            RankError: another rank could not read them
            and what reading those of this rank has raised
        """
        if turn.error is not None:
            raise turn.error
        rows: dict[str, RowsOf] = {}
        for of, reply in zip(turn.requests, turn.replies, strict=True):
            rows[of.of.node_type] = whole = of.empty(self.buffers)
            self.hot.copy(of.of, of.hit_slots, whole, of.hit_places)
            of.put(whole, self._rank, reply.own())
        if turn.received is not None:
            for r, message in enumerate(torch.split(turn.received, turn.n_bytes)):
                if r != self._rank:
                    if int(message[0]):
                        raise RankError(f"rank {r} could not read rows that this rank needs, and has raised the error")
                    self._put(turn, rows, r, message)
        turn.received, turn.replies = None, []
        return rows

    def _put(self, turn: Turn, rows: Mapping[str, RowsOf], rank: int, message: Tensor) -> None:
        at = _STATUS_BYTES
        for of in turn.requests:
            end = at + of.count(rank) * of.of.n_bytes
            of.put(rows[of.of.node_type], rank, tables(of.of, message[at:end]))
            self.counts.rows_remote += of.count(rank)
            at = end


def tables(of: DividedNodes, message: Tensor) -> RowsOf:
    """The rows of each tensor, as they lie one after the other."""
    count = message.numel() // of.n_bytes
    pieces = torch.split(message, [count * rows.n_bytes for rows in of.tensors])
    return {rows.name: piece.view(count, rows.n_bytes) for rows, piece in zip(of.tensors, pieces, strict=True)}
