"""A small random graph with tensors like those of a store, over which models are recorded and tried."""

from __future__ import annotations

import dataclasses
import itertools
from typing import Any

import torch
from torch import Tensor

from freshgo._args.types import EdgeType
from freshgo._infer.levels import ENDS, ROWS, Level
from freshgo.errors import BudgetError
from freshgo.loader import Loader
from freshgo.store import Store

_NODES = 23
"""Nodes of a type, at least. Each type has another number, so that rows of one are not taken for those of another."""

_READ = 64
"""Nodes of the store whose rows and edges give integers that occur."""


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


def sample_of(
    store: Store,
    names: set[str],
    edge_names: set[str],
    memory: int,
    device: Any,
    *,
    avoid: set[int],
    floats: torch.dtype | None = None,
) -> Sample:
    """A sample with the tensors of these names, in which no type has one of the numbers of nodes ``avoid``. With
    ``floats`` the rows of nodes are converted to this dtype. ``memory`` is for reading some of the store."""
    generator = torch.Generator().manual_seed(0)
    node_types = store.node_types or [""]
    edge_types: list[Any] = store.edge_types if store.node_types else [("", "", "")]
    free = (count for count in itertools.count(_NODES) if count not in avoid)
    nodes = {of: next(free) for of in node_types}
    found = _Found(store, memory)
    rows, edges, ends = {}, {}, {}
    for of in node_types:
        for name, info in (store[of] if of else store).tensors.items():
            if info.level == "node" and name in names:
                made = found.like(of, name, info, nodes[of], generator)
                rows[of, name] = (made if floats is None else made.to(floats)).to(device)
    for place, key in enumerate(edge_types):
        source, target = nodes[key[0]], nodes[key[2]]
        count = 3 * target + 2 * place + 1
        both = torch.stack(
            [torch.randint(source, (count,), generator=generator), torch.randint(target, (count,), generator=generator)]
        )
        if key[0] == key[2]:
            both = torch.cat([both, torch.tensor([[1, 4], [1, 4]])], 1)
        ends[key] = both[:, both[1].argsort(stable=True)].to(device)
        for name, info in (store[key] if store.node_types else store).tensors.items():
            if info.level == "edge" and name in edge_names:
                edges[key, name] = found.like(key, name, info, ends[key].size(1), generator).to(device)
    return Sample(nodes, ends, rows, edges)


class _Found:
    """Rows of a store, read once they are asked for."""

    def __init__(self, store: Store, memory: int) -> None:
        self._store, self._memory = store, memory
        self._batch: Any = None

    def like(self, key: Any, name: str, info: Any, count: int, generator: torch.Generator) -> Tensor:
        """Rows of the shape and dtype of a tensor: floats at random, others out of the store."""
        shape = (count, *info.shape[1:])
        if info.dtype.is_floating_point:
            drawn = torch.randn(shape, generator=generator)
            drawn = drawn.abs() + 0.1 if info.level == "edge" else drawn
            return drawn.to(torch.float32 if info.dtype in (torch.float16, torch.bfloat16) else info.dtype)
        part = self._read(key)
        there: Tensor | None = part[name].cpu() if part is not None and name in part else None
        if there is None or there.size(0) == 0:
            return torch.zeros(shape, dtype=info.dtype)
        return there[torch.randint(there.size(0), (count,), generator=generator)]

    def _read(self, key: Any) -> Any:
        store = self._store
        if self._batch is None:
            nodes: Any = range(min(_READ, store.num_nodes))
            if store.node_types:
                nodes = {of: range(min(_READ, count)) for of, count in store.num_nodes_dict.items() if count}
            try:
                loader = Loader(store, [4], nodes, batch_size=_READ * 64, memory=self._memory, cache=None)
            except BudgetError as error:
                loader = Loader(store, [4], nodes, batch_size=_READ * 64, memory=error.minimum, cache=None)
            with loader:
                self._batch = next(iter(loader))
        batch = self._batch
        if not store.node_types:
            return batch
        return batch[key] if key in [*batch.node_types, *batch.edge_types] else None
