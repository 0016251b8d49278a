"""What is known of a tensor of nodes that was computed from others: see :func:`freshgo.propagate`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from freshgo._args.choices import REDUCTIONS
from freshgo._args.hints import among, did_you_mean
from freshgo.errors import DTypeError, InvalidArgumentError

if TYPE_CHECKING:  # torch, which describing a store does not need
    from torch import Tensor

    from freshgo._args.types import EdgeType


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


_MEMO = "_freshgo_aggregate"


@dataclasses.dataclass(frozen=True)
class _Memo:
    """What a tensor in memory was computed from: the place of each tensor, and how often it had been written to."""

    aggregate: Aggregate
    marks: dict[str, tuple[int, int, int]]


def mark(tensor: Tensor) -> tuple[int, int, int]:
    """Tell a tensor from another one, and from itself before something was written to it."""
    return tensor.data_ptr(), tensor.numel(), 0 if tensor.is_inference() else tensor._version


def note(tensor: Tensor, aggregate: Aggregate, made_from: Mapping[str, Tensor]) -> None:
    """Keep beside a tensor in memory how it was computed. Copies of the tensor do not have it."""
    setattr(tensor, _MEMO, _Memo(aggregate, {name: mark(of) for name, of in made_from.items()}))


def keep_note(tensor: Tensor, view: Tensor) -> Tensor:
    """Let a view of all of a tensor have its note. Returns the view."""
    if hasattr(tensor, _MEMO):
        setattr(view, _MEMO, getattr(tensor, _MEMO))
    return view


def noted(tensor: object, now: Mapping[str, Tensor]) -> Aggregate | None:
    """Return how a tensor in memory was computed, stale where the tensors that it was made from are others now."""
    memo: _Memo | None = getattr(tensor, _MEMO, None)
    if memo is None:
        return None
    for name, was in memo.marks.items():
        if name not in now or mark(now[name]) != was:
            return dataclasses.replace(memo.aggregate, stale=f"another {name}")
    return memo.aggregate


def no_tensor(name: str, known: Iterable[str]) -> InvalidArgumentError:
    """What to raise where the nodes at which edges begin have no such tensor."""
    names = sorted(known)
    there = f"the node tensors are {among(name, names)}" if names else "there are none"
    return InvalidArgumentError(f"tensor must name a node-level tensor, got {name!r}: {there}")


def check_hops(hops: int, homogeneous: bool) -> None:
    """Raise InvalidArgumentError for several hops along several edge types."""
    if hops > 1 and not homogeneous:
        raise InvalidArgumentError(
            f"hops must be 1 in a heterogeneous graph, got {hops}: call propagate again for the aggregate of aggregates"
        )


def chosen(first_layer: object, aggregates: Mapping[str, Mapping[str, Aggregate]]) -> dict[str, Aggregate]:
    """Return the aggregate that a loader's ``first_layer`` means, of each node type that has it.

    Raises:
        InvalidArgumentError, DTypeError: there is none, several, or it is stale.
    """
    from freshgo._args.types import label_of

    if first_layer is None:
        return {}
    if not isinstance(first_layer, str):
        raise DTypeError(f"first_layer must be the name of a tensor, a reduction or None, got {first_layer!r}")
    known = {name: info for of in aggregates.values() for name, info in of.items()}
    names = {first_layer} & set(known)
    if not names and first_layer in REDUCTIONS:
        names = {name for name, info in known.items() if info.hop == 1 and info.reduce == first_layer}
    if len(names) != 1:
        there = ", ".join(f"{name!r} ({info})" for name, info in known.items()) or "none at all"
        what = "is ambiguous" if names else "is not an aggregate of the graph: compute it with freshgo.propagate"
        hint = "" if names else did_you_mean(first_layer, known)
        raise InvalidArgumentError(f"first_layer={first_layer!r} {what}; the graph has {there}{hint}")
    name = names.pop()
    found = {node_type: of[name] for node_type, of in aggregates.items() if name in of}
    for node_type, info in found.items():
        if info.stale:
            of = label_of(node_type) + name
            raise InvalidArgumentError(
                f"first_layer={first_layer!r}: {of!r} was computed from {info.stale} than the graph has: call "
                "freshgo.propagate again"
            )
        if info.hop > 1:
            raise InvalidArgumentError(
                f"first_layer must name an aggregate over one hop, got {name!r} over {info.hop} hops"
            )
    return found
