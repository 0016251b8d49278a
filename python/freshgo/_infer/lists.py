"""The in-edges of a homogeneous store, read from its files as they lie there (docs/format.md), or from files in which
nodes have the numbers of their places."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from freshgo._args.arrays import read_uint40, stored_dtype
from freshgo._infer.columns import ranges
from freshgo._infer.division import offset_bytes
from freshgo._infer.files import Moved, Rows, read_at
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


class Numbers(NamedTuple):
    """Where an array of numbers lies."""

    path: Path
    dtype: np.dtype
    offset: int = 0


class Lists:
    """The in-edges by target. Offsets are in memory, 4 bytes a node (8 from 2^32 edges on), and ``weights`` by edge
    number, if given; the rest is read in pieces."""

    def __init__(
        self,
        arrays: dict[str, Numbers],
        nodes: int,
        edges: int,
        piece: int,
        moved: Moved,
        weights: np.ndarray | None = None,
    ) -> None:
        """``arrays`` has ``indptr``, ``indices``, ``weights`` if edges have weights by target, and ``edge_ids`` if
        ``weights`` are not in the order of the edges. ``piece`` is how many edges are read at a time."""
        self.num_nodes, self.num_edges, self.piece = nodes, edges, piece
        self._arrays, self._moved, self._weights = arrays, moved, weights
        self._files: dict[str, int] = {}
        try:
            for name, array in arrays.items():
                self._files[name] = os.open(array.path, os.O_RDONLY)
            self.ptr = np.empty(nodes + 1, np.uint32 if offset_bytes(edges) == 4 else np.int64)
            for first, end in ranges(nodes + 1, piece):
                self.ptr[first:end] = self._read("indptr", first, end - first)
        except BaseException:
            self.close()
            raise

    @property
    def weighted(self) -> bool:
        return self._weights is not None or "weights" in self._arrays

    def pieces(self, first: int, end: int) -> Iterator[Piece]:
        """The in-edges of the targets from ``first`` to before ``end``, in order, some at a time: a target's list may
        be in several pieces."""
        at, stop = int(self.ptr[first]), int(self.ptr[end])
        while at < stop:
            until = min(at + self.piece, stop)
            lo = int(np.searchsorted(self.ptr, self.ptr.dtype.type(at), side="right")) - 1
            hi = int(np.searchsorted(self.ptr, self.ptr.dtype.type(until), side="left"))
            ptr = np.clip(self.ptr[lo : hi + 1].astype(np.int64) - at, 0, until - at)
            sources, weight = self.edges(at, until)
            yield Piece(
                lo,
                torch.from_numpy(ptr),
                torch.from_numpy(sources),
                None if weight is None else torch.from_numpy(weight),
            )
            at = until

    def edges(self, first: int, end: int) -> tuple[np.ndarray, np.ndarray | None]:
        """The sources and the weights (float32) of the edges from ``first`` to before ``end``."""
        return self._read("indices", first, end - first), self._weight(first, end - first)

    def degrees(self, first: int, end: int) -> Tensor:
        """How many in-edges the nodes from ``first`` to before ``end`` have, int64."""
        return torch.from_numpy(np.diff(self.ptr[first : end + 1].astype(np.int64)))

    def _weight(self, at: int, count: int) -> np.ndarray | None:
        if "weights" in self._arrays:
            return self._read("weights", at, count).astype(np.float32, copy=False)
        if self._weights is None or "edge_ids" not in self._arrays:
            return None if self._weights is None else self._weights[at : at + count]
        weights: np.ndarray = self._weights[self._read("edge_ids", at, count)]
        return weights

    def _read(self, name: str, first: int, count: int) -> np.ndarray:
        array = self._arrays[name]
        if array.dtype.kind == "V":
            return read_uint40(lambda into, at: read_at(self._files[name], into, at, self._moved), first, count)
        out = np.empty(count, array.dtype)
        at = array.offset + first * out.itemsize
        read_at(self._files[name], memoryview(out.view(np.uint8).data), at, self._moved)
        return out

    def close(self) -> None:
        """Close the files."""
        while self._files:
            os.close(self._files.popitem()[1])


def lists_of(store: Store, edge_weight: str | None, piece: int, moved: Moved) -> Lists:
    """The lists of a store, whose checksums are compared. Weights that it does not have by target are put into memory,
    4 bytes an edge."""
    store._contents.native.verify_topology()
    of = {array["name"]: array for array in store._contents.info["topology"]}
    # What comparing the checksums took.
    moved.read += sum(array["n_bytes"] for name, array in of.items() if name in ("indptr", "indices"))
    arrays = {
        name: Numbers(Path(store.path) / array["file"], stored_dtype(array["dtype"])) for name, array in of.items()
    }
    weights = None
    if edge_weight is None or store.weight_attr != edge_weight:
        arrays.pop("weights", None)
    if edge_weight is not None and store.weight_attr != edge_weight:
        weights = store[edge_weight].reshape(-1).float().numpy()
        if len(weights) != store.num_edges:
            raise InvalidArgumentError(
                f"edge_weight {edge_weight!r} has {len(weights)} numbers, expected one for each of the "
                f"{store.num_edges} edges"
            )
    if weights is None:
        arrays.pop("edge_ids", None)
    return Lists(arrays, store.num_nodes, store.num_edges, piece, moved, weights)


def opening_bytes(store: Store, edge_weight: str) -> int:
    """Return the memory that :func:`lists_of` takes beside weights that it puts into memory: the tensor of the store
    where it is of another dtype."""
    dtype = store.tensors[edge_weight].dtype
    return 0 if dtype == torch.float32 else dtype.itemsize * store.num_edges


def lists_in(files: dict[str, Rows], piece: int, moved: Moved) -> Lists:
    """The lists in ``.npy`` files: ``indptr``, ``indices`` and perhaps ``weights``."""
    arrays = {name: Numbers(rows.path, rows.dtype, rows.offset) for name, rows in files.items()}
    return Lists(arrays, files["indptr"].shape[0] - 1, files["indices"].shape[0], piece, moved)
