"""Link prediction on ogbl-ddi: GraphSAGE over learnable embeddings, Hits@20 on the official negatives.

    python examples/links.py [DIRECTORY] [--epochs 20] [--resume FILE] [--bf16] [--no-exclude] [--loose]

DIRECTORY holds edge_index.npy [2, E] (training links in both directions), val_edge.npy, val_edge_neg.npy, test_edge.npy
and test_edge_neg.npy [n, 2]; without it links are generated. A batch's links are excluded from the edges drawn for it,
or the model would look the answer up in the graph; its negatives are never links. --no-exclude and --loose give this
up, for comparison. The learning rate decays to 0 by the last epoch. With --resume, a run that was stopped continues
from FILE, which is written after each evaluation, as if it had not been stopped.
"""

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from torch_geometric.nn import SAGEConv

from freshgo import LinkLoader, Loader
from freshgo.nn import accelerate

PIECE = 4096
"""Links that are scored at a time: their rows stay in the caches of the processor."""


def generated(folder: Path, nodes: int = 2_000, groups: int = 40) -> Path:
    """Write links, most of them within groups, a part of them for validation and test, and pairs that are no links."""
    rng = np.random.default_rng(0)
    a = rng.integers(nodes, size=60_000)
    within = a % groups + groups * rng.integers(nodes // groups, size=a.size)
    b = np.where(rng.random(a.size) < 0.9, within, rng.integers(nodes, size=a.size))
    links = np.unique(np.sort(np.stack([a, b])[:, a != b], axis=0), axis=1).T
    val, test, train = np.split(rng.permutation(links), [1000, 2000])
    edge_index = np.concatenate([train, train[:, ::-1]]).T
    arrays = {"edge_index": edge_index, "val_edge": val, "test_edge": test}
    arrays |= {f"{part}_edge_neg": rng.integers(nodes, size=(1000, 2)) for part in ("val", "test")}
    for name, array in arrays.items():
        np.save(folder / f"{name}.npy", array)
    return folder


class Model(torch.nn.Module):
    """Embeddings, two layers of GraphSAGE, and a perceptron over the product of a link's ends."""

    def __init__(self, num_nodes: int, width: int = 256, dropout: float = 0.3) -> None:
        super().__init__()
        self.embedding = torch.nn.Embedding(num_nodes, width)
        self.convs = torch.nn.ModuleList([SAGEConv(width, width), SAGEConv(width, width)])
        self.hidden, self.score = torch.nn.Linear(width, width), torch.nn.Linear(width, 1)
        self.dropout = dropout
        torch.nn.init.xavier_uniform_(self.embedding.weight)
        accelerate(self)

    def forward(self, batch: object) -> Tensor:
        """Return the rows of the seed nodes of a batch."""
        h = self.embedding(batch.n_id)
        for conv, block in zip(self.convs, batch.blocks(), strict=True):
            h = conv((h, h[: block.num_dst]), block.edge_index)
            if conv is not self.convs[-1]:
                h = F.dropout(h.relu(), self.dropout, self.training)
        return h

    def links(self, h: Tensor, index: Tensor, keep: Tensor | float = 1.0) -> Tensor:
        """Return a score for each link between rows of ``h``; ``keep`` is the dropout of the hidden layer."""
        both = h.index_select(0, index[0]) * h.index_select(0, index[1])
        return self.score((self.hidden(both).relu() * keep).float()).squeeze(-1)

    def learn(self, batch: object, bf16: bool = False) -> float:
        """Add up the gradients of a batch and return its loss.

        Rows of links, 32768 by width with as many negatives, are what is large here, so links go through the
        perceptron and back by pieces, and then the sum of what they want of the nodes goes back through the layers. One
        dropout serves all pieces: on a processor random numbers cost three times the matrix product they are for.
        """
        with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
            h = self(batch)
        rows = h.detach().requires_grad_()
        keep = F.dropout(torch.ones(PIECE, h.size(1)), self.dropout)
        total = 0.0
        for index, label in zip(batch.edge_label_index.split(PIECE, 1), batch.edge_label.split(PIECE), strict=True):
            with torch.autocast("cpu", torch.bfloat16, enabled=bf16):
                score = self.links(rows, index, keep[: len(label)])
            loss = F.binary_cross_entropy_with_logits(score.float(), label, reduction="sum") / len(batch.edge_label)
            loss.backward()
            total += loss.item()
        h.backward(rows.grad)
        return total


@torch.no_grad()
def hits(model: Model, graph: dict, folder: Path, k: int = 20) -> tuple[float, float]:
    """Return the share of true validation and test links that score above the k-th highest official negative.

    Every node has all of its neighbours here, as if the whole graph were one batch.
    """
    model.eval()
    with Loader(graph, [-1, -1], batch_size=graph["num_nodes"], transpose=False) as loader:
        h = torch.cat([model(batch) for batch in loader])

    def scores(name: str) -> Tensor:
        return torch.cat([model.links(h, part) for part in torch.from_numpy(np.load(folder / name).T).split(PIECE, 1)])

    val, test = (
        float((scores(f"{split}_edge.npy") > scores(f"{split}_edge_neg.npy").topk(k).values[-1]).float().mean())
        for split in ("val", "test")
    )
    return val, test


def train(
    folder: Path,
    *,
    epochs: int,
    batches: int | None = None,
    every: int = 1,
    exclude: bool = True,
    strict: bool = True,
    bf16: bool = False,
    resume: Path | None = None,
    seed: int = 0,
) -> list[tuple[float, float, float]]:
    """Train on all ``batches`` of an epoch, or on that many. Return the loss, validation and test Hits@20 of those
    evaluated."""
    torch.manual_seed(seed)
    edges = torch.from_numpy(np.load(folder / "edge_index.npy"))
    graph = {"num_nodes": int(edges.max()) + 1, "edge_index": edges}
    loader = LinkLoader(
        graph,
        [15, 10],
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
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005, fused=True)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda epoch: 1 - epoch / epochs)
    parts = {"model": model, "optimizer": optimizer, "schedule": schedule, "loader": loader}
    results: list[tuple[float, float, float]] = []
    if resume is not None and resume.exists():
        saved = torch.load(resume)
        results = saved["results"]
        for name, part in parts.items():
            part.load_state_dict(saved[name])
        torch.set_rng_state(saved["random"])
    for epoch in range(schedule.last_epoch, epochs):
        model.train()
        began, losses = time.monotonic(), []
        for i, batch in enumerate(loader):
            if i == batches:
                break
            optimizer.zero_grad()
            losses.append(model.learn(batch, bf16))
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
        schedule.step()
        seconds = time.monotonic() - began
        if (epoch + 1) % every and epoch + 1 < epochs:
            continue
        results.append((sum(losses) / len(losses), *hits(model, graph, folder)))
        loss, val, test = results[-1]
        print(f"epoch {epoch}: loss {loss:.4f}, Hits@20 val {val:.2%}, test {test:.2%}, {seconds:.1f} s", flush=True)
        if resume is not None:
            state = {name: part.state_dict() for name, part in parts.items()}
            torch.save({**state, "results": results, "random": torch.get_rng_state()}, resume)
    loader.close()
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, nargs="?")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--every", type=int, default=1, help="epochs between evaluations")
    parser.add_argument("--resume", type=Path, metavar="FILE", help="go on from FILE if it exists, and write it")
    parser.add_argument("--bf16", action="store_true", help="in bfloat16, for processors that multiply it")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--no-exclude", action="store_true", help="a batch's links stay among its edges")
    parser.add_argument("--loose", action="store_true", help="negatives may be links")
    args = parser.parse_args()
    temporary = tempfile.TemporaryDirectory()
    results = train(
        args.directory or generated(Path(temporary.name)),
        epochs=args.epochs,
        every=args.every,
        exclude=not args.no_exclude,
        strict=not args.loose,
        bf16=args.bf16,
        resume=args.resume,
        seed=args.seed,
    )
    best = max(results, key=lambda result: result[1])
    print(f"test Hits@20 {best[2]:.2%} at the best validation, {best[1]:.2%}")


if __name__ == "__main__":
    main()
