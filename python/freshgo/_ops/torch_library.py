"""The operators as torch sees them: schemas, shapes for tracing, the kernels, derivatives.

They are registered (``registry``) in the namespace ``freshgo`` of ``torch.ops``. ``freshgo.ops`` is what users call: it
checks arguments and brings them to the few forms that these take. All are functional, none keeps state. Rows are
2-dimensional; ``index`` is [edges], ``ptr`` int64 [targets + 1]; weights are [edges, heads] of the dtype of sums.

The way back through a graph needs it grouped by source: ``source_ptr``, ``target``, ``edge``, in which every list
ascends. They may belong to a larger graph whose first edges, up to some target, this graph has: a list
then ends where its edges do. Where they are absent, the derivative makes them.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from freshgo._native import cuda, header
from freshgo._ops import kernels
from freshgo._ops.registry import define, operators

_Optional = Tensor | None


# ---- grouping ----------------------------------------------------------------------------------------------------


def _transpose_fake(index: Tensor, ptr: Tensor, sources: int) -> tuple[Tensor, Tensor, Tensor]:
    return ptr.new_empty(sources + 1), torch.empty_like(index), torch.empty_like(index)


define(
    "transpose(Tensor index, Tensor ptr, SymInt sources) -> (Tensor, Tensor, Tensor)",
    kernels.transpose,
    _transpose_fake,
)


def _group(target: Tensor, targets: int) -> tuple[Tensor, Tensor]:
    ptr, order = kernels.group(target, targets)
    return ptr, torch.arange(target.numel(), dtype=target.dtype) if order is None else order


def _group_fake(target: Tensor, targets: int) -> tuple[Tensor, Tensor]:
    return target.new_empty(targets + 1, dtype=torch.int64), torch.empty_like(target)


define("group(Tensor target, SymInt targets) -> (Tensor, Tensor)", _group, _group_fake)


def _grouped_by_source(
    index: Tensor, ptr: Tensor, sources: int, *by_source: _Optional
) -> tuple[Tensor, Tensor, Tensor]:
    """The graph by source, or a larger one whose lists begin with its edges."""
    source_ptr, target, edge = by_source
    if source_ptr is None or target is None or edge is None:
        return kernels.transpose(index, ptr, sources)
    return source_ptr.narrow(0, 0, sources + 1) if source_ptr.size(0) > sources + 1 else source_ptr, target, edge


def _cut(index: Tensor, ptr: Tensor, target: Tensor, known: int = -1) -> int | Tensor:
    """How many targets have edges here, where lists by source end, unless it is known. On a device that is a number
    there."""
    if known >= 0:
        return known
    if target.numel() == index.numel():
        return ptr.numel() - 1
    found = torch.searchsorted(ptr, ptr[-1:])
    return found if cuda.takes(index) else int(found)


# ---- sums ----------------------------------------------------------------------------------------------------------


def _heads(weight: _Optional) -> int:
    return 1 if weight is None else weight.size(1)


def _sum(
    x: Tensor,
    index: Tensor,
    ptr: Tensor,
    weight: _Optional,
    self_weight: _Optional,
    row_scale: _Optional,
    col_scale: _Optional,
    skip_self: bool,
    *by_source: _Optional,
) -> Tensor:
    out = kernels.empty(x, ptr.size(0) - 1, x.size(1), x.dtype)
    kernels.aggregate(
        header.SUM,
        x,
        index,
        ptr,
        out,
        heads=_heads(weight),
        weight=weight,
        self_weight=self_weight,
        row_scale=row_scale,
        col_scale=col_scale,
        skip_self=skip_self,
    )
    return out


def _sum_fake(x: Tensor, index: Tensor, ptr: Tensor, *rest: Any) -> Tensor:
    return x.new_empty(ptr.size(0) - 1, x.size(1))


def _sum_back(
    grad: Tensor,
    index: Tensor,
    ptr: Tensor,
    weight: _Optional,
    self_weight: _Optional,
    row_scale: _Optional,
    col_scale: _Optional,
    skip_self: bool,
    source_ptr: _Optional,
    target: _Optional,
    edge: _Optional,
    sources: int,
    cut: int,
    **products: Any,
) -> Tensor:
    source_ptr, target, edge = _grouped_by_source(index, ptr, sources, source_ptr, target, edge)
    out = kernels.empty(grad, sources, grad.size(1), grad.dtype)
    kernels.aggregate(
        header.SUM,
        grad,
        target,
        source_ptr,
        out,
        heads=_heads(weight),
        weight=weight,
        edge=None if weight is None else edge,
        self_weight=self_weight,
        row_scale=col_scale,
        col_scale=row_scale,
        skip_self=skip_self,
        cut=_cut(index, ptr, target, cut),
        **products,
    )
    return out


def _sum_back_fake(grad: Tensor, *rest: Any) -> Tensor:
    return grad.new_empty(rest[-2], grad.size(1))


def _sum_back_both(x: Tensor, grad: Tensor, index: Tensor, ptr: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    """The derivatives by x and by the weights, from one pass over the rows of ``grad``; on a device from two."""
    weight, _, row_scale, col_scale, skip_self, *by_source, cut = rest
    back = (grad, index, ptr, *rest[:5], *by_source, x.size(0), cut)
    if cuda.takes(x):
        dot = _dot(x, grad, index, ptr, row_scale, col_scale, skip_self, weight.size(1))
        return _sum_back(*back), dot
    dot = kernels.empty(x, weight.size(0), weight.size(1), weight.dtype)
    if x.size(1) == 0:
        dot.zero_()
    return _sum_back(*back, own=x, dot=dot), dot


def _sum_back_both_fake(x: Tensor, grad: Tensor, index: Tensor, ptr: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    return x.new_empty(x.shape), rest[0].new_empty(rest[0].shape)


def _dot(
    x: Tensor,
    grad: Tensor,
    index: Tensor,
    ptr: Tensor,
    row_scale: _Optional,
    col_scale: _Optional,
    skip_self: bool,
    heads: int,
) -> Tensor:
    out = kernels.empty(x, index.numel(), heads, kernels.real(x.dtype))
    if x.size(1) == 0:
        return out.zero_()
    kernels.aggregate(
        header.DOT,
        x,
        index,
        ptr,
        out,
        heads=heads,
        own=grad,
        row_scale=row_scale,
        col_scale=col_scale,
        skip_self=skip_self,
    )
    return out


def _dot_fake(
    x: Tensor, grad: Tensor, index: Tensor, ptr: Tensor, row: _Optional, col: _Optional, skip: bool, heads: int
) -> Tensor:
    return x.new_empty(index.size(0), heads, dtype=kernels.real(x.dtype))


def _sum_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, index, ptr, weight, self_weight, row_scale, col_scale, skip_self, *transposed = inputs
    products = ctx.needs_input_grad[3] or ctx.needs_input_grad[4]
    ctx.save_for_backward(x if products else None, index, ptr, weight, self_weight, row_scale, col_scale, *transposed)
    ctx.skip_self, ctx.sources = skip_self, x.size(0)


def _sum_backward(ctx: Any, grad: Tensor) -> tuple[_Optional, ...]:
    x, index, ptr, weight, self_weight, row_scale, col_scale, *transposed = ctx.saved_tensors
    of_x = of_weight = of_self = None
    how = (weight, self_weight, row_scale, col_scale, ctx.skip_self, *transposed)
    if ctx.needs_input_grad[0] and ctx.needs_input_grad[3]:
        of_x, of_weight = operators.sum_back_both(x, grad, index, ptr, *how, -1)
    elif ctx.needs_input_grad[0]:
        of_x = operators.sum_back(grad, index, ptr, *how, ctx.sources, -1)
    elif ctx.needs_input_grad[3]:
        of_weight = operators.dot(x, grad, index, ptr, row_scale, col_scale, ctx.skip_self, weight.size(1))
    if ctx.needs_input_grad[4]:
        rows, heads = self_weight.shape
        of_self = operators.row_dot(x[:rows], grad[:rows], heads)
    return of_x, None, None, of_weight, of_self, None, None, None, None, None, None


_GRAPH = "Tensor? source_ptr, Tensor? target, Tensor? edge"
_FACTORS = "Tensor? weight, Tensor? self_weight, Tensor? row_scale, Tensor? col_scale, bool skip_self"

define(
    f"sum(Tensor x, Tensor index, Tensor ptr, {_FACTORS}, {_GRAPH}) -> Tensor",
    _sum,
    _sum_fake,
    _sum_setup,
    _sum_backward,
)
define(
    f"sum_back(Tensor grad, Tensor index, Tensor ptr, {_FACTORS}, {_GRAPH}, SymInt sources, int cut) -> Tensor",
    _sum_back,
    _sum_back_fake,
)
define(
    f"sum_back_both(Tensor x, Tensor grad, Tensor index, Tensor ptr, {_FACTORS}, {_GRAPH}, int cut) -> "
    "(Tensor, Tensor)",
    _sum_back_both,
    _sum_back_both_fake,
)
define(
    "dot(Tensor x, Tensor grad, Tensor index, Tensor ptr, Tensor? row_scale, Tensor? col_scale, bool skip_self, "
    "SymInt heads) -> Tensor",
    _dot,
    _dot_fake,
)


def _mean(x: Tensor, index: Tensor, ptr: Tensor, weight: _Optional, *by_source: _Optional) -> tuple[Tensor, Tensor]:
    """Means, and what the sums were multiplied by, which is made of ``ptr`` on the way."""
    rows = ptr.size(0) - 1
    out = kernels.empty(x, rows, x.size(1), x.dtype)
    scale = x.new_empty(rows, dtype=kernels.real(x.dtype))
    kernels.aggregate(header.MEAN, x, index, ptr, out, heads=_heads(weight), weight=weight, count=scale)
    return out, scale


def _mean_fake(x: Tensor, index: Tensor, ptr: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    rows = ptr.size(0) - 1
    return x.new_empty(rows, x.size(1)), x.new_empty(rows, dtype=kernels.real(x.dtype))


def _mean_setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, index, ptr, weight, *transposed = inputs
    out, scale = output
    ctx.mark_non_differentiable(scale)
    ctx.set_materialize_grads(False)
    _sum_setup(ctx, (x, index, ptr, weight, None, scale, None, False, *transposed), out)


def _mean_backward(ctx: Any, grad: _Optional, of_scale: _Optional) -> tuple[_Optional, ...]:
    if grad is None:  # which zeros are not made for
        return (None,) * 7
    of_x, _, _, of_weight, *_ = _sum_backward(ctx, grad)
    return of_x, None, None, of_weight, None, None, None


define(
    f"mean(Tensor x, Tensor index, Tensor ptr, Tensor? weight, {_GRAPH}) -> (Tensor, Tensor)",
    _mean,
    _mean_fake,
    _mean_setup,
    _mean_backward,
)


def _row_dot(x: Tensor, y: Tensor, heads: int) -> Tensor:
    """``[rows, heads]``: the product of each row with that of y, or with its only one."""
    out = kernels.empty(x, x.size(0), heads, kernels.real(x.dtype))
    if x.size(1) == 0:
        return out.zero_()
    kernels.heads(header.ROW_DOT, x, y, out)
    return out


def _row_dot_fake(x: Tensor, y: Tensor, heads: int) -> Tensor:
    return x.new_empty(x.size(0), heads, dtype=kernels.real(x.dtype))


define("row_dot(Tensor x, Tensor y, SymInt heads) -> Tensor", _row_dot, _row_dot_fake)


# ---- maximum and minimum -------------------------------------------------------------------------------------------


def _extreme(
    x: Tensor, index: Tensor, ptr: Tensor, least: bool, counted: bool, *by_source: _Optional
) -> tuple[Tensor, Tensor]:
    rows, columns = ptr.numel() - 1, x.size(1)
    out = kernels.empty(x, rows, columns, x.dtype)
    count = kernels.empty(x, rows if counted else 0, columns, kernels.real(x.dtype))
    kernels.aggregate(header.MIN if least else header.MAX, x, index, ptr, out, count=count if counted else None)
    return out, count


def _extreme_fake(
    x: Tensor, index: Tensor, ptr: Tensor, least: bool, counted: bool, *by_source: _Optional
) -> tuple[Tensor, Tensor]:
    rows, columns = ptr.size(0) - 1, x.size(1)
    counts = (rows, columns) if counted else (0, columns)
    return x.new_empty(rows, columns), x.new_empty(counts, dtype=kernels.real(x.dtype))


def _extreme_back(x: Tensor, out: Tensor, share: Tensor, index: Tensor, ptr: Tensor, *by_source: _Optional) -> Tensor:
    source_ptr, target, _ = _grouped_by_source(index, ptr, x.size(0), *by_source)
    cut = _cut(index, ptr, target)
    grad = kernels.empty(x, x.size(0), x.size(1), x.dtype)
    kernels.aggregate(header.EXTREME_BACK, out, target, source_ptr, grad, y=share, own=x, cut=cut)
    return grad


def _extreme_back_fake(x: Tensor, *rest: Any) -> Tensor:
    return x.new_empty(x.shape)


def _extreme_setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    x, index, ptr, _, counted, *transposed = inputs
    out, count = output
    ctx.mark_non_differentiable(count)
    ctx.counted = counted
    ctx.save_for_backward(x, out, count, index, ptr, *transposed)


def _extreme_backward(ctx: Any, grad: Tensor, of_count: _Optional) -> tuple[_Optional, ...]:
    x, out, count, index, ptr, *transposed = ctx.saved_tensors
    if not ctx.counted:
        raise RuntimeError("freshgo::extreme was called without counted=True, which its derivative needs")
    share = (grad / count).to(x.dtype)  # rows that tie share evenly, as in torch.scatter_reduce
    of_x = operators.extreme_back(x, out, share, index, ptr, *transposed)
    return of_x, None, None, None, None, None, None, None


define(
    f"extreme(Tensor x, Tensor index, Tensor ptr, bool least, bool counted, {_GRAPH}) -> (Tensor, Tensor)",
    _extreme,
    _extreme_fake,
    _extreme_setup,
    _extreme_backward,
)
define(
    f"extreme_back(Tensor x, Tensor out, Tensor share, Tensor index, Tensor ptr, {_GRAPH}) -> Tensor",
    _extreme_back,
    _extreme_back_fake,
)
