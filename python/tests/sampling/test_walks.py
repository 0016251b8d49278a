"""Random walks through the whole library."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graphs import random_graph
from oracle import assert_batches_equal
from sampler_oracle import Graph, check_sampled

import freshgo
from freshgo import Labor, Loader, RandomWalk, errors

pytestmark = pytest.mark.explore


SMALL: dict[str, Any] = {"edge_index": np.arange(40).reshape(2, 20) % 13, "w": np.ones(20, np.float32)}


@pytest.fixture(scope="module")
def plain() -> dict[str, Any]:
    graph = random_graph(num_nodes=500, num_edges=3000, seed=5)
    del graph["splits"], graph["train_mask"]
    return graph


OPTIONS: dict[str, Any] = {"batch_size": 64, "shuffle": True, "seed": 7}


@pytest.mark.parametrize(
    "walk", [RandomWalk(), RandomWalk(walks=2, length=6, top=-1, restart=0.2), RandomWalk(9, 1, 3, 0)]
)
def test_equals_the_oracle(plain: dict[str, Any], walk: RandomWalk) -> None:
    neighbors = Graph(plain).walks(walk.walks, walk.length, walk.restart)
    with Loader(plain, [walk, walk], **OPTIONS) as loader:
        for i, batch in enumerate(loader):
            if i % 3 == 0:
                check_sampled(batch, neighbors, [walk.top] * 2, (7, 0, i))
            assert "e_id" not in batch
            np.testing.assert_array_equal(batch.x.numpy(), plain["x"][batch.n_id.numpy()])


def test_hops_of_their_own(plain: dict[str, Any]) -> None:
    first, second = RandomWalk(walks=1, length=1, top=1), RandomWalk(walks=3, length=2, top=4, restart=0)
    with Loader(plain, [first, second], **OPTIONS) as loader:
        for batch in loader:
            edges = batch.num_sampled_edges[0]
            assert (batch.edge_weight[:edges] == 1).all()
            assert (batch.edge_index[1][:edges].bincount() <= 1).all()
            assert (batch.edge_index[1].bincount() <= 4).all()


@pytest.mark.parametrize(
    "place",
    [
        {"num_workers": 8},
        {"neighbor_cache": 0, "cache": "belady", "feature_cache": 30_000, "memory": "64MiB"},
        {"neighbor_cache": 9_000, "cache": "presc", "feature_cache": 20_000},
    ],
)
def test_place_changes_nothing(plain: dict[str, Any], tmp_path: Path, place: dict[str, Any]) -> None:
    freshgo.convert(plain, tmp_path / "graph.freshgo", progress=False).close()
    walks = [RandomWalk(), RandomWalk(top=3)]
    with (
        Loader(plain, walks, num_workers=1, transpose=True, **OPTIONS) as memory,
        Loader(tmp_path / "graph.freshgo", walks, transpose=True, **OPTIONS, **place) as disk,
    ):
        for _ in range(2):
            assert_batches_equal(memory, disk)


def test_blocks_trace_and_state(plain: dict[str, Any]) -> None:
    with Loader(plain, [RandomWalk()] * 2, **OPTIONS) as loader:
        batches = list(loader)
        for ids, batch in zip(loader.trace(0), batches, strict=True):
            assert ids.equal(batch.n_id)
        for block in batches[0].blocks():
            assert block.e_id is None
            assert block.edge_weight is not None
            assert block.edge_weight.numel() == block.num_edges
        state = loader.state_dict()
        assert "num_neighbors=[5, 5]" in repr(loader)
    with (
        Loader(plain, [RandomWalk(restart=0.4)] * 2, **OPTIONS) as other,
        pytest.raises(errors.InvalidArgumentError, match="walks was"),
    ):
        other.load_state_dict(state)


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: RandomWalk(walks=0), errors.InvalidArgumentError, "walks must be at least 1, got 0"),
        (lambda: RandomWalk(length=0), errors.InvalidArgumentError, "length must be at least 1, got 0"),
        (
            lambda: RandomWalk(walks=2**11, length=2**10),
            errors.InvalidArgumentError,
            "walks \\* length must be at most",
        ),
        (lambda: RandomWalk(top=0), errors.InvalidArgumentError, "top must be at least 1, or -1 for all, got 0"),
        (lambda: RandomWalk(restart=1), errors.InvalidArgumentError, r"restart must be in \[0, 1\)"),
        (lambda: RandomWalk(restart=float("nan")), errors.InvalidArgumentError, "restart"),
        (lambda: RandomWalk(restart="no"), errors.DTypeError, "restart must be a number"),  # type: ignore[arg-type]
        (lambda: Loader({}, [RandomWalk(), 5]), errors.InvalidArgumentError, "RandomWalk in all hops"),  # type: ignore[list-item]
        (lambda: Loader({}, RandomWalk()), errors.DTypeError, "a RandomWalk for each hop"),  # type: ignore[arg-type]
        (lambda: Loader({}, [2], neighbor_sampler=RandomWalk()), errors.DTypeError, "goes into num_neighbors"),  # type: ignore[arg-type]
        (
            lambda: Loader(SMALL, [RandomWalk()], neighbor_sampler=Labor()),
            errors.InvalidArgumentError,
            "random walks cannot be combined with LABOR",
        ),
        (
            lambda: Loader(SMALL, [RandomWalk()], weight_attr="w"),
            errors.InvalidArgumentError,
            "random walks cannot be combined with weight_attr",
        ),
        (lambda: Loader(SMALL, [RandomWalk()], replace=True), errors.InvalidArgumentError, "replace=True"),
    ],
)
def test_bad_input(make: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        make()


def test_expected_does_not_follow_walks(plain: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="presc"):
        Loader(plain, [RandomWalk()], cache="expected")
    assert freshgo.hotness(plain, "presc", num_neighbors=[RandomWalk()], batch_size=64).sum() > 0
