"""Ginex's comparison: a memory map, a degree cache beside the page cache, Ginex's policy, and freshgo, with the same bytes of memory.

    python bench/papers/ginex.py [--parts widths,memories,...] [--graphs web-cnr-2000,web-cnr-2000:shuffled,...]

GraphSAGE's batches: seeds from a tenth of the nodes, shuffled, fanouts (10, 10, 10), rows of 256 float32. A batch has 100 seeds: of graphs
this small one of the paper's 1,000 needs about as many rows as the cache holds. A superbatch of 128 draws 11 to 60 times the rows of the
cache, the paper's some 40. Nodes of web-cnr-2000 lie beside those that they are drawn with, which a page cache makes
use of; "shuffled" renames them at random, as the paper's expanded graphs are. Counted is what the second epoch reads, in pages of 4 KiB:

  map       the page cache alone: least recently used pages, no readahead; a batch finds all that are cached as it begins (PyG+)
  degree    rows of the highest out-degree, and the rest of the memory page cache; the best of 25, 50, 75 and 100 % for rows (Ali+PG)
  ginex     Belady by superbatches, the cache filled anew for each, a request for each missed row
  freshgo   Belady with the cache carried over and the next superbatch known, the same requests: what the policy alone saves
  epoch     the same with superbatches of an epoch

  widths    figure 17: 128 to 768 columns, the memory always that of a tenth of the rows of 256
  memories  figure 18: 5, 10 and 20 % of the features of 256 columns
  batches   figure 19: batches of 25 to 4,000, a superbatch of as many seeds
  superbatches    figure 16: superbatches of 4 batches to an epoch
  epochs    figures 14 and 15: the loader itself on a store on disk: bytes, requests, seconds beside the disk's limits, and the shares
            of inspect (sampling, planning), switch (filling the cache) and waiting, with each of the caches
"""

from __future__ import annotations

import shutil
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import torch
from report import HERE, SEED, Report, graph, options
from torch import Tensor

from freshgo import Loader, Store, convert, hotness, simulate
from freshgo.policies import Auto, Belady, Hotness

sys.path.insert(0, str(HERE.parent / "loader"))

PAGE, WIDTH, BATCH, SUPERBATCH, FANOUTS = 4096, 256, 100, 128, [10, 10, 10]
SYSTEMS = ("map", "degree", "ginex", "freshgo", "epoch")
PARTS = ["widths", "memories", "batches", "superbatches", "epochs"]
PANELS = [
    {"title": "Columns", "table": "widths", "x": "columns", "y": SYSTEMS[:4], "unit": "GB read in epoch 2", "where": {"graph": "web-cnr-2000:shuffled"}},
    {"title": "Memory", "table": "memories", "x": "memory, %", "y": SYSTEMS[:4], "unit": "GB read in epoch 2", "where": {"graph": "web-cnr-2000:shuffled"}},
    {"title": "Batch size", "table": "batches", "x": "batch", "y": SYSTEMS[:4], "unit": "GB read in epoch 2", "where": {"graph": "web-cnr-2000:shuffled"}},
]  # fmt: skip


class Workload:
    """Two epochs of a graph's batches, and what its caches know."""

    def __init__(self, edges: Tensor, batch_size: int = BATCH, fanouts: list[int] = FANOUTS) -> None:
        self.num_nodes = int(edges.max()) + 1
        data = {"edge_index": edges, "num_nodes": self.num_nodes}
        gen = torch.Generator().manual_seed(SEED)
        seeds = torch.randperm(self.num_nodes, generator=gen)[: self.num_nodes // 10]
        with Loader(data, fanouts, seeds, batch_size=batch_size, shuffle=True, seed=SEED) as loader:
            epochs = [list(loader.trace(epoch)) for epoch in (0, 1)]
        self.each = len(epochs[0])
        self.trace = epochs[0] + epochs[1]
        self.by_degree = hotness(data, "degree").sort(descending=True, stable=True).indices

    def later(self, reads_per_batch: Tensor) -> int:
        """Reads of the second epoch."""
        return int(reads_per_batch[self.each :].sum())

    def rows(self, superbatch: int, capacity: int, *, ginex: bool) -> int:
        """Rows that the second epoch misses with a cache planned by superbatches."""
        policy = Belady(superbatch=superbatch, carry_over=not ginex, lookahead=not ginex)
        done = simulate(self.trace, policy=policy, capacity=capacity, num_nodes=self.num_nodes)
        return self.later(done.reads_per_batch)

    def pages(self, width: int, capacity: int, cached: Tensor | None = None) -> int:
        """Pages that the second epoch misses in a page cache, apart from those of rows that are cached."""
        size, held = 4 * width, torch.zeros(self.num_nodes, dtype=torch.bool)
        if cached is not None:
            held[cached] = True
        touched = []
        for batch in self.trace:
            first = batch[~held[batch]] * size
            touched.append(torch.cat([first // PAGE, (first + size - 1) // PAGE]).unique())
        if capacity == 0:
            return sum(pages.numel() for pages in touched[self.each :])
        total = -(-self.num_nodes * size // PAGE)
        done = simulate(touched, policy="lru", capacity=min(capacity, total), num_nodes=total)
        return self.later(done.reads_per_batch)


def pages_of_row(width: int) -> float:
    """Pages on which a row lies, the mean over rows: places within a page repeat after 4,096 rows at the latest."""
    size = 4 * width
    return sum((row * size + size - 1) // PAGE - row * size // PAGE + 1 for row in range(PAGE)) / PAGE


def bytes_read(w: Workload, width: int, memory: int, superbatch: int) -> dict[str, int]:
    """Return the bytes that each system reads in the second epoch, with ``memory`` bytes."""
    rows, page = memory // (4 * width), PAGE * pages_of_row(width)
    degree = min(
        w.pages(width, (memory - kept * 4 * width) // PAGE, w.by_degree[:kept])
        for kept in (rows * quarter // 4 for quarter in (1, 2, 3, 4))
    )
    return {
        "map": PAGE * w.pages(width, memory // PAGE),
        "degree": PAGE * degree,
        "ginex": round(page * w.rows(superbatch, rows, ginex=True)),
        "freshgo": round(page * w.rows(superbatch, rows, ginex=False)),
        "epoch": round(page * w.rows(w.each, rows, ginex=False)),
    }


def line(read: dict[str, int]) -> list[Any]:
    """The columns of all tables: GB of each system, and how much more than Ginex's and freshgo's the others read."""
    ratios = [read["degree"] / max(1, read["ginex"]), read["ginex"] / max(1, read["freshgo"])]
    return [*(round(read[name] / 1e9, 4) for name in SYSTEMS), *(round(ratio, 2) for ratio in ratios)]


COLUMNS = [*SYSTEMS, "degree / ginex", "ginex / freshgo"]


def tenth(w: Workload, share: float = 0.1) -> int:
    return int(share * w.num_nodes) * 4 * WIDTH


def sweep(part: str, graphs: dict[str, Tensor], report: Report) -> None:
    rows = []
    for name, edges in graphs.items():
        if part == "batches":
            for size in (25, 100, 250, 500, 1000, 2000, 4000):
                w = Workload(edges, size)
                per = max(1, SUPERBATCH * BATCH // size)
                rows.append([name, str(size), *line(bytes_read(w, WIDTH, tenth(w), per))])
            continue
        w = Workload(edges)
        if part == "widths":
            rows += [[name, str(n), *line(bytes_read(w, n, tenth(w), SUPERBATCH))] for n in (128, 256, 512, 768)]
        elif part == "memories":
            rows += [
                [name, f"{100 * share:g}", *line(bytes_read(w, WIDTH, tenth(w, share), SUPERBATCH))]
                for share in (0.05, 0.1, 0.2)
            ]
        else:
            capacity = int(0.1 * w.num_nodes)
            for size in (4, 8, 16, 32, 64, 128, w.each):
                counts = [w.rows(size, capacity, ginex=ginex) for ginex in (True, False)]
                rows.append([name, str(size), *counts, round(counts[0] / counts[1], 2)])
    head = {"widths": "columns", "memories": "memory, %", "batches": "batch", "superbatches": "superbatch"}[part]
    columns = ["ginex, rows", "freshgo, rows", "ginex / freshgo"] if part == "superbatches" else COLUMNS
    report.add(part, ["graph", head, *columns], rows)


def epoch_of(loader: Any) -> dict[str, Any]:
    """What an epoch moved and took."""
    before, start = loader.stats(), time.perf_counter()
    for batch in loader:
        assert int(batch.x[0, 0]) == int(batch.n_id[0]) % 1024
    seconds, after = time.perf_counter() - start, loader.stats()
    grew = {key: after[key] - before[key] for key in after if isinstance(after[key], int | float) and key in before}
    spans = loader.plan().data.get("timeline") or {}
    since = max((end for _, _, end in spans.get("waiting", [])), default=0.0) - seconds
    shares = {name: sum(e - b for _, b, e in spans.get(name, []) if b >= since) for name in ("scanning", "updating")}
    return {**grew, **shares, "seconds": seconds}


def epochs(
    name: str, edges: Tensor, folder: Path | None, report: Report, widths: tuple[int, ...] = (128, 256, 768)
) -> None:
    from disk import disk_limits

    num_nodes = int(edges.max()) + 1
    gen = torch.Generator().manual_seed(SEED)
    seeds = torch.randperm(num_nodes, generator=gen)[: num_nodes // 10]
    rows = []
    work = Path(tempfile.mkdtemp(dir=folder))
    try:
        for width in widths:
            x = (torch.arange(num_nodes) % 1024).float().unsqueeze(1).expand(-1, width).contiguous()
            path = work / f"{width}.freshgo"
            convert({"edge_index": edges, "x": x}, path, memory="1GiB", progress=False).close()
            del x
            sequential, random = disk_limits(max(path.rglob("*"), key=lambda file: file.stat().st_size))
            room = int(0.1 * num_nodes) * 4 * WIDTH
            ginex = Belady(superbatch=SUPERBATCH, carry_over=False, lookahead=False, transfer="random")
            for label, cache in (("degree", Hotness("degree")), ("ginex", ginex), ("freshgo", Auto())):
                with Store.open(path) as store, Loader(
                    store, FANOUTS, seeds, batch_size=BATCH, shuffle=True, seed=SEED, cache=cache, feature_cache=room,
                    memory=room + (900 << 20), return_edge_id=False,
                ) as loader:  # fmt: skip
                    for number in (1, 2):
                        got = epoch_of(loader)
                        moved = got["bytes_read"] + got["scratch_written"]
                        least = moved / 1e6 / sequential
                        seconds = ["seconds", "seconds_sampling", "seconds_planning", "scanning", "updating"]
                        times = [*(got[key] for key in seconds), least]
                        counts = [
                            got["requests"],
                            *(round(got[k] / 1e6) for k in ("bytes_read", "scratch_written")),
                        ]
                        rows.append([width, label, number, *counts, *(round(t, 2) for t in times)])
                        print(rows[-1], flush=True)
            shutil.rmtree(path)
        columns = [
            "columns",
            "cache",
            "epoch",
            "requests",
            "MB read",
            "MB written aside",
            "seconds",
            "sampling",
            "planning",
            "switch",
            "update",
        ]
        report.add("epochs", [*columns, "in sequence at the disk's rate"], rows)
        print(f"{name}: {sequential:,.0f} MB/s in sequence, {random:,.0f} random pages a second")
    finally:
        shutil.rmtree(work)


def main() -> None:
    parser = options(__doc__, PARTS)
    parser.add_argument("--graphs", default="web-cnr-2000:shuffled,web-cnr-2000,rmat:18:4000000")
    parser.add_argument("--folder", type=Path, help="on the disk to be measured; else a temporary one")
    args = parser.parse_args()
    report = Report("ginex", args.out)
    graphs = {name: graph(name, args.data) for name in args.graphs.split(",")}
    for part in args.parts.split(","):
        if part != "epochs":
            sweep(part, graphs, report)
    if "epochs" in args.parts.split(","):
        name, edges = next(iter(graphs.items()))
        epochs(name, edges, args.folder, report)


if __name__ == "__main__":
    torch.set_num_threads(1)
    main()
