"""Sorts what a user hands over (PyG's objects, mappings of arrays or .npy paths, a directory) into a graph's parts.

Parts are those of types. A homogeneous graph is one mapping of its tensors, which are sorted into those of its unnamed
node type and of its unnamed edge type first.
"""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch

from freshgo._args import labelled
from freshgo._args.arrays import Array, NpyFile, is_integer
from freshgo._args.frames import Frame, Frames, is_frame, take_apart
from freshgo._args.hints import did_you_mean, listed
from freshgo._args.levels import OF_NODES, Level, Levels, is_mask
from freshgo._args.matrices import sizes_of, with_edge_index
from freshgo._args.named import as_array, check_name, column_of, named_splits, sorted_values, transposed
from freshgo._args.npy_files import is_of_types, read_directory, read_types
from freshgo._args.types import UNNAMED, EdgeType, label_of
from freshgo._args.whole import Attributes
from freshgo.errors import DTypeError, InvalidArgumentError

_GLOBAL = "_global_store"  # what PyG calls attributes of the graph as a whole in HeteroData.to_dict()
_WHOLE, _LINKS = object(), object()  # what a homogeneous graph has beside nodes and edges, on its way to its parts

_EXPECTED = (
    "a PyG Data, or a mapping with 'edge_index' such as {'edge_index': edges, 'x': x, 'y': y, 'train_mask': mask}"
)


@dataclasses.dataclass
class NodeParts:
    """The nodes of one type. ``num_nodes`` is None when only the edges can tell."""

    num_nodes: int | None
    tensors: dict[str, Array]
    splits: dict[str, Array]
    frames: dict[str, Frame] = dataclasses.field(default_factory=dict)
    """By the name of a TensorFrame, whose columns are in ``tensors``."""
    whole: dict[str, Any] = dataclasses.field(default_factory=dict)
    """What belongs to the type as a whole; of a homogeneous graph, to the graph."""


@dataclasses.dataclass
class EdgeParts:
    """The edges of one type."""

    edge_index: Array
    tensors: dict[str, Array]
    whole: dict[str, Any] = dataclasses.field(default_factory=dict)
    numbered: bool = True
    """Whether the numbers of edges are stored where they are not the positions."""
    links: dict[str, Array] = dataclasses.field(default_factory=dict)
    """Labelled links, which are no edges: see :mod:`freshgo._args.labelled`."""


@dataclasses.dataclass
class GraphParts:
    """A graph as the native library takes it, and what Python keeps beside it."""

    nodes: dict[str, NodeParts]
    edges: dict[EdgeType, EdgeParts]
    whole: dict[str, Any] = dataclasses.field(default_factory=dict)
    """Attributes of a heterogeneous graph as a whole."""

    @property
    def frames(self) -> Frames:
        """The TensorFrames of nodes."""
        return {node_type: nodes.frames for node_type, nodes in self.nodes.items() if nodes.frames}

    @property
    def attributes(self) -> Attributes:
        """What belongs to the graph or to a type as a whole, by owner."""
        owners: Attributes = {None: self.whole}
        owners.update({key: nodes.whole for key, nodes in self.nodes.items()})
        owners.update({key: edges.whole for key, edges in self.edges.items()})
        return {owner: values for owner, values in owners.items() if values}

    @property
    def names(self) -> set[str]:
        """The names of everything that a level can be given for."""
        nodes = [{*of.tensors, *of.whole} for of in self.nodes.values()]
        edges = [{*of.tensors, *of.whole} for of in self.edges.values()]
        return set(self.whole).union(*nodes, *edges)

    @property
    def links(self) -> dict[EdgeType, dict[str, Array]]:
        """The labelled links by edge type."""
        return {edge_type: edges.links for edge_type, edges in self.edges.items() if edges.links}


@dataclasses.dataclass(frozen=True)
class Levelled:
    """A graph, and what its tensors belong to."""

    data: object
    levels: Levels


def graph_parts(data: object, levels: Levels | None = None) -> GraphParts:
    """Sort whatever a user calls a graph into its types, and what is of each type into tensors and splits."""
    levels = levels or Levels()
    if isinstance(data, Levelled):
        levels = data.levels.or_else(levels)
        data = data.data
    given = _types_of(data) if _has_types(data) else _types_of_homogeneous(data, levels)
    parts, sizes = GraphParts({}, {}), dict[str, int]()
    whole = given.pop(_GLOBAL, None)
    for key, value in given.items():
        if isinstance(key, str):
            parts.nodes[key] = node_parts(key, value, levels)
        else:
            parts.edges[key] = edge_parts(key, value, levels)
            for end, size in zip(key[::2], sizes_of(value), strict=True):
                sizes[end] = max(sizes.get(end, 0), size)
    for node_type, nodes in parts.nodes.items():
        if nodes.num_nodes is None:
            nodes.num_nodes = sizes.get(node_type) or None
    if whole:
        arrays, others = sorted_values(whole, "")
        parts.whole = {**others, **{name: _kept(whole[name], array) for name, array in arrays.items()}}
    levels.check_names(parts.names)
    for edge_type in parts.edges:
        for end in (edge_type[0], edge_type[2]):
            if end not in parts.nodes:
                bare = f"data[{end!r}].num_nodes = ..." if hasattr(data, "node_types") else f"{{{end!r}: {{}}}}"
                raise InvalidArgumentError(
                    f"the edge type {edge_type} has the unknown node type {end!r}, the node types are "
                    f"{listed(parts.nodes)}; give one without tensors as {bare}{did_you_mean(end, parts.nodes)}"
                )
    if not parts.edges:
        raise InvalidArgumentError(
            "the graph has no edge types; a graph without edges has one with an empty 'edge_index', of shape [2, 0]"
        )
    return parts


def _has_types(data: object) -> bool:
    """Whether ``data`` has names of types: as PyG's HeteroData, edge types for keys, or a directory for each type."""
    if isinstance(data, Mapping):
        return any(isinstance(key, tuple) for key in data)
    if isinstance(data, str | os.PathLike):
        return is_of_types(Path(data))
    return hasattr(data, "node_types") and hasattr(data, "edge_types")


def _types_of(data: object) -> dict[Any, Any]:
    """Return what is given for each type of a heterogeneous graph."""
    items = _items(data, read_types, "a PyG HeteroData or a mapping from types to their arrays")
    if items.keys() == {UNNAMED[0], UNNAMED}:
        return items  # a homogeneous graph that is sorted already
    for key in items.keys() - {_GLOBAL}:
        if isinstance(key, tuple) and len(key) == 3 and all(isinstance(part, str) for part in key):
            names: tuple[str, ...] = key
        elif isinstance(key, str):
            names = (key,)
        else:
            raise DTypeError(
                "the keys of a heterogeneous graph must be node types such as 'paper' or edge types such as "
                f"('paper', 'cites', 'paper'), got {key!r}"
            )
        for name in names:
            if not name or not name.isprintable():
                raise InvalidArgumentError(f"the names of types must be printable characters, got {name!r}")
    return items


def _types_of_homogeneous(data: object, levels: Levels) -> dict[Any, Any]:
    """Sort the tensors of a homogeneous graph into those of its nodes, of its edges, and of the graph as a whole."""
    items = _items(data, read_directory, _EXPECTED)
    given, items = items, with_edge_index(items, "")
    if items.get("edge_index") is None and _is_data(data):
        items["edge_index"] = torch.empty((2, 0), dtype=torch.long)  # PyG's graph without edges
    if items.get("edge_index") is None:
        hint = "a graph without edges has an empty one, of shape [2, 0]"
        if {"indices", "indptr"} <= items.keys() or {"row", "col"} <= items.keys():
            hint = "is it a matrix? scipy.sparse.load_npz reads it, and convert takes the matrix"
        elif hasattr(data, "columns"):
            hint = "convert_tables() takes tables of nodes and edges"
        elif {"src", "dst"} <= items.keys():
            hint = "torch.stack([src, dst]) is one"
        raise InvalidArgumentError(f"the graph has no 'edge_index' (keys: {listed(items)}); {hint}")
    edges: dict[Any, Any] = {"edge_index": _edge_index(items.pop("edge_index"), "")}
    given_nodes, given_splits = items.pop("num_nodes", None), items.pop("splits", None)
    frames = {name: value for name, value in items.items() if is_frame(value)}
    if given_nodes is None and frames:
        given_nodes = len(next(iter(frames.values())))
    arrays, others = sorted_values({name: value for name, value in items.items() if name not in frames}, "")
    arrays, edges[_LINKS] = labelled.take(arrays, "")
    num_nodes = _count_nodes(given_nodes, levels.counting(arrays), "")
    if num_nodes is None:
        num_nodes = max(_numbered(items) or 0, *sizes_of(given)) or None
    num_edges = edges["edge_index"].shape[1]
    dims = _dims(data)
    nodes: dict[Any, Any] = {"num_nodes": num_nodes, "splits": given_splits, **frames}
    nodes[_WHOLE] = others
    levels.check_whole(others, (num_nodes, num_edges), "")
    for name, array in arrays.items():
        _check_ptr(name, array, num_nodes, "")
        dim = dims(name, items[name])
        if name == "ptr" or (dim is None and levels.of.get(name) is None):
            level: Level = "graph"
        else:
            level = levels.homogeneous(name, array, num_nodes, num_edges, _graphs(arrays), dim)
        if level == "graph":
            nodes[_WHOLE][name] = _kept(items[name], array)
        else:
            (nodes if level == "node" else edges)[name] = array
    return {UNNAMED[0]: nodes, UNNAMED: edges}


def _kept(value: Any, array: Array) -> Any:
    """Return an attribute of the graph as a whole as it was given, a path as the array in the file."""
    return array if isinstance(array, NpyFile) else value


def _dims(data: object) -> Callable[[str, Any], int | None]:
    """Return what tells along which dimension a graph of a class of its own has its nodes or edges in a tensor; None:
    it belongs to the graph as a whole. As PyG's loaders ask ``__cat_dim__``."""
    pyg, own = sys.modules.get("torch_geometric.data"), getattr(data, "__cat_dim__", None)
    if pyg is None or own is None or not isinstance(data, pyg.Data) or type(data).__cat_dim__ is pyg.Data.__cat_dim__:
        return lambda *_: 0

    def dim(name: str, value: Any) -> int | None:
        of = own(name, value)
        return of if isinstance(of, int) else None

    return dim


def _graphs(arrays: Mapping[str, Array]) -> int:
    """Return how many graphs a batch of PyG has joined, 0 where it is none."""
    return int(arrays["ptr"].shape[0]) - 1 if "ptr" in arrays else 0


def _check_ptr(name: str, array: Array, num_nodes: int | None, label: str) -> None:
    """Refuse a tensor of this name that does not say where graphs begin, as PyG's Batch does."""
    if name == "ptr":
        held = isinstance(array, torch.Tensor | np.ndarray) and is_integer(array) and len(array.shape) == 1
        first, last = (int(array[0]), int(array[-1])) if held and array.shape[0] else (-1, -1)  # type: ignore[index]
        if first == 0 and num_nodes is not None and num_nodes not in (-1, last):
            raise InvalidArgumentError(
                f"{label}ptr says where the graphs of a batch begin and ends with {last}, but there are {num_nodes} "
                "nodes, as after a transform of the batch: delete it, or transform the graphs before they are joined"
            )
        if first != 0 or last != num_nodes:
            check_name(name, f"the name {label + name!r}")


def _numbered(items: Mapping[str, Any]) -> int | None:
    """Return how many nodes an ``n_id`` that counts up numbers; None where there is none."""
    return None if items.get("n_id") is None else len(items["n_id"])


def _is_data(data: object) -> bool:
    """Whether this is PyG's Data, which may have no edges, and not a mapping, where leaving them out is a slip."""
    return not isinstance(data, Mapping | str | os.PathLike) and getattr(data, "num_nodes", None) is not None


def _items(data: object, read: Callable[[Path], dict[Any, Any]], expected: str) -> dict[Any, Any]:
    """Return what a user calls a graph as a mapping; ``read`` reads a directory."""
    if isinstance(data, str | os.PathLike):
        return read(Path(data))
    to_dict = getattr(data, "to_dict", None)
    plain = hasattr(data, "edge_index") and hasattr(data, "__dict__")
    items = data if isinstance(data, Mapping) else to_dict() if callable(to_dict) else vars(data) if plain else None
    if not isinstance(items, Mapping):
        raise DTypeError(f"expected {expected}, got {type(data).__name__}")
    return dict(items)


def node_parts(node_type: str, value: object, levels: Levels | None = None) -> NodeParts:
    """Sort what is given of the nodes of a type."""
    if not isinstance(value, Mapping):
        raise DTypeError(f"node type {node_type!r} must be a mapping from names to tensors, got {type(value).__name__}")
    items, label = dict(value), label_of(node_type)
    given, splits = items.pop("num_nodes", None), items.pop("splits", None)
    sorted_already = _WHOLE in items
    whole = dict(items.pop(_WHOLE, {}))
    items, frames = take_apart(items, label)
    arrays, others = sorted_values(items, label)
    levels = levels or Levels()
    counted = levels.counting(arrays)
    parts = NodeParts(_count_nodes(given, counted, label), {}, named_splits(splits, label), frames, whole | others)
    if parts.num_nodes is None:
        parts.num_nodes = _agreed(counted, label) if counted else _numbered(items)
    levels.check_whole(others, (parts.num_nodes,), label)
    for name, array in arrays.items():
        _check_ptr(name, array, parts.num_nodes, label)
        whole_type = name == "ptr" or name not in counted
        level = "graph" if whole_type else "node" if sorted_already else None
        if level is None:
            assert parts.num_nodes is not None, "arrays give it"
            level = levels.typed(node_type, name, array, parts.num_nodes, _graphs(arrays))
        if level == "graph":
            parts.whole[name] = _kept(items[name], array)
        elif name != "batch":
            parts.tensors[name] = array
            _add_splits(parts, name, array, label)
    return parts


def _agreed(arrays: Mapping[str, Array], label: str) -> int:
    """Return the number of nodes that all tensors of a type have rows for."""
    rows = {name: int(array.shape[0]) for name, array in arrays.items() if name != "ptr"}
    if len(set(rows.values())) != 1:
        listed = ", ".join(f"{name} has {count}" for name, count in rows.items())
        raise InvalidArgumentError(
            f"{label}num_nodes is not given, and the rows of tensors do not tell it: {listed}; give num_nodes"
        )
    return next(iter(rows.values()))


def _add_splits(parts: NodeParts, name: str, mask: Array, label: str) -> None:
    """Add what a mask of nodes is: a split, or one for each of its columns."""
    if not is_mask(name, mask):
        return
    split = name.removesuffix("_mask")
    if len(mask.shape) == 1:
        columns = {split: mask}
    elif mask.shape[1] == 1:
        columns = {split: column_of(mask, 0)}
    else:
        columns = {f"{split}:{column}": column_of(mask, column) for column in range(int(mask.shape[1]))}
    for split, column in columns.items():
        if split in parts.splits:
            raise InvalidArgumentError(f"split {label + split!r} is given twice: as {name!r} and in 'splits'")
        parts.splits[split] = column


def edge_parts(edge_type: EdgeType, value: object, levels: Levels | None = None) -> EdgeParts:
    """Sort what is given of the edges of a type."""
    label = label_of(edge_type)
    items: dict[Any, Any] = with_edge_index(value if isinstance(value, Mapping) else {"edge_index": value}, label)
    if items.get("edge_index") is None:
        raise InvalidArgumentError(f"the edge type {edge_type} has no 'edge_index'")
    edge_index, links = _edge_index(items.pop("edge_index"), label), items.pop(_LINKS, None)
    arrays, others = sorted_values(items, label)
    if links is None:
        arrays, links = labelled.take(arrays, label)
    parts, levels = EdgeParts(edge_index, {}, others, links=links), levels or Levels()
    levels.check_whole(others, (int(edge_index.shape[1]),), label)
    for name, array in arrays.items():
        _check_ptr(name, array, -1, label)
        if levels.typed(edge_type, name, array, int(edge_index.shape[1])) == "graph":
            parts.whole[name] = _kept(items[name], array)
        else:
            parts.tensors[name] = array
    return parts


def _edge_index(value: object, label: str) -> Array:
    """Return ``value`` as an edge list. ``label`` stands before its name in messages."""
    name = f"{label}edge_index"
    array = as_array(name, value)
    if array is None:
        raise DTypeError(f"{name} must be a tensor, an array or a path to a .npy file, got {type(value).__name__}")
    if len(array.shape) == 2 and array.shape[1] == 2 and array.shape[0] != 2:
        array = transposed(array)
    if len(array.shape) != 2 or array.shape[0] != 2:
        raise InvalidArgumentError(f"{name} must have shape [2, num_edges] or [num_edges, 2], got {list(array.shape)}")
    if array.shape[1] == 0:  # np.zeros((2, 0)) holds float64, and no id
        return torch.empty((2, 0), dtype=torch.long)
    if not is_integer(array):
        raise DTypeError(f"{name} must hold integers, got {array.dtype}")
    return array


def _count_nodes(given: object, arrays: dict[str, Array], label: str) -> int | None:
    """Return the number of nodes that is given, or that the usual tensors have rows; None when neither tells."""
    if given is not None:
        if isinstance(given, bool) or not isinstance(given, int | np.integer):
            raise DTypeError(f"{label}num_nodes must be an int, got {given!r}")
        if given < 0:
            raise InvalidArgumentError(f"{label}num_nodes must be at least 0, got {given}")
        return int(given)
    for name in (*OF_NODES, *(name for name, array in arrays.items() if is_mask(name, array)), "y"):
        if name in arrays:
            return int(arrays[name].shape[0])
    return None
