"""PyG's remote backends: a FeatureStore and a GraphStore, read whole."""

from __future__ import annotations

import copy
import sys
from typing import Any

from freshgo._sources.opening import Graph, Opening
from freshgo.errors import InvalidArgumentError


def is_pyg_stores(data: object) -> bool:
    """Whether data are a tuple of a FeatureStore and a GraphStore of PyG."""
    pyg = sys.modules.get("torch_geometric.data")
    return (
        pyg is not None
        and isinstance(data, tuple | list)
        and len(data) == 2
        and isinstance(data[0], pyg.FeatureStore)
        and isinstance(data[1], pyg.GraphStore)
    )


def read_pyg_stores(data: Any, opening: Opening) -> Graph:
    """Return the graph of two stores: all tensors, and all edges as pairs of ends.

    Raises:
        InvalidArgumentError: there are no edges, or a tensor is missing.
    """
    import torch

    features, topology = data
    attrs = topology.get_all_edge_attrs()
    if not attrs:
        raise InvalidArgumentError("the GraphStore has no edges")
    typed: dict[Any, dict[str, Any]] = {}
    edges: dict[Any, dict[str, Any]] = {}
    coo = topology.coo()
    homogeneous = attrs[0].edge_type is None
    for attr in attrs:
        edge_type = attr.edge_type or ("", "", "")
        row, col = (coo[0], coo[1]) if homogeneous else (coo[0][edge_type], coo[1][edge_type])
        edges[edge_type] = {"edge_index": torch.stack([torch.as_tensor(row), torch.as_tensor(col)])}
        for end, size in zip((edge_type[0], edge_type[2]), attr.size or (None, None), strict=True):
            nodes = typed.setdefault(end, {})
            if size is not None:
                nodes["num_nodes"] = max(int(size), nodes.get("num_nodes", 0))
    for attr in features.get_all_tensor_attrs():
        whole = copy.copy(attr)
        whole.index = None
        tensor = features.get_tensor(whole)
        group = attr.group_name
        owner = edges[group] if isinstance(group, tuple) else typed.setdefault(group or "", {})
        owner[attr.attr_name] = tensor
    return Graph({**typed, **edges}, "a FeatureStore and a GraphStore of PyG")
