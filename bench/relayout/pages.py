"""How many pages the cold rows of batches touch, in every order of rows.

    python bench/relayout/pages.py [--data DIR] [--nodes 4000000] [--edges 24000000]

Batches are sampled by freshgo (fanouts [10, 10], 16 batches of 1024 random seeds, three epochs). A cache holds the tenth of the
rows that is hottest by expected visits; what it does not hold is cold. A page holds 8 rows of 512 bytes. Counted are the pages
of each batch on its own, and those of four batches together, which a window of the planner reads once. DIR holds unpacked real
graphs, NAME/edge_index.npy each.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

import freshgo

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import skewed

ROWS_PER_PAGE = 8
FANOUTS = [10, 10]


def pages(rows: list[torch.Tensor], window: int) -> int:
    """Distinct pages of each `window` batches, added up."""
    groups = [torch.cat(rows[i : i + window]) for i in range(0, len(rows), window)]
    return sum(int((group // ROWS_PER_PAGE).unique().numel()) for group in groups)


def measure(name: str, edge_index: torch.Tensor, folder: Path) -> None:
    nodes = int(edge_index.max()) + 1
    path = folder / name
    data = {"edge_index": edge_index, "num_nodes": nodes}
    with freshgo.convert(data, path, progress=False) as store:
        seeds = torch.randperm(nodes, generator=torch.Generator().manual_seed(1))[: 16 * 1024]
        sampling = {"num_neighbors": FANOUTS, "input_nodes": seeds, "batch_size": 1024}
        with freshgo.Loader(store, shuffle=True, **sampling) as loader:
            batches = [ids for epoch in range(3) for ids in loader.trace(epoch)]
        scores = freshgo.hotness(store, "expected", **sampling)
        hot = torch.zeros(nodes, dtype=torch.bool)
        hot[scores.sort(descending=True, stable=True).indices[: nodes // 10]] = True
        cold = [ids[~hot[ids]] for ids in batches]
        total = sum(len(ids) for ids in cold)
        print(
            f"\n{name}: {nodes:,} nodes, {edge_index.size(1):,} edges; {sum(map(len, batches)):,} rows, {total:,} cold"
        )
        orders = {"user's order": torch.arange(nodes), "random": torch.randperm(nodes)}
        seconds = {}
        for metric in ("expected", "degree"):
            vector = scores if metric == "expected" else freshgo.hotness(store, "degree")
            for order in ("hot", "community", "hot+community"):
                start = time.perf_counter()
                freshgo.relayout(
                    store, folder / "r", order=order, hotness=vector, overwrite=True, progress=False
                ).close()
                key = f"{order}, {metric}"
                seconds[key] = time.perf_counter() - start
                row_of = torch.empty(nodes, dtype=torch.int64)
                row_of[torch.from_numpy(np.fromfile(folder / "r" / "order.bin", "<u4")[:nodes].astype(np.int64))] = (
                    torch.arange(nodes)
                )
                orders[key] = row_of
        for key, row_of in orders.items():
            rows = [row_of[ids] for ids in cold]
            one, four = pages(rows, 1), pages(rows, 4)
            took = f"  [{seconds[key]:.1f} s without tensors]" if key in seconds else ""
            print(f"  {key:24} {one:9,} pages ({total / one:.2f} rows each), of four batches {four:9,}{took}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--nodes", type=int, default=4_000_000)
    parser.add_argument("--edges", type=int, default=24_000_000)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        for name in ("web-cnr-2000", "ogbn-arxiv-nofeat"):
            if args.data is not None:
                edges = torch.from_numpy(np.load(args.data / name / "edge_index.npy"))
                measure(name, edges, Path(folder))
                if name.startswith("ogbn"):
                    measure("ogbn-arxiv, both directions", torch.cat([edges, edges.flip(0)], 1), Path(folder))
        measure("generated", skewed.edges(args.nodes, args.edges, torch.Generator().manual_seed(0)), Path(folder))


if __name__ == "__main__":
    main()
