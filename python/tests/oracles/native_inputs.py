"""Graphs and options of the native layer, as its tests write them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from freshgo._args.parts import EdgeParts, GraphParts, NodeParts
from freshgo._args.types import UNNAMED
from freshgo._native import convert as native_convert
from freshgo._native.options import LoaderOptions, loader_options, relations
from freshgo._native.store import Store


def options(fanouts: Sequence[int], **given: Any) -> LoaderOptions:
    """Options of a loader over a homogeneous graph."""
    return loader_options(**{"batch_size": 1, "prefetch": 4, **relations([fanouts]), **given})


def parts(
    num_nodes: int | None,
    edge_index: Any,
    node_tensors: Mapping[str, Any],
    edge_tensors: Mapping[str, Any],
    splits: Mapping[str, Any] | None = None,
) -> GraphParts:
    """A homogeneous graph."""
    nodes = NodeParts(num_nodes, dict(node_tensors), dict(splits or {}))
    return GraphParts({"": nodes}, {UNNAMED: EdgeParts(edge_index, dict(edge_tensors))})


def convert(
    path: Path,
    *,
    num_nodes: int | None,
    edge_index: Any,
    node_tensors: Mapping[str, Any],
    edge_tensors: Mapping[str, Any],
    splits: Mapping[str, Any],
    **options: Any,
) -> Store | None:
    """Write a store of a homogeneous graph."""
    return native_convert.convert(parts(num_nodes, edge_index, node_tensors, edge_tensors, splits), path, **options)
