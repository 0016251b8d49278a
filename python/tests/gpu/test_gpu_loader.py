"""Batches on the device are those of the host, and training on them gives what training on the host gives."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
from graphs import random_graph
from torch import Tensor

import freshgo
from freshgo import Loader
from freshgo.history import History
from freshgo.nn import accelerate

GIVEN: dict[str, Any] = {"num_neighbors": [4, 3], "input_nodes": "train", "batch_size": 64, "shuffle": True, "seed": 3}


def same(want: Any, got: Any) -> None:
    """Every tensor of a batch, by value and dtype."""
    left, right = dict(iter(want)), dict(iter(got))
    assert left.keys() == right.keys()
    for name, value in left.items():
        other = right[name]
        if isinstance(value, Tensor):
            assert value.dtype == other.dtype
            assert value.equal(other.cpu()), name
        else:
            assert value == other, name


@pytest.mark.parametrize("more", [{}, {"transpose": True}, {"prefetch": 0}, {"device_cache": "100kB"}], ids=str)
def test_the_same_batches(machine: Any, store_path: Path, more: dict[str, Any]) -> None:
    plain_options = {name: value for name, value in more.items() if name != "device_cache"}
    with (
        machine.loading() as device,
        Loader(store_path, **GIVEN, **plain_options) as plain,
        Loader(store_path, **GIVEN, **{"device_cache": None, **more}, device=device) as moved,
    ):
        for epoch in range(3):
            plain.set_epoch(epoch)
            moved.set_epoch(epoch)
            for want, got in zip(plain, moved, strict=True):
                assert got.x.device == machine.device
                same(want, got)
        assert ("device_cache" in more) == (moved.stats()["held"] > 0)


WIDE: dict[str, Any] = {"num_neighbors": [5, 5], "batch_size": 256, "shuffle": True}


def wide_rows() -> dict[str, Any]:
    """A graph whose batches, by WIDE, have buffers that are large enough to be locked."""
    generator = torch.Generator().manual_seed(2)
    edges = torch.randint(0, 4000, (2, 60_000), generator=generator)
    return {"num_nodes": 4000, "edge_index": edges, "x": torch.randn(4000, 150, generator=generator)}


def test_memory_is_used_again(machine: Any) -> None:
    """Wide rows out of locked buffers, and batches that are kept while others come."""
    data = wide_rows()
    with (
        machine.loading() as device,
        Loader(data, **WIDE) as plain,
        Loader(data, **WIDE, device=device, device_cache="500kB") as moved,
    ):
        kept = list(moved)
        for want, got in zip(plain, kept, strict=True):
            same(want, got)
        assert moved.stats()["held"] > 0


def hetero() -> dict[str, Any]:
    generator = torch.Generator().manual_seed(4)

    def edges(sources: int, targets: int) -> dict[str, Tensor]:
        pair = [torch.randint(count, (4000,), generator=generator) for count in (sources, targets)]
        return {"edge_index": torch.stack(pair)}

    return {
        "paper": {"x": torch.randn(900, 20, generator=generator), "num_nodes": 900},
        "author": {"x": torch.randn(500, 12, generator=generator), "num_nodes": 500},
        ("paper", "cites", "paper"): edges(900, 900),
        ("author", "writes", "paper"): edges(500, 900),
        ("paper", "by", "author"): edges(900, 500),
    }


@pytest.mark.parametrize("cache", [None, "20kB"])
def test_batches_of_types(machine: Any, cache: str | None) -> None:
    pytest.importorskip("torch_geometric")
    given: dict[str, Any] = {"num_neighbors": [4, 3], "input_nodes": "paper", "batch_size": 100, "shuffle": True}
    with (
        machine.loading() as device,
        Loader(hetero(), **given) as plain,
        Loader(hetero(), **given, device=device, **({} if cache is None else {"device_cache": cache})) as moved,
    ):
        for want, got in zip(plain, moved, strict=True):
            for kind in want.node_types:
                assert got[kind].x.device == machine.device
                same_store(want[kind], got[kind])
            for kind in want.edge_types:
                same_store(want[kind], got[kind])


def same_store(want: Any, got: Any) -> None:
    for name, value in want.items():
        assert value.equal(got[name].cpu()) if isinstance(value, Tensor) else value == got[name], name


def losses(model: torch.nn.Module, loader: Any, epochs: int, history: History | None = None) -> list[float]:
    """Of every batch; read at the end, so that nothing waits in between."""
    optimizer, found = torch.optim.SGD(model.parameters(), 0.05), []
    for epoch in range(epochs):
        loader.set_epoch(epoch)
        for batch in loader:
            out = model(batch.x, batch.edge_index)[: batch.batch_size]
            optimizer.zero_grad()
            loss = torch.nn.functional.cross_entropy(out, batch.y[: batch.batch_size])
            loss.backward()
            optimizer.step()
            if history is not None:
                history.update()
            found.append(loss.detach())
    return [float(loss) for loss in found]


MODELS: dict[str, dict[str, Any]] = {"GraphSAGE": {}, "GCN": {}, "GIN": {}, "GAT": {"heads": 4}}


@pytest.mark.parametrize("kind", MODELS)
def test_training_of_accelerated_layers(machine: Any, kind: str) -> None:
    """In float64, so that a wrong term shows and another order of terms does not."""
    nets = pytest.importorskip("torch_geometric.nn")
    data = random_graph(600, 5000)
    data["x"] = torch.from_numpy(data["x"]).double()
    torch.manual_seed(0)
    plain = getattr(nets, kind)(24, 16, num_layers=2, out_channels=7, **MODELS[kind]).double()
    fast = copy.deepcopy(plain).to(machine.device)
    assert len(accelerate(fast).swapped) == 2
    given = {**GIVEN, "input_nodes": None, "transpose": True}
    with machine.loading() as device, Loader(data, **given) as cpu, Loader(data, **given, device=device) as moved:
        want = losses(plain, cpu, 1)
        got = machine.run(lambda: losses(fast, moved, 1))
    torch.testing.assert_close(torch.tensor(got), torch.tensor(want), rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("policy", ["performance", "gradient", "gas"])
def test_training_with_a_history_on_the_device(gpu: Any, policy: str) -> None:
    nets = pytest.importorskip("torch_geometric.nn")
    data = random_graph(2000, 20_000)
    torch.manual_seed(0)
    model = nets.GraphSAGE(24, 16, num_layers=2, out_channels=7)
    found = []
    for device in ("cpu", "cuda"):
        mine = copy.deepcopy(model).to(device)
        history = History(policy=policy, device=device, keep="rows")
        history.attach(mine)
        with Loader(data, **{**GIVEN, "input_nodes": None}, history=history, device=device) as loader:
            found.append(losses(mine, loader, 2, history))
            assert sum(layer["hits"] for layer in history.stats()["layers"]) > 0
        history.detach()
    # Another rounding of a gradient's norm may keep another row: the losses are close, not equal.
    torch.testing.assert_close(torch.tensor(found[1]).mean(), torch.tensor(found[0]).mean(), rtol=0.02, atol=0)


@pytest.mark.parametrize("keep", ["aggregates", "rows"])
def test_a_history_beside_a_device_cache(machine: Any, keep: str) -> None:
    """Pruned batches with rows of the cache are those without, and the decisions are the same."""
    if machine.real and keep == "rows":
        pytest.skip("sums of gradients of two runs may be rounded differently, and other rows are kept")
    nets = pytest.importorskip("torch_geometric.nn")
    data = random_graph(2000, 20_000)
    torch.manual_seed(0)
    model = nets.GraphSAGE(24, 16, num_layers=2, out_channels=7)
    seen: list[list[dict[str, Any]]] = []
    figures = []
    for cache in (None, "50kB"):
        history = History(device=machine.device, keep=keep, memory="1MiB")
        mine = copy.deepcopy(model).to(machine.device)
        history.attach(mine)
        seen.append([])
        given = {**GIVEN, "input_nodes": None, "history": history, "device_cache": cache}
        with machine.loading() as device, Loader(data, **given, device=device) as loader:
            for _ in range(2):
                for batch in loader:
                    seen[-1].append({name: of.cpu().clone() for name, of in batch if isinstance(of, Tensor)})
                    mine(batch.x, batch.edge_index)[: batch.batch_size].square().sum().backward()
                    history.update()
            figures.append(history.stats())
            assert (loader.stats()["held"] > 0) == (cache is not None)
        history.detach()
    assert sum(layer["hits"] for layer in figures[0]["layers"]) > 0
    assert figures[0]["layers"] == figures[1]["layers"]
    for want, got in zip(*seen, strict=True):
        assert want.keys() == got.keys()
        assert all(of.equal(got[name]) for name, of in want.items())


def test_links(gpu: Any) -> None:
    data = random_graph(600, 5000)
    given: dict[str, Any] = {"num_neighbors": [4, 3], "batch_size": 64, "neg_sampling": "binary"}
    with freshgo.LinkLoader(data, **given) as plain, freshgo.LinkLoader(data, **given, device="cuda") as moved:
        for want, got in zip(plain, moved, strict=True):
            same(want, got)
