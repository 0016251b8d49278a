"""Link prediction on ogbl-ddi: GraphSAGE over learnable embeddings, Hits@20 on the official negatives.

    python examples/links.py DIRECTORY [--epochs 20] [--no-exclude] [--loose]

DIRECTORY holds edge_index.npy [2, E] (training links in both directions), val_edge.npy, val_edge_neg.npy, test_edge.npy
and test_edge_neg.npy [n, 2]. A batch's links are not among the edges drawn for it, or the model would read the answer
off the graph; its negatives are never links. --no-exclude and --loose give these up, for comparison.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import SAGEConv

from freshgo import LinkLoader, Loader


class Model(torch.nn.Module):
    """Embeddings, two layers of GraphSAGE, and a perceptron over the product of a link's ends."""

    def __init__(self, num_nodes: int, width: int = 128, dropout: float = 0.3) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(num_nodes, width)
        self.convs = torch.nn.ModuleList([SAGEConv(width, width), SAGEConv(width, width)])
        self.score = torch.nn.Sequential(
            torch.nn.Linear(width, width), torch.nn.ReLU(), torch.nn.Dropout(dropout), torch.nn.Linear(width, 1)
        )
        self.dropout = dropout
        torch.nn.init.xavier_uniform_(self.embedding.weight)

    def forward(self, batch: object) -> Tensor:
        """Return the rows of the seed nodes of a batch."""
        h = self.embedding(batch.n_id)
        for conv, block in zip(self.convs, batch.blocks(), strict=True):
            h = conv((h, h[: block.num_dst]), block.edge_index)
            if conv is not self.convs[-1]:
                h = F.dropout(h.relu(), self.dropout, self.training)
        return h

    def links(self, h: Tensor, index: Tensor) -> Tensor:
        """Return a score for each link between rows of ``h``."""
        return self.score(h[index[0]] * h[index[1]]).squeeze(-1)


@torch.no_grad()
def hits(model: Model, graph: dict, folder: Path, split: str, k: int = 20) -> float:
    """The share of true links that score above the k-th of the official negatives."""
    model.eval()
    with Loader(graph, [100, 50], batch_size=1024, seed=1) as loader:
        h = torch.cat([model(batch) for batch in loader])
    scores = [
        torch.cat([model.links(h, part) for part in torch.from_numpy(np.load(folder / name).T).split(65536, 1)])
        for name in (f"{split}_edge.npy", f"{split}_edge_neg.npy")
    ]
    return float((scores[0] > scores[1].topk(k).values[-1]).float().mean())


def train(
    folder: Path, *, epochs: int, batches: int | None = None, exclude: bool = True, strict: bool = True, seed: int = 0
) -> list[tuple[float, float, float]]:
    """Train and return loss, validation and test Hits@20 of every epoch, or of as many ``batches`` each."""
    torch.manual_seed(seed)
    edges = torch.from_numpy(np.load(folder / "edge_index.npy"))
    graph = {"num_nodes": int(edges.max()) + 1, "edge_index": edges}
    loader = LinkLoader(
        graph,
        [10, 5],
        edges[:, edges[0] < edges[1]],  # each link once
        neg_sampling="binary",
        strict_negatives=strict,
        exclude_seed_edges="reverse" if exclude else False,
        batch_size=16384,
        shuffle=True,
        seed=seed,
        transpose=True,
    )
    model = Model(graph["num_nodes"])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    results = []
    for epoch in range(epochs):
        model.train()
        began, losses = time.monotonic(), []
        for i, batch in enumerate(loader):
            if i == batches:
                break
            optimizer.zero_grad()
            score = model.links(model(batch), batch.edge_label_index)
            loss = F.binary_cross_entropy_with_logits(score, batch.edge_label)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            losses.append(loss.item())
        seconds = time.monotonic() - began
        results.append(
            (sum(losses) / len(losses), hits(model, graph, folder, "val"), hits(model, graph, folder, "test"))
        )
        loss, val, test = results[-1]
        print(f"epoch {epoch}: loss {loss:.4f}, Hits@20 val {val:.2%}, test {test:.2%}, {seconds:.1f} s", flush=True)
    loader.close()
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-exclude", action="store_true", help="a batch's links stay among its edges")
    parser.add_argument("--loose", action="store_true", help="negatives may be links")
    args = parser.parse_args()
    results = train(
        args.directory, epochs=args.epochs, exclude=not args.no_exclude, strict=not args.loose, seed=args.seed
    )
    best = max(results, key=lambda result: result[1])
    print(f"test Hits@20 {best[2]:.2%} at the best validation, {best[1]:.2%}")


if __name__ == "__main__":
    main()
