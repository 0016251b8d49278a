"""Tables that learn, as arguments: which nodes their rows belong to."""

from __future__ import annotations

from typing import Any

from freshgo._args.types import Types
from freshgo.errors import InvalidArgumentError


def type_of_table(given: str | None, types: Types) -> str:
    """Return the node type that a table is given for; None: without a name.

    Raises:
        InvalidArgumentError: the graph has no such type
    """
    node_type = "" if given is None and types.homogeneous else given
    if node_type not in types.num_nodes:
        raise InvalidArgumentError(
            f"embeddings must be an Embedding in a homogeneous graph, got a dict with {given!r}"
            if types.homogeneous
            else f"embeddings must be a dict by node type, of {', '.join(map(repr, types.num_nodes))}, "
            f"got {'an Embedding' if given is None else repr(given)}"
        )
    return str(node_type)


def check_rows(rows: Any, node_type: str, types: Types) -> None:
    """Check that a table has a row for each node of a type.

    Raises:
        InvalidArgumentError: it has more or fewer
    """
    count = types.num_nodes[node_type]
    if rows.file.num_rows != count:
        raise InvalidArgumentError(
            f"the embedding {rows.file.path} has {rows.file.num_rows} rows, expected one for each of "
            f"{count} nodes{f' of type {node_type!r}' if node_type else ''}"
        )
