"""A small random graph over which models are recorded and tried."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor

from freshgo._args.types import EdgeType
from freshgo._traced.levels import ENDS, ROWS, Level

_NODES = 23
"""Nodes of a type, at least. Each type has another number, so that rows of one are not taken for those of another."""


@dataclasses.dataclass(frozen=True)
class Given:
    """What a parameter of ``forward`` is given."""

    level: str
    """ROWS, EDGES or ENDS."""
    tensor: str | None = None
    """The tensor of the store; None for ``edge_index``."""
    by_type: bool = False
    """Whether it comes as a dict by type."""


@dataclasses.dataclass
class Sample:
    """A graph. Types are those of the store; a homogeneous one has one unnamed type."""

    nodes: dict[str, int]
    ends: dict[EdgeType, Tensor]
    rows: dict[tuple[str, str], Tensor]
    """By node type and name."""
    edges: dict[tuple[EdgeType, str], Tensor]
    """By edge type and name."""

    def count(self, level: Level) -> int:
        """How many rows there are of a level."""
        return self.ends[level.of].size(1) if isinstance(level.of, tuple) else self.nodes[level.of]

    def given(self, given: Given) -> dict[Any, Tensor]:
        """What a parameter is given, by type."""
        if given.level == ENDS:
            return dict(self.ends)
        of: Any = self.rows if given.level == ROWS else self.edges
        return {key: rows for (key, name), rows in of.items() if name == given.tensor}


def counts(node_types: Collection[str], avoid: Collection[int] = ()) -> dict[str, int]:
    """Choose a number of nodes for each type, none of them in ``avoid``."""
    free = (count for count in itertools.count(_NODES) if count not in avoid)
    return {of: next(free) for of in node_types}


def random_ends(
    nodes: Mapping[str, int], edge_types: Collection[EdgeType], generator: torch.Generator
) -> dict[EdgeType, Tensor]:
    """Draw edges of each type, by target. A relation within a type has loops."""
    ends = {}
    for place, key in enumerate(edge_types):
        source, target = nodes[key[0]], nodes[key[2]]
        count = 3 * target + 2 * place + 1
        both = torch.stack(
            [torch.randint(source, (count,), generator=generator), torch.randint(target, (count,), generator=generator)]
        )
        if key[0] == key[2]:
            both = torch.cat([both, torch.tensor([[1, 4], [1, 4]])], 1)
        ends[key] = both[:, both[1].argsort(stable=True)]
    return ends


def random_rows(shape: tuple[int, ...], dtype: torch.dtype, level: str, generator: torch.Generator) -> Tensor:
    """Draw rows of floats: those of edges are positive. Others are zeros."""
    if not dtype.is_floating_point:
        return torch.zeros(shape, dtype=dtype)
    drawn = torch.randn(shape, generator=generator, dtype=torch.float32)
    drawn = drawn.abs() + 0.1 if level != ROWS else drawn
    return drawn.to(torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype)
