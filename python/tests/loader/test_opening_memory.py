"""Opening a loader stays within its memory, whatever batches it is asked for."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from warm import run

from freshgo import History, Loader, convert, errors
from freshgo._data import source

GROWTH = """
import json, sys, warnings
warnings.simplefilter("ignore")
from pathlib import Path
import torch
from freshgo import Loader, errors

def status(name):
    return int(Path("/proc/self/status").read_text().split(name)[1].split()[0]) << 10

path, options = sys.argv[1], json.loads(sys.argv[2])
with Loader(path, [1], range(10), memory="32MiB", num_workers=1, prefetch=1) as loader:  # imports what a batch needs
    list(loader)
Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
before, minimum = status("VmRSS:"), None
try:
    Loader(path, **options).close()
except errors.BudgetError as error:
    minimum = error.minimum
print(json.dumps([status("VmHWM:") - before, minimum]))
"""


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    rng = np.random.default_rng(3)
    nodes, edges = 200_000, 4_000_000
    skewed = (rng.random(edges) ** 2 * nodes).astype(np.int64)
    path = tmp_path_factory.mktemp("wide") / "graph"
    graph = {"num_nodes": nodes, "edge_index": np.stack([skewed, rng.integers(nodes, size=edges)])}
    convert(graph, path, progress=False).close()
    return path


@pytest.mark.parametrize(
    "options",
    [
        {"num_neighbors": [-1, -1, -1], "batch_size": 1024},
        {"num_neighbors": [15, 10], "batch_size": 100_000, "shuffle": True},
        {"num_neighbors": [500, 500], "batch_size": 1024, "replace": True},
        {"num_neighbors": [10**9], "replace": True},
    ],
    ids=str,
)
def test_batches_are_measured_within_the_memory(path: Path, options: dict[str, Any]) -> None:
    growth, minimum = json.loads(run(GROWTH, path, json.dumps({**options, "memory": "48MiB"}), timeout=300))
    assert minimum > 48 << 20
    assert growth < (48 + 64) << 20


@pytest.mark.parametrize("fanouts", [[10**9], [10**9, 10**9], [2**40]])
def test_neighbors_that_no_memory_holds(fanouts: list[int]) -> None:
    graph = {"edge_index": torch.tensor([[0, 1, 2], [1, 2, 3]])}
    with pytest.raises(errors.BudgetError, match="these options need about") as caught:
        Loader(graph, fanouts, replace=True, memory="64MiB")
    assert caught.value.minimum > 10**9


def test_counts_without_bounds() -> None:
    graph = {"edge_index": torch.randint(1000, (2, 5000)), "x": torch.zeros(1000, 8)}
    with Loader(graph, [2], batch_size=10, prefetch=10**9, num_workers=10**6, memory="256MiB") as loader:
        assert sum(batch.batch_size for batch in loader) == 1000
        assert 1 <= loader.stats()["num_workers"] <= 1024
        assert 1 <= loader.stats()["prefetch"] <= 1024
    with Loader(graph, [2], batch_size=10, prefetch=10**9, num_workers=10**6) as loader:
        assert sum(batch.batch_size for batch in loader) == 1000
        assert (loader.stats()["num_workers"], loader.stats()["prefetch"]) == (1024, 1024)


def test_batches_ahead_follow_the_threads(tmp_path: Path) -> None:
    """There is one a thread, at least four, and with a history four, whose lag they bound."""
    graph = {"edge_index": torch.randint(1000, (2, 5000)), "x": torch.zeros(1000, 8)}
    convert(graph, tmp_path / "graph", progress=False).close()
    given: dict[str, Any] = {"num_neighbors": [2, 2], "batch_size": 10, "memory": "256MiB"}
    for threads, want in ((1, 4), (4, 4), (9, 9), (16, 16)):
        for data in (graph, tmp_path / "graph"):
            with Loader(data, **given, num_workers=threads) as loader:
                assert loader.stats()["prefetch"] == want
    with Loader(tmp_path / "graph", **given, num_workers=16, prefetch=3) as loader:
        assert loader.stats()["prefetch"] == 3
    history = History(policy="gradient", keep="rows", memory="1MiB")
    with Loader(tmp_path / "graph", **given, num_workers=16, history=history) as loader:
        assert loader.stats()["prefetch"] == 4


def test_a_graph_in_memory_has_what_is_available(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beside its index; batches are measured only where any could exceed it."""
    graph = {"edge_index": torch.randint(1000, (2, 50_000)), "x": torch.zeros(1000, 8)}
    monkeypatch.setattr(source, "available_memory", lambda: 1 << 30)
    with Loader(graph, [2], batch_size=10, num_workers=2) as loader:
        stats = loader.stats()
        assert (1 << 29) < stats["memory_limit"] < (1 << 29) + (1 << 20)  # with the index
        assert stats["memory_smallest"] == 0  # unknown: nothing was measured
    with pytest.raises(errors.BudgetError, match="these options need about") as caught:
        Loader(graph, [10**9], replace=True)
    assert caught.value.minimum > 10**9
    monkeypatch.setattr(source, "available_memory", lambda: 4 << 20)
    with Loader(graph, [5, 5], batch_size=500, num_workers=2) as loader:
        stats = loader.stats()
        assert 0 < stats["memory_smallest"] <= stats["memory_limit"] < 4 << 20
        assert sum(batch.batch_size for batch in loader) == 1000
        assert loader.stats()["memory_peak"] <= stats["memory_limit"]
    with pytest.raises(errors.BudgetError, match="these options need at least"):
        Loader(graph, [-1, -1], batch_size=1000)
    monkeypatch.setattr(source, "available_memory", lambda: 1 << 20)
    with pytest.raises(errors.BudgetError):  # for the index
        Loader(graph, [2])


def test_a_store_has_half_of_what_is_available(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that does not fit was loaded whole where batches were small, and the loader was refused."""
    rng = np.random.default_rng(0)
    graph = {"edge_index": rng.integers(20_000, size=(2, 100_000)), "x": rng.random((20_000, 256), np.float32)}
    convert(graph, tmp_path / "graph", progress=False).close()
    with Loader(graph, [5], batch_size=20, shuffle=True) as loader:
        want = [next(iter(loader)).x for _ in range(3)]
    for megabytes in (12, 16, 24, 32, 64, 1024):
        monkeypatch.setattr(source, "available_memory", lambda room=2 * megabytes << 20: room)
        for threads in (1, 64):
            with Loader(tmp_path / "graph", [5], batch_size=20, shuffle=True, num_workers=threads) as loader:
                assert all(torch.equal(next(iter(loader)).x, x) for x in want)
                stats = loader.stats()
                assert stats["memory_peak"] <= stats["memory_limit"] == megabytes << 20
                assert megabytes > 16 or stats["memory_smallest"] > 0  # batches were measured


ALL_OF_A_TYPE = """
from pathlib import Path
import torch
from freshgo._args.types import Types

def status(name):
    return int(Path("/proc/self/status").read_text().split(name)[1].split()[0]) << 10

types = Types({"a": 10, "b": 8_000_000}, [("a", "to", "b")])
none = lambda *_: ()
types.inputs("a", none, none)
Path("/proc/self/clear_refs").write_text("5")  # the peak starts anew
before = status("VmRSS:")
seeds = types.inputs("b", none, none).seeds
assert int(seeds[0]) == 10 and int(seeds[-1]) == 8_000_009
print(status("VmHWM:") - before - seeds.nbytes)
"""


def test_all_nodes_of_a_type_are_listed_once() -> None:
    assert int(run(ALL_OF_A_TYPE)) < 24 << 20
