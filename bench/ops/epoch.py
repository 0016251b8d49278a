"""A whole training epoch: PyG's GraphSAGE as it is, and with accelerate(), over the same loader; interleaved.

    python bench/ops/epoch.py [--nodes 500000] [--edges 6000000] [--batches 4] [--rounds 3]

Three layers of 256, batch 1024, [15, 10, 5], on the layers' blocks by PyG's trim_to_layer. The third contestant is PyG's
NeighborLoader with PyG's layers, where it has a sampler (torch-sparse or pyg-lib).
"""

from __future__ import annotations

import argparse
import copy
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch_geometric.data import Data
from torch_geometric.loader import NeighborLoader
from torch_geometric.nn import GraphSAGE

from freshgo import Loader
from freshgo.nn import accelerate

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import skewed
from results import pyg, record


def epoch(model: torch.nn.Module, loader: Any) -> float:
    optimizer = torch.optim.Adam(model.parameters(), 1e-3)
    start = time.perf_counter()
    for batch in loader:
        hops = {}
        if "num_sampled_nodes" in batch:  # torch-sparse does not tell
            hops = {
                "num_sampled_nodes_per_hop": batch.num_sampled_nodes,
                "num_sampled_edges_per_hop": batch.num_sampled_edges,
            }
        out = model(batch.x, batch.edge_index, **hops)[: batch.batch_size]
        optimizer.zero_grad()
        F.cross_entropy(out, batch.y[: batch.batch_size]).backward()
        optimizer.step()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=500_000)
    parser.add_argument("--edges", type=int, default=6_000_000)
    parser.add_argument("--batches", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    gen = torch.Generator().manual_seed(0)
    data = Data(
        x=torch.randn(args.nodes, 128, generator=gen),
        y=torch.randint(40, (args.nodes,), generator=gen),
        edge_index=skewed.edges(args.nodes, args.edges, gen),
    )
    options: dict[str, Any] = {
        "num_neighbors": [15, 10, 5],
        "input_nodes": torch.randperm(args.nodes, generator=gen)[: 1024 * args.batches],
        "batch_size": 1024,
    }
    plain = GraphSAGE(128, 256, num_layers=3, out_channels=40)
    fast = copy.deepcopy(plain)
    print(accelerate(fast))
    runs: dict[str, tuple[Any, Any]] = {
        "freshgo, accelerate": (fast, Loader(data, **options, transpose=True)),
        "freshgo, PyG's layers": (plain, Loader(data, **options)),
    }
    rival = pyg()
    if rival is not None:
        runs[rival] = (copy.deepcopy(plain), NeighborLoader(data, **options))
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for i in range(args.rounds + 1):
        for name, (model, loader) in runs.items():
            s = epoch(model, loader)
            if i > 0:
                seconds[name].append(s)
    ours = statistics.median(seconds["freshgo, accelerate"])
    for name, s in seconds.items():
        record("ops/epoch", f"A training epoch of {args.batches} batches", name, s)
        print(f"  {name:24} {statistics.median(s):.2f} s ({statistics.median(s) / ours:.2f} x)", flush=True)


if __name__ == "__main__":
    main()
