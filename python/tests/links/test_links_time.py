"""LinkLoader in disjoint trees and by time: against an oracle, PyG's own edge_sample, and itself elsewhere."""

from __future__ import annotations

import copy
import itertools
import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from graphs import (
    BACK,
    CITES,
    UNNAMED,
    WRITES,
    EdgeType,
    Form,
    Graph,
    Part,
    Parts,
    as_types,
    edge_times,
    forms,
    hetero_graph,
    num_nodes,
    pyg_data,
)
from oracle import assert_batches_equal, assert_equal
from seeds import seed as seed_of
from temporal_oracle import Trees, check_trees

import freshgo
import freshgo._native.process
from freshgo import LinkLoader, Loader, errors

pytestmark = pytest.mark.explore

INVALID = errors.InvalidArgumentError
NODES, EDGES = 300, 2000
LINKS = 80


def homogeneous() -> dict[str, Any]:
    """Degenerate all over: isolated nodes, a hub, self-loops, repeated edges at equal and other times."""
    rng = np.random.default_rng(seed_of(5))
    edges = rng.integers(NODES - 20, size=(2, EDGES))
    edges[1, rng.random(EDGES) < 0.2] = 3
    edges[0, :40] = edges[1, :40]
    edges[:, 100:300] = edges[:, 300:500]
    time = rng.integers(0, 100, EDGES)
    time[100:200] = time[300:400]
    return {
        "num_nodes": NODES,
        "x": rng.random((NODES, 4), dtype=np.float32),
        "edge_index": edges,
        "when": time,
        "born": rng.integers(0, 60, NODES).astype(np.int32),
        "since": rng.integers(0, 60, NODES).astype(np.int16),
        "weight": rng.random(EDGES, dtype=np.float32),
    }


def heterogeneous() -> Graph:
    """Of nodes papers alone have ``born``, papers and authors ``since``; of edges two relations have ``when``."""
    graph = hetero_graph(scale=40, seed=3)
    rng = np.random.default_rng(seed_of(9))
    count = num_nodes(graph)
    graph["paper"]["born"] = rng.integers(0, 60, count["paper"])
    graph["paper"]["since"] = rng.integers(0, 60, count["paper"]).astype(np.int16)
    graph["author"]["since"] = rng.integers(0, 60, count["author"])
    for relation in (CITES, WRITES):
        graph[relation]["when"] = rng.integers(0, 100, graph[relation]["edge_index"].shape[1])
    return graph


form = forms(homogeneous, heterogeneous)


@pytest.fixture(scope="module")
def plain() -> dict[str, Any]:
    return homogeneous()


@pytest.fixture(scope="module")
def graph() -> Graph:
    return heterogeneous()


def links_of(graph: Graph, of: EdgeType) -> torch.Tensor:
    """Edges of a relation, and twenty pairs that may be none."""
    rng, edges, count = np.random.default_rng(seed_of(5)), graph[of]["edge_index"], num_nodes(graph)
    others = np.stack([rng.integers(count[of[0]], size=20), rng.integers(count[of[2]], size=20)])
    return torch.from_numpy(np.concatenate([edges[:, rng.permutation(edges.shape[1])[: LINKS - 20]], others], axis=1))


TIMES = np.random.default_rng(seed_of(8)).integers(30, 110, LINKS)
WHEN: dict[str, Any] = {"time_attr": "when", "edge_label_time": TIMES}
BORN: dict[str, Any] = {"time_attr": "born", "edge_label_time": TIMES}
SINCE: dict[str, Any] = {"time_attr": "since", "edge_label_time": TIMES}
OPTIONS: dict[str, Any] = {"batch_size": 32, "shuffle": True, "seed": 7}
WAYS: dict[str, tuple[EdgeType, dict[str, Any]]] = {
    "disjoint": (WRITES, {"disjoint": True, "neg_sampling": ("binary", 0.5), "exclude_seed_edges": True}),
    "disjoint, strict": (CITES, {"disjoint": True, "neg_sampling": ("binary", 0.5), "strict_negatives": True}),
    "plain": (WRITES, WHEN),
    "pairs, targets first": (BACK, {**WHEN, "neg_sampling": ("binary", 1.5), "exclude_seed_edges": WRITES}),
    "pairs of one type": (CITES, {**WHEN, "neg_sampling": "binary", "exclude_seed_edges": "reverse"}),
    "pairs, last": (
        CITES,
        {**WHEN, "neg_sampling": "binary", "exclude_seed_edges": "reverse", "temporal_strategy": "last"},
    ),
    "triplets, last": (
        WRITES,
        {**WHEN, "neg_sampling": ("triplet", 3), "temporal_strategy": "last", "exclude_seed_edges": BACK},
    ),
    "triplets, replace": (
        WRITES,
        {**WHEN, "neg_sampling": ("triplet", 3), "exclude_seed_edges": BACK, "replace": True},
    ),
    "window, replace": (CITES, {**WHEN, "neg_sampling": "triplet", "time_window": 30, "replace": True}),
    "last of a window": (WRITES, {**WHEN, "neg_sampling": "triplet", "temporal_strategy": "last", "time_window": 30}),
    "nodes of one": (WRITES, {**BORN, "neg_sampling": ("binary", 2), "strict_negatives": True}),
    "nodes of the other": (BACK, {**BORN, "neg_sampling": ("triplet", 2), "exclude_seed_edges": True}),
    "nodes of both": (
        BACK,
        {**SINCE, "neg_sampling": ("binary", 1.5), "strict_negatives": True, "exclude_seed_edges": True},
    ),
    "nodes, triplets of one type": (CITES, {**SINCE, "neg_sampling": ("triplet", 2), "strict_negatives": True}),
}


def way_of(form: Form, way: str) -> tuple[EdgeType, dict[str, Any]]:
    """A way in a form of the graph: where there is one relation, the links are of it, and it leads back itself."""
    of, options = WAYS[way]
    if form.several:
        return of, options
    back = options.get("exclude_seed_edges", False)
    return form.within, {**options, "exclude_seed_edges": "reverse" if isinstance(back, tuple) else back}


def fanouts_of(form: Form, hops: list[int]) -> Any:
    """Of several types, some fanouts of the first hop are 0, so that an excluded edge is first met in the second."""
    fanouts = form.fanouts(hops)
    return {**fanouts, CITES: [0, *hops[1:]]} if form.several else fanouts


def as_nodes(batch: Any, of: EdgeType, n: int, m: int, triplets: bool, timed: bool) -> Parts:
    """The batch as one of input nodes, every end of a link one of them, which the oracle of these knows."""
    sources = torch.arange(n) if triplets else torch.arange(n + m) % n
    targets = torch.arange(n + m) % n
    links = {of[0]: torch.cat([sources, targets])} if of[0] == of[2] else {of[0]: sources, of[2]: targets}
    times = None
    if timed:
        if triplets:
            times = batch[of[0]].seed_time
            assert times.equal(batch[of[2]].seed_time)
            assert times.numel() == n
        else:
            times = batch[of].edge_label_time
            assert times.equal(times[:n][torch.arange(n + m) % n])
    out: dict[Any, Any] = {relation: batch[relation] for relation in batch.edge_types}
    tree: dict[str, torch.Tensor] = {}
    of_tree: list[torch.Tensor] = []
    for node_type in batch.node_types:
        assert "batch_size" not in batch[node_type]
        assert "seed_time" not in batch[node_type] or (triplets and node_type in links)
        part = out[node_type] = Part(batch[node_type].items())
        tree[node_type] = torch.full_like(part.n_id, -1)
        if node_type in links:
            part["batch_size"] = links[node_type].numel()
            first = sum(map(len, of_tree))
            tree[node_type][: part.batch_size] = torch.arange(first, first + part.batch_size)
            of_tree.append(links[node_type])
            if times is not None:
                part["seed_time"] = times[links[node_type]]
    of_end = torch.cat(of_tree)
    for _ in range(3):  # hops
        for relation in batch.edge_types:
            source, target = batch[relation].edge_index
            known = tree[relation[2]][target] >= 0
            tree[relation[0]][source[known]] = tree[relation[2]][target[known]]
    for node_type in batch.node_types:
        assert batch[node_type].batch.equal(of_end[tree[node_type]]), node_type
        out[node_type]["batch"] = tree[node_type]
    return Parts(out)


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("hops", [[3, 2], [1, -1], [-1, 1, 2]], ids=str)
def test_equals_the_oracle(form: Form, way: str, hops: list[int]) -> None:
    graph, (of, options) = form.graph, way_of(form, way)
    links, times = links_of(graph, of), edge_times(graph, options.get("time_attr"))
    oracle, fanouts = Trees(graph, times), fanouts_of(form, hops)
    how = {
        "last": options.get("temporal_strategy") == "last",
        "window": options.get("time_window"),
        "replace": options.get("replace", False),
    }
    neg = options.get("neg_sampling")
    mode, amount = (neg, 1) if isinstance(neg, str) else neg or (None, 0)
    triplets, exclude = mode == "triplet", options.get("exclude_seed_edges", False)
    back = of if exclude == "reverse" else exclude if isinstance(exclude, tuple) else None
    true_edges = set(zip(*graph[of]["edge_index"].tolist(), strict=True)) | set(zip(*links.tolist(), strict=True))
    seen: list[int] = []
    with LinkLoader(form.data, form.bare(fanouts), form.links(links, of), **options, **OPTIONS) as loader:
        for i, batch in enumerate(form.batches(loader)):
            n = batch[of].batch_size
            m = math.ceil(n * amount)
            seen += batch[of].input_id.tolist()
            nodes = as_nodes(batch, of, n, m, triplets, "time_attr" in options)
            at = n if triplets else n + m
            ids = batch[of[0]].n_id, batch[of[2]].n_id[at if of[0] == of[2] else 0 :]
            pos = torch.stack([ids[0][:n], ids[1][:n]])
            assert pos.equal(links[:, batch[of].input_id])
            first = at if of[0] == of[2] else 0
            if triplets:
                assert batch[of[0]].src_index.tolist() == list(range(n))
                assert batch[of[2]].dst_pos_index.tolist() == list(range(first, first + n))
                want = torch.arange(first + n, first + n + m).view(-1, n).t().squeeze(-1)
                assert batch[of[2]].dst_neg_index.equal(want if amount > 1 else want.reshape(n))
                negatives = torch.stack([pos[0].repeat(int(amount)), ids[1][n : n + m]])
            else:
                assert batch[of].edge_label_index.tolist() == [
                    list(range(n + m)),
                    list(range(first, first + n + m)),
                ]
                negatives = torch.stack([ids[0][n : n + m], ids[1][n : n + m]])
            reduced = oracle
            if exclude:
                reduced = copy.copy(oracle)
                reduced.edges = dict(oracle.edges)
                out = {of: set(zip(*pos.tolist(), strict=True))}
                if back is not None:
                    out[back] = out.get(back, set()) | set(zip(*pos.flip(0).tolist(), strict=True))
                for relation, pairs in out.items():
                    hidden = np.array([p in pairs for p in zip(*graph[relation]["edge_index"].tolist(), strict=True)])
                    reduced.edges[relation] = [edges[~hidden[edges]] for edges in oracle.edges[relation]]
            reduced.check(nodes, fanouts, (7, 0, i), **how)
            check_trees(nodes, graph, times, how["window"])
            if times:
                link_times = batch[of[0]].seed_time if triplets else batch[of].edge_label_time[:n]
                np.testing.assert_array_equal(link_times, TIMES[batch[of].input_id])
                for end, ids_of in zip((of[0], of[2]), negatives, strict=True):
                    if options["time_attr"] in graph[end] and not (triplets and end is of[0]):
                        born = graph[end][options["time_attr"]][ids_of]
                        assert (born <= TIMES[batch[of].input_id][np.arange(m) % n]).all()
            if options.get("strict_negatives"):
                assert not true_edges & set(zip(*negatives.tolist(), strict=True))
                assert of[0] != of[2] or (negatives[0] != negatives[1]).all()
    assert sorted(seen) == list(range(LINKS))


PLACES: list[dict[str, Any]] = [
    {"num_workers": 1, "prefetch": 0},
    {"neighbor_cache": 0, "feature_cache": 0, "num_workers": 8, "prefetch": 8},
    {"neighbor_cache": 0, "cache": "belady", "feature_cache": 4_000, "memory": "32MiB"},
    {"neighbor_cache": 10_000, "cache": "lru", "feature_cache": 4_000},
    {"cache": "presc", "feature_cache": 4_000},
]


@pytest.mark.parametrize("way", WAYS)
def test_place_changes_nothing(form: Form, way: str) -> None:
    of, options = way_of(form, way)
    links = form.links(links_of(form.graph, of), of)
    with LinkLoader(form.data, [3, 2], links, **OPTIONS, **options) as memory:
        want = [list(memory) for _ in range(2)]
    for place in PLACES:
        with LinkLoader(form.path, [3, 2], links, **OPTIONS, **options, **place) as disk:
            for epoch in want:
                assert_batches_equal(epoch, disk)


def test_a_state_continues_and_belongs_to_its_times(form: Form) -> None:
    of, options = way_of(form, "triplets, last")
    links, what = form.links(links_of(form.graph, of), of), {**OPTIONS, "batch_size": 16, **options}
    with LinkLoader(form.data, [3, 2], links, **what) as loader:
        batches = list(loader)
    with LinkLoader(form.path, [3, 2], links, **what) as loader:
        for nodes, batch in zip(loader.trace(0), form.batches(batches), strict=True):
            by_type = nodes if isinstance(nodes, dict) else {form.node_type: nodes}
            assert all(ids.equal(batch[t].n_id) for t, ids in by_type.items())
        list(itertools.islice(loader, 3))
        state = json.loads(json.dumps(loader.state_dict()))
    with LinkLoader(form.path, [3, 2], links, **what) as loader:
        loader.load_state_dict(state)
        assert_batches_equal(batches[3:], loader)
    for change in ({"edge_label_time": TIMES + 1}, {"time_attr": "since"}, {"temporal_strategy": "uniform"}):
        with (
            LinkLoader(form.path, [3, 2], links, **{**what, **change}) as loader,
            pytest.raises(INVALID, match="loader with other batches"),
        ):
            loader.load_state_dict(state)


def test_every_edge_has_its_own_time(form: Form) -> None:
    of = WRITES if form.several else form.within
    when, links = form.graph[of]["when"], form.links(None, of)
    what: dict[str, Any] = {**OPTIONS, "batch_size": 150, "neg_sampling": "binary", "time_attr": "when"}
    for data in (form.data, form.path):
        with (
            LinkLoader(data, [2], links, **what) as own,
            LinkLoader(data, [2], links, edge_label_time=when, **what) as given,
        ):
            for one, other in zip(own, given, strict=True):
                assert_equal(one, other)
                part = form.by_type(one)[of]
                np.testing.assert_array_equal(part.edge_label_time[: part.batch_size], when[part.input_id])


@pytest.mark.parametrize(
    ("mode", "amount"), [(None, 1), ("binary", 2), ("binary", 0.5), ("binary", 2.5), ("triplet", 1), ("triplet", 3)]
)
@pytest.mark.parametrize("attr", ["when", "since", "born", None])
def test_seeds_are_those_of_pyg(form: Form, mode: str | None, amount: float, attr: str | None) -> None:
    """PyG's edge_sample says what the seeds, their times and the tensors of labels are, in front of any sampler."""
    pytest.importorskip("torch_geometric")
    for of in (WRITES, BACK, CITES) if form.several else (form.within,):
        check_seeds(form, of, mode, amount, attr)


def check_seeds(form: Form, of: EdgeType, mode: str | None, amount: float, attr: str | None) -> None:
    from torch_geometric.sampler import EdgeSamplerInput, HeteroSamplerOutput, NegativeSampling, SamplerOutput
    from torch_geometric.sampler.neighbor_sampler import edge_sample

    graph, count = form.graph, num_nodes(form.graph)
    one = {}  # every negative is this node: then nothing is random
    for end in (of[0], of[2]):
        one[end] = torch.zeros(count[end])
        one[end][int(graph[end][attr].argmin()) if attr in graph[end] else 3] = 1
    neg = NegativeSampling(mode, amount, one[of[0]] if mode == "binary" else None, one[of[2]]) if mode else None
    links, label_time = links_of(graph, of), torch.from_numpy(TIMES) if attr else None
    label = torch.arange(LINKS) % 3 if mode == "binary" else None
    how: dict[str, Any] = {"time_attr": attr, "edge_label_time": label_time} if attr else {"disjoint": True}
    born: Any = {t: torch.from_numpy(graph[t][attr]) for t in count if attr in graph[t]}
    born = form.bare(born) if born else None
    asked: dict[str, Any] = {}

    def sample(seeds: Any, times: Any) -> Any:
        asked.update(seeds=seeds, times=times)
        none = torch.empty(0, dtype=torch.int64)
        if isinstance(seeds, torch.Tensor):
            asked["seeds"] = {"": seeds}
            return SamplerOutput(node=seeds, row=none, col=none, edge=none, batch=torch.arange(seeds.numel()))
        first, trees = 0, {}
        for node_type in (t for t in count if t in seeds):
            trees[node_type] = torch.arange(first, first + seeds[node_type].numel())
            first += seeds[node_type].numel()
        return HeteroSamplerOutput(node=seeds, row={}, col={}, edge={}, batch=trees)

    data = pyg_data(graph)
    with LinkLoader(data, [2], form.links(links, of), label, neg_sampling=neg, **how, **OPTIONS) as loader:
        for batch in form.batches(loader):
            at = batch[of].input_id
            given = EdgeSamplerInput(
                at,
                links[0, at],
                links[1, at],
                None if label is None else (label + 1)[at],
                None if label_time is None else label_time[at],
                of if form.node_type else None,
            )
            out = edge_sample(given, sample, form.bare(count), True, born, neg)
            trees = out.batch if isinstance(out.batch, dict) else {"": out.batch}
            for node_type, seeds in asked["seeds"].items():
                part = batch[node_type]
                assert part.num_sampled_nodes[0] == seeds.numel()
                assert part.n_id[: seeds.numel()].equal(seeds)
                if amount % 1 == 0:  # else PyG's modulo takes targets to other links
                    assert part.batch[: seeds.numel()].equal(trees[node_type])
            if mode == "triplet":
                names = {(of, "input_id"): 0, (of[0], "src_index"): 1, (of[2], "dst_pos_index"): 2}
                names |= {(of[2], "dst_neg_index"): 3, (of[0], "seed_time"): 4, (of[2], "seed_time"): 4}
            else:
                names = {(of, "input_id"): 0, (of, "edge_label_index"): 1, (of, "edge_label"): 2}
                names |= {(of, "edge_label_time"): 3}
            for (key, name), place in names.items():
                if out.metadata[place] is None:
                    assert name not in batch[key]
                else:
                    assert batch[key][name].equal(out.metadata[place]), name
            if attr and not form.node_type:
                ours = batch[""].seed_time if mode == "triplet" else batch[of].edge_label_time
                assert ours.repeat(2 + int(amount) if mode == "triplet" else 2).equal(asked["times"])


BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"edge_label_time": TIMES}, ValueError, "edge_label_time needs time_attr"),
    ({"time_attr": "when"}, ValueError, f"needs edge_label_time, a time for each of {LINKS} links"),
    ({"time_attr": 3}, TypeError, "time_attr must be the name of an edge-level or node-level tensor, got 3"),
    (
        {"time_attr": "born", "edge_label_index": None},
        ValueError,
        "'edge_label_time' is not set: time_attr 'born' has times of nodes, so it must give",
    ),
    ({**WHEN, "edge_label_time": TIMES[1:]}, ValueError, f"each of {LINKS} links, got {LINKS - 1}"),
    (
        {**WHEN, "edge_label_index": None},
        ValueError,
        f"has {LINKS} times, expected one for each of {EDGES} links",
    ),
    ({**WHEN, "edge_label_time": TIMES + 0.5}, TypeError, "edge_label_time must be integers.*float64"),
    ({**WHEN, "edge_label_time": TIMES[None]}, ValueError, "edge_label_time must be one-dimensional"),
    ({**WHEN, "edge_label_time": "now"}, TypeError, "edge_label_time must be integers, one for each link"),
    (
        {**WHEN, "edge_label_time": torch.ones(LINKS).long().to_sparse()},
        TypeError,
        "edge_label_time .*dense tensor",
    ),
    ({**WHEN, "input_time": TIMES}, TypeError, "input_time"),
    ({**WHEN, "time_attr": "whenever"}, ValueError, "no tensor of the graph"),
    ({**WHEN, "time_attr": "x"}, ValueError, "one integer"),
    ({**WHEN, "time_attr": 3}, TypeError, "time_attr must be the name"),
    ({**WHEN, "time_window": 0}, ValueError, "time_window must be at least 1"),
    ({**WHEN, "temporal_strategy": "first"}, ValueError, "'uniform', 'last'"),
    ({**WHEN, "weight_attr": "weight"}, ValueError, "time_attr cannot be combined with weight_attr"),
    ({**WHEN, "neighbor_sampler": "labor"}, ValueError, "LABOR"),
    ({"disjoint": True, "num_neighbors": [freshgo.RandomWalk()]}, ValueError, "random walks"),
    ({"disjoint": 1}, TypeError, "disjoint"),
    ({"disjoint": True, "exclude_seed_edges": True, "subgraph_type": "bidirectional"}, ValueError, "subgraph_type"),
    ({"disjoint": True, "subgraph_type": "induced"}, ValueError, "induced"),
    (
        {"time_attr": "born", "edge_label_time": TIMES * 0 - 1, "neg_sampling": "binary"},
        ValueError,
        "as early as time -1",
    ),
]


@pytest.mark.parametrize(("options", "error", "message"), BAD, ids=[str(i) for i in range(len(BAD))])
def test_bad_input(plain: dict[str, Any], options: dict[str, Any], error: type[Exception], message: str) -> None:
    links = links_of(as_types(plain), UNNAMED)
    before = freshgo._native.process.counters()["graphs"]
    with pytest.raises(error, match=message) as caught:
        LinkLoader(plain, **{"num_neighbors": [2], "edge_label_index": links, **options})
    assert isinstance(caught.value, errors.FreshgoError) or "input_time" in options
    assert freshgo._native.process.counters()["graphs"] == before


def test_times_given_to_a_loader_are_its_own(plain: dict[str, Any]) -> None:
    links = links_of(as_types(plain), UNNAMED)
    times = torch.from_numpy(TIMES).clone()
    with LinkLoader(plain, [3], links, None, times, time_attr="when", batch_size=LINKS) as loader:
        want = next(iter(loader))
        times.fill_(10**9)
        loader.set_epoch(0)
        assert_equal(want, next(iter(loader)))


def test_a_graph_without_edges() -> None:
    none = np.zeros((2, 0), dtype=np.int64)
    graph = {"num_nodes": 5, "edge_index": none, "when": none[0]}
    how: dict[str, Any] = {"time_attr": "when", "edge_label_time": [4, 5], "exclude_seed_edges": "reverse"}
    with LinkLoader(graph, [3, 2], [[0, 1], [1, 1]], neg_sampling="binary", batch_size=2, **how) as loader:
        batch = next(iter(loader))
    assert batch.edge_index.shape == (2, 0)
    assert batch.n_id[[0, 1, 4, 5]].tolist() == [0, 1, 1, 1]
    assert batch.edge_label_time.tolist() == [4, 5, 4, 5]


@pytest.mark.parametrize(
    ("of", "options", "message"),
    [
        (WRITES, {"edge_label_time": TIMES}, "edge_label_time needs time_attr"),
        (WRITES, {"time_attr": "when"}, f"needs edge_label_time, a time for each of {LINKS} links"),
        (
            WRITES,
            {"time_attr": "when", "edge_label_time": TIMES[1:]},
            f"a time for each of {LINKS} links, got {LINKS - 1}",
        ),
        (
            "all",
            {"time_attr": "when", "edge_label_time": TIMES},
            f"has {LINKS} times, expected one for each of 360 links",
        ),
        (
            "all",
            {"time_attr": "born"},
            "'edge_label_time' is not set: time_attr 'born' has times of nodes, so it must give",
        ),
        (
            "back",
            {"time_attr": "when"},
            r"edge type \(paper, written by, author\) has no time_attr 'when' of its own",
        ),
        (WRITES, {**WHEN, "time_attr": "whenever"}, "no tensor of the graph"),
        (WRITES, {**WHEN, "time_attr": "both"}, "names tensors of nodes .* and of edges"),
        (
            WRITES,
            {**WHEN, "edge_label_time": TIMES - 200, "time_attr": "born", "neg_sampling": "binary"},
            "as early as",
        ),
        (WRITES, {"disjoint": True, "neighbor_sampler": "labor"}, "LABOR"),
        (WRITES, {**WHEN, "weight_attr": "weight"}, "time_attr cannot be combined with weight_attr"),
        (WRITES, {"disjoint": True, "subgraph_type": "induced"}, "induced"),
    ],
)
def test_bad_input_of_types(graph: Graph, of: Any, options: dict[str, Any], message: str) -> None:
    odd = {key: dict(part) for key, part in graph.items()}
    odd["author"]["both"] = np.zeros(num_nodes(graph)["author"], np.int64)
    odd[CITES]["both"] = graph[CITES]["when"]
    links = {"all": WRITES, "back": BACK}.get(of) or (of, links_of(graph, of))
    with pytest.raises(INVALID, match=message):
        LinkLoader(odd, [2], links, **options)


def test_many_types_of_trees() -> None:
    """A batch has room for all tensors of many types of nodes, of which few have edges."""
    graph: Graph = {f"t{i}": {"num_nodes": 2, "at": np.zeros(2, np.int64)} for i in range(40)}
    graph["t0", "to", "t1"] = {"edge_index": np.array([[0, 1], [1, 0]])}
    of = ("t0", "to", "t1")
    with LinkLoader(
        graph, [1], (of, [[0], [1]]), edge_label_time=[0], time_attr="at", neg_sampling="triplet"
    ) as loader:
        batch = next(iter(loader))
        assert batch["t1"].n_id[0] == 1
    with Loader(graph, [1], {f"t{i}": None for i in range(40)}, time_attr="at", batch_size=80) as loader:
        assert sum(next(iter(loader))[f"t{i}"].seed_time.numel() for i in range(40)) == 80
