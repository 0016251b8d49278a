"""A loader over a store of a shape: its opening, first batch and epochs, each beside its floor."""

from __future__ import annotations

import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch_geometric.data  # noqa: F401 - a loader imports it, which takes seconds
from shape import Shape
from stages import Stages, floor_bytes, random_reads

from freshgo import Loader, Store

COLD = ("packed", "misses", "filled")
"""Rows that the cache did not have, or that filled it, in the loader's counters."""
MOVED = ("requests", "bytes_read", "scratch_written", "scratch_read")
WINDOW = (
    *("first", "batches", "cold_rows", "chosen", "predicted_seconds", "measured_seconds"),
    *("floor_bytes", "measured_bytes_read", "measured_bytes_written"),
)
"""What is kept of the plan of a window."""


@dataclass(frozen=True)
class Task:
    """What a loader and its rivals make epochs of."""

    shape: Shape
    folder: Path
    memory: str
    batches: int
    """Of an epoch."""
    batch_size: int
    epochs: int
    rival_batches: int
    graphbolt: str = ""
    """The Python that has it."""

    @property
    def store(self) -> Path:
        return self.folder / f"{self.shape.name}.freshgo"

    def seeds(self) -> Any:
        return self.shape.input_nodes(self.batches * self.batch_size)

    def loader(self, store: Store, seeds: Any, **options: Any) -> Any:
        given = self.shape.options | options
        return Loader(store, self.shape.fanouts, seeds, batch_size=self.batch_size, shuffle=True, **given)


def kept(loader: Any) -> int:
    """Return the bytes of offsets and neighbour lists in memory."""
    memory = loader.stats()["memory"]
    return sum(memory.get(purpose, 0) for purpose in ("topology", "neighbor_cache"))


def least(shape: Shape, cold: int) -> dict[str, float]:
    """Return the floor of an epoch: one scan of the features, with each cold row written and read once, or a random read of each.

    The one with fewer bytes is taken. A row is cold as often as a batch finds it in no cache.
    """
    scan = {"read": shape.row_bytes * (shape.nodes + cold), "written": shape.row_bytes * cold}
    return min(scan, random_reads(cold, shape.row_bytes), key=floor_bytes)


def epochs(task: Task) -> None:
    shape, stages = task.shape, Stages()
    name = {"system": "freshgo", "memory": task.memory}
    seeds = task.seeds()  # takes half a second or more at the whole size
    with Store.open(task.store) as store:
        stages.begin()
        loader = task.loader(store, seeds, memory=task.memory)
        before = loader.stats()
        stages.end(f"open, {task.memory}", {"read": kept(loader)}, requests=before["requests"])
        for number in range(1, task.epochs + 1):
            stages.begin()
            began, waits, rows = time.perf_counter(), [], 0
            for batch in loader:
                waits.append(time.perf_counter() - began)
                shape.check(batch)
                rows += shape.part(batch, shape.owner).n_id.numel()
                if len(waits) == 1 and number == 1:
                    stages.end("first batch", random_reads(rows, shape.row_bytes), **name, epoch=1, batches=1)
                    stages.begin()
                began = time.perf_counter()
            after = loader.stats()
            grew = {key: after[key] - before[key] for key in (*COLD, *MOVED)}
            before, cold = after, sum(grew[key] for key in COLD)
            moved = {key: grew[key] for key in MOVED}
            more = {"rows": rows, "cold": cold, "batches": len(waits), "requests": moved.pop("requests")}
            longest = sorted(waits)[-3:]
            more |= {"loader": moved, "longest_waits": longest}
            stages.end(f"epoch {number}", least(shape, cold), **name, epoch=number, **more)
        plan = {key: after[key] for key in ("superbatch", "cached_rows", "cache_capacity", "prefetch")}
        windows = [{key: window.get(key) for key in WINDOW} for window in loader.plan().windows]
        split = loader.plan().data.get("split")
        memory = {"memory": after["memory_peaks"], "limit": after["memory_limit"], "split": split}
        print(json.dumps({**memory, **plan, "windows": windows}))
        print(loader.plan(), file=sys.stderr)
        loader.close()
