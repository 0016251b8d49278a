"""Random walks along metapaths of graphs with types, through the whole library."""

from __future__ import annotations

import dataclasses
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from graphs import Graph, hetero_graph, num_nodes, pyg_data
from oracle import digest
from sampler_oracle import Edge, Stream
from seeds import seed as seed_of

import freshgo
from freshgo import HeteroBatch, Labor, Loader, RandomWalk, errors

pytestmark = pytest.mark.explore

WRITES, CITES, BACK = ("author", "writes", "paper"), ("paper", "cites", "paper"), ("paper", "written by", "author")
HAS, IN = ("paper", "has", "term"), ("term", "in", "paper")
OPTIONS: dict[str, Any] = {"batch_size": 64, "shuffle": True, "seed": 7}
COAUTHORS = RandomWalk(metapath=[BACK, WRITES])

Named = dict[tuple[str, str, str], list[RandomWalk]]


class Walks:
    """The neighbours of a node as the documentation says, walk after walk, with the same keyed random numbers."""

    def __init__(self, graph: Graph, path: Any, place: int) -> None:
        self.lists, self.place = [], place
        for edge_type in reversed(path):  # a walk begins where the metapath ends
            part = graph[edge_type]
            source, target = part["edge_index"] if isinstance(part, dict) else part
            lists: list[list[int]] = [[] for _ in range(num_nodes_of(graph, edge_type[2]))]
            for edge in np.argsort(target, kind="stable").tolist():
                lists[target[edge]].append(int(source[edge]))
            self.lists.append(lists)

    def neighbors(self, walk: RandomWalk, node: int, hop: int, key: tuple[int, int, int]) -> list[Edge]:
        if not self.lists[0][node]:
            return []
        seed, epoch, batch = key
        own, visits = Stream(16, self.place, seed).state, Counter[int]()
        for number in range(walk.walks):
            stream, at, ended = Stream(1, own, epoch, batch, hop, node, number), node, False
            for step in range(walk.length):
                back = step > 0 and stream.unit() < walk.restart
                if back or ended or not self.lists[0][at]:
                    at = node
                ended = False
                for lists in self.lists:
                    if ended := not lists[at]:
                        break
                    at = lists[at][stream.below(len(lists[at]))]
                if not ended:
                    visits[at] += 1
        ranked = sorted(visits.items(), key=lambda item: (-item[1], item[0]))
        return [(v, None, float(n)) for v, n in (ranked if walk.top == -1 else ranked[: walk.top])]


def num_nodes_of(graph: Graph, node_type: str) -> int:
    return int(num_nodes(graph)[node_type])


def check_walked(batch: Any, graph: Graph, named: Named, key: tuple[int, int, int]) -> None:
    """Assert everything about a batch of walks."""
    counts = num_nodes(graph)
    assert batch.node_types == list(counts)
    assert batch.edge_types == list(named)
    nodes = {t: batch[t].n_id[: batch[t].num_sampled_nodes[0]].tolist() for t in counts}
    local: dict[str, dict[int, int]] = {t: {} for t in counts}
    for node_type, ids in nodes.items():
        for i, v in enumerate(ids):
            local[node_type].setdefault(v, i)
    walks = [Walks(graph, hops[0].metapath, place) for place, hops in enumerate(named.values())]
    first, hops = dict.fromkeys(counts, 0), len(next(iter(named.values())))
    expected: dict[Any, Any] = {name: ([], [], [], []) for name in named}
    found = {t: [len(ids)] for t, ids in nodes.items()}
    for hop in range(hops):
        end = {t: len(ids) for t, ids in nodes.items()}
        for of, (name, each) in zip(walks, named.items(), strict=True):
            rows, cols, visits, per_hop = expected[name]
            before = len(rows)
            for col in range(first[name[2]], end[name[2]]):
                for v, _, weight in of.neighbors(each[hop], nodes[name[2]][col], hop, key):
                    if v not in local[name[0]]:
                        local[name[0]][v] = len(nodes[name[0]])
                        nodes[name[0]].append(v)
                    rows.append(local[name[0]][v])
                    cols.append(col)
                    visits.append(weight)
            per_hop.append(len(rows) - before)
        for t, ids in nodes.items():
            found[t].append(len(ids) - end[t])
        first = end
    for node_type, ids in nodes.items():
        part = batch[node_type]
        assert part.n_id.tolist() == ids
        assert part.num_sampled_nodes == found[node_type]
        for tensor, table in graph[node_type].items():
            if isinstance(table, np.ndarray):
                np.testing.assert_array_equal(part[tensor].numpy(), table[ids], err_msg=tensor)
    for name, (rows, cols, visits, per_hop) in expected.items():
        part = batch[name]
        assert part.edge_index.tolist() == [rows, cols]
        assert part.edge_weight.tolist() == visits
        assert part.num_sampled_edges == per_hop
        assert set(part.keys()) == {"edge_index", "edge_weight", "num_sampled_edges"}


@pytest.fixture(scope="module")
def typed() -> Graph:
    return hetero_graph(scale=120)


@pytest.fixture(scope="module")
def typed_path(typed: Graph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("metapaths") / "graph.freshgo"
    freshgo.convert(typed, path, progress=False).close()
    return path


NAMED: Named = {
    ("paper", "near", "paper"): [COAUTHORS, RandomWalk(2, 4, -1, 0.2, [BACK, WRITES])],
    ("author", "near", "author"): [RandomWalk(metapath=[WRITES, CITES, BACK])] * 2,
    ("author", "wrote", "term"): [RandomWalk(9, 1, 4, metapath=[WRITES, HAS])] * 2,
}


@pytest.mark.parametrize(
    ("num_neighbors", "inputs"),
    [
        ([COAUTHORS, dataclasses.replace(COAUTHORS, walks=9, length=1, top=-1)], "paper"),
        ([RandomWalk(restart=0, metapath=[CITES])], ("paper", "train")),
        ([RandomWalk(metapath=[BACK, ("author", "knows", "author"), WRITES])], "paper"),  # along no edges
        (NAMED, {"paper": "train", "author": [3, 1, 3], "term": None}),
    ],
)
def test_equals_the_oracle(typed: Graph, typed_path: Path, num_neighbors: Any, inputs: Any) -> None:
    named = num_neighbors if isinstance(num_neighbors, dict) else {("paper", "metapath_0", "paper"): num_neighbors}
    for data in (typed, typed_path):
        with Loader(data, num_neighbors, inputs, **OPTIONS) as loader:
            for i, batch in enumerate(loader):
                if i % 3 == 0:
                    check_walked(batch, typed, named, (7, 0, i))


@pytest.mark.parametrize("seed", range(6))
def test_degenerate_graphs(seed: int) -> None:
    """Self-loops, repeated edges, dead ends, types and relations of nothing."""
    rng = np.random.default_rng(seed_of(seed))
    counts = {"a": 1 + int(rng.integers(12)), "b": int(rng.integers(8)), "c": int(rng.integers(3))}
    graph: Graph = {name: {"num_nodes": n} for name, n in counts.items()}
    for i, (source, target) in enumerate([("a", "b"), ("b", "a"), ("a", "a"), ("b", "c"), ("c", "a"), ("b", "b")]):
        size = int(rng.integers(30)) if counts[source] and counts[target] else 0
        graph[source, f"r{i}", target] = {
            "edge_index": np.stack([rng.integers(max(counts[t], 1), size=size) for t in (source, target)])
        }
    r = [key for key in graph if isinstance(key, tuple)]
    there, around = [r[0], r[1]], [r[2], r[0], r[3], r[4]]
    named = {
        ("a", "x", "a"): [RandomWalk(5, 3, 3, 0.4, there), RandomWalk(2, 2, -1, 0, there)],
        ("a", "y", "a"): [RandomWalk(3, 2, 2, 0.1, around)] * 2,
        ("b", "z", "b"): [RandomWalk(3, 2, 2, 0.1, [r[5]])] * 2,
        ("a", "w", "c"): [RandomWalk(3, 1, 2, 0.1, [r[0], r[3]])] * 2,
    }
    inputs = {name: None for name, n in counts.items() if n}
    with Loader(graph, named, inputs, batch_size=4, seed=seed) as loader:
        for i, batch in enumerate(loader):
            check_walked(batch, graph, named, (seed, 0, i))


def bipartite() -> Graph:
    """Users 0 to 3 with items 0 to 2; a user buys item 2 only once of many, user 3 nothing."""
    buys = np.array([[0, 0, 1, 1, 1, 2], [0, 1, 1, 1, 2, 2]])
    return {
        "user": {"num_nodes": 4},
        "item": {"num_nodes": 4},
        ("user", "buys", "item"): {"edge_index": buys},
        ("item", "rev_buys", "user"): {"edge_index": buys[::-1].copy()},
    }


REV, BUYS = ("item", "rev_buys", "user"), ("user", "buys", "item")


@pytest.mark.parametrize(("length", "restart"), [(1, 0.0), (4, 0.0), (3, 0.5)])
@pytest.mark.parametrize("path", [[REV, BUYS], [BUYS, REV]])
def test_visits_are_those_of_the_transition_matrix(path: Any, length: int, restart: float) -> None:
    graph, count = bipartite(), 200_000
    matrices = []
    for edge_type in reversed(path):  # from target to source
        matrix = np.zeros((4, 4))
        np.add.at(matrix, tuple(graph[edge_type]["edge_index"][::-1]), 1)
        matrices.append(matrix / np.maximum(matrix.sum(1, keepdims=True), 1))
    step = matrices[0] @ matrices[1]
    walk = RandomWalk(count, length, -1, restart, path)
    with Loader(graph, [walk], (path[0][0], [0, 1, 2, 3]), batch_size=4) as loader:
        (batch,) = loader
    part = batch[path[0][0], "metapath_0", path[0][0]]
    found = np.zeros((4, 4))
    found[tuple(batch[path[0][0]].n_id[part.edge_index.flip(0)].numpy())] = part.edge_weight.numpy()
    assert not found[3].any()  # a node that no edge leads to
    for start in range(3):
        at, expected = np.eye(4)[start], np.zeros(4)
        for number in range(length):
            at = at if number == 0 else (1 - restart) * at + restart * np.eye(4)[start]
            at = at @ step
            expected += at
        # A number of visits between 0 and length has a variance of at most mean * (length - mean).
        deviation = np.sqrt(expected * (length - expected) / count)
        assert (np.abs(found[start] / count - expected) <= 5.5 * deviation).all()
        assert found[start].sum() == count * length


@pytest.mark.usefixtures("without_mkl")
def test_edges_are_those_of_add_metapaths(typed: Graph) -> None:
    """What many walks of one step visit is what PyG's transform joins, and goes the same way."""
    transforms = pytest.importorskip("torch_geometric.transforms")
    path = [WRITES, CITES, HAS]
    small = {**typed, **{key: typed[key] for key in path}}
    for key in path:
        small[key] = {"edge_index": typed[key]["edge_index"][:, ::7]}
    joined = transforms.AddMetaPaths([path])(pyg_data(small))["author", "metapath_0", "term"].edge_index
    walk = RandomWalk(walks=20_000, length=1, top=-1, metapath=path)
    with Loader(small, [walk], "term", batch_size=1000) as loader:
        (batch,) = loader
    part = batch["author", "metapath_0", "term"]
    source, target = part.edge_index
    pairs = torch.stack([batch["author"].n_id[source], batch["term"].n_id[target]])
    assert set(map(tuple, pairs.T.tolist())) == set(map(tuple, joined.T.tolist()))


@pytest.mark.parametrize(
    "place",
    [
        {"num_workers": 8},
        {"num_workers": 2, "prefetch": 0},
        {"neighbor_cache": 0, "cache": "belady", "feature_cache": 20_000, "memory": "64MiB"},
        {"neighbor_cache": 0, "cache": "presc", "feature_cache": 10_000},
        {"cache": "degree", "feature_cache": 10_000},
        {"cache": "lru", "feature_cache": 10_000, "transpose": True},
    ],
)
def test_place_changes_nothing(typed: Graph, typed_path: Path, place: dict[str, Any]) -> None:
    inputs = {"paper": None, "author": [5, 4]}
    transpose = place.get("transpose", False)
    with (
        Loader(typed, NAMED, inputs, num_workers=1, transpose=transpose, **OPTIONS) as memory,
        Loader(typed_path, NAMED, inputs, **OPTIONS, **place) as disk,
    ):
        for _ in range(2):
            assert [digest(b) for b in memory] == [digest(b) for b in disk]


def test_little_memory(typed: Graph, typed_path: Path) -> None:
    options = {"num_neighbors": [COAUTHORS] * 2, "input_nodes": "paper", **OPTIONS}
    with pytest.raises(errors.BudgetError) as caught:
        Loader(typed_path, **options, memory=1000)
    with Loader(typed_path, **options, memory=caught.value.minimum) as little, Loader(typed, **options) as memory:
        assert [digest(b) for b in little] == [digest(b) for b in memory]
        assert little.stats()["memory_peak"] <= caught.value.minimum


def test_state_and_trace(typed: Graph) -> None:
    options: dict[str, Any] = {"input_nodes": "paper", **OPTIONS}
    with Loader(typed, [COAUTHORS] * 2, **options) as loader:
        batches = list(loader)
        for ids, batch in zip(loader.trace(0), batches, strict=True):
            assert all(ids[t].equal(batch[t].n_id) for t in batch.node_types)
        loader.set_epoch(0)
        taken = iter(loader)
        for _ in range(3):
            next(taken)
        state = json.loads(json.dumps(loader.state_dict()))
        assert "('paper', 'metapath_0', 'paper'): [5, 5]" in repr(loader)
    with Loader(typed, [COAUTHORS] * 2, **options) as again:
        again.load_state_dict(state)
        assert [digest(b) for b in again] == [digest(b) for b in batches[3:]]
    for other in (dataclasses.replace(COAUTHORS, restart=0.4), RandomWalk(metapath=[BACK, WRITES, CITES])):
        with Loader(typed, [other] * 2, **options) as loader:
            with pytest.raises(errors.InvalidArgumentError, match="walks was"):
                loader.load_state_dict(state)


def test_more_metapaths_than_relations() -> None:
    graph = bipartite()
    named = {("item", f"n{i}", "item"): [RandomWalk(i + 1, 2, -1, 0.1, [REV, BUYS])] for i in range(40)}
    with Loader(graph, named, "item", batch_size=3, transpose=True) as loader:
        for i, batch in enumerate(loader):
            check_walked(batch, graph, named, (0, 0, i))


def test_without_pyg(typed: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with Loader(typed, NAMED, ("paper", "train"), **OPTIONS) as loader:
        batch = next(iter(loader))
    assert type(batch) is HeteroBatch
    check_walked(batch, typed, NAMED, (7, 0, 0))


def walk(*path: Any, **options: Any) -> RandomWalk:
    return RandomWalk(metapath=list(path), **options)


INVALID, DTYPE = errors.InvalidArgumentError, errors.DTypeError


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: walk(), INVALID, "metapath must have at least one edge type"),
        (lambda: RandomWalk(metapath="ab"), DTYPE, "metapath must be a list of edge types .* got 'ab'"),  # type: ignore[arg-type]
        (lambda: walk(BACK, ("a", "b")), DTYPE, r"metapath\[1\] must be an edge type .*, got \('a', 'b'\)"),
        (lambda: walk(BACK, "abc"), DTYPE, r"metapath\[1\] must be an edge type .*, got 'abc'"),
        (
            lambda: walk(WRITES, HAS, BACK, WRITES),
            INVALID,
            r"does not connect: metapath\[1\] = .*'has'.* ends at 'term', and metapath\[2\] = .* begins at 'paper'",
        ),
        (
            lambda: walk(WRITES),
            INVALID,
            "begins at 'author' and ends at 'paper', so it can be walked once and not l.*=3",
        ),
        (lambda: walk(BACK, WRITES, length=0), INVALID, "length must be at least 1, got 0"),
        (
            [walk(("paper", "x", "paper"))],
            INVALID,
            r"metapath\[0\] is .*'x'.* the graph does not have; .*'writes', 'pa",
        ),
        ([walk(BACK, WRITES), walk(CITES)], INVALID, "in hop 1, along .*hops have one metapath. Several"),
        ([walk(BACK, WRITES), RandomWalk()], INVALID, r"\[1\] is a RandomWalk without a metapath"),
        ([walk(BACK, WRITES), 5], INVALID, "RandomWalk in all hops"),
        ([RandomWalk()], INVALID, r"needs a metapath.*such as RandomWalk\(metapath=\[\('pap.*written by.*writes', 'p"),
        ([walk(WRITES, BACK)], INVALID, "node type 'paper', where no walk begins: .* here at 'author'"),
        ({CITES: [walk(CITES)]}, INVALID, r"'cites', 'paper'\) cannot name the edges of walks, because"),
        ({WRITES: [walk(CITES)]}, INVALID, r"a metapath from 'paper' to 'paper': give it a name"),
        ({"walks": [walk(CITES)]}, DTYPE, "keys of num_neighbors must be edge types .*, got 'walks'"),
        ({("paper", "a", "paper"): [walk(CITES)], CITES: [3]}, DTYPE, "must be a list with a RandomWalk for each hop"),
        (
            {("paper", "a", "paper"): [walk(CITES)], ("paper", "b", "paper"): [walk(CITES)] * 2},
            INVALID,
            "as many hops for every metapath",
        ),
        ({("paper", "a", "paper"): [walk(CITES), walk(BACK, WRITES)]}, INVALID, "hops have one metapath"),
        ({"neighbor_sampler": Labor()}, INVALID, "random walks cannot be combined with LABOR"),
        ({"weight_attr": "weight"}, INVALID, "cannot be combined with weight_attr"),
        ({"replace": True}, INVALID, "random walks cannot be combined with replace=True"),
        ({"subgraph_type": "induced"}, INVALID, 'random walks cannot be combined with subgraph_type="induced"'),
        ({"cache": "expected"}, INVALID, "presc"),
        ({"memory": "1kB"}, errors.BudgetError, "memory"),
    ],
)
def test_bad_input(typed: Graph, make: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        if callable(make):
            make()
        elif isinstance(make, list) or not all(isinstance(key, str) and key != "walks" for key in make):
            Loader(typed, make, "paper")
        else:
            Loader(typed, [COAUTHORS], "paper", **make)


def test_the_metapath_that_an_error_names_works(typed: Graph) -> None:
    for node_type in ("paper", "author", "term"):
        with pytest.raises(INVALID, match="such as RandomWalk") as caught:
            Loader(typed, [RandomWalk()], node_type)
        named = re.search(r"such as (RandomWalk\(.*?\)\]\))", str(caught.value))
        assert named is not None
        with Loader(typed, [eval(named[1])], node_type, batch_size=9) as loader:
            assert next(iter(loader))[node_type].batch_size == 9


def test_homogeneous_graphs_have_no_metapaths() -> None:
    edges = np.zeros((2, 3), int)
    data = {"edge_index": edges, "num_nodes": 3}
    for neighbors in ([COAUTHORS], NAMED):
        with pytest.raises(INVALID, match="this graph is homogeneous: use RandomWalk without"):
            Loader(data, neighbors, [0])
    with pytest.raises(INVALID, match="this graph is homogeneous"):
        freshgo.hotness(data, "presc", num_neighbors=[COAUTHORS])


def test_relations_that_are_not_walked_are_not_opened(typed: Graph, typed_path: Path) -> None:
    """Lists of neighbours of the two that are, and no edge numbers."""
    with Loader(typed_path, [COAUTHORS], "paper", batch_size=8, num_workers=1, memory="32MiB") as loader:
        held = loader.plan().data["split"]["neighbor_cache"]
    assert held == 4 * sum(typed[edge_type]["edge_index"].shape[1] for edge_type in (BACK, WRITES))
