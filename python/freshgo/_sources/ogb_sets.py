"""Data sets that the package ``ogb`` has opened, with their splits: its own form and PyG's."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from freshgo._sources.mag240m import read_mag240m
from freshgo._sources.ogb_names import tensor_name
from freshgo._sources.opening import Graph, Opening, links_attached
from freshgo.errors import InvalidArgumentError


def is_ogb_set(data: object) -> bool:
    """Whether data are a data set of ``ogb`` for nodes or links, or its MAG240M."""
    if not type(data).__module__.startswith("ogb."):
        return any(base.__module__.startswith("ogb.") for base in type(data).__mro__) and _has_splits(data)
    return _has_splits(data)


def read_ogb_set(data: Any, opening: Opening) -> Graph:
    """Return the graph of a data set with its labels and splits.

    Those of links become arrays of the store: ``store.links("valid")``.
    """
    name = type(data).__name__
    if name == "MAG240MDataset":
        return read_mag240m(Path(data.dir), opening, meta=data.__meta__, splits=data.get_idx_split())
    if len(data) != 1:
        raise InvalidArgumentError(f"the OGB data set {name} has {len(data)} graphs, expected one")
    given = data[0]
    graph, labels = given if isinstance(given, tuple) else (given, None)
    if not isinstance(graph, Mapping):  # PyG's Data
        graph = graph.to_dict()
    nodes = hasattr(data, "get_idx_split")
    splits = data.get_idx_split() if nodes else {}
    typed = _of_types(graph, labels, splits) if getattr(data, "is_hetero", False) else _plain(graph, labels, splits)
    types = [key for key in typed if isinstance(key, str)]
    links = {} if nodes else links_attached(data.get_edge_split(), types)
    kept = ", ".join(splits if nodes else dict.fromkeys(name.split("/")[1] for name in links))
    return Graph(typed, f"the OGB data set {getattr(data, 'name', name)} with the splits {kept}", links)


def _has_splits(data: object) -> bool:
    return hasattr(data, "get_idx_split") or hasattr(data, "get_edge_split")


def _plain(graph: Mapping[str, Any], labels: Any, splits: Mapping[str, Any]) -> dict[Any, Any]:
    count = int(graph["num_nodes"])
    nodes: dict[str, Any] = {"num_nodes": count, "splits": dict(splits)}
    edges: dict[str, Any] = {"edge_index": graph["edge_index"]}
    for name, value in graph.items():
        if name in ("edge_index", "num_nodes") or value is None:
            continue
        (edges if name.startswith("edge_") else nodes)[tensor_name(name)] = value
    if labels is not None:
        nodes["y"] = labels
    return {"": nodes, ("", "", ""): edges}


def _of_types(graph: Mapping[str, Any], labels: Any, splits: Mapping[str, Any]) -> dict[Any, Any]:
    """Sort dictionaries by type, such as ``node_feat_dict`` or PyG's ``x_dict``, into types."""
    nodes: dict[str, dict[str, Any]] = {
        node_type: {
            "num_nodes": int(count),
            "splits": {split: of[node_type] for split, of in splits.items() if node_type in of},
        }
        for node_type, count in graph["num_nodes_dict"].items()
    }
    edges: dict[Any, dict[str, Any]] = {of: {"edge_index": ends} for of, ends in graph["edge_index_dict"].items()}
    for name, by_type in graph.items():
        if name in ("num_nodes_dict", "edge_index_dict") or not isinstance(by_type, Mapping):
            continue
        for of, value in by_type.items():
            (edges if isinstance(of, tuple) else nodes)[of][tensor_name(name.removesuffix("_dict"))] = value
    for node_type, value in (labels or {}).items():
        nodes[node_type]["y"] = value
    return {**nodes, **edges}
