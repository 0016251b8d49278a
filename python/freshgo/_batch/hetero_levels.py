"""Levels of a pruned batch of a graph with types: tables over all types, one type after the other, in their order."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from itertools import accumulate

import torch
from torch import Tensor

from freshgo._args.types import EdgeType, Types
from freshgo._batch.levels import take_block, take_tables
from freshgo._batch.structure import HeteroBlock, Levels
from freshgo.errors import DTypeError, InvalidArgumentError


@dataclasses.dataclass(eq=False, kw_only=True)
class TypedLevels(Levels):
    """Levels whose tables are of all types: of each the rows that layers compute next first. ``layers`` is empty."""

    blocks: list[HeteroBlock]
    """``blocks[l - 1]``: the message passing of layer ``l``; ``num_src`` are the rows of the table of its level."""
    nodes_of: dict[str, int]
    """Of each type, the nodes of the batch."""
    spared: dict[str, int]
    """Of each type, the rows of features that the plain batch would have brought more."""

    def features(self, x: dict[str, Tensor]) -> dict[str, Tensor]:
        """Return what the first layer reads of the features of each type."""
        read = dict(zip(self.nodes_of, self._split(self.nodes[0], self.blocks[0].num_src), strict=True))
        result = {}
        for node_type, rows in _checked(x, self.nodes_of, 0).items():
            if rows.size(0) != self.nodes_of[node_type]:
                raise InvalidArgumentError(
                    f"level 0: the batch has {self.nodes_of[node_type]} nodes of type {node_type!r}, got "
                    f"{rows.size(0)} rows: the first layer gets a row for each node of the batch"
                )
            result[node_type] = rows.index_select(0, read[node_type])
        return result

    def flatten(self, level: int, h: dict[str, Tensor]) -> Tensor:
        """Return the computed rows of a hidden level as one tensor, type after type.

        Raises:
            InvalidArgumentError, DTypeError: rows are missing, or cannot stand in one table.
        """
        computed = self.blocks[level - 1].num_dst
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

    def table(self, level: int, h: dict[str, Tensor], read: Callable[[Tensor], Tensor]) -> dict[str, Tensor]:
        """Return what the layer above a hidden level reads of each type; ``read`` puts kept rows into the table."""
        table = read(self.flatten(level, h))
        return dict(zip(self.nodes_of, self._split(table, self.blocks[level].num_src), strict=True))

    def have(self, edges: Mapping[EdgeType, Tensor]) -> bool:
        """Whether these are the edges of the batch, of all relations."""
        if edges.keys() != self.blocks[0].relations.keys():
            return False
        if not all(isinstance(index, Tensor) and index.dim() == 2 for index in edges.values()):
            return False
        if sum(index.size(1) for index in edges.values()) != self.edges:
            return False
        for nodes, block in zip(self.nodes, self.blocks, strict=True):
            of = dict(zip(self.nodes_of, self._split(nodes, block.num_src), strict=True))
            for (source, name, target), part in block.relations.items():
                index = edges[source, name, target]
                assert part.edge is not None  # as of every block of levels
                if part.num_edges and int(part.edge.max()) >= index.size(1):
                    return False
                ends = torch.stack([of[source][part.edge_index[0]], of[target][part.edge_index[1]]])
                if not torch.equal(index.index_select(1, part.edge), ends):
                    return False
        return True

    def _split(self, table: Tensor, counts: dict[str, int]) -> list[Tensor]:
        """The rows of each type: views that may be written to, which those of ``split`` may not."""
        ends = accumulate(counts.values())
        return [table.narrow(0, end - count, count) for end, count in zip(ends, counts.values(), strict=True)]


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


def take_typed_levels(types: Types, tensors: dict[str, Tensor]) -> TypedLevels | None:
    """Take the level tables out of the tensors of a batch, if it was pruned."""
    if "history_counts" not in tensors:
        return None
    counts = iter(tensors.pop("history_counts").tolist())
    iteration, loaded, plain_nodes, plain_edges = (next(counts) for _ in range(4))
    spared = {}
    for node_type in types.num_nodes:
        brought, plain = next(counts), next(counts)
        spared[node_type] = plain - brought
    sizes = list(zip(counts, counts, strict=True))
    hops = len(sizes) // len(types.num_nodes)

    levels = TypedLevels(
        index=iteration,
        edges=sum(int(tensors[f"e{i}/e_id"].numel()) for i in range(len(types.edge_types))),
        num_layers=hops,
        degree=None,
        layers=[],
        loaded=loaded,
        plain_nodes=plain_nodes,
        plain_edges=plain_edges,
        blocks=[],
        nodes_of={node_type: tensors[f"n{i}/n_id"].numel() for i, node_type in enumerate(types.num_nodes)},
        spared=spared,
        **take_tables(tensors, hops),
    )
    for level in range(hops):
        of_types = sizes[level * len(types.num_nodes) : (level + 1) * len(types.num_nodes)]
        num_src, num_dst = (dict(zip(types.num_nodes, column, strict=True)) for column in zip(*of_types, strict=True))
        relations = {
            edge_type: take_block(tensors, level, num_src[edge_type[0]], prefix=f"e{i}/")
            for i, edge_type in enumerate(types.edge_types)
        }
        levels.blocks.append(HeteroBlock(num_src, num_dst, relations, level, levels))
    return levels
