"""LinkLoader over graphs with types: what a batch holds, against a slow reading of it and PyG's LinkNeighborLoader."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from sampler_oracle import Stream, check_proportional
from typed_links import BACK, CITES, HAS, IN, OPTIONS, WRITES, ends, links_of, pairs
from typed_oracle import Graph, check_rows, num_nodes, relations, typed_digest, typed_graph

import freshgo
from freshgo import LinkLoader, Loader, Store, errors

pytestmark = pytest.mark.explore

NEGATIVE = 6
"""The domain of the random numbers of negatives."""


@pytest.fixture(scope="module")
def typed() -> Graph:
    return typed_graph(200)


@pytest.fixture(scope="module")
def path(typed: Graph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("links") / "typed.freshgo"
    freshgo.convert(typed, path, progress=False).close()
    return path


def check(batch: Any, graph: Graph, of: Any, hops: list[int], out: dict[Any, set[tuple[int, int]]]) -> None:
    """A batch draws, along every relation, what its degrees without the pairs of ``out`` say, and no such pair.

    What is excluded is so of seeds alone: other nodes have their whole lists.
    """
    nodes = {name: batch[name].n_id.numpy() for name in batch.node_types}
    for name, ids in nodes.items():
        assert len(np.unique(ids)) == len(ids)
        assert sum(batch[name].num_sampled_nodes) == len(ids)
        check_rows(batch[name], graph[name], ids)
    for relation in relations(graph):
        part, all_edges = batch[relation], graph[relation]["edge_index"]
        assert len(part.num_sampled_edges) == len(hops)
        e_id, edge_index = part.e_id.numpy(), part.edge_index.numpy()
        source, target = nodes[relation[0]][edge_index[0]], nodes[relation[2]][edge_index[1]]
        np.testing.assert_array_equal(all_edges[:, e_id], np.stack([source, target]))
        assert len(np.unique(e_id)) == len(e_id)
        check_rows(part, graph[relation], e_id)
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


@pytest.mark.parametrize("of", [WRITES, BACK, CITES, IN], ids=" ".join)
@pytest.mark.parametrize("neg_sampling", [None, ("binary", 1.5), "triplet", ("triplet", 3)], ids=str)
@pytest.mark.parametrize("strict", [False, True], ids=["any", "strict"])
def test_a_batch_is_what_it_says(typed: Graph, path: Path, of: Any, neg_sampling: Any, strict: bool) -> None:
    if strict and neg_sampling is None:
        pytest.skip("no negatives")
    amount = 0 if neg_sampling is None else 1 if isinstance(neg_sampling, str) else neg_sampling[1]
    links = links_of(typed, of)
    true_edges = pairs(*typed[of]["edge_index"]) | pairs(*links)
    back = {WRITES: BACK, BACK: WRITES, CITES: CITES, IN: HAS}[of]
    exclude: Any = {0: False, 1: True, 1.5: back, 3: "reverse" if of == CITES else back}[amount]
    counts, seen = num_nodes(typed), []
    data = path if strict else typed
    what = {"neg_sampling": neg_sampling, "strict_negatives": strict, "exclude_seed_edges": exclude}
    with LinkLoader(data, [4, 2], (of, links), **what, **OPTIONS) as loader:
        assert len(loader) == math.ceil(links.size(1) / 64)
        for i, batch in enumerate(loader):
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
            check(batch, typed, of, [4, 2], out)
    assert sorted(seen) == list(range(links.size(1)))


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
                    to,
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
    with pytest.raises(errors.InvalidArgumentError, match=r"expected an id in \[0, 0\) of type \"empty\""):
        LinkLoader(graph, [2], (("empty", "of", "b"), [[0], [1]]))
    # A row of a that is full has no negative triplets.
    full = {**graph, to: edges(*((2, t) for t in range(5)))}
    with pytest.raises(errors.InvalidArgumentError, match="node 2 is linked with every node"):
        LinkLoader(full, [2], to, neg_sampling="triplet", strict_negatives=True)


def test_every_edge_in_the_users_order(typed: Graph, path: Path) -> None:
    for data in (typed, path):
        for of, name in ((WRITES, WRITES), (HAS, ("paper", "term"))):
            got = []
            with LinkLoader(data, [1], name, batch_size=500) as loader:
                for batch in loader:
                    assert "edge_label" not in batch[of]
                    got.append(np.stack(ends(batch, of)))
            np.testing.assert_array_equal(np.concatenate(got, axis=1), typed[of]["edge_index"])


def test_one_relation_is_as_a_homogeneous_graph(typed: Graph) -> None:
    """Links, negatives and seeds are those of the graph without types, and with all neighbours the edges."""
    edge_index = typed[CITES]["edge_index"]
    plain = {"num_nodes": num_nodes(typed)["paper"], "edge_index": edge_index}
    graph = {"paper": {"num_nodes": plain["num_nodes"]}, CITES: {"edge_index": edge_index}}
    links = links_of(typed, CITES)
    for neg in (("binary", 2), ("triplet", 2)):
        what = {"neg_sampling": neg, "strict_negatives": True, "exclude_seed_edges": "reverse", **OPTIONS}
        with LinkLoader(plain, [-1], links, **what) as one, LinkLoader(graph, [-1], (CITES, links), **what) as other:
            for ours, theirs in zip(one, other, strict=True):
                assert ours.n_id.equal(theirs["paper"].n_id)
                assert ours.e_id.equal(theirs[CITES].e_id)
                assert ours.edge_index.equal(theirs[CITES].edge_index)
                assert ours.input_id.equal(theirs[CITES].input_id)
                for name in ("edge_label_index", "edge_label"):
                    assert (name in ours) == (name in theirs[CITES])
                    if name in ours:
                        assert ours[name].equal(theirs[CITES][name])
                for name in ("src_index", "dst_pos_index", "dst_neg_index"):
                    assert (name in ours) == (name in theirs["paper"])
                    if name in ours:
                        assert ours[name].equal(theirs["paper"][name])


def test_weights_of_negatives_and_edges(typed: Graph, path: Path) -> None:
    rng = np.random.default_rng(0)
    counts = num_nodes(typed)
    weights = [rng.random(counts[name]) * (rng.random(counts[name]) < 0.7) for name in (WRITES[0], WRITES[2])]
    neg = {"mode": "binary", "amount": 60, "src_weight": weights[0], "dst_weight": weights[1]}
    links = links_of(typed, WRITES)
    found = [np.zeros(len(weight)) for weight in weights]
    with LinkLoader(
        path, [3], (WRITES, links), neg_sampling=neg, weight_attr="weight", exclude_seed_edges=BACK, **OPTIONS
    ) as loader:
        for batch in loader:
            n = batch[WRITES].batch_size
            source, target = ends(batch, WRITES)
            for count, nodes in zip(found, (source, target), strict=True):
                count += np.bincount(nodes[n:], minlength=len(count))
            for relation in (WRITES, IN):  # which have weights, some of them 0
                assert (batch[relation].weight > 0).all()
            drawn = batch[WRITES].edge_index
            drawn = pairs(batch["author"].n_id[drawn[0]], batch["paper"].n_id[drawn[1]])
            assert not drawn & pairs(source[:n], target[:n])
    for count, weight in zip(found, weights, strict=True):
        check_proportional(count, weight)


@pytest.mark.parametrize(
    "options",
    [
        {"num_workers": 2, "prefetch": 2},
        {"num_workers": 8, "prefetch": 8},
        {"num_workers": 1, "prefetch": 0},
        {"memory": "24MiB"},
        {"cache": "belady", "feature_cache": "32KiB", "neighbor_cache": 0},
        {"cache": "lru", "feature_cache": "32KiB"},
        {"cache": "presc", "feature_cache": "32KiB"},
    ],
    ids=str,
)
@pytest.mark.parametrize("how", ["even", "weights", "replace", "labor"])
def test_batches_are_the_same_everywhere(typed: Graph, path: Path, options: dict[str, Any], how: str) -> None:
    exclude: Any = False if how == "labor" else BACK
    what: dict[str, Any] = {"neg_sampling": ("triplet", 2), "strict_negatives": True, "exclude_seed_edges": exclude}
    what |= {"weights": {"weight_attr": "weight"}, "replace": {"replace": True}, "labor": {"sampler": "labor"}}.get(
        how, {}
    )
    fanouts = {relation: [4, 3] for relation in relations(typed)} | {WRITES: [2, 0]}
    links = (WRITES, links_of(typed, WRITES))
    with (
        LinkLoader(typed, fanouts, links, **what, **OPTIONS) as memory,
        LinkLoader(path, fanouts, links, **what, **OPTIONS, **options) as disk,
    ):
        for _ in range(2):
            ours, theirs = list(memory), list(disk)
            assert [typed_digest(batch) for batch in ours] == [typed_digest(batch) for batch in theirs]
            for batch, other in zip(ours, theirs, strict=True):
                assert batch["author"].src_index.equal(other["author"].src_index)
                for name in ("dst_pos_index", "dst_neg_index"):
                    assert batch["paper"][name].equal(other["paper"][name])


def test_state_trace_and_stats(typed: Graph, path: Path) -> None:
    what: dict[str, Any] = {"neg_sampling": "binary", "strict_negatives": True, "exclude_seed_edges": BACK, **OPTIONS}
    with LinkLoader(path, [4, 3], WRITES, **what, memory="8MiB") as loader:
        whole = list(loader)
        assert sum(batch[WRITES].batch_size for batch in whole) == typed[WRITES]["edge_index"].shape[1]
        for batch, n_id in zip(whole, loader.trace(0), strict=True):
            for name, nodes in n_id.items():
                assert batch[name].n_id.equal(nodes)
        stats = loader.stats()
        assert stats["rows"] == stats["hits"] + stats["misses"] + stats["packed"]
        assert stats["epochs"][0]["batches"] == len(whole)
        loader.set_epoch(0)
        iterator = iter(loader)
        for _ in range(5):
            next(iterator)
        state = json.loads(json.dumps(loader.state_dict()))
        assert repr(loader).startswith("LinkLoader(")
    with LinkLoader(path, [4, 3], WRITES, **what, memory="7MiB") as loader:
        loader.load_state_dict(state)
        for ours, theirs in zip(loader, whole[5:], strict=True):
            assert typed_digest(ours) == typed_digest(theirs)
            assert ours[WRITES].edge_label_index.equal(theirs[WRITES].edge_label_index)
    for of, other in (
        (WRITES, {"neg_sampling": ("binary", 2)}),
        (WRITES, {"exclude_seed_edges": True}),
        (BACK, {"exclude_seed_edges": WRITES}),
    ):
        with (
            LinkLoader(path, [4, 3], of, **{**what, **other}) as loader,
            pytest.raises(errors.InvalidArgumentError, match="loader with other batches"),
        ):
            loader.load_state_dict(state)
    with Loader(path, [4, 3], "paper", **OPTIONS) as loader, pytest.raises(errors.InvalidArgumentError, match="other"):
        loader.load_state_dict(state)


def test_a_budget_that_is_too_small_names_one_that_works(path: Path) -> None:
    what: dict[str, Any] = {
        "neg_sampling": ("binary", 3),
        "strict_negatives": True,
        "exclude_seed_edges": BACK,
        **OPTIONS,
    }
    with pytest.raises(errors.BudgetError) as caught:
        LinkLoader(path, [4, 3], WRITES, memory=1, **what)
    with LinkLoader(path, [4, 3], WRITES, memory=caught.value.minimum, **what) as loader:
        assert sum(batch[WRITES].batch_size for batch in loader)
        assert loader.stats()["memory_peak"] <= caught.value.minimum


def test_labels_and_what_pyg_keeps_beside_the_graph(typed: Graph) -> None:
    links = links_of(typed, WRITES)
    n = links.size(1)
    label = torch.arange(n) % 3
    of_split = {**typed[WRITES], "edge_label_index": links, "edge_label": label}
    with LinkLoader(
        {**typed, WRITES: of_split}, [2], (WRITES, links), label, neg_sampling_ratio=0.5, **OPTIONS
    ) as loader:
        for batch in loader:
            part = batch[WRITES]
            k = part.batch_size
            assert part.edge_label.dtype == label.dtype
            assert part.edge_label.numel() == part.edge_label_index.size(1) == k + math.ceil(k / 2)
            assert part.edge_label[:k].equal(label[part.input_id] + 1)
            assert not part.edge_label[k:].any()
    whole = torch.arange(typed[WRITES]["edge_index"].shape[1])
    with LinkLoader(typed, [2], WRITES, whole, **OPTIONS) as loader:
        part = next(iter(loader))[WRITES]
        assert part.edge_label.equal(part.input_id)


def test_a_store_is_not_left_open(path: Path) -> None:
    with Store.open(path) as store, LinkLoader(store, [2], WRITES, **OPTIONS) as loader:
        next(iter(loader))
    assert freshgo._native.process.counters()["loaders"] == 0
