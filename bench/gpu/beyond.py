"""Epochs of graphs whose rows are on disk: by the part of them that fits in memory, and of 100 million nodes.

    FRESHGO_JOURNAL=FILE python bench/gpu/beyond.py

Graphs lie under the temporary directory: 0.6 GB, then 20 GB and as much again while they are converted. Without a GPU
this is a rehearsal.
"""

from __future__ import annotations

import itertools
import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from measure import limits
from torch_geometric.data import Data
from training import BATCH, BATCHES, MODELS, NODES, ROW, device, epoch, in_turns, journal, make, meter, options, stepper

from freshgo import Loader, convert
from freshgo.nn import accelerate

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scale"))
from papers import NODES as PAPERS
from papers import Papers

PARTS = (10, 25, 50)
"""Percent of the rows in memory."""
FRACTION = 1e8 / PAPERS if meter.real else 1e-4
TIERED = "out of core, rows on the device"
MEMORY = "6GiB" if meter.real else "64MiB"


def model(columns: int) -> torch.nn.Module:
    made = MODELS["SAGE"](columns).to(meter.device)
    accelerate(made)
    return made


def by_part(data: Data, folder: Path) -> None:
    """The same epochs with all rows in memory, and with a part of them."""
    convert(data, folder / "graph.freshgo", progress=False).close()
    for percent in PARTS:
        step = stepper(model(data.x.shape[1]))
        common = options() | device() | {"transpose": True}
        far = {"feature_cache": NODES * ROW * percent // 100}
        with (
            Loader(data, **common, device_cache=None) as near,
            Loader(folder / "graph.freshgo", **common, **far, device_cache=None) as disk,
            Loader(folder / "graph.freshgo", **common, **far, device_cache="auto" if meter.real else None) as tiered,
        ):
            taken = in_turns({"in memory": (step, near), "out of core": (step, disk), TIERED: (step, tiered)})
            stats = disk.stats()
        journal.write(contest="epoch of SAGE out of core", graph=f"{percent} % of the rows in memory",
                      ms={k: round(v * 1e3, 1) for k, v in taken.items()},
                      ratio={k: round(v / taken["in memory"], 2) for k, v in taken.items()},
                      read_gb=round(stats["bytes_read"] / 1e9, 2), hits=stats["hits"], misses=stats["misses"])  # fmt: skip
        if percent == PARTS[0]:
            times = taken[TIERED] / taken["in memory"]
            journal.goal("epoch out of core with rows on the device: times that in memory", 1.15, times, most=True)


def hundred_million(folder: Path) -> None:
    """The shape of papers100M: seconds of conversion and opening, milliseconds of a batch, and values of rows."""
    shape = Papers(FRACTION)
    need = 2 * (shape.nodes * shape.row_bytes + 4 * 2 * shape.edges)
    free = shutil.disk_usage(folder).free
    if free < need:
        journal.write(note=f"100 million nodes take {need / 1e9:.0f} GB of disk, {folder} has {free / 1e9:.0f}")
        return
    taken: dict[str, float] = {}
    begin = time.perf_counter()

    def lap(name: str) -> None:
        nonlocal begin
        taken[name], begin = time.perf_counter() - begin, time.perf_counter()

    shape.write(folder)
    lap("generate")
    given = shape.given(folder) | {"y": torch.zeros(shape.nodes, dtype=torch.int64)}
    convert(given, folder / "papers.freshgo", progress=False).close()
    lap("convert")
    for file in shape.files(folder):
        file.unlink()
    step = stepper(model(shape.columns))
    more: dict[str, Any] = options() | device() | {"input_nodes": shape.input_nodes(BATCHES * BATCH), "memory": MEMORY}
    begin = time.perf_counter()
    with Loader(folder / "papers.freshgo", **more, transpose=True, progress=False) as loader:
        lap("open")
        batches = iter(loader)
        first = next(batches)
        lap("first batch")
        shape.check(first.to("cpu"))
        epochs = [epoch(step, itertools.chain([first], batches)), epoch(step, loader)]
        stats = loader.stats()
    journal.write(contest="100 million nodes", graph=f"{shape.nodes} nodes, {MEMORY}",
                  ms={f"a batch of epoch {i}": round(seconds * 1e3 / BATCHES, 1) for i, seconds in enumerate(epochs)},
                  ratio={"epoch 0 over epoch 1": round(epochs[0] / epochs[1], 2)},
                  mb_a_batch=round(stats["bytes_read"] / 1e6 / (2 * BATCHES), 1),
                  **{f"{name}_s": round(seconds, 1) for name, seconds in taken.items()})  # fmt: skip


def main() -> None:
    limits(meter, journal)
    with tempfile.TemporaryDirectory(prefix="freshgo-gpu-") as folder:
        journal.attempt("by part", lambda: by_part(make(), Path(folder)), 120)
        journal.attempt("100 million nodes", lambda: hundred_million(Path(folder)), 250)


if __name__ == "__main__":
    main()
