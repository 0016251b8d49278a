"""How an inference whose layers add up rows divides its work, so that it fits into memory and moves little."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from freshgo._args.size import too_small
from freshgo._infer.linear import Linear
from freshgo.errors import BudgetError

FLOAT = 4
"""Bytes of a number in memory, and of a sum on disk."""

WORKING = 0.125
"""The part of the free memory that no slice takes. Arbitrary: with less there are fewer slices, and more steps."""

MOST_WORKING = 64 << 20
"""The most bytes of a slice. Arbitrary: a step of this size takes long enough."""

EDGE = 16
"""Bytes of an edge while it is added: its source, weight, and number where weights are not by target."""

MOST_ROWS = 1 << 17
"""Rows at a time, where there is room for more: what an interrupt waits for."""

READING = 6 << 20
"""Bytes that stay free for reading the input, at least. Arbitrary: a loader of short rows needs half of it."""

BATCHES = 1 << 20
"""Bytes that stay free for rows of the input beside what a loader needs at least, so that its batches are not of few
rows. Arbitrary."""


@dataclasses.dataclass(frozen=True)
class Stage:
    """A layer, and how it is computed."""

    parts: Linear
    after_columns: Callable[[Tensor, slice], Tensor] | None
    """If given, rows are made by columns: those of a slice as soon as it is added up, which is that of the next layer.
    No sums go to disk."""
    columns: int
    """That are added up."""
    own: int
    """That a node's own row has beside them."""
    slices: int
    """The slices of the columns; one is in memory at a time."""
    from_input: bool
    """Whether what is added up, of several slices the first, goes from the input into memory, and never to disk."""
    adding: int
    """Nodes whose sums are made at a time, in the passes over slices but for the last one."""
    finishing: int
    """Nodes whose rows are made at a time."""

    @property
    def by_columns(self) -> bool:
        return self.after_columns is not None

    def columns_of(self, total: Tensor, own: Tensor | None, columns: slice) -> Tensor:
        """Some columns of the rows that the layer gives, of sums and own rows of these columns."""
        assert self.after_columns is not None  # else rows are not made by columns
        return self.after_columns(self.parts.combine_columns(total, own, columns), columns)

    def __str__(self) -> str:
        sizes = f"{self.columns} {self.own} {self.adding} {self.finishing}"
        return f"{self.parts.first} {self.by_columns} {sizes} {self.slices} {self.from_input}"


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
    memory: int
    stored: int
    """Bytes of a number of the rows on disk."""
    weights: int
    """Bytes of weights that are in memory."""
    reading: int
    """Bytes without which the input cannot be read."""
    opening: int
    """Bytes without which the weights cannot be read."""


class Part(NamedTuple):
    """A layer."""

    parts: Linear
    width: int
    """Columns of the rows that it is given."""
    columns: Callable[[Tensor, slice], Tensor] | None
    """Some columns of what the next layer adds up, of these columns of the rows that this one gives."""
    from_input: bool
    """Whether what it adds up is made of the input, and nothing else is."""


def divide(layers: Sequence[Part], sizes: Sizes, device: str | torch.device | None) -> Division:
    """Choose the forms of the layers that together move the fewest bytes, and the fewest slices that fit.

    Raises:
        BudgetError: the memory is too small.
    """
    normed = any(layer.parts.norm is not None for layer in layers)
    fixed = offset_bytes(sizes.edges) * (sizes.nodes + 1) + (8 * sizes.nodes if normed else 0) + sizes.weights
    free = sizes.memory - fixed
    least = max(4 * FLOAT * sizes.nodes + READING, sizes.reading, sizes.opening)
    if free < least:
        raise BudgetError(too_small(sizes.memory, fixed + least), fixed + least)
    working = min(int(free * WORKING), MOST_WORKING)
    best: list[tuple[float, list[Stage]]] = [(0.0, [])]
    for layer in layers:
        found: dict[bool, tuple[float, list[Stage]]] = {}
        for moved, before in best:
            for stage in _forms(layer, before[-1] if before else None, sizes, free, working, device):
                total = moved + _bytes(stage, sizes)
                if stage.by_columns not in found or total < found[stage.by_columns][0]:
                    found[stage.by_columns] = total, [*before, stage]
        best = list(found.values())
    stages = min(best, key=lambda each: each[0])[1]
    widest = max(math.ceil(stage.columns / stage.slices) for stage in stages)
    edges = max(256, min(1 << 20, working // 4 // EDGE))
    return Division(stages, edges, _rows(working, 2 * FLOAT * widest), fixed, free)


def offset_bytes(edges: int) -> int:
    """Bytes of a number of an edge in memory."""
    return 4 if edges < 1 << 32 else 8


def _forms(
    layer: Part, before: Stage | None, sizes: Sizes, free: int, working: int, device: str | torch.device | None
) -> list[Stage]:
    """A layer in each form that the one before allows: what comes by columns is added up as it is."""
    made = [_stage(layer._replace(columns=None), sizes, free, working, device)]
    if before is not None and before.by_columns:
        return [stage for stage in made if stage.slices == before.slices]
    if layer.parts.matrix is not None:
        mapped = layer._replace(parts=dataclasses.replace(layer.parts, first=True))
        made.append(_stage(mapped._replace(columns=None), sizes, free, working, device))
        if layer.columns is not None and mapped.parts.takes_columns() and made[-1].slices > 1:
            made.append(_stage(mapped, sizes, free, working, device))
    return made


def _stage(layer: Part, sizes: Sizes, free: int, working: int, device: str | torch.device | None) -> Stage:
    parts, columns, own = layer.parts, layer.parts.width(layer.width), layer.parts.own_width()
    column = FLOAT * max(1, sizes.nodes)
    slices = math.ceil(columns / min(columns, max(1, (free - working) // column)))
    widest = math.ceil(columns / slices)
    beside = widest if layer.columns is not None else columns + own
    reading = max(working, READING, sizes.reading + BATCHES)
    from_input = layer.from_input and (slices == 1 or layer.columns is not None) and beside * column <= free - reading
    # Half of what is free to work with has sums: those that are made, and those of a piece of the edges. By columns
    # there are also the own rows and those that are made.
    adding = _rows(working // 2, (2 if layer.columns is None else 4) * FLOAT * widest)
    both = 2 * columns + own
    finishing = _rows(working // 2, FLOAT * (both + columns))
    one = torch.zeros(1, layer.width, dtype=torch.float32, device=device)  # a layer that takes none raises here
    mapped = parts.messages(one)
    parts.combine(mapped, parts.own(one) if own else mapped if parts.root is not None else None)
    return Stage(parts, layer.columns, columns, own, slices, from_input, adding, finishing)


def _rows(memory: int, row: int) -> int:
    """Return the number of rows that fit, at least as many as make the interpreter's time negligible."""
    return max(16, min(MOST_ROWS, memory // row))


def _bytes(stage: Stage, sizes: Sizes) -> float:
    """What a layer moves for each node, but for its input at first and its output."""
    kept = 0.0 if stage.from_input and not stage.by_columns else stage.columns + stage.own
    if stage.by_columns and stage.from_input:
        kept -= stage.columns / stage.slices
    stored = 2 * kept * sizes.stored
    if stage.slices > 1 and not stage.by_columns:
        again = 2 * FLOAT + (sizes.stored if stage.parts.needs_messages() else 0)
        stored += again * stage.columns * (stage.slices - 1) / stage.slices  # the last slice is in memory
    return stored + stage.slices * 4 * sizes.edges / max(1, sizes.nodes)
