"""How an inference whose layers add up rows divides its work, so that it fits into memory and moves little."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from freshgo._infer.linear import Linear
from freshgo.errors import BudgetError

FLOAT = 4
"""Bytes of a number in memory, and of a sum on disk."""

WORKING = 0.2
"""The part of the free memory that no slice takes. Arbitrary: with less there are fewer slices, and more steps."""

EDGE = 16
"""Bytes of an edge while it is added: its source, weight, and number where weights are not by target."""

MOST_ROWS = 1 << 17
"""Rows at a time, where there is room for more: what an interrupt waits for."""

READING = 6 << 20
"""Bytes that stay free for reading the input. Arbitrary: a loader of short rows needs half of it."""


@dataclasses.dataclass(frozen=True)
class Stage:
    """A layer, and how it is computed."""

    parts: Linear
    after: Callable[[Tensor], Tensor]
    columns: int
    """That are added up."""
    own: int
    """That a node's own row has beside them."""
    slices: int
    """Into which the columns are divided, one of which is in memory at a time."""
    held: bool
    """Whether what is added up goes from the input into memory, and never to disk."""
    columns_out: int
    adding: int
    """Nodes whose sums are made at a time, in the passes over slices."""
    finishing: int
    """Nodes whose rows are made at a time."""

    def __str__(self) -> str:
        sizes = f"{self.columns} {self.own} {self.columns_out} {self.adding} {self.finishing}"
        return f"{self.parts.first} {sizes} {self.slices} {self.held}"


@dataclasses.dataclass(frozen=True)
class Division:
    """The layers, and what is done at a time."""

    stages: list[Stage]
    edges: int
    """That are read at a time."""
    rows: int
    """That are read at a time where a slice goes into memory."""
    fixed: int
    """Bytes that are in memory all the time."""
    free: int
    """The others."""


@dataclasses.dataclass(frozen=True)
class Sizes:
    """What a division depends on beside the layers."""

    nodes: int
    edges: int
    columns: int
    memory: int
    stored: int
    """Bytes of a number of the rows on disk."""
    weights: int
    """Bytes of weights that are in memory."""


def divide(
    layers: Sequence[tuple[Linear, Callable[[Tensor], Tensor]]], sizes: Sizes, device: str | torch.device | None
) -> Division:
    """Choose for each layer the form that moves fewer bytes, and the fewest slices that fit.

    Raises:
        BudgetError: the memory is too small.
    """
    normed = any(parts.norm is not None for parts, _ in layers)
    fixed = 8 * (sizes.nodes + 1) + (8 * sizes.nodes if normed else 0) + sizes.weights
    free = sizes.memory - fixed
    least = 4 * FLOAT * sizes.nodes + READING
    if free < least:
        raise BudgetError(f"infer needs {fixed + least} bytes of memory, got {sizes.memory}", fixed + least)
    before, stages = sizes.columns, list[Stage]()
    for place, (parts, after) in enumerate(layers):
        forms = [parts] if parts.matrix is None else [parts, dataclasses.replace(parts, first=True)]
        made = [_stage(form, after, before, place == 0, sizes, free, device) for form in forms]
        stages.append(min(made, key=lambda stage: _bytes(stage, sizes, place == 0)))
        before = stages[-1].columns_out
    widest = max(math.ceil(stage.columns / stage.slices) for stage in stages)
    edges = max(256, min(1 << 20, int(free * WORKING) // 4 // EDGE))
    return Division(stages, edges, _rows(int(free * WORKING), 2 * FLOAT * widest), fixed, free)


def _stage(
    parts: Linear,
    after: Callable[[Tensor], Tensor],
    before: int,
    first: bool,
    sizes: Sizes,
    free: int,
    device: str | torch.device | None,
) -> Stage:
    columns, own = parts.width(before), parts.own_width()
    column, working = FLOAT * max(1, sizes.nodes), int(free * WORKING)
    slices = math.ceil(columns / min(columns, max(1, (free - working) // column)))
    held = first and slices == 1 and (columns + own) * column <= free - max(working, READING)
    # Half of what is free to work with has sums: those that are made, and those of a piece of the edges.
    adding = _rows(working // 2, 2 * FLOAT * math.ceil(columns / slices))
    both = 2 * columns + own
    finishing = _rows(working // 2, FLOAT * (both + columns)) if slices == 1 else _rows(free // 2, FLOAT * both)
    one = torch.zeros(1, before, device=device)
    mapped = parts.messages(one)
    beside = parts.own(one) if own else mapped if parts.root is not None else None
    columns_out = after(parts.combine(mapped, beside)).size(1)
    return Stage(parts, after, columns, own, slices, held, columns_out, adding, finishing)


def _rows(memory: int, row: int) -> int:
    """How many rows of so many bytes fit, but no fewer than keep the interpreter from being what takes the time."""
    return max(16, min(MOST_ROWS, memory // row))


def _bytes(stage: Stage, sizes: Sizes, first: bool) -> float:
    """What a layer moves for each node, but for its input at first and its output."""
    stored = 0 if first and stage.held else 2 * (stage.columns + stage.own) * sizes.stored
    if stage.slices > 1:
        stored += 2 * stage.columns * FLOAT + (stage.columns * sizes.stored if stage.parts.needs_messages() else 0)
    return stored + stage.slices * 4 * sizes.edges / max(1, sizes.nodes)
