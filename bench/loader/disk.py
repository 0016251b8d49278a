"""The whole loader out of core: freshgo from a store against PyG's NeighborLoader over a memory map, interleaved.

    python bench/loader/disk.py DIRECTORY [--memory 512MiB] [--rounds 3] [--with graphbolt=PYTHON] [--cache 200MiB]

GraphBolt, AGNES and DiskGNN take part where they are installed (bench/adapters), with --cache for features each.

DIRECTORY is on the disk to be measured and takes about twice the size of the features. Before every turn the features are dropped
from the page cache. The rival maps x.npy with MADV_RANDOM, which is what a PyG user can do without writing a loader, and has the
whole page cache of the machine; freshgo has --memory. Beside the figures stand what the disk gives: sequential reads, and
random reads of 4 KiB by 64 threads.
"""

from __future__ import annotations

import argparse
import functools
import gc
import mmap
import os
import statistics
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from memory import make_graph
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader

from freshgo import Loader, Store, convert

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "adapters"))
import others
from results import pyg, record

FANOUTS, BATCH_SIZE, BATCHES = [10, 10], 1024, 16


def drop(path: Path) -> None:
    """Drop a file, or the files of a directory, from the page cache."""
    gc.collect()  # what a former turn mapped cannot be dropped
    for file in path.iterdir() if path.is_dir() else [path]:
        descriptor = os.open(file, os.O_RDONLY)
        os.fsync(descriptor)
        os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(descriptor)


def disk_limits(path: Path) -> tuple[float, float]:
    """Return MB/s of sequential direct reads and random direct 4 KiB reads per second with 64 threads."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECT)
    size = os.fstat(descriptor).st_size
    piece = mmap.mmap(-1, 4 << 20)
    start, read = time.perf_counter(), 0
    while read < min(size, 1 << 30):
        read += os.preadv(descriptor, [piece], read)
    sequential = read / (time.perf_counter() - start) / 1e6
    offsets = np.random.default_rng(0).integers(size // 4096, size=64 * 400) * 4096

    def reads(some: np.ndarray) -> None:
        page = mmap.mmap(-1, 4096)
        for offset in some:
            os.preadv(descriptor, [page], int(offset))

    threads = [threading.Thread(target=reads, args=(part,)) for part in np.array_split(offsets, 64)]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    random = len(offsets) / (time.perf_counter() - start)
    os.close(descriptor)
    return sequential, random


def mapped(path: Path) -> torch.Tensor:
    array = np.load(path, mmap_mode="r+")
    array._mmap.madvise(mmap.MADV_RANDOM)
    return torch.from_numpy(array)


def epoch(loader: object) -> int:
    rows = 0
    for batch in loader:  # type: ignore[attr-defined]
        assert float(batch.x[-1, 0]) == float(batch.check[-1])
        rows += batch.n_id.numel()
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--nodes", type=int, default=4_000_000)
    parser.add_argument("--edges", type=int, default=24_000_000)
    parser.add_argument("--memory", default="512MiB")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cache", type=int, default=200, help="MiB of features in memory for the other loaders")
    others.add_option(parser)
    args = parser.parse_args()
    rivals = others.installed(args.others)

    args.directory.mkdir(parents=True, exist_ok=True)
    features, path = args.directory / "x.npy", args.directory / "graph.freshgo"
    data = make_graph(args.nodes, args.edges, 128)
    assert data.x is not None
    edge_index, check = data.edge_index, data.x[:, 0].clone()
    if not path.exists():
        np.save(features, data.x.numpy())
        convert({"edge_index": edge_index, "x": features, "check": check}, path, memory="1GiB")
    del data
    store = Store.open(path)
    sequential, random = disk_limits(features)
    seeds = torch.randperm(args.nodes, generator=torch.Generator().manual_seed(1))[: BATCH_SIZE * BATCHES]
    options = {"num_neighbors": FANOUTS, "input_nodes": seeds, "batch_size": BATCH_SIZE, "shuffle": True}
    print(
        f"{args.nodes:,} nodes, {args.edges:,} edges, features {features.stat().st_size / 1e9:.2f} GB, {BATCHES} batches of {BATCH_SIZE}, {FANOUTS}"
    )
    print(f"disk: {sequential:.0f} MB/s sequential, {random:,.0f} random 4 KiB reads/s with 64 threads of Python")

    def ours() -> Callable[[], None]:
        loader = Loader(store, memory=args.memory, **options)
        opened = loader.stats()

        def turns() -> None:
            for number in range(2):
                before = loader.stats()
                start = time.perf_counter()
                rows = epoch(loader)
                seconds = time.perf_counter() - start
                after = loader.stats()
                requests, n_bytes = after["requests"] - before["requests"], after["bytes_read"] - before["bytes_read"]
                results.setdefault(f"freshgo, epoch {number + 1}", []).append(seconds)
                print(
                    f"  freshgo epoch {number + 1}: {seconds:.2f} s, {rows:,} rows, {requests:,} requests ({requests / seconds:,.0f}/s), {n_bytes / 1e6:.0f} MB"
                )
            print(
                f"    opening took {opened['seconds_opening']:.2f} s and {opened['bytes_read'] / 1e6:.0f} MB; peak {loader.stats()['memory_peak'] / 1e6:.0f} MB"
            )
            loader.close()

        return turns

    def rival() -> Callable[[], None]:
        loader = NeighborLoader(
            Data(x=mapped(features), check=check, edge_index=edge_index, num_nodes=args.nodes), **options
        )

        def turns() -> None:
            start = time.perf_counter()
            rows = epoch(loader)
            seconds = time.perf_counter() - start
            results.setdefault("PyG on a map, epoch 1", []).append(seconds)
            print(f"  PyG on a map, epoch 1: {seconds:.2f} s, {rows:,} rows")

        return turns

    def other(name: str, python: str) -> Callable[[], None]:
        opened = others.open_other(name, python, args.directory / "others")
        drop(args.directory / "others")  # what it prepared

        def turns() -> None:
            for number in range(2):
                turn, key = opened.epoch(), f"{opened.name}, epoch {number + 1}"
                results.setdefault(key, []).append(turn.seconds)
                print(
                    f"  {key}: {turn.seconds:.2f} s, {turn.processor:.2f} s of processors, {turn.rows:,} rows; prepared in {opened.preparation:.1f} s"
                )
            opened.close()

        return turns

    if rivals:
        folder, cache = args.directory / "others", args.cache << 20
        others.write(folder, edge_index, features, check, seeds, FANOUTS, BATCH_SIZE, cache)
    makers = [
        ours,
        *([rival] if pyg() else []),
        *(functools.partial(other, name, python) for name, python in rivals.items()),
    ]
    results: dict[str, list[float]] = {}
    for _ in range(args.rounds):
        for make in makers:
            drop(features)
            drop(path)
            make()()
    for name, seconds in results.items():
        record("loader/disk", f"From disk, {FANOUTS}, {BATCHES} batches, {args.memory}", name, seconds)
        print(f"{name}: median {statistics.median(seconds):.2f} s (min {min(seconds):.2f}, max {max(seconds):.2f})")
    ours_first = statistics.median(results["freshgo, epoch 1"])
    for name, seconds in results.items():
        if name != "freshgo, epoch 1" and name.endswith("epoch 1"):
            print(f"{name}: {statistics.median(seconds) / ours_first:.1f} x the time of freshgo")


if __name__ == "__main__":
    main()
