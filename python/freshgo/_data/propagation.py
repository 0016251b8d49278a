"""Aggregates over all in-neighbours of a graph in memory."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor

from freshgo._args.aggregates import Aggregate, Part, check_hops, no_tensor, note, noted
from freshgo._args.hints import among, no_weights, only
from freshgo._args.parts import GraphParts, graph_parts
from freshgo._args.types import UNNAMED, EdgeType, label_of
from freshgo._data.source import made_from, tensors
from freshgo._sources.recognise import in_memory
from freshgo.errors import InvalidArgumentError

_COPY_BYTES = 64 << 20
"""What the columns that are added up at a time take in float64, about. Arbitrary."""


def propagated(
    data: object,
    tensor: str,
    *,
    reduce: str,
    weight_attr: str | None,
    relations: Sequence[EdgeType] | None,
    hops: int,
    name: str,
) -> dict[str, dict[str, Tensor]]:
    """Return the aggregates of each node type by name, each with a note of what it was computed from. They do not
    have the nodes' own rows, which are in memory already.

    Raises:
        InvalidArgumentError: the graph does not have what is asked for.
    """
    given = graph_parts(in_memory(data))
    parts, now = tensors(given), made_from(given)
    edge_types = [edge_type for edge_type in parts.edges if tensor in parts.nodes[edge_type[0]].tensors]
    for edge_type in relations or ():
        if edge_type not in parts.edges:
            known = among(edge_type, parts.edges)
            raise InvalidArgumentError(
                f"relations names {edge_type!r}, which is not an edge type of the graph; it has {known}"
            )
    if relations is not None:
        edge_types = [edge_type for edge_type in parts.edges if edge_type in relations]
    if not edge_types:
        raise no_tensor(tensor, {name for source, _, _ in parts.edges for name in parts.nodes[source].tensors})
    there = {name for edge_type in edge_types for name in parts.edges[edge_type].tensors}
    if weight_attr is not None and weight_attr not in there:
        raise no_weights(weight_attr, there)
    check_hops(hops, UNNAMED in parts.edges)
    of_types: dict[str, list[tuple[EdgeType, Tensor]]] = {}
    for edge_type in edge_types:
        rows = _rows(parts, edge_type, tensor)
        if reduce == "gcn" and edge_type[0] != edge_type[2]:
            raise InvalidArgumentError(
                f"reduce='gcn' adds self-loops, so an edge type must lead within one node type, got {edge_type}: "
                "choose others by relations="
            )
        of_types.setdefault(edge_type[2], []).append((edge_type, rows))
    result: dict[str, dict[str, Tensor]] = {}
    for node_type, sources in of_types.items():
        dtype = sources[0][1].dtype
        for _, rows in sources[1:]:
            dtype = torch.promote_types(dtype, rows.dtype)
        for hop in range(1, hops + 1):
            made, used = [], []
            for edge_type, rows in sources:
                weights = parts.edges[edge_type].tensors.get(weight_attr or "")
                made.append(_along(parts, edge_type, cast(Tensor, weights), rows, reduce))
                used.append(Part(edge_type, rows.size(1), None if weights is None else weight_attr))
            out = torch.cat(made, 1).to(dtype)
            called = name if hop == 1 else f"{name}{hop}"
            before = parts.nodes[node_type].tensors.get(called)
            if before is not None and noted(before, now) is None:
                raise InvalidArgumentError(
                    f"the graph has a tensor {called!r}, which propagate() did not compute and does not replace: "
                    "rename it"
                )
            note(out, Aggregate(called, tensor, reduce, hop, 0, tuple(used)), _sources(now, used, tensor))
            result.setdefault(node_type, {})[called] = out
            sources = [(sources[0][0], out)]
    return result


def _rows(parts: GraphParts, edge_type: EdgeType, tensor: str) -> Tensor:
    rows = cast(Tensor, parts.nodes[edge_type[0]].tensors.get(tensor))
    if rows is None:
        known = only(tensor, parts.nodes[edge_type[0]].tensors)
        raise InvalidArgumentError(f"the sources of {edge_type} have no tensor {tensor!r}{known}")
    if not rows.is_floating_point() or rows.dim() != 2:
        raise InvalidArgumentError(
            f"{tensor!r} is {rows.dtype} of shape {list(rows.shape)}, expected floats of shape [num_nodes, columns]"
        )
    return rows


def _sources(now: dict[str, Tensor], used: Sequence[Part], tensor: str) -> dict[str, Tensor]:
    """What an aggregate is computed from, of all that the graph has, by name."""
    names = []
    for part in used:
        nodes, edges = label_of(part.edge_type[0]), label_of(part.edge_type)
        names += [f"{nodes}{tensor}", f"{edges}edge_index"]
        names += [] if part.weight_attr is None else [f"{edges}{part.weight_attr}"]
    return {name: now[name] for name in names}


def _along(parts: GraphParts, edge_type: EdgeType, weights: Tensor | None, rows: Tensor, reduce: str) -> Tensor:
    """Add up rows along one edge type: float64."""
    from freshgo import ops  # registers operators with torch, which takes a quarter of the time of an import

    source, target = cast(Tensor, parts.edges[edge_type].edge_index).long()
    num_sources = rows.size(0)
    num_targets = parts.nodes[edge_type[2]].num_nodes
    if num_targets is None:
        ends = int(max(target.max(), -1)) + 1 if target.numel() else 0
        num_targets = num_sources if edge_type[0] == edge_type[2] else ends
    weight = torch.ones(source.numel(), dtype=torch.float64) if weights is None else weights.double().view(-1)
    where = f"({', '.join(edge_type)})" if edge_type[1] else "all edges"
    if weight.numel() != source.numel():
        raise InvalidArgumentError(
            f"weight_attr has rows of shape {list(cast(Tensor, weights).shape[1:])} along {where}, expected one "
            "number for each edge"
        )
    if weights is not None and weights.dtype == torch.bool:
        raise InvalidArgumentError(f"weight_attr is bool along {where}, expected numbers")
    if reduce == "gcn":
        source, target, weight = _normalized(source, target, weight, num_targets)
    index, ptr, order = ops.group(torch.stack([source, target]), num_targets)
    factors = weight[order] if weights is not None or reduce == "gcn" else None
    out = torch.empty(num_targets, rows.size(1), dtype=torch.float64)
    columns = max(1, _COPY_BYTES // (8 * max(1, num_sources)))
    for first in range(0, rows.size(1), columns):
        some = rows.detach()[:, first : first + columns].double()
        out[:, first : first + columns] = ops.aggregate(
            some, index, ptr, factors, "mean" if reduce == "mean" else "sum"
        )
    return out


def _normalized(source: Tensor, target: Tensor, weight: Tensor, num_nodes: int) -> tuple[Tensor, Tensor, Tensor]:
    """The edges with a self-loop each and GCN's coefficients, as PyG's ``gcn_norm``."""
    loop, loops = source == target, torch.ones(num_nodes, dtype=torch.float64)
    last = torch.full((num_nodes,), -1, dtype=torch.int64)
    last.scatter_reduce_(0, target[loop], loop.nonzero().view(-1), "amax")  # the last of several gives its weight
    has = last >= 0
    loops[has] = weight[last[has]]
    ids = torch.arange(num_nodes)
    source, target = torch.cat([source[~loop], ids]), torch.cat([target[~loop], ids])
    weight = torch.cat([weight[~loop], loops])
    scale = torch.zeros(num_nodes, dtype=torch.float64).index_add_(0, target, weight).pow(-0.5)
    scale.masked_fill_(scale == float("inf"), 0)
    return source, target, weight * scale[source] * scale[target]
