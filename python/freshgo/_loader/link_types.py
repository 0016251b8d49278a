"""The edge type that links are of, and the one that leads back."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from torch import Tensor

from freshgo._args.hints import among, listed, shortened
from freshgo._args.types import UNNAMED, EdgeType, Types, reverse_names
from freshgo.errors import DTypeError, InvalidArgumentError


def split(value: object) -> tuple[tuple[str, ...] | None, Any]:
    """Return the edge type that the caller named, in the caller's words, and the links that were given beside it.

    As PyG: ``(edge type, links)``, ``(edge type, None)``, or the edge type alone for every edge of it. Links may be the
    name of a split.
    """
    if not isinstance(value, tuple | list) or not value or isinstance(value[0], Tensor | np.ndarray):
        return None, value
    if is_type(value):
        return tuple(value), None
    if isinstance(value[0], str | tuple) or is_type(value[0]):
        if len(value) != 2 or not is_type(value[0]):
            raise DTypeError(
                "edge_label_index must be edges, an edge type such as ('user', 'rates', 'item'), or both as "
                f"(edge type, edges), got {shortened(value)}"
            )
        return tuple(value[0]), value[1]
    return None, value


def is_type(value: object) -> bool:
    """Whether a value is an edge type, or the node types at its ends."""
    return isinstance(value, tuple | list) and len(value) in (2, 3) and all(isinstance(part, str) for part in value)


def find(name: str, value: Sequence[str], types: Types) -> EdgeType:
    """Return the edge type that the caller means: that of these three names, or the only one between two types."""
    if types.homogeneous:
        raise DTypeError(f"{name} as {value!r} needs a heterogeneous graph, this one is homogeneous")
    if len(value) == 3:
        found = [edge_type for edge_type in types.edge_types if edge_type == tuple(value)]
    else:
        found = [edge_type for edge_type in types.edge_types if (edge_type[0], edge_type[2]) == tuple(value)]
    if len(found) == 1:
        return found[0]
    hint = listed(types.edge_types) if found else among(tuple(value), types.edge_types)
    what = f"names {len(found)} edge types, {listed(found)}" if found else "is no edge type of the graph"
    raise InvalidArgumentError(f"{name}: {tuple(value)} {what}; it has {hint}")


def of_links(value: Sequence[str] | None, types: Types) -> EdgeType:
    """Return the edge type that links are of."""
    if value is None and types.homogeneous:
        return UNNAMED
    if value is None:
        example = types.edge_types[0]
        raise InvalidArgumentError(
            f"edge_label_index must say which edge type the links are of, as ({example}, edges), or {example} for all "
            f"edges of one; the graph has {listed(types.edge_types)}"
        )
    return find("edge_label_index", value, types)


def reverse(value: object, of: EdgeType, types: Types) -> EdgeType:
    """Return the edge type that leads back along links: the one that is named, or else PyG's ``rev_`` one.

    Where there is none of that name, edges within one node type lead back themselves.
    """
    source, relation, target = of
    if value != "reverse":
        found = find("exclude_seed_edges", value, types)  # type: ignore[arg-type]  # exclusion() has seen to it
        if (found[0], found[2]) != (target, source):
            raise InvalidArgumentError(
                f"exclude_seed_edges={found} must lead from {target!r} to {source!r}, against the links of {of}"
            )
        return found
    names = reverse_names(relation)
    for name in names:
        if (target, name, source) in types.edge_types:
            return (target, name, source)
    if source == target:
        return of
    back = [edge_type for edge_type in types.edge_types if (edge_type[0], edge_type[2]) == (target, source)]
    raise InvalidArgumentError(
        f"exclude_seed_edges='reverse' looks for {(target, names[0], source)}, which the graph does not have: name the "
        f"edge type that leads back, or give True; from {target!r} to {source!r} lead {listed(back)}, the graph has "
        f"{listed(types.edge_types)}"
    )
