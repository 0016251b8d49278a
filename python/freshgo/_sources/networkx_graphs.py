"""Graphs of NetworkX: their attributes that are numbers become tensors, and their names of nodes are kept."""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np

from freshgo._args.arrays import Array
from freshgo._args.checks import caller
from freshgo._sources.opening import Graph, Opening
from freshgo.errors import InvalidArgumentError

_NAMES = {"weight": "edge_weight"}
"""What freshgo calls an attribute of edges that NetworkX has a word for."""


def is_networkx(data: object) -> bool:
    """Whether data are a graph of NetworkX: of any of its classes."""
    module = sys.modules.get("networkx")
    return module is not None and isinstance(data, module.Graph)


def read_networkx(data: Any, opening: Opening) -> Graph:
    """Return a graph with its nodes in the order of their names, where they are all integers or all strings, and else
    in their own order. An edge of an undirected graph becomes two, a loop one.

    Raises:
        InvalidArgumentError: an attribute that only some nodes or edges have, or whose values differ in shape.
    """
    if not is_networkx(data):
        raise InvalidArgumentError(f"expected a graph of NetworkX, got {type(data).__name__}")
    names, attachments = _names(list(data.nodes))
    number = {name: place for place, name in enumerate(names)}
    pairs, attributes = [], []
    for source, target, of_edge in data.edges(data=True):
        pairs.append((number[source], number[target]))
        attributes.append(of_edge)
        if not data.is_directed() and source != target:
            pairs.append((number[target], number[source]))
            attributes.append(of_edge)
    edges = np.array(pairs, np.int64).reshape(-1, 2).T
    graph = {"edge_index": edges, "num_nodes": len(names)}
    of_nodes = _tensors("node", ((name, data.nodes[name]) for name in names))
    ends = ((f"{names[a]!r} to {names[b]!r}", of_edge) for (a, b), of_edge in zip(pairs, attributes, strict=True))
    of_edges = {_NAMES.get(name, name): rows for name, rows in _tensors("edge", ends).items()}
    both = set(of_nodes) & set(of_edges)
    if both:
        raise InvalidArgumentError(
            f"nodes and edges both have an attribute {sorted(both)[0]!r}: in a homogeneous graph a batch has one "
            "tensor of a name, rename one"
        )
    directed = "directed" if data.is_directed() else "undirected, with both directions of each edge"
    # By types, so that a tensor of nodes is one even where there are as many edges.
    typed = {"": {**of_nodes, "num_nodes": len(names)}, ("", "", ""): {**of_edges, "edge_index": graph["edge_index"]}}
    return Graph(typed, f"a NetworkX graph, {directed}", attachments)


def _names(nodes: list[Any]) -> tuple[list[Any], dict[str, Array]]:
    """Return nodes in their order, and their names as ``Store.ids`` reads them."""
    if nodes and all(type(node) is int and -(2**63) <= node < 2**63 for node in nodes):
        nodes = sorted(nodes)
        return nodes, {} if nodes[0] == 0 and nodes[-1] == len(nodes) - 1 else {"ids/": np.array(nodes, np.int64)}
    if nodes and all(type(node) is str for node in nodes):
        nodes = sorted(nodes, key=str.encode)
        texts = [node.encode() for node in nodes]
        ends = np.cumsum([len(text) for text in texts])
        return nodes, {"ids//ends": ends, "ids//text": np.frombuffer(b"".join(texts), np.uint8)}
    return nodes, {}


def _tensors(of: str, owners: Iterable[tuple[Any, dict[str, Any]]]) -> dict[str, np.ndarray[Any, Any]]:
    """Return the attributes that are numbers, or arrays of equal shape, as tensors with a row for each owner."""
    rows: dict[str, list[Any]] = {}
    count, last = 0, None
    for owner, attributes in owners:
        for name in attributes.keys() - rows.keys():
            if count:
                raise InvalidArgumentError(f"the {of} {last} has no attribute {name!r}, which {of} {owner!r} has")
            rows[name] = []
        for name, values in rows.items():
            if name not in attributes:
                raise InvalidArgumentError(f"the {of} {owner} has no attribute {name!r}, which others have")
            values.append(attributes[name])
        count, last = count + 1, owner
    tensors, ignored = {}, []
    for name, values in sorted(rows.items()):
        try:
            tensor = np.array([np.asarray(value) for value in values])
        except ValueError:
            shapes = sorted({np.shape(value) for value in values})
            raise InvalidArgumentError(
                f"the attribute {name!r} of {of}s has rows of several shapes: {shapes}"
            ) from None
        if tensor.dtype.kind in "biuf":
            tensors[str(name)] = tensor.astype(np.float32) if tensor.dtype == np.float64 else tensor
        else:
            ignored.append(str(name))
    if ignored:
        warnings.warn(
            f"freshgo ignores attributes of {of}s that are no numbers: {', '.join(ignored)}", stacklevel=caller()
        )
    return tensors
