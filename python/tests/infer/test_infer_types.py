"""infer of models over several node types, against their forward over the whole graph."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from infer_models import (
    HOW,
    ByType,
    Hgt,
    RelationSums,
    Sage,
    assert_near,
    made,
    to_hetero,
)
from torch import nn

from freshgo import infer

tg = pytest.importorskip("torch_geometric.nn")
pytestmark = pytest.mark.explore

HETERO: dict[str, Callable[[], Any]] = {
    "by type": ByType,
    "by type, max, papers": lambda: ByType("max", "paper"),
    "hgt": Hgt,
    "relation sums": RelationSums,
    "to_hetero, sage": lambda: to_hetero(Sage((-1, 16, 4), conv=lambda a, b: tg.SAGEConv((-1, -1), b))),
    "to_hetero, basic": lambda: to_hetero(tg.GraphSAGE((-1, -1), 8, 2, 4, jk="cat")),
}


@pytest.mark.filterwarnings("ignore:Found function")
@pytest.mark.parametrize("kind", HETERO)
def test_types_of_nodes(typed: Any, tmp_path: Path, kind: str) -> None:
    path, x, edges = typed
    model = made(HETERO[kind])
    with torch.no_grad():
        want = model(x, edges)
    want = want if isinstance(want, dict) else {"paper": want}
    out = infer(model, path, tmp_path / "out", **HOW)
    assert sorted(file.stem for file in out.iterdir()) == sorted(want)
    for of in want:
        assert_near(out / f"{of}.npy", want[of])
    ids = {"paper": [5, 149, 5]}
    some = infer(model, path, tmp_path / "some", nodes=ids, **HOW)
    assert_near(some / "paper.npy", want["paper"][ids["paper"]])


def test_batches_of_types(typed: Any, tmp_path: Path) -> None:
    class Typed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = tg.SAGEConv((6, 12), 5)

        def forward(self, x_dict: Any, edge_index_dict: Any) -> Any:
            ends = edge_index_dict["author", "writes", "paper"]
            return {"paper": self.conv((x_dict["author"], x_dict["paper"]), ends[:, ends[0] >= 0])}

    path, x, edges = typed
    model = made(Typed)
    out = infer(model, path, tmp_path / "out", fallback="batches", depth=1, **HOW)
    with torch.no_grad():
        assert_near(out / "paper.npy", model(x, edges)["paper"])
