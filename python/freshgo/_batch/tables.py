"""Rows of the levels of a pruned batch by node type: those of a table are of one node type after the other."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import accumulate

import torch
from torch import Tensor

from freshgo._args.hints import among
from freshgo._args.types import UNNAMED, EdgeType, of_type
from freshgo._batch.structure import Levels
from freshgo.errors import DTypeError, InvalidArgumentError

NOT_ATTACHED = (
    "the batch has node types: attach(model, layers=[...]) with layers over all of them, which are called with a "
    "dict of rows and a dict of edges, or call h = history(h, block) before every layer of batch.blocks()"
)


def checked(levels: Levels, level: int, h: object) -> Mapping[str, Tensor]:
    """Return rows by node type that were given to a layer, if that is what they are.

    Raises:
        InvalidArgumentError, DTypeError: they are not.
    """
    if not isinstance(h, Mapping) or not all(isinstance(rows, Tensor) for rows in h.values()):
        expected = "a dict of rows [rows, columns] by node type" if levels.named else "rows of shape [rows, columns]"
        raise DTypeError(f"level {level}: expected {expected}, got {_short(h)}")
    for node_type, rows in h.items():
        if node_type not in levels.nodes_of:
            if node_type == UNNAMED[0]:
                raise InvalidArgumentError(NOT_ATTACHED)
            known = among(node_type, levels.nodes_of)
            raise InvalidArgumentError(
                f"level {level}: got rows of {node_type!r}, the graph has the node types {known}"
            )
        if rows.dim() != 2:
            raise InvalidArgumentError(
                f"level {level}: expected rows{of_type(node_type)} of shape [rows, columns], got {list(rows.shape)}"
            )
    return h


def features(levels: Levels, x: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return what the first layer reads of the features of each type, which are :func:`checked`; where that layer is
    precomputed, what the second reads of its rows, which are no others."""
    if levels.first_bytes is not None:
        check_whole(levels, 0, x)
        return dict(x)
    result = {}
    for node_type, table in read_of(levels).items():
        if node_type not in x:
            continue
        rows, nodes = x[node_type], levels.nodes_of[node_type]
        if rows.size(0) != nodes:
            raise InvalidArgumentError(
                f"level 0: the first layer gets a row for each node of the batch, expected {nodes} "
                f"rows{of_type(node_type)}, got {rows.size(0)}"
            )
        result[node_type] = rows if table is None else rows.index_select(0, table)
    return result


def read_of(levels: Levels) -> dict[str, Tensor | None]:
    """Return which nodes of the batch are in the table of level 0, by node type; None: all in their order, as where no
    layer has hits."""
    read: dict[str, Tensor | None] = {}
    hits = any(hit is not None and hit.numel() for hit in levels.hit)
    for node_type, table in split(levels, 0, levels.nodes[0]).items():
        nodes = levels.nodes_of[node_type]
        read[node_type] = table if hits or table.numel() < nodes else None
    return read


def unread(levels: Levels) -> dict[str, Tensor]:
    """Return a mask of the nodes of the batch whose rows are not read, which are zeros, by the node types that have
    such."""
    masks = {}
    for node_type, read in split(levels, 0, levels.nodes[0].cpu()).items():
        if levels.spared[node_type]:
            mask = masks[node_type] = torch.ones(levels.nodes_of[node_type], dtype=torch.bool)
            mask[read] = False
            mask[: levels.blocks[-1].num_dst[node_type]] = False
    return masks


def flatten(levels: Levels, level: int, h: Mapping[str, Tensor]) -> Tensor:
    """Return the computed rows of a hidden level, which are :func:`checked`, as one tensor, type after type.

    Raises:
        InvalidArgumentError, DTypeError: rows are missing, or cannot stand in one table.
    """
    computed = levels.blocks[level - 1].num_dst
    for node_type, count in computed.items():
        got = h[node_type].size(0) if node_type in h else None
        if (got or 0) != count:
            raise InvalidArgumentError(
                f"level {level}: layer {level} computes {count} rows{of_type(node_type)} of this batch, got "
                f"{'none' if got is None else got}: each layer must get all rows that the one before it returned, and "
                "no others"
            )
    if not h:
        raise InvalidArgumentError(f"level {level}: expected rows by node type, got an empty dict")
    parts = [h[node_type] for node_type in computed if node_type in h]
    parts = [part for part in parts if part.size(0)] or parts[:1]
    if len({part.size(1) for part in parts}) > 1:
        raise InvalidArgumentError(
            f"level {level}: the node types must have one width in a hidden layer to share a history's buffer, got "
            f"{ {node_type: part.size(1) for node_type, part in h.items()} }"
        )
    if len({part.dtype for part in parts}) > 1:
        raise DTypeError(
            f"level {level}: the node types must have one dtype in a hidden layer to share a history's buffer, got "
            f"{ {node_type: str(part.dtype) for node_type, part in h.items()} }"
        )
    return parts[0] if len(parts) == 1 else torch.cat(parts)


def check_whole(levels: Levels, level: int, h: Mapping[str, Tensor]) -> None:
    """Raise an error if rows, which are :func:`checked`, are not those of a level's whole table.

    Raises:
        InvalidArgumentError: there are more or fewer.
    """
    for node_type, count in levels.blocks[level].num_src.items():
        got = h[node_type].size(0) if node_type in h else 0
        if got != count and (node_type in h or count):
            raise InvalidArgumentError(
                f"level {level}: layer {level + 1} reads {count} rows{of_type(node_type)} of this batch, got {got}: "
                "each layer must get all rows that the one before it returned, and no others"
            )


def split(levels: Levels, level: int, table: Tensor) -> dict[str, Tensor]:
    """Return the rows of each type of a level's table: views that may be written to, which those of ``torch.split`` may
    not."""
    counts = levels.blocks[level].num_src
    if len(counts) == 1:
        return dict.fromkeys(counts, table)
    ends = accumulate(counts.values())
    return {t: table.narrow(0, end - count, count) for end, (t, count) in zip(ends, counts.items(), strict=True)}


def may_have(levels: Levels, edges: Mapping[EdgeType, Tensor]) -> bool:
    """Whether these are as many edges as the batch has, of all edge types."""
    if edges.keys() != levels.blocks[0].relations.keys():
        return False
    if not all(isinstance(index, Tensor) and index.dim() == 2 for index in edges.values()):
        return False
    return sum(index.size(1) for index in edges.values()) == levels.edges


def have(levels: Levels, edges: Mapping[EdgeType, Tensor]) -> bool:
    """Whether these edges, which :func:`may_have` has accepted, are those of the batch."""
    for level, block in enumerate(levels.blocks):
        of = split(levels, level, levels.nodes[level])
        for (source, name, target), part in block.relations.items():
            index = edges[source, name, target]
            assert part.edge is not None  # as of every block of levels
            if part.num_edges and int(part.edge.max()) >= index.size(1):
                return False
            ends = torch.stack([of[source][part.edge_index[0]], of[target][part.edge_index[1]]])
            if not torch.equal(index.index_select(1, part.edge), ends):
                return False
    return True


def _short(h: object) -> str:
    """What came in the place of rows by node type."""
    if not isinstance(h, Mapping):
        return type(h).__name__
    if len(h) == 1 and UNNAMED[0] in h:
        return type(h[UNNAMED[0]]).__name__
    return str({key: list(rows.shape) if isinstance(rows, Tensor) else type(rows).__name__ for key, rows in h.items()})
