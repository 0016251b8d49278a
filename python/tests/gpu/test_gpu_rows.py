"""Rows that the device reads in locked memory of the host: the same batches, and no thread of the loader gathers."""

from __future__ import annotations

import copy
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
from device_fakes import LateStreams
from graphs import random_graph
from test_gpu_loader import WIDE, hetero, same, same_store, wide_rows

import freshgo
from freshgo import Loader, errors
from freshgo._device import pinned_memory


def sent(machine: Any) -> list[torch.Tensor]:
    """The rows of floats that were copied to the emulated device; on a GPU nobody sees them."""
    return [] if machine.real else [copy for copy in LateStreams.last.copies if copy.is_floating_point()]


def check(machine: Any, data: Any, reads: bool = True, **given: Any) -> dict[str, Any]:
    """Batches have the rows of those on the host. ``reads``: none of them was gathered, or copied."""
    plain_given = {name: value for name, value in given.items() if name != "device_cache"}
    with (
        machine.loading() as device,
        Loader(data, **plain_given) as plain,
        Loader(data, **{"device_cache": None, **given}, device=device) as moved,
    ):
        for epoch in range(2):
            plain.set_epoch(epoch)
            moved.set_epoch(epoch)
            for want, got in zip(plain, moved, strict=True):
                same(want, got)
                assert got.x.device == machine.device
        same(plain.sample([3, 1, 2]), moved.sample([3, 1, 2]))
        stats = moved.stats()
        assert (stats["locked_bytes"] > 0) == reads
        assert (stats["seconds_gathering"] == 0) == reads
        if not machine.real:
            assert (not sent(machine)) == reads
        return stats


@pytest.mark.parametrize("where", ["memory", "store"])
@pytest.mark.parametrize("more", [{}, {"pad": True}, {"device_cache": "500kB"}, {"prefetch": 0}], ids=str)
def test_the_device_reads_the_rows(machine: Any, tmp_path: Path, where: str, more: dict[str, Any]) -> None:
    data: Any = wide_rows()
    n_bytes = data["x"].nbytes
    if where == "store":
        data = freshgo.convert(data, tmp_path / "wide.freshgo", progress=False)
    stats = check(machine, data, **WIDE, **more)
    assert stats["locked_bytes"] == n_bytes
    assert (stats["held"] > 0) == ("device_cache" in more)


@pytest.mark.parametrize("stored", ["float16", "bfloat16", "int8"])
@pytest.mark.parametrize("more", [{}, {"device_cache": "300kB"}], ids=str)
def test_rows_are_widened_on_the_device(machine: Any, tmp_path: Path, stored: str, more: dict[str, Any]) -> None:
    data = wide_rows()
    with freshgo.convert(data, tmp_path / "narrow.freshgo", dtype={"x": stored}, progress=False) as store:
        for feature_dtype in ("float32", "stored"):
            stats = check(machine, store, **WIDE, feature_dtype=feature_dtype, **more)
            assert (stats["held"] > 0) == bool(more)
            assert stats["locked_bytes"] <= data["x"].nbytes * 0.6


@pytest.mark.parametrize("dtype", [None, {}, {"x": "float16"}, {"x": "int8"}], ids=str)
def test_the_cache_that_the_device_has_room_for(
    machine: Any, tmp_path: Path, dtype: dict[str, str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By default: after the first epoch the device holds all rows of a graph as small as this."""
    monkeypatch.setattr(LateStreams, "left", 1 << 30)
    data: Any = wide_rows()
    if dtype is not None:
        data = freshgo.convert(data, tmp_path / "fits.freshgo", dtype=dtype, progress=False)
    with machine.loading() as device, Loader(data, **WIDE) as plain, Loader(data, **WIDE, device=device) as moved:
        for epoch in range(3):
            for want, got in zip(plain, moved, strict=True):
                same(want, got)
            assert (moved.stats()["device_cache_rows"] == 4000) == (epoch > 0)
            assert moved.stats()["device_cache_bytes"] <= 4000 * 600
        epochs = moved.stats()["epochs"]
        assert [epoch["held"] for epoch in epochs] == [0, epochs[1]["rows"], epochs[2]["rows"]]


@pytest.mark.parametrize("cache", [None, "20kB"])
def test_rows_of_types(machine: Any, cache: str | None) -> None:
    pytest.importorskip("torch_geometric")
    given: dict[str, Any] = {"num_neighbors": [4, 3], "input_nodes": "paper", "batch_size": 100, "shuffle": True}
    data: Any = hetero()
    with (
        machine.loading() as device,
        Loader(data, **given) as plain,
        Loader(data, **given, device=device, **({} if cache is None else {"device_cache": cache})) as moved,
    ):
        assert moved.stats()["locked_bytes"] == data["paper"]["x"].nbytes + data["author"]["x"].nbytes
        for want, got in zip(plain, moved, strict=True):
            for kind in want.node_types:
                same_store(want[kind], got[kind])
        assert not sent(machine)


def test_rows_of_every_dtype(machine: Any) -> None:
    """Numbers that are packed, which come as they did, and rows of any width."""
    data: dict[str, Any] = {**random_graph(400, 3000), "bytes": torch.randint(0, 255, (400, 3), dtype=torch.uint8)}
    data["flags"], data["wide"] = torch.rand(400) < 0.5, torch.rand(400, 2, 3, dtype=torch.float64)
    with (
        machine.loading() as device,
        Loader(data, [4, 3], batch_size=50) as plain,
        Loader(data, [4, 3], batch_size=50, device=device) as moved,
    ):
        for want, got in zip(plain, moved, strict=True):
            same(want, got)
        assert moved.stats()["locked_bytes"] >= 400 * (3 + 1 + 48)


@pytest.mark.parametrize("refused", ["lock", "read"])
def test_where_memory_is_not_locked_rows_are_copied(
    machine: Any, refused: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    if refused == "read":
        monkeypatch.setattr(pinned_memory, "reads_host", lambda device: False)
    else:
        monkeypatch.setattr(pinned_memory, "lock_buffers", lambda device: False)
    check(machine, wide_rows(), reads=False, **WIDE)


def test_memory_that_somebody_else_has_locked(machine: Any, caplog: pytest.LogCaptureFixture) -> None:
    """A driver refuses to lock it once more: the loader's threads gather its rows, and the log says so."""
    if machine.real:
        pytest.skip("what a driver does with memory that is locked is its own")
    import ctypes

    from freshgo._native import abi

    data = wide_rows()
    address = ctypes.c_void_p()
    abi.call("fg_cuda_register_host", 0, data["x"].data_ptr(), data["x"].nbytes, ctypes.byref(address))
    try:
        with caplog.at_level(logging.INFO, logger="freshgo"):
            check(machine, data, reads=False, **WIDE)
        assert "batches bring their rows" in caplog.text
    finally:
        abi.call("fg_cuda_unregister_host", 0, data["x"].data_ptr())


def test_loaders_share_what_is_locked(machine: Any) -> None:
    """One graph in memory, for training and for validation; each is closed at a time of its own."""
    data = wide_rows()
    with machine.loading() as device, Loader(data, **WIDE) as plain:
        first, second = (Loader(data, **WIDE, device=device) for _ in range(2))
        assert first.stats()["locked_bytes"] == second.stats()["locked_bytes"] == data["x"].nbytes
        first.close()
        with pytest.raises(errors.ClosedError):
            first.sample([1])
        for want, got in zip(plain, second, strict=True):
            same(want, got)
        second.close()
        with Loader(data, **WIDE, device=device) as third:
            assert third.stats()["locked_bytes"] == data["x"].nbytes


def test_locked_memory_counts(machine: Any) -> None:
    """Where ``memory`` has no room for the features, batches bring their rows."""
    data = wide_rows()
    data["x"] = torch.randn(4000, 1500)
    given = {**WIDE, "batch_size": 16, "prefetch": 1}
    with machine.loading() as device:
        with pytest.raises(errors.BudgetError) as small:
            Loader(data, **given, device=device, memory="100kB")
        least = small.value.minimum
        assert least < data["x"].nbytes
        check(machine, data, reads=False, **given, memory=least)
        stats = check(machine, data, **given, memory=least + data["x"].nbytes)
        assert stats["memory"]["feature_cache"] == data["x"].nbytes
        assert data["x"].nbytes <= stats["memory_peak"] <= least + data["x"].nbytes


def test_a_store_that_changes(machine: Any, tmp_path: Path) -> None:
    """A loader has the rows of the store that it opened."""
    path = tmp_path / "changing.freshgo"
    data = wide_rows()
    freshgo.convert(data, path, progress=False).close()
    with machine.loading() as device, Loader(path, **WIDE) as plain, Loader(path, **WIDE, device=device) as moved:
        freshgo.convert({**data, "x": data["x"] + 1}, path, overwrite=True, progress=False).close()
        for want, got in zip(plain, moved, strict=True):
            same(want, got)
        assert moved.stats()["locked_bytes"] == data["x"].nbytes


def test_memory_that_is_lent(machine: Any, store_path: Path) -> None:
    """A loader that is opened again reads its new memory."""
    given: dict[str, Any] = {"num_neighbors": [4, 3], "batch_size": 64}
    with (
        machine.loading() as device,
        Loader(store_path, **given) as plain,
        Loader(store_path, **given, device=device, memory=freshgo.MemoryBudget("64MiB")) as moved,
    ):
        before = moved.stats()["locked_bytes"]
        for epoch in range(2):
            plain.set_epoch(epoch)
            moved.set_epoch(epoch)
            for want, got in zip(plain, moved, strict=True):
                same(want, got)
            assert moved.stats()["locked_bytes"] == before > 0
            assert moved._engine.give_back()
            assert moved.stats()["locked_bytes"] == 0
        assert moved.stats()["openings"] == 2


def test_memory_is_unlocked_after_the_device_has_read_it(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    if machine.real:
        pytest.skip("a GPU reads when it does")
    with machine.loading() as device:
        loader = Loader(wide_rows(), **WIDE, device=device)
        streams = LateStreams.last
        iterator = iter(loader)
        next(iterator)
        while streams.done == len(streams.queue):  # until the next batch is on its way
            pass
        closed = type(loader._engine.native).close

        def close(native: Any) -> None:
            assert streams.done == len(streams.queue), "rows are still to be read"
            closed(native)

        monkeypatch.setattr(type(loader._engine.native), "close", close)
        loader.close()


@pytest.mark.parametrize("stored", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("where", ["memory", "store"])
@pytest.mark.parametrize("pad", [False, True])
def test_a_first_layer_that_is_precomputed(machine: Any, tmp_path: Path, stored: str, where: str, pad: bool) -> None:
    """The device reads rows and aggregates as they are stored; the layer over both has the output of the host's."""
    nn = pytest.importorskip("torch_geometric.nn")
    data: Any = dict(wide_rows())
    data["x"] = data["x"].to(getattr(torch, stored))
    if where == "store":
        data = freshgo.convert(data, tmp_path / "graph.freshgo", progress=False)
    data = freshgo.propagate(data, "x", progress=False)
    stats = check(machine, data, **{**WIDE, "num_neighbors": [3]}, first_layer="mean", pad=pad)
    rows = wide_rows()["x"]
    assert stats["locked_bytes"] >= 2 * rows.numel() * getattr(torch, stored).itemsize
    model = nn.GraphSAGE(rows.shape[1], 8, num_layers=2, out_channels=3)
    freshgo.nn.precomputed(model)
    moved = copy.deepcopy(model).to(machine.device)
    given = {**WIDE, "num_neighbors": [3], "first_layer": "mean", "pad": pad}
    with machine.loading() as device, Loader(data, **given) as plain, Loader(data, **given, device=device) as ours:
        for want, got in zip(plain, ours, strict=True):
            assert got.x_mean.dtype == want.x_mean.dtype
            out = moved(got.x.float(), got.edge_index)[: got.batch_size]
            torch.testing.assert_close(out.cpu(), model(want.x.float(), want.edge_index)[: want.batch_size])
