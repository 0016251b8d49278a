"""Native graphs: tensors in memory that the library indexes and uses in place."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Any

from freshgo._args.arrays import ArrayLike
from freshgo._args.hetero_parts import TypedParts
from freshgo._args.progress import Progress
from freshgo._native import dlpack, header
from freshgo._native.handle import Handle, run_job
from freshgo._native.store import Store


class Graph(Handle):
    """A graph in memory. The tensors are used in place and kept alive until :meth:`close`."""

    _closer = "fg_graph_close"
    _what = "graph"

    def __init__(
        self,
        num_nodes: int,
        edge_index: ArrayLike,
        node_tensors: Mapping[str, ArrayLike],
        edge_tensors: Mapping[str, ArrayLike],
        progress: Progress | None = None,
    ) -> None:
        """Index the edges of ``edge_index`` (int64 or int32, shape [2, edges]) by target.

        Raises:
            InvalidArgumentError: ids out of range, shapes that disagree, rows that are not contiguous
            DTypeError: dtypes or types that cannot be used
        """
        super().__init__()
        arrays = dlpack.ArrayList()
        raw = header.GraphInput(struct_size=ctypes.sizeof(header.GraphInput), num_nodes=num_nodes)
        raw.edge_index = arrays.one("edge_index", edge_index)
        raw.node_tensors, raw.num_node_tensors = arrays.many(node_tensors)
        raw.edge_tensors, raw.num_edge_tensors = arrays.many(edge_tensors)
        self._pointer = run_job("fg_graph_open", ctypes.byref(raw), discard=self._discard, progress=progress)
        self._arrays = arrays


class TypedGraph(Handle):
    """A heterogeneous graph in memory. The tensors are used in place and kept alive until :meth:`close`."""

    _closer = "fg_graph_close"
    _what = "graph"

    def __init__(self, parts: TypedParts, progress: Progress | None = None) -> None:
        """Index the edges of every type by target. Every type has its number of nodes; splits are the caller's.

        Raises:
            InvalidArgumentError: ids out of range, shapes that disagree, rows that are not contiguous
            DTypeError: dtypes or types that cannot be used
        """
        super().__init__()
        arrays = dlpack.ArrayList()
        nodes, edges = raw_types(parts, arrays, splits=False)
        raw = header.GraphInput(
            struct_size=ctypes.sizeof(header.GraphInput),
            num_nodes=-1,
            node_types=nodes,
            edge_types=edges,
            num_node_types=len(nodes),
            num_edge_types=len(edges),
        )
        self._pointer = run_job("fg_graph_open", ctypes.byref(raw), discard=self._discard, progress=progress)
        self._arrays = arrays


def raw_types(parts: TypedParts, arrays: dlpack.ArrayList, *, splits: bool = True) -> tuple[Any, Any]:
    """Describe the types of a graph: an array of nodes and one of edges."""
    nodes, edges = (header.NodeType * len(parts.nodes))(), (header.EdgeType * len(parts.edges))()
    for node, (name, of_nodes) in zip(nodes, parts.nodes.items(), strict=True):
        node.name = name.encode()
        node.num_nodes = -1 if of_nodes.num_nodes is None else of_nodes.num_nodes
        node.tensors, node.num_tensors = arrays.many(of_nodes.tensors)
        if splits:
            node.splits, node.num_splits = arrays.many(of_nodes.splits)
    for edge, (names, of_edges) in zip(edges, parts.edges.items(), strict=True):
        edge.source, edge.relation, edge.target = (name.encode() for name in names)
        edge.edge_index = arrays.one("edge_index", of_edges.edge_index)
        edge.tensors, edge.num_tensors = arrays.many(of_edges.tensors)
    return nodes, edges


def source_handles(source: Store | Graph | TypedGraph) -> tuple[int | None, int | None]:
    """The handle of a store and that of a graph, of which the library takes one."""
    handle = source._handle()
    return (handle, None) if isinstance(source, Store) else (None, handle)
