"""Random walks as a loader was given them: by the edge types that they make, and in which graph."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from freshgo._args.hints import among, listed
from freshgo._args.metapaths import is_edge_type
from freshgo._args.types import UNNAMED, ByRelation, EdgeType, Types
from freshgo.errors import DTypeError, InvalidArgumentError
from freshgo.samplers import RandomWalk

Walks = dict[EdgeType, list[RandomWalk]]
"""By the edge type that the walks make in a batch: those of each hop, all along one metapath. Walks without a metapath
make the unnamed edge type of a homogeneous graph."""

EXAMPLE = "RandomWalk(metapath=[('item', 'rev_buys', 'user'), ('user', 'buys', 'item')])"


def walks(num_neighbors: object) -> Walks | None:
    """Check what is given as num_neighbors, without knowing the graph. None where there are no walks.

    Raises:
        InvalidArgumentError: walks and numbers, walks along several metapaths under one name, or not as many hops for
            each.
        DTypeError: a key that is no edge type, hops that are not all walks along a metapath.
    """
    if isinstance(num_neighbors, Mapping):
        lists = (hops for hops in num_neighbors.values() if isinstance(hops, tuple | list))
        return _by_name(num_neighbors) if any(isinstance(hop, RandomWalk) for hops in lists for hop in hops) else None
    hops = list(num_neighbors) if isinstance(num_neighbors, list | tuple) else []
    found = [hop for hop in hops if isinstance(hop, RandomWalk)]
    if not found:
        return None
    if len(found) < len(hops):
        raise InvalidArgumentError(
            f"num_neighbors must be numbers or RandomWalk in all hops, got {len(found)} RandomWalk in {len(hops)} hops"
        )
    if all(walk.metapath is None for walk in found):
        return {UNNAMED: found}
    path = _one_path("num_neighbors", found)
    return {(path[0][0], "metapath_0", path[-1][2]): found}  # as PyG's AddMetaPaths names it


def _by_name(num_neighbors: Mapping[Any, Any]) -> Walks:
    """Check a mapping from names of edge types to their walks."""
    found: Walks = {}
    for name, hops in num_neighbors.items():
        if not (isinstance(name, tuple) and is_edge_type(name)):
            raise DTypeError(
                "the keys of num_neighbors must be edge types (source, relation, target), with walks the names of the "
                f"edges that they make, got {name!r}"
            )
        if not isinstance(hops, tuple | list) or not hops or not all(isinstance(hop, RandomWalk) for hop in hops):
            raise DTypeError(f"num_neighbors[{name}] must be a list with a RandomWalk for each hop, as the others are")
        path = _one_path(f"num_neighbors[{name}]", hops)
        if (name[0], name[2]) != (path[0][0], path[-1][2]):
            raise InvalidArgumentError(
                f"num_neighbors[{name}] has a metapath from {path[0][0]!r} to {path[-1][2]!r}: give it a name "
                "with these ends"
            )
        found[name] = list(hops)
    lengths = {str(name): len(hops) for name, hops in found.items()}
    if len(set(lengths.values())) > 1:
        raise InvalidArgumentError(f"num_neighbors must have as many hops for every metapath, got {lengths}")
    return found


def _one_path(what: str, hops: Sequence[RandomWalk]) -> Sequence[EdgeType]:
    """Return the metapath that all hops have."""
    path = next((walk.metapath for walk in hops if walk.metapath is not None), ())
    for hop, walk in enumerate(hops):
        if walk.metapath is None:
            raise InvalidArgumentError(
                f"{what}[{hop}] is a RandomWalk without a metapath: give it the edge types to follow, as in {EXAMPLE}"
            )
        if walk.metapath != path:
            raise InvalidArgumentError(
                f"{what} has walks along {list(path)} and, in hop {hop}, along {list(walk.metapath)}: hops have one "
                "metapath. Several, each with its walks of all hops, go into a dict: "
                "num_neighbors={(source, name, target): [walk, walk], ...}"
            )
    return path


def in_graph(walks: Walks, types: Types, inputs: Mapping[str, object] | None) -> ByRelation:
    """Check walks against the types of a graph and of its input nodes, which are None where batches are made for
    links. Return how many neighbours are kept in each hop, by the edge type that the walks make.

    Raises:
        InvalidArgumentError: no metapath where one is needed, or one where none can be; an edge type that there is
            not, a name that is taken, input nodes at which no walk begins.
    """
    if (UNNAMED in walks) != types.homogeneous:
        raise InvalidArgumentError(
            "a metapath consists of named edge types, and this graph is homogeneous: use RandomWalk without a metapath"
            if types.homogeneous
            else _without_metapath(types, inputs)
        )
    if UNNAMED not in walks:
        if inputs is None:
            raise InvalidArgumentError("a LinkLoader draws along edge types: it cannot use metapaths")
        _check_metapaths(walks, types, inputs)
    return {name: [walk.top for walk in hops] for name, hops in walks.items()}


def _without_metapath(types: Types, inputs: Mapping[str, object] | None) -> str:
    """Say what to pass: a metapath of this graph that leads from the input nodes back to them, if there is one."""
    first = next(iter(inputs), None) if inputs else None
    trips = (
        [back, there]
        for there in types.edge_types
        for back in types.edge_types
        if there[2] == first and (back[0], back[2]) == (there[2], there[0])
    )
    trip = next(trips, None)
    example = EXAMPLE if trip is None else f"RandomWalk(metapath={trip})"
    return (
        "a RandomWalk in a heterogeneous graph needs a metapath, the edge types that it follows against their "
        f"direction, such as {example}; the edge types of this graph are "
        f"{listed(types.edge_types)}"
    )


def _check_metapaths(walks: Walks, types: Types, inputs: Mapping[str, object]) -> None:
    for name, hops in walks.items():
        for i, edge_type in enumerate(hops[0].metapath or ()):
            if edge_type not in types.edge_types:
                raise InvalidArgumentError(
                    f"metapath[{i}] is {edge_type}, which the graph does not have; its edge types are "
                    f"{among(edge_type, types.edge_types)}"
                )
        if name in types.edge_types:
            raise InvalidArgumentError(
                f"{name} cannot name the edges of walks, because the graph has this edge type: give another name, "
                f"num_neighbors={{({name[0]!r}, 'walks', {name[2]!r}): [...]}}"
            )
    begins = {name[2] for name in walks}
    for node_type in inputs:
        if node_type not in begins:
            raise InvalidArgumentError(
                f"input_nodes are of the node type {node_type!r}, where no walk begins: walks begin where their "
                f"metapath ends, here at {', '.join(map(repr, sorted(begins)))}"
            )


def options(walks: Walks, types: Types) -> dict[str, Any]:
    """Return the options of the library: the walks of all hops, one edge type after the other, and their metapaths as
    places of edge types in the order of walking, which is against the edges."""
    paths = [
        {"edge_types": [types.edge_types.index(edge_type) for edge_type in reversed(hops[0].metapath or ())]}
        for hops in walks.values()
    ]
    steps = [walk.step for hops in walks.values() for walk in hops]
    return {"walks": steps, "metapaths": None if types.homogeneous else paths}


def config(walks: Walks) -> list[Any]:
    """What a batch depends on, as it comes back from JSON."""
    steps = {name: [list(walk.step) for walk in hops] for name, hops in walks.items()}
    if UNNAMED in steps:
        return steps[UNNAMED]
    paths = {name: [list(edge_type) for edge_type in hops[0].metapath or ()] for name, hops in walks.items()}
    return [[paths[name], steps[name]] for name in walks]
