"""The operators against a NumPy oracle and autograd of the plain formulation; bits over threads, memory, bad input."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import torch
import warm
from seeds import seed as seed_of
from torch import Tensor
from torch.autograd import gradcheck

from freshgo import ops
from freshgo._native import openmp
from freshgo._ops import kernels
from freshgo.errors import DTypeError, FreshgoError, InvalidArgumentError

REDUCTIONS = ("sum", "mean", "max", "min")
DTYPES = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 1e-2, torch.float16: 2e-3}


@pytest.fixture(params=[0, 1, 2], ids=["portable", "avx2", "avx512"])
def isa(request: pytest.FixtureRequest) -> Iterator[int]:
    used = kernels.prepare(request.param)
    if used != request.param:
        kernels.prepare()
        pytest.skip("this processor does not have it")
    yield used
    kernels.prepare()


def graph(
    rows: int, targets: int, edges: int, dtype: torch.dtype = torch.int64, seed: int = 0
) -> tuple[Tensor, Tensor, Tensor]:
    """Index, ptr and the target of each edge: repeated edges, self-loops, and a third of the targets isolated."""
    gen = torch.Generator().manual_seed(seed_of(seed))
    target = torch.randint(max(1, targets * 2 // 3), (edges,), generator=gen).sort().values
    ptr = torch.zeros(targets + 1, dtype=torch.int64)
    ptr[1:] = torch.bincount(target, minlength=targets).cumsum(0)
    return torch.randint(rows, (edges,), generator=gen).to(dtype), ptr, target


def oracle(x: Tensor, index: Tensor, ptr: Tensor, weight: Tensor | None, reduce: str) -> np.ndarray[Any, Any]:
    """One target after the other, in float64."""
    rows = x.detach().double().numpy()
    out = np.zeros((len(ptr) - 1, *rows.shape[1:]))
    for t in range(len(out)):
        edges = slice(int(ptr[t]), int(ptr[t + 1]))
        messages = rows[index[edges].numpy()]
        if weight is not None:
            w = weight[edges].double().numpy()
            messages = messages * w.reshape(w.shape + (1,) * (messages.ndim - w.ndim))
        if len(messages):
            out[t] = getattr(np, reduce)(messages, axis=0)
    return out


def plain(x: Tensor, index: Tensor, target: Tensor, targets: int, weight: Tensor | None, reduce: str) -> Tensor:
    """The formulation that writes messages."""
    messages = x[index.long()]
    if weight is not None:
        messages = messages * weight.view(*weight.shape, *(1,) * (messages.dim() - weight.dim()))
    where = target.view(-1, *(1,) * (x.dim() - 1)).expand_as(messages)
    name = {"max": "amax", "min": "amin"}.get(reduce, reduce)
    return torch.zeros(targets, *x.shape[1:], dtype=x.dtype).scatter_reduce(
        0, where, messages, name, include_self=False
    )


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("columns", [1, 2, 3, 4, 5, 8, 15, 16, 17, 31, 47, 64, 100, 128, 129, 144, 260])
def test_every_width(isa: int, columns: int, dtype: torch.dtype) -> None:
    index, ptr, _ = graph(40, 30, 300)
    x = torch.randn(40, columns, generator=torch.Generator().manual_seed(seed_of(1))).to(dtype)
    weight = torch.rand(300, generator=torch.Generator().manual_seed(seed_of(2))).to(dtype)
    for reduce in REDUCTIONS:
        expected = oracle(x, index, ptr, None, reduce)
        out = ops.aggregate(x, index, ptr, reduce=reduce)
        assert out.dtype == dtype
        np.testing.assert_allclose(out.double(), expected, rtol=DTYPES[dtype], atol=20 * DTYPES[dtype])
    expected = oracle(x, index, ptr, weight, "sum")
    out = ops.aggregate(x, index, ptr, weight)
    np.testing.assert_allclose(out.double(), expected, rtol=DTYPES[dtype], atol=20 * DTYPES[dtype])


@pytest.mark.parametrize(("heads", "channels"), [(1, 5), (2, 4), (3, 7), (8, 8), (4, 16), (2, 64), (5, 1)])
def test_weights_for_heads(isa: int, heads: int, channels: int) -> None:
    index, ptr, target = graph(30, 25, 200)
    x = torch.randn(30, heads, channels, requires_grad=True)
    weight = torch.randn(200, heads, requires_grad=True)
    out = ops.aggregate(x, index, ptr, weight)
    np.testing.assert_allclose(out.detach(), oracle(x, index, ptr, weight.detach(), "sum"), rtol=1e-4, atol=1e-4)
    grad = torch.randn_like(out)
    theirs = torch.autograd.grad(plain(x, index, target, 25, weight, "sum"), (x, weight), grad)
    for ours, expected in zip(torch.autograd.grad(out, (x, weight), grad), theirs, strict=True):
        torch.testing.assert_close(ours, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("index_dtype", [torch.int64, torch.int32])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("reduce", REDUCTIONS)
@pytest.mark.parametrize("given", [False, True], ids=["made", "transposed"])
def test_gradients(isa: int, reduce: str, weighted: bool, index_dtype: torch.dtype, given: bool) -> None:
    if weighted and reduce in ("max", "min"):
        pytest.skip("not offered")
    index, ptr, target = graph(20, 16, 120, index_dtype)
    x = torch.randn(20, 19, requires_grad=True)
    x.data[3] = x.data[7]  # rows that tie
    weight = torch.randn(120, requires_grad=True) if weighted else None
    transposed = ops.transpose(index, ptr, 20) if given else None
    leaves = [t for t in (x, weight) if t is not None]
    out = ops.aggregate(x, index, ptr, weight, reduce, transposed=transposed)  # type: ignore[arg-type]
    expected = plain(x, index, target, 16, weight, reduce)
    torch.testing.assert_close(out, expected, rtol=1e-5, atol=1e-5)
    grad = torch.randn_like(out)
    theirs = torch.autograd.grad(expected, leaves, grad)
    for mine, other in zip(torch.autograd.grad(out, leaves, grad), theirs, strict=True):
        torch.testing.assert_close(mine, other, rtol=1e-4, atol=1e-5)


def test_gradcheck() -> None:
    index, ptr, _ = graph(9, 8, 30)
    x = torch.randn(9, 2, 3, dtype=torch.float64, requires_grad=True)
    weight = torch.rand(30, 2, dtype=torch.float64, requires_grad=True)
    single = torch.rand(30, dtype=torch.float64, requires_grad=True)
    for reduce in REDUCTIONS:
        assert gradcheck(lambda x, r=reduce: ops.aggregate(x, index, ptr, reduce=r), (x,))
    for reduce in ("sum", "mean"):
        assert gradcheck(lambda x, w, r=reduce: ops.aggregate(x, index, ptr, w, r), (x, weight))
    for loops in (False, True):
        assert gradcheck(lambda x, ls=loops: ops.gcn(x, index, ptr, add_self_loops=ls), (x,))
        assert gradcheck(lambda x, w, ls=loops: ops.gcn(x, index, ptr, w, add_self_loops=ls), (x, single))
    src = torch.randn(9, 2, dtype=torch.float64, requires_grad=True)
    dst = torch.randn(8, 2, dtype=torch.float64, requires_grad=True)
    for loops in (False, True):
        assert gradcheck(
            lambda x, s, d, e, ls=loops: ops.attention(x, s, d, index, ptr, alpha_edge=e, add_self_loops=ls),
            (x, src, dst, weight),
        )
        assert gradcheck(lambda x, s, ls=loops: ops.attention(x, s, None, index, ptr, add_self_loops=ls), (x, src))
        how = (torch.rand(30 + 8 * loops, 2, dtype=torch.float64), index, ptr, 8 * loops, 0.2, None, None, None, -1)
        flat, att = x.detach().reshape(9, 6).requires_grad_(), x.detach()[0].clone().requires_grad_()
        other = x.detach()[1].clone().requires_grad_()
        assert gradcheck(lambda x, a, b, h=how: torch.ops.freshgo.gat(x, a, b, None, *h)[0], (flat, att, other))
        assert gradcheck(lambda x, a, d, h=how: torch.ops.freshgo.gat(x, a, None, d, *h)[0], (flat, att, dst))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("heads", "channels"), [(1, 7), (2, 4), (3, 16), (4, 5), (8, 16), (12, 3)])
def test_a_layer_of_attention_is_its_parts(isa: int, heads: int, channels: int, dtype: torch.dtype) -> None:
    index, ptr, _ = graph(30, 24, 200)
    x = torch.randn(30, heads * channels).to(dtype).requires_grad_()
    att = [torch.randn(heads, channels).to(dtype).requires_grad_() for _ in range(2)]
    dst = torch.randn(24, heads).to(dtype).requires_grad_()
    for shared in (False, True):
        for loops in (False, True):
            options: dict[str, Any] = {"negative_slope": 0.2, "add_self_loops": loops, "dropout": 0.4}
            by_head = x.view(30, heads, channels)
            logits = (by_head[:24] * att[1]).sum(-1) if shared else dst
            torch.manual_seed(seed_of(3))
            expected = ops.attention(by_head, (by_head * att[0]).sum(-1), logits, index, ptr, **options).flatten(1)
            torch.manual_seed(seed_of(3))
            given = (att[1], None) if shared else (None, dst)
            out = ops.gat(x, att[0], *given, index, ptr, transposed=None, **options)
            tolerance = 30 * DTYPES[dtype]
            torch.testing.assert_close(out, expected, rtol=tolerance, atol=tolerance)
            leaves, grad = [x, *att] if shared else [x, att[0], dst], torch.randn(24, heads * channels).to(dtype)
            theirs = torch.autograd.grad(expected, leaves, grad)
            for mine, other in zip(torch.autograd.grad(out, leaves, grad), theirs, strict=True):
                torch.testing.assert_close(mine, other, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("slope", [0.0, 0.2, 1.5])
@pytest.mark.parametrize("heads", [1, 3, 8])
def test_attention_is_the_softmax_of_its_definition(isa: int, heads: int, slope: float, loops: bool) -> None:
    index, ptr, _ = graph(30, 24, 200)
    x, src, dst = torch.randn(30, heads, 5), 20 * torch.randn(30, heads), 20 * torch.randn(24, heads)
    edge = torch.randn(200, heads)
    out = ops.attention(x, src, dst, index, ptr, alpha_edge=edge, negative_slope=slope, add_self_loops=loops)
    for t in range(24):
        edges = [e for e in range(int(ptr[t]), int(ptr[t + 1])) if not (loops and int(index[e]) == t)]
        logits = [src[index[e]] + dst[t] + edge[e] for e in edges] + ([src[t] + dst[t]] if loops else [])
        rows = [x[index[e]] for e in edges] + ([x[t]] if loops else [])
        expected = torch.zeros(heads, 5, dtype=torch.float64)
        if rows:
            stacked = torch.stack(logits).double()
            alpha = torch.where(stacked > 0, stacked, stacked * slope).softmax(0)
            expected = (alpha.unsqueeze(-1) * torch.stack(rows).double()).sum(0)
        torch.testing.assert_close(out[t].double(), expected, rtol=1e-4, atol=1e-5)


def test_attention_does_not_overflow() -> None:
    index, ptr = torch.tensor([0, 1, 2]), torch.tensor([0, 3])
    src = torch.tensor([[1e30], [-1e30], [1e30]])
    out = ops.attention(torch.tensor([[[1.0]], [[5.0]], [[3.0]]]), src, None, index, ptr)
    assert out.item() == 2.0


def test_attention_drops_edges_as_pyg_does() -> None:
    index, ptr, target = graph(20, 20, 100)
    keep = index != target
    index = index[keep]
    ptr = torch.searchsorted(target[keep].contiguous(), torch.arange(21))
    x, src = torch.ones(20, 2, 3), torch.zeros(20, 2)
    torch.manual_seed(seed_of(5))
    out = ops.attention(x, src, None, index, ptr, add_self_loops=True, dropout=0.5)
    torch.manual_seed(seed_of(5))
    degree = torch.cat([ptr.diff().repeat_interleave(ptr.diff()), ptr.diff()]) + 1
    alpha = torch.nn.functional.dropout((1 / degree).unsqueeze(1).expand(-1, 2).contiguous(), 0.5)
    where = torch.cat([target[keep], torch.arange(20)])
    torch.testing.assert_close(out[:, :, 0], torch.zeros(20, 2).index_add_(0, where, alpha))
    assert ops.attention(x, src, None, index, ptr, dropout=0.5, training=False)[0].eq(1).all() or ptr[1] == 0


def test_long_rows_and_repeated_edges(isa: int) -> None:
    gen = torch.Generator().manual_seed(seed_of(3))
    index = torch.randint(50, (100_003,), generator=gen)
    ptr = torch.tensor([0, 0, 1, 100_001, 100_003])
    target = torch.repeat_interleave(torch.arange(4), ptr.diff())
    for columns, dtype in ((3, torch.float32), (40, torch.float32), (129, torch.float32), (20, torch.bfloat16)):
        x = torch.randn(50, columns, generator=gen).to(dtype)
        for reduce in REDUCTIONS:
            out = ops.aggregate(x, index, ptr, reduce=reduce)
            expected = plain(x.double(), index, target, 4, None, reduce)
            tolerance = 5e-4 if dtype == torch.float32 else 1e-2  # one running sum, as everywhere in torch
            torch.testing.assert_close(out.double(), expected, rtol=tolerance, atol=2e-1 if reduce == "sum" else 1e-3)
    x = torch.randn(50, 8, generator=gen, dtype=torch.float64, requires_grad=True)
    weight = torch.rand(100_003, generator=gen, dtype=torch.float64, requires_grad=True)
    grad = torch.randn(4, 8, generator=gen, dtype=torch.float64)
    ours = torch.autograd.grad(ops.aggregate(x, index, ptr, weight), (x, weight), grad)
    theirs = torch.autograd.grad(plain(x, index, target, 4, weight, "sum"), (x, weight), grad)
    for mine, expected in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, expected)


@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_nothing_to_aggregate(reduce: str) -> None:
    none = torch.empty(0, dtype=torch.int64)
    for rows, targets, columns in ((5, 3, 4), (5, 0, 4), (0, 3, 4), (0, 0, 0), (5, 3, 0)):
        x = torch.randn(rows, columns, requires_grad=True)
        out = ops.aggregate(x, none, torch.zeros(targets + 1, dtype=torch.int64), reduce=reduce)  # type: ignore[arg-type]
        assert out.shape == (targets, columns)
        assert not out.any()
        out.sum().backward()
        assert x.grad is not None
        assert not x.grad.any()


def test_shapes_strides_and_scalars_per_row() -> None:
    index, ptr, _ = graph(12, 10, 50)
    wide = torch.randn(24, 30)
    for x in (
        wide[::2, 3:20],
        wide[:12].t()[:12],
        torch.randn(12),
        torch.randn(12, 2, 3),
        torch.randn(1, 7).expand(12, 7),
    ):
        np.testing.assert_allclose(
            ops.aggregate(x, index, ptr), oracle(x, index, ptr, None, "sum"), rtol=1e-4, atol=1e-5
        )
    both = torch.stack([index, index], 1)
    assert ops.aggregate(wide[:12], both[:, 0], ptr).equal(ops.aggregate(wide[:12], index, ptr))
    x = torch.randn(12, 6, requires_grad=True)
    ops.aggregate(x, index, ptr).sum().backward()  # an expanded gradient
    assert x.grad is not None
    torch.testing.assert_close(x.grad, torch.bincount(index, minlength=12).float()[:, None].expand(12, 6))


def test_nan_and_infinity_pass_through() -> None:
    x = torch.tensor([[1.0, math.nan], [math.inf, 2.0], [-math.inf, 3.0]])
    index, ptr = torch.tensor([0, 1, 1, 2, 2]), torch.tensor([0, 2, 4, 5])
    target = torch.tensor([0, 0, 1, 1, 2])
    for reduce in REDUCTIONS:
        torch.testing.assert_close(
            ops.aggregate(x, index, ptr, reduce=reduce), plain(x, index, target, 3, None, reduce), equal_nan=True
        )


def test_large_results_use_memory_of_earlier_ones() -> None:
    index, ptr = torch.arange(70_000), torch.arange(70_001)
    x = torch.randn(70_000, 37)  # a size that no other test has
    first, second = ops.aggregate(x, index, ptr), ops.aggregate(x, index, ptr)
    places = {first.data_ptr(), second.data_ptr()}
    assert len(places) == 2  # nobody gets what is in use
    part = first[10:20]
    del first, second
    third = ops.aggregate(x, index, ptr)
    assert third.data_ptr() in places
    assert third.data_ptr() + 10 * 37 * 4 != part.data_ptr()
    assert part.equal(x[10:20])
    third.requires_grad_().backward(torch.ones_like(x))
    assert torch.ones_like(x).equal(third.grad)  # type: ignore[arg-type]


def test_transpose_groups_by_source() -> None:
    for dtype in (torch.int64, torch.int32):
        index, ptr, target = graph(300, 200, 70_000, dtype)
        by_source = ops.transpose(index, ptr, 310)
        order = torch.argsort(index.long(), stable=True)
        assert by_source.edge.long().equal(order)
        assert by_source.target.long().equal(target[order])
        assert by_source.ptr.diff().equal(torch.bincount(index.long(), minlength=310))


def test_group_sorts_by_target() -> None:
    edge_index = torch.randint(40, (2, 500), generator=torch.Generator().manual_seed(seed_of(0)))
    index, ptr, order = ops.group(edge_index, 45)
    assert order.equal(torch.argsort(edge_index[1], stable=True))
    assert index.equal(edge_index[0][order])
    assert ptr.diff().equal(torch.bincount(edge_index[1], minlength=45))


def test_a_prefix_of_targets_takes_the_transposition_of_the_whole() -> None:
    index, ptr, _ = graph(30, 20, 150)
    whole = ops.transpose(index, ptr, 30)
    x = torch.randn(30, 7, requires_grad=True)
    weight = torch.rand(150, requires_grad=True)
    for targets in (0, 1, 7, 13, 20):
        first, edges = ptr[: targets + 1], int(ptr[targets])
        for more in (0, 3):  # as trim_to_layer leaves targets without edges behind
            padded = torch.cat([first, first[-1:].expand(more)])
            for reduce in REDUCTIONS:
                w = weight[:edges] if reduce in ("sum", "mean") else None
                grads = [
                    torch.autograd.grad(
                        ops.aggregate(x, index[:edges], padded, w, reduce, transposed=t).square().sum(), x
                    )
                    for t in (None, whole)
                ]
                torch.testing.assert_close(grads[0], grads[1])


def test_results_do_not_depend_on_threads() -> None:
    index, ptr, _ = graph(5000, 4000, 60_000)
    x = torch.randn(5000, 70, requires_grad=True)
    weight, src = torch.rand(60_000, requires_grad=True), torch.randn(5000, 2, requires_grad=True)

    def everything() -> list[Tensor]:
        found: list[Tensor] = [*ops.transpose(index, ptr, 5000)]
        for reduce in REDUCTIONS:
            out = ops.aggregate(x, index, ptr, reduce=reduce)
            found += [out, *torch.autograd.grad(out.square().sum(), x)]
        att = torch.linspace(-1, 1, 70, dtype=torch.float32).view(2, 35)
        options: dict[str, Any] = {"negative_slope": 0.2, "add_self_loops": True, "dropout": 0.0, "transposed": None}
        out = ops.gat(x, att.requires_grad_(), att.flip(1), None, index, ptr, **options)
        found += [out, *torch.autograd.grad(out.square().sum(), (x, att))]
        out = ops.gcn(x, index, ptr, weight)
        found += [out, *torch.autograd.grad(out.square().sum(), (x, weight))]
        out = ops.attention(x.view(5000, 2, 35), src, None, index, ptr, add_self_loops=True)
        return [*found, out, *torch.autograd.grad(out.square().sum(), (x, src))]

    before = torch.get_num_threads()
    team = openmp.parallel
    try:
        torch.set_num_threads(1)
        expected = everything()
        for threads in (2, 3, 7):
            torch.set_num_threads(threads)
            for borrowed in (True, False):
                openmp.parallel = team if borrowed else lambda: None
                kernels.prepare()
                for one, other in zip(everything(), expected, strict=True):
                    assert one.equal(other)
    finally:
        openmp.parallel = team
        kernels.prepare()
        torch.set_num_threads(before)


def test_promotion_is_that_of_a_product() -> None:
    index, ptr, _ = graph(9, 8, 30)
    for x_dtype in DTYPES:
        for w_dtype in DTYPES:
            x, weight = torch.randn(9, 4).to(x_dtype), torch.rand(30).to(w_dtype)
            assert ops.aggregate(x, index, ptr, weight).dtype == (x[:1, 0] * weight[:1]).dtype


def test_no_memory_of_edges_by_columns() -> None:
    out = warm.run("""
        import resource, torch
        from freshgo import ops
        rows, targets, degree, columns = 4000, 4000, 150, 256
        edges = targets * degree                                      # messages would take 614 MB
        index, ptr = torch.randint(rows, (edges,)), torch.arange(targets + 1) * degree
        x = torch.randn(rows, columns, requires_grad=True)
        alpha = torch.randn(rows, 2, requires_grad=True)
        weight = torch.rand(edges, requires_grad=True)
        ops.aggregate(x[:10], index[:0], torch.zeros(3, dtype=torch.int64)).sum().backward()
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for reduce in ("sum", "mean", "max"):
            ops.aggregate(x, index, ptr, reduce=reduce).sum().backward()
        ops.gcn(x, index, ptr, weight).sum().backward()
        ops.attention(x.view(rows, 2, 128), alpha, alpha, index, ptr, dropout=0.1).sum().backward()
        print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
    """)
    assert int(out) < 150  # MiB: of a few numbers for each edge and a few of the 4 MB tensors of rows


def test_in_a_forked_child() -> None:
    out = warm.run("""
        import os, torch
        from freshgo import ops
        index, ptr = torch.randint(3000, (90_000,)), torch.arange(3001) * 30
        x = torch.randn(3000, 64)
        torch.set_num_threads(2)
        expected = ops.aggregate(x, index, ptr)
        child = os.fork()
        if child == 0:
            # compared by NumPy: torch's own threads do not survive a fork
            os._exit(0 if (ops.aggregate(x, index, ptr).numpy() == expected.numpy()).all() else 1)
        print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    """)
    assert out.strip() == "0"


GOOD: dict[str, Any] = {
    "x": torch.randn(6, 4),
    "index": torch.tensor([0, 5, 2, 2]),
    "ptr": torch.tensor([0, 1, 1, 4]),
}


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"index": torch.tensor([0, 6, 2, 2])}, InvalidArgumentError, r"index\[1\] is 6.*\[4\].*6"),
        ({"index": torch.tensor([0, 1, -1, 2])}, InvalidArgumentError, r"index\[2\] is -1"),
        ({"index": torch.tensor([0, 1, 2, 2**62])}, InvalidArgumentError, r"index\[3\] is 4611686018427387904"),
        ({"index": torch.tensor([0, 1, 2])}, InvalidArgumentError, r"ptr\[-1\] is 4, expected 3.*\[3\].*\[4\]"),
        ({"index": torch.tensor([[0, 1, 2, 2]])}, InvalidArgumentError, r"index has shape \[1, 4\]"),
        ({"index": torch.tensor([0.0, 1, 2, 2])}, DTypeError, "index has dtype torch.float32"),
        ({"index": [0, 1, 2, 2]}, DTypeError, "index must be a tensor, got list"),
        (
            {"ptr": torch.tensor([0, 3, 1, 4])},
            InvalidArgumentError,
            r"ptr must not decrease: ptr\[1\] is 3 and ptr\[2\] is 1",
        ),
        (
            {"ptr": torch.tensor([0, 9, 9, 4])},
            InvalidArgumentError,
            r"ptr must not decrease: ptr\[2\] is 9 and ptr\[3\] is 4",
        ),
        ({"ptr": torch.tensor([1, 1, 1, 4])}, InvalidArgumentError, r"ptr\[0\] is 1"),
        ({"ptr": torch.tensor([0, -(2**63), 2**63 - 1, 4])}, InvalidArgumentError, "ptr"),
        ({"ptr": torch.empty(0, dtype=torch.int64)}, InvalidArgumentError, r"ptr has shape \[0\]"),
        ({"ptr": torch.tensor([0.0, 4.0])}, DTypeError, "ptr has dtype torch.float32"),
        ({"x": torch.ones(6, 4, dtype=torch.int64)}, DTypeError, "x has dtype torch.int64"),
        ({"x": torch.tensor(1.0)}, InvalidArgumentError, r"x has shape \[\]"),
        ({"x": torch.ones(6, 4, device="meta")}, InvalidArgumentError, "x is on meta"),
        ({"weight": torch.ones(3)}, InvalidArgumentError, r"weight has shape \[3\].*index has shape \[4\]"),
        ({"weight": torch.ones(4, 2)}, InvalidArgumentError, r"weight has shape \[4, 2\].*got \[6, 4\]"),
        ({"weight": torch.ones(4), "reduce": "max"}, InvalidArgumentError, "weight goes with"),
        ({"weight": torch.ones(4, dtype=torch.complex64)}, DTypeError, "weight has dtype torch.complex64"),
        ({"reduce": "median"}, InvalidArgumentError, "reduce must be one of 'sum', 'mean', 'max', 'min', got 'median'"),
        ({"transposed": (1, 2, 3)}, DTypeError, "transposed must be what"),
        (
            {"transposed": ops.Transposed(*(torch.zeros(n, dtype=torch.int64) for n in (7, 3, 3)))},
            InvalidArgumentError,
            r"transposed has shapes \[7\], \[3\], \[3\].*\[4\].*\[6, 4\]",
        ),
    ],
)
def test_bad_input(change: dict[str, Any], kind: type[FreshgoError], words: str) -> None:
    ops.aggregate(**GOOD)
    with pytest.raises(kind, match=words):
        ops.aggregate(**{**GOOD, **change})


def test_a_transposition_of_another_graph_reads_nothing_outside() -> None:
    x = torch.randn(6, 4, requires_grad=True)
    for bad in (
        ops.Transposed(torch.tensor([0, 4, 4, 4, 4, 4, 9]), torch.zeros(4).long(), torch.zeros(4).long()),
        ops.Transposed(torch.tensor([0, 4, 4, 4, 4, 4, 4]), torch.tensor([0, -3, 0, 0]), torch.zeros(4).long()),
        ops.Transposed(torch.tensor([0, -4, 4, 4, 4, 4, 4]), torch.zeros(4).long(), torch.zeros(4).long()),
    ):
        out = ops.aggregate(x, GOOD["index"], GOOD["ptr"], transposed=bad)
        with pytest.raises(InvalidArgumentError):
            out.sum().backward()
    wild = ops.Transposed(torch.tensor([0, 4, 4, 4, 4, 4, 4]), torch.zeros(4).long(), torch.tensor([0, 1, 99, 3]))
    with pytest.raises(InvalidArgumentError, match=r"edge\[2\] is 99"):
        ops.aggregate(x, GOOD["index"], GOOD["ptr"], torch.ones(4), transposed=wild).sum().backward()


def test_bad_input_of_the_others() -> None:
    x, index, ptr = GOOD["x"], GOOD["index"], GOOD["ptr"]
    heads = x.view(6, 2, 2)
    with pytest.raises(InvalidArgumentError, match=r"alpha_src has shape \[5, 2\], expected \[6, 2\]"):
        ops.attention(heads, torch.ones(5, 2), None, index, ptr)
    with pytest.raises(InvalidArgumentError, match=r"alpha_dst has shape \[6, 2\], expected \[3, 2\]"):
        ops.attention(heads, torch.ones(6, 2), torch.ones(6, 2), index, ptr)
    with pytest.raises(InvalidArgumentError, match=r"index\[1\] is 7"):
        ops.attention(heads, torch.ones(6, 2), None, torch.tensor([0, 7, 0, 0]), ptr)
    with pytest.raises(InvalidArgumentError, match=r"x has shape \[6, 4\]"):
        ops.attention(x, torch.ones(6, 2), None, index, ptr)
    with pytest.raises(InvalidArgumentError, match=r"ptr has shape \[8\]"):
        ops.gcn(x, index, torch.tensor([0, 1, 1, 4, 4, 4, 4, 4]))
    with pytest.raises(InvalidArgumentError, match=r"index\[1\] is 5"):
        ops.transpose(index, ptr, 5)
    with pytest.raises(InvalidArgumentError, match=r"target\[0\] is 3"):
        ops.group(torch.tensor([[0, 1], [3, 1]]), 3)
    with pytest.raises(DTypeError, match="edge_index has dtype"):
        ops.group(torch.rand(2, 4), 3)
