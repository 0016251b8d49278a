"""The operators inside PyTorch: registration, fake tensors, compilation, export, autocast."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from seeds import seed as seed_of
from torch import Tensor
from torch.autograd import forward_ad
from torch.library import opcheck

from freshgo import errors, ops

INDEX = torch.tensor([0, 5, 2, 2, 1, 4, 0])
PTR = torch.tensor([0, 1, 1, 4, 7])
NONE = (None, None, None)


def test_opcheck() -> None:
    torch.manual_seed(seed_of(0))
    registered = torch.ops.freshgo
    by_source = ops.transpose(INDEX, PTR, 6)
    x = torch.randn(6, 6, requires_grad=True)
    weight, own = torch.rand(7, 2, requires_grad=True), torch.rand(3, 2, requires_grad=True)
    rows, columns = torch.rand(4), torch.rand(6)
    own_and_scales = (own.detach(), rows, columns, True)
    for graph in (NONE, tuple(by_source)):
        opcheck(registered.sum.default, (x, INDEX, PTR, weight, own, rows, columns, True, *graph))
        opcheck(registered.sum.default, (x, INDEX, PTR, None, None, None, None, False, *graph))
        opcheck(registered.extreme.default, (x, INDEX, PTR, True, True, *graph))
        opcheck(registered.extreme.default, (x.detach(), INDEX, PTR, False, False, *graph))
        src, dst = torch.randn(6, 2, requires_grad=True), torch.randn(4, 2, requires_grad=True)
        opcheck(registered.attention.default, (src, dst, weight, INDEX, PTR, 4, 0.2, *graph))
        opcheck(
            registered.sum_back.default, (torch.randn(4, 6), INDEX, PTR, None, None, rows, None, False, *graph, 6, -1)
        )
        opcheck(
            registered.sum_back_both.default,
            (x.detach(), torch.randn(4, 6), INDEX, PTR, weight.detach(), *own_and_scales, *graph, -1),
        )
        opcheck(registered.by_source.default, (torch.randn(7, 2), torch.randn(3, 2), INDEX, PTR, *graph, 6))
    opcheck(registered.linear.default, (x, torch.randn(4, 6, requires_grad=True), torch.randn(4, requires_grad=True)))
    opcheck(registered.linear.default, (x.detach(), torch.randn(4, 6, requires_grad=True), None))
    opcheck(registered.mean.default, (x, INDEX, PTR, weight, *NONE))
    opcheck(registered.mean.default, (x, INDEX, PTR, None, *by_source))
    opcheck(registered.row_dot.default, (torch.randn(5, 6), torch.randn(1, 6), 3))
    opcheck(registered.dot.default, (x.detach(), torch.randn(4, 6), INDEX, PTR, rows, None, False, 3))
    opcheck(registered.transpose.default, (INDEX, PTR, 6))
    opcheck(registered.group.default, (torch.tensor([2, 0, 1, 2]), 4))


def layer(x: Tensor, weight: Tensor, index: Tensor, ptr: Tensor) -> Tensor:
    h = ops.aggregate(x, index, ptr, weight).relu() + ops.aggregate(x, index, ptr, reduce="max")
    h = h + ops.aggregate(x, index, ptr, reduce="mean") + ops.gcn(x, index, ptr, weight)
    heads = x.view(-1, 2, 4)
    return h + ops.attention(heads, heads.sum(-1), None, index, ptr, add_self_loops=True).flatten(1)


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled_equals_eager(dynamic: bool) -> None:
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager", dynamic=dynamic)
    for extra in (0, 3):
        ptr = torch.cat([PTR, PTR[-1:].expand(extra)])
        x, weight = torch.randn(9, 8, requires_grad=True), torch.rand(7, requires_grad=True)
        results = []
        for run in (layer, compiled):
            out = run(x, weight, INDEX, ptr)
            results.append((out, *torch.autograd.grad(out.square().sum(), (x, weight))))
        for eager, other in zip(*results, strict=True):
            torch.testing.assert_close(other, eager)


def test_export() -> None:
    class Mean(torch.nn.Module):
        def forward(self, x: Tensor, index: Tensor, ptr: Tensor) -> Tensor:
            return ops.aggregate(x, index, ptr, reduce="mean")

    x = torch.randn(6, 3)
    program = torch.export.export(Mean(), (x, INDEX, PTR))
    torch.testing.assert_close(program.module()(x, INDEX, PTR), ops.aggregate(x, INDEX, PTR, reduce="mean"))


def test_autocast_promotes_as_a_product_does() -> None:
    x, weight, linear = torch.randn(6, 4), torch.rand(7), torch.nn.Linear(4, 4)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        h = linear(x)
        assert ops.aggregate(h, INDEX, PTR).dtype == torch.bfloat16
        assert ops.aggregate(h, INDEX, PTR, weight).dtype == torch.float32


def test_fake_tensors() -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode() as mode:
        x: Any = torch.empty(6, 2, 4, dtype=torch.bfloat16)
        index, ptr = mode.from_tensor(INDEX), mode.from_tensor(PTR)
        out = ops.attention(x, torch.empty(6, 2), None, index, ptr)
        assert out.shape == (4, 2, 4)
        assert out.dtype == torch.bfloat16


OPERATORS: dict[str, Any] = {
    "sum": lambda x: ops.aggregate(x, INDEX, PTR),
    "weighted": lambda x: ops.aggregate(torch.ones(6, 4), INDEX, PTR, x[:, 0].repeat(2)[:7]),
    "mean": lambda x: ops.aggregate(x, INDEX, PTR, reduce="mean"),
    "max": lambda x: ops.aggregate(x, INDEX, PTR, reduce="max"),
    "gcn": lambda x: ops.gcn(x, INDEX, PTR),
    "attention": lambda x: ops.attention(x.view(-1, 2, 2), x[:, :2], None, INDEX, PTR),
}


def forward_mode(f: Any, x: Tensor) -> None:
    with forward_ad.dual_level():
        f(forward_ad.make_dual(x, x))


@pytest.mark.parametrize("name", OPERATORS)
@pytest.mark.parametrize(
    "transform",
    [
        lambda f, x: torch.func.grad(lambda x: f(x).sum())(x),
        lambda f, x: torch.func.vjp(f, x),
        lambda f, x: torch.func.jvp(f, (x,), (x,)),
        lambda f, x: torch.func.jacrev(f)(x),
        lambda f, x: torch.func.jacfwd(f)(x),
        lambda f, x: torch.func.hessian(lambda x: f(x).sum())(x),
        lambda f, x: torch.func.vmap(torch.func.grad(lambda x: f(x).sum()))(torch.stack([x, x])),
        lambda f, x: torch.func.grad(lambda x: torch.func.vmap(f)(torch.stack([x, x])).sum())(x),
        forward_mode,
    ],
    ids=["grad", "vjp", "jvp", "jacrev", "jacfwd", "hessian", "vmap of grad", "grad of vmap", "forward mode"],
)
def test_derivatives_by_transforms_are_refused(name: str, transform: Any) -> None:
    """Some raised, and forward mode lost the tangents."""
    with pytest.raises(errors.InvalidArgumentError, match=r"torch\.func and in forward mode: use torch\.autograd"):
        transform(OPERATORS[name], torch.randn(6, 4))


@pytest.mark.parametrize("name", OPERATORS)
def test_within_transforms_that_differentiate_something_else(name: str) -> None:
    torch.manual_seed(seed_of(0))
    x = torch.randn(6, 4)
    expected = OPERATORS[name](x)
    scale = torch.tensor(2.0)
    assert torch.func.grad(lambda s: (s * OPERATORS[name](x)).sum())(scale).equal(expected.sum())
    assert torch.func.jvp(lambda s: s * OPERATORS[name](x), (scale,), (scale,))[1].equal(2 * expected)
