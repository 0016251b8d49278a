"""Native graphs: tensors in memory that the library indexes and uses in place."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

from freshgo._args.arrays import EdgeFiles
from freshgo._args.parts import GraphParts
from freshgo._args.progress import Progress
from freshgo._args.types import EdgeType
from freshgo._native import dlpack, header
from freshgo._native.handle import Handle, run_job
from freshgo._native.options import filled
from freshgo._native.store import Store


class Graph(Handle):
    """A graph in memory. The tensors are used in place and kept alive until :meth:`close`."""

    _closer = "fg_graph_close"
    _what = "graph"

    def __init__(self, parts: GraphParts, memory: int = 0, progress: Progress | None = None) -> None:
        """Index the edges of every type by target within ``memory`` bytes; 0 is unlimited. Every type has its number of
        nodes; splits are the caller's.

        Raises:
            InvalidArgumentError: ids out of range, shapes that disagree, rows that are not contiguous
            DTypeError: dtypes or types that cannot be used
            BudgetError: the index does not fit into ``memory``
        """
        super().__init__()
        arrays = dlpack.ArrayList()
        raw = filled(header.GraphInput, {**raw_types(parts, arrays, splits=False), "memory": memory})
        self._pointer = run_job("fg_graph_open", ctypes.byref(raw), discard=self._discard, progress=progress)
        self._arrays = arrays


def raw_types(
    parts: GraphParts,
    arrays: dlpack.ArrayList,
    *,
    splits: bool = True,
    weights: Mapping[EdgeType, str] | None = None,
    forms: Mapping[str | EdgeType, Mapping[str, str]] | None = None,
) -> dict[str, Any]:
    """Describe the types of a graph. ``weights`` names the tensors of edge types that are stored by position too,
    ``forms`` says for tensors of types how they are stored in fewer bytes."""
    forms = forms or {}
    nodes, edges = (header.NodeType * len(parts.nodes))(), (header.EdgeType * len(parts.edges))()
    for node, (name, of_nodes) in zip(nodes, parts.nodes.items(), strict=True):
        node.name = name.encode()
        node.num_nodes = -1 if of_nodes.num_nodes is None else of_nodes.num_nodes
        node.tensors, node.num_tensors = arrays.many(of_nodes.tensors, forms.get(name))
        if splits:
            node.splits, node.num_splits = arrays.many(of_nodes.splits)
    for edge, (names, of_edges) in zip(edges, parts.edges.items(), strict=True):
        edge.source, edge.relation, edge.target = (name.encode() for name in names)
        edges_of = of_edges.edge_index
        first, *more = edges_of.files if isinstance(edges_of, EdgeFiles) else (edges_of,)
        edge.edge_index = arrays.one("edge_index", first)
        edge.more_edges, edge.num_more_edges = arrays.several("edge_index", more)
        edge.tensors, edge.num_tensors = arrays.many(of_edges.tensors, forms.get(names))
        edge.unnumbered = not of_edges.numbered
        if weights and names in weights:
            edge.weights = weights[names].encode()
    return {"node_types": nodes, "edge_types": edges}


def source_handles(source: Store | Graph) -> tuple[int | None, int | None]:
    """The handles of a store and of a graph; one of them is null."""
    handle = source._handle()
    return (handle, None) if isinstance(source, Store) else (None, handle)
