"""Executors with devices: the plain loop's result, and rows that devices hold are not in the queue."""

from __future__ import annotations

import copy
import itertools
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import factored_steps
import machines
import numpy as np
import pytest
import torch
from device_steps import DeviceStep
from factored_steps import Net
from rank_jobs import open_loader
from seeds import seed

from freshgo import Loader, convert, errors
from freshgo.factored import Training, train

NODES, WIDTH = 400, 128
ROW = 4 * WIDTH + 8
"""Bytes of a node's rows."""
ALL = NODES * ROW


def graph() -> dict[str, Any]:
    rng = np.random.default_rng(seed(7))
    return {
        "num_nodes": NODES,
        "edge_index": rng.integers(NODES, size=(2, 4000)),
        "x": rng.standard_normal((NODES, WIDTH), dtype=np.float32),
        "t": rng.integers(100, size=NODES),
    }


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("factored") / "graph"
    convert(graph(), path, progress=False).close()
    return path


@pytest.fixture
def driver(machine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path | None:
    """The driver that executors load; None: a GPU's own."""
    if machine.real:
        return None
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 1)
    return machines.emulated_driver(tmp_path)


def optimizer_of(model: torch.nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=0.01)


def check(
    machine: Any,
    driver: Path | None,
    loader: Loader,
    *,
    step: Callable[[Any, Any], torch.Tensor] = factored_steps.loss,
    model: torch.nn.Module | None = None,
    left: int = 0,
    refuse: bool = False,
    journal: Path | None = None,
    epochs: int = 2,
    devices: Sequence[str] = ("cuda:0",),
    **options: Any,
) -> list[dict[str, Any]]:
    """Train as the plain loop does on the machine's device. Returns the figures after each epoch."""
    model = Net(WIDTH) if model is None else model
    plain, losses, figures = copy.deepcopy(model).to(machine.device), [], []

    def after_epoch(training: Training) -> None:
        losses.append(training.losses)
        figures.append(training.stats())

    given = {"executors": len(devices), "devices": devices, "batches_per_update": 1, "epochs": epochs, **options}
    on_device = DeviceStep(step, driver, left, refuse, journal)
    train(on_device, loader, model, optimizer_of(model), after_epoch=after_epoch, **given)
    loader.set_epoch(0)
    plain_optimizer = optimizer_of(plain)

    def plain_step(model: torch.nn.Module, batch: Any) -> torch.Tensor:
        moved = {name: value.to(machine.device) for name, value in batch.items()} if isinstance(batch, dict) else None
        return step(model, batch.to(machine.device) if moved is None else moved)

    expected = [factored_steps.plain(plain_step, loader, plain, plain_optimizer, 3, epoch) for epoch in range(epochs)]
    if not machine.real:
        assert losses == expected
    torch.testing.assert_close(losses, expected)
    for name, value in plain.state_dict().items():
        got = model.state_dict()[name]
        assert machine.real or torch.equal(value, got), name
        torch.testing.assert_close(got, value.cpu())
    return figures


def queued(figures: list[dict[str, Any]]) -> list[int]:
    """The bytes that went through the queue in each epoch."""
    total = [0, *(figure["queued_bytes"] for figure in figures)]
    return [after - before for before, after in itertools.pairwise(total)]


FIXED: dict[str, Any] = {"roles": {"samplers": 1, "trainers": 1}, "switching": False, "devices": ["cpu", "cuda:0"]}
"""A sampler needs no device."""


def test_rows_that_devices_hold_are_not_in_the_queue(machine: Any, driver: Path | None, path: Path) -> None:
    with open_loader(path) as loader:
        rows = [sum(batch.num_nodes for batch in loader) for _ in range(2)]
    bytes_of = {}
    roles_of: dict[int | None, dict[str, Any]] = {None: {}, ALL // 4: {}, ALL: FIXED}
    for size, roles in roles_of.items():
        with open_loader(path, transpose=size is not None) as loader:
            figures = check(machine, driver, loader, device_cache=size, **roles)
        assert figures[-1]["device_cache_bytes"] == (size or 0)
        assert figures[-1]["device_cache_rows"] == (size or 0) // ROW
        bytes_of[size] = queued(figures)
    for epoch, count in enumerate(rows):
        # Instead of a row there is at most an int32, its place.
        saved = {size: bytes_of[None][epoch] - bytes_of[size][epoch] for size in bytes_of}
        assert saved[ALL] >= count * (ROW - 8 - 4)  # the eight of t are packed in fewer bytes
        assert saved[ALL] * 0.25 < saved[ALL // 4] < saved[ALL]  # the hottest ones
        assert bytes_of[ALL][epoch] < 0.2 * bytes_of[None][epoch]


def test_the_rows_that_the_devices_have_room_for(machine: Any, driver: Path | None, path: Path) -> None:
    """After the first epoch: half of what is left, divided by the executors of a device."""
    with open_loader(path) as loader:
        figures = check(machine, driver, loader, left=4 * 100 * ROW, epochs=3, devices=["cuda:0", "cuda:0"])
        if machine.real:
            assert [of["device_cache_rows"] for of in figures] == [0, NODES, NODES]
            return
        assert [of["device_cache_rows"] for of in figures] == [0, 100, 100]
        first, second, _ = queued(figures)
        assert first > 1.2 * second
        loader.set_epoch(0)
        figures = check(machine, driver, loader, left=0)  # no room
        assert [of["device_cache_rows"] for of in figures] == [0, 0]


def test_samplers_without_memory_for_the_places(machine: Any, driver: Path | None, path: Path) -> None:
    """Their batches bring all rows, where nobody has given a size."""
    with open_loader(path) as loader:
        figures = check(machine, driver, loader, left=8 * ALL, refuse=True)
        assert [of["device_cache_rows"] for of in figures] == [0, NODES]
        first, second = queued(figures)
        assert second > 0.9 * first
        with pytest.raises(errors.BudgetError, match="no memory for the places"):
            check(machine, driver, loader, device_cache=ALL, refuse=True)


def test_narrow_rows_types_and_padding(machine: Any, driver: Path | None, tmp_path: Path, typed_path: Path) -> None:
    path = tmp_path / "narrow"
    convert(graph(), path, dtype={"x": "int8"}, progress=False).close()
    with open_loader(path) as loader:
        check(machine, driver, loader, device_cache=ALL // 8, epochs=1)
    with open_loader(path, pad=True) as loader:
        check(machine, driver, loader, epochs=1)
    options: dict[str, Any] = {"batch_size": 16, "shuffle": True, "seed": 3, "transform": factored_steps.summed}
    with Loader(typed_path, [3, 2], "paper", **options) as loader:
        step, model = factored_steps.typed_loss, torch.nn.Linear(2, 1)
        figures = check(machine, driver, loader, step=step, model=model, device_cache="1GiB", epochs=1)
        assert figures[-1]["device_cache_rows"] > 0


def slow_loss(model: torch.nn.Module, batch: Any) -> torch.Tensor:
    time.sleep(0.05)  # so that batches wait
    return factored_steps.loss(model, batch)


def test_the_next_batch_is_sent_while_one_is_trained(
    machine: Any, driver: Path | None, path: Path, tmp_path: Path
) -> None:
    """That is between a step and the copy of its gradients, which waits for the device. Each batch is sent once."""
    journal = tmp_path / "journal"
    with open_loader(path) as loader:
        check(machine, driver, loader, step=slow_loss, journal=journal, device_cache=ALL // 4, **FIXED)
        steps = 2 * len(loader)
    lines = [line.split() for line in journal.read_text().splitlines()]
    assert len({pid for pid, _ in lines}) == 1  # one trains
    words = [word for _, word in lines]
    assert [words.count(word) for word in ("sends", "step", "deposits")] == [steps] * 3
    parts = " ".join(words).split("deposits")
    ahead = sum("step sends" in part for part in parts)
    assert ahead > 3
    assert sum(part.strip() in ("step", "step sends") for part in parts) == ahead  # steps of batches that were there


def test_batches_of_several_samplers_for_several_trainers(machine: Any, driver: Path | None, path: Path) -> None:
    roles, devices = {"samplers": 2, "trainers": 2}, ["cpu", "cpu", "cuda:0", "cuda:0"]
    with open_loader(path) as loader:
        options: dict[str, Any] = {"roles": roles, "devices": devices, "switching": False}
        check(machine, driver, loader, step=slow_loss, device_cache=ALL // 4, **options)


def test_wrong_caches(machine: Any, driver: Path | None, path: Path) -> None:
    model = Net(WIDTH)
    usual: dict[str, Any] = {"executors": 2, "devices": ["cpu", "cuda:0"], "device_cache": "1MiB"}
    refused: list[tuple[dict[str, Any], dict[str, Any], str]] = [
        ({}, {}, "a CUDA device for every executor that may train"),
        ({}, {"devices": None}, "a CUDA device for every executor that may train"),
        ({}, {"device_cache": 3, **FIXED}, "room for a row"),
        ({"pad": True}, FIXED, "pad=True of the loader and device_cache"),
    ]
    for options, wrong, message in refused:
        with open_loader(path, **options) as loader, pytest.raises(errors.InvalidArgumentError, match=message):
            train(factored_steps.loss, loader, model, optimizer_of(model), **{**usual, **wrong})
