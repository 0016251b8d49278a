"""Splits of links on their way into a store: the labelled links of graphs, checked against the nodes of the store."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

import numpy as np
from torch import Tensor

from freshgo._args import checks, labelled
from freshgo._args.arrays import Array, EdgeFiles, NpyFile
from freshgo._args.hints import among
from freshgo._args.named import named_arrays
from freshgo._args.parts import GraphParts, graph_parts
from freshgo._args.types import UNNAMED, EdgeType, label_of
from freshgo.errors import DTypeError, InvalidArgumentError

ByType = Mapping[EdgeType, Mapping[str, Array]]

_PIECE = 1 << 20  # links that are checked at a time; arbitrary


def attached(data: object, parts: GraphParts, given: object) -> dict[str, Array]:
    """Return what ``convert(data, links=given)`` attaches to a store. ``parts`` are those of ``data``.

    Raises:
        InvalidArgumentError, DTypeError: what is given holds no links of the graph.
    """
    if isinstance(given, str):
        splits: dict[str, Any] = {given: parts.links} if parts.links else {}
    else:
        named = _named(given)
        own = {labelled.OWN: parts.links} if parts.links and all(value is not data for value in named.values()) else {}
        splits = {**own, **{name: parts.links if value is data else value for name, value in named.items()}}
    counts = {node_type: _num_nodes(parts, node_type) for node_type in parts.nodes} if splits else {}
    return _attached(splits, counts, parts.edges.keys())


def further(given: object, counts: Mapping[str, int], edge_types: Collection[EdgeType]) -> dict[str, Array]:
    """Return the attachments of splits that a store of these types is given.

    Raises:
        InvalidArgumentError, DTypeError: as :func:`attached`.
    """
    return _attached(_named(given), counts, edge_types)


def _named(given: object) -> dict[str, Any]:
    if not isinstance(given, Mapping):
        raise DTypeError(f"links must be a mapping from names to graphs with labelled links, got {checks.shown(given)}")
    return dict(given)


def _attached(
    splits: Mapping[str, Any], counts: Mapping[str, int], edge_types: Collection[EdgeType]
) -> dict[str, Array]:
    made: dict[str, Array] = {}
    for name, value in splits.items():
        if not isinstance(name, str) or not name or "/" in name:
            raise InvalidArgumentError(f"the name of a split of links must be a string without '/', got {name!r}")
        links = _links_of(name, value, counts)
        for edge_type, arrays in links.items():
            if edge_type not in edge_types:
                known = among(edge_type, edge_types)
                raise InvalidArgumentError(f"links[{name!r}] are of {edge_type}, expected an edge type of {known}")
            for array_name, array in arrays.items():
                if array_name.endswith("_index"):
                    ends = (counts[edge_type[0]], counts[edge_type[2]])
                    _check_ends(f"links[{name!r}]: {label_of(edge_type)}{array_name}", array, ends)
        made.update(labelled.attached(name, links))
    return made


def _links_of(name: str, value: Any, counts: Mapping[str, int]) -> ByType:
    """Return the labelled links of a graph, of a mapping of their arrays, or of edge types and these."""
    items = value if isinstance(value, Mapping) else {}
    typed = bool(items) and all(isinstance(key, tuple) and isinstance(of, Mapping) for key, of in items.items())
    if typed and not any("edge_index" in of for of in items.values()):
        found: ByType = {key: _arrays(of, label_of(key)) for key, of in items.items()}
    elif items and not any(isinstance(key, tuple) for key in items) and "edge_index" not in items:
        found = {UNNAMED: _arrays(items, "")}
    else:
        try:
            parts = graph_parts(value)
        except (DTypeError, InvalidArgumentError) as error:
            raise type(error)(f"links[{name!r}]: {error}") from None
        for node_type, nodes in parts.nodes.items():
            if nodes.num_nodes is not None and nodes.num_nodes != counts.get(node_type):
                of = f" of type {node_type!r}" if node_type else ""
                raise InvalidArgumentError(
                    f"links[{name!r}] is a graph with {nodes.num_nodes} nodes{of}, expected the "
                    f"{counts.get(node_type, 0)} nodes of the store"
                )
        found = parts.links
    if not any(found.values()):
        raise InvalidArgumentError(
            f"links[{name!r}] has no labelled links: expected a graph of RandomLinkSplit, or a mapping with "
            "edge_label_index, integers [2, num_links], and edge_label"
        )
    return found


def _arrays(items: Mapping[str, Any], label: str) -> dict[str, Array]:
    rest, links = labelled.take(named_arrays(dict(items), label), label)
    if rest:
        raise InvalidArgumentError(
            f"{label}{next(iter(rest))} is not part of labelled links: expected edge_label_index, integers "
            "[2, num_links], with edge_label and edge_label_time, a row for each link"
        )
    return links


def _num_nodes(parts: GraphParts, node_type: str) -> int:
    """Return the number of nodes of a type, by its edges where nothing else gives it."""
    count = parts.nodes[node_type].num_nodes
    if count is not None:
        return count
    ends = (
        ids
        for edge_type, edges in parts.edges.items()
        for end in (0, 1)
        if edge_type[2 * end] == node_type
        for ids in _pieces(edges.edge_index, end)
    )
    return 1 + max((int(ids.max()) for ids in ends), default=-1)


def _check_ends(name: str, index: Array, counts: tuple[int, int]) -> None:
    for end, count in enumerate(counts):
        first = 0
        for ids in _pieces(index, end):
            bad = (ids < 0) | (ids >= count)
            if bad.any():
                at = int(bad.argmax())
                raise InvalidArgumentError(
                    f"{name}[{end}, {first + at}] is {int(ids[at])}, expected a node in [0, {count})"
                )
            first += len(ids)


def _pieces(index: Any, end: int) -> Iterator[np.ndarray[Any, Any]]:
    """Yield the ids of one end of links or edges."""
    if 0 in index.shape:
        return
    if isinstance(index, EdgeFiles):
        for file in index.files:
            yield from _pieces(file, end)
        return
    if isinstance(index, NpyFile):
        order: Any = "F" if index.fortran else "C"
        index = np.memmap(index.path, index.dtype, "r", index.offset, index.shape, order)
    ids = index[end].numpy(force=True) if isinstance(index, Tensor) else index[end]
    for first in range(0, len(ids), _PIECE):
        yield ids[first : first + _PIECE]
