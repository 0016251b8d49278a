"""Whole epochs on the device: freshgo's loader and layers against PyG's, in memory and out of core; copies and compute.

    FRESHGO_JOURNAL=FILE python bench/gpu/epochs.py

Three layers of 256, batches of 1024, [15, 10, 5], 128 float32 features. The rival is PyG's NeighborLoader with locked
memory and workers that stay, where it has a sampler (pyg-lib or torch-sparse). PyG's layers also run over freshgo's
batches, which shows what the layers do. Without a GPU this is a rehearsal.
"""

from __future__ import annotations

import copy
import json
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
import torch_geometric.nn as pyg
from measure import Journal, Meter, limits, skewed
from overlap import Copies, copies
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader

from freshgo import Loader, convert
from freshgo.nn import accelerate

journal, meter = Journal(), Meter()
NODES, EDGES, BATCHES, BATCH = (1_000_000, 15_000_000, 60, 1024) if meter.real else (2000, 12_000, 3, 64)
ROW = 128 * 4
WIDTH = 256 if meter.real else 16
MODELS: dict[str, Callable[[], torch.nn.Module]] = {
    "SAGE": lambda: pyg.GraphSAGE(128, WIDTH, num_layers=3, out_channels=40),
    "GCN": lambda: pyg.GCN(128, WIDTH, num_layers=3, out_channels=40),
    "GAT": lambda: pyg.GAT(128, WIDTH, num_layers=3, out_channels=40, heads=4),
}


def make() -> Data:
    generator = torch.Generator().manual_seed(0)
    return Data(
        x=torch.randn(NODES, 128, generator=generator),
        y=torch.randint(40, (NODES,), generator=generator),
        edge_index=skewed(NODES, EDGES, generator),
    )


def options() -> dict[str, Any]:
    seeds = torch.randperm(NODES, generator=torch.Generator().manual_seed(1))[: BATCHES * BATCH]
    return {"num_neighbors": [15, 10, 5], "input_nodes": seeds, "batch_size": BATCH, "shuffle": True}


def train(model: torch.nn.Module, batches: Any, trim: bool) -> None:
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    for batch in batches:
        hops = {}
        if trim and "num_sampled_nodes" in batch:
            hops = {
                "num_sampled_nodes_per_hop": batch.num_sampled_nodes,
                "num_sampled_edges_per_hop": batch.num_sampled_edges,
            }
        out = model(batch.x, batch.edge_index, **hops)[: batch.batch_size]
        optimizer.zero_grad(set_to_none=True)
        F.cross_entropy(out, batch.y[: batch.batch_size]).backward()
        optimizer.step()


def epoch(model: torch.nn.Module, batches: Any) -> float:
    meter.finish()
    begin = time.perf_counter()
    train(model, batches, trim=True)
    meter.finish()
    return time.perf_counter() - begin


class Moved:
    """Batches in locked memory, copied by the training loop."""

    def __init__(self, loader: NeighborLoader) -> None:
        self.loader = loader

    def __iter__(self) -> Iterator[Any]:
        for batch in self.loader:
            yield batch.to(meter.device, non_blocking=True)


def device() -> dict[str, str]:
    return {"device": "cuda"} if meter.real else {}


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
                runs: dict[str, tuple[torch.nn.Module, Any]] = {
                    "freshgo": (fast, ours),
                    "PyG's layers over freshgo's batches": (plain, ours),
                }
                if other is not None:
                    runs["PyG with its loader"] = (plain, other)
                seconds: dict[str, list[float]] = {contestant: [] for contestant in runs}
                for i in range(3):
                    for contestant, (model, batches) in runs.items():
                        took = epoch(model, batches)
                        if i > 0:  # the first one warms up
                            seconds[contestant].append(took)
                waiting = ours.stats()["seconds_waiting"]
            taken = {contestant: statistics.median(times) for contestant, times in seconds.items()}
            journal.write(contest=f"epoch of {kind}", graph=f"{BATCHES} batches in memory",
                          ms={k: round(v * 1e3, 1) for k, v in taken.items()},
                          ratio={k: round(v / taken["freshgo"], 2) for k, v in taken.items()},
                          waiting=round(waiting, 3))  # fmt: skip
            last = list(runs)[-1]
            journal.goal(f"epoch of {kind}: times as fast as {last}", 2, taken[last] / taken["freshgo"])

        journal.attempt(f"epoch of {kind}", race, 40)


def out_of_core(data: Data) -> None:
    """A tenth of the features in memory, and the rest on the disk under the temporary directory."""
    fast = MODELS["SAGE"]().to(meter.device)
    accelerate(fast)
    with tempfile.TemporaryDirectory(prefix="freshgo-gpu-") as folder:
        path = Path(folder) / "graph.freshgo"
        convert(data, path, progress=False).close()
        tenth = NODES * ROW // 10
        with (
            Loader(data, **options(), transpose=True, **device()) as near,
            Loader(str(path), **options(), transpose=True, feature_cache=tenth, **device()) as far,
        ):
            seconds: dict[str, list[float]] = {"in memory": [], "out of core": []}
            for i in range(3):
                for name, loader in (("in memory", near), ("out of core", far)):
                    took = epoch(fast, loader)
                    if i > 0:
                        seconds[name].append(took)
            stats = far.stats()
    taken = {name: statistics.median(times) for name, times in seconds.items()}
    journal.write(contest="epoch of SAGE out of core", graph="a tenth of the features in memory",
                  ms={k: round(v * 1e3, 1) for k, v in taken.items()},
                  ratio={k: round(v / taken["in memory"], 2) for k, v in taken.items()},
                  read_gb=round(stats["bytes_read"] / 1e9, 2), hits=stats["hits"], misses=stats["misses"])  # fmt: skip
    journal.goal("epoch out of core: times that in memory", 1.15, taken["out of core"] / taken["in memory"], most=True)


def traced(loader: Any, model: torch.nn.Module) -> Copies:
    """An epoch under the profiler, after one to warm up."""
    train(model, loader, trim=True)
    meter.finish()
    activities = [torch.profiler.ProfilerActivity.CPU]
    activities += [torch.profiler.ProfilerActivity.CUDA] if meter.real else []
    with torch.profiler.profile(activities=activities) as profile:
        train(model, loader, trim=True)
        meter.finish()
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
        with Loader(data, **options(), transpose=True, **device(), device_cache=cache) as loader:
            found[name] = traced(loader, model)
            seconds = epoch(model, loader)
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
    journal.attempt("out of core", lambda: out_of_core(data), 60)


if __name__ == "__main__":
    main()
