"""What a history with ``keep="aggregates"`` keeps of a node at a layer, and how the layer goes on from it.

Of a layer whose messages are linear in the rows of the sources, with coefficients that no parameter changes, it is what
the layer adds up over the node's sampled neighbours, with the node's own row beside it where the layer reads one. The
layer's maps come after: they are applied to computed and kept sums alike, with the parameters of now. Of any other
layer it is what the layer returns, before what the model does with it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from freshgo._args.types import UNNAMED
from freshgo._batch import tables
from freshgo._batch.structure import HeteroBlock, Levels
from freshgo._history.layer_call import LayerCall
from freshgo._history.layer_forms import GCN, origin

Merge = Callable[[Tensor], Tensor]
"""Puts computed rows of a level and those of the buffer in their places."""


def over_merged(
    call: LayerCall, module: Any, form: str, block: HeteroBlock, merge: Merge
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return what a layer that adds up is called with, so that it returns all rows of the level above.

    ``call`` has the arguments for the computed rows alone. Their sums are made here, and the layer gets those of all
    rows with an edge from each to itself: over one edge of weight 1 its sum or mean is the row as it is, bit for bit.
    """
    edge_index, weight, x = call.edge_index, call.weight, call.rows[UNNAMED[0]]
    count = block.num_dst[UNNAMED[0]]
    if form == GCN:
        added, target = module.propagate(edge_index, x=x, edge_weight=weight)[:count], None
    else:
        source, target = x
        weights = {"edge_weight": weight} if origin(module) == "GraphConv" else {}
        added = module.propagate(edge_index, x=(source, target), size=(source.size(0), count), **weights)
    if target is None or not getattr(module, "root_weight", True):
        rows = root = merge(added)
    else:
        merged = merge(torch.cat([added, target], 1))
        rows, root = merged[:, : added.size(1)].contiguous(), merged[:, added.size(1) :].contiguous()
    each = torch.arange(rows.size(0), device=rows.device)
    return (rows if form == GCN else (rows, root), torch.stack([each, each])), {}


def merged_output(out: Any, levels: Levels, level: int, merge: Merge) -> Any:
    """Return what a layer has returned for the computed rows of a level, with the kept rows in their places."""
    if isinstance(out, tuple):  # with weights of attention
        return (merged_output(out[0], levels, level, merge), *out[1:])
    named = isinstance(out, Mapping)
    table = merge(tables.flatten(levels, level, out if named else {UNNAMED[0]: out}))
    rows = tables.split(levels, level, table)
    return rows if named else rows[UNNAMED[0]]


def adds_up(module: nn.Module) -> bool:
    """Whether a layer's messages are linear in the rows of the sources, with coefficients that no parameter changes."""
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
