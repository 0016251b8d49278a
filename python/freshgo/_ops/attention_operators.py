"""Coefficients of attention, by edge, and their derivatives by the logits of sources, targets and edges."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from freshgo._native import header
from freshgo._ops import kernels
from freshgo._ops.registry import define, operators
from freshgo._ops.torch_library import _GRAPH, _grouped_by_source, _Optional


def _attention(
    src: Tensor,
    dst: _Optional,
    logit: _Optional,
    index: Tensor,
    ptr: Tensor,
    self_rows: int,
    slope: float,
    *by_source: _Optional,
) -> tuple[Tensor, Tensor]:
    heads = src.size(1)
    alpha = kernels.empty(src, index.numel(), heads, src.dtype)
    own = kernels.empty(src, self_rows, heads, src.dtype)
    kernels.attention(
        "fg_attention_forward", index, ptr, slope, src=src, dst=dst, edge=logit, alpha=alpha, alpha_self=own
    )
    return alpha, own


def _attention_fake(
    src: Tensor, dst: _Optional, logit: _Optional, index: Tensor, ptr: Tensor, self_rows: int, slope: float, *rest: Any
) -> tuple[Tensor, Tensor]:
    heads = src.size(1)
    return src.new_empty(index.size(0), heads), src.new_empty(self_rows, heads)


def _attention_back(
    alpha: Tensor,
    alpha_self: Tensor,
    grad: Tensor,
    grad_self: Tensor,
    src: Tensor,
    dst: _Optional,
    logit: _Optional,
    index: Tensor,
    ptr: Tensor,
    slope: float,
) -> tuple[Tensor, Tensor, Tensor]:
    heads, real = src.size(1), src.dtype
    of_edge = kernels.empty(src, alpha.size(0), heads, real)
    of_self = kernels.empty(src, alpha_self.size(0), heads, real)
    of_dst = kernels.empty(src, ptr.numel() - 1, heads, real)
    kernels.attention(
        "fg_attention_back",
        index,
        ptr,
        slope,
        src=src,
        dst=dst,
        edge=logit,
        alpha=alpha,
        alpha_self=alpha_self,
        grad=grad,
        grad_self=grad_self,
        grad_edge=of_edge,
        grad_edge_self=of_self,
        grad_dst=of_dst,
    )
    return of_edge, of_self, of_dst


def _attention_back_fake(
    alpha: Tensor, alpha_self: Tensor, grad: Tensor, grad_self: Tensor, src: Tensor, *rest: Any
) -> tuple[Tensor, Tensor, Tensor]:
    ptr = rest[3]
    return (
        src.new_empty(alpha.shape),
        src.new_empty(alpha_self.shape),
        src.new_empty(ptr.size(0) - 1, src.size(1)),
    )


def _by_source(of_edge: Tensor, of_self: Tensor, index: Tensor, ptr: Tensor, *rest: Any) -> Tensor:
    *by_source, sources = rest
    source_ptr, _, edge = _grouped_by_source(index, ptr, sources, *by_source)
    out = kernels.empty(of_edge, sources, of_edge.size(1), of_edge.dtype)
    kernels.aggregate(header.SUM, of_edge, edge, source_ptr, out, cut=of_edge.size(0))
    out[: of_self.size(0)].add_(of_self)
    return out


def _by_source_fake(of_edge: Tensor, *rest: Any) -> Tensor:
    return of_edge.new_empty(rest[-1], of_edge.size(1))


def _attention_setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    src, dst, logit, index, ptr, _, slope, *transposed = inputs
    ctx.save_for_backward(src, dst, logit, index, ptr, *output, *transposed)
    ctx.slope = slope


def _attention_backward(ctx: Any, grad: Tensor, grad_self: Tensor) -> tuple[_Optional, ...]:
    src, dst, logit, index, ptr, alpha, alpha_self, *transposed = ctx.saved_tensors
    of_edge, of_self, of_dst = operators.attention_back(
        alpha, alpha_self, grad, grad_self, src, dst, logit, index, ptr, ctx.slope
    )
    of_src = None
    if ctx.needs_input_grad[0]:
        of_src = operators.by_source(of_edge, of_self, index, ptr, *transposed, src.size(0))
    return (
        of_src,
        of_dst if ctx.needs_input_grad[1] else None,
        of_edge if ctx.needs_input_grad[2] else None,
        *(None,) * 7,
    )


define(
    "attention(Tensor src, Tensor? dst, Tensor? logit, Tensor index, Tensor ptr, SymInt self_rows, float slope, "
    f"{_GRAPH}) -> (Tensor, Tensor)",
    _attention,
    _attention_fake,
    _attention_setup,
    _attention_backward,
)
define(
    "attention_back(Tensor alpha, Tensor alpha_self, Tensor grad, Tensor grad_self, Tensor src, Tensor? dst, "
    "Tensor? logit, Tensor index, Tensor ptr, float slope) -> (Tensor, Tensor, Tensor)",
    _attention_back,
    _attention_back_fake,
)
define(
    f"by_source(Tensor of_edge, Tensor of_self, Tensor index, Tensor ptr, {_GRAPH}, SymInt sources) -> Tensor",
    _by_source,
    _by_source_fake,
)
