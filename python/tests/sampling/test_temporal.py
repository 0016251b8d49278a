"""Disjoint trees and draws by time through the whole library."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from graphs import CITES, WRITES, Form, Graph, edge_times, forms, hetero_graph, num_nodes, random_graph
from oracle import assert_batches_equal, assert_equal
from seeds import seed as seed_of
from temporal_oracle import Trees, check_trees

import freshgo
from freshgo import Disk, Labor, Loader, RandomWalk, errors

pytestmark = pytest.mark.explore

INVALID, DTYPE = errors.InvalidArgumentError, errors.DTypeError
NODES, EDGES = 400, 3000


def homogeneous() -> dict[str, Any]:
    graph = random_graph(num_nodes=NODES, num_edges=EDGES, seed=5)
    rng = np.random.default_rng(seed_of(2))
    return {
        "num_nodes": NODES,
        "x": graph["x"],
        "edge_index": graph["edge_index"],
        "when": rng.integers(0, 100, EDGES),
        "born": rng.integers(-50, 50, NODES).astype(np.int32),
        "weight": rng.random(EDGES, dtype=np.float32),
    }


def heterogeneous() -> Graph:
    graph = hetero_graph(scale=60, seed=3)
    rng = np.random.default_rng(seed_of(9))
    count = num_nodes(graph)
    graph["paper"]["born"] = rng.integers(0, 100, count["paper"])
    graph["term"]["born"] = rng.integers(0, 100, count["term"]).astype(np.int32)
    graph[CITES].pop("time")
    for relation in (CITES, WRITES):
        graph[relation]["when"] = rng.integers(0, 100, graph[relation]["edge_index"].shape[1])
    return graph


form = forms(homogeneous, heterogeneous)


@pytest.fixture(scope="module")
def timed() -> dict[str, Any]:
    return homogeneous()


@pytest.fixture(scope="module")
def graph() -> Graph:
    return heterogeneous()


def given(count: int, seed: int) -> Any:
    return np.random.default_rng(seed_of(seed)).integers(-5, 110, count)


PAPERS, AUTHORS = [7, 3, 7, 100, 55, 56, 57, 58], [0, 4, 9, 4]
OPTIONS: dict[str, Any] = {"batch_size": 5, "shuffle": True, "seed": 7}
WAYS: dict[str, dict[str, Any]] = {
    "disjoint": {"disjoint": True},
    "every node": {"input_nodes": None, "time_attr": "born"},
    "nodes": {"input_nodes": "first", "time_attr": "born"},
    "nodes, given": {"time_attr": "born", "input_time": True, "temporal_strategy": "last"},
    "edges": {"time_attr": "when", "input_time": True},
    "edges, one type": {"input_nodes": "last", "time_attr": "when", "input_time": True},
    "last": {"time_attr": "when", "input_time": True, "temporal_strategy": "last"},
    "window": {"time_attr": "when", "input_time": True, "time_window": 30},
    "last of a window": {"time_attr": "when", "input_time": True, "time_window": 30, "temporal_strategy": "last"},
    "replace": {"time_attr": "when", "input_time": True, "replace": True},
    "last with replacement": {
        "time_attr": "when",
        "input_time": True,
        "replace": True,
        "temporal_strategy": "last",
    },
}


def inputs_of(form: Form) -> dict[str, Any]:
    """The input nodes of each type, some of them twice."""
    if form.several:
        return {"author": AUTHORS, "paper": PAPERS}
    ids = np.random.default_rng(seed_of(4)).integers(NODES, size=23)
    return {form.node_type: [*ids.tolist(), int(ids[0])]}


def times_of(form: Form) -> dict[str, Any]:
    return {node_type: given(len(ids), i) for i, (node_type, ids) in enumerate(inputs_of(form).items())}


def asked(form: Form, way: str) -> dict[str, Any]:
    """The options of a way as a loader of this form takes them."""
    options, inputs, times = {**WAYS[way]}, inputs_of(form), times_of(form)
    which = options.pop("input_nodes", "all")
    if which in ("first", None):
        inputs = {form.node_type: inputs[form.node_type] if which else None}
    elif which == "last":
        inputs = dict([next(iter(inputs.items()))])
    options["input_nodes"] = form.bare(inputs)
    if "input_time" in options:
        options["input_time"] = form.bare({node_type: times[node_type] for node_type in inputs})
    return {**OPTIONS, **options, **({"batch_size": 60} if which is None else {})}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("hops", [[3, 2], [-1, 1], [1, 4, 2], [100]], ids=str)
def test_equals_the_oracle(form: Form, way: str, hops: list[int]) -> None:
    options = asked(form, way)
    times = edge_times(form.graph, options.get("time_attr"))
    oracle, fanouts = Trees(form.graph, times), form.fanouts(hops)
    how = {
        "last": options.get("temporal_strategy") == "last",
        "window": options.get("time_window"),
        "replace": options.get("replace", False),
    }
    for data, more in ((form.data, {}), (form.path, {"neighbor_cache": 0, "cache": None})):
        with Loader(data, hops, **options, **more) as loader:
            for epoch in range(2):
                for i, batch in enumerate(loader):
                    oracle.check(batch, fanouts, (7, epoch, i), **how)
                    check_trees(batch, form.graph, times, how["window"])


def test_seed_times_are_those_of_the_inputs(form: Form) -> None:
    inputs, times = inputs_of(form), times_of(form)
    with Loader(form.data, [2], **asked(form, "edges")) as loader:
        for batch in form.batches(loader):
            for node_type, of in times.items():
                part = batch[node_type]
                np.testing.assert_array_equal(part.seed_time.numpy(), of[part.input_id.numpy()])
            assert all("seed_time" not in batch[t] for t in num_nodes(form.graph) if t not in times)
            trees = [batch[t].batch[: batch[t].batch_size] for t in num_nodes(form.graph) if t in inputs]
            assert torch.cat(trees).tolist() == list(range(sum(map(len, trees))))
    with Loader(form.data, [2], **asked(form, "nodes")) as loader:
        for batch in form.batches(loader):
            part = batch[form.node_type]
            born = form.graph[form.node_type]["born"][part.n_id[: part.batch_size]]
            np.testing.assert_array_equal(part.seed_time.numpy(), born)
    with Loader(form.data, [2], **asked(form, "disjoint")) as loader:
        batch = form.batches(loader)[0]
        assert all("seed_time" not in batch[node_type] for node_type in batch.node_types)


PLACES: list[dict[str, Any]] = [
    {"num_workers": 8, "prefetch": 8},
    {"neighbor_cache": 0, "cache": None},
    {"neighbor_cache": 0, "cache": "belady", "feature_cache": 8_000, "memory": "64MiB"},
    {"neighbor_cache": 0, "cache": "lru", "feature_cache": 8_000, "disk": Disk(checksums=True)},
    {"neighbor_cache": 30_000, "memory": "32MiB", "cache": "degree"},
]


@pytest.mark.parametrize("way", WAYS)
def test_place_changes_nothing(form: Form, way: str) -> None:
    options = asked(form, way)
    with Loader(form.data, [4, 3], num_workers=1, prefetch=0, **options) as memory:
        want = [list(memory) for _ in range(2)]
    for place in PLACES:
        with Loader(form.path, [4, 3], **options, **place) as disk:
            for epoch in want:
                assert_batches_equal(epoch, disk)


def test_a_state_continues_and_belongs_to_its_times(form: Form) -> None:
    options = asked(form, "edges")
    with Loader(form.data, [4, 3], **options) as loader:
        batches = list(loader)
    with Loader(form.path, [4, 3], **options) as loader:
        list(itertools.islice(loader, 1))
        state = json.loads(json.dumps(loader.state_dict()))
    with Loader(form.path, [4, 3], **options) as loader:
        loader.load_state_dict(state)
        assert_batches_equal(batches[1:], loader)
        for nodes, batch in zip(loader.trace(0), map(form.by_type, batches), strict=True):
            by_type = nodes if isinstance(nodes, dict) else {form.node_type: nodes}
            assert all(ids.equal(batch[node_type].n_id) for node_type, ids in by_type.items())
    times = times_of(form)
    changes: list[dict[str, Any]] = [
        {"temporal_strategy": "last"},
        {"time_window": 5},
        {"input_time": form.bare({node_type: of + 1 for node_type, of in times.items()})},
        {"time_attr": None, "input_time": None},
    ]
    for change in changes:
        with (
            Loader(form.path, [4, 3], **{**options, **change}) as loader,
            pytest.raises(INVALID, match=r"tempo|time"),
        ):
            loader.load_state_dict(state)


def test_blocks(timed: dict[str, Any]) -> None:
    with Loader(timed, [4, 3], time_attr="when", input_time=given(NODES, 3), batch_size=50) as loader:
        for batch in loader:
            outer, inner = batch.blocks()
            assert outer.num_src == batch.num_nodes
            assert inner.num_dst == batch.batch_size


def test_input_nodes_that_repeat_have_trees_of_their_own(timed: dict[str, Any]) -> None:
    with Loader(timed, [-1], [9, 9, 9], batch_size=3, time_attr="when", input_time=[0, 50, 200]) as loader:
        batch = next(iter(loader))
    mine = timed["when"][timed["edge_index"][1] == 9]
    counts = np.bincount(batch.edge_index[1].numpy(), minlength=3)
    assert counts.tolist() == [(mine <= t).sum() for t in (0, 50, 200)]


def test_weights_and_trees(form: Form) -> None:
    options = {**asked(form, "disjoint"), "weight_attr": "weight"}
    with Loader(form.data, [3, 2], **options) as loader:
        for batch in loader:
            check_trees(batch, form.graph, {})


EDGE_TIMES: dict[str, Any] = {"time_attr": "when", "input_time": np.arange(NODES)}


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"time_attr": "whenever"}, INVALID, r"'?\"?whenever.*when.*born"),
        ({"time_attr": "weight"}, INVALID, r"float32.*one integer"),
        ({"time_attr": "x"}, INVALID, r"one integer"),
        ({"time_attr": 3}, DTYPE, r"time_attr must be the name.*3"),
        ({"time_attr": ""}, INVALID, r"time_attr must be the name"),
        ({"time_attr": "when"}, INVALID, r"input_time must give a time for each input node"),
        ({**EDGE_TIMES, "input_time": [1, 2]}, INVALID, r"input_time has 2.*400"),
        ({**EDGE_TIMES, "input_time": np.zeros(NODES)}, DTYPE, r"integers.*float64"),
        ({**EDGE_TIMES, "input_time": [[1]]}, INVALID, r"one-dimensional"),
        ({**EDGE_TIMES, "input_time": "now"}, DTYPE, r"input_time must be integers"),
        ({**EDGE_TIMES, "input_time": torch.ones(NODES).long().to_sparse()}, DTYPE, r"dense tensor"),
        (
            {**EDGE_TIMES, "input_time": {"paper": [1]}},
            DTYPE,
            r"input_time must be a vector of times",
        ),
        ({**EDGE_TIMES, "time_window": 0}, INVALID, r"time_window must be at least 1, got 0"),
        ({**EDGE_TIMES, "time_window": 1.5}, DTYPE, r"time_window"),
        ({**EDGE_TIMES, "temporal_strategy": "first"}, INVALID, r"'uniform', 'last'.*'first'"),
        ({**EDGE_TIMES, "weight_attr": "weight"}, INVALID, r"time_attr cannot be combined with weight_attr"),
        ({**EDGE_TIMES, "neighbor_sampler": "labor"}, INVALID, r"LABOR"),
        ({"disjoint": True, "neighbor_sampler": Labor()}, INVALID, r"LABOR"),
        ({"disjoint": True, "num_neighbors": [RandomWalk()]}, INVALID, r"random walks"),
        ({"disjoint": True, "history": freshgo.History()}, INVALID, "disjoint=True cannot be combined with history"),
        ({"disjoint": 1}, DTYPE, r"disjoint"),
        ({"temporal_strategy": "last"}, INVALID, r"temporal_strategy needs time_attr"),
        ({"time_window": 3}, INVALID, r"time_window needs time_attr"),
        ({"input_time": [1]}, INVALID, r"input_time needs time_attr"),
    ],
)
def test_bad_input(timed: dict[str, Any], options: dict[str, Any], error: type[Exception], match: str) -> None:
    with pytest.raises(error, match=match):
        Loader(timed, **{"num_neighbors": [2], **options})


SEVERAL = {"author": AUTHORS, "paper": PAPERS}


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"time_attr": "whenever"}, INVALID, r"whenever.*no tensor of the graph.*paper\.born"),
        ({"time_attr": "weight"}, INVALID, r"edge type \(author, writes, paper\).*one integer"),
        ({"time_attr": "x"}, INVALID, r"node type 'paper'.*one integer"),
        ({"time_attr": "both", "input_time": [1] * 180}, INVALID, r"names tensors of nodes .* and of edges"),
        ({"time_attr": "when"}, INVALID, r"node type 'paper': .*time_attr 'when' has no times .*input_time must give"),
        ({"time_attr": "born", "input_nodes": "author"}, INVALID, r"node type 'author': .*'born' has no times"),
        ({"time_attr": "when", "input_time": [1]}, INVALID, r"input_time has 1 times, expected one for each of 180"),
        ({"time_attr": "when", "input_time": {"paper": [1]}}, INVALID, r"input_time\['paper'\] has 1 .* each of 180"),
        ({"time_attr": "when", "input_time": {"author": [1]}}, INVALID, r"times of 'author', expected .*'paper'"),
        ({"time_attr": "when", "input_time": {"paper": [1.5]}}, DTYPE, r"input_time\['paper'\] must be integers"),
        (
            {"input_nodes": SEVERAL, "time_attr": "when", "input_time": [1] * 12},
            INVALID,
            r"a mapping from each of .*'paper', 'author'",
        ),
        ({"disjoint": True, "neighbor_sampler": "labor"}, INVALID, r"LABOR"),
        ({"time_attr": "born", "weight_attr": "weight"}, INVALID, r"time_attr cannot be combined with weight_attr"),
        ({"disjoint": True, "subgraph_type": "induced"}, INVALID, r"induced"),
    ],
)
def test_bad_input_of_types(graph: Graph, options: dict[str, Any], error: type[Exception], match: str) -> None:
    odd = {key: dict(part) for key, part in graph.items()}
    odd["author"]["both"] = np.zeros(num_nodes(graph)["author"], np.int64)
    odd[CITES]["both"] = graph[CITES]["when"]
    with pytest.raises(error, match=match):
        Loader(odd, **{"num_neighbors": [2], "input_nodes": "paper", **options})


def test_the_name_of_trees_is_theirs(graph: Graph) -> None:
    """As in PyG, ``batch`` of a node type is the trees, whatever tensor the graph has under this name."""
    odd = {key: dict(part) for key, part in graph.items()}
    odd["term"]["batch"] = np.zeros(num_nodes(graph)["term"], np.int64)
    with Loader(odd, [2], "paper", disjoint=True) as loader, Loader(graph, [2], "paper", disjoint=True) as plain:
        for got, want in zip(loader, plain, strict=True):
            assert torch.equal(got["term"].batch, want["term"].batch)


def test_times_given_to_a_loader_are_its_own(timed: dict[str, Any]) -> None:
    times = torch.from_numpy(given(NODES, 3))
    with Loader(timed, [3], batch_size=NODES, time_attr="when", input_time=times) as loader:
        want = next(iter(loader))
        times.fill_(10**9)
        loader.set_epoch(0)
        assert_equal(want, next(iter(loader)))


@pytest.mark.parametrize("strategy", ["uniform", "last"])
@pytest.mark.parametrize("edge_types", [0, 2])
def test_mathoverflow(real_graph: Any, tmp_path: Path, strategy: str, edge_types: int) -> None:
    """Every edge of an epoch for 2,000 events of a real graph, which is homogeneous or has its edges in two types, from
    memory and from a store with topology on disk."""
    root = real_graph("sx-mathoverflow")
    edge_index, time = np.load(root / "edge_index.npy"), np.load(root / "time.npy").astype(np.int64)
    node_type = "user" if edge_types else ""
    graph: Graph = {node_type: {"num_nodes": int(edge_index.max()) + 1}}
    for i in range(max(1, edge_types)):
        of_type = np.s_[i :: max(1, edge_types)]
        name = f"{i}" if edge_types else ""
        graph[node_type, name, node_type] = {"edge_index": edge_index[:, of_type], "time": time[of_type]}
    form = Form(strategy, graph, tmp_path)
    events = np.random.default_rng(seed_of(1)).choice(edge_index.shape[1], 2_000, replace=False)
    options: dict[str, Any] = {
        "input_nodes": form.inputs(edge_index[1, events]),
        "batch_size": 500,
        "time_attr": "time",
        "input_time": time[events] - 1,
        "temporal_strategy": strategy,
    }
    times = edge_times(graph, "time")
    oracle = Trees(graph, times)
    for window in (None, 30 * 86_400):
        with (
            Loader(form.data, [10, 5], time_window=window, **options) as memory,
            Loader(form.path, [10, 5], time_window=window, neighbor_cache=0, **options) as disk,
        ):
            for i, (one, other) in enumerate(zip(memory, disk, strict=True)):
                check_trees(one, graph, times, window)
                assert_equal(one, other)
                assert sum(form.by_type(one)[relation].num_sampled_edges[0] for relation in form.relations) > 0
                if i == 0:
                    oracle.check(one, form.fanouts([10, 5]), (0, 0, 0), last=strategy == "last", window=window)
