"""A device that holds the hottest rows of a graph with types, on streams over memory of the host."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from device_fakes import LateStreams
from graphs import Graph, hetero_graph

import freshgo
from freshgo import Loader, errors
from freshgo._device import delivery, row_cache

CPU = torch.device("cpu")
GIVEN: dict[str, Any] = {"num_neighbors": [4, 3], "batch_size": 64, "shuffle": True, "seed": 3}


@pytest.fixture(autouse=True)
def fake(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A loader that is asked for CUDA takes streams over memory of the host."""
    monkeypatch.setattr(delivery, "resolve", lambda device: None if device in (None, "cpu") else CPU)
    monkeypatch.setattr(delivery, "CudaStreams", LateStreams)
    monkeypatch.setattr(row_cache, "assembler", lambda device: LateStreams.last.assemble)
    yield
    LateStreams.last = None  # type: ignore[assignment]


@pytest.fixture(scope="module")
def typed() -> Graph:
    return hetero_graph()


@pytest.fixture(scope="module")
def typed_path(typed: Graph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("typed") / "graph.freshgo"
    freshgo.convert(typed, path, progress=False).close()
    return path


def contents(batch: Any) -> dict[str, Any]:
    found = {}
    for key in [*batch.node_types, *batch.edge_types]:
        for name, value in batch[key].items():
            found[f"{key}.{name}"] = value.clone() if isinstance(value, torch.Tensor) else value
    return found


def check(data: Any, room: str, inputs: Any, **more: Any) -> dict[str, Any]:
    given = {**GIVEN, "input_nodes": inputs, **more}
    with Loader(data, **given) as plain, Loader(data, **given, device="cuda", device_cache=room) as moved:
        for want, got in zip(plain, moved, strict=True):
            a, b = contents(want), contents(got)
            assert a.keys() == b.keys()
            for name, value in a.items():
                if isinstance(value, torch.Tensor):
                    assert value.dtype == b[name].dtype, name
                    assert value.equal(b[name]), name
                else:
                    assert value == b[name], name
        stats = moved.stats()
        assert stats["rows"] == plain.stats()["rows"]
        assert stats["held"] + stats["hits"] + stats["packed"] + stats["misses"] == stats["rows"]
        return stats


@pytest.mark.parametrize("where", ["memory", "store"])
@pytest.mark.parametrize("cache", ["auto", "none", "degree", "presc", "lru"])
def test_cached_rows_are_not_sent(typed: Graph, typed_path: Path, where: str, cache: str) -> None:
    data = typed if where == "memory" else typed_path
    stats = check(data, "40kB", ("paper", "train"), cache=cache, feature_cache="50kB")
    assert 0 < stats["device_cache_bytes"] <= 40_000
    assert 0 < stats["held"] < stats["rows"]


def test_seeds_that_repeat_and_room_for_everything(typed: Graph, typed_path: Path) -> None:
    repeated = {"paper": [5, 7, 5, 5, 9, 1100], "author": np.array([3, 3, 0, 799])}
    for data in (typed, typed_path):
        check(data, "20kB", repeated)
        stats = check(data, "1GiB", repeated)
        # All but the rows of terms, which have no tensors and are nothing to hold.
        assert stats["device_cache_rows"] == 1200 + 800 + 200
        assert stats["held"] > 0.5 * stats["rows"]


def test_the_ranking_is_that_of_the_cache(typed: Graph) -> None:
    scores = {"paper": torch.zeros(1200), "author": torch.zeros(800), "term": torch.ones(100), "none": torch.zeros(0)}
    scores["island"] = torch.zeros(200)
    scores["author"][100:140] = 1.0
    scores["paper"][7] = 2.0
    room = 30 * 141 + 110  # 30 rows of authors and one of papers
    given = {**GIVEN, "input_nodes": "paper", "cache": scores}
    with Loader(typed, **given, device="cuda", device_cache=room) as loader:
        delivery: Any = loader._delivery
        held = delivery._cache.held
        assert held[7] == 0
        assert held[1200 + 100 : 1200 + 130].tolist() == list(range(30))  # of equal scores, the lower ids
        assert int((held >= 0).sum()) == 31
        assert delivery._cache.tables["n0/x"].equal(torch.from_numpy(typed["paper"]["x"][7:8]))
        assert delivery._cache.tables["n1/age"].equal(torch.from_numpy(typed["author"]["age"][100:130]))


def test_wrong_caches(typed: Graph) -> None:
    def load(data: Any, room: Any) -> None:
        Loader(data, **GIVEN, input_nodes="paper", device="cuda", device_cache=room)

    with pytest.raises(
        errors.InvalidArgumentError, match="room for a row of every node-level tensor, 141 bytes, got 99"
    ):
        load(typed, 99)
    with pytest.raises(errors.InvalidArgumentError, match="uses the name 'place'"):
        load({**typed, "paper": {**typed["paper"], "place": typed["paper"]["y"]}}, "1MB")
    edges = {key: {"edge_index": part["edge_index"]} for key, part in typed.items() if isinstance(key, tuple)}
    nodes = {"paper": 1200, "author": 800, "term": 100, "none": 0, "island": 200}
    with pytest.raises(errors.InvalidArgumentError, match="the graph has none"):
        load({**{name: {"num_nodes": count} for name, count in nodes.items()}, **edges}, "1MB")
