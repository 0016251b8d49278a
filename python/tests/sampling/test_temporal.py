"""Disjoint trees and draws by time through the whole library."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import random_graph
from oracle import assert_equal, check_rows
from seeds import seed as seed_of
from temporal_oracle import Oracle, no_future

import freshgo
from freshgo import Labor, Loader, RandomWalk, errors

pytestmark = pytest.mark.explore

NODES, EDGES = 400, 3000


@pytest.fixture(scope="module")
def timed() -> dict[str, Any]:
    graph = random_graph(num_nodes=NODES, num_edges=EDGES, seed=5)
    rng = np.random.default_rng(seed_of(2))
    return {
        "num_nodes": NODES,
        "x": graph["x"],
        "edge_index": graph["edge_index"],
        "edge_time": rng.integers(0, 100, EDGES).astype(np.int64),
        "born": rng.integers(-50, 50, NODES).astype(np.int32),
        "weight": rng.random(EDGES, dtype=np.float32),
    }


@pytest.fixture(scope="module")
def timed_store(timed: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("timed") / "graph.freshgo"
    freshgo.convert(timed, path, progress=False).close()
    return path


INPUT_TIME = np.random.default_rng(seed_of(3)).integers(-5, 110, NODES)
EDGE_TIMES: dict[str, Any] = {"time_attr": "edge_time", "input_time": INPUT_TIME}
OPTIONS: dict[str, Any] = {"batch_size": 50, "shuffle": True, "seed": 7}
WAYS: dict[str, dict[str, Any]] = {
    "uniform": EDGE_TIMES,
    "last": {**EDGE_TIMES, "temporal_strategy": "last"},
    "window": {**EDGE_TIMES, "time_window": 30},
    "last of a window": {**EDGE_TIMES, "time_window": 30, "temporal_strategy": "last"},
    "replace": {**EDGE_TIMES, "replace": True},
    "last with replacement": {**EDGE_TIMES, "replace": True, "temporal_strategy": "last"},
    "nodes": {"time_attr": "born"},
    "nodes, given": {"time_attr": "born", "input_time": torch.from_numpy(INPUT_TIME) - 50},
    "disjoint": {"disjoint": True},
}


def edge_times(graph: dict[str, Any], options: dict[str, Any]) -> Any:
    return {
        "edge_time": graph["edge_time"],
        "born": graph["born"][graph["edge_index"][0]],
        None: None,
    }[options.get("time_attr")]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("fanouts", [[3, 2], [1, 1, 1], [-1, 4], [100]])
def test_equals_the_oracle(timed: dict[str, Any], way: str, fanouts: list[int]) -> None:
    options = WAYS[way]
    times = edge_times(timed, options)
    oracle = Oracle(timed, times)
    how = {
        "last": options.get("temporal_strategy") == "last",
        "window": options.get("time_window"),
        "replace": options.get("replace", False),
    }
    with Loader(timed, fanouts, **OPTIONS, **options) as loader:
        for epoch in range(2):
            for i, batch in enumerate(loader):
                oracle.check(batch, fanouts, (7, epoch, i), **how)
                check_rows(batch, timed, batch.n_id.numpy(), batch.e_id.numpy())
                if times is None:
                    assert "seed_time" not in batch
                    continue
                no_future(batch, times, how["window"])
                given = options.get("input_time")
                want = timed["born"][batch.n_id[:50].numpy()] if given is None else np.asarray(given)[batch.input_id]
                np.testing.assert_array_equal(batch.seed_time.numpy(), want)


@pytest.mark.parametrize("way", WAYS)
def test_place_changes_nothing(timed: dict[str, Any], timed_store: Path, way: str) -> None:
    places: list[dict[str, Any]] = [
        {"num_workers": 1, "prefetch": 0},
        {"num_workers": 8, "prefetch": 8},
        {"neighbor_cache": 0, "cache": None},
        {"neighbor_cache": 0, "cache": "belady", "feature_cache": 40_000, "memory": "64MiB"},
        {"neighbor_cache": 30_000, "cache": "lru", "feature_cache": 40_000},
    ]
    with Loader(timed, [4, 3], **OPTIONS, **WAYS[way]) as memory:
        want = [list(memory) for _ in range(2)]
    for place in places:
        with Loader(timed_store, [4, 3], **OPTIONS, **WAYS[way], **place) as disk:
            for epoch in want:
                for one, other in zip(epoch, disk, strict=True):
                    assert_equal(one, other)


def test_a_state_continues_and_belongs_to_its_times(timed: dict[str, Any], timed_store: Path) -> None:
    with Loader(timed, [4, 3], **OPTIONS, **EDGE_TIMES) as loader:
        batches = list(loader)
    with Loader(timed_store, [4, 3], **OPTIONS, **EDGE_TIMES) as loader:
        list(itertools.islice(loader, 3))
        state = json.loads(json.dumps(loader.state_dict()))
    with Loader(timed_store, [4, 3], **OPTIONS, **EDGE_TIMES) as loader:
        loader.load_state_dict(state)
        for one, other in zip(batches[3:], loader, strict=True):
            assert_equal(one, other)
    changes: list[dict[str, Any]] = [
        {"temporal_strategy": "last"},
        {"time_window": 5},
        {"input_time": INPUT_TIME + 1},
        {"time_attr": "born"},
        {"time_attr": None, "input_time": None},
    ]
    for change in changes:
        options = {**OPTIONS, **EDGE_TIMES, **change}
        with (
            Loader(timed_store, [4, 3], **options) as loader,
            pytest.raises(errors.InvalidArgumentError, match=r"tempo|time"),
        ):
            loader.load_state_dict(state)


def test_trace_and_blocks(timed: dict[str, Any], timed_store: Path) -> None:
    with Loader(timed_store, [4, 3], **OPTIONS, **EDGE_TIMES) as loader:
        traced = list(loader.trace(0))
        for n_id, batch in zip(traced, loader, strict=True):
            assert n_id.tolist() == batch.n_id.tolist()
            outer, inner = batch.blocks()
            assert outer.num_src == batch.num_nodes
            assert inner.num_dst == batch.batch_size


def test_input_nodes_that_repeat_have_trees_of_their_own(timed: dict[str, Any]) -> None:
    with Loader(timed, [-1], [9, 9, 9], batch_size=3, time_attr="edge_time", input_time=[0, 50, 200]) as loader:
        batch = next(iter(loader))
    mine = timed["edge_time"][timed["edge_index"][1] == 9]
    counts = np.bincount(batch.edge_index[1].numpy(), minlength=3)
    assert counts.tolist() == [(mine <= t).sum() for t in (0, 50, 200)]


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"time_attr": "when"}, errors.InvalidArgumentError, r"'?\"?when.*edge_time.*born"),
        ({"time_attr": "weight"}, errors.InvalidArgumentError, r"float32.*one integer"),
        ({"time_attr": "x"}, errors.InvalidArgumentError, r"one integer"),
        ({"time_attr": 3}, errors.DTypeError, r"time_attr must be the name.*3"),
        ({"time_attr": ""}, errors.InvalidArgumentError, r"time_attr must be the name"),
        ({"time_attr": "edge_time"}, errors.InvalidArgumentError, r"input_time must give a time for each input node"),
        ({**EDGE_TIMES, "input_time": [1, 2]}, errors.InvalidArgumentError, r"input_time has 2.*400"),
        ({**EDGE_TIMES, "input_time": np.zeros(NODES)}, errors.DTypeError, r"integers.*float64"),
        ({**EDGE_TIMES, "input_time": [[1]]}, errors.InvalidArgumentError, r"one-dimensional"),
        ({**EDGE_TIMES, "input_time": "now"}, errors.DTypeError, r"input_time must be integers"),
        ({**EDGE_TIMES, "input_time": torch.ones(NODES).long().to_sparse()}, errors.DTypeError, r"must be dense"),
        ({**EDGE_TIMES, "time_window": 0}, errors.InvalidArgumentError, r"time_window must be at least 1, got 0"),
        ({**EDGE_TIMES, "time_window": 1.5}, errors.DTypeError, r"time_window"),
        ({**EDGE_TIMES, "temporal_strategy": "first"}, errors.InvalidArgumentError, r"'uniform', 'last'.*'first'"),
        ({**EDGE_TIMES, "weight_attr": "weight"}, errors.InvalidArgumentError, r"time_attr and weight_attr"),
        ({**EDGE_TIMES, "sampler": "labor"}, errors.InvalidArgumentError, r"LABOR"),
        ({"disjoint": True, "sampler": Labor()}, errors.InvalidArgumentError, r"LABOR"),
        ({"disjoint": True, "num_neighbors": [RandomWalk()]}, errors.InvalidArgumentError, r"random walks"),
        ({"disjoint": 1}, errors.DTypeError, r"disjoint"),
        ({"temporal_strategy": "last"}, errors.InvalidArgumentError, r"temporal_strategy needs time_attr"),
        ({"time_window": 3}, errors.InvalidArgumentError, r"time_window needs time_attr"),
        ({"input_time": [1]}, errors.InvalidArgumentError, r"input_time needs time_attr"),
    ],
)
def test_bad_input(timed: dict[str, Any], options: dict[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        Loader(timed, **{"num_neighbors": [2], **options})


def test_no_history(timed: dict[str, Any]) -> None:
    with pytest.raises(errors.InvalidArgumentError, match="a history and disjoint trees"):
        Loader(timed, [2], disjoint=True, history=freshgo.History())


def test_times_given_to_a_loader_are_its_own(timed: dict[str, Any]) -> None:
    times = torch.from_numpy(INPUT_TIME).clone()
    with Loader(timed, [3], batch_size=NODES, time_attr="edge_time", input_time=times) as loader:
        want = next(iter(loader))
        times.fill_(10**9)
        loader.set_epoch(0)
        assert_equal(want, next(iter(loader)))


@pytest.mark.parametrize("strategy", ["uniform", "last"])
def test_mathoverflow(real_graph: Any, tmp_path: Path, strategy: str) -> None:
    """Every edge of an epoch for 2,000 events of a real graph, from memory and from a store with topology on disk."""
    root = real_graph("sx-mathoverflow")
    edge_index, time = np.load(root / "edge_index.npy"), np.load(root / "time.npy").astype(np.int64)
    graph = {"num_nodes": int(edge_index.max()) + 1, "edge_index": edge_index, "time": time}
    events = np.random.default_rng(1).choice(edge_index.shape[1], 2_000, replace=False)
    month = 30 * 86_400
    options: dict[str, Any] = {
        "input_nodes": edge_index[1, events],
        "batch_size": 500,
        "time_attr": "time",
        "input_time": time[events] - 1,
        "temporal_strategy": strategy,
    }
    freshgo.convert(graph, tmp_path / "graph.freshgo", progress=False).close()
    oracle = Oracle(graph, time)
    for window in (None, month):
        with (
            Loader(graph, [10, 5], time_window=window, **options) as memory,
            Loader(tmp_path / "graph.freshgo", [10, 5], time_window=window, neighbor_cache=0, **options) as disk,
        ):
            for i, (one, other) in enumerate(zip(memory, disk, strict=True)):
                no_future(one, time, window)
                assert_equal(one, other)
                assert one.num_sampled_edges[0] > 0
                if i == 0:
                    oracle.check(one, [10, 5], (0, 0, 0), last=strategy == "last", window=window)
