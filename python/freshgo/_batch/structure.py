"""What is known about the graph of a batch: its edges grouped by target and by source, its blocks, its levels.

It is kept beside the tensor ``edge_index``, and is light enough to come with every batch.

Levels are those of a batch that a :class:`~freshgo.History` has pruned. Level 0 is the features, level ``l`` the output
of layer ``l``. The table of a level is what the next layer reads: the rows that this layer computes (its targets, in
the order of its outputs), then the other sources (FreshGNN, section 4). A row of a hidden level's table is either
computed or a hit; layers compute their rows in the order of the table.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple, Protocol

import torch
from torch import Tensor

from freshgo._args.types import UNNAMED, EdgeType
from freshgo._batch.first import First
from freshgo.errors import InvalidArgumentError

_ATTRIBUTE = "_freshgo_graph"


class Transposed(NamedTuple):
    """A graph grouped by source, for derivatives: source ``s`` has the edges ``ptr[s]`` to ``ptr[s + 1]``.

    It also serves every graph that consists of the first edges of this one, up to those of some target: that of a batch
    serves all its blocks.
    """

    ptr: Tensor
    """int64 ``[sources + 1]``."""
    target: Tensor
    """The target of each edge, ascending within a source."""
    edge: Tensor
    """The position of the edge in the graph grouped by target."""


@dataclasses.dataclass(frozen=True)
class Block:
    """One layer's message passing, from ``num_src`` nodes to the first ``num_dst`` of them.

    The targets of a block are its first ``num_dst`` sources. Both ends are numbered as in the batch, so the sources of
    the next block are the targets of this one. In a batch that a :class:`~freshgo.History` has pruned, they are rows of
    levels, which ``history(h, block)`` gives.
    """

    num_src: int
    num_dst: int
    ptr: Tensor
    """int64 ``[num_dst + 1]``: the edges of target ``t`` are ``ptr[t]`` to ``ptr[t + 1]`` (CSC)."""
    edge_index: Tensor
    """int64 ``[2, num_edges]``: row 0 the source, row 1 the target; targets do not decrease."""
    e_id: Tensor | None
    """int64 ``[num_edges]``: the user's edge numbers; None for random walks, whose edges are not edges of the graph."""
    transposed: Transposed | None = None
    """The batch's edges grouped by source; :mod:`freshgo.ops` uses the edges of this block; from
    ``transpose=True``."""
    edge: Tensor | None = None
    """int64 ``[num_edges]``: the positions of the block's edges in the batch, if these are not its first edges: with
    history."""
    level: int = 0
    """With history, the level of the batch that the sources belong to: 0 is the features."""
    levels: Levels | None = None
    """With history, the levels of the batch."""
    edge_weight: Tensor | None = None
    """float32 ``[num_edges]``: what LABOR and random walks say about each edge; None for other samplers."""

    @property
    def index(self) -> Tensor:
        """int64 ``[num_edges]``: the source of each edge, as CSC needs it beside ``ptr``."""
        return self.edge_index[0]

    @property
    def num_edges(self) -> int:
        """The number of edges in this block."""
        return self.edge_index.size(1)


@dataclasses.dataclass(frozen=True)
class HeteroBlock:
    """One layer's message passing over all edge types, from ``num_src`` nodes of each type to the first ``num_dst``.

    ``block["author", "writes", "paper"]`` is the :class:`Block` of an edge type. In a batch that a
    :class:`~freshgo.History` has pruned, both ends are rows of levels, which ``history(h, block)`` gives.
    """

    num_src: dict[str, int]
    num_dst: dict[str, int]
    relations: dict[EdgeType, Block]
    level: int = 0
    """With history, the level of the batch that the sources belong to: 0 is the features."""
    levels: Levels | None = None
    """With history, the levels of the batch."""

    def __getitem__(self, edge_type: EdgeType) -> Block:
        return self.relations[edge_type]

    @property
    def edge_index_dict(self) -> dict[EdgeType, Tensor]:
        """The edges of every edge type, as PyG's ``HeteroConv`` takes them."""
        return {edge_type: block.edge_index for edge_type, block in self.relations.items()}

    def pairs(
        self, h: Mapping[str, Tensor], relations: Iterable[EdgeType] | None = None
    ) -> dict[EdgeType, tuple[Tensor, Tensor]]:
        """Return for every edge type (rows of sources, rows of targets), as PyG's ``HeteroConv`` takes them.

        Args:
            h: ``[num_src, columns]`` of every node type that an edge type begins or ends at.
            relations: the edge types to return; None is all.

        Raises:
            InvalidArgumentError: rows of a node type are missing, or too few.
        """
        return {
            (source, name, target): (self._rows(h, source, self.num_src), self._rows(h, target, self.num_dst))
            for source, name, target in (self.relations if relations is None else relations)
        }

    def targets(self, h: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the rows of the targets, ``[num_dst, columns]`` of every node type in ``h``: for residual
        connections."""
        return {node_type: self._rows(h, node_type, self.num_dst) for node_type in h}

    def _rows(self, h: Mapping[str, Tensor], node_type: str, count: dict[str, int]) -> Tensor:
        rows = h.get(node_type)
        if rows is None or rows.size(0) < count[node_type]:
            raise InvalidArgumentError(
                f"the layer needs {count[node_type]} rows of node type {node_type!r}, got "
                f"{'none' if rows is None else rows.size(0)}: give every type rows in every layer, such as a linear "
                "map of the type's own, or omit the edge types that need them"
            )
        return rows if rows.size(0) == count[node_type] else rows[: count[node_type]]


@dataclasses.dataclass(eq=False, kw_only=True)
class Levels:
    """The level tables of a batch of ``num_layers`` layers. All tensors are int64 and lie where the batch lies.

    A table holds the rows of one node type after the other, of each type the rows that layers compute next first. A
    homogeneous graph has one unnamed node type and one unnamed edge type.

    Lists over levels have an entry for each of 0..num_layers - 1. That of level 0 is None in ``computed``, ``hit``,
    ``slot`` and the probes, as features have no history.
    """

    index: int
    """Position of the batch among those handed over by training epochs."""
    num_layers: int
    nodes: list[Tensor]
    """``nodes[l]``: the table of level ``l``, as rows of the batch within their node type."""
    computed: list[Tensor | None]
    """``computed[l]``: positions in the table of the rows that layer ``l`` computes, ascending, one for each output."""
    hit: list[Tensor | None]
    """``hit[l]``: positions in the table of the rows that history has."""
    slot: list[Tensor | None]
    """``slot[l]``: where each of those lies in the buffer."""
    blocks: list[HeteroBlock]
    """``blocks[l - 1]``: the message passing of layer ``l``, sources and targets as positions in the table of level
    ``l - 1``, which is its ``level``, within their node types; ``num_src`` are the rows of that table. The ``edge`` of
    an edge type are positions among its edges in the batch, for tensors of edges."""
    nodes_of: dict[str, int]
    """By node type, the nodes of the batch."""
    spared: dict[str, int]
    """By node type, the rows of features that the plain batch would have brought more."""
    loaded: int
    """Rows of features that the batch brings: those of seeds and of level 0."""
    edges: int
    """Edges of the batch."""
    plain_nodes: int
    """Rows that it would have brought unpruned."""
    plain_edges: int
    """Edges that it would have had."""
    degree: Tensor | None = None
    """``[nodes]``: in-edges of each node of the batch before pruning; None unless the graph has one node type and one
    edge type."""
    loops: Tensor | None = None
    """``[nodes]``: how many of ``degree`` lead from the node to itself, which GCN replaces; None where none does."""
    owner: object = None
    """The same for all batches of a loader, and their copies."""
    probe: list[Tensor | None] | None = None
    """Only in batches that measure the estimation error, which have no hits: ``probe[l]`` are positions in the table of
    computed rows that history has, ..."""
    probe_slot: list[Tensor | None] | None = None
    """... where each of those lies in the buffer ..."""
    probe_age: list[Tensor | None] | None = None
    """... and its age in iterations."""
    first_bytes: dict[str, int] | None = None
    """Where the first layer is precomputed, by node type the bytes of a row that it takes, of features and aggregate.
    Then level 0 is what that layer returns, a row for each one of the table. None: level 0 are the features."""

    @property
    def named(self) -> bool:
        """Whether the node types have names, so that rows come by node type and edges by edge type."""
        return UNNAMED[0] not in self.nodes_of

    def to(self, device: torch.device | str, *, non_blocking: bool = False) -> Levels:
        """Return these levels with their tensors on ``device``."""

        def moved(value: Any) -> Any:
            if isinstance(value, Tensor):
                return value.to(device, non_blocking=non_blocking)
            if isinstance(value, list):
                return [moved(one) for one in value]
            if isinstance(value, dict):
                return {key: moved(one) for key, one in value.items()}
            if isinstance(value, tuple):  # a block's edges by source
                return type(value)(*map(moved, value))
            if dataclasses.is_dataclass(value) and not isinstance(value, type):  # a block
                values = {f.name: getattr(value, f.name) for f in dataclasses.fields(value) if f.name != "levels"}
                return dataclasses.replace(value, **{name: moved(one) for name, one in values.items()})
            return value

        return type(self)(**{f.name: moved(getattr(self, f.name)) for f in dataclasses.fields(self)})


class Known:
    """What is known of one state of an edge_index: a tensor that is written to afterwards is another one."""

    def __init__(
        self,
        edge_index: Tensor,
        ptr: Tensor | None,
        transposed: Transposed | None,
        ends: dict[int, int] | None = None,
        levels: Levels | None = None,
        first: First | None = None,
    ) -> None:
        self.version = _version(edge_index)
        self.ptr = ptr  # of its targets, which then do not decrease, as far as they have edges
        self.transposed = transposed
        self.ends = ends or {}  # edges of the first targets, by the number of targets; on the host
        self.levels = levels  # of a batch that history has pruned
        self.first = first  # stands for the first layer over these edges
        self.made: dict[tuple[int, int, int], Any] = {}  # adjacencies, by edges, sources, targets
        self.by_type: dict[tuple[int, int, int], Any] = {}  # the same of each relation
        self.roots: dict[Any, tuple[int, Tensor]] = {}  # scales of GCN, with how many of them are of targets with edges
        self.index: Tensor | None = None  # the sources of all edges, without keeping edge_index alive


def _version(edge_index: Tensor) -> int:
    """How often a tensor was written to; one made in inference mode does not count."""
    return 0 if edge_index.is_inference() else edge_index._version


def remember(edge_index: Tensor, known: Known) -> None:
    """Keep what is known."""
    setattr(edge_index, _ATTRIBUTE, known)


def recall(edge_index: Tensor) -> Known | None:
    """Return what is known, unless the tensor has changed since."""
    known: Known | None = getattr(edge_index, _ATTRIBUTE, None)
    return known if known is not None and known.version == _version(edge_index) else None


def carry(copies: Iterable[tuple[Tensor, Tensor, First | None]]) -> None:
    """Let copies of edge indices (before, after), perhaps on another device, know the levels of the batch that they
    are of, and what stands for its first layer there."""
    moved: Levels | None = None
    for before, after, first in copies:
        known = recall(before)
        if after is before or known is None or (known.levels is None and first is None):
            continue
        if known.levels is not None:
            moved = known.levels.to(after.device) if moved is None else moved
        remember(after, Known(after, None, None, levels=moved, first=first))


def first_in(edge_index: Tensor, aggregate: Part, targets: Part, sources: Part) -> First | None:
    """Return what stands for the first layer over edges that were copied, with the tensors of the copy: where a batch
    has the aggregate, the rows of targets and of sources."""
    known = recall(edge_index)
    if known is None or known.first is None or known.first.name not in aggregate:
        return None
    first = known.first
    own, source = (_of(part, first.tensor) for part in (targets, sources))
    rows: Tensor = aggregate[first.name]
    read = None if first.read is None else first.read.to(rows.device)
    return dataclasses.replace(first, rows=rows, own=own, source=source, read=read)


def _of(part: Part, name: str) -> Tensor | None:
    if name not in part:
        return None
    tensor: Tensor = part[name]
    return tensor


class Part(Protocol):
    """Tensors of a batch by name."""

    def __getitem__(self, name: str) -> Any: ...

    def __contains__(self, name: str) -> bool: ...
