"""Operators by the kernels of the device against the CPU's, against float64, and against themselves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.library import opcheck

from freshgo import errors, ops

Case = Callable[..., Tensor]

CASES: dict[str, Case] = {
    "sum": lambda x, i, p, w, t: ops.aggregate(x, i, p, transposed=t),
    "mean": lambda x, i, p, w, t: ops.aggregate(x, i, p, reduce="mean", transposed=t),
    "max": lambda x, i, p, w, t: ops.aggregate(x, i, p, reduce="max", transposed=t),
    "min": lambda x, i, p, w, t: ops.aggregate(x, i, p, reduce="min", transposed=t),
    "weighted": lambda x, i, p, w, t: ops.aggregate(x, i, p, w, transposed=t),
    "gcn": lambda x, i, p, w, t: ops.gcn(x, i, p, transposed=t),
    "gcn, weighted": lambda x, i, p, w, t: ops.gcn(x, i, p, w.abs(), transposed=t),
    "attention": lambda x, i, p, w, t: ops.attention(
        x.view(-1, 2, x.size(1) // 2), x[:, :2], x[: p.numel() - 1, 2:4], i, p, add_self_loops=True, transposed=t
    ).flatten(1),
    "gat": lambda x, i, p, w, t: ops.gat(
        x,
        x[:2, : x.size(1) // 2].detach() / 4,  # the derivatives by these are PyTorch's products
        x[2:4, : x.size(1) // 2].detach() / 4,
        None,
        i,
        p,
        negative_slope=0.2,
        add_self_loops=True,
        dropout=0.0,
        transposed=t,
    ),
}
ROWS = 80


def graph(longest: int = 40, kind: torch.dtype = torch.int64) -> tuple[Tensor, Tensor]:
    """Sixty lists, some of them empty and two of which have `longest` edges or about."""
    generator = torch.Generator().manual_seed(5)
    degrees = torch.randint(0, 40, (60,), generator=generator)
    degrees[:3] = 0
    degrees[7], degrees[59] = longest, longest // 2
    ptr = torch.cat([torch.zeros(1, dtype=torch.int64), degrees.cumsum(0)])
    return torch.randint(0, ROWS, (int(ptr[-1]),), generator=generator).to(kind), ptr


def computed(
    case: Case, device: torch.device, dtype: torch.dtype, columns: int, part: str, longest: int
) -> list[Tensor]:
    """The result and the gradients, on the CPU, of the same random numbers wherever they are computed."""
    index, ptr = graph(longest, torch.int32 if part == "int32" else torch.int64)
    index, ptr = index.to(device), ptr.to(device)
    transposed = None if part in ("alone", "int32") else ops.transpose(index, ptr, ROWS)
    if part == "first targets":
        ptr = ptr[:31].clone()
        index = index[: int(ptr[-1])].clone()
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(ROWS, columns, generator=generator).bfloat16().to(dtype).to(device).requires_grad_()
    weight = torch.randn(index.numel(), generator=generator, dtype=torch.float32)
    weight = weight.to(torch.promote_types(dtype, torch.float32)).to(device).requires_grad_()
    out = case(x, index, ptr, weight, transposed)
    out.backward(torch.randn(out.shape, generator=generator).bfloat16().to(out.dtype).to(device))
    return [t.detach().cpu() for t in (out, x.grad, weight.grad) if t is not None]


def allowed(machine: Any, dtype: torch.dtype) -> float:
    """Roundings between two machines. On a GPU what is PyTorch's own of an operator, such as logits in half precision,
    is rounded otherwise too."""
    if not machine.real:
        return 16
    return 64 if dtype in (torch.bfloat16, torch.float16) else 32


def roundings(want: list[Tensor], got: list[Tensor], dtype: torch.dtype) -> float:
    """The largest difference, in roundings of ``dtype`` relative to 1 + what is wanted."""
    assert [a.shape for a in want] == [b.shape for b in got]
    pairs = [(a.double(), b.double()) for a, b in zip(want, got, strict=True)]
    differences = [((a - b).abs() / (a.abs() + 1)).flatten() for a, b in pairs]
    return float(torch.cat(differences).max()) / torch.finfo(dtype).eps


@pytest.mark.parametrize("part", ["alone", "transposed", "first targets", "int32"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("case", CASES)
def test_as_on_the_cpu(machine: Any, case: str, dtype: torch.dtype, part: str) -> None:
    """Both sum in the order of the edges; fused multiplications and the exponential differ."""
    want = computed(CASES[case], torch.device("cpu"), dtype, 12, part, 40)
    got = machine.run(lambda: computed(CASES[case], machine.device, dtype, 12, part, 40))
    assert roundings(want, got, dtype) <= allowed(machine, dtype)


@pytest.mark.parametrize("columns", [4, 6, 30, 64, 130])
@pytest.mark.parametrize("case", CASES)
def test_long_rows_of_any_width_against_float64(machine: Any, case: str, columns: int) -> None:
    """A list of 1500 edges is shared by the teams of a block. Its sum is off by as many roundings at most."""
    want = computed(CASES[case], torch.device("cpu"), torch.float64, columns, "alone", 1500)
    got = machine.run(lambda: computed(CASES[case], machine.device, torch.float32, columns, "transposed", 1500))
    assert roundings(want, got, torch.float32) <= 1500


@pytest.mark.parametrize("columns", [1, 3, 33])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("case", ["sum", "mean", "max", "weighted", "gcn"])
def test_odd_widths(machine: Any, case: str, dtype: torch.dtype, columns: int) -> None:
    want = computed(CASES[case], torch.device("cpu"), dtype, columns, "alone", 40)
    got = machine.run(lambda: computed(CASES[case], machine.device, dtype, columns, "alone", 40))
    assert roundings(want, got, dtype) <= allowed(machine, dtype)


@pytest.mark.parametrize("case", CASES)
def test_the_same_bits_every_time(machine: Any, case: str) -> None:
    """But for the derivative by weights that are normalised first: that part is PyTorch's, which adds by atomics."""

    def once() -> list[Tensor]:
        return computed(CASES[case], machine.device, torch.float32, 16, "alone", 3000)

    first = machine.run(once)
    keep = 2 if case == "gcn, weighted" else 3
    for _ in range(10 if machine.real else 2):
        assert all(a.equal(b) for a, b in zip(first[:keep], machine.run(once)[:keep], strict=True))


@pytest.mark.parametrize("case", CASES)
def test_gradients_are_those_of_differences(machine: Any, case: str) -> None:
    index, ptr = (
        torch.tensor([0, 5, 2, 2, 1, 4, 0]).to(machine.device),
        torch.tensor([0, 1, 1, 4, 7]).to(machine.device),
    )
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(6, 4, generator=generator, dtype=torch.float64).to(machine.device).requires_grad_()
    weight = (torch.rand(7, generator=generator, dtype=torch.float64) + 0.5).to(machine.device).requires_grad_()
    if case == "gat":  # whose logits' vectors are cut from x here, and are constants
        constant = x.detach().clone()  # not the memory that gradcheck changes

        def run(x: Tensor, weight: Tensor) -> Tensor:
            return ops.gat(x, constant[:2, :2], constant[2:4, :2], None, index, ptr, negative_slope=0.2,
                           add_self_loops=True, dropout=0.0, transposed=None)  # fmt: skip
    else:

        def run(x: Tensor, weight: Tensor) -> Tensor:
            return CASES[case](x, index, ptr, weight, None)

    assert machine.run(lambda: torch.autograd.gradcheck(run, (x, weight), fast_mode=True, nondet_tol=1e-9))


def test_registered_as_pytorch_wants_them(machine: Any) -> None:
    def check() -> None:
        generator = torch.Generator().manual_seed(0)

        def random(*shape: int) -> Tensor:
            return torch.rand(*shape, generator=generator).to(machine.device)

        index = torch.tensor([0, 5, 2, 2, 1, 4, 0]).to(machine.device)
        ptr = torch.tensor([0, 1, 1, 4, 7]).to(machine.device)
        registered, graph = torch.ops.freshgo, tuple(ops.transpose(index, ptr, 6))
        x, weight = random(6, 6).requires_grad_(), random(7, 2).requires_grad_()
        own, rows, columns = random(3, 2).requires_grad_(), random(4), random(6)
        opcheck(registered.sum.default, (x, index, ptr, weight, own, rows, columns, True, *graph))
        opcheck(registered.extreme.default, (x, index, ptr, True, True, *graph))
        src, dst = random(6, 2).requires_grad_(), random(4, 2).requires_grad_()
        opcheck(registered.attention.default, (src, dst, weight, index, ptr, 4, 0.2, *graph))
        opcheck(registered.transpose.default, (index, ptr, 6))
        opcheck(registered.group.default, (torch.tensor([2, 0, 1, 2]).to(machine.device), 4))

    machine.run(check)


def test_a_wrong_index_counts_for_nothing_and_is_told_by_the_next_call(machine: Any) -> None:
    index, ptr = graph()
    bad = index.clone()
    bad[5] = 99
    x = torch.ones(ROWS, 2)

    def broken() -> Tensor:
        out = ops.aggregate(x.to(machine.device), bad.to(machine.device), ptr.to(machine.device)).cpu()
        with pytest.raises(errors.InvalidArgumentError, match=r"cuda:0 found index\[5\] out of range"):
            ops.aggregate(x.to(machine.device), index.to(machine.device), ptr.to(machine.device))
        return out

    row = int(torch.searchsorted(ptr, 5, right=True)) - 1
    want = ptr.diff().float()
    want[row] -= 1
    assert machine.run(broken)[:, 0].equal(want)


def test_wrong_pointers_are_told(machine: Any) -> None:
    index, ptr = graph()
    ptr[10] = 10_000

    def broken() -> None:
        x = torch.ones(ROWS, 8, device=machine.device)
        for reduce in ("sum", "max"):
            ops.aggregate(x, index.to(machine.device), ptr.to(machine.device), reduce=reduce).cpu()
            with pytest.raises(errors.InvalidArgumentError, match=r"ptr\[\d+\] out of range"):
                ops.aggregate(x, index.to(machine.device), ptr.to(machine.device))

    machine.run(broken)


def test_nothing_to_do(machine: Any) -> None:
    def empty() -> None:
        x = torch.randn(5, 0, device=machine.device)
        none = torch.zeros(0, dtype=torch.int64, device=machine.device)
        ptr = torch.zeros(4, dtype=torch.int64, device=machine.device)
        assert ops.aggregate(x, none, ptr).shape == (3, 0)
        assert ops.aggregate(torch.ones(5, 4, device=machine.device), none, ptr).eq(0).all()
        assert ops.aggregate(torch.ones(0, 4, device=machine.device), none, ptr[:1]).shape == (0, 4)
        assert ops.number(none)[2].item() == 0

    machine.run(empty)
