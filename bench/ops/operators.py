"""Message passing: freshgo.ops against PyG's default layers and torch.sparse, interleaved in one process.

    python bench/ops/operators.py [--graph DIR] [--columns 128] [--rounds 7] [--threads 2]

Every contestant aggregates the same graph and the same rows, checked against each other before anything is timed:
the batches that the loader makes of a synthetic graph, [15, 10, 5] and batch 1024, and with --graph the whole of a real
one (a directory with edge_index.npy). "forward" runs without gradients, "both" is forward and backward with a
gradient for the rows. Medians of interleaved rounds.

The machine's limit is measured beside them: a C loop with prefetch that reads the same rows in the same order and adds
them into one cache line, on as many threads. What the operators must also do, write a row for each target, is not in it.
"""

from __future__ import annotations

import argparse
import copy
import ctypes
import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch_geometric.nn as pyg
from torch import Tensor
from torch_geometric.utils import scatter

from freshgo import Loader, _kernels, ops
from freshgo.nn import accelerate

READ_C = r"""
#include <stdint.h>
float read_rows(const float *x, const int64_t *index, int64_t n, int64_t columns) {
  float s[16] = {0};
  for (int64_t i = 0; i < n; i++) {
    const float *row = x + index[i] * columns, *next = x + index[i + 8 < n ? i + 8 : i] * columns;
    for (int64_t c = 0; c + 16 <= columns; c += 16) {
      __builtin_prefetch(next + c);
      for (int j = 0; j < 16; j++) s[j] += row[c + j];
    }
  }
  return s[0] + s[7];
}
"""


def c_reader() -> Callable[[Tensor, Tensor, int], None]:
    folder = Path(tempfile.mkdtemp())
    (folder / "read.c").write_text(READ_C)
    command = [
        "cc",
        "-O3",
        "-march=native",
        "-ffast-math",
        "-shared",
        "-fPIC",
        "-o",
        folder / "read.so",
        folder / "read.c",
    ]
    subprocess.run(command, check=True)
    fn = ctypes.CDLL(str(folder / "read.so")).read_rows
    fn.argtypes, fn.restype = [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64], ctypes.c_float

    def run(x: Tensor, index: Tensor, threads: int) -> None:
        work = [
            threading.Thread(target=fn, args=(x.data_ptr(), i.data_ptr(), i.numel(), x.size(1)))
            for i in index.chunk(threads)
        ]
        for part in work:
            part.start()
        for part in work:
            part.join()

    return run


def synthetic(nodes: int, edges: int) -> dict[str, Any]:
    gen = torch.Generator().manual_seed(0)
    source = (nodes * torch.rand(edges, generator=gen, dtype=torch.float64) ** 3).long().clamp_(max=nodes - 1)
    return {"edge_index": torch.stack([source, torch.randint(nodes, (edges,), generator=gen)]), "num_nodes": nodes}


def graphs(args: argparse.Namespace) -> dict[str, tuple[Tensor, Tensor, int]]:
    """By name: edge_index, sorted by target, ptr, and the number of rows."""
    found = {}
    data = synthetic(1_000_000, 12_000_000)
    with Loader(data, [15, 10, 5], torch.arange(0, 1_000_000, 900)[:1024], batch_size=1024) as loader:
        batch = next(iter(loader))
    for block in batch.blocks():
        found[f"block, {block.num_edges:,} edges"] = (block.edge_index.contiguous(), block.ptr, block.num_src)
    if args.graph is not None:
        edge_index = torch.from_numpy(np.load(args.graph / "edge_index.npy"))
        rows = int(edge_index.max()) + 1
        edge_index = edge_index[:, edge_index[1].argsort(stable=True)].contiguous()
        _, ptr, _ = ops.group(edge_index, rows)
        found[f"{args.graph.name}, {edge_index.size(1):,} edges"] = (edge_index, ptr, rows)
    return found


def timed(contestants: dict[str, Callable[[], Any]], rounds: int) -> dict[str, float]:
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for i in range(rounds + 1):
        for name, run in contestants.items():
            start = time.perf_counter()
            run()
            if i > 0:  # the first round warms up
                seconds[name].append(time.perf_counter() - start)
    return {name: statistics.median(s) for name, s in seconds.items()}


def show(title: str, found: dict[str, float]) -> None:
    ours = found["freshgo"]
    rest = ", ".join(f"{name} {s * 1e3:.1f} ms ({s / ours:.2f} x)" for name, s in found.items() if name != "freshgo")
    print(f"  {title:24} freshgo {ours * 1e3:.1f} ms; {rest}", flush=True)


def with_gradient(x: Tensor, run: Callable[[Tensor], Tensor], grad: Tensor) -> Callable[[], None]:
    def both() -> None:
        x.grad = None
        run(x).backward(grad)

    return both


def aggregations(edge_index: Tensor, ptr: Tensor, rows: int, args: argparse.Namespace) -> None:
    index, target, targets = edge_index[0], edge_index[1], ptr.numel() - 1
    x = torch.randn(rows, args.columns)
    leaf = x.clone().requires_grad_()
    by_source = ops.transpose(index, ptr, rows)
    narrow = ops.Transposed(by_source.ptr, by_source.target.int(), by_source.edge.int())  # as the loader brings it
    grad = torch.randn(targets, args.columns)
    read = c_reader()
    for reduce in ("sum", "mean", "max"):

        def ours(x: Tensor, r: Any = reduce) -> Tensor:
            return ops.aggregate(x, index, ptr, reduce=r, transposed=narrow)

        def theirs(x: Tensor, r: str = reduce) -> Tensor:
            return scatter(x.index_select(0, index), target, 0, targets, r)

        runs: dict[str, Callable[[Tensor], Tensor]] = {"freshgo": ours, "PyG": theirs}
        if reduce == "sum":
            csr = torch.sparse_csr_tensor(ptr, index, torch.ones(index.numel()), (targets, rows))
            runs["torch.sparse"] = lambda x, csr=csr: csr @ x
        for run in runs.values():
            torch.testing.assert_close(run(x), ours(x), rtol=1e-4, atol=1e-3)
        forward = {name: (lambda run=run: run(x)) for name, run in runs.items()}
        if reduce == "sum":
            forward["reading the rows"] = lambda: read(x, index, args.threads)
        show(f"{reduce} forward", timed(forward, args.rounds))
        show(f"{reduce} both", timed({n: with_gradient(leaf, run, grad) for n, run in runs.items()}, args.rounds))


def layers(edge_index: Tensor, ptr: Tensor, rows: int, args: argparse.Namespace) -> None:
    """Whole layers of PyG, its matrix products included, before and after accelerate()."""
    targets = ptr.numel() - 1
    x = torch.randn(rows, args.columns, requires_grad=True)
    width = args.columns
    for name, layer in {
        "SAGEConv": pyg.SAGEConv(width, width),
        "SAGEConv max": pyg.SAGEConv(width, width, aggr="max"),
        "GCNConv": pyg.GCNConv(width, width),
        "GATConv 8 heads": pyg.GATConv(width, width // 8, heads=8),
    }.items():
        faster = copy.deepcopy(layer)
        accelerate(faster)
        bipartite = not name.startswith("GCN")

        def run(conv: Any, b: bool = bipartite) -> Tensor:
            return conv((x, x[:targets]) if b else x, edge_index)

        torch.testing.assert_close(run(layer), run(faster), rtol=1e-3, atol=1e-3)
        grad = torch.randn_like(run(layer))
        runs = {
            title: with_gradient(x, lambda _, conv=conv: run(conv), grad)
            for title, conv in (("freshgo", faster), ("PyG", layer))
        }
        show(f"{name} both", timed(runs, args.rounds))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--graph", type=Path)
    parser.add_argument("--columns", type=int, default=128)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    isa = ("portable", "AVX2", "AVX-512")[_kernels.prepare()]
    print(f"{args.threads} threads, {isa}, {args.columns} float32 columns, torch {torch.__version__}")
    for name, (edge_index, ptr, rows) in graphs(args).items():
        print(f"{name}, {ptr.numel() - 1:,} targets, {rows:,} rows")
        aggregations(edge_index, ptr, rows, args)
        layers(edge_index, ptr, rows, args)


if __name__ == "__main__":
    main()
