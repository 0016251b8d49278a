"""What is known of the graph in an ``edge_index``, kept beside the tensor: light enough for every batch to bring it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import Tensor

if TYPE_CHECKING:
    from freshgo._history import Levels

_ATTRIBUTE = "_freshgo_graph"


class Transposed(NamedTuple):
    """A graph grouped by source, for the way back: source ``s`` has the edges ``ptr[s]`` to ``ptr[s + 1]``.

    It serves every graph that has its first edges, up to those of some target: that of a batch serves all its blocks.
    """

    ptr: Tensor
    """int64 ``[sources + 1]``."""
    target: Tensor
    """The target of each edge, ascending for a source."""
    edge: Tensor
    """Where the edge is in the graph grouped by target."""


class Known:
    """What is known of one state of an edge_index: a tensor that is written to afterwards is another one."""

    def __init__(
        self,
        edge_index: Tensor,
        ptr: Tensor | None,
        transposed: Transposed | None,
        ends: dict[int, int] | None = None,
        levels: Levels | None = None,
    ) -> None:
        self.version = _version(edge_index)
        self.ptr = ptr  # of its targets, which then do not decrease, as far as they have edges
        self.transposed = transposed
        self.ends = ends or {}  # so many first edges are those of so many first targets; on the host, to wait for none
        self.levels = levels  # of a batch that history has pruned
        self.made: dict[tuple[int, int, int], Any] = {}  # adjacencies, by edges, sources, targets
        self.by_type: dict[tuple[int, int, int], Any] = {}  # the same of each relation


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


def carry(copies: Iterable[tuple[Tensor, Tensor]]) -> None:
    """Let copies of edge indices (before, after), perhaps on another device, know the levels of the batch that they
    are of."""
    moved: Levels | None = None
    for before, after in copies:
        known = recall(before)
        if after is not before and known is not None and known.levels is not None:
            moved = known.levels.to(after.device) if moved is None else moved
            remember(after, Known(after, None, None, levels=moved))
