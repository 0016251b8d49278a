"""Scores of every node of a graph on disk: train with sampled batches, infer with all neighbours.

    python examples/infer.py [--nodes 20000] [--memory 64MiB]

A graph of communities is generated and stored. GraphSAGE is trained on batches of sampled neighbours. Then infer()
computes the output of every node with all its neighbours, layer by layer, and the accuracy over all nodes is printed.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch_geometric.nn import GraphSAGE

from freshgo import Loader, convert, infer

CLASSES, WIDTH = 8, 32


def generated(nodes: int) -> dict[str, np.ndarray]:
    """Return nodes whose class shows in their neighbours, and hardly in their features."""
    rng = np.random.default_rng(0)
    label = rng.integers(CLASSES, size=nodes)
    by_class = np.argsort(label, kind="stable")
    first = np.searchsorted(label[by_class], np.arange(CLASSES + 1))
    target = np.repeat(np.arange(nodes), 10)
    own = label[target]
    near = by_class[first[own] + (rng.random(target.size) * (first[own + 1] - first[own])).astype(np.int64)]
    source = np.where(rng.random(target.size) < 0.7, near, rng.integers(nodes, size=target.size))
    x = rng.standard_normal((nodes, WIDTH), dtype=np.float32)
    x[np.arange(nodes), label] += 1
    return {"x": x, "y": label, "edge_index": np.stack([source, target]), "train_mask": rng.random(nodes) < 0.1}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=20_000)
    parser.add_argument("--memory", default="64MiB")
    args = parser.parse_args()
    torch.manual_seed(0)
    with tempfile.TemporaryDirectory() as folder:
        store = convert(generated(args.nodes), Path(folder) / "graph.freshgo", progress=False)
        model = GraphSAGE(WIDTH, 64, num_layers=2, out_channels=CLASSES)
        optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
        with Loader(store, [10, 10], "train", batch_size=64, shuffle=True, memory=args.memory) as loader:
            for epoch in range(4):
                losses = []
                for batch in loader:
                    out = model(batch.x, batch.edge_index)[: batch.batch_size]
                    loss = F.cross_entropy(out, batch.y[: batch.batch_size])
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    losses.append(loss.item())
                print(f"epoch {epoch}: loss {sum(losses) / len(losses):.3f}")
        path = infer(model.eval(), store, Path(folder) / "scores.npy", memory=args.memory)
        scores = np.load(path, mmap_mode="r")
        print(f"{scores.shape[0]} nodes, accuracy {(scores.argmax(1) == store['y'].numpy()).mean():.3f}")
        store.close()


if __name__ == "__main__":
    main()
