"""What is known of a tensor of nodes that was computed from others: see :func:`freshgo.propagate`."""

from __future__ import annotations

import dataclasses
from typing import Any

from freshgo._args.types import EdgeType

REDUCTIONS = ("mean", "sum", "gcn")


@dataclasses.dataclass(frozen=True)
class Part:
    """Columns that came along one edge type."""

    edge_type: EdgeType
    """``("", "", "")`` in a homogeneous graph."""
    columns: int
    weight_attr: str | None
    """The edge tensor that weighed the edges."""


@dataclasses.dataclass(frozen=True)
class Aggregate:
    """How a tensor of nodes was computed: of a row the first ``own`` columns are the node's own row of ``tensor``, the
    others the parts, one after the other."""

    name: str
    """Of the tensor."""
    tensor: str
    """The tensor that was aggregated."""
    reduce: str
    """``"mean"``, ``"sum"`` or ``"gcn"``."""
    hop: int
    """How often."""
    own: int
    """0: the rows do not have the node's own."""
    parts: tuple[Part, ...]
    stale: str = ""
    """What differs between what it was computed from and what the graph holds; empty: nothing."""

    @classmethod
    def of(cls, name: str, described: dict[str, Any] | None) -> Aggregate | None:
        """Return that of a tensor as the library describes it; None for the user's own tensors."""
        if described is None:
            return None
        parts = tuple(
            Part((part["source"], part["relation"], part["target"]), part["columns"], part["weights_of"] or None)
            for part in described["parts"]
        )
        tensor, reduce, hop, own = (described[key] for key in ("tensor", "reduce", "hop", "own_columns"))
        return cls(name, tensor, reduce, hop, own, parts, described["stale"])

    def columns(self, edge_type: EdgeType) -> slice:
        """Return the columns of a part."""
        first = self.own
        for part in self.parts:
            if part.edge_type == edge_type:
                return slice(first, first + part.columns)
            first += part.columns
        raise KeyError(edge_type)

    def __str__(self) -> str:
        weights = {part.weight_attr for part in self.parts} - {None}
        by = f" by {', '.join(sorted(map(repr, weights)))}" if weights else ""
        again = f", {self.hop} times" if self.hop > 1 else ""
        behind = ", behind the node's own row" if self.own else ""
        stale = f"; stale, made from {self.stale}" if self.stale else ""
        return f"{self.reduce} of {self.tensor!r} over in-neighbours{by}{again}{behind}{stale}"
