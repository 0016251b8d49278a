"""LinkLoader in disjoint trees and by time: against an oracle, PyG's own edge_sample, and itself elsewhere."""

from __future__ import annotations

import copy
import itertools
import json
import math
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from oracle import assert_equal, check_rows
from seeds import seed as seed_of
from temporal_oracle import Oracle, no_future

import freshgo
from freshgo import LinkLoader, errors

pytestmark = pytest.mark.explore

NODES, EDGES, LINKS = 300, 2000, 330
OPTIONS: dict[str, Any] = {"batch_size": 50, "shuffle": True, "seed": 7}


@pytest.fixture(scope="module")
def graph() -> dict[str, Any]:
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
        "edge_time": time,
        "born": rng.integers(0, 60, NODES).astype(np.int32),
        "weight": rng.random(EDGES, dtype=np.float32),
    }


@pytest.fixture(scope="module")
def links(graph: dict[str, Any]) -> torch.Tensor:
    rng = np.random.default_rng(seed_of(6))
    edges = graph["edge_index"][:, rng.permutation(EDGES)[: LINKS - 30]]
    return torch.from_numpy(np.concatenate([edges, rng.integers(NODES, size=(2, 30))], axis=1))


TIMES = np.random.default_rng(seed_of(8)).integers(60, 110, LINKS)


@pytest.fixture(scope="module")
def path(graph: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("timed") / "graph.freshgo"
    freshgo.convert(graph, path, progress=False).close()
    return path


EDGE_TIMES: dict[str, Any] = {"time_attr": "edge_time", "edge_label_time": TIMES}
WAYS: dict[str, dict[str, Any]] = {
    "plain": EDGE_TIMES,
    "binary": {**EDGE_TIMES, "neg_sampling": ("binary", 1.5), "exclude_seed_edges": True},
    "triplet": {**EDGE_TIMES, "neg_sampling": ("triplet", 3), "exclude_seed_edges": "reverse", "replace": True},
    "last": {**EDGE_TIMES, "neg_sampling": "binary", "exclude_seed_edges": "reverse", "temporal_strategy": "last"},
    "window": {**EDGE_TIMES, "neg_sampling": "triplet", "temporal_strategy": "last", "time_window": 30},
    "nodes": {
        "time_attr": "born",
        "edge_label_time": TIMES - 25,
        "neg_sampling": ("triplet", 2),
        "strict_negatives": True,
    },
    "nodes, pairs": {
        "time_attr": "born",
        "edge_label_time": TIMES - 50,
        "neg_sampling": ("binary", 2),
        "exclude_seed_edges": True,
    },
    "disjoint": {
        "disjoint": True,
        "neg_sampling": ("binary", 0.5),
        "strict_negatives": True,
        "exclude_seed_edges": True,
    },
}


def edge_times(graph: dict[str, Any], way: dict[str, Any]) -> Any:
    return {"edge_time": graph["edge_time"], "born": graph["born"][graph["edge_index"][0]], None: None}[
        way.get("time_attr")
    ]


def counts(way: dict[str, Any], n: int) -> tuple[int, bool]:
    """The number of negatives of a batch of n links, and whether they are triplets."""
    neg = way.get("neg_sampling")
    mode, amount = (neg, 1) if isinstance(neg, str) else neg or (None, 0)
    return math.ceil(n * amount), mode == "triplet"


def as_nodes(batch: Any, way: dict[str, Any]) -> Any:
    """The batch as one of input nodes, every end of a link one of them, which the oracle of these knows."""
    n = batch.input_id.numel()
    m, triplets = counts(way, n)
    of_end = torch.arange(2 * n + m) % n if triplets else (torch.arange(n + m) % n).repeat(2)
    tree = torch.full((batch.num_nodes,), -1)
    tree[: len(of_end)] = torch.arange(len(of_end))
    for source, target in batch.edge_index.T.tolist():  # hop by hop: a target's is known
        if tree[source] < 0:
            tree[source] = tree[target]
    assert batch.batch.equal(of_end[tree])
    out = SimpleNamespace(batch_size=len(of_end), batch=tree, of_end=of_end)
    for name in ("n_id", "edge_index", "e_id", "num_sampled_nodes"):
        setattr(out, name, batch[name])
    if "time_attr" in way:
        times = batch.seed_time if triplets else batch.edge_label_time
        assert times.numel() == (n if triplets else n + m)
        out.seed_time = times[of_end]
        assert times.equal(times[:n][torch.arange(times.numel()) % n])
    return out


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("fanouts", [[3, 2], [-1, 1, 2]])
def test_equals_the_oracle(graph: dict[str, Any], links: torch.Tensor, way: str, fanouts: list[int]) -> None:
    options = WAYS[way]
    times = edge_times(graph, options)
    oracle = Oracle(graph, times)
    how: dict[str, Any] = {
        "last": options.get("temporal_strategy") == "last",
        "window": options.get("time_window"),
        "replace": options.get("replace", False),
    }
    pairs = set(zip(*graph["edge_index"].tolist(), strict=True)) | set(zip(*links.tolist(), strict=True))
    exclude = options.get("exclude_seed_edges", False)
    source, target = graph["edge_index"]
    seen = []
    with LinkLoader(graph, fanouts, links, **options, **OPTIONS) as loader:
        for i, batch in enumerate(loader):
            nodes = as_nodes(batch, options)
            n = batch.input_id.numel()
            m, triplets = counts(options, n)
            seen += batch.input_id.tolist()
            if triplets:
                ends = torch.arange(2 * n + m)
                assert batch.src_index.equal(ends[:n])
                assert batch.dst_pos_index.equal(ends[n : 2 * n])
                assert batch.dst_neg_index.equal(ends[2 * n :].view(-1, n).t().squeeze(-1))
                pos = batch.n_id[: 2 * n].view(2, n)
                neg = torch.stack([pos[0].repeat(m // n), batch.n_id[2 * n : 2 * n + m]])
            else:
                assert batch.edge_label_index.equal(torch.arange(2 * (n + m)).view(2, -1))
                ends = batch.n_id[: 2 * (n + m)].view(2, -1)
                pos, neg = ends[:, :n], ends[:, n:]
            assert pos.equal(links[:, batch.input_id])
            out = torch.zeros(EDGES, dtype=torch.bool).numpy()
            if exclude:
                mine = pos.unique(dim=1).numpy()
                for s, t in [*mine.T, *(mine[::-1].T if exclude == "reverse" else [])]:
                    out |= (source == s) & (target == t)
                reduced = copy.copy(oracle)
                reduced.edges = [edges[~out[edges]] for edges in oracle.edges]
                assert not out[batch.e_id].any()
            (reduced if exclude else oracle).check(nodes, fanouts, (7, 0, i), **how)
            check_rows(batch, graph, batch.n_id.numpy(), batch.e_id.numpy())
            if times is not None:
                np.testing.assert_array_equal(
                    nodes.seed_time[:n], np.asarray(options["edge_label_time"])[batch.input_id]
                )
                no_future(nodes, times, how["window"])
            if options.get("strict_negatives"):
                assert not pairs & set(zip(*neg.tolist(), strict=True))
                assert (neg[0] != neg[1]).all()
            if options.get("time_attr") == "born":  # a negative is there at the time of its link
                at = nodes.seed_time[:n].repeat(m // n)
                for end in neg[1:] if triplets else neg:
                    assert (graph["born"][end] <= at.numpy()).all()
    assert sorted(seen) == list(range(LINKS))


PLACES: list[dict[str, Any]] = [
    {"num_workers": 1, "prefetch": 0},
    {"num_workers": 2, "prefetch": 0},
    {"num_workers": 8, "prefetch": 8},
    {"neighbor_cache": 0, "cache": None},
    {"neighbor_cache": 0, "cache": "belady", "feature_cache": 2_000, "memory": "32MiB"},
    {"neighbor_cache": 10_000, "cache": "lru", "feature_cache": 2_000},
    {"cache": "presc", "feature_cache": 2_000},
]


@pytest.mark.parametrize("way", WAYS)
def test_place_changes_nothing(graph: dict[str, Any], links: torch.Tensor, path: Path, way: str) -> None:
    with LinkLoader(graph, [4, 3], links, **OPTIONS, **WAYS[way]) as memory:
        want = [list(memory) for _ in range(2)]
    for place in PLACES:
        with LinkLoader(path, [4, 3], links, **OPTIONS, **WAYS[way], **place) as disk:
            for epoch in want:
                for one, other in zip(epoch, disk, strict=True):
                    assert_equal(one, other)


def test_a_state_continues_and_belongs_to_its_times(graph: dict[str, Any], links: torch.Tensor, path: Path) -> None:
    what = {**OPTIONS, **WAYS["triplet"]}
    with LinkLoader(graph, [4, 3], links, **what) as loader:
        batches = list(loader)
    with LinkLoader(path, [4, 3], links, **what) as loader:
        assert [n_id.tolist() for n_id in loader.trace(0)] == [batch.n_id.tolist() for batch in batches]
        list(itertools.islice(loader, 3))
        state = json.loads(json.dumps(loader.state_dict()))
    with LinkLoader(path, [4, 3], links, **what) as loader:
        loader.load_state_dict(state)
        for one, other in zip(batches[3:], loader, strict=True):
            assert_equal(one, other)
    for change in ({"edge_label_time": TIMES + 1}, {"time_attr": "born"}, {"temporal_strategy": "last"}):
        with (
            LinkLoader(path, [4, 3], links, **{**what, **change}) as loader,
            pytest.raises(errors.InvalidArgumentError, match="loader with other batches"),
        ):
            loader.load_state_dict(state)


def test_every_edge_has_its_own_time(graph: dict[str, Any], path: Path) -> None:
    for data in (graph, path):
        with LinkLoader(data, [4], time_attr="edge_time", neg_sampling="binary", **OPTIONS) as loader:
            own = list(loader)
        with LinkLoader(
            data, [4], time_attr="edge_time", edge_label_time=graph["edge_time"], neg_sampling="binary", **OPTIONS
        ) as loader:
            for one, other in zip(own, loader, strict=True):
                assert_equal(one, other)
                n = one.input_id.numel()
                np.testing.assert_array_equal(one.edge_label_time[:n], graph["edge_time"][one.input_id])


@pytest.mark.parametrize("amount", [1, 3, 0.5, 2.5])
@pytest.mark.parametrize("mode", [None, "binary", "triplet"])
@pytest.mark.parametrize("times", ["edges", "nodes", None])
def test_seeds_are_those_of_pyg(
    graph: dict[str, Any], links: torch.Tensor, mode: str | None, amount: float, times: str | None
) -> None:
    """PyG's edge_sample says what the seeds, their times and the tensors of labels are, in front of any sampler."""
    pytest.importorskip("torch_geometric")
    from torch_geometric.sampler import EdgeSamplerInput, NegativeSampling, SamplerOutput
    from torch_geometric.sampler.neighbor_sampler import edge_sample

    if (mode is None and amount != 1) or (mode == "triplet" and amount % 1):
        pytest.skip("no such negatives")
    weight = torch.zeros(NODES)
    weight[int(graph["born"].argmin())] = 1  # every negative is this node: then nothing is random
    neg = NegativeSampling(mode, amount, weight if mode == "binary" else None, weight) if mode else None
    label_time = torch.from_numpy(TIMES) if times else None
    how: dict[str, Any] = {"disjoint": True}
    if times:
        how = {"time_attr": {"edges": "edge_time", "nodes": "born"}[times], "edge_label_time": label_time}
    label = torch.arange(LINKS) % 3 if mode == "binary" else None
    asked: dict[str, Any] = {}

    def sample(seed: torch.Tensor, seed_time: torch.Tensor | None) -> Any:
        asked.update(seed=seed, time=seed_time)
        none = torch.empty(0, dtype=torch.int64)
        return SamplerOutput(node=seed, row=none, col=none, edge=none, batch=torch.arange(seed.numel()))

    with LinkLoader(graph, [2], links, label, neg_sampling=neg, **how, **OPTIONS) as loader:
        for batch in loader:
            at = batch.input_id
            of = EdgeSamplerInput(
                at,
                links[0, at],
                links[1, at],
                None if label is None else (label + 1)[at],
                None if label_time is None else label_time[at],
            )
            born = torch.from_numpy(graph["born"]) if times == "nodes" else None
            out = edge_sample(of, sample, NODES, True, born, neg)
            seeds = asked["seed"].numel()
            assert batch.num_sampled_nodes[0] == seeds
            assert batch.n_id[:seeds].equal(asked["seed"])
            if amount % 1 == 0:  # else PyG's modulo takes targets to other links
                assert batch.batch[:seeds].equal(out.batch)
            names = ["input_id", "edge_label_index", "edge_label", "edge_label_time"]
            if mode == "triplet":
                names = ["input_id", "src_index", "dst_pos_index", "dst_neg_index", "seed_time"]
            for name, theirs in zip(names, out.metadata, strict=True):
                if theirs is None:
                    assert name not in batch
                else:
                    assert batch[name].equal(theirs), name
            if times:
                ours = batch[names[-1]]
                half = seeds // 2
                if mode == "triplet":
                    assert ours.repeat(2 + int(amount)).equal(asked["time"])
                else:
                    assert torch.cat([ours, ours])[: 2 * half].equal(asked["time"])


BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({"edge_label_time": TIMES}, ValueError, "edge_label_time needs time_attr"),
    ({"time_attr": "edge_time"}, ValueError, f"needs edge_label_time, a time for each of {LINKS} links"),
    ({"time_attr": "born", "edge_label_index": None}, ValueError, "times of nodes, so edge_label_time must give"),
    ({**EDGE_TIMES, "edge_label_time": TIMES[1:]}, ValueError, f"each of {LINKS} links, got {LINKS - 1}"),
    (
        {**EDGE_TIMES, "edge_label_index": None},
        ValueError,
        f"has {LINKS} times, expected one for each of {EDGES} links",
    ),
    ({**EDGE_TIMES, "edge_label_time": TIMES + 0.5}, TypeError, "edge_label_time must be integers.*float64"),
    ({**EDGE_TIMES, "edge_label_time": TIMES[None]}, ValueError, "edge_label_time must be one-dimensional"),
    ({**EDGE_TIMES, "edge_label_time": "now"}, TypeError, "edge_label_time must be integers, one for each link"),
    (
        {**EDGE_TIMES, "edge_label_time": torch.ones(LINKS).long().to_sparse()},
        TypeError,
        "edge_label_time must be dense",
    ),
    ({**EDGE_TIMES, "input_time": TIMES}, TypeError, "input_time"),
    ({**EDGE_TIMES, "time_attr": "when"}, ValueError, "no tensor of the graph"),
    ({**EDGE_TIMES, "time_attr": "x"}, ValueError, "one integer"),
    ({**EDGE_TIMES, "time_attr": 3}, TypeError, "time_attr must be the name"),
    ({**EDGE_TIMES, "time_window": 0}, ValueError, "time_window must be at least 1"),
    ({**EDGE_TIMES, "temporal_strategy": "first"}, ValueError, "'uniform', 'last'"),
    ({**EDGE_TIMES, "weight_attr": "weight"}, ValueError, "time_attr and weight_attr"),
    ({**EDGE_TIMES, "sampler": "labor"}, ValueError, "LABOR"),
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
def test_bad_input(
    graph: dict[str, Any], links: torch.Tensor, options: dict[str, Any], error: type[Exception], message: str
) -> None:
    before = freshgo._native.process.counters()["graphs"]
    with pytest.raises(error, match=message) as caught:
        LinkLoader(graph, **{"num_neighbors": [2], "edge_label_index": links, **options})
    assert isinstance(caught.value, errors.FreshgoError) or "input_time" in options
    assert freshgo._native.process.counters()["graphs"] == before


def test_times_given_to_a_loader_are_its_own(graph: dict[str, Any], links: torch.Tensor) -> None:
    times = torch.from_numpy(TIMES).clone()
    with LinkLoader(graph, [3], links, None, times, time_attr="edge_time", batch_size=LINKS) as loader:
        want = next(iter(loader))
        times.fill_(10**9)
        loader.set_epoch(0)
        assert_equal(want, next(iter(loader)))


def test_a_graph_without_edges() -> None:
    none = np.zeros((2, 0), dtype=np.int64)
    graph = {"num_nodes": 5, "edge_index": none, "edge_time": none[0]}
    how: dict[str, Any] = {"time_attr": "edge_time", "edge_label_time": [4, 5], "exclude_seed_edges": "reverse"}
    with LinkLoader(graph, [3, 2], [[0, 1], [1, 1]], neg_sampling="binary", batch_size=2, **how) as loader:
        batch = next(iter(loader))
    assert batch.edge_index.shape == (2, 0)
    assert batch.n_id[[0, 1, 4, 5]].tolist() == [0, 1, 1, 1]
    assert batch.edge_label_time.tolist() == [4, 5, 4, 5]
