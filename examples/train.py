"""A PyG training loop, out of core: GraphSAGE on the arrays of a directory.

    python examples/train.py [DIRECTORY] [--features x.npy] [--memory 64MiB] [--in-memory]

DIRECTORY holds edge_index.npy [2, E], y.npy [N], features [N, F] and either the split train_idx.npy, val_idx.npy and
test_idx.npy or no split: then 60, 20 and 20 % of the nodes are drawn. Without it a graph is generated. The two lines
that differ from a script with PyG's NeighborLoader are marked below.
"""

import argparse
import tempfile
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch_geometric.nn import GraphSAGE
from tqdm.auto import tqdm

from freshgo import Loader, convert


def generated(folder: Path, nodes: int = 20_000, classes: int = 8) -> Path:
    """Write a graph most of whose edges join nodes of one class, with features that say little of it."""
    rng = np.random.default_rng(0)
    y = rng.integers(classes, size=nodes)
    members = np.argsort(y, kind="stable")
    first = np.searchsorted(y[members], np.arange(classes + 1))
    target = rng.integers(nodes, size=12 * nodes)
    low, high = first[y[target]], first[y[target] + 1]
    alike = members[low + (rng.random(target.size) * (high - low)).astype(np.int64)]
    source = np.where(rng.random(target.size) < 0.7, alike, rng.integers(nodes, size=target.size))
    x = rng.standard_normal((nodes, 64), dtype=np.float32) + 0.5 * np.eye(classes, 64, dtype=np.float32)[y]
    for name, array in (("edge_index", np.stack([source, target])), ("x", x), ("y", y)):
        np.save(folder / f"{name}.npy", array)
    return folder


def splits(folder: Path, num_nodes: int) -> dict[str, np.ndarray]:
    if (folder / "train_idx.npy").exists():
        return {name: np.load(folder / f"{name}_idx.npy") for name in ("train", "val", "test")}
    order = np.random.default_rng(0).permutation(num_nodes)
    train, val, test = np.split(order, [num_nodes * 6 // 10, num_nodes * 8 // 10])
    return {"train": train, "val": val, "test": test}


@torch.no_grad()
def accuracy(model: torch.nn.Module, loader: Loader) -> float:
    model.eval()
    right = total = 0
    for batch in loader:
        guess = model(batch.x.float(), batch.edge_index)[: batch.batch_size].argmax(1)
        right += int((guess == batch.y[: batch.batch_size]).sum())
        total += batch.batch_size
    return right / total


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("directory", type=Path, nargs="?")
    parser.add_argument("--features", default="x.npy")
    parser.add_argument("--memory", default="64MiB")
    parser.add_argument(
        "--in-memory", action="store_true", help="load everything, for comparison: the losses are the same"
    )
    parser.add_argument("--epochs", type=int, default=5)
    args = parser.parse_args()

    temporary = tempfile.TemporaryDirectory()
    folder: Path = args.directory or generated(Path(temporary.name))
    y = np.load(folder / "y.npy")
    arrays = {
        "edge_index": folder / "edge_index.npy",
        "x": folder / args.features,
        "y": y,
        "splits": splits(folder, len(y)),
    }
    if args.in_memory:
        data, memory = arrays | {"edge_index": np.load(arrays["edge_index"]), "x": np.load(arrays["x"])}, None
    else:
        data = convert(arrays, folder / "train.freshgo", overwrite=True)  # instead of Data(...): once, it stays on disk
        memory = args.memory

    torch.manual_seed(0)
    model = GraphSAGE(np.load(arrays["x"], mmap_mode="r").shape[1], 256, 3, int(y.max()) + 1, dropout=0.5)
    optimizer = torch.optim.Adam(model.parameters(), lr=0.003)
    loader = Loader(
        data, [15, 10, 5], "train", batch_size=1024, shuffle=True, memory=memory
    )  # instead of NeighborLoader
    test = Loader(data, [15, 10, 5], "test", batch_size=1024, memory=memory)
    for epoch in range(args.epochs):
        model.train()
        for batch in tqdm(loader, desc=f"epoch {epoch}", leave=False):
            optimizer.zero_grad()
            out = model(batch.x.float(), batch.edge_index)[: batch.batch_size]
            loss = F.cross_entropy(out, batch.y[: batch.batch_size])
            loss.backward()
            optimizer.step()
        print(f"epoch {epoch}: loss {loss.item():.6f}, test accuracy {accuracy(model, test):.2%}")
    print(
        {
            key: loader.stats()[key]
            for key in ("rows", "hits", "misses", "bytes_read", "requests", "engine", "memory_peak")
        }
    )


if __name__ == "__main__":
    main()
