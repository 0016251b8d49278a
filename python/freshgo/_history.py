"""What a pruned batch says of its levels, and what a loader asks of a :class:`~freshgo.History`.

Level 0 are the features, level ``l`` the output of layer ``l``. The table of a level is what the next layer reads: the
rows that this layer computes (its targets, in the order of its outputs), then the other sources (FreshGNN, section 4).
A row of a hidden level's table is either computed or a hit; layers compute their rows in the order of the table.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    from freshgo.batch import Block


@dataclasses.dataclass(eq=False, kw_only=True)
class Levels:
    """The level tables of a batch of ``num_layers`` layers. All tensors are int64 and lie where the batch lies.

    Lists over levels have an entry for each of 0..num_layers - 1; that of level 0 is None in ``computed``, ``hit``,
    ``slot`` and the probes, as features have no history.
    """

    index: int
    """Position of the batch among those handed over by training epochs."""
    num_layers: int
    degree: Tensor | None
    """``[nodes]``: in-edges of each node of the batch before pruning; None with types."""
    nodes: list[Tensor]
    """``nodes[l]``: the table of level ``l``, as rows of the batch."""
    computed: list[Tensor | None]
    """``computed[l]``: positions in the table of the rows that layer ``l`` computes, ascending, one for each output."""
    hit: list[Tensor | None]
    """``hit[l]``: positions in the table of the rows that history has."""
    slot: list[Tensor | None]
    """``slot[l]``: where each of those lies in the buffer."""
    layers: list[Block]
    """``layers[l - 1]``: the message passing of layer ``l``, sources and targets as positions in the table of level
    ``l - 1``, which is its ``level``; its ``edge`` are positions in the batch's list of edges, for tensors of edges."""
    loaded: int
    """Rows of features that the batch brings: those of seeds and of level 0."""
    edges: int
    """Edges of the batch."""
    plain_nodes: int
    """Rows that it would have brought unpruned."""
    plain_edges: int
    """Edges that it would have had."""
    loops: Tensor | None = None
    """``[nodes]``: how many of ``degree`` lead from the node to itself, which GCN replaces; None where none does."""
    owner: object = None
    """The same for all batches of a loader, and their copies."""
    probe: list[Tensor | None] | None = None
    """Only in batches that measure the estimation error, which have no hits: ``probe[l]`` are positions in the table of
    computed rows that history has, ..."""
    probe_slot: list[Tensor | None] | None = None
    """... where each of those lies in the buffer ..."""
    probe_age: list[Tensor | None] | None = None
    """... and its age in iterations."""

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Levels:
        """Return these levels with their tensors on ``device``."""

        def moved(value: Any) -> Any:
            if isinstance(value, Tensor):
                return value.to(device, non_blocking=non_blocking)
            if isinstance(value, list):
                return [moved(one) for one in value]
            if isinstance(value, dict):
                return {key: moved(one) for key, one in value.items()}
            if isinstance(value, tuple):  # a block's edges by source
                return type(value)(*map(moved, value))
            if dataclasses.is_dataclass(value) and not isinstance(value, type):  # a block
                values = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.name != "levels"}
                return dataclasses.replace(value, **{name: moved(one) for name, one in values.items()})
            return value

        return type(self)(**{f.name: moved(getattr(self, f.name)) for f in dataclasses.fields(self)})


@dataclasses.dataclass(frozen=True)
class Span:
    """A number of iterations, or of epochs; ``math.inf`` for ever."""

    count: float
    epochs: bool


@dataclasses.dataclass(frozen=True, kw_only=True)
class Settings:
    """A history's options as the loader that it is bound to takes them: ``history._settings``."""

    policy: str
    """"performance", "gradient" or "all": every computed row, for ever, in a slot of its own."""
    p_grad: float
    t_stale: Span
    start: Span
    memory: int | None
    """Bytes of the buffer; None lets the loader choose."""
    device: torch.device | None
    """Where the buffer is; None is the CPU, where the loader allocates it."""
    features: bool
    """Whether features lie at the other end of the buffer."""
    lag: int
    probe_every: int
    """Every so manyth iteration is not pruned but brings probes; 0 never."""
