"""Arranges the tensors of a native batch of a graph with types: ``n0/x`` is of the first type of nodes, ``e0/e_id`` of
the first type of edges.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping
from itertools import accumulate
from typing import Any

from torch import Tensor

from freshgo._args.aggregates import Aggregate
from freshgo._args.types import EdgeType, Inputs, Types
from freshgo._batch.levels import take_levels, take_transposed
from freshgo._batch.structure import First, Known, Levels, mark_first, remember
from freshgo._loader.arrange import take_own
from freshgo.heterobatch import HeteroBatch, TypeBatch

COUNTS = ("num_sampled_nodes", "num_sampled_edges")


def typed_batch_class() -> type[Any]:
    """Return what batches are made of: PyG's HeteroData, or :class:`HeteroBatch` where PyG is not installed."""
    if importlib.util.find_spec("torch_geometric") is None:
        return HeteroBatch
    from freshgo.pyg import HeteroData

    return HeteroData


def make_typed_batch(
    cls: type[Any],
    types: Types,
    inputs: Inputs | None,
    tensors: dict[str, Tensor],
    edge_index: str = "tensor",
    aggregates: Mapping[str, Aggregate] | None = None,
) -> Any:
    """Arrange the tensors as PyG's loader does, that of links without inputs. ``aggregates`` stand for the first layer,
    by node type."""
    levels = take_levels(tensors, types.node_types, types.edge_types)
    parts: dict[str, dict[str, Any]] = {}
    for name, tensor in tensors.items():
        place, _, of = name.partition("/")
        parts.setdefault(place, {})[of] = tensor.tolist() if of in COUNTS else tensor
    stores: dict[Any, dict[str, Any]] = {}
    for i, node_type in enumerate(types.num_nodes):
        part = stores[node_type] = parts[f"n{i}"]
        part["num_nodes"] = part["n_id"].numel()
        if inputs is None:  # of links, which have their tensors where they belong
            continue
        ids, seed_time = part.pop("input_id", None), part.pop("seed_time", None)
        if ids is not None and node_type in inputs.config:
            if seed_time is not None:
                part["seed_time"] = seed_time
            size = part["batch_size"] = ids.numel()
            # Of a mask PyG gives the nodes themselves.
            part["input_id"] = part["n_id"][:size].clone() if node_type in inputs.masked else ids
    first = _first(stores, aggregates or {})
    for i, edge_type in enumerate(types.edge_types):
        # PyG differentiates an EdgeIndex only if there are as many sources as targets.
        as_edge_index = edge_index == "EdgeIndex" and edge_type[0] == edge_type[2]
        edges = stores[edge_type] = _edges(
            parts[f"e{i}"], stores[edge_type[2]], levels, first.get(edge_type), as_edge_index
        )
        if "input_id" in edges:  # of links
            edges["batch_size"] = edges["input_id"].numel()
    if cls is HeteroBatch:
        return HeteroBatch({key: TypeBatch(**values) for key, values in stores.items()})
    batch = cls()
    for key, values in stores.items():
        store = batch.get_node_store(key) if isinstance(key, str) else batch.get_edge_store(*key)
        store.update(values)
    return batch


def _first(stores: dict[Any, dict[str, Any]], aggregates: Mapping[str, Aggregate]) -> dict[EdgeType, First]:
    """Take the aggregates out of what belongs to node types: each part is of an edge type."""
    taken = {node_type: take_own(stores[node_type], aggregate) for node_type, aggregate in aggregates.items()}
    first = {}
    for node_type, aggregate in aggregates.items():
        name, tensor = aggregate.name, aggregate.tensor
        for part in aggregate.parts:
            columns = aggregate.columns(part.edge_type)
            rows = taken[node_type][:, columns.start - aggregate.own : columns.stop - aggregate.own]
            own, source = (stores[part.edge_type[end]].get(tensor) for end in (2, 0))
            mark_first(rows if own is None else own)
            first[part.edge_type] = First(name, tensor, aggregate.reduce, part.weight_attr, rows, own, source)
    return first


def _edges(
    part: dict[str, Any], targets: dict[str, Any], levels: Levels | None, first: First | None, as_edge_index: bool
) -> dict[str, Any]:
    """The edges of one type; what is known of their order stays beside edge_index, as long as that is what it is."""
    ptr = part.pop("ptr")
    transposed = take_transposed(part)
    if as_edge_index:
        from freshgo.pyg import make_edge_index

        num_nodes = targets["num_nodes"]
        part["edge_index"] = make_edge_index(part["edge_index"], (num_nodes, num_nodes), ptr, transposed)
    ends = {part["edge_index"].size(1): ptr.numel() - 1}
    if COUNTS[1] in part:  # its edges are those of hops
        ends = dict(zip(accumulate(part[COUNTS[1]]), accumulate(targets[COUNTS[0]]), strict=False))
    if first is not None:
        part[first.name] = first.rows
    remember(part["edge_index"], Known(part["edge_index"], ptr, transposed, ends, levels, first))
    return part
