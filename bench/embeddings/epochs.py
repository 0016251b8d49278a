"""Epochs that train a table larger than memory, beside epochs that only read as many rows, and what PyTorch users have without it.

    python bench/embeddings/epochs.py DIRECTORY [--nodes 4000000] [--columns 128] [--memory 700MiB] [--batches 128] [--json FILE]

A graph with skewed sources (the shape of bench/scale) has a row of float32 for each node. Each part trains the same batches of [10, 10]
and 1,024 nodes, or of --fanouts and --batch-size, in a process whose memory the kernel limits, pages that it caches included:

    read      a loader reads rows of the table's width from a store, and nothing is trained
    step      likewise, with the steps of RowAdagrad over copies of the rows, which are dropped
    table     freshgo.nn.Embedding with RowAdagrad
    sage      likewise below a GraphSAGE of 256 columns, in the batches of --slow-batches
    lru       a cache in memory that writes the rows back that were used least recently; misses are read side by side
    map       a memory-mapped file, with the same rule; the kernel reads pages one by one (MADV_RANDOM)

The loss is the mean of the squared rows or outputs. `read`, `step` and `table` make three epochs. `lru` and `map` are slow: they make the batches of
--slow-batches twice, other ones the second time, whose cache is warm, or as many of them as take --slow-seconds. Each stage has its
seconds, the bytes that devices read and wrote for the process, processor time, and the seconds that the loop waited for the next batch. The
floor of an epoch is one scan of the rows, read and written, and the cold rows written and read once, as many as `table` had. What parts
take of the disk at most is compared with what is free first: for all of them 18 GB by default, and 8 GB for `table` alone. A table for as
many nodes as Twitter has, with 44 GB:

    python bench/embeddings/epochs.py DIRECTORY --nodes 41000000 --columns 64 --memory 1100MiB --parts table
"""

from __future__ import annotations

import argparse
import itertools
import json
import mmap
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.nn import GraphSAGE

from freshgo import Loader, Store, convert, nn, optim
from freshgo._args.size import parse_size

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "scale"))
import picture
from papers import NODES, Papers
from stages import BESIDE, Runner, Stages, drop, size

EPOCHS = 3
PIECE = 1 << 18
RATE = 0.05
MODEL = 4 << 30
"""Bytes for a model and what it computes, beside the loader's."""
Train = Callable[[Any], None]


class Work:
    """The graph, and the rows that the parts begin with."""

    def __init__(self, folder: Path, arguments: argparse.Namespace) -> None:
        self.folder, self.arguments = folder, arguments
        self.shape = Papers(arguments.nodes / NODES, 4)
        self.columns, self.memory = arguments.columns, arguments.memory
        self.bytes = self.shape.nodes * self.columns * 4

    def rows(self) -> Iterable[np.ndarray]:
        """Rows of normal numbers, block after block."""
        for lo in range(0, self.shape.nodes, PIECE):
            generator = torch.Generator().manual_seed(lo)
            yield torch.randn(min(PIECE, self.shape.nodes - lo), self.columns, generator=generator).numpy()

    def check_space(self, parts: list[str]) -> None:
        """Leave where the disk has less room than parts take at most, but for what DIRECTORY has already."""
        nodes, edges, record = self.shape.nodes, self.shape.edges, self.columns * 4 + 12  # with state, row and mark
        graph = 3 * (8 * edges + 16 * nodes)  # as it is generated, and in two stores
        table = 3 * nodes * record * 17 // 16  # the rows, their undo journal, and rows that wait; pages have some air
        wide = self.bytes + 4 * nodes
        kinds = ((table, {"table", "sage"}), (3 * self.bytes, {"read", "step"}), (wide, {"lru"}), (wide, {"map"}))
        need = graph + sum(n for n, of in kinds if of & {*parts})
        free = shutil.disk_usage(self.folder).free + size(self.folder)
        print(f"{', '.join(parts)}: at most {need / 1e9:.1f} GB of disk, and {free / 1e9:.1f} GB are free", flush=True)
        if free < need:
            raise SystemExit(f"{self.folder} has too little room: give --parts, --nodes or another directory")

    def made(self, parts: list[str]) -> None:
        """Make what parts need, once."""
        graph, store = self.folder / "graph.freshgo", self.folder / "rows.freshgo"
        if not graph.exists():
            self.shape.write(self.folder)
            index = {"edge_index": self.folder / "edge_index.npy", "num_nodes": self.shape.nodes}
            convert(index, graph, edge_ids=False, memory="1GiB", progress=False)
            measured = {"edge_index": np.zeros((2, 0), np.int64), "x": self.folder / "x.npy"}
            convert(measured, self.folder / "disk.freshgo", progress=False)
        if {"read", "step"} & {*parts} and not store.exists():
            x = np.lib.format.open_memmap(
                self.folder / "rows.npy", mode="w+", dtype=np.float32, shape=(self.shape.nodes, self.columns)
            )
            for block, rows in enumerate(self.rows()):
                x[block * PIECE :][:PIECE] = rows
            x.flush()
            index = {"edge_index": self.folder / "edge_index.npy", "num_nodes": self.shape.nodes}
            convert({**index, "x": x}, store, edge_ids=False, memory="1GiB", progress=False)
            (self.folder / "rows.npy").unlink()
        if {"table", "sage"} & {*parts} and not (self.folder / "table.emb").exists():
            nn.Embedding(self.folder / "table.emb", num_embeddings=self.shape.nodes, embedding_dim=self.columns).close()
        for part in {"lru", "map"} & {*parts}:
            if not (self.folder / f"{part}.bin").exists():
                with (self.folder / f"{part}.bin").open("wb") as file:
                    for rows in self.rows():
                        wider = np.zeros((len(rows), self.columns + 1), np.float32)  # with the state of RowAdagrad
                        wider[:, 1:] = rows
                        file.write(wider.data)

    def loader(self, store: str, memory: str | None, **more: Any) -> Loader[Any]:
        opened = Store(self.folder / store)
        size = self.arguments.batch_size
        count = min(self.arguments.batches * size, opened.num_nodes)
        seeds = np.random.default_rng(1).choice(opened.num_nodes, count, replace=False)  # in memory of the seeds alone
        return Loader(
            opened,
            [int(n) for n in self.arguments.fanouts.split(",")],
            seeds,
            batch_size=size,
            shuffle=True,
            memory=memory,
            return_edge_id=False,
            **more,
        )

    def rival(self) -> tuple[str | None, int]:
        """Return the memory of a rival's loader, which has the whole graph where that takes at most half, and the bytes
        that are left for rows."""
        memory, graph = parse_size("memory", self.memory), size(self.folder / "graph.freshgo")
        return (None, memory - graph) if graph <= memory // 2 else (str(memory // 2), memory - memory // 2)

    def stage(self, system: str, number: int, batches: Iterable[Any], train: Train, loader: Loader[Any]) -> int:
        """Train batches, as one stage, and return their number."""
        stages, before = Stages(), loader.stats()
        stages.begin()
        waits, rows, began = [], 0, time.perf_counter()
        for batch in batches:
            waits.append(time.perf_counter() - began)
            rows += batch.n_id.numel()
            train(batch)
            began = time.perf_counter()
        after = loader.stats()
        cold = sum(after[key] - before[key] for key in ("packed", "misses", "filled"))
        moved = {"read": self.bytes + cold * self.columns * 4.0, "written": self.bytes + cold * self.columns * 4.0}
        figures = {"requests": after["requests"], "batches": len(waits), "rows": rows, "cold": cold}
        named = {"system": system, "memory": self.memory, "epoch": number}
        stages.end(
            f"{system} {number}", moved, **figures, **named, waited=sum(waits), median_wait=float(np.median(waits))
        )
        return len(waits)

    def epochs(self, system: str, loader: Loader[Any], train: Train) -> None:
        for epoch in range(EPOCHS):
            self.stage(system, epoch + 1, loader, train, loader)

    def slow(self, system: str, train: Train, loader: Loader[Any]) -> None:
        batches, most = iter(loader), self.arguments.slow_batches
        for half in (1, 2):
            end = time.perf_counter() + self.arguments.slow_seconds
            some = itertools.takewhile(lambda _, end=end: time.perf_counter() < end, itertools.islice(batches, most))
            made = self.stage(system, half, some, train, loader)
            if made < most:
                print(json.dumps({f"{system} {half}": f"{made} of {most} batches"}), flush=True)


def read(work: Work) -> None:
    """Epochs that read rows of a store."""
    with work.loader("rows.freshgo", work.memory) as loader:
        work.epochs("only read", loader, lambda batch: batch.x.pow(2).mean())


def step(work: Work) -> None:
    """Epochs that read rows of a store, and train copies of them that nobody keeps."""

    def train(batch: Any) -> None:
        updated(torch.cat([batch.x.new_zeros(batch.x.size(0), 1), batch.x], 1))

    with work.loader("rows.freshgo", work.memory) as loader:
        work.epochs("read, steps dropped", loader, train)


def table(work: Work) -> None:
    """Epochs that train a table."""
    with nn.Embedding(work.folder / "table.emb") as rows:
        optimizer = optim.RowAdagrad(rows.tables(), lr=RATE)

        def train(batch: Any) -> None:
            rows(batch.n_id).pow(2).mean().backward()
            optimizer.step()
            optimizer.zero_grad()

        with work.loader("graph.freshgo", work.memory, embeddings=rows) as loader:
            work.epochs("freshgo", loader, train)
            stats = loader.stats()
            keys = ("cached_rows", "superbatch", "hits", "packed", "misses", "memory_peak")
            print(json.dumps({key: stats[key] for key in keys}), flush=True)


def sage(work: Work) -> None:
    """Steps of a model, between which the loop waits for the hand-over alone."""
    model = GraphSAGE(work.columns, 256, num_layers=2)
    dense = torch.optim.Adam(model.parameters())
    with nn.Embedding(work.folder / "table.emb") as rows:
        optimizer = optim.RowAdagrad(rows.tables(), lr=RATE)

        def train(batch: Any) -> None:
            model(rows(batch.n_id), batch.edge_index)[: batch.batch_size].pow(2).mean().backward()
            for one in (optimizer, dense):
                one.step()
                one.zero_grad()

        with work.loader("graph.freshgo", work.memory, embeddings=rows) as loader:
            work.slow("below SAGE", train, loader)


def updated(rows: torch.Tensor) -> torch.Tensor:
    """Rows after a step of RowAdagrad over the mean of their squares. Their first column is the state."""
    values = rows[:, 1:].clone().requires_grad_()
    values.pow(2).mean().backward()
    grad = values.grad
    assert grad is not None
    sums = rows[:, :1] + grad.pow(2).mean(1, keepdim=True)
    return torch.cat([sums, values.detach() - grad * (RATE / sums.sqrt().add_(1e-10))], 1)


def lru(work: Work) -> None:
    """A cache of rows. Those that were used least recently make room, and are written back."""
    path, wide = work.folder / "lru.bin", work.columns + 1
    file = np.memmap(path, np.float32, "r+").reshape(-1, wide)
    number = os.open(path, os.O_RDONLY)
    os.posix_fadvise(number, 0, 0, os.POSIX_FADV_RANDOM)
    file._mmap.madvise(mmap.MADV_RANDOM)  # type: ignore[attr-defined]
    graph_memory, left = work.rival()
    capacity = left // (wide * 4 + 16)  # slot_of comes on top
    cache, node_of = torch.empty(capacity, wide), torch.full((capacity,), -1)
    used, slot_of, clock = torch.zeros(capacity, dtype=torch.int64), torch.full((len(file),), -1, dtype=torch.int32), 0

    def train(batch: Any) -> None:
        nonlocal clock
        clock += 1
        ids = batch.n_id
        missing = ids[slot_of[ids] < 0].sort().values
        used[slot_of[ids[slot_of[ids] >= 0]].long()] = clock
        slots = used.topk(missing.numel(), largest=False).indices  # of empty slots the times are 0
        back = node_of[slots].sort()
        leaving = slots[back.indices][back.values >= 0]
        gone = node_of[leaving].numpy()
        for row in missing.tolist():
            os.posix_fadvise(number, row * wide * 4, wide * 4, os.POSIX_FADV_WILLNEED)
        file[gone] = cache[leaving].numpy()
        slot_of[gone] = -1
        cache[slots] = torch.from_numpy(file[missing.numpy()])
        node_of[slots], used[slots] = missing, clock
        slot_of[missing] = slots.int()
        places = slot_of[ids].long()
        cache[places] = updated(cache[places])

    with work.loader("graph.freshgo", graph_memory) as loader:
        work.slow("LRU", train, loader)


def mapped(work: Work) -> None:
    """A memory map, whose pages the kernel caches and writes back. Without advice it reads on behind each page: 8 MiB
    on a machine whose disk had that as its ``read_ahead_kb``, where a batch took twenty minutes."""
    file = np.memmap(work.folder / "map.bin", np.float32, "r+").reshape(-1, work.columns + 1)
    file._mmap.madvise(mmap.MADV_RANDOM)  # type: ignore[attr-defined]
    rows = torch.from_numpy(file)

    def train(batch: Any) -> None:
        rows[batch.n_id] = updated(rows[batch.n_id])

    with work.loader("graph.freshgo", work.rival()[0]) as loader:
        work.slow("memory map", train, loader)


PARTS = {"read": read, "step": step, "table": table, "sage": sage, "lru": lru, "map": mapped}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--nodes", type=int, default=4_000_000)
    parser.add_argument("--columns", type=int, default=128)
    parser.add_argument("--memory", default="700MiB")
    parser.add_argument("--batches", type=int, default=128)
    parser.add_argument("--fanouts", default="10,10")
    parser.add_argument("--batch-size", type=int, default=1024)
    parser.add_argument("--slow-batches", type=int, default=24)
    parser.add_argument("--slow-seconds", type=float, default=600)
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--json", type=Path, help="where all figures go, and their picture with the ending svg")
    parser.add_argument("--part", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(2)
    work = Work(arguments.directory, arguments)
    if arguments.part:
        PARTS[arguments.part](work)
        return
    parts = arguments.parts.split(",")
    work.folder.mkdir(parents=True, exist_ok=True)
    work.check_space(parts)
    work.made(parts)
    drop(work.folder)
    runner = Runner(work.folder, __file__, sys.argv[1:])
    runner.measure(work.folder / "disk.freshgo")
    for part in parts:
        runner.run(part, parse_size("memory", arguments.memory) + BESIDE + (MODEL if part == "sage" else 0))
    if arguments.json:
        about = {**picture.results.machine(), "load": f"{os.getloadavg()[0]:.1f}", "parts": parts}
        figures = {**about, "shape": "tables that learn", "rates": runner.rates, "lines": runner.lines}
        arguments.json.write_text(json.dumps(figures, indent=1) + "\n")
        picture.draw(figures, arguments.json.with_suffix(".svg"))
    if runner.failed:
        raise SystemExit("; ".join(runner.failed))


if __name__ == "__main__":
    main()
