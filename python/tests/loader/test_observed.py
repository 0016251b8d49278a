"""What others see of a loader: log records, ranges in a profiler's trace, flat figures, types."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import pytest
import torch
import warm
from torch.profiler import ProfilerActivity, profile

from freshgo import Disk, History, Loader
from freshgo._observe import ranges
from freshgo.errors import DTypeError


def double(batch: Any) -> Any:
    batch.x = 2 * batch.x
    return batch


def trace(tmp_path: Path, run: Any) -> list[dict[str, Any]]:
    """The events of an exported trace of what ``run`` does."""
    with profile(activities=[ProfilerActivity.CPU]) as profiler:
        run()
    profiler.export_chrome_trace(str(tmp_path / "trace.json"))
    events: list[dict[str, Any]] = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    return events


def counted(events: list[dict[str, Any]]) -> dict[str, int]:
    names = [e["name"] for e in events if e["name"].startswith("freshgo.") and e.get("ph") == "X"]
    return {name: names.count(name) for name in names}


@pytest.mark.parametrize("workers", [0, 2])
def test_a_trace_shows_every_step_of_every_batch(store: Any, tmp_path: Path, workers: int) -> None:
    with Loader(store, [3], batch_size=100, transform=double, transform_workers=workers) as loader:
        count = len(loader)
        shown = counted(trace(tmp_path, lambda: [batch.x.sum() for batch in loader]))
        assert shown == {
            "freshgo.wait": count + 1,  # once more to learn that there is none
            "freshgo.arrange": count,
            "freshgo.transform": count,
        }
        one = counted(trace(tmp_path, lambda: loader.sample([1, 2])))
        assert one == {"freshgo.sample": 1, "freshgo.arrange": 1, "freshgo.transform": 1}


def test_a_trace_shows_updates_of_a_history(store: Any, tmp_path: Path) -> None:
    history = History()
    with Loader(store, [3, 3], batch_size=100, history=history) as loader:

        def run() -> None:
            for _ in loader:
                with torch.no_grad():
                    history._steps.current = None  # a plain batch
                    history.update()

        assert counted(trace(tmp_path, run))["freshgo.update"] == len(loader)


def test_without_a_profiler_no_range_is_made(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []
    monkeypatch.setattr(ranges, "record_function", made.append)
    with Loader(store, [3], batch_size=100, transform=double) as loader:
        list(loader)
    assert made == []
    assert ranges.stage("a") is ranges.stage("b")


def test_the_log_names_engine_and_cache(store: Any, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="freshgo"):
        with Loader(store, [3], batch_size=100, disk=Disk(io="pread")) as loader:
            stats = loader.stats()
            list(loader)
    opened, *_, ended = [r.getMessage() for r in caplog.records if r.name == "freshgo"]
    assert f"engine {stats['engine']}, no cache: " in opened and stats["cache"] == "none"
    assert ended.startswith(f"epoch 0: {len(loader)} batches")
    assert all(record.levelno == logging.INFO for record in caplog.records)


def test_the_log_says_why_rows_are_read_in_another_way(caplog: pytest.LogCaptureFixture) -> None:
    from freshgo._observe import log

    stats = {"engine": "pread", "engine_why": "io_uring_setup: operation not permitted"}
    chosen = {"cache": "none", "num_workers": 2, "prefetch": 4, "memory_limit": 0, "topology_on_disk": False}
    with caplog.at_level(logging.WARNING, logger="freshgo"):
        log.opened({**stats, **chosen})
        log.epoch_ended(3, {"batches": 1, "seconds_waiting": 0.0, "scratch_why": "no space left on device"})
    assert [(r.levelno, r.getMessage()) for r in caplog.records] == [
        (logging.WARNING, "rows are read with pread: io_uring_setup: operation not permitted"),
        (logging.WARNING, "the scratch file is out of use or shorter than planned: no space left on device"),
    ]


SILENT = """
import freshgo, torch
from freshgo._observe.log import LOG
LOG.warning("unheard")
import logging
logging.basicConfig(level=logging.INFO, format="%(name)s %(levelname)s %(message)s")
with freshgo.Loader({"edge_index": torch.tensor([[0, 1], [1, 2]]), "x": torch.zeros(3, 1)}, [1]) as loader:
    list(loader)
"""


def test_a_program_hears_the_log_once_it_configures_logging() -> None:
    process = warm.start(SILENT)
    _, heard = process.communicate()
    assert process.returncode == 0, heard
    assert "unheard" not in heard
    assert "freshgo INFO native library libfreshgo" in heard
    assert "freshgo INFO loader opened: engine memory" in heard


def test_flat_figures_are_numbers(store: Any) -> None:
    with Loader(store, [3], batch_size=100) as loader:
        before = loader.stats(prefix="loader/")
        list(loader)
        figures, nested = loader.stats(prefix="loader/"), loader.stats()
    assert all(isinstance(value, int | float) and not isinstance(value, bool) for value in figures.values())
    assert figures["loader/rows"] == nested["rows"]
    assert figures["loader/memory/batch"] == nested["memory"]["batch"]
    assert figures["loader/topology_on_disk"] == nested["topology_on_disk"]
    assert figures["loader/last_epoch/batches"] == nested["epochs"][-1]["batches"]
    assert "loader/engine" not in figures  # it is text
    assert set(figures) - set(before) == {name for name in figures if "last_epoch" in name}
    numbers = {name for name, value in nested.items() if isinstance(value, int | float)}
    assert {f"loader/{name}" for name in numbers} <= set(figures)


def test_a_prefix_is_text(store: Any) -> None:
    with Loader(store, [3]) as loader, pytest.raises(DTypeError, match="'loader/'"):
        loader.stats(prefix=3)  # type: ignore[arg-type]


def test_tensorboard_takes_flat_figures(store: Any, tmp_path: Path) -> None:
    pytest.importorskip("tensorboard")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from torch.utils.tensorboard import SummaryWriter

    with Loader(store, [3], batch_size=100) as loader, SummaryWriter(str(tmp_path)) as writer:
        for epoch in range(2):
            list(loader)
            figures = loader.stats(prefix="loader/")
            for name, value in figures.items():
                writer.add_scalar(name, value, epoch)
    seen = EventAccumulator(str(tmp_path))
    seen.Reload()
    assert set(seen.Tags()["scalars"]) == set(figures)
    assert [event.value for event in seen.Scalars("loader/last_epoch/batches")] == [len(loader)] * 2


def test_a_loader_of_a_named_type_is_the_loader(store: Any) -> None:
    with Loader[Any](store, [2], batch_size=100) as loader:
        assert type(loader) is Loader
        assert len(list(loader)) == len(loader)
