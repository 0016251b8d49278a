"""Graphs of NetworkX: their attributes that are numbers become tensors, and their names of nodes are kept."""

from __future__ import annotations

import itertools
import sys
import warnings
from collections.abc import Iterable
from typing import Any

import numpy as np

from freshgo._args.arrays import Array
from freshgo._args.checks import caller
from freshgo._args.named import check_name
from freshgo._sources.opening import Graph, Opening
from freshgo.errors import InvalidArgumentError

_NOTHING = object()
"""The value of an attribute that a node or an edge does not have."""

_NAMES = {"weight": "edge_weight"}
"""What freshgo calls an attribute of edges that NetworkX has a word for."""


def is_networkx(data: object) -> bool:
    """Whether data are a graph of NetworkX: of any of its classes."""
    module = sys.modules.get("networkx")
    return module is not None and isinstance(data, module.Graph)


def read_networkx(data: Any, opening: Opening) -> Graph:
    """Return a graph with its nodes in the order of their names: integers, or text by its UTF-8 bytes. An edge of an
    undirected graph becomes two, a loop one.

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
    of_nodes = _tensors("node", ((repr(name), data.nodes[name]) for name in names))
    ends = ((f"{names[a]!r} to {names[b]!r}", of_edge) for (a, b), of_edge in zip(pairs, attributes, strict=True))
    of_edges = {_NAMES.get(name, name): rows for name, rows in _tensors("edge", ends).items()}
    for name in (*of_nodes, *of_edges):
        check_name(name, f"the name {name!r}")
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
    """Return nodes in the order of their names, and the names as ``Store.ids`` reads them: integers where all nodes
    are, else text.

    Raises:
        InvalidArgumentError: two nodes have the same text.
    """
    plain = [node.item() if isinstance(node, np.generic) else node for node in nodes]
    if all(type(node) is int and -(2**63) <= node < 2**63 for node in plain):
        order = sorted(range(len(nodes)), key=plain.__getitem__)
        return [nodes[place] for place in order], {"ids/": np.array([plain[place] for place in order], np.int64)}
    strings = all(type(node) is str for node in plain)
    try:
        texts = [(node if strings else name_of(node)).encode() for node in plain]
    except UnicodeEncodeError as error:
        raise InvalidArgumentError(f"the node {error.object!r} has a name that UTF-8 cannot hold") from error
    order = sorted(range(len(nodes)), key=texts.__getitem__)
    for one, other in itertools.pairwise(order):
        if texts[one] == texts[other]:
            raise InvalidArgumentError(
                f"two nodes are both written {texts[one].decode()}, expected names that differ as text: rename one by "
                "networkx.relabel_nodes"
            )
    ends = np.cumsum([len(texts[place]) for place in order], dtype=np.int64)
    text = np.frombuffer(b"".join(texts[place] for place in order), np.uint8)
    return [nodes[place] for place in order], {"ids//ends": ends, "ids//text": text}


def name_of(node: Any) -> str:
    """Return the name of a node, where not all are strings or all integers: as Python writes it, so that 1 and "1"
    differ and ``ast.literal_eval`` gives back numbers, strings, bytes, None and tuples of them. The elements of a
    frozenset are in the order of their names."""
    if isinstance(node, np.generic):
        return name_of(node.item())
    if isinstance(node, tuple):  # a named one is equal to the tuple of its values
        return f"({', '.join(map(name_of, node))}{',' * (len(node) == 1)})"
    if isinstance(node, frozenset):
        return f"frozenset({{{', '.join(sorted(map(name_of, node)))}}})" if node else "frozenset()"
    return repr(node)


def _is_number(value: Any) -> bool:
    try:
        return np.asarray(value).dtype.kind in "biuf"
    except ValueError:  # rows of several lengths
        return False


def _tensors(of: str, owners: Iterable[tuple[Any, dict[str, Any]]]) -> dict[str, np.ndarray[Any, Any]]:
    """Return the attributes that are numbers, or arrays of equal shape, as tensors with a row for each owner."""
    rows: dict[str, list[Any]] = {}
    names: list[Any] = []
    for owner, attributes in owners:
        for name in attributes.keys() - rows.keys():
            rows[name] = [_NOTHING] * len(names)
        for name, values in rows.items():
            values.append(attributes.get(name, _NOTHING))
        names.append(owner)
    tensors, ignored = {}, []
    for name, values in sorted(rows.items(), key=lambda item: str(item[0])):
        given = [value for value in values if value is not _NOTHING]
        if len(given) < len(values):
            if not _is_number(given[0]):
                ignored.append(str(name))
                continue
            none = next(owner for owner, value in zip(names, values, strict=True) if value is _NOTHING)
            one = next(owner for owner, value in zip(names, values, strict=True) if value is not _NOTHING)
            raise InvalidArgumentError(
                f"the {of} {none} has no attribute {name!r}, which {of} {one} has: give it to all by "
                f"networkx.set_{of}_attributes, or remove it"
            )
        try:
            tensor = np.array([np.asarray(value) for value in values])
        except ValueError:
            shapes = sorted({np.shape(value) for value in values})
            raise InvalidArgumentError(
                f"the attribute {name!r} of {of}s has several shapes, expected one: {shapes}"
            ) from None
        if tensor.dtype.kind in "biuf":
            tensors[str(name)] = _narrowed(of, name, tensor, names, values)
        elif tensor.dtype.kind == "O" and (large := [i for i, value in enumerate(values) if _is_large(value)]):
            raise _too_large(of, name, names[large[0]], values[large[0]], "int64")
        else:
            ignored.append(str(name))
    if ignored:
        warnings.warn(
            f"freshgo ignores attributes of {of}s that are not numbers: {', '.join(ignored)}", stacklevel=caller()
        )
    return tensors


def _narrowed(of: str, name: Any, tensor: Any, owners: list[Any], values: list[Any]) -> np.ndarray[Any, Any]:
    """Return numbers as a store has them: float32 in the place of float64.

    Raises:
        InvalidArgumentError: an integer does not fit int64, which NumPy would round, or a number float32.
    """
    if tensor.dtype == np.float64:
        for owner, value in zip(owners, values, strict=True):
            if _is_large(value):
                raise _too_large(of, name, owner, value, "int64")
    if tensor.dtype.kind != "f" or tensor.dtype.itemsize <= 4:
        return tensor  # type: ignore[no-any-return]
    with np.errstate(over="ignore"):
        narrow = tensor.astype(np.float32)
    wrong = np.argwhere(np.isinf(narrow) & np.isfinite(tensor))
    if len(wrong):
        raise _too_large(of, name, owners[wrong[0][0]], tensor[tuple(wrong[0])].item(), "float32")
    return narrow  # type: ignore[no-any-return]


def _is_large(value: Any) -> bool:
    """Whether a value is an integer beyond int64."""
    return isinstance(value, int | np.integer) and not -(1 << 63) <= int(value) < 1 << 63


def _too_large(of: str, name: Any, owner: Any, value: Any, dtype: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"the {of} {owner} has {name}={value!r}, which is too large for {dtype}")
