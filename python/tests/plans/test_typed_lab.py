"""The policy laboratory and rankings over graphs with types, and rankings by weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from graphs import Graph, hetero_graph, num_nodes, relations

import freshgo
from freshgo import Hotness, Loader, Store, hotness, plot_policies, simulate
from freshgo.errors import DTypeError, InvalidArgumentError

WRITES, CITES = ("author", "writes", "paper"), ("paper", "cites", "paper")
OPTIONS: dict[str, Any] = {"num_neighbors": [4, 3], "input_nodes": ("paper", "train"), "batch_size": 32}


@pytest.fixture(scope="module")
def typed() -> Graph:
    return hetero_graph()


@pytest.fixture(scope="module")
def typed_path(typed: Graph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("typed") / "graph.freshgo"
    freshgo.convert(typed, path, progress=False).close()
    return path


@pytest.mark.parametrize("where", ["memory", "store"])
def test_degrees_are_those_of_all_relations(typed: Graph, typed_path: Path, where: str) -> None:
    for metric, end in (("degree", 0), ("in-degree", 1)):
        found = hotness(typed if where == "memory" else typed_path, metric)
        assert {name: scores.numel() for name, scores in found.items()} == num_nodes(typed)
        for name, scores in found.items():
            want = np.zeros(scores.numel())
            for edge_type in relations(typed):
                if edge_type[2 * end] == name:
                    np.add.at(want, typed[edge_type]["edge_index"][end], 1)
            assert scores.dtype == torch.float32
            np.testing.assert_array_equal(scores.numpy(), want)


@pytest.mark.parametrize("where", ["memory", "store"])
def test_presc_is_a_recount(typed: Graph, typed_path: Path, where: str) -> None:
    data = typed if where == "memory" else typed_path
    found = hotness(data, "presc", k=2, shuffle=True, seed=5, **OPTIONS)
    with Loader(data, shuffle=True, seed=5, **OPTIONS) as loader:
        batches = [n_id for epoch in range(2) for n_id in loader.trace(epoch)]
    for name, scores in found.items():
        want = torch.bincount(torch.cat([batch[name] for batch in batches]), minlength=scores.numel())
        assert scores.long().equal(want)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"weight_attr": "weight"},
        {"replace": True},
        {"weight_attr": "weight", "replace": True, "num_neighbors": [5]},
        {"num_neighbors": "several"},
        {"input_nodes": {"paper": "train", "author": np.arange(0, 200, 3)}, "sampler": "labor"},
    ],
    ids=str,
)
def test_expected_is_what_sampling_finds(typed: Graph, typed_path: Path, options: dict[str, Any]) -> None:
    options = {**OPTIONS, **options}
    if options["num_neighbors"] == "several":
        options["num_neighbors"] = {key: [3, 2] for key in relations(typed)} | {CITES: [-1, 1], WRITES: [2, 0]}
    found = hotness(typed_path, "expected", **options)
    in_memory = hotness(typed, "expected", **options)
    assert all(found[name].equal(in_memory[name]) for name in num_nodes(typed))
    counts = hotness(typed, "presc", k=60, shuffle=True, **options)
    flat, sampled = torch.cat(list(found.values())), torch.cat(list(counts.values())) / 60
    assert flat.sum().item() == pytest.approx(sampled.sum().item(), rel=0.05)
    assert np.corrcoef(flat.numpy(), sampled.numpy())[0, 1] > 0.99
    with Loader(typed, shuffle=True, seed=77, **options) as loader:
        trace = list(loader.trace(0))
    best = simulate(trace, policy=counts, capacity=300)
    assert simulate(trace, policy=found, capacity=300).hits > 0.98 * best.hits


def test_expected_by_weights_is_exact_for_a_single_draw() -> None:
    """One batch, one hop, one draw: the probability of an edge is its share of the weight."""
    rng = np.random.default_rng(3)
    targets = np.sort(rng.integers(0, 5, 60))
    weight = rng.random(60) * (rng.random(60) < 0.8)
    data = {"edge_index": np.stack([rng.integers(5, 30, 60), targets]), "weight": weight, "num_nodes": 30}
    found = hotness(data, "expected", num_neighbors=[1], input_nodes=range(5), batch_size=5, weight_attr="weight")
    missed = np.ones(30)
    for t in range(5):
        mine = np.flatnonzero(targets == t)
        total = weight[mine].sum()
        for e in mine:
            missed[data["edge_index"][0, e]] *= 1 - (weight[e] / total if total else 0)
    missed[:5] = 0
    np.testing.assert_allclose(found.numpy(), 1 - missed, rtol=1e-5)


def test_scores_are_accepted_back(typed: Graph, typed_path: Path) -> None:
    scores = hotness(typed_path, "expected", **OPTIONS)
    flat = torch.cat(list(scores.values()))
    reordered = {name: scores[name].double().numpy() for name in reversed(scores)}
    stats = []
    for cache in ("expected", scores, reordered, Hotness(scores), flat):
        with Loader(typed_path, cache=cache, feature_cache=100_000, prefetch=0, **OPTIONS) as loader:
            with Loader(typed, **OPTIONS) as plain:
                for mine, theirs in zip(loader, plain, strict=True):
                    assert mine["author"].x.equal(theirs["author"].x)
                    assert mine["paper"].n_id.equal(theirs["paper"].n_id)
            stats.append(loader.stats()["hits"])
    assert stats[0] > 0
    assert len(set(stats[1:])) == 1, stats  # computing takes some of the cache's memory: the first may hold fewer rows
    assert repr(Hotness({"a": np.ones(3)})) == "Hotness(scores of 3 'a')"


def test_a_trace_with_types(typed: Graph) -> None:
    with Loader(typed, shuffle=True, **OPTIONS) as loader:
        trace = list(loader.trace(0))
    counts = num_nodes(typed)
    firsts = dict(zip(counts, np.cumsum([0, *counts.values()]), strict=False))
    flat = [np.concatenate([ids.numpy() + firsts[name] for name, ids in batch.items()]) for batch in trace]
    scores = hotness(typed, "degree")
    for policy, same in (("belady", "belady"), ("lru", "lru"), (scores, torch.cat(list(scores.values())))):
        mine = simulate(trace, policy=policy, capacity=200, num_nodes=counts)
        want = simulate(flat, policy=same, capacity=200, num_nodes=sum(counts.values()))
        assert mine.reads_per_batch.equal(want.reads_per_batch)
        assert mine.fill == want.fill
    assert simulate(trace, capacity=200).reads == simulate(flat, capacity=200).reads
    assert simulate([{"a": [0, 1]}, {}, {"b": np.array([1])}], capacity=3).reads == 3
    pytest.importorskip("matplotlib")
    lines = plot_policies(trace, num_nodes=counts, policies=["lru", scores], fractions=[0.1]).axes[0].lines
    assert [line.get_label() for line in lines] == ["lru", "by scores"]


@pytest.mark.parametrize(
    ("call", "error", "match"),
    [
        (lambda g: hotness(g, "expected", num_neighbors=[3]), DTypeError, r"input_nodes must be a node type such as"),
        (
            lambda g: hotness(g, "presc", num_neighbors={CITES: [3]}, input_nodes="paper"),
            InvalidArgumentError,
            r"'author', 'writes', 'paper'.* missing",
        ),
        (
            lambda g: hotness(g, "expected", num_neighbors=[3], input_nodes="paper", weight_attr="x"),
            InvalidArgumentError,
            r"\"x\" is no tensor of any edge type",
        ),
        (
            lambda _: hotness({"edge_index": np.zeros((2, 1), int)}, "degree", num_neighbors={CITES: [3]}),
            DTypeError,
            r"num_neighbors is a dict",
        ),
        (lambda g: load(g, {"paper": torch.ones(1200)}), InvalidArgumentError, r"those of 'author' are missing"),
        (
            lambda g: load(g, dict.fromkeys(["papr", *num_nodes(g)], torch.ones(3))),
            InvalidArgumentError,
            r"'papr', the graph has 'paper'",
        ),
        (
            lambda g: load(g, dict.fromkeys(num_nodes(g), torch.ones(3))),
            InvalidArgumentError,
            r"each of the 1200 nodes of type 'paper', got 3",
        ),
        (lambda _: Hotness({"paper": np.array([0.0, np.nan])}), InvalidArgumentError, r"'paper': hotness of node 1 is"),
        (lambda _: Hotness({"paper": [1.0]}), DTypeError, r"'paper': hotness must be"),
        (lambda _: Hotness({1: np.ones(1)}), DTypeError, r"keys of a hotness must be node types, got 1"),
        (lambda _: Hotness({}), InvalidArgumentError, r"an empty mapping"),
        (
            lambda _: Loader({"edge_index": np.zeros((2, 1), int)}, [1], cache={"paper": np.ones(1)}),
            InvalidArgumentError,
            r"node types \('paper'\) needs a heterogeneous graph",
        ),
        (lambda _: simulate([{"a": [3]}], capacity=1, num_nodes={"a": 3}), InvalidArgumentError, r"\['a'\]\[0\] is 3"),
        (lambda _: simulate([{"b": [1]}], capacity=1, num_nodes={"a": 3}), InvalidArgumentError, r"node type 'b'"),
        (lambda _: simulate([{"a": [1, 1]}], capacity=1), InvalidArgumentError, r"twice"),
        (lambda _: simulate([{"a": [1]}], capacity=1, num_nodes=3), DTypeError, r"num_nodes must be a dict"),
        (lambda _: simulate([[1]], capacity=1, num_nodes={"a": 3}), DTypeError, r"num_nodes is a dict"),
        (lambda _: simulate([{"a": [1]}, [1]], capacity=1), DTypeError, r"trace\[1\] must be a dict"),
        (lambda _: simulate([{"a": [0.5]}], capacity=1), DTypeError, r"\['a'\] must hold integers"),
        (lambda _: simulate([{"a": [[1]]}], capacity=1), InvalidArgumentError, r"one-dimensional"),
    ],
)
def test_what_cannot_be(typed: Graph, call: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        call(typed)


def load(graph: Graph, cache: Any) -> None:
    Loader(graph, [2], "paper", cache=cache).close()


def test_relayout_of_scores_by_type_is_refused(tmp_path: Path) -> None:
    data = {"edge_index": np.zeros((2, 1), np.int64), "x": np.ones((1, 1), np.float32)}
    freshgo.convert(data, tmp_path / "g", progress=False).close()
    with Store.open(tmp_path / "g") as store, pytest.raises(DTypeError, match="hotness is a dict"):
        freshgo.relayout(store, tmp_path / "h", hotness={"paper": np.ones(1)}, progress=False)
