"""One graph as ``Data`` and as ``HeteroData`` of one named type: what naming the types costs.

    python bench/types/one.py [--nodes 1000000] [--edges 12000000] [--rounds 9] [--folder out/one]

Both hold the same nodes, edges and 128 float32 features, so both loaders draw as many neighbours and bring as many
rows. They take turns in one process, each turn an epoch of 24 batches of 1,024 input nodes with one thread: in memory,
for two shapes of fanouts, and out of core from two stores with a planned cache of a tenth of the features. The ratio is
the time of ``HeteroData`` over that of ``Data``, round by round; printed are the median and the range. The limit beside
them is the time of gathering the same rows alone by ``torch.index_select`` into memory that is mapped; the disk's limit is what one sequential
read of the features takes, measured in the same run.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.data import Data, HeteroData

from freshgo import Loader, convert

WIDTH, BATCH_SIZE, BATCHES = 128, 1024, 24
PAPER, CITES = "paper", ("paper", "cites", "paper")


def graph(nodes: int, edges: int) -> Data:
    """Skewed sources and uniform targets."""
    gen = torch.Generator().manual_seed(0)
    source = (nodes * torch.rand(edges, generator=gen, dtype=torch.float64) ** 3).long()
    target = torch.randint(nodes, (edges,), generator=gen)
    x = torch.empty(nodes, WIDTH).normal_(generator=gen)
    return Data(x=x, edge_index=torch.stack([source, target]), num_nodes=nodes)


def named(data: Data) -> HeteroData:
    """The same graph with a named node type and a named edge type."""
    out = HeteroData()
    out[PAPER].x, out[PAPER].num_nodes = data.x, data.num_nodes
    out[CITES].edge_index = data.edge_index
    return out


def epoch(loader: Loader, name: str | None) -> int:
    """Run an epoch and return how many rows it brought."""
    rows = 0
    for batch in loader:
        part = batch if name is None else batch[name]
        rows += part.x.size(0)
    return rows


def sequential(path: Path) -> float:
    """Seconds of one read of a file from the disk, from front to end."""
    file = os.open(path, os.O_RDONLY)
    try:
        os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
        start = time.perf_counter()
        while os.read(file, 8 << 20):
            pass
        return time.perf_counter() - start
    finally:
        os.close(file)


def compare(what: str, turns: dict[str, Callable[[], Any]], rounds: int) -> None:
    """Run the turns round by round, in changing order, and print the ratio of ``hetero`` to ``plain``."""
    seconds: dict[str, list[float]] = {name: [] for name in turns}
    for turn in turns.values():
        turn()  # memory is touched and threads are started
    for number in range(rounds):
        order = list(turns) if number % 2 == 0 else list(reversed(turns))
        for name in order:
            start = time.perf_counter()
            turns[name]()
            seconds[name].append(time.perf_counter() - start)
    ratios = [one / other for one, other in zip(seconds["hetero"], seconds["plain"], strict=True)]
    limits = ", ".join(
        f"{name} {statistics.median(times):.3f} s" for name, times in seconds.items() if name not in ("plain", "hetero")
    )
    print(
        f"{what}: Data {statistics.median(seconds['plain']):.3f} s, HeteroData {statistics.median(seconds['hetero']):.3f} s, "
        f"ratio {statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f}); limit: {limits}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for option, default in (("nodes", 1_000_000), ("edges", 12_000_000), ("rounds", 9)):
        parser.add_argument(f"--{option}", type=int, default=default)
    parser.add_argument("--folder", type=Path, default=Path("out/one"))
    args = parser.parse_args()
    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    data = graph(args.nodes, args.edges)
    hetero = named(data)
    seeds = torch.randperm(args.nodes, generator=torch.Generator().manual_seed(1))[: BATCH_SIZE * BATCHES]
    common: dict[str, Any] = {"batch_size": BATCH_SIZE, "shuffle": True, "num_workers": 1}
    for fanouts in ([10, 10], [15, 10, 5]):
        one, other = Loader(data, fanouts, seeds, **common), Loader(hetero, fanouts, (PAPER, seeds), **common)
        rows = [batch.n_id for batch in one]

        out = torch.zeros(max(ids.numel() for ids in rows), WIDTH)

        def gather(rows: list[Tensor] = rows, out: Tensor = out) -> None:
            for ids in rows:
                torch.index_select(data.x, 0, ids, out=out[: ids.numel()])

        turns = {
            "plain": lambda one=one: epoch(one, None),
            "hetero": lambda other=other: epoch(other, PAPER),
            "gather alone": gather,
        }
        compare(f"in memory, {fanouts}", turns, args.rounds)
        one.close()
        other.close()
    shutil.rmtree(args.folder, ignore_errors=True)
    args.folder.mkdir(parents=True)
    stores = [
        convert(graph, args.folder / name, progress=False) for name, graph in (("plain", data), ("hetero", hetero))
    ]
    file = max((args.folder / "plain").rglob("*"), key=lambda path: path.stat().st_size)
    cached: dict[str, Any] = {"cache": "belady", "feature_cache": args.nodes * WIDTH * 4 // 10, "memory": "1GiB"}
    one = Loader(stores[0], [10, 10], seeds, **common, **cached)
    other = Loader(stores[1], [10, 10], (PAPER, seeds), **common, **cached)
    disk: dict[str, Callable[[], Any]] = {
        "plain": lambda: epoch(one, None),
        "hetero": lambda: epoch(other, PAPER),
        "sequential read": lambda: sequential(file),
    }
    compare("out of core, [10, 10], a tenth of the features cached", disk, args.rounds)
    for part in (one, other, *stores):
        part.close()
    shutil.rmtree(args.folder)


if __name__ == "__main__":
    main()
