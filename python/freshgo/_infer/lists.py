"""The in-edges of a homogeneous store, read from its files as they lie there (docs/format.md)."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from freshgo._infer.columns import ranges
from freshgo._infer.division import offset_bytes
from freshgo._infer.files import Moved, read_at
from freshgo.errors import InvalidArgumentError
from freshgo.store import Store


class Piece(NamedTuple):
    """Some in-edges of the targets from ``first`` on."""

    first: int
    ptr: Tensor
    """int64 ``[targets + 1]``: where each target's edges begin."""
    sources: Tensor
    """int32 or int64 ``[edges]``: sources."""
    weight: Tensor | None
    """float32 ``[edges]``."""


class Lists:
    """The in-edges by target. Offsets are in memory, 4 bytes a node (8 from 2^32 edges on), and weights that the store
    does not have by target, 4 bytes an edge; the rest is read in pieces. Checksums are compared once, when it is
    opened."""

    def __init__(self, store: Store, edge_weight: str | None, piece: int, moved: Moved) -> None:
        self._moved, self._piece, self._files = moved, piece, dict[str, Any]()
        self.num_nodes, self.num_edges = store.num_nodes, store.num_edges
        store._native.verify_topology()
        of = {array["name"]: array for array in store._info["topology"]}
        try:
            self._open(Path(store.path), of, store, edge_weight, piece)
        except BaseException:
            self.close()
            raise

    def _open(self, path: Path, of: dict[str, Any], store: Store, edge_weight: str | None, piece: int) -> None:
        self._dtypes = {name: np.dtype(array["dtype"]) for name, array in of.items()}
        moved = sum(array["n_bytes"] for name, array in of.items() if name in ("indptr", "indices"))
        self._moved.read += moved  # what comparing the checksums took
        for name, array in of.items():
            self._files[name] = os.open(path / array["file"], os.O_RDONLY)
        self._ptr = np.empty(self.num_nodes + 1, np.uint32 if offset_bytes(self.num_edges) == 4 else np.int64)
        for first, end in ranges(self.num_nodes + 1, piece):
            self._ptr[first:end] = self._read("indptr", first, end - first)
        self._weights: np.ndarray | None = None
        self._by_target = edge_weight is not None and store.weight_attr == edge_weight
        if edge_weight is not None and not self._by_target:
            weights = store[edge_weight].reshape(-1).float().numpy()
            if len(weights) != self.num_edges:
                raise InvalidArgumentError(
                    f"edge_weight {edge_weight!r} has {len(weights)} numbers, expected one for each of the "
                    f"{self.num_edges} edges"
                )
            self._weights = weights
        self.weighted = edge_weight is not None

    def pieces(self, first: int, end: int) -> Iterator[Piece]:
        """The in-edges of the targets from ``first`` to before ``end``, in order, some at a time: a target's list may
        be in several pieces."""
        at, stop = int(self._ptr[first]), int(self._ptr[end])
        while at < stop:
            until = min(at + self._piece, stop)
            lo = int(np.searchsorted(self._ptr, self._ptr.dtype.type(at), side="right")) - 1
            hi = int(np.searchsorted(self._ptr, self._ptr.dtype.type(until), side="left"))
            ptr = np.clip(self._ptr[lo : hi + 1].astype(np.int64) - at, 0, until - at)
            index = torch.from_numpy(self._read("indices", at, until - at))
            yield Piece(lo, torch.from_numpy(ptr), index, self._weight(at, until - at))
            at = until

    def degrees(self, first: int, end: int) -> Tensor:
        """How many in-edges the nodes from ``first`` to before ``end`` have, int64."""
        return torch.from_numpy(np.diff(self._ptr[first : end + 1].astype(np.int64)))

    def _weight(self, at: int, count: int) -> Tensor | None:
        if not self.weighted:
            return None
        if self._by_target:
            return torch.from_numpy(self._read("weights", at, count).astype(np.float32, copy=False))
        assert self._weights is not None  # it is loaded where the weights are not by target
        if "edge_ids" not in self._files:
            return torch.from_numpy(self._weights[at : at + count])
        return torch.from_numpy(self._weights[self._read("edge_ids", at, count)])

    def _read(self, name: str, first: int, count: int) -> np.ndarray:
        out = np.empty(count, self._dtypes[name])
        read_at(self._files[name], memoryview(out.view(np.uint8).data), first * out.itemsize, self._moved)
        return out

    def close(self) -> None:
        """Close the files."""
        while self._files:
            os.close(self._files.popitem()[1])
