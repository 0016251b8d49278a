"""Batches of a graph with types: freshgo against PyG's NeighborLoader, interleaved in one process.

    python bench/types/pyg.py [--papers 200000] [--batches 40] [--rounds 5]

Papers, authors and venues of a generated graph in memory, features of 64 and 32 columns for the first two, relations in both
directions. Both loaders draw the same fanouts of every relation for 512 papers a batch and bring their rows. The limit is
what gathering the rows of freshgo's batches takes alone, by torch.index_select with the same number of threads. The ratio of
a contestant is PyG's time over its own, round by round; printed are the median and the range.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor
from torch_geometric.data import HeteroData
from torch_geometric.loader import NeighborLoader

from freshgo import Loader

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import skewed


def graph(papers: int) -> HeteroData:
    """Authors and venues whose papers are skewed: few have many."""
    gen = torch.Generator().manual_seed(0)
    count = {"paper": papers, "author": papers // 2, "venue": max(1, papers // 200)}
    data = HeteroData()
    for name, n in count.items():
        data[name].num_nodes = n
    data["paper"].x = torch.randn(papers, 64, generator=gen)
    data["author"].x = torch.randn(count["author"], 32, generator=gen)
    for name, relation, edges in (("author", "writes", 5 * papers), ("venue", "prints", papers)):
        source = skewed.ids(count[name], edges, gen, power=2)
        edge_index = torch.stack([source, torch.randint(papers, (edges,), generator=gen)])
        data[name, relation, "paper"].edge_index = edge_index
        data["paper", f"rev_{relation}", name].edge_index = edge_index.flip(0).contiguous()
    return data


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("papers", 200_000), ("batches", 40), ("rounds", 5)):
        parser.add_argument(f"--{name}", type=int, default=default)
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    data = graph(args.papers)
    for fanouts in ([10, 10], [15, 10, 5]):
        what = {"input_nodes": "paper", "batch_size": 512, "shuffle": True}
        pyg = NeighborLoader(data, fanouts, **what)
        ours = {threads: Loader(data, fanouts, num_workers=threads, **what) for threads in (1, 2)}
        rows = [
            {name: batch[name].n_id for name in ("paper", "author")}
            for batch in itertools.islice(ours[1], args.batches)
        ]
        turns: dict[str, Callable[[], None]] = {"PyG, 1 thread": lambda pyg=pyg: consume(pyg, 1, args.batches)}
        for threads, loader in ours.items():
            turns[f"freshgo, {threads} threads"] = lambda loader=loader: consume(loader, 1, args.batches)
            turns[f"gather alone, {threads} threads"] = lambda threads=threads, rows=rows: gather(data, rows, threads)
        seconds: dict[str, list[float]] = {name: [] for name in turns}
        for _ in range(args.rounds):
            for name, turn in turns.items():
                start = time.perf_counter()
                turn()
                seconds[name].append(time.perf_counter() - start)
        for name, times in seconds.items():
            ratios = [rival / mine for rival, mine in zip(seconds["PyG, 1 thread"], times, strict=True)]
            print(
                f"{fanouts} {name}: {1e3 * statistics.median(times) / args.batches:.1f} ms a batch, "
                f"{statistics.median(ratios):.1f} ({min(ratios):.1f} to {max(ratios):.1f}) of PyG's speed",
                flush=True,
            )


def consume(loader: NeighborLoader | Loader, threads: int, count: int) -> None:
    torch.set_num_threads(threads)
    for batch in itertools.islice(loader, count):
        assert batch["paper"].x.size(0) == batch["paper"].num_nodes


def gather(data: HeteroData, rows: list[dict[str, Tensor]], threads: int) -> None:
    torch.set_num_threads(threads)
    for batch in rows:
        for name, ids in batch.items():
            data[name].x.index_select(0, ids)


if __name__ == "__main__":
    main()
