"""Sorts what a user hands over (PyG's objects, mappings of arrays or .npy paths, a directory) into a graph's parts.

Parts are those of types. A homogeneous graph is one mapping of its tensors, which are sorted into those of its unnamed
node type and of its unnamed edge type first.
"""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from freshgo._args import checks
from freshgo._args.aggregates import keep_note
from freshgo._args.arrays import Array, NpyFile, Stream, counts_up, is_integer
from freshgo._args.frames import Frame, Frames, is_frame, take_apart
from freshgo._args.matrices import with_edge_index
from freshgo._args.npy_files import is_of_types, read_directory, read_npy_header, read_types
from freshgo._args.types import UNNAMED, EdgeType, label_of
from freshgo._args.urls import is_url, local_path, shown_url
from freshgo.errors import DTypeError, InvalidArgumentError

RESERVED = frozenset(
    {
        *("n_id", "e_id", "input_id", "batch_size", "num_nodes", "num_sampled_nodes", "num_sampled_edges"),
        *("edge_index", "ptr", "splits"),
        *("source_ptr", "source_target", "source_edge"),  # with transpose=True
    }
)
"""Names that a batch, or the description of a graph, uses itself."""


def check_name(name: str, what: str) -> None:
    """Raise InvalidArgumentError unless a tensor may have this name; ``what`` says what has it."""
    if name in RESERVED:
        raise InvalidArgumentError(f"{what} is taken by the batch itself: rename this tensor")
    if not name or name.startswith("_"):  # batch["_x"] is no tensor of PyG's Data, and "_mapping" ends it
        raise InvalidArgumentError(
            f"{what} is {'empty' if not name else 'private'} in PyG's batches: rename this tensor"
        )


_NUMBERS = ("n_id", "e_id")
"""Those of them that count nodes or edges."""

_GLOBAL = "_global_store"  # what PyG calls attributes of the graph as a whole in HeteroData.to_dict()

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
    """By the name of a TensorFrame, of which ``tensors`` has the columns."""


@dataclasses.dataclass
class EdgeParts:
    """The edges of one type."""

    edge_index: Array
    tensors: dict[str, Array]


@dataclasses.dataclass
class GraphParts:
    """A graph as the native library takes it."""

    nodes: dict[str, NodeParts]
    edges: dict[EdgeType, EdgeParts]

    @property
    def frames(self) -> Frames:
        """The TensorFrames of nodes."""
        return {node_type: nodes.frames for node_type, nodes in self.nodes.items() if nodes.frames}


def graph_parts(data: object) -> GraphParts:
    """Sort whatever a user calls a graph into its types, and what is of each type into tensors and splits."""
    given = _types_of(data) if _has_types(data) else _types_of_homogeneous(data)
    parts = GraphParts({}, {})
    for key, value in given.items():
        if isinstance(key, str):
            parts.nodes[key] = node_parts(key, value)
        else:
            parts.edges[key] = edge_parts(key, value)
    for edge_type in parts.edges:
        for end in (edge_type[0], edge_type[2]):
            if end not in parts.nodes:
                known = ", ".join(map(repr, parts.nodes)) or "none at all"
                raise InvalidArgumentError(
                    f"the edge type {edge_type} has the unknown node type {end!r}, the node types are {known}; "
                    f"one without tensors is given as {{{end!r}: {{}}}}"
                )
    if not parts.edges:
        raise InvalidArgumentError(
            "the graph has no edge types; without edges it has one whose 'edge_index' is empty, [2, 0]"
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
    if items.pop(_GLOBAL, None):
        warnings.warn(
            "freshgo ignores attributes that belong to no node type or edge type",
            UserWarning,
            stacklevel=checks.caller(),
        )
    if items.keys() == {UNNAMED[0], UNNAMED}:
        return items  # a homogeneous graph that is sorted already
    for key in items:
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


def _types_of_homogeneous(data: object) -> dict[Any, Any]:
    """Sort the tensors of a homogeneous graph, by their rows, into those of its nodes and those of its edges."""
    items = _items(data, read_directory, _EXPECTED)
    items = with_edge_index(items, "")
    if items.get("edge_index") is None and _is_data(data):
        items["edge_index"] = torch.empty((2, 0), dtype=torch.long)  # PyG's graph without edges
    if items.get("edge_index") is None:
        keys = ", ".join(map(repr, items)) or "none at all"
        raise InvalidArgumentError(f"the graph has no 'edge_index' (keys: {keys}); without edges it is empty, [2, 0]")
    edges: dict[str, Any] = {"edge_index": _edge_index(items.pop("edge_index"), "")}
    given_nodes, given_splits = items.pop("num_nodes", None), items.pop("splits", None)
    frames = {name: value for name, value in items.items() if is_frame(value)}
    if given_nodes is None and frames:
        given_nodes = len(next(iter(frames.values())))
    arrays = named_arrays({name: value for name, value in items.items() if name not in frames}, "")
    num_nodes, num_edges = _count_nodes(given_nodes, arrays, ""), edges["edge_index"].shape[1]
    nodes: dict[str, Any] = {"num_nodes": num_nodes, "splits": given_splits, **frames}
    for name, array in arrays.items():
        is_node, is_edge = array.shape[0] == num_nodes, array.shape[0] == num_edges
        if not (is_node or is_edge):
            known = "an unknown number of nodes (give num_nodes)" if num_nodes is None else f"{num_nodes} nodes"
            raise InvalidArgumentError(
                f"{name!r} has shape {list(array.shape)}, but the graph has {known} and {num_edges} edges: "
                "expected one row per node or one per edge"
            )
        (edges if is_edge and (not is_node or "edge" in name) else nodes)[name] = array
    return {UNNAMED[0]: nodes, UNNAMED: edges}


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


def node_parts(node_type: str, value: object) -> NodeParts:
    """Sort what is given of the nodes of a type."""
    if not isinstance(value, Mapping):
        raise DTypeError(f"node type {node_type!r} must be a mapping from names to tensors, got {type(value).__name__}")
    items, label = dict(value), label_of(node_type)
    given, splits = items.pop("num_nodes", None), items.pop("splits", None)
    items, frames = take_apart(items, label)
    arrays = named_arrays(items, label)
    parts = NodeParts(_count_nodes(given, arrays, label), arrays, named_splits(splits, label), frames)
    if parts.num_nodes is None and arrays:
        parts.num_nodes = int(next(iter(arrays.values())).shape[0])
    for name, array in arrays.items():
        if array.shape[0] != parts.num_nodes:
            where = f" in {array.path}" if isinstance(array, NpyFile) else ""
            raise InvalidArgumentError(
                f"{label}{name}{where} has shape {list(array.shape)}, but there are {parts.num_nodes} nodes of this "
                "type: expected one row per node"
            )
        if name.endswith("_mask") and len(array.shape) == 1 and _is_bool(array):
            split = name.removesuffix("_mask")
            if split in parts.splits:
                raise InvalidArgumentError(f"split {label + split!r} is given twice: as {name!r} and in 'splits'")
            parts.splits[split] = array
    return parts


def edge_parts(edge_type: EdgeType, value: object) -> EdgeParts:
    """Sort what is given of the edges of a type."""
    label = label_of(edge_type)
    items = with_edge_index(value if isinstance(value, Mapping) else {"edge_index": value}, label)
    if items.get("edge_index") is None:
        raise InvalidArgumentError(f"the edge type {edge_type} has no 'edge_index'")
    parts = EdgeParts(_edge_index(items.pop("edge_index"), label), named_arrays(items, label))
    num_edges = parts.edge_index.shape[1]
    for name, array in parts.tensors.items():
        if array.shape[0] != num_edges:
            raise InvalidArgumentError(
                f"{label}{name} has shape {list(array.shape)}, but there are {num_edges} edges of this type: "
                "expected one row per edge"
            )
    return parts


def _edge_index(value: object, label: str) -> Array:
    """Return ``value`` as an edge list. ``label`` stands before its name in messages."""
    name = f"{label}edge_index"
    array = _array(name, value)
    if array is None:
        raise DTypeError(f"{name} must be a tensor, an array or a path to a .npy file, got {type(value).__name__}")
    if len(array.shape) == 2 and array.shape[1] == 2 and array.shape[0] != 2:
        array = _transposed(array)
    if len(array.shape) != 2 or array.shape[0] != 2:
        raise InvalidArgumentError(f"{name} must have shape [2, num_edges] or [num_edges, 2], got {list(array.shape)}")
    if array.shape[1] == 0:  # np.zeros((2, 0)) holds float64, and no id
        return torch.empty((2, 0), dtype=torch.long)
    if not is_integer(array):
        raise DTypeError(f"{name} must hold integers, got {array.dtype}")
    return array


def _transposed(pairs: Array) -> Array:
    """Return pairs of ends as a list of sources and one of targets, over the same memory or file."""
    if isinstance(pairs, NpyFile):
        return dataclasses.replace(pairs, shape=pairs.shape[::-1], fortran=not pairs.fortran)
    assert isinstance(pairs, Tensor | np.ndarray), "edges are in memory or in a file"
    return pairs.T


def _array(name: str, value: object) -> Array | None:
    """Return ``value`` as an array, a path as its parsed header; None when it is something else."""
    if isinstance(value, Tensor):
        if value.layout != torch.strided:
            raise DTypeError(f"{name} must be a dense tensor, got layout {value.layout}")
        # Also unwraps PyG's EdgeIndex, a subclass, and writes out a sign that PyTorch only notes, as of z.conj().imag.
        return keep_note(value, value.detach().as_subclass(Tensor).resolve_neg())
    if np.ma.is_masked(value):
        raise DTypeError(f"{name} has masked elements, which no tensor can have: fill them, as with {name}.filled(0)")
    if isinstance(value, np.ndarray | NpyFile | Stream):
        return value
    if is_url(value):
        raise InvalidArgumentError(f"{name} is {shown_url(str(value))!r}: only convert reads URLs, copy the file first")
    if isinstance(value, str | os.PathLike) and os.fspath(value).endswith(".npy"):
        return read_npy_header(Path(local_path(os.fspath(value))))
    return None


def named_arrays(items: dict[str, Any], label: str) -> dict[str, Array]:
    """Keep what is an array with rows; whatever else is there cannot be batched and is named in one warning."""
    arrays, ignored = {}, []
    for name, value in items.items():
        if not isinstance(name, str):
            raise DTypeError(
                f"the names of tensors must be strings, got {name!r} in {label.rstrip('.') or 'the graph'}"
            )
        if value is None:
            continue
        array = _array(f"{label}{name}", value)
        if array is None or len(array.shape) == 0:
            ignored.append(f"{label}{name} ({type(value).__name__})")
        elif name in _NUMBERS and counts_up(array):
            continue  # as programs for PyG add it: every batch has it
        else:
            check_name(name, f"the name {label + name!r}")
            arrays[name] = array
    if ignored:
        names = ", ".join(ignored)
        warnings.warn(
            f"freshgo ignores what is not a tensor or array with rows: {names}", UserWarning, stacklevel=checks.caller()
        )
    return arrays


def _count_nodes(given: object, arrays: dict[str, Array], label: str) -> int | None:
    """Return the number of nodes that is given, or that the usual tensors have rows; None when neither tells."""
    if given is not None:
        if isinstance(given, bool) or not isinstance(given, int | np.integer):
            raise DTypeError(f"{label}num_nodes must be an int, got {given!r}")
        if given < 0:
            raise InvalidArgumentError(f"{label}num_nodes must be at least 0, got {given}")
        return int(given)
    for name in ("x", "y", *(name for name in arrays if name.endswith("_mask"))):
        if name in arrays:
            return int(arrays[name].shape[0])
    return None


def _is_bool(array: Array) -> bool:
    return array.dtype in (torch.bool, np.dtype(bool))


def named_splits(given: object, label: str) -> dict[str, Array]:
    """Return a mapping of splits as arrays."""
    if given is None:
        return {}
    if not isinstance(given, Mapping):
        raise DTypeError(
            f"{label}splits must be a mapping from a name to node ids or a mask, got {type(given).__name__}"
        )
    splits = {}
    for name, value in given.items():
        ids = _listed(value) if isinstance(value, list | tuple | range) else value
        what = f"{label}splits[{name!r}]"
        array = _array(what, ids)
        if array is None or len(array.shape) != 1:
            came = type(value).__name__ if array is None else f"shape {list(array.shape)}"
            raise InvalidArgumentError(f"{what} must be one-dimensional node ids or a bool mask, got {came}")
        if not (_is_bool(array) or is_integer(array)):
            raise DTypeError(f"{what} must hold integers or bools, got {array.dtype}")
        splits[str(name)] = array
    return splits


def _listed(ids: list[Any] | tuple[Any, ...] | range) -> np.ndarray[Any, Any]:
    return np.asarray(ids) if len(ids) else np.empty(0, dtype=np.int64)  # of nothing NumPy makes floats
