"""Values with names: which of them are arrays, and which names they may have."""

from __future__ import annotations

import dataclasses
import os
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from freshgo._args import checks
from freshgo._args.aggregates import keep_note
from freshgo._args.arrays import Array, EdgeFiles, NpyFile, Stream, counts_up, is_integer
from freshgo._args.levels import holds_rows, is_bool
from freshgo._args.npy_files import read_npy_header
from freshgo._args.urls import is_url, local_path, shown_url
from freshgo._args.whole import is_plain
from freshgo.errors import DTypeError, InvalidArgumentError

TRANSPOSED = ("source_ptr", "source_target", "source_edge")
"""The names under which batches bring edges grouped by source, with ``transpose=True``."""

RESERVED = frozenset(
    {
        *("n_id", "e_id", "input_id", "batch_size", "num_nodes", "num_sampled_nodes", "num_sampled_edges"),
        *("edge_index", "ptr", "splits"),
        *TRANSPOSED,
    }
)
"""Names that a batch, or the description of a graph, uses itself."""


def check_name(name: str, what: str) -> None:
    """Raise InvalidArgumentError unless a tensor may have this name; ``what`` says what has it."""
    if name in RESERVED:
        raise InvalidArgumentError(f"{what} is reserved for an attribute of the batch: rename this tensor")
    if not name or name.startswith("_"):  # batch["_x"] is no tensor of PyG's Data, and "_mapping" ends it
        raise InvalidArgumentError(
            f"{what} {'begins with an underscore, as private attributes of PyG do' if name else 'is empty'}: rename "
            "this tensor"
        )


_NUMBERS = ("n_id", "e_id")
"""Those of them that count nodes or edges."""

_OF_BATCH = ("batch", "ptr")
"""What PyG's Batch adds: the graph of each node, which a batch has for its trees alone, as in PyG; and where graphs
begin, which says the same and is an attribute of the graph as a whole."""


def as_array(name: str, value: object) -> Array | None:
    """Return ``value`` as an array, a path as its parsed header; None when it is something else."""
    if isinstance(value, Tensor):
        if value.layout != torch.strided or value.is_nested:
            layout = "nested" if value.is_nested else value.layout
            raise DTypeError(
                f"{name} must be a dense tensor, got layout {layout}: {name}.to_dense() is one, and a graph may "
                "have its edges as adj_t"
            )
        # Also unwraps PyG's EdgeIndex, a subclass, and writes out a sign that PyTorch only notes, as of z.conj().imag.
        return keep_note(value, value.detach().as_subclass(Tensor).resolve_neg())
    if np.ma.is_masked(value):
        raise DTypeError(f"{name} has masked elements, which no tensor can have: fill them, as with {name}.filled(0)")
    if isinstance(value, np.ndarray | NpyFile | EdgeFiles | Stream):
        return value
    if is_url(value):
        raise InvalidArgumentError(f"{name} is {shown_url(str(value))!r}: only convert reads URLs, copy the file first")
    if isinstance(value, str | os.PathLike) and os.fspath(value).endswith(".npy"):
        return read_npy_header(Path(local_path(os.fspath(value))))
    return None


def named_arrays(items: dict[str, Any], label: str) -> dict[str, Array]:
    """Keep what is an array with rows."""
    return sorted_values(items, label)[0]


def sorted_values(items: Mapping[Any, Any], label: str) -> tuple[dict[str, Array], dict[str, Any]]:
    """Return what is an array with rows, and what else a store can keep; anything that is left is named in one
    warning."""
    arrays: dict[str, Array] = {}
    others: dict[str, Any] = {}
    ignored = []
    for name, value in items.items():
        if not isinstance(name, str):
            raise DTypeError(
                f"the names of tensors must be strings, got {name!r} in {label.rstrip('.') or 'the graph'}"
            )
        if value is None or name == "_num_nodes":  # which PyG's Batch has of each graph that it joins
            continue
        array = as_array(f"{label}{name}", value)
        if array is None:
            _check_no_rows(label, name, value)
        if array is None or len(array.shape) == 0:
            if is_plain(value) and name not in RESERVED and not name.startswith("_"):
                others[name] = value
            else:
                ignored.append(f"{label}{name} ({type(value).__name__})")
        elif name in _NUMBERS and counts_up(array):
            continue  # as programs for PyG add it: every batch has it
        else:
            if name not in _OF_BATCH:
                check_name(name, f"the name {label + name!r}")
            arrays[name] = array
    if ignored:
        names = ", ".join(ignored)
        warnings.warn(
            f"freshgo ignores attributes that a store cannot hold: {names}", UserWarning, stacklevel=checks.caller()
        )
    return arrays, others


def _check_no_rows(label: str, name: str, value: object) -> None:
    """Refuse rows that are in no array: a batch would have all of them, or none."""
    method = next((method for method in ("to_numpy", "toarray") if hasattr(value, method)), None)
    if method is not None or (holds_rows(name) and not isinstance(value, int | float | np.generic)):
        hint = f": {label}{name}.{method}() is an array" if method else ""
        came = f"a {type(value).__name__}" if method else checks.shown(value)
        raise DTypeError(f"{label}{name} must be a tensor, an array or the path of a .npy file, got {came}{hint}")


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
        array = as_array(what, ids)
        if array is None or len(array.shape) != 1:
            came = type(value).__name__ if array is None else f"shape {list(array.shape)}"
            raise InvalidArgumentError(f"{what} must be one-dimensional node ids or a bool mask, got {came}")
        if not (is_bool(array) or is_integer(array)):
            raise DTypeError(f"{what} must hold integers or bools, got {array.dtype}")
        splits[str(name)] = array
    return splits


def _listed(ids: list[Any] | tuple[Any, ...] | range) -> np.ndarray[Any, Any]:
    return np.asarray(ids) if len(ids) else np.empty(0, dtype=np.int64)  # of nothing NumPy makes floats


def transposed(pairs: Array) -> Array:
    """Return pairs of ends as a list of sources and one of targets, or the reverse, over the same memory or file."""
    if isinstance(pairs, NpyFile):
        return transposed_file(pairs)
    assert isinstance(pairs, Tensor | np.ndarray), "edges are in memory or in a file"
    return pairs.T


def transposed_file(pairs: NpyFile) -> NpyFile:
    """Return :func:`transposed` of a file."""
    return dataclasses.replace(pairs, shape=pairs.shape[::-1], fortran=not pairs.fortran)


def column_of(mask: Array, column: int) -> Array:
    """Return a column of a mask."""
    if isinstance(mask, NpyFile):
        order: Literal["F", "C"] = "F" if mask.fortran else "C"
        return np.memmap(mask.path, mask.dtype, "r", mask.offset, mask.shape, order)[:, column]
    if isinstance(mask, Stream):
        return mask.column(column)
    assert isinstance(mask, Tensor | np.ndarray), "rows of nodes come from no pipe yet"
    return mask[:, column]
