"""How much of the best static cache rankings reach: hits of each, over the hits of the trace's own counts.

python bench/policies/hotness.py DIR [--graphs web-cnr-2000,...] [--metrics default,degree,expected,presc:1,presc:4]

The graphs of DIR (DIR/NAME/*.npy) are read as one node type each, and hold no edge backwards that they do not state;
those of several types have all their relations both ways. An epoch has a tenth of the nodes as seeds. A ranking is judged
by the traces of the first epoch and of ten, for caches of 1, 5, 10 and 20 % of the nodes. "default" is what loaders
rank by where they choose. PreSC samples another seed. Weights are drawn from a log-normal distribution, where the graph
has none. Seconds are processor time: of the ranking, of sampling an epoch, and of training one with SAGE (128 columns,
64 hidden) by a part of its batches.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch_geometric.nn import GraphSAGE

from freshgo import Loader, RandomWalk, hotness
from freshgo._native import loader as native_loader
from freshgo._native.header import AUTO

SHARES = (0.01, 0.05, 0.1, 0.2)


def edges_of(root: Path) -> tuple[torch.Tensor, torch.Tensor | None]:
    """All edges of a graph as int64 [2, edges] over one range of ids, and their weights if it has any."""
    if (root / "edge_index.npy").exists():
        return torch.from_numpy(np.load(root / "edge_index.npy")), None
    if (root / "train_edges.npy").exists():
        relations, weights = {("user", "item"): np.load(root / "train_edges.npy")}, {}
    else:
        relations, weights = {}, {}
        for path in sorted(root.glob("edges_*.npy")):
            source, name, target = path.stem.removeprefix("edges_").split("__")
            relations[source, target, name] = np.load(path)
            if (of := root / f"weight_{source}__{name}__{target}.npy").exists():
                weights[source, target, name] = np.load(of)
    sizes: dict[str, int] = {}
    for ends, edges in relations.items():
        pair = edges if edges.shape[0] == 2 else edges.T
        for node, ids in zip(ends[:2], pair, strict=True):
            sizes[node] = max(sizes.get(node, 0), int(ids.max()) + 1)
    first = dict(zip(sizes, np.cumsum([0, *sizes.values()]), strict=False))
    both, weight = [], []
    for ends, edges in relations.items():
        pair = edges if edges.shape[0] == 2 else edges.T
        moved = np.stack([ids + first[node] for node, ids in zip(ends[:2], pair, strict=True)])
        both += [moved, moved[::-1]]
        weight += 2 * [weights.get(ends, np.ones(moved.shape[1]))]
    stated = torch.from_numpy(np.concatenate(weight).astype(np.float32)) if weights else None
    return torch.from_numpy(np.concatenate(both, axis=1).astype(np.int64)), stated


def training(data: dict[str, Any], given: dict[str, Any], batches: int) -> float:
    """Seconds of an epoch of training, by a part of its batches."""
    model = GraphSAGE(128, 64, num_layers=3, out_channels=16)
    optimizer = torch.optim.Adam(model.parameters())
    x = torch.randn(data["x"].size(0), 128)
    some, start = 0, 0.0
    with Loader({**data, "x": x}, **given) as loader:
        for batch in itertools.islice(loader, 11):
            loss = model(batch.x, batch.edge_index)[: batch.batch_size].square().mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            some += 1
            start = start or time.process_time()  # the first batch warms up
    return (time.process_time() - start) / max(1, some - 1) * batches


def default_scores(data: dict[str, Any], given: dict[str, Any]) -> torch.Tensor:
    """What a loader ranks rows by where it chooses."""
    with Loader(data, **given, seed=1) as loader:
        engine = loader._engine
        options: Any = {**engine.request.options, "cache": "oracle", "presc_epochs": AUTO}
        return native_loader.hotness(engine.source.native, data["x"].size(0), options)


def counts_of(trace: list[torch.Tensor], num_nodes: int) -> torch.Tensor:
    return torch.bincount(torch.cat(trace), minlength=num_nodes)


def hits(scores: torch.Tensor, counts: torch.Tensor, rows: int) -> int:
    """Accesses that a cache of the rows of the highest scores answers; of equal scores the lower id is first."""
    return int(counts[torch.sort(scores, descending=True, stable=True).indices[:rows]].sum())


def measure(name: str, root: Path, metrics: list[str], batches: int, symmetric: bool) -> None:
    edges, stated = edges_of(root)
    if symmetric:
        edges = torch.cat([edges, edges.flip(0)], dim=1)
    num_nodes = int(edges.max()) + 1
    rng = torch.Generator().manual_seed(1)
    weight = torch.randn(edges.size(1), generator=rng).mul(1.5).exp() if stated is None else stated
    data = {"edge_index": edges, "x": torch.zeros(num_nodes, 1), "weight": weight}
    seeds = torch.randperm(num_nodes, generator=rng)[: num_nodes // 10].sort().values
    samplers: dict[str, dict[str, Any]] = {
        "uniform": {"num_neighbors": [10, 10, 10]},
        "weighted": {"num_neighbors": [10, 10, 10], "weight_attr": "weight"},
        "walks": {"num_neighbors": [RandomWalk(4, 3, 5)] * 3},
    }
    for sampler, drawn in samplers.items():
        given = {**drawn, "input_nodes": seeds, "batch_size": -(-len(seeds) // batches), "shuffle": True}
        start = time.process_time()
        with Loader(data, **given, seed=1) as loader:
            first = counts_of(list(loader.trace(0)), num_nodes)
            sampling = time.process_time() - start
            ten = first + sum(counts_of(list(loader.trace(epoch)), num_nodes) for epoch in range(1, 10))
        row = {"graph": name, "sampler": sampler, "nodes": num_nodes, "rows": int(first.sum())}
        row |= {"sampling_s": round(sampling, 3), "training_s": round(training(data, given, batches), 3)}
        for metric in metrics:
            kind, _, k = metric.partition(":")
            if kind == "expected" and sampler == "walks":
                continue
            start = time.process_time()
            if kind == "default":
                scores = default_scores(data, given)
            else:
                scores = hotness(data, kind, **given, seed=77, k=int(k or 1))
            took = time.process_time() - start
            sizes = [int(share * num_nodes) for share in SHARES]
            row[metric] = [
                [round(hits(scores, trace, n) / hits(trace, trace, n), 3) for n in sizes] for trace in (first, ten)
            ]
            row[metric + "_s"] = round(took, 3)
        print(json.dumps(row), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    torch.set_num_threads(1)
    parser.add_argument("data", type=Path)
    parser.add_argument("--graphs", default="")
    parser.add_argument("--metrics", default="default,degree,expected,presc:1,presc:4")
    parser.add_argument("--batches", type=int, default=160, help="batches of an epoch")
    parser.add_argument("--symmetric", action="store_true", help="with every edge backwards too")
    args = parser.parse_args()
    names = args.graphs.split(",") if args.graphs else sorted(path.name for path in args.data.iterdir())
    for name in names:
        measure(name, args.data / name, args.metrics.split(","), args.batches, args.symmetric)


if __name__ == "__main__":
    main()
