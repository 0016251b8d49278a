"""A training run with and without historical embeddings: accuracy, rows read, time.

    python examples/history.py [DIRECTORY] [--model GCN] [--t-stale 1.0] [--buffer 64MiB] [--memory 256MiB]

DIRECTORY holds edge_index.npy [2, E], x.npy [N, F], y.npy [N] and either the split train_idx.npy, test_idx.npy or no
split: then 60 and 20 % of the nodes are drawn. A store is written beside them. Without DIRECTORY a graph of communities
is generated. The lines that differ from a script without history are marked below.
"""

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import torch_geometric.nn
from tqdm import tqdm

from freshgo import History, Loader, Store, convert

FANOUTS = [10, 5, 5]


def arrays(folder: Path) -> dict[str, Any]:
    y = np.load(folder / "y.npy")
    if (folder / "train_idx.npy").exists():
        splits = {name: np.load(folder / f"{name}_idx.npy") for name in ("train", "test")}
    else:
        order = np.random.default_rng(0).permutation(len(y))
        splits = {"train": order[: len(y) * 6 // 10], "test": order[len(y) * 8 // 10 :]}
    return {"edge_index": folder / "edge_index.npy", "x": folder / "x.npy", "y": y, "splits": splits}


def generated(nodes: int = 100_000, edges: int = 1_000_000, width: int = 64, classes: int = 16) -> dict[str, Any]:
    """Return communities of about 200 nodes, with the class of the community as the label and nine of ten edges
    within."""
    rng = np.random.default_rng(0)
    size = nodes // 500
    target = rng.integers(nodes, size=edges)
    near = target // size * size + (size * rng.random(edges) ** 3).astype(np.int64)  # some are in every list
    source = np.where(rng.random(edges) < 0.9, near, rng.integers(nodes, size=edges))
    y = np.arange(nodes) // size % classes
    x = 0.1 * rng.standard_normal((classes, width))[y] + rng.standard_normal((nodes, width))
    order = rng.permutation(nodes)
    splits = {"train": order[: nodes // 25], "test": order[-nodes // 50 :]}
    return {"edge_index": np.stack([source, target]), "x": x.astype(np.float32), "y": y, "splits": splits}


@torch.no_grad()
def accuracy(model: torch.nn.Module, store: Store, args: argparse.Namespace) -> float:
    model.eval()  # the history of an attached model is not used then
    right = total = 0
    with Loader(store, FANOUTS, "test", batch_size=1000, memory=args.memory) as loader:
        for batch in loader:
            guess = model(batch.x.float(), batch.edge_index)[: batch.batch_size].argmax(1)
            right += int((guess == batch.y[: batch.batch_size]).sum())
            total += batch.batch_size
    return right / total


def run(store: Store, history: History | None, args: argparse.Namespace) -> None:
    torch.manual_seed(0)
    columns, classes = store.tensors["x"].shape[1], int(store["y"].max()) + 1
    model = getattr(torch_geometric.nn, args.model)(columns, 64, len(FANOUTS), classes, dropout=0.3)
    optimizer = torch.optim.Adam(model.parameters(), 3e-3)
    if history is not None:
        history.attach(model)  # the first line that differs
    loader = Loader(
        store, FANOUTS, "train", batch_size=args.batch_size, shuffle=True, memory=args.memory, history=history
    )  # the second
    began = time.perf_counter()
    for epoch in range(args.epochs):
        model.train()
        for batch in tqdm(loader, desc=f"epoch {epoch}", leave=False):
            optimizer.zero_grad()
            hops = {}
            if args.model != "GCN":  # whose degrees it would change
                hops = {
                    "num_sampled_nodes_per_hop": batch.num_sampled_nodes,  # so that the one without computes no more
                    "num_sampled_edges_per_hop": batch.num_sampled_edges,  # than it needs either
                }
            out = model(batch.x.float(), batch.edge_index, **hops)
            F.cross_entropy(out[: batch.batch_size], batch.y[: batch.batch_size]).backward()
            optimizer.step()
            if history is not None:
                history.update()  # the third
    seconds = (time.perf_counter() - began) / args.epochs
    counts = loader.stats()
    print(f"{'with' if history else 'without'} history: {seconds:.2f} s an epoch of {len(loader)} iterations, ", end="")
    print(f"{counts['rows']:,} rows, {counts['bytes_read'] / 2**20:,.0f} MiB read, ", end="")
    print(f"test accuracy {accuracy(model, store, args):.2%}")
    if history is not None:
        report(history.stats())
        if args.plot is not None:
            history.plot().savefig(args.plot)
    loader.close()


def report(stats: dict[str, Any]) -> None:
    for name in ("rows", "edges"):
        plain = sum(span[f"plain_{name}"] for span in stats["saving"])
        print(f"  {name} saved: {stats[f'{name}_saved'] / max(1, plain):.1%}")
    for number, layer in enumerate(stats["layers"], start=1):
        looked = max(1, layer["hits"] + layer["misses"])
        print(f"  layer {number}: {layer['hits'] / looked:.1%} hits, {layer['live']:,} rows kept")
    print(f"  buffer: {stats['embedding_bytes'] / 2**20:.1f} of {stats['bytes'] / 2**20:.1f} MiB hold embeddings")


def number(text: str) -> int | float:
    """Return what History expects: iterations if the text is an integer, else epochs."""
    return int(text) if text.isdecimal() else float(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, nargs="?")
    parser.add_argument("--model", choices=("GraphSAGE", "GCN", "GAT", "GIN"), default="GraphSAGE")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=100)
    parser.add_argument("--memory", help="of the loader, as 256MiB; else half of what is available")
    parser.add_argument("--t-stale", type=number, help="iterations (200) or epochs (1.0)")
    parser.add_argument("--keep", choices=("rows", "aggregates"), default="aggregates", help="what a history keeps")
    parser.add_argument("--p-grad", type=float, help="0.9 of rows; aggregates need no gradient")
    parser.add_argument("--policy", choices=("performance", "gradient", "gas"), default="performance")
    parser.add_argument("--buffer", help="of the history, as 64MiB; else a tenth of the features")
    parser.add_argument("--plot", type=Path, help="write a picture of what history did")
    args = parser.parse_args()

    with tempfile.TemporaryDirectory(prefix="freshgo-history-") as folder:
        if args.directory is None:
            data, path = generated(), Path(folder) / "generated.freshgo"
        else:
            data, path = arrays(args.directory), args.directory / "history.freshgo"
        bounds = {} if args.policy == "gas" else {"p_grad": args.p_grad, "t_stale": args.t_stale}
        bounds["keep"] = args.keep
        with convert(data, path, overwrite=True) as store:
            for history in (None, History(**bounds, policy=args.policy, memory=args.buffer)):
                run(store, history, args)


if __name__ == "__main__":
    main()
