"""The rows of a node type that a rank requests in one turn, and its replies: where each row comes from, and where it
goes."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from freshgo._row_exchange.buffers import Buffers
from freshgo._row_exchange.division import DividedNodes
from freshgo._row_exchange.rows import HotRows, LocalParts, RowsOf, put


class Request:
    """Rows of nodes in any order; a node may occur twice. A row is requested once from its rank."""

    def __init__(
        self, of: DividedNodes, ids: Tensor | None, hot: HotRows, holders: Sequence[int], world_size: int
    ) -> None:
        """``holders`` are the ranks that rows of each part are requested from."""
        self.of = of
        ids = torch.empty(0, dtype=torch.int64) if ids is None else ids
        self.rows = ids.numel()
        ascending, order = ids.sort()
        hits, self.hit_slots = hot.find(of, ascending)
        self.hit_places = order[hits]
        """The places of rows that are in memory, in its slots ``hit_slots``."""
        cold = complement(hits, self.rows) if hits.numel() else slice(None)
        self._places = order[cold]
        self._distinct, inverse = torch.unique_consecutive(ascending[cold], return_inverse=True)
        self._inverse = None if self._distinct.numel() == inverse.numel() else inverse
        # Ranks have their parts in the order of the ids, so what is asked of each lies together.
        cuts = torch.searchsorted(self._distinct, torch.tensor(of.bounds)).tolist()
        self._ranges = [(0, 0)] * world_size
        for part, holder in enumerate(holders):
            first, end = self._ranges[holder]
            self._ranges[holder] = (cuts[part] if first == end else first, cuts[part + 1])

    def ids_of(self, rank: int) -> Tensor:
        """Return the ids that are requested from a rank, ascending and each once."""
        first, end = self._ranges[rank]
        ids: Tensor = self._distinct[first:end]
        return ids

    def count(self, rank: int) -> int:
        """Return the number of rows that are requested from a rank."""
        first, end = self._ranges[rank]
        return end - first

    def empty(self, buffers: Buffers) -> RowsOf:
        """Return memory for all rows."""
        return {
            rows.name: buffers.empty(self.rows * rows.n_bytes).view(self.rows, rows.n_bytes) for rows in self.of.tensors
        }

    def put(self, to: RowsOf, rank: int, rows: RowsOf) -> None:
        """Copy the rows of a rank to their places."""
        first, end = self._ranges[rank]
        if first == end:
            return
        places, index = self._places[first:end], None
        if self._inverse is not None:
            among, until = torch.searchsorted(self._inverse, torch.tensor([first, end])).tolist()
            places, index = self._places[among:until], self._inverse[among:until] - first
        for name, piece in rows.items():
            put(to[name], places, piece if index is None else piece.index_select(0, index))


class Reply:
    """Rows of this rank's parts, for itself and for the others."""

    def __init__(self, of: DividedNodes, requests: Sequence[Tensor], hot: HotRows, local: LocalParts) -> None:
        """Read the rows that are not in memory, each once. ``requests`` are ids, this rank's own first."""
        self._hot, self._of = hot, of
        ids = torch.cat(list(requests)) if len(requests) > 1 else requests[0]
        self._hits, self._slots = hot.find(of, ids)
        cold = complement(self._hits, ids.numel()) if self._hits.numel() else None
        cold_ids = ids if cold is None else ids[cold]
        distinct, inverse = (cold_ids, None) if len(requests) == 1 else torch.unique(cold_ids, return_inverse=True)
        self._rows = local.read(of, distinct)
        self._cold, self._inverse = cold, inverse
        ends = torch.tensor([one.numel() for one in requests]).cumsum(0)
        self._offsets = [0, *ends.tolist()]
        self._cold_offsets = self._offsets if cold is None else [0, *torch.searchsorted(cold, ends).tolist()]
        self._hit_offsets = [0, *torch.searchsorted(self._hits, ends).tolist()]

    def write(self, requester: int, to: RowsOf) -> None:
        """Write the rows of one request, in the order of its ids."""
        first = self._offsets[requester]
        assert self._inverse is not None, "there are others"
        index = self._inverse[self._cold_offsets[requester] : self._cold_offsets[requester + 1]]
        hits = slice(self._hit_offsets[requester], self._hit_offsets[requester + 1])
        if hits.start == hits.stop:
            for name, rows in self._rows.items():
                torch.index_select(rows, 0, index, out=to[name])
            return
        self._hot.copy(self._of, self._slots[hits], to, self._hits[hits] - first)
        assert self._cold is not None  # since some are in memory
        places = self._cold[self._cold_offsets[requester] : self._cold_offsets[requester + 1]] - first
        for name, rows in self._rows.items():
            put(to[name], places, rows.index_select(0, index))

    def own(self) -> RowsOf:
        """Return the rows that this rank requested from itself. None of them is in memory."""
        if self._inverse is None:
            return self._rows
        index = self._inverse[: self._cold_offsets[1]]
        return {name: rows.index_select(0, index) for name, rows in self._rows.items()}


def complement(places: Tensor, count: int) -> Tensor:
    """Return the places below ``count`` that are not among these."""
    rest = torch.ones(count, dtype=torch.bool)
    rest[places] = False
    return rest.nonzero().view(-1)
