"""What a hit keeps from the layers below, made up for when its node is computed again: ``History(catch_up=True)``.

A hit passes no gradient, so the lower layers learn from few of the rows that the loss depends on. The gradient of a
computed row then stands for those of the hits that its node has been since it was last computed: after k hits it counts
k + 1 times. Over time a node's gradients add up to what they do in plain training, as far as they change little in
between. Costs 2 bytes for each node and hidden layer.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Any

import torch
from torch import Tensor

from freshgo._batch.structure import Levels
from freshgo._batch.tables import places
from freshgo.errors import FormatError

_MOST = torch.iinfo(torch.int16).max


class CatchUp:
    """How often each node was a hit since its row of a hidden layer was last computed."""

    def __init__(self, num_nodes: Sequence[int]) -> None:
        self._num_nodes = num_nodes  # of each node type; their nodes are numbered one type after the other
        self._nodes = sum(num_nodes)
        self._hits: dict[int, Tensor] = {}  # of a hidden level: int16 for each node of the graph

    def numbers(self, n_id: Sequence[Tensor]) -> Tensor:
        """The numbers of a batch's nodes in the graph, those of one node type after those of another."""
        first = accumulate(self._num_nodes, initial=0)
        return torch.cat([ids.cpu() + before for ids, before in zip(n_id, first, strict=False)])

    def weigh(self, levels: Levels, numbers: Tensor, level: int, h: Tensor) -> Tensor:
        """Return ``h``, the computed rows of a level, so that gradients are multiplied on their way through it."""
        hits = self._hits.get(level)
        if hits is None or not h.requires_grad or not torch.is_grad_enabled():
            return h
        times = hits.index_select(0, _rows(levels, numbers, level, levels.computed))
        factor = (times[:, None] + 1.0).to(h.device)

        def weigh(gradient: Tensor) -> Tensor:
            return (gradient * factor).to(gradient.dtype)

        rows = h.view_as(h)  # what else is made of h keeps its gradient
        rows.register_hook(weigh)  # type: ignore[no-untyped-call]  # it has no hints
        return rows

    def count(self, levels: Levels, numbers: Tensor) -> None:
        """Take note of a batch after its update."""
        for level in range(1, levels.num_layers):
            hits = self._hits.setdefault(level, torch.zeros(self._nodes, dtype=torch.int16))
            hits[_rows(levels, numbers, level, levels.computed)] = 0
            again = _rows(levels, numbers, level, levels.hit)
            hits[again] = hits[again].clamp(max=_MOST - 1) + 1

    def save(self) -> list[Tensor]:
        """The counts of level 1, 2, ..."""
        return [self._hits[level].clone() for level in sorted(self._hits)]

    def restored(self, saved: Any) -> CatchUp:
        """Return another with what :meth:`save` returned.

        Raises:
            FormatError: it is damaged, or of another graph.
        """
        if not isinstance(saved, list) or not all(
            isinstance(hits, Tensor) and hits.dtype == torch.int16 and hits.shape == (self._nodes,) for hits in saved
        ):
            raise FormatError(f"history state: catch_up must be vectors of int16 for {self._nodes} nodes")
        other = CatchUp(self._num_nodes)
        other._hits = {level: hits.clone() for level, hits in enumerate(saved, start=1)}
        return other


def _rows(levels: Levels, numbers: Tensor, level: int, which: list[Tensor | None]) -> Tensor:
    """The nodes of some rows of a level's table, by their numbers in the graph."""
    positions = which[level]
    assert positions is not None  # as of every hidden level
    return numbers[places(levels, level, positions)]
