"""A history beside rows on a device: batches that it has pruned, with a cache of rows and without, and who waits."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import left
import pytest
import torch
from device_fakes import MARGIN_OF_32, LateStreams, in_place_of_cuda, leave_room
from graphs import Graph, random_graph
from test_device_loader import contents, levels, same, train_by_hand
from torch.utils._python_dispatch import TorchDispatchMode

import freshgo
from freshgo import History, Loader, errors
from freshgo._device import fitting
from freshgo._history import crossing, entries, estimation, training_step
from freshgo._loader.openings import Openings
from freshgo._native.options import Settings

GIVEN: dict[str, Any] = {"num_neighbors": [4, 3], "batch_size": 64, "shuffle": True, "seed": 3}


fake = in_place_of_cuda(total=MARGIN_OF_32)


nothing_left = left.fixture("module")


def trained(data: Any, epochs: int = 3, train: Any = train_by_hand, **given: Any) -> tuple[list[Any], dict[str, Any]]:
    """Return the batches of a training that keeps rows, with their levels, and the figures of the loader."""
    history, seen = History(memory="1MiB", policy="gradient", keep="rows"), []
    with Loader(data, **{**GIVEN, **given}, history=history) as loader:
        for _ in range(epochs):
            for batch in loader:
                seen.append((contents(batch), levels(batch)))
                train(history, batch)
        assert sum(layer["hits"] for layer in history.stats()["layers"]) > 0
        return seen, {**loader.stats(), "history": history.stats()}


def assert_same(want: list[Any], got: list[Any]) -> None:
    for (batch, tables), (moved, moved_tables) in zip(want, got, strict=True):
        assert same(batch, moved)
        assert same(tables, moved_tables)


@pytest.mark.parametrize("where", ["memory", "store"])
@pytest.mark.parametrize("cache", ["auto", "none", "degree", "lru"])
@pytest.mark.parametrize("room", ["40kB", "1GiB"])
def test_cached_rows_of_pruned_batches(
    graph: dict[str, Any], store_path: Path, where: str, cache: str, room: str
) -> None:
    data = graph if where == "memory" else store_path
    given = {"input_nodes": "train", "cache": cache, "memory": "32MiB", "feature_cache": "50kB", "transpose": True}
    want, plain = trained(data, **given)
    got, stats = trained(data, **given, device="cuda", device_cache=room)
    assert_same(want, got)
    assert stats["history"] == plain["history"]
    assert stats["rows"] == plain["rows"] == stats["held"] + stats["hits"] + stats["packed"] + stats["misses"]
    assert stats["held"] > 0
    assert (stats["held"] == stats["rows"]) == (room == "1GiB")
    gaps = sum(int((tables["degree"].numel() - tables["loaded"]) > 0) for _, tables in got)
    assert gaps > 0
    sent = sum(copy.numel() for copy in LateStreams.last.copies if copy.dim() == 2 and copy.dtype == torch.float32)
    assert sent <= 24 * (stats["rows"] - stats["held"] + gaps)  # and a row of zeros for those that are not read


def by_type(history: History, batch: Any) -> None:
    """A step over node types."""
    first, second = batch.blocks()
    history(batch.x_dict, first)
    of = {name: torch.linspace(0, 1, n * 4).view(-1, 4).requires_grad_() for name, n in first.num_dst.items()}
    sum((rows**2).sum() for rows in history(of, second).values()).backward()  # type: ignore[union-attr]
    history.update()


def test_cached_rows_of_types(typed: Graph, typed_path: Path) -> None:
    for data in (typed, typed_path):
        seen: dict[str | None, list[Any]] = {}
        for room in (None, "20kB", "1GiB"):
            history = History(memory="1MiB", policy="gradient", keep="rows")
            device = {} if room is None else {"device": "cuda", "device_cache": room}
            found = seen[room] = []
            with Loader(data, **GIVEN, input_nodes="paper", history=history, **device) as loader:
                for _ in range(3):
                    for batch in loader:
                        found.append({(key, name): of for key in batch.node_types for name, of in batch[key].items()})
                        found.append({key: batch[key].edge_index.clone() for key in batch.edge_types})
                        by_type(history, batch)
                assert sum(layer["hits"] for layer in history.stats()["layers"]) > 0
                assert (room is not None) == (loader.stats().get("held", 0) > 0)
        for room in ("20kB", "1GiB"):
            assert len(seen[room]) == len(seen[None])
            assert all(same(want, got) for want, got in zip(seen[None], seen[room], strict=True))


@pytest.mark.parametrize("stored", ["float16", "bfloat16", "int8-per-row", "int8-per-column"])
def test_rows_that_nobody_reads_are_zeros(graph: dict[str, Any], tmp_path: Path, stored: str) -> None:
    """Also rows that the device widens; by column, zero bytes are numbers of the columns."""
    with freshgo.convert(graph, tmp_path / "graph", dtype={"x": stored}, progress=False) as store:
        want, _ = trained(store, input_nodes="train")
        plain, _ = trained(store, input_nodes="train", device="cuda", device_cache=None)
        got, stats = trained(store, input_nodes="train", device="cuda", device_cache="20kB")
    assert_same(plain, got)
    if stored != "int8-per-column":
        assert_same(want, got)
    assert 0 < stats["held"] < stats["rows"]


@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize("batch_size", [8, 64])
def test_a_history_goes_on_where_the_device_takes_rows(
    graph: dict[str, Any], batch_size: int, outside: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the first epoch, or where that is short before another one; the buffer is the loader's or of the device."""
    leave_room(monkeypatch, 700)
    given = {"input_nodes": "train", "batch_size": batch_size}
    want, plain = trained(graph, **given)
    if outside:
        monkeypatch.setattr(Settings, "outside", True)
    got, stats = trained(graph, **given, device="cuda")
    assert stats["openings"] == 2
    assert 0 < stats["held"] < stats["rows"]
    assert_same(want, got)
    assert stats["history"] == plain["history"]


def test_a_bound_of_the_age_goes_on_too(graph: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    leave_room(monkeypatch, 700)

    def bounded(history: History, batch: Any) -> None:
        train_by_hand(history, batch)
        history._entries._bound = 3  # as of errors that grow with age

    given = {"input_nodes": "train", "epochs": 4, "train": bounded}
    want, _ = trained(graph, **given)
    got, stats = trained(graph, **given, device="cuda")
    assert stats["device_cache_rows"] == 700
    assert_same(want, got)


def test_where_memory_would_change_what_is_pruned_the_device_holds_nothing(
    graph: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    leave_room(monkeypatch, 700)
    want, _ = trained(graph, input_nodes="train")
    lag, change = entries._lag, Openings.change
    calls, changed = [], []

    def lags(of: entries.Entries) -> int | None:
        calls.append(lag(of))
        return 100 if len(calls) == 2 else calls[-1]  # in the loader that was opened with fewer rows

    def changes(openings: Openings, **more: Any) -> Any:
        changed.append(more)
        return change(openings, **more)

    monkeypatch.setattr(entries, "_lag", lags)
    monkeypatch.setattr(Openings, "change", changes)
    got, stats = trained(graph, input_nodes="train", device="cuda")
    assert calls == [calls[0]] * 3
    assert changed == [{"held": None}]
    assert stats["device_cache_rows"] == stats["held"] == 0
    assert_same(want, got)


def test_the_buffer_comes_first(graph: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where a history begins late, the cache leaves it its memory all the same."""
    leave_room(monkeypatch, 700)
    monkeypatch.setattr(Settings, "outside", True)
    history = History(memory="1MiB", policy="gradient", keep="rows", start=3.0)
    room, seen = fitting.Fitting._room, []

    def rooms(of: fitting.Fitting) -> int:
        seen.append(history._entries._exported)
        return room(of)

    monkeypatch.setattr(fitting.Fitting, "_room", rooms)
    with Loader(graph, **GIVEN, input_nodes="train", device="cuda", history=history) as loader:
        list(loader)
        list(loader)
        assert loader.stats()["device_cache_rows"] == 700
    assert seen
    assert all(of is not None and of[1].raw.numel() == 1 << 20 for of in seen)


def test_a_buffer_that_the_device_has_no_room_for(graph: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Settings, "outside", True)

    def full(*args: Any, **more: Any) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 3 GiB.")

    history = History(memory="1MiB", policy="gradient", keep="rows")
    with Loader(graph, **GIVEN, input_nodes="train", device="cuda", history=history) as loader:
        monkeypatch.setattr(torch, "empty", full)
        with pytest.raises(
            errors.InvalidArgumentError, match=r"buffer of 1.0 MiB does not fit .* give .*memory=.*3 Gi"
        ):
            next(iter(loader))


def test_the_buffer_of_a_model_that_keeps_nothing_is_given_back(
    graph: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    nets = pytest.importorskip("torch_geometric.nn")
    monkeypatch.setattr(Settings, "outside", True)
    history = History(memory="1MiB")
    with Loader(graph, **GIVEN, input_nodes="train", device="cuda", history=history) as loader:
        batch = next(iter(loader))
        assert history._entries._exported is not None
        with pytest.warns(UserWarning, match="keeps nothing"):
            history(batch.x, batch.blocks()[0], nets.GATConv(24, 8))
        assert history._entries._exported is None


class Asking(TorchDispatchMode):
    """Counts the operators for which the host of a device has to wait: they return a value, or as many as there are."""

    ASKING = ("_local_scalar_dense", "is_nonzero", "nonzero", "equal", "masked_select", "unique")

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[str] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = func.name().removeprefix("aten::").partition(".")[0]
        masks = name == "index" and any(of is not None and of.dtype in (torch.bool, torch.uint8) for of in args[1])
        if masks or name.removesuffix("_out") in self.ASKING or name.startswith("_unique"):
            self.asked.append(name)
        return func(*args, **(kwargs or {}))


def loopless() -> dict[str, Any]:
    """A graph without edges from nodes to themselves, whose numbers GCN needs."""
    data = random_graph()
    source, target = data["edge_index"]
    source[source == target] = (source[source == target] + 1) % 3000
    return data


def asked_in_steps(kind: str, monkeypatch: pytest.MonkeyPatch, **given: Any) -> tuple[list[list[str]], list[int]]:
    """Return what each step of a model asks of the device, and how many tensors cross to the host in it."""
    nets = pytest.importorskip("torch_geometric.nn")
    history = History(memory="1MiB", **given)
    model = getattr(nets, kind)(24, 8, num_layers=2, out_channels=7)
    history.attach(model)
    fetched: list[torch.Tensor] = []

    class Late(crossing.Fetched):
        """A tensor that comes when somebody waits for it."""

        def __init__(self, tensor: torch.Tensor) -> None:
            super().__init__(tensor.clone())
            fetched.append(tensor)

        def arrived(self) -> bool:
            return False

        def wait(self) -> torch.Tensor:
            waited.append(len(fetched))
            return super().wait()

    waited: list[int] = []
    monkeypatch.setattr(training_step, "Fetched", Late)
    monkeypatch.setattr(estimation, "Fetched", Late)
    asked, waits = [], []
    with Loader(loopless(), **GIVEN, input_nodes="train", device="cuda", history=history) as loader:
        for _ in range(3):
            for batch in loader:
                before = len(waited)
                with Asking() as asking:
                    model(batch.x, batch.edge_index)[: batch.batch_size].square().sum().backward()
                    history.update()
                asked.append(asking.asked)
                waits.append(len(waited) - before)
        stats = history.stats()
    history.detach()
    assert sum(layer["hits"] for layer in stats["layers"]) > 0
    assert bool(stats["error"]) == bool(given.get("sample_error"))
    return asked, waits


@pytest.mark.parametrize("kind", ["GraphSAGE", "GCN", "GIN"])
@pytest.mark.parametrize("more", [{}, {"levels": 1, "sample_error": 0.25}], ids=str)
def test_steps_of_aggregates_wait_for_nothing(kind: str, more: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    asked, waits = asked_in_steps(kind, monkeypatch, **more)
    assert [one for one in asked if one] == []
    assert set(waits) == {0}


@pytest.mark.parametrize("policy", ["performance", "gradient", "gas"])
def test_steps_of_rows_wait_once_for_their_gradients(policy: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """All levels together, in the update."""
    asked, waits = asked_in_steps("GraphSAGE", monkeypatch, policy=policy, keep="rows")
    assert [one for one in asked if one] == []
    assert set(waits) == {1}
