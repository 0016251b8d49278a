"""Heterogeneous stores whose rows are in the order of their use: what is read from them stays what it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from typed_oracle import Graph, num_nodes, typed_graph

import freshgo
from freshgo import Loader, Store, convert, relayout
from freshgo.cli import main
from freshgo.errors import DTypeError, InvalidArgumentError

ORDERS = ("hot", "community", "hot+community")
QUIET: dict[str, Any] = {"memory": "64MiB", "progress": False}
SAMPLED: dict[str, Any] = {"num_neighbors": [4, 3], "input_nodes": ("paper", "train")}


@pytest.fixture(scope="module")
def typed() -> Graph:
    return typed_graph()


@pytest.fixture(scope="module")
def plain(typed: Graph, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("typed") / "plain.freshgo"
    convert(typed, path, progress=False).close()
    return path


def stored_order(path: Path, place: int, node_type: str, count: int) -> list[int]:
    """The user's id of each row of a node type, from the file that docs/format.md describes."""
    return np.fromfile(path / f"t{place}_{node_type}_order.bin", "<u4")[:count].tolist()


def check_equal(one: Store, other: Store) -> None:
    for name in one.node_types:
        assert one[name].tensors == other[name].tensors
        for tensor in one[name].tensors:
            assert one[name][tensor].equal(other[name][tensor]), (name, tensor)
        for split in one[name].splits:
            assert one.split(split, name).equal(other.split(split, name))
    for edge_type in one.edge_types:
        for tensor in one[edge_type].tensors:
            assert one[edge_type][tensor].equal(other[edge_type][tensor]), (edge_type, tensor)


@pytest.mark.parametrize("order", ORDERS)
def test_everything_reads_the_same(plain: Path, tmp_path: Path, order: str) -> None:
    with Store.open(plain) as store, relayout(store, tmp_path / "r", order=order, **SAMPLED, **QUIET) as reordered:
        assert reordered.reordered
        assert not store.reordered
        check_equal(store, reordered)
        reordered.verify()
        for place, (name, count) in enumerate(store.num_nodes_dict.items()):
            assert sorted(stored_order(tmp_path / "r", place, name, count)) == list(range(count))


def test_hot_order_is_by_score_and_id(typed: Graph, plain: Path, tmp_path: Path) -> None:
    scores = freshgo.hotness(plain, **SAMPLED)
    relayout(plain, tmp_path / "r", order="hot", hotness=scores, **QUIET).close()
    for place, (name, count) in enumerate(num_nodes(typed).items()):
        expected = sorted(range(count), key=lambda node, name=name: (-scores[name][node].item(), node))
        assert stored_order(tmp_path / "r", place, name, count) == expected


@pytest.mark.parametrize("choice", ["community", {"order": "hot+community", **SAMPLED}], ids=str)
def test_convert(typed: Graph, plain: Path, tmp_path: Path, choice: Any) -> None:
    options = {"order": choice} if isinstance(choice, str) else choice
    relayout(plain, tmp_path / "two steps", **options, **QUIET).close()
    with Store.open(plain) as store, convert(typed, tmp_path / "r", relayout=choice, **QUIET) as reordered:
        check_equal(store, reordered)
        reordered.verify()
        for place, (name, count) in enumerate(store.num_nodes_dict.items()):
            one, other = (stored_order(tmp_path / path, place, name, count) for path in ("r", "two steps"))
            assert one == other
    assert {entry.name for entry in tmp_path.iterdir()} == {"r", "two steps"}


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    "cache",
    [{"feature_cache": 0}, {"cache": "degree"}, {"cache": "lru"}, {"cache": "belady", "checksums": True}],
    ids=str,
)
def test_batches_are_the_same(plain: Path, tmp_path: Path, order: str, cache: dict[str, Any]) -> None:
    options: dict[str, Any] = {"batch_size": 60, "shuffle": True, "seed": 5, "memory": "16MiB", **SAMPLED, **cache}
    with (
        relayout(plain, tmp_path / "r", order=order, **SAMPLED, **QUIET) as reordered,
        Loader(plain, **options) as one,
        Loader(reordered, **options) as other,
    ):
        for _ in range(2):
            for left, right in zip(one, other, strict=True):
                for name in left.node_types:
                    for tensor in ("n_id", "x", "y", "age"):
                        assert (tensor in left[name]) == (tensor in right[name])
                        if tensor in left[name]:
                            assert left[name][tensor].equal(right[name][tensor]), (name, tensor)
                for edge_type in left.edge_types:
                    assert left[edge_type].edge_index.equal(right[edge_type].edge_index), edge_type


def test_command(plain: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--num-neighbors", "4,3", "--input-nodes", "paper:train"]
    assert main(["relayout", str(plain), str(tmp_path / "r"), *options]) == 0
    assert "order    rows of node tensors" in capsys.readouterr().out
    with Store.open(plain) as store, Store.open(tmp_path / "r") as reordered:
        assert reordered.reordered
        check_equal(store, reordered)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"hotness": torch.ones(7)}, DTypeError, "hotness is a vector: a heterogeneous graph needs a dict"),
        ({"hotness": {"paper": torch.ones(7)}}, InvalidArgumentError, "nodes of type 'paper', got 7"),
        ({"hotness": {"papers": torch.ones(7)}}, InvalidArgumentError, "'papers'"),
        ({"hotness": "expected", "num_neighbors": [3]}, DTypeError, "input_nodes"),
        ({"num_neighbors": {("paper", "eats", "paper"): [3]}, "input_nodes": "paper"}, InvalidArgumentError, "eats"),
    ],
)
def test_bad_options(plain: Path, tmp_path: Path, options: dict[str, Any], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        relayout(plain, tmp_path / "r", **options, **QUIET)
    assert not (tmp_path / "r").exists()
