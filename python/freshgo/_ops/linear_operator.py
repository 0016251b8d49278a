"""Dense products of a layer as torch computes them, but into memory of earlier results.

Of a product of 309,000 rows of 128 columns with a square matrix, a third of the time went into fresh pages.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from freshgo._ops import kernels
from freshgo._ops.registry import define, operators
from freshgo._ops.torch_library import _Optional


def _linear(x: Tensor, weight: Tensor, bias: _Optional) -> Tensor:
    out = kernels.empty(x, x.size(0), weight.size(0), x.dtype)
    return torch.mm(x, weight.t(), out=out) if bias is None else torch.addmm(bias, x, weight.t(), out=out)


def _linear_fake(x: Tensor, weight: Tensor, bias: _Optional) -> Tensor:
    return x.new_empty(x.size(0), weight.size(0))


def _linear_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    x, weight, _ = inputs
    ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, weight if ctx.needs_input_grad[0] else None)


def _linear_backward(ctx: Any, grad: Tensor) -> tuple[_Optional, ...]:
    x, weight = ctx.saved_tensors
    return (
        operators.linear(grad, weight.t(), None) if ctx.needs_input_grad[0] else None,
        grad.t().mm(x) if ctx.needs_input_grad[1] else None,
        grad.sum(0) if ctx.needs_input_grad[2] else None,
    )


define(
    "linear(Tensor x, Tensor weight, Tensor? bias) -> Tensor", _linear, _linear_fake, _linear_setup, _linear_backward
)
