"""``history(h, block, conv)``: one layer over a block, called by hand."""

from __future__ import annotations

from typing import Any

from freshgo._args.types import UNNAMED
from freshgo._batch.structure import Block, HeteroBlock
from freshgo._history.aggregates import adds_up, merge_of, merged_output, over_merged
from freshgo._history.layer_call import LayerCall, of_targets
from freshgo._history.layer_forms import GCN, form_of
from freshgo._history.steps import Steps
from freshgo.errors import InvalidArgumentError


def called(
    history: Steps, h: Any, block: Block | HeteroBlock, layer: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """Return what ``layer`` makes of the rows of a block: those of its targets, or all rows of the level that it
    computes where the history keeps aggregates of that.

    Raises:
        InvalidArgumentError, DTypeError: the layer or its rows do not fit.
    """
    levels, level = block.levels, block.level
    where = "the layer" if levels is None else f"layer {level + 1}"
    layer = getattr(layer, "_orig_mod", layer)  # sums are made by the layer itself, compiled or not
    form = form_of(where, layer)
    if form == GCN and layer.normalize:
        raise InvalidArgumentError(
            f"{where}: the coefficients of GCNConv are those of the whole batch, which a block does not have: use "
            "history.attach(model), or normalize beforehand and use GCNConv(normalize=False)"
        )
    named = isinstance(block, HeteroBlock)
    whole = block if isinstance(block, HeteroBlock) else _typed(block)
    rows = h if named else {UNNAMED[0]: h}
    if levels is not None:
        rows = history.rows(levels, level, rows)
    edges = block.edge_index_dict if isinstance(block, HeteroBlock) else block.edge_index
    call = LayerCall(where, layer, (None, edges, *args), kwargs)
    call.check(whole)
    x = call.input(rows, whole, form)
    if levels is not None and level + 1 < levels.num_layers:
        history.judge(level + 1, adds_up=adds_up(layer), name=type(layer).__name__)
        history.judge_rows(levels, level, rows)
    merge = None if levels is None else merge_of(history, levels, level + 1)
    if levels is not None and merge is not None and adds_up(layer):
        call = LayerCall(where, layer, (x, edges, *args), kwargs)
        new, by_name = over_merged(call, form, whole, levels, level + 1, merge)
        return layer(*new, **by_name)
    pairs = call.takes_pairs(form)
    out = of_targets(type(layer).__name__, layer(x, edges, *args, **kwargs), whole, pairs=pairs)
    return out if levels is None or merge is None else merged_output(out, levels, level + 1, merge)


def _typed(block: Block) -> HeteroBlock:
    """A block of a homogeneous graph, by its unnamed types."""
    sources, targets = ({UNNAMED[0]: count} for count in (block.num_src, block.num_dst))
    return HeteroBlock(sources, targets, {UNNAMED: block}, block.level, block.levels)
