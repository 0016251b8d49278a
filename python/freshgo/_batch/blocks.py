"""A batch of a homogeneous graph, layer by layer."""

from __future__ import annotations

import torch
from torch import Tensor

from freshgo._batch.structure import Block, recall
from freshgo.errors import InvalidArgumentError


class Blocks:
    """Gives a batch its per-layer view; see :meth:`blocks`."""

    edge_index: Tensor
    num_sampled_nodes: list[int]
    num_sampled_edges: list[int]

    def blocks(self) -> list[Block]:
        """Return one bipartite :class:`Block` per layer, in the order a model applies them.

        The first block leads from all sampled nodes to those that later layers still need, the
        last one ends at the seeds. Computing each layer only on its block gives the seeds the
        same result as computing every layer on the whole batch, for less work::

            h = batch.x
            for conv, block in zip(model.convs, batch.blocks()):
                h = conv((h, h[: block.num_dst]), block.edge_index)

        With a :class:`~freshgo.History` each layer begins with ``h = history(h, block)``.

        Raises:
            InvalidArgumentError: the batch is of another ``subgraph_type`` than ``"directional"``, whose edges are not
                those of hops. Every layer is then computed on the whole batch.
        """
        levels = getattr(recall(self.edge_index), "levels", None)
        if levels is not None:
            return list(levels.layers)
        if not hasattr(self, "num_sampled_edges"):
            raise InvalidArgumentError(
                "blocks() needs num_sampled_nodes and num_sampled_edges, which batches of subgraph_type='directional' "
                "have: compute every layer on the whole batch, with batch.edge_index"
            )
        targets = sum(self.num_sampled_nodes[:-1])
        known = recall(self.edge_index)
        if known is not None and known.ptr is not None:
            ptr = known.ptr
        else:  # Targets do not decrease, so a binary search finds where each one's edges begin.
            ptr = torch.searchsorted(
                self.edge_index[1].contiguous(),
                torch.arange(targets + 1, device=self.edge_index.device),
            )
        e_id, edge_weight = (getattr(self, name, None) for name in ("e_id", "edge_weight"))
        blocks = []
        for hop in reversed(range(len(self.num_sampled_edges))):
            num_dst = sum(self.num_sampled_nodes[: hop + 1])
            num_edges = sum(self.num_sampled_edges[: hop + 1])
            blocks.append(
                Block(
                    num_src=num_dst + self.num_sampled_nodes[hop + 1],
                    num_dst=num_dst,
                    ptr=ptr[: num_dst + 1],
                    edge_index=self.edge_index[:, :num_edges],
                    e_id=None if e_id is None else e_id[:num_edges],
                    edge_weight=None if edge_weight is None else edge_weight[:num_edges],
                    transposed=None if known is None else known.transposed,
                )
            )
        return blocks
