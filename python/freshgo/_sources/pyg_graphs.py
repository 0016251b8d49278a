"""Objects of PyG that hold graphs and are not one: several graphs, and lists of events."""

from __future__ import annotations

import sys
from typing import Any

from freshgo._sources.opening import Graph, Opening
from freshgo.errors import DTypeError


def is_many(data: object) -> bool:
    """Whether data are a list or tuple of graphs of PyG, or its ``TemporalData``. Two ``HeteroData`` may be the
    FeatureStore and the GraphStore of one graph."""
    pyg = sys.modules.get("torch_geometric.data")
    if pyg is None:
        return False
    if not isinstance(data, list | tuple):
        return isinstance(data, pyg.TemporalData)
    if isinstance(data, tuple) and len(data) == 2 and all(isinstance(of, pyg.HeteroData) for of in data):
        return False
    return bool(data) and all(isinstance(of, pyg.Data | pyg.HeteroData) for of in data)


def read_many(data: Any, opening: Opening) -> Graph:
    """Return the graph that is its own FeatureStore and GraphStore.

    Raises:
        DTypeError: there are several graphs, or none.
    """
    if isinstance(data, tuple) and len(data) == 2 and data[0] is data[1]:
        return Graph(data[0])
    if isinstance(data, list | tuple):
        raise DTypeError(
            f"data are a {type(data).__name__} of {len(data)} graphs of PyG, expected one graph: give one of them, or "
            "Batch.from_data_list(graphs), which is one"
        )
    raise DTypeError(
        "data are a TemporalData of PyG, a list of events and no graph: expected "
        "Data(edge_index=torch.stack([data.src, data.dst]), time=data.t, msg=data.msg)"
    )
