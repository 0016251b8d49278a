"""A batch layer by layer, and type by type: a homogeneous graph has one unnamed node type and edge type."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from freshgo._args.types import UNNAMED, EdgeType
from freshgo._batch.structure import Block, HeteroBlock, Levels, Part, carry, first_in, recall
from freshgo.errors import InvalidArgumentError


class Attributes:
    """Values under names, as PyG's data classes have them: attributes, items and pairs of an iteration."""

    _of = ""
    """What has the names, in messages."""

    def __init__(self, **values: Any) -> None:
        self.__dict__.update(values)

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"the batch has no {name!r}{self._of}, only {', '.join(self.__dict__)}")

    def __getitem__(self, name: str) -> Any:
        return self.__dict__[name]

    def __contains__(self, name: str) -> bool:
        return name in self.__dict__

    def __iter__(self) -> Iterator[tuple[str, Any]]:
        return iter(self.__dict__.items())

    def keys(self) -> list[str]:
        """Return the names of the attributes."""
        return list(self.__dict__)

    def __repr__(self) -> str:
        parts = (f"{name}={list(value.shape) if isinstance(value, Tensor) else value}" for name, value in self)
        return f"{type(self).__name__}({', '.join(parts)})"


class Blocks:
    """Gives a batch its per-layer view; see :meth:`blocks`. The attributes are declared for type checkers and editors;
    ``x``, ``y`` and other tensors are there if the graph has them."""

    x: Tensor
    """``[num_nodes, columns]``: the rows of the nodes."""
    y: Tensor
    """The labels of the nodes."""
    edge_index: Tensor
    """int64 ``[2, num_edges]``: row 0 the source, row 1 the target."""
    n_id: Tensor
    """int64 ``[num_nodes]``: the user's numbers, the input nodes first."""
    e_id: Tensor
    """int64 ``[num_edges]``: the user's numbers of the edges; not with ``return_edge_id=False``."""
    input_id: Tensor
    """int64 ``[batch_size]``: the positions of the input nodes in ``input_nodes``; their numbers if that is a mask."""
    batch_size: int
    num_nodes: int
    num_sampled_nodes: list[int]
    """The input nodes, then the new nodes of each hop."""
    num_sampled_edges: list[int]
    """The edges of each hop."""

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
        return [block.relations[UNNAMED] for block in _blocks(self, "edge_index")]


class HeteroBlocks:
    """Gives a batch of a heterogeneous graph its per-layer view; see :meth:`blocks`. The attributes are declared for
    type checkers and editors."""

    x_dict: dict[str, Tensor]
    edge_index_dict: dict[EdgeType, Tensor]

    def blocks(self) -> list[HeteroBlock]:
        """Return one bipartite :class:`HeteroBlock` per layer, in the order a model applies them.

        As :meth:`Batch.blocks <freshgo.batch.Blocks.blocks>`, for all types at once::

            h = batch.x_dict
            for conv, block in zip(model.convs, batch.blocks()):
                h = conv(block.pairs(h), block.edge_index_dict)  # a HeteroConv

        With a :class:`~freshgo.History` each layer begins with ``h = history(h, block)``.

        Raises:
            InvalidArgumentError: the batch is of another ``subgraph_type`` than ``"directional"``.
        """
        return _blocks(self, "edge_index_dict")


def parts_of(batch: Any) -> dict[Any, Any]:
    """Return what a batch has of each type, node types first; that of a homogeneous graph has all of it itself."""
    if not isinstance(batch, HeteroBlocks):
        return {UNNAMED[0]: batch, UNNAMED: batch}
    types: Any = batch
    return {key: types[key] for key in (*types.node_types, *types.edge_types)}


def edges_of(batch: Any) -> dict[EdgeType, Tensor]:
    """Return the edges of every relation, each with the levels of the batch."""
    parts = parts_of(batch).items()
    return {key: part["edge_index"] for key, part in parts if isinstance(key, tuple) and "edge_index" in part}


def levels_of(batch: Any) -> Levels | None:
    """Return the levels of a batch that history has pruned."""
    edge_index = next(iter(edges_of(batch).values()), None)
    known = None if edge_index is None else recall(edge_index)
    return None if known is None else known.levels


def carry_edges(before: Mapping[EdgeType, Tensor], batch: Any) -> None:
    """Let a batch that was moved know the levels that it had, and what stands for its first layer."""
    parts = parts_of(batch)
    carry(
        (before[key], after, first_in(before[key], parts[key], parts[key[2]], parts[key[0]]))
        for key, after in edges_of(batch).items()
        if key in before
    )


def _blocks(batch: Any, edges: str) -> list[HeteroBlock]:
    """The blocks of a batch, whose edges are an attribute of this name."""
    levels = levels_of(batch)
    if levels is not None:
        return list(levels.blocks)
    parts = parts_of(batch)
    relations = {key: part for key, part in parts.items() if isinstance(key, tuple)}
    try:
        nodes = {key: part["num_sampled_nodes"] for key, part in parts.items() if isinstance(key, str)}
        hops = {key: part["num_sampled_edges"] for key, part in relations.items()}
    except KeyError:
        raise InvalidArgumentError(
            "blocks() needs num_sampled_nodes and num_sampled_edges, which batches of subgraph_type='directional' "
            f"have: compute every layer on the whole batch, with batch.{edges}"
        ) from None
    ptr = {key: _pointers(part, sum(nodes[key[2]][:-1])) for key, part in relations.items()}
    blocks = []
    for hop in reversed(range(len(next(iter(hops.values()))))):
        num_src, num_dst = ({key: sum(counts[: hop + k]) for key, counts in nodes.items()} for k in (2, 1))
        of_hop = {
            key: _block(part, num_src[key[0]], num_dst[key[2]], sum(hops[key][: hop + 1]), ptr[key])
            for key, part in relations.items()
        }
        blocks.append(HeteroBlock(num_src, num_dst, of_hop))
    return blocks


def _block(part: Any, num_src: int, num_dst: int, num_edges: int, ptr: Tensor) -> Block:
    """The message passing over the first edges of a relation, to its first targets."""
    known = recall(part["edge_index"])
    return Block(
        num_src=num_src,
        num_dst=num_dst,
        ptr=ptr[: num_dst + 1],
        edge_index=part["edge_index"][:, :num_edges],
        e_id=_first_rows(part, "e_id", num_edges),
        edge_weight=_first_rows(part, "edge_weight", num_edges),
        transposed=None if known is None else known.transposed,
    )


def _first_rows(part: Part, name: str, count: int) -> Tensor | None:
    if name not in part:
        return None
    rows: Tensor = part[name]
    return rows[:count]


def _pointers(part: Part, targets: int) -> Tensor:
    """Where the edges of each target begin, and where they end."""
    edge_index: Tensor = part["edge_index"]
    known = recall(edge_index)
    if known is not None and known.ptr is not None:
        return known.ptr
    # Targets do not decrease, so a binary search finds where each one's edges begin.
    return torch.searchsorted(edge_index[1].contiguous(), torch.arange(targets + 1, device=edge_index.device))
