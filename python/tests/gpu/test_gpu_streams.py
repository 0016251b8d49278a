"""What only a GPU has: streams, a host that must not wait, graphs, compiled programs, memory that ends, processes."""

from __future__ import annotations

import copy
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import torch
from graphs import random_graph
from test_gpu_loader import GIVEN, WIDE, losses, wide_rows
from test_gpu_operators import CASES, ROWS, graph
from torch import Tensor

from freshgo import History, Loader, errors, ops
from freshgo.nn import accelerate, record

MILLISECONDS = 2_000_000  # in cycles of a GPU, or so


def inputs(columns: int = 16) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    index, ptr = graph(1500)
    generator = torch.Generator().manual_seed(1)
    x, weight = torch.randn(ROWS, columns, generator=generator), torch.rand(index.numel(), generator=generator)
    return x.cuda(), index.cuda(), ptr.cuda(), weight.cuda()


def both_ways(case: str, x: Tensor, index: Tensor, ptr: Tensor, weight: Tensor, transposed: Any = None) -> list[Tensor]:
    x = x.detach().requires_grad_()
    out = CASES[case](x, index, ptr, weight, transposed)
    return [out.detach(), torch.autograd.grad(out.square().sum(), x)[0]]


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("case", CASES)
def test_work_is_queued_on_the_current_stream(case: str) -> None:
    """Inputs that are made late on that stream are seen, which they are not by a kernel on another one."""
    x, index, ptr, weight = inputs()
    want = both_ways(case, x, index, ptr, weight)
    late = torch.zeros_like(x)
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        torch.cuda._sleep(100 * MILLISECONDS)
        late.copy_(x)
        got = both_ways(case, late, index, ptr, weight)
        assert not stream.query()  # the host did not wait
    stream.synchronize()
    assert all(a.equal(b) for a, b in zip(want, got, strict=True))


@contextmanager
def no_waiting() -> Iterator[None]:
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        yield
    finally:
        torch.cuda.set_sync_debug_mode("default")


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("case", CASES)
def test_operators_wait_for_nothing(case: str) -> None:
    x, index, ptr, weight = inputs()
    some = ptr[:31].clone()
    first = index[: int(some[-1])].clone()
    transposed = ops.transpose(index, ptr, ROWS)
    with no_waiting():
        both_ways(case, x, index, ptr, weight)
        both_ways(case, x, index, ptr, weight, transposed)
        both_ways(case, x, first, some, weight[: first.numel()], transposed)
        ops.number(index)
        ops.group(torch.stack([index, index.flip(0)]), ROWS)
    ops.check()


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("kind", ["GraphSAGE", "GCN", "GIN", "GAT"])
@pytest.mark.parametrize("cache", [None, "100kB"])
def test_an_epoch_waits_for_nothing(kind: str, cache: str | None) -> None:
    nets = pytest.importorskip("torch_geometric.nn")
    model = getattr(nets, kind)(24, 16, num_layers=2, out_channels=7).cuda()
    accelerate(model)
    optimizer = torch.optim.SGD(model.parameters(), 0.05)
    with Loader(random_graph(), **GIVEN, transpose=True, device="cuda", device_cache=cache) as loader:
        for epoch in range(2):
            loader.set_epoch(epoch)
            with no_waiting():
                for batch in loader:
                    out = model(batch.x, batch.edge_index)[: batch.batch_size]
                    optimizer.zero_grad(set_to_none=True)
                    torch.nn.functional.cross_entropy(out, batch.y[: batch.batch_size]).backward()
                    optimizer.step()
    ops.check()


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("kind", ["GraphSAGE", "GCN", "GIN"])
@pytest.mark.parametrize("cache", [None, "100kB"])
def test_an_epoch_with_a_history_waits_for_nothing(kind: str, cache: str | None) -> None:
    nets = pytest.importorskip("torch_geometric.nn")
    data = random_graph()
    source, target = data["edge_index"]
    source[source == target] = (source[source == target] + 1) % 3000  # GCN counts edges from nodes to themselves
    model, history = getattr(nets, kind)(24, 16, num_layers=2, out_channels=7).cuda(), History(device="cuda")
    history.attach(model)
    with Loader(data, **GIVEN, device="cuda", device_cache=cache, history=history) as loader:
        for epoch in range(2):
            loader.set_epoch(epoch)
            with no_waiting():
                for batch in loader:
                    out = model(batch.x, batch.edge_index)[: batch.batch_size]
                    torch.nn.functional.cross_entropy(out, batch.y[: batch.batch_size]).backward()
                    history.update()
        assert sum(layer["hits"] for layer in history.stats()["layers"]) > 0
    history.detach()


@pytest.mark.usefixtures("gpu")
def test_batches_used_on_another_stream() -> None:
    """The consumer's stream is the one that is current when a batch is asked for."""
    stream, late = torch.cuda.Stream(), []
    with Loader(random_graph(), **GIVEN, device="cuda") as moved, Loader(random_graph(), **GIVEN) as plain:
        with torch.cuda.stream(stream):
            for batch in moved:
                torch.cuda._sleep(MILLISECONDS)  # the batch is read long after the host let go of it
                late.append((batch.x.sum(0), batch.n_id.sum()))
                del batch
        stream.synchronize()
        for want, (x, n_id) in zip(plain, late, strict=True):
            torch.testing.assert_close(x.cpu(), want.x.sum(0), rtol=1e-4, atol=1e-4)
            assert n_id.item() == want.n_id.sum().item()


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("pin_memory", [False, True])
def test_copies_that_the_consumer_queues(pin_memory: bool) -> None:
    """They run long after the batch is gone, also beside a loader whose memory the library locks."""
    data = wide_rows()
    with (
        Loader(data, **WIDE, device="cuda") as other,
        Loader(data, **WIDE, pin_memory=pin_memory) as loader,
        Loader(data, **WIDE) as plain,
    ):
        next(iter(other))
        torch.cuda._sleep(100 * MILLISECONDS)
        late = [batch.to("cuda", non_blocking=True) for batch in loader]
        for want, got in zip(plain, late, strict=True):
            assert got.x.cpu().equal(want.x)
            assert got.edge_index.cpu().equal(want.edge_index)


def layer(x: Tensor, weight: Tensor, index: Tensor, ptr: Tensor) -> Tensor:
    h = ops.aggregate(x, index, ptr, weight).relu() + ops.aggregate(x, index, ptr, reduce="max")
    h = h + ops.aggregate(x, index, ptr, reduce="mean") + ops.gcn(x, index, ptr, weight)
    heads = x.view(-1, 2, x.size(1) // 2)
    return h + ops.attention(heads, heads.sum(-1), None, index, ptr, add_self_loops=True).flatten(1)


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("how", [{}, {"dynamic": True}, {"mode": "reduce-overhead"}], ids=str)
def test_compiled(how: dict[str, Any]) -> None:
    pytest.importorskip("triton")
    if shutil.which("gcc") is None and shutil.which("cc") is None:
        pytest.skip("Triton needs a C compiler")
    x, index, ptr, weight = inputs()
    compiled = torch.compile(layer, **how)
    for _ in range(4):  # graphs are recorded at the second call
        results = []
        for run in (layer, compiled):
            x, weight = x.detach().requires_grad_(), weight.detach().requires_grad_()
            out = run(x, weight, index, ptr)
            results.append([out.detach().clone(), *torch.autograd.grad(out.square().sum(), (x, weight))])
        for eager, other in zip(*results, strict=True):
            torch.testing.assert_close(other, eager, rtol=1e-3, atol=1e-3)


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("case", CASES)
def test_a_graph_of_both_ways(case: str) -> None:
    """Recorded once and replayed over new rows: launches, scratch memory and the word of errors stay where they are."""
    x, index, ptr, weight = inputs()
    transposed = ops.transpose(index, ptr, ROWS)
    static = x.clone()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            both_ways(case, static, index, ptr, weight, transposed)
    torch.cuda.current_stream().wait_stream(side)
    recorded = torch.cuda.CUDAGraph()
    with torch.cuda.graph(recorded):
        out = both_ways(case, static, index, ptr, weight, transposed)
    for seed in range(3):
        rows = torch.randn(x.shape, generator=torch.Generator().manual_seed(seed)).cuda()
        static.copy_(rows)
        recorded.replay()
        want = both_ways(case, rows, index, ptr, weight, transposed)
        assert all(a.equal(b) for a, b in zip(want, out, strict=True))
    ops.check()


@pytest.mark.usefixtures("gpu")
def test_out_of_memory_is_told_and_survived() -> None:
    x, index, ptr, weight = inputs()
    free = torch.cuda.mem_get_info()[0]
    many = torch.zeros(1, dtype=torch.int64, device="cuda").expand(free // 256)
    with pytest.raises(torch.cuda.OutOfMemoryError):
        ops.aggregate(torch.ones(ROWS, 4096, device="cuda"), index[:0], many)
    del many
    torch.cuda.empty_cache()
    want = CASES["sum"](x.cpu(), index.cpu(), ptr.cpu(), weight.cpu(), None)
    torch.testing.assert_close(ops.aggregate(x, index, ptr).cpu(), want, rtol=1e-4, atol=1e-3)


@pytest.mark.usefixtures("gpu")
def test_a_device_cache_that_does_not_fit() -> None:
    data = random_graph(400_000, 50_000)  # 38 MB of features, more than is left over in what PyTorch keeps
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction((torch.cuda.memory_reserved() + (1 << 20)) / total)
    try:
        with pytest.raises(errors.InvalidArgumentError, match=r"device_cache of .* does not fit into the free memory"):
            Loader(data, **{**GIVEN, "input_nodes": None}, device="cuda", device_cache="1GiB")
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)
    with Loader(data, **{**GIVEN, "input_nodes": None}, device="cuda", device_cache="1GiB") as loader:
        assert next(iter(loader)).x.is_cuda


@pytest.mark.usefixtures("gpu")
def test_epochs_leave_nothing_on_the_device() -> None:
    data = random_graph()
    used = []
    for _ in range(4):
        with Loader(data, **GIVEN, transpose=True, device="cuda", device_cache="100kB") as loader:
            for batch in loader:
                del batch
        torch.cuda.synchronize()
        used.append(torch.cuda.memory_allocated())
    assert used[-1] == used[1]


TRAIN = """
import sys, torch
sys.path[:0] = {paths!r}
from graphs import random_graph
from test_gpu_loader import GIVEN, losses
from freshgo import Loader
from freshgo.nn import accelerate, record
import torch_geometric.nn as nets
torch.manual_seed(0)
model = nets.GraphSAGE(24, 16, num_layers=2, out_channels=7).cuda()
accelerate(model)
with Loader(random_graph(), **GIVEN, transpose=True, device="cuda", device_cache="100kB") as loader:
    print([x.hex() for x in losses(model, loader, 3)])
"""


@pytest.mark.usefixtures("gpu")
def test_two_processes_on_one_gpu() -> None:
    """They share it, and both train to the same bits."""
    pytest.importorskip("torch_geometric")
    here = Path(__file__).parent
    script = TRAIN.format(paths=[str(here.parent), str(here), str(here.parent / "oracles")])
    processes = [
        subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    answers = [process.communicate(timeout=240) for process in processes]
    assert [process.returncode for process in processes] == [0, 0], answers
    assert answers[0][0] == answers[1][0] != ""


RANK = """
    import os, sys, torch
    import torch.distributed as dist
    sys.path[:0] = {paths!r}
    from graphs import random_graph
    from test_gpu_loader import GIVEN
    from freshgo import Loader, ops
    rank = int(sys.argv[1])
    dist.init_process_group("nccl", init_method={address!r}, rank=rank, world_size=2)
    total = torch.zeros(24, device=f"cuda:{{rank}}")
    with Loader(random_graph(), **GIVEN, device=f"cuda:{{rank}}", transpose=True) as loader:
        for batch in loader:
            assert batch.x.device.index == rank
            total += batch.x.sum(0)
    mine = ops.aggregate(torch.ones(3, 4, device=f"cuda:{{rank}}"), torch.tensor([0, 1], device=f"cuda:{{rank}}"),
                         torch.tensor([0, 2], device=f"cuda:{{rank}}"))
    assert mine.eq(2).all()
    both = total.clone()
    dist.all_reduce(both)
    torch.testing.assert_close(both, 2 * total)
    dist.destroy_process_group()
"""


@pytest.mark.usefixtures("gpu")
def test_ranks_on_several_gpus(tmp_path: Path) -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    here = Path(__file__).parent
    paths = [str(here.parent), str(here), str(here.parent / "oracles")]
    script = textwrap.dedent(RANK).format(paths=paths, address=f"file://{tmp_path}/meet")
    processes = [subprocess.Popen([sys.executable, "-c", script, str(rank)]) for rank in range(2)]
    assert [process.wait(timeout=240) for process in processes] == [0, 0]


@pytest.mark.usefixtures("gpu")
def test_other_gpus_than_the_current_one() -> None:
    if torch.cuda.device_count() < 2:
        pytest.skip("needs two GPUs")
    x, index, ptr, weight = inputs()
    want = both_ways("attention", x, index, ptr, weight)
    got = both_ways("attention", *(t.to("cuda:1") for t in (x, index, ptr, weight)))
    assert all(a.equal(b.to("cuda:0")) for a, b in zip(want, got, strict=True))
    assert torch.cuda.current_device() == 0


@pytest.mark.usefixtures("gpu")
def test_losses_repeat_to_the_bit() -> None:
    nets = pytest.importorskip("torch_geometric.nn")
    found = []
    for _ in range(2):
        torch.manual_seed(0)
        model = nets.GraphSAGE(24, 16, num_layers=2, out_channels=7).cuda()
        accelerate(model)
        with Loader(random_graph(), **GIVEN, transpose=True, device="cuda") as loader:
            found.append(losses(model, loader, 2))
    assert found[0] == found[1]


@pytest.mark.usefixtures("gpu")
@pytest.mark.parametrize("kind", ["GraphSAGE", "GCN", "GIN", "GAT"])
def test_recorded_steps(kind: str) -> None:
    """They train as the eager ones do, also with a learning rate that changes, and wait for nothing."""
    nets = pytest.importorskip("torch_geometric.nn")
    torch.manual_seed(0)
    model = getattr(nets, kind)(24, 16, num_layers=2, out_channels=7).cuda()
    accelerate(model)
    other = copy.deepcopy(model)
    optimizer, its = (
        torch.optim.Adam(one.parameters(), torch.tensor(0.01, device="cuda"), capturable=True) for one in (model, other)
    )
    schedules = [torch.optim.lr_scheduler.ExponentialLR(one, 0.9) for one in (optimizer, its)]

    def loss(model: Any, batch: Any) -> Tensor:
        hops = batch.num_sampled_nodes, batch.num_sampled_edges
        out = model(batch.x, batch.edge_index, num_sampled_nodes_per_hop=hops[0], num_sampled_edges_per_hop=hops[1])
        return torch.nn.functional.cross_entropy(out[: batch.batch_size], batch.y[: batch.batch_size])

    step = record(model, loss, optimizer)
    with Loader(random_graph(), **GIVEN, transpose=True, pad=True, device="cuda") as loader:
        for epoch in range(3):
            loader.set_epoch(epoch)
            for batch in loader:
                got = step(batch)
                its.zero_grad()
                want = loss(other, batch)
                want.backward()
                its.step()
                torch.testing.assert_close(got, want.detach(), rtol=1e-5, atol=1e-6)
                for schedule in schedules:
                    schedule.step()
    assert step.replayed > step.eager
    batch.n_id.sum().item()
    with no_waiting():
        step(batch)
    with pytest.raises(errors.InvalidArgumentError, match="cannot be recorded"):
        waits = record(model, lambda model, batch: loss(model, batch) * loss(model, batch).item(), optimizer)
        for _ in range(5):
            waits(batch)
