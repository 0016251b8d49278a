"""LinkLoader: what a batch of links holds, where it is the same, and PyG's LinkNeighborLoader."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from conftest import random_graph
from oracle import assert_equal, check_rows
from sampler_oracle import Stream, check_proportional
from seeds import seed as seed_of

import freshgo
from freshgo import Labor, LinkLoader, Loader, RandomWalk, errors

pytestmark = pytest.mark.explore

NODES, EDGES = 900, 6000
NEGATIVE = 6
"""The domain of the random numbers of negatives."""


@pytest.fixture(scope="module")
def graph() -> dict[str, Any]:
    return random_graph(NODES, EDGES, seed=4)


@pytest.fixture(scope="module")
def links(graph: dict[str, Any]) -> torch.Tensor:
    rng = np.random.default_rng(seed_of(5))
    edges = graph["edge_index"][:, rng.permutation(EDGES)[:600]]
    return torch.from_numpy(np.concatenate([edges, rng.integers(NODES, size=(2, 77))], axis=1))


@pytest.fixture(scope="module")
def path(graph: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("links") / "graph.freshgo"
    freshgo.convert(graph, path, progress=False).close()
    return path


OPTIONS: dict[str, Any] = {"batch_size": 64, "shuffle": True, "seed": 7}


def ends(batch: Any) -> tuple[Any, Any]:
    """The nodes of all links and negatives of a batch, links first."""
    n_id = batch.n_id.numpy()
    if "src_index" in batch:
        amount = batch.dst_neg_index.numel() // batch.src_index.numel()
        source = torch.cat([batch.src_index, batch.src_index.repeat_interleave(amount)])
        target = torch.cat([batch.dst_pos_index, batch.dst_neg_index.view(-1)])
        return n_id[source], n_id[target]
    return tuple(n_id[batch.edge_label_index.numpy()])


def pairs(source: Any, target: Any) -> set[tuple[int, int]]:
    return set(zip(source.tolist(), target.tolist(), strict=True))


@pytest.mark.parametrize("neg_sampling", [None, "binary", ("binary", 0.3), ("binary", 2.5), "triplet", ("triplet", 4)])
@pytest.mark.parametrize("strict", [False, True])
@pytest.mark.parametrize("exclude", [False, True, "reverse"])
def test_a_batch_is_what_it_says(
    graph: dict[str, Any], links: torch.Tensor, neg_sampling: Any, strict: bool, exclude: Any
) -> None:
    if strict and neg_sampling is None:
        pytest.skip("no negatives")
    amount = 0 if neg_sampling is None else 1 if isinstance(neg_sampling, str) else neg_sampling[1]
    true_edges = pairs(*graph["edge_index"]) | pairs(*links)
    degree = np.bincount(graph["edge_index"][1], minlength=NODES)
    seen = []
    with LinkLoader(
        graph, [4, 3], links, neg_sampling=neg_sampling, strict_negatives=strict, exclude_seed_edges=exclude, **OPTIONS
    ) as loader:
        assert len(loader) == math.ceil(links.size(1) / 64)
        for i, batch in enumerate(loader):
            n = batch.input_id.numel()
            assert batch.batch_size == n
            seen += batch.input_id.tolist()
            source, target = ends(batch)
            assert len(source) == len(target) == n + math.ceil(n * amount)
            np.testing.assert_array_equal(np.stack([source[:n], target[:n]]), links.numpy()[:, batch.input_id])
            seeds = batch.n_id[: batch.num_sampled_nodes[0]].numpy()
            np.testing.assert_array_equal(seeds, np.unique(np.concatenate([source, target])))
            if strict:
                negatives = pairs(source[n:], target[n:])
                assert not negatives & true_edges
                assert all(s != t for s, t in negatives)
            elif amount:  # the documented numbers
                for j in range(len(source) - n):
                    stream = Stream(NEGATIVE, 7, 0, i, j)
                    if "src_index" not in batch:
                        assert stream.below(NODES) == source[n + j]
                    assert stream.below(NODES) == target[n + j]
            out = pairs(source[:n], target[:n]) if exclude else set()
            if exclude == "reverse":
                out |= pairs(target[:n], source[:n])
            assert not out & pairs(*batch.n_id.numpy()[batch.edge_index.numpy()])
            drawn = np.bincount(batch.edge_index[1], minlength=len(seeds))[: len(seeds)]
            if not exclude:
                np.testing.assert_array_equal(drawn, np.minimum(degree[seeds], 4))
            else:
                left = degree.copy()
                for s, t in graph["edge_index"].T.tolist():
                    left[t] -= (s, t) in out
                np.testing.assert_array_equal(drawn, np.minimum(left[seeds], 4))
            e_id = batch.e_id.numpy()
            np.testing.assert_array_equal(graph["edge_index"][:, e_id], batch.n_id.numpy()[batch.edge_index.numpy()])
            check_rows(batch, graph, batch.n_id.numpy(), e_id)
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


def test_weighted_negatives_and_edges(graph: dict[str, Any], links: torch.Tensor) -> None:
    rng = np.random.default_rng(0)
    source_weight, target_weight = rng.integers(0, 4, NODES), rng.random(NODES) * (rng.random(NODES) < 0.8)
    neg = {"mode": "binary", "amount": 40, "src_weight": source_weight, "dst_weight": target_weight}
    counts = np.zeros((2, NODES))
    with LinkLoader(graph, [3], links, neg_sampling=neg, weight_attr="edge_weight", **OPTIONS) as loader:
        for batch in loader:
            n = batch.input_id.numel()
            for count, nodes in zip(counts, ends(batch), strict=True):
                count += np.bincount(nodes[n:], minlength=NODES)
    for count, weight in zip(counts, (source_weight, target_weight), strict=True):
        check_proportional(count, weight)


@pytest.mark.parametrize(
    "options",
    [
        {"num_workers": 8, "prefetch": 8},
        {"num_workers": 1, "prefetch": 0},
        {"memory": "4MiB"},
        {"cache": "belady", "feature_cache": "32KiB", "neighbor_cache": 0},
        {"cache": "lru", "feature_cache": "32KiB"},
    ],
    ids=str,
)
def test_batches_are_the_same_everywhere(
    graph: dict[str, Any], path: Path, links: torch.Tensor, options: dict[str, Any]
) -> None:
    what = {"neg_sampling": ("triplet", 2), "strict_negatives": True, "exclude_seed_edges": "reverse", **OPTIONS}
    with LinkLoader(graph, [4, 3], links, **what) as memory, LinkLoader(path, [4, 3], links, **what, **options) as disk:
        for _ in range(2):
            for ours, theirs in zip(memory, disk, strict=True):
                assert_equal(ours, theirs)


def test_state_and_trace(graph: dict[str, Any], path: Path) -> None:
    what = {"neg_sampling": "binary", "strict_negatives": True, **OPTIONS, "batch_size": 500}
    with LinkLoader(path, [4, 3], **what, memory="8MiB") as loader:
        whole = list(loader)
        assert sum(batch.input_id.numel() for batch in whole) == EDGES
        trace = list(loader.trace(0))
        for batch, n_id in zip(whole, trace, strict=True):
            assert batch.n_id.equal(n_id)
        loader.set_epoch(0)
        iterator = iter(loader)
        for _ in range(5):
            next(iterator)
        state = json.loads(json.dumps(loader.state_dict()))
        assert repr(loader).startswith("LinkLoader(")
    with LinkLoader(path, [4, 3], **what, memory="6MiB") as loader:
        loader.load_state_dict(state)
        for ours, theirs in zip(loader, whole[5:], strict=True):
            assert_equal(ours, theirs)
    for other in ({"neg_sampling": "triplet"}, {"neg_sampling": ("binary", 2)}, {"exclude_seed_edges": True}):
        with (
            LinkLoader(path, [4, 3], **{**what, **other}) as loader,
            pytest.raises(errors.InvalidArgumentError, match="loader with other batches"),
        ):
            loader.load_state_dict(state)
    with Loader(path, [4, 3], **OPTIONS) as loader:
        assert "edge_label_index" not in loader.state_dict()["config"]


def test_labels(graph: dict[str, Any], links: torch.Tensor) -> None:
    n = links.size(1)
    for label, shift in ((torch.arange(n) % 3, 1), (torch.arange(n) % 3 + 1, 0), (torch.rand(n, 2) + 1, 0)):
        for amount in (0, 1.5):
            neg = ("binary", amount) if amount else None
            with LinkLoader(graph, [2], links, label, neg_sampling=neg, **OPTIONS) as loader:
                for batch in loader:
                    k = batch.input_id.numel()
                    assert batch.edge_label.dtype == label.dtype
                    assert batch.edge_label.size(0) == batch.edge_label_index.size(1)
                    assert batch.edge_label[:k].equal(label[batch.input_id] + (shift if neg else 0))
                    assert not batch.edge_label[k:].any()
    with LinkLoader(graph, [2], links, **OPTIONS) as loader:
        assert "edge_label" not in next(iter(loader))
    labels = torch.arange(EDGES)
    with LinkLoader(graph, [2], None, labels, **OPTIONS) as loader:
        batch = next(iter(loader))
        assert batch.edge_label.equal(batch.input_id)


BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    (
        {"edge_label_index": [[0, NODES], [1, 2]]},
        ValueError,
        rf"edge_label_index\[0, 1\] is {NODES}, expected an id in",
    ),
    ({"edge_label_index": [[0, 1], [1, -2]]}, ValueError, r"edge_label_index\[1, 1\] is -2"),
    ({"edge_label_index": torch.zeros(5, 2, dtype=torch.int64)}, ValueError, r"got \[5, 2\]; transpose it"),
    ({"edge_label_index": torch.zeros(2, 0, dtype=torch.int64)}, ValueError, "empty"),
    ({"edge_label_index": torch.zeros(2, 3)}, TypeError, "must hold integers, got torch.float32"),
    ({"edge_label_index": (("a", "to", "b"), [[0, 1], [1, 2]])}, TypeError, "needs a heterogeneous graph"),
    ({"edge_label_index": "train"}, TypeError, "edge_label_index"),
    ({"edge_label": torch.zeros(3)}, ValueError, rf"a row for each of {EDGES} edges, got shape \[3\]"),
    ({"edge_label_index": [[0, 1], [1, 2]], "edge_label": torch.zeros(3)}, ValueError, "each of 2 links"),
    ({"edge_label_time": torch.zeros(3)}, ValueError, "edge_label_time needs time_attr"),
    ({"neg_sampling": "some"}, ValueError, "must be 'binary' or 'triplet', got 'some'"),
    ({"neg_sampling": 3}, TypeError, "neg_sampling must be"),
    ({"neg_sampling": {"amount": 3}}, ValueError, "mode"),
    ({"neg_sampling": {"mode": "binary", "weight": 3}}, ValueError, "weight"),
    ({"neg_sampling": ("binary", 0)}, ValueError, "above 0"),
    ({"neg_sampling": ("binary", -1.0)}, ValueError, "above 0"),
    ({"neg_sampling": ("binary", math.nan)}, ValueError, "above 0"),
    ({"neg_sampling": ("binary", "2")}, TypeError, "must be a number"),
    ({"neg_sampling": ("triplet", 1.5)}, ValueError, "whole number"),
    ({"neg_sampling_ratio": -1.0}, ValueError, "above 0"),
    ({"neg_sampling_ratio": 1.0, "neg_sampling": "binary"}, ValueError, "one of them"),
    ({"neg_sampling": "triplet", "edge_label": torch.zeros(EDGES)}, ValueError, "edge_label must be None"),
    ({"neg_sampling": ("binary", 1, torch.ones(5))}, ValueError, f"src_weight must have an entry for each of {NODES}"),
    ({"neg_sampling": ("binary", 1, None, torch.full((NODES,), -1.0))}, ValueError, "dst_weight"),
    ({"neg_sampling": ("binary", 1, None, torch.full((NODES,), math.nan))}, ValueError, "dst_weight"),
    ({"neg_sampling": ("binary", 1, None, torch.zeros(NODES))}, ValueError, "dst_weight"),
    ({"strict_negatives": True}, ValueError, "needs neg_sampling"),
    ({"strict_negatives": 1, "neg_sampling": "binary"}, TypeError, "strict_negatives"),
    ({"exclude_seed_edges": "both"}, ValueError, "True, False, 'reverse' or"),
    ({"exclude_seed_edges": ("a", "to", "b")}, TypeError, "needs a heterogeneous graph, this one is homogeneous"),
    ({"num_neighbors": {("a", "to", "b"): [2]}}, TypeError, "heterogeneous"),
    ({"exclude_seed_edges": True, "sampler": Labor(edge_weight=False)}, ValueError, "LABOR"),
    ({"exclude_seed_edges": True, "num_neighbors": [RandomWalk()]}, ValueError, "random walks"),
    ({"history": freshgo.History(1)}, ValueError, "history"),
    ({"input_nodes": [1]}, TypeError, "input_nodes"),
    ({"time_attr": "x"}, ValueError, "time_attr"),
    ({"time_attr": "x", "input_time": [1]}, TypeError, "input_time"),
    ({"neg_sampling": ("triplet", 1, torch.ones(NODES))}, ValueError, "src_weight is for 'binary' negatives"),
    (
        {"neg_sampling": "binary", "edge_label": torch.arange(EDGES).to(torch.uint8)},
        ValueError,
        "255 is the largest torch.uint8",
    ),
    ({"neg_sampling": "binary", "edge_label": torch.zeros(EDGES, dtype=torch.complex64)}, TypeError, "must be real"),
    ({"edge_label": torch.ones(EDGES).to_sparse()}, TypeError, "edge_label must be dense"),
    ({"edge_label_index": torch.zeros(2, 3, dtype=torch.int64, device="meta")}, TypeError, "must be dense"),
]


@pytest.mark.parametrize(("options", "error", "message"), BAD, ids=[str(i) for i in range(len(BAD))])
def test_bad_input(graph: dict[str, Any], options: dict[str, Any], error: type[Exception], message: str) -> None:
    data = {name: value for name, value in graph.items() if "sampler" not in options or name != "edge_weight"}
    before = freshgo._native.process.counters()["graphs"]
    with pytest.raises(error, match=message) as caught:
        LinkLoader(data, **{"num_neighbors": [2], **options})
    assert isinstance(caught.value, errors.FreshgoError) or {"input_nodes", "input_time"} & set(options)
    assert freshgo._native.process.counters()["graphs"] == before


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


def test_states_of_links_and_of_nodes_differ(graph: dict[str, Any]) -> None:
    with LinkLoader(graph, [2], batch_size=64) as links, Loader(graph, [2], batch_size=64) as nodes:
        for loader, state in ((links, nodes.state_dict()), (nodes, links.state_dict())):
            with pytest.raises(errors.InvalidArgumentError, match=r"with other batches: .*edge_label_index was"):
                loader.load_state_dict(json.loads(json.dumps(state)))


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
            source, target = ends(batch)
            assert pairs(source[n:], target[n:]) == {(0, 1)}


def test_without_what_pyg_keeps_beside_the_graph(graph: dict[str, Any], links: torch.Tensor) -> None:
    data = {**graph, "edge_label_index": links, "edge_label": torch.zeros(links.size(1))}
    with LinkLoader(data, [2], data["edge_label_index"], data["edge_label"], **OPTIONS) as loader:
        assert next(iter(loader)).edge_label.numel() == 64


class TestAgainstPyG:
    """Structure, labels and shapes of LinkNeighborLoader, where nothing is drawn at random."""

    @pytest.mark.filterwarnings("ignore:Using 'NeighborSampler' without a 'pyg-lib'")
    @pytest.mark.parametrize("label", [None, "ints", "floats"])
    @pytest.mark.parametrize("mode", [None, "binary", "triplet"])
    def test_equals_link_neighbor_loader(
        self, graph: dict[str, Any], links: torch.Tensor, mode: str | None, label: str | None
    ) -> None:
        pytest.importorskip("torch_geometric")
        from torch_geometric.data import Data
        from torch_geometric.loader import LinkNeighborLoader
        from torch_geometric.sampler import NegativeSampling
        from torch_geometric.typing import WITH_PYG_LIB, WITH_TORCH_SPARSE

        if not (WITH_PYG_LIB or WITH_TORCH_SPARSE):
            pytest.skip("PyG has no sampler: no pyg-lib, no torch-sparse")
        if mode == "triplet" and label is not None:
            pytest.skip("triplets have no labels")
        data = Data(**{k: torch.from_numpy(v) for k, v in graph.items() if isinstance(v, np.ndarray)})
        weight = torch.zeros(NODES)
        weight[17] = 1  # every negative is this node: then nothing is random
        n = links.size(1)
        labels = {None: None, "ints": torch.arange(n) % 4, "floats": torch.rand(n, 2)}[label]
        for amount in (1, 2) if mode else (0,):
            neg = NegativeSampling(mode, amount, weight if mode == "binary" else None, weight) if mode else None
            what = {"edge_label_index": links, "edge_label": labels, "neg_sampling": neg, "batch_size": 50}
            theirs = LinkNeighborLoader(data, [-1, -1], **what)
            with LinkLoader(data, [-1, -1], **what) as loader:
                assert len(loader) == len(theirs)
                for ours, pyg in zip(loader, theirs, strict=True):
                    assert set(pyg.keys()) <= set(ours.keys())
                    seeds = ours.num_sampled_nodes[0]
                    assert ours.n_id[:seeds].equal(pyg.n_id[:seeds])
                    assert sorted(ours.n_id.tolist()) == sorted(pyg.n_id.tolist())
                    assert sorted(ours.e_id.tolist()) == sorted(pyg.e_id.tolist())
                    for name in (
                        "edge_label_index",
                        "edge_label",
                        "src_index",
                        "dst_pos_index",
                        "dst_neg_index",
                        "input_id",
                    ):
                        assert (name in ours) == (name in pyg), name
                        if name in pyg:
                            assert ours[name].dtype == pyg[name].dtype, name
                            assert ours[name].equal(pyg[name]), name
