"""Sums over the in-neighbours of nodes, of some columns that are in memory for all nodes."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from freshgo._infer.columns import Columns
from freshgo._infer.linear import Linear
from freshgo._infer.lists import Lists


class Sums:
    """What a layer adds up, with its coefficients."""

    def __init__(self, lists: Lists, scales: Callable[[], Columns]) -> None:
        """``scales`` opens the two columns that GCN's coefficients are made of."""
        self._lists, self._scales = lists, scales
        self._loaded: tuple[Tensor, Tensor] | None = None

    def scaled(self, parts: Linear, rows: Tensor) -> Tensor:
        """Multiply some columns of all nodes by what GCN's coefficients have of the source."""
        return rows if parts.norm is None else rows.mul_(self._both()[0].unsqueeze(1))

    def summed(self, parts: Linear, rows: Tensor, first: int, end: int) -> Tensor:
        """What these columns of the in-neighbours of the nodes from ``first`` to before ``end`` add up to."""
        from freshgo import ops  # registers operators with torch

        out = torch.zeros(end - first, rows.size(1), dtype=torch.float32)
        weighted = parts.edge_weight is not None or (parts.norm is not None and parts.norm.edge_weight is not None)
        for piece in self._lists.pieces(first, end):
            out[piece.first - first :][: piece.ptr.numel() - 1] += ops.aggregate(
                rows, piece.sources, piece.ptr, piece.weight if weighted else None, "sum"
            )
        if parts.reduce == "mean":
            out /= self._lists.degrees(first, end).clamp_(min=1).unsqueeze(1)
        if parts.norm is not None:
            scale, loops = (of[first:end].unsqueeze(1) for of in self._both())
            out.addcmul_(loops, rows[first:end]).mul_(scale)
        return out

    def _both(self) -> tuple[Tensor, Tensor]:
        """By which each node's row is multiplied, and what its own loop weighs beside those in its list."""
        if self._loaded is None:
            columns = self._scales()
            both = columns.read(0, columns.rows)
            self._loaded = both[:, 0].contiguous(), both[:, 1].contiguous()
        return self._loaded
