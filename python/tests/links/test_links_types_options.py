"""What LinkLoader over graphs with types refuses, and what it says."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typed_links import BACK, CITES, OPTIONS, WRITES, links_of
from typed_oracle import Graph, typed_graph

import freshgo
from freshgo import HeteroBatch, Labor, LinkLoader, RandomWalk, errors


@pytest.fixture(scope="module")
def typed() -> Graph:
    return typed_graph(200)


@pytest.fixture(scope="module")
def path(typed: Graph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("links") / "typed.freshgo"
    freshgo.convert(typed, path, progress=False).close()
    return path


def test_the_reverse_relation(typed: Graph) -> None:
    """By PyG's name both ways, within a type the relation itself, or as it is named."""
    rev = ("paper", "rev_writes", "author")
    graph = {**typed, rev: typed[BACK], ("paper", "rev_cites", "paper"): typed[CITES]}
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


def test_without_pyg(typed: Graph, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("freshgo._loader.hetero_arrange.importlib.util.find_spec", lambda _: None)
    with LinkLoader(typed, [2], (WRITES, links_of(typed, WRITES)), neg_sampling="binary", **OPTIONS) as loader:
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
        r"\[0, 1\] is 400, expected an id in \[0, 400\) of type \"author\"",
    ),
    (
        {"edge_label_index": (WRITES, [[0, 1], [1, 600]])},
        ValueError,
        r"\[1, 1\] is 600, expected an id in \[0, 600\) of type \"paper\"",
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
        'src_weight must have an entry for each of 400 nodes of type "author", got 600',
    ),
    (
        {"neg_sampling": ("binary", 1, None, torch.ones(400))},
        ValueError,
        'dst_weight must have an entry for each of 600 nodes of type "paper", got 400',
    ),
    ({"strict_negatives": True}, ValueError, "needs neg_sampling"),
    ({"exclude_seed_edges": True, "sampler": Labor(edge_weight=False)}, ValueError, "LABOR"),
    ({"num_neighbors": [RandomWalk()]}, ValueError, "RandomWalk"),
    ({"num_neighbors": {WRITES: [2]}}, ValueError, "needs a list for every edge type"),
    ({"weight_attr": "width"}, ValueError, "weight_attr 'width'|weight_attr \"width\""),
    ({"history": freshgo.History(1)}, ValueError, "history"),
    ({"input_nodes": "paper"}, TypeError, "input_nodes"),
]


@pytest.mark.parametrize(("options", "error", "message"), BAD, ids=[str(i) for i in range(len(BAD))])
def test_bad_input(typed: Graph, path: Path, options: dict[str, Any], error: type[Exception], message: str) -> None:
    given = {
        "num_neighbors": [2],
        **({"edge_label_index": (WRITES, PAIR)} if options and "edge_label_index" not in options else {}),
        **options,
    }
    for data in (typed, path):
        before = freshgo._native.process.counters()
        with pytest.raises(error, match=message) as caught:
            LinkLoader(data, **given)
        assert isinstance(caught.value, errors.FreshgoError) or "input_nodes" in options
        after = freshgo._native.process.counters()
        assert {name: after[name] for name in ("graphs", "stores", "loaders")} == {
            name: before[name] for name in ("graphs", "stores", "loaders")
        }


def test_names_of_the_users_tensors(typed: Graph, tmp_path: Path) -> None:
    """Labels in a store are tensors of the graph, which a batch has no second name for."""
    count = typed[WRITES]["edge_index"].shape[1]
    graph = {**typed, WRITES: {**typed[WRITES], "edge_label": np.zeros(count)}}
    with freshgo.convert(graph, tmp_path / "g", progress=False) as store:
        with pytest.raises(errors.InvalidArgumentError, match='a tensor "edge_label", which is what a batch calls'):
            LinkLoader(store, [2], WRITES)
        with LinkLoader(store, [2], CITES, **OPTIONS) as loader:  # other types may have one
            assert next(iter(loader))[WRITES].edge_label.numel() >= 0
