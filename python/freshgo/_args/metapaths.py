"""Metapaths: what a list of edge types must be to be walked along."""

from __future__ import annotations

from itertools import pairwise

from freshgo._args.types import EdgeType
from freshgo.errors import DTypeError, InvalidArgumentError


def is_edge_type(value: object) -> bool:
    return isinstance(value, tuple | list) and len(value) == 3 and all(isinstance(part, str) for part in value)


def check_metapath(value: object, length: int) -> tuple[EdgeType, ...]:
    """Return a metapath that can be walked ``length`` times.

    Raises:
        InvalidArgumentError: it has no edge types, does not connect, or does not come back where it has to.
        DTypeError: it is no list of edge types.
    """
    if not isinstance(value, tuple | list) or isinstance(value, str):
        raise DTypeError(f"metapath must be a list of edge types (source, relation, target), got {value!r}")
    if not value:
        raise InvalidArgumentError("metapath must have at least one edge type, got none")
    for i, edge_type in enumerate(value):
        if not is_edge_type(edge_type):
            raise DTypeError(f"metapath[{i}] must be an edge type (source, relation, target), got {edge_type!r}")
    path: tuple[EdgeType, ...] = tuple((source, relation, target) for source, relation, target in value)
    for i, (edge_type, after) in enumerate(pairwise(path)):
        if edge_type[2] != after[0]:
            raise InvalidArgumentError(
                f"metapath does not connect: metapath[{i}] = {edge_type} ends at {edge_type[2]!r}, and "
                f"metapath[{i + 1}] = {after} begins at {after[0]!r}"
            )
    if length > 1 and path[0][0] != path[-1][2]:
        raise InvalidArgumentError(
            f"metapath begins at {path[0][0]!r} and ends at {path[-1][2]!r}, so it can be walked once and not "
            f"length={length} times: give length=1, or a metapath that ends where it begins"
        )
    return path
