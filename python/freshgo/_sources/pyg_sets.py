"""Data sets of PyG with one graph, in memory or in a database (``OnDiskDataset``)."""

from __future__ import annotations

import sys
from typing import Any

from freshgo._sources.opening import Graph, Opening
from freshgo.errors import InvalidArgumentError


def is_pyg_set(data: object) -> bool:
    """Whether data are a data set of PyG."""
    pyg = sys.modules.get("torch_geometric.data")
    return pyg is not None and isinstance(data, pyg.Dataset)


def read_pyg_set(data: Any, opening: Opening) -> Graph:
    """Return the only graph of a data set."""
    name = type(data).__name__
    if not is_pyg_set(data):
        raise InvalidArgumentError(f"expected a data set of PyG, got {name}")
    if len(data) != 1:
        raise InvalidArgumentError(f"the data set {name} has {len(data)} graphs, expected one: give one of them")
    return Graph(data[0], f"the only graph of the PyG data set {name}")
