"""R-GCN on a heterogeneous graph, out of core: predicts the classes of one node type from all the others.

    python examples/hetero.py [DIRECTORY] [--memory 24MiB] [--in-memory] [--history]

DIRECTORY holds meta.json with "num_nodes" by node type and the "target" type, edges_SOURCE__RELATION__TARGET.npy [2,
E], x_TYPE.npy [N, F] or the same in CSR (x_TYPE_indptr.npy, x_TYPE_indices.npy, x_TYPE_data.npy), y_TARGET.npy and
train_idx_60.npy, val_idx_60.npy, test_idx_60.npy. A store is written beside them. Without DIRECTORY a graph of papers,
authors and venues is generated. A node type without features learns a vector for each node. With --in-memory the same
batches come from memory, for comparison: losses and accuracy are the same, to the last digit. With --history, rows of
the hidden layer that have settled are kept for an epoch instead of being computed again.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch_geometric.nn import HeteroConv, SAGEConv

from freshgo import History, Loader, convert

FANOUTS = [10, 10]


def arrays(folder: Path) -> tuple[dict[Any, Any], str]:
    """Return the graph as convert() and Loader take it, with a reverse of every edge type, and the target type."""
    meta = json.loads((folder / "meta.json").read_text(encoding="utf-8"))
    graph: dict[Any, Any] = {name: {"num_nodes": count} for name, count in meta["num_nodes"].items()}
    for name, nodes in graph.items():
        if (folder / f"x_{name}.npy").exists():
            nodes["x"] = np.load(folder / f"x_{name}.npy")
        elif (folder / f"x_{name}_indptr.npy").exists():
            indptr, columns, values = (
                np.load(folder / f"x_{name}_{part}.npy") for part in ("indptr", "indices", "data")
            )
            counts = values.max() <= 255 and not (values % 1).any()
            if not counts:  # words over the length of a text, 0.01 or so, take hundreds of steps to learn from
                values = values / np.abs(values).mean()
            nodes["x"] = np.zeros((nodes["num_nodes"], columns.max() + 1), np.uint8 if counts else np.float32)
            nodes["x"][np.repeat(np.arange(nodes["num_nodes"]), np.diff(indptr)), columns] = values
    target = graph[meta["target"]]
    target["y"] = np.load(folder / f"y_{meta['target']}.npy")
    target["splits"] = {name: np.load(folder / f"{name}_idx_60.npy") for name in ("train", "val", "test")}
    for path in sorted(folder.glob("edges_*.npy")):
        source, relation, end = path.stem.removeprefix("edges_").split("__")
        edges = np.load(path)
        graph[source, relation, end] = {"edge_index": edges}
        graph[end, f"rev_{relation}", source] = {"edge_index": edges[::-1]}
    return graph, meta["target"]


def generated(papers: int = 20_000, classes: int = 8) -> tuple[dict[Any, Any], str]:
    """Return papers whose class shows in their authors and venues, and hardly in their words."""
    rng = np.random.default_rng(0)
    count = {"paper": papers, "author": papers // 2, "venue": 5 * classes}
    of = {name: rng.integers(classes, size=n) for name, n in count.items()}
    graph: dict[Any, Any] = {name: {"num_nodes": n} for name, n in count.items()}
    for name in ("paper", "author"):
        words = rng.random((count[name], 64 * classes)) < 0.02
        words[:, :classes] |= (of[name][:, None] == np.arange(classes)) & (rng.random((count[name], 1)) < 0.15)
        graph[name]["x"] = words.astype(np.uint8)
    graph["paper"]["y"] = of["paper"]
    order = rng.permutation(papers)
    graph["paper"]["splits"] = {"train": order[:2000], "val": order[2000:4000], "test": order[4000:8000]}
    for relation, end, per_paper in (("by", "author", 3), ("in", "venue", 1)):
        source = np.repeat(np.arange(papers), per_paper)
        by_class = np.argsort(of[end], kind="stable")
        first = np.searchsorted(of[end][by_class], np.arange(classes + 1))
        low, high = first[of["paper"][source]], first[of["paper"][source] + 1]
        ends = by_class[(low + (high - low) * rng.random(len(source))).astype(np.int64)]
        ends = np.where(rng.random(len(source)) < 0.8, ends, rng.integers(count[end], size=len(source)))
        edges = np.stack([source, ends])
        graph["paper", relation, end] = {"edge_index": edges}
        graph[end, f"rev_{relation}", "paper"] = {"edge_index": edges[::-1]}
    return graph, "paper"


class RGCN(nn.Module):
    """In each layer a node's vector is a linear map of its own vector and of the mean over each relation's
    neighbours."""

    def __init__(self, graph: dict[Any, Any], target: str, hidden: int = 64) -> None:
        super().__init__()
        types = [name for name in graph if isinstance(name, str)]
        relations = [name for name in graph if isinstance(name, tuple)]
        self.inputs = nn.ModuleDict(
            {
                name: nn.Linear(graph[name]["x"].shape[1], hidden)
                if "x" in graph[name]
                else nn.Embedding(graph[name]["num_nodes"], hidden)
                for name in types
            }
        )
        self.own = nn.ModuleList(nn.ModuleDict({name: nn.Linear(hidden, hidden) for name in types}) for _ in FANOUTS)
        self.convs = nn.ModuleList(
            HeteroConv({name: SAGEConv((hidden, hidden), hidden, root_weight=False) for name in relations})
            for _ in FANOUTS
        )
        self.target, self.classify = target, nn.Linear(hidden, int(graph[target]["y"].max()) + 1)

    def forward(self, batch: Any, history: History | None = None) -> Tensor:
        h = {
            name: layer(batch[name].x.float() if isinstance(layer, nn.Linear) else batch[name].n_id)
            for name, layer in self.inputs.items()
        }
        for conv, own, block in zip(self.convs, self.own, batch.blocks(), strict=True):
            h = h if history is None else history(h, block)
            h = {name: F.dropout(F.relu(rows), 0.5, self.training) for name, rows in h.items()}
            new = conv(block.pairs(h), block.edge_index_dict)
            h = {name: own[name](rows) + new.get(name, 0) for name, rows in block.targets(h).items()}
        out: Tensor = self.classify(F.relu(h[self.target]))
        return out


@torch.no_grad()
def accuracy(model: RGCN, loader: Loader) -> float:
    model.eval()
    right = total = 0
    loader.set_epoch(0)  # the same neighbours each time
    for batch in loader:
        part = batch[model.target]
        right += int((model(batch).argmax(1) == part.y[: part.batch_size]).sum())
        total += part.batch_size
    return right / total


def train(
    data: Any,
    graph: dict[Any, Any],
    target: str,
    memory: int | str | None,
    epochs: int,
    history: History | None = None,
    seed: int = 0,
) -> list[Any]:
    """Return the losses, and the test accuracy of the epoch with the best validation accuracy."""
    torch.manual_seed(seed)
    model = RGCN(graph, target)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005, weight_decay=1e-4)
    options: dict[str, Any] = {"num_neighbors": FANOUTS, "batch_size": 64, "memory": memory, "prefetch": 2}
    losses, best = [], (-1.0, -1.0)
    with (
        Loader(data, input_nodes=(target, "train"), shuffle=True, seed=seed, history=history, **options) as loader,
        Loader(data, input_nodes=(target, "val"), **options) as val,
        Loader(data, input_nodes=(target, "test"), **options) as test,
    ):
        for epoch in range(epochs):
            model.train()
            for batch in loader:
                optimizer.zero_grad()
                part = batch[target]
                loss = F.cross_entropy(model(batch, history), part.y[: part.batch_size])
                loss.backward()
                optimizer.step()
                if history is not None:
                    history.update()
                losses.append(loss.item())
            if epoch % 2 == 1:
                best = max(best, (accuracy(model, val), accuracy(model, test)))
                print(f"epoch {epoch}: loss {losses[-1]:.6f}, best: validation {best[0]:.2%}, test {best[1]:.2%}")
        stats = loader.stats()
        print({key: stats[key] for key in ("rows", "hits", "misses", "bytes_read", "engine", "memory_peak")})
        if history is not None:
            found = history.stats()
            print({key: found[key] for key in ("layers", "rows_saved", "edges_saved", "bytes_saved")})
    return [losses, best]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, nargs="?")
    parser.add_argument("--memory", default="24MiB")
    parser.add_argument("--in-memory", action="store_true", help="the same batches from memory")
    parser.add_argument("--history", action="store_true", help="keep rows of the hidden layer")
    parser.add_argument("--stale", type=float, default=1.0, help="age of the oldest entry, in epochs")
    parser.add_argument("--policy", default="performance", help="which of them")
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    args = parser.parse_args()
    history = (
        History(t_stale=args.stale, policy=args.policy, start=2.0, memory="4MiB", keep="rows") if args.history else None
    )

    graph, target = generated() if args.directory is None else arrays(args.directory)
    with tempfile.TemporaryDirectory() as temporary:
        if args.in_memory:
            train(graph, graph, target, None, args.epochs, history, args.seed)
            return
        path = (args.directory or Path(temporary)) / "hetero.freshgo"
        with convert(graph, path, overwrite=True) as store:  # once, it stays on disk
            train(store, graph, target, args.memory, args.epochs, history, args.seed)


if __name__ == "__main__":
    main()
