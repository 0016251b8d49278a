"""The rows of a node type that a rank wants in one turn, and those that it answers with: where each comes from, and
where it goes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from freshgo._row_exchange.buffers import Buffers
from freshgo._row_exchange.division import DividedNodes
from freshgo._row_exchange.rows import Held, Hot, RowsOf, put


class Wanted:
    """Rows of nodes in any order; a node may occur twice. A row is requested once from its rank."""

    def __init__(self, of: DividedNodes, ids: Tensor | None, hot: Hot, holders: Sequence[int], world_size: int) -> None:
        """``holders`` says who is asked for rows of each part."""
        self.of = of
        ids = torch.empty(0, dtype=torch.int64) if ids is None else ids
        self.rows = ids.numel()
        ascending, order = ids.sort()
        here, self.lies = hot.find(of, ascending)
        self.held = order[here]
        """The places of rows that are in memory, which lie there at ``lies``."""
        cold = others(here, self.rows) if here.numel() else slice(None)
        self._places = order[cold]
        self._distinct, inverse = torch.unique_consecutive(ascending[cold], return_inverse=True)
        self._inverse = None if self._distinct.numel() == inverse.numel() else inverse
        # Ranks have their parts in the order of the ids, so what is asked of each lies together.
        cuts = torch.searchsorted(self._distinct, torch.tensor(of.bounds)).tolist()
        self._ranges = [(0, 0)] * world_size
        for part, holder in enumerate(holders):
            first, end = self._ranges[holder]
            self._ranges[holder] = (cuts[part] if first == end else first, cuts[part + 1])

    def asked(self, rank: int) -> Tensor:
        """The ids that a rank is asked for, ascending and each once."""
        first, end = self._ranges[rank]
        ids: Tensor = self._distinct[first:end]
        return ids

    def count(self, rank: int) -> int:
        """How many they are."""
        first, end = self._ranges[rank]
        return end - first

    def empty(self, buffers: Buffers) -> RowsOf:
        """Memory for all rows."""
        return {
            rows.name: buffers.empty(self.rows * rows.n_bytes).view(self.rows, rows.n_bytes) for rows in self.of.tensors
        }

    def put(self, to: RowsOf, rank: int, rows: RowsOf) -> None:
        """Copy the rows that a rank was asked for to their places."""
        first, end = self._ranges[rank]
        if first == end:
            return
        places, index = self._places[first:end], None
        if self._inverse is not None:
            among, until = torch.searchsorted(self._inverse, torch.tensor([first, end])).tolist()
            places, index = self._places[among:until], self._inverse[among:until] - first
        for name, piece in rows.items():
            put(to[name], places, piece if index is None else piece.index_select(0, index))


class Answered:
    """Rows of this rank's parts, for itself and for the others."""

    def __init__(self, of: DividedNodes, asked: Sequence[Tensor], hot: Hot, held: Held) -> None:
        """Read the rows that are not in memory, each once. ``asked`` are ids, first those that this rank wants."""
        self._hot, self._of = hot, of
        ids = torch.cat(list(asked)) if len(asked) > 1 else asked[0]
        self._here, self._lies = hot.find(of, ids)
        cold = others(self._here, ids.numel()) if self._here.numel() else None
        wanted = ids if cold is None else ids[cold]
        distinct, inverse = (wanted, None) if len(asked) == 1 else torch.unique(wanted, return_inverse=True)
        self._rows = held.read(of, distinct)
        self._cold, self._inverse = cold, inverse
        ends = torch.tensor([one.numel() for one in asked]).cumsum(0)
        self._ends = [0, *ends.tolist()]
        self._of_cold = self._ends if cold is None else [0, *torch.searchsorted(cold, ends).tolist()]
        self._of_here = [0, *torch.searchsorted(self._here, ends).tolist()]

    def write(self, asker: int, to: RowsOf) -> None:
        """Write the rows that one has asked for, in the order of its ids."""
        first = self._ends[asker]
        assert self._inverse is not None, "there are others"
        index = self._inverse[self._of_cold[asker] : self._of_cold[asker + 1]]
        here = slice(self._of_here[asker], self._of_here[asker + 1])
        if here.start == here.stop:
            for name, rows in self._rows.items():
                torch.index_select(rows, 0, index, out=to[name])
            return
        self._hot.copy(self._of, self._lies[here], to, self._here[here] - first)
        assert self._cold is not None  # since some are in memory
        places = self._cold[self._of_cold[asker] : self._of_cold[asker + 1]] - first
        for name, rows in self._rows.items():
            put(to[name], places, rows.index_select(0, index))

    def own(self) -> RowsOf:
        """The rows that this rank has asked itself for. None of them is in memory, or it would not have."""
        if self._inverse is None:
            return self._rows
        index = self._inverse[: self._of_cold[1]]
        return {name: rows.index_select(0, index) for name, rows in self._rows.items()}


def others(places: Tensor, count: int) -> Tensor:
    """Return the places below ``count`` that are not among these."""
    rest = torch.ones(count, dtype=torch.bool)
    rest[places] = False
    return rest.nonzero().view(-1)
