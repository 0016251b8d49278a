"""What a loader is asked of the types of a graph: how many neighbours along each edge type, which nodes of each type.

The library numbers the nodes of all types together, in the order of the types: node ``v`` of type ``t`` is
``first[t] + v``. Users never see these numbers.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from freshgo._args import checks
from freshgo._args.arrays import tensor_digest
from freshgo._args.hints import among, did_you_mean, listed, shortened
from freshgo.errors import DTypeError, FreshgoError, InvalidArgumentError

T = TypeVar("T")

EdgeType = tuple[str, str, str]
"""Source, relation, target."""

ByRelation = dict[EdgeType, list[int]]
"""Neighbours per hop of every edge type."""

UNNAMED: EdgeType = ("", "", "")
"""The only edge type of a homogeneous graph; its only node type is ``""``."""


def label_of(key: str | EdgeType) -> str:
    """Return what stands before the names of a type's tensors in messages: ``"paper."``, ``"(paper, cites, paper)."``;
    nothing for types without a name."""
    if key in (UNNAMED[0], UNNAMED):
        return ""
    return f"{key}." if isinstance(key, str) else f"({', '.join(key)})."


def of_type(node_type: str) -> str:
    """Return what stands behind rows or nodes of a type in messages; nothing for a type without a name."""
    return f" of node type {node_type!r}" if node_type else ""


@dataclasses.dataclass(frozen=True)
class Types:
    """The types of a graph, in its order."""

    num_nodes: dict[str, int]
    """Of every node type."""
    edge_types: list[EdgeType]

    @property
    def homogeneous(self) -> bool:
        """Whether the graph has one node type and one edge type, both without a name."""
        return self.node_types == [""]

    def bare(self, by_type: Mapping[Any, T]) -> T | Mapping[Any, T]:
        """Return values by node type or edge type as users see them: in a homogeneous graph the only one, alone."""
        return next(iter(by_type.values())) if self.homogeneous else by_type

    @property
    def total(self) -> int:
        """The number of nodes of all types."""
        return sum(self.num_nodes.values())

    def node_name(self, place: int, name: str) -> str:
        """What a batch of the library calls a tensor of a node type."""
        return name if self.homogeneous else f"n{place}/{name}"

    def edge_name(self, place: int, name: str) -> str:
        """What a batch of the library calls a tensor of an edge type."""
        return name if self.homogeneous else f"e{place}/{name}"

    def counts(self, num_edge_types: int) -> list[str]:
        """Return what a batch of the library calls its counts by hop: of nodes of each type, then of edges of each."""
        nodes = [self.node_name(i, "num_sampled_nodes") for i in range(len(self.num_nodes))]
        return nodes + [self.edge_name(i, "num_sampled_edges") for i in range(num_edge_types)]

    @property
    def node_types(self) -> list[str]:
        """The names of the node types."""
        return list(self.num_nodes)

    def fanouts(self, given: list[int] | ByRelation, default: list[int] | None = None) -> ByRelation:
        """Return the neighbours per hop of every edge type: those that are given for it, or the same for all. Edge
        types that are not named have the ``default``, if there is one.

        Raises:
            InvalidArgumentError: an edge type is missing, or does not exist.
            DTypeError: edge types are named, and the graph is homogeneous.
        """
        if isinstance(given, list):
            return dict.fromkeys(self.edge_types, given)
        if self.homogeneous:
            raise DTypeError("num_neighbors must be a list of ints in a homogeneous graph, got a dict")
        unknown = [edge_type for edge_type in given if edge_type not in self.edge_types]
        if unknown:
            raise InvalidArgumentError(
                f"num_neighbors names {listed(unknown)}, the edge types of the graph are "
                f"{among(unknown[0], self.edge_types)}"
            )
        if default is not None:
            given = {**dict.fromkeys(self.edge_types, default), **given}
        missing = [edge_type for edge_type in self.edge_types if edge_type not in given]
        if missing:
            raise InvalidArgumentError(
                f"num_neighbors needs a list for every edge type, {listed(missing)} {_is_are(missing)} missing; to "
                f"draw nothing along an edge type, give it {[0] * len(next(iter(given.values())))}"
            )
        return {edge_type: given[edge_type] for edge_type in self.edge_types}

    def inputs(
        self, value: object, split: Callable[[str, str], Tensor], splits: Callable[[str], Collection[str]]
    ) -> Inputs:
        """Return the input nodes that a user gave: a type, a type with its nodes, or a mapping from types to nodes.
        Of a homogeneous graph they are the nodes alone. ``split`` reads a split of a type, ``splits`` names those of a
        type.

        Raises:
            InvalidArgumentError, DTypeError: no such type, split or node, or nothing of these.
        """
        if self.homogeneous:
            ids = checks.input_nodes(value, self.total, lambda name: split(name, ""))
            config = {"": "all" if ids is None else tensor_digest(ids)}
            masked = frozenset({""} if checks.is_mask(value) else ())
            return Inputs(ids, config, masked, {"": self.total if ids is None else ids.numel()})
        if isinstance(value, str):
            given: dict[object, object] = {value: None}
        elif isinstance(value, Mapping) and value:
            given = dict(value)
        elif isinstance(value, tuple | list) and len(value) == 2 and isinstance(value[0], str):
            given = {value[0]: value[1]}
        else:
            example = self.node_types[0]
            raise DTypeError(
                f"input_nodes must be a node type such as {example!r}, a pair such as ({example!r}, ids), or a mapping "
                f"from node types to ids, for the node types {listed(self.node_types)}; got {shortened(value)}"
            )
        for node_type in given:
            if node_type not in self.num_nodes:
                pairs = [(name, value) for name in self.node_types if value == node_type and value in splits(name)]
                near = did_you_mean(node_type, self.num_nodes)
                hint = f"; a split is named with its type: {listed(pairs)}" if pairs else near
                raise InvalidArgumentError(
                    f"input_nodes are of the node type {node_type!r}, which the graph does not have; it has "
                    f"{listed(self.node_types)}{hint}"
                )
        return self._inputs_of_types(given, split)

    def _inputs_of_types(self, given: Mapping[object, object], split: Callable[[str, str], Tensor]) -> Inputs:
        nodes, config, counts = {}, {}, {}
        for node_type, count in self.num_nodes.items():
            if node_type in given:
                nodes[node_type] = ids = _nodes(node_type, given[node_type], count, split)
                counts[node_type] = count if ids is None else ids.numel()
                config[node_type] = "all" if ids is None else tensor_digest(ids)
        seeds, first, at = torch.empty(sum(counts.values()), dtype=torch.int64, device="cpu"), 0, 0
        for node_type, count in self.num_nodes.items():
            if node_type in nodes:
                ids, part = nodes[node_type], seeds[at : at + counts[node_type]]
                at += part.numel()
                torch.arange(first, first + count, out=part) if ids is None else torch.add(ids, first, out=part)
            first += count
        masked = frozenset(node_type for node_type in nodes if checks.is_mask(given[node_type]))
        return Inputs(seeds, config, masked, counts)

    def one_way(self) -> list[EdgeType]:
        """Return the edge types without a reverse: the one that is named after it, or the only one that leads back.

        An edge type within one node type is its own reverse. As in
        PyG's ``to_bidirectional``; the library finds the reverse itself.
        """

        def reverse(source: str, relation: str, target: str) -> bool:
            name = reverse_names(relation)[-1]
            back = [edge_type for edge_type in self.edge_types if (edge_type[0], edge_type[2]) == (target, source)]
            return source == target or len(back) == 1 or (target, name, source) in back

        return [edge_type for edge_type in self.edge_types if not reverse(*edge_type)]


Row = tuple[torch.dtype, tuple[int, ...]]
"""The dtype and the shape of a row of a tensor."""


@dataclasses.dataclass(frozen=True)
class Layout:
    """What batches of a graph may have: types, and tensors without their data."""

    types: Types
    nodes: Mapping[tuple[Any, str], Row]
    """By node type and name."""
    edges: Mapping[tuple[Any, str], Row]
    """By edge type and name."""


@dataclasses.dataclass(frozen=True)
class Inputs:
    """The nodes that batches are made for, type after type in the order of the graph."""

    seeds: Tensor | None
    """int64, numbered over all types; None: every node."""
    config: dict[str, str]
    """What identifies the nodes of each type."""
    masked: frozenset[str]
    """The types whose nodes were given as a mask."""
    counts: dict[str, int]
    """How many there are of each type."""


def counts_shown(types: Types, num_edges: Callable[[EdgeType], int]) -> str:
    """Return the numbers of nodes and edges of a graph, by type if it is heterogeneous, for a repr."""
    if types.homogeneous:
        return f"num_nodes={types.total}, num_edges={num_edges(UNNAMED)}"
    nodes = ", ".join(f"{name}: {count}" for name, count in types.num_nodes.items())
    edges = ", ".join(f"({', '.join(edge_type)}): {num_edges(edge_type)}" for edge_type in types.edge_types)
    return f"nodes {{{nodes}}}, edges {{{edges}}}"


def reverse_names(relation: str) -> list[str]:
    """Return what PyG calls the relation against this one, in the order in which it is looked for.

    That is ``"rev_x"`` for ``"x"``; of ``"rev_x"`` it is also ``"x"``.
    """
    names = [f"rev_{relation}"]
    return [*names, relation.removeprefix("rev_")] if relation.startswith("rev_") else names


def by_relation(value: Mapping[Any, Any]) -> ByRelation:
    """Check a mapping from edge types to their neighbours per hop, without knowing the graph.

    Raises:
        InvalidArgumentError: hops that cannot be, or not as many for every type.
        DTypeError: a key that is no edge type, a value that is no list of ints.
    """
    result: ByRelation = {}
    for key, hops in value.items():
        if not (isinstance(key, tuple) and len(key) == 3 and all(isinstance(part, str) for part in key)):
            raise DTypeError(
                "the keys of num_neighbors must be edge types (source, relation, target) such as "
                f"('paper', 'cites', 'paper'), got {key!r}"
            )
        result[key] = checks.fanouts(hops, name=f"num_neighbors[{key}]")
    if not result:
        raise InvalidArgumentError("num_neighbors must name every edge type, got an empty mapping")
    lengths = {len(hops) for hops in result.values()}
    if len(lengths) > 1:
        given = ", ".join(f"{key}: {hops}" for key, hops in result.items())
        raise InvalidArgumentError(f"num_neighbors: hops must be the same across all edge types, got {given}")
    return result


def _nodes(node_type: str, value: object, count: int, split: Callable[[str, str], Tensor]) -> Tensor | None:
    """Return the ids of nodes of one type; None: all of them."""
    try:
        ids = checks.input_nodes(value, count, lambda name: split(name, node_type))
    except FreshgoError as error:
        if isinstance(value, str) or not isinstance(error, InvalidArgumentError | DTypeError):
            raise  # of a split, which says its type
        raise type(error)(f"node type {node_type!r}: {error}") from None
    if ids is None:
        if count == 0:
            raise InvalidArgumentError(f"input_nodes are all nodes of type {node_type!r}, which has none")
        return None
    bad = (ids < 0) | (ids >= count)
    if bad.any():
        at = int(bad.nonzero()[0])
        raise InvalidArgumentError(
            f"node type {node_type!r}: input_nodes[{at}] is {int(ids[at])}, expected an id in [0, {count})"
        )
    return ids


def _is_are(names: Sequence[object]) -> str:
    return "is" if len(names) == 1 else "are"
