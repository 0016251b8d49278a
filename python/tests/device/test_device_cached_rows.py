"""A device that holds the hottest rows of a graph of any form, on streams over memory of the host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import left
import numpy as np
import pytest
import torch
from device_fakes import ROW, LateStreams, in_place_of_cuda
from graphs import Form, Graph, random_graph
from oracle import assert_batches_equal

import freshgo
from freshgo import Loader, errors
from freshgo._device import row_cache

CPU = torch.device("cpu")
GIVEN: dict[str, Any] = {"num_neighbors": [4, 3], "batch_size": 64, "shuffle": True, "seed": 3}


fake = in_place_of_cuda()


nothing_left = left.fixture("module")


def check(data: Any, room: str, inputs: Any, **more: Any) -> dict[str, Any]:
    """Batches with a cache on the device are those without."""
    given = {**GIVEN, "input_nodes": inputs, **more}
    with Loader(data, **given) as plain, Loader(data, **given, device="cuda", device_cache=room) as moved:
        assert_batches_equal(plain, moved)
        stats = moved.stats()
        assert stats["rows"] == plain.stats()["rows"]
        assert stats["held"] + stats["hits"] + stats["packed"] + stats["misses"] == stats["rows"]
        assert stats["epochs"][0]["held"] == stats["held"]
        return stats


@pytest.mark.parametrize("where", ["memory", "store"])
@pytest.mark.parametrize("cache", ["auto", "none", "degree", "presc", "lru", "oracle"])
def test_cached_rows_are_not_sent(form: Form, where: str, cache: str) -> None:
    data = form.data if where == "memory" else form.path
    stats = check(data, "40kB", form.inputs("train"), cache=cache, memory="32MiB", feature_cache="50kB")
    assert 0 < stats["device_cache_bytes"] <= 40_000
    assert 0 < stats["held"] < stats["rows"]
    if form.several:
        return
    assert stats["device_cache_rows"] == 40_000 // ROW
    assert stats["device_cache_bytes"] == ROW * stats["device_cache_rows"]
    sent = sum(copy.numel() for copy in LateStreams.last.copies if copy.dim() == 2 and copy.dtype == torch.float32)
    assert sent <= 24 * (stats["rows"] - stats["held"])  # a repeated seed is sent once
    # The hottest rows take more than their share.
    assert stats["held"] / stats["rows"] > 1.3 * stats["device_cache_rows"] / 3000


@pytest.mark.parametrize(
    ("stored", "width"), [("float16", 48), ("bfloat16", 48), ("int8-per-row", 32), ("int8-per-column", 24)]
)
@pytest.mark.parametrize("feature_dtype", ["float32", "stored"])
def test_rows_are_held_as_they_are_stored(
    graph: dict[str, Any], tmp_path: Path, stored: str, width: int, feature_dtype: str
) -> None:
    with freshgo.convert(graph, tmp_path / "graph", dtype={"x": stored}, progress=False) as store:
        stats = check(store, "20kB", "train", feature_dtype=feature_dtype, memory="32MiB", feature_cache="50kB")
        held = ROW - 96 + width
        assert stats["device_cache_rows"] == 20_000 // held
        assert stats["device_cache_bytes"] == held * stats["device_cache_rows"]
        assert 0 < stats["held"] < stats["rows"]


def test_cached_rows_are_used_by_the_stream_of_the_consumer(store: Any) -> None:
    with Loader(store, **GIVEN, input_nodes="train", device="cuda", device_cache="100kB") as moved:
        for batch in moved:
            assert batch.x.data_ptr() in LateStreams.last.used
        assert "on the device" in moved._repr_html_()
        moved.plot()


def test_seeds_that_repeat_and_room_for_everything(typed: Graph, typed_path: Path) -> None:
    repeated = {"paper": [5, 7, 5, 5, 9, 1100], "author": np.array([3, 3, 0, 799])}
    for data in (typed, typed_path):
        check(data, "20kB", repeated)
        stats = check(data, "1GiB", repeated)
        # All but the rows of terms, which have no tensors and are nothing to hold.
        assert stats["device_cache_rows"] == 1200 + 800 + 200
        assert stats["held"] > 0.5 * stats["rows"]


def test_a_cache_with_room_for_everything() -> None:
    data = random_graph(500, 4000)
    given: dict[str, Any] = {**GIVEN, "edge_index": "EdgeIndex", "transpose": True}
    with Loader(data, **given) as plain, Loader(data, **given, device="cuda", device_cache="1GiB") as moved:
        assert_batches_equal(plain, moved)
        assert moved.stats()["held"] == moved.stats()["rows"] > 0


def test_the_ranking_is_that_of_the_cache(graph: dict[str, Any]) -> None:
    scores = torch.zeros(3000)
    scores[100:140] = 1.0
    with Loader(graph, **GIVEN, input_nodes="train", cache=scores, device="cuda", device_cache=20 * ROW) as loader:
        delivery: Any = loader._engine.delivery
        held = delivery._cache.row_of_node
        assert held[100:120].tolist() == list(range(20))  # of equal scores, the lower ids
        assert int((held >= 0).sum()) == 20
        x = torch.from_numpy(graph["x"])
        assert delivery._cache.tables["x"].equal(x[100:120])
    with Loader(graph, **GIVEN, input_nodes="train", device="cuda", device_cache="100kB") as loader:
        check_best(loader)


def check_best(loader: Loader) -> None:
    """The rows on the device serve two epochs hardly worse than those that these need most often."""
    delivery: Any = loader._engine.delivery
    held = delivery._cache.row_of_node >= 0
    counts = torch.bincount(torch.cat([*loader.trace(0), *loader.trace(1)]), minlength=held.numel())
    best = counts.sort(descending=True).values[: int(held.sum())].sum()
    assert counts[held].sum() >= 0.97 * best > 0


def test_walks_have_a_ranking(graph: dict[str, Any]) -> None:
    given = {**GIVEN, "num_neighbors": [freshgo.RandomWalk(4, 3, 5)] * 2}
    with Loader(graph, **given, input_nodes="train", device="cuda", device_cache="100kB") as loader:
        check_best(loader)


def test_the_ranking_is_over_all_types(typed: Graph) -> None:
    scores = {"paper": torch.zeros(1200), "author": torch.zeros(800), "term": torch.ones(100), "none": torch.zeros(0)}
    scores["island"] = torch.zeros(200)
    scores["author"][100:140] = 1.0
    scores["paper"][7] = 2.0
    room = 30 * 141 + 110  # 30 rows of authors and one of papers
    given = {**GIVEN, "input_nodes": "paper", "cache": scores}
    with Loader(typed, **given, device="cuda", device_cache=room) as loader:
        delivery: Any = loader._engine.delivery
        held = delivery._cache.row_of_node
        assert held[7] == 0
        assert held[1200 + 100 : 1200 + 130].tolist() == list(range(30))  # of equal scores, the lower ids
        assert int((held >= 0).sum()) == 31
        assert delivery._cache.tables["n0/x"].equal(torch.from_numpy(typed["paper"]["x"][7:8]))
        assert delivery._cache.tables["n1/age"].equal(torch.from_numpy(typed["author"]["age"][100:130]))


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"device_cache": 100}, r"room for a row of every node-level tensor, 115 bytes, got 100"),
        ({"device_cache": "all"}, r"a string such as '2GiB', 'auto' or None, got 'all'"),
    ],
)
def test_wrong_caches(graph: dict[str, Any], change: dict[str, Any], match: str) -> None:
    with pytest.raises(errors.InvalidArgumentError, match=match):
        Loader(graph, **GIVEN, device="cuda", **change)
    for bad, words in (({"place": graph["y"]}, "uses the name 'place'"), ({}, "the graph has none")):
        data = {"num_nodes": 3000, "edge_index": graph["edge_index"], **bad}
        with pytest.raises(errors.InvalidArgumentError, match=words):
            Loader(data, [2], device="cuda", device_cache="1MiB")


def test_wrong_caches_of_types(typed: Graph) -> None:
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


def test_a_cache_that_the_device_has_no_room_for(graph: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*args: Any) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory. Tried to allocate 3 GiB.")

    monkeypatch.setattr(row_cache.DeviceCache, "fill", full)
    with pytest.raises(errors.InvalidArgumentError, match=r"device_cache of 4.9 KiB does not fit .*: give less, .*3 G"):
        Loader(graph, **GIVEN, device="cuda", device_cache=5000)
