"""What a loader yields: a sampled subgraph with its rows."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from freshgo._args.entry import entry
from freshgo._args.whole import mapped
from freshgo._batch.blocks import Blocks, carry_edges, edges_of
from freshgo._batch.structure import Block

__all__ = ["Batch", "Block", "Blocks"]


@entry
class Batch(Blocks):
    """A batch if PyG is not installed: the same attributes, without PyG's methods.

    The attributes are ``n_id``, ``edge_index``, ``e_id``, ``input_id``, ``batch_size``, ``num_nodes``,
    ``num_sampled_nodes``, ``num_sampled_edges`` and every node-level and edge-level tensor of the graph. ``batch["x"]``
    is ``batch.x``; iterating gives ``(name, value)`` pairs.
    """

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the batch has no {name!r}, only {', '.join(self.__dict__)}")

    def __getitem__(self, name: str) -> Any:
        return self.__dict__[name]

    def __contains__(self, name: str) -> bool:
        return name in self.__dict__

    def keys(self) -> list[str]:
        """Return the names of the attributes."""
        return list(self.__dict__)

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return iter(self.__dict__.items())

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Batch:
        """Return a batch whose tensors are on ``device``."""
        moved = Batch(
            **{name: mapped(value, lambda t: t.to(device, non_blocking=non_blocking)) for name, value in self}
        )
        carry_edges(edges_of(self), moved)
        return moved

    def __repr__(self) -> str:
        parts = (f"{name}={list(value.shape) if isinstance(value, Tensor) else value}" for name, value in self)
        return f"Batch({', '.join(parts)})"
