"""Takes blocks and levels out of the tensors of a native batch that history has pruned."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from freshgo._args.named import TRANSPOSED
from freshgo._args.types import Types
from freshgo._batch.structure import Block, HeteroBlock, Known, Levels, Transposed, remember


def take_transposed(tensors: dict[str, Tensor], prefix: str = "", suffix: str = "") -> Transposed | None:
    """Take a graph grouped by source out of the tensors of a batch, if it is there."""
    names = [f"{prefix}{name}{suffix}" for name in TRANSPOSED]
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


def take_block(tensors: dict[str, Tensor], level: int, num_src: int, prefix: str, levels: Levels) -> Block:
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


def take_levels(tensors: dict[str, Tensor], types: Types) -> Levels | None:
    """Take the level tables out of the tensors of a batch, if it was pruned."""
    if "history_counts" not in tensors:
        return None
    node_types = types.node_types
    prefixes = {edge_type: types.edge_name(i, "") for i, edge_type in enumerate(types.edge_types)}
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
        edges=sum(int(tensors[f"{prefix}e_id"].numel()) for prefix in prefixes.values()),
        num_layers=hops,
        degree=tensors.pop("history_degree", None),
        loops=tensors.pop("history_loops", None),
        loaded=loaded,
        plain_nodes=plain_nodes,
        plain_edges=plain_edges,
        blocks=[],
        nodes_of={name: tensors[types.node_name(i, "n_id")].numel() for i, name in enumerate(node_types)},
        spared=spared,
        **take_tables(tensors, hops),
    )
    for level in range(hops):
        of_types = sizes[level * len(node_types) : (level + 1) * len(node_types)]
        num_src, num_dst = (dict(zip(node_types, column, strict=True)) for column in zip(*of_types, strict=True))
        relations = {
            edge_type: take_block(tensors, level, num_src[edge_type[0]], prefix, levels)
            for edge_type, prefix in prefixes.items()
        }
        levels.blocks.append(HeteroBlock(num_src, num_dst, relations, level, levels))
    return levels
