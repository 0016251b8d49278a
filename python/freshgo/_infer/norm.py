"""GCN's coefficients."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch
from torch import Tensor

from freshgo._args.types import UNNAMED, EdgeType

NORMALISED = ("GCNConv", "GCN2Conv", "LGConv")
"""Convolutions of PyG that multiply each edge by the degrees of both its ends, unless ``normalize`` is off."""


@dataclasses.dataclass(frozen=True)
class Norm:
    """GCN's coefficients: what they depend on beside the edges."""

    edge_weight: Any
    """The weights of edges: what is read for them, or None."""
    loops: bool
    fill: float
    edge_type: EdgeType = UNNAMED

    def loops_of(self, edges: Tensor, weight: Tensor | None, targets: int) -> tuple[Tensor, Tensor, Tensor]:
        """Return the edges of a batch of one hop that are no self-loops, their weights, and the weight of each target's
        own loop: that of its last one in the graph, if it has any."""
        weight = torch.ones(edges.size(1), dtype=torch.float32, device=edges.device) if weight is None else weight
        weight = weight.view(-1).float()
        if not self.loops:
            return edges, weight, weight.new_zeros(targets)
        loop = edges[0] == edges[1]
        own = weight.new_full((targets,), self.fill)
        own[edges[1, loop]] = weight[loop]
        return edges[:, ~loop], weight[~loop], own

    def degrees(self, edges: Tensor, weight: Tensor | None, targets: int) -> Tensor:
        """Return the degree of each target: the weights of its edges and of its loop."""
        edges, weight, own = self.loops_of(edges, weight, targets)
        return own.index_add(0, edges[1], weight)

    def normalised(self, edges: Tensor, weight: Tensor | None, targets: int, degrees: Tensor) -> tuple[Tensor, Tensor]:
        """Return the edges of a batch, with a loop for each target, and their coefficients. ``degrees`` are those of
        the nodes of the batch in the whole graph."""
        edges, weight, own = self.loops_of(edges, weight, targets)
        scale = degrees.to(weight.device).pow(-0.5)
        scale.masked_fill_(scale == torch.inf, 0)
        if self.loops:
            loop = torch.arange(own.numel(), device=edges.device)
            edges = torch.cat([edges, loop.expand(2, -1)], 1)
            weight = torch.cat([weight, own])
        return edges, scale[edges[0]] * weight * scale[edges[1]]


def norm_of(conv: Any, edge_weight: Any, edge_type: EdgeType) -> Norm | None:
    """What a convolution normalises by, if it does."""
    names = [kind.__name__ for kind in type(conv).__mro__ if kind.__module__.startswith("torch_geometric.nn.conv.")]
    if not any(name in NORMALISED for name in names) or not getattr(conv, "normalize", False):
        return None
    improved = getattr(conv, "improved", False) and edge_weight is not None
    return Norm(edge_weight, bool(getattr(conv, "add_self_loops", False)), 2.0 if improved else 1.0, edge_type)
