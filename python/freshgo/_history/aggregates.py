"""What a history with ``keep="aggregates"`` keeps of a node at a layer, and how the layer goes on from it.

Of a layer whose messages are linear in the rows of the sources, with coefficients that no parameter changes, it is what
the layer adds up over the node's sampled neighbours, with the node's own row beside it where the layer reads one. The
layer's maps come after: they are applied to computed and kept sums alike, with the parameters of now. Of any other
layer it is what the layer returns, before what the model does with it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from freshgo._args.types import UNNAMED
from freshgo._batch import tables
from freshgo._batch.structure import HeteroBlock, Known, Levels, Transposed, remember
from freshgo._history.layer_call import LayerCall
from freshgo._history.layer_forms import GCN, by_relation, origin
from freshgo._history.steps import Steps

Merge = Callable[[list[Tensor]], list[Tensor]]
"""Puts computed rows of a level and those of the buffer in their places, of each part of a row."""


def merge_of(history: Steps, levels: Levels, level: int) -> Merge | None:
    """What completes the aggregates of a level, where the history keeps some of it."""
    step = history.current
    if step is None or not history.keeps.aggregates or level not in step.kept:
        return None
    return lambda parts: history.merged(levels, level, parts)


def over_merged(
    call: LayerCall, form: str, block: HeteroBlock, levels: Levels, level: int, merge: Merge
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return what a layer that adds up is called with, so that it returns all rows of ``level``, which it computes.

    ``call`` has the arguments for the computed rows alone. Their sums are made here, along each relation, and the layer
    gets those of all rows with an edge from each to itself: over one edge of weight 1 its sum or mean is the row as it
    is, bit for bit. An entry of a node has the sums of every relation that ends at its type side by side, then its own
    row where one of these layers reads it.
    """
    relations = call.relations()
    parts: dict[str, list[Tensor]] = {node_type: [] for node_type in block.num_dst}
    roots: dict[str, Tensor] = {}
    for (_, _, target), (layer, rows, edges, weight) in relations.items():
        added, root = _added(layer, form, rows, edges, weight, block.num_dst[target])
        parts[target].append(added)
        if root is not None:
            roots.setdefault(target, root)
    for node_type, root in roots.items():
        parts[node_type].append(root)
    whole = _split(levels, level, merge(_joined(parts, block)), parts)
    x: dict[Any, Any] = {}
    itself: dict[Any, Tensor] = {}
    for key, (layer, *_) in relations.items():
        of_type = whole[key[2]]
        root = of_type[-1] if _reads_root(layer) and key[2] in roots else of_type[0]
        added = of_type.pop(0)
        x[key] = added if form == GCN else (added, root)
        itself[key] = _itself(added)
    return (call.bare(x), call.bare(itself)), {}


def _added(
    layer: Any, form: str, rows: Any, edges: Tensor, weight: Tensor | None, count: int
) -> tuple[Tensor, Tensor | None]:
    """The aggregates of a layer along one relation for a number of targets, and their own rows, if it reads them."""
    if form == GCN:
        return layer.propagate(edges, x=rows, edge_weight=weight)[:count], None
    source, target = rows
    weights = {"edge_weight": weight} if origin(layer) == "GraphConv" else {}
    added = layer.propagate(edges, x=(source, target), size=(source.size(0), count), **weights)
    return added, target if _reads_root(layer) else None


def _itself(rows: Tensor) -> Tensor:
    """An edge from each row to itself, which is known to be grouped by both ends."""
    ptr = torch.arange(rows.size(0) + 1, device=rows.device)
    each = ptr[:-1]
    edges = torch.stack([each, each])
    remember(edges, Known(edges, ptr, Transposed(ptr, each, each), {rows.size(0): rows.size(0)}))
    return edges


def _reads_root(layer: Any) -> bool:
    return bool(getattr(layer, "root_weight", True))


def _joined(parts: dict[str, list[Tensor]], block: HeteroBlock) -> list[Tensor]:
    """The parts of the rows of all node types, type after type: the first of each, then the second, and so on, each as
    wide as its widest."""
    some = next(part for of in parts.values() for part in of)
    joined = []
    for of in itertools.zip_longest(*parts.values()):
        width = max(part.size(1) for part in of if part is not None)
        of_types = []
        for part, count in zip(of, block.num_dst.values(), strict=True):
            missing = width - (0 if part is None else part.size(1))
            rest = [some.new_zeros(count, missing)] if missing else []
            of_types.append(torch.cat([*([] if part is None else [part]), *rest], 1) if rest else part)
        joined.append(of_types[0] if len(of_types) == 1 else torch.cat(of_types))
    return joined


def _split(levels: Levels, level: int, joined: list[Tensor], parts: dict[str, list[Tensor]]) -> dict[str, list[Tensor]]:
    """The parts of the rows of a whole level, by node type."""
    whole: dict[str, list[Tensor]] = {node_type: [] for node_type in parts}
    for at, table in enumerate(joined):
        for node_type, rows in tables.split(levels, level, table).items():
            if at < len(parts[node_type]):
                width = parts[node_type][at].size(1)
                whole[node_type].append(rows if width == rows.size(1) else rows[:, :width].contiguous())
    return whole


def merged_output(out: Any, levels: Levels, level: int, merge: Merge) -> Any:
    """Return what a layer has returned for the computed rows of a level, with the kept rows in their places."""
    if isinstance(out, tuple):  # with weights of attention
        return (merged_output(out[0], levels, level, merge), *out[1:])
    named = isinstance(out, Mapping)
    computed, hits = tables.flatten(levels, level, out if named else {UNNAMED[0]: out}), levels.hit[level]
    (table,) = merge([computed])
    if hits is None or not hits.numel():
        table = table.clone()  # what the model does with it in place is not kept
    rows = tables.split(levels, level, table)
    return rows if named else rows[UNNAMED[0]]


def adds_up(module: nn.Module) -> bool:
    """Whether a layer's messages are linear in the rows of the sources, with coefficients that no parameter changes; of
    a ``HeteroConv`` those of every relation."""
    if by_relation(module):
        relations: Any = module.convs
        return all(adds_up(conv) for conv in relations.values())
    layer: Any = module
    known = type(layer).__module__.startswith(("torch_geometric.", "freshgo."))  # no class of the user's
    return (
        known
        and origin(layer) in ("SAGEConv", "GraphConv", "GINConv", "GCNConv")
        and isinstance(layer.aggr, str)
        and layer.aggr in ("add", "sum", "mean")
        and not getattr(layer, "project", False)
        and layer.decomposed_layers == 1
    )
