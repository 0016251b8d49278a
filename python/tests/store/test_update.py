"""Stores that are changed without a conversion: what they hold is what a conversion would have written."""

from __future__ import annotations

import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from changes import updated
from graphs import Form, forms, handed, hetero_graph, random_graph
from seeds import seed as seed_of
from store_oracle import check_equal

import freshgo
from freshgo import Loader, Store, convert, propagate, relayout, update
from freshgo.errors import (
    BudgetError,
    ClosedError,
    CorruptError,
    DTypeError,
    InvalidArgumentError,
    StoreExistsError,
    StoreNotFoundError,
)

pytestmark = pytest.mark.explore

QUIET: dict[str, Any] = {"memory": "64MiB", "progress": False}

form = forms(random_graph, lambda: hetero_graph(100))


@pytest.mark.parametrize("relaid", [False, True], ids=["plain", "relaid"])
def test_sequences_are_conversions(form: Form, tmp_path: Path, relaid: bool) -> None:
    draw, graph = random.Random(seed_of(relaid)), form.graph
    path = form.path
    if relaid:
        relayout(path, tmp_path / "relaid", order="community", **QUIET).close()
        path = tmp_path / "relaid"
    for step in range(6):
        how, graph = updated(graph, draw)
        with update(path, tmp_path / f"{step}", **how, **QUIET) as changed:
            convert(handed(graph), tmp_path / "fresh", overwrite=True, progress=False).close()
            with Store(tmp_path / "fresh") as fresh:
                check_equal(changed, fresh)
            changed.verify()
            assert changed.reordered == relaid
        if path.parent == tmp_path:
            shutil.rmtree(path)  # the new store does not need it
        path = tmp_path / f"{step}"
    with Store(path) as store:
        store.verify()


def test_batches_bring_what_was_added(tmp_path: Path) -> None:
    graph = random_graph(500, 4000)
    convert(graph, tmp_path / "s", progress=False).close()
    new = np.arange(500, dtype=np.float32)[:, None]
    np.save(tmp_path / "new.npy", new)
    with update(tmp_path / "s", tmp_path / "t", tensors={"new": tmp_path / "new.npy"}, drop=["x"], **QUIET) as store:
        loaders = [Loader(store, [4, 3], "test", batch_size=50), Loader(tmp_path / "s", [4, 3], "test", batch_size=50)]
        for mine, before in zip(*loaders, strict=True):
            assert "x" not in mine
            assert mine.n_id.equal(before.n_id)
            assert mine.new[:, 0].equal(mine.n_id.float())
        for loader in loaders:
            loader.close()


def test_what_stays_is_not_written_again(tmp_path: Path) -> None:
    graph = random_graph(20_000, 100_000)
    convert(graph, tmp_path / "s", progress=False).close()
    with update(tmp_path / "s", tmp_path / "t", tensors={"y": np.zeros(20_000)}, **QUIET):
        one, other = ((tmp_path / name / "indices.bin").stat() for name in "st")
    same_file = one.st_ino == other.st_ino
    cloned = subprocess.run(["cp", "--reflink=always", tmp_path / "s/indices.bin", tmp_path / "c"], check=False)
    assert same_file or cloned.returncode == 0 or tmp_path.stat().st_dev != (tmp_path / "s").stat().st_dev


def test_a_store_takes_its_own_place(tmp_path: Path) -> None:
    convert(random_graph(500, 4000), tmp_path / "s", progress=False).close()
    with Store(tmp_path / "s") as store:
        update(store, store.path, drop=["half", "test"], overwrite=True, **QUIET).close()
        with Store(store.path) as changed:
            assert "half" not in changed.tensors
            assert "test" not in changed.splits
            assert changed.uuid != store.uuid
            changed.verify()
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


def test_computed_tensors_go_with_what_they_were_computed_from(tmp_path: Path) -> None:
    convert(random_graph(500, 4000), tmp_path / "s", progress=False).close()
    propagate(tmp_path / "s", "x", weight_attr="edge_weight", **QUIET).close()
    for how in ({"tensors": {"x": np.ones((500, 3), np.float32)}}, {"drop": ["x"]}, {"drop": ["edge_weight"]}):
        with update(tmp_path / "s", tmp_path / "t", overwrite=True, **how, **QUIET) as store:
            assert "x_mean" not in store.tensors
    with update(tmp_path / "s", tmp_path / "t", overwrite=True, drop=["y"], **QUIET) as store:
        assert store["x_mean"].equal(Store(tmp_path / "s")["x_mean"])
        Loader(store, [3], first_layer="mean", weight_attr="edge_weight").close()


def test_weights_by_target_stay(tmp_path: Path) -> None:
    convert(random_graph(500, 4000), tmp_path / "s", weight_attr="edge_weight", progress=False).close()
    with update(tmp_path / "s", tmp_path / "t", drop=["y"], **QUIET) as store:
        assert store.weight_attr == "edge_weight"
        store.verify()
    for how in ({"drop": ["edge_weight"]}, {"tensors": {"edge_weight": np.ones(4000)}}):
        with pytest.raises(InvalidArgumentError, match="stored in sampling order too"):
            update(tmp_path / "s", tmp_path / "u", **how, **QUIET)


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"tensors": {"x": np.ones((3, 2))}}, InvalidArgumentError, "x"),
        ({"tensors": {"new": np.ones((3, 2))}}, InvalidArgumentError, "one row per node or one per edge"),
        ({"tensors": {"new": "text"}}, DTypeError, "new must be an array"),
        ({"tensors": [3]}, DTypeError, "tensors must be a mapping"),
        ({"tensors": {3: np.ones(500)}}, DTypeError, "must be names"),
        ({"tensors": {"n_id": np.ones(500)}}, InvalidArgumentError, "reserved for an attribute of the batch"),
        ({"splits": {"new": [500]}}, InvalidArgumentError, "500"),
        ({"splits": {"new": [0.5]}}, DTypeError, "integers or bools"),
        ({"splits": 3}, DTypeError, "splits must be a mapping"),
        ({"drop": ["none"]}, InvalidArgumentError, "drop names 'none', which the store does not have"),
        ({"drop": "x"}, DTypeError, "drop must be a list"),
        ({"drop": 3}, DTypeError, "drop must be a sequence"),
        ({"drop": ["x"], "tensors": {"x": np.ones((500, 2))}}, InvalidArgumentError, "both given and dropped"),
        ({"memory": 1}, BudgetError, "is too small: .* needs at least"),
        ({"overwrite": 3}, DTypeError, "overwrite"),
        ({"store": "/nowhere"}, StoreNotFoundError, "nowhere"),
    ],
    ids=str,
)
def test_bad_input(tmp_path: Path, change: dict[str, Any], error: type[Exception], words: str) -> None:
    convert(random_graph(500, 4000), tmp_path / "s", progress=False).close()
    given = {"store": tmp_path / "s", **QUIET, **change}
    with pytest.raises(error, match=words):
        update(given.pop("store"), tmp_path / "t", **given)
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


def test_bad_types(tmp_path: Path) -> None:
    convert(hetero_graph(50), tmp_path / "s", progress=False).close()
    for how, error, words in (
        ({"tensors": {"x": np.ones(3)}}, InvalidArgumentError, "no node type 'x'"),
        ({"tensors": {"paper": np.ones(3)}}, DTypeError, "must be a mapping"),
        ({"splits": {("author", "writes", "paper"): {"a": [1]}}}, InvalidArgumentError, "splits are of nodes"),
        ({"drop": ["x"]}, DTypeError, "mapping from types"),
        ({"drop": {"paper": ["age"]}}, InvalidArgumentError, "'age'"),
    ):
        with pytest.raises(error, match=words):
            update(tmp_path / "s", tmp_path / "t", **how, **QUIET)


def test_states_of_the_store(tmp_path: Path) -> None:
    convert(random_graph(500, 4000), tmp_path / "s", progress=False).close()
    with pytest.raises(StoreExistsError):
        update(tmp_path / "s", tmp_path / "s", **QUIET)
    store = Store(tmp_path / "s")
    store.close()
    with pytest.raises(ClosedError):
        update(store, tmp_path / "t", **QUIET)
    with pytest.raises(BudgetError) as error:
        update(tmp_path / "s", tmp_path / "t", tensors={"x": torch.ones(500, 9)}, memory=1, progress=False)
    update(
        tmp_path / "s", tmp_path / "t", tensors={"x": torch.ones(500, 9)}, memory=error.value.minimum, progress=False
    ).close()
    assert freshgo.Store(tmp_path / "t")["x"].equal(torch.ones(500, 9))
    stages: set[str] = set()
    update(
        tmp_path / "s", tmp_path / "u", tensors={"x": torch.ones(500, 9)}, progress=lambda stage, *_: stages.add(stage)
    ).close()
    assert stages
    assert stages <= {"sharing", "writing x"}
    for path in (tmp_path / "s").glob("manifest*"):
        data = bytearray(path.read_bytes())
        data[-1] ^= 1
        path.write_bytes(data)
        with pytest.raises(CorruptError):
            update(tmp_path / "s", tmp_path / "v", **QUIET)
