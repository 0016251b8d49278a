"""Whole epochs of graphs in memory: freshgo's loader and layers against PyG's, and what crosses the bus.

    FRESHGO_JOURNAL=FILE python bench/gpu/epochs.py

The rival is PyG's NeighborLoader with locked memory and workers that stay, where it has a sampler (pyg-lib or
torch-sparse). PyG's layers also run over freshgo's batches, which shows what the layers do. Without a GPU this is a
rehearsal.
"""

from __future__ import annotations

import copy
import json
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from measure import limits
from overlap import Copies, copies
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader
from training import BATCHES, MODELS, NODES, ROW, Step, device, epoch, in_turns, journal, make, meter, options, stepper

from freshgo import Loader
from freshgo.nn import accelerate


class Moved:
    """Batches in locked memory, copied by the training loop."""

    def __init__(self, loader: NeighborLoader) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        for batch in self.loader:
            yield batch.to(meter.device, non_blocking=True)


def rival(data: Data) -> Moved | None:
    """PyG's loader, where it has a sampler."""
    try:
        next(iter(NeighborLoader(data, **options())))  # in this process: workers that fail take 5 s each to end
    except ImportError as error:
        journal.write(note=f"PyG's NeighborLoader has no sampler here: {error}")
        return None
    workers = min(8, os.cpu_count() or 1) if meter.real else 0
    more = {"pin_memory": meter.real, "persistent_workers": workers > 0}
    return Moved(NeighborLoader(data, **options(), num_workers=workers, **more))


def in_memory(data: Data) -> None:
    other = rival(data)
    for kind, make_model in MODELS.items():
        plain = make_model().to(meter.device)
        fast = copy.deepcopy(plain)
        accelerate(fast)

        def race(kind: str = kind, plain: Any = plain, fast: Any = fast) -> None:
            with Loader(data, **options(), transpose=True, **device()) as ours:
                runs: dict[str, tuple[Step, Any]] = {
                    "freshgo": (stepper(fast), ours),
                    "PyG's layers over freshgo's batches": (stepper(plain), ours),
                }
                if other is not None:
                    runs["PyG with its loader"] = (stepper(plain), other)
                taken = in_turns(runs)
                waiting = ours.stats()["seconds_waiting"]
            journal.write(contest=f"epoch of {kind}", graph=f"{BATCHES} batches in memory",
                          ms={k: round(v * 1e3, 1) for k, v in taken.items()},
                          ratio={k: round(v / taken["freshgo"], 2) for k, v in taken.items()},
                          waiting=round(waiting, 3))  # fmt: skip
            last = list(runs)[-1]
            journal.goal(f"epoch of {kind}: times as fast as {last}", 2, taken[last] / taken["freshgo"])

        journal.attempt(f"epoch of {kind}", race, 40)


def traced(loader: Any, step: Step) -> Copies:
    """An epoch under the profiler, after one to warm up."""
    epoch(step, loader)
    activities = [torch.profiler.ProfilerActivity.CPU]
    activities += [torch.profiler.ProfilerActivity.CUDA] if meter.real else []
    with torch.profiler.profile(activities=activities) as profile:
        epoch(step, loader)
    with tempfile.TemporaryDirectory() as folder:
        profile.export_chrome_trace(f"{folder}/trace.json")
        return copies(json.loads(Path(folder, "trace.json").read_text())["traceEvents"])


def bus(data: Data) -> None:
    """What crosses the bus, and how much of that time the device computes meanwhile: without a device cache, with one of a
    tenth of the rows, and with the default."""
    found = {}
    caches = {"off": None, "on": NODES * ROW // 10 if meter.real else None, "auto": "auto"}
    for name, cache in caches.items():
        model = MODELS["SAGE"]().to(meter.device)
        accelerate(model)
        step = stepper(model)
        with Loader(data, **options(), transpose=True, **device(), device_cache=cache) as loader:
            found[name] = traced(loader, step)
            seconds = epoch(step, loader)
            held, rows = loader.stats().get("held", 0), loader.stats()["rows"]
        crossed = found[name]
        journal.write(contest=f"copies, device cache {name}", graph=f"{BATCHES} batches", copies=crossed.count,
                      gb=round(crossed.n_bytes / 1e9, 3), copying_ms=round(crossed.seconds * 1e3, 1),
                      hidden=round(crossed.hidden, 3), held=round(held / max(rows, 1), 3),
                      ms={"epoch": round(seconds * 1e3, 1)}, ratio={"epoch": 1.0})  # fmt: skip
    journal.goal("copies hidden behind compute", 0.9, found["off"].hidden)
    ratio = found["on"].n_bytes / max(found["off"].n_bytes, 1)
    journal.goal("device cache of a tenth: bytes over the bus", 0.5, ratio, most=True)


def main() -> None:
    limits(meter, journal)
    data = make()
    journal.attempt("copies", lambda: bus(data), 40)
    journal.attempt("in memory", lambda: in_memory(data), 60)


if __name__ == "__main__":
    main()
