"""LinkLoader: what a batch of links holds, against a slow reading of it, and where it is the same."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from graphs import (
    BACK,
    CITES,
    HAS,
    IN,
    UNNAMED,
    WRITES,
    EdgeType,
    Form,
    Graph,
    as_types,
    forms,
    handed,
    hetero_graph,
    num_nodes,
    random_graph,
    relations,
)
from link_oracle import OPTIONS, ends, links_of, pairs
from oracle import assert_batches_equal, check_rows
from sampler_oracle import Stream, check_proportional
from seeds import seed as seed_of

import freshgo
import freshgo._native.process
from freshgo import Labor, LinkLoader, Loader, Store, errors

pytestmark = pytest.mark.explore

NODES, EDGES = 900, 6000
NEGATIVE = 6
"""The domain of the random numbers of negatives."""


def homogeneous() -> dict[str, Any]:
    return random_graph(NODES, EDGES, seed=4)


form = forms(homogeneous, lambda: hetero_graph(200))


@pytest.fixture(scope="module")
def graph() -> dict[str, Any]:
    return homogeneous()


@pytest.fixture(scope="module")
def hetero() -> Graph:
    return hetero_graph(200)


def relation_of(form: Form) -> EdgeType:
    return WRITES if form.several else form.within


def reverse_of(form: Form) -> Any:
    """What excludes the reverse of links of that relation."""
    return BACK if form.several else "reverse"


def check(batch: Any, graph: Graph, hops: list[int], out: dict[Any, set[tuple[int, int]]]) -> None:
    """A batch draws, along every relation, what its degrees without the pairs of ``out`` say, and no such pair.

    What is excluded is so of seeds alone: other nodes have their whole lists.
    """
    nodes = {name: batch[name].n_id.numpy() for name in batch.node_types}
    for name, ids in nodes.items():
        assert len(np.unique(ids)) == len(ids)
        assert sum(batch[name].num_sampled_nodes) == len(ids)
    for relation in relations(graph):
        part, all_edges = batch[relation], graph[relation]["edge_index"]
        assert len(part.num_sampled_edges) == len(hops)
        e_id, edge_index = part.e_id.numpy(), part.edge_index.numpy()
        source, target = nodes[relation[0]][edge_index[0]], nodes[relation[2]][edge_index[1]]
        np.testing.assert_array_equal(all_edges[:, e_id], np.stack([source, target]))
        assert len(np.unique(e_id)) == len(e_id)
        excluded = out.get(relation, set())
        hidden = np.array([pair in excluded for pair in zip(*all_edges.tolist(), strict=True)], bool)
        counts = num_nodes(graph)[relation[2]]
        degree = np.bincount(all_edges[1], minlength=counts)
        left = degree - np.bincount(all_edges[1][hidden], minlength=counts)
        drawn = np.bincount(edge_index[1], minlength=len(nodes[relation[2]]))
        first = 0
        for hop, reached in enumerate(batch[relation[2]].num_sampled_nodes[:-1]):
            at = nodes[relation[2]][first : first + reached]
            have = left[at] if hop == 0 else degree[at]
            want = have if hops[hop] == -1 else np.minimum(have, hops[hop])
            np.testing.assert_array_equal(drawn[first : first + reached], want)
            if hop == 0:
                assert not excluded & pairs(source[: drawn[:reached].sum()], target[: drawn[:reached].sum()])
            first += reached
        assert drawn[first:].sum() == 0
    check_rows(batch, graph)


@pytest.mark.parametrize("neg_sampling", [None, "binary", ("binary", 0.3), ("binary", 2.5), "triplet", ("triplet", 4)])
@pytest.mark.parametrize("strict", [False, True], ids=["any", "strict"])
@pytest.mark.parametrize("exclude", [False, True, "reverse"])
def test_a_batch_is_what_it_says(form: Form, neg_sampling: Any, strict: bool, exclude: Any) -> None:
    if not strict or neg_sampling is not None:  # without negatives none is strict
        for of in (WRITES, BACK, CITES, IN) if form.several else (form.within,):
            check_links(form, of, neg_sampling, strict, exclude)


def check_links(form: Form, of: EdgeType, neg_sampling: Any, strict: bool, exclude: Any) -> None:
    amount = 0 if neg_sampling is None else 1 if isinstance(neg_sampling, str) else neg_sampling[1]
    links, graph = links_of(form.graph, of), form.graph
    true_edges = pairs(*graph[of]["edge_index"]) | pairs(*links)
    back = {WRITES: BACK, BACK: WRITES, IN: HAS}.get(of, of)
    if exclude == "reverse" and back != of:
        exclude = back
    counts, seen = num_nodes(graph), []
    data = form.path if strict else form.data
    what = {"neg_sampling": neg_sampling, "strict_negatives": strict, "exclude_seed_edges": exclude}
    with LinkLoader(data, [4, 2], form.links(links, of), **what, **OPTIONS) as loader:
        assert len(loader) == math.ceil(links.size(1) / 64)
        for i, batch in enumerate(form.batches(loader)):
            part = batch[of]
            n = part.input_id.numel()
            assert part.batch_size == n
            assert not any("input_id" in batch[name] or "batch_size" in batch[name] for name in batch.node_types)
            seen += part.input_id.tolist()
            source, target = ends(batch, of)
            assert len(source) == len(target) == n + math.ceil(n * amount)
            np.testing.assert_array_equal(np.stack([source[:n], target[:n]]), links.numpy()[:, part.input_id])
            for name in batch.node_types:
                of_type = [side for side, end in ((source, of[0]), (target, of[2])) if end == name]
                seeds = batch[name].n_id[: batch[name].num_sampled_nodes[0]].numpy()
                np.testing.assert_array_equal(seeds, np.unique(np.concatenate(of_type)) if of_type else seeds[:0])
            if neg_sampling is not None and "src_index" not in batch[of[0]]:
                assert part.edge_label.tolist() == [1.0] * n + [0.0] * (len(source) - n)
            if strict:
                negatives = pairs(source[n:], target[n:])
                assert not negatives & true_edges
                assert of[0] != of[2] or all(s != t for s, t in negatives)
            else:  # the documented numbers
                for j in range(len(source) - n):
                    stream = Stream(NEGATIVE, 7, 0, i, j)
                    if "src_index" not in batch[of[0]]:
                        assert stream.below(counts[of[0]]) == source[n + j]
                    assert stream.below(counts[of[2]]) == target[n + j]
            out: dict[Any, set[tuple[int, int]]] = {}
            if exclude is not False:
                out[of] = pairs(source[:n], target[:n])
            if exclude not in (False, True):
                out[back] = out.get(back, set()) | pairs(target[:n], source[:n])
            check(batch, graph, [4, 2], out)
    assert sorted(seen) == list(range(links.size(1)))


def test_excluded_edges_leave_the_rest_uniform() -> None:
    """A node with 40 in-edges, of which each batch excludes one, twice there: the others are drawn equally often."""
    edges = np.stack([np.r_[np.arange(1, 41), 7], np.zeros(41, int)])
    graph = {"num_nodes": 41, "edge_index": edges}
    link = torch.tensor([[7], [0]])
    counts = np.zeros(41)
    with LinkLoader(graph, [5], link.repeat(1, 3000), exclude_seed_edges=True, batch_size=1) as loader:
        for batch in loader:
            counts += np.bincount(batch.n_id[batch.edge_index[0]], minlength=41)
    assert counts[7] == 0
    assert counts.sum() == 15_000
    expected = 15_000 / 39
    # The chi-square of draws without replacement, of 38 degrees of freedom: above 105 once in ten million.
    others = np.delete(counts[1:], 6)
    assert ((others - expected) ** 2).sum() / (expected * (1 - 5 / 39)) * 38 / 39 < 105


def edges(*pairs: tuple[int, int]) -> dict[str, Any]:
    return {"edge_index": np.array(pairs, np.int64).reshape(-1, 2).T}


def test_degenerate_graphs() -> None:
    """Relations without edges, self-loops, repeated edges, isolated nodes, types that nothing reaches; equal numbers
    of different types are no self-loop."""
    graph: Graph = {
        "a": {"num_nodes": 3},
        "b": {"num_nodes": 5},
        "empty": {"num_nodes": 0},
        "far": {"num_nodes": 2},
        ("a", "to", "b"): edges((0, 1), (0, 1), (1, 1), (2, 2), (2, 0), (2, 1), (2, 3)),
        ("b", "rev_to", "a"): edges((1, 0), (1, 0), (1, 1)),
        ("b", "on", "b"): edges((4, 4), (4, 4), (4, 3)),
        ("a", "none", "b"): edges(),
        ("empty", "of", "b"): edges(),
        ("far", "in", "far"): edges((0, 1)),
    }
    to, on = ("a", "to", "b"), ("b", "on", "b")
    allowed = {(s, t) for s in range(3) for t in range(5)} - pairs(*graph[to]["edge_index"])
    assert {(0, 0), (1, 2)} <= allowed
    seen = set()
    what: dict[str, Any] = {"batch_size": 3, "exclude_seed_edges": "reverse", "strict_negatives": True}
    for seed in range(40):
        with LinkLoader(graph, [-1, -1], to, neg_sampling="binary", seed=seed, **what) as loader:
            for batch in loader:
                source, target = ends(batch, to)
                n = batch[to].batch_size
                seen |= pairs(source[n:], target[n:])
                check(
                    batch,
                    graph,
                    [-1, -1],
                    {to: pairs(source[:n], target[:n]), ("b", "rev_to", "a"): pairs(target[:n], source[:n])},
                )
    assert seen == allowed
    with LinkLoader(graph, [-1], (on, None), neg_sampling="triplet", **what) as loader:
        for batch in loader:
            assert batch[on].edge_index.size(1) == 0  # of which every edge is a link, and "reverse" is the relation
            source, target = ends(batch, on)
            assert all((s, t) not in {(4, 4), (4, 3)} and s != t for s, t in pairs(source[3:], target[3:]))
    for relation, message in ((("a", "none", "b"), "has none"), (("empty", "of", "b"), "has none")):
        with pytest.raises(errors.InvalidArgumentError, match=message):
            LinkLoader(graph, [2], relation)
    with pytest.raises(errors.InvalidArgumentError, match=r"expected an id in \[0, 0\) of type 'empty'"):
        LinkLoader(graph, [2], (("empty", "of", "b"), [[0], [1]]))
    # A row of a that is full has no negative triplets.
    full = {**graph, to: edges(*((2, t) for t in range(5)))}
    with pytest.raises(errors.InvalidArgumentError, match="node 2 is linked with every node"):
        LinkLoader(full, [2], to, neg_sampling="triplet", strict_negatives=True)


def test_every_edge_in_the_users_order(form: Form) -> None:
    several = ((WRITES, WRITES), (HAS, ("paper", "term")))
    for data in (form.data, form.path):
        for of, name in several if form.several else ((form.within, form.links()),):
            got = []
            with LinkLoader(data, [1], name, batch_size=500) as loader:
                for batch in form.batches(loader):
                    assert "edge_label" not in batch[of]
                    got.append(np.stack(ends(batch, of)))
            np.testing.assert_array_equal(np.concatenate(got, axis=1), form.graph[of]["edge_index"])


def test_one_named_type_is_as_a_homogeneous_graph(graph: dict[str, Any]) -> None:
    """Links, negatives and seeds are those of the graph without names, and with all neighbours the edges."""
    named = as_types(graph, "paper", CITES)
    links = links_of(named, CITES)
    for neg in (("binary", 2), ("triplet", 2)):
        what = {"neg_sampling": neg, "strict_negatives": True, "exclude_seed_edges": "reverse", **OPTIONS}
        with LinkLoader(graph, [-1], links, **what) as one, LinkLoader(named, [-1], (CITES, links), **what) as other:
            for ours, theirs in zip(one, other, strict=True):
                assert set(ours.keys()) == {*theirs["paper"].keys(), *theirs[CITES].keys()}
                for key in ("paper", CITES):
                    for name, value in theirs[key].items():
                        assert value.equal(ours[name]) if isinstance(value, torch.Tensor) else value == ours[name], name


def test_weights_of_negatives_and_edges(form: Form) -> None:
    of = relation_of(form)
    rng = np.random.default_rng(seed_of(0))
    counts = [num_nodes(form.graph)[end] for end in (of[0], of[2])]
    weights = [rng.integers(0, 4, counts[0]), rng.random(counts[1]) * (rng.random(counts[1]) < 0.7)]
    neg = {"mode": "binary", "amount": 60, "src_weight": weights[0], "dst_weight": weights[1]}
    links, found = links_of(form.graph, of), [np.zeros(count) for count in counts]
    attr = "weight" if form.several else "edge_weight"
    what = {"neg_sampling": neg, "weight_attr": attr, "exclude_seed_edges": reverse_of(form), **OPTIONS}
    with LinkLoader(form.path, [3], form.links(links, of), **what) as loader:
        for batch in form.batches(loader):
            n = batch[of].batch_size
            source, target = ends(batch, of)
            for count, nodes in zip(found, (source, target), strict=True):
                count += np.bincount(nodes[n:], minlength=len(count))
            for relation in (WRITES, IN) if form.several else (of,):  # which have weights, some of them 0
                assert (batch[relation][attr] > 0).all()
            drawn = batch[of].edge_index
            drawn = pairs(batch[of[0]].n_id[drawn[0]], batch[of[2]].n_id[drawn[1]])
            assert not drawn & pairs(source[:n], target[:n])
    for count, weight in zip(found, weights, strict=True):
        check_proportional(count, weight)


PLACES: list[dict[str, Any]] = [
    {"num_workers": 8, "prefetch": 8},
    {"num_workers": 1, "prefetch": 0},
    {"memory": "24MiB"},
    {"cache": "belady", "feature_cache": "32KiB", "neighbor_cache": 0},
    {"cache": "lru", "feature_cache": "32KiB"},
    {"cache": "presc", "feature_cache": "32KiB"},
]
DRAWN: dict[str, dict[str, Any]] = {
    "uniform": {},
    "weights": {"weight_attr": "weight"},
    "replace": {"replace": True},
    "labor": {"neighbor_sampler": Labor(edge_weight=False), "exclude_seed_edges": False},
}


@pytest.mark.parametrize("drawn", DRAWN)
def test_place_changes_nothing(form: Form, drawn: str) -> None:
    of, how = relation_of(form), dict(DRAWN[drawn])
    if "weight_attr" in how and not form.several:
        how["weight_attr"] = "edge_weight"
    if "neighbor_sampler" in how and form.several:
        how["neighbor_sampler"] = "labor"  # which gives batches an edge_weight, as the other forms already have
    what: dict[str, Any] = {"neg_sampling": ("triplet", 2), "strict_negatives": True}
    what |= {"exclude_seed_edges": reverse_of(form), **how, **OPTIONS}
    links, fanouts = form.links(links_of(form.graph, of), of), form.fanouts([4, 3])
    if form.several:
        fanouts[WRITES] = [2, 0]
    with LinkLoader(form.data, form.bare(fanouts), links, **what) as memory:
        want = [list(memory) for _ in range(2)]
    for place in PLACES:
        with LinkLoader(form.path, form.bare(fanouts), links, **what, **place) as disk:
            for epoch in want:
                assert_batches_equal(epoch, disk)


def test_state_trace_and_stats(form: Form) -> None:
    of = relation_of(form)
    what: dict[str, Any] = {"neg_sampling": "binary", "strict_negatives": True, **OPTIONS, "batch_size": 300}
    what["exclude_seed_edges"] = reverse_of(form)
    with LinkLoader(form.path, [4, 3], form.links(None, of), **what, memory="12MiB") as loader:
        whole = list(loader)
        parts = form.batches(whole)
        assert sum(part[of].batch_size for part in parts) == form.graph[of]["edge_index"].shape[1]
        for nodes, batch in zip(loader.trace(0), parts, strict=True):
            by_type = nodes if isinstance(nodes, dict) else {form.node_type: nodes}
            assert all(ids.equal(batch[name].n_id) for name, ids in by_type.items())
        stats = loader.stats()
        assert stats["rows"] == stats["hits"] + stats["misses"] + stats["packed"]
        assert stats["epochs"][0]["batches"] == len(whole)
        loader.set_epoch(0)
        iterator = iter(loader)
        for _ in range(5):
            next(iterator)
        state = json.loads(json.dumps(loader.state_dict()))
        assert repr(loader).startswith("LinkLoader(")
    with LinkLoader(form.path, [4, 3], form.links(None, of), **what, memory="11MiB") as loader:
        loader.load_state_dict(state)
        assert_batches_equal(loader, whole[5:])
    others: list[tuple[EdgeType, dict[str, Any]]] = [
        (of, {"neg_sampling": "triplet"}),
        (of, {"neg_sampling": ("binary", 2)}),
        (of, {"exclude_seed_edges": True}),
    ]
    if form.several:
        others.append((BACK, {"exclude_seed_edges": WRITES}))
    for relation, other in others:
        with (
            LinkLoader(form.path, [4, 3], form.links(None, relation), **{**what, **other}) as loader,
            pytest.raises(errors.InvalidArgumentError, match="loader with other batches"),
        ):
            loader.load_state_dict(state)


def test_states_of_links_and_of_nodes_differ(form: Form) -> None:
    with (
        LinkLoader(form.data, [2], form.links(), batch_size=64) as links,
        Loader(form.data, [2], form.inputs(), batch_size=64) as nodes,
    ):
        assert "edge_label_index" not in nodes.state_dict()["config"]
        for loader, state in ((links, nodes.state_dict()), (nodes, links.state_dict())):
            with pytest.raises(errors.InvalidArgumentError, match=r"with other batches: .*edge_label_index was"):
                loader.load_state_dict(json.loads(json.dumps(state)))


def test_a_budget_that_is_too_small_names_one_that_works(form: Form) -> None:
    what: dict[str, Any] = {"neg_sampling": ("binary", 3), "strict_negatives": True, **OPTIONS}
    what |= {"exclude_seed_edges": reverse_of(form), "edge_label_index": form.links(None, relation_of(form))}
    with pytest.raises(errors.BudgetError) as caught:
        LinkLoader(form.path, [4, 3], memory=1, **what)
    with LinkLoader(form.path, [4, 3], memory=caught.value.minimum, **what) as loader:
        assert len(list(loader)) == len(loader)
        assert loader.stats()["memory_peak"] <= caught.value.minimum


def test_labels_and_what_pyg_keeps_beside_the_graph(form: Form) -> None:
    of = relation_of(form)
    links = links_of(form.graph, of)
    n = links.size(1)
    with_labels = {**form.graph[of], "edge_label_index": links, "edge_label": torch.zeros(n)}
    for label, shift in ((torch.arange(n) % 3, 1), (torch.arange(n) % 3 + 1, 0), (torch.rand(n, 2) + 1, 0)):
        for data in (form.data, handed({**form.graph, of: with_labels})):
            for amount in (0, 0.5, 1.5):
                with LinkLoader(
                    data, [2], form.links(links, of), label, neg_sampling_ratio=amount, **OPTIONS
                ) as loader:
                    for batch in form.batches(loader):
                        part, k = batch[of], batch[of].input_id.numel()
                        assert part.edge_label.dtype == label.dtype
                        assert part.edge_label.size(0) == part.edge_label_index.size(1) == k + math.ceil(k * amount)
                        assert part.edge_label[:k].equal(label[part.input_id] + (shift if amount else 0))
                        assert not part.edge_label[k:].any()
    with LinkLoader(form.data, [2], form.links(links, of), **OPTIONS) as loader:
        assert "edge_label" not in form.batches(loader)[0][of]
    whole = torch.arange(form.graph[of]["edge_index"].shape[1])
    with LinkLoader(form.data, [2], form.links(None, of), whole, **OPTIONS) as loader:
        part = form.batches(loader)[0][of]
        assert part.edge_label.equal(part.input_id)


def test_a_store_is_not_left_open(form: Form) -> None:
    before = freshgo._native.process.counters()["loaders"]
    with Store.open(form.path) as store, LinkLoader(store, [2], form.links(), **OPTIONS) as loader:
        next(iter(loader))
    assert freshgo._native.process.counters()["loaders"] == before


@pytest.mark.parametrize(
    "dtype",
    [
        *(torch.bool, torch.int8, torch.uint8, torch.int16, torch.uint16, torch.int32, torch.uint32, torch.int64),
        *(torch.uint64, torch.float8_e5m2, torch.float16, torch.bfloat16, torch.float32, torch.float64),
    ],
)
@pytest.mark.parametrize("lowest", [0, 1])
def test_labels_of_every_type(graph: dict[str, Any], dtype: torch.dtype, lowest: int) -> None:
    label = torch.tensor([1, lowest, 1]).to(dtype)
    with LinkLoader(graph, [2], [[0, 1, 2], [3, 4, 5]], label, neg_sampling="binary", batch_size=3) as loader:
        got = next(iter(loader)).edge_label
    want = [1.0, 1.0, 1.0, 0.0, 0.0, 0.0] if lowest else [2.0, 1.0, 2.0, 0.0, 0.0, 0.0]
    assert got.to(torch.float64).tolist() == want
    assert got.dtype == (torch.int64 if dtype == torch.bool and lowest == 0 else dtype)


def test_impossible_negatives() -> None:
    source, target = np.nonzero(1 - np.eye(20, dtype=int))
    graph = {"num_nodes": 20, "edge_index": np.stack([source, target])}
    for mode in ("binary", "triplet"):
        with pytest.raises(errors.InvalidArgumentError, match="link"):
            LinkLoader(graph, [2], neg_sampling=mode, strict_negatives=True)
    graph["edge_index"] = graph["edge_index"][:, 1:]  # all but (0, 1)
    with LinkLoader(graph, [2], neg_sampling="binary", strict_negatives=True, batch_size=50) as loader:
        for batch in loader:
            n = batch.input_id.numel()
            source, target = ends({"": batch, UNNAMED: batch}, UNNAMED)
            assert pairs(source[n:], target[n:]) == {(0, 1)}
