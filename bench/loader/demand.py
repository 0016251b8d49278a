"""How long one batch on demand takes, by itself and beside a running epoch: the median and the 99th percentile.

    python bench/loader/demand.py DIR [--nodes 1000000] [--edges 8000000] [--calls 2000]

The graph has skewed sources (N * u**3), uniform targets and 128 float32 features. It is asked for batches of 1 and of
32 random nodes with two hops, [10, 10]: in memory; from a store of which a tenth of the features is cached by degree; and
from the same with a planned cache, which such batches do not use. DIR should be on a real disk.
"""

from __future__ import annotations

import argparse
import threading
import time
from pathlib import Path

import torch
from memory import make_graph

from freshgo import Loader, convert

WIDTH, FANOUTS = 128, [10, 10]


def latencies(loader: Loader, nodes: int, batch: int, calls: int) -> tuple[float, float]:
    """The median and the 99th percentile of the calls, in milliseconds."""
    gen = torch.Generator().manual_seed(batch)
    taken = []
    for ids in torch.randint(nodes, (calls, batch), generator=gen):
        start = time.perf_counter()
        loader.sample(ids)
        taken.append(1e3 * (time.perf_counter() - start))
    taken.sort()
    return taken[len(taken) // 2], taken[len(taken) * 99 // 100]


def beside_epochs(loader: Loader, nodes: int, batch: int, calls: int) -> tuple[float, float]:
    """The same, while another thread takes batches as fast as they come."""
    end = threading.Event()

    def train() -> None:
        while not end.is_set():
            for _ in loader:
                if end.is_set():
                    break

    thread = threading.Thread(target=train)
    thread.start()
    try:
        return latencies(loader, nodes, batch, calls)
    finally:
        end.set()
        thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--nodes", type=int, default=1_000_000)
    parser.add_argument("--edges", type=int, default=8_000_000)
    parser.add_argument("--calls", type=int, default=2000)
    args = parser.parse_args()
    graph = make_graph(args.nodes, args.edges, WIDTH)
    args.directory.mkdir(parents=True, exist_ok=True)
    path = args.directory / "demand.freshgo"
    convert(graph, path, overwrite=True, progress=False).close()
    cached = args.nodes * WIDTH * 4 // 10
    ways = {
        "in memory": (graph, {}),
        "a tenth cached by degree": (path, {"cache": "degree", "feature_cache": cached}),
        "planned cache": (path, {"cache": "belady", "feature_cache": cached}),
    }
    print(f"{'':26}{'nodes':>6}{'p50':>9}{'p99':>9}{'p50, epoch':>12}{'p99, epoch':>12}   ms")
    for name, (data, options) in ways.items():
        with Loader(data, FANOUTS, batch_size=1024, shuffle=True, **options) as loader:
            for batch in (1, 32):
                alone = latencies(loader, args.nodes, batch, args.calls)
                beside = beside_epochs(loader, args.nodes, batch, args.calls)
                print(f"{name:26}{batch:6}{alone[0]:9.2f}{alone[1]:9.2f}{beside[0]:12.2f}{beside[1]:12.2f}")


if __name__ == "__main__":
    main()
