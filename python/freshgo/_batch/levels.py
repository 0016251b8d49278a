"""Takes blocks and levels out of the tensors of a native batch that history has pruned."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from torch import Tensor

from freshgo._args.types import UNNAMED, EdgeType
from freshgo._batch.structure import Block, HeteroBlock, Known, Levels, Transposed, remember


def take_transposed(tensors: dict[str, Tensor], prefix: str = "", suffix: str = "") -> Transposed | None:
    """Take a graph grouped by source out of the tensors of a batch, if it is there."""
    names = [f"{prefix}{name}{suffix}" for name in ("source_ptr", "source_target", "source_edge")]
    return Transposed(*(tensors.pop(name) for name in names)) if names[0] in tensors else None


def take_tables(tensors: dict[str, Tensor], hops: int) -> dict[str, Any]:
    """Take the tables of all levels out of the tensors of a pruned batch, by the names of :class:`Levels`."""

    def of_levels(what: str, first: int) -> list[Any]:
        return [tensors.pop(f"history_{what}_{level}", None) if level >= first else None for level in range(hops)]

    tables: dict[str, Any] = {"nodes": of_levels("nodes", 0)}
    for name in ("computed", "hit", "slot"):
        tables[name] = of_levels(name, 1)
    for name in ("probe", "probe_slot", "probe_age"):
        rows = of_levels(name, 1)
        tables[name] = rows if any(of is not None for of in rows) else None
    return tables


def take_block(
    tensors: dict[str, Tensor], level: int, num_src: int, *, prefix: str = "", levels: Levels | None = None
) -> Block:
    """Take the message passing from a level, of the relation whose tensors have a prefix, out of those of a batch."""
    names = (f"{prefix}history_{name}_{level + 1}" for name in ("ptr", "edge_index", "edge"))
    ptr, edge_index, edge = (tensors.pop(name) for name in names)
    transposed = take_transposed(tensors, f"{prefix}history_", f"_{level + 1}")
    remember(edge_index, Known(edge_index, ptr, transposed, {edge_index.size(1): ptr.numel() - 1}))
    return Block(
        num_src=num_src,
        num_dst=ptr.numel() - 1,
        ptr=ptr,
        edge_index=edge_index,
        e_id=tensors[f"{prefix}e_id"].index_select(0, edge),
        transposed=transposed,
        edge=edge,
        level=level,
        levels=levels,
    )


def take_levels(tensors: dict[str, Tensor], node_types: Sequence[str], edge_types: Sequence[EdgeType]) -> Levels | None:
    """Take the level tables out of the tensors of a batch, if it was pruned."""
    if "history_counts" not in tensors:
        return None
    node_prefixes, edge_prefixes = _prefixes("n", node_types), _prefixes("e", edge_types)
    counts = iter(tensors.pop("history_counts").tolist())
    iteration, loaded, plain_nodes, plain_edges = (next(counts) for _ in range(4))
    spared = {}
    for node_type in node_types:
        brought, plain = next(counts), next(counts)
        spared[node_type] = plain - brought
    sizes = list(zip(counts, counts, strict=True))
    hops = len(sizes) // len(node_types)

    levels = Levels(
        index=iteration,
        edges=sum(int(tensors[f"{prefix}e_id"].numel()) for prefix in edge_prefixes),
        num_layers=hops,
        degree=tensors.pop("history_degree", None),
        loops=tensors.pop("history_loops", None),
        loaded=loaded,
        plain_nodes=plain_nodes,
        plain_edges=plain_edges,
        blocks=[],
        nodes_of={
            node_type: tensors[f"{prefix}n_id"].numel()
            for node_type, prefix in zip(node_types, node_prefixes, strict=True)
        },
        spared=spared,
        **take_tables(tensors, hops),
    )
    for level in range(hops):
        of_types = sizes[level * len(node_types) : (level + 1) * len(node_types)]
        num_src, num_dst = (dict(zip(node_types, column, strict=True)) for column in zip(*of_types, strict=True))
        relations = {
            # Of a homogeneous graph blocks are given to history one by one.
            edge_type: take_block(
                tensors, level, num_src[edge_type[0]], prefix=prefix, levels=None if levels.named else levels
            )
            for edge_type, prefix in zip(edge_types, edge_prefixes, strict=True)
        }
        levels.blocks.append(HeteroBlock(num_src, num_dst, relations, level, levels))
    return levels


def _prefixes(kind: str, types: Sequence[object]) -> list[str]:
    """What the names of the tensors of each type begin with."""
    return [""] if types[0] in (UNNAMED, UNNAMED[0]) else [f"{kind}{i}/" for i in range(len(types))]
