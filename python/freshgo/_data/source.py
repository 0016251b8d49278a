"""Where a loader's graph comes from: a store on disk, or tensors in memory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from freshgo._args import checks
from freshgo._args.arrays import Array, NpyFile, as_tensor, tensor_digest
from freshgo._args.parts import graph_parts
from freshgo._args.size import available_memory
from freshgo._native.graph import Graph as NativeGraph
from freshgo._native.graph import TypedGraph as NativeTypedGraph
from freshgo._native.store import Store as NativeStore
from freshgo.errors import DTypeError
from freshgo.store import Store


class Source(Protocol):
    """What the loader needs to know of a graph."""

    native: NativeStore | NativeGraph | NativeTypedGraph
    num_nodes: int
    num_edges: int
    """Both of all types together."""
    directory: Path | None
    """Where a store lies; None for tensors in memory."""
    row_bytes: dict[str, int]
    """Bytes of a row of every node-level tensor, as batches of the library name it: with types ``"n0/x"``."""

    def split(self, name: str) -> Tensor:
        """Return the node ids, or the mask, of a split."""

    def default_memory(self) -> int | None:
        """Return the budget when the user names none; None is unlimited."""

    def calibration(self, engine: str) -> Path | None:
        """Return the file that keeps what the device was found to do with this engine; None where there is none."""

    def fingerprint(self) -> str:
        """Identify the graph, so that a saved state is not resumed on another."""

    def close(self) -> None:
        """Close what was opened here."""


def source_of(data: object) -> Source:
    """Return the source for whatever a user calls data, which has no types."""
    if isinstance(data, Store):
        source = StoreSource(data, owned=False)
    elif isinstance(data, str | os.PathLike):
        source = StoreSource(Store.open(data), owned=True)
    else:
        return MemorySource(data)
    node_types = source.store.node_types
    if node_types:
        source.close()
        raise DTypeError(f"expected a homogeneous graph, this one has the node types {node_types}")
    return source


class StoreSource:
    """A store, closed with the loader when the loader opened it."""

    def __init__(self, store: Store, *, owned: bool) -> None:
        self.store = store
        self._owned = owned
        self.native: NativeStore | NativeGraph | NativeTypedGraph = store._native
        self.num_nodes = store.num_nodes
        self.num_edges = store.num_edges
        self.directory: Path | None = Path(store.path).resolve().parent
        self.row_bytes = {
            name: torch.Size(tensor.shape[1:]).numel() * tensor.dtype.itemsize
            for name, tensor in store.tensors.items()
            if tensor.level == "node"
        }

    def split(self, name: str) -> Tensor:
        return self.store.split(name)

    def default_memory(self) -> int | None:
        return available_memory() // 2

    def calibration(self, engine: str) -> Path | None:
        return checks.calibration_file(self.store.uuid, engine)

    def fingerprint(self) -> str:
        return f"store {self.store.uuid}"

    def close(self) -> None:
        if self._owned:
            self.store.close()


class MemorySource:
    """Tensors in memory. Contiguous ones are used in place."""

    directory: Path | None = None

    def __init__(self, data: object) -> None:
        parts = graph_parts(data)
        self._edge_index = tensor_of("edge_index", parts.edge_index)
        self._splits = {name: tensor_of(name, ids) for name, ids in parts.splits.items()}
        self.num_nodes = max_id(self._edge_index) + 1 if parts.num_nodes is None else parts.num_nodes
        self.num_edges = self._edge_index.size(1)
        rows = {name: tensor_of(name, array).contiguous() for name, array in parts.node_tensors.items()}
        self._tensors = frozenset(rows)
        self.row_bytes = {name: tensor.shape[1:].numel() * tensor.dtype.itemsize for name, tensor in rows.items()}
        self.native: NativeStore | NativeGraph | NativeTypedGraph = NativeGraph(
            self.num_nodes,
            self._edge_index,
            rows,
            {name: tensor_of(name, array).contiguous() for name, array in parts.edge_tensors.items()},
        )

    def split(self, name: str) -> Tensor:
        if name not in self._splits:
            raise checks.no_split("the graph", name, self._splits, self._tensors, checks.NO_MASK)
        return self._splits[name]

    def default_memory(self) -> int | None:
        return None

    def calibration(self, engine: str) -> Path | None:
        return None

    def fingerprint(self) -> str:
        # A sample of the edges tells graphs apart without reading all of a large one.
        num_edges = self._edge_index.size(1)
        sample = self._edge_index[:, :: max(1, num_edges // 100_000)]
        digest = tensor_digest(sample)
        return f"memory {self.num_nodes} nodes {num_edges} edges {digest}"

    def close(self) -> None:
        self.native.close()


def tensor_of(name: str, array: Array) -> Tensor:
    """Return an array of a graph in memory as a tensor over the same memory."""
    if isinstance(array, NpyFile):
        raise DTypeError(f"{name} is a file: convert() reads files, a loader takes a store or tensors in memory")
    try:
        tensor = as_tensor(array)
    except (TypeError, ValueError) as error:
        raise DTypeError(f"{name} cannot be used as a tensor: {error}") from None
    if tensor.device.type != "cpu":
        raise DTypeError(f"{name} must be in the CPU's memory, got device {tensor.device}")
    return tensor


def max_id(edge_index: Tensor) -> int:
    """Return the largest id of an edge list, -1 where there is none."""
    return int(edge_index.max()) if edge_index.numel() else -1
