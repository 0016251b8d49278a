"""Weights that a store has by target too: the same batches, fewer reads."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from seeds import seed as seed_of

import freshgo
from freshgo import Loader, errors
from freshgo.cli import main

EDGES = 120_000


def hub_graph(dtype: type = np.float32) -> dict[str, Any]:
    rng = np.random.default_rng(seed_of(3))
    target = np.where(rng.random(EDGES) < 0.7, 5, rng.integers(0, 900, EDGES))
    weight = rng.integers(0, 6, EDGES).astype(dtype)  # a sixth of them 0
    weight[target == 17] = 0
    edge_index = np.stack([rng.integers(0, 900, EDGES), target])
    return {"num_nodes": 900, "x": rng.random((900, 8), np.float32), "edge_index": edge_index, "weight": weight}


def batches(source: object, **options: Any) -> list[torch.Tensor]:
    chosen = {"batch_size": 100, "seed": 4, "shuffle": True, "weight_attr": "weight", **options}
    with Loader(source, [5, 3], **chosen) as loader:
        return [batch.e_id for _ in range(2) for batch in loader]


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int64, np.uint8])
@pytest.mark.parametrize("replace", [False, True])
def test_batches_are_the_same(tmp_path: Path, dtype: type, replace: bool) -> None:
    graph = hub_graph(dtype)
    with (
        freshgo.convert(graph, tmp_path / "with", weight_attr="weight", progress=False) as by_target,
        freshgo.convert(graph, tmp_path / "without", progress=False) as plain,
    ):
        by_target.verify()
        assert (by_target.weight_attr, plain.weight_attr) == ("weight", None)
        assert "weight by target" in by_target.inspect()
        want = batches(graph, replace=replace)
        for store in (by_target, plain):
            for options in ({"neighbor_cache": 0, "feature_cache": 0}, {}, {"num_workers": 1, "prefetch": 0}):
                for a, b in zip(want, batches(store, replace=replace, **options), strict=True):
                    assert torch.equal(a, b)


def test_a_hub_reads_less(tmp_path: Path) -> None:
    graph = hub_graph()
    read = {}
    for name, weight_attr in (("with", "weight"), ("without", None)):
        with (
            freshgo.convert(graph, tmp_path / name, weight_attr=weight_attr, progress=False) as store,
            Loader(
                store, [5], input_nodes=torch.tensor([5]), batch_size=1, weight_attr="weight", neighbor_cache=0
            ) as loader,
        ):
            before = loader.stats()["bytes_read"]
            next(iter(loader))
            read[name] = loader.stats()["bytes_read"] - before
    assert 4 * read["with"] < read["without"]  # of 84,000 edges, whose numbers and weights take 660 KB


def test_types(tmp_path: Path) -> None:
    graph = hub_graph()
    edges = {"edge_index": graph["edge_index"], "weight": graph["weight"]}
    typed: dict[Any, Any] = {
        "a": {"x": graph["x"]},
        ("a", "drawn", "a"): edges,
        ("a", "plain", "a"): {"edge_index": graph["edge_index"][:, :2000]},
        ("a", "other", "a"): dict(edges),
    }
    chosen = {"input_nodes": "a", "neighbor_cache": 0}

    def drawn(source: object) -> list[torch.Tensor]:
        with Loader(source, [4, 3], batch_size=100, seed=4, weight_attr="weight", **chosen) as loader:
            return [batch["a", of, "a"].e_id for batch in loader for of in ("drawn", "plain", "other")]

    with freshgo.convert(typed, tmp_path / "none", progress=False) as store:
        want = drawn(store)
    for name, weight_attr in (("all", "weight"), ("one", {("a", "other", "a"): "weight"})):
        with freshgo.convert(typed, tmp_path / name, weight_attr=weight_attr, progress=False) as store:
            store.verify()
            assert store["a", "other", "a"].weight_attr == "weight"
            assert store["a", "plain", "a"].weight_attr is None
            assert (store["a", "drawn", "a"].weight_attr is None) == (name == "one")
            for a, b in zip(want, drawn(store), strict=True):
                assert torch.equal(a, b)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"weight_attr": "w"}, "weight_attr must name an edge tensor, got 'w': the edge tensors are 'weight'"),
        ({"weight_attr": {("a", "b", "c"): "weight"}}, "weight_attr must name an edge tensor, got"),
        ({"weight": np.ones((EDGES, 2), np.float32)}, "expected one number for each edge"),
        ({"weight": np.ones(EDGES, bool)}, "expected numbers"),
        ({"weight": np.full(EDGES, -1, np.int8)}, r"weight\[0\] is -1, expected a finite weight"),
        ({"weight": np.full(EDGES, np.nan)}, r"weight\[0\] is NaN"),
    ],
)
def test_what_is_no_weight(tmp_path: Path, change: dict[str, Any], message: str) -> None:
    graph = {**hub_graph(), **change}
    weight_attr = graph.pop("weight_attr", "weight")
    with pytest.raises(errors.InvalidArgumentError, match=message):
        freshgo.convert(graph, tmp_path / "s", weight_attr=weight_attr, progress=False)
    assert not list(tmp_path.iterdir())


def test_what_is_no_weight_of_types(tmp_path: Path) -> None:
    graph = hub_graph()
    typed: dict[Any, Any] = {"a": {"x": graph["x"]}, ("a", "to", "a"): {"edge_index": graph["edge_index"]}}
    for weight_attr, error, message in (
        ("weight", errors.InvalidArgumentError, "must name an edge tensor, got 'weight': there are none"),
        ({("a", "of", "a"): "weight"}, errors.InvalidArgumentError, "unknown edge type"),
        ({("a", "to", "a"): "weight"}, errors.InvalidArgumentError, "edge type .* must name an edge tensor"),
        (3, errors.DTypeError, "a name or a mapping from edge types to names, got 3"),
    ):
        with pytest.raises(error, match=message):
            freshgo.convert(typed, tmp_path / "s", weight_attr=weight_attr, progress=False)  # type: ignore[arg-type]


def test_a_file_is_named_and_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = hub_graph()
    source = tmp_path / "source"
    source.mkdir()
    for name in ("x", "edge_index", "weight"):
        np.save(source / f"{name}.npy", graph[name])
    assert main(["convert", str(source), str(tmp_path / "s"), "--weight-attr", "weight"]) == 0
    assert "weight by target" in capsys.readouterr().out
    with freshgo.Store.open(tmp_path / "s") as store:
        assert store.weight_attr == "weight"
    graph["weight"][77] = -2
    np.save(source / "weight.npy", graph["weight"])
    assert main(["convert", str(source), str(tmp_path / "bad"), "--weight-attr", "weight"]) == 1
    assert "weight[77] in" in capsys.readouterr().err


def test_relayout_carries_them(tmp_path: Path) -> None:
    graph = hub_graph()
    converted = freshgo.convert(graph, tmp_path / "s", weight_attr="weight", relayout="community", progress=False)
    with converted as store:
        store.verify()
        assert store.weight_attr == "weight"
        want = batches(graph)
        for a, b in zip(want, batches(store, neighbor_cache=0), strict=True):
            assert torch.equal(a, b)
        freshgo.relayout(store, tmp_path / "again", order="community", progress=False).close()
    with freshgo.Store.open(tmp_path / "again") as store:
        store.verify()
        assert store.weight_attr == "weight"
        for a, b in zip(want, batches(store, neighbor_cache=0), strict=True):
            assert torch.equal(a, b)
