"""Layers that add up rows with coefficients which do not depend on them: what they do before and after adding up.

Such a layer may map its rows by its first matrix before they are added up or behind it: ``lin(mean(x))`` is
``mean(lin(x))`` up to rounding. Where it narrows the rows, mapping them first leaves less to move.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor
from torch.nn import functional

from freshgo._infer.norm import Norm

_REDUCTIONS: dict[Any, Literal["sum", "mean"]] = {"add": "sum", "sum": "sum", "mean": "mean"}
_MODULES = ("torch_geometric.nn.conv.", "freshgo._nn.layers")


@dataclasses.dataclass(frozen=True)
class Linear:
    """A layer, in one of its two forms. ``first`` says whether its matrix comes before the sum."""

    matrix: Tensor | None
    """``[columns after, columns before]``; None where the map is no matrix, so that it comes behind."""
    reduce: Literal["sum", "mean"]
    norm: Norm | None
    edge_weight: str | None
    root: Callable[[Tensor], Tensor] | None
    """What is done to a node's own row, in the form that maps first; None: it has no part."""
    shared: float | None
    """What a node's own mapped row is multiplied by, where that is all of ``root``."""
    bias: Tensor | None
    """What is added to sum and own row, both mapped."""
    behind: Callable[[Tensor], Tensor] | None
    """From these to the rows that the layer gives; None: they are it."""
    mapped: Callable[[Tensor, Tensor | None], Tensor]
    """From sum and own row, both as the layer before gave them, to the rows that the layer gives."""
    first: bool = False

    def width(self, before: int) -> int:
        """How many columns are added up."""
        return self.matrix.size(0) if self.first and self.matrix is not None else before

    def own_width(self) -> int:
        """How many columns a node's own row has beside those that are added up."""
        apart = self.first and self.matrix is not None and self.root is not None and self.shared is None
        return self.matrix.size(0) if apart and self.matrix is not None else 0

    def needs_messages(self) -> bool:
        """Whether a node's own row is the one that is added up for its neighbours."""
        return self.root is not None and self.own_width() == 0

    def messages(self, x: Tensor) -> Tensor:
        """The rows that are added up."""
        return functional.linear(x, self.matrix) if self.first and self.matrix is not None else x

    def own(self, x: Tensor) -> Tensor | None:
        """The own rows that are kept beside."""
        return self.root(x) if self.own_width() and self.root is not None else None

    def combine(self, total: Tensor, own: Tensor | None) -> Tensor:
        """The rows that the layer gives, of what was added up and the own rows, whichever they are."""
        if not self.first:
            return self.mapped(total, own)
        if own is not None:
            total = total + (own if self.shared is None else self.shared * own)
        total = _biased(total, self.bias)
        return total if self.behind is None else self.behind(total)

    def takes_columns(self) -> bool:
        """Whether some columns of the rows that the layer gives depend on the same columns alone, once mapped."""
        return self.first and self.behind is None and self.shared is None

    def combine_columns(self, total: Tensor, own: Tensor | None, columns: slice) -> Tensor:
        """Some columns of what ``combine`` returns, of the same columns."""
        if own is not None:
            total = total + own
        return total if self.bias is None else total + self.bias[columns]


def linear(conv: Any, norm: Norm | None, edge_weight: str | None) -> Linear | None:
    """Take a convolution of PyG, or one of ours in its place, apart; None where it is not such a layer."""
    kind = type(conv)
    hooked = conv._forward_hooks or conv._forward_pre_hooks
    if hooked or not kind.__module__.startswith(_MODULES) or kind.__name__ not in _KINDS:
        return None
    if conv.flow != "source_to_target" or not isinstance(conv.aggr, str) or conv.aggr not in _REDUCTIONS:
        return None
    if conv.decomposed_layers > 1 or (norm is not None and _REDUCTIONS[conv.aggr] != "sum"):
        return None
    made: Linear | None = _KINDS[kind.__name__](conv, _REDUCTIONS[conv.aggr], norm, edge_weight)
    return made


def _biased(rows: Tensor, bias: Tensor | None) -> Tensor:
    return rows if bias is None else rows + bias


def _sage(conv: Any, reduce: Any, norm: Norm | None, _: str | None) -> Linear | None:
    if getattr(conv, "project", False):
        return None

    def normal(rows: Tensor) -> Tensor:
        return functional.normalize(rows, p=2.0, dim=-1) if conv.normalize else rows

    def mapped(total: Tensor, own: Tensor | None) -> Tensor:
        out = conv.lin_l(total)
        return normal(out if own is None else out + conv.lin_r(own))

    root = conv.lin_r if conv.root_weight else None
    behind = normal if conv.normalize else None
    return Linear(conv.lin_l.weight, reduce, norm, None, root, None, conv.lin_l.bias, behind, mapped)


def _graph(conv: Any, reduce: Any, norm: Norm | None, edge_weight: str | None) -> Linear:
    def mapped(total: Tensor, own: Tensor | None) -> Tensor:
        out: Tensor = conv.lin_rel(total) + conv.lin_root(own)
        return out

    bias = conv.lin_rel.bias
    return Linear(conv.lin_rel.weight, reduce, norm, edge_weight, conv.lin_root, None, bias, None, mapped)


def _gcn(conv: Any, reduce: Any, norm: Norm | None, edge_weight: str | None) -> Linear:
    def mapped(total: Tensor, _: Tensor | None) -> Tensor:
        return _biased(conv.lin(total), conv.bias)

    return Linear(conv.lin.weight, reduce, norm, edge_weight, None, None, conv.bias, None, mapped)


def _gin(conv: Any, reduce: Any, norm: Norm | None, _: str | None) -> Linear:
    scale = 1 + float(conv.eps)
    inner = getattr(conv.nn, "lins", conv.nn if isinstance(conv.nn, torch.nn.Sequential) else None)
    head: Any = inner[0] if inner is not None and len(inner) > 0 else None

    def mapped(total: Tensor, own: Tensor | None) -> Tensor:
        out: Tensor = conv.nn(total if own is None else total + scale * own)
        return out

    def behind(rows: Tensor) -> Tensor:
        assert head is not None and inner is not None  # else there is no matrix, and this is not called
        inner[0] = torch.nn.Identity()
        try:
            out: Tensor = conv.nn(rows)
        finally:
            inner[0] = head
        return out

    plain = head is not None and type(head).__name__ == "Linear" and isinstance(getattr(head, "weight", None), Tensor)
    matrix: Any = head.weight if plain and head is not None and not head._forward_hooks else None
    bias = None if matrix is None else head.bias
    return Linear(matrix, reduce, norm, None, lambda x: x, scale, bias, behind, mapped)


_KINDS: dict[str, Callable[..., Linear | None]] = {
    "SAGEConv": _sage,
    "GraphConv": _graph,
    "GCNConv": _gcn,
    "GINConv": _gin,
}
