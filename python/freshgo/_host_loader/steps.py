"""Steps of optimisers over tables that ranks share.

All ranks have the rows as they are before the step. For each row that any of them looked up, the gradients are divided
by the number of ranks and summed in the order of the ranks, and the rule is applied once. The rows then go to the table
by way of the loader, and into the batches of all ranks.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import torch
from torch import Tensor

from freshgo._host.table import StepPart
from freshgo._native.loader import Loader as NativeLoader
from freshgo._native.loader import RawBatch
from freshgo._native.table import put
from freshgo.errors import RankError


@dataclass
class Meeting:
    """A step over one table to which ranks come."""

    number: int
    """Of the batches."""
    place: int
    """Of the table."""
    parts: dict[int, StepPart] = field(default_factory=dict)
    over: bool = False
    step: int | None = None
    """The number of the step; None: no rank had a gradient."""
    error: Exception | None = None

    def hold(self, native: NativeLoader, batches: Mapping[int, RawBatch], world_size: int, first_rank: int) -> None:
        """Make the step, once all ranks have come that have a batch. ``batches`` are theirs."""
        try:
            self.step = self._apply(native, batches, world_size, first_rank)
        except Exception as error:  # which all of them raise
            self.error = error
        self.over = True

    def _apply(
        self, native: NativeLoader, batches: Mapping[int, RawBatch], world_size: int, first_rank: int
    ) -> int | None:
        parts = dict(sorted(self.parts.items()))
        for part in parts.values():
            if part.error is not None:
                raise part.error
        leading = next(iter(parts.values()))
        for local, part in parts.items():
            if (part.rule, part.options) != (leading.rule, leading.options):
                raise RankError(
                    f"the ranks do not make the same step over a table: {_shown(leading)} on rank {first_rank} and "
                    f"{_shown(part)} on rank {first_rank + local}; give the optimisers of all ranks the same options"
                )
        name, form = f"table/{self.place}", leading.form
        nodes = {local: batches[local].tensors[leading.ids] for local in parts}
        grads: dict[int, tuple[Tensor, Tensor]] = {}
        for local, part in parts.items():
            if part.grad is not None:
                own = nodes[local] if part.touched is None else nodes[local][torch.from_numpy(part.touched)]
                grads[local] = own, torch.from_numpy(part.grad).view(form.dtype).float() / world_size
        if not grads:
            return None
        rows: Tensor = torch.unique(torch.cat([own for own, _ in grads.values()]))  # they ascend
        sums = torch.zeros(rows.numel(), form.dim)
        for own, grad in grads.values():
            sums.index_add_(0, torch.searchsorted(rows, own), grad)  # a node once for each rank
        there = {local: _places(rows, own) for local, own in nodes.items()}
        # Words: PyTorch indexes rows of bytes byte by byte, which takes six times as long.
        rows_of = {local: batches[local].tensors[name].view(torch.int32) for local in parts}
        words = torch.empty(rows.numel(), rows_of[next(iter(parts))].size(1), dtype=torch.int32)
        for local, (at, found) in there.items():
            words.index_copy_(0, found, rows_of[local].index_select(0, at))
        records = words.view(torch.uint8)
        form.update(records, sums, lambda *of: leading.rule(*of, leading.options, leading.step))
        put(native, self.place, rows, records)
        for local, (at, found) in there.items():
            rows_of[local].index_copy_(0, at, words.index_select(0, found))
        return leading.step


def _places(rows: Tensor, own: Tensor) -> tuple[Tensor, Tensor]:
    """Return where the nodes of a batch are among the rows: their places in the batch, and among the rows."""
    at = torch.searchsorted(rows, own).clamp_(max=rows.numel() - 1)
    here = (rows[at] == own).nonzero().squeeze(1)
    return here, at[here]


def _shown(part: StepPart) -> str:
    options = ", ".join(f"{name}={value!r}" for name, value in part.options.items())
    return f"{part.rule.__qualname__.split('.')[0]}({options})"
