"""The last step to a batch: ``Data`` of a homogeneous graph, ``HeteroData`` of a heterogeneous one."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from freshgo._args.types import Types
from freshgo._batch.hetero_blocks import levels_of as hetero_levels_of
from freshgo._batch.structure import Levels, recall
from freshgo._loader import arrange as homogeneous
from freshgo._loader import hetero_arrange as heterogeneous
from freshgo._loader.request import Request
from freshgo._native.loader import RawBatch


def batch_class(types: Types) -> type[Any]:
    """Return what batches are made of."""
    return homogeneous.batch_class() if types.homogeneous else heterogeneous.typed_batch_class()


def arrange(cls: type[Any], request: Request, raw: RawBatch) -> Any:
    """Arrange the tensors of a native batch as PyG does."""
    if not request.types.homogeneous:
        return heterogeneous.make_typed_batch(
            cls, request.drawn, request.inputs, raw.tensors, request.asked.edge_index, request.first
        )
    if request.inputs is not None and "" in request.inputs.masked:  # of a mask PyG gives the nodes themselves
        raw.tensors["input_id"] = raw.tensors["n_id"][: raw.num_seeds].clone()
    return homogeneous.make_batch(cls, raw.num_seeds, raw.tensors, request.asked.edge_index, request.first.get(""))


def levels_of(types: Types, batch: Any) -> Levels | None:
    """Return the levels of a batch that was pruned."""
    if not types.homogeneous:
        return hetero_levels_of(batch)
    known = recall(batch.edge_index)
    return None if known is None else known.levels


def node_ids(types: Types, batch: Any) -> list[Tensor]:
    """Return the nodes of a batch, of each node type."""
    return [batch.n_id if types.homogeneous else batch[node_type].n_id for node_type in types.node_types]


def trace_of(types: Types, tensors: dict[str, Tensor]) -> Tensor | dict[str, Tensor]:
    """Return the nodes of a batch of a trace, by node type where there are several."""
    nodes = {node_type: tensors[types.node_name(i, "n_id")] for i, node_type in enumerate(types.num_nodes)}
    return nodes[""] if types.homogeneous else nodes
