"""FastGL's comparison: what consecutive batches share, what their order gains, and aggregation without messages, on the processor.

    python bench/papers/fastgl.py [--parts match,reorder,...] [--graphs web-cnr-2000,...]

  match       table 4 and figure 14b, d: the degree of match, |both| / min(|one|, |other|), of consecutive batches, of all pairs, and how
              far the pairs differ, by batch size and fanouts. Exact: every pair is intersected
  reorder     figure 10: rows that an epoch loads with nothing kept, with Match (the rows of the batch before stay), with Match in the
              greedy order, and with freshgo's planned cache of the same room in both orders, by batch size
  walks       table 7: the same with random walks of three steps
  loader      Match-Reorder as a loader runs it: rows that it reads of a store on disk, of those needed, by caches of the rows of the
              largest batch as batches are drawn and with reorder=64, which keeps an order if its cache then reads fewer
  operators   figures 11 and 14c: sums, means and GAT by width against PyG's default layers and torch.sparse, forward and backward, as
              ratios of seconds (bench/ops/operators.py measures more)
  map         table 8: numbering the nodes of a batch as the sampler does, against sorting (torch.unique) and a hash table, as ratios of
              the processor time of one thread

The paper's kernels, its memory on the device and its whole epochs need a GPU: `make gpu` (docs/device.md).
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from report import HERE, SEED, Report, graph, options
from torch import Tensor

from freshgo import Loader, Online, RandomWalk, convert, ops, simulate

sys.path.insert(0, str(HERE.parent / "ops"))

FANOUTS = {"5, 10, 15": [5, 10, 15], "5, 10": [5, 10], "10, 10, 10": [10, 10, 10]}
SIZES = (100, 500, 2000, 8000)
PARTS = ["match", "reorder", "walks", "loader", "operators", "map"]
WIDTH = 32
"""Columns of the rows that a loader reads."""
MAX_BATCHES = 64
"""Batches of an epoch that are compared, the first of it."""
PANELS = [
    {"title": "Match of consecutive batches", "table": "match", "x": "batch", "y": ["consecutive"], "by": ["graph"],
     "where": {"fanouts": "5, 10, 15"}, "unit": "% of the smaller batch"},
    {"title": "Reorder saves of Match's rows", "table": "reorder", "x": "batch", "y": ["greedy saves of match, %"], "by": ["graph"],
     "unit": "%"},
    {"title": "PyG's time over freshgo's", "table": "operators", "x": "columns", "y": ["PyG"], "by": ["operator"], "unit": "ratio of processor time"},
]  # fmt: skip


def batches_of(edges: Tensor, fanouts: list[Any], size: int, part: float = 0.5) -> list[Tensor]:
    """The rows of an epoch's batches; seeds are a part of all nodes."""
    num_nodes = int(edges.max()) + 1
    seeds = torch.randperm(num_nodes, generator=torch.Generator().manual_seed(SEED))[: int(part * num_nodes)]
    data = {"edge_index": edges, "num_nodes": num_nodes}
    with Loader(data, fanouts, seeds, batch_size=size, shuffle=True, drop_last=True, seed=SEED) as loader:
        found = loader.trace(0)
        return [batch for _, batch in zip(range(MAX_BATCHES), found, strict=False)]


def degrees(trace: list[Tensor], num_nodes: int) -> np.ndarray[Any, Any]:
    """The exact degree of match of every pair of batches, float64 [batches, batches]."""
    n = len(trace)
    shared = np.zeros((n, n))
    member = np.zeros((n, num_nodes), np.float32)
    for number, batch in enumerate(trace):
        member[number, batch.numpy()] = 1
    shared = (member @ member.T).astype(np.float64)  # counts below 2^24 are exact
    sizes = member.sum(1)
    return shared / np.minimum.outer(sizes, sizes)


def greedy(degree: np.ndarray[Any, Any]) -> list[int]:
    """The order of FastGL, 4.1: the first batch first, then always the one that matches the last one best."""
    order, left = [0], list(range(1, len(degree)))
    while left:
        best = max(left, key=lambda b: (degree[order[-1], b], -b))
        order.append(best)
        left.remove(best)
    return order


def match_line(trace: list[Tensor], num_nodes: int) -> list[float]:
    """Match of consecutive batches, of all pairs, and the difference between the most and the least, in percent."""
    degree = degrees(trace, num_nodes)
    pairs = degree[np.triu_indices(len(trace), 1)]
    values = [np.diagonal(degree, 1).mean(), pairs.mean(), pairs.max() - pairs.min()]
    return [round(100 * float(value), 2) for value in values]


def reorder_line(trace: list[Tensor], num_nodes: int) -> list[float]:
    """Rows loaded, of those needed: Match, Match in the greedy order, Belady of the same room in both orders."""
    needed, room = sum(map(len, trace)), max(map(len, trace))
    moved = [trace[b] for b in greedy(degrees(trace, num_nodes))]
    return [
        round(simulate(order, policy=policy, capacity=room, num_nodes=num_nodes).reads / needed, 4)
        for policy in ("match", "belady")
        for order in (trace, moved)
    ]


def sharing(part: str, args: Any, report: Report) -> None:
    rows = []
    for name in args.graphs.split(","):
        edges = graph(name, args.data)
        num_nodes = int(edges.max()) + 1
        for size in SIZES:
            if num_nodes // 2 // size < 4:
                continue
            if part == "match":
                for label, fanouts in FANOUTS.items():
                    trace = batches_of(edges, fanouts, size)
                    rows.append([name, str(size), label, len(trace), *match_line(trace, num_nodes)])
            else:
                fanouts = [RandomWalk(4, 3, 5)] * 3 if part == "walks" else FANOUTS["5, 10, 15"]
                trace = batches_of(edges, fanouts, size)
                rows.append([name, str(size), len(trace), *reorder_line(trace, num_nodes)])
                rows[-1].append(round(100 * (1 - rows[-1][-3] / rows[-1][-4]), 1))
        print(rows[-1], flush=True)
    if part == "match":
        report.add(part, ["graph", "batch", "fanouts", "batches", "consecutive", "all pairs", "most - least"], rows)
    else:
        columns = ["match", "greedy", "belady", "belady, greedy", "greedy saves of match, %"]
        report.add(part, ["graph", "batch", "batches", *columns], rows)


def loader_line(path: Path, num_nodes: int, size: int) -> list[float]:
    """Rows that a loader reads in an epoch, of those needed: Match and LRU, each in both orders."""
    seeds = torch.randperm(num_nodes, generator=torch.Generator().manual_seed(SEED))[: num_nodes // 2][
        : MAX_BATCHES * size
    ]
    options = {"shuffle": True, "drop_last": True, "seed": SEED, "batch_size": size}
    with Loader(path, FANOUTS["5, 10, 15"], seeds, **options) as loader:
        rows = [len(batch) for batch in loader.trace(0)]
    room = max(rows) * (4 * WIDTH + 32) + 4 * num_nodes
    found = []
    for name in ("match", "lru"):
        for block in (False, MAX_BATCHES):
            cache = Online(name, reorder=block)  # type: ignore[arg-type]
            with Loader(path, FANOUTS["5, 10, 15"], seeds, **options, cache=cache, feature_cache=room) as loader:
                for _ in loader:
                    pass
                found.append(round(loader.stats()["misses"] / sum(rows), 4))
    return found


def loaders(args: Any, report: Report) -> None:
    rows = []
    for name in args.graphs.split(","):
        edges = graph(name, args.data)
        num_nodes = int(edges.max()) + 1
        with tempfile.TemporaryDirectory() as work:
            path = Path(work) / "g.freshgo"
            x = torch.zeros(num_nodes, WIDTH)
            convert({"edge_index": edges, "x": x}, path, progress=False).close()
            for size in SIZES[:3]:
                if num_nodes // 2 // size >= 4 and any(line := loader_line(path, num_nodes, size)):  # else all rows fit
                    rows.append([name, str(size), *line])
                    print(rows[-1], flush=True)
    report.add("loader", ["graph", "batch", "match", "match, reorder", "lru", "lru, reorder"], rows)


def operators(args: Any, report: Report, scale: int = 16, widths: tuple[int, ...] = (32, 64, 128, 256, 512)) -> None:
    import operators as bench

    edges = graph(f"rmat:{scale}:{1_000_000 >> (16 - scale)}", args.data)
    with Loader(
        {"edge_index": edges, "num_nodes": 1 << scale}, [10, 10], torch.arange(0, 1 << scale, 60), batch_size=1024
    ) as loader:
        block = next(iter(loader)).blocks()[0]
    edge_index, ptr, num_rows = block.edge_index.contiguous(), block.ptr, block.num_src
    made = ops.transpose(edge_index[0], ptr, num_rows)
    by_source = ops.Transposed(made.ptr, made.target.int(), made.edge.int())
    found: list[list[Any]] = []
    for width in widths:
        table = bench.Table(args.rounds, False, time.process_time)
        x = torch.randn(num_rows, width, generator=torch.Generator().manual_seed(SEED))
        bench.sums(table, edge_index, ptr, x, by_source, 1)
        bench.layers(table, edge_index.clone(), ptr, x, by_source)
        for title, (took, ratio) in table.rows.items():
            if title.startswith(("sum, b", "mean, b", "GAT", "layer GCN")):
                others = [round(ratio[name], 2) if name in ratio else "" for name in ("PyG", "torch.sparse", "limit")]
                found.append([str(width), title.removesuffix(", both"), round(took, 1), *others])
    report.add("operators", ["columns", "operator", "freshgo, ms", "PyG", "torch.sparse", "loop over the bytes"], found)


def mapped(args: Any, report: Report) -> None:
    """Whole sampling, numbering included, against numbering alone by the others: what the fused map leaves to gain."""
    rows = []
    for name in args.graphs.split(","):
        edges = graph(name, args.data)
        num_nodes = int(edges.max()) + 1
        source, seeds = {"edge_index": edges, "num_nodes": num_nodes}, torch.arange(num_nodes)[: 8 * 2000]
        with Loader(source, [5, 10, 15], seeds, batch_size=2000) as loader:
            batches = list(loader)
        drawn = [batch.n_id[batch.edge_index[0]] for batch in batches]
        took: dict[str, float] = {}
        for label, number in (("sort", torch.unique), ("hash", hashed)):
            start = time.process_time()
            for ids in drawn:
                number(ids)
            took[label] = time.process_time() - start
        with Loader(source, [5, 10, 15], seeds, batch_size=2000) as loader:
            start = time.process_time()
            for _ in loader.trace(0):
                pass
            ours = time.process_time() - start
        edges_drawn = sum(map(len, drawn))
        rows.append([name, edges_drawn, round(1e9 * ours / edges_drawn, 1), *(round(took[k] / ours, 2) for k in took)])
    columns = [
        "graph",
        "edges drawn",
        "freshgo: sample and number, ns an edge",
        "sort, numbering alone",
        "hash, numbering alone",
    ]
    report.add("map", columns, rows)


def hashed(ids: Tensor) -> Any:
    import pandas

    return pandas.factorize(ids.numpy())


def main() -> None:
    parser = options(__doc__, PARTS)
    parser.add_argument("--graphs", default="web-cnr-2000,ogbn-arxiv-nofeat,gowalla,rmat:17:2000000")
    parser.add_argument("--rounds", type=int, default=5, help="of operators")
    args: argparse.Namespace = parser.parse_args()
    report, asked = Report("fastgl", args.out), args.parts.split(",")
    for part in ("match", "reorder", "walks"):
        if part in asked:
            sharing(part, args, report)
    if "loader" in asked:
        loaders(args, report)
    if "operators" in asked:
        operators(args, report)
    if "map" in asked:
        mapped(args, report)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
