"""Where a loader's graph comes from when it may have types: as ``source``, for stores and tensors of either kind."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from freshgo._args import checks
from freshgo._args.arrays import Array, tensor_digest
from freshgo._args.hetero_parts import EdgeParts, NodeParts, TypedParts, typed_parts
from freshgo._args.parts import is_typed
from freshgo._args.types import EdgeType, Types
from freshgo._data.source import MemorySource, Source, StoreSource, max_id, tensor_of
from freshgo._native.graph import Graph as NativeGraph
from freshgo._native.graph import TypedGraph as NativeTypedGraph
from freshgo._native.store import Store as NativeStore
from freshgo.errors import InvalidArgumentError
from freshgo.store import Store


def open_source(data: object) -> Source:
    """Return the source for whatever a user calls data: a :class:`TypedSource` where it has types."""
    if isinstance(data, Store):
        return TypedStoreSource(data, owned=False) if data.node_types else StoreSource(data, owned=False)
    if isinstance(data, str | os.PathLike):
        store = Store.open(data)
        return TypedStoreSource(store, owned=True) if store.node_types else StoreSource(store, owned=True)
    return TypedMemorySource(data) if is_typed(data) else MemorySource(data)


class TypedStoreSource(StoreSource):
    """A store of a graph with types."""

    def __init__(self, store: Store, *, owned: bool) -> None:
        super().__init__(store, owned=owned)
        self.types = Types(store.num_nodes_dict, store.edge_types)
        self.row_bytes = {
            f"n{i}/{name}": torch.Size(tensor.shape[1:]).numel() * tensor.dtype.itemsize
            for i, node_type in enumerate(self.types.node_types)
            for name, tensor in store[node_type].tensors.items()
        }

    def split_of(self, name: str, node_type: str) -> Tensor:
        """Return the node ids of a split of a type."""
        return self.store.split(name, node_type)

    def splits_of(self, node_type: str) -> Collection[str]:
        """Return the names of the splits of a type."""
        return self.store._nodes[node_type].splits

    def num_edges_of(self, edge_type: EdgeType) -> int:
        """Return the number of edges of a type."""
        return self.store.num_edges_dict[edge_type]


class TypedMemorySource:
    """A graph with types in memory. Contiguous tensors are used in place."""

    directory: Path | None = None

    def __init__(self, data: object) -> None:
        parts = _tensors(typed_parts(data))
        self._edges = {edge_type: cast(Tensor, edges.edge_index) for edge_type, edges in parts.edges.items()}
        self._splits = {node_type: nodes.splits for node_type, nodes in parts.nodes.items()}
        self._tensors = {node_type: frozenset(nodes.tensors) for node_type, nodes in parts.nodes.items()}
        counts = {}
        for node_type, nodes in parts.nodes.items():
            if nodes.num_nodes is None:
                nodes.num_nodes = 1 + max(
                    (
                        max_id(edge_index[end])
                        for edge_type, edge_index in self._edges.items()
                        for end in (0, 1)
                        if edge_type[2 * end] == node_type
                    ),
                    default=-1,
                )
            counts[node_type] = nodes.num_nodes
        self.types = Types(counts, list(parts.edges))
        self.row_bytes = {
            f"n{i}/{name}": cast(Tensor, rows).shape[1:].numel() * cast(Tensor, rows).dtype.itemsize
            for i, nodes in enumerate(parts.nodes.values())
            for name, rows in nodes.tensors.items()
        }
        self.num_nodes = sum(counts.values())
        self.num_edges = sum(edge_index.size(1) for edge_index in self._edges.values())
        self.native: NativeStore | NativeGraph | NativeTypedGraph = NativeTypedGraph(parts)

    def split(self, name: str) -> Tensor:
        raise InvalidArgumentError(
            f"the split {name!r} needs its node type, one of {', '.join(map(repr, self._splits))}"
        )

    def split_of(self, name: str, node_type: str) -> Tensor:
        """Return the node ids, or the mask, of a split of a type."""
        splits = self._splits[node_type]
        if name not in splits:
            owner = f"node type {node_type!r}"
            raise checks.no_split(owner, name, splits, self._tensors[node_type], checks.NO_MASK)
        return cast(Tensor, splits[name])

    def splits_of(self, node_type: str) -> Collection[str]:
        """Return the names of the splits of a type."""
        return self._splits[node_type]

    def num_edges_of(self, edge_type: EdgeType) -> int:
        """Return the number of edges of a type."""
        return self._edges[edge_type].size(1)

    def default_memory(self) -> int | None:
        return None

    def calibration(self, engine: str) -> Path | None:
        return None

    def fingerprint(self) -> str:
        # A sample of the edges tells graphs apart without reading all of a large one.
        digest = hashlib.sha256()
        for edge_type, edge_index in self._edges.items():
            num_edges = edge_index.size(1)
            sample = tensor_digest(edge_index[:, :: max(1, num_edges // 100_000)])
            digest.update(repr((edge_type, num_edges, sample)).encode())
        nodes = ", ".join(f"{count} {node_type}" for node_type, count in self.types.num_nodes.items())
        return f"memory {nodes} {digest.hexdigest()[:16]}"

    def close(self) -> None:
        self.native.close()


TypedSource = TypedStoreSource | TypedMemorySource


def _tensors(parts: TypedParts) -> TypedParts:
    """Return a graph with everything as tensors over the same memory; rows are contiguous."""
    nodes, edges = {}, {}
    for node_type, of_nodes in parts.nodes.items():
        label = f"{node_type}."
        nodes[node_type] = NodeParts(
            of_nodes.num_nodes,
            {name: _rows(label + name, array) for name, array in of_nodes.tensors.items()},
            {name: tensor_of(label + name, array) for name, array in of_nodes.splits.items()},
        )
    for edge_type, of_edges in parts.edges.items():
        label = f"({', '.join(edge_type)})."
        edges[edge_type] = EdgeParts(
            tensor_of(f"{label}edge_index", of_edges.edge_index),
            {name: _rows(label + name, array) for name, array in of_edges.tensors.items()},
        )
    return TypedParts(nodes, edges)


def _rows(name: str, array: Array) -> Tensor:
    """Return rows without gaps."""
    return tensor_of(name, array).contiguous()
