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
    *by_source: _Optional,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    targets, heads = ptr.numel() - 1, att_src.size(0)
    src = operators.row_dot(x, att_src.reshape(1, -1), heads)
    made = src[:0].clone() if att_dst is None else operators.row_dot(x[:targets], att_dst.reshape(1, -1), heads)
    alpha, own = operators.attention(
        src, made if dst is None else dst, None, index, ptr, self_rows, slope, None, None, None
    )
    weight, self_weight = _dropped(alpha, own, keep)
    return operators.sum(x, index, ptr, weight, self_weight, None, None, False, None, None, None), alpha, own, src, made


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
    targets, heads = ptr.size(0) - 1, att_src.size(0)
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
    *by_source: _Optional,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    if by_source[0] is None:
        by_source = kernels.transpose(index, ptr, x.size(0))
    rows, heads, edges = own.size(0), alpha.size(1), alpha.size(0)
    weight, self_weight = _dropped(alpha, own, keep)
    of_x, of_alpha = operators.sum_back_both(x, grad, index, ptr, weight, self_weight, None, None, False, *by_source)
    of_own = operators.row_dot(x[:rows], grad[:rows], heads)
    if keep is not None:
        of_alpha.mul_(keep[:edges])
        of_own.mul_(keep[edges:])
    of_edge, of_self, of_dst = operators.attention_back(alpha, own, of_alpha, of_own, src, dst, None, index, ptr, slope)
    of_src = operators.by_source(of_edge, of_self, index, ptr, *by_source, x.size(0))
    of_att_src, of_att_dst = torch.zeros_like(att_src), att_src[:0].clone()
    _add_projection(x, att_src, of_src, of_x, of_att_src)
    if att_dst is not None:
        of_att_dst = torch.zeros_like(att_dst)
        targets = of_dst.size(0)
        _add_projection(x[:targets], att_dst, of_dst, of_x[:targets], of_att_dst)
    return of_x, of_att_src, of_att_dst, of_dst


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
    of_att_dst = att_src.new_empty(0, att_src.size(1)) if att_dst is None else torch.empty_like(att_dst)
    return x.new_empty(x.shape), torch.empty_like(att_src), of_att_dst, grad.new_empty(dst.shape)


def _gat_setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, att_src, att_dst, dst, keep, index, ptr, _, slope, *transposed = inputs
    _, alpha, own, src, made = output
    ctx.mark_non_differentiable(alpha, own, src, made)
    ctx.save_for_backward(
        alpha, own, src, x, att_src, att_dst, made if dst is None else dst, keep, index, ptr, *transposed
    )
    ctx.slope = slope


def _gat_backward(ctx: Any, grad: Tensor, *others: _Optional) -> tuple[_Optional, ...]:
    saved = ctx.saved_tensors
    of_x, of_src, of_dst, of_logit = operators.gat_back(grad, *saved[:-3], ctx.slope, *saved[-3:])
    need = ctx.needs_input_grad
    return (of_x, of_src, of_dst if need[2] else None, of_logit if need[3] else None, *(None,) * 8)


define(
    "gat(Tensor x, Tensor att_src, Tensor? att_dst, Tensor? dst, Tensor? keep, Tensor index, Tensor ptr, "
    f"SymInt self_rows, float slope, {_GRAPH}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    _gat,
    _gat_fake,
    _gat_setup,
    _gat_backward,
)
define(
    "gat_back(Tensor grad, Tensor alpha, Tensor own, Tensor src, Tensor x, Tensor att_src, Tensor? att_dst, "
    f"Tensor dst, Tensor? keep, Tensor index, Tensor ptr, float slope, {_GRAPH}) -> (Tensor, Tensor, Tensor, Tensor)",
    _gat_back,
    _gat_back_fake,
)
