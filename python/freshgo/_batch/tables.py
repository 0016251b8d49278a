"""Rows of the levels of a pruned batch by node type: those of a table are of one node type after the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import accumulate

import torch
from torch import Tensor

from freshgo._args.types import EdgeType
from freshgo._batch.structure import Levels
from freshgo.errors import DTypeError, InvalidArgumentError


def features(levels: Levels, x: dict[str, Tensor]) -> dict[str, Tensor]:
    """Return what the first layer reads of the features of each type."""
    read = dict(zip(levels.nodes_of, _split(levels.nodes[0], levels.blocks[0].num_src), strict=True))
    result = {}
    for node_type, rows in _checked(x, levels.nodes_of, 0).items():
        if rows.size(0) != levels.nodes_of[node_type]:
            raise InvalidArgumentError(
                f"level 0: the batch has {levels.nodes_of[node_type]} nodes of type {node_type!r}, got "
                f"{rows.size(0)} rows: the first layer gets a row for each node of the batch"
            )
        result[node_type] = rows.index_select(0, read[node_type])
    return result


def flatten(levels: Levels, level: int, h: dict[str, Tensor]) -> Tensor:
    """Return the computed rows of a hidden level as one tensor, type after type.

    Raises:
        InvalidArgumentError, DTypeError: rows are missing, or cannot stand in one table.
    """
    computed = levels.blocks[level - 1].num_dst
    given = _checked(h, computed, level)
    for node_type, count in computed.items():
        rows = given.get(node_type)
        if count != (0 if rows is None else rows.size(0)):
            raise InvalidArgumentError(
                f"level {level}: layer {level} computes {count} rows of node type {node_type!r} of this batch, got "
                f"{'none' if rows is None else rows.size(0)}: each layer must get the rows that the one before it "
                "returned, of all types that it has rows of, and no others"
            )
    if not given:
        raise InvalidArgumentError(f"level {level}: expected rows by node type, got an empty dict")
    parts = [given[node_type] for node_type in computed if node_type in given]
    parts = [part for part in parts if part.size(0)] or parts[:1]
    if len({part.size(1) for part in parts}) > 1:
        raise InvalidArgumentError(
            f"level {level}: the node types must have one width in a hidden layer to share a history's buffer, got "
            f"{ {node_type: part.size(1) for node_type, part in given.items()} }"
        )
    if len({part.dtype for part in parts}) > 1:
        raise DTypeError(
            f"level {level}: the node types must have one dtype in a hidden layer to share a history's buffer, got "
            f"{ {node_type: str(part.dtype) for node_type, part in given.items()} }"
        )
    return torch.cat(parts)


def table(levels: Levels, level: int, h: dict[str, Tensor], read: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
    """Return what the layer above a hidden level reads of each type; ``read`` puts kept rows into the table."""
    rows = read(flatten(levels, level, h))
    return dict(zip(levels.nodes_of, _split(rows, levels.blocks[level].num_src), strict=True))


def may_have(levels: Levels, edges: Mapping[EdgeType, Tensor]) -> bool:
    """Whether these are as many edges as the batch has, of all edge types."""
    if edges.keys() != levels.blocks[0].relations.keys():
        return False
    if not all(isinstance(index, Tensor) and index.dim() == 2 for index in edges.values()):
        return False
    return sum(index.size(1) for index in edges.values()) == levels.edges


def have(levels: Levels, edges: Mapping[EdgeType, Tensor]) -> bool:
    """Whether these edges, which :func:`may_have` has accepted, are those of the batch."""
    for nodes, block in zip(levels.nodes, levels.blocks, strict=True):
        of = dict(zip(levels.nodes_of, _split(nodes, block.num_src), strict=True))
        for (source, name, target), part in block.relations.items():
            index = edges[source, name, target]
            assert part.edge is not None  # as of every block of levels
            if part.num_edges and int(part.edge.max()) >= index.size(1):
                return False
            ends = torch.stack([of[source][part.edge_index[0]], of[target][part.edge_index[1]]])
            if not torch.equal(index.index_select(1, part.edge), ends):
                return False
    return True


def _split(table: Tensor, counts: dict[str, int]) -> list[Tensor]:
    """The rows of each type: views that may be written to, which those of ``split`` may not."""
    ends = accumulate(counts.values())
    return [table.narrow(0, end - count, count) for end, count in zip(ends, counts.values(), strict=True)]


def places(levels: Levels, level: int, rows: Tensor) -> Tensor:
    """Return which nodes of the batch some rows of a table are, with the nodes of one type after those of another."""
    sources = levels.blocks[level].num_src
    first = torch.tensor([0, *levels.nodes_of.values()]).cumsum(0)[:-1]
    of_type = first.repeat_interleave(torch.tensor(list(sources.values())))
    rows = rows.cpu()
    return levels.nodes[level].cpu()[rows] + of_type[rows]


def _checked(h: object, types: dict[str, int], level: int) -> dict[str, Tensor]:
    if not isinstance(h, dict) or not all(isinstance(rows, Tensor) and rows.dim() == 2 for rows in h.values()):
        raise DTypeError(f"level {level}: expected a dict of rows [rows, columns] by node type, got {_short(h)}")
    unknown = [node_type for node_type in h if node_type not in types]
    if unknown:
        raise InvalidArgumentError(
            f"level {level}: the graph has the node types {', '.join(map(repr, types))}, got rows of {unknown[0]!r}"
        )
    return h


def _short(h: object) -> str:
    if not isinstance(h, dict):
        return type(h).__name__
    return str({key: list(rows.shape) if isinstance(rows, Tensor) else type(rows).__name__ for key, rows in h.items()})
