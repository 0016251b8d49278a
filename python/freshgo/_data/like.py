"""The graphs that a loader and a conversion take, as types."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np
import torch

from freshgo.store import Store


class _Tensors(Protocol):
    """PyG's ``Data`` and ``HeteroData``, or another object of tensors by name."""

    def to_dict(self) -> Any: ...


class _Edges(Protocol):
    """An object that has tensors as attributes."""

    @property
    def edge_index(self) -> Any: ...


class _SciPyMatrix(Protocol):
    def tocoo(self, copy: bool = ...) -> Any: ...


class _SparseTensor(Protocol):
    def coo(self) -> Any: ...


class _NetworkXGraph(Protocol):
    def is_multigraph(self) -> bool: ...


class _PyGDataset(Protocol):
    @property
    def processed_dir(self) -> str: ...


class _OGBNodes(Protocol):
    def get_idx_split(self) -> Any: ...


class _OGBLinks(Protocol):
    def get_edge_split(self) -> Any: ...


ConvertibleGraph = (
    str
    | os.PathLike[str]
    | Mapping[Any, Any]
    | _Tensors
    | _Edges
    | torch.Tensor
    | np.ndarray[Any, Any]
    | tuple[Any, ...]
    | list[Any]
    | _SciPyMatrix
    | _SparseTensor
    | _NetworkXGraph
    | _PyGDataset
    | _OGBNodes
    | _OGBLinks
)
"""What :func:`freshgo.convert` takes: a path, a graph of PyG, a mapping of tensors, and graphs of other libraries.

A tuple or a list holds a FeatureStore and a GraphStore of PyG, the arrays of a compressed matrix, or paths of files of
edges.
"""

GraphLike = Store | ConvertibleGraph
"""What a loader takes: a store or its path, or a graph in memory."""
