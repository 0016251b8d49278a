"""Walks along types of edges, as a loader was given them: under which names, and in which graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from freshgo._args.metapaths import is_edge_type
from freshgo._args.types import EdgeType, Types
from freshgo.errors import DTypeError, InvalidArgumentError
from freshgo.samplers import RandomWalk

Metapaths = dict[EdgeType, list[RandomWalk]]
"""What the edges of walks are called in a batch, and the walks of each hop, all along one metapath."""


def has_walks(num_neighbors: Mapping[Any, Any]) -> bool:
    """Whether a mapping is from edge types to walks."""
    lists = (hops for hops in num_neighbors.values() if isinstance(hops, tuple | list))
    return any(isinstance(hop, RandomWalk) for hops in lists for hop in hops)


def by_name(num_neighbors: Mapping[Any, Any]) -> Metapaths:
    """Check a mapping from names of edge types to their walks, without knowing the graph.

    Raises:
        InvalidArgumentError: walks along several metapaths under one name, or not as many hops for each.
        DTypeError: a key that is no edge type, hops that are not all walks along a metapath.
    """
    found: Metapaths = {}
    for name, hops in num_neighbors.items():
        if not (isinstance(name, tuple) and is_edge_type(name)):
            raise DTypeError(
                "the keys of num_neighbors must be edge types (source, relation, target), here what the edges of walks "
                f"are to be called, got {name!r}"
            )
        if not isinstance(hops, tuple | list) or not hops or not all(isinstance(hop, RandomWalk) for hop in hops):
            raise DTypeError(f"num_neighbors[{name}] must be a list with a RandomWalk for each hop, as the others are")
        found[name] = _one_path(f"num_neighbors[{name}]", list(hops))
        path = found[name][0].metapath or ()
        if (name[0], name[2]) != (path[0][0], path[-1][2]):
            raise InvalidArgumentError(
                f"num_neighbors[{name}] has a metapath from {path[0][0]!r} to {path[-1][2]!r}: give it a name "
                "with these ends"
            )
    lengths = {str(name): len(hops) for name, hops in found.items()}
    if len(set(lengths.values())) > 1:
        raise InvalidArgumentError(f"num_neighbors must have as many hops for every metapath, got {lengths}")
    return found


def unnamed(walks: Sequence[RandomWalk]) -> Metapaths:
    """Walks under the name that PyG's ``AddMetaPaths`` gives to the edges that a metapath makes."""
    hops = _one_path("num_neighbors", list(walks))
    path = hops[0].metapath or ()
    return {(path[0][0], "metapath_0", path[-1][2]): hops}


def _one_path(what: str, hops: list[RandomWalk]) -> list[RandomWalk]:
    for hop, walk in enumerate(hops):
        if walk.metapath is None:
            raise InvalidArgumentError(f"{what}[{hop}] is a RandomWalk without a metapath: give it one like the others")
        if walk.metapath != hops[0].metapath:
            raise InvalidArgumentError(
                f"{what} has walks along {list(hops[0].metapath or ())} and, in hop {hop}, along "
                f"{list(walk.metapath)}: hops have one metapath. Several, each with its walks of all hops, go into a "
                "dict: num_neighbors={(source, name, target): [walk, walk], ...}"
            )
    return hops


def in_graph(metapaths: Metapaths, types: Types, inputs: Mapping[str, object]) -> None:
    """Check metapaths against the types of a graph, and of its input nodes.

    Raises:
        InvalidArgumentError: an edge type that there is not, a name that is taken, input nodes at which no walk begins.
    """
    listed = ", ".join(map(repr, types.edge_types)) or "none at all"
    for name, hops in metapaths.items():
        for i, edge_type in enumerate(hops[0].metapath or ()):
            if edge_type not in types.edge_types:
                raise InvalidArgumentError(
                    f"metapath[{i}] is {edge_type}, which the graph does not have; its edge types are {listed}"
                )
        if name in types.edge_types:
            raise InvalidArgumentError(
                f"the edges of walks are to be called {name}, which is an edge type of the graph: give another name, "
                f"num_neighbors={{({name[0]!r}, 'walks', {name[2]!r}): [...]}}"
            )
    begins = {name[2] for name in metapaths}
    for node_type in inputs:
        if node_type not in begins:
            raise InvalidArgumentError(
                f"input_nodes are of the node type {node_type!r}, where no walk begins: walks begin where their "
                f"metapath ends, here at {', '.join(map(repr, sorted(begins)))}"
            )


def places(metapaths: Metapaths, types: Types) -> list[dict[str, list[int]]]:
    """Metapaths as the library takes them: places of edge types in the order of walking, which is against the edges."""
    return [
        {"edge_types": [types.edge_types.index(edge_type) for edge_type in reversed(hops[0].metapath or ())]}
        for hops in metapaths.values()
    ]


def steps(metapaths: Metapaths) -> list[tuple[int, int, float]]:
    """The walks along metapaths, those of all hops of one after the other."""
    return [walk.step for hops in metapaths.values() for walk in hops]


def config(metapaths: Metapaths) -> list[Any]:
    """What a batch depends on, as it comes back from JSON."""
    return [
        [[list(edge_type) for edge_type in hops[0].metapath or ()], [list(walk.step) for walk in hops]]
        for hops in metapaths.values()
    ]
