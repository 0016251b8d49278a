"""Generated graphs whose edges and rows are functions of their numbers, so that every batch is checked by values.

A shape is a class with counts of nodes and with relations: papers.py, mag.py. A graph of one type names its node type and its relation
``None``, since its batches are one store.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

PIECE = 4_000_000
"""Edges that are made at a time."""
PIECE_BYTES = 1 << 26
"""Rows that are made at a time."""
GROUP = 64
"""Nodes whose degrees repeat at the regular end: between none and some tens."""
CYCLE = 1 << 16
"""Nodes behind which the random columns of rows repeat, fewer where rows are wide."""
CYCLE_BYTES = 1 << 23
CHECKED = 1000
"""Rows of a batch, and edges of each relation, that are compared."""


class Edges:
    """Edges between a regular end, of moderate degrees, and a skewed end, whose hubs lie anywhere.

    The regular end of edge e is a formula of e that grows with e, unless edges are in no order.
    """

    def __init__(
        self, name: str, skewed: int, regular: int, count: int, in_order: bool = True, both_ways: bool = False
    ) -> None:
        self.name, self.skewed, self.regular = name, skewed, regular
        self.in_order, self.both_ways = in_order, both_ways
        weights = np.random.default_rng(0).gamma(6, size=GROUP)
        self.per_group = count * GROUP // regular
        self.ends = np.minimum(np.cumsum(weights) / weights.sum() * self.per_group, self.per_group).astype(np.int64)
        self.ends[-1] = self.per_group
        self.count = min(count, regular // GROUP * self.per_group)
        self.step = next(s for s in range(int(skewed * 0.618) | 1, 2 * skewed + 2) if np.gcd(s, skewed) == 1)

    @staticmethod
    def bits(number: np.ndarray) -> np.ndarray:
        mixed = (number.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
        mixed = (mixed ^ (mixed >> np.uint64(31))) * np.uint64(0xBF58476D1CE4E5B9)
        return mixed ^ (mixed >> np.uint64(29))

    def edge(self, number: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the skewed and the regular ends of edges."""
        random = self.bits(number)
        hot = ((random >> np.uint64(11)) * 2.0**-53) ** 3
        skewed = np.minimum((hot * self.skewed).astype(np.int64), self.skewed - 1) * self.step % self.skewed
        if not self.in_order:
            return skewed, (self.bits(random) % np.uint64(self.regular)).astype(np.int64)
        group, place = np.divmod(number, self.per_group)
        return skewed, group * GROUP + np.searchsorted(self.ends, place, side="right")

    def into(self, node: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return the edges of some regular ends, in order: skewed ends, and the place in ``node`` of each regular end."""
        group, place = np.divmod(node, GROUP)
        first = group * self.per_group + np.where(place, self.ends[place - 1], 0)
        degree = group * self.per_group + self.ends[place] - first
        degree[group >= self.regular // GROUP] = 0
        at = np.repeat(np.arange(len(node)), degree)
        number = np.arange(len(at)) - np.repeat(np.cumsum(degree) - degree, degree) + np.repeat(first, degree)
        return self.edge(number)[0], at

    def has(self, skewed: np.ndarray, regular: np.ndarray) -> np.ndarray:
        """Return whether an edge has both ends, for each pair."""
        found = np.zeros(len(regular), bool)
        end, at = self.into(regular)
        found[at[end == skewed[at]]] = True
        return found

    def file(self, folder: Path) -> Path:
        return folder / f"{self.name}.npy"

    def write(self, folder: Path) -> None:
        """Write a row of skewed and one of regular ends. The skewed ends once more make the last two rows the reverse."""
        rows = 2 + self.both_ways
        index = np.lib.format.open_memmap(self.file(folder), mode="w+", dtype=np.int32, shape=(rows, self.count))
        for lo in range(0, self.count, PIECE):
            hi = min(lo + PIECE, self.count)
            index[0, lo:hi], index[1, lo:hi] = self.edge(np.arange(lo, hi))
            index[2:, lo:hi] = index[0, lo:hi]
        index.flush()


@dataclass(frozen=True)
class Relation:
    """Edges from the skewed to the regular end, or reversed."""

    edges: Edges
    reverse: bool = False

    def edge(self, number: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return sources and targets of edges."""
        skewed, regular = self.edges.edge(number)
        return (regular, skewed) if self.reverse else (skewed, regular)

    def index(self, folder: Path) -> np.ndarray:
        """Return sources and targets, mapped."""
        index: np.ndarray = np.load(self.edges.file(folder), mmap_mode="r")
        return index[1:3] if self.reverse else index[:2]

    def check(self, batch: Any, source: torch.Tensor, target: torch.Tensor) -> None:
        """Compare some edges of a batch, whose ends have these nodes, with their numbers, or without numbers with lists."""
        if batch.edge_index.shape[1] == 0:
            return
        some = torch.linspace(0, batch.edge_index.shape[1] - 1, CHECKED).long()
        sources, targets = (
            nodes[of[some]].numpy() for nodes, of in zip((source, target), batch.edge_index, strict=True)
        )
        if "e_id" not in batch:
            assert self.edges.has(*((targets, sources) if self.reverse else (sources, targets))).all(), "edges differ"
            return
        for found, wanted in zip((sources, targets), self.edge(batch.e_id[some].numpy()), strict=True):
            assert np.array_equal(found, wanted), "edges differ"


class Shape:
    """Node types and the relations between them. One type, the owner, has rows of float16 and the input nodes."""

    fanouts: ClassVar[list[int]]
    input_whole: ClassVar[int]
    """Input nodes of an epoch of the whole graph."""
    columns_whole: ClassVar[int]
    options: ClassVar[dict[str, Any]] = {}
    """What loaders are given beside ``memory``."""
    edge_ids: ClassVar[bool] = True

    def __init__(
        self, name: str, columns: int, counts: dict[Any, int], owner: Any, relations: dict[Any, Relation]
    ) -> None:
        self.name, self.columns, self.counts, self.owner, self.relations = name, columns, counts, owner, relations
        self.nodes, self.row_bytes = counts[owner], 2 * columns

    @cached_property
    def random(self) -> np.ndarray:
        cycle = min(CYCLE, CYCLE_BYTES // self.row_bytes)
        return np.random.default_rng(1).random((cycle, self.columns)).astype(np.float16)

    def row(self, node: np.ndarray) -> np.ndarray:
        """Return rows. The first columns say whose they are, by numbers that float16 holds."""
        rows = self.random[node % len(self.random)]
        rows[:, 0], rows[:, 1], rows[:, 2] = node % 2048, node // 2048 % 2048, node // 2048**2
        return rows

    def files(self, folder: Path) -> list[Path]:
        """Return the arrays."""
        return [folder / "x.npy", *{of.edges.file(folder) for of in self.relations.values()}]

    def write(self, folder: Path) -> None:
        """Write the arrays, a piece at a time."""
        for edges in {of.edges for of in self.relations.values()}:
            edges.write(folder)
        self.write_rows(folder / "x.npy", 0, self.nodes)

    def write_rows(self, path: Path, first: int, end: int) -> None:
        x = np.lib.format.open_memmap(path, mode="w+", dtype=np.float16, shape=(end - first, self.columns))
        step = max(1, PIECE_BYTES // self.row_bytes)
        for lo in range(first, end, step):
            hi = min(lo + step, end)
            x[lo - first : hi - first] = self.row(np.arange(lo, hi))
        x.flush()

    def given(self, folder: Path) -> dict[Any, Any]:
        """Return the graph of the arrays, as a conversion takes it."""
        parts: dict[Any, dict[str, Any]] = {name: {"num_nodes": count} for name, count in self.counts.items()}
        parts[self.owner]["x"] = folder / "x.npy"
        for name, relation in self.relations.items():
            parts.setdefault(name, {})["edge_index"] = relation.index(folder)
        return parts[None] if self.owner is None else parts

    def input_nodes(self, count: int) -> Any:
        """Return distinct nodes in no order, as a loader takes them."""
        generator = torch.Generator().manual_seed(0)
        some = torch.randint(self.nodes, (3 * count,), generator=generator).unique()
        some = some[torch.randperm(some.numel(), generator=generator)][:count]
        return some if self.owner is None else (self.owner, some)

    @staticmethod
    def part(batch: Any, name: Any) -> Any:
        """Return what a batch, or a trace, has of a type."""
        return batch if name is None else batch[name]

    def check(self, batch: Any) -> None:
        """Compare some rows and some edges of a batch."""
        own = self.part(batch, self.owner)
        rows = torch.linspace(0, own.n_id.numel() - 1, CHECKED).long()
        assert np.array_equal(own.x[rows].numpy(), self.row(own.n_id[rows].numpy())), "rows differ"
        for name, relation in self.relations.items():
            ends = (None, None) if name is None else (name[0], name[2])
            relation.check(self.part(batch, name), *(self.part(batch, end).n_id for end in ends))

    def some(self, count: int = CHECKED) -> np.ndarray:
        """Return nodes from the first to the last, and of some groups all, with and without edges."""
        return np.unique(np.concatenate([np.linspace(0, self.nodes - 1, count).astype(np.int64), np.arange(GROUP)]))
