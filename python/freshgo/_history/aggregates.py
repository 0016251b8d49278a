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
from freshgo._batch.structure import HeteroBlock, Levels
from freshgo._history.interfaces import Rows
from freshgo._history.layer_call import LayerCall
from freshgo._history.layer_forms import GCN, by_relation, origin

Merge = Callable[[Tensor], Tensor]
"""Puts computed rows of a level and those of the buffer in their places."""


def merge_of(history: Rows, levels: Levels, level: int) -> Merge | None:
    """What completes the aggregates of a level, where the history keeps some of it."""
    step = history._step
    if step is None or history._keeps_rows or level not in step.kept:
        return None
    return lambda computed: history._merged(levels, level, computed)


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
        sums, target = whole[key[2]], key[2]
        added = sums.pop(0)
        root = sums[-1] if _reads_root(layer) and target in roots else added
        x[key] = added if form == GCN else (added, root)
        each = torch.arange(added.size(0), device=added.device)
        itself[key] = torch.stack([each, each])
    return (call.bare(x), call.bare(itself)), {}


def _added(
    layer: Any, form: str, rows: Any, edges: Tensor, weight: Tensor | None, count: int
) -> tuple[Tensor, Tensor | None]:
    """What a layer adds up along one relation for so many targets, and their own rows, if it reads them."""
    if form == GCN:
        return layer.propagate(edges, x=rows, edge_weight=weight)[:count], None
    source, target = rows
    weights = {"edge_weight": weight} if origin(layer) == "GraphConv" else {}
    added = layer.propagate(edges, x=(source, target), size=(source.size(0), count), **weights)
    return added, target if _reads_root(layer) else None


def _reads_root(layer: Any) -> bool:
    return bool(getattr(layer, "root_weight", True))


def _joined(parts: dict[str, list[Tensor]], block: HeteroBlock) -> Tensor:
    """One table of the parts of all node types, type after type, as wide as the widest."""
    some = next(part for of in parts.values() for part in of)
    width = max(sum(part.size(1) for part in of) for of in parts.values())
    tables = []
    for node_type, of in parts.items():
        count, missing = block.num_dst[node_type], width - sum(part.size(1) for part in of)
        rest = [some.new_zeros(count, missing)] if missing else []
        tables.append(torch.cat([*of, *rest], 1) if len(of) + len(rest) > 1 else (of or rest)[0])
    return tables[0] if len(tables) == 1 else torch.cat(tables)


def _split(levels: Levels, level: int, table: Tensor, parts: dict[str, list[Tensor]]) -> dict[str, list[Tensor]]:
    """The parts of a whole table, by node type."""
    whole = {}
    for node_type, rows in tables.split(levels, level, table).items():
        widths = [part.size(1) for part in parts.get(node_type, [])]
        ends = itertools.accumulate(widths)
        whole[node_type] = [
            rows if width == rows.size(1) else rows[:, end - width : end].contiguous()
            for width, end in zip(widths, ends, strict=True)
        ]
    return whole


def merged_output(out: Any, levels: Levels, level: int, merge: Merge) -> Any:
    """Return what a layer has returned for the computed rows of a level, with the kept rows in their places."""
    if isinstance(out, tuple):  # with weights of attention
        return (merged_output(out[0], levels, level, merge), *out[1:])
    named = isinstance(out, Mapping)
    table = merge(tables.flatten(levels, level, out if named else {UNNAMED[0]: out}))
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
