"""``freshgo demo``: generates a graph, converts it, and trains on it out of core, then again in memory.

Both runs see the same batches, so their losses are equal to the last digit; the demo checks that.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib.util
import itertools
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from tqdm.auto import tqdm

from freshgo._args.size import format_size
from freshgo._plots.canvas import new_figure, open_frame
from freshgo._plots.stats import draw_cache, draw_memory, draw_time, text
from freshgo.convert import convert
from freshgo.errors import BudgetError, LibraryError
from freshgo.loader import Loader
from freshgo.plan import Plan

NUM_COMMUNITIES = 32
NUM_FEATURES = 128
EDGES_PER_NODE = 16
NEIGHBORS = [10, 5, 5]
NODES_PER_SEED = 8000  # in the graph, per input node of a batch: plans of many batches then fit into the budget
BUDGET = 0.7  # of the size of the features: with more, small demos have no plan to show

Graph = dict[str, Any]


def generate(num_nodes: int, seed: int = 0) -> tuple[Graph, float]:
    """Return a power-law graph with planted communities as labels, and how well features alone identify them.

    The features of a node are its community's centre with so much noise that the node needs its neighbours. The second
    value is the accuracy of the best guess from a node's own features.
    """
    rng = np.random.default_rng(seed)
    label = rng.integers(NUM_COMMUNITIES, size=num_nodes)
    # Rank^(-2/3) gives a degree distribution with exponent 2.5.
    weight = (1.0 + rng.permutation(num_nodes)) ** (-2 / 3)

    # Nodes sorted by community: an interval of the cumulated weights is a community, the whole of them is everybody.
    order = np.argsort(label, kind="stable")
    cumulated = np.concatenate([[0.0], np.cumsum(weight[order])])
    bounds = cumulated[np.searchsorted(label[order], np.arange(NUM_COMMUNITIES + 1))]

    def draw(low: Any, high: Any, count: int) -> Any:
        point = low + rng.random(count) * (high - low)
        return order[np.clip(np.searchsorted(cumulated, point, side="right") - 1, 0, num_nodes - 1)]

    count = num_nodes * EDGES_PER_NODE // 2
    one = draw(0.0, cumulated[-1], count)
    inside = rng.random(count) < 0.7
    low = np.where(inside, bounds[label[one]], 0.0)
    high = np.where(inside, bounds[label[one] + 1], cumulated[-1])
    other = draw(low, high, count)
    edge_index = np.stack([np.concatenate([one, other]), np.concatenate([other, one])])

    centre = rng.standard_normal((NUM_COMMUNITIES, NUM_FEATURES), dtype=np.float32) * 0.13
    x = rng.standard_normal((num_nodes, NUM_FEATURES), dtype=np.float32)
    x += centre[label]
    guess = (x @ centre.T - 0.5 * (centre**2).sum(1)).argmax(1)

    shuffled = rng.permutation(num_nodes)
    splits = {
        "train": np.sort(shuffled[: num_nodes // 10]),
        "test": np.sort(shuffled[num_nodes // 10 : num_nodes // 10 + num_nodes // 20]),
    }
    graph = {"edge_index": edge_index, "x": x, "y": label, "splits": splits}
    return {**graph, "num_nodes": num_nodes}, float((guess == label).mean())


def make_model() -> nn.Module:
    """Return a 3-layer GraphSAGE that computes each layer only for the nodes that later layers need."""
    from torch_geometric.nn import SAGEConv

    class GraphSAGE(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            sizes = [NUM_FEATURES, 128, 128, NUM_COMMUNITIES]
            self.convs = nn.ModuleList(SAGEConv(i, o) for i, o in itertools.pairwise(sizes))

        def forward(self, batch: Any) -> Tensor:
            h: Tensor = batch.x
            for i, (conv, block) in enumerate(zip(self.convs, batch.blocks(), strict=True)):
                h = conv((h, h[: block.num_dst]), block.edge_index)
                if i < len(self.convs) - 1:
                    h = F.relu(h)
            return h

    return GraphSAGE()


def batch_size(data: Any) -> int:
    """Return how many input nodes a batch has."""
    num_nodes = data["num_nodes"] if isinstance(data, dict) else data.num_nodes
    return max(1, int(num_nodes) // NODES_PER_SEED)


def open_loader(data: Any, split: str, memory: int | None) -> Loader:
    """Return the loader of a split; that of ``train`` shuffles."""
    return Loader(
        data,
        NEIGHBORS,
        split,
        batch_size=batch_size(data),
        shuffle=split == "train",
        seed=1,
        prefetch=2,
        memory=memory,
        return_edge_id=False,  # the model asks for no edge numbers, so that their memory is for rows
    )


@dataclasses.dataclass
class Run:
    """One training, and what its loader did."""

    name: str
    losses: list[float]
    accuracy: float
    seconds: float
    stats: dict[str, Any]
    plan: Plan


def train(name: str, data: Any, epochs: int, memory: int | None, progress: bool = True) -> Run:
    """Train a fresh model on the split ``train`` of ``data`` and evaluate it on ``test``."""
    torch.manual_seed(0)
    model = make_model()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.005)
    losses = []
    start = time.perf_counter()
    with open_loader(data, "train", memory) as loader:
        with tqdm(total=epochs * len(loader), desc=f"train, {name}", unit="batch", disable=not progress) as bar:
            for _ in range(epochs):
                for batch in loader:
                    optimizer.zero_grad()
                    loss = F.cross_entropy(model(batch), batch.y[: batch.batch_size])
                    loss.backward()  # type: ignore[no-untyped-call]
                    optimizer.step()
                    losses.append(loss.item())
                    bar.set_postfix(loss=f"{losses[-1]:.3f}")
                    bar.update()
        stats, plan = loader.stats(), loader.plan()
    seconds = time.perf_counter() - start
    return Run(name, losses, evaluate(name, model, data, memory, progress), seconds, stats, plan)


def smallest_budget(data: Any, split: str, budget: int) -> int:
    """Return ``budget``, or the smallest memory that a loader of ``split`` works with if that is more."""
    try:
        open_loader(data, split, budget).close()
    except BudgetError as error:
        return error.minimum
    return budget


@torch.no_grad()
def evaluate(name: str, model: nn.Module, data: Any, memory: int | None, progress: bool = True) -> float:
    """Return the accuracy on the split ``test``."""
    model.eval()
    right = total = 0
    with open_loader(data, "test", memory) as loader:
        for batch in tqdm(loader, desc=f"test, {name}", unit="batch", disable=not progress):
            right += int((model(batch).argmax(1) == batch.y[: batch.batch_size]).sum())
            total += batch.batch_size
    return right / total


@contextlib.contextmanager
def fewer_threads() -> Iterator[int]:
    """Let PyTorch compute with one thread fewer: threads of a model wait for the slowest of them at every operator, so
    that one which shares its processor with the loader holds all of them up."""
    threads = torch.get_num_threads()
    torch.set_num_threads(max(1, threads - 1))
    try:
        yield torch.get_num_threads()
    finally:
        torch.set_num_threads(threads)


def draw(disk: Run, memory: Run, path: Path) -> None:
    """Write a picture of both runs."""
    figure = new_figure(figsize=(11, 7))
    (loss, times), (rows, sizes) = figure.subplots(2, 2, width_ratios=[5, 6])
    loss.plot(memory.losses, color="0.75", linewidth=5, label=f"in memory: test accuracy {memory.accuracy:.1%}")
    loss.plot(disk.losses, color="C0", linewidth=1, label=f"out of core: test accuracy {disk.accuracy:.1%}")
    loss.set(title="the same batches, the same losses", xlabel="batch", ylabel="training loss", ylim=(0, None))
    open_frame(loss)
    loss.legend(frameon=False)
    draw_time(times, disk.stats)
    draw_cache(rows, disk.stats)
    draw_memory(sizes, disk.stats)
    figure.suptitle("freshgo demo: 3-layer GraphSAGE out of core")
    figure.savefig(path, dpi=120)


def demo(out: Path, num_nodes: int = 400_000, epochs: int = 2, *, progress: bool = True) -> dict[str, Any]:
    """Run the demo; the store and the pictures go to the directory ``out``. Return the figures of both runs."""
    missing = [name for name in ("torch_geometric", "matplotlib") if importlib.util.find_spec(name) is None]
    if missing:
        raise LibraryError(f"the demo also needs {' and '.join(missing)}: pip install 'freshgo[pyg,plot]'")
    # PyG uses what PyTorch has deprecated; that is nothing the reader of this output can mend.
    warnings.filterwarnings("ignore", message=".*torch.jit.script.*")
    out.mkdir(parents=True, exist_ok=True)
    start = time.perf_counter()
    graph, alone = generate(num_nodes)
    features = graph["x"].nbytes
    budget = int(BUDGET * features)
    print(
        f"generated {num_nodes:,} nodes, {graph['edge_index'].shape[1]:,} edges, {NUM_COMMUNITIES} communities; "
        f"features {format_size(features)}, budget {format_size(budget)}\n"
        f"a node's own features tell its community in {alone:.1%} of cases"
    )
    store = convert(graph, out / "demo.freshgo", memory="256MiB", overwrite=True, progress=progress)
    print(store.inspect())

    smallest = max(smallest_budget(store, split, budget) for split in ("train", "test"))
    if smallest > budget:
        print(f"so small a graph needs a larger budget beside its features: {format_size(smallest)}")
        budget = smallest

    with fewer_threads() as threads:
        print(f"threads of the model: {threads}, which leaves the loader a processor where there are several")
        disk = train("out of core", store, epochs, budget, progress)
        memory = train("in memory", graph, epochs, None, progress)
    for run in (disk, memory):
        print(f"{run.name:12} {run.seconds:.1f} s, last loss {run.losses[-1]:.6f}, test accuracy {run.accuracy:.2%}")
    if disk.losses != memory.losses or disk.accuracy != memory.accuracy:
        raise AssertionError("out of core and in memory must give equal losses: please report this")
    print(f"all {len(disk.losses)} losses are equal to the last digit\n\nthe loader out of core:\n{text(disk.stats)}")

    print(f"\nits plan:\n{disk.plan}")

    pictures = out / "demo.png", out / "timeline.png"
    draw(disk, memory, pictures[0])
    disk.plan.plot_timeline().savefig(pictures[1], dpi=120)
    print(f"\npictures: {' and '.join(map(str, pictures))}; {time.perf_counter() - start:.0f} s in all")
    runs = {
        run.name: {"seconds": run.seconds, "losses": run.losses, "test_accuracy": run.accuracy}
        for run in (disk, memory)
    }
    return {"store": store.path, "pictures": list(map(str, pictures)), "runs": runs}
