"""LABOR through the whole library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from graphs import random_graph
from oracle import assert_batches_equal, check_batch
from sampler_oracle import Graph, check_sampled
from seeds import seed as seed_of

import freshgo
from freshgo import Labor, Loader, errors

pytestmark = pytest.mark.explore


@pytest.fixture(scope="module")
def plain() -> dict[str, Any]:
    graph = random_graph(num_nodes=800, num_edges=12_000, seed=5)
    graph["weight"] = graph.pop("edge_weight")
    del graph["splits"], graph["train_mask"]
    return graph


OPTIONS: dict[str, Any] = {"batch_size": 64, "shuffle": True, "seed": 7}


@pytest.mark.parametrize("fanouts", [[5, 3], [1], [-1, 2]])
def test_equals_the_oracle(plain: dict[str, Any], fanouts: list[int]) -> None:
    oracle = Graph(plain)
    with Loader(plain, fanouts, neighbor_sampler="labor", **OPTIONS) as loader:
        for i, batch in enumerate(loader):
            if i % 4 == 0:
                check_sampled(batch, oracle.labor, fanouts, (7, 0, i))
                arrays = {name: value for name, value in plain.items() if name != "num_nodes"}
                seeds = np.arange(800)
                check_batch(batch, {**arrays, "num_nodes": 800}, fanouts, seeds)


@pytest.mark.parametrize("sampler", [Labor(), Labor(layer_dependency=True, batch_dependency=4)])
@pytest.mark.parametrize("weight_attr", [None, "weight"])
def test_place_changes_nothing(plain: dict[str, Any], tmp_path: Path, sampler: Labor, weight_attr: str | None) -> None:
    options = {**OPTIONS, "neighbor_sampler": sampler, "weight_attr": weight_attr}
    freshgo.convert(plain, tmp_path / "graph.freshgo", progress=False).close()
    with Loader(plain, [5, 3], num_workers=1, **options) as memory:
        want = [list(memory), list(memory)]
    for place in (
        {"num_workers": 8},
        {"neighbor_cache": 0, "cache": "belady", "feature_cache": 40_000, "memory": "64MiB"},
        {"neighbor_cache": 60_000, "cache": "degree", "feature_cache": 20_000},
    ):
        with Loader(tmp_path / "graph.freshgo", [5, 3], **options, **place) as disk:
            for batches in want:
                assert_batches_equal(batches, disk)


def test_fewer_nodes_as_many_edges(plain: dict[str, Any]) -> None:
    def sizes(sampler: Any) -> tuple[int, int]:
        with Loader(plain, [6, 4], neighbor_sampler=sampler, **OPTIONS) as loader:
            batches = list(loader)
        return sum(b.num_nodes for b in batches), sum(b.num_sampled_edges[0] for b in batches)

    uniform, labor, layers = sizes(None), sizes(Labor()), sizes(Labor(layer_dependency=True))
    assert layers[0] < labor[0] < uniform[0]
    assert layers[1] == labor[1] == uniform[1]


@pytest.mark.parametrize("weight_attr", [None, "weight"])
def test_edge_weight_estimates_the_mean(plain: dict[str, Any], weight_attr: str | None) -> None:
    """Over a simple graph, the mean over epochs of the weighted sums is that over all neighbours."""
    edges = np.unique(plain["edge_index"], axis=1)
    weight = np.random.default_rng(seed_of(2)).random(edges.shape[1])
    value = np.random.default_rng(seed_of(3)).random(800)
    graph = {"num_nodes": 800, "edge_index": edges, "weight": weight}
    estimates = []
    with Loader(graph, [3], batch_size=800, neighbor_sampler="labor", weight_attr=weight_attr) as loader:
        for _ in range(400):
            batch = next(iter(loader))
            messages = batch.edge_weight.double() * torch.from_numpy(value)[batch.n_id[batch.edge_index[0]]]
            estimates.append(np.bincount(batch.edge_index[1].numpy(), messages.numpy(), minlength=800)[:800])
    by_edge = weight if weight_attr else np.ones(len(weight))
    total = np.bincount(edges[1], by_edge, minlength=800)
    exact = np.bincount(edges[1], by_edge * value[edges[0]], minlength=800) / np.maximum(total, 1e-9)
    deviation = np.std(estimates, axis=0) / np.sqrt(len(estimates))
    assert (np.abs(np.mean(estimates, axis=0) - exact) <= 5.5 * deviation + 1e-6).all()


def test_blocks_and_state(plain: dict[str, Any]) -> None:
    with Loader(plain, [5, 3], neighbor_sampler="labor", **OPTIONS) as loader:
        batch = next(iter(loader))
        for block in batch.blocks():
            assert block.edge_weight is not None
            assert block.edge_weight.equal(batch.edge_weight[: block.num_edges])
        state = loader.state_dict()
    with (
        Loader(plain, [5, 3], neighbor_sampler=Labor(batch_dependency=2), **OPTIONS) as other,
        pytest.raises(errors.InvalidArgumentError, match=r"labor was \[False, 1\], is \[False, 2\]"),
    ):
        other.load_state_dict(state)


def test_names_that_clash() -> None:
    graph = random_graph(num_nodes=100, num_edges=500)
    with pytest.raises(errors.InvalidArgumentError, match="edge_weight"):
        Loader(graph, [2], neighbor_sampler="labor")
    with Loader(graph, [2], neighbor_sampler=Labor(edge_weight=False), batch_size=100) as loader:
        batch = next(iter(loader))
        np.testing.assert_array_equal(batch.edge_weight.numpy(), graph["edge_weight"][batch.e_id.numpy()])


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: Labor(batch_dependency=0), errors.InvalidArgumentError, "batch_dependency must be at least 1, got 0"),
        (lambda: Labor(layer_dependency=2), errors.DTypeError, "layer_dependency"),
        (lambda: Loader({}, [2], neighbor_sampler=Labor), errors.DTypeError, "neighbor_sampler must be 'labor'"),
        (
            lambda: Loader({}, [2], neighbor_sampler="labour"),
            errors.InvalidArgumentError,
            "neighbor_sampler must be 'labor', .*did you mean 'labor'",
        ),
        (
            lambda: Loader(random_graph(20, 40), [2], neighbor_sampler="labor", replace=True),
            errors.InvalidArgumentError,
            "replace=True",
        ),
    ],
)
def test_bad_input(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()
