"""Graphs with skewed sources: few nodes have many out-edges. Targets are uniform."""

from __future__ import annotations

import torch
from torch import Tensor


def ids(nodes: int, count: int, generator: torch.Generator, power: float = 3) -> Tensor:
    """Ids below ``nodes``, int64 ``[count]``: node ``nodes * u ** power`` for uniform ``u``."""
    drawn = nodes * torch.rand(count, generator=generator, dtype=torch.float64) ** power
    return drawn.long().clamp_(max=nodes - 1)


def edges(nodes: int, count: int, generator: torch.Generator, power: float = 3) -> Tensor:
    """Edges between ``nodes`` nodes, int64 ``[2, count]``."""
    source = ids(nodes, count, generator, power)
    return torch.stack([source, torch.randint(nodes, (count,), generator=generator)])
