"""LinkLoader over graphs with types, in disjoint trees and by time: against an oracle, PyG, and itself elsewhere."""

from __future__ import annotations

import copy
import itertools
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from seeds import seed as seed_of
from typed_oracle import Graph, hetero_data, num_nodes, relations, typed_digest, typed_graph
from typed_trees_oracle import Trees, check_trees

from freshgo import LinkLoader, Loader, convert, errors

pytestmark = pytest.mark.explore

WRITES, BACK, CITES = ("author", "writes", "paper"), ("paper", "written by", "author"), ("paper", "cites", "paper")
INVALID = errors.InvalidArgumentError
OPTIONS: dict[str, Any] = {"batch_size": 16, "shuffle": True, "seed": 7}
LINKS = 40


@pytest.fixture(scope="module")
def graph() -> Graph:
    """Of nodes papers alone have ``born``, papers and authors ``since``; of edges two relations have ``when``."""
    graph = typed_graph(scale=40, seed=3)
    rng = np.random.default_rng(seed_of(9))
    count = num_nodes(graph)
    graph["paper"]["born"] = rng.integers(0, 60, count["paper"])
    graph["paper"]["since"] = rng.integers(0, 60, count["paper"]).astype(np.int16)
    graph["author"]["since"] = rng.integers(0, 60, count["author"])
    for relation in (CITES, WRITES):
        graph[relation]["when"] = rng.integers(0, 100, graph[relation]["edge_index"].shape[1])
    return graph


@pytest.fixture(scope="module")
def path(graph: Graph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    where = tmp_path_factory.mktemp("timed types") / "graph.freshgo"
    convert(graph, where, progress=False).close()
    return where


def links_of(graph: Graph, of: Any) -> torch.Tensor:
    """Edges of a relation, and ten pairs that may be none."""
    rng, edges, count = np.random.default_rng(seed_of(5)), graph[of]["edge_index"], num_nodes(graph)
    others = np.stack([rng.integers(count[of[0]], size=10), rng.integers(count[of[2]], size=10)])
    return torch.from_numpy(np.concatenate([edges[:, rng.permutation(edges.shape[1])[: LINKS - 10]], others], axis=1))


TIMES = np.random.default_rng(seed_of(8)).integers(30, 110, LINKS)
WHEN: dict[str, Any] = {"time_attr": "when", "edge_label_time": TIMES}
WAYS: dict[str, tuple[Any, dict[str, Any]]] = {
    "disjoint": (WRITES, {"disjoint": True, "neg_sampling": ("binary", 0.5), "exclude_seed_edges": True}),
    "plain": (WRITES, WHEN),
    "pairs, targets first": (BACK, {**WHEN, "neg_sampling": ("binary", 1.5), "exclude_seed_edges": WRITES}),
    "pairs of one type": (CITES, {**WHEN, "neg_sampling": "binary", "exclude_seed_edges": "reverse"}),
    "triplets, last": (
        WRITES,
        {**WHEN, "neg_sampling": ("triplet", 3), "temporal_strategy": "last", "exclude_seed_edges": BACK},
    ),
    "window, replace": (CITES, {**WHEN, "neg_sampling": "triplet", "time_window": 30, "replace": True}),
    "nodes of one": (
        WRITES,
        {**WHEN, "time_attr": "born", "neg_sampling": ("binary", 2), "strict_negatives": True},
    ),
    "nodes of the other": (
        BACK,
        {**WHEN, "time_attr": "born", "neg_sampling": ("triplet", 2), "exclude_seed_edges": True},
    ),
    "nodes of both": (
        BACK,
        {
            **WHEN,
            "time_attr": "since",
            "neg_sampling": ("binary", 1.5),
            "strict_negatives": True,
            "exclude_seed_edges": True,
        },
    ),
    "nodes, triplets of one type": (
        CITES,
        {**WHEN, "time_attr": "since", "neg_sampling": ("triplet", 2), "strict_negatives": True},
    ),
}


def fanouts_of(graph: Graph, hops: list[int]) -> dict[Any, list[int]]:
    """Some fanouts of the first hop are 0, so that an excluded edge is first met in the second."""
    return {relation: [0, *hops[1:]] if relation == CITES else hops for relation in relations(graph)}


def edge_times(graph: Graph, name: str | None) -> dict[Any, Any]:
    """The time of every edge of the relations that have any."""
    found = {}
    for relation in relations(graph):
        if name in graph[relation]:
            found[relation] = graph[relation][name]
        elif name in graph[relation[0]]:
            found[relation] = graph[relation[0]][name][graph[relation]["edge_index"][0]].astype(np.int64)
    return found


class Part(dict[str, Any]):
    __getattr__ = dict.__getitem__


def as_nodes(batch: Any, of: Any, n: int, m: int, triplets: bool, timed: bool) -> dict[Any, Any]:
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
    return out


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("hops", [[3, 2], [1, -1]], ids=str)
def test_equals_the_oracle(graph: Graph, way: str, hops: list[int]) -> None:
    of, options = WAYS[way]
    links, times = links_of(graph, of), edge_times(graph, options.get("time_attr"))
    oracle, fanouts = Trees(graph, times), fanouts_of(graph, hops)
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
    with LinkLoader(graph, fanouts, (of, links), **options, **OPTIONS) as loader:
        for i, batch in enumerate(loader):
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
            arranged: Any = nodes
            reduced.check(arranged, fanouts, (7, 0, i), **how)
            check_trees(arranged, graph, times, how["window"])
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
    {"neighbor_cache": 0, "feature_cache": 0, "num_workers": 4, "prefetch": 5},
    {"cache": "belady", "feature_cache": "32KiB", "neighbor_cache": 0},
    {"memory": "32MiB"},
]


@pytest.mark.parametrize("way", WAYS)
def test_place_changes_nothing(graph: Graph, path: Path, way: str) -> None:
    of, options = WAYS[way]
    links = (of, links_of(graph, of))
    with LinkLoader(graph, [3, 2], links, **OPTIONS, **options) as memory:
        want = [[typed_digest(batch) for batch in memory] for _ in range(2)]
    for place in PLACES:
        with LinkLoader(path, [3, 2], links, **OPTIONS, **options, **place) as disk:
            assert [[typed_digest(batch) for batch in disk] for _ in range(2)] == want, place


def test_a_state_continues_and_belongs_to_its_times(graph: Graph, path: Path) -> None:
    of, options = WAYS["triplets, last"]
    links = (of, links_of(graph, of))
    with LinkLoader(graph, [3, 2], links, **OPTIONS, **options) as loader:
        batches = [typed_digest(batch) for batch in loader]
    with LinkLoader(path, [3, 2], links, **OPTIONS, **options) as loader:
        list(itertools.islice(loader, 1))
        state = json.loads(json.dumps(loader.state_dict()))
    with LinkLoader(path, [3, 2], links, **OPTIONS, **options) as loader:
        loader.load_state_dict(state)
        assert [typed_digest(batch) for batch in loader] == batches[1:]
        traced = list(loader.trace(0))
        loader.set_epoch(0)
        for nodes, batch in zip(traced, loader, strict=True):
            assert all(ids.equal(batch[t].n_id) for t, ids in nodes.items())
    with (
        LinkLoader(path, [3, 2], links, **OPTIONS, **{**options, "edge_label_time": TIMES + 1}) as loader,
        pytest.raises(INVALID, match="loader with other batches"),
    ):
        loader.load_state_dict(state)


def test_every_edge_has_its_own_time(graph: Graph, path: Path) -> None:
    when = graph[WRITES]["when"]
    what: dict[str, Any] = {**OPTIONS, "batch_size": 150, "neg_sampling": "binary", "time_attr": "when"}
    for data in (graph, path):
        with (
            LinkLoader(data, [2], WRITES, **what) as own,
            LinkLoader(data, [2], WRITES, edge_label_time=when, **what) as given,
        ):
            for one, other in zip(own, given, strict=True):
                assert typed_digest(one) == typed_digest(other)
                n = one[WRITES].batch_size
                np.testing.assert_array_equal(one[WRITES].edge_label_time[:n], when[one[WRITES].input_id])


@pytest.mark.parametrize("of", [WRITES, BACK, CITES], ids=" ".join)
@pytest.mark.parametrize("mode", [None, "binary", "triplet"])
@pytest.mark.parametrize("attr", ["when", "since", "born", None])
def test_seeds_are_those_of_pyg(graph: Graph, of: Any, mode: str | None, attr: str | None) -> None:
    """PyG's edge_sample says what the seeds, their times and the tensors of labels are, in front of any sampler."""
    pytest.importorskip("torch_geometric")
    from torch_geometric.sampler import EdgeSamplerInput, HeteroSamplerOutput, NegativeSampling
    from torch_geometric.sampler.neighbor_sampler import edge_sample

    count = num_nodes(graph)
    one = {}  # every negative is this node: then nothing is random
    for end in (of[0], of[2]):
        one[end] = torch.zeros(count[end])
        one[end][int(graph[end][attr].argmin()) if attr in graph[end] else 3] = 1
    neg = NegativeSampling(mode, 2, one[of[0]] if mode == "binary" else None, one[of[2]]) if mode else None
    links, label_time = links_of(graph, of), torch.from_numpy(TIMES) if attr else None
    how: dict[str, Any] = {"time_attr": attr, "edge_label_time": label_time} if attr else {"disjoint": True}
    born = {t: torch.from_numpy(graph[t][attr]) for t in count if attr in graph[t]} or None
    asked: dict[str, Any] = {}

    def sample(seeds: dict[str, torch.Tensor], times: dict[str, torch.Tensor] | None) -> Any:
        asked.update(seeds=seeds, times=times)
        first, trees = 0, {}
        for node_type in (t for t in count if t in seeds):
            trees[node_type] = torch.arange(first, first + seeds[node_type].numel())
            first += seeds[node_type].numel()
        return HeteroSamplerOutput(node=seeds, row={}, col={}, edge={}, batch=trees)

    with LinkLoader(hetero_data(graph), [2], (of, links), neg_sampling=neg, **how, **OPTIONS) as loader:
        for batch in loader:
            at = batch[of].input_id
            given = EdgeSamplerInput(
                at, links[0, at], links[1, at], None, None if label_time is None else label_time[at], of
            )
            out = edge_sample(given, sample, count, True, born, neg)
            for node_type, seeds in asked["seeds"].items():
                part = batch[node_type]
                assert part.num_sampled_nodes[0] == seeds.numel()
                assert part.n_id[: seeds.numel()].equal(seeds)
                assert part.batch[: seeds.numel()].equal(out.batch[node_type])
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


@pytest.mark.parametrize(
    ("of", "options", "message"),
    [
        (WRITES, {"edge_label_time": TIMES}, "edge_label_time needs time_attr"),
        (WRITES, {"time_attr": "when"}, "needs edge_label_time, a time for each of 40 links"),
        (WRITES, {"time_attr": "when", "edge_label_time": TIMES[1:]}, "a time for each of 40 links, got 39"),
        ("all", {"time_attr": "when", "edge_label_time": TIMES}, "has 40 times, expected one for each of 360 links"),
        ("all", {"time_attr": "born"}, "times of nodes, so edge_label_time must give"),
        (
            "back",
            {"time_attr": "when"},
            r"edge type \(paper, written by, author\) has no time_attr \"when\" of its own",
        ),
        (WRITES, {**WHEN, "time_attr": "whenever"}, "no tensor of any type"),
        (WRITES, {**WHEN, "time_attr": "both"}, "names tensors of nodes .* and of edges"),
        (
            WRITES,
            {**WHEN, "edge_label_time": TIMES - 200, "time_attr": "born", "neg_sampling": "binary"},
            "as early as",
        ),
        (WRITES, {"disjoint": True, "sampler": "labor"}, "LABOR"),
        (WRITES, {**WHEN, "weight_attr": "weight"}, "time_attr and weight_attr"),
        (WRITES, {"disjoint": True, "subgraph_type": "induced"}, "induced"),
    ],
)
def test_bad_input(graph: Graph, of: Any, options: dict[str, Any], message: str) -> None:
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
