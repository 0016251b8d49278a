"""A node that almost all edges lead to, under every sampler: what is drawn is right, and the memory bounded."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import freshgo
from freshgo import LinkLoader, Loader, samplers
from freshgo._native.process import counters

EDGES = int(os.environ.get("FRESHGO_TEST_HUB", str(300_000)))
"""Of the hub: 10,000,000 in make widths."""
NODES = 2000
HUB = 7
"""It has edges from every node, one after the other, again and again."""


@pytest.fixture(scope="module")
def hub(tmp_path_factory: pytest.TempPathFactory) -> Path:
    number = np.arange(EDGES + NODES)
    source = number % NODES
    target = np.where(number < EDGES, HUB, (source + 1) % NODES)
    path = tmp_path_factory.mktemp("hub") / "g"
    graph = {
        "num_nodes": NODES,
        "edge_index": np.stack([source, target]),
        "x": np.arange(NODES, dtype=np.float32)[:, None],
        "w": (1 + number % 3).astype(np.float32),
        "when": number,
    }
    freshgo.convert(graph, path, memory="64MiB", weight_attr="w", progress=False).close()
    return path


SAMPLERS: dict[str, Callable[[Path], Loader]] = {
    "uniform": lambda p: Loader(p, [20, 5], [HUB, 3]),
    "with replacement": lambda p: Loader(p, [20, 5], [HUB, 3], replace=True),
    "lists on disk": lambda p: Loader(p, [20, 5], [HUB, 3], neighbor_cache=0),
    "trees": lambda p: Loader(p, [20, 5], [HUB, 3], disjoint=True),
    "weights": lambda p: Loader(p, [20, 5], [HUB, 3], weight_attr="w"),
    "weights on disk": lambda p: Loader(p, [20, 5], [HUB, 3], weight_attr="w", neighbor_cache=0),
    "LABOR": lambda p: Loader(p, [20, 5], [HUB, 3], neighbor_sampler="labor"),
    "latest": lambda p: Loader(
        p, [20, 5], [HUB, 3], time_attr="when", temporal_strategy="last", input_time=[EDGES, EDGES // 2]
    ),
    "any before": lambda p: Loader(p, [20, 5], [HUB, 3], time_attr="when", input_time=[EDGES, EDGES // 2]),
    "walks": lambda p: Loader(p, [samplers.RandomWalk(walks=30, length=2, top=20)] * 2, [HUB, 3]),
    "induced": lambda p: Loader(p, [20, 5], [HUB, 3], subgraph_type="induced"),
    "links": lambda p: LinkLoader(
        p, [20, 5], [[1, 2], [HUB, 3]], neg_sampling="binary", strict_negatives=False, exclude_seed_edges=True
    ),
    "all": lambda p: Loader(p, [-1], [3, HUB]),
}


@pytest.mark.parametrize("name", SAMPLERS)
def test_hub(hub: Path, name: str) -> None:
    before = counters()
    with SAMPLERS[name](hub) as loader:
        for batch in loader:
            source, target = batch.n_id[batch.edge_index[0]], batch.n_id[batch.edge_index[1]]
            assert torch.equal(batch.x[:, 0], batch.n_id.float())
            if name == "walks":
                continue
            assert torch.equal(batch.e_id % NODES, source)
            expected = torch.where(batch.e_id < EDGES, HUB, (source + 1) % NODES)
            assert torch.equal(expected, target)
            if name not in ("all", "induced"):
                assert torch.bincount(batch.edge_index[1], minlength=1).max() <= 20
            if name not in ("with replacement", "trees", "latest", "any before"):
                assert batch.e_id.unique().numel() == batch.e_id.numel()
            if name == "latest" and batch.n_id[0] == HUB:
                of_hub = batch.e_id[batch.edge_index[1] == 0]
                assert torch.equal(of_hub.sort().values, torch.arange(EDGES - 20, EDGES))
        if name == "all":
            assert batch.e_id.numel() == EDGES + 1
    del batch
    after = counters()
    assert after["loaders"] == before["loaders"]
