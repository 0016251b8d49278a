"""Arranges the tensors of a native batch as PyG does."""

from __future__ import annotations

import importlib.util
from itertools import accumulate
from typing import Any

from torch import Tensor

from freshgo._args.aggregates import Aggregate
from freshgo._batch.levels import take_levels, take_transposed
from freshgo._batch.structure import First, Known, mark_first, remember
from freshgo.batch import Batch


def batch_class() -> type[Any]:
    """Return what batches are made of: PyG's Data with ``blocks()``, or :class:`Batch`."""
    if importlib.util.find_spec("torch_geometric") is None:
        return Batch
    from freshgo.pyg import Data

    return Data


def make_batch(
    cls: type[Any],
    num_seeds: int,
    tensors: dict[str, Tensor],
    edge_index: str = "tensor",
    aggregate: Aggregate | None = None,
) -> Any:
    """Arrange the tensors of a native batch as PyG does. ``aggregate`` stands for the first layer."""
    first = None
    if aggregate is not None:
        name, part = aggregate.name, aggregate.parts[0]
        rows = take_own(tensors, aggregate)
        tensors[name] = rows
        own = tensors.get(aggregate.tensor)
        mark_first(rows if own is None else own)
        first = First(name, aggregate.tensor, aggregate.reduce, part.weight_attr, rows, own, own)
    ptr = tensors.pop("ptr")  # stays beside edge_index, as long as that is the tensor it is now
    transposed = take_transposed(tensors)
    if edge_index == "EdgeIndex":
        from freshgo.pyg import make_edge_index

        num_nodes = tensors["n_id"].numel()
        tensors["edge_index"] = make_edge_index(tensors["edge_index"], (num_nodes, num_nodes), ptr, transposed)
    levels = take_levels(tensors)
    values: dict[str, Any] = dict(tensors)
    ends = {tensors["edge_index"].size(1): ptr.numel() - 1}
    if "num_sampled_edges" in values:  # its edges are those of hops
        for counts in ("num_sampled_nodes", "num_sampled_edges"):
            values[counts] = values[counts].tolist()
        ends = dict(zip(accumulate(values["num_sampled_edges"]), accumulate(values["num_sampled_nodes"]), strict=False))
    remember(tensors["edge_index"], Known(tensors["edge_index"], ptr, transposed, ends, levels, first))
    return cls(batch_size=num_seeds, num_nodes=tensors["n_id"].numel(), **values)


def take_own(tensors: dict[str, Any], aggregate: Aggregate) -> Tensor:
    """Take an aggregate out of the tensors of a node type. If own rows are in front, they take the place of the tensor
    that was aggregated; both are views of the rows as they were read."""
    rows: Tensor = tensors.pop(aggregate.name)
    if aggregate.own:
        tensors[aggregate.tensor] = rows[:, : aggregate.own]
    return rows[:, aggregate.own :]
