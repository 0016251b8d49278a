"""GCN's coefficients."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor


@dataclasses.dataclass(frozen=True)
class Norm:
    """GCN's coefficients: what they depend on beside the edges."""

    edge_weight: str | None
    loops: bool
    fill: float

    def loops_of(self, batch: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Return the edges of a batch of one hop that are no self-loops, their weights, and the weight of each target's
        own loop: that of its last one in the graph, if it has any."""
        edges, targets = batch.edge_index, batch.batch_size
        weight = batch[self.edge_weight] if self.edge_weight else torch.ones(edges.size(1), device=edges.device)
        weight = weight.view(-1).float()
        if not self.loops:
            return edges, weight, weight.new_zeros(targets)
        loop = edges[0] == edges[1]
        own = weight.new_full((targets,), self.fill)
        own[edges[1, loop]] = weight[loop]
        return edges[:, ~loop], weight[~loop], own

    def degrees(self, batch: Any) -> Tensor:
        """Return the degree of each target: the weights of its edges and of its loop."""
        edges, weight, own = self.loops_of(batch)
        return own.index_add(0, edges[1], weight)

    def normalised(self, batch: Any, degrees: Tensor) -> tuple[Tensor, Tensor]:
        """Return the edges of a batch, with a loop for each target, and their coefficients. ``degrees`` are those of
        all nodes of the graph."""
        edges, weight, own = self.loops_of(batch)
        scale = degrees[batch.n_id.cpu()].to(weight.device).pow(-0.5)
        scale.masked_fill_(scale == torch.inf, 0)
        if self.loops:
            targets = torch.arange(own.numel(), device=edges.device)
            edges = torch.cat([edges, targets.expand(2, -1)], 1)
            weight = torch.cat([weight, own])
        return edges, scale[edges[0]] * weight * scale[edges[1]]
