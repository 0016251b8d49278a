"""Graphs that hold their edges in a sparse matrix, with an edge list in its place. Nothing is imported for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import torch
from torch import Tensor

from freshgo.errors import DTypeError, InvalidArgumentError


def with_edge_index(items: Mapping[str, Any], label: str) -> dict[str, Any]:
    """Return the tensors of a graph, or of an edge type, with ``edge_index`` in the place of ``adj_t``.

    ``adj_t`` is the transposed adjacency matrix that PyG's ``ToSparseTensor`` makes: a ``SparseTensor``, or a sparse
    tensor of torch. Its values become ``edge_weight``, or ``edge_attr`` if an edge has several. Where they are all one
    they are left out: torch's tensors have ones where PyG had no values. ``label`` stands before names in messages.

    Raises:
        InvalidArgumentError: both are there; the values would take the name of another tensor.
        DTypeError: ``adj_t`` is no sparse matrix.
    """
    given = dict(items)
    matrix = given.pop("adj_t", None)
    if matrix is None:
        return given
    if given.get("edge_index") is not None:
        raise InvalidArgumentError(
            f"{label}edge_index and {label}adj_t are both given, expected one of them: delete the other, or use "
            "ToSparseTensor(remove_edge_index=True)"
        )
    rows, columns, values = entries_of(matrix, f"{label}adj_t")
    given["edge_index"] = torch.stack([columns, rows])  # a row of the transposed matrix is a target
    if values is not None and not (values.dim() == 1 and bool((values == 1).all())):
        name = "edge_weight" if values.dim() == 1 else "edge_attr"
        if name in given:
            raise InvalidArgumentError(f"{label}{name} is given beside the values of {label}adj_t: rename it")
        given[name] = values
    return given


def sizes_of(value: object) -> tuple[int, int]:
    """Return how many sources and targets a graph, or an edge type, has by the shape of its ``adj_t`` or by the sparse
    size of PyG's ``EdgeIndex``; 0 where neither tells."""
    items: Mapping[Any, Any] = value if isinstance(value, Mapping) else {"edge_index": value}
    matrix, edges = items.get("adj_t"), items.get("edge_index")
    if matrix is not None:
        targets, sources = (matrix.sizes() if type(matrix).__name__ == "SparseTensor" else matrix.shape)[:2]
        return int(sources), int(targets)
    if type(edges).__name__ != "EdgeIndex":
        return 0, 0
    sources, targets = cast(Any, edges).sparse_size()
    return sources or 0, targets or 0


def entries_of(matrix: Any, name: str) -> tuple[Tensor, Tensor, Tensor | None]:
    """Return rows, columns and values of a sparse matrix, in its order. ``name`` is what messages call it."""
    if isinstance(matrix, Tensor) and matrix.layout == torch.sparse_csr:
        counts = matrix.crow_indices().diff()
        rows = torch.repeat_interleave(torch.arange(matrix.shape[0]), counts)
        return rows, matrix.col_indices().long(), matrix.values()
    if isinstance(matrix, Tensor) and matrix.layout == torch.sparse_csc:
        counts = matrix.ccol_indices().diff()
        columns = torch.repeat_interleave(torch.arange(matrix.shape[1]), counts)
        return matrix.row_indices().long(), columns, matrix.values()
    if isinstance(matrix, Tensor) and matrix.layout == torch.sparse_coo:
        indices = matrix._indices()
        return indices[0], indices[1], matrix._values()
    if type(matrix).__name__ == "SparseTensor" and hasattr(matrix, "coo"):
        rows, columns, values = matrix.coo()
        return rows, columns, values
    came = f"one of layout {matrix.layout}" if isinstance(matrix, Tensor) else type(matrix).__name__
    raise DTypeError(
        f"{name} must be a torch_sparse.SparseTensor or a sparse tensor of torch (COO, CSR or CSC), got {came}"
    )
