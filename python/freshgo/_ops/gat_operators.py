"""A layer of graph attention as one operator, from projected rows to aggregated ones.

As one, because what the logits add to the derivative by the rows can then be added in place: as separate operators they
make two more tensors of rows by columns.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from freshgo._native import header
from freshgo._ops import kernels
from freshgo._ops.registry import define, operators
from freshgo._ops.torch_library import _GRAPH, _Optional


def _dropped(alpha: Tensor, own: Tensor, keep: _Optional) -> tuple[Tensor, Tensor]:
    return (alpha, own) if keep is None else (alpha * keep[: alpha.size(0)], own * keep[alpha.size(0) :])


def _first(x: Tensor, rows: int) -> Tensor:
    return x if x.size(0) == rows else x[:rows]


def _gat(
    x: Tensor,
    att_src: Tensor,
    att_dst: _Optional,
    dst: _Optional,
    keep: _Optional,
    index: Tensor,
    ptr: Tensor,
    self_rows: int,
    slope: float,
    *rest: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    targets, heads = ptr.size(0) - 1, att_src.size(-2)
    src = operators.row_dot.within(x, att_src.reshape(1, -1), heads)
    if att_dst is None:
        made = src.new_empty(0, heads)
    else:
        made = operators.row_dot.within(_first(x, targets), att_dst.reshape(1, -1), heads)
    alpha, own = operators.attention.within(
        src, made if dst is None else dst, None, index, ptr, self_rows, slope, None, None, None
    )
    weight, self_weight = _dropped(alpha, own, keep)
    out = operators.sum.within(x, index, ptr, weight, self_weight, None, None, False, None, None, None)
    return out, alpha, own, src, made


def _gat_fake(
    x: Tensor,
    att_src: Tensor,
    att_dst: _Optional,
    dst: _Optional,
    keep: _Optional,
    index: Tensor,
    ptr: Tensor,
    self_rows: int,
    *rest: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    targets, heads = ptr.size(0) - 1, att_src.size(-2)
    return (
        x.new_empty(targets, x.size(1)),
        x.new_empty(index.size(0), heads),
        x.new_empty(self_rows, heads),
        x.new_empty(x.size(0), heads),
        x.new_empty(0 if att_dst is None else targets, heads),
    )


def _gat_back(
    grad: Tensor,
    alpha: Tensor,
    own: Tensor,
    src: Tensor,
    x: Tensor,
    att_src: Tensor,
    att_dst: _Optional,
    dst: Tensor,
    keep: _Optional,
    index: Tensor,
    ptr: Tensor,
    slope: float,
    source_ptr: _Optional,
    target: _Optional,
    edge: _Optional,
    cut: int,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    by_source = source_ptr, target, edge
    if source_ptr is None:
        by_source = kernels.transpose(index, ptr, x.size(0))
        cut = ptr.size(0) - 1
    (rows, heads), edges = own.shape, alpha.size(0)
    weight, self_weight = _dropped(alpha, own, keep)
    how = weight, self_weight, None, None, False
    of_x, of_alpha = operators.sum_back_both.within(x, grad, index, ptr, *how, *by_source, cut)
    of_own = operators.row_dot.within(_first(x, rows), _first(grad, rows), heads)
    if keep is not None:
        of_alpha.mul_(keep[:edges])
        of_own.mul_(keep[edges:])
    of_edge, of_self, of_dst = operators.attention_back.within(
        alpha, own, of_alpha, of_own, src, dst, None, index, ptr, slope
    )
    of_src = operators.by_source.within(of_edge, of_self, index, ptr, *by_source, x.size(0))
    of_att_src, of_att_dst = _like(att_src, x), att_src.new_empty(0, att_src.size(-1))
    _add_projection(x, att_src, of_src, of_x, of_att_src)
    if att_dst is not None:
        of_att_dst = _like(att_dst, x)
        targets = of_dst.size(0)
        _add_projection(_first(x, targets), att_dst, of_dst, _first(of_x, targets), of_att_dst)
    return of_x, of_att_src, of_att_dst, of_dst


def _like(att: Tensor, x: Tensor) -> Tensor:
    """What :func:`_add_projection` writes, zero where it writes nothing."""
    return torch.empty_like(att) if x.size(1) > 0 else torch.zeros_like(att)


def _add_projection(x: Tensor, att: Tensor, of_logit: Tensor, of_x: Tensor, of_att: Tensor) -> None:
    """The derivative of ``row_dot(x, att)``: added to ``of_x``, written to ``of_att``."""
    if x.size(1) > 0:
        kernels.heads(header.SPREAD, of_x, att.reshape(1, -1), of_logit, of_x)
        kernels.heads(header.TOTAL, x, None, of_logit, of_att)


def _gat_back_fake(
    grad: Tensor,
    alpha: Tensor,
    own: Tensor,
    src: Tensor,
    x: Tensor,
    att_src: Tensor,
    att_dst: _Optional,
    dst: Tensor,
    *rest: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    of_att_dst = att_src.new_empty(0, att_src.size(-1)) if att_dst is None else torch.empty_like(att_dst)
    return x.new_empty(x.shape), torch.empty_like(att_src), of_att_dst, grad.new_empty(dst.shape)


def _gat_setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, att_src, att_dst, dst, keep, index, ptr, _, slope, *transposed, cut = inputs
    _, alpha, own, src, made = output
    ctx.mark_non_differentiable(alpha, own, src, made)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(
        alpha, own, src, x, att_src, att_dst, made if dst is None else dst, keep, index, ptr, *transposed
    )
    ctx.slope, ctx.cut = slope, cut


def _gat_backward(ctx: Any, grad: _Optional, *others: _Optional) -> tuple[_Optional, ...]:
    if grad is None:  # which zeros are not made for
        return (None,) * 13
    saved = ctx.saved_tensors
    of_x, of_src, of_dst, of_logit = operators.gat_back(grad, *saved[:-3], ctx.slope, *saved[-3:], ctx.cut)
    need = ctx.needs_input_grad
    return (of_x, of_src, of_dst if need[2] else None, of_logit if need[3] else None, *(None,) * 9)


define(
    "gat(Tensor x, Tensor att_src, Tensor? att_dst, Tensor? dst, Tensor? keep, Tensor index, Tensor ptr, "
    f"SymInt self_rows, float slope, {_GRAPH}, int cut) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    _gat,
    _gat_fake,
    _gat_setup,
    _gat_backward,
)
define(
    "gat_back(Tensor grad, Tensor alpha, Tensor own, Tensor src, Tensor x, Tensor att_src, Tensor? att_dst, "
    f"Tensor dst, Tensor? keep, Tensor index, Tensor ptr, float slope, {_GRAPH}, int cut) -> "
    "(Tensor, Tensor, Tensor, Tensor)",
    _gat_back,
    _gat_back_fake,
)
