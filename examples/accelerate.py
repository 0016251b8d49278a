"""PyG's own GraphSAGE, before and after accelerate(): the same losses in less time.

    python examples/accelerate.py [DIRECTORY]

DIRECTORY holds edge_index.npy [2, E], x.npy [N, F] and y.npy [N]; without it a graph is generated. The two lines that
differ from a script with PyG's NeighborLoader are marked below.
"""

import sys
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch_geometric.nn import GraphSAGE

from freshgo import Loader
from freshgo.nn import accelerate


def graph() -> dict[str, torch.Tensor]:
    if len(sys.argv) > 1:
        folder = Path(sys.argv[1])
        return {name: torch.from_numpy(np.load(folder / f"{name}.npy")) for name in ("edge_index", "x", "y")}
    gen = torch.Generator().manual_seed(0)
    nodes, edges, classes = 200_000, 3_000_000, 16
    y = torch.randint(classes, (nodes,), generator=gen)
    target = torch.randint(nodes, (edges,), generator=gen)
    source = (torch.randint(nodes // classes, (edges,), generator=gen) * classes + y[target]).clamp_(max=nodes - 1)
    return {
        "edge_index": torch.stack([source, target]),
        "x": torch.nn.functional.one_hot(torch.arange(nodes) % classes, 128) + torch.randn(nodes, 128, generator=gen),
        "y": y,
    }


def train(model: torch.nn.Module, loader: Loader) -> tuple[float, float]:
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    loss = torch.zeros(())
    start = time.perf_counter()
    for batch in loader:
        out = model(
            batch.x.float(),
            batch.edge_index,
            num_sampled_nodes_per_hop=batch.num_sampled_nodes,
            num_sampled_edges_per_hop=batch.num_sampled_edges,
        )
        loss = F.cross_entropy(out[: batch.batch_size], batch.y[: batch.batch_size])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return loss.item(), time.perf_counter() - start


def main() -> None:
    data = graph()
    for faster in (False, True):
        torch.manual_seed(0)
        model = GraphSAGE(data["x"].size(1), 128, num_layers=3, out_channels=int(data["y"].max()) + 1)
        if faster:
            print(accelerate(model))  # the first line that differs
        seeds = torch.arange(0, len(data["y"]), 50)[:4096]
        with Loader(data, [15, 10, 5], seeds, batch_size=1024, transpose=faster) as loader:  # the second
            train(model, loader)
            loss, seconds = train(model, loader)
        print(f"{'accelerated' if faster else 'as it was'}: loss {loss:.4f}, {seconds:.2f} s an epoch")


if __name__ == "__main__":
    main()
