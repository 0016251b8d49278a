"""Where a loader's graph comes from: a store on disk, or tensors in memory."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol, cast

from torch import Tensor

from freshgo._args import aggregates, checks, labelled, whole
from freshgo._args.aggregates import Aggregate
from freshgo._args.arrays import Array, NpyFile, Pipe, Stream, as_tensor, tensor_digest
from freshgo._args.frames import Frames
from freshgo._args.levels import Levels
from freshgo._args.parts import EdgeParts, GraphParts, NodeParts, graph_parts
from freshgo._args.size import available_memory
from freshgo._args.types import UNNAMED, EdgeType, Layout, Row, Types, counts_shown, label_of
from freshgo._args.whole import Attributes
from freshgo._data.narrow import Narrow
from freshgo._native.graph import Graph as NativeGraph
from freshgo._native.store import Store as NativeStore
from freshgo.errors import DTypeError
from freshgo.store import Store, StoredEdges, StoredNodes


class Source(Protocol):
    """What the loader needs to know of a graph."""

    native: NativeStore | NativeGraph
    types: Types
    directory: Path | None
    """Where a store lies; None for tensors in memory."""
    row_bytes: dict[str, int]
    """Bytes of a row of every node-level tensor as it is stored, by its name in a batch of the library: see
    :meth:`Types.node_name`."""
    first: dict[str, Aggregate]
    """By node type, what stands for the first layer; empty: nothing does."""
    narrow: Mapping[str, Narrow]
    """The tensors that are stored in fewer bytes, by the same names."""
    tensors: Collection[str]
    """The same names of all tensors of a store."""
    frames: Frames
    """The TensorFrames of nodes, whose columns are such tensors."""
    attributes: Attributes
    """What belongs to the graph or to a type as a whole, by owner: every batch has it."""
    attribute_bytes: int
    """The memory of attributes that were read from a store."""
    link_splits: Collection[str]
    """The names of the splits of links."""

    def link_types(self, split: str) -> Collection[EdgeType]:
        """Return the edge types that a split has links of."""

    def links(self, split: str, edge_type: EdgeType) -> Mapping[str, Tensor]:
        """Return the arrays of a split of links that are of an edge type."""

    def split(self, name: str, node_type: str) -> Tensor:
        """Return the node ids, or the mask, of a split of a node type."""

    def splits(self, node_type: str) -> Collection[str]:
        """Return the names of the splits of a node type."""

    def num_edges(self, edge_type: EdgeType) -> int:
        """Return the number of edges of a type."""

    def default_memory(self) -> int:
        """Return the budget when the user names none, beside what a graph in memory takes."""

    def calibration(self, engine: str) -> Path | None:
        """Return the file that keeps what the device was found to do with this engine; None where there is none."""

    def layout(self) -> Layout:
        """Return the types and the tensors that batches may have."""

    def fingerprint(self) -> str:
        """Identify the graph, so that a saved state is not resumed on another."""

    def shown(self) -> str:
        """Say where the graph is, and how many nodes and edges it has."""

    def close(self) -> None:
        """Close what was opened here."""


def open_source(data: object, first_layer: object = None, levels: Levels | None = None) -> Source:
    """Return the source for whatever a user calls data."""
    if isinstance(data, Store):
        return StoreSource(data, first_layer, owned=False)
    if isinstance(data, str | os.PathLike):
        return StoreSource(Store.open(data), first_layer, owned=True)
    if isinstance(data, tuple) and len(data) == 2:
        stores = [getattr(part, "store", None) for part in data]  # of freshgo.pyg.stores, if both are of one
        if isinstance(stores[0], Store) and isinstance(stores[1], Store) and stores[0].uuid == stores[1].uuid:
            return StoreSource(stores[0], first_layer, owned=False)
    return MemorySource(data, first_layer, levels)


class StoreSource:
    """A store, closed with the loader when the loader opened it."""

    def __init__(self, store: Store, first_layer: object = None, *, owned: bool) -> None:
        self.store = store
        self._owned = owned
        self.native: NativeStore | NativeGraph = store._contents.native
        self.types = store._contents.types
        self.directory: Path | None = Path(store.path).resolve().parent
        stored = {node_type: nodes.tensors for node_type, nodes in store._contents.nodes.items()}
        made = {
            node_type: {name: info.aggregate for name, info in of.items() if info.aggregate is not None}
            for node_type, of in stored.items()
        }
        self.first = aggregates.chosen(first_layer, made)
        described = {
            **{self.types.node_name(i, t["name"]): t for i, t in _described(store._contents.nodes.values())},
            **{self.types.edge_name(i, t["name"]): t for i, t in _described(store._contents.edges.values())},
        }
        self.narrow: Mapping[str, Narrow] = {
            name: Narrow(tensor) for name, tensor in described.items() if tensor["error"] is not None
        }
        self.tensors: Collection[str] = described
        self.frames: Frames = store._contents.frames()
        self.attributes: Attributes = store._contents.attributes()
        self.attribute_bytes = whole.n_bytes(store._contents.attachments)
        self.link_splits: Collection[str] = store.link_splits
        self.row_bytes = {
            key: described[key]["row_bytes"]
            for i, (node_type, of) in enumerate(stored.items())
            for name in of
            if _comes(name, made[node_type], self.first.get(node_type))
            for key in (self.types.node_name(i, name),)
        }

    def link_types(self, split: str) -> Collection[EdgeType]:
        return self.store._contents.link_types(split)

    def links(self, split: str, edge_type: EdgeType) -> Mapping[str, Tensor]:
        return self.store.links(split, edge_type)

    def split(self, name: str, node_type: str) -> Tensor:
        return self.store._contents.nodes[node_type].split(name)

    def splits(self, node_type: str) -> Collection[str]:
        return self.store._contents.nodes[node_type].splits

    def num_edges(self, edge_type: EdgeType) -> int:
        return self.store._contents.edges[edge_type].num_edges

    def default_memory(self) -> int:
        return max(1, available_memory() // 2)

    def calibration(self, engine: str) -> Path | None:
        return checks.calibration_file(self.store.uuid, engine)

    def layout(self) -> Layout:
        nodes, edges = (
            {(key, name): (info.dtype, info.shape[1:]) for key, part in of for name, info in part.tensors.items()}
            for of in (self.store._contents.nodes.items(), self.store._contents.edges.items())
        )
        return Layout(self.types, nodes, edges)

    def fingerprint(self) -> str:
        return f"store {self.store.uuid}"

    def shown(self) -> str:
        return f"{self.store.path!r}, {counts_shown(self.types, self.num_edges)}"

    def close(self) -> None:
        if self._owned:
            self.store.close()


def _comes(name: str, made: Mapping[str, Aggregate], first: Aggregate | None) -> bool:
    """Whether a tensor of a store comes with batches: not one that was computed, unless it stands for the first layer
    and for the tensor that it was made from."""
    if name in made:
        return first is not None and name == first.name
    return first is None or name != first.tensor


class MemorySource:
    """Tensors in memory. Contiguous ones are used in place."""

    directory: Path | None = None
    narrow: Mapping[str, Narrow] = {}
    tensors: Collection[str] = ()
    attribute_bytes = 0  # they are the caller's

    def __init__(self, data: object, first_layer: object = None, levels: Levels | None = None) -> None:
        from freshgo._sources.recognise import in_memory

        given = graph_parts(in_memory(data), levels)
        self.frames: Frames = given.frames
        self.attributes: Attributes = _in_memory(given.attributes)
        self._links = given.links
        self.link_splits: Collection[str] = [labelled.OWN] if self._links else []
        parts, self.first = _choose(given, first_layer)
        self._edges = {edge_type: cast(Tensor, edges.edge_index) for edge_type, edges in parts.edges.items()}
        self._splits = {node_type: nodes.splits for node_type, nodes in parts.nodes.items()}
        self._tensors = {node_type: frozenset(nodes.tensors) for node_type, nodes in parts.nodes.items()}
        counts = {}
        for node_type, nodes in parts.nodes.items():
            if nodes.num_nodes is None:
                nodes.num_nodes = 1 + self._max_id(node_type)
            counts[node_type] = nodes.num_nodes
        self.types = Types(counts, list(parts.edges))
        rows, edge_rows = (
            {(key, name): _row(cast(Tensor, row)) for key, part in of for name, row in part.tensors.items()}
            for of in (parts.nodes.items(), parts.edges.items())
        )
        self._layout = Layout(self.types, rows, edge_rows)
        self.row_bytes = {
            self.types.node_name(i, name): cast(Tensor, rows).shape[1:].numel() * cast(Tensor, rows).dtype.itemsize
            for i, nodes in enumerate(parts.nodes.values())
            for name, rows in nodes.tensors.items()
        }
        self.native: NativeStore | NativeGraph = NativeGraph(parts, max(1, available_memory()))

    def _max_id(self, node_type: str) -> int:
        """Return the largest id that edges have of a node type, -1 where there is none."""
        ends = (
            edge_index[end]
            for edge_type, edge_index in self._edges.items()
            for end in (0, 1)
            if edge_type[2 * end] == node_type
        )
        # NumPy, for PyTorch has no maximum of unsigned integers.
        return max((int(ids.numpy().max()) for ids in ends if ids.numel()), default=-1)

    def link_types(self, split: str) -> Collection[EdgeType]:
        return self._links

    def links(self, split: str, edge_type: EdgeType) -> Mapping[str, Tensor]:
        return {name: _tensor(name, array) for name, array in self._links.get(edge_type, {}).items()}

    def split(self, name: str, node_type: str) -> Tensor:
        splits = self._splits[node_type]
        if name not in splits:
            owner = f"node type {node_type!r}" if node_type else "the graph"
            raise checks.no_split(owner, name, splits, self._tensors[node_type], checks.NO_MASK)
        return cast(Tensor, splits[name])

    def splits(self, node_type: str) -> Collection[str]:
        return self._splits[node_type]

    def num_edges(self, edge_type: EdgeType) -> int:
        return self._edges[edge_type].size(1)

    def default_memory(self) -> int:
        return max(1, available_memory() // 2)

    def calibration(self, engine: str) -> Path | None:
        return None

    def layout(self) -> Layout:
        return self._layout

    def shown(self) -> str:
        return f"graph in memory, {counts_shown(self.types, self.num_edges)}"

    def fingerprint(self) -> str:
        # A sample of the edges tells graphs apart without reading all of a large one. Saved states have these words.
        samples = {
            edge_type: (edges.size(1), tensor_digest(edges[:, :: max(1, edges.size(1) // 100_000)]))
            for edge_type, edges in self._edges.items()
        }
        if self.types.homogeneous:
            num_edges, digest = samples[UNNAMED]
            return f"memory {self.types.total} nodes {num_edges} edges {digest}"
        digests = hashlib.sha256(b"".join(repr((name, *sample)).encode() for name, sample in samples.items()))
        nodes = ", ".join(f"{count} {node_type}" for node_type, count in self.types.num_nodes.items())
        return f"memory {nodes} {digests.hexdigest()[:16]}"

    def close(self) -> None:
        self.native.close()


def _row(rows: Tensor) -> Row:
    return rows.dtype, rows.shape[1:]


def _choose(parts: GraphParts, first_layer: object) -> tuple[GraphParts, dict[str, Aggregate]]:
    """Leave out tensors that were computed, but for what stands for the first layer; with GCN's coefficients that
    stands for the rows themselves too."""
    now = made_from(parts)
    made = {
        node_type: {
            name: info for name, rows in of.tensors.items() if (info := aggregates.noted(rows, now)) is not None
        }
        for node_type, of in parts.nodes.items()
    }
    first = aggregates.chosen(first_layer, made)
    for node_type, nodes in parts.nodes.items():
        info = first.get(node_type)
        without = set(made[node_type]) - {info.name if info else None}
        if info is not None and info.reduce == "gcn":
            without.add(info.tensor)
        nodes.tensors = {name: rows for name, rows in nodes.tensors.items() if name not in without}
    return tensors(parts), first


def made_from(parts: GraphParts) -> dict[str, Tensor]:
    """Name all tensors of a graph in memory that aggregates may be computed from, as they were given."""
    named: dict[str, Array] = {}
    for node_type, nodes in parts.nodes.items():
        label = label_of(node_type)
        named.update({f"{label}{name}": rows for name, rows in nodes.tensors.items()})
    for edge_type, edges in parts.edges.items():
        label = label_of(edge_type)
        named[f"{label}edge_index"] = edges.edge_index
        named.update({f"{label}{name}": rows for name, rows in edges.tensors.items()})
    return {
        name: _tensor(name, array) for name, array in named.items() if not isinstance(array, NpyFile | Stream | Pipe)
    }


def _described(types: Iterable[StoredNodes | StoredEdges]) -> Iterator[tuple[int, dict[str, Any]]]:
    """The descriptions of all tensors, each with the place of its type."""
    return ((i, tensor) for i, stored in enumerate(types) for tensor in stored._info["tensors"])


def tensors(parts: GraphParts) -> GraphParts:
    """Return a graph with everything as tensors over the same memory; rows are contiguous."""
    nodes, edges = {}, {}
    for node_type, of_nodes in parts.nodes.items():
        label = label_of(node_type)
        splits: dict[str, Array] = {name: _tensor(label + name, array) for name, array in of_nodes.splits.items()}
        nodes[node_type] = NodeParts(of_nodes.num_nodes, _rows(label, of_nodes.tensors), splits)
    for edge_type, of_edges in parts.edges.items():
        label = label_of(edge_type)
        edge_index = _tensor(f"{label}edge_index", of_edges.edge_index)
        edges[edge_type] = EdgeParts(edge_index, _rows(label, of_edges.tensors))
    return GraphParts(nodes, edges)


def _in_memory(attributes: Attributes) -> Attributes:
    """Return attributes of a graph in memory; what is in a file is refused as a tensor of nodes would be."""
    return {
        owner: {
            name: _tensor(name, value) if isinstance(value, NpyFile | Stream) else value
            for name, value in values.items()
        }
        for owner, values in attributes.items()
    }


def _rows(label: str, arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Return rows without gaps."""
    return {name: _tensor(label + name, array).contiguous() for name, array in arrays.items()}


def _tensor(name: str, array: Array) -> Tensor:
    """Return an array of a graph in memory as a tensor over the same memory."""
    if isinstance(array, NpyFile | Stream | Pipe):
        raise DTypeError(f"{name} is a file: convert() reads files, a loader takes a store or tensors in memory")
    try:
        tensor = as_tensor(array)
    except (TypeError, ValueError) as error:
        raise DTypeError(f"{name} cannot be used as a tensor: {error}") from None
    if tensor.device.type != "cpu":
        raise DTypeError(f"{name} must be in the CPU's memory, got device {tensor.device}")
    return tensor
