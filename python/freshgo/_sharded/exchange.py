"""Turns in which all ranks exchange rows: in each, every rank may ask for rows, and answers the others.

A turn begins with what every rank says: whether it goes on, and how many rows it asks of each. So all know the bytes
between all pairs, and nothing is sent where nobody asks. Then come the ids, and at last the rows, as one message to
each rank: a word that says whether they could be read, then the rows of each tensor of each node type.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from freshgo._sharded.division import DividedNodes, Division, holders
from freshgo._sharded.rows import Held, Hot, RowsOf, empty_rows, put
from freshgo._sharded.schedule import Chooser
from freshgo._sharded.wire import LinkLostError, Wire
from freshgo.errors import RankError

IDLE, ASKS, FILLS, FAILED = 0, 1, 2, 3
_HEAD = 2  # words of what a rank says, before its counts: its state, and the nanoseconds of the exchange before
_STATUS_BYTES = 8


@dataclass
class Counts:
    """What was exchanged so far."""

    rows_held: int = 0
    rows_own: int = 0
    rows_remote: int = 0
    rows_served: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    turns: int = 0
    seconds: float = 0.0
    """In which rows were handed over."""


@dataclass(frozen=True)
class Turn:
    """What one turn brought."""

    rows: dict[str, RowsOf]
    asked: bool
    """Whether any rank asked for rows: if none did, all know that they may rest."""
    fills: bool
    """Whether any rank has more to ask for before its first batch."""


@dataclass
class Exchange:
    """The turns of one rank, of several or alone."""

    division: Division
    held: Held
    hot: Hot
    wire: Wire | None
    chooser: Chooser
    counts: Counts = field(default_factory=Counts)
    _nanoseconds: int = 0  # of the last exchange
    _bytes: int = 0  # of the last exchange, of all ranks

    def __post_init__(self) -> None:
        of = (0, 1) if self.wire is None else (self.wire.rank, self.wire.world_size)
        self._rank, self._world = of
        self._holders = holders(len(self.division.parts), *of)

    def turn(self, wanted: Mapping[str, Tensor] | None, *, fills: bool = False) -> Turn:
        """Answer the other ranks, and return the rows that are ``wanted``: ids by node type, ascending and each once;
        None, nothing. ``fills`` tells the others to ask for no batch in the next turn.

        Raises:
            RankError: another rank failed, or is gone; then there are no more turns
            and what reading rows raises
        """
        splits = [self._splits(of.node_type, of.bounds, wanted) for of in self.division.nodes]
        own = {of.node_type: pieces[self._rank] for of, pieces in zip(self.division.nodes, splits, strict=True)}
        if self.wire is None:
            rows = {of.node_type: self._read(of, own[of.node_type]) for of in self.division.nodes}
            self._count_own(own)
            return Turn(rows, wanted is not None, fills)
        counts = [[pieces[other].numel() for pieces in splits] for other in range(self._world)]
        counts[self._rank] = [0] * len(splits)
        said = self.wire.say(self._head(FILLS if fills else IDLE if wanted is None else ASKS, counts))
        _check(said)
        try:
            rows = self._answered(splits, said, own)
        except LinkLostError:
            raise
        except Exception:
            self._fail(counts)
            raise
        self._count_own(own)
        return Turn(rows, bool((said[:, 0] != IDLE).any()), bool((said[:, 0] == FILLS).any()))

    def _head(self, state: int, counts: list[list[int]]) -> Tensor:
        return torch.tensor([state, self._nanoseconds, *(count for of_rank in counts for count in of_rank)])

    def _fail(self, counts: list[list[int]]) -> None:
        """Tell all ranks, which would otherwise wait for this one in the next turn."""
        assert self.wire is not None
        with contextlib.suppress(LinkLostError):
            self.wire.say(self._head(FAILED, counts))

    def _answered(self, splits: list[list[Tensor]], said: Tensor, own: Mapping[str, Tensor]) -> dict[str, RowsOf]:
        self.chooser.took(float(said[:, 1].max()) / 1e9, self._bytes)
        self.counts.turns += 1
        # Of the first rank, from the second, of the type.
        asked = said[:, _HEAD:].view(self._world, self._world, len(splits))
        widths = torch.tensor([of.n_bytes for of in self.division.nodes])
        self._nanoseconds, self._bytes = 0, int((asked * widths).sum())
        if self._bytes == 0:
            return {of.node_type: self._read(of, own[of.node_type]) for of in self.division.nodes}
        return self._exchanged(splits, asked, own)

    def _splits(self, node_type: str, bounds: tuple[int, ...], wanted: Mapping[str, Tensor] | None) -> list[Tensor]:
        """The ids that are asked of each rank, of which this rank is one."""
        ids = torch.empty(0, dtype=torch.int64) if wanted is None else wanted[node_type]
        cuts = torch.searchsorted(ids, torch.tensor(bounds)).tolist()
        pieces: list[list[Tensor]] = [[] for _ in range(self._world)]
        for part, holder in enumerate(self._holders):
            pieces[holder].append(ids[cuts[part] : cuts[part + 1]])
        return [torch.cat(of) if of else ids[:0] for of in pieces]

    def _exchanged(self, splits: list[list[Tensor]], asked: Tensor, own: Mapping[str, Tensor]) -> dict[str, RowsOf]:
        """The rows of this rank, once it has answered the others."""
        wire, nodes = self.wire, self.division.nodes
        assert wire is not None
        began = time.monotonic_ns()
        of_me, mine = asked[:, self._rank].tolist(), asked[self._rank].tolist()
        others = [other for other in range(self._world) if other != self._rank]
        questions = [
            torch.cat([pieces[other] if other in others else pieces[other][:0] for pieces in splits]).view(torch.uint8)
            for other in range(self._world)
        ]
        came = wire.hand_over(questions, [8 * sum(of_rank) for of_rank in of_me], "all_to_all")
        ids = [torch.split(one.view(torch.int64), of_me[r]) for r, one in enumerate(came)]
        waited = time.monotonic_ns() - began

        error: Exception | None = None
        rows: dict[str, RowsOf] = {}
        answers: list[list[Tensor]] = [[torch.zeros(_STATUS_BYTES, dtype=torch.uint8)] for _ in range(self._world)]
        for place, of in enumerate(nodes):
            wanted = [own[of.node_type], *(ids[other][place] for other in others)]
            try:
                read = self._read(of, torch.cat(wanted)) if error is None else empty_rows(of, sum(map(len, wanted)))
            except Exception as failed:  # the others wait for an answer
                error, read = failed, empty_rows(of, sum(map(len, wanted)))
            sizes = [one.numel() for one in wanted]
            pieces = {name: torch.split(table, sizes) for name, table in read.items()}
            rows[of.node_type] = {name: table[0] for name, table in pieces.items()}
            for i, other in enumerate(others, 1):
                answers[other] += [table[i].reshape(-1) for table in pieces.values()]
                self.counts.rows_served += sizes[i]
        messages = [
            torch.empty(0, dtype=torch.uint8) if r == self._rank else torch.cat(a) for r, a in enumerate(answers)
        ]
        for r in others:
            messages[r][0] = error is not None
        n_bytes = [
            0 if r == self._rank else _STATUS_BYTES + sum(n * of.n_bytes for n, of in zip(mine[r], nodes, strict=True))
            for r in range(self._world)
        ]
        began = time.monotonic_ns()
        found = wire.hand_over(messages, n_bytes, self.chooser.way)
        self._nanoseconds = time.monotonic_ns() - began
        self.counts.seconds += (self._nanoseconds + waited) / 1e9
        self.counts.bytes_sent += sum(map(len, messages)) + sum(map(len, questions))
        self.counts.bytes_received += sum(n_bytes) + sum(map(len, came))
        if error is not None:
            raise error
        return self._together(rows, found, mine)

    def _together(self, own: dict[str, RowsOf], found: list[Tensor], mine: list[list[int]]) -> dict[str, RowsOf]:
        """The rows of this rank's parts and those that have come, in the order of the ids: that of the parts, and so
        that of the ranks."""
        pieces: dict[str, dict[str, list[Tensor]]] = {
            of.node_type: {rows.name: [] for rows in of.tensors} for of in self.division.nodes
        }
        for r, message in enumerate(found):
            if r != self._rank and int(message[0]):
                raise RankError(f"rank {r} could not read rows that this rank needs, and has raised the error")
            at = _STATUS_BYTES
            for of, count in zip(self.division.nodes, mine[r], strict=True):
                for rows in of.tensors:
                    piece = own[of.node_type][rows.name]
                    if r != self._rank:
                        n_bytes = count * rows.n_bytes
                        piece = message[at : at + n_bytes].view(count, rows.n_bytes)
                        at += n_bytes
                        self.counts.rows_remote += count if rows is of.tensors[0] else 0
                    pieces[of.node_type][rows.name].append(piece)
        return {t: {name: torch.cat(of) for name, of in tables.items()} for t, tables in pieces.items()}

    def _read(self, of: DividedNodes, ids: Tensor) -> RowsOf:
        """Rows of nodes of this rank's parts, from memory or from the disk."""
        places, lies = self.hot.find(of, ids)
        if not places.numel():
            return self.held.rows(of, ids)
        rows = empty_rows(of, ids.numel())
        self.hot.copy(of, lies, rows, places)
        cold = others(places, ids.numel())
        if cold.numel():
            for name, piece in self.held.rows(of, ids[cold]).items():
                put(rows[name], cold, piece)
        return rows

    def _count_own(self, own: Mapping[str, Tensor]) -> None:
        self.counts.rows_own += sum(ids.numel() for ids in own.values())


def _check(said: Tensor) -> None:
    failed = (said[:, 0] == FAILED).nonzero().view(-1).tolist()
    if failed:
        raise RankError(f"rank {failed[0]} could not go on with the exchange of rows, and has raised the error")


def others(places: Tensor, count: int) -> Tensor:
    """Return the places below ``count`` that are not among these."""
    rest = torch.ones(count, dtype=torch.bool)
    rest[places] = False
    return rest.nonzero().view(-1)


def fetch(exchange: Exchange, wanted: Mapping[str, Tensor]) -> dict[str, RowsOf]:
    """Return the rows of nodes, ids by type in any order, of which one may come twice. It takes one turn."""
    nodes = exchange.division.nodes
    found = {of.node_type: exchange.hot.find(of, wanted[of.node_type]) for of in nodes}
    cold = {of.node_type: others(found[of.node_type][0], wanted[of.node_type].numel()) for of in nodes}
    distinct = {t: torch.unique(wanted[t][places], return_inverse=True) for t, places in cold.items()}
    came = exchange.turn({t: ids for t, (ids, _) in distinct.items()}).rows
    rows: dict[str, RowsOf] = {}
    for of in nodes:
        t = of.node_type
        places, lies = found[t]
        exchange.counts.rows_held += places.numel()
        pieces = {name: table.index_select(0, distinct[t][1]) for name, table in came[t].items()}
        if places.numel():
            rows[t] = empty_rows(of, wanted[t].numel())
            exchange.hot.copy(of, lies, rows[t], places)
            for name, piece in pieces.items():
                put(rows[t][name], cold[t], piece)
        else:
            rows[t] = pieces
    return rows
