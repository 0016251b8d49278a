"""What belongs to a graph as a whole is replaced, added and left out by update(), and stays in append()."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from freshgo import Loader, append, convert, update
from freshgo.errors import DTypeError, InvalidArgumentError

EDGES = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 4]])
QUIET: dict[str, Any] = {"progress": False}


def same(a: object, b: object) -> bool:
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return a.dtype == b.dtype and torch.equal(a, b)
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(same(a[key], b[key]) for key in a)
    return type(a) is type(b) and bool(np.all(a == b))


def test_attributes_of_a_homogeneous_graph(tmp_path: Path) -> None:
    graph = {"edge_index": EDGES, "x": torch.rand(5, 2), "class_weights": torch.rand(7), "year": 2020, "old": "gone"}
    np.save(tmp_path / "mean.npy", np.arange(3.0))
    new: dict[str, Any] = {"class_weights": torch.rand(3), "names": ["a", {"b": torch.ones(2)}], "empty": torch.ones(0)}
    with convert(graph, tmp_path / "a", **QUIET) as store:
        changed = update(store, tmp_path / "b", attributes={**new, "mean": tmp_path / "mean.npy", "old": None}, **QUIET)
    want = {**new, "year": 2020, "mean": torch.arange(3.0, dtype=torch.float64)}
    got = changed.attributes()
    assert got.keys() == want.keys() and all(same(got[name], want[name]) for name in want if name != "names")
    assert got["names"][0] == "a" and same(got["names"][1]["b"], torch.ones(2))
    changed.verify()
    batch = next(iter(Loader(changed, [1], batch_size=5)))
    assert torch.equal(batch.class_weights, new["class_weights"]) and batch.year == 2020
    again = update(changed, tmp_path / "c", drop=["names", "x"], attributes={"x": 3}, **QUIET)
    assert again.attributes().keys() == (want.keys() - {"names"}) | {"x"} and again.attributes()["x"] == 3
    assert not [name for name in again._contents.attachments if "names" in name], "nothing is left of what was dropped"
    grown = append(again, tmp_path / "d", nodes={"num_nodes": 2}, **QUIET)
    assert grown.num_nodes == 7 and grown.attributes().keys() == again.attributes().keys()


def test_attributes_of_types(tmp_path: Path) -> None:
    graph: dict[Any, Any] = {
        "paper": {"x": torch.rand(5, 2), "mean": torch.ones(1, 2)},
        ("paper", "cites", "paper"): EDGES,
        "author": {"num_nodes": 3},
    }
    cites = ("paper", "cites", "paper")
    with convert(graph, tmp_path / "a", **QUIET) as store:
        changed = update(
            store,
            tmp_path / "b",
            attributes={"paper": {"scale": 2.5}, cites: {"unit": "s"}, "seed": torch.tensor(4)},
            **QUIET,
        )
    assert same(changed.attributes(), {"seed": torch.tensor(4)}) and changed.attributes(cites) == {"unit": "s"}
    assert same(changed.attributes("paper"), {"mean": torch.ones(1, 2), "scale": 2.5})
    again = update(changed, tmp_path / "c", drop={"paper": ["mean"]}, attributes={"seed": None}, **QUIET)
    assert again.attributes() == {} and again.attributes("paper") == {"scale": 2.5}


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"attributes": 3}, DTypeError, "attributes must be a mapping from names to values, got 3"),
        ({"attributes": {3: 4}}, DTypeError, "names in attributes must be strings, got 3"),
        (
            {"attributes": {"n_id": 4}},
            InvalidArgumentError,
            "'n_id' is reserved for an attribute of",
        ),
        ({"attributes": {"a": object}}, DTypeError, "a must be a number, a string, a tensor, or a list"),
        (
            {"attributes": {"yaer": None}},
            InvalidArgumentError,
            "'yaer': None} drops .* it has 'year'; did you mean 'year'",
        ),
        ({"attributes": {"x": 3}}, InvalidArgumentError, "'x' is both a tensor and an attribute: drop one of them"),
        ({"tensors": {"year": torch.ones(5)}}, InvalidArgumentError, "'year' is both a tensor and an attribute"),
        ({"drop": ["yaer"]}, InvalidArgumentError, "drop names 'yaer', .* did you mean 'year'"),
        ({"tensors": {"w": torch.ones(9)}}, InvalidArgumentError, r"or attributes=\{'w': ...\} for the graph as a"),
    ],
)
def test_bad_input(tmp_path: Path, options: dict[str, Any], error: type[Exception], words: str) -> None:
    with convert({"edge_index": EDGES, "x": torch.rand(5, 2), "year": 2020}, tmp_path / "a", **QUIET) as store:
        with pytest.raises(error, match=words):
            update(store, tmp_path / "b", **options, **QUIET)
        with pytest.raises(InvalidArgumentError, match=r"year has no row for each new .*update\(attributes=...\)"):
            append(store, tmp_path / "b", nodes={"x": torch.rand(1, 2), "year": 2021}, **QUIET)
    assert not (tmp_path / "b").exists()
