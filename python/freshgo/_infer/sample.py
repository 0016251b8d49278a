"""A small random graph with tensors like those of a store."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from freshgo._infer.dtypes import of_edges
from freshgo._traced.levels import EDGES, ROWS
from freshgo._traced.sample import Sample, counts, random_ends, random_rows
from freshgo.errors import BudgetError
from freshgo.loader import Loader
from freshgo.store import Store

_READ = 64
"""Nodes of the store whose rows and edges give integers that occur."""


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
    nodes = counts(node_types, avoid)
    found = _Found(store, memory)
    rows, edges = {}, {}
    for of in node_types:
        for name, info in (store[of] if of else store).tensors.items():
            if info.level == "node" and name in names:
                made = found.like(of, name, info, nodes[of], generator)
                rows[of, name] = (made if floats is None else made.to(floats)).to(device)
    ends = {key: both.to(device) for key, both in random_ends(nodes, edge_types, generator).items()}
    for key in edge_types:
        for name, info in (store[key] if store.node_types else store).tensors.items():
            if info.level == "edge" and name in edge_names:
                made = found.like(key, name, info, ends[key].size(1), generator)
                edges[key, name] = of_edges(made).to(device)
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
            return random_rows(shape, info.dtype, EDGES if info.level == "edge" else ROWS, generator)
        part = self._read(key)
        there: Tensor | None = part[name].cpu() if part is not None and name in part else None
        if there is None or there.size(0) == 0:
            return torch.zeros(shape, dtype=info.dtype)
        return there[torch.randint(there.size(0), (count,), generator=generator)]

    def _loader(self, nodes: Any, memory: int) -> Loader:
        return Loader(
            self._store,
            [4],
            nodes,
            batch_size=_READ * 64,
            return_edge_id=False,
            memory=memory,
            cache=None,
            progress=False,
        )

    def _read(self, key: Any) -> Any:
        store = self._store
        if self._batch is None:
            nodes: Any = range(min(_READ, store.num_nodes))
            if store.node_types:
                nodes = {of: range(min(_READ, count)) for of, count in store.num_nodes_dict.items() if count}
            try:
                loader = self._loader(nodes, self._memory)
            except BudgetError as error:
                loader = self._loader(nodes, error.minimum)
            with loader:
                self._batch = next(iter(loader))
        batch = self._batch
        if not store.node_types:
            return batch
        return batch[key] if key in [*batch.node_types, *batch.edge_types] else None
