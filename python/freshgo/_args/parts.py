"""Sorts what a user hands over (PyG Data, mappings of arrays or .npy paths, a directory) into a graph's parts."""

from __future__ import annotations

import dataclasses
import errno
import os
import stat
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from freshgo._args import checks
from freshgo._args.aggregates import keep_note
from freshgo._args.arrays import Array, NpyFile
from freshgo._args.types import UNNAMED, EdgeType
from freshgo.errors import (
    DTypeError,
    FormatError,
    InvalidArgumentError,
    ReadError,
    StoreNotFoundError,
    StorePermissionError,
)

RESERVED = frozenset(
    {
        *("n_id", "e_id", "input_id", "batch_size", "num_nodes", "num_sampled_nodes", "num_sampled_edges"),
        *("edge_index", "ptr", "splits"),
        *("source_ptr", "source_target", "source_edge"),  # with transpose=True
    }
)
"""Names that a batch, or the description of a graph, uses itself."""

TYPE_SEPARATOR = "__"
"""Between source, relation and target in the name of a directory, as PyG joins them."""

_EXPECTED = (
    "a PyG Data, or a mapping with 'edge_index' such as {'edge_index': edges, 'x': x, 'y': y, 'train_mask': mask}"
)


@dataclasses.dataclass
class NodeParts:
    """The nodes of one type. ``num_nodes`` is None when only the edges can tell."""

    num_nodes: int | None
    tensors: dict[str, Array]
    splits: dict[str, Array]


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


def is_typed(data: object) -> bool:
    """Whether ``data`` is a heterogeneous graph: has node types and edge types, triples for keys, or is a directory
    with a directory for each type."""
    if isinstance(data, Mapping):
        return any(isinstance(key, tuple) for key in data)
    if isinstance(data, str | os.PathLike):
        return any(path.is_dir() for path in Path(data).glob(f"*{TYPE_SEPARATOR}*{TYPE_SEPARATOR}*"))
    return hasattr(data, "node_types") and hasattr(data, "edge_types")


def homogeneous_parts(data: object) -> GraphParts:
    """Sort the keys of ``data`` into edges, node-level and edge-level tensors and splits."""
    items = _items(data)
    if items.get("edge_index") is None:
        hint = "; adj_t is not read, give edge_index" if "adj_t" in items else ""
        keys = ", ".join(map(repr, items)) or "none at all"
        raise InvalidArgumentError(f"the graph has no 'edge_index' (keys: {keys}){hint}")
    edge_index = edge_index_of(items.pop("edge_index"))
    given_nodes, given_splits = items.pop("num_nodes", None), items.pop("splits", None)
    arrays = arrays_of(items)

    num_edges = edge_index.shape[1]
    num_nodes = count_nodes(given_nodes, arrays)
    nodes, edges = NodeParts(num_nodes, {}, splits_of(given_splits)), EdgeParts(edge_index, {})
    for name, array in arrays.items():
        _sort(nodes, edges, name, array, num_edges)
    return GraphParts({"": nodes}, {UNNAMED: edges})


def _items(data: object) -> dict[str, Any]:
    if isinstance(data, str | os.PathLike):
        return read_directory(Path(data))
    to_dict = getattr(data, "to_dict", None)
    items = (
        data if isinstance(data, Mapping) else to_dict() if callable(to_dict) else vars(data) if _plain(data) else None
    )
    if not isinstance(items, Mapping):
        raise DTypeError(f"expected {_EXPECTED}, got {type(data).__name__}")
    if not all(isinstance(name, str) for name in items):
        raise DTypeError(
            f"the keys of a graph must be strings, got {next(k for k in items if not isinstance(k, str))!r}"
        )
    return dict(items)


def _plain(data: object) -> bool:
    return hasattr(data, "edge_index") and hasattr(data, "__dict__")


def edge_index_of(value: object, label: str = "") -> Array:
    """Return ``value`` as an edge list. ``label`` stands before its name in messages."""
    name = f"{label}edge_index"
    array = _array(name, value)
    if array is None:
        raise DTypeError(f"{name} must be a tensor, an array or a path to a .npy file, got {type(value).__name__}")
    if len(array.shape) != 2 or array.shape[0] != 2:
        hint = "; transpose it" if len(array.shape) == 2 and array.shape[1] == 2 else ""
        raise InvalidArgumentError(f"{name} must have shape [2, num_edges], got {list(array.shape)}{hint}")
    if array.shape[1] == 0:  # np.zeros((2, 0)) holds float64, and no id
        return torch.empty((2, 0), dtype=torch.long)
    if not _is_integer(array):
        raise DTypeError(f"{name} must hold integers, got {array.dtype}")
    return array


def _array(name: str, value: object) -> Array | None:
    """Return ``value`` as an array, a path as its parsed header; None when it is something else."""
    if isinstance(value, Tensor):
        if value.layout != torch.strided:
            raise DTypeError(f"{name} must be a dense tensor, got layout {value.layout}")
        # Also unwraps PyG's EdgeIndex, a subclass, and writes out a sign that PyTorch only notes, as of z.conj().imag.
        return keep_note(value, value.detach().as_subclass(Tensor).resolve_neg())
    if isinstance(value, np.ndarray | NpyFile):
        return value
    if isinstance(value, str | os.PathLike) and os.fspath(value).endswith(".npy"):
        return read_npy_header(Path(value))
    return None


def arrays_of(items: dict[str, Any], label: str = "") -> dict[str, Array]:
    """Keep what is an array with rows; whatever else is there cannot be batched and is named in one warning."""
    arrays, ignored = {}, []
    for name, value in items.items():
        if value is None:
            continue
        array = _array(f"{label}{name}", value)
        if array is None or len(array.shape) == 0:
            ignored.append(f"{label}{name} ({type(value).__name__})")
        elif name in RESERVED:
            raise InvalidArgumentError(f"the name {label + name!r} is taken by the batch itself: rename this tensor")
        else:
            arrays[name] = array
    if ignored:
        names = ", ".join(ignored)
        warnings.warn(
            f"freshgo ignores what is not a tensor or array with rows: {names}", UserWarning, stacklevel=checks.caller()
        )
    return arrays


def count_nodes(given: object, arrays: dict[str, Array], label: str = "") -> int | None:
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


def _sort(nodes: NodeParts, edges: EdgeParts, name: str, array: Array, num_edges: int) -> None:
    rows = array.shape[0]
    is_node, is_edge = rows == nodes.num_nodes, rows == num_edges
    if is_edge and (not is_node or "edge" in name):
        edges.tensors[name] = array
        return
    if not is_node:
        count = nodes.num_nodes
        known = "an unknown number of nodes (give num_nodes)" if count is None else f"{count} nodes"
        raise InvalidArgumentError(
            f"{name!r} has shape {list(array.shape)}, but the graph has {known} and {num_edges} edges: "
            "expected one row per node or one per edge"
        )
    nodes.tensors[name] = array
    if is_mask(name, array):
        split = name.removesuffix("_mask")
        if split in nodes.splits:
            raise InvalidArgumentError(f"split {split!r} is given twice: as {name!r} and in 'splits'")
        nodes.splits[split] = array


def is_mask(name: str, array: Array) -> bool:
    """Whether a node tensor is also a split."""
    return name.endswith("_mask") and len(array.shape) == 1 and _is_bool(array)


def _is_bool(array: Array) -> bool:
    return array.dtype in (torch.bool, np.dtype(bool))


def _is_integer(array: Array) -> bool:
    dtype = array.dtype
    if isinstance(dtype, torch.dtype):
        return not (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool)
    return dtype.kind in "iu"


def splits_of(given: object, label: str = "") -> dict[str, Array]:
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
        if not (_is_bool(array) or _is_integer(array)):
            raise DTypeError(f"{what} must hold integers or bools, got {array.dtype}")
        splits[str(name)] = array
    return splits


def _listed(ids: list[Any] | tuple[Any, ...] | range) -> np.ndarray[Any, Any]:
    return np.asarray(ids) if len(ids) else np.empty(0, dtype=np.int64)  # of nothing NumPy makes floats


def read_npy_header(path: Path) -> NpyFile:
    """Return where the data of a ``.npy`` file lie. Only its header is read; nothing is ever unpickled."""
    try:
        if not stat.S_ISREG(path.stat().st_mode):  # opening a pipe would wait for who writes to it
            raise FormatError(f"{path}: a directory, a pipe or a device, expected a .npy file")
        with path.open("rb") as file:
            version = np.lib.format.read_magic(file)
            if version == (1, 0):
                shape, fortran, dtype = np.lib.format.read_array_header_1_0(file)
            elif version == (2, 0):
                shape, fortran, dtype = np.lib.format.read_array_header_2_0(file)
            else:
                raise FormatError(f"{path}: .npy version {version} is not supported, expected 1.0 or 2.0")
            offset = file.tell()
            size = file.seek(0, os.SEEK_END)
    except FileNotFoundError as error:
        raise StoreNotFoundError(error.errno, "no such .npy file", str(path)) from None
    except PermissionError as error:
        raise StorePermissionError(error.errno, error.strerror, str(path)) from None
    except OSError as error:
        raise ReadError(error.errno, error.strerror, str(path)) from error
    except FormatError:
        raise
    except ValueError as error:
        raise FormatError(f"{path}: not a .npy file: {error}") from error
    if dtype.hasobject or dtype.names is not None:
        raise DTypeError(f"{path}: holds {dtype}, expected numbers (pickled objects are never loaded)")
    n_bytes = int(np.prod(shape, dtype=object)) * dtype.itemsize
    if size - offset < n_bytes:
        raise FormatError(
            f"{path}: truncated: the header promises {n_bytes} bytes of data, the file has {size - offset}"
        )
    return NpyFile(path=str(path), offset=offset, dtype=dtype, shape=tuple(shape), fortran=fortran)


def read_directory(directory: Path) -> dict[str, Any]:
    """Return the ``.npy`` files of a directory by name; ``<split>_idx.npy`` are the node ids of a split."""
    if not directory.is_dir():
        raise StoreNotFoundError(errno.ENOENT, "no such directory of .npy files", str(directory))
    items: dict[str, Any] = {}
    splits = {}
    for path in sorted(directory.glob("*.npy")):
        if path.stem.endswith("_idx"):
            splits[path.stem.removesuffix("_idx")] = path
        else:
            items[path.stem] = path
    return {**items, "splits": splits} if splits else items
