"""Where the neighbour lists are that the device draws from, and where it does not draw."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import torch
from device_fakes import LateStreams
from test_gpu_draws import check, drawn, graph
from test_gpu_loader import same

import freshgo
from freshgo import Device, LinkLoader, Loader, errors
from freshgo._device import drawing, pinned_memory


def test_lists_that_are_packed(machine: Any, tmp_path: Path) -> None:
    """A store that takes more than half of the memory has sources in as few bits as they need."""
    data = {**graph(4000, 60_000), "x": torch.randn(4000, 500)}
    given: dict[str, Any] = {"num_neighbors": [4, 3], "batch_size": 8, "prefetch": 1, "input_nodes": list(range(64))}
    with freshgo.convert(data, tmp_path / "packed.freshgo", progress=False) as store:
        stats = check(machine, store, epochs=1, **given, memory="14MB")
    assert stats["device_lists_bytes"] == 4001 * 8 + sum(4 * (-(60_000 * bits // -32) + 2) for bits in (12, 16))


def test_where_lists_are(machine: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """With "auto", on the device where they take at most a quarter of what it has free."""
    data, given = graph(200, 1500), {"num_neighbors": [4, 3], "batch_size": 32, "return_edge_id": False}
    for free, on_device in [(4 * 1500 * 4, True), (4 * 1500 * 4 - 1, False)]:
        monkeypatch.setattr(LateStreams, "left", free)
        with machine.loading() as device, caplog.at_level("INFO", "freshgo"):
            for sample_on in ("device", "auto"):
                caplog.clear()
                with Loader(data, **given, device=Device(device, sample_on=sample_on)) as loader:
                    on_device |= machine.real
                    assert loader.stats()["device_lists_bytes"] == 201 * 8 + 1500 * 4 * on_device
                    assert len(list(loader)) == 7
                    assert loader.stats()["edges"] == 0
                assert ("its memory" if on_device else "locked memory of the host") in caplog.text
                assert "threads draw" not in caplog.text


REFUSED: list[Any] = [
    ("disjoint", {"disjoint": True}),
    ("induced", {"subgraph_type": "induced"}),
    ("device_cache", {"device_cache": "1kB"}),
    ("RandomWalk", {"num_neighbors": [freshgo.RandomWalk(walks=3, length=2)]}),
    ("locked memory", {}),
    ("does not lock", {}),
    ("MemoryBudget", {"memory": freshgo.MemoryBudget("64MiB")}),
    ("too small", {"memory": "MOST"}),
]


@pytest.mark.parametrize(("named", "more"), REFUSED, ids=[named for named, _ in REFUSED])
def test_auto_where_the_device_does_not_draw(
    machine: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, named: str, more: dict[str, Any]
) -> None:
    """The threads draw, and the log says why."""
    data, given = graph(200, 1500), {"num_neighbors": [4, 3], "batch_size": 32, "prefetch": 1, **more}
    if named == "too small":
        data = {**graph(4000, 6000), "x": torch.randn(4000, 500)}
        given["memory"] = "6MB"
    if named == "locked memory":
        monkeypatch.setattr(pinned_memory, "reads_host", lambda device: False)
    if named == "does not lock":
        monkeypatch.setattr(drawing, "lock_lists", lambda native: False)
    auto = "auto" if named != "does not lock" else "host"
    with machine.loading() as device, caplog.at_level("INFO", "freshgo"):
        with Loader(data, **given, device=device) as plain:
            wanted = list(plain)
        with Loader(data, **given, device=Device(device, sample_on="auto", lists_on=auto)) as loader:
            for want, got in zip(wanted, loader, strict=True):
                same(want, got)
            stats = loader.stats()
    assert stats["edges"] > 0 == stats["device_lists_bytes"]
    assert re.search(f"threads draw the batches: .*{named}", caplog.text)


def test_auto_for_links(machine: Any) -> None:
    data = graph(200, 1500)
    with machine.loading() as device:
        of = LinkLoader(data, [3], edge_label_index=data["edge_index"][:, :5], device=Device(device, sample_on="auto"))
        with of as loader:
            assert len(list(loader)) == 5


def test_lists_that_are_not_locked(machine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(drawing, "lock_lists", lambda native: False)
    with machine.loading() as device:
        with pytest.raises(errors.InvalidArgumentError, match=r"does not lock.*lists_on='device'"):
            Loader(graph(200, 1500), [4, 3], device=drawn(device, "host"))
        Loader(graph(200, 1500), [4, 3], device=drawn(device)).close()
