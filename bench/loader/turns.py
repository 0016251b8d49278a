"""The turns of planned.py, each in a process of its own: it prints a line of JSON for every epoch, and what else it has to say.

    python bench/loader/turns.py '{"turn": "ours", "folder": DIRECTORY, ...}'

planned.py says what they are and compares them.
"""

from __future__ import annotations

import json
import mmap
import os
import re
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import limited
import numpy as np
import torch
import torch.nn.functional as F
from memory import best_gather_seconds

from freshgo import Loader, Store, relayout

FANOUTS, BATCH_SIZE, EPOCHS, WIDTH = [10, 10], 1024, 3, 128
CLASSES = 32
"""Of what is trained."""
ROW = 4 * WIDTH
NARROW = "float16.freshgo"
"""The store of rows in half of the bytes."""
SLACK = 96 << 20
"""Bytes of a group beside what is meant to be measured: the interpreter's own growth, page tables, stacks."""


def sampling(folder: Path, args: dict[str, Any]) -> dict[str, Any]:
    seeds = torch.from_numpy(np.load(folder / f"seeds-{args['batches']}.npy"))
    return {"num_neighbors": FANOUTS, "input_nodes": seeds, "batch_size": BATCH_SIZE, "shuffle": True}


def kernel_reads() -> int:
    """Bytes read from devices for this process, as the kernel counts them."""
    return int(re.findall(r"^read_bytes: (\d+)", Path("/proc/self/io").read_text(), re.M)[0])


class Work:
    """What follows a batch: nothing, matrix products, sleep, or a step of training."""

    def __init__(self, kind: str | None, amount: float) -> None:
        self.kind, self.amount = kind, amount
        self.matrix = torch.rand(192, 192)
        torch.set_num_threads(1 if kind == "matmul" else len(os.sched_getaffinity(0)))
        if kind == "train":
            from torch_geometric.nn import GraphSAGE

            self.model = GraphSAGE(WIDTH, 256, num_layers=3, out_channels=CLASSES)
            self.optimizer = torch.optim.Adam(self.model.parameters())

    def do(self, batch: Any = None) -> None:
        if self.kind == "sleep":
            time.sleep(self.amount)
        elif self.kind == "matmul":
            for _ in range(int(self.amount)):
                torch.mm(self.matrix, self.matrix)
        elif self.kind == "train":
            self.optimizer.zero_grad()
            out = self.model(batch.x, batch.edge_index)[: batch.batch_size]
            F.cross_entropy(out, batch.input_id % CLASSES).backward()
            self.optimizer.step()

    @staticmethod
    def products(seconds: float) -> int:
        """How many products of one thread take this long."""
        trial = Work("matmul", 200)
        trial.do()
        start = time.perf_counter()
        trial.do()
        return max(1, round(200 * seconds / (time.perf_counter() - start)))


def epoch(loader: Any, values: torch.Tensor, work: Work) -> dict[str, Any]:
    stats = loader.stats if isinstance(loader, Loader) else dict
    before, kernel, processor, start = stats(), kernel_reads(), time.process_time(), time.perf_counter()
    first, rows = 0.0, 0
    for batch in loader:
        first = first or time.perf_counter() - start
        assert torch.equal(batch.x[:, 0], values[batch.n_id])
        rows += batch.n_id.numel()
        work.do(batch)
    seconds, after = time.perf_counter() - start, stats()
    grew = {key: after[key] - before[key] for key in before if key in SUMS}
    used = {"processor": time.process_time() - processor, "kernel": kernel_reads() - kernel}
    return {"seconds": seconds, "first": first, "rows": rows, **used, **grew}


SUMS = (
    "hits",
    "packed",
    "misses",
    "filled",
    "bytes_read",
    "requests",
    "scratch_written",
    "scratch_read",
    "seconds_planning",
    "seconds_sampling",
)


def ours(folder: Path, args: dict[str, Any], group: limited.Group | None) -> Iterator[dict[str, Any]]:
    options = sampling(folder, args)
    values = torch.from_numpy(np.load(folder / "check.npy"))
    if args["store"] == NARROW:
        values = values.half().float()
    store, work = Store.open(folder / args["store"]), Work(args.get("work"), args.get("amount", 0))
    if group and work.kind != "train":  # which takes what it takes; the loader reads past the page cache
        group.limit(group.held() + args["options"]["memory"] + SLACK)
    start, kernel = time.perf_counter(), kernel_reads()
    loader = Loader(store, **args["options"], **options)
    opened = {"seconds": time.perf_counter() - start, "kernel": kernel_reads() - kernel}
    for _ in range(EPOCHS):
        took = epoch(loader, values, work)
        reads = took["misses"] + took["filled"] + took["packed"]
        yield {**took, "reads": reads, "bytes": took["bytes_read"]}
    stats = loader.stats()
    yield {
        "opened": opened,
        "error": stats["prediction_error"],
        "peak": stats["memory_peak"],
        "plan": loader.plan().data,
        "engine": stats["engine"],
    }


def mapped(folder: Path, args: dict[str, Any], group: limited.Group | None) -> Iterator[dict[str, Any]]:
    from torch_geometric.data import Data
    from torch_geometric.loader import NeighborLoader

    array = np.load(folder / "x.npy", mmap_mode="r+")
    array._mmap.madvise(mmap.MADV_RANDOM)  # type: ignore[attr-defined]
    values = torch.from_numpy(np.load(folder / "check.npy"))
    data = Data(x=torch.from_numpy(array), edge_index=torch.load(folder / "edge_index.pt"), num_nodes=len(array))
    loader = NeighborLoader(data, **sampling(folder, args))
    if group:
        group.limit(group.held() + args["cache"] + SLACK)
    for _ in range(args["epochs"]):
        yield epoch(loader, values, Work(None, 0))


def in_memory(folder: Path, args: dict[str, Any], group: limited.Group | None) -> Iterator[dict[str, Any]]:
    x = torch.from_numpy(np.load(folder / "x.npy"))
    values = x[:, 0].clone()
    loader = Loader({"edge_index": torch.load(folder / "edge_index.pt"), "x": x}, **sampling(folder, args))
    epochs = [epoch(loader, values, Work(None, 0)) for _ in range(EPOCHS)]
    yield from epochs
    limits = best_gather_seconds(x, epochs[0]["rows"], 3)
    batch = statistics.median(e["seconds"] for e in epochs) / args["batches"]
    amounts = args.get("amounts") or {"sleep": batch, "matmul": Work.products(batch)}
    if args["train"]:
        amounts = amounts | {"train": 0}
    work = {
        kind: [epoch(loader, values, Work(kind, amount))["seconds"] for _ in range(EPOCHS)]
        for kind, amount in amounts.items()
    }
    yield {"gather": epochs[0]["rows"] * ROW / min(limits.values()), "amounts": amounts, "work": work}


def relay(folder: Path, args: dict[str, Any], group: limited.Group | None) -> Iterator[dict[str, Any]]:
    chosen, start, kernel = sampling(folder, args), time.perf_counter(), kernel_reads()
    nodes = {key: chosen[key] for key in ("num_neighbors", "input_nodes", "batch_size")}
    relayout(
        folder / "graph.freshgo", folder / args["store"], order=args["order"], overwrite=True, progress=False, **nodes
    ).close()
    yield {"seconds": time.perf_counter() - start, "read": kernel_reads() - kernel}


TURNS: dict[str, Callable[..., Iterator[dict[str, Any]]]] = {f.__name__: f for f in (ours, mapped, in_memory, relay)}


def turn(request: dict[str, Any]) -> None:
    group = limited.Group(*request["group"]) if request["group"] else None
    for line in TURNS[request["turn"]](Path(request["folder"]), request, group):
        print(json.dumps(line), flush=True)


if __name__ == "__main__":
    turn(json.loads(sys.argv[1]))
