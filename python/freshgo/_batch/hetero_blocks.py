"""A batch of a heterogeneous graph, layer by layer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from freshgo._args.types import EdgeType
from freshgo._batch.structure import Block, HeteroBlock, Levels, carry, first_in, recall
from freshgo.errors import InvalidArgumentError


class HeteroBlocks:
    """Gives a batch of a heterogeneous graph its per-layer view; see :meth:`blocks`."""

    def blocks(self: Any) -> list[HeteroBlock]:
        """Return one bipartite :class:`HeteroBlock` per layer, in the order a model applies them.

        As :meth:`Batch.blocks <freshgo.batch.Blocks.blocks>`, for all types at once::

            h = batch.x_dict
            for conv, block in zip(model.convs, batch.blocks()):
                h = conv(block.pairs(h), block.edge_index_dict)  # a HeteroConv

        With a :class:`~freshgo.History` each layer begins with ``h = history(h, block)``.

        Raises:
            InvalidArgumentError: the batch does not say what is of which hop.
        """
        levels = levels_of(self)
        if levels is not None:
            return list(levels.blocks)
        try:
            nodes = {node_type: self[node_type].num_sampled_nodes for node_type in self.node_types}
            edges = {edge_type: self[edge_type].num_sampled_edges for edge_type in self.edge_types}
        except (AttributeError, KeyError):
            raise InvalidArgumentError(
                "blocks() needs num_sampled_nodes and num_sampled_edges, which batches of subgraph_type='directional' "
                "have: compute every layer on the whole batch, with batch.edge_index_dict"
            ) from None
        ptr = {edge_type: _pointers(self[edge_type], sum(nodes[edge_type[2]][:-1])) for edge_type in edges}
        blocks = []
        for hop in reversed(range(len(next(iter(edges.values()))))):
            num_src, num_dst = ({t: sum(counts[: hop + k]) for t, counts in nodes.items()} for k in (2, 1))
            relations = {}
            for edge_type, counts in edges.items():
                part, count, (source, _, target) = self[edge_type], sum(counts[: hop + 1]), edge_type
                known = recall(part.edge_index)
                e_id, edge_weight = (part[name] if name in part else None for name in ("e_id", "edge_weight"))  # noqa: SIM401
                relations[edge_type] = Block(
                    num_src=num_src[source],
                    num_dst=num_dst[target],
                    ptr=ptr[edge_type][: num_dst[target] + 1],
                    edge_index=part.edge_index[:, :count],
                    e_id=None if e_id is None else e_id[:count],
                    edge_weight=None if edge_weight is None else edge_weight[:count],
                    transposed=None if known is None else known.transposed,
                )
            blocks.append(HeteroBlock(num_src, num_dst, relations))
        return blocks


def _pointers(part: Any, targets: int) -> Tensor:
    """Where the edges of each target begin, and where they end."""
    known = recall(part.edge_index)
    if known is not None and known.ptr is not None:
        return known.ptr
    return torch.searchsorted(part.edge_index[1].contiguous(), torch.arange(targets + 1, device=part.edge_index.device))


def edges_of(batch: Any) -> dict[EdgeType, Tensor]:
    """Return the edges of every relation, beside each of which the levels of the batch are known."""
    return {key: batch[key].edge_index for key in batch.edge_types if "edge_index" in batch[key]}


def levels_of(batch: Any) -> Levels | None:
    """Return the levels of a batch that history has pruned."""
    edge_index = next(iter(edges_of(batch).values()), None)
    known = None if edge_index is None else recall(edge_index)
    return None if known is None else known.levels


def carry_edges(before: dict[EdgeType, Tensor], batch: Any) -> None:
    """Let a batch that was moved know the levels that it had, and what stands for its first layer."""
    carry(
        (before[key], after, first_in(before[key], batch[key], batch[key[2]], batch[key[0]]))
        for key, after in edges_of(batch).items()
        if key in before
    )
