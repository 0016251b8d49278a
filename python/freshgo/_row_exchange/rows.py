"""The rows that a rank has itself: those of its parts, which are read when they are wanted, and the hottest rows of all
parts, which stay in memory."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from freshgo._native.loader import Loader as NativeLoader
from freshgo._native.options import LoaderOptions, loader_options
from freshgo._row_exchange.division import DividedNodes, Division
from freshgo.errors import FormatError
from freshgo.store import Store

RowsOf = dict[str, Tensor]
"""Rows of the tensors of a node type, as bytes: uint8 ``[rows, bytes of a row]``, by the name of the tensor."""


def as_bytes(rows: Tensor) -> Tensor:
    """Return rows as uint8 ``[rows, bytes of a row]``, over the same memory where they have no gaps."""
    if not rows.numel():
        return rows.new_empty(0, dtype=torch.uint8).view(rows.size(0), 0)
    return rows.reshape(rows.size(0), -1).contiguous().view(torch.uint8)


def empty_rows(of: DividedNodes, count: int) -> RowsOf:
    """Return memory for a number of rows."""
    return {rows.name: torch.empty((count, rows.n_bytes), dtype=torch.uint8) for rows in of.tensors}


class Part:
    """One part, open. Rows are read together, sorted by where they lie."""

    def __init__(self, directory: Path, division: Division, index: int, options: LoaderOptions) -> None:
        """Open it.

        Raises:
            FormatError: it does not belong to the division.
            and what opening a store raises
        """
        self._division, self._index = division, index
        self._store = Store.open(directory / f"part-{index}")
        try:
            self._check()
            alone = loader_options(
                batch_size=1,
                cache="none",
                feature_cache=0,
                neighbor_cache=0,
                **{name: options[name] for name in ("num_workers", "io", "checksums")},
            )
            self._native = NativeLoader(self._store._contents.native, alone)
        except BaseException:
            self._store.close()
            raise

    def _check(self) -> None:
        division, k, store = self._division, self._index, self._store
        if store.uuid != division.parts[k]:
            raise FormatError(
                f"part {k} belongs to other parts: {store.path} is the store {store.uuid}, expected {division.parts[k]}"
            )

    def read(self, of: DividedNodes, ids: Tensor) -> RowsOf:
        """Read rows of nodes of this part, ascending and each once. Any number of threads may."""
        place = self._division.nodes.index(of)
        before = sum(other.count(self._index) for other in self._division.nodes[:place])
        seeds = ids - of.bounds[self._index] + before
        tensors = self._native.sample({"seeds": seeds}).tensors
        return {
            rows.name: as_bytes(tensors[self._store._contents.types.node_name(place, rows.name)]) for rows in of.tensors
        }

    def stats(self) -> dict[str, int]:
        """What was read from the disk."""
        stats = self._native.stats()
        return {name: int(stats[name]) for name in ("bytes_read", "requests")}

    def close(self) -> None:
        self._native.close()
        self._store.close()


class LocalParts:
    """The parts of a rank."""

    def __init__(self, directory: Path, division: Division, parts: range, options: LoaderOptions) -> None:
        self._division, self.parts = division, parts
        self._open: dict[int, Part] = {}
        self._read: dict[str, int] | None = None
        try:
            for k in parts:
                self._open[k] = Part(directory, division, k, options)
        except BaseException:
            self.close()
            raise

    def rows(self, of: DividedNodes, ids: Tensor) -> RowsOf:
        """Read rows of these nodes, which are in the parts, in any order; a node may come twice."""
        distinct, inverse = torch.unique(ids, return_inverse=True)
        return {name: rows.index_select(0, inverse) for name, rows in self.read(of, distinct).items()}

    def read(self, of: DividedNodes, ids: Tensor) -> RowsOf:
        """Read rows of nodes of the parts, ascending and each once. Any number of threads may."""
        cuts = torch.searchsorted(ids, torch.tensor(of.bounds)).tolist()
        pieces = [self._open[k].read(of, ids[cuts[k] : cuts[k + 1]]) for k in self.parts if cuts[k] < cuts[k + 1]]
        if len(pieces) == 1:
            return pieces[0]
        return {
            rows.name: torch.cat([piece[rows.name] for piece in pieces]) if pieces else empty_rows(of, 0)[rows.name]
            for rows in of.tensors
        }

    def stats(self) -> dict[str, int]:
        """What was read from the disk, also once it is closed."""
        if self._read is not None:
            return self._read
        each = [part.stats() for part in self._open.values()]
        return {name: sum(one[name] for one in each) for name in ("bytes_read", "requests")}

    def close(self) -> None:
        self._read = self.stats()
        for part in self._open.values():
            part.close()


class HotRows:
    """Rows that stay in memory, of whatever part."""

    def __init__(self, nodes: tuple[DividedNodes, ...], ids: Mapping[str, Tensor]) -> None:
        """Room for the rows of these nodes, ascending, by type."""
        self._ids = {of.node_type: ids[of.node_type] for of in nodes}
        self._rows = {of.node_type: empty_rows(of, ids[of.node_type].numel()) for of in nodes}
        self._filled = {of.node_type: 0 for of in nodes}

    def count(self) -> int:
        """Return the number of rows that have come."""
        return sum(self._filled.values())

    def missing(self, of: DividedNodes, n_bytes: int) -> Tensor:
        """Return the next ids whose rows have not come, at least one and up to ``n_bytes`` of rows."""
        first = self._filled[of.node_type]
        return self._ids[of.node_type][first : first + max(1, n_bytes // max(1, of.n_bytes))]

    def fill(self, of: DividedNodes, rows: RowsOf) -> None:
        """Take the rows of :meth:`missing`."""
        first = self._filled[of.node_type]
        end = first
        for name, piece in rows.items():
            end = first + piece.size(0)
            self._rows[of.node_type][name][first:end] = piece
        self._filled[of.node_type] = end

    def find(self, of: DividedNodes, ids: Tensor) -> tuple[Tensor, Tensor]:
        """Return the places of ``ids`` whose rows are here, ascending, and their slots."""
        count = self._filled[of.node_type]
        if not count or not ids.numel():
            return ids.new_empty(0), ids.new_empty(0)
        hot = self._ids[of.node_type][:count]
        at = torch.searchsorted(hot, ids).clamp_(max=count - 1)
        places = (hot[at] == ids).nonzero().view(-1)
        return places, at[places]

    def copy(self, of: DividedNodes, slots: Tensor, to: RowsOf, places: Tensor) -> None:
        """Copy rows to these places."""
        for name, rows in self._rows[of.node_type].items():
            put(to[name], places, rows.index_select(0, slots))


def put(to: Tensor, places: Tensor, rows: Tensor) -> None:
    """Copy rows of bytes to these places of others."""
    if places.numel():
        kind = next(k for k in _KINDS if to.size(1) % k.itemsize == 0 and not (_at(to) | _at(rows)) % k.itemsize)
        to.view(kind).index_copy_(0, places, rows.view(kind))


_KINDS = (torch.int64, torch.int32, torch.int16, torch.uint8)
"""Of these PyTorch copies the widest that rows consist of, which is faster."""


def _at(rows: Tensor) -> int:
    return int(rows.storage_offset())
