"""Stores that were converted with ``edge_ids=False``: batches lack ``e_id`` alone, and what needs it is refused."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from freshgo import History, LinkLoader, Loader, RandomWalk, Store, append, convert, errors, update
from freshgo.cli import main

RATES, RATED = ("user", "rates", "item"), ("item", "rated", "user")
OPTIONS: dict[str, Any] = {"batch_size": 64, "shuffle": True, "seed": 7}
LOST = r"converted with edge_ids=False and have no numbers: "


def plain() -> dict[str, Any]:
    rng = np.random.default_rng(5)
    return {"edge_index": rng.integers(500, size=(2, 6000)), "x": rng.random((500, 16), dtype=np.float32)}


def typed() -> dict[Any, Any]:
    rng = np.random.default_rng(6)
    return {
        "user": {"x": rng.random((300, 5), dtype=np.float32)},
        "item": {"x": rng.random((200, 17), dtype=np.float32)},
        RATES: {"edge_index": rng.integers(200, size=(2, 2500)), "w": rng.random(2500, dtype=np.float32)},
        RATED: rng.integers(200, size=(2, 2500)),
    }


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return convert(plain(), tmp_path_factory.mktemp("unnumbered") / "g", edge_ids=False, progress=False)


@pytest.mark.parametrize("options", [{}, {"memory": "32MiB", "neighbor_cache": 0}, {"subgraph_type": "induced"}])
def test_batches_lack_the_numbers_alone(store: Store, tmp_path: Path, options: dict[str, Any]) -> None:
    whole = convert(plain(), tmp_path / "whole", progress=False)
    assert not (Path(store.path) / "edge_ids.bin").exists()
    assert (Path(whole.path) / "edge_ids.bin").exists()
    with (
        Loader(store, [4, 3], return_edge_id=False, **OPTIONS, **options) as bare,
        Loader(whole, [4, 3], return_edge_id=False, **OPTIONS, **options) as numbered,
    ):
        for left, right in zip(bare, numbered, strict=True):
            assert left.keys() == right.keys()
            assert "e_id" not in left
            for key in ("n_id", "edge_index", "x", "input_id"):
                assert torch.equal(left[key], right[key])


def test_what_needs_numbers_is_refused(store: Store) -> None:
    for options, advice in (
        ({}, "batches have no e_id, pass return_edge_id=False"),
        ({"history": History()}, "a history prunes edges by their e_id"),
    ):
        with pytest.raises(errors.InvalidArgumentError, match=LOST + advice):
            Loader(store, [4, 3], **options)
    with pytest.raises(errors.InvalidArgumentError, match=LOST + "pass the links as edge_label_index"):
        LinkLoader(store, [4, 3], return_edge_id=False)
    with LinkLoader(store, [4], edge_label_index=plain()["edge_index"][:, :9], return_edge_id=False) as loader:
        assert next(iter(loader)).input_id.numel() == 1
    with Loader(store, [RandomWalk(walks=3, length=2, top=2)]) as loader:  # whose edges never have numbers
        assert "e_id" not in next(iter(loader))
    with Loader(store, []) as loader:
        assert next(iter(loader)).e_id.numel() == 0


def test_tensors_of_edges_are_refused(store: Store, tmp_path: Path) -> None:
    reason = r"w has its rows by the numbers of edges, which edge_ids=False leaves out"
    w = np.ones(6000, np.float32)
    with pytest.raises(errors.InvalidArgumentError, match=reason):
        convert({**plain(), "w": w}, tmp_path / "g", edge_ids=False, progress=False)
    with pytest.raises(errors.InvalidArgumentError, match=reason):
        update(store, tmp_path / "g", tensors={"w": w}, progress=False)
    with pytest.raises(errors.InvalidArgumentError, match=r"\(user, rates, item\)\." + reason):
        convert(typed(), tmp_path / "g", edge_ids=False, progress=False)
    assert not (tmp_path / "g").exists()


def test_some_edge_types(tmp_path: Path) -> None:
    with convert(typed(), tmp_path / "g", edge_ids={RATED: False}, progress=False) as store:
        with pytest.raises(errors.InvalidArgumentError, match=r"the edges of \(item, rated, user\) were " + LOST):
            Loader(store, [4, 3], "user")
        with Loader(store, [4, 3], "user", return_edge_id=False, **OPTIONS) as loader:
            for batch in loader:
                assert torch.equal(batch[RATES].w, store[RATES]["w"][batch[RATES].e_id])
                assert "e_id" not in batch[RATED]
    for wrong, error in (
        ({("user", "rates", "film"): False}, errors.InvalidArgumentError),
        ({RATED: 0}, errors.DTypeError),
        ("no", errors.DTypeError),
    ):
        with pytest.raises(error, match="edge_ids"):
            convert(typed(), tmp_path / "wrong", edge_ids=wrong, progress=False)  # type: ignore[arg-type]


def test_appended_edges_have_none(store: Store, tmp_path: Path) -> None:
    more, all_of = np.array([[1, 2, 3], [499, 0, 7]]), plain()
    all_of["edge_index"] = np.concatenate([all_of["edge_index"], more], axis=1)
    with (
        append(store, tmp_path / "grown", edges=more, progress=False) as grown,
        convert(all_of, tmp_path / "whole", edge_ids=False, progress=False) as whole,
    ):
        assert grown.num_edges == 6003
        for name in ("indptr.bin", "indices.bin"):
            assert (Path(grown.path) / name).read_bytes() == (Path(whole.path) / name).read_bytes()
        assert not (Path(grown.path) / "edge_ids.bin").exists()
        grown.verify(progress=False)


def test_pyg_sees_the_edges_by_target(store: Store) -> None:
    pytest.importorskip("torch_geometric")
    graph = importlib.import_module("freshgo.pyg").stores(store)[1]
    sources, targets = graph.get_edge_index(graph.get_all_edge_attrs()[0])
    source, target = plain()["edge_index"]
    order = np.argsort(target, kind="stable")
    np.testing.assert_array_equal(targets, target[order])
    np.testing.assert_array_equal(sources, source[order])


def test_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    np.save(tmp_path / "edge_index.npy", plain()["edge_index"])
    assert main(["convert", str(tmp_path / "edge_index.npy"), str(tmp_path / "g"), "--no-edge-ids", "--quiet"]) == 0
    capsys.readouterr()
    assert main(["inspect", str(tmp_path / "g")]) == 0
    assert "e_id     none: converted with edge_ids=False" in capsys.readouterr().out
    assert main(["verify", str(tmp_path / "g")]) == 0


def test_far_too_many_nodes(tmp_path: Path) -> None:
    reason = r"^4294967296 nodes, expected at most 4294967295: a graph has at most 2\^32 - 1$"
    graph = {"edge_index": torch.tensor([[0], [1]]), "num_nodes": 1 << 32}
    with pytest.raises(errors.InvalidArgumentError, match=reason):
        convert(graph, tmp_path / "g", isolated_nodes=True, progress=False)
