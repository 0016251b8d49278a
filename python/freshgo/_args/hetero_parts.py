"""Sorts a graph into its parts: a heterogeneous one (PyG HeteroData, or a mapping from types to their arrays) here."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from freshgo._args import checks
from freshgo._args.parts import (
    TYPE_SEPARATOR,
    EdgeParts,
    GraphParts,
    NodeParts,
    arrays_of,
    count_nodes,
    edge_index_of,
    homogeneous_parts,
    is_mask,
    is_typed,
    read_directory,
    splits_of,
)
from freshgo._args.types import EdgeType
from freshgo.errors import DTypeError, InvalidArgumentError

_GLOBAL = "_global_store"  # what PyG calls attributes of the graph as a whole in HeteroData.to_dict()


def graph_parts(data: Any) -> GraphParts:
    """Sort whatever a user calls a graph into its parts."""
    return hetero_parts(data) if is_typed(data) else homogeneous_parts(data)


def hetero_parts(data: Any) -> GraphParts:
    """Sort a heterogeneous graph into its types, and what is of each type into tensors and splits."""
    items = _items(data)
    if items.pop(_GLOBAL, None):
        warnings.warn(
            "freshgo ignores what belongs to no node type or edge type", UserWarning, stacklevel=checks.caller()
        )
    parts = GraphParts({}, {})
    for key, value in items.items():
        if isinstance(key, str):
            parts.nodes[_name(key)] = _node_parts(key, value)
        elif not (isinstance(key, tuple) and len(key) == 3 and all(isinstance(part, str) for part in key)):
            raise DTypeError(
                "the keys of a heterogeneous graph must be node types such as 'paper' or edge types such as "
                f"('paper', 'cites', 'paper'), got {key!r}"
            )
        else:
            parts.edges[(_name(key[0]), _name(key[1]), _name(key[2]))] = _edge_parts(key, value)
    for edge_type in parts.edges:
        for end in (edge_type[0], edge_type[2]):
            if end not in parts.nodes:
                known = ", ".join(map(repr, parts.nodes)) or "none at all"
                raise InvalidArgumentError(
                    f"the edge type {edge_type} has the unknown node type {end!r}, the node types are {known}; "
                    f"one without tensors is given as {{{end!r}: {{}}}}"
                )
    if not parts.edges:
        raise InvalidArgumentError("the graph has no edge types")
    return parts


def _items(data: Any) -> dict[Any, Any]:
    if isinstance(data, Mapping):
        return dict(data)
    if isinstance(data, str | os.PathLike):
        return _read_types(Path(data))
    to_dict = getattr(data, "to_dict", None)
    if not callable(to_dict):
        raise DTypeError(
            f"expected a PyG HeteroData or a mapping from types to their arrays, got {type(data).__name__}"
        )
    return dict(to_dict())


def _read_types(directory: Path) -> dict[Any, Any]:
    """Return the ``.npy`` files of the directories of types; one with the separator in its name is of edges."""
    items: dict[Any, Any] = {}
    for path in sorted(directory.iterdir()):
        if not path.is_dir() or path.name.startswith("."):
            continue
        names = tuple(path.name.split(TYPE_SEPARATOR))
        if len(names) not in (1, 3):
            raise InvalidArgumentError(
                f"{path} must be named as a node type or as source{TYPE_SEPARATOR}relation{TYPE_SEPARATOR}target"
            )
        items[names if len(names) == 3 else path.name] = read_directory(path)
    return items


def _name(name: str) -> str:
    if not name or not name.isprintable():
        raise InvalidArgumentError(f"the names of types must be printable characters, got {name!r}")
    return name


def _node_parts(node_type: str, value: object) -> NodeParts:
    if not isinstance(value, Mapping):
        raise DTypeError(f"node type {node_type!r} must be a mapping from names to tensors, got {type(value).__name__}")
    items, label = dict(value), f"{node_type}."
    given, splits = items.pop("num_nodes", None), items.pop("splits", None)
    arrays = arrays_of(items, label)
    parts = NodeParts(count_nodes(given, arrays, label), arrays, splits_of(splits, label))
    if parts.num_nodes is None and arrays:
        parts.num_nodes = int(next(iter(arrays.values())).shape[0])
    for name, array in arrays.items():
        if array.shape[0] != parts.num_nodes:
            raise InvalidArgumentError(
                f"{label}{name} has shape {list(array.shape)}, but there are {parts.num_nodes} nodes of this type: "
                "expected one row per node"
            )
        if is_mask(name, array):
            split = name.removesuffix("_mask")
            if split in parts.splits:
                raise InvalidArgumentError(f"split {label}{split} is given twice: as {name!r} and in 'splits'")
            parts.splits[split] = array
    return parts


def _edge_parts(edge_type: EdgeType, value: object) -> EdgeParts:
    label = f"({', '.join(edge_type)})."
    items = dict(value) if isinstance(value, Mapping) else {"edge_index": value}
    if items.get("edge_index") is None:
        hint = "; adj_t is not read, give edge_index" if "adj_t" in items else ""
        raise InvalidArgumentError(f"the edge type {edge_type} has no 'edge_index'{hint}")
    parts = EdgeParts(edge_index_of(items.pop("edge_index"), label), arrays_of(items, label))
    num_edges = parts.edge_index.shape[1]
    for name, array in parts.tensors.items():
        if array.shape[0] != num_edges:
            raise InvalidArgumentError(
                f"{label}{name} has shape {list(array.shape)}, but there are {num_edges} edges of this type: "
                "expected one row per edge"
            )
    return parts
