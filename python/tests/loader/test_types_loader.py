"""Batches of graphs with types through the whole library, against a slow reading of what they must be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from graphs import Graph, hetero_graph, num_nodes, relations
from oracle import Fanouts, check_batch, check_exactly, digest
from sampler_oracle import Graph as Sampled
from sampler_oracle import Stream

import freshgo
from freshgo import Belady, Labor, Loader, RandomWalk, Store, convert, errors

WRITES, CITES, BACK = ("author", "writes", "paper"), ("paper", "cites", "paper"), ("paper", "written by", "author")
OPTIONS: dict[str, Any] = {"batch_size": 64, "shuffle": True, "seed": 7}


@pytest.fixture
def typed_store(typed_path: Path) -> Any:
    with Store.open(typed_path) as store:
        yield store


def same(graph: Graph, hops: list[int]) -> Fanouts:
    return dict.fromkeys(relations(graph), hops)


def several(graph: Graph) -> Fanouts:
    """Fanouts that differ, with 0 and all."""
    fanouts = same(graph, [3, 2])
    fanouts |= {CITES: [-1, 1], WRITES: [2, 0], ("paper", "has", "term"): [0, 4]}
    return fanouts


def ids_of(graph: Graph, node_type: str) -> Any:
    return np.arange(num_nodes(graph)[node_type])


@pytest.mark.parametrize("node_type", ["author", "term", "island"])
def test_any_type_has_input_nodes(typed: Graph, typed_store: Store, node_type: str) -> None:
    with Loader(typed_store, [3, 2], node_type, **OPTIONS) as loader:
        for batch in loader:
            check_batch(batch, typed, same(typed, [3, 2]), {node_type: ids_of(typed, node_type)})


def test_types_that_nothing_reaches_are_empty(typed_store: Store) -> None:
    with Loader(typed_store, [3, 2], "paper", batch_size=50) as loader:
        batch = next(iter(loader))
    assert batch["island"].num_nodes == batch["none"].num_nodes == 0
    assert batch["island"].x.shape == (0, 2)
    assert batch["none"].x.shape == (0, 3)
    assert (batch["island"].x.dtype, batch["author"].x.dtype) == (torch.float64, torch.float16)
    assert batch["island"].num_sampled_nodes == [0, 0, 0]
    part = batch["none", "of", "paper"]
    assert (part.edge_index.shape, part.e_id.shape, part.attr.shape) == ((2, 0), (0,), (0, 2))
    assert part.num_sampled_edges == [0, 0]
    assert "x" not in batch["term"]
    assert batch["term"].num_nodes > 0


@pytest.mark.parametrize("shuffle", [False, True])
def test_several_types_at_once(typed: Graph, typed_store: Store, shuffle: bool) -> None:
    test = typed["author"]["splits"]["test"]
    given = {"author": "test", "paper": [5, 900, 5, 7], "term": None}
    inputs = {"paper": np.array([5, 900, 5, 7]), "author": test, "term": ids_of(typed, "term")}
    for data in (typed, typed_store):
        with Loader(data, [3, 2], given, **{**OPTIONS, "shuffle": shuffle}) as loader:
            assert len(loader) == -(-sum(map(len, inputs.values())) // 64)
            seen: dict[str, list[Any]] = {name: [] for name in inputs}
            for batch in loader:
                check_batch(batch, typed, same(typed, [3, 2]), inputs)
                assert sum(batch[name].batch_size for name in inputs) <= 64
                for name, ids in seen.items():
                    ids += batch[name].input_id.tolist()
        for name, ids in inputs.items():
            assert sorted(seen[name]) == list(range(len(ids)))
            assert shuffle or seen[name] == sorted(seen[name])


def test_a_mask_has_its_nodes_for_input_ids(typed: Graph, typed_store: Store) -> None:
    mask = typed["paper"]["train_mask"]
    with Loader(typed_store, [2], {"paper": mask, "author": [4, 2]}, **OPTIONS) as loader:
        for batch in loader:
            part = batch["paper"]
            assert part.input_id.equal(part.n_id[: part.batch_size])
            assert mask[part.input_id].all()
            assert set(batch["author"].input_id.tolist()) <= {0, 1}
    for data in (typed, typed_store):
        with Loader(data, [2], ("paper", "train"), batch_size=2000) as loader:
            (batch,) = loader
        np.testing.assert_array_equal(batch["paper"].n_id[: batch["paper"].batch_size], np.flatnonzero(mask))
        assert batch["paper"].input_id.tolist() == list(range(mask.sum()))


class Relation(Sampled):
    """One relation of a graph with types, drawn as the documentation of the samplers says."""

    def __init__(self, graph: Graph, name: tuple[str, str, str], place: int, weight: str | None) -> None:
        part = graph[name]
        of_target = {"edge_index": part["edge_index"], "num_nodes": num_nodes(graph)[name[2]]}
        super().__init__(of_target, part.get(weight))
        self.place = place

    def key(self, key: tuple[int, int, int]) -> tuple[int, int, int]:
        seed, epoch, batch = key
        return Stream(16, self.place, seed).state, epoch, batch

    def uniform(self, node: int, hop: int, k: int, key: tuple[int, int, int]) -> list[Any]:
        edges = self.edges[node]
        drawn: list[int] = []
        if k == -1 or len(edges) <= k:
            drawn = list(range(len(edges)))
        else:
            stream = Stream(1, *key, hop, node)
            for j in range(len(edges) - k, len(edges)):
                t = stream.below(j + 1)
                drawn.append(j if t in drawn else t)
        return [(self.source[edges[i]], edges[i], None) for i in drawn]


@pytest.mark.parametrize("how", ["uniform", "weighted", "labor"])
def test_equals_the_oracle(how: str) -> None:
    """Every number of a batch, from the documented random numbers."""
    graph = hetero_graph(scale=60, seed=4)
    keep = graph[WRITES]
    few = np.bincount(keep["edge_index"][1], minlength=180)[keep["edge_index"][1]] <= 64  # what the oracle does
    graph[WRITES] = {"edge_index": keep["edge_index"][:, few], "weight": keep["weight"][few]}
    edges = graph["term", "in", "paper"]["edge_index"]
    few = np.bincount(edges[1], minlength=180)[edges[1]] <= 64
    graph["term", "in", "paper"] = {"edge_index": edges[:, few], "weight": np.arange(few.sum()) % 3.0}
    fanouts = several(graph) if how != "labor" else same(graph, [3, 2])
    weight = "weight" if how == "weighted" else None
    drawers = [Relation(graph, name, i, weight) for i, name in enumerate(fanouts)]
    options = {"weight_attr": weight, "neighbor_sampler": "labor" if how == "labor" else None}
    with Loader(graph, fanouts, {"paper": None, "author": None}, batch_size=40, seed=7, **options) as loader:
        for epoch in range(2):
            for number, batch in enumerate(loader):

                def draw(place: int, node: int, hop: int, k: int, number: int = number, epoch: int = epoch) -> Any:
                    of, key = drawers[place], drawers[place].key((7, epoch, number))
                    if k == 0:
                        return []
                    if how == "labor":
                        return [edge[:2] for edge in of.labor(node, hop, k, key)]
                    weighted = weight is not None and of.weights is not None
                    drawn = (of.weighted if weighted else of.uniform)(node, hop, k, key)
                    return [edge[:2] for edge in drawn]

                check_exactly(batch, graph, fanouts, draw)


def test_golden(typed: Graph) -> None:
    """Batches are the same in every release."""
    with Loader(typed, [3, 2], {"paper": None, "term": [3, 1]}, **OPTIONS) as loader:
        batch = next(iter(loader))
    ids = {t: int((batch[t].n_id * torch.arange(1, batch[t].num_nodes + 1)).sum()) for t in ("paper", "author", "term")}
    assert ids == GOLDEN


GOLDEN = {"paper": 77215564, "author": 11649894, "term": 193180}


def test_weights(typed: Graph, typed_store: Store) -> None:
    with Loader(typed_store, [3, 2], "paper", weight_attr="weight", **OPTIONS) as loader:
        for batch in loader:
            check_batch(batch, typed, same(typed, [3, 2]), {"paper": ids_of(typed, "paper")})
    with pytest.raises(errors.InvalidArgumentError, match="wieght"):
        Loader(typed_store, [3, 2], "paper", weight_attr="wieght")


def test_labor_gives_weights(typed: Graph) -> None:
    with Loader(typed, [3, 2], "paper", neighbor_sampler="labor", **OPTIONS) as loader:
        batch = next(iter(loader))
        check_batch(batch, typed, same(typed, [3, 2]), {"paper": ids_of(typed, "paper")})
    for edge_type in relations(typed):
        part = batch[edge_type]
        assert part.edge_weight.shape == part.e_id.shape
        targets = torch.zeros(batch[edge_type[2]].num_nodes).index_add_(0, part.edge_index[1], part.edge_weight)
        torch.testing.assert_close(targets[targets > 0], torch.ones(int((targets > 0).sum())))  # weights of a mean
    with Loader(typed, [3, 2], "paper", neighbor_sampler=Labor(edge_weight=False), **OPTIONS) as loader:
        assert "edge_weight" not in next(iter(loader))[CITES]


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"num_neighbors": [3, 2]}, "num_neighbors"),
        ({"input_nodes": "paper"}, "input_nodes"),
        ({"input_nodes": ("paper", "train")}, "input_nodes"),
        ({"input_nodes": {"paper": "train", "author": [1, 2, 4]}}, "input_nodes"),
        ({"weight_attr": "weight"}, "weight_attr"),
        ({"seed": 8}, "seed"),
    ],
)
def test_state_of_another_loader_is_refused(typed: Graph, change: dict[str, Any], what: str) -> None:
    options = {**OPTIONS, "num_neighbors": several(typed), "input_nodes": {"paper": "train", "author": [1, 2, 3]}}
    with Loader(typed, **options) as loader, Loader(typed, **{**options, **change}) as other:
        with pytest.raises(errors.InvalidArgumentError, match=f"other batches: {what} was"):
            other.load_state_dict(json.loads(json.dumps(loader.state_dict())))
        loader.load_state_dict(json.loads(json.dumps(loader.state_dict())))


def test_reorder(typed: Graph, typed_path: Path) -> None:
    options = {**OPTIONS, "input_nodes": {"paper": None, "author": None}}
    options |= {"feature_cache": 20_000, "memory": "64MiB"}
    with (
        Loader(typed_path, [3], cache="belady", **options) as plain,
        Loader(typed_path, [3], cache=Belady(reorder=8), **options) as loader,
    ):
        want = sorted(digest(batch) for batch in plain)
        got = [digest(batch) for batch in loader]
    assert sorted(got) == want


def test_scores_are_over_all_nodes(typed: Graph, typed_path: Path) -> None:
    total = sum(num_nodes(typed).values())
    scores = np.arange(total, dtype=np.float32)
    with Loader(typed_path, [3], "paper", cache=scores, feature_cache=20_000) as loader:
        assert len(list(loader)) == len(loader)
    with pytest.raises(errors.InvalidArgumentError, match=f"each of the {total} nodes, got 5"):
        Loader(typed_path, [3], "paper", cache=np.zeros(5))


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"input_nodes": None}, errors.DTypeError, r"input_nodes must be a node type such as 'paper'"),
        ({"input_nodes": [1, 2]}, errors.DTypeError, r"input_nodes must be a node type"),
        (
            {"input_nodes": "papers"},
            errors.InvalidArgumentError,
            r"'papers'.* it has 'paper', 'author', 'term', 'none'",
        ),
        ({"input_nodes": ("paper", [1200])}, errors.InvalidArgumentError, r"input_nodes\[0\] is 1200.*\[0, 1200\)"),
        ({"input_nodes": ("author", [0, -1])}, errors.InvalidArgumentError, r"'author': input_nodes\[1\] is -1"),
        ({"input_nodes": ("paper", "test")}, errors.InvalidArgumentError, r"'paper' has no split 'test', only 'train'"),
        ({"input_nodes": "train"}, errors.InvalidArgumentError, r"named with its type: \('paper', 'train'\)"),
        ({"input_nodes": "none"}, errors.InvalidArgumentError, r"'none', which has none"),
        (
            {"num_neighbors": {CITES: [3]}},
            errors.InvalidArgumentError,
            r"\('author', 'writes', 'paper'\), .* are missing",
        ),
        ({"num_neighbors": {("a", "b", "c"): [3]}}, errors.InvalidArgumentError, r"names \('a', 'b', 'c'\)"),
        ({"num_neighbors": {"cites": [3]}}, errors.DTypeError, r"edge types .*got 'cites'"),
        (
            {"num_neighbors": [RandomWalk()]},
            errors.InvalidArgumentError,
            r"RandomWalk in a heterogeneous graph needs a metapath",
        ),
        (
            {"weight_attr": "x"},
            errors.InvalidArgumentError,
            r"'x' is no edge tensor, .*writes, paper\).weight",
        ),
        ({"weight_attr": "weigth"}, errors.InvalidArgumentError, r"did you mean 'weight'\?"),
        ({"time_attr": "tiem"}, errors.InvalidArgumentError, r"did you mean 'time'\?"),
        ({"weight_attr": "time", "neighbor_sampler": 3}, errors.DTypeError, r"sampler must be"),
        ({"memory": "1kB"}, errors.BudgetError, r"memory"),
    ],
)
def test_bad_input(typed: Graph, typed_path: Path, options: dict[str, Any], error: Any, match: str) -> None:
    for data in (typed, typed_path):
        with pytest.raises(error, match=match):
            Loader(data, **{"num_neighbors": [3], "input_nodes": "paper", **options})
    with Store.open(typed_path) as store:
        with pytest.raises(error, match=match):
            Loader(store, **{"num_neighbors": [3], "input_nodes": "paper", **options})
        assert not store.closed


def test_bad_graphs(typed: Graph, tmp_path: Path) -> None:
    edges = typed[CITES]["edge_index"].copy()
    edges[0, 3] = 1200
    with pytest.raises(errors.InvalidArgumentError, match=r"cites.*1200"):
        Loader({**typed, CITES: edges}, [3], "paper")
    np.save(tmp_path / "x.npy", typed["paper"]["x"])
    with pytest.raises(errors.DTypeError, match=r"paper.x is a file"):
        Loader({**typed, "paper": {"x": tmp_path / "x.npy"}}, [3], "paper")
    with pytest.raises(errors.DTypeError, match="in a homogeneous graph, got a dict"):
        Loader({"edge_index": edges, "num_nodes": 3000}, {CITES: [3]}, [0])


def test_a_mask_that_is_none_is_named(tmp_path: Path) -> None:
    masks = {"test_mask": torch.ones(4, dtype=torch.uint8), "seen": torch.ones(4, dtype=torch.bool)}
    graph = {"paper": masks, CITES: torch.tensor([[0, 1], [1, 2]])}
    with convert(graph, tmp_path / "g", progress=False) as store:
        for data, named in ((graph, "is not a bool"), (store, "was not a bool mask when it was")):
            with pytest.raises(errors.InvalidArgumentError, match=f": it has none; its tensor 'test_mask' {named}"):
                Loader(data, [3], ("paper", "test"))
            with pytest.raises(errors.InvalidArgumentError, match="'seen' is one of its tensors: give that itself, or"):
                Loader(data, [3], ("paper", "seen"))
        assert len(Loader(store, [3], ("paper", store["paper"]["seen"]))) == 4


def test_a_budget_that_is_too_small_names_one_that_works(typed: Graph, typed_path: Path) -> None:
    options: dict[str, Any] = {"num_neighbors": [5, 5], "input_nodes": "paper", "batch_size": 100, "num_workers": 1}
    with pytest.raises(errors.BudgetError) as caught:
        Loader(typed_path, **options, memory="10kB")
    assert caught.value.minimum > 10_000
    with Loader(typed_path, **options, memory=caught.value.minimum) as loader:
        for _ in range(2):
            assert len(list(loader)) == len(loader)
        assert loader.stats()["memory_peak"] <= caught.value.minimum


def test_numbers_of_nodes_follow_from_edges() -> None:
    graph: Any = {"user": {}, "item": {}, ("user", "likes", "item"): np.array([[0, 6], [2, 1]])}
    with Loader(graph, [-1], "item") as loader:
        batches = list(loader)
    assert [batch["user"].n_id.tolist() for batch in batches] == [[], [6], [0]]
    with Loader(graph, [-1], "user", batch_size=9) as loader:
        (batch,) = loader
    assert batch["user"].n_id.tolist() == list(range(7))


def test_a_relation_that_no_measured_batch_draws_has_room(tmp_path: Path) -> None:
    """One edge, into a node that is far from the batches whose sizes are measured."""
    nodes, rare = 96, 5
    data: dict[Any, Any] = {
        "paper": {"x": torch.ones(nodes, 4)},
        "author": {"x": torch.ones(3, 4)},
        ("paper", "cites", "paper"): torch.stack([torch.arange(nodes), torch.arange(nodes).roll(1)]),
        ("author", "writes", "paper"): torch.tensor([[2], [rare]]),
    }
    path = tmp_path / "rare.freshgo"
    freshgo.convert(data, path, progress=False).close()
    options: dict[str, Any] = {"input_nodes": "paper", "batch_size": 1, "prefetch": 0, "num_workers": 1}
    for cache in ({"cache": "degree", "feature_cache": 0, "neighbor_cache": 0}, {"cache": "none", "neighbor_cache": 0}):
        with pytest.raises(errors.BudgetError) as caught:
            Loader(path, [2, 2], **options, **cache, memory=1000)
        with Loader(path, [2, 2], **options, **cache, memory=caught.value.minimum) as loader:
            written = [batch["author", "writes", "paper"].edge_index.size(1) for batch in loader]
        assert sum(written) > 0
        assert len(written) == nodes
