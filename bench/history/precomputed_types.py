"""The first layer of an R-GCN precomputed, against plain training on a heterogeneous graph.

    python bench/history/precomputed_types.py ../../shared/data/hetero-acm --epochs 10

R-GCN as PyG makes it: a HeteroConv of a SAGEConv for each relation, three layers. DIRECTORY is one of examples/hetero.py; a
type without features gets the numbers of its nodes as one-hot rows. Epochs take turns. Accuracy is that of the test split by
all neighbours; times are processor time, the loader's threads included.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import HeteroConv, SAGEConv

import freshgo

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
from hetero import arrays


class RGCN(nn.Module):
    def __init__(self, graph: dict[Any, Any], target: str, columns: int) -> None:
        super().__init__()
        relations = [key for key in graph if isinstance(key, tuple)]
        width = {name: graph[name]["x"].size(1) for name in graph if isinstance(name, str)}
        ends = [width, *[dict.fromkeys(width, columns)] * 2]
        out = [columns, columns, int(graph[target]["y"].max()) + 1]
        self.convs = nn.ModuleList(
            HeteroConv({key: SAGEConv((of[key[0]], of[key[2]]), wide) for key in relations}, aggr="mean")
            for of, wide in zip(ends, out, strict=True)
        )
        self.target = target

    def forward(self, h: dict[str, Tensor], edges: dict[Any, Tensor]) -> Tensor:
        for conv in self.convs:
            h = conv(h, edges)
            if conv is not self.convs[2]:
                h = {name: F.dropout(rows.relu(), 0.5, self.training) for name, rows in h.items()}
        return h[self.target]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--columns", type=int, default=64)
    parser.add_argument("--fanouts", default="10,10,5")
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    graph, target = arrays(args.directory)
    inputs = {name: torch.from_numpy(part) for name, part in graph[target].pop("splits").items()}
    for key, part in graph.items():
        if isinstance(key, tuple):
            part["edge_index"] = torch.from_numpy(part["edge_index"].copy())
        elif "x" in part:
            part["x"] = torch.from_numpy(part["x"]).float()
        else:
            part["x"] = torch.eye(part.pop("num_nodes"))
        part.pop("num_nodes", None)
    y = graph[target]["y"] = torch.from_numpy(graph[target]["y"])
    x = {name: graph[name]["x"] for name in graph if isinstance(name, str)}
    edges = {key: graph[key]["edge_index"] for key in graph if isinstance(key, tuple)}
    fanouts = [int(n) for n in args.fanouts.split(",")]
    scores: dict[bool, list[float]] = {False: [], True: []}
    ratios: list[float] = []
    for seed in range(args.seeds):
        runs: dict[bool, Any] = {}
        for first in (False, True):
            torch.manual_seed(seed)
            model, of, hops, extra = RGCN(graph, target, args.columns), graph, fanouts, {}
            freshgo.nn.accelerate(model)
            if first:
                reduce = freshgo.nn.precomputed(model).first_layer
                of, hops = freshgo.propagate(graph, "x", reduce=reduce, progress=False), fanouts[:-1]
                extra = {"first_layer": reduce}
            start = {"batch_size": args.batch, "shuffle": True, "seed": seed, "transpose": True}
            loader = freshgo.Loader(of, hops, {target: inputs["train"]}, **start, **extra)
            runs[first] = model, loader, torch.optim.Adam(model.parameters(), lr=0.005)
        for epoch in range(args.epochs):
            used = {}
            for first, (model, loader, optimizer) in runs.items():
                model.train()
                began = time.process_time()
                for batch in loader:
                    seeds = batch[target].batch_size
                    optimizer.zero_grad()
                    out = model(batch.x_dict, batch.edge_index_dict)[:seeds]
                    F.cross_entropy(out, batch[target].y[:seeds]).backward()
                    optimizer.step()
                used[first] = time.process_time() - began
            ratios += [used[False] / used[True]] if epoch else []
        for first, (model, loader, _) in runs.items():
            loader.close()
            model.eval()
            with torch.no_grad():
                out = model(x, edges)[inputs["test"]].argmax(1)
            scores[first].append(100 * float((out == y[inputs["test"]]).float().mean()))
    plain, other = (torch.tensor(scores[first]) for first in (False, True))
    print(
        f"{args.directory.name}, R-GCN of {args.columns} columns, {args.epochs} epochs, {args.seeds} seeds: plain {plain.mean():.2f} "
        f"± {plain.std():.2f}, precomputed {other.mean():.2f} ({(other - plain).mean():+.2f} ± {(other - plain).std():.2f}); an "
        f"epoch takes {statistics.median(ratios):.2f} times less processor time"
    )


if __name__ == "__main__":
    main()
