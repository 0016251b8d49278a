"""Training with history on a real graph: as accurate as without, for fewer rows. Skipped where the data are absent."""

from __future__ import annotations

import copy
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from freshgo import History, Loader

pytest.importorskip("torch_geometric")

from torch_geometric.nn import GraphSAGE

from freshgo.nn import accelerate

SEEDS, EPOCHS, START, HIDDEN, COLUMNS = 3, 8, 3, 64, 64


def load(directory: Path) -> dict[str, Any]:
    """The graph with fewer columns, by a random projection, and three in five nodes for training.

    The pack's own split trains on 200 nodes: accuracies of two seeds then differ by points, and 1 point cannot be seen.
    """
    graph = {name: torch.from_numpy(np.load(directory / f"{name}.npy")) for name in ("edge_index", "y", "x")}
    gen = torch.Generator().manual_seed(0)
    x = graph["x"].float() @ torch.randn(graph["x"].size(1), COLUMNS, generator=gen) / COLUMNS**0.5
    order = torch.randperm(len(x), generator=gen)
    parts = order.tensor_split([3 * len(x) // 5, 4 * len(x) // 5])
    return {**graph, "x": x, "splits": dict(zip(("train", "val", "test"), parts, strict=True))}


def trained(graph: dict[str, Any], seed: int, history: History | None) -> tuple[float, float]:
    """Return the test accuracy of the epoch that validates best, and the rows saved since START."""
    torch.manual_seed(seed)
    model = GraphSAGE(COLUMNS, HIDDEN, 3, int(graph["y"].max()) + 1, dropout=0.5)
    accelerate(model)
    if history:
        history.attach(model)
    optimizer = torch.optim.Adam(model.parameters(), 0.005)
    options: dict[str, Any] = {"batch_size": 250, "shuffle": True, "seed": seed, "num_workers": 1, "transpose": True}
    rows = plain = 0
    best, state = -1.0, {}

    def accuracy(split: str) -> float:
        model.eval()
        nodes = graph["splits"][split]
        with torch.no_grad():
            out = model(graph["x"], graph["edge_index"])[nodes]
        return float((out.argmax(1) == graph["y"][nodes]).float().mean())

    with Loader(graph, [10, 5, 5], "train", **options, history=history) as loader:
        decay = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.0, EPOCHS * len(loader))
        for epoch in range(EPOCHS):
            model.train()
            for batch in loader:
                levels = getattr(batch.blocks()[0], "levels", None)
                needed = torch.arange(batch.n_id.numel()) if levels is None else levels.nodes[0]
                assert torch.equal(batch.x[needed], graph["x"][batch.n_id[needed]])
                if epoch >= START:
                    rows += needed.numel() if levels is None else levels.loaded
                    plain += needed.numel() if levels is None else levels.plain_nodes
                out = model(batch.x, batch.edge_index)[: batch.batch_size]
                optimizer.zero_grad()
                F.cross_entropy(out, batch.y[: batch.batch_size]).backward()
                optimizer.step()
                decay.step()
                if history:
                    history.update()
            if epoch >= EPOCHS - 3:
                score = accuracy("val")
                if score > best:
                    best, state = score, copy.deepcopy(model.state_dict())
        if history:
            assert history.stats()["iterations"] == EPOCHS * len(loader)
    model.load_state_dict(state)
    return accuracy("test"), 1 - rows / plain


@pytest.mark.long
def test_amazon_computers(real_graph: Any) -> None:
    """Within 1 point of plain training in the mean over seeds.

    While embeddings change fast, old ones cost accuracy: history begins at epoch START, and the learning rate decays.
    Entries serve 4 iterations of 33 an epoch, and there is room for all of them; a smaller buffer only reuses less. Two
    standard errors of the paired differences are allowed beside the point.
    """
    graph = load(real_graph("amazon-computers"))
    differences, accuracies = [], []
    for seed in range(SEEDS):
        plain, nothing = trained(graph, seed, None)
        memory = 2 * 4 * HIDDEN * len(graph["x"])
        history = History(t_stale=4, start=float(START), memory=memory, policy="gradient", keep="rows")
        mine, saved = trained(graph, seed, history)
        assert nothing == 0
        assert saved >= 0.15
        accuracies.append(plain)
        differences.append(mine - plain)
    assert min(accuracies) >= 0.75  # the most frequent class is 0.37 of them: there is something to lose
    error = statistics.stdev(differences) / SEEDS**0.5
    assert statistics.mean(differences) >= -0.01 - 2 * error, differences
