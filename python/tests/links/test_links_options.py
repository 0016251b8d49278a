"""What LinkLoader refuses, what it says, and what its options mean in a graph."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from graphs import BACK, CITES, WRITES, Graph, hetero_graph, random_graph
from link_oracle import OPTIONS, links_of
from oracle import assert_equal

import freshgo
import freshgo._native.process
from freshgo import HeteroBatch, Labor, LinkLoader, RandomWalk, errors

NODES, EDGES = 900, 6000


@pytest.fixture(scope="module")
def graph() -> dict[str, Any]:
    return random_graph(NODES, EDGES, seed=4)


@pytest.fixture(scope="module")
def hetero() -> Graph:
    return hetero_graph(200)


@pytest.fixture(scope="module")
def path(hetero: Graph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("links") / "graph.freshgo"
    freshgo.convert(hetero, path, progress=False).close()
    return path


def test_the_reverse_relation(hetero: Graph) -> None:
    """By PyG's name both ways, within a type the relation itself, or as it is named."""
    rev = ("paper", "rev_writes", "author")
    graph = {**hetero, rev: hetero[BACK], ("paper", "rev_cites", "paper"): hetero[CITES]}
    for of, exclude, want in (
        (WRITES, "reverse", rev),
        (rev, "reverse", WRITES),
        (WRITES, BACK, BACK),
        (WRITES, ["paper", "rev_writes", "author"], rev),
        (CITES, "reverse", ("paper", "rev_cites", "paper")),
        (CITES, CITES, CITES),
        (("author", "knows", "author"), "reverse", ("author", "knows", "author")),  # which has no edges
        (WRITES, True, None),
    ):
        with LinkLoader(graph, [2], (of, PAIR), exclude_seed_edges=exclude, **OPTIONS) as loader:
            config = loader.state_dict()["config"]
            assert config["edge_type"] == list(of)
            assert config["reverse"] == (None if want is None else list(want))


def test_without_pyg(hetero: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("freshgo._loader.arrange.importlib.util.find_spec", lambda _: None)
    with LinkLoader(hetero, [2], (WRITES, links_of(hetero, WRITES)), neg_sampling="binary", **OPTIONS) as loader:
        batch = next(iter(loader))
    assert isinstance(batch, HeteroBatch)
    assert batch[WRITES].edge_label.numel() == batch.edge_label_index_dict[WRITES].size(1) == 128
    assert list(batch.input_id_dict) == [WRITES]


PAIR = [[0, 1], [1, 2]]


BAD: list[tuple[dict[str, Any], type[Exception], str]] = [
    ({}, ValueError, r"must say which edge type .*as \(\('author', 'writes', 'paper'\), edges\).*'has', 'term'"),
    ({"edge_label_index": PAIR}, ValueError, "must say which edge type"),
    (
        {"edge_label_index": (("author", "wrote", "paper"), PAIR)},
        ValueError,
        r"\('author', 'wrote', 'paper'\) is no edge type of the graph; it has \('author', 'writes', 'paper'\),",
    ),
    ({"edge_label_index": ("author", "term")}, ValueError, "is no edge type of the graph; it has"),
    ({"edge_label_index": (("author",), PAIR)}, TypeError, r"an edge type such as .* as \(edge type, edges\), got"),
    ({"edge_label_index": ("paper", PAIR)}, TypeError, r"or both as \(edge type, edges\), got"),
    ({"edge_label_index": (WRITES, PAIR, PAIR)}, TypeError, "edge_label_index must be"),
    (
        {"edge_label_index": (WRITES, [[0, 400], [1, 2]])},
        ValueError,
        r"\[0, 1\] is 400, expected an id in \[0, 400\) of type 'author'",
    ),
    (
        {"edge_label_index": (WRITES, [[0, 1], [1, 600]])},
        ValueError,
        r"\[1, 1\] is 600, expected an id in \[0, 600\) of type 'paper'",
    ),
    ({"edge_label_index": (WRITES, [[0, 1], [-1, 2]])}, ValueError, r"edge_label_index\[1, 0\] is -1"),
    ({"edge_label_index": (WRITES, torch.zeros(5, 2, dtype=torch.int64))}, ValueError, "transpose it"),
    ({"edge_label_index": (WRITES, torch.zeros(2, 3))}, TypeError, "must hold integers"),
    ({"edge_label_index": (WRITES, torch.zeros(2, 0, dtype=torch.int64))}, ValueError, "empty"),
    (
        {"edge_label_index": WRITES, "edge_label": torch.zeros(3)},
        ValueError,
        r"a row for each of \d+ edges, got shape \[3\]",
    ),
    ({"edge_label_index": (WRITES, PAIR), "edge_label": torch.zeros(3)}, ValueError, "each of 2 links"),
    ({"edge_label_index": (("none", "of", "paper"), None)}, ValueError, r"\(none, of, paper\) has none"),
    (
        {"exclude_seed_edges": "reverse"},
        ValueError,
        r"looks for \('paper', 'rev_writes', 'author'\).*lead \('paper', 'written by', 'author'\)",
    ),
    ({"exclude_seed_edges": CITES}, ValueError, "must lead from 'paper' to 'author', against the links"),
    (
        {"exclude_seed_edges": ("paper", "by", "author")},
        ValueError,
        "exclude_seed_edges: .* is no edge type of the graph; it has",
    ),
    ({"exclude_seed_edges": "both"}, ValueError, "True, False, 'reverse' or"),
    (
        {"neg_sampling": ("binary", 1, torch.ones(600))},
        ValueError,
        "src_weight must have an entry for each of 400 nodes of type 'author', got 600",
    ),
    (
        {"neg_sampling": ("binary", 1, None, torch.ones(400))},
        ValueError,
        "dst_weight must have an entry for each of 600 nodes of type 'paper', got 400",
    ),
    ({"strict_negatives": True}, ValueError, "needs neg_sampling"),
    ({"exclude_seed_edges": True, "neighbor_sampler": Labor(edge_weight=False)}, ValueError, "LABOR"),
    ({"num_neighbors": [RandomWalk()]}, ValueError, "RandomWalk"),
    ({"num_neighbors": {WRITES: [2]}}, ValueError, "needs a list for every edge type"),
    ({"weight_attr": "width"}, ValueError, "weight_attr 'width'"),
    ({"history": freshgo.History(1)}, ValueError, "history"),
    ({"input_nodes": "paper"}, TypeError, "input_nodes"),
]


@pytest.mark.parametrize(("options", "error", "message"), BAD, ids=[str(i) for i in range(len(BAD))])
def test_bad_input(hetero: Graph, path: Path, options: dict[str, Any], error: type[Exception], message: str) -> None:
    given = {
        "num_neighbors": [2],
        **({"edge_label_index": (WRITES, PAIR)} if options and "edge_label_index" not in options else {}),
        **options,
    }
    for data in (hetero, path):
        before = freshgo._native.process.counters()
        with pytest.raises(error, match=message) as caught:
            LinkLoader(data, **given)
        assert isinstance(caught.value, errors.FreshgoError) or "input_nodes" in options
        after = freshgo._native.process.counters()
        assert {name: after[name] for name in ("graphs", "stores", "loaders")} == {
            name: before[name] for name in ("graphs", "stores", "loaders")
        }


HOMOGENEOUS: list[tuple[dict[str, Any], type[Exception], str]] = [
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
    ({"edge_label_index": "train"}, ValueError, "no split of links 'train': it has none"),
    ({"edge_label": torch.zeros(3)}, ValueError, rf"a row for each of {EDGES} edges, got shape \[3\]"),
    ({"edge_label_index": [[0, 1], [1, 2]], "edge_label": torch.zeros(3)}, ValueError, "each of 2 links"),
    ({"edge_label_time": torch.zeros(3)}, ValueError, "edge_label_time needs time_attr"),
    ({"neg_sampling": "some"}, ValueError, "must be one of 'binary', 'triplet', got 'some'"),
    ({"neg_sampling": 3}, TypeError, "neg_sampling must be"),
    ({"neg_sampling": {"amount": 3}}, ValueError, "always needs mode, got 'amount'"),
    ({"neg_sampling": {}}, ValueError, "always needs mode, got none at all"),
    ({"edge_label": ["a"] * EDGES}, TypeError, "edge_label must be a tensor or an array, got list: it holds text"),
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
    (
        {"num_neighbors": {("a", "to", "b"): [2]}},
        TypeError,
        "must be a list of ints in a homogeneous graph, got a dict",
    ),
    ({"exclude_seed_edges": True, "neighbor_sampler": Labor(edge_weight=False)}, ValueError, "LABOR"),
    ({"exclude_seed_edges": True, "num_neighbors": [RandomWalk()]}, ValueError, "random walks"),
    ({"history": freshgo.History(1)}, ValueError, "history"),
    ({"input_nodes": [1]}, TypeError, "input_nodes"),
    ({"time_attr": "x"}, ValueError, "time_attr"),
    ({"time_attr": "x", "input_time": [1]}, TypeError, "input_time"),
    (
        {"neg_sampling": "binary", "edge_label": torch.arange(EDGES).to(torch.uint8)},
        ValueError,
        "255 is the largest torch.uint8",
    ),
    ({"neg_sampling": "binary", "edge_label": torch.zeros(EDGES, dtype=torch.complex64)}, TypeError, "must be real"),
    ({"edge_label": torch.ones(EDGES).to_sparse()}, TypeError, "edge_label .*dense tensor"),
    ({"edge_label_index": torch.zeros(2, 3, dtype=torch.int64, device="meta")}, TypeError, "dense tensor"),
]


@pytest.mark.parametrize(("options", "error", "message"), HOMOGENEOUS, ids=[str(i) for i in range(len(HOMOGENEOUS))])
def test_bad_input_of_a_homogeneous_graph(
    graph: dict[str, Any], options: dict[str, Any], error: type[Exception], message: str
) -> None:
    data = {name: value for name, value in graph.items() if "neighbor_sampler" not in options or name != "edge_weight"}
    before = freshgo._native.process.counters()["graphs"]
    with pytest.raises(error, match=message) as caught:
        LinkLoader(data, **{"num_neighbors": [2], **options})
    assert isinstance(caught.value, errors.FreshgoError) or {"input_nodes", "input_time"} & set(options)
    assert freshgo._native.process.counters()["graphs"] == before


def test_links_of_a_type_in_a_homogeneous_store(graph: dict[str, Any], tmp_path: Path) -> None:
    with freshgo.convert(graph, tmp_path / "g", progress=False) as store:
        with pytest.raises(errors.DTypeError, match="needs a heterogeneous graph, this one is homogeneous"):
            LinkLoader(store, [2], ("paper", "cites", "paper"))


def test_names_of_the_users_tensors(hetero: Graph, tmp_path: Path) -> None:
    """Labels in a store are tensors of the graph, which a batch has no second name for."""
    count = hetero[WRITES]["edge_index"].shape[1]
    graph = {**hetero, WRITES: {**hetero[WRITES], "edge_label": np.zeros(count)}}
    with freshgo.convert(graph, tmp_path / "g", progress=False) as store:
        with pytest.raises(errors.InvalidArgumentError, match="a tensor 'edge_label', a name that batches use"):
            LinkLoader(store, [2], WRITES)
        with LinkLoader(store, [2], CITES, **OPTIONS) as loader:  # other types may have one
            assert next(iter(loader))[WRITES].edge_label.numel() >= 0


def test_sources_of_triplets_have_no_weights(graph: dict[str, Any]) -> None:
    with LinkLoader(graph, [2], neg_sampling=("triplet", 2), batch_size=9) as without:
        want = next(iter(without))
    with pytest.warns(UserWarning, match="freshgo ignores src_weight: the negatives of a triplet have the source"):
        weighted = LinkLoader(graph, [2], neg_sampling=("triplet", 2, torch.ones(NODES)), batch_size=9)
    with weighted as loader:
        assert_equal(next(iter(loader)), want)
