"""Weighted draws through the whole library."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from graphs import random_graph
from oracle import assert_batches_equal, assert_equal
from sampler_oracle import Graph, check_sampled
from seeds import seed as seed_of

import freshgo
from freshgo import Loader, errors

pytestmark = pytest.mark.explore


@pytest.fixture(scope="module")
def weighted() -> dict[str, Any]:
    graph = random_graph(num_nodes=600, num_edges=3000, seed=3)
    del graph["splits"], graph["train_mask"]
    weight = np.random.default_rng(seed_of(1)).integers(0, 5, 3000).astype(np.float32)  # a fifth of them 0
    weight[graph["edge_index"][1] % 17 == 4] = 0
    keep = np.bincount(graph["edge_index"][1], minlength=600)[graph["edge_index"][1]] <= 64  # what the oracle does
    return {
        "num_nodes": 600,
        "x": graph["x"],
        "edge_index": graph["edge_index"][:, keep],
        "weight": weight[keep],
    }


@pytest.fixture(scope="module")
def weighted_store(weighted: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("weighted") / "graph.freshgo"
    freshgo.convert(weighted, path, progress=False).close()
    return path


OPTIONS: dict[str, Any] = {"batch_size": 64, "shuffle": True, "seed": 7, "weight_attr": "weight"}


@pytest.mark.parametrize("fanouts", [[3, 2], [1, 1, 1], [-1, 4], [100]])
def test_equals_the_oracle(weighted: dict[str, Any], fanouts: list[int]) -> None:
    oracle = Graph(weighted, weighted["weight"])
    with Loader(weighted, fanouts, **OPTIONS) as loader:
        for epoch in range(2):
            for i, batch in enumerate(loader):
                check_sampled(batch, oracle.weighted, fanouts, (7, epoch, i))
                assert (batch.weight > 0).all()
                np.testing.assert_array_equal(batch.weight.numpy(), weighted["weight"][batch.e_id.numpy()])


@pytest.mark.parametrize(
    "options",
    [
        {"num_workers": 1, "prefetch": 0},
        {"num_workers": 8, "prefetch": 8},
        {"cache": "degree"},
        {"neighbor_cache": 0, "cache": None},
        {"neighbor_cache": 0, "cache": "belady", "feature_cache": 40_000, "memory": "64MiB"},
        {"neighbor_cache": 30_000, "cache": "lru", "feature_cache": 40_000},
    ],
)
def test_place_changes_nothing(weighted: dict[str, Any], weighted_store: Path, options: dict[str, Any]) -> None:
    with Loader(weighted, [4, 3], **OPTIONS) as memory, Loader(weighted_store, [4, 3], **OPTIONS, **options) as disk:
        for _ in range(2):
            assert_batches_equal(memory, disk)


def test_with_replacement(weighted: dict[str, Any]) -> None:
    with Loader(weighted, [5], batch_size=600, replace=True, weight_attr="weight") as loader:
        batch = next(iter(loader))
    total = np.bincount(weighted["edge_index"][1], weighted["weight"], minlength=600)
    drawn = np.bincount(batch.edge_index[1].numpy(), minlength=600)
    np.testing.assert_array_equal(drawn, np.where(total > 0, 5, 0))


def test_probabilities() -> None:
    """Node 0 has in-edges of weights 1, 2, 3, 4; what is drawn first and second follows them."""
    graph = {
        "num_nodes": 5,
        "edge_index": np.array([[1, 2, 3, 4], [0, 0, 0, 0]]),
        "w": np.array([1, 2, 3, 4], dtype=np.int64),
    }
    count, batches = np.zeros(4), 4000
    with Loader(graph, [2], np.zeros(batches, dtype=np.int64), batch_size=1, weight_attr="w") as loader:
        for batch in loader:
            count[batch.e_id.numpy()] += 1
    p = np.array([1, 2, 3, 4]) / 10
    inclusion = p + sum(p[j] * p / (1 - p[j]) * (np.arange(4) != j) for j in range(4))
    deviation = np.sqrt(batches * inclusion * (1 - inclusion))
    assert (np.abs(count - batches * inclusion) < 5 * deviation).all()


def test_resume_and_trace(weighted: dict[str, Any], weighted_store: Path) -> None:
    with Loader(weighted_store, [4, 3], **OPTIONS) as loader:
        batches = list(loader)
        for ids, batch in zip(loader.trace(0), batches, strict=True):
            assert ids.equal(batch.n_id)
        loader.set_epoch(0)
        iterator = iter(loader)
        for _ in range(3):
            next(iterator)
        state = json.loads(json.dumps(loader.state_dict()))
    with Loader(weighted_store, [4, 3], **OPTIONS) as other:
        other.load_state_dict(state)
        assert_equal(next(iter(other)), batches[3])
    options = {**OPTIONS, "weight_attr": None}
    with (
        Loader(weighted_store, [4, 3], **options) as uniform,
        pytest.raises(errors.InvalidArgumentError, match="weight_attr was 'weight', is None"),
    ):
        uniform.load_state_dict(state)


def test_hotness_follows_weights(weighted: dict[str, Any]) -> None:
    options: dict[str, Any] = {"num_neighbors": [4, 3], "batch_size": 64, "weight_attr": "weight", "seed": 7}
    counts = freshgo.hotness(weighted, "presc", shuffle=True, **options)
    with Loader(weighted, [4, 3], **OPTIONS) as loader:
        recount = torch.zeros(600)
        for ids in loader.trace(0):
            recount[ids.unique()] += 1
    assert counts.equal(recount)


@pytest.mark.parametrize(
    ("weight", "error", "message"),
    [
        ("missing", errors.InvalidArgumentError, r"weight_attr 'missing' is no edge tensor, .*'weight'"),
        (
            3,
            errors.DTypeError,
            "weight_attr must be the name of an edge-level tensor, or a dict of names by edge type, got 3",
        ),
        ("", errors.InvalidArgumentError, "got an empty string"),
        ("x", errors.InvalidArgumentError, r"weight_attr 'x' is no edge tensor"),
    ],
)
def test_bad_names(weighted: dict[str, Any], weight: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        Loader(weighted, [2], weight_attr=weight)


@pytest.mark.parametrize("value", [-1.0, float("nan"), float("inf")])
def test_bad_weights(weighted: dict[str, Any], tmp_path: Path, value: float) -> None:
    bad = weighted["weight"].copy()
    bad[77] = value
    graph = {**weighted, "weight": bad}
    with freshgo.convert(graph, tmp_path / "bad.freshgo", progress=False) as store:
        for data, options in ((graph, {}), (store, {}), (store, {"neighbor_cache": 0})):
            with pytest.raises(
                errors.InvalidArgumentError, match="for edge 77, expected a finite number of at least 0"
            ):
                Loader(data, [2], weight_attr="weight", **options)


def test_bad_shapes(weighted: dict[str, Any]) -> None:
    wide = {**weighted, "weight": np.stack([weighted["weight"]] * 2, axis=1)}
    with pytest.raises(errors.InvalidArgumentError, match="expected one number"):
        Loader(wide, [2], weight_attr="weight")
    with pytest.raises(errors.InvalidArgumentError, match="expected one row per node or one per edge"):
        Loader({**weighted, "weight": weighted["weight"][:-1]}, [2], weight_attr="weight")


def test_trains_with_pyg(weighted: dict[str, Any]) -> None:
    pyg = pytest.importorskip("torch_geometric")
    data = pyg.data.Data(
        x=torch.from_numpy(weighted["x"]),
        edge_index=torch.from_numpy(weighted["edge_index"]),
        weight=torch.from_numpy(weighted["weight"]),
    )
    conv = pyg.nn.SAGEConv(24, 4)
    with Loader(data, [4, 3], batch_size=64, weight_attr="weight", transpose=True) as loader:
        for batch in loader:
            conv(batch.x, batch.edge_index).sum().backward()
    assert torch.isfinite(conv.lin_l.weight.grad).all()
