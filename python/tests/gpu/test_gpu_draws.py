"""Batches that the device draws are those of the CPU's sampler, to the bit."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest
import torch
from graphs import random_graph
from test_gpu_loader import same
from torch.utils._python_dispatch import TorchDispatchMode

import freshgo
from freshgo import Device, LinkLoader, Loader, errors
from freshgo._device import pinned_memory
from freshgo._device.drawing import Drawing
from freshgo._native import cuda


def graph(nodes: int, edges: int, seed: int = 0, *, by_target: bool = False) -> dict[str, Any]:
    """A graph with a hub, nodes without in-edges, repeated edges and loops."""
    generator = torch.Generator().manual_seed(seed)
    ends = (nodes * torch.rand((2, edges), generator=generator) ** 2).long()
    if by_target:
        ends = ends[:, ends[1].argsort(stable=True)]
    x = torch.randn(nodes, 5, generator=generator)
    return {"num_nodes": nodes, "edge_index": ends, "x": x, "y": torch.randint(9, (nodes,), generator=generator)}


def same_by_type(want: Any, got: Any) -> None:
    """Every tensor of a batch, of each type."""
    if not hasattr(want, "node_types"):
        same(want, got)
        return
    assert want.metadata() == got.metadata()
    for key in [*want.node_types, *want.edge_types]:
        same(want[key].items(), got[key].items())
    assert getattr(want, "padded", None) == getattr(got, "padded", None)


def drawn(device: str, lists_on: Literal["auto", "device", "host"] = "device") -> Device:
    return Device(device, sample_on="device", lists_on=lists_on)


def check(machine: Any, data: Any, epochs: int = 2, **given: Any) -> dict[str, Any]:
    """Every batch, of epochs and on demand, and every trace is the CPU's, wherever the lists are."""
    with (
        machine.loading() as device,
        Loader(data, **given) as plain,
        Loader(data, **given, device=drawn(device)) as moved,
        Loader(data, **given, device=drawn(device, "host")) as reading,
    ):
        for epoch in range(epochs):
            for loader in (plain, moved, reading):
                loader.set_epoch(epoch)
            for want, *both in zip(plain, moved, reading, strict=True):
                for got in both:
                    same_by_type(want, got)
        stats, others = moved.stats(), reading.stats()
        assert stats["seconds_sampling"] == stats["seconds_gathering"] == 0 < stats["device_lists_bytes"]
        assert stats["edges"] == 0
        on_host = others["locked_bytes"] - stats["locked_bytes"]
        assert on_host == stats["device_lists_bytes"] - others["device_lists_bytes"] > 0
        inputs = given.get("input_nodes")
        kind = inputs if isinstance(inputs, str) else next(iter(inputs or ()), None)
        on_demand = (kind, torch.tensor([3, 1, 3])) if isinstance(kind, str) else [3, 1, 3]
        same_by_type(plain.sample(on_demand), moved.sample(on_demand))
        for want, got in zip(plain.trace(1), moved.trace(1), strict=True):
            parts = ([of] if isinstance(of, torch.Tensor) else list(of.values()) for of in (want, got))
            assert all(torch.equal(*pair) for pair in zip(*parts, strict=True))
        assert plain.state_dict() == moved.state_dict()
        assert plain.stats()["padded"] == stats["padded"] == others["padded"]
        return stats


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("fanouts", [[4, 3], [-1], [2, -1], [40, 2], [1, 0, 2], [3, 3, 3], []], ids=str)
def test_the_batches_of_the_cpu(machine: Any, fanouts: list[int], replace: bool) -> None:
    size = len(fanouts) + 5 * replace
    data = graph(150 + 20 * size, 900, seed=size)
    check(machine, data, num_neighbors=fanouts, replace=replace, batch_size=29, shuffle=True, seed=size)


@pytest.mark.parametrize(
    "more",
    [
        {"prefetch": 0},
        {"transpose": True},
        {"return_edge_id": False},
        {"drop_last": True, "batch_size": 64},
        {"input_nodes": [5, 9, 5, 5, 0, 9, 7], "batch_size": 7},
        {"input_weight": torch.arange(200.0), "batch_size": 40},
        {"num_workers": 1, "batch_size": 300},
        {"ranks": freshgo.Ranks(rank=1, world_size=3)},
        {"pad": True},
        {"pad": True, "transpose": True, "prefetch": 0},
        {"pad": True, "return_edge_id": False, "num_neighbors": [-1, 2]},
        {"pad": True, "num_neighbors": []},
    ],
    ids=str,
)
def test_options(machine: Any, more: dict[str, Any]) -> None:
    check(machine, graph(200, 1500), **{"num_neighbors": [4, 3], "batch_size": 32, "shuffle": True, **more})


def typed() -> dict[Any, Any]:
    """Node types with several edge types from and to them, one without edges, one that no batch reaches."""
    generator = torch.Generator().manual_seed(7)
    counts = {"a": 150, "b": 40, "c": 9, "far": 5}

    def edges(source: str, target: str, count: int) -> dict[str, torch.Tensor]:
        of = [(counts[end] * torch.rand(count, generator=generator) ** 2).long() for end in (source, target)]
        return {"edge_index": torch.stack(of)}

    nodes = {
        name: {"num_nodes": n, "x": torch.randn(n, 3, generator=generator), "y": torch.arange(n)}
        for name, n in counts.items()
    }
    return {
        **nodes,
        ("a", "to", "a"): edges("a", "a", 700),
        ("b", "to", "a"): edges("b", "a", 300),
        ("a", "back", "b"): edges("a", "b", 200),
        ("a", "again", "b"): edges("a", "b", 100),
        ("c", "to", "b"): edges("c", "b", 50),
        ("c", "no", "a"): edges("c", "a", 0),
        ("c", "to", "far"): edges("c", "far", 20),
    }


@pytest.mark.parametrize("pad", [False, True])
@pytest.mark.parametrize(
    "more",
    [
        {"input_nodes": "a"},
        {"input_nodes": {"b": torch.arange(0, 40, 3), "a": torch.tensor([3, 3, 9, 140, 3])}},
        {"input_nodes": "b", "num_neighbors": [-1, 2, 2], "transpose": True},
        {"input_nodes": "a", "replace": True, "return_edge_id": False},
        {"input_nodes": ("c", torch.arange(9))},  # which have no in-edges
    ],
    ids=str,
)
def test_types(machine: Any, more: dict[str, Any], pad: bool) -> None:
    check(machine, typed(), **{"num_neighbors": [3, 2], "batch_size": 17, "shuffle": True, "pad": pad, **more})


def test_types_with_fanouts_of_their_own(machine: Any) -> None:
    data = typed()
    fanouts = {of: [2, 3] for of in data if isinstance(of, tuple)}
    fanouts["a", "to", "a"], fanouts["a", "again", "b"] = [0, 4], [5, 0]
    for pad in (False, True):
        check(machine, data, num_neighbors=fanouts, input_nodes="a", batch_size=17, shuffle=True, pad=pad)


@pytest.mark.parametrize("share", [0.5, 0.9, 0.97])
@pytest.mark.parametrize("first", [False, True])
def test_batches_that_do_not_fit(machine: Any, share: float, first: bool) -> None:
    """Batches beyond the envelope come without padding, whether nodes or edges have no room; drawn again, the same."""
    data = graph(400, 4000)
    given: dict[str, Any] = {"num_neighbors": [4, 3], "batch_size": 32, "shuffle": True, "pad": True}
    with (
        machine.loading() as device,
        Loader(data, **given) as plain,
        Loader(data, **given, device=drawn(device)) as moved,
    ):
        state = plain.state_dict()
        sizes = state["config"]["envelope"]
        at = range(3) if first else range(3, 5)
        state["config"]["envelope"] = [max(2, int(n * share)) if i in at else n for i, n in enumerate(sizes)]
        for loader in (plain, moved):
            loader.load_state_dict(state)
        padded = []
        for want, got in zip(plain, moved, strict=True):
            same(want, got)
            padded.append(got.padded)
        assert plain.stats()["padded"] == moved.stats()["padded"] == sum(padded) < len(padded)
        assert share != 0.97 or sum(padded) > 0


class Waits(TorchDispatchMode):
    """Counts operators that wait for a device."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += func in (torch.ops.aten._local_scalar_dense.default, torch.ops.aten.nonzero.default)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("pad", [False, True])
def test_padded_batches_wait_for_nothing(machine: Any, monkeypatch: pytest.MonkeyPatch, pad: bool) -> None:
    waits: list[int] = []
    draw = Drawing.__call__

    def counted(*given: Any, **more: Any) -> Any:
        with Waits() as waiting:
            drawn = draw(*given, **more)
        waits.append(waiting.count)
        return drawn

    monkeypatch.setattr(Drawing, "__call__", counted)
    monkeypatch.setattr(cuda, "_raise_noted", lambda index: None)  # which reads a number in memory of the host
    with machine.loading() as device:
        given: dict[str, Any] = {"num_neighbors": [4, 3], "batch_size": 64, "device": drawn(device), "pad": pad}
        with Loader(graph(200, 1500), **given, transpose=True) as loader:
            assert all(pad == getattr(batch, "padded", False) for batch in loader)
    assert waits == [0 if pad else 4] * 4  # for edges and nodes of each hop


@pytest.mark.parametrize("by_target", [False, True])
def test_a_store(machine: Any, tmp_path: Path, by_target: bool) -> None:
    """Edges that come sorted by target have no numbers of their own."""
    data = graph(200, 1500, by_target=by_target)
    with freshgo.convert(data, tmp_path / "drawn.freshgo", progress=False) as store:
        stats = check(machine, store, num_neighbors=[4, 3], batch_size=32, shuffle=True)
    numbers = 0 if by_target else 4 * (-(1500 * 11 // -32) + 2)  # of 11 bits
    assert stats["device_lists_bytes"] == 201 * 8 + 1500 * 4 + numbers


def test_resumed(machine: Any) -> None:
    """A state goes on where it was saved, whoever draws."""
    data, given = graph(200, 1500), {"num_neighbors": [4, 3], "batch_size": 32, "shuffle": True}
    with machine.loading() as device, Loader(data, **given) as plain:
        with Loader(data, **given, device=drawn(device)) as first:
            iterator = iter(first)
            next(iterator)
            next(iterator)
            state = first.state_dict()
        plain.load_state_dict(state)
        with Loader(data, **given, device=drawn(device)) as second:
            second.load_state_dict(state)
            for want, got in zip(plain, second, strict=True):
                same(want, got)


@pytest.mark.parametrize("lists_on", ["device", "host"])
def test_memory_that_is_lent(machine: Any, tmp_path: Path, lists_on: Literal["device", "host"]) -> None:
    """A loader that is opened again draws from the lists that the device has, or from its new memory."""
    given: dict[str, Any] = {"num_neighbors": [4, 3], "batch_size": 64}
    freshgo.convert(graph(200, 1500), tmp_path / "lent.freshgo", progress=False).close()
    with (
        machine.loading() as device,
        Loader(tmp_path / "lent.freshgo", **given) as plain,
        Loader(
            tmp_path / "lent.freshgo",
            **given,
            device=drawn(device, lists_on),
            memory=freshgo.MemoryBudget("64MiB"),
        ) as moved,
    ):
        for epoch in range(2):
            plain.set_epoch(epoch)
            moved.set_epoch(epoch)
            for want, got in zip(plain, moved, strict=True):
                same(want, got)
            assert moved._engine.give_back()
        assert moved.stats()["openings"] == 2


def weighted(kind: str, nodes: int = 60, edges: int = 1500) -> dict[str, Any]:
    """A graph with lists of up to hundreds of edges, whose weights are all above 0, some 0, or a few nearly the sum."""
    data = graph(nodes, edges, seed=3)
    generator = torch.Generator().manual_seed(8)
    w = torch.rand(edges, generator=generator) + 0.01
    if kind != "positive":
        w[torch.rand(edges, generator=generator) < 0.6] = 0
    if kind == "steep":
        w = w.double()
        w[::11] = 1e15
    return {**data, "w": w, "edge_attr": torch.arange(edges)}


@pytest.mark.parametrize("kind", ["positive", "zeros", "steep"])
@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("fanouts", [[4, 3], [-1], [40, 2], [100], [1, 0, 2]], ids=str)
def test_weighted(machine: Any, kind: str, fanouts: list[int], replace: bool) -> None:
    given: dict[str, Any] = {"num_neighbors": fanouts, "replace": replace, "weight_attr": "w", "shuffle": True}
    check(machine, weighted(kind), epochs=1, **given, batch_size=29, pad=len(fanouts) == 2)


@pytest.mark.parametrize("weight", [None, "positive", "zeros", "steep"])
@pytest.mark.parametrize("fanouts", [[4, 3], [-1, 2], [40, 2], [100]], ids=str)
def test_labor(machine: Any, weight: str | None, fanouts: list[int]) -> None:
    data = graph(60, 1500, seed=3) if weight is None else weighted(weight)
    attr = None if weight is None else "w"
    given: dict[str, Any] = {"num_neighbors": fanouts, "weight_attr": attr, "shuffle": True, "batch_size": 29}
    check(machine, data, epochs=1, **given, neighbor_sampler="labor", pad=len(fanouts) == 2)


@pytest.mark.parametrize("pad", [False, True])
@pytest.mark.parametrize(
    "sampler",
    [
        freshgo.Labor(layer_dependency=True),
        freshgo.Labor(batch_dependency=3, edge_weight=False),
        freshgo.Labor(batch_dependency=2, layer_dependency=True),
    ],
    ids=str,
)
def test_options_of_labor(machine: Any, sampler: freshgo.Labor, pad: bool) -> None:
    given: dict[str, Any] = {"num_neighbors": [4, 3], "batch_size": 29, "pad": pad, "return_edge_id": False}
    check(machine, graph(200, 1500), **given, neighbor_sampler=sampler)


@pytest.mark.parametrize("sampler", [None, "labor"])
@pytest.mark.parametrize("pad", [False, True])
def test_weights_of_some_types(machine: Any, sampler: str | None, pad: bool) -> None:
    data = typed()
    for of in (("a", "to", "a"), ("c", "to", "b")):
        data[of]["w"] = torch.rand(data[of]["edge_index"].size(1))
    given: dict[str, Any] = {"num_neighbors": [3, 2], "input_nodes": "a", "batch_size": 17, "pad": pad}
    check(machine, data, **given, weight_attr="w", neighbor_sampler=sampler)


def test_edge_tensors_of_a_store(machine: Any, tmp_path: Path) -> None:
    with freshgo.convert(weighted("zeros"), tmp_path / "weighted.freshgo", progress=False) as store:
        check(machine, store, num_neighbors=[4, 3], weight_attr="w", batch_size=32, shuffle=True, pad=True)


@pytest.mark.parametrize(
    ("data", "more", "named"),
    [
        (graph(200, 1500), {"disjoint": True}, "disjoint"),
        (graph(200, 1500), {"subgraph_type": "induced"}, "induced"),
        (graph(200, 1500), {"device_cache": "1kB"}, "device_cache"),
        (graph(200, 1500), {"num_neighbors": [freshgo.RandomWalk(walks=3, length=2)]}, "RandomWalk"),
        (random_graph(200, 1500), {"ranks": freshgo.Ranks(share="host")}, "share"),
    ],
    ids=lambda value: "" if isinstance(value, dict) and "x" in value else str(value),
)
def test_what_the_device_does_not_draw(machine: Any, data: Any, more: dict[str, Any], named: str) -> None:
    given = {"num_neighbors": [4, 3], **more}
    with machine.loading() as device, pytest.raises(errors.InvalidArgumentError, match=f"(?s)sample_on.*({named})"):
        Loader(data, **given, device=drawn(device))


def test_links_are_refused(machine: Any) -> None:
    data = graph(200, 1500)
    with machine.loading() as device, pytest.raises(errors.InvalidArgumentError, match=r"sample_on.*links"):
        LinkLoader(data, [3], edge_label_index=data["edge_index"][:, :5], device=drawn(device))


def test_what_is_not_in_memory(machine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = graph(4000, 60_000)
    data["x"] = torch.randn(4000, 500)
    with freshgo.convert(data, tmp_path / "wide.freshgo", progress=False) as store, machine.loading() as device:
        with pytest.raises(errors.InvalidArgumentError, match=r"sample_on.*['\"]x['\"]"):
            Loader(store, [4, 3], device=drawn(device), batch_size=8, memory="6MB", prefetch=1)
        with pytest.raises(errors.InvalidArgumentError, match=r"sample_on.*neighbour lists"):
            Loader(store, [4, 3], device=drawn(device), batch_size=8, neighbor_cache=0)
        with pytest.raises(errors.BudgetError):
            Loader(data, [4, 3], device=drawn(device), batch_size=8, memory="6MB", prefetch=1)
        monkeypatch.setattr(pinned_memory, "reads_host", lambda device: False)
        with pytest.raises(errors.InvalidArgumentError, match=r"sample_on.*locked memory"):
            Loader(data, [4, 3], device=drawn(device))


def test_a_device_is_needed() -> None:
    with Loader(graph(20, 50), [3], device=Device(sample_on="auto")) as loader:
        assert len(list(loader)) == 20
    with pytest.raises(errors.InvalidArgumentError, match="lists_on is for sample_on='device'"):
        Device("cuda", lists_on="host")
    with pytest.raises(errors.InvalidArgumentError, match="needs a CUDA device"):
        Loader(graph(20, 50), [3], device=Device(sample_on="device"))
    with pytest.raises(errors.InvalidArgumentError, match="sample_on must be"):
        Device("cuda", sample_on="gpu")  # type: ignore[arg-type]
