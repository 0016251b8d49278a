"""What a loader yields: a sampled subgraph with its rows."""

from __future__ import annotations

import dataclasses
import importlib.util
from collections.abc import Iterator
from itertools import accumulate
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from freshgo._graph import Known, Transposed, carry, recall, remember
from freshgo.errors import InvalidArgumentError

if TYPE_CHECKING:
    from freshgo._history import Levels


@dataclasses.dataclass(frozen=True)
class Block:
    """One layer's message passing, from ``num_src`` nodes to the first ``num_dst`` of them.

    The targets of a block are its first ``num_dst`` sources. Both ends are numbered as in the batch, so that the
    sources of the next block are the targets of this one; in a batch that a :class:`~freshgo.History` has pruned they
    are rows of levels, which ``history(h, block)`` gives.
    """

    num_src: int
    num_dst: int
    ptr: Tensor
    """int64 ``[num_dst + 1]``: the edges of target ``t`` are ``ptr[t]`` to ``ptr[t + 1]`` (CSC)."""
    edge_index: Tensor
    """int64 ``[2, num_edges]``: row 0 the source, row 1 the target; targets do not decrease."""
    e_id: Tensor | None
    """int64 ``[num_edges]``: the user's edge numbers; None of random walks, whose edges are not the graph's."""
    transposed: Transposed | None = None
    """The batch's edges grouped by source, of which :mod:`freshgo.ops` uses this block's; from ``transpose=True``."""
    edge: Tensor | None = None
    """int64 ``[num_edges]``: the block's edges among the batch's, where they are not its first ones: with history."""
    level: int = 0
    """With history, which level of the batch the sources are: 0 are features."""
    levels: Levels | None = None
    """With history, the levels of the batch."""
    edge_weight: Tensor | None = None
    """float32 ``[num_edges]``: what LABOR and random walks say of each edge; None of other samplers."""

    @property
    def index(self) -> Tensor:
        """int64 ``[num_edges]``: the source of each edge, as CSC wants it beside ``ptr``."""
        return self.edge_index[0]

    @property
    def num_edges(self) -> int:
        """The number of edges in this block."""
        return self.edge_index.size(1)


class Blocks:
    """Gives a batch its per-layer view; see :meth:`blocks`."""

    edge_index: Tensor
    num_sampled_nodes: list[int]
    num_sampled_edges: list[int]

    def blocks(self) -> list[Block]:
        """Return one bipartite :class:`Block` per layer, in the order a model applies them.

        The first block leads from all sampled nodes to those that later layers still need, the
        last one ends at the seeds. Computing each layer only on its block gives the seeds the
        same result as computing every layer on the whole batch, for less work::

            h = batch.x
            for conv, block in zip(model.convs, batch.blocks()):
                h = conv((h, h[: block.num_dst]), block.edge_index)

        With a :class:`~freshgo.History` each layer begins with ``h = history(h, block)``.

        Raises:
            InvalidArgumentError: the batch is of another ``subgraph_type`` than ``"directional"``, whose edges are not
                those of hops. Every layer is then computed on the whole batch.
        """
        levels = getattr(recall(self.edge_index), "levels", None)
        if levels is not None:
            return list(levels.layers)
        if not hasattr(self, "num_sampled_edges"):
            raise InvalidArgumentError(
                "blocks() needs num_sampled_nodes and num_sampled_edges, which batches of subgraph_type='directional' "
                "have: compute every layer on the whole batch, with batch.edge_index"
            )
        targets = sum(self.num_sampled_nodes[:-1])
        known = recall(self.edge_index)
        if known is not None and known.ptr is not None:
            ptr = known.ptr
        else:  # Targets do not decrease, so a binary search finds where each one's edges begin.
            ptr = torch.searchsorted(
                self.edge_index[1].contiguous(),
                torch.arange(targets + 1, device=self.edge_index.device),
            )
        e_id, edge_weight = (getattr(self, name, None) for name in ("e_id", "edge_weight"))
        blocks = []
        for hop in reversed(range(len(self.num_sampled_edges))):
            num_dst = sum(self.num_sampled_nodes[: hop + 1])
            num_edges = sum(self.num_sampled_edges[: hop + 1])
            blocks.append(
                Block(
                    num_src=num_dst + self.num_sampled_nodes[hop + 1],
                    num_dst=num_dst,
                    ptr=ptr[: num_dst + 1],
                    edge_index=self.edge_index[:, :num_edges],
                    e_id=None if e_id is None else e_id[:num_edges],
                    edge_weight=None if edge_weight is None else edge_weight[:num_edges],
                    transposed=None if known is None else known.transposed,
                )
            )
        return blocks


class Batch(Blocks):
    """A batch where PyG is not installed: the same attributes, without PyG's methods.

    Attributes are ``n_id``, ``edge_index``, ``e_id``, ``input_id``, ``batch_size``, ``num_nodes``,
    ``num_sampled_nodes``, ``num_sampled_edges`` and every node-level and edge-level tensor of the
    graph. ``batch["x"]`` is ``batch.x``; iterating gives ``(name, value)`` pairs.
    """

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the batch has no {name!r}, only {', '.join(self.__dict__)}")

    def __getitem__(self, name: str) -> Any:
        return self.__dict__[name]

    def __contains__(self, name: str) -> bool:
        return name in self.__dict__

    def keys(self) -> list[str]:
        """Return the names of the attributes."""
        return list(self.__dict__)

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return iter(self.__dict__.items())

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Batch:
        """Return a batch whose tensors are on ``device``."""
        moved = Batch(
            **{
                name: value.to(device, non_blocking=non_blocking) if isinstance(value, Tensor) else value
                for name, value in self
            }
        )
        carry([(self.edge_index, moved.edge_index)])
        return moved

    def __repr__(self) -> str:
        parts = (f"{name}={list(value.shape) if isinstance(value, Tensor) else value}" for name, value in self)
        return f"Batch({', '.join(parts)})"


def batch_class() -> type[Any]:
    """Return what batches are made of: PyG's Data with ``blocks()``, or :class:`Batch`."""
    if importlib.util.find_spec("torch_geometric") is None:
        return Batch
    from freshgo.pyg import Data

    return Data


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
    from freshgo._history import Levels

    iteration, loaded, plain_nodes, plain_edges = tensors.pop("history_counts").tolist()
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


def make_batch(cls: type[Any], num_seeds: int, tensors: dict[str, Tensor], edge_index: str = "tensor") -> Any:
    """Arrange the tensors of a native batch as PyG does."""
    ptr = tensors.pop("ptr")  # stays beside edge_index, as long as that is the tensor it is now
    transposed = take_transposed(tensors)
    if edge_index == "EdgeIndex":
        from freshgo.pyg import make_edge_index

        num_nodes = tensors["n_id"].numel()
        tensors["edge_index"] = make_edge_index(tensors["edge_index"], (num_nodes, num_nodes), ptr, transposed)
    levels = take_levels(tensors) if "history_counts" in tensors else None
    values: dict[str, Any] = dict(tensors)
    ends = {tensors["edge_index"].size(1): ptr.numel() - 1}
    if "num_sampled_edges" in values:  # its edges are those of hops
        for counts in ("num_sampled_nodes", "num_sampled_edges"):
            values[counts] = values[counts].tolist()
        ends = dict(zip(accumulate(values["num_sampled_edges"]), accumulate(values["num_sampled_nodes"]), strict=False))
    remember(tensors["edge_index"], Known(tensors["edge_index"], ptr, transposed, ends, levels))
    return cls(batch_size=num_seeds, num_nodes=tensors["n_id"].numel(), **values)
