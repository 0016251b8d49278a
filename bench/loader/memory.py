"""The whole loader in memory: freshgo against PyG's NeighborLoader, interleaved in one process.

    python bench/loader/memory.py [--nodes 4000000] [--edges 24000000] [--rounds 5] [--with graphbolt=PYTHON]

GraphBolt takes part where it is installed (bench/adapters). All read the same graph, of skewed sources (N * u**3) and
uniform targets, with 128 float32 features; batches have 1024 seeds. NeighborLoader needs a sampler, pyg-lib or
torch-sparse; without one it is left out.
The limit beside the figures is the time in which this machine gathers as many rows of the same table at its best rate: the
best of torch.index_select and of a C loop with prefetch, each on one thread and on all.
"""

from __future__ import annotations

import argparse
import ctypes
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader

from freshgo import Loader

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "adapters"))
import others
import skewed
from results import pyg, record

GATHER_C = r"""
#include <stdint.h>
#include <string.h>
void gather(char *dst, const char *src, const int64_t *idx, int64_t n, int64_t row) {
  for (int64_t i = 0; i < n; i++) {
    if (i + 16 < n)
      for (int64_t b = 0; b < row; b += 64) __builtin_prefetch(src + idx[i + 16] * row + b);
    memcpy(dst + i * row, src + idx[i] * row, row);
  }
}
"""


def make_graph(nodes: int, edges: int, width: int) -> Data:
    gen = torch.Generator().manual_seed(0)
    edge_index = skewed.edges(nodes, edges, gen)
    x = torch.empty(nodes, width).normal_(generator=gen)
    return Data(x=x, edge_index=edge_index, y=torch.randint(10, (nodes,), generator=gen), num_nodes=nodes)


def c_gather() -> Callable[[torch.Tensor, torch.Tensor, torch.Tensor], None]:
    folder = Path(tempfile.mkdtemp())
    (folder / "gather.c").write_text(GATHER_C)
    subprocess.run(
        ["cc", "-O3", "-march=native", "-shared", "-fPIC", "-o", folder / "gather.so", folder / "gather.c"], check=True
    )
    fn = ctypes.CDLL(str(folder / "gather.so")).gather
    fn.argtypes = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64]

    def run(dst: torch.Tensor, src: torch.Tensor, idx: torch.Tensor) -> None:
        row = src.size(1) * src.element_size()
        fn(dst.data_ptr(), src.data_ptr(), idx.data_ptr(), idx.numel(), row)

    return run


def best_gather_seconds(x: torch.Tensor, rows: int, repeats: int) -> dict[str, float]:
    """Median seconds to gather `rows` random rows of x into memory that is mapped already, by method."""
    gather, cores = c_gather(), os.cpu_count() or 1
    step = min(rows, 200_000)
    out = torch.zeros(step, x.size(1))
    seconds: dict[str, list[float]] = {}
    for _ in range(repeats):
        idx = torch.randint(x.size(0), (step,))
        for threads in sorted({1, cores}):
            torch.set_num_threads(threads)
            start = time.perf_counter()
            torch.index_select(x, 0, idx, out=out)
            seconds.setdefault(f"index_select, {threads} threads", []).append(time.perf_counter() - start)
            start = time.perf_counter()
            parts = [
                threading.Thread(target=gather, args=(o, x, i))
                for o, i in zip(out.chunk(threads), idx.chunk(threads), strict=True)
            ]
            for part in parts:
                part.start()
            for part in parts:
                part.join()
            seconds.setdefault(f"C with prefetch, {threads} threads", []).append(time.perf_counter() - start)
    return {name: statistics.median(s) * rows / step for name, s in seconds.items()}


def consume(loader: object, check: torch.Tensor | None) -> int:
    rows = 0
    for batch in loader:  # type: ignore[attr-defined]
        rows += batch.n_id.numel()
        if check is not None:
            some = torch.linspace(0, batch.n_id.numel() - 1, 100).long()
            assert torch.equal(batch.x[some], check[batch.n_id[some]])
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=4_000_000)
    parser.add_argument("--edges", type=int, default=24_000_000)
    parser.add_argument("--width", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=5)
    others.add_option(parser)
    args = parser.parse_args()
    rivals, rival = others.installed(args.others, ("graphbolt",)), pyg()

    data = make_graph(args.nodes, args.edges, args.width)
    assert data.x is not None
    print(
        f"{args.nodes:,} nodes, {args.edges:,} edges, {args.width} float32, {os.cpu_count()} cores, torch {torch.__version__}"
    )
    for fanouts, batches in (([10, 10], 16), ([15, 10, 5], 8)):
        seeds = torch.randperm(args.nodes, generator=torch.Generator().manual_seed(1))[: 1024 * batches]
        options = {"num_neighbors": fanouts, "input_nodes": seeds, "batch_size": 1024, "shuffle": False}
        loaders: dict[str, object] = {"freshgo": Loader(data, **options)}
        if rival is not None:
            loaders[rival] = NeighborLoader(data, **options)
        opened: dict[str, others.Other] = {}
        folder = Path(tempfile.mkdtemp())
        if rivals:
            others.write(folder, data.edge_index, data.x, data.x[:, 0], seeds, fanouts, 1024)
        for name, python in rivals.items():
            opened[name] = others.open_other(name, python, folder)
        seconds: dict[str, list[float]] = {name: [] for name in (*loaders, *opened)}
        processor: dict[str, list[float]] = {name: [] for name in seconds}
        rows: dict[str, int] = {}
        for loader in loaders.values():
            consume(loader, data.x)  # the warm-up checks values
        for other in opened.values():
            other.epoch()
        for _ in range(args.rounds):
            for name, loader in loaders.items():
                torch.set_num_threads(os.cpu_count() or 1)
                start, before = time.perf_counter(), time.process_time()
                rows[name] = consume(loader, None)
                seconds[name].append(time.perf_counter() - start)
                processor[name].append(time.process_time() - before)
            for name, other in opened.items():
                turn = other.epoch()
                rows[name] = turn.rows
                seconds[name].append(turn.seconds)
                processor[name].append(turn.processor)
        for other in opened.values():
            other.close()
        shutil.rmtree(folder)
        limits = best_gather_seconds(data.x, rows["freshgo"], args.rounds)
        limit_name, limit = min(limits.items(), key=lambda item: item[1])
        ours = statistics.median(seconds["freshgo"])
        print(f"\n{fanouts}, {batches} batches, {rows['freshgo']:,} rows an epoch, {args.rounds} rounds")
        for name, s in seconds.items():
            shown = opened[name].name if name in opened else name
            record("loader/memory", f"In memory, {fanouts}, {batches} batches", shown, s)
            print(
                f"  {shown:8} median {statistics.median(s):.3f} s  (min {min(s):.3f}, max {max(s):.3f}; "
                f"of processors {statistics.median(processor[name]):.3f}; {rows[name]:,} rows)"
            )
        record("loader/memory", f"In memory, {fanouts}, {batches} batches", "the rows gathered alone", [limit])
        for name, s in limits.items():
            print(f"  gathering as many rows alone, {name}: {s:.3f} s")
        for name, s in seconds.items():
            if name != "freshgo":
                print(
                    f"  freshgo is {statistics.median(s) / ours:.2f} times as fast as {opened[name].name if name in opened else name}"
                )
        print(f"  freshgo takes {ours / limit:.2f} times the best gather ({limit_name})")
        loaders["freshgo"].close()  # type: ignore[attr-defined]


if __name__ == "__main__":
    main()
