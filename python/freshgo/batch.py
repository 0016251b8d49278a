"""What a loader yields: a sampled subgraph with its rows."""

from __future__ import annotations

import torch

from freshgo._args.entry import entry
from freshgo._args.whole import mapped
from freshgo._batch.blocks import Attributes, Blocks, carry_edges, edges_of
from freshgo._batch.structure import Block

__all__ = ["Batch", "Block", "Blocks"]


@entry
class Batch(Attributes, Blocks):
    """A batch if PyG is not installed: the same attributes, without PyG's methods.

    The attributes are ``n_id``, ``edge_index``, ``e_id``, ``input_id``, ``batch_size``, ``num_nodes``,
    ``num_sampled_nodes``, ``num_sampled_edges`` and every node-level and edge-level tensor of the graph. ``batch["x"]``
    is ``batch.x``; iterating gives ``(name, value)`` pairs.
    """

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Batch:
        """Return a batch whose tensors are on ``device``."""
        moved = Batch(
            **{name: mapped(value, lambda t: t.to(device, non_blocking=non_blocking)) for name, value in self}
        )
        carry_edges(edges_of(self), moved)
        return moved
