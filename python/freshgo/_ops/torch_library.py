"""The operators as torch sees them: schemas, shapes for tracing, the kernels, derivatives.

They are registered (``registry``) in the namespace ``freshgo`` of ``torch.ops``. ``freshgo.ops`` is what users call: it
checks arguments and brings them to the few forms that these take. All are functional, none keeps state. Rows are
2-dimensional; ``index`` is [edges], ``ptr`` int64 [targets + 1]; weights are [edges, heads] of the dtype of sums.

The way back through a graph needs it grouped by source: ``source_ptr``, ``target``, ``edge``, in which every list
ascends. They may belong to a larger graph whose first edges, up to some target, this graph has: a list
then ends where its edges do. Where they are absent, the derivative makes them.
"""

from __future__ import annotations

from typing import Any, NamedTuple

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
) -> tuple[Tensor, Tensor, Tensor, int | Tensor]:
    """The graph by source, and how many targets have edges here: the lists end at the first that has none. On a device
    that is a number there."""
    source_ptr, target, edge = by_source
    if source_ptr is None or target is None or edge is None:
        return *kernels.transpose(index, ptr, sources), ptr.numel() - 1
    source_ptr = source_ptr[: sources + 1]
    if cuda.takes(index):
        whole = target.numel() == index.numel()
        return source_ptr, target, edge, ptr.numel() - 1 if whole else torch.searchsorted(ptr, ptr[-1:])
    end = int(source_ptr[-1])
    return source_ptr, target[:end], edge[:end], int(torch.searchsorted(ptr, ptr[-1:]))


# ---- sums ----------------------------------------------------------------------------------------------------------


class _Factors(NamedTuple):
    """What rows are multiplied by on their way into a sum: ``weight`` and the rest of ``fg_aggregation``."""

    weight: _Optional
    self_weight: _Optional
    row_scale: _Optional
    col_scale: _Optional
    skip_self: bool

    @property
    def heads(self) -> int:
        return 1 if self.weight is None else self.weight.size(1)

    def reversed(self) -> _Factors:
        """Those of the way back."""
        return self._replace(row_scale=self.col_scale, col_scale=self.row_scale)


def _sum(x: Tensor, index: Tensor, ptr: Tensor, *rest: Any) -> Tensor:
    factors = _Factors(*rest[:5])
    out = kernels.empty(x, ptr.numel() - 1, x.size(1), x.dtype)
    kernels.aggregate(header.SUM, x, index, ptr, out, heads=factors.heads, **factors._asdict())
    return out


def _sum_fake(x: Tensor, index: Tensor, ptr: Tensor, *rest: Any) -> Tensor:
    return x.new_empty(ptr.size(0) - 1, x.size(1))


def _sum_back(grad: Tensor, index: Tensor, ptr: Tensor, *rest: Any, **products: Any) -> Tensor:
    factors, by_source, sources = _Factors(*rest[:5]).reversed(), rest[5:8], rest[8]
    source_ptr, target, edge, cut = _grouped_by_source(index, ptr, sources, *by_source)
    out = kernels.empty(grad, sources, grad.size(1), grad.dtype)
    kernels.aggregate(
        header.SUM,
        grad,
        target,
        source_ptr,
        out,
        heads=factors.heads,
        edge=edge,
        cut=cut,
        **factors._asdict(),
        **products,
    )
    return out


def _sum_back_fake(grad: Tensor, *rest: Any) -> Tensor:
    return grad.new_empty(rest[-1], grad.size(1))


def _sum_back_both(x: Tensor, grad: Tensor, index: Tensor, ptr: Tensor, *rest: Any) -> tuple[Tensor, Tensor]:
    """The derivatives by x and by the weights, from one pass over the rows of ``grad``; on a device from two."""
    weight = rest[0]
    if cuda.takes(x):
        _, _, row_scale, col_scale, skip_self, *_ = rest
        dot = _dot(x, grad, index, ptr, row_scale, col_scale, skip_self, weight.size(1))
        return _sum_back(grad, index, ptr, *rest, x.size(0)), dot
    dot = kernels.empty(x, weight.size(0), weight.size(1), weight.dtype)
    if x.size(1) == 0:
        dot.zero_()
    return _sum_back(grad, index, ptr, *rest, x.size(0), own=x, dot=dot), dot


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
        of_x, of_weight = operators.sum_back_both(x, grad, index, ptr, *how)
    elif ctx.needs_input_grad[0]:
        of_x = operators.sum_back(grad, index, ptr, *how, ctx.sources)
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
    f"sum_back(Tensor grad, Tensor index, Tensor ptr, {_FACTORS}, {_GRAPH}, SymInt sources) -> Tensor",
    _sum_back,
    _sum_back_fake,
)
define(
    f"sum_back_both(Tensor x, Tensor grad, Tensor index, Tensor ptr, {_FACTORS}, {_GRAPH}) -> (Tensor, Tensor)",
    _sum_back_both,
    _sum_back_both_fake,
)
define(
    "dot(Tensor x, Tensor grad, Tensor index, Tensor ptr, Tensor? row_scale, Tensor? col_scale, bool skip_self, "
    "SymInt heads) -> Tensor",
    _dot,
    _dot_fake,
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
    source_ptr, target, _, cut = _grouped_by_source(index, ptr, x.size(0), *by_source)
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
