"""The operators through the device path, over memory of the host: dtypes, strides, order of arguments, prototypes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from device_fakes import HostKernels
from seeds import seed as seed_of

from freshgo import errors, ops
from freshgo._native import abi, cuda
from freshgo._ops import kernels as _kernels


@pytest.fixture
def kernels(monkeypatch: pytest.MonkeyPatch) -> HostKernels:
    return HostKernels().install(monkeypatch)


def graph(kind: torch.dtype = torch.int64) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(seed_of(5))
    degrees = torch.randint(0, 6, (30,), generator=generator)
    degrees[:3] = 0
    ptr = torch.cat([torch.zeros(1, dtype=torch.int64), degrees.cumsum(0)])
    return torch.randint(0, 40, (int(ptr[-1]),), generator=generator).to(kind), ptr


def both(monkeypatch: pytest.MonkeyPatch, compute: Any) -> tuple[Any, Any, HostKernels]:
    """What the CPU and the device path give."""
    want = compute()
    with monkeypatch.context() as patch:
        kernels = HostKernels().install(patch)
        return want, compute(), kernels


CASES = {
    "sum": lambda x, i, p, w, t: ops.aggregate(x, i, p, transposed=t),
    "mean": lambda x, i, p, w, t: ops.aggregate(x, i, p, reduce="mean", transposed=t),
    "max": lambda x, i, p, w, t: ops.aggregate(x, i, p, reduce="max", transposed=t),
    "min": lambda x, i, p, w, t: ops.aggregate(x, i, p, reduce="min", transposed=t),
    "weighted": lambda x, i, p, w, t: ops.aggregate(x, i, p, w, transposed=t),
    "gcn": lambda x, i, p, w, t: ops.gcn(x, i, p, transposed=t),
    "gcn, weighted": lambda x, i, p, w, t: ops.gcn(x, i, p, w.abs(), transposed=t),
    "attention": lambda x, i, p, w, t: ops.attention(
        x.view(-1, 2, 4), x[:, :2], x[: p.numel() - 1, 2:4], i, p, add_self_loops=True, transposed=t
    ).flatten(1),
    "gat": lambda x, i, p, w, t: ops.gat(
        x,
        x[:2, : x.size(1) // 2],
        x[2:4, : x.size(1) // 2],
        None,
        i,
        p,
        negative_slope=0.2,
        add_self_loops=True,
        dropout=0.0,
        transposed=t,
    ),
}


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("part", ["whole", "whole, transposed", "first targets, transposed", "int32"])
def test_the_same_results(monkeypatch: pytest.MonkeyPatch, case: str, dtype: torch.dtype, part: str) -> None:
    index, ptr = graph(torch.int32 if part == "int32" else torch.int64)
    transposed = ops.transpose(index, ptr, 40) if "transposed" in part else None
    if part.startswith("first"):
        ptr = ptr[:21]
        index = index[: int(ptr[-1])]
    generator = torch.Generator().manual_seed(seed_of(6))
    x = torch.randn(40, 16, generator=generator).to(dtype)[:, ::2]  # rows with gaps between elements
    weight = torch.randn(index.numel(), generator=generator)
    rows = torch.randn(ptr.numel() - 1, 8, generator=generator)

    def compute() -> list[torch.Tensor]:
        of_x, of_weight = x.clone().requires_grad_(), weight.clone().requires_grad_()
        out = CASES[case](of_x, index, ptr, of_weight, transposed)
        out.backward(rows.to(out.dtype))
        return [out, of_x.grad, *([] if of_weight.grad is None else [of_weight.grad])]

    want, got, kernels = both(monkeypatch, compute)
    assert len(want) == len(got)
    for a, b in zip(want, got, strict=True):
        assert a.dtype == b.dtype
        assert a.equal(b)
    assert "fg_cuda_aggregate" in kernels.calls
    # Where the lists of a larger graph end is a number on the device, which nothing waits for.
    assert ("fg_cuda_transpose" in kernels.calls) == ("transposed" not in part)


@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
def test_grouping(monkeypatch: pytest.MonkeyPatch, kind: torch.dtype) -> None:
    index, ptr = graph(kind)
    edges = torch.randint(0, 25, (2, 70), generator=torch.Generator().manual_seed(seed_of(8))).to(kind)
    for compute in (lambda: ops.transpose(index, ptr, 40), lambda: ops.group(edges, 25)):
        want, got, kernels = both(monkeypatch, compute)
        assert all(a.equal(b) and a.dtype == b.dtype for a, b in zip(want, got, strict=True))
        assert kernels.calls == ["fg_cuda_transpose"] * 2  # how much scratch, and then the work


@pytest.mark.parametrize("kind", [torch.int32, torch.int64])
@pytest.mark.parametrize("n", [0, 1, 6, 500])
def test_numbering_ids(monkeypatch: pytest.MonkeyPatch, kind: torch.dtype, n: int) -> None:
    ids = torch.randint(0, 100, (n,), generator=torch.Generator().manual_seed(n), dtype=kind)
    numbers: dict[int, int] = {}
    want = [numbers.setdefault(i, len(numbers)) for i in ids.tolist()]
    for node, local, count in both(monkeypatch, lambda: ops.number(ids))[:2]:
        assert node[: int(count)].tolist() == list(numbers)
        assert local.tolist() == want
        assert (node.dtype, local.dtype, count.dtype) == (kind, kind, torch.int64)
        assert (node.shape, count.shape) == (ids.shape, (1,))


@pytest.mark.parametrize(
    ("ids", "error", "match"),
    [
        ([1], errors.DTypeError, "got list"),
        (torch.ones(2), errors.DTypeError, "got torch.float32"),
        (torch.ones(2, 2, dtype=torch.int64), errors.InvalidArgumentError, r"shape \[2, 2\], expected \[n\]"),
        (torch.tensor([3, 1, -2, -7]), errors.InvalidArgumentError, r"ids\[2\] is negative"),
        (torch.ones(2, dtype=torch.int64, device="meta"), errors.InvalidArgumentError, "ids is on meta"),
    ],
)
def test_ids_that_cannot_be_numbered(ids: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        ops.number(ids)


@pytest.mark.parametrize(("kind", "name"), [(1, "index"), (2, "edge"), (3, "ptr"), (4, "slot")])
def test_what_a_kernel_notes_is_raised_by_the_next_call(kernels: HostKernels, kind: int, name: str) -> None:
    index, ptr = graph()
    x = torch.ones(40, 2)
    ops.aggregate(x, index, ptr)
    kernels.status[0][0] = (kind << 56) | (0xFF_FFFF_FFFF_FFFF - 12)
    with pytest.raises(errors.InvalidArgumentError, match=rf"cuda:0 found {name}\[12\] out of range"):
        ops.aggregate(x, index, ptr)
    ops.aggregate(x, index, ptr)


def test_check_waits_and_raises(kernels: HostKernels, monkeypatch: pytest.MonkeyPatch) -> None:
    waited = []
    monkeypatch.setattr(torch.cuda, "synchronize", waited.append)
    ops.check()
    kernels.status[0][0] = (3 << 56) | 0xFF_FFFF_FFFF_FFFF
    with pytest.raises(errors.InvalidArgumentError, match=r"ptr\[0\]"):
        ops.check()
    assert waited == [0, 0]


class OnCuda(torch.Tensor):
    """A tensor of the host that says it is on a GPU."""

    device = torch.device("cuda", 0)  # type: ignore[assignment]
    is_cuda = True  # type: ignore[assignment]


def test_the_library_without_cuda_says_what_is_missing() -> None:
    if abi.library().cuda:
        pytest.skip("this process uses the library with CUDA")
    index, ptr = (tensor.as_subclass(OnCuda) for tensor in graph())
    x = torch.ones(40, 2).as_subclass(OnCuda)
    match = r"index is on cuda:0, where the operators do not run: they need libfreshgo_cuda.so; .*uses libfreshgo.so"
    with pytest.raises(errors.InvalidArgumentError, match=match):
        ops.aggregate(x, index, ptr)
    with pytest.raises(errors.InvalidArgumentError, match="edge_index is on cuda:0"):
        ops.group(torch.zeros(2, 3, dtype=torch.int64).as_subclass(OnCuda), 4)
    assert not cuda.usable(x)
    with pytest.raises(errors.InvalidArgumentError, match="x is on cuda:0 and index on cpu, expected one device"):
        ops.aggregate(x, *graph())
    with pytest.raises(errors.InvalidArgumentError, match="x is on meta, expected the CPU or a CUDA device"):
        ops.aggregate(torch.ones(40, 2, device="meta"), *graph())


def test_operators_are_registered_for_cuda() -> None:
    for name in ("sum", "sum_back", "dot", "extreme", "extreme_back", "attention", "attention_back", "by_source",
                 "row_dot", "sum_back_both", "gat", "gat_back", "linear",
                 "transpose", "group"):  # fmt: skip
        assert torch._C._dispatch_has_kernel_for_dispatch_key(f"freshgo::{name}", "CUDA")
    assert _kernels.DTYPES


# ---- nobody waits ----


@pytest.fixture
def no_waiting(kernels: HostKernels, monkeypatch: pytest.MonkeyPatch) -> Any:
    """What reads a tensor into Python, for which the host waits where that is on a GPU, is an error."""

    def forbid(name: str) -> None:
        real = getattr(torch.Tensor, name)

        def reads(tensor: torch.Tensor, *rest: Any) -> Any:
            assert any(tensor.data_ptr() == word.data_ptr() for word in kernels.status.values()), f"{name} waits"
            return real(tensor, *rest)

        monkeypatch.setattr(torch.Tensor, name, reads)

    def begin() -> None:
        for name in ("__int__", "__index__", "__float__", "__bool__", "item", "tolist", "nonzero", "equal"):
            forbid(name)

    return begin


@pytest.mark.parametrize("case", CASES)
def test_operators_wait_for_nothing(no_waiting: Any, case: str) -> None:
    index, ptr = graph()
    transposed = ops.transpose(index, ptr, 40)
    some = ptr[:21].clone()
    first = index[: int(some[-1])]
    x, weight = torch.randn(40, 8, requires_grad=True), torch.randn(index.numel(), requires_grad=True)
    no_waiting()
    CASES[case](x, index, ptr, weight, transposed).sum().backward()
    CASES[case](x, first, some, weight[: first.numel()], transposed).sum().backward()
    CASES[case](x, index, ptr, weight, None).sum().backward()


@pytest.mark.parametrize("kind", ["SAGEConv", "GCNConv", "GINConv", "GATConv"])
@pytest.mark.parametrize("trimmed", [False, True])
def test_accelerated_layers_over_batches_wait_for_nothing(no_waiting: Any, kind: str, trimmed: bool) -> None:
    pyg = pytest.importorskip("torch_geometric.nn")
    from torch_geometric.utils import trim_to_layer

    from freshgo import Loader
    from freshgo.nn import accelerate

    def layer() -> torch.nn.Module:
        if kind == "GINConv":
            return pyg.GINConv(torch.nn.Linear(8, 8))
        return getattr(pyg, kind)(8, 8)

    layers = torch.nn.ModuleList([layer(), layer()])
    data = {"edge_index": torch.randint(0, 200, (2, 3000)), "x": torch.randn(200, 8), "num_nodes": 200}
    with Loader(data, [4, 4], batch_size=30, transpose=True) as loader:
        batch = next(iter(loader))
    want = forward(layers, batch, trimmed, trim_to_layer)
    report = accelerate(layers)
    assert len(report.swapped) == 2
    no_waiting()
    got = forward(layers, batch, trimmed, trim_to_layer)
    torch.autograd.backward(got.sum())
    np.testing.assert_allclose(got.detach().numpy(), want.detach().numpy(), rtol=1e-4, atol=1e-5)


def forward(layers: Any, batch: Any, trimmed: bool, trim: Any) -> torch.Tensor:
    x, edge_index = batch.x, batch.edge_index
    for hop, layer in enumerate(layers):
        if trimmed:
            x, edge_index, _ = trim(hop, batch.num_sampled_nodes, batch.num_sampled_edges, x, edge_index)
        x = layer(x, edge_index)
    return x[: batch.batch_size]


def test_relations(monkeypatch: pytest.MonkeyPatch) -> None:
    pyg = pytest.importorskip("torch_geometric.nn")
    from freshgo.nn import accelerate

    layer = pyg.RGCNConv(8, 8, 3)
    accelerate(layer)
    x, edges, kind = torch.randn(40, 8), torch.randint(0, 40, (2, 200)), torch.randint(0, 3, (200,))

    def compute() -> list[torch.Tensor]:
        rows = x.clone().requires_grad_()
        out = layer(rows, edges.clone(), kind)
        out.square().sum().backward()
        return [out.detach(), rows.grad]

    want, got, kernels = both(monkeypatch, compute)
    for a, b in zip(want, got, strict=True):
        torch.testing.assert_close(a, b)
    assert {"fg_cuda_aggregate", "fg_cuda_transpose"} <= set(kernels.calls)
