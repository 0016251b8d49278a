"""A whole layer that aggregates rows and multiplies them, in one step there and one step back.

As a step for each part, autograd keeps a node, a view and a sum of gradients for each, and what they cost is most of
a step over a small batch. Here the products add to one result, and the derivative by the rows of a layer's targets is
added within the product that makes it.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from freshgo._ops import kernels
from freshgo._ops.registry import never, operators

_Optional = Tensor | None
_Derivatives = tuple[_Optional, _Optional, _Optional, _Optional, _Optional]


class Edges(NamedTuple):
    """The edges of a layer, and what the rows are multiplied by on their way into its sums."""

    source: Tensor
    """Of each edge, grouped by target."""
    ptr: Tensor
    """Of the first targets; those beyond have no edges."""
    transposed: tuple[_Optional, ...]
    """The edges by source, perhaps of a larger graph."""
    cut: int
    """How many targets of that larger graph have their edges here; -1: not known."""
    mean: bool
    scale: _Optional = None
    """Of GCN: of each row, as source and as target."""
    self_weight: _Optional = None
    """Of the loop of each target."""
    replaces: bool = True
    """That loop replaces any in ``source``, as in GCN."""


def _mapped(x: Tensor, weight: Tensor, bias: _Optional) -> Tensor:
    """``x @ weight.T + bias``, a large result in memory of earlier ones."""
    rows, columns = x.size(0), weight.size(0)
    if not kernels.reused(x, rows, columns, x.dtype):
        return F.linear(x, weight, bias)
    out = kernels.empty(x, rows, columns, x.dtype)
    return torch.mm(x, weight.t(), out=out) if bias is None else torch.addmm(bias, x, weight.t(), out=out)


def _mapped_back(grad: Tensor, weight: Tensor) -> Tensor:
    """``grad @ weight``, likewise."""
    rows, columns = grad.size(0), weight.size(1)
    if not kernels.reused(grad, rows, columns, grad.dtype):
        return grad.mm(weight)
    return torch.mm(grad, weight, out=kernels.empty(grad, rows, columns, grad.dtype))


def _aggregated(x: Tensor, edges: Edges) -> tuple[Tensor, _Optional]:
    """Sums or means, and what turned sums into means."""
    index, ptr, _, _, mean, scale, own, replaces = edges
    if mean:
        made: tuple[Tensor, Tensor] = operators.mean.within(x, index, ptr, None, None, None, None)
        return made
    of_targets = scale if scale is None else scale.narrow(0, 0, ptr.size(0) - 1)
    skips = replaces and own is not None
    out: Tensor = operators.sum.within(x, index, ptr, None, own, of_targets, scale, skips, None, None, None)
    return out, scale


def _spread(grad: Tensor, edges: Edges, scale: _Optional, sources: int) -> Tensor:
    """The derivative of the aggregation."""
    index, ptr, transposed, cut, mean, _, own, replaces = edges
    of_targets = scale if mean or scale is None else scale.narrow(0, 0, ptr.size(0) - 1)
    of_sources = None if mean else scale
    out: Tensor = operators.sum_back.within(
        grad, index, ptr, None, own, of_targets, of_sources, replaces and own is not None, *transposed, sources, cut
    )
    return out


class Conv(torch.autograd.Function):
    """``aggregate(x) @ weight.T + target @ root.T + bias``, or with ``narrow`` the product before the aggregate.

    Without ``target`` it is ``x`` itself. Without ``weight``, which goes with ``narrow``, there is no product. The
    result has ``rows`` rows.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        target: _Optional,
        weight: _Optional,
        root: _Optional,
        bias: _Optional,
        edges: Edges,
        rows: int,
        narrow: bool,
    ) -> Tensor:
        summed, scale = _aggregated(_mapped(x, weight, None) if narrow and weight is not None else x, edges)
        if root is not None:
            out = _mapped(x if target is None else target, root, bias)
            targets = summed.size(0)
            part = out if targets == rows else out.narrow(0, 0, targets)
            if narrow or weight is None:
                part.add_(summed)
            else:
                part.addmm_(summed, weight.t())
        elif narrow or weight is None:
            out = summed if bias is None else summed.add_(bias)
        else:
            out = _mapped(summed, weight, bias)
        need = ctx.needs_input_grad
        by_x, by_target, by_weight, by_root, *_ = need
        reads_x = (narrow and by_weight) or (by_root and target is None)
        ctx.save_for_backward(
            x if reads_x else None,
            target if by_root else None,
            weight if by_x else None,
            root if by_x or by_target else None,
            summed if by_weight and not narrow else None,
            scale,
        )
        ctx.how = edges, x.size(0), rows, narrow, target is None, need
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        back: Any = _Last.apply if torch.is_grad_enabled() else _back  # somebody will ask for second derivatives
        return *back(ctx.how, grad, *ctx.saved_tensors), None, None, None


def _back(
    how: tuple[Edges, int, int, bool, bool, tuple[bool, ...]],
    grad: Tensor,
    x: _Optional,
    target: _Optional,
    weight: _Optional,
    root: _Optional,
    summed: _Optional,
    scale: _Optional,
) -> _Derivatives:
    edges, sources, rows, narrow, alone, need = how
    by_x, by_target, by_weight, by_root, by_bias, *_ = need
    of_x = of_target = of_weight = of_root = None
    targets = edges.ptr.size(0) - 1
    part = grad if targets == rows else grad.narrow(0, 0, targets)
    if narrow and (by_x or by_weight):
        of_product = _spread(part, edges, scale, sources)
        of_weight = of_product.t().mm(x) if by_weight and x is not None else None
        of_x = (of_product if weight is None else _mapped_back(of_product, weight)) if by_x else None
    elif not narrow:
        of_weight = part.t().mm(summed) if by_weight and summed is not None else None
        of_x = _spread(_mapped_back(part, weight), edges, scale, sources) if by_x and weight is not None else None
    own = x if alone else target
    if by_root and own is not None:
        of_root = grad.t().mm(own)
    if alone and of_x is not None and root is not None:
        of_x.addmm_(grad, root)
    elif by_target and root is not None:
        of_target = _mapped_back(grad, root)
    return of_x, of_target, of_weight, of_root, grad.sum(0) if by_bias else None


class _Last(torch.autograd.Function):
    """Derivatives that have none themselves."""

    @staticmethod
    def forward(ctx: Any, how: Any, *tensors: Any) -> Any:
        return _back(how, *tensors)

    @staticmethod
    def backward(ctx: Any, *grads: _Optional) -> Any:
        never(ctx, *grads)
