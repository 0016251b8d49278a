"""Rankings of nodes against recounts, in graphs of every form, and what a loader and the laboratory make of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from graphs import CITES, WRITES, Form, Graph, num_nodes, random_graph
from seeds import seed as seed_of

import freshgo
from freshgo import Hotness, Labor, Loader, Store, hotness, plot_policies, simulate
from freshgo._args.size import least_size
from freshgo.errors import BudgetError, DTypeError, InvalidArgumentError

OPTIONS: dict[str, Any] = {"num_neighbors": [4, 3], "batch_size": 32}


@pytest.mark.parametrize("where", ["memory", "store"])
def test_degrees_are_those_of_all_relations(form: Form, where: str) -> None:
    for metric, end in (("degree", 0), ("in-degree", 1)):
        found = form.of_nodes(hotness(form.data if where == "memory" else form.path, metric))
        assert {name: scores.numel() for name, scores in found.items()} == num_nodes(form.graph)
        for name, scores in found.items():
            want = np.zeros(scores.numel())
            for edge_type in form.relations:
                if edge_type[2 * end] == name:
                    np.add.at(want, form.graph[edge_type]["edge_index"][end], 1)
            assert scores.dtype == torch.float32
            np.testing.assert_array_equal(scores.numpy(), want)


@pytest.mark.parametrize("where", ["memory", "store"])
@pytest.mark.parametrize("k", [1, 3])
def test_presc_is_a_recount(form: Form, where: str, k: int) -> None:
    data = form.data if where == "memory" else form.path
    options: dict[str, Any] = {**OPTIONS, "input_nodes": form.inputs("train"), "shuffle": True, "seed": 5}
    found = form.of_nodes(hotness(data, "presc", k=k, **options))
    with Loader(data, **options) as loader:
        batches = [form.of_nodes(n_id) for epoch in range(k) for n_id in loader.trace(epoch)]
    for name, scores in found.items():
        want = torch.bincount(torch.cat([batch[name] for batch in batches]), minlength=scores.numel())
        assert scores.long().equal(want)


WAYS: dict[str, dict[str, Any]] = {
    "uniform": {},
    "weighted": {"weight_attr": "weight"},
    "replaced": {"replace": True},
    "weighted, replaced": {"weight_attr": "weight", "replace": True, "num_neighbors": [5]},
    "fanouts of relations": {"num_neighbors": "several"},
    "LABOR": {"input_nodes": "several", "neighbor_sampler": Labor(edge_weight=False)},
}


@pytest.mark.parametrize("way", WAYS)
def test_expected_is_what_sampling_finds(form: Form, way: str) -> None:
    options = {"input_nodes": form.inputs("train"), **OPTIONS, **WAYS[way]}
    if "weight_attr" in options:
        options["weight_attr"] = form.weight
    if options["num_neighbors"] == "several":
        others = {CITES: [-1, 1], WRITES: [2, 0]}
        options["num_neighbors"] = form.bare({relation: others.get(relation, [3, 2]) for relation in form.relations})
    if options["input_nodes"] == "several":
        if not form.several:
            pytest.skip("LABOR draws copies of an edge together, which scores by node do not follow")
        options["input_nodes"] = {"paper": "train", "author": np.arange(0, 200, 3)}
    found = form.of_nodes(hotness(form.path, "expected", **options))
    in_memory = form.of_nodes(hotness(form.data, "expected", **options))
    assert all(found[name].equal(in_memory[name]) for name in num_nodes(form.graph))
    counts = hotness(form.data, "presc", k=60, shuffle=True, **options)
    flat, sampled = torch.cat(list(found.values())), torch.cat(list(form.of_nodes(counts).values())) / 60
    assert flat.sum().item() == pytest.approx(sampled.sum().item(), rel=0.05 if form.several else 0.03)
    assert np.corrcoef(flat.numpy(), sampled.numpy())[0, 1] > 0.99
    with Loader(form.data, shuffle=True, seed=77, **options) as loader:
        trace = list(loader.trace(0))
    best = simulate(trace, policy=counts, capacity=300)
    assert simulate(trace, policy=form.bare(found), capacity=300).hits > 0.98 * best.hits


def test_expected_by_weights_is_exact_for_a_single_draw() -> None:
    """One batch, one hop, one draw: the probability of an edge is its share of the weight."""
    rng = np.random.default_rng(seed_of(3))
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


def test_scores_are_accepted_back(form: Form) -> None:
    options = {**OPTIONS, "input_nodes": form.inputs("train")}
    scores = form.of_nodes(hotness(form.path, "expected", **options))
    flat = torch.cat(list(scores.values()))
    reordered = {name: scores[name].double().numpy() for name in reversed(scores)}
    stats = []
    for cache in ("expected", form.bare(scores), form.bare(reordered), Hotness(form.bare(scores)), flat):
        with Loader(form.path, cache=cache, feature_cache=150_000, prefetch=0, **options) as loader:
            with Loader(form.data, **options) as plain:
                for one, other in zip(loader, plain, strict=True):
                    mine, theirs = form.by_type(one), form.by_type(other)
                    for name in mine.node_types:
                        assert mine[name].n_id.equal(theirs[name].n_id)
                        assert "x" not in mine[name] or mine[name].x.equal(theirs[name].x)
            stats.append(loader.stats()["hits"])
    assert stats[0] > 0
    assert len(set(stats[1:])) == 1, stats  # computing takes some of the cache's memory: the first may hold fewer rows
    assert repr(Hotness({"a": np.ones(3)})) == "Hotness(scores of 3 'a')"


def test_a_trace_is_that_of_nodes_numbered_over_all_types(form: Form) -> None:
    with Loader(form.data, shuffle=True, input_nodes=form.inputs("train"), **OPTIONS) as loader:
        trace = list(loader.trace(0))
    counts = num_nodes(form.graph)
    firsts = dict(zip(counts, np.cumsum([0, *counts.values()]), strict=False))
    flat = [
        np.concatenate([ids.numpy() + firsts[name] for name, ids in form.of_nodes(batch).items()]) for batch in trace
    ]
    scores = hotness(form.data, "degree")
    same_scores = torch.cat(list(form.of_nodes(scores).values()))
    for policy, same in (("belady", "belady"), ("lru", "lru"), (scores, same_scores)):
        mine = simulate(trace, policy=policy, capacity=200, num_nodes=form.bare(counts))
        want = simulate(flat, policy=same, capacity=200, num_nodes=sum(counts.values()))
        assert mine.reads_per_batch.equal(want.reads_per_batch)
        assert mine.fill == want.fill
    assert simulate(trace, capacity=200).reads == simulate(flat, capacity=200).reads
    pytest.importorskip("matplotlib")
    lines = plot_policies(trace, num_nodes=form.bare(counts), policies=["lru", scores], fractions=[0.1]).axes[0].lines
    assert [line.get_label() for line in lines] == ["lru", "by scores"]


def test_types_may_be_missing_from_batches_of_a_trace() -> None:
    assert simulate([{"a": [0, 1]}, {}, {"b": np.array([1])}], capacity=3).reads == 3


def test_random_hotness(store: Any) -> None:
    one, two, again = (hotness(store, "random", seed=seed) for seed in (1, 2, 1))
    assert one.equal(again)
    assert not one.equal(two)
    assert ((one >= 0) & (one < 1)).all()


def test_hotness_of_a_path_and_within_memory(store_path: Any, store: Any) -> None:
    assert hotness(str(store_path), "degree", memory="64MiB").equal(hotness(store, "degree"))
    memory = 1000
    for _ in range(10):  # each error names what the step needs that failed
        try:
            assert hotness(store, "degree", memory=memory).equal(hotness(store, "degree"))
            break
        except BudgetError as error:
            assert error.minimum > memory
            assert least_size(error.minimum) in str(error)
            memory = error.minimum
    assert 1000 < memory < 64 << 20


@pytest.mark.parametrize(
    ("arguments", "error", "match"),
    [
        ({"metric": "degrees"}, InvalidArgumentError, r"metric must be one of 'degree'.*did you mean 'degree'"),
        ({"metric": "oracle"}, InvalidArgumentError, r"metric must be one of"),
        ({"metric": "presc"}, InvalidArgumentError, r"'presc' depends on what is sampled: give num_neighbors"),
        ({"metric": "presc", "num_neighbors": [3], "k": 0}, InvalidArgumentError, r"k must be at least 1"),
        ({"metric": "expected", "num_neighbors": [3], "input_nodes": [3000]}, InvalidArgumentError, r"3000"),
        ({"metric": "expected", "num_neighbors": [3], "batch_size": 0}, InvalidArgumentError, r"batch_size"),
        ({"metric": "degree", "memory": "lots"}, InvalidArgumentError, r"memory"),
    ],
)
def test_hotness_that_cannot_be_computed(
    store: Any, arguments: dict[str, Any], error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        hotness(store, **arguments)
    with Store.open(store.path) as other:
        other.close()
        with pytest.raises(freshgo.errors.ClosedError):
            hotness(other, "degree")


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
            r"'x' is no edge tensor",
        ),
        (
            lambda _: hotness({"edge_index": np.zeros((2, 1), int)}, "degree", num_neighbors={CITES: [3]}),
            DTypeError,
            r"num_neighbors must be a list of ints",
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
        (
            lambda _: simulate([[1]], capacity=1, num_nodes={"a": 3}),
            DTypeError,
            r"num_nodes must be an int",
        ),
        (lambda _: simulate([{"a": [1]}, [1]], capacity=1), DTypeError, r"trace\[1\] must be a dict"),
        (lambda _: simulate([{"a": [0.5]}], capacity=1), DTypeError, r"\['a'\] must hold integers"),
        (lambda _: simulate([{"a": [[1]]}], capacity=1), InvalidArgumentError, r"one-dimensional"),
    ],
)
def test_scores_and_traces_that_cannot_be(typed: Graph, call: Any, error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        call(typed)


def load(graph: Graph, cache: Any) -> None:
    Loader(graph, [2], "paper", cache=cache).close()


def test_relayout_of_scores_by_type_is_refused(tmp_path: Path) -> None:
    data = {"edge_index": np.zeros((2, 1), np.int64), "x": np.ones((1, 1), np.float32)}
    freshgo.convert(data, tmp_path / "g", progress=False).close()
    with Store.open(tmp_path / "g") as store, pytest.raises(DTypeError, match="in a homogeneous graph, got a dict"):
        freshgo.relayout(store, tmp_path / "h", hotness={"paper": np.ones(1)}, progress=False)


def test_another_default_device(tmp_path: Path) -> None:
    """Memory that the library fills is the CPU's: on the default device it would be no memory, or a GPU's."""
    store = freshgo.convert(random_graph(300, 2000), tmp_path / "g", progress=False)
    drawn: dict[str, Any] = {"num_neighbors": [3], "input_nodes": None, "batch_size": 50}
    want = hotness(store, "expected", **drawn)
    torch.set_default_device("meta")
    try:
        assert hotness(store, "expected", **drawn).equal(want)
        freshgo.relayout(store, tmp_path / "h", progress=False).close()
    finally:
        torch.set_default_device(None)
