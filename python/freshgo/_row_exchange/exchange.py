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
from freshgo._row_exchange.rows import Held, Hot, RowsOf
from freshgo._row_exchange.schedule import Chooser, Way
from freshgo._row_exchange.wanted import Answered, Wanted
from freshgo._row_exchange.wire import LinkLostError, Wire
from freshgo.errors import RankError

IDLE, ASKS, FILLS, FAILED = 0, 1, 2, 3
_HEAD = 3  # words of an announcement before its counts: state, nanoseconds of an earlier exchange, finished epochs
_STATUS_BYTES = 8

AHEAD = 2
"""Turns whose rows may be under way, or not yet sent, when the next turn begins."""


class ToldError(RankError):
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

    wanted: list[Wanted]
    """By node type."""
    asked: bool = True
    """Whether any rank requested rows."""
    done: int = 0
    """Epochs that all ranks have finished."""
    fills: bool = False
    """Whether any rank still requests the hottest rows, before its first batch."""
    answered: list[Answered] = field(default_factory=list)
    """The rows of this rank's parts that it needs itself, by node type."""
    sent: Tensor | None = None
    parts: list[int] = field(default_factory=list)
    """Bytes of ``sent`` for each rank."""
    came: Tensor | None = None
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

    def __init__(self, division: Division, held: Held, hot: Hot, wire: Wire | None, chooser: Chooser) -> None:
        self.division, self.held, self.hot, self.wire, self.chooser = division, held, hot, wire, chooser
        self.counts = Counts()
        self.buffers = Buffers()
        self._rank, self._world = (0, 1) if wire is None else (wire.rank, wire.world_size)
        self._holders = holders(len(division.parts), self._rank, self._world)
        self._last: deque[Turn] = deque(maxlen=AHEAD)

    # The first step.

    def ask(self, wanted: Mapping[str, Tensor] | None, done: int, *, fills: bool = False) -> Turn:
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
                Wanted(of, None if wanted is None else wanted[of.node_type], self.hot, self._holders, self._world)
                for of in self.division.nodes
            ],
            wanted is not None,
            done,
            fills,
        )
        self.counts.rows_held += sum(of.held.numel() for of in turn.wanted)
        self.counts.rows_own += sum(of.count(self._rank) for of in turn.wanted)
        if self.wire is None:
            self._answer(turn, [])
            return turn
        before = self._last[0] if len(self._last) == AHEAD else None
        if before is not None:
            before.over.wait()
            if isinstance(before.error, LinkLostError):
                raise before.error
        counts = [[of.count(other) for of in turn.wanted] for other in range(self._world)]
        counts[self._rank] = [0] * len(turn.wanted)
        state = FILLS if fills else IDLE if wanted is None else ASKS
        said = self.wire.say(self._head(state, 0 if before is None else before.nanoseconds, done, counts))
        failed = (said[:, 0] == FAILED).nonzero().view(-1).tolist()
        if failed:
            raise ToldError(f"rank {failed[0]} could not go on with the exchange of rows, and has raised the error")
        if before is not None:
            self.chooser.took(float(said[:, 1].max()) / 1e9, before.all_bytes, before.way)
        self.counts.turns += 1
        self._last.append(turn)
        turn.asked, turn.fills = bool((said[:, 0] != IDLE).any()), bool((said[:, 0] == FILLS).any())
        turn.done = int(said[:, 2].min())
        # Of the first rank, from the second, of the type.
        asked = said[:, _HEAD:].view(self._world, self._world, len(turn.wanted))
        widths = torch.tensor([of.n_bytes for of in self.division.nodes])
        turn.way, turn.all_bytes = self.chooser.way, int((asked * widths).sum())
        self._answer(turn, self._questions(turn, asked) if turn.all_bytes else [])
        return turn

    def fail(self) -> None:
        """Tell all ranks, which would otherwise wait for this one in the next turn, that there is none."""
        if self.wire is not None:
            with contextlib.suppress(LinkLostError):
                self.wire.say(self._head(FAILED, 0, 0, [[0] * len(self.division.nodes)] * self._world))

    def _head(self, state: int, nanoseconds: int, done: int, counts: list[list[int]]) -> Tensor:
        return torch.tensor([state, nanoseconds, done, *(count for of_rank in counts for count in of_rank)])

    def _questions(self, turn: Turn, asked: Tensor) -> list[list[Tensor]]:
        """The ids that each rank asks of this one, by node type."""
        assert self.wire is not None
        of_me = asked[:, self._rank].tolist()
        began = time.monotonic_ns()
        questions = [
            torch.cat([of.asked(other)[: None if other != self._rank else 0] for of in turn.wanted])
            for other in range(self._world)
        ]
        came = self.wire.ask(questions, [sum(of_rank) for of_rank in of_me])
        turn.waited = time.monotonic_ns() - began
        self.counts.bytes_sent += 8 * sum(map(len, questions))
        self.counts.bytes_received += 8 * sum(map(len, came))
        return [list(torch.split(ids, of_me[r])) for r, ids in enumerate(came)]

    def _answer(self, turn: Turn, questions: list[list[Tensor]]) -> None:
        """Read the rows that this rank and the others want of it, and write the messages. An error is kept: the others
        wait for an answer."""
        others = [r for r in range(len(questions)) if r != self._rank]
        turn.parts = [
            _STATUS_BYTES + sum(ids.numel() * of.n_bytes for ids, of in zip(asked, self.division.nodes, strict=True))
            if r in others
            else 0
            for r, asked in enumerate(questions)
        ]
        turn.n_bytes = [
            _STATUS_BYTES + sum(of.count(r) * of.of.n_bytes for of in turn.wanted) if r in others else 0
            for r in range(len(questions))
        ]
        self.counts.bytes_sent += sum(turn.parts)
        self.counts.bytes_received += sum(turn.n_bytes)
        turn.sent = self.buffers.empty(sum(turn.parts))
        messages = list(torch.split(turn.sent, turn.parts))
        at = [_STATUS_BYTES] * len(questions)
        try:
            for place, of in enumerate(turn.wanted):
                asked = [questions[r][place] for r in others]
                answered = Answered(of.of, [of.asked(self._rank), *asked], self.hot, self.held)
                turn.answered.append(answered)
                for i, r in enumerate(others, 1):
                    end = at[r] + asked[i - 1].numel() * of.of.n_bytes
                    answered.write(i, tables(of.of, messages[r][at[r] : end]))
                    at[r] = end
                    self.counts.rows_served += asked[i - 1].numel()
        except Exception as error:
            turn.error = error
        for r in others:
            messages[r][:_STATUS_BYTES] = turn.error is not None

    # The second step.

    def hand_over(self, turn: Turn) -> None:
        """Send the rows that the other ranks want, and receive those that this one does. An error is kept."""
        try:
            if self.wire is None or turn.all_bytes == 0:
                return
            assert turn.sent is not None
            turn.came = self.buffers.empty(sum(turn.n_bytes))
            began = time.monotonic_ns()
            self.wire.hand_over(turn.sent, turn.parts, turn.came, turn.n_bytes, turn.way)
            turn.nanoseconds = time.monotonic_ns() - began
            self.counts.seconds += (turn.nanoseconds + turn.waited) / 1e9
        except Exception as error:
            turn.error = turn.error or error
        finally:
            turn.sent = None
            turn.over.set()

    # The third step.

    def together(self, turn: Turn) -> dict[str, RowsOf]:
        """Return the rows that were wanted, in the order of the ids.

        Raises:
            LinkLostError: another rank is gone
            RankError: another rank could not read them
            and what reading those of this rank has raised
        """
        if turn.error is not None:
            raise turn.error
        rows: dict[str, RowsOf] = {}
        for of, answered in zip(turn.wanted, turn.answered, strict=True):
            rows[of.of.node_type] = whole = of.empty(self.buffers)
            self.hot.copy(of.of, of.lies, whole, of.held)
            of.put(whole, self._rank, answered.own())
        if turn.came is not None:
            for r, message in enumerate(torch.split(turn.came, turn.n_bytes)):
                if r != self._rank:
                    if int(message[0]):
                        raise RankError(f"rank {r} could not read rows that this rank needs, and has raised the error")
                    self._put(turn, rows, r, message)
        turn.came, turn.answered = None, []
        return rows

    def _put(self, turn: Turn, rows: Mapping[str, RowsOf], rank: int, message: Tensor) -> None:
        at = _STATUS_BYTES
        for of in turn.wanted:
            end = at + of.count(rank) * of.of.n_bytes
            of.put(rows[of.of.node_type], rank, tables(of.of, message[at:end]))
            self.counts.rows_remote += of.count(rank)
            at = end


def tables(of: DividedNodes, message: Tensor) -> RowsOf:
    """The rows of each tensor, as they lie one after the other."""
    count = message.numel() // of.n_bytes
    pieces = torch.split(message, [count * rows.n_bytes for rows in of.tensors])
    return {rows.name: piece.view(count, rows.n_bytes) for rows, piece in zip(of.tensors, pieces, strict=True)}
