"""Takes blocks and levels out of the tensors of a native batch that history has pruned."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from freshgo._batch.structure import Block, Known, Levels, Transposed, remember


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


def take_levels(tensors: dict[str, Tensor]) -> Levels:
    """Take the level tables out of the tensors of a pruned batch."""
    iteration, loaded, plain_nodes, plain_edges = tensors.pop("history_counts").tolist()[:4]  # the rest is by type
    hops = tensors["num_sampled_edges"].numel()

    levels = Levels(
        index=iteration,
        edges=int(tensors["e_id"].numel()),
        num_layers=hops,
        degree=tensors.pop("history_degree"),
        loops=tensors.pop("history_loops", None),
        layers=[],
        loaded=loaded,
        plain_nodes=plain_nodes,
        plain_edges=plain_edges,
        **take_tables(tensors, hops),
    )
    for level in range(hops):
        levels.layers.append(take_block(tensors, level, levels.nodes[level].numel(), levels=levels))
    return levels
