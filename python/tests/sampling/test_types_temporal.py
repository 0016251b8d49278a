"""Disjoint trees, draws by time and other subgraph types over graphs with types."""

from __future__ import annotations

import itertools
import json
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from seeds import seed as seed_of
from typed_oracle import Graph, num_nodes, relations, typed_digest, typed_graph
from typed_trees_oracle import Trees, check_trees

from freshgo import Labor, Loader, convert, errors

pytestmark = pytest.mark.explore

WRITES, CITES = ("author", "writes", "paper"), ("paper", "cites", "paper")
INVALID, DTYPE = errors.InvalidArgumentError, errors.DTypeError


def make() -> Graph:
    graph = typed_graph(scale=60, seed=3)
    rng = np.random.default_rng(seed_of(9))
    count = num_nodes(graph)
    graph["paper"]["born"] = rng.integers(0, 100, count["paper"])
    graph["term"]["born"] = rng.integers(0, 100, count["term"]).astype(np.int32)
    graph[CITES].pop("time")
    for relation in (CITES, WRITES):
        graph[relation]["when"] = rng.integers(0, 100, graph[relation]["edge_index"].shape[1])
    return graph


@pytest.fixture(scope="module")
def graph() -> Graph:
    return make()


@pytest.fixture(scope="module")
def path(graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("timed types") / "graph.freshgo"
    convert(graph, where, progress=False).close()
    return where


def given(count: int, seed: int) -> Any:
    return np.random.default_rng(seed).integers(-5, 110, count)


PAPERS, AUTHORS = [7, 3, 7, 100, 55, 56, 57, 58], [0, 4, 9, 4]
SEVERAL: dict[str, Any] = {"input_nodes": {"author": AUTHORS, "paper": PAPERS}}
TIMES = {"paper": given(8, 1), "author": given(4, 2)}
OPTIONS: dict[str, Any] = {"batch_size": 5, "shuffle": True, "seed": 7}
WAYS: dict[str, dict[str, Any]] = {
    "disjoint": {**SEVERAL, "disjoint": True},
    "nodes": {"input_nodes": ("paper", PAPERS), "time_attr": "born"},
    "nodes, given": {**SEVERAL, "time_attr": "born", "input_time": TIMES, "temporal_strategy": "last"},
    "edges": {**SEVERAL, "time_attr": "when", "input_time": TIMES},
    "edges, one type": {"input_nodes": ("author", AUTHORS), "time_attr": "when", "input_time": TIMES["author"]},
    "last": {**SEVERAL, "time_attr": "when", "input_time": TIMES, "temporal_strategy": "last"},
    "window": {**SEVERAL, "time_attr": "when", "input_time": TIMES, "time_window": 30},
    "replace": {**SEVERAL, "time_attr": "when", "input_time": TIMES, "replace": True},
}


def times_of(graph: Graph, name: str | None) -> dict[Any, Any]:
    """The time of every edge of the relations that have any."""
    found = {}
    for relation in relations(graph):
        if name in graph[relation]:
            found[relation] = graph[relation][name]
        elif name in graph[relation[0]]:
            found[relation] = graph[relation[0]][name][graph[relation]["edge_index"][0]].astype(np.int64)
    return found


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("hops", [[3, 2], [-1], [1, 4, 2]], ids=str)
def test_equals_the_oracle(graph: Graph, path: Path, way: str, hops: list[int]) -> None:
    options = WAYS[way]
    times = times_of(graph, options.get("time_attr"))
    oracle, fanouts = Trees(graph, times), dict.fromkeys(relations(graph), hops)
    how = {
        "last": options.get("temporal_strategy") == "last",
        "window": options.get("time_window"),
        "replace": options.get("replace", False),
    }
    for data, more in ((graph, {}), (path, {"neighbor_cache": 0, "cache": None})):
        with Loader(data, hops, **OPTIONS, **options, **more) as loader:
            for epoch in range(2):
                for i, batch in enumerate(loader):
                    oracle.check(batch, fanouts, (7, epoch, i), **how)
                    check_trees(batch, graph, times, how["window"])


def test_seed_times_are_those_of_the_inputs(graph: Graph) -> None:
    with Loader(graph, [2], **OPTIONS, **WAYS["edges"]) as loader:
        for batch in loader:
            for node_type, times in TIMES.items():
                part = batch[node_type]
                np.testing.assert_array_equal(part.seed_time.numpy(), times[part.input_id.numpy()])
            assert all("seed_time" not in batch[t] for t in ("term", "none", "island"))
            inputs = [batch[t].batch[: batch[t].batch_size] for t in num_nodes(graph) if t in TIMES]
            assert torch.cat(inputs).tolist() == list(range(sum(map(len, inputs))))
    with Loader(graph, [2], **OPTIONS, **WAYS["nodes"]) as loader:
        for batch in loader:
            part = batch["paper"]
            np.testing.assert_array_equal(part.seed_time.numpy(), graph["paper"]["born"][part.n_id[: part.batch_size]])
    with Loader(graph, [2], **OPTIONS, **WAYS["disjoint"]) as loader:
        assert all("seed_time" not in part for part in next(iter(loader)).node_stores)


PLACES: list[dict[str, Any]] = [
    {"num_workers": 8, "prefetch": 8},
    {"neighbor_cache": 0, "cache": "belady", "feature_cache": 8_000, "memory": "64MiB"},
    {"neighbor_cache": 0, "cache": "lru", "feature_cache": 8_000, "checksums": True},
    {"memory": "32MiB", "cache": "degree"},
]


@pytest.mark.parametrize("way", [*WAYS, "bidirectional", "induced"])
def test_place_changes_nothing(graph: Graph, path: Path, way: str) -> None:
    options = WAYS.get(way, {**SEVERAL, "subgraph_type": way})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        with Loader(graph, [4, 3], num_workers=1, prefetch=0, **OPTIONS, **options) as memory:
            want = [[typed_digest(batch) for batch in memory] for _ in range(2)]
        for place in PLACES:
            with Loader(path, [4, 3], **OPTIONS, **options, **place) as disk:
                assert [[typed_digest(batch) for batch in disk] for _ in range(2)] == want, place


def test_a_state_continues_and_belongs_to_its_times(graph: Graph, path: Path) -> None:
    with Loader(graph, [4, 3], **OPTIONS, **WAYS["edges"]) as loader:
        batches = [typed_digest(batch) for batch in loader]
    with Loader(path, [4, 3], **OPTIONS, **WAYS["edges"]) as loader:
        list(itertools.islice(loader, 1))
        state = json.loads(json.dumps(loader.state_dict()))
    with Loader(path, [4, 3], **OPTIONS, **WAYS["edges"]) as loader:
        loader.load_state_dict(state)
        assert [typed_digest(batch) for batch in loader] == batches[1:]
        traced = list(loader.trace(0))
        loader.set_epoch(0)
        for nodes, batch in zip(traced, loader, strict=True):
            assert all(ids.equal(batch[t].n_id) for t, ids in nodes.items())
    for change in ({"temporal_strategy": "last"}, {"input_time": {**TIMES, "author": TIMES["author"] + 1}}):
        with (
            Loader(path, [4, 3], **OPTIONS, **{**WAYS["edges"], **change}) as loader,
            pytest.raises(INVALID, match=r"tempo|time"),
        ):
            loader.load_state_dict(state)


def both_ways(graph: Graph) -> dict[Any, Any]:
    """The relation against each, of which this graph has one at most."""

    def back(relation: Any) -> Any:
        source, _, target = relation
        return next((other for other in relations(graph) if other[::2] == (target, source)), None)

    return {relation: relation if relation[0] == relation[2] else back(relation) for relation in relations(graph)}


def pairs(part: Any) -> set[tuple[int, int]]:
    return set(zip(*part.edge_index.tolist(), strict=True))


def test_bidirectional(graph: Graph) -> None:
    options = {**OPTIONS, **SEVERAL, "transpose": True}
    reverse = both_ways(graph)
    one_way = [r for r, back in reverse.items() if back is None]
    with pytest.warns(UserWarning, match="no reverse edge type") as told:
        loader = Loader(graph, [3, 2], subgraph_type="bidirectional", **options)
    assert len(told) == len(one_way) > 0
    with loader, Loader(graph, [3, 2], **options) as drawn:
        for batch, plain in zip(loader, drawn, strict=True):
            for node_type in batch.node_types:
                assert batch[node_type].n_id.equal(plain[node_type].n_id)
                assert "num_sampled_nodes" not in batch[node_type]
            for relation, back in reverse.items():
                part = batch[relation]
                against = set() if back is None else {(v, u) for u, v in pairs(plain[back])}
                assert pairs(part) == pairs(plain[relation]) | against
                listed = list(zip(*part.edge_index.tolist()[::-1], strict=True))
                assert listed == sorted(set(listed))
                own = back is None or back == relation
                assert ("e_id" in part, "num_sampled_edges" in part) == (own, False)
                for name, table in graph[relation].items():
                    if name != "edge_index" and own:
                        np.testing.assert_array_equal(part[name].numpy(), table[part.e_id.numpy()])
                    assert name == "edge_index" or own == (name in part)


def test_induced(graph: Graph) -> None:
    with (
        Loader(graph, [3, 2], subgraph_type="induced", **OPTIONS, **SEVERAL) as loader,
        Loader(graph, [3, 2], **OPTIONS, **SEVERAL) as drawn,
    ):
        for batch, plain in zip(loader, drawn, strict=True):
            first: dict[str, dict[int, int]] = {}
            for node_type in batch.node_types:
                assert batch[node_type].n_id.equal(plain[node_type].n_id)
                first[node_type] = {v: i for i, v in reversed(list(enumerate(batch[node_type].n_id.tolist())))}
            for relation in relations(graph):
                source, target = graph[relation]["edge_index"]
                want = []
                for at, node in enumerate(batch[relation[2]].n_id.tolist()):
                    edges = np.flatnonzero(target == node).tolist()
                    want += [(first[relation[0]][source[e]], at, e) for e in edges if source[e] in first[relation[0]]]
                part = batch[relation]
                assert list(zip(*part.edge_index.tolist(), part.e_id.tolist(), strict=True)) == want


def test_weights_and_trees(graph: Graph) -> None:
    with Loader(graph, [3, 2], **OPTIONS, **SEVERAL, disjoint=True, weight_attr="weight") as loader:
        for batch in loader:
            check_trees(batch, graph, {})


def test_bidirectional_trees(graph: Graph) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        with Loader(graph, [3, 2], **OPTIONS, **SEVERAL, disjoint=True, subgraph_type="bidirectional") as loader:
            for batch in loader:
                for relation in relations(graph):
                    source, target = batch[relation].edge_index
                    assert batch[relation[0]].batch[source].equal(batch[relation[2]].batch[target])


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"time_attr": "whenever"}, INVALID, r"whenever.*no tensor of any type.*paper\.born"),
        ({"time_attr": "weight"}, INVALID, r"edge type \(author, writes, paper\).*one integer"),
        ({"time_attr": "x"}, INVALID, r"node type \"paper\".*one integer"),
        ({"time_attr": "both", "input_time": [1] * 180}, INVALID, r"names tensors of nodes .* and of edges"),
        ({"time_attr": "when"}, INVALID, r"node type \"paper\" has no time_attr .*input_time must give"),
        ({"time_attr": "born", "input_nodes": "author"}, INVALID, r"node type \"author\" has no time_attr"),
        ({"time_attr": "when", "input_time": [1]}, INVALID, r"input_time has 1 times, expected one for each of 180"),
        ({"time_attr": "when", "input_time": {"paper": [1]}}, INVALID, r"input_time\['paper'\] has 1 .* each of 180"),
        ({"time_attr": "when", "input_time": {"author": [1]}}, INVALID, r"times of 'author', expected .*'paper'"),
        ({"time_attr": "when", "input_time": {"paper": [1.5]}}, DTYPE, r"input_time\['paper'\] must be integers"),
        (
            {**SEVERAL, "time_attr": "when", "input_time": [1] * 12},
            INVALID,
            r"a mapping from each of .*'paper', 'author'",
        ),
        ({"disjoint": True, "sampler": "labor"}, INVALID, r"LABOR"),
        ({"time_attr": "born", "weight_attr": "weight"}, INVALID, r"time_attr and weight_attr"),
        ({"disjoint": True, "subgraph_type": "induced"}, INVALID, r"induced"),
        ({"sampler": Labor(), "subgraph_type": "bidirectional"}, INVALID, r"LABOR"),
    ],
)
def test_bad_input(graph: Graph, options: dict[str, Any], error: type[Exception], match: str) -> None:
    odd = {key: dict(part) for key, part in graph.items()}
    odd["author"]["both"] = np.zeros(num_nodes(graph)["author"], np.int64)
    odd[CITES]["both"] = graph[CITES]["when"]
    with pytest.raises(error, match=match):
        Loader(odd, **{"num_neighbors": [2], "input_nodes": "paper", **options})


def test_a_mapping_of_times_is_for_types(graph: Graph) -> None:
    plain = {"edge_index": graph[CITES]["edge_index"], "num_nodes": 180, "when": graph[CITES]["when"]}
    with pytest.raises(DTYPE, match="input_time is a mapping"):
        Loader(plain, [2], time_attr="when", input_time={"paper": [1]})


def test_names_of_trees_are_taken(graph: Graph) -> None:
    odd = {key: dict(part) for key, part in graph.items()}
    odd["term"]["batch"] = np.zeros(num_nodes(graph)["term"], np.int64)
    with pytest.raises(INVALID, match='tensor "batch"'):
        Loader(odd, [2], "paper", disjoint=True)


@pytest.mark.parametrize("strategy", ["uniform", "last"])
def test_mathoverflow(real_graph: Any, tmp_path: Path, strategy: str) -> None:
    """Every edge for 2,000 events of a real graph whose edges are of two types, in memory and on disk."""
    root = real_graph("sx-mathoverflow")
    edge_index, time = np.load(root / "edge_index.npy"), np.load(root / "time.npy").astype(np.int64)
    graph: Graph = {"user": {"num_nodes": int(edge_index.max()) + 1}}
    for i, name in enumerate(("even", "odd")):
        graph["user", name, "user"] = {"edge_index": edge_index[:, i::2], "time": time[i::2]}
    times = times_of(graph, "time")
    convert(graph, tmp_path / "graph.freshgo", progress=False).close()
    events = np.random.default_rng(1).choice(edge_index.shape[1], 2_000, replace=False)
    options: dict[str, Any] = {
        "input_nodes": ("user", edge_index[1, events]),
        "batch_size": 500,
        "time_attr": "time",
        "input_time": time[events] - 1,
        "temporal_strategy": strategy,
    }
    oracle = Trees(graph, times)
    with (
        Loader(graph, [10, 5], **options) as memory,
        Loader(tmp_path / "graph.freshgo", [10, 5], neighbor_cache=0, **options) as disk,
    ):
        for i, (one, other) in enumerate(zip(memory, disk, strict=True)):
            check_trees(one, graph, times)
            assert typed_digest(one) == typed_digest(other)
            if i == 0:
                oracle.check(one, {relation: [10, 5] for relation in times}, (0, 0, 0), last=strategy == "last")
