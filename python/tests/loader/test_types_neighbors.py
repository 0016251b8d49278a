"""Neighbour lists that stay in memory where edges have types: the batches of a graph in memory, and less is read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from graphs import Graph, hetero_graph, relations
from oracle import digest
from seeds import seed as seed_of

import freshgo
from freshgo import Disk, Labor, LinkLoader, Loader, RandomWalk, errors

pytestmark = pytest.mark.explore

WRITES, BACK = ("author", "writes", "paper"), ("paper", "written by", "author")
OPTIONS: dict[str, Any] = {"batch_size": 64, "shuffle": True, "seed": 7}
LISTS = [
    {"num_workers": 1, "prefetch": 0},
    {"num_workers": 2, "disk": Disk(checksums=True)},
    {"num_workers": 8, "cache": "lru"},
]


@pytest.fixture(scope="module")
def typed() -> Graph:
    graph = hetero_graph()
    rng = np.random.default_rng(seed_of(3))
    for key in relations(graph):
        edges = np.asarray(graph[key]["edge_index"] if isinstance(graph[key], dict) else graph[key])
        graph[key] = {"edge_index": edges, "w": rng.random(edges.shape[1]), "t": rng.integers(50, size=edges.shape[1])}
    return graph


@pytest.fixture(scope="module")
def path(typed: Graph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lists") / "graph.freshgo"
    freshgo.convert(typed, path, progress=False).close()
    return path


def topology(graph: Graph) -> int:
    """Bytes of neighbours and of edge numbers of all relations, as files have them: in memory they take a third."""
    return sum(8 * graph[key]["edge_index"].shape[1] for key in relations(graph))


@pytest.mark.parametrize(
    "drawn",
    [
        {},
        {"replace": True},
        {"weight_attr": "w"},
        {"neighbor_sampler": Labor()},
        {"disjoint": True},
        {"time_attr": "t", "input_time": np.full(1200, 40)},
        {"subgraph_type": "induced"},
        {"subgraph_type": "bidirectional"},
        {"num_neighbors": [RandomWalk(walks=3, length=2, metapath=[BACK, WRITES])] * 2},
    ],
    ids=lambda how: "-".join(how) or "uniform",
)
def test_batches_are_those_in_memory(typed: Graph, path: Path, drawn: dict[str, Any]) -> None:
    options = {"num_neighbors": [3, 2], "input_nodes": "paper", **OPTIONS, **drawn}
    with Loader(typed, num_workers=1, **options) as memory:
        want = [digest(batch) for batch in memory]
    for i, place in enumerate(LISTS):
        with Loader(path, neighbor_cache=topology(typed) // (24 + i), **options, **place) as disk:
            batches = iter(disk)
            got = [digest(next(batches)) for _ in range(4)]
            state = json.loads(json.dumps(disk.state_dict()))
            assert got + [digest(batch) for batch in batches] == want
            stats = disk.stats()
            assert stats["topology_on_disk"]
            assert stats["neighbor_hits"] > 0
            assert stats["neighbor_misses"] > 0
            disk.load_state_dict(state)
            assert [digest(batch) for batch in disk] == want[4:]


def test_links(typed: Graph, path: Path) -> None:
    links = np.asarray(typed[WRITES]["edge_index"])[:, :300]
    options: dict[str, Any] = {
        "num_neighbors": [3, 2],
        "edge_label_index": (WRITES, links),
        "batch_size": 50,
        "seed": 3,
    }
    options |= {"neg_sampling": "binary", "strict_negatives": True}
    with (
        LinkLoader(typed, **options) as memory,
        LinkLoader(path, neighbor_cache=topology(typed) // 3, **options) as disk,
    ):
        assert [digest(b) for b in memory] == [digest(b) for b in disk]
        assert disk.stats()["neighbor_hits"] > 0


def test_more_lists_read_less(typed: Graph, path: Path) -> None:
    """Every edge is a hit or a miss; misses and bytes fall with the room, to nothing."""
    last = (10**9, 10**9)
    for share in (0, 24, 8, 4, 1):
        room = int(topology(typed) / share) if share else 0
        with Loader(path, [3, 2], "paper", neighbor_cache=room, cache="degree", **OPTIONS) as loader:
            before = loader.stats()["bytes_read"]
            edges = sum(batch[key].e_id.numel() for batch in loader for key in batch.edge_types)
            stats = loader.stats()
            assert stats["neighbor_hits"] + stats["neighbor_misses"] == edges
            now = (stats["neighbor_misses"], stats["bytes_read"] - before)
            assert now[0] < last[0]
            assert now[1] <= last[1]  # of so few pages a few lists may save none
            assert loader.plan().data["split"]["neighbor_cache"] <= room
            last = now
    assert last == (0, 0)


def test_smallest_memory(typed: Graph, path: Path) -> None:
    options: dict[str, Any] = {"num_neighbors": [3, 2], "input_nodes": "paper", "neighbor_cache": "20kB", **OPTIONS}
    with pytest.raises(errors.BudgetError, match="these options need at least") as caught:
        Loader(path, memory=1000, **options)
    with (
        Loader(path, memory=caught.value.minimum, **options) as loader,
        Loader(typed, [3, 2], "paper", **OPTIONS) as memory,
    ):
        assert [digest(b) for b in loader] == [digest(b) for b in memory]
        stats = loader.stats()
        assert stats["memory_peak"] <= caught.value.minimum
        assert stats["neighbor_hits"] > 0


def test_bad_sizes(path: Path) -> None:
    for size, error in (
        (-1, errors.InvalidArgumentError),
        ("some", errors.InvalidArgumentError),
        (1.5, errors.DTypeError),
    ):
        with pytest.raises(error, match="neighbor_cache"):
            Loader(path, [2], "paper", neighbor_cache=size)  # type: ignore[arg-type]


def test_real_graph(real_graph: Any, tmp_path: Path) -> None:
    """hetero-dblp, two hops from its authors: with a third of the topology in lists most edges need no disk."""
    folder = real_graph("hetero-dblp")
    graph: dict[Any, Any] = dict(json.loads((folder / "meta.json").read_text(encoding="utf-8"))["num_nodes"])
    graph = {name: {"num_nodes": count} for name, count in graph.items()}
    for file in sorted(folder.glob("edges_*.npy")):
        source, name, target = file.stem.removeprefix("edges_").split("__")
        edges = np.load(file)
        graph[source, name, target] = {"edge_index": edges}
        graph[target, f"rev_{name}", source] = {"edge_index": edges[::-1]}
    options: dict[str, Any] = {"num_neighbors": [10, 10], "input_nodes": "author", "batch_size": 256, "prefetch": 0}
    with freshgo.convert(graph, tmp_path / "g", progress=False) as store, Loader(graph, **options) as memory:
        want = [digest(b) for b in memory]
        read = []
        for share in (0, 1 / 3):
            with Loader(store, neighbor_cache=int(share * topology(graph)), **options) as loader:
                before = loader.stats()["bytes_read"]
                assert [digest(b) for b in loader] == want
                stats = loader.stats()
                read.append(stats["bytes_read"] - before)
    assert read[1] < read[0]
    assert stats["neighbor_hits"] > stats["neighbor_misses"]
