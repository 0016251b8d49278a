"""Which artists a user listens to: links of one edge type, with neighbours drawn by listening counts.

    python examples/links_hetero.py [DIRECTORY] [--memory 32MiB] [--in-memory] [--epochs 5]

DIRECTORY holds edges_user__listens__artist.npy, edges_user__friend__user.npy and edges_artist__tagged__tag.npy [2, E],
weight_user__listens__artist.npy [E], and train_idx.npy, val_idx.npy, test_idx.npy, which list the edges of the first
file in each split. Without it listeners, artists and tags are generated. The graph contains only the training edges of
these. A batch's links are drawn neither along "listens" nor back along "rev_listens"; its negatives are never links.
The script trains twice, with neighbours drawn in proportion to the counts and uniformly, from a store that is written
beside the files. With --in-memory the same batches come from memory: losses and scores are the same, to the last digit.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import HeteroConv, SAGEConv

from freshgo import LinkLoader, convert

LISTENS = ("user", "listens", "artist")
FANOUTS = [10, 5]


def generated(folder: Path, users: int = 1_500, artists: int = 3_000, styles: int = 10) -> Path:
    """Write users who mostly listen to artists of their own style, often to these, and have friends of it."""
    rng = np.random.default_rng(0)

    def of_style(of: np.ndarray, count: int, share: float) -> np.ndarray:
        own = of % styles + styles * rng.integers(count // styles, size=of.size)
        return np.where(rng.random(of.size) < share, own, rng.integers(count, size=of.size))

    user = np.repeat(np.arange(users), 30)
    pairs = np.unique(np.stack([user, of_style(user, artists, 0.7)]), axis=1)
    counts = np.where(pairs[0] % styles == pairs[1] % styles, 20, 1) * rng.integers(1, 6, size=pairs.shape[1])
    friend, tagged = np.repeat(np.arange(users), 5), np.repeat(np.arange(artists), 3)
    arrays = {
        "edges_user__listens__artist": pairs,
        "weight_user__listens__artist": counts,
        "edges_user__friend__user": np.stack([friend, of_style(friend, users, 0.8)]),
        "edges_artist__tagged__tag": np.stack([tagged, of_style(tagged, 10 * styles, 0.8)]),
    }
    val, test, train = np.split(rng.permutation(pairs.shape[1]), [2000, 4000])
    for name, array in {**arrays, "train_idx": train, "val_idx": val, "test_idx": test}.items():
        np.save(folder / f"{name}.npy", array)
    return folder


def arrays(folder: Path) -> tuple[dict[Any, Any], dict[str, Tensor]]:
    """Return the graph as convert() and LinkLoader take it, and the links of every split."""

    def load(name: str) -> Any:
        return np.load(folder / f"{name}.npy")

    listens, tagged = load("edges_user__listens__artist"), load("edges_artist__tagged__tag")
    links = {split: torch.from_numpy(listens[:, load(f"{split}_idx")]) for split in ("train", "val", "test")}
    edges, counts = links["train"].numpy(), load("weight_user__listens__artist")[load("train_idx")]
    graph: dict[Any, Any] = {
        "user": {"num_nodes": int(listens[0].max()) + 1},
        "artist": {"num_nodes": int(max(listens[1].max(), tagged[0].max())) + 1},
        "tag": {"num_nodes": int(tagged[1].max()) + 1},
        LISTENS: {"edge_index": edges, "count": counts},
        ("artist", "rev_listens", "user"): {"edge_index": edges[::-1], "count": counts},
        ("user", "friend", "user"): {"edge_index": load("edges_user__friend__user")},
        ("artist", "tagged", "tag"): {"edge_index": tagged},
        ("tag", "rev_tagged", "artist"): {"edge_index": tagged[::-1]},
    }
    return graph, links


class Model(nn.Module):
    """A vector for each node, two layers of means over each relation's neighbours, and the product of a link's ends."""

    def __init__(self, graph: dict[Any, Any], hidden: int = 64) -> None:
        super().__init__()
        types = [name for name in graph if isinstance(name, str)]
        relations = [name for name in graph if isinstance(name, tuple)]
        self.inputs = nn.ModuleDict({name: nn.Embedding(graph[name]["num_nodes"], hidden) for name in types})
        for embedding in self.inputs.values():
            nn.init.xavier_uniform_(embedding.weight)
        self.own = nn.ModuleList(nn.ModuleDict({name: nn.Linear(hidden, hidden) for name in types}) for _ in FANOUTS)
        self.convs = nn.ModuleList(
            HeteroConv({name: SAGEConv((hidden, hidden), hidden, root_weight=False) for name in relations})
            for _ in FANOUTS
        )
        self.score = nn.Sequential(nn.Linear(hidden, hidden), nn.ReLU(), nn.Linear(hidden, 1))

    def forward(self, batch: Any) -> Tensor:
        """Return a score for each link and negative of a batch."""
        h = {name: embedding(batch[name].n_id) for name, embedding in self.inputs.items()}
        for i, (conv, own) in enumerate(zip(self.convs, self.own, strict=True)):
            new = conv(h, batch.edge_index_dict)
            h = {name: own[name](rows) + new.get(name, 0) for name, rows in h.items()}
            if i == 0:
                h = {name: F.dropout(F.relu(rows), 0.3, self.training) for name, rows in h.items()}
        source, target = batch[LISTENS].edge_label_index
        out: Tensor = self.score(h["user"][source] * h["artist"][target]).squeeze(-1)
        return out


@torch.no_grad()
def evaluate(model: Model, loader: LinkLoader) -> tuple[float, float]:
    """Return ROC-AUC and average precision of links against as many pairs that are not linked, the same each time."""
    model.eval()
    loader.set_epoch(0)
    parts = [(model(batch), batch[LISTENS].edge_label) for batch in loader]
    score, label = (torch.cat(part) for part in zip(*parts, strict=True))
    label = label[score.argsort(descending=True, stable=True)]
    found, links, others = label.cumsum(0), label.sum(), (1 - label).sum()
    auc = ((1 - label) * found).sum() / (links * others)
    precision = found / torch.arange(1, len(label) + 1)
    return float(auc), float((precision * label).sum() / links)


def train(
    data: Any,
    graph: dict[Any, Any],
    links: dict[str, Tensor],
    *,
    weight_attr: str | None,
    memory: int | str | None = None,
    epochs: int = 5,
    batches: int | None = None,
) -> tuple[list[float], tuple[float, float]]:
    """Return the losses, and the test AUC and precision of the epoch with the best validation AUC."""
    torch.manual_seed(0)
    model = Model(graph)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    options: dict[str, Any] = {"weight_attr": weight_attr, "memory": memory, "prefetch": 2, "strict_negatives": True}
    options |= {"neg_sampling": "binary", "batch_size": 2048, "num_workers": 1}
    losses: list[float] = []
    best, at_best = -1.0, (-1.0, -1.0)
    with (
        LinkLoader(
            data, FANOUTS, (LISTENS, links["train"]), exclude_seed_edges="reverse", shuffle=True, **options
        ) as loader,
        LinkLoader(data, FANOUTS, (LISTENS, links["val"]), **options) as val,
        LinkLoader(data, FANOUTS, (LISTENS, links["test"]), **options) as test,
    ):
        for epoch in range(epochs):
            model.train()
            began = time.monotonic()
            for i, batch in enumerate(loader):
                if i == batches:
                    break
                optimizer.zero_grad()
                loss = F.binary_cross_entropy_with_logits(model(batch), batch[LISTENS].edge_label)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            seconds = time.monotonic() - began
            auc = evaluate(model, val)[0]
            if auc > best:
                best, at_best = auc, evaluate(model, test)
            print(
                f"epoch {epoch}: loss {losses[-1]:.6f}, AUC val {auc:.4f}, test at the best {at_best[0]:.4f}, "
                f"{seconds:.1f} s",
                flush=True,
            )
        stats = loader.stats()
        print({key: stats[key] for key in ("rows", "edges", "bytes_read", "engine", "memory_peak")})
    return losses, at_best


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, nargs="?")
    parser.add_argument("--memory", default="32MiB")
    parser.add_argument("--in-memory", action="store_true", help="the same batches from memory")
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()
    temporary = tempfile.TemporaryDirectory()
    folder = args.directory or generated(Path(temporary.name))
    graph, links = arrays(folder)
    data: Any = graph
    if not args.in_memory:
        data = convert(graph, folder / "links.freshgo", overwrite=True)
    for name, weight_attr in (("by listening counts", "count"), ("uniformly", None)):
        print(f"neighbours drawn {name}")
        memory = None if args.in_memory else args.memory
        losses, (auc, precision) = train(data, graph, links, weight_attr=weight_attr, memory=memory, epochs=args.epochs)
        print(f"{name}: last loss {losses[-1]:.6f}, test ROC-AUC {auc:.4f}, average precision {precision:.4f}")


if __name__ == "__main__":
    main()
