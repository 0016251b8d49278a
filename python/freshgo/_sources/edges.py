"""Edges without anything else: arrays of pairs, sparse matrices, and the arrays of CSR and CSC."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch
from torch import Tensor

from freshgo._args.arrays import as_tensor
from freshgo._args.matrices import entries_of
from freshgo._sources.opening import Graph, Opening
from freshgo.errors import DTypeError, InvalidArgumentError


def is_pairs(data: object) -> bool:
    """Whether data are an array of two ends for each edge."""
    return isinstance(data, np.ndarray | Tensor) and len(data.shape) == 2 and 2 in data.shape and not _is_sparse(data)


def read_pairs(data: Any, opening: Opening) -> Graph:
    """Return the graph of an array ``[2, edges]`` or ``[edges, 2]``; of ``[2, 2]`` rows are ends."""
    if not is_pairs(data):
        raise InvalidArgumentError(f"edges must have shape [2, edges] or [edges, 2], got {list(np.shape(data))}")
    return Graph({"edge_index": data}, f"edges of shape {list(data.shape)}")


def is_matrix(data: object) -> bool:
    """Whether data are a sparse matrix: of SciPy, of torch, or a ``SparseTensor``."""
    if type(data).__module__.startswith("scipy.sparse"):
        return hasattr(data, "tocoo")
    return _is_sparse(data) or _is_sparse_tensor(data)


def read_matrix(data: Any, opening: Opening) -> Graph:
    """Return the graph of an adjacency matrix: the entry in row i and column j is an edge from i to j."""
    shape = data.sizes() if _is_sparse_tensor(data) else data.shape
    if len(shape) != 2 or shape[0] != shape[1]:
        raise InvalidArgumentError(f"an adjacency matrix must be square, got shape {list(shape)}")
    words, count = f"a sparse matrix of shape {list(shape)}", int(shape[0])
    if type(data).__module__.startswith("scipy.sparse"):
        entries = data.tocoo(copy=False)
        ends = np.stack([entries.row, entries.col])
        return Graph({"edge_index": ends, "edge_weight": entries.data, "num_nodes": count}, words)
    rows, columns, values = entries_of(data, "the matrix")
    graph = {"edge_index": torch.stack([rows, columns]), "num_nodes": count}
    return Graph(graph if values is None else {**graph, "edge_weight": values}, words)


def is_compressed(data: object) -> bool:
    """Whether data look like the arrays of CSR, CSC or COO: two or three of one dimension, or values with more."""
    return (
        isinstance(data, tuple)
        and len(data) in (2, 3)
        and all(isinstance(array, np.ndarray | Tensor) and len(array.shape) for array in data)
        and all(len(array.shape) == 1 for array in data[:2])
    )


def read_unnamed(data: Any, opening: Opening) -> Graph:
    """Refuse arrays without a role."""
    raise InvalidArgumentError(
        "a tuple of arrays may be CSR, CSC or COO: give source='csr' (offsets by source, targets), source='csc' "
        "(offsets by target, sources) or source='coo' (sources, targets), each with values as a third array if there "
        "are any"
    )


def read_csr(data: Any, opening: Opening) -> Graph:
    """Return the graph of ``(offsets, targets)`` or ``(offsets, targets, values)``."""
    owners, others, values, count = _compressed(data, "csr")
    return _of_ends(owners, others, values, count, "CSR arrays")


def read_csc(data: Any, opening: Opening) -> Graph:
    """Return the graph of ``(offsets, sources)`` or ``(offsets, sources, values)``."""
    owners, others, values, count = _compressed(data, "csc")
    return _of_ends(others, owners, values, count, "CSC arrays")


def read_coo(data: Any, opening: Opening) -> Graph:
    """Return the graph of ``(sources, targets)`` or ``(sources, targets, values)``."""
    if not is_compressed(data) or len(data[0]) != len(data[1]):
        raise InvalidArgumentError("coo must be (sources, targets) or (sources, targets, values), of equal lengths")
    return _of_ends(as_tensor(data[0]), as_tensor(data[1]), data[2] if len(data) == 3 else None, None, "COO arrays")


def _compressed(data: Any, name: str) -> tuple[Tensor, Tensor, Any, int]:
    if not is_compressed(data):
        raise DTypeError(
            f"{name} must be (offsets, ids) or (offsets, ids, values), arrays of one dimension, got a "
            f"{type(data).__name__}"
        )
    offsets, others = as_tensor(data[0]).long(), as_tensor(data[1])
    bad = (offsets.diff() < 0).nonzero()
    if not offsets.numel() or offsets[0] != 0 or bad.numel() or offsets[-1] != others.numel():
        at = int(bad[0]) + 1 if bad.numel() else 0 if not offsets.numel() or offsets[0] != 0 else offsets.numel() - 1
        came = int(offsets[at]) if offsets.numel() else "nothing"
        raise InvalidArgumentError(
            f"{name}: the offsets must ascend from 0 to the {others.numel()} edges, got {came} at {at}"
        )
    count = offsets.numel() - 1
    owners = torch.repeat_interleave(torch.arange(count), offsets.diff(), output_size=others.numel())
    return owners, others, data[2] if len(data) == 3 else None, count


def _of_ends(sources: Tensor, targets: Tensor, values: Any, count: int | None, words: str) -> Graph:
    graph: dict[str, Any] = {"edge_index": torch.stack([sources.long(), targets.long()])}
    if count is not None:
        graph["num_nodes"] = count
    if values is not None:
        if len(values) != sources.numel():
            raise InvalidArgumentError(f"there are {len(values)} values for {sources.numel()} edges")
        graph["edge_weight" if len(values.shape) == 1 else "edge_attr"] = values
    return Graph(graph, words)


def _is_sparse(data: object) -> bool:
    return isinstance(data, Tensor) and data.layout != torch.strided


def _is_sparse_tensor(data: object) -> bool:
    module = sys.modules.get("torch_sparse")
    return module is not None and isinstance(data, module.SparseTensor)
