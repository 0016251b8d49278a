"""The cache that a loader chooses by what the device has free (device_cache="auto"), on memory of the host."""

from __future__ import annotations

import logging
from typing import Any

import left
import pytest
import torch
from device_fakes import MARGIN_OF_32, ROW, LateStreams, in_place_of_cuda, leave_room
from graphs import Form
from oracle import assert_batches_equal, assert_equal

import freshgo
from freshgo import LinkLoader, Loader
from freshgo._device import fitting, row_cache
from freshgo._device import streams as device_streams
from freshgo.errors import BudgetError

CPU = torch.device("cpu")
REAL = device_streams.CudaStreams
GIVEN: dict[str, Any] = {"num_neighbors": [4, 3], "batch_size": 16, "shuffle": True, "seed": 3}


fake = in_place_of_cuda(total=MARGIN_OF_32)


nothing_left = left.fixture("module")


def same_epochs(plain: Any, moved: Any, epochs: int = 2) -> None:
    for _ in range(epochs):
        assert_batches_equal(plain, moved)


@pytest.mark.parametrize("where", ["memory", "store"])
def test_the_cache_comes_after_the_first_steps(form: Form, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    leave_room(monkeypatch, 700)
    data = form.data if where == "memory" else form.path
    given = {**GIVEN, "batch_size": 8, "input_nodes": form.inputs("train"), "memory": "32MiB", "feature_cache": "50kB"}
    with Loader(data, **given) as plain, Loader(data, **given, device="cuda") as moved:
        assert len(moved) >= fitting.STEPS + 32
        pair = zip(plain, moved, strict=True)
        for _ in range(fitting.STEPS):
            assert_equal(*next(pair))
            assert moved.stats()["device_cache_bytes"] == moved.stats()["held"] == 0
        for want, got in pair:
            assert_equal(want, got)
        stats = moved.stats()
        assert stats["openings"] == 2
        assert 0.9 * 700 * ROW < stats["device_cache_bytes"] <= 700 * ROW
        assert 0 < stats["held"] < stats["rows"]
        assert_equal(plain.sample(given["input_nodes"]), moved.sample(given["input_nodes"]))
        same_epochs(plain, moved)
        assert moved.stats()["openings"] == 2
        made = [epoch["batches"] - len(moved) for epoch in moved.stats()["epochs"]]
        assert made[0] in (0, 1)  # what was on its way is made again
        assert made[1:] == [0, 0]
        if not form.several:
            assert stats["device_cache_rows"] == 700


def test_what_is_left_on_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a step needs is left to it, also where PyTorch has given it back."""
    streams = object.__new__(REAL)
    streams._device = CPU
    for reserved, peak, free in ((50, 30, 120), (50, 50, 100), (20, 50, 70)):
        monkeypatch.setattr(torch.cuda, "mem_get_info", lambda device: (100, 1000))
        monkeypatch.setattr(torch.cuda, "memory_reserved", lambda device, n=reserved: n)
        monkeypatch.setattr(torch.cuda, "max_memory_allocated", lambda device, n=peak: n)
        assert streams.memory() == (free, 1000)
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda device: {"num_ooms": 3})
    assert streams.failures() == 3


def test_of_a_short_epoch_the_next_one_has_it(graph: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    leave_room(monkeypatch, 5000)
    given = {**GIVEN, "batch_size": 16, "input_nodes": range(20 * 16)}
    with Loader(graph, **given) as plain, Loader(graph, **given, device="cuda") as moved:
        same_epochs(plain, moved, 1)
        assert moved.stats()["device_cache_rows"] == 0
        same_epochs(plain, moved, 1)
        assert moved.stats()["device_cache_rows"] == 3000  # all that there are
        assert moved.stats()["epochs"][1]["held"] == moved.stats()["epochs"][1]["rows"]


def test_few_batches_are_not_worth_it(graph: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    leave_room(monkeypatch, 5000)
    with Loader(graph, **GIVEN, input_nodes=range(16), device="cuda") as loader:
        for epoch in range(fitting.STEPS + 1):
            assert loader.stats()["openings"] == 1, epoch
            list(loader)
        assert loader.stats()["openings"] == 2


@pytest.mark.parametrize("left", [-10_000, 0, 28, 29])
def test_a_cache_of_less_than_a_hundredth_is_none(
    graph: dict[str, Any], left: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_room(monkeypatch, left)
    with Loader(graph, **GIVEN, device="cuda") as loader:
        list(loader)
        list(loader)
        assert loader.stats()["device_cache_rows"] == 0
        assert loader.stats()["openings"] == 1


def test_two_loaders_take_one_half_after_the_other(graph: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    free = 4 * 1000 * ROW

    def memory(streams: LateStreams) -> tuple[int, int]:
        return free - sum(loader.stats()["device_cache_bytes"] for loader in loaders), 0

    monkeypatch.setattr(LateStreams, "memory", memory)
    loaders: list[Loader[Any]] = []
    with Loader(graph, **GIVEN, device="cuda") as first:
        loaders.append(first)
        list(first)
        with Loader(graph, **GIVEN, device="cuda") as second:
            loaders.append(second)
            list(second)
            assert [loader.stats()["device_cache_rows"] for loader in loaders] == [2000, 1000]


def test_where_memory_ends_the_next_epoch_takes_less(
    graph: dict[str, Any], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    leave_room(monkeypatch, 1000)
    with Loader(graph, **GIVEN) as plain, Loader(graph, **GIVEN, device="cuda") as moved:
        same_epochs(plain, moved, 1)
        monkeypatch.setattr(LateStreams, "failed", 1)  # a step of the model
        held = []
        with caplog.at_level(logging.WARNING, logger="freshgo"):
            for _ in range(3):
                same_epochs(plain, moved, 1)
                held.append(moved.stats()["device_cache_rows"])
        assert held == [500, 500, 500]
        said = "ran out of memory beside a device_cache of 112.3 KiB, which takes at most 56.2 KiB"
        assert caplog.text.count(said) == 1
        for failed in range(2, 7):
            monkeypatch.setattr(LateStreams, "failed", failed)
            same_epochs(plain, moved, 1)
        assert moved.stats()["device_cache_rows"] == 0
        assert moved.stats()["openings"] == 2 + 6


def test_out_of_memory_names_the_cache(graph: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    leave_room(monkeypatch, 1000)
    copy = LateStreams.copy
    full = [False]

    def sparse(streams: LateStreams, tensor: torch.Tensor) -> torch.Tensor:
        if full[0]:
            raise torch.cuda.OutOfMemoryError("Tried to allocate 3 GiB.")
        return copy(streams, tensor)

    monkeypatch.setattr(LateStreams, "copy", sparse)
    for more, then in (({}, "it takes less from the next epoch on"), ({"device_cache": "5kB"}, "give a smaller one")):
        with Loader(graph, **GIVEN, device="cuda", prefetch=0, **more) as loader:
            list(loader)
            full[0] = True
            with pytest.raises(torch.cuda.OutOfMemoryError, match=rf"3 GiB. device_cache= holds .* rows there: {then}"):
                list(loader)
            with pytest.raises(torch.cuda.OutOfMemoryError, match="device_cache= holds"):
                loader.sample([1])
            full[0] = False
    full[0] = True
    with Loader(graph, **GIVEN, device="cuda", device_cache=None) as loader:
        with pytest.raises(torch.cuda.OutOfMemoryError, match=r"3 GiB.$"):
            list(loader)


def test_what_does_not_fit_is_halved(graph: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """The device has less in one piece than it says."""
    leave_room(monkeypatch, 1000)
    fill = row_cache.DeviceCache.fill
    tried: list[int] = []

    def full(cache: row_cache.DeviceCache, *given: Any) -> None:
        tried.append(cache.rows)
        if cache.rows > 300:
            raise torch.cuda.OutOfMemoryError("Tried to allocate 3 GiB.")
        fill(cache, *given)

    monkeypatch.setattr(row_cache.DeviceCache, "fill", full)
    with Loader(graph, **GIVEN) as plain, Loader(graph, **GIVEN, device="cuda") as moved:
        same_epochs(plain, moved)
        assert tried == [1000, 500, 250]
        assert moved.stats()["device_cache_rows"] == 250


@pytest.mark.parametrize("where", ["ranking", "opening"])
def test_memory_of_the_host_that_is_too_small(
    graph: dict[str, Any], where: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is for batches first."""
    leave_room(monkeypatch, 1000)

    def small(*given: Any, **more: Any) -> Any:
        raise BudgetError("memory is too small", 1)

    with Loader(graph, **GIVEN) as plain, Loader(graph, **GIVEN, device="cuda") as moved:
        made = moved._engine.openings._make
        if where == "ranking":
            monkeypatch.setattr(row_cache, "choose", small)
        else:
            moved._engine.openings._make = lambda o: made(o) if o["held"] is None else small()  # type: ignore[typeddict-item]
        same_epochs(plain, moved)
        assert moved.stats()["device_cache_rows"] == moved.stats()["held"] == 0


@pytest.mark.parametrize(
    "more",
    [
        {"device_cache": None},
        {"device_cache": 0},
        {"pad": True},
        {"cache": freshgo.Belady(reorder=True)},
        {"device": None},
    ],
    ids=str,
)
def test_where_there_is_none(store_path: Any, more: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    leave_room(monkeypatch, 1000)
    monkeypatch.setattr(fitting, "Fitting", None)
    with Loader(store_path, **{**GIVEN, "input_nodes": "train", "device": "cuda", **more}) as loader:
        assert next(iter(loader)).x.size(0) > 0


def test_graphs_without_rows(graph: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    leave_room(monkeypatch, 1000)
    for own in ({}, {"place": torch.zeros(3000)}):
        data = {"num_nodes": 3000, "edge_index": graph["edge_index"], **own}
        with Loader(data, **GIVEN, device="cuda") as loader:
            list(loader)
            assert loader.stats()["openings"] == 1


@pytest.mark.parametrize(
    "more",
    [
        {"num_neighbors": [freshgo.RandomWalk(4, 3, 5)] * 2},
        {"disjoint": True},
        {"replace": True, "transpose": True},
        {"neighbor_sampler": freshgo.Labor(edge_weight=False)},
        {"subgraph_type": "induced"},
        {"subgraph_type": "bidirectional", "return_edge_id": False},
        {"num_neighbors": []},
        {"prefetch": 0},
        {"edge_index": "EdgeIndex"},
        {"cache": "lru"},
        {"memory": freshgo.MemoryBudget("64MiB")},
    ],
    ids=str,
)
def test_every_kind_of_batch(store_path: Any, more: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    leave_room(monkeypatch, 700)
    given = {**GIVEN, "input_nodes": "train", **more}
    plain_given = {name: value for name, value in given.items() if name != "memory"}
    with Loader(store_path, **plain_given) as plain, Loader(store_path, **given, device="cuda") as moved:
        same_epochs(plain, moved)
        assert moved.stats()["device_cache_rows"] == 700


def test_links(graph: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    leave_room(monkeypatch, 700)
    links = torch.randint(0, 3000, (2, 1000))
    given = {**GIVEN, "edge_label_index": links, "neg_sampling": "binary"}
    with LinkLoader(graph, **given) as plain, LinkLoader(graph, **given, device="cuda") as moved:
        same_epochs(plain, moved)
        assert moved.stats()["device_cache_rows"] == 700


def test_a_state_goes_on_whatever_the_cache_is(graph: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    leave_room(monkeypatch, 700)
    with Loader(graph, **GIVEN) as plain, Loader(graph, **GIVEN, device="cuda") as moved:
        iterator = iter(moved)
        for _ in range(fitting.STEPS + 5):
            next(iterator)
        assert moved.stats()["device_cache_rows"] == 700
        plain.load_state_dict(moved.state_dict())
        assert_batches_equal(plain, iterator)
